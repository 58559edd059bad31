//! From a znode's data to an identity that is safe to show.

use std::fmt::Write as _;
use std::io::Read as _;

use bellwether_api::election::{IdentitySource, format_session};
use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};

/// The longest identity, in characters. A longer one is cut and ends in a hash of the whole, so
/// that two identities with the same beginning stay different.
pub const MAX_IDENTITY: usize = 253;

/// How many bytes of binary data are shown.
const MAX_RAW_BYTES: usize = 64;

/// How many bytes compressed data may unfold to; more is not an identity but an attack.
const MAX_UNFOLDED: u64 = 64 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How a dialect's data tells the identity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decoder {
    /// The data is the identity, in UTF-8.
    Text,
    /// The same, possibly compressed with gzip.
    TextOrGzip,
}

/// Who a candidate is, as far as its node tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// At most [`MAX_IDENTITY`] characters, none of them a control character.
    pub text: String,
    /// Where it comes from.
    pub source: IdentitySource,
}

impl Identity {
    /// Decodes a node's data. An anonymous candidate is known by its session, and if the node has
    /// none (0), by the name of the node.
    pub(crate) fn decode(decoder: Decoder, data: &[u8], session: i64, node: &str) -> Self {
        let unfolded = match decoder {
            Decoder::TextOrGzip if data.starts_with(&GZIP_MAGIC) => unfold(data),
            _ => None,
        };
        let data = unfolded.as_deref().unwrap_or(data);
        if data.is_empty() {
            return if session == 0 {
                Self::of_node(node)
            } else {
                Self {
                    text: format_session(session),
                    source: IdentitySource::Session,
                }
            };
        }
        match std::str::from_utf8(data) {
            Ok(text) => Self {
                text: presentable(text),
                source: IdentitySource::Data,
            },
            Err(_) => Self {
                text: raw(data),
                source: IdentitySource::Raw,
            },
        }
    }

    /// The identity of a candidate of which nothing but the name of its node is known.
    pub(crate) fn of_node(node: &str) -> Self {
        Self {
            text: presentable(node),
            source: IdentitySource::NodeName,
        }
    }
}

/// Decompresses gzip; `None` if it is none, is damaged, or unfolds to more than the limit.
fn unfold(data: &[u8]) -> Option<Vec<u8>> {
    let mut unfolded = Vec::new();
    GzDecoder::new(data)
        .take(MAX_UNFOLDED + 1)
        .read_to_end(&mut unfolded)
        .ok()?;
    (unfolded.len() as u64 <= MAX_UNFOLDED).then_some(unfolded)
}

/// A text without anything that could mislead a reader or a terminal, and not too long.
pub(crate) fn presentable(text: &str) -> String {
    let mut shown = String::new();
    let mut length = 0;
    let mut cut = None;
    // Where a hash would have to begin if the text turned out too long.
    let room = MAX_IDENTITY - 17;
    for character in text.chars() {
        let (from, width) = (shown.len(), push_escaped(&mut shown, character));
        if cut.is_none() && length + width > room {
            cut = Some(from);
        }
        length += width;
        if length > MAX_IDENTITY {
            shown.truncate(cut.unwrap_or(from));
            let hash = Sha256::digest(text.as_bytes());
            shown.push('~');
            hex(&mut shown, &hash[..8]);
            return shown;
        }
    }
    shown
}

/// Appends a character, escaped if it does not show as itself. Returns how many were appended.
fn push_escaped(shown: &mut String, character: char) -> usize {
    let misleading = matches!(
        character,
        // Zero width, direction marks, line and paragraph separators, byte order mark.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    if !character.is_control() && !misleading {
        shown.push(character);
        return 1;
    }
    let before = shown.len();
    shown.extend(character.escape_default());
    shown.len() - before
}

fn raw(data: &[u8]) -> String {
    let mut shown = String::from("0x");
    hex(&mut shown, &data[..data.len().min(MAX_RAW_BYTES)]);
    if data.len() > MAX_RAW_BYTES {
        shown.push('~');
        hex(&mut shown, &Sha256::digest(data)[..8]);
    }
    shown
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(decoder: Decoder, data: &[u8]) -> (String, IdentitySource) {
        let identity = Identity::decode(decoder, data, 0x1000, "n_0000000001");
        (identity.text, identity.source)
    }

    #[test]
    fn text_is_the_identity() {
        let (text, source) = decode(Decoder::Text, "host-1:8983_sölr".as_bytes());
        assert_eq!(
            (text.as_str(), source),
            ("host-1:8983_sölr", IdentitySource::Data)
        );
    }

    #[test]
    fn an_anonymous_candidate_is_known_by_its_session() {
        assert_eq!(
            decode(Decoder::Text, b""),
            ("0x1000".to_owned(), IdentitySource::Session)
        );
        let persistent = Identity::decode(Decoder::Text, b"", 0, "n_0000000001");
        assert_eq!(persistent.text, "n_0000000001");
        assert_eq!(persistent.source, IdentitySource::NodeName);
    }

    #[test]
    fn compressed_data_is_read_where_the_library_may_compress() {
        let data = gzip(b"participant-1");
        let expected = ("participant-1".to_owned(), IdentitySource::Data);
        assert_eq!(decode(Decoder::TextOrGzip, &data), expected);
        assert_eq!(
            decode(Decoder::TextOrGzip, &gzip(b"")).1,
            IdentitySource::Session
        );
        assert_eq!(decode(Decoder::Text, &data).1, IdentitySource::Raw);
    }

    #[test]
    fn a_compression_bomb_and_damaged_data_are_shown_raw() {
        let bomb = gzip(&vec![b'a'; 10 * 1024 * 1024]);
        let (text, source) = decode(Decoder::TextOrGzip, &bomb);
        assert_eq!(source, IdentitySource::Raw);
        assert!(text.starts_with("0x1f8b"), "{text}");
        let mut damaged = gzip(b"participant-1");
        damaged.truncate(15);
        assert_eq!(decode(Decoder::TextOrGzip, &damaged).1, IdentitySource::Raw);
    }

    #[test]
    fn nothing_that_misleads_a_terminal_is_shown() {
        let (text, _) = decode(Decoder::Text, "a\u{1b}[31m\n\u{202e}b\\c".as_bytes());
        assert_eq!(text, "a\\u{1b}[31m\\n\\u{202e}b\\c");
    }

    #[test]
    fn long_identities_with_the_same_beginning_stay_different() {
        let (one, _) = decode(Decoder::Text, format!("{}1", "x".repeat(400)).as_bytes());
        let (two, _) = decode(Decoder::Text, format!("{}2", "x".repeat(400)).as_bytes());
        assert_ne!(one, two);
        assert_eq!(one.chars().count(), MAX_IDENTITY);
        let (exact, _) = decode(Decoder::Text, "x".repeat(MAX_IDENTITY).as_bytes());
        assert_eq!(exact, "x".repeat(MAX_IDENTITY));
    }

    proptest! {
        #[test]
        fn no_data_makes_it_panic_and_every_identity_is_bounded(
            data in prop::collection::vec(any::<u8>(), 0..600),
            compressed in any::<bool>(),
            text in any::<String>(),
        ) {
            let data = if compressed { gzip(&data) } else { data };
            for data in [data.as_slice(), text.as_bytes()] {
                for decoder in [Decoder::Text, Decoder::TextOrGzip] {
                    let identity = Identity::decode(decoder, data, 7, &text);
                    prop_assert!(identity.text.chars().count() <= MAX_IDENTITY);
                    prop_assert!(!identity.text.chars().any(char::is_control));
                    prop_assert!(!identity.text.is_empty());
                }
            }
        }
    }
}
