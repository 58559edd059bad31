//! Reads of the leader's node alone, to confirm that it still leads.
//!
//! A watch does not fire when an ACL closes, and may be lost by a defect.

use std::sync::Arc;

use bellwether_election::{Place, Reading, Rules};

use super::super::budget::Budget;
use super::super::zookeepers::Session;
use super::{ReadError, child, failed, node_stat};

/// What has to hold for a leader to be the one that was read.
pub(in crate::election) struct Confirmed {
    path: String,
    czxid: i64,
    /// The transaction that last wrote its data, where that makes it the leader.
    written: Option<i64>,
}

impl Confirmed {
    /// What has to hold for the leader of a reading; `None` if only a full read can show it, for example if
    /// the ACL hides its node.
    pub(in crate::election) fn of_leader(rules: &Rules, reading: &Reading) -> Option<Self> {
        let candidate = reading.leader()?;
        let candidacy = candidate.znode.candidacy()?;
        let parent = &rules.spec().path;
        let path = match rules.place() {
            Place::Node => parent.clone(),
            _ if candidate.node.starts_with('/') => candidate.node.clone(),
            _ => child(parent, &candidate.node),
        };
        Some(Self {
            path,
            czxid: candidacy.czxid,
            written: (candidacy.token != candidacy.czxid).then_some(candidacy.token),
        })
    }
}

/// Reads leaders again.
pub(in crate::election) struct Confirmer {
    client: Arc<dyn Session>,
    budget: Arc<Budget>,
}

impl Confirmer {
    pub(super) fn new(client: Arc<dyn Session>, budget: Arc<Budget>) -> Self {
        Self { client, budget }
    }

    /// Whether a leader still leads by the same transaction.
    pub(in crate::election) async fn confirm(&self, leader: &Confirmed) -> Result<bool, ReadError> {
        let _read = self.budget.read().await;
        match self.client.get_data(&leader.path).await {
            Ok((_, stat)) => {
                let stat = node_stat(&stat);
                let is_written = leader.written.is_none_or(|written| written == stat.mzxid);
                Ok(stat.czxid == leader.czxid && is_written)
            }
            Err(zookeeper_client::Error::NoNode) => Ok(false),
            Err(error) => Err(failed(&leader.path, error)),
        }
    }
}
