//! What each rule of the planner keeps from happening.

use bellwether_ensemble::rules::Rule;
use bellwether_simulation::acts::Act;
use bellwether_simulation::script::{Condition, Deed, Line};
use serde_json::json;

use super::{Scenario, act, configure, members, pause, script, seconds, spec, until};

/// Every one of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "roll",
            about: "the leader is restarted before others, and has to be replaced twice",
            guards: &[&[Rule::LeaderLast]],
            script: script(1, members(3), vec![configure(5000), pause(2)]),
        },
        Scenario {
            name: "restarted-member-cannot-join",
            about: "a member that was restarted looks for a leader, and the next one is restarted meanwhile",
            guards: &[&[Rule::JoinedFirst], &[Rule::OneAtATime]],
            script: script(
                1,
                members(5),
                vec![
                    configure(5000),
                    until(Condition::Down(0)),
                    until(Condition::Looks(0)),
                    act(Act::Cut(0, 4, seconds(30))),
                    act(Act::Cut(0, 3, seconds(30))),
                    pause(40),
                ],
            ),
        },
        Scenario {
            name: "tls-is-switched",
            about: "the first member that restarts speaks TLS only, and reaches none of the others",
            guards: &[&[Rule::TlsInTurn]],
            script: script(
                1,
                json!({ "replicas": 3, "tls": { "servers": "Disabled" } }),
                vec![spec(json!({ "tls": { "servers": "Required" } })), pause(2)],
            ),
        },
        Scenario {
            name: "growth",
            about: "a newcomer votes with an empty disk where the others have the data",
            guards: &[&[Rule::EmptyDisksDoNotVote]],
            script: script(1, members(3), vec![spec(members(5)), pause(2)]),
        },
        Scenario {
            name: "growth-from-one",
            about: "servers judge by lists that need not share a voter",
            guards: &[
                &[Rule::SmallSteps],
                &[Rule::FinishedFirst, Rule::ClaimsFirst],
            ],
            script: script(1, members(1), vec![spec(members(7)), pause(2)]),
        },
        Scenario {
            name: "shrink",
            about: "a member that leaves is deleted while others still count its vote",
            guards: &[&[Rule::LeaverGoesLast], &[Rule::LeaverStepsDown]],
            script: script(1, members(5), vec![spec(members(3)), pause(2)]),
        },
        Scenario {
            name: "template-undone-over-several-steps",
            about: "somebody puts a pod template back that names a server list of several steps ago",
            guards: &[&[Rule::TakeBack]],
            script: script(
                1,
                members(3),
                vec![
                    Line::Deed(Deed::Remember),
                    spec(members(5)),
                    pause(2),
                    until(Condition::AsAsked),
                    Line::Deed(Deed::Undo),
                    pause(5),
                    until(Condition::AsAsked),
                ],
            ),
        },
        Scenario {
            name: "old-leader-does-not-know",
            about: "a leader that was cut off still says that it leads beside the new one, and a member is \
                    restarted",
            guards: &[&[Rule::OneLeader]],
            script: script(
                1,
                json!({ "replicas": 5, "config": { "syncLimit": 50 } }),
                vec![
                    until(Condition::Leads(4)),
                    spec(json!({ "config": { "syncLimit": 2 } })),
                    until(Condition::Outdated),
                    until(Condition::UpToDate(0)),
                    until(Condition::UpToDate(1)),
                    until(Condition::UpToDate(2)),
                    spec(json!({ "paused": true })),
                    act(Act::Crash(3)),
                    pause(1),
                    until(Condition::Looks(3)),
                    act(Act::Crash(3)),
                    until(Condition::Failing(3)),
                    act(Act::Cut(4, 0, seconds(90))),
                    act(Act::Cut(4, 1, seconds(90))),
                    act(Act::Cut(4, 2, seconds(90))),
                    until(Condition::TwoLead),
                    pause(3),
                    spec(json!({ "paused": false })),
                    pause(20),
                ],
            ),
        },
        Scenario {
            name: "operator-can-ask-nobody",
            about: "members that do not answer the operator count as ones without a vote, and are restarted",
            guards: &[&[Rule::IdleIsKnown]],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::DeafOperator(seconds(60))),
                    pause(4),
                    configure(5000),
                    pause(20),
                ],
            ),
        },
        Scenario {
            name: "leavers-volume-while-another-is-away",
            about: "the volume of a member that left is deleted while one that stays does not serve",
            guards: &[&[Rule::DeleteLeaversOnly]],
            script: script(
                1,
                members(5),
                vec![
                    spec(members(3)),
                    pause(2),
                    until(Condition::AsAsked),
                    act(Act::LoseNode(1, seconds(90))),
                    pause(10),
                    spec(json!({ "storage": { "reclaimPolicy": "Delete" } })),
                    pause(40),
                ],
            ),
        },
        Scenario {
            name: "policy-is-changed-to-and-fro",
            about: "what becomes of volumes is changed after members left, and claims stay somebody's property or \
                    in the way",
            guards: &[],
            script: script(
                1,
                json!({ "replicas": 5, "storage": { "reclaimPolicy": "Delete" } }),
                vec![
                    Line::Deed(Deed::Remember),
                    spec(json!({ "storage": { "reclaimPolicy": "Retain" } })),
                    pause(5),
                    until(Condition::AsAsked),
                    spec(members(3)),
                    pause(2),
                    until(Condition::AsAsked),
                    Line::Await(Condition::SameClaims, seconds(0)),
                    spec(json!({ "storage": { "reclaimPolicy": "Delete" } })),
                    pause(5),
                    until(Condition::AsAsked),
                    spec(json!({ "storage": { "reclaimPolicy": "Retain" } })),
                ],
            ),
        },
        Scenario {
            name: "shrink-to-one",
            about: "members that run the list of two cannot join before the last one of three runs it too",
            guards: &[&[Rule::RollForward]],
            script: script(1, members(3), vec![spec(members(1)), pause(2)]),
        },
        Scenario {
            name: "size-taken-back-before-the-newcomer-runs",
            about: "another step begins while one is not finished, and nothing leads back to the list before",
            guards: &[&[Rule::FinishedFirst]],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::RefuseWrites("Pod", true, seconds(300))),
                    spec(members(5)),
                    until(Condition::Template("1,2,3,4")),
                    pause(5),
                    spec(members(3)),
                    Line::Await(Condition::Template("1,2,3"), seconds(30)),
                ],
            ),
        },
        Scenario {
            name: "claims-cannot-be-written",
            about: "a server list is in the pod template and on no volume claim, so that the ensemble could be \
                    started again without it",
            guards: &[&[Rule::ClaimsFirst]],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::RefuseWrites(
                        "PersistentVolumeClaim",
                        true,
                        seconds(60),
                    )),
                    spec(members(5)),
                    pause(20),
                    Line::Await(Condition::Template("1,2,3"), seconds(0)),
                ],
            ),
        },
        Scenario {
            name: "shrink-while-the-last-member-comes-back",
            about: "a member that is down for a moment counts as gone, and the ensemble shrinks without it",
            guards: &[&[Rule::Patience]],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::Crash(2)),
                    pause(1),
                    until(Condition::Looks(2)),
                    act(Act::Crash(2)),
                    until(Condition::Failing(2)),
                    spec(members(1)),
                    pause(8),
                    Line::Await(Condition::Template("1,2,3"), seconds(0)),
                ],
            ),
        },
        Scenario {
            name: "two-of-five-are-lost",
            about: "one more of five members is restarted while two are away for long",
            guards: &[&[Rule::KeepMajority]],
            script: script(
                1,
                members(5),
                vec![
                    Line::Deed(Deed::Remember),
                    act(Act::LoseNode(0, seconds(3600))),
                    act(Act::LoseNode(1, seconds(3600))),
                    pause(5),
                    configure(5000),
                    until(Condition::Outdated),
                    pause(200),
                    Line::Await(Condition::SamePods, seconds(0)),
                ],
            ),
        },
    ]
}
