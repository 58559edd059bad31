//! The decision of `prepare`: it judges everything that was found, in the order that loses no data.

use crate::bootstrap::{self, Marker};
use crate::epoch;
use crate::identity::Identity;
use crate::ownership::{self, Found};

/// The inputs of the decision, before a server starts. Files are as they were read; `None` is a missing file.
#[derive(Clone, Debug)]
pub struct Around {
    /// Which member this is.
    pub identity: Identity,
    /// What is on the volumes.
    pub found: Found,
    /// The epoch of the database; 0 without one.
    pub epoch: u64,
    /// `epochs` of the bootstrap ConfigMap: the epochs that the operator saw voters serving in.
    pub recorded: Option<Vec<u8>>,
    /// `initialize` of the bootstrap ConfigMap: the servers that may vote with an empty volume.
    pub permitted: Option<Vec<u8>>,
    /// `until` of the bootstrap ConfigMap: Unix seconds after which that permission is void.
    pub until: Option<Vec<u8>>,
    /// `initialize` of the configuration revision: the servers that have to vote with an empty volume.
    pub required: Option<Vec<u8>>,
    /// Unix seconds.
    pub now: u64,
}

/// What the program does to the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the data volume was marked before.
    pub known: bool,
    /// The mark for every volume; on the transaction log's first, if it has a volume of its own.
    pub mark: String,
    /// What to do with the file `initialize`. An error is why the server may not start yet; the file must be
    /// absent then, and nothing else is written.
    pub marker: Result<Marker, String>,
}

/// Decides what to do to the volumes.
///
/// # Errors
/// Why the volumes are refused, and what a person can do. Nothing is written then.
pub fn decide(around: &Around) -> Result<Decision, String> {
    let Around {
        identity, found, ..
    } = around;
    let known = ownership::check(identity, found)?;
    let recorded = epoch::parse_recorded(identity.server_id, around.recorded.as_deref())?;
    let empty_at = match found.database {
        None => recorded,
        Some(_) => ownership::empty_at(found.mark.as_deref()),
    };
    if found.database.is_some() {
        epoch::check(identity, around.epoch, recorded, empty_at)?;
    }
    let starts = found.log_mark.is_some();
    let starts = starts.then(|| ownership::next_start(found));
    Ok(Decision {
        known,
        mark: ownership::mark_with(identity, empty_at, starts),
        marker: marker(around),
    })
}

fn marker(around: &Around) -> Result<Marker, String> {
    let id = around.identity.server_id;
    let has_database = around.found.database.is_some();
    if has_database {
        return Ok(Marker::RemoveBecauseThereIsData);
    }
    let permission =
        bootstrap::parse_permission(around.permitted.as_deref(), around.until.as_deref())?;
    let marker = bootstrap::decide(id, has_database, permission.as_ref(), around.now)?;
    let required = bootstrap::parse_list(around.required.as_deref())?;
    if required.contains(&id) && marker != Marker::Create {
        return Err(bootstrap::not_yet_permitted());
    }
    Ok(marker)
}
