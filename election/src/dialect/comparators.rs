//! Our order is that of each library, for any set of names.
//!
//! Each library's own rule is written here as its source has it, working on whole names as the
//! library does, and not by our parser.

use std::cmp::Ordering;

use bellwether_api::election::DialectType;
use proptest::prelude::*;

use super::tests::names;

/// A number as the server appends it.
fn formatted() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i32>(),
        -3_i32..3,
        -1_000_000_002_i32..-999_999_997,
        Just(i32::MIN),
        Just(i32::MAX)
    ];
    number.prop_map(|number| format!("{number:010}"))
}

fn uuid() -> impl Strategy<Value = String> {
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
}

fn hex() -> impl Strategy<Value = String> {
    "[0-9a-f]{32}"
}

/// Some names, all different, since they are children of one node.
fn some(name: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_set(name, 0..12)
        .prop_map(|names| names.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

/// Asserts that our queue holds the names that the library sees, in its order; names that are equal
/// for the library may come in any order.
fn agrees(
    dialect: DialectType,
    children: &[String],
    theirs: impl Fn(&str, &str) -> Ordering,
    sees: impl Fn(&str) -> bool,
) -> Result<(), TestCaseError> {
    let names = names(dialect, "");
    let queue = names.rank(children.iter().map(String::as_str));
    let ours: Vec<&str> = queue.order.iter().map(|ranked| ranked.node).collect();
    for pair in ours.windows(2) {
        prop_assert_ne!(theirs(pair[0], pair[1]), Ordering::Greater, "{:?}", pair);
    }
    let mut seen: Vec<&str> = children
        .iter()
        .map(String::as_str)
        .filter(|c| sees(c))
        .collect();
    let mut ours = ours;
    seen.sort_unstable();
    ours.sort_unstable();
    prop_assert_eq!(ours, seen);
    Ok(())
}

fn all(_: &str) -> bool {
    true
}

/// Java's `Integer.parseInt`, which takes a sign.
fn parse_int(text: &str) -> Option<i32> {
    text.parse().ok()
}

/// What follows the last occurrence of a text.
fn after<'n>(name: &'n str, text: &str) -> &'n str {
    name.rfind(text).map_or(name, |at| &name[at + text.len()..])
}

/// The last run of digits of a name, as Ruby's `/\d+$/` and `to_i` read it: without limits.
fn digits_at_the_end(name: &str) -> u64 {
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[digits..].parse().unwrap_or(0)
}

proptest! {
    /// Curator, StandardLockInternalsDriver.java, standardFixForSorting: all that follows the last
    /// "latch-" or "lock-", as text.
    #[test]
    fn order_is_that_of_curator(
        latches in some((uuid(), formatted()).prop_map(|(id, n)| format!("_c_{id}-latch-{n}"))),
        locks in some((uuid(), formatted()).prop_map(|(id, n)| format!("_c_{id}-lock-{n}"))),
    ) {
        let by = |label: &'static str| move |a: &str, b: &str| after(a, label).cmp(after(b, label));
        agrees(DialectType::CuratorLatch, &latches, by("latch-"), all)?;
        agrees(DialectType::CuratorLock, &locks, by("lock-"), all)?;
    }

    /// Curator, InterProcessReadWriteLock.java, SortingLockInternalsDriver: both labels are cut off.
    #[test]
    fn order_is_that_of_curators_read_write_lock(
        names in some((uuid(), any::<bool>(), formatted()).prop_map(|(id, write, n)| {
            format!("_c_{id}-{}{n}", if write { "__WRIT__" } else { "__READ__" })
        })),
    ) {
        let key = |name: &str| after(after(name, "__READ__"), "__WRIT__").to_owned();
        agrees(DialectType::CuratorReadWrite, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// go-zookeeper/zk, lock.go, parseSeq: an integer after "lock-".
    #[test]
    fn order_is_that_of_go_zookeeper(
        names in some((hex(), formatted()).prop_map(|(id, n)| format!("_c_{id}-lock-{n}"))),
    ) {
        let key = |name: &str| name.split("lock-").last().and_then(|n| n.parse::<i64>().ok());
        agrees(DialectType::GoZkLock, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// kazoo/recipe/lock.py, _get_predecessor: names that match (-?\d{10})$, compared as text.
    #[test]
    fn order_is_that_of_kazoo(
        names in some((hex(), any::<bool>(), formatted()).prop_map(|(id, read, n)| {
            format!("{id}{}{n}", if read { "__rlock__" } else { "__lock__" })
        })),
    ) {
        let key = |name: &str| after(name, "lock__").to_owned();
        let sees = |name: &str| key(name).trim_start_matches('-').len() == 10;
        agrees(DialectType::Kazoo, &names, |a, b| key(a).cmp(&key(b)), sees)?;
    }

    /// ZooKeeper, LeaderElectionSupport.java, toLeaderOffers: Integer.valueOf after the last '_'.
    #[test]
    fn order_is_that_of_zookeepers_recipe(names in some(formatted().prop_map(|n| format!("n_{n}")))) {
        let key = |name: &str| parse_int(after(name, "_"));
        agrees(DialectType::ZkElection, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// ZooKeeper, recipes.md: the lowest number; no source compares these.
    #[test]
    fn order_is_that_of_the_documented_recipe(
        names in some((uuid(), formatted()).prop_map(|(id, n)| format!("{id}-n_{n}"))),
    ) {
        let key = |name: &str| parse_int(after(name, "_"));
        agrees(DialectType::GuidN, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// ZooKeeper, ZNodeName.java: Integer.parseInt after the last '-', names without a number last; then the
    /// text before that '-'.
    #[test]
    fn order_is_that_of_zookeepers_write_lock(
        numbers in prop::collection::btree_map(any::<i64>(), formatted(), 0..12),
    ) {
        let names: Vec<_> = numbers.iter().map(|(sid, n)| format!("x-{sid}-{n}")).collect();
        let key = |name: &str| {
            let (prefix, number) = name.rsplit_once('-').unwrap();
            let number = parse_int(number);
            (number.is_none(), number, prefix.to_owned())
        };
        agrees(DialectType::ZkWriteLock, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// ZooKeeper, zoo_lock.c, vstrcmp: the text after the last '-'. It differs from the order of the
    /// Java version only for numbers with a sign in place of a digit.
    #[test]
    fn order_is_that_of_zookeepers_write_lock_in_c(
        names in some(("[0-9a-f]{16}", formatted()).prop_map(|(sid, n)| format!("x-{sid}-{n}"))),
    ) {
        let full = |name: &String| after(name, "-").len() == 10;
        let names: Vec<_> = names.into_iter().filter(full).collect();
        let key = |name: &str| after(name, "-").to_owned();
        agrees(DialectType::ZkWriteLock, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// Solr, LeaderElector.java, sortSeqs: Integer.parseInt of n_(\d+), then the whole name.
    #[test]
    fn order_is_that_of_solr(
        names in some((any::<i64>(), "[a-z0-9.:_-]{1,12}", 0..=i32::MAX).prop_map(|(sid, id, n)| {
            format!("{sid}-{id}-n_{n:010}")
        })),
        ties in some((any::<i64>(), "[a-c]").prop_map(|(sid, id)| format!("{sid}-{id}-n_0000000004"))),
    ) {
        let all_names: Vec<_> = names.into_iter().chain(ties).collect();
        let key = |name: &str| (parse_int(after(name, "n_")), name.to_owned());
        agrees(DialectType::Solr, &all_names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// Accumulo, ServiceLock.java, validateAndSort: exactly ten characters, Integer.valueOf.
    #[test]
    fn order_is_that_of_accumulo(
        names in some((uuid(), formatted()).prop_map(|(id, n)| format!("zlock#{id}#{n}"))),
    ) {
        let key = |name: &str| parse_int(after(name, "#"));
        let sees = |name: &str| after(name, "#").len() == 10;
        agrees(DialectType::Accumulo, &names, |a, b| key(a).cmp(&key(b)), sees)?;
    }

    /// Mesos, src/zookeeper/group.cpp, cache: numify<int32_t> of the last token between '_'.
    #[test]
    fn order_is_that_of_mesos(
        names in some((0_usize..3, formatted()).prop_map(|(label, n)| {
            format!("{}{n}", ["", "info_", "json.info_"][label])
        })),
    ) {
        let key = |name: &str| parse_int(after(name, "_"));
        agrees(DialectType::Mesos, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// Vitess, go/vt/topo/zk2topo/election.go: sort.Strings. Samza, ZkUtils.java,
    /// getSortedActiveProcessorsZnodes: Collections.sort. ClickHouse, LeaderElection.h: std::sort.
    #[test]
    fn order_is_that_of_those_who_sort_whole_names(
        numbers in some(formatted()),
        short in prop::collection::btree_set(0_u32..2000, 0..12),
    ) {
        let with = |before: &str| numbers.iter().map(|n| format!("{before}{n}")).collect::<Vec<_>>();
        agrees(DialectType::Bare, &numbers, str::cmp, all)?;
        agrees(DialectType::Samza, &with("processor-"), str::cmp, all)?;
        let short: Vec<_> = short.iter().map(|n| format!("leader_election-{n}")).collect();
        agrees(DialectType::ClickHouse, &short, str::cmp, all)?;
    }

    /// Twitter commons, CandidateImpl.java: Ordering.natural().min of the ids, which
    /// Group.java cuts off behind the prefix.
    #[test]
    fn order_is_that_of_twitters_group(numbers in some(formatted())) {
        let names: Vec<_> = numbers.iter().map(|n| format!("member_{n}")).collect();
        let key = |name: &str| after(name, "member_").to_owned();
        agrees(DialectType::TwitterGroup, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// BookKeeper, ZkLedgerAuditorManager.java, ElectionComparator: Long.parseLong after "V_".
    #[test]
    fn order_is_that_of_bookkeeper(numbers in some(formatted())) {
        let names: Vec<_> = numbers.iter().map(|n| format!("V_{n}")).collect();
        let key = |name: &str| after(name, "V_").parse::<i64>().ok();
        agrees(DialectType::BookKeeper, &names, |a, b| key(a).cmp(&key(b)), all)?;
    }

    /// zk-ruby, lib/zk/election.rb, digit, and lib/zk/locker/locker_base.rb, digit_from.
    #[test]
    fn order_is_that_of_zk_ruby(numbers in some(formatted()), kinds in prop::collection::vec(0_usize..3, 12)) {
        let by = |a: &str, b: &str| digits_at_the_end(a).cmp(&digits_at_the_end(b));
        let ballots: Vec<_> = numbers.iter().map(|n| format!("ballot{n}")).collect();
        agrees(DialectType::ZkRubyElection, &ballots, by, all)?;
        let kind = |kind: usize| ["ex", "sh", "sem"][kind];
        let locks: Vec<_> = numbers.iter().zip(&kinds).map(|(n, k)| format!("{}{n}", kind(*k))).collect();
        agrees(DialectType::ZkRubyLock, &locks, by, all)?;
    }

    /// aiozk/recipes/sequential.py: names that match [0-9]{10}$, by int of the last ten characters.
    #[test]
    fn order_is_that_of_aiozk(
        names in some(("[a-z-]{1,8}", hex(), formatted()).prop_map(|(label, id, n)| {
            format!("{label}-{id}-{n}")
        })),
    ) {
        let last_ten = |name: &str| name[name.len() - 10..].parse::<u64>().ok();
        let sees = |name: &str| last_ten(name).is_some();
        agrees(DialectType::Aiozk, &names, |a, b| last_ten(a).cmp(&last_ten(b)), sees)?;
    }
}
