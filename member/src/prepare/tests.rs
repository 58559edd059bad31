//! `prepare` on real directories.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::credentials::Credentials;

/// Directories of one pod under a temporary directory that is removed after the test.
struct Pod {
    root: PathBuf,
    dirs: Directories,
    environment: Environment,
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Pod {
    /// Pod `zk-1` of ensemble `shop/zk`, so server 2 of 3.
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("member-{}-{number}", std::process::id()));
        let dirs = Directories {
            config: root.join("config"),
            bootstrap: root.join("bootstrap"),
            conf: root.join("conf"),
            data: root.join("data"),
            datalog: root.join("datalog"),
            credentials: Credentials {
                identity: root.join("identity"),
                tls: root.join("tls"),
                users: root.join("users"),
                super_user: None,
                authorities: root.join("client-authorities"),
                client_port: root.join("client-port"),
            },
            termination_log: root.join("termination-log"),
        };
        for dir in [
            &dirs.config,
            &dirs.bootstrap,
            &dirs.conf,
            &dirs.data,
            &dirs.datalog,
        ] {
            fs::create_dir_all(dir).unwrap();
        }
        let environment = Environment {
            pod_name: Some("zk-1".to_owned()),
            ensemble: Some("shop/zk".to_owned()),
            id_offset: None,
            observer: false,
            given: Given::default(),
            now: 1000,
        };
        let pod = Self {
            root,
            dirs,
            environment,
        };
        for id in 1..=3 {
            pod.write(
                &format!("config/zoo-{id}.cfg"),
                &format!("dataDir=/data\ndataLogDir=/datalog\n# {id}\n"),
            );
        }
        pod.write("config/java.env", "SERVER_JVMFLAGS=-Xmx64m\n");
        pod
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    fn permit(&self, ids: &str, until: u64) {
        self.write("bootstrap/initialize", ids);
        self.write("bootstrap/until", &until.to_string());
    }

    fn prepare(&self) -> Result<String, String> {
        prepare(&self.dirs, &self.environment)
    }
}

#[test]
fn a_new_volume_is_marked_and_configured() {
    let pod = Pod::new();
    let line = pod.prepare().unwrap();
    let mark = "{\"ensemble\":\"shop/zk\",\"format\":1,\"serverId\":2,\"starts\":1}\n";
    assert_eq!(pod.read("data/bellwether.json").as_deref(), Some(mark));
    assert_eq!(pod.read("datalog/bellwether.json").as_deref(), Some(mark));
    assert_eq!(pod.read("data/myid").as_deref(), Some("2\n"));
    assert!(pod.read("conf/zoo.cfg").unwrap().contains("# 2"));
    assert!(pod.has("conf/java.env"));
    assert!(!pod.has("conf/zoo-2.cfg"));
    assert!(!pod.has("datalog/initialize") && !pod.has("data/initialize"));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["volume"], "new");
    assert_eq!(line["initialize"], false);
}

#[test]
fn preparing_twice_changes_nothing() {
    let pod = Pod::new();
    pod.permit("1,2,3", 2000);
    pod.prepare().unwrap();
    let line = pod.prepare().unwrap();
    assert!(line.contains("\"volume\":\"known\""), "{line}");
    assert!(pod.has("datalog/initialize"));
    let mut names = names(&pod.dirs.data).unwrap();
    names.extend(super::names(&pod.dirs.conf).unwrap());
    assert!(
        names.iter().all(|name| !name.ends_with(".tmp")),
        "{names:?}"
    );
}

#[test]
fn a_mounted_config_map_is_read_through_its_links() {
    let pod = Pod::new();
    fs::rename(&pod.dirs.config, pod.root.join("config/../elsewhere")).unwrap();
    fs::create_dir_all(&pod.dirs.config).unwrap();
    fs::rename(
        pod.root.join("elsewhere"),
        pod.dirs.config.join("..2026_01"),
    )
    .unwrap();
    symlink("..2026_01", pod.dirs.config.join("..data")).unwrap();
    for name in ["zoo-2.cfg", "java.env"] {
        symlink(format!("..data/{name}"), pod.dirs.config.join(name)).unwrap();
    }
    pod.prepare().unwrap();
    assert_eq!(names(&pod.dirs.conf).unwrap(), ["java.env", "zoo.cfg"]);
}

#[test]
fn a_pod_that_is_no_member_of_the_revision_is_refused() {
    let mut pod = Pod::new();
    pod.environment.pod_name = Some("zk-3".to_owned());
    let message = pod.prepare().unwrap_err();
    assert!(
        message.contains("server 4 of ensemble shop/zk is not a member"),
        "{message}"
    );
    assert!(!pod.has("data/myid"));
}

#[test]
fn an_observer_puts_its_own_id_and_name_into_the_shared_file() {
    let mut pod = Pod::new();
    pod.environment.pod_name = Some("zk-observer-1".to_owned());
    pod.environment.id_offset = Some("100".to_owned());
    pod.environment.observer = true;
    assert!(pod.prepare().unwrap_err().contains("not for observers"));
    let shared = "peerType=observer\nserver.{id}={pod}.zk-members:2888:3888:observer\n";
    pod.write("config/zoo-observer.cfg", shared);
    pod.prepare().unwrap();
    let own = "peerType=observer\nserver.102=zk-observer-1.zk-members:2888:3888:observer\n";
    assert_eq!(pod.read("conf/zoo.cfg").as_deref(), Some(own));
    assert_eq!(pod.read("data/myid").as_deref(), Some("102\n"));
    assert!(!pod.has("conf/zoo-observer.cfg"));
}

#[test]
fn the_volume_of_an_observer_is_refused_to_a_voter() {
    let mut pod = Pod::new();
    pod.environment.pod_name = Some("zk-observer-1".to_owned());
    pod.environment.id_offset = Some("100".to_owned());
    pod.environment.observer = true;
    pod.write("config/zoo-observer.cfg", "peerType=observer\n");
    pod.prepare().unwrap();
    pod.environment.pod_name = Some("zk-1".to_owned());
    pod.environment.id_offset = None;
    pod.environment.observer = false;
    let message = pod.prepare().unwrap_err();
    assert!(message.contains("server 102"), "{message}");
}

#[test]
fn a_refused_volume_is_left_as_it_was() {
    let pod = Pod::new();
    pod.permit("2", 2000);
    pod.write("data/version-2/snapshot.0", "x");
    let message = pod.prepare().unwrap_err();
    assert!(message.contains("no mark of Bellwether"), "{message}");
    assert_eq!(names(&pod.dirs.data).unwrap(), ["version-2"]);
    assert!(names(&pod.dirs.conf).unwrap().is_empty());
}

#[test]
fn the_permission_becomes_the_marker_where_zookeeper_looks_for_it() {
    let pod = Pod::new();
    pod.permit("1,2,3", 1000);
    pod.prepare().unwrap();
    assert_eq!(pod.read("datalog/initialize").as_deref(), Some(""));
    assert!(!pod.has("data/initialize"));

    let together = Pod::new();
    together.write("config/zoo-2.cfg", "dataDir=/data\n");
    together.permit("1,2,3", 1000);
    together.prepare().unwrap();
    assert_eq!(together.read("data/initialize").as_deref(), Some(""));
    assert!(!together.has("datalog/initialize"));
    assert!(!together.has("datalog/bellwether.json"));
}

#[test]
fn a_member_that_must_initialize_waits_for_the_permission() {
    let pod = Pod::new();
    pod.write("config/initialize", "2");
    pod.permit("1", 2000);
    let message = pod.prepare().unwrap_err();
    assert!(message.contains("nothing permits it"), "{message}");
    assert!(!pod.has("datalog/initialize"));
    pod.permit("2", 2000);
    pod.prepare().unwrap();
    assert!(pod.has("datalog/initialize"));
    assert!(!pod.has("conf/initialize"));
}

#[test]
fn leftovers_of_a_start_without_the_marker_do_not_stop_the_bootstrap() {
    let pod = Pod::new();
    pod.permit("2", 2000);
    pod.write("data/version-2/acceptedEpoch", "0");
    pod.write("data/version-2/currentEpoch", "-1");
    pod.write("datalog/version-2/snapshot.0.tmp", "");
    pod.prepare().unwrap();
    assert!(!pod.has("data/version-2") && !pod.has("datalog/version-2"));
    assert!(pod.has("datalog/initialize"));
}

#[test]
fn an_unknown_file_in_the_empty_database_stops_the_bootstrap() {
    let pod = Pod::new();
    pod.permit("2", 2000);
    pod.write("data/version-2/notes.txt", "mine");
    let message = pod.prepare().unwrap_err();
    assert!(message.contains("notes.txt"), "{message}");
    assert!(pod.has("data/version-2/notes.txt") && !pod.has("datalog/initialize"));
}

#[test]
fn epoch_files_stay_where_no_bootstrap_is_permitted() {
    let pod = Pod::new();
    pod.write("data/version-2/acceptedEpoch", "7");
    pod.prepare().unwrap();
    assert_eq!(
        pod.read("data/version-2/acceptedEpoch").as_deref(),
        Some("7")
    );
}

#[test]
fn a_marker_that_nothing_permits_any_more_goes() {
    let pod = Pod::new();
    pod.permit("2", 2000);
    pod.prepare().unwrap();
    // The server formed a database.
    pod.write("data/version-2/snapshot.0", "x");
    pod.prepare().unwrap();
    assert!(!pod.has("datalog/initialize"));

    let withdrawn = Pod::new();
    withdrawn.write("data/initialize", "");
    withdrawn.write("datalog/initialize", "");
    withdrawn.prepare().unwrap();
    assert!(!withdrawn.has("data/initialize") && !withdrawn.has("datalog/initialize"));

    let expired = Pod::new();
    expired.write("datalog/initialize", "");
    expired.permit("2", 999);
    let message = expired.prepare().unwrap_err();
    assert!(message.contains("the operator renews it"), "{message}");
    assert!(!expired.has("datalog/initialize"));
}

#[test]
fn a_malformed_permission_does_not_matter_once_there_is_data() {
    let pod = Pod::new();
    pod.prepare().unwrap();
    pod.write("bootstrap/initialize", "nonsense");
    assert!(pod.prepare().unwrap_err().contains("malformed"));
    pod.write("datalog/version-2/log.1", "x");
    pod.prepare().unwrap();
}

#[test]
fn a_lost_transaction_log_volume_is_noticed() {
    let pod = Pod::new();
    pod.prepare().unwrap();
    pod.write("data/version-2/snapshot.0", "x");
    fs::remove_file(pod.dirs.datalog.join(MARK)).unwrap();
    let message = pod.prepare().unwrap_err();
    assert!(
        message.contains("transaction log volume is new"),
        "{message}"
    );
}

#[test]
fn a_missing_data_directory_is_an_error() {
    let pod = Pod::new();
    fs::remove_dir(&pod.dirs.data).unwrap();
    assert!(pod.prepare().unwrap_err().contains("there is no directory"));
}

#[test]
fn an_old_copy_of_the_volume_is_refused_and_the_right_one_is_not() {
    let pod = Pod::new();
    pod.prepare().unwrap();
    pod.write("bootstrap/epochs", "1=9\n2=7\n3=9\n");
    pod.write("data/version-2/snapshot.500000003", "x");
    pod.write("data/version-2/currentEpoch", "6\n");
    let message = pod.prepare().unwrap_err();
    assert!(
        message.contains("epoch 6") && message.contains("epoch 7"),
        "{message}"
    );
    pod.write("data/version-2/currentEpoch", "7");
    pod.prepare().unwrap();
    // Without ZooKeeper's `currentEpoch` the names of the files decide.
    fs::remove_file(pod.root.join("data/version-2/currentEpoch")).unwrap();
    assert!(pod.prepare().unwrap_err().contains("epoch 5"));
    pod.write("datalog/version-2/log.700000001", "x");
    pod.prepare().unwrap();
}

#[test]
fn a_member_that_lost_its_volume_may_be_killed_while_it_copies() {
    let pod = Pod::new();
    pod.write("bootstrap/epochs", "2=7\n");
    pod.prepare().unwrap();
    // A snapshot of the leader is there, and the epoch is not yet.
    pod.write("data/version-2/snapshot.700000003", "x");
    pod.write("data/version-2/currentEpoch", "0");
    pod.prepare().unwrap();
    pod.write("bootstrap/epochs", "2=8\n");
    assert!(pod.prepare().unwrap_err().contains("epoch 8"));
}

/// Directories of a pod whose ensemble changes its members at run time; the list was this when it was made.
fn at_run_time(version: &str, members: &str) -> Pod {
    let mut pod = Pod::new();
    for id in 1..=3 {
        fs::remove_file(pod.root.join(format!("config/zoo-{id}.cfg"))).unwrap();
    }
    pod.write(
        "config/settings.cfg",
        "dataDir=/data\nreconfigEnabled=true\n",
    );
    let line = |id: u16| format!("server.{id}=zk-{}:2888:3888:participant\n", id - 1);
    let lines: String = (1..=13).map(line).collect();
    pod.write("config/servers", &lines);
    pod.environment.given = Given {
        members: Some(members.to_owned()),
        version: Some(version.to_owned()),
    };
    pod
}

#[test]
fn where_members_change_at_run_time_the_configuration_is_on_the_volume() {
    let pod = at_run_time("0", "1,2,3");
    prepare(&pod.dirs, &pod.environment).unwrap();
    let text = pod.read("data/config/zoo.cfg").unwrap();
    let servers: Vec<&str> = text.lines().filter(|l| l.starts_with("server.")).collect();
    assert_eq!(servers.len(), 3, "{text}");
    let digest = "\nDigestAuthenticationProvider.superDigest=super:";
    assert!(text.contains(digest), "{text}");
    // `zkServer.sh status` reads this one.
    assert_eq!(pod.read("conf/zoo.cfg").unwrap(), text);
    let password = pod.read("conf/super-password").unwrap();
    assert_eq!(password.len(), 48);
    assert!(!text.contains(&password));
    prepare(&pod.dirs, &pod.environment).unwrap();
    assert_ne!(pod.read("conf/super-password").unwrap(), password);
}

#[test]
fn a_member_goes_on_with_the_list_on_its_volume_unless_it_has_left() {
    let pod = at_run_time("100000000", "1");
    pod.write(
        "data/config/zoo.cfg",
        "dataDir=/data\ndynamicConfigFile=/data/config/zoo.cfg.dynamic.100000004\n",
    );
    let list = "server.1=zk-0:2888:3888:participant\nserver.2=zk-1:2888:3888:participant\n";
    pod.write("data/config/zoo.cfg.dynamic.100000004", list);
    prepare(&pod.dirs, &pod.environment).unwrap();
    let text = pod.read("data/config/zoo.cfg").unwrap();
    let path = pod.root.join("data/config/zoo.cfg.dynamic.100000004");
    let line = format!("\ndynamicConfigFile={}\n", path.display());
    assert!(
        text.contains(&line) && !text.contains("\nserver."),
        "{text}"
    );
    let mut later = at_run_time("200000000", "1");
    later.dirs.data = pod.dirs.data.clone();
    prepare(&later.dirs, &later.environment).unwrap();
    let text = pod.read("data/config/zoo.cfg").unwrap();
    assert!(
        text.contains("\nserver.1=") && text.contains("\nserver.2="),
        "{text}"
    );
    assert!(!text.contains("dynamicConfigFile"), "{text}");
}

#[test]
fn lists_before_the_committed_one_are_removed() {
    let pod = at_run_time("100000000", "1");
    pod.write(
        "data/config/zoo.cfg",
        "dynamicConfigFile=/data/config/zoo.cfg.dynamic.100000004\n",
    );
    let list = "server.1=zk-0:2888:3888:participant\n";
    let all = ["100000000", "f0000000f", "100000004", "100000005", "next"];
    let path = |version: &str| format!("data/config/zoo.cfg.dynamic.{version}");
    for version in all {
        pod.write(&path(version), list);
    }
    prepare(&pod.dirs, &pod.environment).unwrap();
    let stays = |version: &&str| pod.read(&path(version)).is_some();
    let left: Vec<&str> = all.into_iter().filter(stays).collect();
    assert_eq!(left, ["f0000000f", "100000004", "100000005", "next"]);
}

#[test]
fn files_of_another_time_are_forgotten_when_lists_are_in_files_of_the_operator() {
    let pod = Pod::new();
    pod.write(
        "data/config/zoo.cfg.dynamic.100000004",
        "server.2=zk-1:2888:3888\n",
    );
    prepare(&pod.dirs, &pod.environment).unwrap();
    assert!(!pod.root.join("data/config").exists());
}

#[test]
fn a_list_that_makes_no_sense_is_refused() {
    for (version, members) in [
        ("", "1,2"),
        ("x", "1,2"),
        ("1", ""),
        ("1", "1,99"),
        ("1", "1,,2"),
    ] {
        let pod = at_run_time(version, members);
        prepare(&pod.dirs, &pod.environment).unwrap_err();
        assert!(!pod.root.join("conf/zoo.cfg").exists());
    }
}
