//! Reads the znodes beside the leader's node: the other candidates, Hadoop's breadcrumb, the number of the
//! term.

use bellwether_election::{Candidacy, CandidateNode, NodeStat, OtherCandidates, Reading, Rules};
use futures::{StreamExt, TryStreamExt, stream};

use super::super::budget::{Budget, Held};
use super::super::zookeepers::Session;
use super::single::{Single, watch_absent};
use super::{
    ATTEMPTS, CONCURRENT_READS, ReadError, Watch, child, failed, hold, node_stat, restless,
};

/// What was read beside the leader's node, each part valid while its watch is set.
#[derive(Default)]
pub(super) struct Beside {
    others: OtherCandidates,
    /// The names of the candidates that were not read, in order.
    unread: Vec<String>,
    /// The room that all names take.
    held: Option<Held>,
    pub(super) others_watch: Watch,
    pub(super) breadcrumb: Single<Candidacy>,
    pub(super) epoch: Single<String>,
}

impl Beside {
    /// Whether the dialect has any of these znodes.
    pub(super) fn exists(rules: &Rules) -> bool {
        rules.members_path().is_some()
            || rules.breadcrumb_path().is_some()
            || rules.epoch_path().is_some()
    }

    /// Reads the znodes that are not known and adds all of them to the reading of the leader's node.
    pub(super) async fn complete(
        &mut self,
        client: &dyn Session,
        budget: &Budget,
        rules: &Rules,
        reading: &mut Reading,
    ) -> Result<(), ReadError> {
        if let Some(path) = rules.epoch_path() {
            let decode = |stat: &NodeStat, data: &[u8]| rules.epoch(stat, data);
            self.epoch.read(client, budget, path, decode).await?;
            reading.add_epoch(self.epoch.content.as_deref(), self.epoch.zxid);
        }
        if let Some(path) = rules.members_path() {
            self.read_crowd(client, budget, rules, path).await?;
            self.read_leader(client, budget, rules, path, reading)
                .await?;
            reading.add_others(rules, self.others.clone());
        }
        if let Some(path) = rules.breadcrumb_path() {
            let decode = |stat: &NodeStat, data: &[u8]| Some(rules.breadcrumb(stat, data));
            self.breadcrumb.read(client, budget, &path, decode).await?;
            let candidacy = self.breadcrumb.content.clone();
            reading.add_breadcrumb(candidacy, self.breadcrumb.zxid);
        }
        Ok(())
    }

    async fn read_crowd(
        &mut self,
        client: &dyn Session,
        budget: &Budget,
        rules: &Rules,
        path: &str,
    ) -> Result<(), ReadError> {
        for _ in 0..ATTEMPTS {
            if self.others_watch.is_set() {
                return Ok(());
            }
            (self.unread, self.held) = (Vec::new(), None);
            let read = budget.read().await;
            let answer = client.get_and_watch_children(path).await;
            drop(read);
            match answer {
                Ok((mut names, stat, watcher)) => {
                    self.held = Some(hold(budget, path, &names)?);
                    self.others_watch.set(watcher);
                    let count = names.len();
                    names.sort_unstable();
                    self.unread = names.split_off(count.min(rules.max_candidates()));
                    let znodes = read_members(client, budget, rules, path, names).await;
                    let znodes = znodes.inspect_err(|_| self.others_watch.clear())?;
                    let stat = node_stat(&stat);
                    let candidacies = znodes.iter().filter_map(|(_, znode)| znode.candidacy());
                    let zxid = candidacies
                        .map(|candidacy| candidacy.czxid)
                        .fold(stat.newest(), i64::max);
                    self.others = OtherCandidates {
                        znodes,
                        count,
                        zxid,
                    };
                }
                Err(zookeeper_client::Error::NoNode) => {
                    if let Some((watcher, zxid)) = watch_absent(client, path).await? {
                        self.others_watch.set(watcher);
                        self.others = OtherCandidates {
                            zxid: zxid.unwrap_or_default(),
                            ..OtherCandidates::default()
                        };
                    }
                }
                Err(error) => return Err(failed(path, error)),
            }
        }
        if self.others_watch.is_set() {
            return Ok(());
        }
        Err(restless(path))
    }

    /// Reads the leader's own entry among the candidates, if it has one and it was not read yet.
    async fn read_leader(
        &mut self,
        client: &dyn Session,
        budget: &Budget,
        rules: &Rules,
        path: &str,
        reading: &Reading,
    ) -> Result<(), ReadError> {
        let candidacy = reading
            .leader()
            .and_then(|candidate| candidate.znode.candidacy());
        let name = candidacy.map(|candidacy| &candidacy.identity.text);
        let Some(Ok(at)) = name.map(|name| self.unread.binary_search(name)) else {
            return Ok(());
        };
        let names = vec![self.unread[at].clone()];
        let znodes = read_members(client, budget, rules, path, names).await?;
        self.others.znodes.extend(znodes);
        self.unread.remove(at);
        Ok(())
    }
}

/// The candidates with these names, without those that left in the meantime: they have fired the watch.
async fn read_members(
    client: &dyn Session,
    budget: &Budget,
    rules: &Rules,
    parent: &str,
    names: Vec<String>,
) -> Result<Vec<(String, CandidateNode)>, ReadError> {
    let answers: Vec<_> = stream::iter(names)
        .map(|name| async move {
            let path = child(parent, &name);
            let _read = budget.read().await;
            match client.get_data(&path).await {
                Ok((data, stat)) => {
                    let candidacy = rules.member(&name, &node_stat(&stat), &data);
                    Ok(Some((name, CandidateNode::from(candidacy))))
                }
                Err(zookeeper_client::Error::NoNode) => Ok(None),
                Err(zookeeper_client::Error::NoAuth) => Ok(Some((name, CandidateNode::Hidden))),
                Err(error) => Err(failed(&path, error)),
            }
        })
        .buffer_unordered(CONCURRENT_READS)
        .try_collect()
        .await?;
    Ok(answers.into_iter().flatten().collect())
}
