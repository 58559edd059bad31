//! Whatever applications write into the names and the data of znodes, the mirror reports something
//! bounded and printable, reports the same when it is called again, and does not panic.
//!
//! The program of this package, for which `cargo xtask fuzz` asks by a feature since libFuzzer brings its own `main`,
//! searches for stories that break this, guided by coverage.
#![allow(clippy::unwrap_used, reason = "a panic is what the fuzzer looks for")]

use std::collections::HashMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::recipe::Options;
use bellwether_api::election::{DialectType, LeaderElectionStatus};
use bellwether_election::census::{parse_connections, parse_watchers};
use bellwether_election::{
    Acknowledgement, CandidateNode, MAX_IDENTITY, NodeStat, Place, Registration, Rules, Sight,
    Snapshot, ZnodeLocation, read_election, status,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// An election of any dialect, with any znodes, seen twice.
#[derive(Arbitrary, Debug)]
pub struct Story {
    dialect: u8,
    decoder: Option<u8>,
    pattern: Option<String>,
    prefix: String,
    acknowledgement: Option<String>,
    leader_path: bool,
    first: Znodes,
    second: Znodes,
    answer: String,
}

#[derive(Arbitrary, Debug)]
struct Znodes {
    node: Znode,
    children: Vec<(String, Option<Znode>)>,
    /// Names as libraries create them; sequence numbers and prefixes are taken from here.
    usual: Vec<(u8, i32, Znode)>,
    registration: Option<Znode>,
    owner: Option<i64>,
}

#[derive(Arbitrary, Debug)]
struct Znode {
    czxid: i64,
    mzxid: i64,
    ctime: i64,
    session: i64,
    children: i32,
    data: Vec<u8>,
}

impl Znode {
    fn stat(&self) -> NodeStat {
        NodeStat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.czxid,
            ctime: self.ctime,
            mtime: self.ctime,
            ephemeral_owner: self.session,
            children: self.children,
        }
    }
}

const DECODERS: &[&str] = &[
    "Text", "Json", "Hadoop", "HBase", "Flink", "NodeName", "Session",
];

const PREFIXES: &[&str] = &[
    "n_",
    "_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-latch-",
    "_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-lock-",
    "_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-__WRIT__",
    "6aa2b1b56f0d4b839a247a9c1f1f6a10__lock__",
    "6aa2b1b56f0d4b839a247a9c1f1f6a10__rlock__",
    "x-72057594037927936-",
    "72057594037927936-host:8983_solr-n_",
    "json.info_",
    "zlock#6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10#",
    "ballot",
    "member_",
    "leader_election-",
    "",
];

fn spec(story: &Story) -> Option<LeaderElectionSpec> {
    let dialect = DialectType::ALL[usize::from(story.dialect) % DialectType::ALL.len()];
    let mut options = json!({ "type": dialect.as_str() });
    if let Some(needed) = dialect.options() {
        options[needed.field()] = match needed {
            Options::Sequence => json!({ "prefix": story.prefix }),
            Options::Json => json!({ "pointers": ["/a", "/b/0"] }),
            Options::Custom => {
                let pattern = story.pattern.as_deref().unwrap_or("(?P<seq>-?[0-9]+)$");
                json!({ "childPattern": pattern })
            }
        };
    }
    if let Some(name) = &story.acknowledgement {
        options["acknowledgement"] = json!(name);
    }
    if story.leader_path {
        options["leaderPath"] = json!("/app/leader");
    }
    let mut spec = json!({
        "ensembleRef": { "name": "main" }, "path": "/app/election", "dialect": options,
    });
    if let Some(decoder) = story.decoder {
        let decoder = DECODERS[usize::from(decoder) % DECODERS.len()];
        spec["identity"] = json!({ "decoder": decoder });
        if decoder == "Json" {
            spec["identity"]["pointers"] = json!(["/id"]);
        }
    }
    serde_json::from_value(spec).ok()
}

/// What the operator would read.
fn snapshot(rules: &mut Rules, znodes: &Znodes) -> Snapshot {
    let mut nodes: HashMap<String, Option<&Znode>> = HashMap::new();
    for (name, node) in &znodes.children {
        nodes.insert(name.clone(), node.as_ref());
    }
    for (prefix, number, node) in &znodes.usual {
        let prefix = PREFIXES[usize::from(*prefix) % PREFIXES.len()];
        nodes.insert(format!("{prefix}{number:010}"), Some(node));
    }
    let children: Vec<String> = nodes.keys().cloned().collect();
    rules.detect(&children);
    if rules.place() == Place::Unknown {
        rules.detect_node(&znodes.node.stat(), &znodes.node.data);
    }
    if rules.place() == Place::Node {
        let stat = znodes.node.stat();
        return Snapshot::Node {
            candidacy: rules.candidacy("election", &stat, &znodes.node.data),
            children: stat.children,
            zxid: stat.newest(),
        };
    }
    let read = |name: &String| {
        Some(match nodes.get(name)? {
            Some(node) => CandidateNode::from(rules.candidacy(name, &node.stat(), &node.data)),
            None => CandidateNode::Hidden,
        })
    };
    let wanted = rules.wanted(&children);
    let read = wanted
        .into_iter()
        .filter_map(|n| Some((n.clone(), read(&n)?)))
        .collect();
    let registration = rules
        .leader_path()
        .map(|place| match (&znodes.registration, place) {
            (Some(node), ZnodeLocation::Elsewhere(path)) => {
                let candidacy = rules.registration(&path, &node.stat(), &node.data);
                Registration::Present(CandidateNode::from(candidacy))
            }
            _ => Registration::Absent,
        });
    let acknowledgement = rules.acknowledgement().map(|_| match znodes.owner {
        Some(owner) => Acknowledgement::Present { owner },
        None => Acknowledgement::Absent,
    });
    Snapshot::Queue {
        children,
        znodes: read,
        acknowledgement,
        registration,
        zxid: znodes.node.czxid,
    }
}

/// What consumers rely on in every status.
fn check(spec: &LeaderElectionSpec, status: &LeaderElectionStatus) {
    let shown = status.candidates.len();
    assert!(shown <= usize::try_from(spec.max_candidates).unwrap());
    let leader = status.leader.iter().map(|leader| &leader.identity);
    for identity in leader.chain(status.candidates.iter().map(|c| &c.identity)) {
        assert!(
            identity.chars().count() <= MAX_IDENTITY,
            "{identity:?} is too long"
        );
        assert!(
            !identity.chars().any(char::is_control),
            "{identity:?} holds control characters"
        );
    }
    let text = serde_json::to_string(status).unwrap();
    assert!(serde_json::from_str::<Value>(&text).is_ok());
    for condition in &status.conditions {
        assert!(
            condition.message.len() <= 32_768,
            "the API server takes no longer message"
        );
    }
}

/// Tells a story as the mirror does, with the election read twice in each of its two states.
///
/// # Panics
/// When a status is not what consumers rely on.
pub fn tell(story: &Story) {
    parse_connections(&story.answer);
    parse_watchers(&story.answer);
    let Some(spec) = spec(story) else { return };
    let Ok(mut rules) = Rules::new(Arc::new(spec.clone()), None) else {
        return;
    };
    let mut old = None;
    for (znodes, second) in [(&story.first, 0), (&story.second, 10)] {
        let snapshot = snapshot(&mut rules, znodes);
        let seen = Sight::Seen(Box::new(read_election(&rules, &snapshot)));
        let now = Timestamp::from_second(1_800_000_000 + second).unwrap();
        let new = status(&spec, Some(1), &seen, old.as_ref(), now);
        check(&spec, &new);
        let later = Timestamp::from_second(1_800_000_005 + second).unwrap();
        assert_eq!(
            status(&spec, Some(1), &seen, Some(&new), later),
            new,
            "idle means no write"
        );
        old = Some(new);
    }
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_with;

    use arbitrary::Unstructured;

    use super::*;

    #[test]
    fn stories_of_any_bytes_are_told() {
        for seed in 0..2_000 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = repeat_with(|| chance.u8(..)).take(1_024).collect();
            tell(&Story::arbitrary(&mut Unstructured::new(&bytes)).unwrap());
        }
    }
}
