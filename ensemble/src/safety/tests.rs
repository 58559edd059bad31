//! Each safety question, with the answers that matter.

use proptest::prelude::*;

use super::*;

fn voters(ids: &[u16]) -> Voters {
    ids.iter().map(|i| ServerId(*i)).collect()
}

#[test]
fn one_more_or_less_is_safe_and_two_more_is_not_for_odd_sizes() {
    for n in 1..13u16 {
        let a = Voters::first(n, 0);
        assert!(
            every_majority_meets(&a, &Voters::first(n + 1, 0)),
            "{n} -> {}",
            n + 1
        );
        let two = every_majority_meets(&a, &Voters::first(n + 2, 0));
        assert_eq!(two, n % 2 == 0, "{n} -> {}", n + 2);
    }
    assert!(!every_majority_meets(
        &voters(&[1, 2, 3]),
        &voters(&[1, 2, 4])
    ));
}

#[test]
fn a_third_voter_set_is_refused() {
    let (three, four, five) = (
        Voters::first(3, 0),
        Voters::first(4, 0),
        Voters::first(5, 0),
    );
    assert_eq!(may_become_live([&three, &four], &three), Ok(()));
    assert_eq!(may_become_live([&four, &four], &five), Ok(()));
    assert!(matches!(
        may_become_live([&three], &five),
        Err(UnsafeVoters::Disjoint(..))
    ));
    assert!(matches!(
        may_become_live(
            [&Voters::first(4, 0), &Voters::first(5, 0)],
            &Voters::first(6, 0)
        ),
        Err(UnsafeVoters::ThirdSet(..))
    ));
}

#[test]
fn a_restart_needs_the_majority_of_every_live_list() {
    let (three, four) = (Voters::first(3, 0), Voters::first(4, 0));
    let all = Voters::first(4, 0);
    assert_eq!(
        may_restart(ServerId(1), &all, &all, &all, [&three, &four]),
        Ok(())
    );
    // Member 4 does not serve yet: 2 and 3 are no majority of four.
    let serving = Voters::first(3, 0);
    assert!(may_restart(ServerId(1), &serving, &all, &all, [&three, &four]).is_err());
    assert_eq!(
        may_restart(ServerId(1), &serving, &all, &all, [&three]),
        Ok(())
    );
    // Member 4 leaves and will not serve again: without it no restart keeps three of four.
    assert_eq!(
        may_restart(ServerId(1), &serving, &serving, &three, [&three, &four]),
        Ok(())
    );
}

#[test]
fn a_list_of_two_restarts_when_the_other_answers() {
    let (one, two) = (Voters::first(1, 0), Voters::first(2, 0));
    let serving = Voters::first(1, 0);
    assert_eq!(
        may_restart(ServerId(1), &serving, &two, &two, [&one, &two]),
        Ok(())
    );
    assert!(may_restart(ServerId(1), &serving, &one, &two, [&one, &two]).is_err());
    assert_eq!(may_restart(ServerId(1), &one, &one, &one, [&one]), Ok(()));
}

#[test]
fn a_newcomer_joins_when_a_majority_of_its_own_list_serves_without_it() {
    let serving = Voters::first(3, 0);
    assert!(can_join(
        ServerId(4),
        &Voters::first(4, 0),
        &serving,
        Some(ServerId(3))
    ));
    let lone = Voters::first(1, 0);
    assert!(!can_join(
        ServerId(2),
        &Voters::first(2, 0),
        &lone,
        Some(ServerId(1))
    ));
    assert!(!can_join(ServerId(4), &Voters::first(4, 0), &serving, None));
    // The leader is a leaver that the new list does not name.
    let four = Voters::first(4, 0);
    assert!(!can_join(
        ServerId(1),
        &Voters::first(3, 0),
        &four,
        Some(ServerId(4))
    ));
}

#[test]
fn a_volume_is_deleted_only_when_nothing_names_its_member_and_all_others_serve() {
    let (three, four) = (Voters::first(3, 0), Voters::first(4, 0));
    let (only_three, both) = ([&three].into(), [&three, &four].into());
    let at_rest = Departure {
        live: &only_three,
        recorded: &only_three,
        wanted: &three,
        template: &three,
        serving: &three,
        finished: true,
    };
    let may = |in_use, ensemble| may_delete_volume(ServerId(4), in_use, &ensemble).is_ok();
    assert!(may(false, at_rest));
    let two = Voters::first(2, 0);
    for (in_use, ensemble) in [
        (true, at_rest),
        (
            false,
            Departure {
                live: &both,
                ..at_rest
            },
        ),
        (
            false,
            Departure {
                recorded: &both,
                ..at_rest
            },
        ),
        (
            false,
            Departure {
                wanted: &four,
                ..at_rest
            },
        ),
        (
            false,
            Departure {
                wanted: &two,
                ..at_rest
            },
        ),
        (
            false,
            Departure {
                template: &four,
                ..at_rest
            },
        ),
        (
            false,
            Departure {
                serving: &two,
                ..at_rest
            },
        ),
        (
            false,
            Departure {
                finished: false,
                ..at_rest
            },
        ),
    ] {
        assert!(!may(in_use, ensemble), "{in_use} {ensemble:?}");
    }
    for id in 1..=3 {
        assert!(may_delete_volume(ServerId(id), false, &at_rest).is_err());
    }
}

proptest! {
    /// The formula agrees with the meaning: no majority of one set misses one of the other.
    #[test]
    fn the_formula_is_the_meaning(a in 1u32..128, b in 1u32..128) {
        let set = |mask: u32| -> Voters {
            (0..7).filter(|i| mask & (1 << i) != 0).map(|i| ServerId(i + 1)).collect()
        };
        let (a_set, b_set) = (set(a), set(b));
        let subsets = |mask: u32| (1..128u32).filter(move |s| s & !mask == 0);
        let disjoint = subsets(a)
            .filter(|s| holds_majority(&set(*s), &a_set))
            .any(|s| subsets(b).any(|t| s & t == 0 && holds_majority(&set(t), &b_set)));
        prop_assert_eq!(every_majority_meets(&a_set, &b_set), !disjoint);
    }
}
