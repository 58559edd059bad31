//! Empty, lost and old disks.

use super::*;
use bellwether_ensemble::encryption::Encryption;

/// Servers 2 and 3 acknowledge writes, and server 2 loses its disk while 3 is down.
fn wiped(bench: &mut Bench) {
    let all = [1, 2, 3];
    bench.kill(1);
    bench.until("two serve", |b| b.serving().len() == 2);
    bench.write_through(&[2, 3]);
    bench.run(secs(2));
    assert!(bench.acknowledged() > 50);
    bench.kill(2);
    bench.kill(3);
    bench.disk(2, false);
    bench.start(1, &all);
    bench.start(2, &all);
    bench.run(secs(30));
}

#[test]
fn an_empty_disk_that_votes_loses_writes() {
    let mut bench = Bench::started(1, 3);
    bench.settings.autocreate = true;
    wiped(&mut bench);
    assert_eq!(bench.harm(), [Harm::LostWrite], "{}", bench.story());
}

#[test]
fn an_empty_disk_that_does_not_vote_loses_nothing() {
    let mut bench = Bench::started(1, 3);
    wiped(&mut bench);
    assert!(bench.serving().is_empty());
    bench.start(3, &[1, 2, 3]);
    bench.run(secs(20));
    assert_eq!(bench.serving(), [1, 2, 3], "{}", bench.story());
    assert_eq!(bench.harm(), []);
}

#[test]
fn an_old_copy_of_a_disk_loses_writes_unless_it_is_refused() {
    let mut bench = Bench::started(1, 3);
    let all = [1, 2, 3];
    let copy = bench.zoo.copy_disk(bench.disks[&2]);
    bench.kill(1);
    bench.until("two serve", |b| b.serving().len() == 2);
    bench.write_through(&[2, 3]);
    bench.run(secs(2));
    bench.kill(2);
    bench.kill(3);
    let around = Prepare {
        ensemble: NAME.to_owned(),
        id: ServerId(2),
        disk: copy,
        log_disk: None,
        bootstrap: Bootstrap {
            epochs: Some("2=2".to_owned()),
            ..Bootstrap::default()
        },
        required: None,
        now: 0,
    };
    let refused = bench.zoo.prepare(&around).unwrap_err();
    assert!(refused.contains("its database is of epoch 1"), "{refused}");
    bench.disks.insert(2, copy);
    bench.start(1, &all);
    bench.start(2, &all);
    bench.run(secs(30));
    assert_eq!(bench.harm(), [Harm::LostWrite], "{}", bench.story());
}

#[test]
fn what_is_acknowledged_outlives_the_end_of_every_process() {
    for seed in 0..20 {
        let mut bench = Bench::started(seed, 3);
        bench.write_through(&[1, 2, 3]);
        bench.run(secs(2));
        for id in 1..=3 {
            bench.kill(id);
        }
        bench.writers.clear();
        for id in 1..=3 {
            bench.start(id, &[1, 2, 3]);
        }
        bench.run(secs(10));
        assert_eq!(bench.serving(), [1, 2, 3]);
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), [], "{}", bench.story());
    }
}

fn permission(ids: &str, until: &str) -> Bootstrap {
    Bootstrap {
        initialize: Some(ids.to_owned()),
        until: Some(until.to_owned()),
        epochs: None,
    }
}

#[test]
fn the_member_program_refuses_what_is_not_the_members_own() {
    let mut zoo = Zoo::new(1);
    let (data, log) = (zoo.new_disk(), zoo.new_disk());
    let around = Prepare {
        ensemble: NAME.to_owned(),
        id: ServerId(2),
        disk: data,
        log_disk: Some(log),
        bootstrap: permission("1,2,3", "100"),
        required: None,
        now: 50,
    };
    assert_eq!(zoo.prepare(&around), Ok(Prepared { initialize: true }));
    let late = Prepare {
        now: 110,
        ..around.clone()
    };
    assert!(zoo.prepare(&late).unwrap_err().contains("expired 10 s ago"));
    let other = Prepare {
        id: ServerId(3),
        ..around.clone()
    };
    assert!(
        zoo.prepare(&other)
            .unwrap_err()
            .contains("it is marked as server 2")
    );
    let other = Prepare {
        ensemble: "shop/other".to_owned(),
        ..around.clone()
    };
    assert!(zoo.prepare(&other).is_err());
    let without = Prepare {
        bootstrap: Bootstrap::default(),
        ..around.clone()
    };
    assert_eq!(zoo.prepare(&without), Ok(Prepared { initialize: false }));
    let must = Prepare {
        required: Some("2".to_owned()),
        ..without
    };
    assert!(zoo.prepare(&must).unwrap_err().contains("needs its vote"));
    let alone = Prepare {
        log_disk: None,
        ..around
    };
    assert!(
        zoo.prepare(&alone)
            .unwrap_err()
            .contains("which this pod does not have")
    );
}

/// The snapshots alone lack what was acknowledged; the log's volume has it.
#[test]
fn a_log_on_a_volume_of_its_own_is_read_again() {
    let mut zoo = Zoo::new(1);
    let (data, log) = (zoo.new_disk(), zoo.new_disk());
    let around = Prepare {
        ensemble: NAME.to_owned(),
        id: ServerId(1),
        disk: data,
        log_disk: Some(log),
        bootstrap: permission("1", "100"),
        required: None,
        now: 50,
    };
    let start = Start {
        ensemble: NAME.to_owned(),
        id: ServerId(1),
        host: host(1),
        voters: vec![(ServerId(1), host(1))],
        version: 0,
        servers: BTreeMap::new(),
        observers: BTreeSet::new(),
        observer: false,
        disk: data,
        log_disk: Some(log),
        settings: Settings {
            autocreate: false,
            ..Settings::default()
        },
    };
    zoo.prepare(&around).unwrap();
    let first = zoo.start(Duration::ZERO, start.clone());
    zoo.advance(secs(5));
    for write in 1..=10 {
        zoo.propose(secs(5), ClientId(1), first, write);
    }
    zoo.advance(secs(6));
    assert_eq!(zoo.take_answers().len(), 10);
    zoo.kill(secs(6), first);
    let report = zoo.volume_report(data, Some(log));
    assert!(report.has_database && report.transaction_log.is_some());
    assert_eq!(
        (report.current_epoch, report.accepted_epoch),
        (Some(1), Some(1))
    );
    assert_eq!(zoo.on_disk(data, Some(log)).len(), 10);
    zoo.prepare(&around).unwrap();
    let second = zoo.start(secs(6), start);
    zoo.advance(secs(12));
    assert_eq!(zoo.read(second).unwrap().len(), 10);
    assert!(zoo.violations().is_empty());
    // Without the log's volume the member is refused.
    let lost = Prepare {
        log_disk: Some(zoo.new_disk()),
        ..around
    };
    assert!(
        zoo.prepare(&lost)
            .unwrap_err()
            .contains("log volume is new")
    );
}

#[test]
fn a_server_that_its_own_list_does_not_name_ends() {
    let mut bench = Bench::started(1, 3);
    bench.disk(4, false);
    bench.start(4, &[1, 2, 3, 4]);
    let mut start = bench.zoo.start_of(bench.processes[&4]).clone();
    start.voters.retain(|(id, _)| id.0 != 4);
    let process = bench.zoo.start(bench.zoo.now(), start);
    bench.run(secs(5));
    assert_eq!(
        bench.zoo.exit_message(process),
        Some("My id 4 not in the peer list")
    );
    assert_eq!(bench.zoo.phase(process), Phase::Down);
}

#[test]
fn a_full_disk_ends_the_server_and_the_others_go_on() {
    let mut bench = Bench::started(1, 3);
    bench.write_through(&[1, 2, 3]);
    bench.run(secs(1));
    let leader = bench.leader();
    bench.zoo.set_full(bench.disks[&leader], true);
    bench.run(secs(5));
    assert_eq!(bench.phase(leader), Phase::Down);
    assert_eq!(bench.leaders().len(), 1);
    bench.zoo.check(NAME);
    assert_eq!(bench.harm(), []);
}

#[test]
fn a_rendered_file_is_read() {
    let text = "# Written by Bellwether.\ntickTime=1000\ninitLimit=20\nsyncLimit=4\ndataDir=/data\n\
                dataLogDir=/datalog\ndb.autocreate=false\nfastleader.maxNotificationInterval=500\n\
                leader.maxTimeToWaitForEpoch=2000\nreconfigEnabled=false\n\
                server.1=zk-0.m.shop.svc.cluster.local:2888:3888:participant\n\
                server.2=zk-1.m.shop.svc.cluster.local:2888:3888:participant\n\
                server.101=zk-observer-0.m:2888:3888:observer\n";
    let mut zoo = Zoo::new(1);
    let (data, log) = (zoo.new_disk(), zoo.new_disk());
    let start = Start::parse(NAME, ServerId(2), text, data, Some(log)).unwrap();
    assert_eq!(start.host, "zk-1.m.shop.svc.cluster.local");
    assert_eq!(start.voters.len(), 2);
    assert!(!start.observer && !start.settings.autocreate);
    assert_eq!(start.log_disk, Some(log));
    assert_eq!(
        (start.settings.tick, start.settings.sync_limit),
        (secs(1), 4)
    );
    assert_eq!(start.settings.longest_wait_for_epoch, Some(secs(2)));
    assert!(
        Start::parse(NAME, ServerId(101), text, data, None)
            .unwrap()
            .observer
    );
    assert!(Start::parse(NAME, ServerId(1), "nothing", data, None).is_err());
}

/// A leader that is cut off proposes writes that it can no longer commit. They vanish when it comes
/// back, whether the new leader has written since or not.
#[test]
fn what_only_a_leader_that_was_cut_off_has_vanishes() {
    let mut vanished = 0;
    for (seed, others_write) in (0..20).map(|seed| (seed, seed % 2 == 0)) {
        let mut bench = Bench::started(seed, 3);
        let leader = bench.leader();
        bench.write_through(&[leader]);
        bench.run(secs(2));
        let before = bench.acknowledged();
        let process = bench.processes[&leader];
        let now = bench.zoo.now();
        bench.zoo.isolate(now, process);
        bench.run(secs(1));
        bench.stop_writing();
        let on_disk = |bench: &Bench| bench.zoo.on_disk(bench.disks[&leader], None).len();
        let proposed = on_disk(&bench);
        assert!(proposed > before, "a proposal is on its disk");
        bench.run(secs(20));
        if others_write {
            let others: Vec<u16> = (1..=3).filter(|id| *id != leader).collect();
            bench.write_through(&others);
            bench.run(secs(1));
            bench.stop_writing();
        }
        let other = bench.processes[&bench.leader()];
        let now = bench.zoo.now();
        bench.zoo.join(now, process);
        bench.run(secs(10));
        assert_eq!(bench.serving(), [1, 2, 3]);
        bench.zoo.check(NAME);
        assert_eq!(bench.harm(), [], "{}", bench.story());
        let kept = bench.zoo.read(other).unwrap().to_vec();
        assert_eq!(bench.zoo.read(process).unwrap(), kept);
        assert_eq!(bench.zoo.on_disk(bench.disks[&leader], None), kept);
        vanished += usize::from(!others_write && kept.len() < proposed);
        // It stays so after a restart.
        let process = bench.start(leader, &[1, 2, 3]);
        bench.run(secs(5));
        assert_eq!(bench.zoo.read(process).unwrap(), kept);
    }
    assert!(vanished > 0);
}

#[test]
fn what_the_operator_renders_is_read() {
    use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
    use bellwether_ensemble::desired::config::render;
    use bellwether_ensemble::validate::Context;
    use bellwether_ensemble::{Voters, validate};
    let spec = ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    };
    let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
    ensemble.metadata.namespace = Some("shop".to_owned());
    let context = Context {
        member_image: "bellwether:1".to_owned(),
        version: "1".to_owned(),
        ..Context::default()
    };
    let valid = validate(&ensemble, &context).unwrap();
    let files = render(&valid, &Voters::first(3, 0), None, Encryption::NONE).files;
    let mut zoo = Zoo::new(1);
    let disk = zoo.new_disk();
    let parse = |id: u16, text: &str| Start::parse(NAME, ServerId(id), text, disk, None).unwrap();
    let start = parse(2, &files["zoo-2.cfg"]);
    assert_eq!(start.host, "zk-1.zk-members.shop.svc.cluster.local");
    assert_eq!(start.voters.len(), 3);
    assert!(!start.observer && !start.settings.autocreate);
    assert_eq!(start.settings.longest_notification, ms(500));
    assert_eq!(start.settings.longest_wait_for_epoch, Some(secs(2)));
    // A member that leaves observes.
    let leaver = parse(4, &files["zoo-4.cfg"]);
    assert!(leaver.observer && leaver.voters.len() == 3);
    let shared = files["zoo-observer.cfg"]
        .replace("{id}", "101")
        .replace("{pod}", "zk-observer-0");
    assert!(parse(101, &shared).observer);
}
