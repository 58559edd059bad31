//! What becomes of a member: nothing, a restart, or a wait for something.

use std::fmt;

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
    /// The pod with this ordinal, which does not exist yet.
    Creation(u16),
    /// The server in a pod that runs but has not answered yet.
    Start(String),
    /// A server that answers, to join the leader.
    Join(String),
    /// A server that should answer and does not: nothing is known of it.
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
    /// Every word that [`Self::word`] may give.
    pub const WORDS: [&'static str; 12] = [
        "deletion",
        "creation",
        "start",
        "join",
        "answer",
        "leader",
        "one_leader",
        "majority",
        "turn",
        "leader_is_last",
        "leave",
        "other",
    ];

    /// What is waited for, in one word for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Deletion(_) => "deletion",
            Self::Creation(_) => "creation",
            Self::Start(_) => "start",
            Self::Join(_) => "join",
            Self::Answer(_) => "answer",
            Self::Leader => "leader",
            Self::OneLeader => "one_leader",
            Self::Majority(_) => "majority",
            Self::Turn(_) => "turn",
            Self::LeaderIsLast(_) => "leader_is_last",
            Self::Leave => "leave",
            Self::Other(_) => "other",
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deletion(pod) => write!(f, "pod {pod} to be gone"),
            Self::Creation(ordinal) => write!(f, "the pod with ordinal {ordinal} to be created"),
            Self::Start(pod) => write!(f, "pod {pod} to start"),
            Self::Join(pod) => write!(f, "{pod} to join the leader"),
            Self::Answer(pod) => write!(f, "{pod} to answer; nothing is known of its server"),
            Self::Leader => f.write_str("a leader to be elected"),
            Self::OneLeader => f.write_str("one leader; two members say that they lead"),
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
