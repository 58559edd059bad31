//! Whether the volume is as new as it should be.
//!
//! A server that starts on an old copy of its disk takes part in elections without the writes since then, and
//! with one more failure these writes are lost. The operator records the highest epoch that it saw each voter
//! serving in; a disk of a lower epoch is an old copy.

use crate::identity::Identity;

/// Reads this server's line of the recorded epochs, such as `2=7`.
pub(crate) fn parse_recorded(server_id: u64, epochs: Option<&[u8]>) -> Result<Option<u64>, String> {
    let text = std::str::from_utf8(epochs.unwrap_or_default()).map_err(|_| {
        "the recorded epochs are not UTF-8; the operator writes them anew".to_owned()
    })?;
    let own = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(id, _)| id.trim().parse() == Ok(server_id));
    own.map(|(_, epoch)| {
        epoch.trim().parse().map_err(|_| {
            format!("the recorded epoch {epoch:?} is not a number; the operator writes it anew")
        })
    })
    .transpose()
}

/// The epoch in the name of a snapshot or transaction log: the upper half of its zxid.
pub fn of_file(name: &str) -> Option<u64> {
    let (kind, rest) = name.split_once('.')?;
    let zxid = rest.split('.').next()?;
    let zxid = u64::from_str_radix(zxid, 16).ok()?;
    ["snapshot", "log"].contains(&kind).then_some(zxid >> 32)
}

/// Refuses a database that is older than this server is known to have been.
///
/// `empty_at` is the epoch that was on record when the volume was last empty. A server that was killed while
/// it copied the others' data has a database without having their epoch yet; it may start as long as no newer
/// epoch is on record for it.
pub(crate) fn check(
    identity: &Identity,
    on_disk: u64,
    recorded: Option<u64>,
    empty_at: Option<u64>,
) -> Result<(), String> {
    match recorded {
        Some(recorded) if on_disk < recorded && empty_at != Some(recorded) => Err(format!(
            "the data volume of {identity} is older than it should be: its database is of epoch \
             {on_disk}, and this server has served in epoch {recorded}. It is refused, since writes \
             that this server acknowledged are not on it. Bring the right volume back; or delete this \
             pod's volume claim and the pod: the member then starts empty, does not vote at first and \
             copies everything from the others."
        )),
        _ => Ok(()),
    }
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

    #[test]
    fn an_older_epoch_is_refused_and_the_same_or_a_newer_one_is_not() {
        for (on_disk, recorded, empty_at, accepted) in [
            (7, Some(7), None, true),
            (8, Some(7), None, true),
            (0, None, None, true),
            (6, Some(7), None, false),
            // It was empty when epoch 7 was on record, and copies the others' data.
            (0, Some(7), Some(7), true),
            // Since then it has served: a copy from before is old.
            (7, Some(9), Some(7), false),
            (0, Some(7), Some(0), false),
        ] {
            let outcome = check(&member(), on_disk, recorded, empty_at);
            assert_eq!(
                outcome.is_ok(),
                accepted,
                "{on_disk} {recorded:?} {empty_at:?}: {outcome:?}"
            );
        }
        let message = check(&member(), 6, Some(7), None).unwrap_err();
        for words in ["epoch 6", "epoch 7", "delete this pod's volume claim"] {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_own_line_is_read() {
        let text = Some(&b"1=5\n2=7\n22=9\n"[..]);
        assert_eq!(parse_recorded(2, text), Ok(Some(7)));
        assert_eq!(parse_recorded(3, text), Ok(None));
        assert_eq!(parse_recorded(2, None), Ok(None));
        assert!(parse_recorded(2, Some(b"2=x")).is_err());
        assert!(parse_recorded(2, Some(b"\xff")).is_err());
    }

    #[test]
    fn a_file_tells_its_epoch() {
        assert_eq!(of_file("snapshot.700000003"), Some(7));
        assert_eq!(of_file("log.1a00000001.gz"), Some(26));
        assert_eq!(of_file("snapshot.0"), Some(0));
        for name in ["currentEpoch", "snapshot.x", "notes.700000003", "log"] {
            assert_eq!(of_file(name), None, "{name}");
        }
    }
}
