//! Benchmarks: what a change costs the clients, and how long it takes, compared with a plain
//! StatefulSet and with the best order driven by hand.
//!
//! * [`roll`]: `cargo xtask bench roll`, a restart of every member;
//! * [`resize`]: `cargo xtask bench resize`, changes of size;
//! * [`elections`]: `cargo xtask bench elections`, the mirror of elections, compared with a poller;
//! * [`fleet`]: `cargo xtask bench fleet`, what many ensembles cost one operator;
//! * [`rollouts`]: `cargo xtask bench rollouts`, how often a rollout of an application changes its leader;
//! * [`start`]: `cargo xtask bench start`, a new ensemble, until it serves;
//! * [`plain`]: the StatefulSet without the operator, made from what the operator rendered;
//! * [`subject`]: one ensemble under load, and what is measured of it;
//! * [`table`]: every run, medians and ratios.
//!
//! All ways run one after the other in every repetition, so that the noise of the machine hits all of
//! them alike; ratios count more than seconds.

mod candidates;
pub mod elections;
pub mod fleet;
pub mod plain;
mod poller;
pub mod resize;
pub mod roll;
pub mod rollouts;
mod sightings;
pub mod start;
mod statuses;
pub mod subject;
pub mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use crate::helm;
use crate::kubectl::Kubectl;
use crate::world::World;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How often each change is measured in every way.
    pub repetitions: u16,
    /// Whether what happened in each run is printed, with times.
    pub timeline: bool,
    /// The ways that are measured; all if none is named.
    pub only: Vec<Way>,
    /// The operator of another revision, if it is measured too.
    pub other: Option<Release>,
}

impl Options {
    /// The ways that are measured, in the order in which they run.
    fn ways(&self) -> impl Iterator<Item = Way> {
        let is_asked = |way: &Way| self.only.is_empty() || self.only.contains(way);
        WAYS.into_iter().filter(move |way| match way {
            Way::Other => self.other.is_some(),
            way => is_asked(way),
        })
    }

    /// Installs the operator that carries a change out in this way, if it may not be there.
    fn install(&self, way: Way) -> Result<()> {
        match (&self.other, way) {
            (Some(other), Way::Other) => other.install(&BTreeMap::new()),
            (Some(_), Way::Operator | Way::RunTime) => helm::install(&BTreeMap::new()),
            _ => Ok(()),
        }
    }
}

/// An operator of another revision of the project, whose image is on the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its chart.
    pub chart: PathBuf,
    /// The tag of its image.
    pub tag: String,
}

impl Release {
    /// What `cargo xtask bench --against` built, as it names it in the environment.
    pub fn from_environment() -> Option<Self> {
        Some(Self {
            chart: std::env::var_os("BELLWETHER_OTHER_CHART")?.into(),
            tag: std::env::var("BELLWETHER_OTHER_TAG").ok()?,
        })
    }

    fn install(&self, values: &BTreeMap<&str, Value>) -> Result<()> {
        helm::install_from(&self.chart, &self.tag, values)
    }
}

/// How a change is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// By the operator.
    Operator,
    /// By the operator, while the members run.
    RunTime,
    /// By the operator of another revision.
    Other,
    /// By the StatefulSet controller's `RollingUpdate`, as a Helm chart's upgrade does.
    Plain,
    /// By hand in the best order, on an `OnDelete` StatefulSet: what a change takes at the least when
    /// servers are restarted as they are.
    Hand,
}

/// All ways, in the order in which they run.
pub const WAYS: [Way; 5] = [
    Way::Operator,
    Way::RunTime,
    Way::Other,
    Way::Plain,
    Way::Hand,
];

impl Way {
    /// A word for names of objects.
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::RunTime => "run-time",
            Self::Other => "other",
            Self::Plain => "plain",
            Self::Hand => "hand",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operator => "operator",
            Self::RunTime => "operator, run time",
            Self::Other => "other revision",
            Self::Plain => "plain StatefulSet",
            Self::Hand => "by hand (floor)",
        })
    }
}

/// Runs something in a namespace of its own, and removes the namespace, also after a failure.
fn in_namespace<T>(
    kubectl: &Kubectl,
    namespace: &str,
    run: impl FnOnce(&World) -> Result<T>,
) -> Result<T> {
    // A run that was interrupted may have left it.
    let left = ["delete", "namespace", namespace, "--ignore-not-found"];
    kubectl.run(&left)?;
    let world = World::named(kubectl, namespace)?;
    let result = run(&world);
    world.remove();
    result
}
