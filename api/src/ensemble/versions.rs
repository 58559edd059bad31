//! Which releases of ZooKeeper must not be used, and which should not.

/// Why a release should not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The release line, such as `3.9`.
    pub line: &'static str,
    /// The first and the last patch number that have it.
    pub patches: (u16, u16),
    /// What is wrong with them, as the end of "ZooKeeper 3.9.3 ...".
    pub problem: &'static str,
    /// The release to use instead.
    pub instead: &'static str,
    /// Whether the release is refused; otherwise a condition warns of it.
    pub refused: bool,
}

/// The newest release of each line that this version of Bellwether was checked against.
pub const NEWEST: &[(&str, u16)] = &[("3.8", 6), ("3.9", 5)];

/// The flaws that are known, of each line the worst first.
///
/// The sources are the history of the release tags (`git log release-X.Y.Z`), which says in which
/// releases a repair is, and ZooKeeper's security page, which says in which ones a vulnerability is.
pub const FLAWS: &[Flaw] = &[
    // The repair (685048a7b) is in release-3.9.4. What it repairs came with ZOOKEEPER-4394 (5a2b99b5b),
    // which is in release-3.9.3 and in no release of 3.8.
    Flaw {
        line: "3.9",
        patches: (3, 3),
        problem: "loses data when a member syncs with the leader (ZOOKEEPER-4925)",
        instead: "3.9.5",
        refused: true,
    },
    // The repair (34f292924) is in release-3.8.5 and not in release-3.8.4.
    Flaw {
        line: "3.8",
        patches: (0, 4),
        problem: "may lose a transaction when a member syncs with the leader (ZOOKEEPER-4785)",
        instead: "3.9.5",
        refused: true,
    },
    // The repair (4a49d4587) is in release-3.9.2 and not in release-3.9.1.
    Flaw {
        line: "3.9",
        patches: (0, 1),
        problem: "may lose a transaction when a member syncs with the leader (ZOOKEEPER-4785)",
        instead: "3.9.5",
        refused: true,
    },
    // The repair (4d3723581) is in release-3.9.3, and neither in release-3.8.6 nor in branch-3.8. There
    // `Learner.shutdown` calls `shutdown(boolean)`, and `LearnerZooKeeperServer` overrides `shutdown()`
    // alone, so the thread that writes the log goes on while the database is brought up to the log. It is
    // told and not refused: no release of 3.8 is without it, and to refuse all of them would keep an
    // ensemble that runs one of them from every other change.
    Flaw {
        line: "3.8",
        patches: (5, 5),
        problem: "has known vulnerabilities (CVE-2026-24281, CVE-2026-24308), and a member may hold \
                  other data than the leader after it lost its leader (ZOOKEEPER-4712, repaired in no \
                  release of 3.8)",
        instead: "3.9.5",
        refused: false,
    },
    Flaw {
        line: "3.8",
        patches: (6, 6),
        problem: "has a flaw by which a member may hold other data than the leader after it lost its \
                  leader (ZOOKEEPER-4712, repaired in no release of 3.8)",
        instead: "3.9.5",
        refused: false,
    },
    // Here too: the repair is in release-3.9.3 and not in release-3.9.2.
    Flaw {
        line: "3.9",
        patches: (2, 2),
        problem: "has known vulnerabilities (CVE-2024-51504, CVE-2025-58457, CVE-2026-24281, \
                  CVE-2026-24308), and a member may hold other data than the leader after it lost its \
                  leader (ZOOKEEPER-4712)",
        instead: "3.9.5",
        refused: false,
    },
    // By the security page the first two are in 3.8.0 to 3.8.5 and 3.9.0 to 3.9.4, CVE-2025-58457 in
    // 3.9.0 to 3.9.3, and CVE-2024-51504 in 3.9.0 to 3.9.2. The last two need ZooKeeper's admin server,
    // which the operator switches off.
    Flaw {
        line: "3.9",
        patches: (4, 4),
        problem: "has known vulnerabilities (CVE-2026-24281, CVE-2026-24308)",
        instead: "3.9.5",
        refused: false,
    },
];

/// Every release line before 3.8. None is maintained: 3.4 to 3.7 have ZOOKEEPER-4785, and older ones lack
/// what the operator builds on.
const OLD: Flaw = Flaw {
    line: "3.7",
    patches: (0, u16::MAX),
    problem: "and older are not maintained, and may lose a transaction when a member syncs with the \
              leader (ZOOKEEPER-4785)",
    instead: "3.9.5",
    refused: true,
};

/// The worst flaw of a release such as `3.9.3`; `None` for a release without one, and for a text
/// that names no release.
pub fn flaw(version: &str) -> Option<&'static Flaw> {
    let (line, patch) = version.rsplit_once('.')?;
    let patch: u16 = patch.parse().ok()?;
    let (major, minor) = line.split_once('.')?;
    let line_number: (u16, u16) = (major.parse().ok()?, minor.parse().ok()?);
    if ((3, 0)..(3, 8)).contains(&line_number) {
        return Some(&OLD);
    }
    FLAWS
        .iter()
        .find(|f| f.line == line && (f.patches.0..=f.patches.1).contains(&patch))
}

/// The warning about a release of a known line that is newer than all that were checked: it may be younger
/// than this version of Bellwether, or not exist.
pub fn not_known(version: &str) -> Option<String> {
    let (line, patch) = version.rsplit_once('.')?;
    let (_, newest) = NEWEST.iter().find(|(known, _)| *known == line)?;
    // A number too large for the type is newer too.
    let newer = patch.bytes().all(|b| b.is_ascii_digit())
        && patch.parse::<u16>().map_or(true, |patch| patch > *newest);
    newer.then(|| {
        format!(
            "ZooKeeper {version} is newer than this version of Bellwether, which knows {line} up to \
             {line}.{newest}: check that the release exists and what is said of it"
        )
    })
}

/// The release that an image reference names, if its tag looks like one of the official image:
/// repository `zookeeper` in any registry, tag `X.Y.Z` with or without a suffix such as `-jre-17`.
pub fn release_of_image(image: &str) -> Option<&str> {
    let without_digest = image.split_once('@').map_or(image, |(name, _)| name);
    let (repository, tag) = without_digest.rsplit_once(':')?;
    if repository.rsplit('/').next() != Some("zookeeper") {
        return None;
    }
    let release = tag.split_once('-').map_or(tag, |(release, _)| release);
    let numbers: Vec<&str> = release.split('.').collect();
    let is_number = |n: &&str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    (numbers.len() == 3 && numbers.iter().all(is_number)).then_some(release)
}

/// The flaws of refused releases. The field `version` has a rule of its own for the release lines.
fn refused(around: (&str, &str)) -> impl DoubleEndedIterator<Item = &'static Flaw> {
    let old = (around != VERSION).then_some(&OLD);
    FLAWS.iter().filter(|f| f.refused).chain(old)
}

/// The CEL test whether `self`, a version or an image reference, names a release with this flaw.
fn test(flaw: &Flaw, (before, after): (&str, &str)) -> String {
    if *flaw == OLD {
        return format!("self.matches('^{before}3[.][0-7][.][0-9]+{after}$')");
    }
    let (first, last) = flaw.patches;
    let line = flaw.line.replace('.', "[.]");
    format!("self.matches('^{before}{line}[.][{first}-{last}]{after}$')")
}

const VERSION: (&str, &str) = ("", "");
const IMAGE: (&str, &str) = ("(.*/)?zookeeper:", "(-[^@]*)?(@.*)?");

fn rule(around: (&str, &str)) -> String {
    let tests: Vec<String> = refused(around)
        .map(|f| format!("!{}", test(f, around)))
        .collect();
    tests.join(" && ")
}

fn message(around: (&str, &str)) -> String {
    refused(around)
        .rev()
        .fold("'refused'".to_owned(), |rest, f| {
            format!("{} ? '{}' : {rest}", test(f, around), sentence(f))
        })
}

/// The CEL rule of the field `version`: no release that is refused.
pub fn version_rule() -> String {
    rule(VERSION)
}

/// The CEL expression of the sentence for [`version_rule`].
pub fn version_message() -> String {
    message(VERSION)
}

/// The CEL rule of the field `image`: no tag of a release that is refused.
pub fn image_rule() -> String {
    rule(IMAGE)
}

/// The CEL expression of the sentence for [`image_rule`].
pub fn image_message() -> String {
    message(IMAGE)
}

/// What is wrong with these releases and what to use instead.
pub fn sentence(flaw: &Flaw) -> String {
    let (first, last) = flaw.patches;
    let which = if *flaw == OLD {
        flaw.line.to_owned()
    } else if first == last {
        format!("{}.{first}", flaw.line)
    } else {
        format!("{0}.{first} to {0}.{last}", flaw.line)
    };
    format!(
        "ZooKeeper {which} {}; use {} or later",
        flaw.problem, flaw.instead
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_flaw_of_each_release_is_told() {
        for (version, refused) in [
            ("3.8.0", Some(true)),
            ("3.8.4", Some(true)),
            ("3.8.5", Some(false)),
            ("3.8.6", Some(false)),
            ("3.8.10", None),
            ("3.9.0", Some(true)),
            ("3.9.1", Some(true)),
            ("3.9.2", Some(false)),
            ("3.9.3", Some(true)),
            ("3.9.4", Some(false)),
            ("3.9.5", None),
            ("3.9.33", None),
            ("3.7.2", Some(true)),
            ("3.4.14", Some(true)),
            // Somebody's own numbers: ZooKeeper's begin with 3.
            ("2.0.10", None),
            ("3.10.0", None),
            ("4.0.0", None),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(flaw(version).map(|f| f.refused), refused, "{version}");
        }
        assert!(flaw("3.9.3").is_some_and(|f| f.problem.contains("ZOOKEEPER-4925")));
        for version in ["3.8.5", "3.8.6", "3.9.2"] {
            let found = flaw(version).unwrap();
            assert!(found.problem.contains("ZOOKEEPER-4712"), "{version}");
            assert_eq!(flaw(found.instead), None, "{version}: {}", found.instead);
        }
    }

    #[test]
    fn the_sentence_names_the_releases_that_have_the_flaw() {
        for (version, start) in [
            ("3.9.3", "ZooKeeper 3.9.3 loses data"),
            ("3.9.0", "ZooKeeper 3.9.0 to 3.9.1 may lose"),
            ("3.7.1", "ZooKeeper 3.7 and older are"),
        ] {
            let told = sentence(flaw(version).unwrap());
            assert!(told.starts_with(start), "{told}");
            assert!(told.ends_with("; use 3.9.5 or later"), "{told}");
        }
    }

    #[test]
    fn a_release_that_is_newer_than_the_table_is_told_and_every_older_one_is_not() {
        for version in ["3.9.6", "3.9.77", "3.8.7", "3.9.99999999"] {
            assert!(not_known(version).is_some(), "{version}");
        }
        for version in ["3.9.5", "3.9.0", "3.8.6", "3.10.0", "3.9", "3.9.x", ""] {
            assert_eq!(not_known(version), None, "{version}");
        }
    }

    #[test]
    fn only_a_tag_that_looks_official_names_a_release() {
        for (image, release) in [
            ("zookeeper:3.9.3", Some("3.9.3")),
            ("docker.io/library/zookeeper:3.9.3-jre-17", Some("3.9.3")),
            ("mirror.local:5000/zookeeper:3.8.4", Some("3.8.4")),
            ("zookeeper:3.9.3@sha256:0123", Some("3.9.3")),
            ("zookeeper:3.9", None),
            ("zookeeper:latest", None),
            ("zookeeper", None),
            ("zookeeper@sha256:0123", None),
            ("mirror.local:5000/zookeeper", None),
            ("mirror.local/my-zookeeper:3.9.3", None),
            ("mirror.local/zookeeper:v3.9.3", None),
            ("", None),
        ] {
            assert_eq!(release_of_image(image), release, "{image}");
        }
    }
}
