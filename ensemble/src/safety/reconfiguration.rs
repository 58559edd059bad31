//! What must hold while an ensemble changes its members at run time (ZooKeeper's `reconfig`).
//!
//! A reconfiguration is a transaction in the log. It is committed by a majority of the list before it *and* a majority
//! of the list that it makes, and so is every later transaction until then (`Leader.propose`, `Leader.tryToCommit`). A server that has
//! stored it and does not know it as committed needs a majority of both lists to be elected
//! (`QuorumPeer.getLastSeenQuorumVerifier`, `FastLeaderElection.getVoteTracker`). So the two lists need only the leader in common, and any number
//! of members may come and go at once: no intermediate sizes, even or odd. What the operator has to see to is the rest:
//!
//! 1. **A newcomer names itself and the members, and no other newcomer**, in the file that it starts with. Two newcomers that name
//!    each other as voters may elect one of them, without any data.
//! 2. **The outcome is known before anybody is removed.** A caller that loses its connection, or reads an error, knows nothing
//!    (`KeeperException.ReconfigInProgress`, `NewConfigNoQuorum`, `ConnectionLoss`). Servers that stored a list that is not committed
//!    serve again only with a majority of it, so a newcomer that was removed meanwhile stops them for ever
//!    (ZooKeeper's test `ReconfigRecoveryTest.testNextConfigUnreachable`); and members that have not learned of a commit need those who leave.
//!    A request may also arrive late: the caller that made it may be gone, and the leader busy. So before newcomers are removed that were
//!    asked for, **the present list is asked for again**: it gets another version, on which the earlier request does not depend.
//! 3. **A server starts from the files that it had**, never from a list in a pod template: one that has forgotten the list that it stored
//!    votes by an older one, of which a majority need not know of what was acknowledged since.
//!    The exception is a member that has left and comes back: its volume may not know of that, least of all an old copy of it. It begins
//!    with the later list, which does not name it, and itself.
//! 4. **The leader leaves last, and not as the leader.** ZooKeeper hands over to another server when its leader leaves, which takes a second and a
//!    half without a write where the restart of a leader takes less than half a second. While other leavers vote, a restart may elect one of them. So
//!    they leave first, and the members that stay elect one of themselves. One member that stays cannot do that: only there ZooKeeper hands over.

use std::collections::BTreeMap;

use super::holds_majority;
use crate::ids::{ServerId, Voters};

/// What a server says of the list by which it judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The version of the list that it knows as committed: the zxid of the transaction that made it.
    pub version: u64,
    /// The voters of that list.
    pub voters: Voters,
    /// The version of a later list that it has stored and does not know as committed.
    pub pending: Option<u64>,
    /// Whether it leads, or follows the leader.
    pub serves: bool,
}

/// What is known of the lists: the leader, and what each server says that answers.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    /// The one server that says that it leads.
    pub leader: Option<ServerId>,
    /// The epoch that it leads in.
    pub epoch: u64,
    /// What those say that answer.
    pub held: &'a BTreeMap<ServerId, Held>,
}

/// Why the list of the ensemble is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsettled {
    /// Nobody leads, or several say so.
    #[error("no one server leads")]
    NoLeader,
    /// A list is on its way.
    #[error("server {0} has stored a list that it does not know as committed")]
    Pending(ServerId),
    /// The leader is not the newest.
    #[error("server {0} has a later list than the leader")]
    Later(ServerId),
    /// Too few know the leader's list.
    #[error("too few of the servers {0} serve and have this list")]
    NoMajority(Voters),
}

/// Why a reconfiguration must not be asked for, or a server not be removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafeReconfiguration {
    /// What the present list is, is not known.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
    /// The leader would leave.
    #[error("server {0} leads")]
    LeaderLeaves(ServerId),
    /// A newcomer would be a voter without the others' data.
    #[error("server {0} does not follow the leader yet")]
    NotFollowing(ServerId),
    /// The server votes.
    #[error("server {0} is in the server list {1}")]
    Listed(ServerId, Voters),
}

impl<'a> Lists<'a> {
    /// The list of the ensemble with its version: the leader has it, a majority of it serves and knows it as committed,
    /// and nobody who answers has a later one.
    ///
    /// Servers that do not answer may have stored a later one. They cannot be elected with it: a majority has followed the
    /// present leader, whose epoch is newer than theirs. So a list of an earlier epoch that another server has stored does not
    /// count either: the leader would have it if it had been committed. Nor does one that the leader knows as committed.
    ///
    /// # Errors
    /// What is not known.
    pub fn settled(self) -> Result<(u64, &'a Voters), Unsettled> {
        let leader = self.leader.and_then(|id| self.held.get(&id));
        let leader = leader.ok_or(Unsettled::NoLeader)?;
        for (id, held) in self.held {
            let later = held.pending.filter(|version| *version > leader.version);
            let own = self.leader == Some(*id);
            if later.is_some_and(|version| own || version >> 32 >= self.epoch) {
                return Err(Unsettled::Pending(*id));
            }
            if held.version > leader.version {
                return Err(Unsettled::Later(*id));
            }
        }
        let same = |held: &&Held| held.serves && held.version == leader.version;
        let same = self.held.iter().filter(|(_, held)| same(held));
        let same: Voters = same.map(|(id, _)| *id).collect();
        match holds_majority(&same, &leader.voters) {
            true => Ok((leader.version, &leader.voters)),
            false => Err(Unsettled::NoMajority(leader.voters.clone())),
        }
    }
}

/// Whether the list `wanted` may be asked for. Returns the version on which the request has to depend.
///
/// # Errors
/// The first reason against it.
pub fn may_reconfigure(lists: Lists<'_>, wanted: &Voters) -> Result<u64, UnsafeReconfiguration> {
    let (version, present) = lists.settled()?;
    if let Some(leader) = lists.leader.filter(|leader| !wanted.contains(*leader)) {
        return Err(UnsafeReconfiguration::LeaderLeaves(leader));
    }
    let follows = |id: &ServerId| lists.held.get(id).is_some_and(|held| held.serves);
    let newcomers = wanted.difference(present);
    if let Some(absent) = newcomers.iter().find(|id| !follows(id)) {
        return Err(UnsafeReconfiguration::NotFollowing(absent));
    }
    Ok(version)
}

/// What comes next on the way to another list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This list is to be asked for, if that of the ensemble has this version.
    Ask(Voters, u64),
    /// The leader leaves, and nobody else: it is to be restarted, so that a member that stays leads.
    StepDown(ServerId),
}

/// What comes next on the way to the list `wanted`, which the ensemble does not have yet.
///
/// # Errors
/// What has to be waited for.
pub fn next(lists: Lists<'_>, wanted: &Voters) -> Result<Next, UnsafeReconfiguration> {
    let (version, present) = lists.settled()?;
    let leader = lists.leader.filter(|leader| !wanted.contains(*leader));
    let Some(leader) = leader else {
        return may_reconfigure(lists, wanted).map(|version| Next::Ask(wanted.clone(), version));
    };
    let last = wanted.union(&Voters::from_iter([leader]));
    if *present != last {
        return may_reconfigure(lists, &last).map(|version| Next::Ask(last, version));
    }
    let serves = |id: &ServerId| lists.held.get(id).is_some_and(|held| held.serves);
    let stay: Voters = wanted.iter().filter(serves).collect();
    if holds_majority(&stay, present) {
        return Ok(Next::StepDown(leader));
    }
    match wanted.len() {
        1 => Ok(Next::Ask(wanted.clone(), version)),
        _ => Err(Unsettled::NoMajority(wanted.clone()).into()),
    }
}

/// Whether the pod and the volume of this server may be removed: the list of the ensemble is known, and does not name it.
///
/// # Errors
/// The first reason against it.
pub fn may_remove(id: ServerId, lists: Lists<'_>) -> Result<(), UnsafeReconfiguration> {
    let (_, present) = lists.settled()?;
    match present.contains(id) {
        true => Err(UnsafeReconfiguration::Listed(id, present.clone())),
        false => Ok(()),
    }
}

/// The list in the file of a newcomer that starts: the members, and itself.
pub fn list_of_newcomer(id: ServerId, present: &Voters) -> Voters {
    present.union(&Voters::from_iter([id]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(version: u64, size: u16) -> Held {
        Held {
            version,
            voters: Voters::first(size, 0),
            pending: None,
            serves: true,
        }
    }

    /// Servers 1 to 3 serve, led by 2; servers 4 and 5 follow.
    fn five() -> BTreeMap<ServerId, Held> {
        (1..=5).map(|id| (ServerId(id), has(7, 3))).collect()
    }

    fn lists(held: &BTreeMap<ServerId, Held>) -> Lists<'_> {
        led_by(2, held)
    }

    /// In epoch 1.
    fn led_by(id: u16, held: &BTreeMap<ServerId, Held>) -> Lists<'_> {
        Lists {
            leader: Some(ServerId(id)),
            epoch: 1,
            held,
        }
    }

    fn change(held: &mut BTreeMap<ServerId, Held>, id: u16, what: impl FnOnce(&mut Held)) {
        what(held.get_mut(&ServerId(id)).unwrap());
    }

    #[test]
    fn newcomers_that_follow_become_voters_all_at_once() {
        let held = five();
        let wanted = Voters::first(5, 0);
        assert_eq!(may_reconfigure(lists(&held), &wanted), Ok(7));
    }

    #[test]
    fn a_newcomer_that_does_not_follow_is_no_voter_yet() {
        let wanted = Voters::first(5, 0);
        let expected = Err(UnsafeReconfiguration::NotFollowing(ServerId(5)));
        let mut silent = five();
        silent.remove(&ServerId(5));
        let mut looking = five();
        change(&mut looking, 5, |held| held.serves = false);
        for held in [silent, looking] {
            assert_eq!(may_reconfigure(lists(&held), &wanted), expected);
        }
    }

    #[test]
    fn the_leader_does_not_leave() {
        let held = five();
        let expected = Err(UnsafeReconfiguration::LeaderLeaves(ServerId(2)));
        let without = Voters::from_iter([ServerId(1), ServerId(3)]);
        assert_eq!(may_reconfigure(lists(&held), &without), expected);
    }

    #[test]
    fn a_leader_that_leaves_is_the_last_one_and_steps_down() {
        let mut held: BTreeMap<_, _> = (1..=5).map(|id| (ServerId(id), has(7, 5))).collect();
        let wanted = Voters::first(3, 0);
        let last = Voters::from_iter([1, 2, 3, 5].map(ServerId));
        let ask = |list: &Voters| Ok(Next::Ask(list.clone(), 7));
        assert_eq!(next(led_by(5, &held), &wanted), ask(&last));
        for held in held.values_mut() {
            held.voters = last.clone();
        }
        let steps_down = Ok(Next::StepDown(ServerId(5)));
        assert_eq!(next(led_by(5, &held), &wanted), steps_down);
        assert_eq!(next(led_by(1, &held), &wanted), ask(&wanted));
        // The members that stay could not elect one of themselves.
        change(&mut held, 2, |held| held.serves = false);
        let waits = Err(Unsettled::NoMajority(wanted.clone()).into());
        assert_eq!(next(led_by(5, &held), &wanted), waits);
    }

    #[test]
    fn of_two_members_the_one_that_stays_takes_over() {
        let mut held: BTreeMap<_, _> = (1..=3).map(|id| (ServerId(id), has(7, 3))).collect();
        let one = Voters::first(1, 0);
        let two = Voters::from_iter([1, 3].map(ServerId));
        let asked = next(led_by(3, &held), &one);
        assert_eq!(asked, Ok(Next::Ask(two.clone(), 7)));
        for held in held.values_mut() {
            held.voters = two.clone();
        }
        let asked = next(led_by(3, &held), &one);
        assert_eq!(asked, Ok(Next::Ask(one, 7)));
    }

    #[test]
    fn nobody_is_removed_while_a_list_is_on_its_way() {
        let mut held = five();
        assert_eq!(may_remove(ServerId(5), lists(&held)), Ok(()));
        change(&mut held, 3, |held| held.pending = Some(1 << 32 | 9));
        let expected = Unsettled::Pending(ServerId(3)).into();
        assert_eq!(may_remove(ServerId(5), lists(&held)), Err(expected));
        // The leader was elected since, and does not have it.
        let later = Lists {
            epoch: 2,
            ..lists(&held)
        };
        assert_eq!(may_remove(ServerId(5), later), Ok(()));
    }

    #[test]
    fn nobody_is_removed_whom_the_list_names_or_whose_list_too_few_know() {
        let of_three = Voters::first(3, 0);
        let held = five();
        let listed = UnsafeReconfiguration::Listed(ServerId(3), of_three.clone());
        assert_eq!(may_remove(ServerId(3), lists(&held)), Err(listed));
        // The leader knows that 4 and 5 have left; 1 and 3 do not, and need them if the leader is lost.
        let mut held: BTreeMap<_, _> = (1..=5).map(|id| (ServerId(id), has(7, 5))).collect();
        change(&mut held, 2, |held| {
            held.version = 9;
            held.voters = of_three.clone();
        });
        let expected = Unsettled::NoMajority(of_three).into();
        assert_eq!(may_remove(ServerId(5), lists(&held)), Err(expected));
        change(&mut held, 1, |held| held.version = 9);
        assert_eq!(may_remove(ServerId(5), lists(&held)), Ok(()));
    }

    #[test]
    fn without_a_leader_or_under_an_old_one_nothing_is_known() {
        let mut held = five();
        let nobody = Lists {
            leader: None,
            epoch: 0,
            held: &held,
        };
        assert_eq!(nobody.settled(), Err(Unsettled::NoLeader));
        change(&mut held, 1, |held| held.version = 8);
        assert_eq!(lists(&held).settled(), Err(Unsettled::Later(ServerId(1))));
    }

    #[test]
    fn a_newcomer_names_itself_and_no_other_newcomer() {
        let list = list_of_newcomer(ServerId(5), &Voters::first(3, 0));
        assert_eq!(list.to_string(), "1,2,3,5");
    }
}
