//! From the znodes of an election to who leads, who waits, and what the `LeaderElection` says.
//!
//! This crate is pure: no clock, no sockets, no runtime. A spec is checked and becomes [`Rules`]; the
//! operator reads znodes into a [`Snapshot`]; [`read_election`] turns it into a [`Reading`] by the
//! rules; and [`mod@status`] turns that, or the fact that nothing can be read, into the object's
//! status.
//!
//! ```text
//! spec -> Rules: names of children -> which nodes to read -> Snapshot -> read_election -> Reading
//!                                                     Sight (Reading | Blind) + old status -> status
//! ```
//!
//! Properties that hold for every input:
//!
//! * Nothing panics, whatever bytes the applications wrote into names and data.
//! * The order of candidates is that of the library that made them, so the leader shown is the
//!   one that the library elects.
//! * The fencing token is the zxid that created the leader's node, or wrote its data where that makes it the
//!   leader's, as in a node that outlives sessions. It never decreases in a status unless the condition
//!   `QueueHealthy` reports it.
//! * While the mirror is blind, the status keeps what it saw and asserts nothing.

mod anomaly;
mod beside;
pub mod bridge;
pub mod census;
pub mod claims;
mod decode;
mod dialect;
pub mod guards;
pub mod handover;
pub mod limits;
pub mod permissions;
pub mod projection;
mod reading;
pub mod rollout;
mod rules;
mod status;
pub mod terms;
mod words;

pub use anomaly::{Anomaly, Common};
pub use beside::{OtherCandidates, Tenure};
pub use decode::{Identity, MAX_IDENTITY};
pub use dialect::Detection;
pub use reading::{
    Acknowledgement, Candidacy, CandidateNode, NodeStat, RankedCandidate, Reading, Registration,
    Snapshot, Verdict, read_election,
};
pub use rules::{InvalidSpec, MAX_READ, Place, Rules, ZnodeLocation};
pub use status::{
    Blindness, Done, Sight, Urgency, end_of_term, flaps_until, status, status_and_done, urgency,
};
