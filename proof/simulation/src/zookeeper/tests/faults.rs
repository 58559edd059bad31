//! Many faults at random moments: nothing that was acknowledged is lost while lists and disks are as they
//! should be, and everybody serves again when the faults end.

use super::*;

/// How many lives are tried; the environment may ask for more.
fn seeds(few: u64) -> u64 {
    let asked = std::env::var("BELLWETHER_SEEDS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(few)
}

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
            // The name resolves to the process before for a while.
            let started = bench.start_unresolved(id, list);
            let late = if rng.bool() {
                ms(rng.u64(..8000))
            } else {
                Duration::ZERO
            };
            bench.zoo.resolve(&host(id), Some(started), now + late);
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

/// One step of a change of the lists, in any order and with crashes: every member restarts with the new
/// list.
fn step(bench: &mut Bench, rng: &mut fastrand::Rng, old: &[u16], new: &[u16]) {
    for id in new.iter().filter(|id| !old.contains(id)) {
        bench.disk(*id, false);
        bench.start(*id, new);
    }
    let mut lists: BTreeMap<u16, &[u16]> = old.iter().map(|id| (*id, old)).collect();
    lists.extend(
        new.iter()
            .filter(|id| !old.contains(id))
            .map(|id| (*id, new)),
    );
    loop {
        let behind = lists
            .iter()
            .filter(|(id, l)| **l != new && new.contains(id));
        let behind: Vec<u16> = behind.map(|(id, _)| *id).collect();
        if behind.is_empty() {
            break;
        }
        bench.run(ms(rng.u64(..4000)));
        if rng.bool() {
            let id = behind[rng.usize(..behind.len())];
            lists.insert(id, new);
            bench.start(id, new);
        } else {
            // A crash, and the member comes back with the list that it had.
            let all: Vec<u16> = lists.keys().copied().collect();
            let id = all[rng.usize(..all.len())];
            bench.start(id, lists[&id]);
        }
        for writer in &mut bench.writers {
            writer.use_servers(bench.processes.values().copied().collect());
        }
    }
    for id in old.iter().filter(|id| !new.contains(id)) {
        bench.kill(*id);
        bench.processes.remove(id);
    }
    bench.until("all serve the new list", |b| b.serving() == new);
}

fn chain(seed: u64, sizes: &[u16]) -> Bench {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bench = Bench::started(seed, sizes[0]);
    let list = |size: u16| (1..=size).collect::<Vec<u16>>();
    bench.write_through(&list(sizes[0]));
    for pair in sizes.windows(2) {
        step(&mut bench, &mut rng, &list(pair[0]), &list(pair[1]));
    }
    bench.stop_writing();
    bench.zoo.check(NAME);
    for process in bench.processes.values() {
        for writer in &bench.writers {
            bench
                .zoo
                .ledger
                .violations
                .extend(writer.read_back(&bench.zoo, *process));
        }
    }
    bench
}

#[test]
fn single_steps_in_any_order_with_crashes_lose_nothing() {
    for seed in 0..seeds(4) {
        let bench = chain(seed, &[3, 4, 5, 6, 7, 6, 5, 4, 3]);
        assert_eq!(bench.harm(), [], "seed {seed}: {}", bench.story());
    }
}

#[test]
fn double_steps_in_any_order_lose_something_in_some_of_many_tries() {
    let harmed = (0..20).filter(|seed| {
        let step = std::panic::catch_unwind(|| chain(*seed, &[3, 5]).harm());
        step.is_ok_and(|harm| !harm.is_empty())
    });
    assert!(harmed.count() > 0);
}
