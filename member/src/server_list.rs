//! The server list that a member starts with, where an ensemble changes its members at run time.
//!
//! ZooKeeper keeps the list that it knows as committed in a file beside `zoo.cfg`, which names it (`dynamicConfigFile`). A
//! later list that it has stored and does not know as committed is in `zoo.cfg.dynamic.next` (`QuorumPeerConfig`,
//! `QuorumPeer.setLastSeenQuorumVerifier`). A member that starts again goes on with both, since a server that has forgotten a
//! list votes by an older one. That file may also stay when its list has become the committed one, so its version counts.
//!
//! The exception is a member that the committed list does not name: a newcomer that has followed and is no voter yet, or one
//! that has left. Its server would exit, so its list is made anew: the members, and itself. The list that it stored stays.

/// The file with the list that a server has stored last.
pub const STORED: &str = "zoo.cfg.dynamic.next";

/// The setting that names the file with the committed list.
const NAMES: &str = "dynamicConfigFile=";
/// What the name of such a file begins with; the version follows, in hexadecimal digits.
const BEGINS: &str = "zoo.cfg.dynamic.";

/// The name of the file with the committed list, as the last `zoo.cfg` of a member gives it: without its directory, since the
/// volume may be mounted elsewhere now.
///
/// `None` if it names none, or something that ZooKeeper does not write.
pub fn committed_file(zoo_cfg: &str) -> Option<&str> {
    let mut lines = zoo_cfg.lines().map(str::trim);
    let path = lines.rfind(|line| line.starts_with(NAMES))?;
    let name = path.rsplit(['/', '=']).next()?;
    version_in(name).map(|_| name)
}

fn version_in(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(BEGINS)?, 16).ok()
}

/// Whether a server has stored a later list than the one that it knows as committed. `committed` is the name of the file with
/// that one, and `stored` the content of [`STORED`], if there are such files.
///
/// A list whose version cannot be read counts as a later one.
pub fn is_pending(committed: Option<&str>, stored: Option<&str>) -> bool {
    let committed = committed.and_then(version_in).unwrap_or(0);
    stored.is_some_and(|list| {
        let version = list
            .lines()
            .find_map(|line| line.trim().strip_prefix("version="));
        let version = version.and_then(|version| u64::from_str_radix(version, 16).ok());
        version.is_none_or(|version| version > committed)
    })
}

/// The `zoo.cfg` of a member that starts.
///
/// * `settings` are all lines but those of the servers.
/// * `committed` is the path and the content of the file with the committed list, if there is one.
/// * `first` are the lines of the servers for a member without such a list, or whose list does not name it: the
///   members, and itself.
pub fn zoo_cfg(settings: &str, committed: Option<(&str, &str)>, id: u16, first: &str) -> String {
    let own = format!("server.{id}=");
    let names_itself = |list: &str| list.lines().any(|line| line.trim().starts_with(&own));
    match committed {
        Some((path, list)) if names_itself(list) => format!("{settings}{NAMES}{path}\n"),
        _ => format!("{settings}{first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &str = "dataDir=/data\nreconfigEnabled=true\n";
    const OF_THREE: &str = "server.1=a:2888:3888:participant\nserver.2=b:2888:3888:participant\n\
                            server.3=c:2888:3888:participant\n";
    const PATH: &str = "/data/conf/zoo.cfg.dynamic.100000002";

    #[test]
    fn a_voter_goes_on_with_its_own_list() {
        let text = zoo_cfg(SETTINGS, Some((PATH, OF_THREE)), 3, "server.3=old\n");
        assert_eq!(text, format!("{SETTINGS}dynamicConfigFile={PATH}\n"));
        assert_eq!(committed_file(&text), Some("zoo.cfg.dynamic.100000002"));
    }

    #[test]
    fn a_member_that_its_list_does_not_name_gets_one_that_does() {
        let first = format!("{OF_THREE}server.4=d:2888:3888:participant\n");
        let expected = format!("{SETTINGS}{first}");
        assert_eq!(zoo_cfg(SETTINGS, None, 4, &first), expected);
        let stored = Some((PATH, OF_THREE));
        assert_eq!(zoo_cfg(SETTINGS, stored, 4, &first), expected);
        // Server 1 is not server 10.
        let stored = Some((PATH, "server.10=j:2888:3888:participant\n"));
        assert_eq!(zoo_cfg(SETTINGS, stored, 1, &first), expected);
    }

    #[test]
    fn a_stored_list_is_pending_while_it_is_later_than_the_committed_one() {
        let stored = "server.1=a:2888:3888:participant\nversion=100000002\n";
        let committed = |version: &str| format!("zoo.cfg.dynamic.{version}");
        for (known, pending) in [
            (Some(committed("100000000")), true),
            (Some(committed("100000002")), false),
            (Some(committed("200000000")), false),
            (None, true),
        ] {
            assert_eq!(
                is_pending(known.as_deref(), Some(stored)),
                pending,
                "{known:?}"
            );
        }
        assert!(!is_pending(None, None));
        let cut = Some("server.1=a:2888");
        assert!(is_pending(Some(&committed("100000002")), cut));
    }

    #[test]
    fn only_files_that_zookeeper_writes_are_gone_on_with() {
        for (zoo_cfg, file) in [
            ("dataDir=/data\n", None),
            ("dynamicConfigFile=/etc/passwd\n", None),
            ("dynamicConfigFile=/conf/zoo.cfg.dynamic.next\n", None),
            ("dynamicConfigFile=/conf/zoo.cfg.dynamic.\n", None),
            (
                "dynamicConfigFile=/conf/zoo.cfg.dynamic.1\ndynamicConfigFile=/conf/zoo.cfg.dynamic.200000000\n",
                Some("zoo.cfg.dynamic.200000000"),
            ),
            (
                "dynamicConfigFile=zoo.cfg.dynamic.0\n",
                Some("zoo.cfg.dynamic.0"),
            ),
        ] {
            assert_eq!(committed_file(zoo_cfg), file, "{zoo_cfg}");
        }
    }
}
