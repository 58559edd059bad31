//! What users, machines and chance do to an ensemble in a life.

mod variety;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

pub use variety::{ObserverAct, Variety};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The user asks for another size.
    Resize(u16),
    /// The user changes a setting of every member.
    Configure(u32),
    /// The user changes another field of the manifest, or several.
    Edit(Edit),
    /// The user asks for an image that does not exist, and takes it back after this time.
    BadImage(Duration),
    /// The user asks for another size and for something else in one apply.
    ResizeWith(u16, Change),
    /// The user runs `kubectl rollout undo` on the StatefulSet: its template returns to that of a revision
    /// this many before the latest, as with `--to-revision`.
    RolloutUndo(usize),
    /// The user runs `kubectl rollout restart` on the StatefulSet.
    RolloutRestart,
    /// The user pauses the ensemble for this long.
    Pause(Duration),
    /// The user asks for a restart of every member.
    Restart,
    /// The user deletes the ensemble and applies the same manifest at once.
    Recreate,
    /// Somebody deletes the StatefulSet, with its pods or without.
    DeleteSet {
        /// The pods stay.
        orphan: bool,
    },
    /// Somebody scales the StatefulSet.
    ScaleSet(u16),
    /// Somebody puts another image into the StatefulSet.
    EditImage,
    /// Somebody deletes an object that the operator owns, by kind and name.
    DeleteOwned(&'static str, &'static str),
    /// A pod is deleted.
    DeletePod(u16),
    /// A pod is deleted by force.
    ForceDelete(u16),
    /// A pod and its volume claim are deleted.
    LoseDisk(u16),
    /// A server's process ends.
    Crash(u16),
    /// A server's process is frozen for this long.
    Freeze(u16, Duration),
    /// The node of a member is lost for this long.
    LoseNode(u16, Duration),
    /// Two members cannot reach each other for this long.
    Cut(u16, u16, Duration),
    /// The operator's process ends, and starts again after this time.
    KillOperator(Duration),
    /// The operator cannot reach the members for this long.
    DeafOperator(Duration),
    /// The operator cannot reach the API server for this long.
    CutOperator(Duration),
    /// The operator's process is stopped for this long, at once or after so many more requests, and
    /// continues where it was.
    StopOperator(Option<u16>, Duration),
    /// Requests of the operator fail now and then for this long.
    FailRequests(Duration),
    /// The operator dies after one of its next writes.
    DieAfterWrite(u16),
    /// Watch caches stop to follow the store for this long.
    LagCaches(Duration),
    /// The watch cache of an API server stops to follow the store; after the first time the operator's
    /// connections move to that API server, and after the second one the cache follows again.
    GoBack(Duration, Duration),
    /// The data grows: a member that copies it takes a minute.
    GrowData,
    /// Somebody restores the status of the ensemble from a backup.
    RestoreStatus,
    /// Another version of the operator is rolled out.
    Upgrade,
    /// An admission webhook refuses writes of this kind for this long; or it does not answer, with the same
    /// effect.
    RefuseWrites(&'static str, bool, Duration),
    /// An admission webhook is installed that changes objects of this kind.
    ChangeWrites(&'static str, Injection),
    /// A quota keeps pods from being created for this long.
    Quota(Duration),
    /// Something happens to observers.
    Observers(ObserverAct),
    /// One of the two volume claims of a member is deleted with its pod. A person looks at the status after this time.
    LoseOneDisk {
        /// Which member's.
        ordinal: u16,
        /// The one of the transaction log, and not of the snapshots.
        log: bool,
        /// After how long a person looks.
        noticed: Duration,
    },
}

/// What a user changes together with the size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A setting of every member.
    Setting(u32),
    /// Another image of the same release.
    Image,
    /// An image that does not exist. After this time the user takes both back.
    BadImage(Duration),
}

/// What a user changes in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A label and an annotation of the pods.
    Label(u16),
    /// The heap, in MiB.
    Heap(u16),
    /// Whether ZooKeeper serves its own metrics.
    Metrics(bool),
    /// A setting that the operator does not know.
    Additional(u16),
    /// Which nodes the pods may run on.
    Placement(bool),
    /// Whether the servers speak TLS to each other.
    Tls(bool),
    /// The members change at run time from now on.
    AtRunTime,
}

impl Edit {
    /// The fields of the spec.
    pub fn fields(self) -> Value {
        match self {
            Self::Label(n) => json!({ "pod": {
                "labels": { "team": format!("team-{n}") },
                "annotations": { "cost": n.to_string() },
            } }),
            Self::Heap(mib) => json!({ "jvm": { "heap": format!("{mib}Mi") } }),
            Self::Metrics(enabled) => json!({ "metrics": { "enabled": enabled } }),
            Self::Additional(limit) => json!({ "config": {
                "additional": { "globalOutstandingLimit": limit.to_string() },
            } }),
            Self::Placement(anywhere) => {
                let any = json!([{ "operator": "Exists" }]);
                let tolerations = if anywhere { any } else { json!([]) };
                json!({ "pod": { "tolerations": tolerations } })
            }
            Self::Tls(on) => {
                let wanted = if on { "Required" } else { "Disabled" };
                json!({ "tls": { "servers": wanted, "clients": wanted } })
            }
            Self::AtRunTime => json!({ "membershipChange": "Reconfiguration" }),
        }
    }
}

/// What an admission webhook adds to pods, or to a StatefulSet's pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// A label.
    Label,
    /// An annotation.
    Annotation,
    /// A sidecar.
    Container {
        /// It stands before the other containers.
        first: bool,
    },
}

impl Act {
    /// The word under which it is counted.
    pub fn word(&self) -> String {
        let text = format!("{self:?}");
        let end = text.find(|c: char| !c.is_alphanumeric());
        text[..end.unwrap_or(text.len())].to_owned()
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Chooses the acts of a life: what happens, and how long after the one before.
pub fn choose(rng: &mut fastrand::Rng, size: u16) -> Vec<(Duration, Act)> {
    let count = rng.usize(2..9);
    let mut acts = Vec::new();
    for _ in 0..count {
        let before = pause(rng);
        let act = act(rng, size);
        let resizes = matches!(act, Act::Resize(_) | Act::ResizeWith(..));
        acts.push((before, act));
        // A user may take a change back in the middle of it.
        if resizes {
            let soon = Duration::from_millis(rng.u64(500..15_000));
            match rng.u8(0..6) {
                0 => acts.push((soon, Act::Resize(size))),
                1 => acts.push((soon, Act::RolloutUndo(rng.usize(1..5)))),
                _ => {}
            }
        }
    }
    acts
}

/// Much happens within seconds, some of it when all is quiet again.
fn pause(rng: &mut fastrand::Rng) -> Duration {
    match rng.u8(0..4) {
        0 => Duration::from_millis(rng.u64(0..800)),
        1 | 2 => Duration::from_millis(rng.u64(800..12_000)),
        _ => Duration::from_millis(rng.u64(12_000..90_000)),
    }
}

fn act(rng: &mut fastrand::Rng, size: u16) -> Act {
    let seconds =
        |rng: &mut fastrand::Rng, most: u64| Duration::from_millis(rng.u64(500..most * 1000));
    let member = |rng: &mut fastrand::Rng| rng.u16(0..size.max(3));
    match rng.u8(0..59) {
        0..=7 => Act::Resize([1, 3, 3, 5, 5, 7][rng.usize(0..6)]),
        8..=10 => Act::Configure(rng.u32(1000..100_000)),
        11 => Act::BadImage(seconds(rng, 60)),
        12 => Act::Pause(seconds(rng, 20)),
        13 => Act::Restart,
        14 => Act::Recreate,
        15 => Act::DeleteSet { orphan: rng.bool() },
        16 => Act::ScaleSet(rng.u16(0..6)),
        17 => Act::EditImage,
        18 => {
            let all = [
                ("ConfigMap", "zk-bootstrap"),
                ("Service", "zk-members"),
                ("Service", "zk"),
                ("PodDisruptionBudget", "zk"),
                ("NetworkPolicy", "zk-members"),
                ("ConfigMap", "zk-authorities"),
                ("Secret", "zk-identity-17498463a3"),
            ];
            let (kind, name) = all[rng.usize(0..all.len())];
            Act::DeleteOwned(kind, name)
        }
        19..=20 => Act::DeletePod(member(rng)),
        21 => Act::ForceDelete(member(rng)),
        22..=23 => Act::LoseDisk(member(rng)),
        24..=26 => Act::Crash(member(rng)),
        27 => Act::Freeze(member(rng), seconds(rng, 30)),
        28 => Act::LoseNode(member(rng), seconds(rng, 120)),
        29 => Act::Cut(member(rng), member(rng), seconds(rng, 40)),
        30..=32 => Act::KillOperator(seconds(rng, 30)),
        33 => Act::DeafOperator(seconds(rng, 90)),
        34 => Act::CutOperator(seconds(rng, 40)),
        35 => Act::FailRequests(seconds(rng, 60)),
        36..=38 => Act::DieAfterWrite(rng.u16(1..6)),
        39 => Act::LagCaches(seconds(rng, 30)),
        40 => Act::GrowData,
        41 => Act::RestoreStatus,
        42 => Act::Upgrade,
        43 => Act::Quota(seconds(rng, 30)),
        45..=47 => {
            let after = rng.bool().then(|| rng.u16(0..30));
            Act::StopOperator(after, seconds(rng, 60))
        }
        48 => Act::RefuseWrites(hooked(rng), rng.bool(), seconds(rng, 60)),
        49 => Act::ChangeWrites(hooked(rng), injection(rng)),
        50 => Act::GoBack(seconds(rng, 60), seconds(rng, 40)),
        44 => Act::RolloutUndo(rng.usize(1..5)),
        54..=57 => Act::Edit(edit(rng)),
        58 => Act::RolloutRestart,
        _ => Act::ResizeWith([1, 3, 5, 7][rng.usize(0..4)], change(rng)),
    }
}

fn edit(rng: &mut fastrand::Rng) -> Edit {
    match rng.u8(0..5) {
        0 => Edit::Label(rng.u16(0..3)),
        1 => Edit::Heap([512, 1024, 2048][rng.usize(0..3)]),
        2 => Edit::Metrics(rng.bool()),
        3 => Edit::Additional([1000, 2000][rng.usize(0..2)]),
        _ => Edit::Placement(rng.bool()),
    }
}

fn change(rng: &mut fastrand::Rng) -> Change {
    match rng.u8(0..3) {
        0 => Change::Setting(rng.u32(1000..100_000)),
        1 => Change::Image,
        _ => Change::BadImage(Duration::from_millis(rng.u64(500..60_000))),
    }
}

/// A kind that webhooks look at.
fn hooked(rng: &mut fastrand::Rng) -> &'static str {
    ["Pod", "StatefulSet"][rng.usize(0..2)]
}

fn injection(rng: &mut fastrand::Rng) -> Injection {
    match rng.u8(0..3) {
        0 => Injection::Label,
        1 => Injection::Annotation,
        _ => Injection::Container { first: rng.bool() },
    }
}
