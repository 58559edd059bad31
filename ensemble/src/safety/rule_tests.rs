//! The rules, each as a table of what it allows and what it does not.

use super::*;

fn voters(ids: &[u16]) -> Voters {
    ids.iter().map(|id| ServerId(*id)).collect()
}

fn first(size: u16) -> Voters {
    Voters::first(size, 0)
}

#[test]
fn a_majority_is_more_than_half_and_only_voters_count() {
    assert_eq!(
        [1, 2, 3, 4, 5].map(|n| majority(&first(n))),
        [1, 2, 2, 3, 3]
    );
    let of_three = |servers: &[u16]| holds_majority(&voters(servers), &first(3));
    assert!(of_three(&[1, 3]) && of_three(&[1, 2, 3]));
    assert!(!of_three(&[1]) && !of_three(&[1, 4, 5]) && !of_three(&[]));
    assert!(
        !holds_majority(&first(3), &first(0)),
        "of nobody there is none"
    );
}

#[test]
fn no_list_lives_with_an_empty_one_or_as_the_third() {
    assert!(!every_majority_meets(&first(0), &first(1)));
    assert!(!every_majority_meets(&first(1), &first(0)));
    let live = |sizes: &[u16]| {
        let lists: Vec<Voters> = sizes.iter().map(|n| first(*n)).collect();
        may_live_together(&lists)
    };
    for sizes in [&[3][..], &[3, 3], &[3, 4], &[4, 3, 4]] {
        assert!(live(sizes), "{sizes:?}");
    }
    for sizes in [&[3, 5][..], &[3, 4, 5], &[4, 5, 6], &[0]] {
        assert!(!live(sizes), "{sizes:?}");
    }
}

#[test]
fn a_list_starts_again_with_a_majority_of_its_volumes_that_meets_every_acknowledgement() {
    let (three, four, five) = (first(3), first(4), first(5));
    assert!(may_start(&three, &voters(&[1, 3]), [&three, &four]));
    assert!(!may_start(&three, &voters(&[1]), [&three]));
    assert!(!may_start(&three, &three, [&three, &five]));
}

#[test]
fn a_third_list_waits_and_says_for_which() {
    let (three, four, five, six) = (first(3), first(4), first(5), first(6));
    let says = |live: &[&Voters], new: &Voters| {
        may_become_live(live.iter().copied(), new)
            .err()
            .map(|e| e.to_string())
    };
    let third = "the server lists {1,2,3,4} and {1,2,3,4,5} are live already; a third one, 1,2,3,4,5,6, must wait";
    assert_eq!(says(&[&five, &four], &six).as_deref(), Some(third));
    let apart = "a majority of 1,2,3 and a majority of 1,2,3,4,5 need not share a server";
    assert_eq!(says(&[&three], &five).as_deref(), Some(apart));
    assert_eq!(says(&[&three, &four], &four), None);
    assert_eq!(says(&[], &four), None);
}

#[test]
fn a_member_of_a_quorum_is_not_idle_and_a_voter_is_no_observer() {
    let serving = voters(&[1, 2]);
    assert_eq!(may_restart_idle(ServerId(3), &serving), Ok(()));
    assert_eq!(
        may_restart_idle(ServerId(1), &serving),
        Err(UnsafeRestart::Serves(ServerId(1)))
    );
    let (three, four) = (first(3), first(4));
    assert_eq!(may_restart_observer(ServerId(5), [&three, &four]), Ok(()));
    let votes = Err(UnsafeRestart::Votes(ServerId(4)));
    assert_eq!(may_restart_observer(ServerId(4), [&three, &four]), votes);
}

#[test]
fn a_restart_that_is_refused_says_which_majority_would_be_lost() {
    let (three, four) = (first(3), first(4));
    let refused = may_restart(ServerId(1), &three, &four, &four, [&three, &four]);
    let expected = UnsafeRestart::NoMajority {
        serving: Voters::from_iter([ServerId(2), ServerId(3)]),
        voters: four,
        needed: 3,
    };
    assert_eq!(refused, Err(expected));
}

#[test]
fn a_leader_steps_down_only_if_it_leaves_and_others_can_lead() {
    let (three, two) = (first(3), first(2));
    assert!(may_step_down(ServerId(3), &three, &two));
    assert!(!may_step_down(ServerId(2), &three, &two), "it stays");
    assert!(
        !may_step_down(ServerId(2), &two, &first(1)),
        "it would be elected again"
    );
    assert_eq!(
        [1, 2, 3].map(|n| never_joins(ServerId(1), &first(n))),
        [true, true, false]
    );
}

#[test]
fn a_roll_goes_forward_when_the_next_member_makes_a_majority_with_those_that_are_stuck() {
    let four = first(4);
    let next = ServerId(2);
    assert!(may_roll_forward(next, &voters(&[1, 4]), &four));
    assert!(!may_roll_forward(next, &voters(&[4]), &four));
    assert!(!may_roll_forward(next, &voters(&[2, 4]), &four));
    assert!(
        !may_roll_forward(ServerId(1), &voters(&[]), &first(1)),
        "no member is stuck"
    );
}

#[test]
fn members_elect_a_leader_when_a_majority_of_one_list_looks() {
    let (three, four) = (first(3), first(4));
    let can = |looking: &[(u16, &Voters)]| {
        let all: Vec<_> = looking
            .iter()
            .map(|(id, list)| (ServerId(*id), *list))
            .collect();
        can_elect(all)
    };
    assert!(can(&[(1, &three), (3, &three)]));
    assert!(!can(&[(1, &three)]));
    assert!(!can(&[(1, &three), (2, &four), (4, &four)]));
    assert!(!can(&[(1, &three), (4, &three)]), "4 does not vote");
}

#[test]
fn an_empty_disk_starts_only_while_no_member_serves_or_is_ready() {
    let (none, one) = (first(0), first(1));
    assert!(may_start_empty(&none, &none));
    assert!(!may_start_empty(&one, &none));
    assert!(!may_start_empty(&none, &one));
}
