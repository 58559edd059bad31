//! Starts, crashes, cuts and copying.

use super::*;

#[test]
fn three_servers_start_and_serve() {
    for seed in 0..50 {
        let mut bench = Bench::started(seed, 3);
        bench.write_through(&[1, 2, 3]);
        bench.run(secs(1));
        assert!(bench.acknowledged() > 50, "{}", bench.acknowledged());
        assert_eq!(bench.leaders().len(), 1);
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), []);
    }
}

#[test]
fn one_server_leads_alone() {
    let mut bench = Bench::started(1, 1);
    bench.write_through(&[1]);
    bench.run(secs(1));
    assert!(bench.acknowledged() > 50);
}

#[test]
fn a_crashed_leader_is_replaced_in_the_time_that_real_servers_take() {
    let mut gaps = Vec::new();
    for seed in 0..20 {
        let mut bench = Bench::started(seed, 3);
        let leader = bench.leader();
        let others: Vec<u16> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
        bench.write_through(&others);
        bench.run(secs(1));
        let events = bench.zoo.events();
        bench.writers.clear();
        bench.write_through(&others);
        bench.kill(leader);
        bench.run(secs(10));
        assert_eq!(bench.serving(), others, "{}", bench.story());
        gaps.push(bench.writers[0].longest_gap(bench.zoo.now()));
        assert_eq!(bench.harm(), [], "{}", bench.story());
        assert!(bench.zoo.events() - events < 30_000);
        bench.start(leader, &[1, 2, 3]);
        bench.run(secs(3));
        assert_eq!(bench.serving(), [1, 2, 3]);
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), []);
    }
    gaps.sort();
    let (shortest, median, longest) = (gaps[0], gaps[10], gaps[19]);
    assert!(
        shortest > ms(200) && median < ms(800) && longest < secs(5),
        "{gaps:?}"
    );
}

#[test]
fn an_election_takes_some_hundred_events_at_most() {
    let mut bench = Bench::started(3, 5);
    let events = bench.zoo.events();
    let leader = bench.leader();
    bench.kill(leader);
    bench.run(secs(5));
    assert_eq!(bench.serving().len(), 4);
    let taken = bench.zoo.events() - events;
    assert!(taken < 400, "{taken}");
}

#[test]
fn an_ensemble_at_rest_has_no_events() {
    let mut bench = Bench::started(3, 5);
    // The time limits of what is done by now.
    bench.run(secs(60));
    let events = bench.zoo.events();
    bench.run(secs(600));
    assert_eq!(bench.zoo.events(), events);
}

#[test]
fn a_leader_that_is_cut_off_steps_down_and_the_others_go_on() {
    for seed in 0..20 {
        let mut bench = Bench::started(seed, 5);
        let leader = bench.leader();
        let others: Vec<u16> = (1..=5).filter(|id| *id != leader).collect();
        bench.write_through(&[leader]);
        bench.write_through(&others);
        bench.run(secs(1));
        let now = bench.zoo.now();
        bench.zoo.isolate(now, bench.processes[&leader]);
        bench.run(secs(30));
        assert_eq!(bench.serving(), others, "{}", bench.story());
        // A follower notices after syncLimit ticks.
        let gap = bench.writers[1].longest_gap(bench.zoo.now());
        assert!(gap > secs(8) && gap < secs(20), "{gap:?}");
        let now = bench.zoo.now();
        bench.zoo.join(now, bench.processes[&leader]);
        bench.run(secs(10));
        assert_eq!(bench.serving(), [1, 2, 3, 4, 5], "{}", bench.story());
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), []);
        bench.stop_writing();
        for writer in &bench.writers {
            for process in bench.processes.values() {
                assert_eq!(writer.read_back(&bench.zoo, *process), None);
            }
        }
    }
}

#[test]
fn a_frozen_leader_loses_its_followers_and_comes_back_as_one() {
    for seed in 0..20 {
        let mut bench = Bench::started(seed, 3);
        let leader = bench.leader();
        bench.write_through(&[1, 2, 3]);
        bench.run(secs(1));
        let now = bench.zoo.now();
        bench.zoo.freeze(now, bench.processes[&leader]);
        bench.run(secs(30));
        assert_ne!(bench.leader(), leader);
        let now = bench.zoo.now();
        bench.zoo.thaw(now, bench.processes[&leader]);
        bench.run(secs(10));
        assert_eq!(bench.serving(), [1, 2, 3], "{}", bench.story());
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), [], "{}", bench.story());
    }
}

#[test]
fn a_short_cut_changes_nothing() {
    let mut bench = Bench::started(1, 3);
    let leader = bench.leader();
    bench.write_through(&[leader]);
    let now = bench.zoo.now();
    bench.zoo.isolate(now, bench.processes[&leader]);
    bench.run(secs(4));
    let now = bench.zoo.now();
    bench.zoo.join(now, bench.processes[&leader]);
    bench.run(secs(20));
    assert_eq!(bench.leader(), leader);
    assert!(bench.acknowledged() > 1000);
}

#[test]
fn a_new_server_copies_for_as_long_as_the_data_is_large() {
    let mut bench = Bench::started(1, 3);
    bench.write_through(&[1, 2, 3]);
    bench.run(secs(5));
    bench.zoo.set_size(NAME, 3 << 29);
    bench.disk(4, false);
    bench.start(4, &[1, 2, 3, 4]);
    bench.until("server 4 copies", |b| {
        matches!(b.phase(4), Phase::Synchronizing { .. })
    });
    bench.run(secs(10));
    let Phase::Synchronizing { bytes_left } = bench.phase(4) else {
        panic!("{}", bench.story())
    };
    assert!(bytes_left > 1 << 29, "{bytes_left}");
    let process = bench.processes[&4];
    let answer = bench.zoo.answer(process, "srvr").unwrap();
    assert!(
        answer.contains("not currently serving requests"),
        "{answer}"
    );
    let took = bench.until("server 4 serves", |b| b.phase(4) == Phase::Following);
    assert!(took > secs(25) && took < secs(50), "{took:?}");
    bench.stop_writing();
    for writer in &bench.writers {
        assert_eq!(writer.read_back(&bench.zoo, process), None);
    }
}

/// Writing the snapshot takes longer than `initLimit`: the leader gives the server up, which then needs a
/// second try, for which it has the data.
#[test]
fn a_server_that_writes_too_long_needs_a_second_try() {
    let mut bench = Bench::started(1, 3);
    bench.zoo.set_size(NAME, 3 << 30);
    bench.disk(4, false);
    bench.start(4, &[1, 2, 3, 4]);
    let took = bench.until("server 4 serves", |b| b.phase(4) == Phase::Following);
    assert!(took > secs(90), "{took:?}");
    assert!(
        bench.story().contains("lost its leader while it wrote"),
        "{}",
        bench.story()
    );
}

#[test]
fn a_server_whose_name_resolves_late_joins_late() {
    for late in 1..=3 {
        let mut bench = Bench::empty(late);
        for id in 1..=3 {
            bench.disk(id, true);
            let process = bench.start_unresolved(id, &[1, 2, 3]);
            let at = if u64::from(id) == late {
                secs(20)
            } else {
                Duration::ZERO
            };
            bench.zoo.resolve(&host(id), Some(process), at);
        }
        bench.run(secs(10));
        let mut others: Vec<u16> = vec![1, 2, 3];
        others.retain(|id| u64::from(*id) != late);
        assert!(bench.serving().len() >= 2, "{}", bench.story());
        bench.run(secs(20));
        assert_eq!(bench.serving(), [1, 2, 3], "{}", bench.story());
    }
}

#[test]
fn observers_follow_and_do_not_count() {
    let mut bench = Bench::started(1, 3);
    bench.disk(101, false);
    bench.start(101, &[1, 2, 3]);
    bench.run(secs(5));
    assert_eq!(bench.phase(101), Phase::Observing, "{}", bench.story());
    bench.write_through(&[101]);
    bench.run(secs(1));
    assert!(bench.acknowledged() > 50);
    let leader = bench.leader();
    for id in [1, 2, 3] {
        if id != leader {
            bench.kill(id);
        }
    }
    bench.run(secs(5));
    assert!(bench.leaders().is_empty());
    assert!(bench.serving().is_empty());
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_does_not() {
    let history = |seed: u64| {
        let mut bench = Bench::started(seed, 5);
        bench.write_through(&[1, 2, 3, 4, 5]);
        bench.run(secs(2));
        let leader = bench.leader();
        bench.kill(leader);
        bench.run(secs(5));
        bench.start(leader, &[1, 2, 3, 4, 5]);
        bench.run(secs(5));
        (bench.zoo.digest(), bench.zoo.events())
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn the_answers_are_those_that_the_operator_parses() {
    use bellwether_api::ensemble::MemberRole;
    use bellwether_ensemble::four_letter::{parse_conf, parse_srvr};
    let mut bench = Bench::started(1, 3);
    let leader = bench.leader();
    for id in 1..=3 {
        let process = bench.processes[&id];
        let answer = |word: &str| bench.zoo.answer(process, word).unwrap();
        let serving = parse_srvr(&answer("srvr")).unwrap().unwrap();
        let role = if id == leader {
            MemberRole::Leader
        } else {
            MemberRole::Follower
        };
        assert_eq!(serving.role, role);
        let conf = parse_conf(&answer("conf")).unwrap().unwrap();
        assert_eq!(
            (conf.id, conf.list.voters.to_string()),
            (ServerId(id), "1,2,3".to_owned())
        );
        assert_eq!(answer("ruok"), "imok");
    }
    let process = bench.processes[&leader];
    assert!(
        bench
            .zoo
            .answer(process, "mntr")
            .unwrap()
            .contains("zk_synced_followers\t2")
    );
    bench.kill(leader);
    assert_eq!(bench.zoo.answer(process, "ruok"), None);
}
