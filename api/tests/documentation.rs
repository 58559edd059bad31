//! What a user meets in a status or an event has a line in the documentation.

use bellwether_api::events::EventReason;
use bellwether_api::{election, ensemble};

/// Asserts that the page has a line about each word: a row of a table in which the word stands in a cell of
/// its own or in a list.
fn documented<'w>(name: &str, page: &str, words: impl IntoIterator<Item = &'w str>) {
    for word in words {
        let marked = format!("`{word}`");
        let mut rows = page.lines().filter(|line| line.starts_with('|'));
        assert!(
            rows.any(|row| row.contains(&marked)),
            "docs/{name} has no line about {word}"
        );
    }
}

#[test]
fn every_condition_reason_and_event_is_on_the_page_of_conditions() {
    let page = include_str!("../../docs/conditions.md");
    let of_ensembles = ensemble::status::Reason::ALL.map(ensemble::status::Reason::as_str);
    documented("conditions.md", page, of_ensembles);
    documented(
        "conditions.md",
        page,
        election::Reason::ALL.map(election::Reason::as_str),
    );
    let events = EventReason::ALL.iter().map(|reason| reason.as_str());
    documented("conditions.md", page, events);
    let types = ensemble::status::ConditionType::ALL;
    documented(
        "conditions.md",
        page,
        types.map(ensemble::status::ConditionType::as_str),
    );
    let types = election::ConditionType::ALL;
    documented(
        "conditions.md",
        page,
        types.map(election::ConditionType::as_str),
    );
}

#[test]
fn every_condition_and_reason_of_an_election_is_on_the_page_of_elections() {
    let page = include_str!("../../docs/elections.md");
    let (_, table) = page.split_once("\n## Conditions\n").unwrap();
    documented(
        "elections.md",
        table,
        election::Reason::ALL.map(election::Reason::as_str),
    );
    let types = election::ConditionType::ALL;
    documented(
        "elections.md",
        table,
        types.map(election::ConditionType::as_str),
    );
}
