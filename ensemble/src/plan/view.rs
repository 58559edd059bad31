//! The observation, checked for consistency and indexed by server id.
//!
//! An inconsistent observation stops every change: the operator does not act on a state that it does not
//! understand.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_api::ensemble::MemberRole;
use jiff::{SignedDuration, Timestamp};

use crate::encryption::Encryption;
use crate::ids::{ServerId, Voters};
use crate::observation::{
    ClaimObservation, Observation, PodObservation, PodState, Revision, ServerReport,
    StatefulSetObservation,
};
use crate::plan::reconfiguration::Lists;
use crate::plan::volumes;
use crate::rules::{Rule, Rules};
use crate::safety::{can_elect, can_join};
use crate::stage::{Running, Stage as _};
use crate::validate::ValidEnsemble;

/// How long a member that leaves may be down before the others go on without it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// A server gives up joining a leader after `initLimit` ticks and starts again; after three such attempts it
/// counts as stuck. Until then a server that reports that it does not serve may be copying a snapshot.
fn joining_time(ensemble: &ValidEnsemble) -> SignedDuration {
    let setting = |key: &str| ensemble.settings.get(key)?.parse::<i64>().ok();
    let limit = setting("tickTime").zip(setting("initLimit"));
    let limit = limit.map_or(0, |(tick, ticks)| tick.saturating_mul(ticks));
    SignedDuration::from_millis(limit.saturating_mul(3)).max(PATIENCE)
}

/// Why an observation is inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The StatefulSet was not made by the operator, or lost its annotations.
    #[error("The StatefulSet does not say which servers vote under its pod template")]
    Template,
    /// A pod lost its annotations.
    #[error("Pod {0} does not say which servers vote under its configuration")]
    Pod(String),
    /// A server judges by another list than its pod says.
    #[error("Server {id} judges quorums by {{{reports}}}, but its pod {pod} says {{{says}}}")]
    Voters {
        /// The server.
        id: ServerId,
        /// Its pod.
        pod: String,
        /// The voters by its own report.
        reports: Voters,
        /// The voters by the pod's annotation.
        says: Voters,
    },
}

impl Unknown {
    /// What a person does about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Template => "Put the annotations of the StatefulSet's pod template back.",
            Self::Pod(_) => "Put the pod's annotations back, or delete that pod.",
            Self::Voters { .. } => "Put the pod's annotation back, or delete that pod.",
        }
    }
}

/// A member: a pod with its server id and revision.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its server id.
    pub id: ServerId,
    /// Its pod.
    pub pod: &'a PodObservation,
    /// The voters of the configuration that it runs.
    pub voters: &'a Voters,
    /// Whether it was made from another pod template than the current one, or its server has other users of clients than
    /// there are now.
    pub outdated: bool,
}

impl Member<'_> {
    /// See [`PodObservation::serves`].
    pub fn serves(&self) -> bool {
        self.pod.serves()
    }

    /// See [`PodObservation::answers`].
    pub fn answers(&self) -> bool {
        self.pod.answers()
    }

    /// See [`PodObservation::is_idle`].
    pub fn is_idle(&self) -> bool {
        self.pod.is_idle()
    }

    /// Its role.
    pub fn role(&self) -> MemberRole {
        self.pod.server.role()
    }
}

/// The observation, indexed.
#[derive(Debug)]
pub struct View<'a> {
    /// The revision of the pod template.
    pub template: &'a Revision,
    /// What the servers tell of their lists, where members change at run time. The lists of pods and template are those that
    /// servers judge by then: see [`crate::plan::reconfiguration::as_judged`].
    pub lists: Option<Lists>,
    /// Newcomers that follow without a vote until the members agree on a list with them; none where lists are in files.
    pub joining: Voters,
    /// Members by server id; pods that are being deleted are among them.
    pub members: BTreeMap<ServerId, Member<'a>>,
    /// Ordinals that the StatefulSet wants and that have no pod.
    pub missing: BTreeSet<u16>,
    /// Voting members that take part in a quorum.
    pub serving: Voters,
    /// Members that answer.
    pub answering: Voters,
    /// The live voter sets: that of every pod that may still run, and that of the template, which every new pod
    /// gets.
    pub live: BTreeSet<&'a Voters>,
    /// What is encrypted.
    pub tls: Running<Encryption>,
    /// The one member that reports that it leads; `None` also when two report so.
    pub leader: Option<ServerId>,
    /// How many members report that they lead.
    pub leaders: usize,
    /// Whether a member may start with an empty disk and vote: at the first start, and in the step
    /// from one member to two.
    pub may_initialize: bool,
    /// Whether every volume claim carries the template's voters as the last list that was finished.
    pub claims_agree: bool,
    /// The volume claims of voters and former voters.
    pub claims: &'a [ClaimObservation],
    /// How long a server may take to join a leader: three attempts of `initLimit` ticks, and at least a minute.
    pub joining_time: SignedDuration,
    /// When all this was observed.
    pub now: Timestamp,
    /// The safety rules that hold: all of them, except in tests.
    pub rules: Rules,
    /// The ensemble's name.
    pub ensemble: &'a str,
    id_offset: u16,
}

impl<'a> View<'a> {
    /// Checks and indexes.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn new(
        rules: Rules,
        ensemble: &'a ValidEnsemble,
        observation: &'a Observation,
        set: &'a StatefulSetObservation,
    ) -> Result<Self, Unknown> {
        let template = set.template.as_ref().ok_or(Unknown::Template)?;
        let lists = Lists::of(observation, ensemble.id_offset);
        let mut members = BTreeMap::new();
        for pod in &observation.pods {
            let id = ServerId::of_ordinal(pod.ordinal, ensemble.id_offset);
            let revision = pod
                .revision
                .as_ref()
                .ok_or_else(|| Unknown::Pod(pod.name.clone()))?;
            if let ServerReport::Serving { voters, .. } = &pod.server
                && *voters != revision.voters
            {
                return Err(Unknown::Voters {
                    id,
                    pod: pod.name.clone(),
                    reports: voters.clone(),
                    says: revision.voters.clone(),
                });
            }
            let outdated = pod.is_outdated(set);
            members.insert(
                id,
                Member {
                    id,
                    pod,
                    voters: &revision.voters,
                    outdated,
                },
            );
        }
        let missing = (0..set.replicas)
            .filter(|o| observation.pods.iter().all(|p| p.ordinal != *o))
            .collect();
        let votes = |m: &&Member<'_>| matches!(m.role(), MemberRole::Leader | MemberRole::Follower);
        let serving = members.values().filter(votes).map(|m| m.id).collect();
        let answering = members
            .values()
            .filter(|m| m.answers())
            .map(|m| m.id)
            .collect();
        let leading: Vec<ServerId> = members
            .values()
            .filter(|m| m.role() == MemberRole::Leader)
            .map(|m| m.id)
            .collect();
        let leader = if let [one] = leading.as_slice() {
            Some(*one)
        } else {
            None
        };
        let live = members.values().filter(|m| m.serves() || lists.is_none());
        let live = live.map(|m| m.voters).chain([&template.voters]);
        // Another list was asked for, and the outcome is not known.
        let asked = lists.as_ref().is_some_and(|lists| lists.settled().is_err());
        let next = observation.claims.iter().filter_map(|c| c.next.as_ref());
        let live = live.chain(next.filter(|_| asked)).collect();
        let wanted = Voters::first(ensemble.size, ensemble.id_offset);
        let joining = match &lists {
            Some(_) => wanted.difference(&template.voters),
            None => Voters::default(),
        };
        Ok(Self {
            template,
            lists,
            joining,
            live,
            tls: Running::of(observation),
            members,
            missing,
            serving,
            answering,
            leader,
            leaders: leading.len(),
            may_initialize: observation
                .bootstrap
                .as_ref()
                .is_some_and(|b| b.initialize.is_some()),
            claims_agree: volumes::agree(&observation.claims, &template.voters),
            claims: &observation.claims,
            joining_time: joining_time(ensemble),
            now: observation.now,
            rules,
            ensemble: &ensemble.name,
            id_offset: ensemble.id_offset,
        })
    }

    /// The server id of an ordinal.
    pub fn id(&self, ordinal: u16) -> ServerId {
        ServerId::of_ordinal(ordinal, self.id_offset)
    }

    /// Members that have been unready for long, do not serve, and do not answer or cannot join the leader.
    pub fn gone(&self) -> Voters {
        let gone = |m: &&Member<'_>| {
            let long = m
                .pod
                .unready_since
                .is_some_and(|t| t + PATIENCE <= self.now || !self.rules.keep(Rule::Patience));
            let joins = m.answers() && self.can_join(m);
            long && !m.serves() && !joins
        };
        self.members.values().filter(gone).map(|m| m.id).collect()
    }

    /// Whether a member finds itself in the leader's majority, and the two servers reach each other.
    fn can_join(&self, member: &Member<'_>) -> bool {
        let tls = |m: &Member<'_>| m.pod.revision.as_ref().map(|revision| revision.tls);
        let leader = self.leader.and_then(|id| self.members.get(&id));
        let both = leader.and_then(tls).zip(tls(member));
        both.is_none_or(|(leader, own)| own.servers.fits(leader.servers))
            && can_join(member.id, member.voters, &self.serving, self.leader)
    }

    /// Whether a member that reports that it does not serve may be about to: it has been unready for less than
    /// the joining time, and it can join the leader, or enough members look to elect one.
    pub fn is_joining(&self, member: &Member<'_>) -> bool {
        let looks = |m: &Member<'_>| matches!(m.pod.server, ServerReport::Looking);
        let since = member.pod.unready_since;
        let short = since.is_some_and(|since| self.now.duration_since(since) < self.joining_time);
        let runs = member.pod.state == PodState::Running && looks(member);
        let looking = self.members.values().filter(|m| looks(m));
        self.rules.keep(Rule::JoiningTime)
            && runs
            && short
            && match self.leader {
                Some(_) => self.can_join(member),
                None => can_elect(looking.map(|m| (m.id, m.voters))),
            }
    }

    /// Whether a member has been silent for so long that the others continue without it.
    pub fn is_lost(&self, member: &Member<'_>) -> bool {
        let since = member.pod.unready_since.filter(|_| !member.answers());
        let unready = since.is_some_and(|s| self.now.duration_since(s) >= self.joining_time);
        unready || member.pod.has_been_silent(self.joining_time, self.now)
    }

    /// The ordinal of a server.
    pub fn ordinal(&self, id: ServerId) -> u16 {
        id.0.saturating_sub(self.id_offset + 1)
    }

    /// Whether the last membership step is finished on every voter: each runs the template's voters and serves,
    /// exactly one leads, and no other member exists.
    pub fn is_finished(&self) -> bool {
        self.is_finished_but_for(None)
    }

    /// As [`Self::is_finished`], except that the last voter may have been down for long.
    pub fn is_settled(&self) -> bool {
        let last = self.template.voters.last();
        let gone = last.filter(|id| self.gone().contains(*id));
        self.is_finished() || gone.is_some() && self.is_finished_but_for(gone)
    }

    /// As [`Self::is_finished`], except that one voter may be down or have no pod.
    fn is_finished_but_for(&self, exception: Option<ServerId>) -> bool {
        let exception: Voters = exception.into_iter().collect();
        let voters = self.template.voters.difference(&exception);
        let known = |id: &ServerId| self.template.voters.contains(*id);
        let missing = |ordinal: &u16| !exception.iter().any(|id| self.ordinal(id) == *ordinal);
        !self.missing.iter().any(missing)
            && self.leader.is_some()
            && self.members.keys().all(known)
            && self.live.len() == 1
            && self.all_run_and_serve(&voters, &self.template.voters)
    }

    /// Whether every one of these voters runs this list and serves.
    pub fn all_run(&self, voters: &Voters) -> bool {
        self.all_run_and_serve(voters, voters)
    }

    fn all_run_and_serve(&self, members: &Voters, list: &Voters) -> bool {
        members.iter().all(|id| {
            self.members
                .get(&id)
                .is_some_and(|m| m.voters == list && m.serves() && !m.pod.terminating)
        })
    }
}
