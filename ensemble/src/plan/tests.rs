//! What a plan holds beside the step: objects, what is pruned, when to look again.
#![allow(clippy::unwrap_used, reason = "a test may")]

use bellwether_api::ensemble::MembersPolicy;
use serde_json::json;

use super::*;
use crate::desired::{ObjectKind, Write};
use crate::plan::example::{Running, claim, first, looks, update};
use crate::plan::report::Availability;

type Edit = fn(&mut Running);

fn set(running: &Running) -> DesiredObject {
    let all = running.plan().objects;
    let mut sets = all
        .into_iter()
        .filter(|o| o.kind == ObjectKind::StatefulSet && o.name == "zk");
    sets.next().unwrap()
}

#[test]
fn an_ensemble_at_rest_is_looked_at_now_and_then_and_one_in_change_soon() {
    let cases: [(Duration, Edit); 4] = [
        (LATER, |_| {}),
        (SOON, |r| looks(r.voter(0), 3)),
        (AT_ONCE, |r| r.observation.claims[0].voters = None),
        (AT_ONCE, |r| {
            r.ensemble.reclaim_policy = bellwether_api::ensemble::ReclaimPolicy::Delete;
            r.observation.claims.push(claim("zk", 3, Some(first(3))));
        }),
    ];
    for (requeue, edit) in cases {
        let mut running = Running::new(3, 0);
        edit(&mut running);
        running.render();
        assert_eq!(running.plan().requeue, requeue);
    }
}

/// `kubectl rollout undo` restores what an earlier template had, and the operator's apply does not remove it.
#[test]
fn a_newcomer_that_an_undone_rollout_left_in_the_template_is_taken_out() {
    let mut running = Running::new(3, 0).outdated();
    running.set().template.as_mut().unwrap().initialize = Some(crate::ids::ServerId(2));
    let plan = running.plan();
    assert_eq!(plan.step, None);
    let set = set(&running);
    assert_eq!(set.write, Write::Merge);
    let annotations = &set.body["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(*annotations, json!({ stateful_set::INITIALIZE: null }));
    assert_eq!(plan.report.phase, Phase::Rolling);
    // The one of the step from one member to two stays.
    let mut growing = Running::stepping(1, 2, &[]);
    growing.render();
    assert_eq!(self::set(&growing).write, Write::Apply);
}

#[test]
fn what_an_undone_rollout_left_in_the_template_is_taken_out_before_a_member_restarts() {
    let patch = json!({ "spec": { "template": { "spec": { "tolerations": null } } } });
    let mut running = Running::new(3, 1).outdated();
    running.set().left_over = Some(patch.clone());
    assert_eq!(running.plan().step, None);
    let voters = set(&running);
    assert_eq!((voters.write, voters.body), (Write::Merge, patch.clone()));
    let mut running = Running::new(3, 1).outdated();
    let observers = running.observation.observers.stateful_set.as_mut();
    observers.unwrap().left_over = Some(patch.clone());
    let objects = running.plan().objects;
    let mut sets = objects.iter().filter(|o| o.name == "zk-observer");
    let observers = sets.next_back().unwrap();
    assert_eq!((observers.write, &observers.body), (Write::Merge, &patch));
    assert_eq!(
        running.report().trouble().unwrap().reason,
        Reason::TemplateEdited
    );
}

#[test]
fn no_member_restarts_before_a_change_of_the_template_has_taken_effect() {
    let waits = "zk-0: Waiting for the change of the pod template to take effect";
    let edits: [Edit; 4] = [
        |r| r.ensemble.heap_mib += 1,
        |r| r.set().replicas = 4,
        |r| r.set().edited = Some(json!({})),
        |r| r.set().left_over = Some(json!({})),
    ];
    for edit in edits {
        let mut running = Running::new(3, 0).outdated();
        edit(&mut running);
        assert_eq!(running.plan().step, None);
        assert_eq!(running.verdicts()[0], waits);
        let message = running.report().message;
        let end = "Waiting for the change of the pod template to take effect.";
        assert!(message.ends_with(end), "{message}");
    }
    assert!(Running::new(3, 0).outdated().plan().step.is_some());
}

#[test]
fn what_an_older_operator_rendered_stays_until_the_user_changes_something() {
    let mut older = Running::new(3, 0);
    assert_eq!(set(&older).write, Write::Apply, "its own is rendered again");
    older.set().rendered_by = Some("older".to_owned());
    assert_eq!(set(&older).write, Write::Merge);
    let config = |r: &Running| {
        let objects = r.plan().objects;
        objects
            .iter()
            .filter(|o| o.name.starts_with("zk-config"))
            .count()
    };
    assert_eq!(config(&older), 0);
    let edits: [Edit; 2] = [
        |r| r.ensemble.heap_mib += 1,
        // Its ConfigMap does not exist: the members could not restart.
        |r| r.observation.revisions.clear(),
    ];
    for edit in edits {
        let mut running = older.clone();
        edit(&mut running);
        assert_eq!((set(&running).write, config(&running)), (Write::Apply, 1));
    }
    // Observers that come now need what is rendered now.
    older.ensemble.observers = 1;
    older.observation.revisions.insert("unused".to_owned());
    assert_eq!(config(&older), 1);
    assert_eq!(older.pruned(), ["unused"]);
}

#[test]
fn a_template_that_somebody_else_changed_is_told() {
    let edits: [Edit; 2] = [
        |r| r.set().edited = Some(json!({})),
        |r| {
            let observers = r.observation.observers.stateful_set.as_mut();
            observers.unwrap().edited = Some(json!({}));
        },
    ];
    for edit in edits {
        let mut running = Running::new(3, 1);
        assert_eq!(running.report().trouble(), None);
        edit(&mut running);
        assert_eq!(
            running.report().trouble().unwrap().reason,
            Reason::TemplateEdited
        );
    }
}

#[test]
fn a_revision_is_pruned_when_neither_a_pod_nor_a_template_names_it() {
    let mut running = Running::new(3, 0);
    let current = running.set().template.clone().unwrap().name;
    for name in ["of-a-pod", "unused"] {
        running.observation.revisions.insert(name.to_owned());
    }
    running.voter(0).revision.as_mut().unwrap().name = "of-a-pod".to_owned();
    assert_eq!(running.pruned(), ["unused"]);
    running
        .ensemble
        .settings
        .insert("snapCount".to_owned(), "5000".to_owned());
    assert!(
        !running.pruned().contains(&current),
        "the template names it still"
    );
}

#[test]
fn a_network_policy_that_the_spec_does_not_want_is_deleted_by_its_uid() {
    let mut running = Running::new(3, 0);
    running.observation.network_policy = Some("7".to_owned());
    let policies = |running: &Running| {
        let last = running.plan().last.into_iter();
        last.filter(|object| object.kind == ObjectKind::NetworkPolicy)
            .count()
    };
    assert_eq!((policies(&running), running.pruned()), (1, vec![]));
    running.ensemble.network.policy = Some(MembersPolicy::Disabled);
    let policy = Unwanted {
        kind: ObjectKind::NetworkPolicy,
        name: "zk-members".to_owned(),
        uid: Some("7".to_owned()),
    };
    assert_eq!(
        (policies(&running), running.plan().prune),
        (0, vec![policy])
    );
    running.observation.network_policy = None;
    assert!(running.pruned().is_empty());
    running.ensemble.paused = true;
    running.observation.network_policy = Some("7".to_owned());
    assert!(running.pruned().is_empty(), "a paused ensemble changes");
}

#[test]
fn a_request_for_a_restart_that_is_gone_asks_for_nothing() {
    let mut running = Running::new(3, 0);
    running.ensemble.restart_at = Some("now".to_owned());
    running.template(3, None);
    running.set().restart = Some("now".to_owned());
    let asked = set(&running);
    running.ensemble.restart_at = None;
    assert_eq!(
        set(&running).body["spec"]["template"],
        asked.body["spec"]["template"]
    );
    running.ensemble.restart_at = Some("later".to_owned());
    assert_ne!(
        set(&running).body["spec"]["template"],
        asked.body["spec"]["template"]
    );
}

#[test]
fn nothing_is_planned_where_the_state_is_not_understood_and_what_runs_is_told() {
    let cases: [(&str, Edit); 5] = [
        (
            "The StatefulSet is being deleted; it is created again when it is gone.",
            |r| {
                r.set().terminating = true;
            },
        ),
        (
            "The StatefulSet does not say which servers vote under its pod template. Nothing is restarted \
             until this is understood. Put the annotations of the StatefulSet's pod template back.",
            |r| r.set().template = None,
        ),
        (
            "Pod zk-0 does not say which servers vote under its configuration. Nothing is restarted until \
             this is understood. Put the pod's annotations back, or delete that pod.",
            |r| r.voter(0).revision = None,
        ),
        (
            "Server 1 judges quorums by {1,2,3}, but its pod zk-0 says {1,2}. Nothing is restarted until \
             this is understood. Put the pod's annotation back, or delete that pod.",
            |r| r.voter(0).revision.as_mut().unwrap().voters = first(2),
        ),
        (
            "Kubernetes still deletes objects of an earlier ensemble of this name (Pod zk-0, Pod zk-1). \
             Nothing is changed until they are gone.",
            |r| r.observation.leftovers = ["Pod zk-0", "Pod zk-1"].map(str::to_owned).into(),
        ),
    ];
    for (message, edit) in cases {
        let mut running = Running::new(3, 2);
        edit(&mut running);
        update(running.voter(0));
        let plan = running.plan();
        assert_eq!(plan.report.message, message);
        assert!(plan.objects.is_empty() && plan.step.is_none() && plan.last.is_empty());
        assert_eq!(plan.report.members.len(), 3);
        let observers: Vec<ServerId> = plan.report.observers.iter().map(|m| m.id).collect();
        assert_eq!(observers, [ServerId(101), ServerId(102)]);
        assert_eq!(plan.report.observers_wanted, 2);
        assert_eq!(plan.report.availability(), Availability::Serving);
        let waits = "zk-0: Waiting for the trouble in the status to be corrected";
        assert_eq!(running.verdicts()[0], waits);
    }
}
