//! What ZooKeeper's servers do among themselves.
//!
//! Each server judges by its own list: who may lead, what a majority is, whose acknowledgements
//! count (`FastLeaderElection`, `Leader.getEpochToPropose`, `Leader.tryToCommit`).

use crate::state::{Disk, MAX, Process, State, bit, holds_majority, members, ordinals};

/// The order of votes: newest epoch, newest transaction, highest server id.
fn vote(state: &State, ordinal: usize) -> Option<((u8, bool), usize)> {
    state.disks[ordinal].vote().map(|v| (v, ordinal))
}

fn list(state: &State, ordinal: usize) -> u8 {
    state.pods[ordinal].map_or(0, |p| p.template.list)
}

fn names(state: &State, voter: usize, candidate: usize) -> bool {
    members(list(state, voter)) & bit(candidate) != 0
}

/// The looking servers that may support a candidate: they have a vote, they name it, and have
/// nothing newer.
fn supporters(state: &State, candidate: usize) -> u8 {
    let best = vote(state, candidate);
    ordinals(state.looking())
        .filter(|o| vote(state, *o).is_some() && vote(state, *o) <= best)
        // An observer has no vote.
        .filter(|o| names(state, *o, candidate) && names(state, *o, *o))
        .map(bit)
        .fold(0, |a, b| a | b)
}

/// Every election that can succeed now: the leader and the servers that follow it from the start.
///
/// More than really can: any majority of supporters may be quicker than the others, and each server
/// may have heard of any supporter. Harm that is not found here cannot happen.
pub fn possible_elections(state: &State) -> Vec<(usize, u8)> {
    let looking = state.looking();
    let mut all = Vec::new();
    for leader in ordinals(looking) {
        if vote(state, leader).is_none() || !names(state, leader, leader) {
            continue;
        }
        let supporters = supporters(state, leader);
        // Each follower decides by its own list.
        let decided = ordinals(supporters)
            .filter(|o| holds_majority(supporters, list(state, *o)))
            .map(bit)
            .fold(0, |a, b| a | b);
        if decided & bit(leader) == 0 || !holds_majority(decided, list(state, leader)) {
            continue;
        }
        let own = decided & members(list(state, leader));
        let needed = u32::from(list(state, leader)) / 2 + 1;
        for quorum in 0..=u8::MAX {
            let smallest =
                quorum & !own == 0 && quorum & bit(leader) != 0 && quorum.count_ones() == needed;
            if smallest {
                all.push((leader, quorum));
            }
        }
        if decided.count_ones() > needed {
            all.push((leader, decided));
        }
    }
    all
}

/// The election that servers which all hear each other would hold; `None` if it does not come to
/// an end, which happens when lists differ.
pub fn ordinary_election(state: &State) -> Option<(usize, u8)> {
    let looking = state.looking();
    let choice = |voter: usize| {
        ordinals(looking)
            .filter(|o| names(state, voter, *o) && vote(state, *o).is_some())
            .max_by_key(|o| vote(state, *o))
    };
    let voters = ordinals(looking).filter(|o| names(state, *o, *o) && vote(state, *o).is_some());
    let choices: Vec<(usize, Option<usize>)> = voters.map(|o| (o, choice(o))).collect();
    ordinals(looking).find_map(|leader| {
        let support = choices
            .iter()
            .filter(|(_, c)| *c == Some(leader))
            .fold(0, |a, (o, _)| a | bit(*o));
        let decided = ordinals(support)
            .filter(|o| holds_majority(support, list(state, *o)))
            .map(bit)
            .fold(0, |a, b| a | b);
        (decided & bit(leader) != 0 && holds_majority(decided, list(state, leader)))
            .then_some((leader, decided))
    })
}

/// Carries out an election. The leader's epoch is newer than every epoch that its quorum knows;
/// here newer than all, which only makes harm easier to see.
pub fn elect(state: &mut State, leader: usize, quorum: u8) {
    let newest = (0..MAX)
        .filter_map(|o| state.disks[o].vote().map(|v| v.0))
        .max()
        .unwrap_or(0);
    let write = matches!(state.disks[leader], Disk::Data { write: true, .. });
    if state.acknowledged && !write {
        state.harm.write_lost = true;
    }
    for ordinal in ordinals(quorum) {
        serve(state, ordinal, leader);
        state.disks[ordinal] = Disk::Data {
            epoch: newest + 1,
            write,
        };
    }
}

/// The leaders that a looking server can join: it names the leader, and a majority of its own list,
/// itself not counted, follows that leader already (`receivedFollowingNotification`). A server that
/// its own list does not name is an observer and needs no more than a leader that it names.
pub fn joinable(state: &State, ordinal: usize) -> impl Iterator<Item = usize> + '_ {
    ordinals(state.leaders()).filter(move |leader| {
        let others = state.followers(*leader) & !bit(ordinal);
        // A follower refuses a leader of an older epoch than it has promised.
        let newer =
            state.disks[ordinal].vote().map(|v| v.0) <= state.disks[*leader].vote().map(|v| v.0);
        newer && names(state, ordinal, *leader) && holds_majority(others, list(state, ordinal))
    })
}

/// A looking server joins a leader and copies its data.
pub fn join(state: &mut State, ordinal: usize, leader: usize) {
    serve(state, ordinal, leader);
    state.disks[ordinal] = state.disks[leader];
}

fn serve(state: &mut State, ordinal: usize, leader: usize) {
    if let Some(pod) = &mut state.pods[ordinal] {
        pod.process = Process::Serving {
            leader: u8::try_from(leader).unwrap_or(u8::MAX),
        };
    }
}

/// The smallest sets of servers whose acknowledgement lets this leader commit a write.
pub fn commit_quorums(state: &State, leader: usize) -> impl Iterator<Item = u8> + '_ {
    let voters = state.followers(leader) & members(list(state, leader));
    let needed = u32::from(list(state, leader)) / 2 + 1;
    (0..=u8::MAX)
        .filter(move |q| q & !voters == 0 && q & bit(leader) != 0 && q.count_ones() == needed)
}

/// Writes the followed write to these servers and acknowledges it.
pub fn commit(state: &mut State, quorum: u8) {
    for ordinal in ordinals(quorum) {
        if let Disk::Data { write, .. } = &mut state.disks[ordinal] {
            *write = true;
        }
    }
    state.acknowledged = true;
}

/// Followers that lost their leader look again, and so does a leader without a majority of its own
/// list. The model gives this no time, which hides nothing: such a leader cannot commit.
pub fn notice_losses(state: &mut State) {
    loop {
        let lost = (0..MAX).find(|o| match state.leader_of(*o) {
            None => false,
            Some(leader) if leader == *o => !holds_majority(state.followers(*o), list(state, *o)),
            Some(leader) => !state.leads(leader),
        });
        let Some(ordinal) = lost else { return };
        if let Some(pod) = &mut state.pods[ordinal] {
            pod.process = Process::Looking { long: false };
        }
    }
}
