//! What znodes of real applications look like, and what the mirror says about them.
//!
//! Each directory of `corpus/` is one application at one moment: `znodes.yaml` has the spec, the
//! znodes, and who leads and waits by the application's own rules; `status.snap` is the whole status.
//! A new directory is a new case; `cargo insta review` shows what the status becomes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{DialectType, LeaderElectionStatus};
use bellwether_election::{
    Acknowledgement, CandidateNode, NodeStat, OtherCandidates, Place, Registration, Rules, Sight,
    Snapshot, ZnodeLocation, read_election, status,
};
use jiff::Timestamp;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    spec: LeaderElectionSpec,
    /// The election's own node, where that is the leader's.
    node: Option<Znode>,
    /// Its children.
    #[serde(default)]
    children: Vec<Znode>,
    /// The node where the leader registers itself.
    registration: Option<Znode>,
    /// Those who may lead, where they stand under a path of their own.
    #[serde(default)]
    members: Vec<Znode>,
    /// Who was active last, in a node of its own.
    breadcrumb: Option<Znode>,
    /// The application's own number of the leader's term, in a node of its own.
    epoch: Option<Znode>,
    /// The session of an acknowledgement outside of the children, or 0.
    acknowledgement: Option<i64>,
    /// Who leads by the application's own rules.
    leader: Option<String>,
    /// Who is in the queue, the first in front.
    queue: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Znode {
    #[serde(default)]
    name: String,
    czxid: i64,
    mzxid: Option<i64>,
    #[serde(default)]
    session: i64,
    #[serde(default)]
    data: String,
    /// Binary data in hexadecimal, instead of `data`.
    #[serde(default)]
    hex: String,
}

impl Znode {
    fn stat(&self) -> NodeStat {
        NodeStat {
            czxid: self.czxid,
            mzxid: self.mzxid.unwrap_or(self.czxid),
            pzxid: self.czxid,
            ctime: 1_800_000_000_000 + self.czxid,
            mtime: 1_800_000_000_000 + self.mzxid.unwrap_or(self.czxid),
            ephemeral_owner: self.session,
            children: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        if self.hex.is_empty() {
            return self.data.clone().into_bytes();
        }
        let digits: Vec<char> = self.hex.chars().collect();
        let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
        pairs
            .map(|pair| u8::from_str_radix(&pair, 16).unwrap())
            .collect()
    }
}

/// What the operator would read of the case.
fn snapshot(rules: &mut Rules, case: &Case) -> Snapshot {
    let children: Vec<String> = case.children.iter().map(|node| node.name.clone()).collect();
    match &case.node {
        Some(node) => rules.detect_node(&node.stat(), &node.bytes()),
        None => rules.detect(&children),
    }
    if rules.place() == Place::Node {
        let Some(node) = &case.node else {
            return Snapshot::Missing { zxid: 1 };
        };
        let name = case.spec.path.rsplit('/').next().unwrap();
        return Snapshot::Node {
            candidacy: rules.candidacy(name, &node.stat(), &node.bytes()),
            children: 0,
            zxid: node.stat().newest(),
        };
    }
    let wanted = rules.wanted(&children);
    let read = case
        .children
        .iter()
        .filter(|node| wanted.contains(&node.name));
    let members: HashMap<String, CandidateNode> = read
        .map(|node| {
            let candidacy = rules.candidacy(&node.name, &node.stat(), &node.bytes());
            (node.name.clone(), CandidateNode::from(candidacy))
        })
        .collect();
    let registration = rules
        .leader_path()
        .map(|place| match (&case.registration, place) {
            (None, _) => Registration::Absent,
            (Some(node), ZnodeLocation::Elsewhere(path)) => {
                let candidacy = rules.registration(&path, &node.stat(), &node.bytes());
                Registration::Present(CandidateNode::from(candidacy))
            }
            (Some(_), ZnodeLocation::Child(name)) => panic!("{name} is among the children"),
        });
    let acknowledgement = rules.acknowledgement().map(|place| {
        let owner = match place {
            ZnodeLocation::Child(name) => {
                let node = case.children.iter().find(|node| node.name == name);
                node.map(|node| node.session)
            }
            ZnodeLocation::Elsewhere(_) => case.acknowledgement,
        };
        match owner {
            Some(owner) => Acknowledgement::Present { owner },
            None => Acknowledgement::Absent,
        }
    });
    let nodes = case.children.iter().chain(&case.registration);
    let zxid = nodes.map(|node| node.stat().newest()).max().unwrap_or(1);
    Snapshot::Queue {
        children,
        znodes: members,
        acknowledgement,
        registration,
        zxid,
    }
}

fn others(rules: &Rules, case: &Case) -> OtherCandidates {
    let members = case.members.iter();
    let member = |node: &Znode| {
        let candidacy = rules.member(&node.name, &node.stat(), &node.bytes());
        (node.name.clone(), CandidateNode::from(candidacy))
    };
    OtherCandidates {
        znodes: members.map(member).collect(),
        count: case.members.len(),
        zxid: 1,
    }
}

fn status_of(case: &Case) -> LeaderElectionStatus {
    let mut rules = Rules::new(Arc::new(case.spec.clone()), None).unwrap();
    let snapshot = snapshot(&mut rules, case);
    let now = Timestamp::from_second(1_800_000_060).unwrap();
    let mut reading = read_election(&rules, &snapshot);
    if let Some(node) = &case.epoch {
        assert!(rules.epoch_path().is_some());
        let epoch = rules.epoch(&node.stat(), &node.bytes());
        reading.add_epoch(epoch.as_deref(), node.stat().newest());
    }
    if rules.members_path().is_some() {
        reading.add_others(&rules, others(&rules, case));
    }
    if let Some(node) = &case.breadcrumb {
        assert!(rules.breadcrumb_path().is_some());
        let candidacy = rules.breadcrumb(&node.stat(), &node.bytes());
        reading.add_breadcrumb(Some(candidacy), node.stat().newest());
    }
    reading.expire(now);
    let sight = Sight::Seen(Box::new(reading));
    status(&case.spec, Some(1), &sight, None, now)
}

fn directories() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let entries = fs::read_dir(corpus).unwrap();
    let mut directories: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    directories.sort();
    directories
}

fn case(file: &Path) -> Case {
    let text = fs::read_to_string(file).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_dialect_has_a_case() {
    let files = directories();
    let files = files.iter().map(|directory| directory.join("znodes.yaml"));
    let found: Vec<DialectType> = files.map(|file| case(&file).spec.dialect.type_).collect();
    for dialect in DialectType::ALL {
        assert!(
            found.contains(&dialect),
            "election/tests/corpus/ has no znodes.yaml of the dialect {}",
            dialect.as_str()
        );
    }
}

/// Each dialect has a line in the table of those whose path is the leader's node, or of those with a queue.
#[test]
fn every_dialect_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/elections.md");
    let page = fs::read_to_string(page).unwrap();
    let (nodes, queues) = page
        .split_once("Where the children of `path` are candidates")
        .unwrap();
    let nodes_of_leaders: Vec<DialectType> = DialectType::of_one_node().collect();
    for dialect in DialectType::ALL {
        let (text, line) = match dialect {
            DialectType::Auto => (queues, "### Auto\n".to_owned()),
            dialect if nodes_of_leaders.contains(&dialect) => {
                (nodes, format!("\n| `{}` | ", dialect.as_str()))
            }
            dialect => (queues, format!("\n| `{}` | ", dialect.as_str())),
        };
        assert!(
            text.contains(&line),
            "docs/elections.md has no line {line:?} in the table where it belongs"
        );
    }
}

#[test]
fn the_status_says_what_the_application_says() {
    let directories = directories();
    assert!(directories.len() >= 50, "only {} cases", directories.len());
    for directory in directories {
        let file = directory.join("znodes.yaml");
        let case = case(&file);
        let status = status_of(&case);
        let leader = status.leader.as_ref().map(|leader| leader.identity.clone());
        assert_eq!(leader, case.leader, "{}", file.display());
        let queue = status.candidates.iter();
        let queue: Vec<_> = queue.map(|candidate| candidate.identity.clone()).collect();
        assert_eq!(queue, case.queue, "{}", file.display());
        insta::with_settings!({
            snapshot_path => &directory,
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!("status", serde_yaml::to_string(&status).unwrap());
        });
    }
}
