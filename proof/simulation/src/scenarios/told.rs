//! Lives in which a person has to act: the status reports that and what to do, nothing is restarted
//! meanwhile, and the person's action helps.

use bellwether_simulation::acts::Act;
use bellwether_simulation::script::{Condition, Deed, Line};
use serde_json::json;

use super::{Scenario, act, configure, members, pause, script, seconds, spec, until};

fn deed(deed: Deed) -> Line {
    Line::Deed(deed)
}

/// Nothing is restarted for this many seconds.
fn stays(time: u64) -> Vec<Line> {
    vec![
        deed(Deed::Remember),
        pause(time),
        Line::Await(Condition::SamePods, seconds(0)),
    ]
}

/// Every one of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "majority-of-disks-lost",
            about: "two of three disks are lost; the status names a token, and with it a person accepts the loss",
            guards: &[],
            script: script(
                1,
                members(3),
                [
                    vec![
                        deed(Deed::LoseClaim(1)),
                        deed(Deed::LoseClaim(2)),
                        until(Condition::Says("Stalled", "DisksLost")),
                        until(Condition::Says("Degraded", "DisksLost")),
                        pause(10),
                    ],
                    stays(400),
                    vec![
                        Line::Await(Condition::Says("Stalled", "DisksLost"), seconds(0)),
                        deed(Deed::AcceptLoss),
                        until(Condition::AsAsked),
                    ],
                ]
                .concat(),
            ),
        },
        Scenario {
            name: "every-disk-lost",
            about: "every disk is lost, and with the token the ensemble begins with an empty database",
            guards: &[],
            script: script(
                1,
                members(3),
                [
                    vec![
                        deed(Deed::LoseClaim(0)),
                        deed(Deed::LoseClaim(1)),
                        deed(Deed::LoseClaim(2)),
                        until(Condition::Says("Stalled", "DisksLost")),
                        pause(10),
                    ],
                    stays(200),
                    vec![deed(Deed::AcceptLoss), until(Condition::AsAsked)],
                ]
                .concat(),
            ),
        },
        Scenario {
            name: "bad-image-stays",
            about: "the user asks for an image that does not exist; one member fails, no second one is \
                    restarted, and the status says so until the user corrects it",
            guards: &[],
            script: script(
                1,
                members(3),
                [
                    vec![
                        spec(json!({ "image": "zookeeper:missing" })),
                        until(Condition::Says("Degraded", "PodFailing")),
                        until(Condition::Says("Stalled", "PodFailing")),
                    ],
                    stays(900),
                    vec![
                        spec(json!({ "image": "mirror.example/zookeeper:3.9.5" })),
                        until(Condition::AsAsked),
                    ],
                ]
                .concat(),
            ),
        },
        Scenario {
            name: "pods-are-refused",
            about: "a quota leaves room for two pods only, and one of three is deleted; the status says so until a \
                    person raises the quota",
            guards: &[],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::Quota(seconds(900))),
                    act(Act::ForceDelete(0)),
                    until(Condition::Says("Degraded", "PodFailing")),
                    pause(500),
                    Line::Await(Condition::Says("Degraded", "PodFailing"), seconds(0)),
                ],
            ),
        },
        Scenario {
            name: "node-stays-lost-in-a-roll",
            about: "a member is away for long while the others wait for it in a roll, and the status says that \
                    nothing is wrong",
            guards: &[],
            script: script(
                1,
                members(3),
                vec![
                    act(Act::LoseNode(0, seconds(1200))),
                    pause(5),
                    configure(5000),
                    pause(600),
                    Line::Await(Condition::Reason("MemberDown"), seconds(0)),
                ],
            ),
        },
    ]
}
