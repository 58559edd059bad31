use serde_json::json;

use super::*;

const SERVED: [(&str, MemberRole); 3] = [
    ("zk-0", MemberRole::Follower),
    ("zk-1", MemberRole::Follower),
    ("zk-2", MemberRole::Leader),
];

fn servers(roles: [(&str, MemberRole); 3]) -> Servers {
    let commit = roles.iter().any(|(_, role)| *role == MemberRole::Leader);
    let named = roles.map(|(pod, role)| (pod.to_owned(), role));
    Servers {
        stay: named.iter().map(|(pod, _)| pod.clone()).collect(),
        roles: named.into_iter().collect(),
        commit,
    }
}

/// The status that says what is so while all three members serve.
fn status() -> Value {
    json!({
        "phase": "Ready",
        "readyReplicas": 3,
        "leader": "zk-2",
        "members": SERVED.map(|(pod, role)| json!({ "name": pod, "role": role })),
        "conditions": [
            { "type": "Available", "status": "True" },
            { "type": "Degraded", "status": "False" },
        ],
    })
}

fn about(status: &Value, servers: &Servers) -> Vec<String> {
    let all = untruths(status, servers, Duration::ZERO);
    all.into_iter().map(|untruth| untruth.about).collect()
}

/// When this status, which does not change, is found to be wrong, in seconds.
fn found(servers: &Servers, able_since: Option<u64>) -> Option<u64> {
    let mut honesty = Honesty::default();
    (0..600).find(|at| {
        let now = Duration::from_secs(*at);
        if able_since.is_some_and(|since| *at >= since) {
            honesty.able.get_or_insert(now);
        }
        honesty
            .untrue(now, &status(), servers, Duration::ZERO)
            .is_some()
    })
}

#[test]
fn a_status_that_says_what_is_so_is_honest() {
    assert_eq!(about(&status(), &servers(SERVED)), Vec::<String>::new());
    assert_eq!(found(&servers(SERVED), Some(0)), None);
    // A status without any field reports nothing wrong.
    assert_eq!(about(&json!({}), &servers(SERVED)), Vec::<String>::new());
}

#[test]
fn each_thing_that_is_not_so_is_seen() {
    let mut roles = SERVED;
    roles[1].1 = MemberRole::Down;
    let away = servers(roles);
    assert_eq!(
        about(&status(), &away),
        ["readyReplicas", "zk-1", "Degraded zk-1"]
    );
    roles[2].1 = MemberRole::Looking;
    let leaderless = about(&status(), &servers(roles));
    for what in ["Ready", "Available", "leader", "Degraded zk-2"] {
        assert!(
            leaderless.iter().any(|about| about == what),
            "{leaderless:?}"
        );
    }
    let mut status = status();
    status["leader"] = Value::Null;
    assert_eq!(about(&status, &servers(SERVED)), ["leader"]);
}

#[test]
fn a_leaver_may_be_away_and_is_counted_all_the_same() {
    let mut roles = SERVED;
    roles[1].1 = MemberRole::Down;
    let mut servers = servers(roles);
    servers.stay.retain(|pod| pod != "zk-1");
    assert_eq!(about(&status(), &servers), ["readyReplicas", "zk-1"]);
}

#[test]
fn a_status_may_be_out_of_date_for_a_time_and_while_no_operator_can_look() {
    let mut roles = SERVED;
    roles[1].1 = MemberRole::Down;
    let away = servers(roles);
    assert_eq!(found(&away, Some(0)), Some(LOOK.as_secs()));
    assert_eq!(found(&away, Some(100)), Some(100 + LOOK.as_secs()));
    assert_eq!(found(&away, None), None);
    // That no leader can commit is not excused: the bound is made for the change of the operator.
    roles[2].1 = MemberRole::Looking;
    assert_eq!(found(&servers(roles), None), Some(STALE.as_secs()));
}

#[test]
fn a_person_is_told_by_a_condition_with_a_reason_and_a_message() {
    let told = |phase: &str, type_: &str, word: &str, message: &str| {
        tells(&json!({ "phase": phase, "conditions": [
            { "type": type_, "status": word, "reason": "PodFailing", "message": message },
        ] }))
    };
    assert!(told("Blocked", "Stalled", "True", "the image is missing"));
    assert!(told("Rolling", "Degraded", "True", "the image is missing"));
    assert!(!told("Ready", "Degraded", "True", "the image is missing"));
    assert!(!told(
        "Rolling",
        "Degraded",
        "False",
        "the image is missing"
    ));
    assert!(!told("Rolling", "Degraded", "True", ""));
    assert!(!told("Rolling", "Progressing", "True", "zk-1 restarts"));
}
