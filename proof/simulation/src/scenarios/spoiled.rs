//! Lives that have to fail, each by the report of one judge: the world does what it must not do,
//! which shows that the judge can report it.

use bellwether_simulation::acts::Act;
use bellwether_simulation::script::{Condition, Deed, Line};
use serde_json::json;

use super::{Spoiled, act, members, pause, script, seconds, spec, until};

/// Every one of them.
pub(super) fn all() -> Vec<Spoiled> {
    let falsify = |fields| Line::Deed(Deed::FalsifyStatus(fields));
    vec![
        Spoiled {
            name: "spoiled-by-a-foreign-field",
            about: "somebody sets a field of a Service that the operator leaves alone, so that the ensemble ends in \
                    other objects than a fresh one",
            verdict: "Service zk.spec.sessionAffinity",
            script: script(
                1,
                members(3),
                vec![Line::Deed(Deed::ForeignField), pause(5)],
            ),
        },
        Spoiled {
            name: "spoiled-number-of-members",
            about: "the status says that every member serves while one is away",
            verdict: "the status says that 3 members serve, and 2 do",
            script: script(
                1,
                members(3),
                vec![
                    falsify(json!({ "readyReplicas": 3 })),
                    act(Act::LoseNode(0, seconds(300))),
                    pause(200),
                ],
            ),
        },
        Spoiled {
            name: "spoiled-leader",
            about: "the status names a leader that does not lead",
            verdict: "leads, and it does not",
            script: script(
                1,
                members(3),
                vec![
                    until(Condition::Leads(2)),
                    falsify(json!({ "leader": "zk-0" })),
                    act(Act::Restart),
                    pause(200),
                ],
            ),
        },
        Spoiled {
            name: "spoiled-availability",
            about: "the status says that clients are served while no leader can commit",
            verdict: "the status says that it is Available, and no leader can commit",
            script: script(
                1,
                members(3),
                vec![
                    falsify(json!({ "conditions": [{
                        "type": "Available",
                        "status": "True",
                        "reason": "QuorumServing",
                        "message": "A leader leads.",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }] })),
                    act(Act::LoseNode(0, seconds(300))),
                    act(Act::LoseNode(1, seconds(300))),
                    pause(200),
                ],
            ),
        },
        Spoiled {
            name: "spoiled-trouble",
            about: "the status says that nothing is wrong while a member is away for long",
            verdict: "it is not Degraded, and zk-0 does not serve",
            script: script(
                1,
                members(3),
                vec![
                    falsify(json!({ "conditions": [{
                        "type": "Degraded",
                        "status": "False",
                        "reason": "Healthy",
                        "message": "Nothing is wrong.",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }] })),
                    act(Act::LoseNode(0, seconds(600))),
                    pause(500),
                ],
            ),
        },
        Spoiled {
            name: "spoiled-silence",
            about: "an image does not exist, and the status does not say that a person has to act",
            verdict: "the status does not say that a person has to act",
            script: script(
                1,
                members(3),
                vec![
                    falsify(json!({ "conditions": [] })),
                    spec(json!({ "image": "zookeeper:missing" })),
                    pause(900),
                ],
            ),
        },
    ]
}
