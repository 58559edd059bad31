//! Whether the volume belongs to this member.
//!
//! A member that starts on the disk of another one votes with the other's data, and a member that
//! starts on the disk of another ensemble brings that ensemble's history along. So every volume
//! carries a mark, and what does not match it is refused.

use serde_json::{Value, json};

use crate::identity::Identity;

/// The name of the mark, at the root of the volume.
pub const MARK: &str = "bellwether.json";
/// The name of ZooKeeper's own file with the server id.
pub const MYID: &str = "myid";
/// The version of the mark's format that this program reads and writes.
const FORMAT: u64 = 1;

/// What was found on the volumes, before anything is judged.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The mark in the data directory.
    pub mark: Option<Vec<u8>>,
    /// The mark in the transaction log directory; the outer `None` if there is no separate one.
    pub log_mark: Option<Option<Vec<u8>>>,
    /// `myid`.
    pub myid: Option<Vec<u8>>,
    /// The path of one file of ZooKeeper's database, if there is any.
    pub database: Option<String>,
}

/// The mark to write.
pub(crate) fn mark_of(identity: &Identity) -> String {
    mark_with(identity, None, None)
}

/// The mark to write on a volume that was empty when this epoch was on record. `starts` is how often a
/// member started whose transaction log has a volume of its own; both volumes carry it.
pub(crate) fn mark_with(identity: &Identity, empty_at: Option<u64>, starts: Option<u64>) -> String {
    let mut mark = json!({
        "ensemble": identity.ensemble,
        "serverId": identity.server_id,
        "format": FORMAT,
    });
    if let Some(epoch) = empty_at {
        mark["emptyAt"] = json!(epoch);
    }
    if let Some(starts) = starts {
        mark["starts"] = json!(starts);
    }
    format!("{mark}\n")
}

/// The epoch that was on record when the volume with this mark was empty.
pub(crate) fn empty_at(mark: Option<&[u8]>) -> Option<u64> {
    serde_json::from_slice::<Value>(mark?).ok()?["emptyAt"].as_u64()
}

/// How often the member with this mark has started; `None` where the transaction log is on the same
/// volume as the snapshots.
fn starts(mark: Option<&[u8]>) -> Option<u64> {
    serde_json::from_slice::<Value>(mark?).ok()?["starts"].as_u64()
}

/// The number of the start that begins now. The data volume's mark decides, so that repeated starts that are
/// interrupted between the two marks do not move them apart.
pub(crate) fn next_start(found: &Found) -> u64 {
    let log = found.log_mark.as_ref().and_then(|mark| mark.as_deref());
    let last = starts(found.mark.as_deref()).or_else(|| starts(log));
    last.unwrap_or(0).saturating_add(1)
}

/// Refuses two volumes that are of different times: one of them is an old copy. The log's mark is
/// written first, so a start that was interrupted leaves it one ahead.
fn check_same_time(identity: &Identity, found: &Found) -> Result<(), String> {
    let log = found.log_mark.as_ref().and_then(|mark| mark.as_deref());
    let (Some(data), Some(log)) = (starts(found.mark.as_deref()), starts(log)) else {
        return Ok(());
    };
    if found.database.is_none() || log == data || log == data.saturating_add(1) {
        return Ok(());
    }
    let old = if log < data {
        "transaction log"
    } else {
        "data"
    };
    Err(format!(
        "the {old} volume of {identity} is older than it should be: the data volume is of start {data} \
         of this member, and the transaction log volume of start {log}. Writes that this server \
         acknowledged may be missing. Bring the right volume back; or delete both volume claims and \
         this pod: the member then starts empty, does not vote at first and copies everything from the \
         others."
    ))
}

/// Refuses a volume that is not this member's own.
///
/// Returns `true` if the volume was marked before, `false` if it is new.
pub(crate) fn check(identity: &Identity, found: &Found) -> Result<bool, String> {
    let mark = found
        .mark
        .as_deref()
        .map(|m| parse_mark(m, "data"))
        .transpose()?;
    let log_mark = match &found.log_mark {
        Some(Some(bytes)) => Some(parse_mark(bytes, "transaction log")?),
        _ => None,
    };
    for (owner, volume) in [(&mark, "data"), (&log_mark, "transaction log")] {
        if let Some(owner) = owner
            && owner != identity
        {
            return Err(other_owner(identity, owner, volume));
        }
    }
    if let Some(myid) = found.myid.as_deref() {
        let on_volume = parse_myid(identity, myid)?;
        if on_volume != identity.server_id {
            return Err(format!(
                "the data volume has the myid of server {on_volume}, but this pod is {identity}. \
                 It is refused so that no server votes with the data of another. {}",
                what_to_do(identity)
            ));
        }
    }
    if found.log_mark.is_none() && starts(found.mark.as_deref()).is_some() {
        return Err(format!(
            "the data volume belongs to {identity}, and its transaction log is on another volume, which \
             this pod does not have. The snapshots alone lack writes that were acknowledged. Set \
             storage.transactionLog as it was; or delete this pod's volume claim and the pod: the \
             member then starts empty, does not vote at first and copies everything from the others."
        ));
    }
    check_same_time(identity, found)?;
    match (&mark, &found.log_mark) {
        (None, Some(Some(_))) if found.database.is_some() => Err(format!(
            "the transaction log volume belongs to {identity}, but the data volume is new: the \
             snapshots that it held are gone, and a log without them may not be whole. Bring the old \
             data volume back, or delete both volume claims and this pod: the member then starts \
             empty, does not vote at first and copies everything from the others."
        )),
        // Without a database, an unmarked log volume has lost nothing.
        (Some(_), Some(None)) if found.database.is_none() => Ok(true),
        (None, _) => match &found.database {
            None => Ok(false),
            Some(file) => Err(format!(
                "the volume holds a ZooKeeper database ({file}) but no mark of Bellwether, so Bellwether \
                 cannot tell whose data it is; expected a volume of {identity}, or an empty one. If the data \
                 is known to be that member's own, write {MARK} next to version-2 with the content \
                 {}. {}",
                mark_of(identity).trim_end(),
                what_to_do(identity)
            )),
        },
        (Some(_), Some(None)) => Err(format!(
            "the data volume belongs to {identity}, but the transaction log volume is new: what it \
             held is gone, and with it maybe writes that were acknowledged. Bring the old transaction \
             log volume back, or delete both volume claims and this pod: the member then starts \
             empty, does not vote at first and copies everything from the others."
        )),
        (Some(_), _) => Ok(true),
    }
}

fn other_owner(identity: &Identity, owner: &Identity, volume: &str) -> String {
    let kind = if owner.ensemble == identity.ensemble {
        "member"
    } else {
        "ensemble"
    };
    format!(
        "the {volume} volume belongs to another {kind}: it is marked as {owner}, but this pod is \
         {identity}. {}",
        what_to_do(identity)
    )
}

fn what_to_do(identity: &Identity) -> String {
    format!(
        "If the data on it is no longer needed, delete this pod's volume claim and the pod: the \
         member then starts empty and copies everything from the others. If it is needed, bring the \
         volume that belongs to {identity} back."
    )
}

fn parse_mark(bytes: &[u8], volume: &str) -> Result<Identity, String> {
    let refuse = |what: &str| {
        format!(
            "the mark on the {volume} volume ({MARK}) {what}: {}. Expected {}. Correct it by hand if \
             it is known whose data it is, or delete this pod's volume claim and the pod: the member \
             then starts empty and copies everything from the others.",
            excerpt(bytes),
            r#"{"ensemble":"<namespace>/<name>","serverId":<id>,"format":1}"#
        )
    };
    let value: Value = serde_json::from_slice(bytes).map_err(|_| refuse("is no JSON"))?;
    match value.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => {
            return Err(format!(
                "the mark on the {volume} volume ({MARK}) has format {newer}, this version of \
                 Bellwether reads format {FORMAT}: a newer version wrote it. Upgrade the operator again."
            ));
        }
        _ => return Err(refuse("has no known format")),
    }
    let ensemble = value.get("ensemble").and_then(Value::as_str);
    let server_id = value.get("serverId").and_then(Value::as_u64);
    match (ensemble, server_id) {
        (Some(ensemble), Some(server_id)) => Ok(Identity {
            ensemble: ensemble.to_owned(),
            server_id,
        }),
        _ => Err(refuse("does not name an ensemble and a server id")),
    }
}

fn parse_myid(identity: &Identity, bytes: &[u8]) -> Result<u64, String> {
    std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        format!(
            "the file {MYID} on the data volume holds no server id: {}; expected {}. If the data is \
             known to be that member's own, write {} into it. {}",
            excerpt(bytes),
            identity.server_id,
            identity.server_id,
            what_to_do(identity)
        )
    })
}

/// The beginning of a file that could hold anything, fit for a message.
fn excerpt(bytes: &[u8]) -> String {
    const LIMIT: usize = 120;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LIMIT)]);
    let more = if bytes.len() > LIMIT { " ..." } else { "" };
    format!("{text:?}{more}")
}

#[cfg(test)]
mod tests;
