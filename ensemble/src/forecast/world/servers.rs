//! What ZooKeeper's servers do among themselves.

use super::{Part, Pod, World, id};
use crate::ids::Voters;
use crate::safety::{can_join, holds_majority};
use crate::validate::ValidEnsemble;

impl World {
    /// Who has lost its leader looks for one, joins the one that there is, or a new one is elected.
    pub(super) fn elections(&mut self, ensemble: &ValidEnsemble) {
        self.part(ensemble);
        self.join(ensemble);
        if self.pods.values().all(|pod| pod.following.is_none()) {
            self.vote(ensemble);
        }
        self.join(ensemble);
    }

    /// Who follows a leader that is gone looks for another, and so does a leader whom no majority of its
    /// own list follows.
    fn part(&mut self, ensemble: &ValidEnsemble) {
        loop {
            let leader = |key: &(Part, u16), pod: &Pod| pod.following == Some(id(ensemble, *key));
            let lost: Vec<(Part, u16)> = self
                .pods
                .iter()
                .filter(|(key, pod)| {
                    let Some(leads) = pod.following else {
                        return false;
                    };
                    if !leader(key, pod) {
                        let mut leaders = self.pods.iter();
                        return !leaders.any(|(k, p)| leader(k, p) && id(ensemble, *k) == leads);
                    }
                    let follows = |(_, p): &(&(Part, u16), &Pod)| p.following == Some(leads);
                    let followers = self.pods.iter().filter(follows);
                    let followers: Voters = followers.map(|(k, _)| id(ensemble, *k)).collect();
                    !holds_majority(&followers, &pod.revision.voters)
                })
                .map(|(key, _)| *key)
                .collect();
            if lost.is_empty() {
                return;
            }
            for key in lost {
                if let Some(pod) = self.pods.get_mut(&key) {
                    pod.following = None;
                }
            }
        }
    }

    fn join(&mut self, ensemble: &ValidEnsemble) {
        for key in self.pods.keys().copied().collect::<Vec<_>>() {
            let leader = self.pods.values().find_map(|pod| pod.following);
            let serving = self
                .pods
                .iter()
                .filter(|((part, _), pod)| *part == Part::Voters && pod.following.is_some());
            let serving: Voters = serving.map(|(key, _)| id(ensemble, *key)).collect();
            if let Some(pod) = self.pods.get_mut(&key)
                && pod.following.is_none()
                && pod.age > 0
                && can_join(id(ensemble, key), &pod.revision.voters, &serving, leader)
            {
                pod.following = leader;
                if key.0 == Part::Voters {
                    self.disks.insert(key.1, self.epoch << 32);
                }
            }
        }
    }

    /// The server with the newest data leads whom a majority of its own list and of its followers' lists
    /// supports.
    fn vote(&mut self, ensemble: &ValidEnsemble) {
        let runs = |(key, pod): (&(Part, u16), &Pod)| {
            let zxid = self
                .disks
                .get(&key.1)
                .filter(|_| key.0 == Part::Voters && pod.age > 0);
            zxid.map(|zxid| (*zxid, *key))
        };
        let mut candidates: Vec<(u64, (Part, u16))> = self.pods.iter().filter_map(runs).collect();
        candidates.sort_unstable();
        for (zxid, candidate) in candidates.iter().rev() {
            let own = id(ensemble, *candidate);
            let list = |key: &(Part, u16)| self.pods.get(key).map(|pod| &pod.revision.voters);
            let knows = |(z, key): &&(u64, (Part, u16))| {
                z <= zxid && list(key).is_some_and(|voters| voters.contains(own))
            };
            let mut support: Vec<(Part, u16)> = candidates
                .iter()
                .filter(knows)
                .map(|(_, key)| *key)
                .collect();
            // Each decides by its own list, and one that does not support it takes its voice away.
            loop {
                let ids: Voters = support.iter().map(|key| id(ensemble, *key)).collect();
                let before = support.len();
                support.retain(|key| list(key).is_some_and(|voters| holds_majority(&ids, voters)));
                if support.len() == before {
                    break;
                }
            }
            if support.contains(candidate) {
                for key in support {
                    if let Some(pod) = self.pods.get_mut(&key) {
                        pod.following = Some(own);
                    }
                }
                self.begin_epoch();
                return;
            }
        }
    }
}
