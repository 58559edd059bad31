//! Requests to the API server about what elections are projected to.
//!
//! The operator's lease is checked just before each write, and each write is bound to the state that it
//! was decided from: an update by uid and resource version, a creation by the absence of the object.

use std::fmt::Debug;
use std::future::Future;

use bellwether_api::FIELD_MANAGER;
use bellwether_api::election::Reason;
use bellwether_election::projection::{Change, Failure, Step, applied_labels, patch, role_manager};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::super::REQUEST_PATIENCE;
use super::super::metrics::{Metrics, Outcome};
use super::feed::Kind;
use crate::lease::Held;

/// How often one object is read again because another client wrote it in between.
const ATTEMPTS: usize = 4;

/// An object as the API server last returned it.
#[derive(Clone, Debug, Default)]
pub(super) enum Cached<K> {
    /// It was not read yet.
    #[default]
    Unread,
    /// It does not exist.
    Absent,
    /// It exists.
    Present(Box<K>),
}

impl<K> Cached<K> {
    pub(super) fn get(&self) -> Option<&K> {
        match self {
            Self::Present(object) => Some(object),
            _ => None,
        }
    }
}

/// An object that exists and belongs to the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedObject {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
}

/// The connection to the API server, with the lease that every write needs.
#[derive(Clone)]
pub(super) struct ProjectionClient {
    pub(super) kube: Client,
    pub(super) lease: Held,
    pub(super) metrics: Metrics,
}

/// Why a request failed.
pub(super) enum RequestError {
    NotHolder,
    Timeout,
    Api(kube::Error),
}

impl RequestError {
    /// Whether the object was deleted, replaced or changed since it was read.
    pub(super) fn is_outdated(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if matches!(status.code, 404 | 409))
    }

    /// Why something could not be written.
    pub(super) fn failure(self, what: &str) -> Failure {
        self.failure_to(("write", "written"), what)
    }

    /// Why something could not be read.
    pub(super) fn unread(self, what: &str) -> Failure {
        self.failure_to(("read", "read"), what)
    }

    fn failure_to(self, (verb, done): (&str, &str), what: &str) -> Failure {
        let (reason, message) = match &self {
            Self::NotHolder => (Reason::WriteFailed, "the lease is not held".to_owned()),
            Self::Timeout => (
                Reason::WriteFailed,
                format!("no answer within {REQUEST_PATIENCE:?}"),
            ),
            Self::Api(kube::Error::Api(status)) => {
                let reason = match status.code {
                    403 => Reason::Forbidden,
                    400 | 422 => Reason::Refused,
                    _ => Reason::WriteFailed,
                };
                (reason, status.message.clone())
            }
            Self::Api(error) => (Reason::WriteFailed, error.to_string()),
        };
        let message = message.trim_end_matches('.');
        Failure {
            reason,
            what: match reason {
                Reason::Forbidden => format!("The operator may not {verb} {what}: {message}."),
                Reason::Refused => format!("The API server does not accept {what}: {message}."),
                _ => format!("{what} could not be {done}: {message}."),
            },
        }
    }
}

impl ProjectionClient {
    pub(super) async fn read<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, RequestError> {
        match timeout(REQUEST_PATIENCE, request).await {
            Ok(result) => result.map_err(RequestError::Api),
            Err(_) => Err(RequestError::Timeout),
        }
    }

    pub(super) async fn write<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, RequestError> {
        // The request is not sent before it is polled.
        if !self.lease.is_held() {
            return Err(RequestError::NotHolder);
        }
        let result = self.read(request).await;
        self.metrics.projected(match &result {
            Ok(_) => &Outcome::OK,
            Err(error) if error.is_outdated() => &Outcome::CONFLICT,
            Err(_) => &Outcome::FAILED,
        });
        result
    }

    /// Takes the step that one object needs.
    pub(super) async fn settle<K>(
        &self,
        (kind, namespace, name): (Kind, &str, &str),
        known: &mut Cached<K>,
        writes: &mut usize,
        decide: impl Fn(Option<&K>) -> Step<K>,
    ) -> Result<(), Failure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        let what = format!("the {kind} {name}");
        let api: Api<K> = Api::namespaced(self.kube.clone(), namespace);
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        for _ in 0..ATTEMPTS {
            if known.get().is_some_and(|live| live.name_any() != name) {
                *known = Cached::Unread;
            }
            if matches!(known, Cached::Unread) {
                let read = self.read(api.get_opt(name)).await;
                *known = is(read.map_err(|error| error.failure(&what))?);
            }
            let result = match decide(known.get()) {
                Step::Nothing => return Ok(()),
                Step::Taken => {
                    *known = Cached::Unread;
                    return Err(Failure {
                        reason: Reason::NameTaken,
                        what: format!("A {kind} {name} exists that is not this election's."),
                    });
                }
                Step::Create(object) => self.write(api.create(&params, &object)).await.map(Some),
                Step::Replace(object) => self
                    .write(api.replace(name, &params, &object))
                    .await
                    .map(Some),
                Step::Delete => {
                    let meta = known.get().map(Resource::meta);
                    let exactly = DeleteParams::default().preconditions(Preconditions {
                        uid: meta.and_then(|meta| meta.uid.clone()),
                        resource_version: meta.and_then(|meta| meta.resource_version.clone()),
                    });
                    self.write(api.delete(name, &exactly)).await.map(|_| None)
                }
            };
            match result {
                Ok(object) => {
                    *writes += 1;
                    *known = is(object);
                }
                Err(error) => {
                    *known = Cached::Unread;
                    if !error.is_outdated() {
                        return Err(error.failure(&what));
                    }
                }
            }
        }
        Err(Failure {
            reason: Reason::WriteFailed,
            what: format!("Somebody else keeps changing {what}."),
        })
    }

    /// Deletes an object of the election that is not wanted any more.
    pub(super) async fn remove(&self, namespace: &str, owned: &OwnedObject) -> Result<(), Failure> {
        match owned.kind {
            Kind::Lease => self.remove_one::<Lease>(namespace, owned).await,
            Kind::Service => self.remove_one::<Service>(namespace, owned).await,
            Kind::EndpointSlice => self.remove_one::<EndpointSlice>(namespace, owned).await,
        }
    }

    async fn remove_one<K>(&self, namespace: &str, owned: &OwnedObject) -> Result<(), Failure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.kube.clone(), namespace);
        let exactly = DeleteParams::default().preconditions(Preconditions {
            uid: Some(owned.uid.clone()),
            resource_version: Some(owned.version.clone()),
        });
        match self.write(api.delete(&owned.name, &exactly)).await {
            Ok(_) => Ok(()),
            // The watch will show its new state.
            Err(error) if error.is_outdated() => Ok(()),
            Err(error) => Err(error.failure(&format!("the {} {}", owned.kind, owned.name))),
        }
    }

    /// Sets or takes back the labels that an election has on a pod. Returns the changed pod, if it still
    /// exists.
    pub(super) async fn label(
        &self,
        namespace: &str,
        election: (&str, &str),
        change: &Change,
        writes: &mut usize,
    ) -> Result<Option<ObjectMeta>, Failure> {
        let Change { pod, pod_uid, .. } = change;
        let what = format!("the labels of the pod {pod}");
        let api: Api<Pod> = Api::namespaced(self.kube.clone(), namespace);
        let params = PatchParams::apply(&role_manager(election.0));
        for _ in 0..ATTEMPTS {
            let read = self.read(api.get_metadata_opt(pod)).await;
            let read = read.map_err(|error| error.failure(&what))?;
            let Some(meta) = read.map(|object| object.metadata) else {
                return Ok(None);
            };
            if meta.uid.as_ref() != Some(pod_uid) {
                return Ok(None);
            }
            let now = applied_labels(&meta).remove(election.0);
            let done = match now {
                Some(now) => change.is_done(&now) && !change.labels.is_empty(),
                None => change.labels.is_empty(),
            };
            if done {
                return Ok(Some(meta));
            }
            let body = Patch::Apply(patch(election, &meta, change));
            match self.write(api.patch_metadata(pod, &params, &body)).await {
                Ok(object) => {
                    *writes += 1;
                    return Ok(Some(object.metadata));
                }
                Err(error) => {
                    if let Some(failure) = taken(&error, pod) {
                        return Err(failure);
                    }
                    if !error.is_outdated() {
                        return Err(error.failure(&what));
                    }
                }
            }
        }
        Err(Failure {
            reason: Reason::WriteFailed,
            what: format!("Somebody else keeps changing {what}."),
        })
    }
}

fn is<K: Resource>(object: Option<K>) -> Cached<K> {
    match object {
        Some(mut object) => {
            // The operator does not read managed fields; a write without them leaves them as they are.
            object.meta_mut().managed_fields = None;
            Cached::Present(Box::new(object))
        }
        None => Cached::Absent,
    }
}

/// Whether the API server refused because another client has set the label.
fn taken(error: &RequestError, pod: &str) -> Option<Failure> {
    let RequestError::Api(kube::Error::Api(status)) = error else {
        return None;
    };
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.as_slice());
    let conflict = causes
        .unwrap_or_default()
        .iter()
        .find(|cause| cause.reason == "FieldManagerConflict")?;
    Some(Failure {
        reason: Reason::LabelTaken,
        what: format!(
            "The label of the pod {pod} is set by somebody else: {} at {}.",
            conflict.message, conflict.field
        ),
    })
}
