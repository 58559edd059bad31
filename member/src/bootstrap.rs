//! Whether a member with an empty disk may take part in forming the ensemble.
//!
//! ZooKeeper runs with `db.autocreate=false`: a server without a database joins, but does not vote,
//! unless it finds a file `initialize`. Bellwether permits that file at the first bootstrap and to the
//! newcomer in the step from one member to two, by name and for a limited time, so that a member that
//! lost its disk later can never outvote the members that still have theirs.

/// The permission to bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    /// The servers that may start with an empty disk.
    server_ids: Vec<u64>,
    /// Unix seconds after which the permission is void.
    until: u64,
}

/// What to do with the file `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The disk has a database: the file must not exist.
    RemoveBecauseThereIsData,
    /// The disk is empty and nothing permits a bootstrap: join without a vote until synced.
    RemoveBecauseNotPermitted,
    /// The disk is empty and this server may bootstrap.
    Create,
}

impl Marker {
    /// How the log line names it.
    pub fn explain(self) -> &'static str {
        match self {
            Self::RemoveBecauseThereIsData => "the volume holds a database",
            Self::RemoveBecauseNotPermitted => {
                "the volume is empty and may not bootstrap: the server joins and votes once it has \
                 copied the data of the others"
            }
            Self::Create => "the volume is empty and may bootstrap",
        }
    }
}

/// Reads the permission; `None` if both files are absent.
pub(crate) fn parse_permission(
    initialize: Option<&[u8]>,
    until: Option<&[u8]>,
) -> Result<Option<Permission>, String> {
    let server_ids = parse_list(initialize)?;
    if server_ids.is_empty() {
        return Ok(None);
    }
    let until = until
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| malformed("it does not say until when it holds"))?;
    Ok(Some(Permission { server_ids, until }))
}

/// The error for a server that its revision requires to vote with an empty disk, and that has no permission
/// for it. A start without a vote would leave epoch files and wait for ever: of two members both must vote.
pub(crate) fn not_yet_permitted() -> String {
    "the volume is empty, this server's list needs its vote, and nothing permits it to vote with an \
     empty volume. The operator gives the permission while the ensemble grows from one member to two, \
     and this container tries again; if the ensemble had grown already, the volume was lost, and the \
     operator says in the ensemble's status what can be done"
        .to_owned()
}

/// Reads server ids separated by commas; empty if there is no file.
pub(crate) fn parse_list(bytes: Option<&[u8]>) -> Result<Vec<u64>, String> {
    let text = std::str::from_utf8(bytes.unwrap_or_default())
        .map_err(|_| malformed("the list is not UTF-8"))?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|id| {
            id.trim()
                .parse()
                .map_err(|_| malformed(&format!("{id:?} is no server id")))
        })
        .collect()
}

fn malformed(what: &str) -> String {
    format!("the permission to bootstrap is malformed: {what}; the operator writes it anew")
}

/// Decides about the file `initialize`.
///
/// An expired permission for this server is an error and not a refusal to bootstrap: without the
/// file the server would write epoch files and then wait for an ensemble that may not exist yet.
pub(crate) fn decide(
    server_id: u64,
    has_database: bool,
    permission: Option<&Permission>,
    now: u64,
) -> Result<Marker, String> {
    if has_database {
        return Ok(Marker::RemoveBecauseThereIsData);
    }
    match permission.filter(|p| p.server_ids.contains(&server_id)) {
        None => Ok(Marker::RemoveBecauseNotPermitted),
        Some(Permission { until, .. }) if now > *until => Err(format!(
            "the permission to bootstrap expired {} s ago; the operator renews it, and this \
             container tries again",
            now - until
        )),
        Some(_) => Ok(Marker::Create),
    }
}

/// Whether a file of `version-2` is part of the database. Unfinished files (`.tmp`) are not.
pub fn is_database_file(name: &str) -> bool {
    let zxid = match (name.strip_prefix("snapshot."), name.strip_prefix("log.")) {
        (Some(rest), _) => rest
            .strip_suffix(".gz")
            .or(rest.strip_suffix(".snappy"))
            .unwrap_or(rest),
        (None, Some(rest)) => rest,
        (None, None) => return false,
    };
    !zxid.is_empty() && zxid.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a file of `version-2` is a leftover that a start without a database leaves behind, and
/// that would stop a later bootstrap.
pub fn is_leftover_file(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    matches!(name, "acceptedEpoch" | "currentEpoch" | "updatingEpoch")
        || name.starts_with("snapshot.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(ids: &str, until: &str) -> Option<Permission> {
        parse_permission(Some(ids.as_bytes()), Some(until.as_bytes())).unwrap()
    }

    #[test]
    fn only_a_listed_server_with_an_empty_disk_and_a_valid_permission_bootstraps() {
        use Marker::{Create, RemoveBecauseNotPermitted, RemoveBecauseThereIsData};
        for (has_database, ids, until, expected) in [
            (false, "1,2,3", "100", Create),
            (false, " 2 ", "100\n", Create),
            (false, "2", "50", Create),
            (false, "1,3", "100", RemoveBecauseNotPermitted),
            (false, "1,3", "10", RemoveBecauseNotPermitted),
            (false, "22", "100", RemoveBecauseNotPermitted),
            (true, "1,2,3", "100", RemoveBecauseThereIsData),
            (true, "1,2,3", "10", RemoveBecauseThereIsData),
        ] {
            let permission = permission(ids, until);
            assert_eq!(
                decide(2, has_database, permission.as_ref(), 50),
                Ok(expected),
                "{ids} {until}"
            );
        }
        assert_eq!(decide(2, false, None, 50), Ok(RemoveBecauseNotPermitted));
        assert_eq!(decide(2, true, None, 50), Ok(RemoveBecauseThereIsData));
    }

    #[test]
    fn an_expired_permission_makes_the_pod_try_again() {
        let message = decide(2, false, permission("1,2,3", "49").as_ref(), 50).unwrap_err();
        assert!(message.contains("expired 1 s ago"), "{message}");
        assert!(message.contains("the operator renews it"), "{message}");
    }

    #[test]
    fn no_list_is_no_permission() {
        assert_eq!(parse_permission(None, None), Ok(None));
        assert_eq!(parse_permission(None, Some(b"100")), Ok(None));
        assert_eq!(parse_permission(Some(b" \n"), None), Ok(None));
    }

    #[test]
    fn a_malformed_permission_permits_nothing() {
        for (ids, until) in [
            (&b"1,,2"[..], Some(&b"100"[..])),
            (b"1,b", Some(b"100")),
            (b"\xff", Some(b"100")),
            (b"-1", Some(b"100")),
            (b"1", None),
            (b"1", Some(b"")),
            (b"1", Some(b"tomorrow")),
            (b"1", Some(b"\xff")),
            (b"1", Some(b"-5")),
        ] {
            let message = parse_permission(Some(ids), until).unwrap_err();
            assert!(message.contains("malformed"), "{message}");
        }
    }

    #[test]
    fn a_database_is_told_from_leftovers_by_name() {
        for name in [
            "snapshot.0",
            "snapshot.1a00000003",
            "snapshot.5.gz",
            "snapshot.5.snappy",
            "log.1",
        ] {
            assert!(is_database_file(name), "{name}");
        }
        for name in [
            "snapshot.",
            "log.",
            "snapshot.0.tmp",
            "log.x",
            "currentEpoch",
            "myid",
            "snapshot",
        ] {
            assert!(!is_database_file(name), "{name}");
        }
        for name in [
            "currentEpoch",
            "acceptedEpoch",
            "acceptedEpoch.tmp",
            "snapshot.0.tmp",
        ] {
            assert!(is_leftover_file(name), "{name}");
        }
        for name in ["notes.txt", "log.1", "lost+found"] {
            assert!(!is_leftover_file(name), "{name}");
        }
    }
}
