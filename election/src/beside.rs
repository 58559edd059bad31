//! What other znodes add to the leader's node: the other candidates, who was active last, the number of the
//! term; and until when the leader leads.

use std::sync::Arc;

use bellwether_api::election::recipe::Decoder;
use jiff::{SignedDuration, Timestamp};

use crate::anomaly::Anomaly;
use crate::decode::{Decoding, Identity, member_address};
use crate::reading::{Candidacy, CandidateNode, NodeStat, RankedCandidate, Reading, Verdict};
use crate::rules::{Place, Rules};

/// The candidates beside the leader, where they are the children of a path of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherCandidates {
    /// Some of them by name: at most as many as the status lists, and those that led since.
    pub znodes: Vec<(String, CandidateNode)>,
    /// How many they are.
    pub count: usize,
    /// The newest transaction that was seen.
    pub zxid: i64,
}

impl Reading {
    /// Adds the other candidates to a reading of the leader's node. The leader is among them as a rule, and
    /// takes its address from there if its own node has none.
    pub fn add_others(&mut self, rules: &Rules, others: OtherCandidates) {
        let leader = self.candidates.first().cloned();
        let is_leader = |name: &str, znode: &CandidateNode| {
            let candidacy = leader
                .as_ref()
                .and_then(|candidate| candidate.znode.candidacy());
            candidacy.is_some_and(|candidacy| {
                let session = znode.candidacy().map_or(0, |znode| znode.session);
                candidacy.identity.text == name || (session != 0 && session == candidacy.session)
            })
        };
        let (own, mut listed): (Vec<_>, Vec<_>) = others
            .znodes
            .into_iter()
            .partition(|(name, znode)| is_leader(name, znode));
        if let Some((_, CandidateNode::Read(own))) = own.first() {
            let address = &own.identity.address;
            self.tell_leader(|identity| {
                identity.address = identity.address.take().or(address.clone());
            });
        }
        let hidden = |(_, znode): &&(String, CandidateNode)| znode.candidacy().is_none();
        self.add_unreadable(own.iter().chain(&listed).filter(hidden).count());
        let age = |znode: &CandidateNode| {
            znode
                .candidacy()
                .map_or(i64::MAX, |candidacy| candidacy.czxid)
        };
        listed.sort_by(|(one, a), (other, b)| (age(a), one).cmp(&(age(b), other)));
        let path = rules.members_path().unwrap_or_default();
        let candidates = listed.into_iter().map(|(name, znode)| {
            // Candidates are distinguished by name, and the leader's node may have this name, too.
            let taken = leader
                .as_ref()
                .is_some_and(|candidate| candidate.node == name);
            let node = if taken {
                format!("{path}/{name}")
            } else {
                name
            };
            RankedCandidate::plain(&node, znode)
        });
        self.candidates.extend(candidates);
        self.candidates.truncate(rules.max_candidates());
        self.candidate_count += others.count.saturating_sub(own.len());
        self.zxid = self.zxid.max(others.zxid);
    }

    /// Adds candidates whose nodes the ACL hides to what looks wrong.
    fn add_unreadable(&mut self, more: usize) {
        for anomaly in &mut self.anomalies {
            if let Anomaly::Unreadable { count } = anomaly {
                *count += more;
                return;
            }
        }
        if more > 0 {
            self.anomalies.push(Anomaly::Unreadable { count: more });
        }
    }

    /// Changes the leader's identity. At this point all candidates come from the leader's node alone.
    fn tell_leader(&mut self, tell: impl Fn(&mut Identity)) {
        let alone = match &mut self.verdict {
            Verdict::Leader(candidate) => Some(candidate.as_mut()),
            _ => None,
        };
        for candidate in self.candidates.iter_mut().chain(alone) {
            if let CandidateNode::Read(candidacy) = &mut candidate.znode {
                tell(&mut Arc::make_mut(candidacy).identity);
            }
        }
    }

    /// Adds the application's own number of the leader's term, as of a transaction. If the znode contains no
    /// number, the one in the leader's own data stays. Call it before [`Self::add_others`].
    pub fn add_epoch(&mut self, epoch: Option<&str>, zxid: i64) {
        self.zxid = self.zxid.max(zxid);
        if let Some(epoch) = epoch {
            self.tell_leader(|identity| identity.epoch = Some(epoch.to_owned()));
        }
    }

    /// Adds who was active last, or that the breadcrumb does not exist, as of a transaction.
    ///
    /// The holder of the lock is active when it has written the breadcrumb itself, in this term: before that it fences the
    /// one that the breadcrumb names, and gives the lock back where that fails
    /// (`ActiveStandbyElector.becomeActive` of Hadoop).
    pub fn add_breadcrumb(&mut self, candidacy: Option<Candidacy>, zxid: i64) {
        self.zxid = self.zxid.max(zxid);
        let leader = self.leader().and_then(|leader| leader.znode.candidacy());
        let is_active = leader.map(|leader| {
            candidacy.as_ref().is_some_and(|last| {
                last.identity.text == leader.identity.text && last.token > leader.czxid
            })
        });
        self.acknowledged = is_active;
        self.last_active = candidacy;
    }

    /// Until when the leader leads, if that is limited.
    pub fn expires(&self) -> Option<Timestamp> {
        self.leader()?.znode.candidacy()?.expires
    }

    /// Applies the time: a leader leads no longer than its data allows.
    pub fn expire(&mut self, now: Timestamp) {
        if self.expires().is_some_and(|end| end <= now) {
            self.verdict = Verdict::NotActive;
        }
    }
}

/// How long a lease whose node is missing counts as being renewed.
const RENEWAL: SignedDuration = SignedDuration::from_secs(1);

/// The term of a leader whose data limits it. kazoo renews its lease by deleting the node and creating it
/// again, so the leader is not lost when its node is missing for a moment within that time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenure {
    /// Until when it leads, from its data.
    end: Option<Timestamp>,
    /// Since when its node is missing.
    gone: Option<Timestamp>,
}

impl Tenure {
    /// Until when not to report a reading, because it may show a renewal that is under way; `None` if it has
    /// to be reported now.
    pub fn holds_back(&mut self, reading: &Reading, now: Timestamp) -> Option<Timestamp> {
        if reading.exists {
            let end = reading.expires();
            *self = Self { end, gone: None };
            return None;
        }
        let gone = *self.gone.get_or_insert(now);
        let renewed = gone.checked_add(RENEWAL).unwrap_or(Timestamp::MAX);
        let until = self.end?.min(renewed);
        (now < until).then_some(until)
    }
}

impl Rules {
    /// The znode whose children may lead, where the path is the leader's own node.
    pub fn members_path(&self) -> Option<&str> {
        let path = self.spec().dialect.members_path.as_deref();
        path.filter(|_| self.place() == Place::Node)
    }

    /// The znode with the application's own number of the leader's term, where the path is the leader's
    /// own node.
    pub fn epoch_path(&self) -> Option<&str> {
        let path = self.spec().dialect.epoch_path.as_deref();
        path.filter(|_| self.place() == Place::Node)
    }

    /// The content of the znode at [`Self::epoch_path`], safe to show.
    pub fn epoch(&self, stat: &NodeStat, data: &[u8]) -> Option<String> {
        let data = data.trim_ascii();
        let text = Decoding::Recipe(Decoder::Text);
        let candidacy = self.decode_node(&text, "", None, stat, data);
        (!data.is_empty()).then_some(candidacy.identity.text)
    }

    /// The candidacy of a child of [`Self::members_path`], which is identified by its name.
    pub fn member(&self, name: &str, stat: &NodeStat, data: &[u8]) -> Candidacy {
        let named = Decoding::Recipe(Decoder::NodeName);
        let mut candidacy = self.decode_node(&named, name, None, stat, data);
        candidacy.identity.address = member_address(data);
        candidacy
    }

    /// The znode that contains who was active last, where the recipe has one beside the leader's node.
    pub fn breadcrumb_path(&self) -> Option<String> {
        let name = self.breadcrumb_name()?;
        let (parent, _) = self.spec().path.rsplit_once('/')?;
        Some(format!("{parent}/{name}"))
    }

    /// The candidacy in the breadcrumb. The znode outlives sessions and every client that becomes active
    /// writes it, so the token is the transaction that wrote it.
    pub fn breadcrumb(&self, stat: &NodeStat, data: &[u8]) -> Candidacy {
        let name = self.breadcrumb_name().unwrap_or_default();
        Candidacy {
            token: stat.mzxid,
            ..self.candidacy(name, stat, data)
        }
    }
}

#[cfg(test)]
mod tests;
