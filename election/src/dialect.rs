//! Dialects as data: one row for each recipe.
//!
//! A new dialect is a new row in [`recipe`]; code is needed only for a rule that no row has yet.
//! What the rows say comes from the sources of the libraries, named beside each of them.

use std::cmp::Ordering;

use bellwether_api::election::{Dialect, DialectType};

use crate::decode::Decoder;

/// How one recipe lays out its znodes.
pub(crate) struct Recipe {
    /// Where candidates are.
    pub(crate) shape: Shape,
    /// How a candidate's data tells its identity.
    pub(crate) identity: Decoder,
}

/// Where candidates are, and so who leads.
pub(crate) enum Shape {
    /// The path is itself the node of the leader; whoever owns it leads.
    Node,
    /// Children of the path are candidates; the first of them leads.
    Queue {
        /// What stands before the sequence number, in order.
        name: &'static [Piece],
        /// Which sequence numbers the library recognises.
        digits: Digits,
        /// How the library compares sequence numbers.
        order: Order,
    },
}

/// A part of a candidate's name.
pub(crate) enum Piece {
    /// This text.
    Text(&'static str),
    /// The prefix that the spec gives.
    Prefix,
    /// A UUID with dashes, 36 characters.
    Uuid,
    /// 32 hexadecimal digits.
    Hex32,
}

/// Which texts are sequence numbers.
///
/// ZooKeeper formats the counter with `%010d`, so a negative number of fewer than ten digits has
/// the sign in place of a digit and only nine digits.
pub(crate) enum Digits {
    /// Every number that ZooKeeper can append.
    Any,
    /// Exactly ten digits after an optional sign: what kazoo's pattern recognises. A candidate with
    /// a number between −999999999 and −1 is invisible to kazoo, so it is none here.
    Ten,
}

/// How sequence numbers are compared. The two differ only below zero.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// As signed numbers.
    Number,
    /// As texts.
    Text,
}

/// The row of a dialect.
pub(crate) fn recipe(dialect: DialectType) -> &'static Recipe {
    match dialect {
        // The plain recipe with one ephemeral node.
        DialectType::SingleText => &Recipe {
            shape: Shape::Node,
            identity: Decoder::Text,
        },
        // The plain recipe with sequential nodes, whatever their prefix.
        DialectType::Sequence => &Recipe {
            shape: Shape::Queue {
                name: &[Piece::Prefix],
                digits: Digits::Any,
                order: Order::Number,
            },
            identity: Decoder::Text,
        },
        // zookeeper-recipes, LeaderElectionSupport: Integer.valueOf of what follows "n_".
        DialectType::ZkElection => &Recipe {
            shape: Shape::Queue {
                name: &[Piece::Text("n_")],
                digits: Digits::Any,
                order: Order::Number,
            },
            identity: Decoder::Text,
        },
        // Curator, LeaderLatch with protection: LockInternals compares what follows "latch-".
        DialectType::CuratorLatch => &Recipe {
            shape: Shape::Queue {
                name: &[Piece::Text("_c_"), Piece::Uuid, Piece::Text("-latch-")],
                digits: Digits::Any,
                order: Order::Text,
            },
            identity: Decoder::TextOrGzip,
        },
        // Curator, InterProcessMutex and LeaderSelector: the same with "lock-".
        DialectType::CuratorLock => &Recipe {
            shape: Shape::Queue {
                name: &[Piece::Text("_c_"), Piece::Uuid, Piece::Text("-lock-")],
                digits: Digits::Any,
                order: Order::Text,
            },
            identity: Decoder::TextOrGzip,
        },
        // kazoo/recipe/lock.py: the contenders' pattern ends in (-?\d{10})$, compared as text.
        DialectType::Kazoo => &Recipe {
            shape: Shape::Queue {
                name: &[Piece::Hex32, Piece::Text("__lock__")],
                digits: Digits::Ten,
                order: Order::Text,
            },
            identity: Decoder::Text,
        },
    }
}

/// Children of an election's path, told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The candidates in the order in which they come to lead.
    pub order: Vec<Ranked>,
    /// How many children are no candidates.
    pub unmatched: usize,
}

/// A candidate by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The name of its znode.
    pub node: String,
    /// The number at the end of the name.
    pub sequence: i32,
}

/// Puts the children of an election's path in the order of the dialect.
///
/// Equal numbers, which only an overflowed counter or a hand-made node gives, are ordered by name,
/// so that the result does not depend on the order of the input. A dialect without a queue has no
/// candidates among the children.
pub fn rank<'a>(dialect: &Dialect, children: impl IntoIterator<Item = &'a str>) -> Queue {
    let children = children.into_iter();
    let Shape::Queue {
        name: pieces,
        digits,
        order,
    } = &recipe(dialect.type_).shape
    else {
        return Queue {
            order: Vec::new(),
            unmatched: children.count(),
        };
    };
    let prefix = dialect
        .sequence
        .as_ref()
        .map_or("", |sequence| sequence.prefix.as_str());
    let mut unmatched = 0;
    let mut candidates: Vec<(&str, &str, i32)> = Vec::new();
    for child in children {
        match parse(pieces, prefix, digits, child) {
            Some((text, number)) => candidates.push((child, text, number)),
            None => unmatched += 1,
        }
    }
    candidates.sort_unstable_by(|a, b| compare(*order, (a.1, a.2), (b.1, b.2)).then(a.0.cmp(b.0)));
    let order = candidates
        .into_iter()
        .map(|(node, _, sequence)| Ranked {
            node: node.to_owned(),
            sequence,
        })
        .collect();
    Queue { order, unmatched }
}

fn compare(order: Order, a: (&str, i32), b: (&str, i32)) -> Ordering {
    match order {
        Order::Number => a.1.cmp(&b.1),
        Order::Text => a.0.cmp(b.0),
    }
}

/// The sequence number of a child, as text and as a number, if the child is a candidate.
///
/// The known text is stripped first and only the rest is parsed: read from the right,
/// `latch-2147483647` is indistinguishable from the number −2147483647.
fn parse<'n>(
    pieces: &[Piece],
    prefix: &str,
    digits: &Digits,
    name: &'n str,
) -> Option<(&'n str, i32)> {
    let mut rest = name;
    for piece in pieces {
        rest = match piece {
            Piece::Text(text) => rest.strip_prefix(text)?,
            Piece::Prefix => rest.strip_prefix(prefix)?,
            Piece::Uuid => strip(rest, 36, |at, byte| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })?,
            Piece::Hex32 => strip(rest, 32, |_, byte| byte.is_ascii_hexdigit())?,
        };
    }
    let unsigned = rest.strip_prefix('-');
    let figures = unsigned.unwrap_or(rest);
    let width = match (unsigned, digits) {
        (Some(_), Digits::Any) => matches!(figures.len(), 9 | 10),
        _ => figures.len() == 10,
    };
    let is_number = width && figures.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| rest.parse().ok().map(|number| (rest, number)))
        .flatten()
}

fn strip(text: &str, length: usize, fits: impl Fn(usize, u8) -> bool) -> Option<&str> {
    let (head, rest) = text.split_at_checked(length)?;
    head.bytes()
        .enumerate()
        .all(|(at, byte)| fits(at, byte))
        .then_some(rest)
}

#[cfg(test)]
mod tests {
    use bellwether_api::election::SequenceOptions;
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10";
    const HEX: &str = "0123456789abcdef0123456789abcdef";

    fn plain(type_: DialectType) -> Dialect {
        Dialect {
            type_,
            sequence: None,
            acknowledgement: None,
        }
    }

    fn sequence(prefix: &str) -> Dialect {
        let sequence = Some(SequenceOptions {
            prefix: prefix.to_owned(),
        });
        Dialect {
            type_: DialectType::Sequence,
            sequence,
            acknowledgement: None,
        }
    }

    fn sequence_of(dialect: &Dialect, name: &str) -> Option<i32> {
        rank(dialect, [name])
            .order
            .first()
            .map(|ranked| ranked.sequence)
    }

    /// What each dialect makes of each name: the number, or nothing.
    #[test]
    fn names_are_read_as_their_libraries_read_them() {
        use DialectType::*;
        let latch = |tail: &str| format!("_c_{UUID}-latch-{tail}");
        let lock = |tail: &str| format!("_c_{UUID}-lock-{tail}");
        let kazoo = |tail: &str| format!("{HEX}__lock__{tail}");
        let table = [
            (sequence("leader"), "leader0000000007".to_owned(), Some(7)),
            (sequence("leader"), "leader-000000007".to_owned(), Some(-7)),
            (
                sequence("leader"),
                "leader-2147483648".to_owned(),
                Some(i32::MIN),
            ),
            (sequence("leader"), "leader9999999999".to_owned(), None),
            (sequence("leader"), "leader-history".to_owned(), None),
            (sequence("leader"), "leader".to_owned(), None),
            (sequence("leader"), "leader00000000071".to_owned(), None),
            (
                sequence("leader"),
                "leader\u{0667}000000007".to_owned(),
                None,
            ),
            (sequence("leader"), "follower0000000007".to_owned(), None),
            (
                sequence("lock-"),
                "lock-2147483647".to_owned(),
                Some(i32::MAX),
            ),
            (
                sequence("lock-"),
                "lock--2147483647".to_owned(),
                Some(-2147483647),
            ),
            (sequence("größe_"), "größe_0000000001".to_owned(), Some(1)),
            (plain(ZkElection), "n_0000000000".to_owned(), Some(0)),
            (
                plain(ZkElection),
                "n_-999999999".to_owned(),
                Some(-999999999),
            ),
            (plain(ZkElection), "1-host-n_0000000000".to_owned(), None),
            (plain(CuratorLatch), latch("0000000012"), Some(12)),
            (plain(CuratorLatch), latch("-000000012"), Some(-12)),
            (plain(CuratorLatch), latch(""), None),
            (plain(CuratorLatch), lock("0000000012"), None),
            (plain(CuratorLock), lock("0000000012"), Some(12)),
            (
                plain(CuratorLock),
                format!("_c_{HEX}-lock-0000000012"),
                None,
            ),
            (plain(Kazoo), kazoo("0000000012"), Some(12)),
            (plain(Kazoo), kazoo("-1000000000"), Some(-1000000000)),
            (plain(Kazoo), kazoo("-999999999"), None),
            (plain(Kazoo), format!("{HEX}__rlock__0000000012"), None),
            (plain(SingleText), "n_0000000000".to_owned(), None),
        ];
        for (dialect, name, expected) in table {
            assert_eq!(
                sequence_of(&dialect, &name),
                expected,
                "{:?} {name}",
                dialect.type_
            );
        }
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
        let queue = rank(&sequence("leader"), children);
        let nodes: Vec<_> = queue
            .order
            .iter()
            .map(|ranked| ranked.node.as_str())
            .collect();
        assert_eq!(nodes, ["leader0000000001", "leader0000000002"]);
        assert_eq!(queue.unmatched, 3);
    }

    #[test]
    fn below_zero_the_comparators_disagree() {
        let numbers = ["-2147483648", "-000000001", "-000000002", "0000000000"];
        let first = |dialect: &Dialect, before: &str| {
            let names: Vec<_> = numbers
                .iter()
                .map(|number| format!("{before}{number}"))
                .collect();
            let queue = rank(dialect, names.iter().map(String::as_str));
            queue
                .order
                .iter()
                .map(|ranked| ranked.sequence)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            first(&plain(DialectType::ZkElection), "n_"),
            [i32::MIN, -2, -1, 0]
        );
        let latch = format!("_c_{UUID}-latch-");
        assert_eq!(
            first(&plain(DialectType::CuratorLatch), &latch),
            [-1, -2, i32::MIN, 0]
        );
    }

    /// What Curator's LockInternals sorts by: all that follows the last "latch-" or "lock-".
    fn curator_key<'n>(label: &str, name: &'n str) -> &'n str {
        name.rfind(label)
            .map_or(name, |at| &name[at + label.len()..])
    }

    /// A number as the server appends it.
    fn formatted() -> impl Strategy<Value = String> {
        prop_oneof![any::<i32>(), -3_i32..3, Just(i32::MIN), Just(i32::MAX)]
            .prop_map(|number| format!("{number:010}"))
    }

    fn uuid() -> impl Strategy<Value = String> {
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    }

    fn nodes(queue: &Queue) -> Vec<&str> {
        queue
            .order
            .iter()
            .map(|ranked| ranked.node.as_str())
            .collect()
    }

    proptest! {
        #[test]
        fn order_is_that_of_curator(ids in prop::collection::vec((uuid(), formatted()), 0..12)) {
            for (type_, label) in
                [(DialectType::CuratorLatch, "latch-"), (DialectType::CuratorLock, "lock-")]
            {
                let names: Vec<_> =
                    ids.iter().map(|(id, number)| format!("_c_{id}-{label}{number}")).collect();
                let queue = rank(&plain(type_), names.iter().map(String::as_str));
                let mut theirs: Vec<_> = names.iter().map(String::as_str).collect();
                theirs.sort_by_key(|name| (curator_key(label, name), *name));
                prop_assert_eq!(nodes(&queue), theirs);
            }
        }

        #[test]
        fn order_is_that_of_zookeepers_recipe(numbers in prop::collection::vec(any::<i32>(), 0..12)) {
            let names: Vec<_> = numbers.iter().map(|number| format!("n_{number:010}")).collect();
            let queue = rank(&plain(DialectType::ZkElection), names.iter().map(String::as_str));
            let mut theirs = numbers;
            theirs.sort_unstable();
            let ours: Vec<_> = queue.order.iter().map(|ranked| ranked.sequence).collect();
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn order_is_that_of_kazoo(ids in prop::collection::vec(("[0-9a-f]{32}", formatted()), 0..12)) {
            let names: Vec<_> =
                ids.iter().map(|(id, number)| format!("{id}__lock__{number}")).collect();
            // kazoo: the groups that its pattern matches, sorted as texts.
            let mut theirs: Vec<_> = names
                .iter()
                .map(|name| (&name[40..], name.as_str()))
                .filter(|(suffix, _)| suffix.trim_start_matches('-').len() == 10)
                .collect();
            theirs.sort_unstable();
            let theirs: Vec<_> = theirs.into_iter().map(|(_, name)| name).collect();
            let queue = rank(&plain(DialectType::Kazoo), names.iter().map(String::as_str));
            prop_assert_eq!(nodes(&queue), theirs);
        }

        #[test]
        fn any_prefix_works_and_every_child_is_counted_once(
            prefix in "[^/]{1,12}",
            numbers in prop::collection::vec(any::<i32>(), 0..8),
            others in prop::collection::vec(any::<String>(), 0..8),
        ) {
            let dialect = sequence(&prefix);
            let names: Vec<_> = numbers
                .iter()
                .map(|number| format!("{prefix}{number:010}"))
                .chain(others.iter().cloned())
                .collect();
            let queue = rank(&dialect, names.iter().map(String::as_str));
            prop_assert!(queue.order.len() >= numbers.len());
            prop_assert_eq!(queue.order.len() + queue.unmatched, names.len());
            prop_assert!(queue.order.is_sorted_by_key(|ranked| ranked.sequence));
        }

        #[test]
        fn no_name_makes_it_panic(names in prop::collection::vec(any::<String>(), 0..20)) {
            for type_ in DialectType::ALL {
                let queue = rank(&plain(type_), names.iter().map(String::as_str));
                prop_assert_eq!(queue.order.len() + queue.unmatched, names.len());
            }
        }
    }
}
