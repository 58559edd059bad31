//! Reads a queue: the children of the election's path, the candidates among them that a reading needs, and
//! what the leader writes besides.

use bellwether_election::{
    Acknowledgement, Candidacy, CandidateNode, NodeStat, Place, Registration, Rules, Snapshot,
    ZnodeLocation,
};
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    ATTEMPTS, CONCURRENT_READS, ReadError, Reader, child, failed, hold, node_stat, restless,
};

impl Reader {
    /// Reads the path as a queue; or as a node, if it turns out to be one.
    pub(super) async fn read_queue(&mut self, rules: &mut Rules) -> Result<Snapshot, ReadError> {
        let path = rules.spec().path.clone();
        for attempt in 1..=ATTEMPTS {
            if !self.main.is_set() {
                // The old list goes before the new one comes.
                (self.children, self.held) = (Vec::new(), None);
                let read = self.budget.read().await;
                let answer = self.client.get_and_watch_children(&path).await;
                drop(read);
                match answer {
                    Ok((children, stat, watcher)) => {
                        self.held = Some(hold(&self.budget, &path, &children)?);
                        self.main.set(watcher);
                        self.children = children;
                        let stat = node_stat(&stat);
                        if stat.czxid != self.parent.czxid || rules.reuses_names() {
                            // The parent was recreated, and its children with it; or a new child may have the
                            // name of an earlier one.
                            self.znodes.clear();
                            self.leader.clear();
                            self.candidates.clear();
                        }
                        self.parent = stat;
                        if rules.place() == Place::Unknown {
                            self.detect(rules).await?;
                        }
                        if rules.place() == Place::Node {
                            return self.read_node(rules).await;
                        }
                    }
                    Err(zookeeper_client::Error::NoNode) => match self.read_missing(&path).await? {
                        Some(missing) => return Ok(missing),
                        None => continue,
                    },
                    Err(error) => return Err(failed(&path, error)),
                }
            }
            let gone = self.read_members(rules).await?;
            if gone.is_empty() {
                break;
            }
            if attempt < ATTEMPTS {
                self.main.clear();
            } else {
                self.children.retain(|child| !gone.contains(child));
            }
        }
        if !self.main.is_set() {
            return Err(restless(&path));
        }
        let acknowledgement = self.read_acknowledgement(rules).await?;
        let registration = self.read_registration(rules).await?;
        let newest = self.newest_member.max(self.registration.zxid);
        Ok(Snapshot::Queue {
            acknowledgement,
            registration,
            children: self.children.clone(),
            znodes: self.znodes.clone(),
            zxid: self.parent.newest().max(newest),
        })
    }

    /// Lets the rules decide the dialect: by the data of an ephemeral node, else by the children.
    async fn detect(&mut self, rules: &mut Rules) -> Result<(), ReadError> {
        if self.parent.ephemeral_owner == 0 {
            rules.detect(&self.children);
            return Ok(());
        }
        let path = &rules.spec().path;
        let _read = self.budget.read().await;
        match self.client.get_data(path).await {
            Ok((data, stat)) => rules.detect_node(&node_stat(&stat), &data),
            // The node was deleted in between, so the watch on its children fires.
            Err(zookeeper_client::Error::NoNode) => {}
            Err(error) => return Err(failed(path, error)),
        }
        Ok(())
    }

    /// Reads the candidates that a snapshot must hold and that are not known yet, and watches the
    /// first of them, or all. Returns those that left in between.
    async fn read_members(&mut self, rules: &Rules) -> Result<Vec<String>, ReadError> {
        let wanted = rules.wanted(&self.children);
        self.znodes.retain(|node, _| wanted.contains(node));
        self.candidates.retain(|node, _| wanted.contains(node));
        let mut gone = Vec::new();
        let all = rules.reads_all();
        if !all && let Some(left) = self.read_leader(rules, wanted.first()).await? {
            gone.push(left);
        }
        let unknown: Vec<String> = wanted
            .iter()
            .skip(usize::from(!all))
            .filter(|&node| !self.znodes.contains_key(node))
            .cloned()
            .collect();
        let client = &*self.client;
        let budget = &self.budget;
        let parent = &rules.spec().path;
        let answers: Vec<_> = stream::iter(unknown)
            .map(|node| async move {
                let path = child(parent, &node);
                // Each node's data is decoded and dropped at once, since it may have a megabyte.
                let read = budget.read().await;
                let answer = if all {
                    let answer = client.get_and_watch_data(&path).await;
                    answer.map(|(data, stat, watcher)| (data, stat, Some(watcher)))
                } else {
                    let answer = client.get_data(&path).await;
                    answer.map(|(data, stat)| (data, stat, None))
                };
                let answer = answer.map(|(data, stat, watcher)| {
                    let stat = node_stat(&stat);
                    (rules.candidacy(&node, &stat, &data), stat, watcher)
                });
                drop(read);
                match answer {
                    Ok(read) => Ok((node, Some(read), false)),
                    Err(zookeeper_client::Error::NoNode) => Ok((node, None, true)),
                    Err(zookeeper_client::Error::NoAuth) => Ok((node, None, false)),
                    Err(error) => Err(failed(&path, error)),
                }
            })
            .buffer_unordered(CONCURRENT_READS)
            .try_collect()
            .await?;
        for (node, read, left) in answers {
            let znode = match read {
                Some((candidacy, stat, watcher)) => {
                    if let Some(watcher) = watcher {
                        self.candidates
                            .entry(node.clone())
                            .or_default()
                            .set(watcher);
                    }
                    self.member(candidacy, &stat)
                }
                None if left => {
                    gone.push(node);
                    continue;
                }
                None => CandidateNode::Hidden,
            };
            self.znodes.insert(node, znode);
        }
        Ok(gone)
    }

    /// Reads and watches the first candidate, unless that is done. Returns it if it left.
    async fn read_leader(
        &mut self,
        rules: &Rules,
        leader: Option<&String>,
    ) -> Result<Option<String>, ReadError> {
        let known = leader.is_some_and(|leader| self.znodes.contains_key(leader));
        if leader == self.leader_node.as_ref() && self.leader.is_set() && known {
            return Ok(None);
        }
        self.leader.clear();
        self.leader_node = leader.cloned();
        let Some(leader) = leader else {
            return Ok(None);
        };
        let path = child(&rules.spec().path, leader);
        let budget = self.budget.clone();
        let _read = budget.read().await;
        match self.client.get_and_watch_data(&path).await {
            Ok((data, stat, watcher)) => {
                self.leader.set(watcher);
                let stat = node_stat(&stat);
                let znode = self.member(rules.candidacy(leader, &stat, &data), &stat);
                self.znodes.insert(leader.clone(), znode);
            }
            Err(zookeeper_client::Error::NoNode) => return Ok(Some(leader.clone())),
            Err(zookeeper_client::Error::NoAuth) => {
                self.znodes.insert(leader.clone(), CandidateNode::Hidden);
            }
            Err(error) => return Err(failed(&path, error)),
        }
        Ok(None)
    }

    fn member(&mut self, candidacy: Candidacy, stat: &NodeStat) -> CandidateNode {
        self.newest_member = self.newest_member.max(stat.czxid).max(stat.mzxid);
        CandidateNode::from(candidacy)
    }

    async fn read_acknowledgement(
        &mut self,
        rules: &Rules,
    ) -> Result<Option<Acknowledgement>, ReadError> {
        let (path, watched) = match rules.acknowledgement() {
            None => return Ok(None),
            Some(ZnodeLocation::Child(name)) if self.children.iter().any(|child| child == name) => {
                (child(&rules.spec().path, name), false)
            }
            Some(ZnodeLocation::Child(_)) => return Ok(Some(Acknowledgement::Absent)),
            Some(ZnodeLocation::Elsewhere(path)) => (path.into_owned(), true),
        };
        if watched && self.acknowledgement_watch.is_set() {
            return Ok(Some(self.acknowledgement));
        }
        let stat = if watched {
            let answer = self.client.check_and_watch_stat(&path).await;
            let (stat, watcher) = answer.map_err(|error| failed(&path, error))?;
            self.acknowledgement_watch.set(watcher);
            stat
        } else {
            self.client
                .check_stat(&path)
                .await
                .map_err(|error| failed(&path, error))?
        };
        self.acknowledgement = match stat {
            Some(stat) => Acknowledgement::Present {
                owner: stat.ephemeral_owner,
            },
            None => Acknowledgement::Absent,
        };
        Ok(Some(self.acknowledgement))
    }

    /// Reads and watches the node in which the leader registers itself, if the rules require one.
    async fn read_registration(
        &mut self,
        rules: &Rules,
    ) -> Result<Option<Registration>, ReadError> {
        let path = match rules.leader_path() {
            None => return Ok(None),
            Some(ZnodeLocation::Child(name)) => child(&rules.spec().path, name),
            Some(ZnodeLocation::Elsewhere(path)) => path.into_owned(),
        };
        let decode = |stat: &NodeStat, data: &[u8]| {
            Some(CandidateNode::from(rules.registration(&path, stat, data)))
        };
        let read = self
            .registration
            .read(&*self.client, &self.budget, &path, decode);
        match read.await {
            Ok(()) => {}
            Err(ReadError::NoAuth { .. }) => {
                return Ok(Some(Registration::Present(CandidateNode::Hidden)));
            }
            Err(error) => return Err(error),
        }
        let registration = self.registration.content.clone();
        Ok(Some(
            registration.map_or(Registration::Absent, Registration::Present),
        ))
    }
}
