//! What ZooKeeper's servers do among themselves.

use super::faults::Faults;
use super::{Pod, World};
use crate::ids::{ServerId, ServerList, Voters};
use crate::safety::{can_join, holds_majority};
use crate::stage::Stage as _;

impl<F: Faults> World<F> {
    /// Makes a server the leader of all, if it votes.
    pub fn elect(&mut self, leader: ServerId) {
        if self.pods.get(&leader).is_some_and(|pod| !pod.observes) {
            for pod in self.pods.values_mut() {
                pod.following = Some(leader);
            }
            self.begin_epoch();
        }
    }

    /// All servers that lead, ideally one.
    pub fn leaders(&self) -> impl Iterator<Item = ServerId> + '_ {
        let leads = |(id, pod): &(&ServerId, &Pod)| pod.following == Some(**id);
        self.pods.iter().filter(leads).map(|(id, _)| *id)
    }

    /// Whether the server of a pod runs.
    pub fn runs(&self, pod: &Pod) -> bool {
        pod.age > 0 && self.faults.failure(pod).is_none()
    }

    /// Servers that lost their leader look for one; they join the one that leads, or elect one.
    pub fn elections(&mut self) {
        self.leave();
        self.join();
        if self.pods.values().all(|pod| pod.following.is_none()) {
            self.vote();
        }
        self.join();
    }

    /// The list that a server judges by. Where members change at run time: the one on its volume, if that names it, unless its pod
    /// was made with a later one that does not; or else the latest one that it knows, and itself.
    pub fn judged(&self, id: ServerId, pod: &Pod) -> Voters {
        let given = &pod.revision.voters;
        let Some(version) = pod.revision.version else {
            return given.clone();
        };
        let own = self.lists.get(&id);
        let latest = match own {
            Some((known, own)) if own.contains(id) && (*known >= version || given.contains(id)) => {
                return own.clone();
            }
            Some((known, own)) if *known >= version => own,
            _ => given,
        };
        latest.union(&Voters::from_iter([id]))
    }

    /// The list of a server's leader. One that looks for a leader takes the list of those that serve, if that has a version.
    fn of_leader(&self, leader: Option<ServerId>, pod: &Pod) -> Option<Voters> {
        pod.revision.version?;
        Some(self.lists.get(&leader?)?.1.clone())
    }

    /// The members agree on another list, if that of the ensemble has this version, a majority of the new one follows, and so does
    /// every newcomer.
    pub fn agree(&mut self, asked: &ServerList, version: u64) -> bool {
        let list = &asked.voters;
        let leader = self.leaders().next();
        let present = leader.and_then(|leader| self.lists.get(&leader)).cloned();
        let following = self.following(leader);
        let Some((known, old)) = present.filter(|_| holds_majority(&following, list)) else {
            return false;
        };
        let newcomers = list.difference(&old);
        if known != version || !newcomers.difference(&following).is_empty() {
            return false;
        }
        for id in following.iter() {
            self.lists.insert(id, (version + 1, list.clone()));
        }
        self.listed_observers.clone_from(&asked.observers);
        true
    }

    fn may_join(&self, pod: &Pod) -> bool {
        self.runs(pod) && self.faults.joins(pod)
    }

    /// Whether a server and another one can speak to each other.
    fn reaches(&self, pod: &Pod, other: ServerId) -> bool {
        let other = self.pods.get(&other);
        other.is_some_and(|other| pod.revision.tls.servers.fits(other.revision.tls.servers))
    }

    fn begin_epoch(&mut self) {
        self.epoch += 1;
        let following = self.pods.iter().filter(|(_, pod)| pod.following.is_some());
        let following: Vec<ServerId> = following.map(|(id, _)| *id).collect();
        self.disks
            .extend(following.iter().map(|id| (*id, self.epoch << 32)));
        self.take_over_list(&following);
    }

    /// Followers take over their leader's list. The first leader of an ensemble gives its list a version.
    fn take_over_list(&mut self, following: &[ServerId]) {
        let leader = self.leaders().next();
        let Some((leader, pod)) = leader.and_then(|id| Some((id, self.pods.get(&id)?))) else {
            return;
        };
        if pod.revision.version.is_none() {
            return;
        }
        let first = (self.epoch << 32, self.judged(leader, pod));
        let list = self.lists.entry(leader).or_insert(first).clone();
        for id in following {
            let at_run_time = |pod: &Pod| pod.revision.version.is_some();
            if self.pods.get(id).is_some_and(at_run_time) {
                self.lists.insert(*id, list.clone());
            }
        }
    }

    /// The servers that follow this leader, or any.
    fn following(&self, leader: Option<ServerId>) -> Voters {
        let follows = |pod: &Pod| match leader {
            Some(_) => pod.following == leader,
            None => pod.following.is_some(),
        };
        let following = self.pods.iter().filter(|(_, pod)| follows(pod));
        following.map(|(id, _)| *id).collect()
    }

    /// A follower whose leader does not lead any more looks for another, and so does a leader that no
    /// majority of its own list follows.
    fn leave(&mut self) {
        loop {
            let lost = |(id, pod): &(&ServerId, &Pod)| {
                let leads = |leader: &ServerId| self.pods.get(leader).and_then(|p| p.following);
                pod.following.is_some_and(|leader| match leader == **id {
                    true => !holds_majority(&self.following(Some(leader)), &self.judged(**id, pod)),
                    false => leads(&leader) != Some(leader),
                })
            };
            let lost: Vec<ServerId> = self.pods.iter().filter(lost).map(|(id, _)| *id).collect();
            if lost.is_empty() {
                return;
            }
            for id in lost {
                self.follow(id, None);
            }
        }
    }

    fn follow(&mut self, id: ServerId, leader: Option<ServerId>) {
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.following = leader;
        }
    }

    fn join(&mut self) {
        for id in self.pods.keys().copied().collect::<Vec<_>>() {
            let leader = self.pods.values().find_map(|pod| pod.following);
            let serving = self.following(None);
            let reaches = |pod: &Pod| leader.is_none_or(|leader| self.reaches(pod, leader));
            let joins = self.pods.get(&id).is_some_and(|pod| {
                let list = self.of_leader(leader, pod);
                let list = list.unwrap_or_else(|| self.judged(id, pod));
                pod.following.is_none()
                    && reaches(pod)
                    && self.may_join(pod)
                    && can_join(id, &list, &serving, leader)
            });
            if joins {
                self.follow(id, leader);
                self.disks.insert(id, self.epoch << 32);
                self.take_over_list(&[id]);
            }
        }
    }

    /// Elects the server with the newest data that majorities of its own list and of its followers' lists
    /// support.
    fn vote(&mut self) {
        let list = |id: ServerId| self.pods.get(&id).map(|pod| self.judged(id, pod));
        let votes = |(id, pod): (&ServerId, &Pod)| {
            let zxid = self.disks.get(id).filter(|_| self.may_join(pod));
            zxid.map(|zxid| (*zxid, *id))
        };
        let mut candidates: Vec<(u64, ServerId)> = self.pods.iter().filter_map(votes).collect();
        candidates.sort_unstable();
        for (zxid, candidate) in candidates.iter().rev() {
            // Each supporter knows the candidate and has nothing newer.
            let supports = |(z, id): &&(u64, ServerId)| {
                let supporter = self.pods.get(id);
                z <= zxid
                    && list(*id).is_some_and(|voters| voters.contains(*candidate))
                    && supporter.is_some_and(|pod| self.reaches(pod, *candidate))
            };
            let support = candidates.iter().filter(supports);
            let mut support: Voters = support.map(|(_, id)| *id).collect();
            // Each supporter decides by its own list; one without a majority there withdraws its support.
            loop {
                let decides =
                    |id: &ServerId| list(*id).is_some_and(|l| holds_majority(&support, &l));
                let decided: Voters = support.iter().filter(decides).collect();
                if decided == support {
                    break;
                }
                support = decided;
            }
            if support.contains(*candidate) {
                for id in support.iter() {
                    self.follow(id, Some(*candidate));
                }
                self.begin_epoch();
                return;
            }
        }
    }
}
