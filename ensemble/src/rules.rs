//! The safety rules of the planner and the executor as switches, for tests only.
//!
//! The operator plans under [`Rules::ALL`], and without the cargo feature `mutations` there is no other
//! value: [`Rules`] has no content, and every rule is a constant. With the feature a test switches a rule off
//! and shows the harm that it prevents; a rule without such a test would be unproven.

/// One safety rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// The size changes in steps of one member, and a list becomes live only beside lists that share a
    /// voter with it in every two majorities.
    SmallSteps,
    /// A step begins only when the step before it is finished on every voter, so that at most two lists
    /// are live.
    FinishedFirst,
    /// A template that names a newcomer restarts an old member only when the newcomer follows, and an
    /// updated member that can join has joined before the next restart.
    JoinedFirst,
    /// The leader restarts only when all other members are done.
    LeaderLast,
    /// A leaver that leads is restarted, so that a member that stays leads.
    LeaverStepsDown,
    /// A leaver's pod is removed only when every voter runs a list without it.
    LeaverGoesLast,
    /// The members that stay through a restart serve a majority of every live list.
    KeepMajority,
    /// No restart while a pod is missing, being deleted, or has not answered yet.
    OneAtATime,
    /// Only the newcomer in the step from one member to two starts with an empty disk and a vote.
    EmptyDisksDoNotVote,
    /// A step begins only when every volume claim carries the list that was finished, and its own.
    ClaimsFirst,
    /// The operator takes back a list that somebody else wrote into the pod template, where that is safe.
    TakeBack,
    /// A member counts as gone only after it has been unready for a while.
    Patience,
    /// Where no restart keeps a majority and updated members cannot join, the roll continues.
    RollForward,
    /// No restart while two members report that they lead.
    OneLeader,
    /// A member restarts without regard to the majority only if it is known to take part in none.
    IdleIsKnown,
    /// A member that may be copying the leader's data gets time to join.
    JoiningTime,
    /// An ensemble is started again only from a list that meets every list on the claims.
    StartFromClaims,
    /// A volume is deleted only if nothing names its member and all others serve.
    DeleteLeaversOnly,
    /// The permission to start with an empty disk ends for good when a member is ready or it expires.
    PermissionEnds,
    /// The operator adopts only pods that their StatefulSet has orphaned.
    AdoptOrphansOnly,
    /// Only ZooKeeper's own containers decide whether a member is idle.
    OwnContainersDecide,
    /// The roll does not wait for an outdated member that has been silent for long.
    SilenceEnds,
    /// The operator changes nothing before the objects of a deleted ensemble of the same name are deleted.
    LeftoversFirst,
    /// The facts that a step was decided on are read again just before it.
    FreshFacts,
    /// A step acts only on the version of the pod or claim that was judged.
    StepAsJudged,
    /// The StatefulSet and the permission to start with an empty disk are written only if unchanged since they
    /// were read.
    WriteAsSeen,
    /// Every write needs the operator's lease.
    LeaseHeld,
    /// A pass that changes the StatefulSet takes no step: its controller has to see the change first.
    WriteThenLook,
    /// A running ensemble goes from plaintext to TLS, and back, by way of states in which servers accept both.
    TlsInTurn,
}

#[cfg(feature = "mutations")]
impl Rule {
    /// Every rule: those of the planner, then those of the executor.
    pub const EVERY: [Self; 29] = [
        Self::SmallSteps,
        Self::FinishedFirst,
        Self::JoinedFirst,
        Self::LeaderLast,
        Self::LeaverStepsDown,
        Self::LeaverGoesLast,
        Self::KeepMajority,
        Self::OneAtATime,
        Self::EmptyDisksDoNotVote,
        Self::ClaimsFirst,
        Self::TakeBack,
        Self::Patience,
        Self::RollForward,
        Self::OneLeader,
        Self::IdleIsKnown,
        Self::JoiningTime,
        Self::StartFromClaims,
        Self::DeleteLeaversOnly,
        Self::PermissionEnds,
        Self::AdoptOrphansOnly,
        Self::OwnContainersDecide,
        Self::SilenceEnds,
        Self::LeftoversFirst,
        Self::FreshFacts,
        Self::StepAsJudged,
        Self::WriteAsSeen,
        Self::LeaseHeld,
        Self::WriteThenLook,
        Self::TlsInTurn,
    ];
}

/// Which safety rules hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    #[cfg(feature = "mutations")]
    off: u32,
}

impl Rules {
    /// Every rule holds.
    pub const ALL: Self = Self {
        #[cfg(feature = "mutations")]
        off: 0,
    };

    /// Whether this rule holds.
    #[cfg(not(feature = "mutations"))]
    pub const fn keep(self, _rule: Rule) -> bool {
        true
    }

    /// Whether this rule holds.
    #[cfg(feature = "mutations")]
    pub const fn keep(self, rule: Rule) -> bool {
        self.off & 1 << rule as u32 == 0
    }

    /// The same without this rule.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub const fn without(self, rule: Rule) -> Self {
        Self {
            off: self.off | 1 << rule as u32,
        }
    }
}
