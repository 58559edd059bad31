//! The world that the executor acts on in production: the API server, and the servers behind it.

use bellwether_api::FIELD_MANAGER;
use bellwether_ensemble::desired::{DesiredObject, ObjectKind, Write};
use bellwether_ensemble::execute::{self, World};
use bellwether_ensemble::plan::facts::Facts;
use bellwether_ensemble::plan::{Step, Unwanted};
use bellwether_ensemble::rules::{Rule, Rules};
use bellwether_ensemble::{Plan, ValidEnsemble, execute::execute as carry_out};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{Span, instrument};

use super::Context;
use super::error::Error;
use super::gather::{Gathered, contact_of, gather};
use crate::traces::SPANS;

/// What was carried out.
pub(crate) type Outcome = execute::Outcome<Error>;

/// Carries out a plan as far as it goes. The members' certificate comes first: the operator could not ask a member
/// that starts without one.
#[instrument(target = SPANS, skip_all)]
pub(crate) async fn execute(
    context: &Context,
    gathered: &Gathered,
    valid: &ValidEnsemble,
    plan: &Plan,
) -> Outcome {
    if let Err(failure) = context.identities.provide(context, gathered, valid).await {
        return Outcome {
            failure: Some(failure),
            ..Outcome::default()
        };
    }
    let mut cluster = Cluster::new(context, gathered);
    let name = cluster.name.clone();
    carry_out(&mut cluster, &name, plan).await
}

/// Writes one object that no plan contains.
pub(crate) async fn write(
    context: &Context,
    gathered: &Gathered,
    object: &DesiredObject,
) -> Result<(), Error> {
    let mut cluster = Cluster::new(context, gathered);
    cluster.may_act()?;
    cluster.write(object).await.map(drop)
}

struct Cluster<'a> {
    context: &'a Context,
    gathered: &'a Gathered,
    namespace: String,
    name: String,
}

impl<'a> Cluster<'a> {
    fn new(context: &'a Context, gathered: &'a Gathered) -> Self {
        Self {
            context,
            gathered,
            namespace: gathered.ensemble.namespace().unwrap_or_default(),
            name: gathered.ensemble.name_any(),
        }
    }
}

impl World for Cluster<'_> {
    type Error = Error;

    fn rules(&self) -> Rules {
        self.context.rules
    }

    fn may_act(&self) -> Result<(), Error> {
        if self.context.lease.is_held() || !self.context.rules.keep(Rule::LeaseHeld) {
            Ok(())
        } else {
            Err(Error::LeaseLost)
        }
    }

    fn live(&self, kind: ObjectKind, name: &str) -> Option<&Value> {
        self.gathered.live.get(&(kind, name.to_owned()))
    }

    #[instrument(target = SPANS, skip_all, fields(
        otel.kind = "client", k8s.object.kind = word(object.kind), k8s.object.name = object.name,
        error.type, otel.status_code
    ))]
    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>, Error> {
        let client = self.context.client.clone();
        let resource = resource(object.kind);
        let api: Api<DynamicObject> = Api::namespaced_with(client, &self.namespace, &resource);
        if self.live(object.kind, &object.name).is_none() {
            refuse_foreign(&api, object).await?;
            // The process may have been suspended since the executor checked the lease, and a creation has no
            // precondition that would refuse an outdated write.
            self.may_act()?;
        }
        let what = format!("{:?} {}", object.kind, object.name);
        let written = match object.write {
            Write::Apply => {
                let params = PatchParams::apply(FIELD_MANAGER).force();
                let patch = Patch::Apply(&object.body);
                api.patch(&object.name, &params, &patch).await
            }
            Write::Merge => {
                let params = PatchParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..Default::default()
                };
                let patch = Patch::Merge(&object.body);
                api.patch(&object.name, &params, &patch).await
            }
        }
        .map_err(|error| match error {
            kube::Error::Api(status)
                if object.kind == ObjectKind::Certificate && status.code == 404 =>
            {
                Error::WithoutCertManager
            }
            error => Error::write(what)(error),
        })
        .inspect_err(|error| error.show(&Span::current()))?;
        self.context.metrics.written(word(object.kind));
        let namespace = &self.namespace;
        tracing::debug!(%namespace, kind = ?object.kind, name = %object.name, "object written");
        Ok(written.resource_version())
    }

    async fn facts(&mut self) -> Result<Option<Facts>, Error> {
        let now = gather(self.context, &self.namespace, &self.name).await?;
        Ok(now.map(|now| Facts::of(now.ensemble.metadata.generation, &now.observation)))
    }

    #[instrument(target = SPANS, name = "step", skip_all, fields(
        k8s.pod.name, bellwether.step.taken = false
    ))]
    async fn take(&mut self, step: &Step) -> Result<bool, Error> {
        let span = Span::current();
        let client = self.context.client.clone();
        let namespace = self.namespace.as_str();
        let as_judged = self.context.rules.keep(Rule::StepAsJudged);
        let seen = |uid: &str, resource_version: &str| Preconditions {
            uid: as_judged.then(|| uid.to_owned()),
            resource_version: as_judged.then(|| resource_version.to_owned()),
        };
        let taken = match step {
            Step::RestartMember {
                pod,
                uid,
                resource_version,
                ..
            } => {
                span.record("k8s.pod.name", pod);
                let pods: Api<Pod> = Api::namespaced(client, namespace);
                delete(&pods, "Pod", pod, seen(uid, resource_version)).await?
            }
            Step::Reconfigure {
                pod, list, version, ..
            } => {
                span.record("k8s.pod.name", pod);
                let contact = contact_of(self.context, namespace, self.gathered, pod).await?;
                let Some(contact) = contact else {
                    return Ok(false);
                };
                let members = &self.context.members;
                let asked = members.reconfigure(&contact, list, *version).await;
                asked.map_err(|why| Error::Reconfiguration {
                    pod: pod.clone(),
                    why: why.to_string(),
                })?;
                true
            }
            Step::Replace { claims, pod, .. } => {
                let all: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
                let mut taken = true;
                for claim in claims {
                    let seen = seen(&claim.uid, &claim.resource_version);
                    taken &= delete(&all, "PersistentVolumeClaim", &claim.name, seen).await?;
                }
                if let Some(pod) = pod.as_ref().filter(|_| taken) {
                    span.record("k8s.pod.name", &pod.name);
                    let pods: Api<Pod> = Api::namespaced(client, namespace);
                    let seen = seen(&pod.uid, &pod.resource_version);
                    taken = delete(&pods, "Pod", &pod.name, seen).await?;
                }
                taken
            }
            Step::DeleteClaim {
                claim,
                uid,
                resource_version,
                ..
            } => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, namespace);
                let kind = "PersistentVolumeClaim";
                delete(&claims, kind, claim, seen(uid, resource_version)).await?
            }
        };
        if !taken {
            return Ok(false);
        }
        span.record("bellwether.step.taken", true);
        match step {
            Step::RestartMember {
                pod,
                id,
                expect,
                reason,
                ..
            } => {
                self.context.metrics.restarted(namespace, &self.name);
                tracing::info!(%namespace, %pod, server = %id, role = ?expect, %reason, "restarting member");
            }
            Step::Reconfigure { pod, list, .. } => {
                let ensemble = &self.name;
                tracing::info!(%namespace, %ensemble, %pod, %list, "the members agreed on another server list");
            }
            Step::Replace { id, reason, .. } => {
                let ensemble = &self.name;
                tracing::warn!(%namespace, %ensemble, server = %id, %reason, "replacing a member");
            }
            Step::DeleteClaim {
                claim, id, reason, ..
            } => {
                tracing::info!(%namespace, %claim, server = %id, %reason, "deleting the volume claim of a member that left");
            }
        }
        Ok(true)
    }

    fn declined(&mut self, step: &Step, why: &str) {
        let (namespace, ensemble) = (&self.namespace, &self.name);
        tracing::info!(%namespace, %ensemble, ?step, %why, "the step is not taken, because the facts changed; the next pass plans again");
    }

    async fn prune(&mut self, object: &Unwanted) -> Result<(), Error> {
        let Unwanted { kind, name, uid } = object;
        let client = self.context.client.clone();
        let api: Api<DynamicObject> =
            Api::namespaced_with(client, &self.namespace, &resource(*kind));
        let seen = Preconditions {
            uid: uid.clone(),
            resource_version: None,
        };
        delete(&api, word(*kind), name, seen).await.map(drop)
    }
}

fn word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::ConfigMap => "ConfigMap",
        ObjectKind::Service => "Service",
        ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
        ObjectKind::PersistentVolumeClaim => "PersistentVolumeClaim",
        ObjectKind::StatefulSet => "StatefulSet",
        ObjectKind::NetworkPolicy => "NetworkPolicy",
        ObjectKind::Certificate => "Certificate",
    }
}

fn resource(kind: ObjectKind) -> ApiResource {
    let group = match kind {
        ObjectKind::ConfigMap | ObjectKind::Service | ObjectKind::PersistentVolumeClaim => "",
        ObjectKind::PodDisruptionBudget => "policy",
        ObjectKind::StatefulSet => "apps",
        ObjectKind::NetworkPolicy => "networking.k8s.io",
        ObjectKind::Certificate => "cert-manager.io",
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", word(kind)))
}

/// An object of this name that does not carry this ensemble's labels belongs to something else, and an
/// apply would take it over: ensemble `a-members` and the Service `a-members` of ensemble `a`, for
/// instance.
async fn refuse_foreign(api: &Api<DynamicObject>, object: &DesiredObject) -> Result<(), Error> {
    let what = format!("{:?} {}", object.kind, object.name);
    match api
        .get_opt(&object.name)
        .await
        .map_err(Error::read("an object before it is created"))?
    {
        None => Ok(()),
        Some(_) => Err(Error::Foreign { what }),
    }
}

/// Deletes an object as it was seen. Returns whether it was there and had not changed.
async fn delete<K>(api: &Api<K>, kind: &str, name: &str, seen: Preconditions) -> Result<bool, Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams {
        preconditions: Some(seen),
        ..Default::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(true),
        // The object changed or was deleted since the plan was made.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(Error::write(format!("{kind} {name}"))(error)),
    }
}
