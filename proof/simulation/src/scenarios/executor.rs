//! What the executor's preconditions and the lease keep from happening.

use bellwether_api_server::Action;
use bellwether_ensemble::rules::Rule;
use bellwether_simulation::acts::Act;
use bellwether_simulation::requests::Held;
use bellwether_simulation::script::{Condition, Deed, Line};
use serde_json::json;

use super::{Scenario, act, configure, members, pause, script, seconds, spec, until};

/// Requests of this kind, or their answers, are held up.
fn hold_up(
    resource: &'static str,
    action: Option<Action>,
    answer: bool,
    time: u64,
    count: u16,
) -> Line {
    Line::Deed(Deed::HoldUp(Held {
        resource,
        action,
        answer,
        time: seconds(time),
        count,
    }))
}

/// Every one of them.
pub(super) fn all() -> Vec<Scenario> {
    let stalls = (0..12).flat_map(|n| {
        let moment = Line::Pause(std::time::Duration::from_millis(500));
        [configure(5000 + n), moment]
    });
    vec![
        Scenario {
            name: "paused-while-a-pass-writes",
            about: "the user pauses the ensemble while the operator writes, and the operator then restarts a \
                    member on what it knew before",
            guards: &[&[Rule::FreshFacts]],
            script: script(
                1,
                members(3),
                vec![
                    hold_up("services", Some(Action::Apply), true, 6, 1),
                    configure(5000),
                    until(Condition::Outdated),
                    act(Act::DeleteOwned("Service", "zk")),
                    pause(1),
                    spec(json!({ "paused": true })),
                    pause(10),
                    spec(json!({ "paused": false })),
                ],
            ),
        },
        Scenario {
            name: "deletion-arrives-late",
            about: "the deletion of a pod is long on its way, and arrives when another pod has its name",
            guards: &[&[Rule::StepAsJudged]],
            script: script(
                1,
                members(3),
                vec![
                    hold_up("pods", Some(Action::Delete), false, 20, 1),
                    configure(5000),
                    until(Condition::Outdated),
                    pause(2),
                    act(Act::DeletePod(0)),
                    act(Act::DeletePod(1)),
                    pause(25),
                ],
            ),
        },
        Scenario {
            name: "write-arrives-late",
            about: "a write of the StatefulSet is long on its way, and undoes what was written meanwhile",
            guards: &[&[Rule::WriteAsSeen]],
            script: script(
                1,
                members(3),
                vec![
                    hold_up("statefulsets", Some(Action::Apply), false, 15, 1),
                    configure(5000),
                    pause(3),
                    act(Act::ScaleSet(4)),
                    pause(20),
                ],
            ),
        },
        Scenario {
            name: "lease-cannot-be-renewed",
            about: "an operator that could not renew its lease goes on writing when another may hold it",
            guards: &[&[Rule::LeaseHeld]],
            script: script(
                1,
                members(3),
                [
                    vec![hold_up("leases", None, false, 60, 6), pause(7)],
                    stalls.collect(),
                ]
                .concat(),
            ),
        },
        Scenario {
            name: "template-put-back-in-the-middle-of-a-roll",
            about: "a pass puts back a template that somebody edited, and restarts a member before the \
                    StatefulSet's controller has seen that",
            // Facts that are read again show the change too, so both have to be broken.
            guards: &[&[Rule::WriteThenLook, Rule::FreshFacts]],
            script: script(
                1,
                members(3),
                vec![
                    configure(5000),
                    until(Condition::Outdated),
                    act(Act::KillOperator(seconds(3))),
                    act(Act::EditImage),
                    pause(60),
                ],
            ),
        },
    ]
}
