//! Whether the volume belongs to this member.
//!
//! A member that starts on the disk of another one votes with the other's data, and a member that
//! starts on the disk of another ensemble brings that ensemble's history along. So every volume
//! carries a mark, and what does not match it is refused.

use serde_json::{Value, json};

use crate::identity::Identity;

/// The name of the mark, at the root of the volume.
pub(crate) const MARK: &str = "bellwether.json";
/// The name of ZooKeeper's own file with the server id.
pub(crate) const MYID: &str = "myid";
/// The version of the mark's format that this program reads and writes.
const FORMAT: u64 = 1;

/// What was found on the volumes, before anything is judged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The mark in the data directory.
    pub(crate) mark: Option<Vec<u8>>,
    /// The mark in the transaction log directory; the outer `None` if there is no separate one.
    pub(crate) log_mark: Option<Option<Vec<u8>>>,
    /// `myid`.
    pub(crate) myid: Option<Vec<u8>>,
    /// The path of one file of ZooKeeper's database, if there is any.
    pub(crate) database: Option<String>,
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

/// The number of the start that begins now. The data volume counts: a start that is interrupted again
/// and again between the two marks must not move them apart.
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
/// Says `true` if the volume was marked before, `false` if it is new.
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
        // There was nothing to lose.
        (Some(_), Some(None)) if found.database.is_none() => Ok(true),
        (None, _) => match &found.database {
            None => Ok(false),
            Some(file) => Err(format!(
                "the volume holds a ZooKeeper database ({file}) but no mark of Bellwether, so nobody can \
                 tell whose data it is; expected a volume of {identity}, or an empty one. If the data \
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
mod tests {
    use super::*;

    fn member() -> Identity {
        Identity {
            ensemble: "shop/zk".to_owned(),
            server_id: 2,
        }
    }

    fn mark(ensemble: &str, id: u64) -> Option<Vec<u8>> {
        Some(
            mark_of(&Identity {
                ensemble: ensemble.to_owned(),
                server_id: id,
            })
            .into_bytes(),
        )
    }

    fn text(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    fn database() -> Option<String> {
        Some("/data/version-2/snapshot.0".to_owned())
    }

    #[test]
    fn its_own_volume_and_an_empty_one_are_accepted() {
        let accepted = [
            (Found::default(), false),
            // The mark is written first, so a member may find it without myid.
            (
                Found {
                    mark: mark("shop/zk", 2),
                    ..Found::default()
                },
                true,
            ),
            (
                Found {
                    mark: mark("shop/zk", 2),
                    myid: text("2\n"),
                    database: database(),
                    log_mark: None,
                },
                true,
            ),
            (
                Found {
                    mark: mark("shop/zk", 2),
                    log_mark: Some(mark("shop/zk", 2)),
                    ..Found::default()
                },
                true,
            ),
            // It never had a database, so no log is missing.
            (
                Found {
                    mark: mark("shop/zk", 2),
                    log_mark: Some(None),
                    ..Found::default()
                },
                true,
            ),
            // A first run that ended between the two marks: the log's mark is written first.
            (
                Found {
                    log_mark: Some(mark("shop/zk", 2)),
                    ..Found::default()
                },
                false,
            ),
            (
                Found {
                    log_mark: Some(None),
                    ..Found::default()
                },
                false,
            ),
            (
                Found {
                    myid: text("2"),
                    ..Found::default()
                },
                false,
            ),
        ];
        for (found, marked) in accepted {
            assert_eq!(check(&member(), &found), Ok(marked), "{found:?}");
        }
    }

    #[test]
    fn every_other_volume_is_refused_with_what_is_on_it_and_what_to_do() {
        let refused = [
            (
                Found {
                    mark: mark("shop/other", 2),
                    ..Found::default()
                },
                "another ensemble: it is marked as server 2 of ensemble shop/other",
            ),
            (
                Found {
                    mark: mark("shop/zk", 3),
                    ..Found::default()
                },
                "another member: it is marked as server 3 of ensemble shop/zk",
            ),
            (
                Found {
                    myid: text("3"),
                    ..Found::default()
                },
                "the myid of server 3",
            ),
            (
                Found {
                    mark: mark("shop/zk", 2),
                    myid: text("3"),
                    ..Found::default()
                },
                "the myid of server 3",
            ),
            (
                Found {
                    database: database(),
                    ..Found::default()
                },
                "(/data/version-2/snapshot.0) but no mark",
            ),
            (
                Found {
                    database: database(),
                    myid: text("2"),
                    ..Found::default()
                },
                "but no mark",
            ),
            (
                Found {
                    mark: mark("shop/zk", 2),
                    log_mark: Some(None),
                    database: database(),
                    ..Found::default()
                },
                "transaction log volume is new",
            ),
            (
                Found {
                    log_mark: Some(mark("shop/zk", 2)),
                    database: database(),
                    ..Found::default()
                },
                "data volume is new",
            ),
            (
                Found {
                    mark: Some(mark_with(&member(), None, Some(1)).into_bytes()),
                    database: database(),
                    ..Found::default()
                },
                "its transaction log is on another volume",
            ),
            (
                Found {
                    mark: mark("shop/zk", 2),
                    log_mark: Some(mark("a/b", 2)),
                    ..Found::default()
                },
                "the transaction log volume belongs to another ensemble",
            ),
        ];
        for (found, words) in refused {
            let message = check(&member(), &found).unwrap_err();
            assert!(message.contains(words), "{message}");
            assert!(
                message.contains("server 2 of ensemble shop/zk"),
                "{message}"
            );
            assert!(message.contains("delete"), "{message}");
        }
    }

    #[test]
    fn two_volumes_of_different_times_are_refused() {
        let at = |starts| Some(mark_with(&member(), None, Some(starts)).into_bytes());
        let found = |data, log| Found {
            mark: at(data),
            log_mark: Some(at(log)),
            database: database(),
            ..Found::default()
        };
        // The marks are written one after the other, the log's first.
        for (data, log) in [(3, 3), (3, 4)] {
            assert_eq!(check(&member(), &found(data, log)), Ok(true));
            assert_eq!(next_start(&found(data, log)), data + 1);
        }
        for (data, log, old) in [(4, 3, "transaction log"), (3, 5, "data")] {
            let message = check(&member(), &found(data, log)).unwrap_err();
            let words = format!("the {old} volume of server 2 of ensemble shop/zk is older");
            assert!(message.contains(&words), "{message}");
        }
        // Without a database there is nothing old.
        let empty = Found {
            database: None,
            ..found(7, 1)
        };
        assert_eq!(check(&member(), &empty), Ok(true));
    }

    #[test]
    fn malformed_files_are_refused_and_never_a_panic() {
        let marks: &[(&[u8], &str)] = &[
            (b"", "is no JSON"),
            (b"\xff\xfe\x00", "is no JSON"),
            (b"{", "is no JSON"),
            (b"[]", "has no known format"),
            (
                b"{\"ensemble\":\"shop/zk\",\"serverId\":2}",
                "has no known format",
            ),
            (b"{\"format\":2}", "a newer version wrote it"),
            (b"{\"format\":-1}", "has no known format"),
            (
                b"{\"format\":1,\"ensemble\":7,\"serverId\":2}",
                "does not name",
            ),
            (
                b"{\"format\":1,\"ensemble\":\"shop/zk\",\"serverId\":\"2\"}",
                "does not name",
            ),
            (
                b"{\"format\":1,\"ensemble\":\"shop/zk\",\"serverId\":1e400}",
                "is no JSON",
            ),
        ];
        for (bytes, words) in marks {
            let found = Found {
                mark: Some(bytes.to_vec()),
                ..Found::default()
            };
            let message = check(&member(), &found).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        for myid in [
            &b""[..],
            b"two",
            b"\xc3\x28",
            b"2 3",
            b"-2",
            b"99999999999999999999999",
        ] {
            let found = Found {
                myid: Some(myid.to_vec()),
                ..Found::default()
            };
            let message = check(&member(), &found).unwrap_err();
            assert!(message.contains("holds no server id"), "{message}");
        }
    }

    #[test]
    fn a_message_shows_only_the_beginning_of_a_long_file() {
        let found = Found {
            myid: Some(vec![b'x'; 1 << 20]),
            ..Found::default()
        };
        assert!(check(&member(), &found).unwrap_err().len() < 1000);
    }

    #[test]
    fn the_mark_reads_back_as_written() {
        assert_eq!(
            parse_mark(mark_of(&member()).as_bytes(), "data"),
            Ok(member())
        );
    }
}
