//! The names of candidates: from the children of a znode to a queue, by a row of the table of dialects
//! (`api/src/election/dialects.rs`).

mod custom;
mod detect;
mod registration;

use std::cmp::Ordering;

use bellwether_api::election::recipe::{Digits, Layout, Order, Piece, Recipe};

pub(crate) use custom::{Pattern, compile, pattern};
pub use detect::Detection;
pub(crate) use detect::{detect, detect_node};
pub(crate) use registration::registration_path;

/// How the names of one election's children are read.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) matcher: Matcher,
    pub(crate) order: Order,
    pub(crate) shared: &'static [&'static str],
}

/// What distinguishes candidates from other children.
#[derive(Clone, Debug)]
pub(crate) enum Matcher {
    /// A row of the table, with the prefix that the spec gives.
    Layout(Layout, String),
    /// The pattern that the spec gives.
    Pattern(Pattern),
}

/// The children of an election's path: the candidates in order, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue<'n> {
    /// The candidates in the order in which they come to lead.
    pub(crate) order: Vec<CandidateName<'n>>,
    /// How many children are no candidates.
    pub(crate) unmatched: usize,
}

/// The parts of a candidate's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CandidateName<'n> {
    /// The name of its znode.
    pub(crate) node: &'n str,
    /// The sequence number as it is written.
    pub(crate) digits: &'n str,
    /// The sequence number; `None` only in dialects whose names need no number.
    pub(crate) sequence: Option<i32>,
    /// Its kind.
    pub(crate) label: Option<&'n str>,
    /// What a client looks for after a create whose reply was lost.
    pub(crate) guid: Option<&'n str>,
    /// The identity in the name.
    pub(crate) id: Option<&'n str>,
    /// The session in the name, which created the node.
    pub(crate) session: Option<i64>,
    /// Whether it holds the election together with others of its kind.
    pub(crate) shared: bool,
}

impl Names {
    /// The names of a recipe's candidates; `None` if the recipe has no queue.
    pub(crate) fn of_recipe(recipe: &Recipe, prefix: &str) -> Option<Self> {
        Some(Self {
            shared: recipe.shared,
            ..Self::of_layout(recipe.layout?, prefix)
        })
    }

    /// The names of a layout, none of whose candidates share the election.
    pub(crate) fn of_layout(layout: Layout, prefix: &str) -> Self {
        Self {
            matcher: Matcher::Layout(layout, prefix.to_owned()),
            order: layout.order,
            shared: &[],
        }
    }

    /// Puts the children of an election's path in the order of the dialect.
    ///
    /// Of equal numbers, those that hold the election alone come first: a reader within a writer
    /// takes over the writer's number. Otherwise equal ones are ordered by name, so that the result
    /// does not depend on the order of the input.
    pub(crate) fn rank<'n>(&self, children: impl IntoIterator<Item = &'n str>) -> Queue<'n> {
        let mut queue = Queue::default();
        for child in children {
            match self.parse(child) {
                Some(ranked) => queue.order.push(ranked),
                None => queue.unmatched += 1,
            }
        }
        queue.order.sort_unstable_by(|a, b| {
            compare(self.order, a, b)
                .then(a.shared.cmp(&b.shared))
                .then(a.node.cmp(b.node))
        });
        queue
    }

    /// What the name of a candidate begins with to which ZooKeeper appends a sequence number; `guid` is a UUID for libraries that
    /// put one there. `None` where the sequence number does not decide, or another program cannot make such a name.
    pub(crate) fn beginning(&self, guid: &str) -> Option<String> {
        let Matcher::Layout(layout, prefix) = &self.matcher else {
            return None;
        };
        let alone = |labels: &[&'static str]| {
            let mut labels = labels.iter().copied();
            labels.find(|label| !self.shared.contains(label))
        };
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Some((*text).to_owned()),
            Piece::Prefix => Some(prefix.clone()),
            Piece::Uuid => Some(guid.to_owned()),
            Piece::Hex32 => Some(guid.replace('-', "")),
            Piece::Label(labels) => alone(labels).map(str::to_owned),
            // No session has this number.
            Piece::Session | Piece::SessionOrHex => Some("0".to_owned()),
            Piece::Id | Piece::Free => Some("bellwether-bridge".to_owned()),
        };
        let beginning: String = layout.name.iter().map(piece).collect::<Option<_>>()?;
        let first = format!("{beginning}{:010}", 0);
        let is_candidate = self.parse(&first).is_some_and(|parsed| !parsed.shared);
        (is_candidate && self.order != Order::CreationZxid).then_some(beginning)
    }

    /// Parses a child's name; `None` if it is not a candidate's.
    pub(crate) fn parse<'n>(&self, child: &'n str) -> Option<CandidateName<'n>> {
        let ranked = match &self.matcher {
            Matcher::Layout(layout, prefix) => {
                let found = CandidateName {
                    node: child,
                    ..CandidateName::default()
                };
                parse(layout.name, layout.digits, prefix, child, found)?
            }
            Matcher::Pattern(pattern) => pattern.parse(child, self.order)?,
        };
        let shared = ranked
            .label
            .is_some_and(|label| self.shared.contains(&label));
        Some(CandidateName { shared, ..ranked })
    }
}

fn compare(order: Order, a: &CandidateName<'_>, b: &CandidateName<'_>) -> Ordering {
    let magnitude = |ranked: &CandidateName<'_>| ranked.sequence.map(i32::unsigned_abs);
    match order {
        Order::Number => a.sequence.cmp(&b.sequence),
        Order::Text => a.digits.cmp(b.digits),
        Order::Magnitude => magnitude(a).cmp(&magnitude(b)),
        Order::CreationZxid => Ordering::Equal,
    }
}

/// Reads the rest of a name by the rest of the pieces.
///
/// The known text is stripped first and only the rest is parsed: read from the right,
/// `latch-2147483647` is indistinguishable from the number −2147483647.
fn parse<'n>(
    pieces: &[Piece],
    digits: Digits,
    prefix: &str,
    rest: &'n str,
    found: CandidateName<'n>,
) -> Option<CandidateName<'n>> {
    let Some((piece, later)) = pieces.split_first() else {
        let sequence = Some(number(digits, rest)?);
        return Some(CandidateName {
            digits: rest,
            sequence,
            ..found
        });
    };
    let go_on = |rest, found| parse(later, digits, prefix, rest, found);
    match piece {
        Piece::Text(text) => go_on(rest.strip_prefix(text)?, found),
        Piece::Prefix => go_on(rest.strip_prefix(prefix)?, found),
        Piece::Uuid => {
            let (guid, rest) = split(rest, 36, |at, byte| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })?;
            let guid = Some(guid);
            go_on(rest, CandidateName { guid, ..found })
        }
        Piece::Hex32 => {
            let (guid, rest) = split(rest, 32, |_, byte| byte.is_ascii_hexdigit())?;
            let guid = Some(guid);
            go_on(rest, CandidateName { guid, ..found })
        }
        Piece::Label(labels) => labels.iter().find_map(|label| {
            let (label, rest) = rest
                .split_at_checked(label.len())
                .filter(|(l, _)| l == label)?;
            let label = Some(label);
            go_on(rest, CandidateName { label, ..found })
        }),
        Piece::Session => {
            let (session, rest) = decimal(rest)?;
            let session = Some(session);
            go_on(rest, CandidateName { session, ..found })
        }
        Piece::SessionOrHex => {
            let hex = |_, byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let hexadecimal = split(rest, 16, hex).filter(|(_, rest)| rest.starts_with('-'));
            let (session, rest) = match hexadecimal {
                // 16 decimal digits may be decimal or hexadecimal.
                Some((text, rest)) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (None, rest)
                }
                Some((text, rest)) => (session(text), rest),
                None => decimal(rest).map(|(number, rest)| (Some(number), rest))?,
            };
            go_on(rest, CandidateName { session, ..found })
        }
        Piece::Id | Piece::Free => rest.char_indices().rev().find_map(|(at, character)| {
            let (text, rest) = rest.split_at_checked(at + character.len_utf8())?;
            let id = matches!(piece, Piece::Id).then_some(text);
            go_on(rest, CandidateName { id, ..found })
        }),
    }
}

/// A sequence number, if the library recognises it.
fn number(digits: Digits, text: &str) -> Option<i32> {
    let unsigned = text.strip_prefix('-');
    let figures = unsigned.unwrap_or(text);
    let width = match (digits, unsigned) {
        (Digits::Any, Some(_)) => matches!(figures.len(), 9 | 10),
        (Digits::Any | Digits::Ten, None) | (Digits::Ten, Some(_)) => figures.len() == 10,
        (Digits::TenCharacters, _) => text.len() == 10,
        (Digits::Unsigned, None) => figures.len() == 10,
        (Digits::UpToTen, None) => matches!(figures.len(), 1..=10),
        (Digits::Unsigned | Digits::UpToTen, Some(_)) => false,
    };
    let is_number = width && figures.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Whether a name ends in what ZooKeeper may have appended as a sequence number.
pub(crate) fn looks_sequential(name: &str) -> bool {
    [10, 11].into_iter().any(|width| {
        let tail = name.len().checked_sub(width).and_then(|at| name.get(at..));
        tail.is_some_and(|tail| number(Digits::Any, tail).is_some())
    })
}

/// A session id as names carry it: 16 hexadecimal digits, or a signed decimal number.
pub(crate) fn session(text: &str) -> Option<i64> {
    if text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return u64::from_str_radix(text, 16).ok().map(u64::cast_signed);
    }
    text.parse().ok()
}

/// A decimal number at the beginning of a text, and what follows.
fn decimal(text: &str) -> Option<(i64, &str)> {
    let sign = usize::from(text.starts_with('-'));
    let figures = text.get(sign..)?.bytes().take_while(u8::is_ascii_digit);
    let (number, rest) = text.split_at_checked(sign + figures.count())?;
    Some((number.parse().ok()?, rest))
}

fn split(text: &str, length: usize, fits: impl Fn(usize, u8) -> bool) -> Option<(&str, &str)> {
    let (head, rest) = text.split_at_checked(length)?;
    let all = head.bytes().enumerate().all(|(at, byte)| fits(at, byte));
    all.then_some((head, rest))
}

#[cfg(test)]
mod comparators;
#[cfg(test)]
mod tests;
