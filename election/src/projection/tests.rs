//! Leases, Services and labels: stories, and rules that hold for every input.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_api::election::{
    Candidate, Dialect, DialectType, EnsembleRef, Leader, LeaseProjection, OnStale,
    PodLabelsProjection, PortProtocol, ProjectedPort, Projections, Reason, ServiceProjection,
};
use bellwether_api::labels::FENCING_TOKEN;
use bellwether_api::{LeaderElection, LeaderElectionSpec, LeaderElectionStatus};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;
use serde_json::json;

use self::service::slice_for;
use super::*;

mod labels;
mod pods;
mod service;

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
                target_port: Some(IntOrString::Int(8080)),
                ..ProjectedPort::default()
            }],
            ..ServiceProjection::default()
        }),
        pod_labels: Some(PodLabelsProjection::default()),
        rollout: None,
    }
}

/// An election with this status that was read a moment ago.
pub(crate) fn subject(projections: Projections, status: LeaderElectionStatus) -> Subject {
    let spec = LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
            namespace: None,
        }),
        connection: None,
        authentication: None,
        path: "/e".to_owned(),
        dialect: Dialect::from(DialectType::Kazoo),
        identity: None,
        handover: None,
        leadership_check: None,
        bridge: None,
        projections: Some(Box::new(projections)),
        pod_binding: None,
        max_candidates: 50,
        own_series: false,
    };
    let mut object = LeaderElection::new("app", spec);
    object.metadata.namespace = Some("shop".to_owned());
    object.metadata.uid = Some("uid-1".to_owned());
    Subject {
        object: Arc::new(object),
        status: Arc::new(status),
        owned: None,
        is_confirmed: true,
        is_outlived: false,
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
        since: Some(at(50)),
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

/// The object after a step; `None` if it does not exist then.
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
fn the_lease_is_renewed_by_what_was_read_later_and_runs_from_then() {
    let lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    // The leader is read a third of the duration later; reads in between do not renew the Lease.
    assert_eq!(leased(queue(&["a"]), Some(&lease), 1003), Step::Nothing);
    let Step::Replace(renewed) = leased(queue(&["a"]), Some(&lease), 1005) else {
        panic!("it is not renewed");
    };
    let spec = renewed.spec.clone().unwrap();
    assert_eq!(spec.renew_time.unwrap().0, at(1005));
    assert_eq!(spec.acquire_time.unwrap().0, at(100));
}

#[test]
fn what_was_not_read_again_in_time_is_no_sight() {
    let mut subject = subject(projections(), queue(&["a"]));
    let lease_of = |subject: &Subject, live: Option<&Lease>| {
        lease(subject, &LeaseProjection::default(), live, at(1000))
    };
    let lease = after(None, lease_of(&subject, None)).unwrap();
    subject.is_confirmed = false;
    let mut other = (*subject.status).clone();
    other.leader_transitions += 1;
    subject.status = Arc::new(other);
    assert_eq!(lease_of(&subject, Some(&lease)), Step::Nothing);
    let told = report(&subject, Some(&Ok(Binding::Pod("a".to_owned()))), &[], None);
    assert!(
        told.conditions
            .iter()
            .all(|c| c.reason == Reason::NotObserved.as_str())
    );
    let believed = believed(subject.spec());
    assert_eq!(believed, Some(jiff::SignedDuration::from_secs(15)));
}

#[test]
fn a_lease_is_not_renewed_without_sight_and_is_nobodys_without_a_leader() {
    let lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    let blind = stale(queue(&["a"]));
    assert_eq!(leased(blind.clone(), Some(&lease), 5000), Step::Nothing);
    assert_eq!(leased(blind, None, 5000), Step::Nothing);
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

fn told(
    subject: &Subject,
    binding: Option<&Result<Binding, Failure>>,
    failures: &[Failure],
) -> Vec<String> {
    let projection = report(subject, binding, failures, None);
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

#[test]
fn the_token_is_on_the_lease() {
    let lease = after(None, leased(queue(&["a"]), None, 1000)).unwrap();
    assert_eq!(lease.metadata.annotations.unwrap()[FENCING_TOKEN], "17");
}

fn names() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..5_usize, 0..5)
}

proptest! {
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
