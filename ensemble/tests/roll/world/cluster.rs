//! What the StatefulSet controller, the kubelets and ZooKeeper's servers do.

use super::*;

impl World {
    pub(super) fn tick(&mut self) {
        self.now += 1;
        for pod in self.pods.values_mut() {
            pod.age += 1;
            pod.unready = if pod.following.is_some() {
                0
            } else {
                pod.unready + 1
            };
        }
        if let Some(set) = self.set.clone() {
            let gone: Vec<u16> = self
                .pods
                .keys()
                .copied()
                .filter(|o| *o >= set.replicas)
                .collect();
            for ordinal in gone {
                self.pods.remove(&ordinal);
            }
            for ordinal in 0..set.replicas {
                if !self.pods.contains_key(&ordinal) {
                    self.create(ordinal, &set);
                }
            }
        }
        self.elections();
        let live: BTreeSet<&Voters> = self.pods.values().map(|p| &p.revision.voters).collect();
        assert!(live.len() <= 2, "three voter sets are live: {live:?}");
    }

    pub(super) fn create(&mut self, ordinal: u16, set: &Set) {
        self.uids += 1;
        let revision = template_revision(&set.template);
        let id = ServerId(ordinal + 1);
        let permitted = revision.initialize == Some(id)
            || self
                .bootstrap
                .as_ref()
                .filter(|_| !self.stale_permission)
                .is_some_and(|b| b.initialize.as_ref().is_some_and(|v| v.contains(id)));
        if permitted {
            self.disks.entry(ordinal).or_insert(0);
        }
        self.claims.entry(ordinal).or_default();
        self.claim_uids.entry(ordinal).or_insert(self.uids);
        let image = set.template["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap()
            .to_owned();
        let pod = Pod {
            revision,
            template: short_hash(&set.template),
            image,
            uid: self.uids,
            age: 0,
            created: self.now,
            following: None,
            // No probe of its readiness has succeeded yet.
            unready: 3,
        };
        self.pods.insert(ordinal, pod);
    }

    pub(super) fn runs(&self, ordinal: u16) -> bool {
        self.pods
            .get(&ordinal)
            .is_some_and(|p| p.age > 0 && !p.image.starts_with("bad"))
            && !self.homeless.contains(&ordinal)
    }

    /// What ZooKeeper's servers do among themselves.
    pub(super) fn elections(&mut self) {
        let pods = &mut self.pods;
        // Followers of a leader that is gone, and a leader without a majority of its own list, look.
        loop {
            let following: BTreeMap<u16, Option<ServerId>> =
                pods.iter().map(|(o, p)| (*o, p.following)).collect();
            let mut moved = false;
            for (ordinal, pod) in pods.iter_mut() {
                let Some(leader) = pod.following else {
                    continue;
                };
                let lost = if leader.0 == ordinal + 1 {
                    let acks: Voters = following
                        .iter()
                        .filter(|(_, f)| **f == Some(leader))
                        .map(|(o, _)| ServerId(o + 1))
                        .collect();
                    !holds_majority(&acks, &pod.revision.voters)
                } else {
                    following.get(&(leader.0 - 1)).copied().flatten() != Some(leader)
                };
                if lost {
                    pod.following = None;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        self.join();
        self.vote();
        self.join();
        let leaders = self
            .pods
            .iter()
            .filter(|(o, p)| p.following == Some(ServerId(**o + 1)));
        assert!(leaders.count() <= 1, "two servers lead");
    }

    pub(super) fn join(&mut self) {
        for ordinal in self.pods.keys().copied().collect::<Vec<_>>() {
            let pod = &self.pods[&ordinal];
            let slow = pod.image.starts_with("slow") || self.copying.contains_key(&ordinal);
            if pod.following.is_some() || !self.runs(ordinal) || slow {
                continue;
            }
            let serving: Voters = self
                .pods
                .iter()
                .filter(|(_, p)| p.following.is_some())
                .map(|(o, _)| ServerId(o + 1))
                .collect();
            let leader = self.pods.values().find_map(|p| p.following);
            let id = ServerId(ordinal + 1);
            if can_join(id, &pod.revision.voters, &serving, leader)
                && let Some(pod) = self.pods.get_mut(&ordinal)
            {
                pod.following = leader;
                self.disks.insert(ordinal, self.epoch << 32);
            }
        }
    }

    pub(super) fn vote(&mut self) {
        if self.pods.values().any(|p| p.following.is_some()) {
            return;
        }
        let voters: Vec<(u64, u16)> = self
            .pods
            .keys()
            .filter(|o| {
                self.runs(**o)
                    && !self.pods[o].image.starts_with("slow")
                    && !self.copying.contains_key(o)
            })
            .filter_map(|o| self.disks.get(o).map(|zxid| (*zxid, *o)))
            .collect();
        let mut candidates = voters.clone();
        candidates.sort_unstable();
        for (zxid, candidate) in candidates.into_iter().rev() {
            let id = ServerId(candidate + 1);
            // Each supporter knows the candidate and has nothing newer.
            let mut support: Voters = voters
                .iter()
                .filter(|(z, o)| *z <= zxid && self.pods[o].revision.voters.contains(id))
                .map(|(_, o)| ServerId(o + 1))
                .collect();
            // Each decides by its own list.
            loop {
                let decided: Voters = support
                    .iter()
                    .filter(|s| holds_majority(&support, &self.pods[&(s.0 - 1)].revision.voters))
                    .collect();
                if decided == support {
                    break;
                }
                support = decided;
            }
            if support.contains(id) {
                for s in support.iter() {
                    if let Some(pod) = self.pods.get_mut(&(s.0 - 1)) {
                        pod.following = Some(id);
                    }
                }
                self.bump_epoch();
                return;
            }
        }
    }
}
