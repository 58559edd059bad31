//! What a pass does and does not do, on a world that writes everything down.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::cell::Cell;
use std::collections::BTreeMap;

use bellwether_api::ensemble::Phase;
use futures::FutureExt as _;
use serde_json::json;

use super::*;
use crate::desired::Write;
use crate::ids::ServerId;
use crate::observation::Observation;
use crate::plan::Expect;
use crate::plan::report::Report;

/// Objects, and what is done to them, line by line.
#[derive(Default)]
struct Notes {
    /// How often this process may still act; without end where it is `None`.
    may_act: Cell<Option<u32>>,
    live: BTreeMap<String, Value>,
    facts: Option<Facts>,
    /// A webhook undoes what is written.
    undone: bool,
    /// Names that the API server refuses.
    refuses: Vec<&'static str>,
    /// Whether the preconditions of a step hold.
    takes: bool,
    lines: Vec<String>,
}

impl World for Notes {
    type Error = String;

    fn may_act(&self) -> Result<(), String> {
        match self.may_act.get() {
            None => Ok(()),
            Some(0) => Err("the lease is lost".to_owned()),
            Some(left) => {
                self.may_act.set(Some(left - 1));
                Ok(())
            }
        }
    }

    fn live(&self, _: ObjectKind, name: &str) -> Option<&Value> {
        self.live.get(name)
    }

    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>, String> {
        if self.refuses.contains(&object.name.as_str()) {
            return Err(format!("{} is refused", object.name));
        }
        let seen = &object.body["metadata"];
        let seen = seen["uid"].as_str().zip(seen["resourceVersion"].as_str());
        let seen = seen.map_or_else(String::new, |(uid, version)| format!(" as {uid}@{version}"));
        self.lines.push(format!("write {}{seen}", object.name));
        Ok(Some(if self.undone { "1" } else { "2" }.to_owned()))
    }

    async fn facts(&mut self) -> Result<Option<Facts>, String> {
        Ok(self.facts.clone())
    }

    async fn take(&mut self, _: &Step) -> Result<bool, String> {
        self.lines.push("take".to_owned());
        Ok(self.takes)
    }

    fn declined(&mut self, _: &Step, why: &str) {
        self.lines.push(format!("declined: {why}"));
    }

    async fn prune(&mut self, object: &Unwanted) -> Result<(), String> {
        self.lines.push(format!("prune {}", object.name));
        Ok(())
    }
}

fn object(kind: ObjectKind, name: &str) -> DesiredObject {
    DesiredObject {
        kind,
        name: name.to_owned(),
        body: json!({ "metadata": { "name": name }, "spec": { "new": true } }),
        write: Write::Apply,
    }
}

/// The object as it is there, with other content.
fn live(name: &str) -> (String, Value) {
    let body = json!({
        "metadata": { "name": name, "uid": "u", "resourceVersion": "1" },
        "spec": {},
    });
    (name.to_owned(), body)
}

fn plan() -> Plan {
    Plan {
        objects: vec![
            object(ObjectKind::ConfigMap, "zk-config"),
            object(ObjectKind::ConfigMap, "zk-bootstrap"),
        ],
        prune: vec![Unwanted::revision("old")],
        last: vec![object(ObjectKind::ConfigMap, "zk-client")],
        step: Some(Step::RestartMember {
            pod: "zk-0".to_owned(),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            id: ServerId(1),
            expect: Expect::Follower,
            reason: String::new(),
        }),
        facts: Facts::of(Some(1), &Observation::default()),
        accepted: None,
        report: Report::new(Phase::Rolling, String::new()),
        requeue: Default::default(),
    }
}

fn notes(plan: &Plan) -> Notes {
    Notes {
        facts: Some(plan.facts.clone()),
        takes: true,
        ..Default::default()
    }
}

fn run(world: &mut Notes, plan: &Plan) -> Outcome<String> {
    execute(world, "zk", plan).now_or_never().unwrap()
}

#[test]
fn a_pass_writes_then_takes_the_step_then_prunes_and_writes_the_rest_last() {
    let plan = plan();
    let mut world = notes(&plan);
    let outcome = run(&mut world, &plan);
    let order = [
        "write zk-config",
        "write zk-bootstrap",
        "take",
        "prune old",
        "write zk-client",
    ];
    assert_eq!(world.lines, order);
    assert_eq!(outcome.step, plan.step);
    assert!(outcome.permission_written && !outcome.stateful_set_written);
    assert_eq!((outcome.failure, outcome.refused), (None, None));
}

/// The lease is asked for before each write, before the facts are read and before the step.
#[test]
fn a_process_that_lost_the_lease_does_nothing_more() {
    let plan = plan();
    let done = [0, 1, 2, 2, 3, 4];
    for (may_act, done) in (0..).zip(done) {
        let mut world = notes(&plan);
        world.may_act.set(Some(may_act));
        let outcome = run(&mut world, &plan);
        assert_eq!(world.lines.len(), done, "{may_act}: {:?}", world.lines);
        let lost = outcome.failure.or(outcome.refused);
        assert_eq!(lost.as_deref(), Some("the lease is lost"), "{may_act}");
    }
}

#[test]
fn no_step_is_taken_in_the_pass_that_writes_a_stateful_set() {
    for undone in [false, true] {
        let mut plan = plan();
        plan.objects = vec![object(ObjectKind::StatefulSet, "zk")];
        let mut world = notes(&plan);
        world.live.extend([live("zk")]);
        world.undone = undone;
        let outcome = run(&mut world, &plan);
        // A webhook undid the write, so nothing changed, and the step need not wait.
        assert_eq!(outcome.stateful_set_written, !undone);
        assert_eq!(outcome.step.is_some(), undone);
        assert!(!outcome.permission_written);
    }
}

#[test]
fn an_object_that_does_not_exist_is_written_whatever_the_answer() {
    let mut plan = plan();
    plan.objects = vec![object(ObjectKind::StatefulSet, "zk")];
    let mut world = notes(&plan);
    world.undone = true;
    assert!(run(&mut world, &plan).stateful_set_written);
}

#[test]
fn what_is_so_already_is_not_written() {
    let plan = plan();
    let mut world = notes(&plan);
    let all = plan.objects.iter().chain(&plan.last);
    world.live = all.map(|o| (o.name.clone(), o.body.clone())).collect();
    let outcome = run(&mut world, &plan);
    assert_eq!(world.lines, ["take", "prune old"]);
    assert!(!outcome.permission_written);
}

#[test]
fn the_stateful_set_and_the_permission_are_written_only_as_they_were_seen() {
    let mut plan = plan();
    plan.step = None;
    plan.objects.push(object(ObjectKind::StatefulSet, "zk"));
    let mut world = notes(&plan);
    world.live = ["zk-config", "zk-bootstrap", "zk"].map(live).into();
    run(&mut world, &plan);
    let guarded = [
        "write zk-config",
        "write zk-bootstrap as u@1",
        "write zk as u@1",
    ];
    assert_eq!(world.lines[..3], guarded);
}

#[test]
fn a_step_is_declined_when_its_facts_have_changed() {
    let plan = plan();
    let mut world = notes(&plan);
    world.facts = Some(Facts::of(Some(2), &Observation::default()));
    assert_eq!(run(&mut world, &plan).step, None);
    assert_eq!(world.lines[2], "declined: the spec changed");
    let mut world = notes(&plan);
    world.facts = None;
    assert_eq!(run(&mut world, &plan).step, None);
    assert_eq!(
        world.lines[2],
        "declined: the ensemble does not exist any more"
    );
    // The pass succeeds although a precondition of the step does not hold any more.
    let mut world = notes(&plan);
    world.takes = false;
    let outcome = run(&mut world, &plan);
    assert_eq!((outcome.step, outcome.failure), (None, None));
}

#[test]
fn a_write_that_is_refused_ends_the_pass_unless_it_is_one_of_the_last() {
    let mut plan = plan();
    plan.last.push(object(ObjectKind::ConfigMap, "other"));
    let mut world = notes(&plan);
    world.refuses = vec!["zk-bootstrap"];
    let outcome = run(&mut world, &plan);
    assert_eq!(world.lines, ["write zk-config"]);
    assert_eq!(outcome.failure.as_deref(), Some("zk-bootstrap is refused"));
    let mut world = notes(&plan);
    world.refuses = vec!["zk-client"];
    let outcome = run(&mut world, &plan);
    assert_eq!(world.lines.last().unwrap(), "write other");
    assert_eq!(outcome.refused.as_deref(), Some("zk-client is refused"));
    assert_eq!(outcome.failure, None);
}

#[test]
fn a_plan_asks_for_nothing_only_without_a_step_old_revisions_and_objects_to_write() {
    let rest = || {
        let mut plan = plan();
        plan.step = None;
        plan.prune.clear();
        plan
    };
    let asks = |plan: &Plan, absent: &str| {
        let all = plan.objects.iter().chain(&plan.last);
        let live: BTreeMap<_, _> = all.map(|o| (o.name.clone(), o.body.clone())).collect();
        let shown = |_, name: &str| live.get(name).filter(|_| name != absent);
        !asks_for_nothing(plan, shown)
    };
    assert!(!asks(&rest(), ""));
    assert!(asks(&rest(), "zk-config"));
    assert!(asks(&rest(), "zk-client"));
    let (mut old, mut restart) = (rest(), rest());
    old.prune = plan().prune;
    restart.step = plan().step;
    assert!(asks(&old, ""));
    assert!(asks(&restart, ""));
}
