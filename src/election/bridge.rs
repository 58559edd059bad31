//! Acts for the bridge of one election: it reads the Lease and the queue, and does what `bellwether_election::bridge` decides.
//!
//! Everything else of the mirror only reads ZooKeeper; this writes. Only the replica that holds the operator's lease acts, and
//! what two of them could do to each other is what the model of the bridge goes through.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bellwether_api::conditions::NewCondition;
use bellwether_api::election::{Bridge, LeaderElectionSpec};
use bellwether_api::{FIELD_MANAGER, LeaderElection};
use bellwether_election::bridge::{
    Act, Holder, OwnZnode, Place, cross, failed, held, holder, identity, not_allowed, released,
};
use bellwether_election::permissions::Permissions;
use bellwether_election::{MAX_READ, Rules};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Resource as _, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::info;
use zookeeper_client::Error;

use super::messages::{Bridged, WriterInput};
use super::read::CONCURRENT_READS;
use super::session::Link;
use super::supervise::{PAUSE, supervise};
use super::zookeepers::Session;
use super::{Key, REQUEST_PATIENCE};
use crate::lease::Held;

/// How often the locks are read, and the Lease that the bridge holds is written: well within the ten seconds and more after
/// which candidates take a Lease that did not change.
const PERIOD: Duration = Duration::from_secs(4);

/// The same after something was done.
const SOON: Duration = Duration::from_millis(200);

/// The same after something failed.
const RETRY: Duration = Duration::from_secs(1);

/// How often in a row a look at the locks may fail before that is told: while an ensemble rolls, clients move to another member
/// within this time.
const SILENT_FAILURES: u32 = 3;

/// The bridge of one election.
#[derive(Clone)]
pub(super) struct Crosser {
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) spec: Arc<LeaderElectionSpec>,
    pub(super) kube: kube::Client,
    pub(super) lease: Held,
    pub(super) permissions: Arc<Permissions>,
    pub(super) inputs: mpsc::Sender<WriterInput>,
}

/// The Lease as it was read last, and since when it has been so.
#[derive(Default)]
struct Watched {
    version: Option<String>,
    since: Option<Instant>,
}

impl Watched {
    /// For how long the Lease has not changed.
    fn unchanged_for(&mut self, lease: Option<&Lease>) -> SignedDuration {
        let version = lease.and_then(ResourceExt::resource_version);
        if self.version != version {
            (self.version, self.since) = (version, None);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        SignedDuration::try_from(since.elapsed()).unwrap_or_default()
    }
}

/// What is done for, which does not change.
struct Work {
    bridge: Bridge,
    rules: Rules,
    /// What the names of the bridge's znodes begin with.
    beginning: String,
    identity: String,
    leases: Api<Lease>,
}

impl Crosser {
    /// Acts for the bridge as [`run`](Self::run) does, and does so again when that breaks off.
    pub(super) async fn keep(self, link: watch::Receiver<Link>) {
        let what = format!("the bridge of {}", self.key);
        let crosser = self.clone();
        let run = move || crosser.clone().run(link.clone()).boxed();
        let report = move |pause: Duration| {
            let told = failed(&format!(
                "The bridge broke off by a defect of the operator, whose log says more. It goes on in {pause:?}."
            ));
            let crosser = self.clone();
            async move { crosser.tell(told).await }.boxed()
        };
        supervise(&what, PAUSE, run, report).await;
    }

    /// Acts for the bridge until dropped.
    async fn run(mut self, mut link: watch::Receiver<Link>) {
        let work = match self.work() {
            Ok(work) => work,
            Err(told) => {
                self.tell(told).await;
                // What is allowed changes with the operator's arguments, and the rest with the spec: either ends this.
                return std::future::pending().await;
            }
        };
        let mut watched = Watched::default();
        let mut last = None;
        let mut failures = 0;
        loop {
            self.lease.acquired().await;
            let current = link.borrow_and_update().clone();
            let (told, pause) = match self.pass(&work, &current, &mut watched).await {
                Ok((told, acted)) => {
                    failures = 0;
                    (Some(told), if acted { SOON } else { PERIOD })
                }
                Err(what) => {
                    failures += 1;
                    match failures > SILENT_FAILURES {
                        true => (Some(failed(&what)), PERIOD),
                        false => (None, RETRY),
                    }
                }
            };
            if let Some(told) = told
                && last.as_ref() != Some(&told)
            {
                info!(election = %self.key, reason = told.reason, "{}", told.message);
                self.tell(told.clone()).await;
                last = Some(told);
            }
            tokio::select! {
                () = sleep(pause) => {}
                changed = link.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn tell(&self, condition: NewCondition) {
        let bridged = Box::new(Bridged {
            key: self.key.clone(),
            uid: self.uid.clone(),
            generation: self.generation,
            condition,
        });
        // Without a writer the whole mirror is about to end.
        let _ = self.inputs.send(WriterInput::Bridged(bridged)).await;
    }

    /// What there is to do, or why nothing is done.
    fn work(&self) -> Result<Work, NewCondition> {
        if !self.permissions.bridges {
            return Err(not_allowed());
        }
        let bridge = self.spec.bridge.as_deref().cloned();
        let bridge = bridge.ok_or_else(|| failed("The spec names no bridge."))?;
        let rules = Rules::new(self.spec.clone(), None).map_err(|invalid| failed(&invalid.0))?;
        let beginning = rules.bridge_name(&self.uid).ok_or_else(|| {
            failed("The bridge can stand for election only in dialects whose candidates are children with sequence numbers, the first of which leads.")
        })?;
        Ok(Work {
            bridge,
            rules,
            beginning,
            identity: identity(&self.key.namespace, &self.key.name, &self.uid),
            leases: Api::namespaced(self.kube.clone(), &self.key.namespace),
        })
    }

    /// Reads both locks and does what follows. Returns what is told, and whether something else is to be done soon.
    async fn pass(
        &self,
        work: &Work,
        link: &Link,
        watched: &mut Watched,
    ) -> Result<(NewCondition, bool), String> {
        let name = &work.bridge.lease;
        // The Lease is read first: the model does the same.
        let lease = answered(work.leases.get_opt(name)).await;
        let lease = lease.map_err(|error| lease_refused(name, "read", &error))?;
        if lease.as_ref().is_some_and(is_projected) {
            return Err(format!(
                "The Lease {name} is one to which an election is projected, by which no application can elect."
            ));
        }
        let unchanged_for = watched.unchanged_for(lease.as_ref());
        let holder = holder(lease.as_ref(), &work.identity, unchanged_for);
        let Link::Up { client, .. } = link else {
            if holder == Holder::Bridge {
                self.hold(work, lease).await?;
            }
            return Err("ZooKeeper is not connected, as the condition Synced tells.".to_owned());
        };
        let client = &**client;
        let place = place(client, work).await?;
        let (act, told) = cross(work.bridge.side, &place, &holder, name);
        let acted = act.as_ref().is_some_and(|act| *act != Act::RenewLease);
        if acted {
            info!(election = %self.key, ?act, "the bridge acts");
        }
        if let Some(act) = act {
            self.act(work, client, lease, act).await?;
        }
        Ok((told, acted))
    }

    /// Carries one act out. What fails because somebody else wrote in between is decided anew.
    async fn act(
        &self,
        work: &Work,
        client: &dyn Session,
        lease: Option<Lease>,
        act: Act,
    ) -> Result<(), String> {
        match act {
            Act::CreateZnode => self.create(work, client).await,
            Act::DeleteSurplus(own) => self.delete(client, &own).await,
            Act::TakeLease | Act::RenewLease => {
                self.hold(work, lease).await?;
                Ok(())
            }
            Act::GiveUpLease(own) => {
                if !self.lease.is_held() {
                    return Ok(());
                }
                let data = work.identity.as_bytes();
                let write = client.set_data(&own.path, data, own.version);
                if changed("write", &own.path, answered(write).await)? {
                    let old = lease.as_ref().and_then(|lease| lease.spec.as_ref());
                    let free = released(old, Timestamp::now());
                    self.write(work, lease, free).await?;
                }
                Ok(())
            }
            Act::GiveUpZnode(own) => match self.hold(work, lease).await? {
                true => self.delete(client, &own).await,
                false => Ok(()),
            },
        }
    }

    /// Creates the bridge's znode, which clients may do with what its parent allows them.
    async fn create(&self, work: &Work, client: &dyn Session) -> Result<(), String> {
        let parent = work.rules.spec().path.as_str();
        let acl = match answered(client.get_acl(parent)).await {
            Ok(acl) => acl,
            Err(error) => return Err(refused("read the ACL of", parent, &error)),
        };
        let path = format!("{parent}/{}", work.beginning);
        if self.lease.is_held() {
            let create = client.create_sequential(&path, work.identity.as_bytes(), &acl);
            changed("create a znode below", parent, answered(create).await)?;
        }
        Ok(())
    }

    async fn delete(&self, client: &dyn Session, own: &OwnZnode) -> Result<(), String> {
        if self.lease.is_held() {
            let delete = client.delete(&own.path, own.version);
            changed("delete", &own.path, answered(delete).await)?;
        }
        Ok(())
    }

    /// Takes the Lease, or writes the one that the bridge holds; whether it was still as it was read.
    async fn hold(&self, work: &Work, lease: Option<Lease>) -> Result<bool, String> {
        let old = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let spec = held(old, &work.identity, Timestamp::now());
        self.write(work, lease, spec).await
    }

    /// Writes the Lease as it was read, with another spec; whether it was still as it was read.
    async fn write(
        &self,
        work: &Work,
        lease: Option<Lease>,
        spec: LeaseSpec,
    ) -> Result<bool, String> {
        if !self.lease.is_held() {
            return Ok(false);
        }
        let name = &work.bridge.lease;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let spec = Some(spec);
        let written = match lease {
            Some(lease) => {
                let lease = Lease { spec, ..lease };
                answered(work.leases.replace(name, &params, &lease)).await
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(self.key.namespace.clone()),
                    ..ObjectMeta::default()
                };
                let lease = Lease { metadata, spec };
                answered(work.leases.create(&params, &lease)).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(Unanswered::Failed(kube::Error::Api(status)))
                if matches!(status.code, 404 | 409) =>
            {
                Ok(false)
            }
            Err(error) => Err(lease_refused(name, "written", &error)),
        }
    }
}

/// Whether a change of a znode was carried out; not where the znode is another one than was read.
fn changed<T>(
    verb: &str,
    path: &str,
    answer: Result<T, Unanswered<Error>>,
) -> Result<bool, String> {
    match answer {
        Ok(_) => Ok(true),
        Err(Unanswered::Failed(Error::BadVersion | Error::NoNode)) => Ok(false),
        Err(error) => Err(refused(verb, path, &error)),
    }
}

/// Whether a Lease is one that the operator writes for an election.
fn is_projected(lease: &Lease) -> bool {
    let mut owners = lease.owner_references().iter();
    owners.any(|owner| owner.kind == LeaderElection::kind(&()) && owner.controller == Some(true))
}

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered<E: Display> {
    #[error("{0}")]
    Failed(E),
    #[error("no answer within {REQUEST_PATIENCE:?}")]
    Late,
}

async fn answered<T, E: Display>(
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, Unanswered<E>> {
    match timeout(REQUEST_PATIENCE, request).await {
        Ok(answer) => answer.map_err(Unanswered::Failed),
        Err(_) => Err(Unanswered::Late),
    }
}

/// That the API server did not do something with the Lease, as a sentence.
fn lease_refused(name: &str, done: &str, error: &Unanswered<kube::Error>) -> String {
    let why = match error {
        Unanswered::Failed(kube::Error::Api(status)) => status.message.clone(),
        error => error.to_string(),
    };
    let why = why.trim_end_matches('.');
    format!("The Lease {name} cannot be {done}: {why}.")
}

/// That ZooKeeper did not do something, as a sentence.
fn refused(verb: &str, path: &str, error: &Unanswered<Error>) -> String {
    match error {
        Unanswered::Failed(Error::NoAuth) => {
            format!("ZooKeeper does not allow the bridge to {verb} {path}.")
        }
        error => format!("The bridge cannot {verb} {path}: {error}."),
    }
}

/// Where the bridge stands in the queue.
async fn place(client: &dyn Session, work: &Work) -> Result<Place, String> {
    let path = work.rules.spec().path.as_str();
    let children = match answered(client.list_children(path)).await {
        Ok(children) => children,
        Err(Unanswered::Failed(Error::NoNode)) => Vec::new(),
        Err(error) => return Err(refused("read", path, &error)),
    };
    let queue = work.rules.candidates(&children);
    let may_be_own = |name: &str| name.starts_with(&work.beginning);
    let count = queue.len();
    let candidates: Vec<(usize, &str)> = (0..)
        .zip(queue)
        .filter(|(_, name)| may_be_own(name))
        .collect();
    if candidates.len() > MAX_READ {
        return Err(format!(
            "{path} has {} candidates, and the bridge reads {MAX_READ} at most to find its own.",
            candidates.len()
        ));
    }
    // In a loop, and boxed: of a closure the compiler does not see that its futures may go to another thread.
    let mut read = Vec::with_capacity(candidates.len());
    for (at, name) in candidates {
        read.push(own(client, work, format!("{path}/{name}"), at).boxed());
    }
    let found: Vec<_> = stream::iter(read)
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await?;
    let found: Vec<(usize, OwnZnode)> = found.into_iter().flatten().collect();
    let ahead = found.first().map_or(count, |(at, _)| *at);
    Ok(Place {
        ahead,
        own: found.into_iter().map(|(_, own)| own).collect(),
    })
}

/// The candidate at this place of the queue, if it is the bridge's own.
async fn own(
    client: &dyn Session,
    work: &Work,
    path: String,
    at: usize,
) -> Result<Option<(usize, OwnZnode)>, String> {
    match answered(client.get_data(&path)).await {
        Ok((data, stat)) => {
            // Whoever may create znodes here, and not delete them, may copy the data, but not take a persistent znode away again.
            let own = data == work.identity.as_bytes() && stat.ephemeral_owner == 0;
            let version = stat.version;
            Ok(own.then_some((at, OwnZnode { path, version })))
        }
        Err(Unanswered::Failed(Error::NoNode)) => Ok(None),
        // It may be the bridge's own: another one is not created for it.
        Err(error) => Err(refused("read", &path, &error)),
    }
}
