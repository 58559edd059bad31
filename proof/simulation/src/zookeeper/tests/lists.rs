//! What servers with different lists do to each other.

use super::*;

#[test]
fn a_batch_change_with_the_leader_first_gives_two_leaders_and_loses_writes() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let mut bench = Bench::started(seed, 3);
        let leader = bench.leader();
        bench.write_through(&[1, 2, 3]);
        bench.run(secs(1));
        let all = [1, 2, 3, 4, 5];
        for id in [4, 5] {
            bench.disk(id, false);
            bench.start(id, &all);
        }
        bench.until("4 and 5 follow", |b| b.serving().len() == 5);
        bench.write_through(&[4, 5]);
        bench.run(secs(1));
        bench.start(leader, &all);
        bench.run(secs(20));
        seen.extend(bench.harm());
        let old: Vec<u16> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
        for id in old {
            bench.start(id, &all);
        }
        bench.run(secs(20));
        bench.zoo.check(NAME);
        seen.extend(bench.harm());
    }
    assert!(seen.contains(&Harm::TwoLeaders), "{seen:?}");
    assert!(seen.contains(&Harm::TwoHistories), "{seen:?}");
    assert!(seen.contains(&Harm::LostWrite), "{seen:?}");
}

#[test]
fn one_to_three_at_once_loses_what_was_acknowledged() {
    let mut bench = Bench::started(1, 1);
    bench.write_through(&[1]);
    bench.run(secs(1));
    bench.kill(1);
    for id in [2, 3] {
        bench.disk(id, true);
        bench.start(id, &[1, 2, 3]);
    }
    bench.run(secs(5));
    assert_eq!(bench.harm(), [Harm::LostWrite], "{}", bench.story());
}

/// The chain of single steps, each as the operator does it: the newcomer first, then the followers, then
/// the leader.
#[test]
fn the_chain_of_single_steps_loses_nothing() {
    for seed in 0..20 {
        let mut bench = Bench::started(seed, 3);
        bench.write_through(&[1, 2, 3]);
        for size in [4, 5] {
            let list: Vec<u16> = (1..=size).collect();
            bench.disk(size, false);
            bench.start(size, &list);
            bench.until("the newcomer follows", |b| {
                b.phase(size) == Phase::Following
            });
            let leader = bench.leader();
            for id in (1..size).filter(|id| *id != leader).chain([leader]) {
                bench.start(id, &list);
                let processes = bench.processes.values().copied().collect();
                bench.writers[0].use_servers(processes);
                // Until more have the list, not every restarted one can join.
                bench.run(secs(3));
            }
            bench.until("all serve", |b| b.serving() == list);
        }
        bench.stop_writing();
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), [], "{}", bench.story());
        for process in bench.processes.values() {
            assert_eq!(bench.writers[0].read_back(&bench.zoo, *process), None);
        }
    }
}

#[test]
fn one_to_two_keeps_the_data_when_the_newcomer_may_vote() {
    for seed in 0..20 {
        let mut bench = Bench::started(seed, 1);
        bench.write_through(&[1]);
        bench.run(secs(1));
        bench.disk(2, true);
        bench.start(2, &[1, 2]);
        bench.run(secs(3));
        assert_eq!(bench.phase(2), Phase::Looking);
        bench.start(1, &[1, 2]);
        bench.run(secs(5));
        assert_eq!(bench.leaders(), [1], "{}", bench.story());
        assert_eq!(bench.serving(), [1, 2]);
        assert_eq!(bench.harm(), []);
    }
}

#[test]
fn a_newcomer_without_that_permission_waits_for_ever() {
    let mut bench = Bench::started(1, 1);
    bench.disk(2, false);
    bench.start(2, &[1, 2]);
    bench.run(secs(3));
    bench.start(1, &[1, 2]);
    bench.run(secs(60));
    assert!(bench.serving().is_empty());
    // A later permission does not help the newcomer, unless the files that it left are removed.
    let disk = bench.disks[&2];
    bench.zoo.disks[disk.0].initialize = true;
    let process = bench.start(2, &[1, 2]);
    bench.run(secs(5));
    assert_eq!(
        bench.zoo.exit_message(process),
        Some("The current epoch, ffffffffffffffff, is older than the last zxid, 0x0")
    );
}

/// The leader restarts before its followers have the new list: the old ones serve, and those with the new
/// list wait until there are more of them.
#[test]
fn a_single_step_with_the_leader_first_harms_nothing_and_leaves_two_behind() {
    for seed in 0..10 {
        let mut bench = Bench::started(seed, 3);
        bench.write_through(&[1, 2, 3]);
        bench.disk(4, false);
        bench.start(4, &[1, 2, 3, 4]);
        bench.until("4 follows", |b| b.phase(4) == Phase::Following);
        let leader = bench.leader();
        bench.start(leader, &[1, 2, 3, 4]);
        bench.run(secs(60));
        let mut old = vec![1, 2, 3];
        old.retain(|id| *id != leader);
        assert_eq!(bench.serving(), old, "{}", bench.story());
        assert_eq!(bench.harm(), []);
        // One more with the new list, and the ensemble goes on.
        for id in old {
            bench.start(id, &[1, 2, 3, 4]);
            bench.run(secs(10));
        }
        assert_eq!(bench.serving(), [1, 2, 3, 4], "{}", bench.story());
        assert_eq!(bench.harm(), []);
    }
}

/// A leader takes learners that its list does not name, and their acknowledgements do not count.
#[test]
fn a_learner_that_the_leader_does_not_name_follows_without_a_vote() {
    let mut bench = Bench::started(1, 3);
    for id in [4, 5] {
        bench.disk(id, false);
        bench.start(id, &[1, 2, 3, 4, 5]);
    }
    bench.until("4 and 5 follow", |b| b.serving().len() == 5);
    let leader = bench.leader();
    let mntr = bench.zoo.answer(bench.processes[&leader], "mntr").unwrap();
    assert!(
        mntr.contains("zk_synced_followers\t4\nzk_synced_non_voting_followers\t2"),
        "{mntr}"
    );
    for id in [1, 2, 3] {
        if id != leader {
            bench.kill(id);
        }
    }
    bench.run(secs(3));
    assert!(bench.leaders().is_empty());
}

#[test]
fn a_newcomer_joins_only_when_a_majority_of_its_own_list_follows() {
    let mut bench = Bench::started(1, 3);
    let leader = bench.leader();
    let follower = [1, 2, 3].into_iter().find(|id| *id != leader).unwrap();
    bench.kill(follower);
    bench.disk(4, false);
    bench.start(4, &[1, 2, 3, 4]);
    bench.run(secs(10));
    // Two of four are no majority.
    assert_eq!(bench.phase(4), Phase::Looking);
    bench.start(follower, &[1, 2, 3]);
    bench.run(secs(5));
    assert_eq!(bench.phase(4), Phase::Following, "{}", bench.story());
}
