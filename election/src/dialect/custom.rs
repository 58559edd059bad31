//! The pattern of a `Custom` dialect.

use bellwether_api::election::recipe::Order;
use regex::{Captures, Regex, RegexBuilder};

use super::{CandidateName, session};

/// How large a compiled pattern may be, in bytes. The longest simple pattern that the API accepts
/// needs less; a repetition of repetitions does not.
const MAX_COMPILED: usize = 256 * 1024;

/// How deeply groups may be nested.
const MAX_NESTED: u32 = 32;

/// A pattern that the whole name of a candidate matches.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

/// Compiles the pattern of a spec.
///
/// # Errors
///
/// A sentence that says why the pattern cannot be used: its syntax, its size, or a missing group.
pub(crate) fn pattern(text: &str, order: Order) -> Result<Pattern, String> {
    // The pattern alone must compile first: the group around it must not complete a broken pattern.
    compile(text)?;
    let whole = compile(&format!(r"\A(?:{text})\z"))?;
    let has_number = whole.capture_names().flatten().any(|name| name == "seq");
    if !has_number && matches!(order, Order::Number | Order::Text) {
        return Err(
            "it has no group named seq, as (?P<seq>-?[0-9]+), which the orders Numeric \
                    and Lexical compare"
                .to_owned(),
        );
    }
    Ok(Pattern(whole))
}

/// Compiles a pattern of a spec, bounded in size.
///
/// # Errors
///
/// Why it cannot be compiled.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(MAX_NESTED)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                format!("compiled it is larger than {MAX_COMPILED} bytes")
            }
            // The library draws a picture in several lines; the last one says what is wrong.
            error => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default().trim();
                reason.strip_prefix("error: ").unwrap_or(reason).to_owned()
            }
        })
}

impl Pattern {
    /// Parses a name; `None` if it is not a candidate's.
    pub(super) fn parse<'n>(&self, name: &'n str, order: Order) -> Option<CandidateName<'n>> {
        let groups = self.0.captures(name)?;
        let digits = group(&groups, "seq").unwrap_or_default();
        let sequence = digits.parse().ok();
        if order == Order::Number && sequence.is_none() {
            return None;
        }
        Some(CandidateName {
            node: name,
            digits,
            sequence,
            label: group(&groups, "label"),
            guid: group(&groups, "guid"),
            id: group(&groups, "id"),
            session: group(&groups, "sid").and_then(session),
            shared: false,
        })
    }
}

fn group<'n>(groups: &Captures<'n>, name: &str) -> Option<&'n str> {
    groups.name(name).map(|found| found.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pattern_is_refused_with_the_reason() {
        let cases = [
            ("n_(", "unclosed group"),
            ("a)|(b", "unopened group"),
            (r"(?P<seq>(?:(?:\w{100}){100}){100})", "larger than"),
            (r"(?P<seq>[0-9]+)(?=x)", "look-around"),
            ("n_[0-9]+", "no group named seq"),
        ];
        for (text, word) in cases {
            let reason = pattern(text, Order::Number).unwrap_err();
            assert!(reason.contains(word), "{text}: {reason}");
            assert!(!reason.contains('\n'), "{text}: {reason}");
        }
        assert!(pattern("[a-z]+", Order::CreationZxid).is_ok());
    }

    #[test]
    fn the_whole_name_matches_or_nothing() {
        let pattern = pattern("a(?P<seq>[0-9]+)|b(?P<guid>x)", Order::CreationZxid).unwrap();
        let read = |name| pattern.parse(name, Order::CreationZxid);
        assert_eq!(read("a17").unwrap().sequence, Some(17));
        assert_eq!(read("bx").unwrap().guid, Some("x"));
        for name in ["a17x", "xa17", "a", "", "a17\n", "\na17"] {
            assert_eq!(read(name), None, "{name:?}");
        }
    }

    #[test]
    fn groups_say_what_they_are_named_for() {
        let text = "(?P<label>w|r)_(?P<sid>[0-9a-f]{16}|-?[0-9]+)_(?P<id>.+)_(?P<seq>-?[0-9]+)";
        let pattern = pattern(text, Order::Number).unwrap();
        let ranked = pattern
            .parse("w_-5_host-1_0000000003", Order::Number)
            .unwrap();
        assert_eq!(ranked.label, Some("w"));
        assert_eq!(ranked.session, Some(-5));
        assert_eq!(ranked.id, Some("host-1"));
        assert_eq!(ranked.sequence, Some(3));
        let hex = pattern
            .parse("w_ffffffffffffffff_h_-000000003", Order::Number)
            .unwrap();
        assert_eq!((hex.session, hex.sequence), (Some(-1), Some(-3)));
        // ZooKeeper does not append numbers beyond 32 bits.
        assert_eq!(pattern.parse("w_5_h_99999999999", Order::Number), None);
        assert!(pattern.parse("w_5_h_99999999999", Order::Text).is_some());
    }
}
