//! When a claim is given another list.
#![allow(clippy::unwrap_used, reason = "a test may")]

use super::*;
use crate::desired::ObjectKind;
use crate::observation::ServerReport;
use crate::plan::example::{Running, away, claim, first, looks, volumes};
use bellwether_api::labels;

type Edit = fn(&mut Running);

/// The claims that are written, with the lists that they get.
fn records(running: &Running) -> Vec<String> {
    let objects = running.plan().objects.into_iter();
    let claims = objects.filter(|o| o.kind == ObjectKind::PersistentVolumeClaim);
    let text = |o: DesiredObject| {
        let notes = &o.body["metadata"]["annotations"];
        let next = notes[labels::NEXT_VOTERS].as_str().unwrap_or("-");
        format!(
            "{}: {} > {next}",
            o.name,
            notes[labels::VOTERS].as_str().unwrap()
        )
    };
    claims.map(text).collect()
}

#[test]
fn the_finished_list_is_recorded_on_every_claim_that_stays() {
    let mut running = Running::new(3, 0);
    assert!(records(&running).is_empty());
    running.observation.claims[0].voters = Some(first(2));
    running.observation.claims[1].next = Some(first(4));
    running
        .observation
        .claims
        .push(claim("zk", 3, Some(first(4))));
    running
        .observation
        .claims
        .push(claim("zk", 4, Some(first(4))));
    running.observation.claims[4].terminating = true;
    let expected = [
        "data-zk-0: 1,2,3 > -",
        "data-zk-1: 1,2,3 > -",
        "data-zk-3: 1,2,3 > -",
    ];
    assert_eq!(records(&running), expected);
    // While a member is away it is not known as finished, and is recorded beside what was.
    looks(running.voter(0), 3);
    let expected = ["data-zk-0: 1,2 > 1,2,3", "data-zk-3: 1,2,3,4 > 1,2,3"];
    assert_eq!(records(&running), expected);
}

#[test]
fn the_list_of_a_step_is_recorded_when_all_carry_the_finished_one() {
    let mut running = Running::new(3, 0);
    running.ensemble.size = 5;
    let expected = [
        "data-zk-0: 1,2,3 > 1,2,3,4",
        "data-zk-1: 1,2,3 > 1,2,3,4",
        "data-zk-2: 1,2,3 > 1,2,3,4",
    ];
    assert_eq!(records(&running), expected);
    running.observation.claims[0].voters = Some(first(2));
    assert_eq!(records(&running), ["data-zk-0: 1,2,3 > -"]);
}

#[test]
fn an_ensemble_that_leads_for_the_first_time_records_its_list_though_a_member_is_away() {
    let fresh = || {
        let mut running = Running::new(3, 0);
        for claim in &mut running.observation.claims {
            claim.voters = None;
        }
        away(running.voter(0), 3);
        running
    };
    assert_eq!(records(&fresh()).len(), 3);
    let not: [Edit; 2] = [
        |r| r.voter(2).server = ServerReport::Looking,
        |r| r.voter(0).revision.as_mut().unwrap().voters = first(2),
    ];
    for (number, edit) in not.into_iter().enumerate() {
        let mut running = fresh();
        edit(&mut running);
        assert!(records(&running).is_empty(), "{number}");
    }
}

#[test]
fn a_newcomers_claim_gets_what_the_others_carry_as_soon_as_it_has_data() {
    let newcomer = || {
        let mut running = Running::stepping(3, 4, &[3]);
        running.observation.claims.push(claim("zk", 3, None));
        running
    };
    let record = ["data-zk-3: 1,2,3 > 1,2,3,4"];
    assert_eq!(records(&newcomer()), record);
    let mut running = newcomer();
    looks(running.voter(3), 3);
    assert_eq!(records(&running), record, "it says that it has a database");
    running.voter(3).volumes = Some(volumes(false, None));
    assert!(records(&running).is_empty());
    running.voter(3).volumes = None;
    assert!(records(&running).is_empty());
    // Claims that disagree say nothing for it.
    let mut running = newcomer();
    running.observation.claims[0].voters = Some(first(2));
    running.observation.claims[0].next = Some(first(3));
    assert!(!records(&running).iter().any(|r| r.starts_with("data-zk-3")));
}

#[test]
fn a_live_list_that_a_claim_does_not_carry_is_added_where_it_is_the_only_other() {
    let mut running = Running::stepping(3, 4, &[3]);
    running.observation.claims[0].next = None;
    assert_eq!(records(&running), ["data-zk-0: 1,2,3 > 1,2,3,4"]);
    running.voter(1).revision.as_mut().unwrap().voters = first(2);
    running.voter(1).server = ServerReport::Looking;
    assert!(!records(&running).iter().any(|r| r.starts_with("data-zk-0")));
}

/// As `kubectl rollout undo` over several steps: no write can be acknowledged under a list that two of its own
/// majority do not run, once the template has returned.
#[test]
fn a_list_that_is_taken_back_is_recorded_only_where_a_majority_of_it_runs_it() {
    let undone = |runs: &[usize]| {
        let mut running = Running::new(5, 0);
        running.ensemble.size = 5;
        let foreign = running.template(3, None);
        for ordinal in 0..5 {
            away(running.voter(ordinal), 3);
        }
        for ordinal in runs {
            running.voter(*ordinal).revision = Some(foreign.clone());
        }
        records(&running)
    };
    assert!(undone(&[]).is_empty());
    assert!(undone(&[1]).is_empty());
    let recorded = undone(&[0, 1]);
    assert_eq!(recorded.len(), 5);
    assert_eq!(recorded[0], "data-zk-0: 1,2,3,4,5 > 1,2,3");
}
