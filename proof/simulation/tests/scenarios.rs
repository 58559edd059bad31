//! The scripted lives: they pass with all rules, and without the rule that guards it each one fails. And what the mirror of
//! elections does so that nothing deceives it: without it a life fails.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::Command;

fn simulate(arguments: &[&str]) -> (bool, String) {
    let program = env!("CARGO_BIN_EXE_simulate");
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

#[test]
fn every_scenario_passes_and_fails_without_the_rules_that_guard_it() {
    let (as_expected, table) = simulate(&["--scenarios"]);
    assert!(as_expected, "{table}");
    assert!(table.contains("caught: "), "{table}");
}

#[test]
fn a_life_of_elections_fails_without_what_guards_the_mirror() {
    let (every, table) = simulate(&["--elections", "--break-rule", "each", "--seeds", "150"]);
    assert!(every, "{table}");
}

#[test]
fn facts_that_are_not_read_again_do_no_harm_where_a_pass_looks_before_its_step() {
    let name = "template-put-back-in-the-middle-of-a-roll";
    let (passes, text) = simulate(&["--scenario", name, "--break-rule", "FreshFacts"]);
    assert!(passes, "{text}");
}
