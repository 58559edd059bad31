//! The one place that knows what a majority is.
//!
//! Each ZooKeeper server judges quorums by the server list in its own file: its leader's election,
//! epoch promise and commits all need a majority of *that* list. Two lists may therefore be live
//! together only if every majority of one meets every majority of the other; then a new leader's
//! quorum always holds a server that acknowledged every earlier commit, and at most one leader can
//! commit (ZooKeeper's `FastLeaderElection`, `Leader.getEpochToPropose`, `Leader.tryToCommit`).
//!
//! For majorities of sets this is `|A|/2 + 1 + |B|/2 + 1 > |A ∪ B|`. One server more or less is
//! always safe; two more is not for odd sizes: {1,2} of {1,2,3} and {3,4,5} of {1..5} do not meet,
//! and real servers then elect two leaders without any network fault.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ServerId, Voters};

pub mod reconfiguration;

/// The number of votes that decide in `voters`.
pub fn majority(voters: &Voters) -> usize {
    voters.len() / 2 + 1
}

/// Whether `servers` hold a majority of `voters`. Servers that are not voters do not count.
pub fn holds_majority(servers: &Voters, voters: &Voters) -> bool {
    !voters.is_empty() && servers.intersection(voters).len() >= majority(voters)
}

/// Whether every majority of `a` meets every majority of `b`.
pub fn every_majority_meets(a: &Voters, b: &Voters) -> bool {
    !a.is_empty() && !b.is_empty() && majority(a) + majority(b) > a.union(b).len()
}

/// Whether these lists may be live together: at most two, and every majority of each meets every majority
/// of the other.
pub fn may_live_together<'a>(lists: impl IntoIterator<Item = &'a Voters>) -> bool {
    let lists: BTreeSet<&Voters> = lists.into_iter().collect();
    let meet = |a: &Voters| lists.iter().all(|b| every_majority_meets(a, b));
    lists.len() <= 2 && lists.iter().all(|a| meet(a))
}

/// Whether an ensemble may be started again with this list. `acknowledged` are the lists under which writes may
/// have been acknowledged; `volumes` are the servers whose volumes exist.
///
/// Every leader of the new list then had the vote of a server that has every acknowledged write, even if other
/// volumes return later.
pub fn may_start<'a>(
    list: &Voters,
    volumes: &Voters,
    acknowledged: impl IntoIterator<Item = &'a Voters>,
) -> bool {
    let mut acknowledged = acknowledged.into_iter();
    holds_majority(volumes, list) && acknowledged.all(|other| every_majority_meets(other, list))
}

/// Why a configuration must not become live.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeVoters {
    /// Three different server lists would be live at once.
    #[error("the server lists {0} are live already; a third one, {1}, must wait")]
    ThirdSet(String, Voters),
    /// Two lists that do not always share a voter would be live at once.
    #[error("a majority of {0} and a majority of {1} need not share a server")]
    Disjoint(Voters, Voters),
}

/// Whether the voters `new` may become live beside `live`: at most two sets in all, and every
/// majority of each meets every majority of the other.
///
/// # Errors
/// The first rule that it would break.
pub fn may_become_live<'a>(
    live: impl IntoIterator<Item = &'a Voters>,
    new: &Voters,
) -> Result<(), UnsafeVoters> {
    let mut sets: Vec<&Voters> = live.into_iter().collect();
    sets.sort();
    sets.dedup();
    for old in &sets {
        if !every_majority_meets(old, new) {
            return Err(UnsafeVoters::Disjoint((*old).clone(), new.clone()));
        }
    }
    if !sets.contains(&new) && sets.len() > 1 {
        let names: Vec<String> = sets.iter().map(|s| format!("{{{s}}}")).collect();
        return Err(UnsafeVoters::ThirdSet(names.join(" and "), new.clone()));
    }
    Ok(())
}

/// Why a member must not be restarted now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeRestart {
    /// It is in a quorum.
    #[error("server {0} serves")]
    Serves(ServerId),
    /// It is no observer.
    #[error("server {0} votes")]
    Votes(ServerId),
    /// Too few of the members that stay serve.
    #[error(
        "without it only {} of {voters} would serve, and {needed} are needed",
        servers(serving)
    )]
    NoMajority {
        /// The serving voters that would stay.
        serving: Voters,
        /// The server list whose majority would be lost.
        voters: Voters,
        /// Its majority.
        needed: usize,
    },
}

/// The servers in words.
pub fn servers(ids: &Voters) -> String {
    match ids.len() {
        0 => "no server".to_owned(),
        1 => format!("server {ids}"),
        _ => format!("servers {ids}"),
    }
}

fn serve(ids: &Voters) -> String {
    let verb = if ids.len() > 1 { "serve" } else { "serves" };
    format!("{} {verb}", servers(ids))
}

/// Whether `member`, which serves, may be restarted while the other serving members stay.
///
/// The members that stay must serve a majority of every live server list. `able` are the members that
/// serve or may come to serve again. Where they are too few to keep a majority through any restart,
/// as with a list of one or two servers, it is enough that every other one of them answers: the
/// interruption cannot be avoided, and it is short.
///
/// # Errors
/// The list that would lose its majority.
pub fn may_restart<'a>(
    member: ServerId,
    serving: &Voters,
    answering: &Voters,
    able: &Voters,
    live: impl IntoIterator<Item = &'a Voters>,
) -> Result<(), UnsafeRestart> {
    let alone = Voters::from_iter([member]);
    let staying = serving.difference(&alone);
    for voters in live {
        let others = voters.difference(&alone).intersection(able);
        let unavoidable = !holds_majority(&others, voters);
        let enough = if unavoidable {
            others.difference(answering).is_empty()
        } else {
            holds_majority(&staying, voters)
        };
        if !enough {
            return Err(UnsafeRestart::NoMajority {
                serving: staying.intersection(voters),
                voters: voters.clone(),
                needed: majority(voters),
            });
        }
    }
    Ok(())
}

/// Whether a member that takes part in no quorum may be restarted: none of those that serve needs it.
///
/// # Errors
/// When it serves.
pub fn may_restart_idle(member: ServerId, serving: &Voters) -> Result<(), UnsafeRestart> {
    if serving.contains(member) {
        return Err(UnsafeRestart::Serves(member));
    }
    Ok(())
}

/// Why the volume of a member must not be given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeReplacement {
    /// Nobody is known to have every acknowledged write.
    #[error("no one member leads, so none is known to have every acknowledged write")]
    NoLeader,
    /// The others may need it.
    #[error("too few of the other servers of {0} serve, so its data may be needed")]
    Needed(Voters),
}

/// Whether a member that is known not to run may be replaced by one with an empty volume: one leads, and without it a majority of
/// every live list follows. The leader has every acknowledged write, and a majority has them from it.
///
/// # Errors
/// The first reason against it.
pub fn may_replace<'a>(
    member: ServerId,
    serving: &Voters,
    leader: Option<ServerId>,
    live: impl IntoIterator<Item = &'a Voters>,
) -> Result<(), UnsafeReplacement> {
    if leader.is_none() {
        return Err(UnsafeReplacement::NoLeader);
    }
    let others = serving.difference(&Voters::from_iter([member]));
    let mut live = live.into_iter();
    match live.find(|list| !holds_majority(&others, list)) {
        Some(list) => Err(UnsafeReplacement::Needed(list.clone())),
        None => Ok(()),
    }
}

/// Whether an observer may be restarted: no live list names it, so it is in no quorum.
///
/// # Errors
/// When it is a voter.
pub fn may_restart_observer<'a>(
    observer: ServerId,
    live: impl IntoIterator<Item = &'a Voters>,
) -> Result<(), UnsafeRestart> {
    if live.into_iter().any(|voters| voters.contains(observer)) {
        return Err(UnsafeRestart::Votes(observer));
    }
    Ok(())
}

/// Whether the leader may be restarted although no majority is kept, because the new list does not name it:
/// members that run the new list cannot follow it, and would look for ever. A server that can only lead with
/// all others of its list may not: it would be elected again.
pub fn may_step_down(leader: ServerId, own: &Voters, new: &Voters) -> bool {
    !new.contains(leader) && !never_joins(leader, own)
}

/// Whether `next` may be restarted although no majority is kept: together with `stuck`, the members that run
/// the new list and cannot join a leader, it is a majority of that list, so they can elect a leader without the
/// others. It is safe because live lists always share a voter; waiting would never end.
pub fn may_roll_forward(next: ServerId, stuck: &Voters, new: &Voters) -> bool {
    let together = stuck.union(&Voters::from_iter([next]));
    !stuck.is_empty() && holds_majority(&together, new)
}

/// Whether the looking members can elect one of them without a restart: those that run one of the live lists
/// are a majority of it. `looking` are these members with their lists.
pub fn can_elect<'a>(looking: impl IntoIterator<Item = (ServerId, &'a Voters)>) -> bool {
    let mut by_list: BTreeMap<&Voters, Voters> = BTreeMap::new();
    for (id, list) in looking {
        let members = by_list.entry(list).or_default();
        *members = members.union(&Voters::from_iter([id]));
    }
    by_list.iter().any(|(list, all)| holds_majority(all, list))
}

/// Whether a server that judges by `own` can join the leader that the servers in `serving` follow.
///
/// A looking server follows an established leader only when the leader is in its list and a
/// majority of its list, itself not counted, already serves
/// (`FastLeaderElection.receivedFollowingNotification`). Where that is impossible, waiting would never end, and
/// the roll has to continue instead.
pub fn can_join(id: ServerId, own: &Voters, serving: &Voters, leader: Option<ServerId>) -> bool {
    let others = serving.difference(&Voters::from_iter([id]));
    leader.is_some_and(|l| own.contains(l)) && holds_majority(&others, own)
}

/// Whether a server that judges by `own` can join no leader at all: the others in its list are no majority of
/// it, as in a list of two, whose servers can only elect a leader together.
pub fn never_joins(id: ServerId, own: &Voters) -> bool {
    !holds_majority(&own.difference(&Voters::from_iter([id])), own)
}

/// Whether members of an ensemble that starts for the first time may still begin with an empty disk and a
/// vote: none of them reports to the operator that it serves, and none is `ready`, which means that its server
/// reported so to the readiness probe. Once the ensemble has served, an empty disk is a lost disk.
pub fn may_start_empty(serving: &Voters, ready: &Voters) -> bool {
    serving.is_empty() && ready.is_empty()
}

/// What has to be known of an ensemble before the volume of a member that left is deleted.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// The server lists of every pod and of the pod template.
    pub live: &'a BTreeSet<&'a Voters>,
    /// The server lists on the volume claims, from which the ensemble would be started again.
    pub recorded: &'a BTreeSet<&'a Voters>,
    /// The server list that the user wants.
    pub wanted: &'a Voters,
    /// The server list of the pod template.
    pub template: &'a Voters,
    /// The voters that serve.
    pub serving: &'a Voters,
    /// Whether the last step is finished on every voter, and one leads.
    pub finished: bool,
}

/// Why a volume must not be deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeDeletion {
    /// Its data may be needed.
    #[error("server {0} is in the server list {1}")]
    Listed(ServerId, Voters),
    /// Its pod exists or is wanted.
    #[error("the pod of server {0} exists or is wanted")]
    InUse(ServerId),
    /// Something else comes first.
    #[error("the ensemble is not at rest with the members that the spec asks for")]
    Unfinished,
    /// A member that stays does not serve, so its data is not known to be complete.
    #[error("all of the servers {1} have to serve, and {serving} now", serving = serve(.0))]
    NotServing(Voters, Voters),
}

/// Whether the volume of a member or observer may be deleted because it left: no server list that is
/// live, wanted or recorded names it, no pod uses it, and every member that stays serves, so each of them
/// has every acknowledged write.
///
/// # Errors
/// The first reason against it.
pub fn may_delete_volume(
    id: ServerId,
    in_use: bool,
    ensemble: &Departure<'_>,
) -> Result<(), UnsafeDeletion> {
    if in_use {
        return Err(UnsafeDeletion::InUse(id));
    }
    let live = ensemble.live.iter().chain(ensemble.recorded).copied();
    let mut lists = live.chain([ensemble.wanted, ensemble.template]);
    if let Some(list) = lists.find(|list| list.contains(id)) {
        return Err(UnsafeDeletion::Listed(id, list.clone()));
    }
    if !ensemble.finished || ensemble.wanted != ensemble.template {
        return Err(UnsafeDeletion::Unfinished);
    }
    let (template, serving) = (ensemble.template, ensemble.serving);
    if !template.difference(serving).is_empty() {
        return Err(UnsafeDeletion::NotServing(
            serving.clone(),
            template.clone(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod rule_tests;

#[cfg(test)]
mod tests;
