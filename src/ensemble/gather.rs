//! Reading the world: the objects of an ensemble, and what every member's server answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bellwether_api::ensemble::Phase;
use bellwether_api::{ZooKeeperEnsemble, labels};
use bellwether_ensemble::certificates::AuthorityName;
use bellwether_ensemble::desired::certificate::{self, certificate_name};
use bellwether_ensemble::desired::claims::{DATA, LOG};
use bellwether_ensemble::desired::stateful_set::{RESTART, client_port_secret, template_hash_of};
use bellwether_ensemble::desired::{
    ObjectKind, bootstrap_config_map, network, observers, parse_bootstrap, written,
};
use bellwether_ensemble::four_letter::{Learners, credentials, parse_srvr};
use bellwether_ensemble::observation::{
    BootstrapPermission, ObserversObservation, PodObservation, Revision, ServerReport,
    StatefulSetObservation,
};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::{Observation, ServerId};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use tracing::field::debug;
use tracing::{Span, instrument};

use super::Context;
use super::error::Error;
use super::identity::{authority_of, record};
use super::members::{Contact, Told};
use super::objects::{self, Objects};
use super::pace::Resting;
use crate::traces::SPANS;

mod claims;
mod containers;

/// Everything that one reconcile read.
pub(crate) struct Gathered {
    /// The ensemble itself.
    pub ensemble: ZooKeeperEnsemble,
    /// What the planner sees.
    pub observation: Observation,
    /// The owned objects as they are, for comparison with how they should be.
    pub live: Live,
    /// The authority of its members.
    pub authority: AuthorityName,
}

/// Objects by kind and name.
pub(crate) type Live = BTreeMap<(ObjectKind, String), Value>;

/// Reads everything from the API server, and asks every server. `None` when the ensemble does not exist.
#[instrument(target = SPANS, skip_all)]
pub(crate) async fn gather(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Gathered>, Error> {
    let objects = objects::read(context, namespace, name).await?;
    Ok(match objects {
        Some(objects) => Some(observe(context, &objects).await),
        None => None,
    })
}

/// What these objects show, with every server asked.
pub(crate) async fn observe(context: &Context, objects: &Objects) -> Gathered {
    let Objects {
        ensemble,
        sets,
        pods,
        maps,
        services,
        budgets,
        claims,
        policies,
        certificates,
    } = objects;
    let name = ensemble.name_any();
    let mut live = BTreeMap::new();
    remember(&mut live, ObjectKind::StatefulSet, sets);
    remember(&mut live, ObjectKind::ConfigMap, maps);
    remember(&mut live, ObjectKind::Service, services);
    remember(&mut live, ObjectKind::PodDisruptionBudget, budgets);
    remember(&mut live, ObjectKind::PersistentVolumeClaim, claims);
    remember(&mut live, ObjectKind::NetworkPolicy, policies);
    remember(&mut live, ObjectKind::Certificate, certificates);

    let authority = authority_of(ensemble, &live);
    let id_offset = u16::try_from(ensemble.spec.id_offset.unwrap_or(0)).unwrap_or(0);
    let voter = |ordinal| ServerId::of_ordinal(ordinal, id_offset);
    let observer = |ordinal| ServerId::of_observer(ordinal, id_offset);
    let observers_set = observers::set_name(&name);
    let (voters, observing, refused) = futures::join!(
        observe_pods(context, pods, &authority, &name, voter),
        observe_pods(context, pods, &authority, &observers_set, observer),
        context.creation.refused(&context.client, sets, pods),
    );
    let claims = claims::observe(context, ensemble, claims).await;
    let now = Timestamp::now();
    let observers = ObserversObservation {
        stateful_set: sets
            .iter()
            .find(|s| s.name_any() == observers_set)
            .map(|s| observe_stateful_set(s, &live)),
        pods: observing,
        claims: claims.observers,
        log_claims: claims.observers_logs,
        overdue: pods
            .iter()
            .filter(|p| is_overdue(p, now))
            .map(|p| p.name_any())
            .collect(),
    };
    let prefix = format!("{name}-config-");
    let phase = ensemble.status.as_ref().and_then(|status| status.phase);
    let observation = Observation {
        now,
        phase: phase.or(Some(Phase::Starting)),
        stateful_set: sets
            .iter()
            .find(|s| s.name_any() == name)
            .map(|s| observe_stateful_set(s, &live)),
        pods: voters,
        claims: claims.voters,
        log_claims: claims.voters_logs,
        identity: record(&live, &name),
        bootstrap: maps
            .iter()
            .find(|m| m.name_any() == bootstrap_config_map(&name))
            .map(observe_bootstrap),
        revisions: maps
            .iter()
            .map(|m| m.name_any())
            .filter(|n| n.starts_with(&prefix))
            .collect::<BTreeSet<_>>(),
        network_policy: policies
            .iter()
            .find(|p| p.name_any() == network::policy_name(&name))
            .and_then(ResourceExt::uid),
        certificate: live
            .get(&(ObjectKind::Certificate, certificate_name(&name)))
            .map(certificate::observe),
        observers,
        refused,
        leftovers: leftovers(ensemble.uid().as_deref(), &live),
    };
    Gathered {
        ensemble: ensemble.clone(),
        observation,
        live,
        authority,
    }
}

/// The members of an ensemble at rest. Empty if one of them does not serve, or has no transaction of the latest
/// epoch: that shows in the status as soon as it has one, so that all of them have to be asked for everything.
pub(crate) fn resting(objects: &Objects, gathered: &Gathered) -> Vec<Resting> {
    let observation = &gathered.observation;
    let member = |pod: &PodObservation| {
        let ServerReport::Serving { role, zxid, .. } = pod.server else {
            return None;
        };
        let object = objects.pods.iter().find(|p| p.name_any() == pod.name)?;
        Some(Resting {
            contact: contact(object, &gathered.authority)?,
            role,
            epoch: zxid >> 32,
            credentials: pod.credentials.clone(),
        })
    };
    let pods = observation.pods.iter().chain(&observation.observers.pods);
    let members: Option<Vec<_>> = pods.map(member).collect();
    let mut members = members.unwrap_or_default();
    if members
        .windows(2)
        .any(|pair| pair[0].epoch != pair[1].epoch)
    {
        members.clear();
    }
    members
}

/// Whether the servers of an ensemble at rest have the roles, epochs and users that they had before. A leader that tells of
/// its learners must have those that it had.
pub(crate) async fn are_as_before(
    context: &Context,
    members: &[Resting],
    learners: Learners,
) -> bool {
    let asked = members.iter().map(|member| async {
        let since = Instant::now();
        let answer = context.members.state(&member.contact).await;
        let answer = answer.unwrap_or_default();
        let serving = parse_srvr(&answer).ok().flatten();
        let outcome = serving.as_ref().map_or("unreachable", |_| "serving");
        context.metrics.probed(outcome, since.elapsed());
        serving.is_some_and(|serving| {
            let told = serving.learners.unwrap_or(learners);
            let same =
                (serving.role, serving.zxid >> 32, told) == (member.role, member.epoch, learners);
            same && credentials(&answer) == member.credentials
        })
    });
    !members.is_empty() && join_all(asked).await.into_iter().all(|same| same)
}

/// Where the member in a pod is, once it has an address.
fn contact(pod: &Pod, authority: &AuthorityName) -> Option<Contact> {
    let answers = pod.annotations().contains_key(labels::CONTROL);
    Some(Contact {
        address: pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?,
        authority: answers.then(|| authority.clone()),
    })
}

/// Where the member in the pod of this name is now.
pub(crate) async fn contact_of(
    context: &Context,
    namespace: &str,
    gathered: &Gathered,
    pod: &str,
) -> Result<Option<Contact>, Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    let pod = pods.get_opt(pod).await.map_err(Error::read("a pod"))?;
    Ok(pod.and_then(|pod| contact(&pod, &gathered.authority)))
}

/// Objects that an ensemble with another uid owns: it had the same name and was deleted.
fn leftovers(uid: Option<&str>, live: &Live) -> Vec<String> {
    let is_ensemble = |owner: &&Value| owner["kind"] == "ZooKeeperEnsemble";
    let owners = |object: &Value| -> Vec<Value> {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let owners = owners.into_iter().flatten();
        owners.filter(is_ensemble).cloned().collect()
    };
    let is_left = |object: &Value| {
        let owners = owners(object);
        !owners.is_empty() && owners.iter().all(|owner| owner["uid"].as_str() != uid)
    };
    let left = live.iter().filter(|(_, object)| is_left(object));
    left.map(|((kind, name), _)| format!("{kind:?} {name}"))
        .collect()
}

/// The owner that controls an object.
fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// The pods of one StatefulSet by ordinal, every server asked.
async fn observe_pods(
    context: &Context,
    pods: &[Pod],
    authority: &AuthorityName,
    set: &str,
    id: impl Fn(u16) -> ServerId,
) -> Vec<PodObservation> {
    let asked = pods.iter().filter_map(|pod| {
        let name = pod.name_any();
        let ordinal: u16 = name.strip_prefix(set)?.strip_prefix('-')?.parse().ok()?;
        let contact = contact(pod, authority);
        let id = id(ordinal);
        Some(async move {
            let mut observed = observe_pod(context.rules, pod, ordinal);
            let told = match contact {
                Some(contact) => patiently(&observed, || timed(context, &name, &contact, id)).await,
                None => {
                    let why = "the pod has no address yet".to_owned();
                    Told::only(ServerReport::Unreachable(why))
                }
            };
            observed.server = told.server;
            observed.volumes = told.volumes;
            observed.presents = told.presents;
            observed.credentials = told.credentials;
            observed.client_authority = told.client_authority;
            observed
        })
    });
    let mut observed = join_all(asked).await;
    let now = Timestamp::now();
    for pod in &mut observed {
        context.durations.complete(pod, now);
    }
    observed.sort_by_key(|o| o.ordinal);
    observed
}

/// Asks a member; a second time, if the kubelet counts it as ready and it does not answer. One answer that comes late, on a
/// busy node or while Java collects garbage, is nothing to tell people of.
async fn patiently<F: Future<Output = Told>>(pod: &PodObservation, ask: impl Fn() -> F) -> Told {
    let told = ask().await;
    match told.server {
        ServerReport::Unreachable(_) if pod.ready && !pod.terminating => ask().await,
        _ => told,
    }
}

/// Asks a member what it is, and counts how long that took.
#[instrument(target = SPANS, name = "probe", skip_all, fields(
    otel.kind = "client", k8s.pod.name = pod, server.address = %contact.address, bellwether.member.role
))]
async fn timed(context: &Context, pod: &str, contact: &Contact, id: ServerId) -> Told {
    let since = Instant::now();
    let told = context.members.report(contact, id).await;
    Span::current().record("bellwether.member.role", debug(told.server.role()));
    let outcome = match told.server {
        ServerReport::Serving { .. } => "serving",
        ServerReport::Looking => "looking",
        ServerReport::Unreachable(_) => "unreachable",
    };
    context.metrics.probed(outcome, since.elapsed());
    told
}

/// How long after its grace period a pod that is being deleted counts as one of a lost node.
const OVERDUE: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// Whether a pod is overdue. The deletion timestamp of an object is the end of its grace period.
fn is_overdue(pod: &Pod, now: Timestamp) -> bool {
    let end = pod.metadata.deletion_timestamp.as_ref();
    end.is_some_and(|end| now.duration_since(end.0) > OVERDUE)
}

fn remember<K: Resource + Serialize>(live: &mut Live, kind: ObjectKind, objects: &[K]) {
    for object in objects {
        let name = object.meta().name.clone().unwrap_or_default();
        live.insert(
            (kind, name),
            serde_json::to_value(object).unwrap_or_default(),
        );
    }
}

fn revision(annotations: Option<&BTreeMap<String, String>>) -> Option<Revision> {
    let annotations = annotations?;
    Revision::of_annotations(|key| annotations.get(key).map(String::as_str))
}

fn hash_in(annotations: &BTreeMap<String, String>) -> Option<String> {
    template_hash_of(|key| annotations.get(key).map(String::as_str))
}

fn observe_stateful_set(set: &StatefulSet, live: &Live) -> StatefulSetObservation {
    let object = live.get(&(ObjectKind::StatefulSet, set.name_any()));
    let spec = set.spec.as_ref();
    let status = set.status.as_ref();
    let seen = status.and_then(|s| s.observed_generation) >= set.metadata.generation;
    let template = spec.map(|s| &s.template).and_then(|t| t.metadata.as_ref());
    let annotation = |key: &str| set.annotations().get(key).cloned();
    StatefulSetObservation {
        replicas: spec
            .and_then(|s| s.replicas)
            .and_then(|r| u16::try_from(r).ok())
            .unwrap_or_default(),
        template: revision(template.and_then(|m| m.annotations.as_ref())),
        update_revision: status
            .filter(|_| seen)
            .and_then(|s| s.update_revision.clone()),
        template_hash: template
            .and_then(|m| m.annotations.as_ref())
            .and_then(hash_in),
        inputs_hash: annotation(labels::INPUTS_HASH),
        rendered_by: annotation(labels::RENDERED_BY),
        client_port_secret: object.and_then(|set| client_port_secret(&set["spec"]["template"])),
        edited: object.and_then(written::edited),
        left_over: object.and_then(written::left_over),
        claim_size: spec.and_then(|s| claim_size(s, DATA)),
        log_claim_size: spec.and_then(|s| claim_size(s, LOG)),
        restart: template
            .and_then(|m| m.annotations.as_ref()?.get(RESTART))
            .cloned(),
        terminating: set.metadata.deletion_timestamp.is_some(),
    }
}

/// The size in the claim template of this name.
fn claim_size(set: &StatefulSetSpec, template: &str) -> Option<Quantity> {
    let mut templates = set.volume_claim_templates.iter().flatten();
    let named = |t: &&PersistentVolumeClaim| t.metadata.name.as_deref() == Some(template);
    let spec = templates.find(named)?.spec.as_ref()?;
    let requests = spec.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage").cloned()
}

fn observe_pod(rules: Rules, pod: &Pod, ordinal: u16) -> PodObservation {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let readiness = conditions.find(|c| c.type_ == "Ready");
    let ready = readiness.is_some_and(|c| c.status == "True");
    let created = pod.creation_timestamp();
    let created = created.map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    // A pod that never found a node has no such condition, and was never ready.
    let since = readiness.map_or(Some(created), |c| Some(c.last_transition_time.as_ref()?.0));
    let (state, failing_container) = containers::observe(rules, pod);
    PodObservation {
        name: pod.name_any(),
        ordinal,
        uid: pod.uid().unwrap_or_default(),
        resource_version: pod.resource_version().unwrap_or_default(),
        revision: revision(pod.metadata.annotations.as_ref()),
        controller_revision: pod.labels().get("controller-revision-hash").cloned(),
        template_hash: hash_in(pod.annotations()),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        controller: controller(&pod.metadata).map(|c| c.uid.clone()),
        silent_since: None,
        state,
        failing_container,
        ready,
        unready_since: since.filter(|_| !ready),
        created,
        node: pod.spec.as_ref().and_then(|s| s.node_name.clone()),
        server: ServerReport::Unreachable("not asked yet".to_owned()),
        volumes: None,
        presents: None,
        credentials: Default::default(),
        client_authority: None,
    }
}

fn observe_bootstrap(map: &ConfigMap) -> BootstrapPermission {
    parse_bootstrap(|key| {
        let value = map.data.as_ref()?.get(key)?;
        (!value.is_empty()).then_some(value.as_str())
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_ensemble_with_another_uid_owns_is_left_over() {
        let owned = |owners: &[(&str, &str)]| {
            let owners = owners
                .iter()
                .map(|(kind, uid)| json!({"kind": kind, "uid": uid}));
            json!({ "metadata": { "ownerReferences": owners.collect::<Vec<_>>() } })
        };
        let claim = |name: &str| (ObjectKind::PersistentVolumeClaim, name.to_owned());
        let live = BTreeMap::from([
            (claim("free"), json!({ "metadata": {} })),
            (claim("old"), owned(&[("ZooKeeperEnsemble", "1")])),
            (claim("own"), owned(&[("ZooKeeperEnsemble", "2")])),
            (claim("set"), owned(&[("StatefulSet", "3")])),
        ]);
        assert_eq!(leftovers(Some("2"), &live), ["PersistentVolumeClaim old"]);
    }

    #[test]
    fn a_pod_that_never_found_a_node_has_been_unready_since_it_was_made() {
        let made = "2026-01-01T00:00:00Z";
        let pod = |conditions: serde_json::Value| -> PodObservation {
            let pod = json!({
                "metadata": { "name": "main-4", "creationTimestamp": made },
                "status": { "phase": "Pending", "conditions": conditions },
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            observe_pod(Rules::ALL, &pod, 4)
        };
        let unready = |pod: PodObservation| pod.unready_since.map(|since| since.to_string());
        let unscheduled = json!({ "type": "PodScheduled", "status": "False" });
        assert_eq!(unready(pod(json!([unscheduled]))).as_deref(), Some(made));
        let later = "2026-01-01T00:05:00Z";
        let ready = |status: &str| json!([{ "type": "Ready", "status": status, "lastTransitionTime": later }]);
        assert_eq!(unready(pod(ready("False"))).as_deref(), Some(later));
        assert_eq!(unready(pod(ready("True"))), None);
    }

    #[tokio::test]
    async fn only_a_member_that_the_kubelet_counts_as_ready_is_asked_again() {
        let pod = |status: &str, deleted: bool| {
            let mut pod = json!({
                "metadata": { "name": "main-0" },
                "status": { "conditions": [{ "type": "Ready", "status": status }] },
            });
            if deleted {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            observe_pod(Rules::ALL, &pod, 0)
        };
        let silent = || ServerReport::Unreachable("no answer within 1s".to_owned());
        for (pod, answers, expected) in [
            (pod("True", false), vec![ServerReport::Looking], 1),
            (pod("True", false), vec![silent(), ServerReport::Looking], 2),
            (pod("True", false), vec![silent(), silent()], 2),
            (pod("False", false), vec![silent()], 1),
            (pod("True", true), vec![silent()], 1),
        ] {
            let last = answers.last().cloned();
            let asked = Cell::new(0);
            let told = patiently(&pod, || {
                asked.set(asked.get() + 1);
                ready(Told::only(answers[asked.get() - 1].clone()))
            });
            assert_eq!(Some(told.await.server), last);
            assert_eq!(asked.get(), expected);
        }
    }
}
