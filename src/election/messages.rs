//! What the mirrors, the writer and the projector send each other.

use std::sync::Arc;

use bellwether_api::conditions::NewCondition;
use bellwether_api::{LeaderElection, LeaderElectionStatus};
use bellwether_election::Sight;
use bellwether_election::projection::Projection;
use jiff::Timestamp;

use super::Key;
use super::noticed::Noticed;
use super::sighting::Sighting;

/// A message to the writer.
#[derive(Debug)]
pub(super) enum WriterInput {
    /// The object as the API server has it.
    Object(Arc<LeaderElection>),
    /// The object was deleted.
    Gone(Key),
    /// What a mirror sees.
    Seen(Box<Seen>),
    /// The leader was read again, and leads.
    Confirmed(Key),
    /// The outcome of the projections.
    Projected(Box<Projected>),
    /// What the bridge does.
    Bridged(Box<Bridged>),
}

/// What a mirror sees.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) key: Key,
    /// The object that the mirror was started for, and its generation.
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) sight: Sight,
    /// When the leader was last read, from now on.
    pub(super) sighting: Sighting,
    /// When the event came that made the mirror look.
    pub(super) noticed: Noticed,
}

/// The outcome of an election's projections.
#[derive(Debug)]
pub(super) struct Projected {
    pub(super) key: Key,
    /// The object that it is about, and its generation.
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) projection: Projection,
}

/// What an election's bridge does.
#[derive(Debug)]
pub(super) struct Bridged {
    pub(super) key: Key,
    /// The object that it is about, and its generation.
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    /// The condition `Bridged`.
    pub(super) condition: NewCondition,
}

/// A message to the projector.
#[derive(Debug)]
pub(super) enum ElectionUpdate {
    /// An election as it is now.
    Election {
        object: Arc<LeaderElection>,
        /// Its status as of now, written or not, if it has projections and was seen.
        status: Option<Arc<LeaderElectionStatus>>,
        /// When its leader was last read, if that is known.
        sighting: Option<Sighting>,
        /// When the leader had to run at the latest, if that is known.
        owned: Option<Timestamp>,
        /// When the event came that made the mirror look, if it caused this update.
        noticed: Option<Noticed>,
    },
    /// The leader of the election was read again, and leads.
    Confirmed(Key),
    /// The election was deleted; another one may have its name.
    Gone {
        /// Its name.
        key: Key,
        /// Its uid.
        uid: String,
    },
}
