//! Texts and bytes as they may be shown: bounded, and without what misleads a reader.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The longest identity, in characters. A longer one is cut and ends in a hash of the whole, so
/// that two identities with the same beginning stay different.
pub const MAX_IDENTITY: usize = 253;

/// How many bytes of binary data are shown.
const MAX_RAW_BYTES: usize = 64;

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

/// The first bytes of binary data in hexadecimal.
pub(super) fn raw(data: &[u8]) -> String {
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
