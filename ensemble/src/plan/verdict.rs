//! The decision on a member: no action, a restart, or a wait for something.

use std::fmt;

use bellwether_api::ensemble::{Awaited, MemberState, WaitingFor};

/// The plan's verdict on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    UpToDate,
    /// It restarts now, and why.
    Restart(String),
    /// It has to wait.
    Waiting(WaitingOn),
}

/// What a member, or the whole roll, waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingOn {
    /// A pod that is being deleted.
    Deletion(String),
    /// A pod that does not exist yet.
    Creation(String),
    /// The server in a pod that runs but has not answered yet.
    Start(String),
    /// A server that answers, to join the leader.
    Join(String),
    /// A server that should answer and does not, so the operator does not know its role.
    Answer(String),
    /// A leader.
    Leader,
    /// Two members say that they lead; one of them will notice that it does not.
    OneLeader,
    /// A majority that would be lost.
    Majority(String),
    /// Another member's restart.
    Turn(String),
    /// Another member's restart, since the leader is last.
    LeaderIsLast(String),
    /// The end of the step: then it leaves.
    Leave,
    /// Something else, in words.
    Other(String),
}

impl WaitingOn {
    /// What is waited for, and in which pod.
    pub fn waiting_for(&self) -> WaitingFor {
        let (what, pod) = match self {
            Self::Deletion(pod) => (Awaited::Deletion, Some(pod)),
            Self::Creation(pod) => (Awaited::Creation, Some(pod)),
            Self::Start(pod) => (Awaited::Start, Some(pod)),
            Self::Join(pod) => (Awaited::Join, Some(pod)),
            Self::Answer(pod) => (Awaited::Answer, Some(pod)),
            Self::Leader => (Awaited::Leader, None),
            Self::OneLeader => (Awaited::OneLeader, None),
            Self::Majority(_) => (Awaited::Majority, None),
            Self::Turn(pod) => (Awaited::Turn, Some(pod)),
            Self::LeaderIsLast(pod) => (Awaited::LeaderIsLast, Some(pod)),
            Self::Leave => (Awaited::Leave, None),
            Self::Other(_) => (Awaited::Other, None),
        };
        WaitingFor {
            what,
            pod: pod.cloned(),
        }
    }
}

impl Verdict {
    /// The verdict without its reasons.
    pub fn state(&self) -> MemberState {
        match self {
            Self::UpToDate => MemberState::UpToDate,
            Self::Restart(_) => MemberState::Restarting,
            Self::Waiting(_) => MemberState::Waiting,
        }
    }

    /// What the member waits for.
    pub fn waiting_for(&self) -> Option<WaitingFor> {
        match self {
            Self::Waiting(on) => Some(on.waiting_for()),
            _ => None,
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deletion(pod) => write!(f, "pod {pod} to terminate"),
            Self::Creation(pod) => write!(f, "pod {pod} to be created"),
            Self::Start(pod) => write!(f, "pod {pod} to start"),
            Self::Join(pod) => write!(f, "{pod} to join the leader"),
            Self::Answer(pod) => write!(f, "{pod} to answer; the operator does not know its role"),
            Self::Leader => f.write_str("a leader to be elected"),
            Self::OneLeader => f.write_str("one leader; two members report that they lead"),
            Self::Majority(why) => write!(f, "a majority: {why}"),
            Self::Turn(pod) => write!(f, "{pod}, which restarts first"),
            Self::LeaderIsLast(pod) => write!(f, "{pod}; the leader restarts last"),
            Self::Leave => f.write_str("the others to run without it; then it leaves"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpToDate => f.write_str("UpToDate"),
            Self::Restart(why) => write!(f, "Restart: {why}"),
            Self::Waiting(on) => write!(f, "Waiting for {on}"),
        }
    }
}
