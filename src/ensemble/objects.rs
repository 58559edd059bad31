//! The objects of an ensemble, with those of their fields that the operator reads.

use std::collections::BTreeMap;

use bellwether_api::{FIELD_MANAGER, ZooKeeperEnsemble, labels};
use futures::FutureExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PersistentVolumeClaim, Pod, PodSpec, Service,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::ListParams;
use kube::{Api, CustomResource, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Context;
use super::error::Error;

/// An ensemble and the objects that belong to it.
pub(crate) struct Objects {
    /// The ensemble itself.
    pub ensemble: ZooKeeperEnsemble,
    /// Its StatefulSets.
    pub sets: Vec<StatefulSet>,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// Its ConfigMaps.
    pub maps: Vec<ConfigMap>,
    /// Its Services.
    pub services: Vec<Service>,
    /// Its disruption budgets.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Its volume claims.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Its NetworkPolicy.
    pub policies: Vec<NetworkPolicy>,
    /// Its Certificate, where the operator may ask cert-manager.
    pub certificates: Vec<Certificate>,
}

/// A Certificate of cert-manager.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "cert-manager.io",
    version = "v1",
    kind = "Certificate",
    namespaced,
    status = "Value",
    schema = "disabled"
)]
pub(crate) struct CertificateSpec {
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

/// Reads the objects of an ensemble from the API server. `None` when the ensemble does not exist.
pub(crate) async fn read(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Objects>, Error> {
    let ensembles: Api<ZooKeeperEnsemble> = Api::namespaced(context.client.clone(), namespace);
    let ensemble = ensembles
        .get_opt(name)
        .await
        .map_err(Error::read("the ZooKeeperEnsemble"))?;
    let Some(ensemble) = ensemble else {
        return Ok(None);
    };
    let certificates = async {
        match context.contribution.cert_manager {
            true => none_if_withheld(list(context, namespace, name, "Certificates").await),
            false => Ok(Vec::new()),
        }
    };
    let (sets, pods, maps, services, budgets, claims, policies, certificates) = futures::try_join!(
        list(context, namespace, name, "StatefulSets"),
        list(context, namespace, name, "Pods"),
        list(context, namespace, name, "ConfigMaps"),
        list(context, namespace, name, "Services"),
        list(context, namespace, name, "PodDisruptionBudgets"),
        list(context, namespace, name, "PersistentVolumeClaims"),
        list(context, namespace, name, "NetworkPolicies").map(none_if_withheld),
        certificates,
    )?;
    Ok(Some(Objects {
        ensemble,
        sets,
        pods,
        maps,
        services,
        budgets,
        claims,
        policies,
        certificates,
    }))
}

async fn list<K>(
    context: &Context,
    namespace: &str,
    name: &str,
    what: &'static str,
) -> Result<Vec<K>, Error>
where
    K: Trim + Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(context.client.clone(), namespace);
    let params = ListParams::default().labels(&labels::selector_string(name));
    let list = api.list(&params).await.map_err(Error::read(what))?;
    let mut objects = list.items;
    objects.iter_mut().for_each(Trim::trim);
    Ok(objects)
}

/// No objects where the operator has no right to list them, or the cluster has no such kind. An ensemble runs without its
/// NetworkPolicy and its Certificate, and where the plan wants one the API server's answer to the write tells what is missing.
fn none_if_withheld<K>(listed: Result<Vec<K>, Error>) -> Result<Vec<K>, Error> {
    match listed {
        Err(error) if error.is_withheld() => Ok(Vec::new()),
        listed => listed,
    }
}

/// An object without the fields that the operator does not read, which take most of its memory. The objects of
/// watches are trimmed as those of fresh reads are, so that both lead to the same plan.
pub(crate) trait Trim {
    /// Removes these fields.
    fn trim(&mut self);
}

impl Trim for ConfigMap {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Trim for Service {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Trim for PodDisruptionBudget {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Trim for NetworkPolicy {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Trim for Certificate {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Trim for PersistentVolumeClaim {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
    }
}

impl Trim for StatefulSet {
    /// Keeps the managed fields of others than the operator: they show who edited the pod template.
    fn trim(&mut self) {
        if let Some(entries) = &mut self.metadata.managed_fields {
            let own = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(FIELD_MANAGER);
            entries.retain(|entry| is_of_object(entry) && !own(entry));
        }
    }
}

impl Trim for Pod {
    /// Keeps of the spec where the pod runs, and which of its init containers are sidecars.
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        let Some(spec) = self.spec.take() else {
            return;
        };
        let container = |container: Container| Container {
            name: container.name,
            restart_policy: container.restart_policy,
            ..Container::default()
        };
        let init = spec.init_containers;
        self.spec = Some(PodSpec {
            node_name: spec.node_name,
            init_containers: init.map(|all| all.into_iter().map(container).collect()),
            ..PodSpec::default()
        });
    }
}

impl Trim for ZooKeeperEnsemble {
    /// Keeps the managed fields of the object itself: they show which program accepted a loss of data.
    fn trim(&mut self) {
        if let Some(entries) = &mut self.metadata.managed_fields {
            entries.retain(is_of_object);
        }
    }
}

/// Whether these are fields of the object itself, and not of its status.
fn is_of_object(entry: &ManagedFieldsEntry) -> bool {
    entry.subresource.as_deref().is_none_or(str::is_empty)
}
