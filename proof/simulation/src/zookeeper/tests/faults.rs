//! Many faults at random moments: nothing that was acknowledged is lost while lists and disks are as they
//! should be, and everybody serves again when the faults end.

use super::*;

/// One fault, or the end of one.
fn fault(bench: &mut Bench, rng: &mut fastrand::Rng, list: &[u16]) {
    let now = bench.zoo.now();
    let id = list[rng.usize(..list.len())];
    let other = list[rng.usize(..list.len())];
    let (process, peer) = (bench.processes[&id], bench.processes[&other]);
    match rng.u32(..10) {
        0 | 1 => {
            bench.kill(id);
        }
        2..=4 => {
            bench.start(id, list);
        }
        5 => bench.zoo.freeze(now, process),
        6 => bench.zoo.thaw(now, process),
        7 => bench.zoo.isolate(now, process),
        8 if id != other => bench.zoo.cut(now, process, peer),
        _ => {
            bench.zoo.join(now, process);
            bench.zoo.heal(now, process, peer);
        }
    }
}

fn repair(bench: &mut Bench, list: &[u16]) {
    let now = bench.zoo.now();
    for a in bench.zoo.processes() {
        bench.zoo.join(now, a);
        bench.zoo.thaw(now, a);
        for b in bench.zoo.processes() {
            bench.zoo.heal(now, a, b);
        }
    }
    for id in list {
        if bench.phase(*id) == Phase::Down {
            bench.start(*id, list);
        }
    }
}

/// Faults for a minute, and then none.
fn life(seed: u64, size: u16) -> Bench {
    let list: Vec<u16> = (1..=size).collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bench = Bench::started(seed, size);
    bench.write_through(&list);
    bench.write_through(&list);
    for _ in 0..60 {
        bench.run(ms(rng.u64(..2000)));
        fault(&mut bench, &mut rng, &list);
        for writer in &mut bench.writers {
            writer.use_servers(bench.processes.values().copied().collect());
        }
    }
    repair(&mut bench, &list);
    bench.until("all serve again", |b| b.serving() == list);
    bench.run(secs(1));
    bench.stop_writing();
    bench.zoo.check(NAME);
    bench
}

#[test]
fn faults_of_every_kind_lose_nothing() {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(20);
    for seed in 0..seeds {
        let bench = life(seed, if seed % 2 == 0 { 3 } else { 5 });
        assert_eq!(bench.harm(), [], "seed {seed}: {}", bench.story());
        for process in bench.processes.values() {
            for writer in &bench.writers {
                assert_eq!(writer.read_back(&bench.zoo, *process), None, "seed {seed}");
            }
        }
    }
}
