//! Which elections and ensembles there are, and what runs for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bellwether_api::ensemble::EVERY_NAMESPACE;
use bellwether_api::{LeaderElection, LeaderElectionSpec};
use bellwether_ensemble::desired::config::{CLIENT_PORT, SECURE_CLIENT_PORT};
use futures::{Stream, StreamExt};
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::admission::Admission;
use super::bridge::Crosser;
use super::census::Census;
use super::ensembles::{Ensemble, Shown, Trust};
use super::messages::WriterInput;
use super::metrics::Metrics;
use super::mirror::Mirror;
use super::session::{Keeper, Link, Presence};
use super::sighting::Sighting;
use super::target::Target;
use super::zookeepers::ZooKeepers;
use super::{Key, Scope, slim};
use crate::lease::Held;
use crate::scoped::api;

/// How many elections one answer of the API server lists at most: each is held in memory several times
/// until it is decoded.
const PAGE: u32 = 100;

type Guarded = DeserializeGuard<LeaderElection>;

/// What runs for the elections.
pub(super) struct Registry {
    client: Client,
    /// The operator's lease, without which a bridge does not act.
    lease: Held,
    trust: Trust,
    zookeepers: Arc<dyn ZooKeepers>,
    scope: Scope,
    inputs: mpsc::Sender<WriterInput>,
    metrics: Metrics,
    elections: HashMap<Key, Running>,
    sessions: HashMap<Arc<Target>, Session>,
    /// The ensembles that exist; `None` until they were listed.
    ensembles: Option<HashMap<Key, Known>>,
    /// Elections and ensembles that the list under way has shown.
    listed_elections: HashSet<Key>,
    listed_ensembles: HashMap<Key, Known>,
}

/// An ensemble that exists.
struct Known {
    ensemble: Ensemble,
    /// The namespaces beside its own whose elections it admits.
    admits: Vec<String>,
}

impl Known {
    fn of(object: &Shown) -> (Key, Self) {
        let known = Self {
            ensemble: Ensemble::from(object),
            admits: object.admits(),
        };
        (Key::of(object.meta()), known)
    }
}

/// A mirror that runs.
struct Running {
    uid: String,
    /// A mirror reports the generation that it saw. The generation also changes when the spec is equal, as
    /// with an explicit `null`.
    generation: Option<i64>,
    spec: Arc<LeaderElectionSpec>,
    target: Arc<Target>,
    /// Whether the ensemble admits it, where that is in another namespace.
    admission: Option<Admission>,
    _task: Task,
    _bridge: Option<Task>,
}

/// A session that is kept because elections need it.
struct Session {
    presence: watch::Sender<Presence>,
    link: watch::Receiver<Link>,
    census: Option<Census>,
    /// How many elections need it.
    users: usize,
    _task: Task,
}

/// A task that ends when this is dropped.
pub(super) struct Task(pub(super) AbortHandle);

impl Task {
    /// Whether the task ended. A task ends by itself only because of a defect.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Registry {
    pub(super) fn new(
        client: Client,
        lease: Held,
        trust: Trust,
        zookeepers: Arc<dyn ZooKeepers>,
        scope: Scope,
        inputs: mpsc::Sender<WriterInput>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            lease,
            trust,
            zookeepers,
            scope,
            inputs,
            metrics,
            elections: HashMap::new(),
            sessions: HashMap::new(),
            ensembles: None,
            listed_elections: HashSet::new(),
            listed_ensembles: HashMap::new(),
        }
    }

    /// Follows the API server until the streams end, which they do not.
    pub(super) async fn run(mut self) {
        let mut elections = elections(&self.client, &self.scope).boxed();
        let mut ensembles = ensembles(&self.client, &self.scope).boxed();
        loop {
            tokio::select! {
                event = elections.next() => match event {
                    Some(Ok(event)) => self.election(event).await,
                    Some(Err(error)) => warn!(%error, "watching LeaderElections failed"),
                    None => return,
                },
                event = ensembles.next() => match event {
                    Some(Ok(event)) => self.ensemble(event),
                    Some(Err(error)) => warn!(%error, "watching ZooKeeperEnsembles failed"),
                    None => return,
                },
            }
        }
    }

    async fn election(&mut self, event: watcher::Event<Guarded>) {
        match event {
            watcher::Event::Init => self.listed_elections.clear(),
            watcher::Event::InitApply(guarded) => {
                self.listed_elections.insert(Key::of(guarded.meta()));
                self.apply(guarded).await;
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_elections);
                let gone: Vec<_> = self
                    .elections
                    .keys()
                    .filter(|key| !listed.contains(key))
                    .cloned()
                    .collect();
                for key in gone {
                    self.remove(&key).await;
                }
            }
            watcher::Event::Apply(guarded) => self.apply(guarded).await,
            watcher::Event::Delete(guarded) => self.remove(&Key::of(guarded.meta())).await,
        }
    }

    async fn apply(&mut self, guarded: Guarded) {
        let object = match guarded.0 {
            Ok(object) => Arc::new(slim(object)),
            Err(invalid) => {
                let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
                warn!(?namespace, ?name, error = %invalid, "a LeaderElection cannot be read");
                return;
            }
        };
        let key = Key::of(&object.metadata);
        self.send(WriterInput::Object(object.clone())).await;
        let uid = object.uid().unwrap_or_default();
        let unchanged = self.elections.get(&key).is_some_and(|running| {
            let generation = object.metadata.generation;
            running.uid == uid && running.generation == generation && *running.spec == object.spec
        });
        if unchanged {
            return;
        }
        let Some(target) = Target::from_spec(&object.spec, &key.namespace) else {
            warn!(election = %key, "neither ensembleRef nor connection is given, or both are; the election is not mirrored. Set exactly one.");
            return;
        };
        let (target, mut link, census) = self.session(target);
        let mut admission = None;
        if let Some(ensemble) = target.ensemble()
            && ensemble.namespace != key.namespace
        {
            let admits = self.admits(ensemble, &key.namespace);
            let (admitted, shown) = Admission::new(ensemble, admits, link);
            (admission, link) = (Some(admitted), shown);
        }
        let spec = Arc::new(object.spec.clone());
        let status = object.status.as_ref();
        let observed = status.and_then(|status| status.observed_zxid.as_deref());
        let mirror = Box::new(Mirror {
            key: key.clone(),
            uid: uid.clone(),
            generation: object.metadata.generation,
            spec: spec.clone(),
            // A dialect that an earlier spec named or let detect does not count for this spec.
            detected: status
                .filter(|status| status.observed_generation == object.metadata.generation)
                .and_then(|status| status.dialect.clone()),
            newest: observed.and_then(|zxid| zxid.parse().ok()).unwrap_or(0),
            census,
            guards: self.scope.guards,
            sighting: Sighting::new(),
            inputs: self.inputs.clone(),
            metrics: self.metrics.clone(),
        });
        info!(election = %key, path = %spec.path, dialect = spec.dialect.type_.as_str(), "mirrored");
        let bridge = spec.bridge.is_some().then(|| {
            let crosser = Crosser {
                key: key.clone(),
                uid: uid.clone(),
                generation: object.metadata.generation,
                spec: spec.clone(),
                kube: self.client.clone(),
                lease: self.lease.clone(),
                permissions: self.scope.permissions.clone(),
                inputs: self.inputs.clone(),
            };
            Task(tokio::spawn(crosser.keep(link.clone())).abort_handle())
        });
        let task = Task(tokio::spawn(mirror.keep(link)).abort_handle());
        let running = Running {
            uid,
            generation: object.metadata.generation,
            spec,
            target,
            admission,
            _task: task,
            _bridge: bridge,
        };
        if let Some(before) = self.elections.insert(key, running) {
            self.release(&before.target);
        }
    }

    async fn remove(&mut self, key: &Key) {
        if let Some(running) = self.elections.remove(key) {
            info!(election = %key, "no longer mirrored");
            self.release(&running.target);
        }
        self.send(WriterInput::Gone(key.clone())).await;
    }

    /// Without a writer the whole mirror is about to end, so an input may be lost.
    async fn send(&self, input: WriterInput) {
        let _ = self.inputs.send(input).await;
    }

    /// Adds an election that needs the session to a target; the first one opens it. Returns the session's
    /// state, and what the members report of their clients.
    fn session(&mut self, target: Target) -> (Arc<Target>, watch::Receiver<Link>, Option<Census>) {
        let presence = self.presence(&target);
        let target = match self.sessions.get_key_value(&target) {
            Some((target, _)) => Arc::clone(target),
            None => Arc::new(target),
        };
        let session = self.sessions.entry(Arc::clone(&target)).or_insert_with(|| {
            let (presence, is_present) = watch::channel(presence);
            let census = target.ensemble().map(|ensemble| {
                let (trust, is_present) = (self.trust.clone(), is_present.clone());
                Census::new(ensemble.clone(), &self.scope, trust, is_present)
            });
            let (link_is, link) = watch::channel(Link::Starting);
            let keeper = Keeper {
                target: Target::clone(&target),
                address: target.connect_string(&self.scope, CLIENT_PORT),
                secure_address: target.connect_string(&self.scope, SECURE_CLIENT_PORT),
                presence: is_present,
                link: link_is,
                permissions: self.scope.permissions.clone(),
                trust: self.trust.clone(),
                zookeepers: self.zookeepers.clone(),
                guards: self.scope.guards,
                metrics: self.metrics.clone(),
            };
            Session {
                presence,
                link,
                census,
                users: 0,
                _task: Task(tokio::spawn(keeper.keep()).abort_handle()),
            }
        });
        session.users += 1;
        (target, session.link.clone(), session.census.clone())
    }

    /// Removes an election that needed the session to a target; the last one closes it.
    fn release(&mut self, target: &Target) {
        let Some(session) = self.sessions.get_mut(target) else {
            return;
        };
        session.users = session.users.saturating_sub(1);
        if session.users == 0 {
            self.sessions.remove(target);
        }
    }

    fn presence(&self, target: &Target) -> Presence {
        // For an ensemble that Bellwether does not run, only connecting shows whether it exists.
        let Some(ensemble) = target.ensemble() else {
            return Presence::Present(Ensemble::default());
        };
        match self.admits(ensemble, &target.namespace) {
            None => Presence::Unknown,
            Some(false) => Presence::Absent,
            Some(true) => {
                let known = self.ensembles.as_ref().and_then(|all| all.get(ensemble));
                known.map_or(Presence::Absent, |known| {
                    Presence::Present(known.ensemble.clone())
                })
            }
        }
    }

    /// Whether an ensemble admits elections of a namespace: those of its own, and those of the namespaces that it names. An
    /// ensemble that does not exist admits none. `None` until the ensembles were listed.
    fn admits(&self, ensemble: &Key, namespace: &str) -> Option<bool> {
        let known = self.ensembles.as_ref()?.get(ensemble);
        let named = |name: &String| name == namespace || name == EVERY_NAMESPACE;
        Some(
            known.is_some_and(|known| {
                ensemble.namespace == namespace || known.admits.iter().any(named)
            }),
        )
    }

    fn ensemble(&mut self, event: watcher::Event<Shown>) {
        match event {
            watcher::Event::Init => self.listed_ensembles.clear(),
            watcher::Event::InitApply(object) => {
                self.listed_ensembles.extend([Known::of(&object)]);
                return;
            }
            watcher::Event::InitDone => {
                self.ensembles = Some(std::mem::take(&mut self.listed_ensembles));
            }
            watcher::Event::Apply(object) => {
                self.ensembles
                    .get_or_insert_default()
                    .extend([Known::of(&object)]);
            }
            watcher::Event::Delete(object) => {
                self.ensembles
                    .get_or_insert_default()
                    .remove(&Key::of(object.meta()));
            }
        }
        for (target, session) in &self.sessions {
            let presence = self.presence(target);
            session
                .presence
                .send_if_modified(|old| replace(old, presence));
        }
        for (key, running) in &self.elections {
            if let (Some(admission), Some(ensemble)) =
                (&running.admission, running.target.ensemble())
            {
                admission.set(self.admits(ensemble, &key.namespace));
            }
        }
    }
}

/// Replaces a value and returns whether it changed.
pub(super) fn replace<T: PartialEq>(old: &mut T, new: T) -> bool {
    let changed = *old != new;
    *old = new;
    changed
}

/// All elections in the scope, each guarded: one that cannot be read does not hide the others.
fn elections(
    client: &Client,
    scope: &Scope,
) -> impl Stream<Item = watcher::Result<watcher::Event<Guarded>>> + use<> {
    let pages = watcher::Config::default().page_size(PAGE);
    watcher(api(client, scope.namespace.as_deref()), pages).default_backoff()
}

/// Which ensembles exist, and whether they take TLS. Whether they answer is for the session to find out.
fn ensembles(
    client: &Client,
    scope: &Scope,
) -> impl Stream<Item = watcher::Result<watcher::Event<Shown>>> + use<> {
    watcher(
        api(client, scope.namespace.as_deref()),
        watcher::Config::default(),
    )
    .default_backoff()
}
