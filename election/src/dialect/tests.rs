//! Names as the table reads them.

use bellwether_api::election::DialectType::{self, *};
use proptest::prelude::*;

use super::*;

const UUID: &str = "6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10";
const HEX: &str = "0123456789abcdef0123456789abcdef";

/// The dialects that a name may be of without anything in the spec.
fn of_names() -> impl Iterator<Item = DialectType> {
    let named = |dialect: &DialectType| {
        *dialect != Sequence
            && dialect
                .recipe()
                .is_some_and(|recipe| recipe.layout.is_some())
    };
    DialectType::ALL.into_iter().filter(named)
}

pub(super) fn names(dialect: DialectType, prefix: &str) -> Names {
    Names::of_recipe(dialect.recipe().unwrap(), prefix).unwrap()
}

fn number_in(dialect: DialectType, prefix: &str, name: &str) -> Option<i32> {
    names(dialect, prefix).parse(name)?.sequence
}

/// What each dialect makes of each name: the number, or nothing.
#[test]
fn names_are_read_as_their_libraries_read_them() {
    let latch = |tail: &str| format!("_c_{UUID}-latch-{tail}");
    let lock = |tail: &str| format!("_c_{UUID}-lock-{tail}");
    let kazoo = |tail: &str| format!("{HEX}__lock__{tail}");
    let zlock = |tail: &str| format!("zlock#{UUID}#{tail}");
    let table = [
        (Sequence, "leader", "leader0000000007".to_owned(), Some(7)),
        (Sequence, "leader", "leader-000000007".to_owned(), Some(-7)),
        (
            Sequence,
            "leader",
            "leader-2147483648".to_owned(),
            Some(i32::MIN),
        ),
        (Sequence, "leader", "leader9999999999".to_owned(), None),
        (Sequence, "leader", "leader-history".to_owned(), None),
        (Sequence, "leader", "leader".to_owned(), None),
        (Sequence, "leader", "leader00000000071".to_owned(), None),
        (
            Sequence,
            "leader",
            "leader\u{0667}000000007".to_owned(),
            None,
        ),
        (Sequence, "leader", "follower0000000007".to_owned(), None),
        (
            Sequence,
            "lock-",
            "lock-2147483647".to_owned(),
            Some(i32::MAX),
        ),
        (
            Sequence,
            "lock-",
            "lock--2147483647".to_owned(),
            Some(-2147483647),
        ),
        (Sequence, "größe_", "größe_0000000001".to_owned(), Some(1)),
        (ZkElection, "", "n_0000000000".to_owned(), Some(0)),
        (ZkElection, "", "n_-999999999".to_owned(), Some(-999999999)),
        (ZkElection, "", "1-host-n_0000000000".to_owned(), None),
        (CuratorLatch, "", latch("0000000012"), Some(12)),
        (CuratorLatch, "", latch("-000000012"), Some(-12)),
        (CuratorLatch, "", latch(""), None),
        (CuratorLatch, "", lock("0000000012"), None),
        (CuratorLock, "", lock("0000000012"), Some(12)),
        (CuratorLock, "", format!("_c_{HEX}-lock-0000000012"), None),
        (Kazoo, "", kazoo("0000000012"), Some(12)),
        (Kazoo, "", kazoo("-1000000000"), Some(-1000000000)),
        (Kazoo, "", kazoo("-999999999"), None),
        (Accumulo, "", zlock("-999999999"), Some(-999999999)),
        (Accumulo, "", zlock("-1000000000"), None),
        (Aiozk, "", format!("a-b-{HEX}--2147483648"), Some(i32::MIN)),
        (Aiozk, "", format!("a-b-{HEX}--000000005"), None),
        (ClickHouse, "", "leader_election-0".to_owned(), Some(0)),
        (ClickHouse, "", "leader_election--5".to_owned(), None),
        (Solr, "", "-72057-core_node1-n_-000000005".to_owned(), None),
    ];
    for (dialect, prefix, name, expected) in table {
        assert_eq!(
            number_in(dialect, prefix, &name),
            expected,
            "{dialect:?} {name}"
        );
    }
}

/// Each name is of exactly one dialect, with two overlaps that priorities settle: those of Solr are
/// also those of the documented recipe with an id, and bare ones are also the oldest of Mesos.
#[test]
fn each_name_is_of_exactly_the_dialect_that_makes_it() {
    let table: [(&[DialectType], String); 40] = [
        (&[CuratorLatch], format!("_c_{UUID}-latch-0000000007")),
        (&[CuratorLatch], format!("_c_{UUID}-latch--2147483648")),
        (&[CuratorLatch], format!("_c_{UUID}-latch-2147483647")),
        (&[CuratorLock], format!("_c_{UUID}-lock-0000000007")),
        (&[CuratorLock], format!("_c_{UUID}-lock--000000005")),
        (&[GoZkLock], format!("_c_{HEX}-lock-0000000007")),
        (&[GoZkLock], format!("_c_{HEX}-lock--000000007")),
        (&[CuratorReadWrite], format!("_c_{UUID}-__WRIT__0000000007")),
        (&[CuratorReadWrite], format!("_c_{UUID}-__READ__0000000007")),
        (&[Kazoo], format!("{HEX}__lock__0000000007")),
        (&[Kazoo], format!("{HEX}__rlock__0000000007")),
        (&[Kazoo], format!("{HEX}__lock__-1000000007")),
        (&[ZkElection], "n_0000000007".to_owned()),
        (&[ZkElection], "n_-000000007".to_owned()),
        (&[ZkWriteLock], "x-72057602345353216-0000000007".to_owned()),
        (&[ZkWriteLock], "x--72057602345353216-0000000007".to_owned()),
        (&[ZkWriteLock], "x-01000000abcdef12-0000000007".to_owned()),
        (&[ZkWriteLock], "x-0123456789012345--000000007".to_owned()),
        (
            &[GuidN, Solr],
            "72057-10.0.0.1:8983_solr-n_0000000004".to_owned(),
        ),
        (&[GuidN, Solr], "-72057-core_node3-n_0000000004".to_owned()),
        (&[GuidN], format!("{UUID}-n_0000000004")),
        (&[GuidN], "host-a-n_-000000004".to_owned()),
        (&[Accumulo], format!("zlock#{UUID}#0000000000")),
        (&[Mesos], "json.info_0000000131".to_owned()),
        (&[Mesos], "info_0000000131".to_owned()),
        (&[Bare, Mesos], "0000000131".to_owned()),
        (&[Bare, Mesos], "-000000131".to_owned()),
        (&[TwitterGroup], "member_0000000131".to_owned()),
        (&[TwitterGroup], "singleton_candidate_-000000001".to_owned()),
        (&[BookKeeper], "V_0000000001".to_owned()),
        (&[ZkRubyElection], "ballot0000000001".to_owned()),
        (&[ZkRubyLock], "ex0000000001".to_owned()),
        (&[ZkRubyLock], "sh0000000001".to_owned()),
        (&[ZkRubyLock], "sem0000000001".to_owned()),
        (&[Aiozk], format!("candidate-{HEX}-0000000001")),
        (&[Aiozk], format!("my-lock-{HEX}-0000000001")),
        (&[ClickHouse], "leader_election-0000000001".to_owned()),
        (&[Samza], "processor-0000000001".to_owned()),
        (&[], "log_replicas".to_owned()),
        (&[], "leader_ack".to_owned()),
    ];
    for (expected, name) in table {
        let mut found: Vec<_> = of_names()
            .filter(|dialect| names(*dialect, "").parse(&name).is_some())
            .collect();
        found.sort_unstable_by_key(|dialect| dialect.as_str());
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn names_tell_sessions_ids_and_labels() {
    let solr = names(Solr, "");
    let ranked = solr.parse("-5-10.0.0.1:8983_a-n_b-n_0000000004").unwrap();
    assert_eq!(
        (ranked.session, ranked.id),
        (Some(-5), Some("10.0.0.1:8983_a-n_b"))
    );
    let lock = names(ZkWriteLock, "");
    let session = |name| lock.parse(name).unwrap().session;
    assert_eq!(session("x--5-0000000001"), Some(-5));
    assert_eq!(session("x-ffffffffffffffff-0000000001"), Some(-1));
    // The name does not show whether it is decimal or hexadecimal.
    assert_eq!(session("x-0123456789012345-0000000001"), None);
    let kazoo = names(Kazoo, "");
    let name = format!("{HEX}__rlock__0000000001");
    let reader = kazoo.parse(&name).unwrap();
    assert_eq!((reader.guid, reader.label), (Some(HEX), Some("__rlock__")));
    assert!(reader.shared);
}

#[test]
fn unrelated_siblings_are_counted_and_never_in_the_way() {
    let children = [
        "config",
        "leader0000000002",
        "leaders",
        "leader0000000001",
        "\u{1F411}",
    ];
    let names = names(Sequence, "leader");
    let queue = names.rank(children);
    let nodes: Vec<_> = queue.order.iter().map(|ranked| ranked.node).collect();
    assert_eq!(nodes, ["leader0000000001", "leader0000000002"]);
    assert_eq!(queue.unmatched, 3);
}

#[test]
fn below_zero_the_comparators_disagree() {
    let numbers = ["-2147483648", "-000000001", "-000000002", "0000000000"];
    let order = |dialect: DialectType, before: &str| {
        let children: Vec<_> = numbers
            .iter()
            .map(|number| format!("{before}{number}"))
            .collect();
        let names = names(dialect, "");
        let queue = names.rank(children.iter().map(String::as_str));
        let sequences = queue.order.iter().filter_map(|ranked| ranked.sequence);
        sequences.collect::<Vec<_>>()
    };
    assert_eq!(order(ZkElection, "n_"), [i32::MIN, -2, -1, 0]);
    assert_eq!(
        order(CuratorLatch, &format!("_c_{UUID}-latch-")),
        [-1, -2, i32::MIN, 0]
    );
    assert_eq!(order(ZkRubyElection, "ballot"), [0, -1, -2, i32::MIN]);
}

#[test]
fn the_dialect_of_a_directory_is_detected() {
    let latch = format!("_c_{UUID}-latch-0000000007");
    let solr = "72-core_node1-n_0000000001";
    let nothing = |sequential| Detection::Nothing { sequential };
    let mixed = |counts: &[(DialectType, usize)], unknown| Detection::Ambiguous {
        counts: counts.to_vec(),
        unknown,
    };
    let cases: [(&[&str], Detection); 13] = [
        (&[], nothing(0)),
        (&["config", "leader"], nothing(0)),
        (&["leader0000000001", "leader0000000002"], nothing(2)),
        (&[&latch, "config"], Detection::Found(CuratorLatch)),
        (
            &["ballot0000000001", "leader_ack"],
            Detection::Found(ZkRubyElection),
        ),
        // Two kinds of names fit two dialects each; the other children decide.
        (&[solr], Detection::Found(Solr)),
        (&[solr, "host-n_0000000002"], Detection::Found(GuidN)),
        (&["0000000001", "0000000002"], Detection::Found(Bare)),
        (
            &["0000000001", "json.info_0000000002", "log_replicas"],
            Detection::Found(Mesos),
        ),
        (&["leader_election-0"], Detection::Found(ClickHouse)),
        (
            &["n_0000000001", "V_0000000002"],
            mixed(&[(ZkElection, 1), (BookKeeper, 1)], 0),
        ),
        (
            &["n_0000000001", "x0000000002"],
            mixed(&[(ZkElection, 1)], 1),
        ),
        (
            &["0000000001", "V_0000000002"],
            mixed(&[(Bare, 1), (BookKeeper, 1)], 0),
        ),
    ];
    for (children, expected) in cases {
        assert_eq!(
            detect(children.iter().copied(), |_| true),
            expected,
            "{children:?}"
        );
    }
}

/// A UUID that begins with eight decimal digits reads like a session's number.
#[test]
fn only_the_paths_of_solr_tell_it_from_the_documented_recipe() {
    let name = "12345678-aaaa-4bbb-8ccc-dddddddddddd-n_0000000001";
    assert_eq!(detect([name], |_| true), Detection::Found(Solr));
    assert_eq!(detect([name], |_| false), Detection::Found(GuidN));
}

proptest! {
    #[test]
    fn any_prefix_works_and_every_child_is_counted_once(
        prefix in "[^/]{1,12}",
        numbers in prop::collection::vec(any::<i32>(), 0..8),
        others in prop::collection::vec(any::<String>(), 0..8),
    ) {
        let names = names(Sequence, &prefix);
        let children: Vec<_> = numbers
            .iter()
            .map(|number| format!("{prefix}{number:010}"))
            .chain(others.iter().cloned())
            .collect();
        let queue = names.rank(children.iter().map(String::as_str));
        prop_assert!(queue.order.len() >= numbers.len());
        prop_assert_eq!(queue.order.len() + queue.unmatched, children.len());
        prop_assert!(queue.order.is_sorted_by_key(|ranked| ranked.sequence));
    }

    #[test]
    fn no_name_makes_it_panic(
        children in prop::collection::vec(any::<String>(), 0..20),
        alike in prop::collection::vec("(_c_|x-|zlock#|n_|sh|-)?[-0-9a-f]{0,48}[-_#]{0,2}(lock-|n_)?[-0-9ä]{0,12}", 0..20),
    ) {
        let all: Vec<&str> = children.iter().chain(&alike).map(String::as_str).collect();
        for dialect in of_names().chain([Sequence]) {
            let names = names(dialect, "");
            let queue = names.rank(all.iter().copied());
            prop_assert_eq!(queue.order.len() + queue.unmatched, all.len());
        }
        let _ = detect(all, |_| true);
    }

    /// Whatever pattern a user writes: it is refused with a reason or reads any name.
    #[test]
    fn no_pattern_makes_it_panic(
        text in r"([a-z\[\](){}?*+|.\\^$<>=!:P0-9_-]|\(\?P<(seq|id|guid|sid|label)>){0,24}",
        names in prop::collection::vec("[a-z0-9_-]{0,16}", 0..6),
    ) {
        for order in [Order::Number, Order::Text, Order::CreationZxid] {
            let matcher = match pattern(&text, order) {
                Ok(compiled) => Matcher::Pattern(compiled),
                Err(reason) => {
                    prop_assert!(!reason.is_empty());
                    continue;
                }
            };
            let all = Names { matcher, order, shared: &[] };
            let queue = all.rank(names.iter().map(String::as_str));
            prop_assert_eq!(queue.order.len() + queue.unmatched, names.len());
        }
    }
}
