//! The reasons of events.
//!
//! An event about what is wrong with an ensemble has the reason of its condition `Degraded`
//! ([`crate::ensemble::status::Reason`]).

use schemars::JsonSchema;

use crate::guidance::{Guidance, NOTHING};

macro_rules! reasons {
    ($($(#[doc = $text:literal])* $name:ident: $person:expr),* $(,)?) => {
        /// Why an event was told.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
        pub enum EventReason {
            $($(#[doc = $text])* $name),*
        }

        impl EventReason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word that the API carries.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// What a person does.
            pub const fn guidance(self) -> Guidance {
                match self { $(Self::$name => Guidance::new("", $person)),* }
            }
        }
    };
}

reasons! {
    /// `ZooKeeperEnsemble`: the server list of the next pods was written. Members take it over one by one.
    ServerListChanged: NOTHING,
    /// `ZooKeeperEnsemble`: a member that does not lead is restarted, and why.
    RestartingMember: NOTHING,
    /// `ZooKeeperEnsemble`: the leader is restarted, last of all. Writes wait for the next leader.
    RestartingLeader: NOTHING,
    /// `ZooKeeperEnsemble`: the volume claim of a member that left is deleted, since
    /// `storage.reclaimPolicy` is `Delete`.
    DeletingVolume: NOTHING,
    /// `ZooKeeperEnsemble`, a warning: the volumes of a member are deleted, and it starts again with empty ones, since a person or
    /// `spec.replacement` says so.
    ReplacingMember: NOTHING,
    /// `ZooKeeperEnsemble`: another member leads.
    LeaderElected: "Nothing after a restart of the leader. If leaders change by themselves, see the members' logs and disks.",
    /// `ZooKeeperEnsemble`: the phase became `Ready`.
    Ready: NOTHING,
    /// `ZooKeeperEnsemble`: the phase became `Starting`.
    Starting: NOTHING,
    /// `ZooKeeperEnsemble`: the phase became `Growing`.
    Growing: NOTHING,
    /// `ZooKeeperEnsemble`: the phase became `Shrinking`.
    Shrinking: NOTHING,
    /// `ZooKeeperEnsemble`: the phase became `Rolling`.
    Rolling: NOTHING,
    /// `ZooKeeperEnsemble`: the phase became `Recovering`: a member is away.
    Recovering: "Nothing at first; if it lasts, see the condition `Degraded`.",
    /// `ZooKeeperEnsemble`: the phase became `Paused`.
    Paused: NOTHING,
    /// `ZooKeeperEnsemble`: the phase became `Deleting`.
    Deleting: NOTHING,
    /// `ZooKeeperEnsemble`, a warning: the phase became `Blocked`.
    Blocked: "What the reason of the condition `Stalled` says.",
    /// `ZooKeeperEnsemble`, a warning: the phase became `Invalid`.
    InvalidSpec: "Correct the fields that the message names.",
    /// `LeaderElection`: somebody else leads, or the same one with another node.
    LeaderChanged: NOTHING,
    /// `LeaderElection`, a warning: the leader is gone, and no candidate leads yet.
    LeaderLost: "If it lasts, see the candidates' logs.",
    /// `LeaderElection`, a warning: the mirror does not see the election any more.
    MirrorStale: "What the reason of the condition `Synced` says.",
    /// `LeaderElection`, a warning: a projection does not say what the status says.
    ProjectionFailed: "What the reason of the condition `Projected` says.",
    /// `LeaderElection`: pods of an older revision of its workload are replaced.
    RollingOut: NOTHING,
    /// `LeaderElection`: every pod of its workload has the newest revision, is ready and a candidate.
    RolledOut: NOTHING,
    /// `LeaderElection`, a warning: no pod of its workload can be evicted.
    RolloutStopped: "What the reason of the condition `RolledOut` says.",
    /// `LeaderElection`, a warning: a pod says that it leads, and another one leads by the znodes, or nobody.
    RivalLeader: "What the reason of the condition `SoleLeader` says.",
    /// `LeaderElection`: an election that moves has come to the side that shall lead.
    Crossed: NOTHING,
    /// `LeaderElection`, a warning: candidates in ZooKeeper and candidates at a Lease may lead at once.
    TwoMayLead: "What the reason of the condition `Bridged` says.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guidance::described;

    #[test]
    fn every_reason_says_what_it_is_about() {
        let described = described::<EventReason>();
        assert_eq!(described.len(), EventReason::ALL.len());
        for (word, text) in described {
            let starts = ["`ZooKeeperEnsemble`", "`LeaderElection`"];
            assert!(starts.iter().any(|s| text.starts_with(s)), "{word}: {text}");
        }
    }
}
