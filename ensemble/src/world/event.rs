//! What happens in the world, in the words in which people read a forecast.

use std::fmt;

use bellwether_api::ensemble::ReclaimPolicy;

use super::difference::Line;
use crate::ids::{ServerId, Voters};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// New pods get another configuration or pod template.
    Configure {
        /// The configuration revision (a ConfigMap).
        revision: String,
        /// The voters before, if there were any.
        from: Option<Voters>,
        /// The voters under it.
        voters: Voters,
        /// How a voter's `zoo.cfg` differs from the one before.
        zoo_cfg: Vec<Line>,
        /// How the rest of the pod template differs.
        template: Vec<Line>,
    },
    /// A pod is created.
    Create {
        /// The pod.
        pod: String,
    },
    /// A pod is removed for good.
    Remove {
        /// The pod.
        pod: String,
        /// What becomes of its volumes.
        volumes: ReclaimPolicy,
    },
    /// A pod is deleted, so that it is created again from the current template.
    Restart {
        /// The pod.
        pod: String,
        /// Its server id.
        id: ServerId,
        /// Whether it leads.
        leads: bool,
        /// Why.
        reason: String,
    },
    /// The members agree on another list while they run.
    Agree {
        /// The list.
        voters: Voters,
    },
    /// A volume claim is asked for more.
    Grow {
        /// The claim.
        claim: String,
        /// The size in the user's words.
        size: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configure {
                revision,
                from,
                voters,
                ..
            } => match from {
                Some(from) if from != voters => {
                    write!(
                        f,
                        "new pods get {revision}: voters {{{from}}} -> {{{voters}}}"
                    )
                }
                _ => write!(f, "new pods get {revision}: voters {{{voters}}}"),
            },
            Self::Create { pod } => write!(f, "pod {pod} is created"),
            Self::Remove {
                pod,
                volumes: ReclaimPolicy::Retain,
            } => {
                write!(f, "pod {pod} is removed; its volumes stay")
            }
            Self::Remove {
                pod,
                volumes: ReclaimPolicy::Delete,
            } => {
                write!(f, "pod {pod} is removed, and its volumes are deleted")
            }
            Self::Restart {
                pod, leads, reason, ..
            } => {
                let who = if *leads { ", the leader," } else { "" };
                write!(f, "pod {pod}{who} restarts: {reason}")
            }
            Self::Agree { voters } => {
                write!(f, "the members agree on the server list {{{voters}}}")
            }
            Self::Grow { claim, size } => {
                write!(
                    f,
                    "claim {claim} asks for {size}, which its StorageClass must allow"
                )
            }
        }
    }
}
