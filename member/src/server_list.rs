//! The server list that a member starts with, where an ensemble changes its members at run time.
//!
//! ZooKeeper keeps the list that it knows as committed in a file beside `zoo.cfg`, which names it (`dynamicConfigFile`). A
//! later list that it has stored and does not know as committed is in `zoo.cfg.dynamic.next` (`QuorumPeerConfig`,
//! `QuorumPeer.setLastSeenQuorumVerifier`). A member that starts again goes on with both, since a server that has forgotten a
//! list votes by an older one. That file may also stay when its list has become the committed one, so its version counts.
//!
//! A member that its list does not name begins with a list made anew: the members, and itself, and no other newcomer. That is
//! a newcomer that has followed and is no voter yet, or a member that has left. So does one that returns to its volume after it
//! has left, without having learned of that: its pod was made with a later list, which does not name it. What it has stored stays.

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

/// The version in the name of such a file.
pub fn version_in(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(BEGINS)?, 16).ok()
}

/// The version of a list that a server has stored and does not know as committed. `committed` is the name of the file with that
/// one, and `stored` the content of [`STORED`], if there are such files.
///
/// The highest number if the version cannot be read.
pub fn pending(committed: Option<&str>, stored: Option<&str>) -> Option<u64> {
    let committed = committed.and_then(version_in).unwrap_or(0);
    let mut lines = stored?.lines();
    let version = lines.find_map(|line| line.trim().strip_prefix("version="));
    let version = version.and_then(|version| u64::from_str_radix(version, 16).ok());
    Some(version.unwrap_or(u64::MAX)).filter(|version| *version > committed)
}

/// A list of the ensemble: its version, and the lines of its servers.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The zxid of the transaction that made it; 0 before the ensemble has served.
    pub version: u64,
    /// The lines of the servers, among others.
    pub lines: &'a str,
}

impl<'a> List<'a> {
    /// Whether it names this server.
    fn names(self, id: u16) -> bool {
        let own = format!("server.{id}=");
        self.servers().any(|line| line.starts_with(&own))
    }

    fn servers(self) -> impl Iterator<Item = &'a str> {
        let lines = self.lines.lines().map(str::trim);
        lines.filter(|line| line.starts_with("server."))
    }
}

/// The `zoo.cfg` of the server `id` that starts.
///
/// * `settings` are all lines but those of the servers.
/// * `committed` is the path of the file with the list that it knows as committed, and that list, if there is one.
/// * `given` is the list of the ensemble when the pod was made.
/// * `own` is the line of this server.
pub fn zoo_cfg(
    settings: &str,
    committed: Option<(&str, List<'_>)>,
    given: List<'_>,
    (id, own): (u16, &str),
) -> String {
    let has_left = |list: List<'_>| given.version > list.version && !given.names(id);
    if let Some((path, list)) = committed
        && list.names(id)
        && !has_left(list)
    {
        return format!("{settings}{NAMES}{path}\n");
    }
    let latest = match committed {
        Some((_, list)) if list.version > given.version => list,
        _ => given,
    };
    let own = Some(own.trim()).filter(|_| !latest.names(id));
    let lines = latest.servers().chain(own);
    let lines: String = lines.flat_map(|line| [line, "\n"]).collect();
    format!("{settings}{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &str = "dataDir=/data\nreconfigEnabled=true\n";
    const PATH: &str = "/data/config/zoo.cfg.dynamic.100000002";

    fn line(id: u16) -> String {
        format!("server.{id}=host-{id}:2888:3888:participant\n")
    }

    fn lines(ids: &[u16]) -> String {
        ids.iter().map(|id| line(*id)).collect()
    }

    /// What server `id` starts with, whose file has the list of the version 0x100000002, if any, and whose pod has this list.
    fn begins(id: u16, committed: Option<&[u16]>, (version, given): (u64, &[u16])) -> String {
        let (committed, given) = (committed.map(lines), lines(given));
        let committed = committed.as_deref().map(|lines| {
            let version = 0x1_0000_0002;
            (PATH, List { version, lines })
        });
        let given = List {
            version,
            lines: &given,
        };
        let text = zoo_cfg(SETTINGS, committed, given, (id, &line(id)));
        let rest = text.strip_prefix(SETTINGS).map(str::to_owned);
        rest.expect("the settings come first")
    }

    fn goes_on() -> String {
        format!("dynamicConfigFile={PATH}\n")
    }

    #[test]
    fn a_voter_goes_on_with_its_own_list() {
        let own: Option<&[u16]> = Some(&[1, 2, 3]);
        for given in [
            (0, &[1, 2, 3][..]),
            // Its pod is of the time before it became a voter.
            (0x1_0000_0000, &[1]),
            // It was away while others came, or others left.
            (0x1_0000_0007, &[1, 2, 3, 4, 5]),
            (0x1_0000_0007, &[1, 3]),
        ] {
            assert_eq!(begins(3, own, given), goes_on(), "{given:?}");
        }
        let text = format!("{SETTINGS}{}", goes_on());
        assert_eq!(committed_file(&text), Some("zoo.cfg.dynamic.100000002"));
    }

    #[test]
    fn the_members_of_a_new_ensemble_name_each_other() {
        assert_eq!(begins(2, None, (0, &[1, 2, 3])), lines(&[1, 2, 3]));
    }

    #[test]
    fn a_newcomer_names_itself_and_the_members_and_no_other_newcomer() {
        let given = (0x1_0000_0002, &[1, 2, 3][..]);
        assert_eq!(begins(5, None, given), lines(&[1, 2, 3, 5]));
        // It has followed, and another newcomer has become a voter since its pod was made.
        let known: Option<&[u16]> = Some(&[1, 2, 3, 4]);
        let given = (0x1_0000_0000, &[1, 2, 3][..]);
        assert_eq!(begins(5, known, given), lines(&[1, 2, 3, 4, 5]));
        // Server 1 is not server 10.
        let known: Option<&[u16]> = Some(&[10]);
        assert_eq!(begins(1, known, (0, &[10])), lines(&[10, 1]));
    }

    #[test]
    fn a_member_that_has_left_and_does_not_know_it_is_a_newcomer() {
        let known: Option<&[u16]> = Some(&[1, 2, 3]);
        let given = (0x1_0000_0007, &[1][..]);
        assert_eq!(begins(2, known, given), lines(&[1, 2]));
        assert_eq!(begins(3, known, given), lines(&[1, 3]));
    }

    #[test]
    fn a_stored_list_is_pending_while_it_is_later_than_the_committed_one() {
        let stored = "server.1=a:2888:3888:participant\nversion=100000002\n";
        let committed = |version: &str| format!("zoo.cfg.dynamic.{version}");
        let version = 0x1_0000_0002;
        for (known, expected) in [
            (Some(committed("100000000")), Some(version)),
            (Some(committed("100000002")), None),
            (Some(committed("200000000")), None),
            (None, Some(version)),
        ] {
            assert_eq!(
                pending(known.as_deref(), Some(stored)),
                expected,
                "{known:?}"
            );
        }
        assert_eq!(pending(None, None), None);
        let cut = Some("server.1=a:2888");
        assert_eq!(pending(Some(&committed("100000002")), cut), Some(u64::MAX));
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
