//! Lives that are written down: one for each fault that the operator had once, and for each rule that keeps
//! one from coming back.

mod executor;
mod faults;
mod planner;
mod spoiled;
mod told;

use std::time::Duration;

use anyhow::{Context as _, Result};
use bellwether_ensemble::rules::Rule;
use bellwether_simulation::acts::Act;
use bellwether_simulation::script::{Condition, Deed, Line, Script};
use serde_json::{Value, json};

/// A scripted life.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The fault that it is about.
    pub about: &'static str,
    /// The rules that guard against the fault: without each set of them the scenario has to fail.
    pub guards: &'static [&'static [Rule]],
    /// What happens.
    pub script: Script,
}

/// Every scenario.
pub(crate) fn all() -> Vec<Scenario> {
    [faults::all(), planner::all(), executor::all(), told::all()].concat()
}

/// A scripted life in which the world breaks a rule, so that a judge has to report it. It tests a
/// judge that no broken rule of the operator would test.
#[derive(Clone, Debug)]
pub(crate) struct Spoiled {
    /// Its name.
    pub name: &'static str,
    /// What is wrong in it.
    pub about: &'static str,
    /// Words of what the judge has to say.
    pub verdict: &'static str,
    /// What happens.
    pub script: Script,
}

/// Every life that has to fail.
pub(crate) fn spoiled() -> Vec<Spoiled> {
    spoiled::all()
}

/// The script of this name.
pub(crate) fn find(name: &str) -> Result<Script> {
    let good = all().into_iter().map(|s| (s.name, s.script));
    let spoiled = spoiled().into_iter().map(|s| (s.name, s.script));
    let mut scripts = good.chain(spoiled);
    let found = scripts
        .find(|(own, _)| *own == name)
        .map(|(_, script)| script);
    found.with_context(|| format!("no scenario is called {name}; --scenarios shows all of them"))
}

/// How long a start, a roll or a step of one member may take.
const SOON: Duration = Duration::from_secs(300);

/// The life of an ensemble with this spec: it serves, and then these lines follow.
fn script(seed: u64, spec: Value, lines: Vec<Line>) -> Script {
    Script {
        seed,
        spec,
        operators: 1,
        lines: [vec![until(Condition::AsAsked)], lines].concat(),
        ends_as_asked: true,
    }
}

/// A spec with this number of members.
fn members(size: u16) -> Value {
    json!({ "replicas": size })
}

fn until(condition: Condition) -> Line {
    Line::Await(condition, SOON)
}

fn pause(seconds: u64) -> Line {
    Line::Pause(Duration::from_secs(seconds))
}

fn act(act: Act) -> Line {
    Line::Act(act)
}

fn spec(change: Value) -> Line {
    Line::Deed(Deed::Spec(change))
}

/// A change that restarts every member.
fn configure(count: u32) -> Line {
    spec(json!({ "config": { "snapCount": count } }))
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
