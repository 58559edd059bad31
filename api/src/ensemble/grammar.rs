//! What the API server refuses in pods and claims, as far as the schema and CEL can say it within the
//! cost that a CustomResourceDefinition may have. The operator knows the rest (`ensemble/src/validate/`).
//!
//! An object that an older version took may break a rule. Kubernetes (1.30 and later) does not check a
//! field again that an update leaves as it was, so such an object can still be changed elsewhere; the
//! operator says in its status what is wrong, and leaves the ensemble as it is until it is corrected. A
//! rule that compares two fields stands above both and is checked again when something below changes.

use serde_json::{Value, json};

/// What names of classes are: those of DNS.
pub(super) const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The schema of a label's value.
pub(super) fn label_value() -> Value {
    json!({
        "type": "string",
        "maxLength": 63,
        "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    })
}

/// The sentence for [`keys_rule`].
pub(super) const KEYS: &str = "a key is at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, after a DNS name and '/' if at all";

/// The CEL rule that every key of a map is one of a label. `key` is the key `k`, or what is made of it.
pub(super) fn keys_rule(key: &str) -> String {
    format!(
        "self.all(k, k.size() <= 317 && {key}.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$'))"
    )
}

/// An amount, which may be written as a number, as a quantity.
fn amount(of: &str) -> String {
    format!("quantity(type({of}) == int ? string({of}) : {of})")
}

fn is_amount(of: &str) -> String {
    format!("(type({of}) == int || isQuantity({of}))")
}

/// The CEL rule that no request is above its limit. The operator reports what is not an amount.
pub(super) fn requests_rule() -> String {
    let (request, limit) = ("self.requests[r]", "self.limits[r]");
    format!(
        "!has(self.requests) || !has(self.limits) || ['cpu', 'memory'].all(r, !(r in self.requests) || !(r in self.limits) || !{} || !{} || {}.compareTo({}) <= 0)",
        is_amount(request),
        is_amount(limit),
        amount(request),
        amount(limit),
    )
}

/// The CEL rule that a volume holds a file of the transaction log.
pub(super) fn log_file_rule() -> String {
    // A quantity that is made of a text of unknown length would cost too much.
    let file = "1024 * (has(self.config) && has(self.config.preAllocSize) ? self.config.preAllocSize : 65536)";
    let size = |of: &str| {
        let size = format!("{of}.size");
        let bytes = amount(&size);
        format!(
            "(!has({size}) || !{} || !{bytes}.isInteger() || {bytes}.asInteger() <= 0 || {bytes}.asInteger() >= {file})",
            is_amount(&size)
        )
    };
    format!(
        "!has(self.storage) || (has(self.storage.transactionLog) ? {} : {})",
        size("self.storage.transactionLog"),
        size("self.storage")
    )
}

/// The CEL rule that a limit of memory holds the heap.
pub(super) fn heap_rule() -> String {
    let limit = "self.pod.resources.limits['memory']";
    let heap = "quantity(has(self.jvm) && has(self.jvm.heap) ? self.jvm.heap : '512Mi')";
    format!(
        "!has(self.pod) || !has(self.pod.resources) || !has(self.pod.resources.limits) || !('memory' in self.pod.resources.limits) || !{} || {}.compareTo({heap}.add(quantity('64Mi'))) >= 0",
        is_amount(limit),
        amount(limit)
    )
}
