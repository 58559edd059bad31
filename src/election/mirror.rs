//! Follows one election.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::Reason;
use bellwether_election::guards::{Guard, Guards};
use bellwether_election::projection::believed;
use bellwether_election::{
    Anomaly, Blindness, InvalidSpec, Place, Reading, Rules, Sight, Tenure, Verdict,
};
use futures::FutureExt;
use futures::future::OptionFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{Instrument as _, debug, info, warn};

use super::Key;
use super::budget::Budget;
use super::census::Census;
use super::messages::{Seen, WriterInput};
use super::metrics::{Counted, Metrics, Outcome};
use super::noticed::Noticed;
use super::pace::Pace;
use super::read::{Confirmed, Confirmer, ReadError, Reader};
use super::session::Link;
use super::sighting::Sighting;
use super::supervise::{PAUSE, supervise};
use super::zookeepers::Session;

/// How long a lost connection is not reported: while an ensemble rolls, clients move to another member
/// within this time, and the read that follows shows what was missed.
const GRACE: Duration = Duration::from_secs(2);

/// After this time everything is read again, although no watch fired.
const RESYNC: Duration = Duration::from_secs(300);

/// The same while the path does not exist: no watch fires for a client that may not read the node that is
/// created, so an election with a closed ACL would begin unnoticed.
const RESYNC_MISSING: Duration = Duration::from_secs(60);

/// How soon a read that the ACL forbids is tried again: a change of an ACL fires no watch.
const NO_AUTH_RETRY: Duration = Duration::from_secs(15);

/// How soon a path is looked at again that has more children than may be held in memory.
const EXCESS_RETRY: Duration = Duration::from_secs(60);

/// How long one read of an election may take. The relay lets a server go that answers nothing for a while; this
/// ends a read whose server answers just often enough.
const READ_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 120 });

/// How often one election is read: so many times in a row, and then once in this time. Watches of an election that changes
/// all the time must not keep the session from those of others.
const READS: u32 = 20;
const READ_GAP: Duration = Duration::from_millis(100);

/// How often in a row a read may fail before that is reported.
const SILENT_FAILURES: u32 = 2;

/// How long to wait before the members are asked of their clients, once and, for a client that is just
/// moving from one member to another, again.
const CENSUS_PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// How often a server may show an older state than was seen before it is believed, and the pause
/// between two looks. A server that lags catches up; an ensemble that was restored from a backup
/// does not.
const OLDER_READS: u32 = 5;
const OLDER_PAUSE: Duration = Duration::from_millis(500);

/// One election to follow.
#[derive(Clone)]
pub(super) struct Mirror {
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) spec: Arc<LeaderElectionSpec>,
    /// The dialect that was detected before, if the spec leaves it open.
    pub(super) detected: Option<String>,
    /// The newest transaction that was reported, at first the one that the status reflects.
    pub(super) newest: i64,
    /// What the members report of their clients, if Bellwether runs the ensemble.
    pub(super) census: Option<Census>,
    /// What it does so that nothing deceives it.
    pub(super) guards: Guards,
    /// When the leader was last read.
    pub(super) sighting: Sighting,
    pub(super) inputs: mpsc::Sender<WriterInput>,
    pub(super) metrics: Metrics,
}

impl Mirror {
    /// Follows the election as [`run`](Self::run) does, and does so again when that breaks off.
    pub(super) async fn keep(self: Box<Self>, link: watch::Receiver<Link>) {
        if !self.guards.keep(Guard::StartedAgain) {
            return self.run(link).await;
        }
        let what = format!("the mirror of {}", self.key);
        let mirror = self.clone();
        let again = link.clone();
        let run = move || mirror.clone().run(link.clone()).boxed();
        let report = move |pause: Duration| {
            again.borrow().doubt();
            let detail = format!(
                "The mirror of this election broke off by a defect of the operator, whose log says more. It is started again in {pause:?}."
            );
            let mirror = self.clone();
            async move {
                let since = Timestamp::now();
                mirror
                    .report_blindness(Reason::ReadFailed, detail, since)
                    .await;
            }
            .boxed()
        };
        supervise(&what, PAUSE, run, report).await;
    }

    /// Follows the election until dropped, or until the keeper of the session has ended.
    async fn run(mut self: Box<Self>, mut link: watch::Receiver<Link>) {
        let _counted = Counted::new(&self.metrics.elections);
        let mut rules = match Rules::new(self.spec.clone(), self.detected.as_deref()) {
            Ok(rules) => rules,
            Err(InvalidSpec(detail)) => return Box::pin(self.refuse(detail)).await,
        };
        loop {
            let current = link.borrow_and_update().clone();
            tokio::select! {
                () = self.live(current, &mut rules) => {}
                changed = link.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Reports that the spec cannot be followed. A changed spec starts another mirror.
    async fn refuse(&self, detail: String) {
        warn!(election = %self.key, detail, "the spec cannot be followed");
        self.report_blindness(Reason::InvalidSpec, detail, Timestamp::now())
            .await;
        std::future::pending().await
    }

    /// Follows the election while the session is up, else reports why the mirror is blind. Runs until the
    /// caller drops it.
    async fn live(&mut self, link: Link, rules: &mut Rules) {
        let (grace, reason, detail, since) = match link {
            Link::Up { client, budget, .. } => return self.follow(client, budget, rules).await,
            Link::Starting => {
                let detail = format!("No session to {} is open yet.", self.spec.holder());
                (GRACE, Reason::EnsembleNotReady, detail, Timestamp::now())
            }
            Link::Down {
                reason,
                detail,
                since,
            } => {
                let past = Timestamp::now().duration_since(since).unsigned_abs();
                let grace = match reason {
                    Reason::Disconnected | Reason::SessionExpired => GRACE.saturating_sub(past),
                    _ => Duration::ZERO,
                };
                (grace, reason, detail, since)
            }
        };
        sleep(grace).await;
        self.report_blindness(reason, detail, since).await;
        std::future::pending().await
    }

    /// Reads whenever a watch fired, and reports what it sees.
    async fn follow(&mut self, client: Arc<dyn Session>, budget: Arc<Budget>, rules: &mut Rules) {
        let mut reader = Reader::new(client, budget);
        let mut failures = Failures::default();
        let mut older = 0;
        let mut noticed = Noticed::now();
        let mut tenure = Tenure::default();
        let mut pace = Pace::new(READ_GAP, READS);
        let believed = believed(&self.spec).and_then(|period| Duration::try_from(period).ok());
        loop {
            let at = pace.next(true, Instant::now());
            if at > Instant::now() {
                sleep_until(at).await;
            }
            pace.wrote(true, at);
            let asked = (Instant::now(), Timestamp::now());
            // Short-lived futures are boxed: of the thousands of mirrors most wait, and need no room for
            // them.
            let path = self.spec.path.clone();
            let read = reader.read(rules, self.newest);
            let read = read.instrument(noticed.reading());
            let read = Box::pin(timeout(READ_PATIENCE, read)).await;
            match read.unwrap_or(Err(ReadError::Slow { path })) {
                Ok(mut reading) => {
                    self.metrics.count_read(&Outcome::OK);
                    reading.expire(Timestamp::now());
                    let doubts = self.guards.keep(Guard::OlderDoubted);
                    if reading.zxid < self.newest && older < OLDER_READS && doubts {
                        older += 1;
                        debug!(election = %self.key, zxid = reading.zxid, "an older state");
                        reader.forget();
                        sleep(OLDER_PAUSE).await;
                        // If the sync fails, the next read fails, too, and that failure is reported.
                        let sync = reader.sync(&self.spec.path);
                        let _ = Box::pin(timeout(READ_PATIENCE, sync)).await;
                        continue;
                    }
                    if reading.zxid < self.newest {
                        let (from, to) = (self.newest, reading.zxid);
                        warn!(election = %self.key, from, to, "ZooKeeper went back in time");
                    }
                    older = 0;
                    failures = Failures::default();
                    self.newest = reading.zxid;
                    self.sighting.renew(asked);
                    if let Some(until) = tenure.holds_back(&reading, Timestamp::now()) {
                        let left = Duration::try_from(until.duration_since(Timestamp::now()));
                        tokio::select! {
                            () = reader.changed() => {}
                            () = sleep(left.unwrap_or_default()) => {}
                        }
                        continue;
                    }
                    let confirming = believed
                        .filter(|_| reading.leader().is_some())
                        .map(|period| (period / 3, Confirmed::of_leader(rules, &reading)));
                    let resync = self.resync(&reading);
                    let open = self.census.clone().and_then(|census| {
                        let open = Open::from_reading(&reading, rules.place(), census)?;
                        reading.addresses = open.addresses();
                        Some((open, reading.clone()))
                    });
                    self.report(Sight::Seen(reading), noticed).await;
                    let completed = open.map(|(open, reading)| {
                        let completed = self.complete(open, reading);
                        Box::pin(completed)
                    });
                    let confirmed = confirming.map(|(period, leader)| {
                        let confirmed = self.confirm(reader.confirmer(), leader, period);
                        Box::pin(confirmed)
                    });
                    noticed = tokio::select! {
                        Some(()) = OptionFuture::from(completed) => Noticed::now(),
                        () = reader.changed() => Noticed::event(&self.key),
                        Some(()) = OptionFuture::from(confirmed) => {
                            reader.forget();
                            Noticed::now()
                        }
                        () = sleep(resync) => {
                            reader.forget();
                            Noticed::now()
                        }
                    };
                }
                Err(error) => {
                    self.metrics.count_read(&Outcome::FAILED);
                    let pause = Box::pin(self.report_failure(&error, &mut failures)).await;
                    sleep(pause).await;
                    reader.forget();
                    noticed = Noticed::now();
                }
            }
        }
    }

    /// Sends a reading again once the members have reported what it needs from their lists. Does not return.
    async fn complete(&self, open: Open, mut reading: Box<Reading>) {
        for pause in CENSUS_PAUSES {
            if open.is_answered_by(&reading) {
                break;
            }
            // Candidates that watched the node of the last leader watch the new leader's node a moment later.
            sleep(pause).await;
            let since = Instant::now();
            open.census.take(since).await;
            let addresses = open.addresses();
            let watchers = open.watchers(&self.spec.path, since);
            if addresses != reading.addresses || watchers != reading.watchers {
                (reading.addresses, reading.watchers) = (addresses, watchers);
                self.report(Sight::Seen(reading.clone()), Noticed::now())
                    .await;
            }
        }
        std::future::pending().await
    }

    /// Reads the leader periodically, and reports each time that it leads. Returns when it does not lead any
    /// more, or cannot be read.
    async fn confirm(&self, confirmer: Confirmer, leader: Option<Confirmed>, period: Duration) {
        loop {
            sleep(period).await;
            let Some(leader) = &leader else { return };
            let asked = (Instant::now(), Timestamp::now());
            let leads = match self.guards.keep(Guard::ReadAgain) {
                true => confirmer.confirm(leader).await,
                false => Ok(true),
            };
            match leads {
                Ok(true) => {
                    self.sighting.renew(asked);
                    let _ = self
                        .inputs
                        .send(WriterInput::Confirmed(self.key.clone()))
                        .await;
                }
                Ok(false) => {
                    info!(election = %self.key, "the leader changed without an event");
                    return;
                }
                Err(error) => {
                    debug!(election = %self.key, %error, "the leader cannot be confirmed");
                    return;
                }
            }
        }
    }

    /// Reports that a read failed, unless it is likely to succeed at once or the session's keeper reports
    /// it. Returns how long to wait before the next read.
    async fn report_failure(&self, error: &ReadError, failures: &mut Failures) -> Duration {
        let since = *failures.since.get_or_insert_with(Timestamp::now);
        failures.count += 1;
        let (reason, detail, pause) = match error {
            ReadError::NoAuth { path } => {
                info!(election = %self.key, %path, "not allowed to read");
                let detail = format!("ZooKeeper does not allow the mirror to read {path}.");
                (Reason::NoAuth, detail, NO_AUTH_RETRY)
            }
            ReadError::Excess { path, excess } => {
                warn!(election = %self.key, %path, %excess, "too much to hold in memory");
                let detail = format!("{path} {excess}.");
                (Reason::ReadFailed, detail, EXCESS_RETRY)
            }
            ReadError::Slow { path } => {
                warn!(election = %self.key, %path, "a read takes too long");
                let detail = format!(
                    "Reading {path} and what belongs to it was not finished within {READ_PATIENCE:?}."
                );
                (Reason::ReadFailed, detail, EXCESS_RETRY)
            }
            ReadError::ZooKeeper { path, source } => {
                warn!(election = %self.key, %path, error = %source, "read failed");
                let pause = failures.pauses.next().unwrap_or(NO_AUTH_RETRY);
                if failures.count <= SILENT_FAILURES {
                    return pause;
                }
                (
                    Reason::ReadFailed,
                    format!("Reading {path} failed: {source}."),
                    pause,
                )
            }
        };
        self.report_blindness(reason, detail, since).await;
        pause
    }

    /// Reports that the election cannot be seen, why, and since when.
    fn report_blindness(
        &self,
        reason: Reason,
        detail: String,
        since: Timestamp,
    ) -> impl Future<Output = ()> + use<'_> {
        let blindness = Blindness {
            reason,
            detail,
            since,
        };
        self.report(Sight::Blind(blindness), Noticed::now())
    }

    fn report(&self, sight: Sight, noticed: Noticed) -> impl Future<Output = ()> + use<'_> {
        let seen = Box::new(Seen {
            key: self.key.clone(),
            uid: self.uid.clone(),
            generation: self.generation,
            sight,
            sighting: self.sighting.clone(),
            noticed,
        });
        async move {
            // Without a writer the whole mirror is about to end.
            let _ = self.inputs.send(WriterInput::Seen(seen)).await;
        }
    }

    /// When to read everything again although nothing happened: soon where an ACL hides something,
    /// else seldom, and not at the same moment for all elections.
    fn resync(&self, reading: &Reading) -> Duration {
        let hidden = |anomaly: &Anomaly| matches!(anomaly, Anomaly::Unreadable { .. });
        let undecided = matches!(reading.verdict, Verdict::Hidden { .. });
        if undecided || reading.anomalies.iter().any(hidden) {
            return NO_AUTH_RETRY;
        }
        let spread: u64 = self.uid.bytes().map(u64::from).sum();
        let period = if reading.exists {
            RESYNC
        } else {
            RESYNC_MISSING
        };
        let period = period + period / 10 * u32::try_from(spread % 10).unwrap_or(0) / 10;
        match reading.expires() {
            // Ten milliseconds later, so that the leader's time is over when it is read.
            Some(end) => {
                let left = Duration::try_from(end.duration_since(Timestamp::now()));
                period.min(left.unwrap_or(Duration::ZERO) + Duration::from_millis(10))
            }
            None => period,
        }
    }
}

/// What only the members know about an election.
struct Open {
    census: Census,
    /// The sessions of candidates that nothing else identifies.
    anonymous: BTreeSet<i64>,
    /// The session that owns the one node that all candidates watch.
    owner: Option<i64>,
}

impl Open {
    /// What the members have to be asked about a reading, if anything.
    fn from_reading(reading: &Reading, place: Place, census: Census) -> Option<Self> {
        let anonymous = reading.anonymous();
        let owner = reading
            .leader()
            .and_then(|candidate| candidate.znode.candidacy())
            .map(|candidacy| candidacy.session)
            .filter(|_| place == Place::Node);
        let open = !anonymous.is_empty() || owner.is_some();
        open.then_some(Self {
            census,
            anonymous,
            owner,
        })
    }

    fn is_answered_by(&self, reading: &Reading) -> bool {
        reading.addresses.len() == self.anonymous.len()
            && (self.owner.is_none() || reading.watchers.is_some())
    }

    fn addresses(&self) -> BTreeMap<i64, IpAddr> {
        self.census.addresses(self.anonymous.iter().copied())
    }

    fn watchers(&self, path: &str, since: Instant) -> Option<usize> {
        self.census.watchers(path, self.owner?, since)
    }
}

/// Reads that failed in a row.
struct Failures {
    count: u32,
    since: Option<Timestamp>,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
}

impl Default for Failures {
    fn default() -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(Duration::from_secs(30))
            .with_jitter()
            .without_max_times()
            .build();
        Self {
            count: 0,
            since: None,
            pauses: Box::new(pauses),
        }
    }
}

#[cfg(test)]
mod tests;
