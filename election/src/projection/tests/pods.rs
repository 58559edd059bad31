//! Which pod an identity names.

use bellwether_api::election::PodBinding;

use super::*;

fn bound(identity: &str, address: Option<&str>, pods: &Pods) -> Binding {
    let claimant = Claimant {
        identity,
        address,
        connection: None,
        owned: None,
    };
    Binder::default().bind(&claimant, pods)
}

fn is(name: &str) -> Binding {
    Binding::Pod(name.to_owned())
}

#[test]
fn identities_name_pods_in_many_ways() {
    let mut known = pods(&["web-0", "web-1"]);
    known.insert(PodFacts {
        hostname: "db".to_owned(),
        subdomain: Some("data".to_owned()),
        ips: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
        ..pod("x-7f", "10.0.0.7")
    });
    for identity in [
        "web-0",
        "10.0.0.1",
        "10.0.0.1:8983_solr",
        "http://10.0.0.1:8080/path",
        "akka.tcp://flink@10.0.0.1:6123/user",
        "web-0:2181",
        "master,10.0.0.1,16000",
    ] {
        assert_eq!(bound(identity, None, &known), is("web-0"), "{identity}");
    }
    for identity in [
        "db",
        "DB:1",
        "db.data",
        "db.data.shop:80",
        "db.data.shop.svc",
        "http://db.data.shop.svc.cluster.local:80/",
        "db.data.shop.svc.cluster.local.",
        "[fd00::7]:80",
        "fd00::7",
    ] {
        assert_eq!(bound(identity, None, &known), is("x-7f"), "{identity}");
    }
    for identity in [
        "",
        "nobody",
        "db.other",
        "db.data.elsewhere",
        "db.data.shop.pod",
        "web-0.data",
        "web-0.example.com",
        "10.0.0.10",
        "110.0.0.1",
        "0x10003f2a1b0004",
        "\u{fffd}",
    ] {
        assert_eq!(
            bound(identity, None, &known),
            Binding::NotFound,
            "{identity}"
        );
    }
    assert_eq!(bound("nn1", Some("10.0.0.2:8020"), &known), is("web-1"));
    // The name decides before the address does.
    assert_eq!(bound("web-0", Some("10.0.0.2"), &known), is("web-0"));
}

#[test]
fn two_pods_that_fit_are_none() {
    let mut known = pods(&["a"]);
    known.insert(pod("b", "10.0.0.1"));
    let both = Binding::Ambiguous(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(bound("10.0.0.1:80", None, &known), both);
    known.remove("b");
    assert_eq!(bound("10.0.0.1:80", None, &known), is("a"));
}

#[test]
fn a_pattern_finds_the_pod_and_nothing_else_is_tried() {
    let binder = |pattern: &str| {
        Binder::new(Some(&PodBinding {
            selector: None,
            identity_pattern: Some(pattern.to_owned()),
        }))
    };
    let known = pods(&["web-0", "web-1"]);
    let find = |binder: &Binder, identity, connection: Option<&str>| {
        let claimant = Claimant {
            identity,
            address: None,
            connection: connection.map(|ip| ip.parse().unwrap()),
            owned: None,
        };
        binder.bind(&claimant, &known)
    };
    let by_name = binder(r"^scheduler@(?P<pod>[^:]+):\d+$").unwrap();
    assert_eq!(find(&by_name, "scheduler@web-1:80", None), is("web-1"));
    assert_eq!(find(&by_name, "web-1", None), Binding::NotFound);
    let by_ip = binder(r"(?<ip>[0-9.]+)").unwrap();
    assert_eq!(find(&by_ip, "x10.0.0.2y", None), is("web-1"));
    // The address from which a session connects counts if nothing else shows the pod.
    assert_eq!(find(&by_name, "?", Some("10.0.0.1")), is("web-0"));
    assert_eq!(
        find(&by_name, "scheduler@web-1:80", Some("10.0.0.1")),
        is("web-1")
    );
    for broken in ["(?P<pod>", "(.*)", "(?P<pod>(a{1000}){1000})"] {
        let why = binder(broken).unwrap_err();
        assert!(why.starts_with("spec.podBinding.identityPattern"), "{why}");
    }
}

#[test]
fn pods_that_changed_are_found_by_what_they_are_now() {
    let mut known = pods(&["a", "b"]);
    assert!(!known.insert(pod("a", "10.0.0.1")), "nothing is new");
    assert!(known.insert(pod("a", "10.0.0.9")));
    assert_eq!(bound("10.0.0.1", None, &known), Binding::NotFound);
    assert_eq!(bound("10.0.0.9", None, &known), is("a"));
    assert!(known.retain(&["b".to_owned()].into()));
    assert_eq!(bound("10.0.0.9", None, &known), Binding::NotFound);
    assert_eq!(bound("a", None, &known), Binding::NotFound);
}

#[test]
fn an_anonymous_leader_is_found_by_where_its_session_connects_from() {
    let mut status = queue(&["0x10003f2a1b0004", "0x10003f2a1b0005"]);
    status.leader.as_mut().unwrap().client_address = Some("10.0.0.2".to_owned());
    status.candidates[1].client_address = Some("10.0.0.1".to_owned());
    let subject = subject(projections(), status);
    let pods = pods(&["a", "b"]);
    let found = candidate_pods(&subject, &Binder::default(), &pods, None);
    assert_eq!(found.leader, Some(is("b")));
    let labels = PodLabelsProjection::default();
    let (a, b) = (pods.get("a").unwrap(), pods.get("b").unwrap());
    let roles = Roles::new(&labels, Some(b), [a].into_iter());
    assert_eq!(found.roles, Some(roles));
}

/// Brokers are known by numbers, and their pods by the addresses that they registered.
#[test]
fn a_candidate_is_found_by_its_address() {
    let mut status = queue(&["1", "2"]);
    status.leader.as_mut().unwrap().address = Some("kafka-1.kafka:9092".to_owned());
    status.candidates[0].address = Some("kafka-1.kafka:9092".to_owned());
    status.candidates[1].address = Some("SSL://kafka-2.kafka:9093".to_owned());
    let subject = subject(projections(), status);
    let mut pods = Pods::new("shop");
    for (name, ip) in [
        ("kafka-1", "10.0.0.1"),
        ("kafka-2", "10.0.0.2"),
        ("kafka-3", "10.0.0.3"),
    ] {
        pods.insert(PodFacts {
            subdomain: Some("kafka".to_owned()),
            ..pod(name, ip)
        });
    }
    let found = candidate_pods(&subject, &Binder::default(), &pods, None);
    assert_eq!(found.leader, Some(Binding::Pod("kafka-1".to_owned())));
    let roles = format!("{:?}", found.roles);
    assert!(roles.contains("kafka-2"), "{roles}");
    assert!(!roles.contains("kafka-3"), "{roles}");
}

#[test]
fn ports_are_found_in_the_order_of_kubernetes() {
    let port = |number: i32, protocol: &str| json!({"name": "web", "containerPort": number, "protocol": protocol});
    let unnamed = json!({"containerPort": 4});
    let pod = json!({
        "metadata": {"name": "web-0"},
        "spec": {
            "initContainers": [
                {"name": "once", "ports": [port(1, "UDP")]},
                {"name": "sidecar", "restartPolicy": "Always", "ports": [port(2, "UDP"), port(3, "TCP")]},
            ],
            "containers": [
                {"name": "a", "ports": [unnamed, port(5, "SCTP"), {"name": "web", "containerPort": 6}]},
                {"name": "b", "ports": [port(7, "TCP")]},
            ],
        },
    });
    let facts = PodFacts::from_pod(&serde_json::from_value(pod).unwrap()).unwrap();
    assert_eq!(facts.port("web", PortProtocol::Tcp), Some(6));
    assert_eq!(facts.port("web", PortProtocol::Udp), Some(2));
    assert_eq!(facts.port("none", PortProtocol::Tcp), None);
}

/// The pod of a candidate whose node was made at this time.
fn may_lead(pod: serde_json::Value, owned_ms: i64) -> Binding {
    let pod = serde_json::from_value(pod).unwrap();
    let mut known = Pods::new("shop");
    known.insert(PodFacts::from_pod(&pod).unwrap());
    let claimant = Claimant {
        identity: "web-0",
        owned: Some(Timestamp::from_millisecond(owned_ms).unwrap()),
        ..Claimant::default()
    };
    Binder::default().bind(&claimant, &known)
}

/// A pod of a StatefulSet with containers and the seconds at which they started, if they run.
fn started(containers: &[(&str, Option<i64>)]) -> serde_json::Value {
    let specs = containers.iter().map(|(name, _)| json!({"name": name}));
    let statuses = containers.iter().map(|(name, start)| {
        let state = match start {
            Some(start) => json!({"running": {"startedAt": at(*start).to_string()}}),
            None => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        };
        json!({"name": name, "state": state, "image": "", "imageID": "", "ready": true, "restartCount": 0})
    });
    json!({
        "metadata": {"name": "web-0", "uid": "1", "creationTimestamp": at(10).to_string()},
        "spec": {"containers": specs.collect::<Vec<_>>()},
        "status": {"phase": "Running", "containerStatuses": statuses.collect::<Vec<_>>()},
    })
}

#[test]
fn what_started_after_the_leaders_node_was_made_does_not_lead() {
    let younger = || Binding::Younger("web-0".to_owned());
    let one = |start| started(&[("app", Some(start))]);
    // The leader's node is made as soon as its container runs, or later.
    assert_eq!(may_lead(one(20), 20_000), is("web-0"));
    assert_eq!(may_lead(one(20), 90_000), is("web-0"));
    // Clocks may differ by a second, and by no more.
    assert_eq!(may_lead(one(20), 19_000), is("web-0"));
    assert_eq!(may_lead(one(20), 18_999), younger());
    // The container was started again while the session of the old one lives.
    assert_eq!(may_lead(one(40), 20_000), younger());
    // The container does not run, so the candidate's process has ended.
    assert_eq!(may_lead(started(&[("app", None)]), 90_000), younger());
    let mut unknown = one(20);
    unknown["status"]
        .as_object_mut()
        .unwrap()
        .remove("containerStatuses");
    assert_eq!(may_lead(unknown, 90_000), younger());
    // The pod was recreated with the same name: its containers cannot be older than the pod.
    let mut anew = one(20);
    anew["metadata"]["creationTimestamp"] = json!(at(30).to_string());
    assert_eq!(may_lead(anew.clone(), 25_000), younger());
    assert_eq!(may_lead(anew, 35_000), is("web-0"));
}

#[test]
fn of_several_containers_the_named_one_counts_or_else_all() {
    let younger = || Binding::Younger("web-0".to_owned());
    let two = |app, proxy| started(&[("app", app), ("proxy", proxy)]);
    assert_eq!(may_lead(two(Some(20), Some(21)), 30_000), is("web-0"));
    // Nothing shows which container is the candidate.
    assert_eq!(may_lead(two(Some(20), Some(40)), 30_000), younger());
    assert_eq!(may_lead(two(Some(20), None), 30_000), younger());
    let named = |mut pod: serde_json::Value| {
        pod["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "app"});
        pod
    };
    assert_eq!(
        may_lead(named(two(Some(20), Some(40))), 30_000),
        is("web-0")
    );
    assert_eq!(may_lead(named(two(Some(20), None)), 30_000), is("web-0"));
    assert_eq!(may_lead(named(two(Some(40), Some(20))), 30_000), younger());
    // A sidecar among the init containers runs on while the application starts again.
    let mut sidecar = started(&[("app", Some(40))]);
    sidecar["spec"]["initContainers"] = json!([{"name": "proxy", "restartPolicy": "Always"}]);
    let state = json!({"running": {"startedAt": at(11).to_string()}});
    sidecar["status"]["initContainerStatuses"] = json!([{"name": "proxy", "state": state,
        "image": "", "imageID": "", "ready": true, "restartCount": 0}]);
    assert_eq!(may_lead(sidecar, 30_000), younger());
}

#[test]
fn a_pod_tells_since_when_anything_of_it_runs_and_whether_it_is_evicted() {
    let facts = |pod| PodFacts::from_pod(&serde_json::from_value(pod).unwrap()).unwrap();
    let began = |containers: &[_]| facts(started(containers)).began;
    // Of two containers one is started again: it may have been the candidate, or not.
    assert_eq!(
        began(&[("app", Some(40)), ("proxy", Some(20))]),
        Some(at(20))
    );
    assert_eq!(began(&[("app", None), ("proxy", Some(20))]), Some(at(20)));
    assert_eq!(began(&[("app", None)]), None);
    let mut named = started(&[("app", None), ("proxy", Some(20))]);
    named["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "app"});
    assert_eq!(facts(named).began, None);
    let mut pod = started(&[("app", Some(20))]);
    assert!(!facts(pod.clone()).is_disrupted);
    pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    assert!(facts(pod).is_disrupted);
}

#[test]
fn a_leader_that_renews_its_term_is_bound_by_its_last_write() {
    let mut known = Pods::new("shop");
    known.insert(PodFacts {
        since: Some(at(150)),
        ..pod("a", "10.0.0.1")
    });
    let mut subject = subject(projections(), queue(&["a"]));
    let found = candidate_pods(&subject, &Binder::default(), &known, None);
    assert_eq!(found.leader, Some(Binding::Younger("a".to_owned())));
    let nobody = Roles::new(&PodLabelsProjection::default(), None, std::iter::empty());
    assert_eq!((found.pod, found.roles), (None, Some(nobody)));
    subject.owned = Some(at(160));
    let found = candidate_pods(&subject, &Binder::default(), &known, None);
    assert_eq!(found.leader, Some(is("a")));
}
