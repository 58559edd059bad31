//! Leases, Services and labels: stories, and rules that hold for every input.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::election::{
    Candidate, Dialect, DialectType, EnsembleRef, Leader, LeaseProjection, OnStale, PodBinding,
    PodLabelsProjection, ProjectedPort, Projections, Reason, ServiceProjection,
};
use bellwether_api::labels::{FENCING_TOKEN, LABELLED_BY, ROLE_LABELLED};
use bellwether_api::{LeaderElection, LeaderElectionSpec, LeaderElectionStatus};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldsV1, ManagedFieldsEntry, MicroTime, ObjectMeta, Time,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn projections() -> Projections {
    Projections {
        lease: Some(LeaseProjection::default()),
        service: Some(ServiceProjection {
            name: None,
            ports: vec![ProjectedPort {
                name: "http".to_owned(),
                port: 80,
                target_port: Some(8080),
            }],
            on_stale: OnStale::Keep,
        }),
        pod_labels: Some(PodLabelsProjection::default()),
    }
}

fn subject(projections: Projections, status: LeaderElectionStatus) -> Subject {
    let spec = LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
        }),
        connection: None,
        authentication: None,
        path: "/e".to_owned(),
        dialect: Dialect::from(DialectType::Kazoo),
        identity: None,
        projections: Some(projections),
        pod_binding: None,
        max_candidates: 50,
    };
    let mut object = LeaderElection::new("app", spec);
    object.metadata.namespace = Some("shop".to_owned());
    object.metadata.uid = Some("uid-1".to_owned());
    Subject {
        object: Arc::new(object),
        status: Arc::new(status),
    }
}

/// A status in which the first of these leads and the others wait.
fn queue(identities: &[&str]) -> LeaderElectionStatus {
    let candidates = identities.iter().map(|identity| Candidate {
        node: format!("node-of-{identity}"),
        identity: (*identity).to_owned(),
        ..Candidate::default()
    });
    LeaderElectionStatus {
        leader: identities.first().map(|identity| Leader {
            identity: (*identity).to_owned(),
            node: format!("node-of-{identity}"),
            fencing_token: Some("17".to_owned()),
            acquire_time: Some(MicroTime(at(100))),
            ..Leader::default()
        }),
        candidates: candidates.collect(),
        leader_transitions: 3,
        ..LeaderElectionStatus::default()
    }
}

fn stale(status: LeaderElectionStatus) -> LeaderElectionStatus {
    LeaderElectionStatus {
        stale_since: Some(Time(at(200))),
        ..status
    }
}

fn pod(name: &str, ip: &str) -> PodFacts {
    PodFacts {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        ips: vec![ip.parse().unwrap()],
        hostname: name.to_owned(),
        node: Some("node-1".to_owned()),
        ready: true,
        ..PodFacts::default()
    }
}

fn pods(names: &[&str]) -> Pods {
    let mut pods = Pods::new("shop");
    for (at, name) in names.iter().enumerate() {
        pods.insert(pod(name, &format!("10.0.0.{}", at + 1)));
    }
    pods
}

/// The object after a step; `None` if there is none then.
fn after<K: Clone>(live: Option<&K>, step: Step<K>) -> Option<K> {
    match step {
        Step::Nothing | Step::Taken => live.cloned(),
        Step::Create(object) | Step::Replace(object) => Some(*object),
        Step::Delete => None,
    }
}

fn leased(status: LeaderElectionStatus, live: Option<&Lease>, now: i64) -> Step<Lease> {
    let subject = subject(projections(), status);
    lease(&subject, &LeaseProjection::default(), live, at(now))
}

#[test]
fn the_lease_says_what_the_status_says() {
    let lease = after(None, leased(queue(&["a", "b"]), None, 1000)).unwrap();
    insta::assert_yaml_snapshot!(serde_json::to_value(&lease).unwrap());
}

#[test]
fn the_lease_is_renewed_after_a_third_of_its_duration_and_not_before() {
    let lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    assert_eq!(leased(queue(&["a"]), Some(&lease), 1004), Step::Nothing);
    let Step::Replace(renewed) = leased(queue(&["a"]), Some(&lease), 1005) else {
        panic!("it is not renewed");
    };
    let spec = renewed.spec.clone().unwrap();
    assert_eq!(spec.renew_time.unwrap().0, at(1005));
    assert_eq!(spec.acquire_time.unwrap().0, at(100));
    let subject = subject(projections(), queue(&["a"]));
    let next = lease_renewal(&subject, &LeaseProjection::default(), &renewed);
    assert_eq!(next, Some(at(1010)));
}

#[test]
fn a_lease_is_not_renewed_without_sight_and_is_nobodys_without_a_leader() {
    let lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    let blind = stale(queue(&["a"]));
    assert_eq!(leased(blind.clone(), Some(&lease), 5000), Step::Nothing);
    assert_eq!(leased(blind.clone(), None, 5000), Step::Nothing);
    let subject = subject(projections(), blind);
    assert_eq!(
        lease_renewal(&subject, &LeaseProjection::default(), &lease),
        None
    );
    let nobody = after(Some(&lease), leased(queue(&[]), Some(&lease), 1001)).unwrap();
    let spec = nobody.spec.clone().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.acquire_time, None);
    assert_eq!(nobody.metadata.annotations, None);
    assert_eq!(leased(queue(&[]), Some(&nobody), 9000), Step::Nothing);
}

#[test]
fn a_leader_that_has_not_acknowledged_holds_no_lease() {
    let mut status = queue(&["a"]);
    status.leader.as_mut().unwrap().acknowledged = Some(false);
    let lease = after(None, leased(status, None, 1000)).unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
}

#[test]
fn a_clock_that_was_ahead_does_not_keep_the_lease_alive() {
    let lease = after(None, leased(queue(&["a"]), None, 9000)).unwrap();
    let Step::Replace(renewed) = leased(queue(&["a"]), Some(&lease), 1000) else {
        panic!("it is left alone");
    };
    assert_eq!(renewed.spec.unwrap().renew_time.unwrap().0, at(1000));
}

#[test]
fn what_others_put_on_our_objects_stays() {
    let mut lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    let labels = lease.metadata.labels.get_or_insert_default();
    labels.insert("team".to_owned(), "blue".to_owned());
    let lease = after(Some(&lease), leased(queue(&["b"]), Some(&lease), 1001)).unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "blue");
}

fn slice_for(
    status: LeaderElectionStatus,
    on_stale: OnStale,
    pods: &Pods,
    live: Option<&EndpointSlice>,
) -> Step<EndpointSlice> {
    let mut projections = projections();
    let projection = projections.service.as_mut().unwrap();
    projection.on_stale = on_stale;
    let projection = projection.clone();
    let subject = subject(projections, status);
    let service = after(None, service(&subject, &projection, None)).unwrap();
    let cast = cast(&subject, &Binder::default(), pods);
    let of = SliceOf {
        service: &service,
        pod: cast.pod.as_ref(),
    };
    slice(&subject, &projection, of, live)
}

fn addresses(slice: &EndpointSlice) -> Vec<&str> {
    let all = slice.endpoints.iter().flat_map(|one| &one.addresses);
    all.map(String::as_str).collect()
}

#[test]
fn the_service_has_no_selector_and_the_slice_one_address() {
    let subject = subject(projections(), queue(&["a", "b"]));
    let projection = subject.spec().projections.clone().unwrap().service.unwrap();
    let service = after(None, service(&subject, &projection, None)).unwrap();
    let pods = pods(&["a", "b"]);
    let slice = after(
        None,
        slice_for(queue(&["a", "b"]), OnStale::Keep, &pods, None),
    )
    .unwrap();
    insta::assert_yaml_snapshot!(json!({ "service": service, "slice": slice }));
}

#[test]
fn what_the_api_server_adds_to_a_service_is_no_difference() {
    let subject = subject(projections(), queue(&["a"]));
    let projection = subject.spec().projections.clone().unwrap().service.unwrap();
    let mut live = after(None, service(&subject, &projection, None)).unwrap();
    let spec = live.spec.as_mut().unwrap();
    spec.cluster_ip = Some("10.1.1.1".to_owned());
    spec.type_ = Some("ClusterIP".to_owned());
    spec.ip_families = Some(vec!["IPv4".to_owned()]);
    spec.ports.as_mut().unwrap()[0].app_protocol = Some("http".to_owned());
    live.metadata.resource_version = Some("7".to_owned());
    assert_eq!(service(&subject, &projection, Some(&live)), Step::Nothing);
    // A selector would let Kubernetes add addresses.
    let mut selecting = live.clone();
    let selector = BTreeMap::from([("app".to_owned(), "x".to_owned())]);
    selecting.spec.as_mut().unwrap().selector = Some(selector);
    assert_eq!(
        service(&subject, &projection, Some(&selecting)),
        Step::Replace(Box::new(live))
    );
}

#[test]
fn a_leader_without_a_pod_empties_the_slice_at_once() {
    let pods = pods(&["a", "b"]);
    let live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    assert_eq!(addresses(&live), ["10.0.0.1"]);
    let next = slice_for(queue(&["stranger"]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), next).unwrap()), [""; 0]);
    let next = slice_for(queue(&["b"]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), next).unwrap()), ["10.0.0.2"]);
    let next = slice_for(queue(&[]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), next).unwrap()), [""; 0]);
}

#[test]
fn without_sight_the_address_stays_or_goes_as_the_spec_says() {
    let mut pods = pods(&["a", "b"]);
    let live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    let blind = stale(queue(&["a"]));
    let keep = slice_for(blind.clone(), OnStale::Keep, &pods, Some(&live));
    assert_eq!(keep, Step::Nothing);
    let remove = slice_for(blind.clone(), OnStale::Remove, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), remove).unwrap()), [""; 0]);
    // Another pod of the same name is another one: nobody knows whether it leads.
    let mut another = pod("a", "10.0.0.9");
    another.uid = "another".to_owned();
    pods.insert(another);
    let other = slice_for(blind, OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), other).unwrap()), [""; 0]);
}

#[test]
fn the_endpoint_is_as_ready_as_the_pod() {
    let conditions = |ready, terminating| {
        let mut pods = Pods::new("shop");
        pods.insert(PodFacts {
            ready,
            terminating,
            ..pod("a", "10.0.0.1")
        });
        let slice = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
        let found = slice.endpoints[0].conditions.clone().unwrap();
        (found.ready, found.serving, found.terminating)
    };
    assert_eq!(
        conditions(true, false),
        (Some(true), Some(true), Some(false))
    );
    assert_eq!(
        conditions(false, false),
        (Some(false), Some(false), Some(false))
    );
    assert_eq!(
        conditions(true, true),
        (Some(false), Some(true), Some(true))
    );
}

#[test]
fn a_slice_of_another_family_is_made_anew() {
    let pods = pods(&["a"]);
    let mut live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    live.address_type = "IPv6".to_owned();
    let step = slice_for(queue(&["a"]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(step, Step::Delete);
}

#[test]
fn what_belongs_to_somebody_else_is_taken() {
    let subject = subject(projections(), queue(&["a"]));
    let wanted = subject.spec().projections.clone().unwrap();
    let foreign = |owner: Option<&str>| {
        let mut meta = ObjectMeta {
            name: Some("app".to_owned()),
            ..ObjectMeta::default()
        };
        if let Some(uid) = owner {
            meta = subject.meta("app".to_owned(), Some(&meta));
            meta.owner_references.as_mut().unwrap()[0].uid = uid.to_owned();
        }
        meta
    };
    let pods = pods(&["a"]);
    for owner in [None, Some("uid-of-an-earlier-election")] {
        let metadata = foreign(owner);
        let live = Lease {
            metadata: metadata.clone(),
            spec: None,
        };
        let projection = wanted.lease.as_ref().unwrap();
        assert_eq!(lease(&subject, projection, Some(&live), at(1)), Step::Taken);
        let live = Service {
            metadata: metadata.clone(),
            ..Service::default()
        };
        let projection = wanted.service.as_ref().unwrap();
        assert_eq!(service(&subject, projection, Some(&live)), Step::Taken);
        let live = EndpointSlice {
            metadata,
            address_type: "FQDN".to_owned(),
            ..EndpointSlice::default()
        };
        let step = slice_for(queue(&["a"]), OnStale::Keep, &pods, Some(&live));
        assert_eq!(step, Step::Taken);
    }
}

/// A pod as the API server keeps it.
#[derive(Clone, Debug, Default)]
struct Stored {
    uid: String,
    labels: BTreeMap<String, String>,
    /// What each field manager set.
    managers: BTreeMap<String, BTreeMap<String, String>>,
}

impl Stored {
    fn meta(&self, name: &str) -> ObjectMeta {
        let managed = self.managers.iter().map(|(manager, labels)| {
            let keys = labels.keys().map(|key| (format!("f:{key}"), json!({})));
            let keys: serde_json::Map<_, _> = keys.collect();
            ManagedFieldsEntry {
                manager: Some(manager.clone()),
                operation: Some("Apply".to_owned()),
                fields_v1: Some(FieldsV1(json!({ "f:metadata": { "f:labels": keys } }))),
                ..ManagedFieldsEntry::default()
            }
        });
        ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(self.uid.clone()),
            labels: Some(self.labels.clone()),
            managed_fields: Some(managed.collect()),
            ..ObjectMeta::default()
        }
    }

    /// Server-side apply without force. Whether it was accepted.
    fn apply(&mut self, manager: &str, labels: &BTreeMap<String, String>) -> bool {
        let foreign = |key: &String| {
            let owned = |labels: &BTreeMap<String, String>| labels.contains_key(key);
            let mine = self.managers.get(manager).is_some_and(owned);
            self.labels.contains_key(key) && !mine
        };
        let conflicts =
            |(key, value): (&String, &String)| foreign(key) && self.labels.get(key) != Some(value);
        if labels.iter().any(conflicts) {
            return false;
        }
        let before = self.managers.remove(manager).unwrap_or_default();
        for key in before.keys().filter(|key| !labels.contains_key(*key)) {
            let others = self.managers.values();
            if !others.into_iter().any(|labels| labels.contains_key(key)) {
                self.labels.remove(key);
            }
        }
        self.labels.extend(labels.clone());
        if !labels.is_empty() {
            self.managers.insert(manager.to_owned(), labels.clone());
        }
        true
    }
}

fn marks_of(pods: &BTreeMap<String, Stored>, uid: &str) -> BTreeMap<String, Mark> {
    let all = pods.iter().filter_map(|(name, pod)| {
        let mark = marks(&pod.meta(name)).remove(uid)?;
        Some((name.clone(), mark))
    });
    all.collect()
}

#[test]
fn a_patch_names_the_version_that_it_was_decided_from() {
    let mut meta = Stored {
        uid: "u".to_owned(),
        ..Stored::default()
    }
    .meta("a");
    meta.resource_version = Some("5".to_owned());
    meta.namespace = Some("shop".to_owned());
    let labels = BTreeMap::from([("role".to_owned(), "leader".to_owned())]);
    let set = patch(("uid-1", "app"), &meta, &labels);
    let back = patch(("uid-1", "app"), &meta, &BTreeMap::new());
    insta::assert_yaml_snapshot!(json!({ "set": set, "take back": back }));
    assert_eq!(set["metadata"]["labels"][ROLE_LABELLED], "true");
    assert_eq!(
        set["metadata"]["annotations"][format!("{LABELLED_BY}uid-1")],
        "app"
    );
}

#[test]
fn labels_move_off_the_old_leader_first() {
    let facts = [
        pod("a", "10.0.0.1"),
        pod("b", "10.0.0.2"),
        pod("c", "10.0.0.3"),
    ];
    let projection = PodLabelsProjection::default();
    let before = Roles::new(&projection, Some(&facts[0]), facts[..2].iter());
    let mut pods: BTreeMap<String, Stored> = BTreeMap::new();
    for fact in &facts {
        let stored = Stored {
            uid: fact.uid.clone(),
            ..Stored::default()
        };
        pods.insert(fact.name.clone(), stored);
    }
    for change in changes(&before, &BTreeMap::new()) {
        assert!(
            pods.get_mut(&change.pod)
                .unwrap()
                .apply("bellwether-election.x", &change.labels)
        );
    }
    let after = Roles::new(&projection, Some(&facts[1]), facts[1..].iter());
    let told: Vec<_> = changes(&after, &marks_of(&pods, "x"))
        .into_iter()
        .map(|change| {
            let role = change.labels.into_values().next();
            (change.pod, role, change.only_after_all)
        })
        .collect();
    let role = |value: &str| Some(value.to_owned());
    assert_eq!(
        told,
        [
            ("a".to_owned(), None, false),
            ("b".to_owned(), role("leader"), true),
            ("c".to_owned(), role("candidate"), false),
        ]
    );
    // What carries nothing but the mark of an election is cleaned, too.
    let bare = Mark {
        pod_uid: "u".to_owned(),
        ..Mark::default()
    };
    let bare = BTreeMap::from([("a".to_owned(), bare)]);
    assert_eq!(changes(&Roles::default(), &bare).len(), 1);
}

fn names() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..5_usize, 0..5)
}

proptest! {
    /// However leaders change, whichever writes fail, whatever keys the spec names: at no moment do two
    /// pods carry the leader's value of one election, and a label of somebody else is never changed.
    #[test]
    fn never_two_leaders_are_labelled(
        steps in proptest::collection::vec((names(), 0..3_usize, any::<u32>(), 0..12_usize), 1..12),
        foreign in 0..5_usize,
    ) {
        let keys = ["role", "zookeeper.bellwether.dev/role"];
        let all: Vec<PodFacts> = (0..5).map(|n| pod(&format!("p{n}"), &format!("10.0.0.{n}"))).collect();
        let mut pods: BTreeMap<String, Stored> = all
            .iter()
            .map(|facts| {
                let stored = Stored { uid: facts.uid.clone(), ..Stored::default() };
                (facts.name.clone(), stored)
            })
            .collect();
        let theirs = BTreeMap::from([("role".to_owned(), "theirs".to_owned())]);
        pods.get_mut(&format!("p{foreign}")).unwrap().apply("somebody", &theirs);
        for (people, key, failing, replaced) in steps {
            if let Some(pod) = pods.get_mut(&format!("p{replaced}")) {
                // Another pod of the same name; the facts still tell of the old one.
                let foreign = pod.managers.contains_key("somebody");
                *pod = Stored { uid: pod.uid.clone(), ..Stored::default() };
                if foreign {
                    pod.apply("somebody", &theirs);
                }
            }
            let people: Vec<&PodFacts> = people.iter().map(|n| &all[*n]).collect();
            let roles = match keys.get(key) {
                Some(key) => {
                    let projection = PodLabelsProjection { key: (*key).to_owned(), ..PodLabelsProjection::default() };
                    Roles::new(&projection, people.first().copied(), people.iter().copied())
                }
                None => Roles::default(),
            };
            let mut failed = false;
            for (at, change) in changes(&roles, &marks_of(&pods, "x")).into_iter().enumerate() {
                if change.only_after_all && failed {
                    continue;
                }
                let works = failing & (1 << (at % 32)) == 0;
                let pod = pods.get_mut(&change.pod).unwrap();
                failed |= !(works && pod.apply("bellwether-election.x", &change.labels));
                let marks = marks_of(&pods, "x");
                let leaders = marks.values().filter(|mark| mark.labels.values().any(|v| v == "leader"));
                prop_assert!(leaders.count() <= 1, "two leaders: {marks:?}");
                prop_assert_eq!(&pods[&format!("p{foreign}")].labels["role"], "theirs");
            }
            // When nothing fails, everybody has the right label afterwards.
            if failing == 0 && !failed {
                let marks = marks_of(&pods, "x");
                prop_assert_eq!(changes(&roles, &marks), vec![]);
            }
        }
    }

    /// Whoever leads, whatever pods there are, seen or not: a slice never has two addresses, and only
    /// the address of the leader's pod.
    #[test]
    fn never_two_addresses(
        steps in proptest::collection::vec((names(), any::<bool>(), any::<bool>(), names()), 1..12),
    ) {
        let mut live: Option<EndpointSlice> = None;
        for (people, blind, keep, there) in steps {
            let named: Vec<String> = people.iter().map(|n| format!("p{n}")).collect();
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let mut known = Pods::new("shop");
            for n in there {
                // Two pods may share an address: pods of a node's network do.
                known.insert(pod(&format!("p{n}"), &format!("10.0.0.{}", n % 3)));
            }
            let status = if blind { stale(queue(&named)) } else { queue(&named) };
            let on_stale = if keep { OnStale::Keep } else { OnStale::Remove };
            let step = slice_for(status, on_stale, &known, live.as_ref());
            live = after(live.as_ref(), step);
            let slice = live.as_ref().unwrap();
            let found = addresses(slice);
            prop_assert!(found.len() <= 1, "{found:?}");
            prop_assert!(!blind || keep || found.is_empty());
            if let Some(target) = slice.endpoints.first().and_then(|one| one.target_ref.clone()) {
                prop_assert_eq!(target.name.as_deref(), named.first().copied());
            }
        }
    }

    /// An object that the election does not own is never changed, whatever it looks like.
    #[test]
    fn foreign_objects_are_never_touched(
        owner in proptest::option::of("[a-z0-9-]{1,8}"),
        controller in proptest::option::of(any::<bool>()),
        labelled in any::<bool>(),
        blind in any::<bool>(),
        now in 0..10_000_i64,
    ) {
        let owner = owner.unwrap_or_else(|| "uid-1".to_owned());
        prop_assume!(owner != "uid-1" || controller != Some(true));
        let status = queue(&["a"]);
        let status = if blind { stale(status) } else { status };
        let subject = subject(projections(), status.clone());
        let mut metadata = subject.meta("app".to_owned(), None);
        let reference = &mut metadata.owner_references.as_mut().unwrap()[0];
        reference.uid = owner;
        reference.controller = controller;
        if !labelled {
            metadata.labels = None;
        }
        let wanted = subject.spec().projections.clone().unwrap();
        let live = Lease { metadata: metadata.clone(), spec: None };
        prop_assert_eq!(lease(&subject, wanted.lease.as_ref().unwrap(), Some(&live), at(now)), Step::Taken);
        let live = Service { metadata: metadata.clone(), ..Service::default() };
        prop_assert_eq!(service(&subject, wanted.service.as_ref().unwrap(), Some(&live)), Step::Taken);
        let live = EndpointSlice { metadata, ..EndpointSlice::default() };
        prop_assert_eq!(slice_for(status, OnStale::Keep, &pods(&["a"]), Some(&live)), Step::Taken);
    }
}

fn told(
    subject: &Subject,
    binding: Option<&Result<Binding, Failure>>,
    failures: &[Failure],
) -> Vec<String> {
    let projection = report(subject, binding, failures);
    let conditions = projection.conditions.iter();
    conditions
        .map(|one| {
            format!(
                "{} {} {}: {}",
                one.type_,
                one.status.as_str(),
                one.reason,
                one.message
            )
        })
        .collect()
}

#[test]
fn the_sentences_of_projections() {
    let leading = subject(projections(), queue(&["a"]));
    let nobody = subject(projections(), queue(&[]));
    let blind = subject(projections(), stale(queue(&["a"])));
    let lease_only = Projections {
        service: None,
        pod_labels: None,
        ..projections()
    };
    let failure = |reason, what: &str| Failure {
        reason,
        what: what.to_owned(),
    };
    let several = Ok(Binding::Ambiguous(vec!["a".to_owned(), "b".to_owned()]));
    let taken = failure(
        Reason::NameTaken,
        "A Lease app exists that is not this election's.",
    );
    let unknown = Err(failure(
        Reason::Forbidden,
        "The pods of shop cannot be watched: no.",
    ));
    let stories = json!({
        "all is well": told(&leading, Some(&Ok(Binding::Pod("a".to_owned()))), &[]),
        "nobody leads": told(&nobody, None, &[]),
        "no pod": told(&leading, Some(&Ok(Binding::NotFound)), &[]),
        "several pods": told(&leading, Some(&several), &[]),
        "blind": told(&blind, Some(&Ok(Binding::Pod("a".to_owned()))), &[]),
        "taken": told(&leading, Some(&Ok(Binding::Pod("a".to_owned()))), &[taken]),
        "forbidden": told(&leading, Some(&unknown), &[]),
        "only a lease": told(&subject(lease_only, queue(&["a"])), None, &[]),
    });
    insta::assert_yaml_snapshot!(stories);
}

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
fn the_token_is_on_the_lease() {
    let lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    assert_eq!(lease.metadata.annotations.unwrap()[FENCING_TOKEN], "17");
}
