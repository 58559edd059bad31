//! Empty, lost and old disks.

use super::*;

/// What was acknowledged by servers 2 and 3, and 2 loses its disk while 3 is down.
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
        permission: Permission::default(),
        must_initialize: false,
        recorded_epoch: Some(2),
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

#[test]
fn the_member_program_refuses_what_is_not_the_members_own() {
    let mut zoo = Zoo::new(1);
    let (data, log) = (zoo.new_disk(), zoo.new_disk());
    let around = Prepare {
        ensemble: NAME.to_owned(),
        id: ServerId(2),
        disk: data,
        log_disk: Some(log),
        permission: Permission::parse(Some("1,2,3"), Some("100")),
        must_initialize: false,
        recorded_epoch: None,
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
            .contains("belongs to server 2")
    );
    let other = Prepare {
        ensemble: "shop/other".to_owned(),
        ..around.clone()
    };
    assert!(zoo.prepare(&other).is_err());
    let without = Prepare {
        permission: Permission::default(),
        ..around.clone()
    };
    assert_eq!(zoo.prepare(&without), Ok(Prepared { initialize: false }));
    let must = Prepare {
        must_initialize: true,
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
            .contains("which this pod lacks")
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
