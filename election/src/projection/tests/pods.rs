//! Which pod an identity names.

use bellwether_api::election::PodBinding;

use super::*;

fn bound(identity: &str, address: Option<&str>, pods: &Pods) -> Binding {
    let claimant = Claimant {
        identity,
        address,
        connection: None,
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
        };
        binder.bind(&claimant, &known)
    };
    let by_name = binder(r"^scheduler@(?P<pod>[^:]+):\d+$").unwrap();
    assert_eq!(find(&by_name, "scheduler@web-1:80", None), is("web-1"));
    assert_eq!(find(&by_name, "web-1", None), Binding::NotFound);
    let by_ip = binder(r"(?<ip>[0-9.]+)").unwrap();
    assert_eq!(find(&by_ip, "x10.0.0.2y", None), is("web-1"));
    // Where a session connects from counts if nothing else tells.
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
    let found = cast(&subject, &Binder::default(), &pods);
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
    let found = cast(&subject, &Binder::default(), &pods);
    assert_eq!(found.leader, Some(Binding::Pod("kafka-1".to_owned())));
    let roles = format!("{:?}", found.roles);
    assert!(roles.contains("kafka-2"), "{roles}");
    assert!(!roles.contains("kafka-3"), "{roles}");
}
