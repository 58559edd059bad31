//! How often each ensemble is looked at, and how often it is read afresh.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_api::ensemble::MemberRole;
use bellwether_ensemble::Voters;
use bellwether_ensemble::four_letter::Learners;
use bellwether_ensemble::observation::{Credentials, Observation, PodObservation, ServerReport};
use tokio::time::Instant;

use super::members::Contact;
use super::stores::{Key, Version};

/// The longest time between two looks at an ensemble. A leader that changes without any change of a pod shows
/// after this time at the latest.
const LONGEST: Duration = Duration::from_secs(10);
/// While nothing changes, the next look comes after this part of the time for which nothing has changed.
const PART: u32 = 10;
/// For how long a change that is under way may be followed by watches alone.
const UNREAD: Duration = Duration::from_secs(10);
/// The same limit for an ensemble that has not changed for long.
const LONGEST_UNREAD: Duration = Duration::from_secs(300);
/// For how long an ensemble rests on one plan at least. Volumes fill up and permissions expire without a change of
/// any object. The longer nothing changes, the longer it rests.
const REST: Duration = Duration::from_secs(120);
/// For how long an ensemble rests on one plan at most.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// How often the members of an ensemble at rest are asked that do not lead, if the leader does not tell of them.
/// Kubernetes takes 40 seconds to notice that a node is lost.
const FOLLOWERS: Duration = Duration::from_secs(15);
/// How soon an ensemble is looked at after a pass that failed.
const FAILED: Duration = Duration::from_secs(2);
/// Ensembles that were not looked at for so long do not exist any more.
const FORGET: Duration = Duration::from_secs(600);

/// What is known of the looks at every ensemble.
#[derive(Default)]
pub(crate) struct Pace(Mutex<HashMap<Key, Seen>>);

struct Seen {
    inputs: Inputs,
    /// Since when the inputs are these.
    since: Instant,
    /// When it was read from the API server last.
    read: Instant,
    /// When it was looked at last.
    looked: Instant,
    /// Absent while a change is under way.
    rests: Option<Rest>,
    /// The last pass failed, and the next one waits.
    failed: Option<Failed>,
}

/// A pass that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// The status text about the failure.
    pub failure: Option<String>,
    /// When to try again, while nothing changes.
    until: Instant,
}

impl Failed {
    /// How long the next try waits still.
    pub(crate) fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// All inputs of a plan except the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// The resource version of the ensemble.
    pub ensemble: Option<String>,
    /// The version of its objects.
    pub objects: Version,
    /// What every pod's server answers.
    pub answers: Vec<(String, Answer)>,
}

/// A server's answer without the parts that change all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    role: MemberRole,
    epoch: Option<u64>,
    voters: Option<Voters>,
    has_database: Option<bool>,
}

/// A member of an ensemble at rest.
#[derive(Clone, Debug)]
pub(crate) struct Resting {
    /// Where it is.
    pub contact: Contact,
    /// Its role.
    pub role: MemberRole,
    /// The epoch of its last transaction.
    pub epoch: u64,
    /// What it says of the users of its clients.
    pub credentials: Credentials,
}

/// The learners that the leader among these members has.
fn learners(members: &[Resting]) -> Learners {
    let count = |role| members.iter().filter(|m| m.role == role).count();
    Learners {
        followers: count(MemberRole::Follower),
        observers: count(MemberRole::Observer),
    }
}

/// An ensemble whose last plan asked for nothing.
struct Rest {
    /// When that plan was made.
    since: Instant,
    /// When all members were asked last.
    asked: Instant,
    /// The members that served then; none if one of them did not.
    members: Vec<Resting>,
}

impl Inputs {
    /// The inputs of a plan for this observation.
    pub(crate) fn of(
        ensemble: Option<String>,
        objects: Version,
        observation: &Observation,
    ) -> Self {
        let pods = observation.pods.iter().chain(&observation.observers.pods);
        Self {
            ensemble,
            objects,
            answers: pods.map(|pod| (pod.uid.clone(), Answer::of(pod))).collect(),
        }
    }
}

impl Answer {
    fn of(pod: &PodObservation) -> Self {
        let (epoch, voters) = match &pod.server {
            ServerReport::Serving { zxid, voters, .. } => (Some(zxid >> 32), Some(voters.clone())),
            _ => (None, None),
        };
        Self {
            role: pod.server.role(),
            epoch,
            voters,
            has_database: pod.volumes.as_ref().map(|report| report.has_database),
        }
    }
}

impl Pace {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the inputs of the next plan.
    pub(crate) fn look(&self, key: &Key, inputs: Inputs) {
        let now = Instant::now();
        let mut all = self.all();
        if !all.contains_key(key) {
            all.retain(|_, seen| now.duration_since(seen.looked) < FORGET);
        }
        match all.get_mut(key) {
            Some(seen) if seen.inputs == inputs => seen.looked = now,
            Some(seen) => {
                seen.inputs = inputs;
                seen.since = now;
                seen.looked = now;
                seen.rests = None;
                seen.failed = None;
            }
            None => {
                let seen = Seen {
                    inputs,
                    since: now,
                    read: now,
                    looked: now,
                    rests: None,
                    failed: None,
                };
                all.insert(key.clone(), seen);
            }
        }
    }

    /// Records that the ensemble is read from the API server.
    pub(crate) fn reads(&self, key: &Key) {
        if let Some(seen) = self.all().get_mut(key) {
            seen.read = Instant::now();
            seen.rests = None;
            seen.failed = None;
        }
    }

    /// Records that the pass failed, and what the status reports of that.
    pub(crate) fn fails(&self, key: &Key, failure: Option<String>) {
        if let Some(seen) = self.all().get_mut(key) {
            let until = Instant::now();
            seen.failed = Some(Failed { failure, until });
        }
    }

    /// Delays the next try by `wait`, unless something changes. Returns when to look again: meanwhile the
    /// operator asks the members and keeps the status true.
    pub(crate) fn waits(&self, key: &Key, wait: Duration) -> Duration {
        if let Some(seen) = self.all().get_mut(key) {
            let until = Instant::now() + wait;
            let failed = seen.failed.take();
            let failure = failed.and_then(|failed| failed.failure);
            seen.failed = Some(Failed { failure, until });
        }
        wait.min(self.after(key, FAILED))
    }

    /// The last pass, if it failed, nothing has changed since, and the next one is not due.
    pub(crate) fn failed(&self, key: &Key) -> Option<Failed> {
        let all = self.all();
        let failed = all.get(key)?.failed.clone();
        failed.filter(|failed| !failed.remaining().is_zero())
    }

    /// Whether watches alone have been followed for long enough, so that the ensemble must be read. A watch
    /// that silently stopped would otherwise hold a change up for ever.
    pub(crate) fn must_read(&self, key: &Key) -> bool {
        let all = self.all();
        all.get(key).is_some_and(|seen| {
            let bound = (seen.since.elapsed() / 2).clamp(UNREAD, LONGEST_UNREAD);
            seen.rests.is_none() && seen.read.elapsed() > bound
        })
    }

    /// Records that the last plan asked for nothing, and which members served then.
    pub(crate) fn rests(&self, key: &Key, members: Vec<Resting>) {
        if let Some(seen) = self.all().get_mut(key) {
            let now = Instant::now();
            seen.rests = Some(Rest {
                since: now,
                asked: now,
                members,
            });
        }
    }

    /// The members to ask of an ensemble that rests, if a plan would be made from the same objects as the last
    /// one, and the learners that its leader should have. The leader is asked, and from time to time all, unless the
    /// leader tells of them.
    pub(crate) fn resting(
        &self,
        key: &Key,
        ensemble: Option<&String>,
        objects: &Version,
    ) -> Option<(Vec<Resting>, Learners)> {
        let now = Instant::now();
        let mut all = self.all();
        let seen = all.get_mut(key)?;
        let longest = (now - seen.since) / PART;
        let same = seen.inputs.ensemble.as_ref() == ensemble && seen.inputs.objects == *objects;
        let rest = seen.rests.as_mut()?;
        if !same || now - rest.since >= longest.clamp(REST, LONGEST_REST) {
            return None;
        }
        seen.looked = now;
        let learners = learners(&rest.members);
        let leaders = rest.members.iter().filter(|m| m.role == MemberRole::Leader);
        let leaders: Vec<Resting> = leaders.cloned().collect();
        let tells = leaders
            .iter()
            .any(|leader| leader.contact.authority.is_some());
        if !tells && now - rest.asked >= FOLLOWERS {
            rest.asked = now;
            return Some((rest.members.clone(), learners));
        }
        Some((leaders, learners))
    }

    /// When to look again at the latest, if the plan says `wanted`: the longer nothing changes, the later.
    pub(crate) fn after(&self, key: &Key, wanted: Duration) -> Duration {
        let all = self.all();
        let unchanged = all.get(key).map(|seen| seen.since.elapsed() / PART);
        wanted.max(unchanged.unwrap_or_default().min(LONGEST))
    }

    /// Forgets an ensemble that does not exist any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.all().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bellwether_ensemble::certificates::AuthorityName;
    use tokio::time::advance;

    use super::*;

    fn key() -> Key {
        ("default".to_owned(), "zk".to_owned())
    }

    fn inputs(ensemble: &str) -> Inputs {
        Inputs {
            ensemble: Some(ensemble.to_owned()),
            objects: Version::default(),
            answers: Vec::new(),
        }
    }

    /// In pods that an earlier operator version made.
    fn members() -> Vec<Resting> {
        members_of(None)
    }

    fn members_of(authority: Option<AuthorityName>) -> Vec<Resting> {
        let member = |last, role| Resting {
            contact: Contact {
                address: IpAddr::from([10, 0, 0, last]),
                authority: authority.clone(),
            },
            role,
            epoch: 1,
            credentials: Credentials::Current,
        };
        vec![
            member(1, MemberRole::Leader),
            member(2, MemberRole::Follower),
        ]
    }

    const SOON: Duration = Duration::from_millis(400);

    #[tokio::test(start_paused = true)]
    async fn the_longer_nothing_changes_the_later_is_the_next_look_and_a_change_is_followed_closely()
     {
        let pace = Pace::default();
        pace.look(&key(), inputs("1"));
        assert_eq!(pace.after(&key(), SOON), SOON);
        for (after, wait) in [(50, 5), (100, 10), (1000, 10)] {
            let pace = Pace::default();
            pace.look(&key(), inputs("1"));
            advance(Duration::from_secs(after)).await;
            pace.look(&key(), inputs("1"));
            assert_eq!(pace.after(&key(), SOON), Duration::from_secs(wait));
            pace.look(&key(), inputs("2"));
            assert_eq!(pace.after(&key(), SOON), SOON);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_under_way_is_read_afresh_and_an_ensemble_at_rest_is_not() {
        let pace = Pace::default();
        pace.look(&key(), inputs("1"));
        assert!(!pace.must_read(&key()));
        advance(UNREAD + SOON).await;
        assert!(pace.must_read(&key()));
        pace.reads(&key());
        assert!(!pace.must_read(&key()));
        pace.rests(&key(), members());
        advance(LONGEST_UNREAD * 2).await;
        assert!(!pace.must_read(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_failed_waits_for_its_time_or_for_a_change() {
        let pace = Pace::default();
        let failure = || pace.failed(&key()).map(|failed| failed.failure);
        let said = Some("refused".to_owned());
        let minute = Duration::from_secs(60);
        let fails = || {
            pace.look(&key(), inputs("1"));
            pace.fails(&key(), said.clone());
            assert!(
                pace.waits(&key(), minute) <= LONGEST,
                "it is looked at meanwhile"
            );
            pace.look(&key(), inputs("1"));
            assert_eq!(failure(), Some(said.clone()));
        };
        fails();
        advance(minute).await;
        assert_eq!(failure(), None);
        fails();
        pace.look(&key(), inputs("2"));
        assert_eq!(failure(), None);
        fails();
        pace.reads(&key());
        assert_eq!(failure(), None);
        assert_eq!(pace.waits(&key(), SOON), SOON);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ensemble_rests_until_something_changes_or_for_some_minutes() {
        let pace = Pace::default();
        let (same, other) = ("1".to_owned(), "2".to_owned());
        let version = Version::default();
        let rests = |ensemble: &String| pace.resting(&key(), Some(ensemble), &version).is_some();
        pace.look(&key(), inputs("1"));
        assert!(!rests(&same));
        pace.rests(&key(), members());
        assert!(rests(&same) && !rests(&other));
        advance(REST).await;
        assert!(!rests(&same));
        pace.rests(&key(), members());
        assert!(rests(&same));
        advance(LONGEST_REST * PART).await;
        assert!(!rests(&same));
        pace.rests(&key(), members());
        advance(LONGEST_REST / 2).await;
        assert!(rests(&same));
        advance(LONGEST_REST / 2).await;
        assert!(!rests(&same));
        pace.look(&key(), inputs("2"));
        assert!(!rests(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn at_rest_the_leader_is_asked_each_time_and_the_others_from_time_to_time() {
        let pace = Pace::default();
        let version = Version::default();
        let asked = || {
            let asked = pace.resting(&key(), Some(&"1".to_owned()), &version);
            asked.map(|(members, _)| members.len())
        };
        pace.look(&key(), inputs("1"));
        pace.rests(&key(), members());
        assert_eq!(asked(), Some(1));
        advance(FOLLOWERS).await;
        assert_eq!((asked(), asked()), (Some(2), Some(1)));
        advance(FOLLOWERS).await;
        assert_eq!(asked(), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_tells_of_its_learners_is_asked_alone() {
        let pace = Pace::default();
        let version = Version::default();
        let authority = AuthorityName {
            namespace: "default".to_owned(),
            ensemble: "zk".to_owned(),
            id: "1".to_owned(),
            other: None,
        };
        pace.look(&key(), inputs("1"));
        pace.rests(&key(), members_of(Some(authority)));
        advance(FOLLOWERS * 2).await;
        let (asked, learners) = pace
            .resting(&key(), Some(&"1".to_owned()), &version)
            .expect("it rests");
        assert_eq!(asked.len(), 1);
        assert_eq!((learners.followers, learners.observers), (1, 0));
    }
}
