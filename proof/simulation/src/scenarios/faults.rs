//! Faults that a review of the operator found, and that it must not have again.

use bellwether_api_server::Action;
use bellwether_ensemble::rules::Rule;
use bellwether_simulation::acts::Act;
use bellwether_simulation::requests::Held;
use bellwether_simulation::script::{Condition, Deed, Line, Script};
use serde_json::json;

use super::{Scenario, act, configure, members, pause, script, seconds, spec, until};

/// Every one of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "growth-loses-set-and-disk",
            about: "while an ensemble grows from one to three, members 2 and 3 commit a write; then the \
                    StatefulSet and the volume of member 2 are lost, and the ensemble starts without it",
            guards: &[&[Rule::StartFromClaims]],
            script: script(
                1,
                members(1),
                vec![
                    spec(members(3)),
                    until(Condition::ServesWith(1, "1,2,3")),
                    until(Condition::ServesWith(2, "1,2,3")),
                    act(Act::Quota(seconds(120))),
                    until(Condition::Down(0)),
                    pause(5),
                    act(Act::DeleteSet { orphan: false }),
                    Line::Deed(Deed::LoseClaim(1)),
                    pause(20),
                ],
            ),
        },
        Scenario {
            name: "template-undone-in-the-step-to-two",
            about: "the template of one member is put back before the second member has started, which then has \
                    no vote in the list of two",
            guards: &[],
            script: script(
                1,
                members(1),
                vec![
                    Line::Deed(Deed::Remember),
                    spec(members(3)),
                    until(Condition::Template("1,2")),
                    Line::Deed(Deed::Undo),
                    pause(5),
                ],
            ),
        },
        Scenario {
            name: "set-deleted-by-hand",
            about: "volumes that are to be deleted with the ensemble are deleted with its StatefulSet, or \
                    when somebody scales that",
            guards: &[],
            script: script(
                1,
                json!({ "replicas": 3, "storage": { "reclaimPolicy": "Delete" } }),
                vec![
                    Line::Deed(Deed::Remember),
                    act(Act::ScaleSet(1)),
                    pause(10),
                    Line::Await(Condition::SameClaims, seconds(0)),
                    until(Condition::AsAsked),
                    act(Act::DeleteSet { orphan: false }),
                    pause(20),
                    Line::Await(Condition::SameClaims, seconds(0)),
                ],
            ),
        },
        Scenario {
            name: "set-deleted-before-the-claims-have-an-owner",
            about: "the StatefulSet is deleted before the operator has made the volumes the ensemble's, and they \
                    are deleted with it",
            guards: &[],
            script: Script {
                lines: vec![
                    Line::Deed(Deed::HoldUp(Held {
                        resource: "persistentvolumeclaims",
                        action: Some(Action::MergePatch),
                        answer: false,
                        time: seconds(20),
                        count: 3,
                    })),
                    until(Condition::Serves(0)),
                    until(Condition::Serves(1)),
                    until(Condition::Serves(2)),
                    pause(1),
                    Line::Deed(Deed::Remember),
                    act(Act::DeleteSet { orphan: false }),
                    pause(20),
                    Line::Await(Condition::SameClaims, seconds(0)),
                ],
                ..script(
                    1,
                    json!({ "replicas": 3, "storage": { "reclaimPolicy": "Delete" } }),
                    vec![],
                )
            },
        },
        Scenario {
            name: "template-edited-after-an-upgrade",
            about: "somebody edits the pod template that an earlier version of the operator rendered, and every \
                    member is restarted for it",
            guards: &[],
            script: script(
                1,
                members(3),
                vec![
                    Line::Deed(Deed::Remember),
                    act(Act::Upgrade),
                    pause(30),
                    act(Act::EditImage),
                    pause(60),
                    Line::Await(Condition::SamePods, seconds(0)),
                ],
            ),
        },
        Scenario {
            name: "first-start-unseen",
            about: "an ensemble starts while the operator cannot reach its members, and the permission to \
                    vote with an empty disk stays open although they serve",
            guards: &[&[Rule::PermissionEnds]],
            script: Script {
                lines: vec![
                    act(Act::DeafOperator(seconds(120))),
                    until(Condition::Serves(0)),
                    until(Condition::Serves(1)),
                    until(Condition::Serves(2)),
                    Line::Await(Condition::PermissionClosed, seconds(30)),
                ],
                ..script(1, members(3), vec![])
            },
        },
        Scenario {
            name: "deleted-and-applied-at-once",
            about: "an ensemble is deleted with its volumes and applied again at once, and adopts pods that \
                    are about to be deleted",
            guards: &[&[Rule::LeftoversFirst]],
            script: script(
                1,
                json!({ "replicas": 3, "storage": { "reclaimPolicy": "Delete" } }),
                vec![
                    // Kubernetes deletes the claims before the operator could take them over.
                    Line::Deed(Deed::HoldUp(Held {
                        resource: "persistentvolumeclaims",
                        action: Some(Action::MergePatch),
                        answer: false,
                        time: seconds(3),
                        count: 1,
                    })),
                    act(Act::Recreate),
                    pause(5),
                    until(Condition::AsAsked),
                    Line::Deed(Deed::Remember),
                    configure(5000),
                    pause(2),
                    until(Condition::AsAsked),
                    Line::Await(Condition::SameClaims, seconds(0)),
                ],
            ),
        },
        Scenario {
            name: "container-beside-fails",
            about: "a container beside the server's fails, and the member counts as one without a vote",
            guards: &[&[Rule::OwnContainersDecide]],
            script: script(
                1,
                members(3),
                vec![
                    Line::Deed(Deed::FailBeside(0)),
                    Line::Deed(Deed::FailBeside(1)),
                    act(Act::DeafOperator(seconds(30))),
                    pause(5),
                    configure(5000),
                    pause(60),
                ],
            ),
        },
        Scenario {
            name: "member-copies-while-a-roll-begins",
            about: "a member that copies the leader's data answers that it does not serve, and is restarted",
            guards: &[&[Rule::JoiningTime]],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::GrowData),
                    act(Act::LoseDisk(0)),
                    until(Condition::Copies(0)),
                    configure(5000),
                    pause(20),
                ],
            ),
        },
        Scenario {
            name: "one-silent-member-of-five",
            about: "one member that is silent and outdated keeps all others from being restarted",
            guards: &[&[Rule::SilenceEnds]],
            script: script(
                1,
                members(5),
                vec![
                    act(Act::LoseNode(0, seconds(3600))),
                    pause(5),
                    configure(5000),
                    until(Condition::Outdated),
                    until(Condition::UpToDate(1)),
                    until(Condition::UpToDate(2)),
                    until(Condition::UpToDate(3)),
                    until(Condition::UpToDate(4)),
                ],
            ),
        },
        Scenario {
            name: "newcomer-left-by-an-undone-rollout",
            about: "the template of the step from one member to two is put back after the growth, and the newcomer \
                    that it names stays in all later templates",
            guards: &[],
            script: script(
                1,
                members(1),
                vec![
                    spec(members(3)),
                    until(Condition::Template("1,2")),
                    Line::Deed(Deed::Remember),
                    pause(5),
                    until(Condition::AsAsked),
                    Line::Deed(Deed::Undo),
                    pause(5),
                    until(Condition::AsAsked),
                ],
            ),
        },
        Scenario {
            name: "stopped-for-less-than-the-lease",
            about: "an operator is stopped for so long that it does not trust its lease, which nobody takes; then \
                    it does nothing for a minute",
            guards: &[],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::StopOperator(None, seconds(11))),
                    pause(1),
                    configure(5000),
                    pause(11),
                    Line::Await(Condition::Outdated, seconds(20)),
                ],
            ),
        },
    ]
}
