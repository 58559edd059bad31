//! The rules of CEL on a dialect, from the table of dialects.

use kube::core::Rule;

use super::DialectType;
use crate::election::recipe::Options;

/// A list of words as CEL writes it.
fn list(dialects: impl Iterator<Item = DialectType>) -> String {
    let words: Vec<String> = dialects.map(|d| format!("'{}'", d.as_str())).collect();
    format!("[{}]", words.join(", "))
}

/// The condition that the path is the leader's node.
fn one_node() -> String {
    let dialects = list(DialectType::of_one_node());
    format!("(self.type in {dialects}) || (has(self.custom) && self.custom.leaderRule == 'Exists')")
}

/// The condition that a rule of the recipe or the spec decides who leads, without a registration.
fn no_registration() -> String {
    let dialects = list(DialectType::of_one_node());
    format!(
        "(self.type in {dialects}) || (has(self.custom) && self.custom.leaderRule != 'LeaderPath')"
    )
}

/// Options are there exactly for the dialect that needs them.
pub(super) fn options(options: Options) -> Rule {
    let field = options.field();
    let needs = |dialect: &DialectType| dialect.options() == Some(options);
    let dialects: Vec<DialectType> = DialectType::ALL.into_iter().filter(needs).collect();
    let (condition, words) = match dialects.as_slice() {
        [one] => (
            format!("self.type == '{}'", one.as_str()),
            format!("the dialect {}", one.as_str()),
        ),
        several => {
            let words: Vec<&str> = several.iter().map(|d| d.as_str()).collect();
            (
                format!("self.type in {}", list(several.iter().copied())),
                format!("the dialects {}", words.join(", ")),
            )
        }
    };
    let message = format!("{field} is required for {words} and not allowed for any other");
    Rule::new(format!("({condition}) == has(self.{field})")).message(message.as_str())
}

/// A field has a meaning only where the path is the leader's node.
pub(super) fn only_of_one_node(field: &str) -> Rule {
    Rule::new(format!("!has(self.{field}) || {}", one_node()))
}

/// An acknowledgement has a meaning only beside a queue.
pub(super) fn acknowledgement() -> Rule {
    Rule::new(format!("!has(self.acknowledgement) || !({})", one_node())).message(
        "acknowledgement is for dialects with a queue: where path is the leader's node, that node is its own acknowledgement",
    )
}

/// A registration has a meaning only where nothing else decides who leads.
pub(super) fn leader_path() -> Rule {
    Rule::new(format!("!has(self.leaderPath) || !({})", no_registration())).message(
        "leaderPath is for dialects with a queue, and for Custom with the leaderRule LeaderPath: elsewhere something else says who leads",
    )
}

/// What the path of an election is, for the description of the field.
pub(in crate::election) fn path_description() -> String {
    let words: Vec<String> = DialectType::of_one_node()
        .map(|d| format!("`{}`", d.as_str()))
        .collect();
    let (last, others) = words.split_last().map_or(("", &[][..]), |(l, o)| (l, o));
    format!(
        "The absolute path of the election's znode.\n\nFor {} and {last} it is the leader's node itself; for every other dialect it is the parent of the candidates' nodes. It does not have to exist yet.",
        others.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_list_what_the_table_says() {
        let nodes = list(DialectType::of_one_node());
        assert_eq!(
            nodes,
            "['SingleText', 'SingleJson', 'HadoopElector', 'HBaseMaster', 'FlinkComponent', 'ElasticJob']"
        );
        let rule = serde_json::to_value(options(Options::Json)).unwrap();
        assert_eq!(
            rule["rule"],
            "(self.type == 'SingleJson') == has(self.json)"
        );
        assert!(
            path_description().contains("`FlinkComponent` and `ElasticJob` it is the leader's")
        );
    }
}
