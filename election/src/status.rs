//! From what the mirror sees, or that it does not see, to the status of a `LeaderElection`.

use bellwether_api::conditions::{NewCondition, merge_conditions};
use bellwether_api::election::{
    Candidate, ConditionType, DialectType, EndOfTerm, IdentitySource, LastActive, Leader,
    LeaderElectionSpec, LeaderElectionStatus, PreviousLeader, Reason, format_session,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};

use crate::decode::{Identity, presentable};
use crate::projection::{Projection, following, shown};
use crate::reading::{Candidacy, CandidateNode, RankedCandidate, Reading};
use crate::terms::Outlook;
use crate::words;

mod history;

/// What the mirror knows now.
#[derive(Clone, Debug, PartialEq)]
pub enum Sight {
    /// It sees the election.
    Seen(Box<Reading>),
    /// It does not.
    Blind(Blindness),
}

/// Why and since when the mirror does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blindness {
    /// Why, as a reason of the condition `Synced`.
    pub reason: Reason,
    /// A sentence that says what is the case.
    pub detail: String,
    /// Since when what was seen before is unconfirmed.
    pub since: Timestamp,
}

/// The status that says what the mirror knows, given what the object said before.
///
/// The result depends on nothing else, and it is equal to the old status if nothing changed: `now`
/// shows only where something did.
pub fn status(
    spec: &LeaderElectionSpec,
    generation: Option<i64>,
    sight: &Sight,
    old: Option<&LeaderElectionStatus>,
    now: Timestamp,
) -> LeaderElectionStatus {
    status_and_done(spec, generation, sight, Done::default(), old, now)
}

/// What is done about an election, where that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done<'d> {
    /// The outcome of its projections.
    pub projection: Option<&'d Projection>,
    /// The condition of its bridge.
    pub bridged: Option<&'d NewCondition>,
}

/// As [`status`], with what is done about the election. While that is unknown, what the old status reports of it stays.
pub fn status_and_done(
    spec: &LeaderElectionSpec,
    generation: Option<i64>,
    sight: &Sight,
    done: Done<'_>,
    old: Option<&LeaderElectionStatus>,
    now: Timestamp,
) -> LeaderElectionStatus {
    let projection = done.projection;
    let old = old.cloned().unwrap_or_default();
    let outlook = projection.and_then(|projection| projection.outlook.as_ref());
    let is_of_old = |outlook: &&Outlook| shown(&old).is_some_and(|old| outlook.is_of_leader(old));
    let cause = outlook.filter(is_of_old).and_then(|outlook| outlook.cause);
    let mut new = match sight {
        Sight::Seen(reading) => seen(reading, &old, cause, now),
        Sight::Blind(blindness) => blind(spec, generation, blindness, &old),
    };
    if let Some(last) = projection.and_then(|projection| projection.last.as_ref()) {
        history::settle(&mut new.history, last);
    }
    let now = whole_seconds(now);
    let conditions = match sight {
        Sight::Seen(reading) => {
            let flaps = flaps_until(&new).is_some_and(|until| now < until);
            words::seen(spec, reading, &new, (regressed(&new), flaps))
        }
        Sight::Blind(Blindness { reason, detail, .. }) => words::blind(spec, *reason, detail, &new),
    };
    new.observed_generation = generation;
    new.conditions = merge_conditions(&old.conditions, conditions, generation, now);
    if spec.is_acted_on() {
        tell_projection(&mut new, projection, &old, now);
    } else if let Some(leader) = &mut new.leader {
        leader.pod = None;
    }
    if spec.bridge.is_some() {
        new.conditions.extend(match done.bridged {
            Some(bridged) => {
                merge_conditions(&old.conditions, vec![bridged.clone()], generation, now)
            }
            None => kept(&old, generation, &[ConditionType::Bridged]),
        });
    }
    let ready = words::ready(spec.projections.is_some(), &new.conditions);
    let ready = merge_conditions(&old.conditions, vec![ready], generation, now);
    new.conditions.extend(ready);
    keep_zxid_if_nothing_else_changed(new, &old)
}

/// Until when an election with this status counts as one whose leader changes again and again; `None` if its leader does
/// not. [`status`] has to be computed again then.
pub fn flaps_until(status: &LeaderElectionStatus) -> Option<Timestamp> {
    history::flaps_until(&status.history)
}

/// What ended the last term of the leader with this node and token, as a status tells it.
pub fn end_of_term(
    status: &LeaderElectionStatus,
    node: &str,
    token: Option<&str>,
) -> Option<EndOfTerm> {
    let after = history::after(&status.history, node, token)?;
    status.history.get(after)?.cause
}

/// How soon consumers must learn what changed in a status. What comes first here is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Another leader, another pod of it, or that it acknowledged: at once.
    Leader,
    /// The mirror went blind or sees again, or projections do: at once, but after all leaders. All elections of an
    /// ensemble go blind at one time.
    Sight,
    /// Anything else: several changes within a short time may be told as one.
    Queue,
}

/// How soon consumers must learn what is different between two statuses.
pub fn urgency(old: Option<&LeaderElectionStatus>, new: &LeaderElectionStatus) -> Urgency {
    let Some(old) = old else {
        return Urgency::Leader;
    };
    let is_ready = |status: &LeaderElectionStatus| {
        let ready = |condition: &&Condition| condition.type_ == ConditionType::Ready.as_str();
        let ready = status.conditions.iter().find(ready);
        ready.map(|condition| condition.status.clone())
    };
    if old.leader != new.leader {
        Urgency::Leader
    } else if old.stale_since.is_some() != new.stale_since.is_some()
        || is_ready(old) != is_ready(new)
    {
        Urgency::Sight
    } else {
        Urgency::Queue
    }
}

/// The status of a mirror that sees. `cause` is what would end the old leader's term, if that is known.
fn seen(
    reading: &Reading,
    old: &LeaderElectionStatus,
    cause: Option<EndOfTerm>,
    exact: Timestamp,
) -> LeaderElectionStatus {
    let now = whole_seconds(exact);
    let dialect = reading.dialect.map(DialectType::as_str);
    let fresh = LeaderElectionStatus::default();
    // Another dialect makes another election of the same znodes: nothing about leaders carries over. A
    // dialect that is not detected yet does not count as another one.
    let same = dialect.is_none() || old.dialect.as_deref() == dialect;
    let old = if old.dialect.is_none() || same {
        old
    } else {
        &fresh
    };
    let addresses = Addresses { reading, old };
    let leader = reading.leader().map(|candidate| {
        let new = Leader {
            client_address: addresses.address_of(candidate),
            ..leader(candidate, reading.acknowledged)
        };
        match old.leader.as_ref() {
            Some(old) if goes_on(old, &new, candidate) => Leader {
                fencing_token: old.fencing_token.clone(),
                acquire_time: old.acquire_time.clone(),
                ..new
            },
            Some(old) if same_term(&previous(old), &new) => Leader {
                acquire_time: old.acquire_time.clone().or(new.acquire_time),
                ..new
            },
            _ => Leader {
                acquire_time: acquired(new.acquire_time, old, exact),
                ..new
            },
        }
    });
    let mut new = LeaderElectionStatus {
        dialect: dialect.map(str::to_owned),
        exclusivity: Some(reading.exclusivity),
        candidates: (0..)
            .zip(&reading.candidates)
            .map(|(at, candidate)| Candidate {
                client_address: addresses.address_of(candidate),
                ..listed_candidate(at, candidate)
            })
            .map(|candidate| renewed(candidate, leader.as_ref(), old))
            .collect(),
        candidate_count: bounded(reading.candidate_count),
        unmatched_children: bounded(reading.unmatched),
        last_active: reading.last_active.as_ref().map(|candidacy| LastActive {
            identity: candidacy.identity.text.clone(),
            address: candidacy.identity.address.clone(),
            zxid: candidacy.token.to_string(),
        }),
        observed_zxid: Some(reading.zxid.to_string()),
        stale_since: None,
        ..old.clone()
    };
    let before = old.leader.as_ref().map(previous);
    let known = before.clone().or_else(|| old.previous_leader.clone());
    match &leader {
        Some(leader) if known.as_ref().is_some_and(|known| same_term(known, leader)) => {
            // The same node, so the same term. New data in it is the same client under another name,
            // unless the node outlives sessions and stands in a queue: then it may be another client.
            let renamed = leader.session_id.is_none()
                && known.is_some_and(|known| known.identity != leader.identity);
            new.leader_transitions = old.leader_transitions.saturating_add(i32::from(renamed));
            if old.leader.is_none() {
                new.previous_leader = history::before(&old.history, leader);
            }
        }
        Some(leader) => {
            let another = known
                .as_ref()
                .is_some_and(|known| known.identity != leader.identity);
            new.leader_transitions = old.leader_transitions.saturating_add(i32::from(another));
            new.terms = old.terms.saturating_add(1);
            new.previous_leader = known;
            new.last_transition_time = Some(Time(now));
        }
        None if old.leader.is_some() => {
            new.previous_leader = before;
            new.last_transition_time = Some(Time(now));
        }
        None => {}
    }
    let token = leader
        .as_ref()
        .and_then(|leader| number(leader.fencing_token.as_deref()));
    new.max_fencing_token = token
        .max(number(old.max_fencing_token.as_deref()))
        .map(|token| token.to_string());
    let same = |known: &Leader| {
        leader
            .as_ref()
            .is_some_and(|leader| same_term(&previous(known), leader))
    };
    let counted = old
        .watchers
        .filter(|_| old.leader.as_ref().is_some_and(same));
    new.watchers = reading.watchers.map(bounded).or(counted);
    new.history = history::recorded(new.history, leader.as_ref(), cause, now);
    new.leader = leader;
    new
}

/// Adds the outcome of the projections, or what the old status reports of them. Either counts only where it is about the
/// leader that is shown: of another one, that it is not projected yet.
fn tell_projection(
    new: &mut LeaderElectionStatus,
    projection: Option<&Projection>,
    old: &LeaderElectionStatus,
    now: Timestamp,
) {
    let generation = new.observed_generation;
    let is_same = match projection {
        Some(projection) => projection.is_of(shown(new)),
        None => is_same_node(shown(old), shown(new)),
    };
    let known: Vec<Condition> = match projection {
        Some(projection) => {
            let conditions = projection.conditions.clone();
            merge_conditions(&old.conditions, conditions, generation, now)
        }
        None => kept(
            old,
            generation,
            &[
                ConditionType::LeaderBound,
                ConditionType::Projected,
                ConditionType::RolledOut,
                ConditionType::HandedOver,
                ConditionType::SoleLeader,
            ],
        ),
    };
    if !is_same {
        // What failed for the leader before fails for this one, as far as anybody knows. A rollout and a handover go on.
        let stays = |condition: &Condition| {
            condition.status == "False" && condition.type_ == ConditionType::Projected.as_str()
                || condition.type_ == ConditionType::RolledOut.as_str()
                || condition.type_ == ConditionType::HandedOver.as_str()
        };
        let (staying, known): (Vec<_>, Vec<_>) = known.into_iter().partition(stays);
        let types = known.iter().map(|condition| condition.type_.as_str());
        let following = following(types, shown(new));
        let following = merge_conditions(&old.conditions, following, generation, now);
        new.conditions.extend(following.into_iter().chain(staying));
        return;
    }
    new.conditions.extend(known);
    if let Some(leader) = &mut new.leader {
        leader.pod = match projection {
            Some(projection) => projection.pod.clone(),
            None => old.leader.as_ref().and_then(|old| old.pod.clone()),
        };
    }
}

/// The conditions of these types that the old status reports of this generation.
fn kept(
    old: &LeaderElectionStatus,
    generation: Option<i64>,
    types: &[ConditionType],
) -> Vec<Condition> {
    let is_one = |condition: &&Condition| {
        types.iter().any(|type_| type_.as_str() == condition.type_)
            && condition.observed_generation == generation
    };
    old.conditions.iter().filter(is_one).cloned().collect()
}

/// Whether two leaders have the same node, created once, or nobody leads in both cases.
fn is_same_node(one: Option<&Leader>, other: Option<&Leader>) -> bool {
    let id = |leader: &Leader| (leader.node.clone(), leader.fencing_token.clone());
    one.map(id) == other.map(id)
}

/// The status of a blind mirror: what it saw before stays, unconfirmed.
fn blind(
    spec: &LeaderElectionSpec,
    generation: Option<i64>,
    blindness: &Blindness,
    old: &LeaderElectionStatus,
) -> LeaderElectionStatus {
    let since = Time(whole_seconds(blindness.since));
    // A dialect that an earlier spec named or let detect must not appear as that of this spec.
    let outdated = spec.dialect.type_ == DialectType::Auto && old.observed_generation != generation;
    LeaderElectionStatus {
        dialect: old.dialect.clone().filter(|_| !outdated),
        stale_since: Some(old.stale_since.clone().unwrap_or(since)),
        ..old.clone()
    }
}

/// A transaction that changed nothing that the status shows is not worth a write.
fn keep_zxid_if_nothing_else_changed(
    mut new: LeaderElectionStatus,
    old: &LeaderElectionStatus,
) -> LeaderElectionStatus {
    let zxid = std::mem::replace(&mut new.observed_zxid, old.observed_zxid.clone());
    if new != *old {
        new.observed_zxid = zxid;
    }
    new
}

/// The longest name of a node that the status shows as it is, in bytes.
const MAX_NAME: usize = 255;

/// A name as it is, unless it is so long that statuses of a few of them would be too large to store:
/// ZooKeeper takes names of a megabyte.
fn bounded_name(name: &str) -> String {
    if name.len() > MAX_NAME {
        presentable(name)
    } else {
        name.to_owned()
    }
}

fn leader(candidate: &RankedCandidate, acknowledged: Option<bool>) -> Leader {
    let (identity, candidacy) = facts(candidate);
    Leader {
        identity: identity.text,
        identity_source: identity.source,
        node: bounded_name(&candidate.node),
        session_id: session(candidate),
        acquire_time: candidacy
            .and_then(|candidacy| candidacy.owned)
            .map(MicroTime),
        address: identity.address,
        epoch: identity.epoch,
        fencing_token: candidacy.map(|candidacy| candidacy.token.to_string()),
        acknowledged,
        pod: None,
        client_address: None,
    }
}

/// From where the sessions of anonymous candidates are connected: as the servers say, or, until they
/// have been asked again, as the status said before.
struct Addresses<'a> {
    reading: &'a Reading,
    old: &'a LeaderElectionStatus,
}

impl Addresses<'_> {
    fn address_of(&self, candidate: &RankedCandidate) -> Option<String> {
        let candidacy = candidate.znode.candidacy()?;
        if candidacy.identity.source != IdentitySource::Session {
            return None;
        }
        if let Some(address) = self.reading.addresses.get(&candidacy.session) {
            return Some(address.to_string());
        }
        let session = session(candidate);
        let leader = self
            .old
            .leader
            .iter()
            .map(|l| (&l.session_id, &l.client_address));
        let waiting = self
            .old
            .candidates
            .iter()
            .map(|c| (&c.session_id, &c.client_address));
        let mut known = leader.chain(waiting).filter(|(id, _)| **id == session);
        known.find_map(|(_, address)| address.clone())
    }
}

fn listed_candidate(position: i32, candidate: &RankedCandidate) -> Candidate {
    let (identity, candidacy) = facts(candidate);
    Candidate {
        node: bounded_name(&candidate.node),
        position,
        sequence: candidate.sequence,
        identity: identity.text,
        address: identity.address,
        session_id: session(candidate),
        create_time: candidacy
            .and_then(|candidacy| candidacy.created)
            .map(MicroTime),
        czxid: candidacy.map(|candidacy| candidacy.czxid.to_string()),
        client_address: None,
    }
}

fn facts(candidate: &RankedCandidate) -> (Identity, Option<&Candidacy>) {
    match &candidate.znode {
        CandidateNode::Read(candidacy) => (candidacy.identity.clone(), Some(candidacy)),
        CandidateNode::Hidden => (Identity::of_node(&candidate.node), None),
    }
}

/// The session that owns a node, or, if the node may not be read, the session in its name.
fn session(candidate: &RankedCandidate) -> Option<String> {
    let session = match &candidate.znode {
        CandidateNode::Read(candidacy) => Some(candidacy.session).filter(|session| *session != 0),
        CandidateNode::Hidden => candidate.named_session,
    };
    session.map(format_session)
}

fn previous(leader: &Leader) -> PreviousLeader {
    PreviousLeader {
        identity: leader.identity.clone(),
        node: leader.node.clone(),
        fencing_token: leader.fencing_token.clone(),
    }
}

/// When a leader that was not seen to lead before began to lead: when it made its node, or, if it waited in a queue, when
/// the mirror noticed that its turn had come. After a time without sight, that is when sight was lost, or later.
fn acquired(
    made: Option<MicroTime>,
    old: &LeaderElectionStatus,
    now: Timestamp,
) -> Option<MicroTime> {
    if old.observed_zxid.is_none() {
        // It may have led for long when the mirror began to look.
        return made;
    }
    let since = old.stale_since.as_ref().map_or(now, |since| since.0);
    made.max(Some(MicroTime(whole_micros(since))))
}

/// Whether a leader is in the term that is already known: the same node, created once. If an ACL hides one of
/// the tokens, the name alone decides.
fn same_term(known: &PreviousLeader, leader: &Leader) -> bool {
    known.node == leader.node
        && match (&known.fencing_token, &leader.fencing_token) {
            (Some(known), Some(token)) => known == token,
            _ => true,
        }
}

/// Whether a leader whose node does not belong to a session keeps leading although its token is larger now:
/// the same client wrote its node again, or renewed a lease by deleting and creating its node while the lease
/// ran. Such a term keeps the token that it began with.
fn goes_on(old: &Leader, leader: &Leader, candidate: &RankedCandidate) -> bool {
    let Some(candidacy) = candidate.znode.candidacy() else {
        return false;
    };
    let lasts = old.session_id.is_none() && leader.session_id.is_none();
    let token = number(old.fencing_token.as_deref());
    let is_same_node =
        token.is_some_and(|token| candidacy.czxid <= token && token <= candidacy.token);
    let is_renewed =
        candidacy.expires.is_some() && token.is_some_and(|token| token <= candidacy.token);
    lasts
        && old.node == leader.node
        && old.identity == leader.identity
        && (is_same_node || is_renewed)
}

/// The candidate as it was before, if it is the leader and only renewed its term with a new node.
fn renewed(new: Candidate, leader: Option<&Leader>, old: &LeaderElectionStatus) -> Candidate {
    let token = |leader: Option<&Leader>| leader.map(|leader| leader.fencing_token.clone());
    let goes_on = leader.is_some_and(|leader| leader.node == new.node)
        && token(leader) == token(old.leader.as_ref());
    let known = old.candidates.iter().find(|known| known.node == new.node);
    match known.filter(|known| goes_on && known.identity == new.identity) {
        Some(known) => Candidate {
            czxid: known.czxid.clone(),
            create_time: known.create_time.clone(),
            ..new
        },
        None => new,
    }
}

/// Whether a consumer that compares tokens would take this leader for an earlier one: its token is
/// smaller than one that was seen, or the one of the leader before.
fn regressed(status: &LeaderElectionStatus) -> bool {
    let Some(leader) = &status.leader else {
        return false;
    };
    let Some(token) = number(leader.fencing_token.as_deref()) else {
        return false;
    };
    let before = status.previous_leader.as_ref();
    let shared = before.is_some_and(|before| {
        number(before.fencing_token.as_deref()) == Some(token)
            && (before.identity != leader.identity || before.node != leader.node)
    });
    shared || Some(token) < number(status.max_fencing_token.as_deref())
}

fn number(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

fn bounded(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Kubernetes stores exact times in whole microseconds.
fn whole_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// Kubernetes stores times in whole seconds; a finer one would differ from what is read back.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
