//! Reading why pods are not created.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellwether_ensemble::creation::{SetEvent, refused};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// For how long events are reused. While a pod is missing, the operator looks at its ensemble several times a
/// second.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// The events of StatefulSets whose pods are missing, as last read.
#[derive(Default)]
pub(crate) struct Creation(Mutex<Known>);

/// The namespace and the name of a StatefulSet.
type Key = (String, String);

/// When the events of each were read, and what they say.
type Known = HashMap<Key, (Instant, Vec<SetEvent>)>;

impl Creation {
    /// Why pods that these StatefulSets should have are not created. If the events cannot be read, the result
    /// is empty: no decision depends on it.
    pub(crate) async fn refused(
        &self,
        client: &Client,
        sets: &[StatefulSet],
        pods: &[Pod],
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for set in sets {
            let name = set.name_any();
            let key = (set.namespace().unwrap_or_default(), name.clone());
            let missing = missing(set, pods);
            if missing.is_empty() {
                self.known().remove(&key);
                continue;
            }
            let events = self.events(client, key).await;
            all.extend(refused(&name, missing, &events));
        }
        all
    }

    async fn events(&self, client: &Client, key: Key) -> Vec<SetEvent> {
        if let Some((read, events)) = self.known().get(&key)
            && read.elapsed() < GOOD_FOR
        {
            return events.clone();
        }
        let (namespace, name) = &key;
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        let about = format!("involvedObject.kind=StatefulSet,involvedObject.name={name}");
        let events = match api.list(&ListParams::default().fields(&about)).await {
            Ok(list) => list.items.into_iter().filter_map(event).collect(),
            Err(error) => {
                tracing::debug!(%namespace, set = %name, %error, "the StatefulSet's events cannot be read");
                Vec::new()
            }
        };
        self.known()
            .insert(key, (Instant::now(), Vec::clone(&events)));
        events
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn event(event: Event) -> Option<SetEvent> {
    let series = event.series.and_then(|s| s.last_observed_time);
    let at = series.or(event.event_time).map(|t| t.0);
    let at = event.last_timestamp.map(|t| t.0).max(at)?;
    let message = event.message?;
    Some(SetEvent { at, message })
}

/// The pods that a StatefulSet should have and that do not exist.
fn missing(set: &StatefulSet, pods: &[Pod]) -> Vec<String> {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
    (0..replicas.unwrap_or(0))
        .map(|ordinal| format!("{}-{ordinal}", set.name_any()))
        .filter(|name| pods.iter().all(|pod| pod.name_any() != *name))
        .collect()
}
