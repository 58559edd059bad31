//! Names, keys and values as the API server has them: `k8s.io/apimachinery/pkg/util/validation`.

use bellwether_api::ensemble::{EVERY_NAMESPACE, MAX_NAMESPACES, NO_NAMESPACE};

use super::Problems;

/// The most characters of a label of a DNS name, of the name part of a key, and of a label's value.
const LABEL: usize = 63;
/// The most characters of a DNS name.
const SUBDOMAIN: usize = 253;

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Whether the first and the last character pass the test `end`, and all characters pass `between`.
fn is_word(text: &str, end: impl Fn(char) -> bool, between: impl Fn(char) -> bool) -> bool {
    text.starts_with(&end) && text.ends_with(&end) && text.chars().all(between)
}

/// Whether it is a part of a DNS name, without regard to its length.
fn is_dns_part(text: &str) -> bool {
    is_word(text, is_lower, |c| is_lower(c) || c == '-')
}

/// Whether it can be the name of a namespace (`IsDNS1123Label`).
pub(super) fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL && is_dns_part(text)
}

/// Whether it can be the name of a Secret, a StorageClass or a PriorityClass (`IsDNS1123Subdomain`).
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN && text.split('.').all(is_dns_part)
}

fn is_name(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    text.len() <= LABEL && is_word(text, end, |c| end(c) || "-_.".contains(c))
}

/// Whether it can be the key of a label (`IsQualifiedName`).
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Whether it can be the value of a label (`IsValidLabelValue`).
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Checks the namespaces whose elections an ensemble admits.
pub(super) fn namespaces(names: &[String], problems: &mut Problems) {
    let field = "spec.elections.namespaces";
    if names.len() > MAX_NAMESPACES {
        problems.add(field, format!("use at most {MAX_NAMESPACES}, or * for all"));
    }
    for (index, name) in names.iter().enumerate() {
        if name != EVERY_NAMESPACE && !is_dns_label(name) {
            problems.add(format!("{field}[{index}]"), NO_NAMESPACE);
        }
    }
}

/// The advice for a text that is not a key.
pub(super) const NO_KEY: &str = "a key is at most 63 letters, digits, '-', '_' and '.', with a letter or digit \
                                 at both ends, after a DNS name and '/' if at all";
/// The advice for a text that is not a value.
pub(super) const NO_VALUE: &str = "a value is at most 63 letters, digits, '-', '_' and '.', with a letter or \
                                   digit at both ends";
/// The advice for a text that is not a name of an object.
pub(super) const NO_NAME: &str = "a name is at most 253 lower-case letters, digits, '-' and '.', with a letter \
                                  or digit at both ends of each part between dots";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_of_the_grammar_pass(
            label in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            name in "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
            other in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        ) {
            let domain = format!("{label}.{other}");
            prop_assert!(is_dns_label(&label));
            prop_assert!(is_dns_subdomain(&label) && is_dns_subdomain(&domain));
            prop_assert!(is_label_value(&name));
            prop_assert!(is_key(&name));
            let key = format!("{domain}/{name}");
            prop_assert!(is_key(&key));
        }

        #[test]
        fn one_character_that_is_not_in_the_grammar_is_one_too_many(
            before in "[a-z0-9]{0,5}",
            bad in "[^-A-Za-z0-9_./]",
            after in "[a-z0-9]{0,5}",
        ) {
            let text = format!("{before}{bad}{after}");
            prop_assert!(!is_dns_label(&text) && !is_dns_subdomain(&text), "{}", text);
            prop_assert!(!is_label_value(&text) && !is_key(&text), "{}", text);
        }
    }

    #[test]
    fn the_ends_and_the_lengths_count() {
        for text in [
            "-a", "a-", ".a", "a.", "_a", "a_", "a/", "/a", "a/b/c", "A.b/c", "a..b/c",
        ] {
            assert!(!is_key(text), "{text}");
        }
        for text in ["", "a..b", "a.-b", "A", "a_b", ".", "a."] {
            assert!(!is_dns_subdomain(text), "{text:?}");
        }
        assert!(is_label_value("") && !is_key("") && !is_dns_label(""));
        let long = |n: usize| "a".repeat(n);
        assert!(is_key(&long(63)) && !is_key(&long(64)));
        assert!(is_label_value(&long(63)) && !is_label_value(&long(64)));
        assert!(is_dns_label(&long(63)) && !is_dns_label(&long(64)));
        assert!(is_dns_subdomain(&long(253)) && !is_dns_subdomain(&long(254)));
    }
}
