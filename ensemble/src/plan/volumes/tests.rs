//! Every way in which an ensemble can be started again from its claims, by brute force: sizes 1 to 7, every
//! step, every point at which the records may be interrupted, every set of lost claims, and every set of
//! members that may have acknowledged a write.

use bellwether_api::ZooKeeperEnsembleSpec;

use super::*;
use crate::safety::{holds_majority, majority};
use crate::validate::example;

/// The claims, and the lists under which a write may have been acknowledged that not all members have.
struct Moment {
    claims: Vec<ClaimObservation>,
    live: Vec<Voters>,
}

fn first(size: u16) -> Voters {
    Voters::first(size, 0)
}

fn claim(ordinal: u16, voters: Option<u16>, next: Option<u16>) -> ClaimObservation {
    ClaimObservation {
        name: format!("data-zk-{ordinal}"),
        ordinal,
        voters: voters.map(first),
        next: next.map(first),
        ..Default::default()
    }
}

/// Every moment of the step from `from` to `to` at which everything but the claims may be lost.
fn moments(from: u16, to: u16) -> Vec<Moment> {
    let mut all = Vec::new();
    for written in 0..=from {
        // The list of the step is being recorded; it is not live before all claims carry it.
        let next = |o| (o < written).then_some(to);
        let claims = (0..from).map(|o| claim(o, Some(from), next(o)));
        all.push(Moment {
            claims: claims.collect(),
            live: vec![first(from)],
        });
    }
    let larger = from.max(to);
    for recorded in [true, false] {
        // A newcomer's claim may not carry anything yet.
        let says = |o: u16| (recorded || o < from).then_some(from);
        let claims = (0..larger).map(|o| claim(o, says(o), says(o).map(|_| to)));
        all.push(Moment {
            claims: claims.collect(),
            live: vec![first(from), first(to)],
        });
    }
    for written in 0..=larger {
        // The step is finished: every member has what was acknowledged before.
        let claims = (0..larger).map(|o| match o < written {
            true => claim(o, Some(to), None),
            false => claim(o, Some(from), Some(to)),
        });
        all.push(Moment {
            claims: claims.collect(),
            live: vec![first(to)],
        });
    }
    all
}

fn mask(servers: &Voters) -> u16 {
    servers.iter().fold(0, |mask, id| mask | 1 << (id.0 - 1))
}

/// The smallest majorities of a list among these servers.
fn majorities(list: &Voters, among: u16) -> impl Iterator<Item = u16> {
    let (all, needed) = (mask(list) & among, majority(list));
    (0..=all).filter(move |q| q & !all == 0 && q.count_ones() as usize == needed)
}

/// Whether a leader could be elected under `start` that lacks a write acknowledged under one of `live`.
fn misses(start: &Voters, present: u16, live: &[Voters]) -> Option<(u16, u16)> {
    majorities(start, present).find_map(|voted| {
        let mut acknowledged = live.iter().flat_map(|list| majorities(list, u16::MAX));
        let missed = acknowledged.find(|acknowledged| voted & acknowledged == 0)?;
        Some((voted, missed))
    })
}

/// Calls `check` for every moment and every set of claims that are left.
fn every_loss(mut check: impl FnMut(&Moment, Vec<ClaimObservation>)) {
    for from in 1..=7u16 {
        for to in [from - 1, from + 1] {
            if to == 0 {
                continue;
            }
            for moment in moments(from, to) {
                for left in 0..1u16 << moment.claims.len() {
                    let claims = moment.claims.iter();
                    let claims = claims.filter(|c| left & 1 << c.ordinal != 0).cloned();
                    check(&moment, claims.collect());
                }
            }
        }
    }
}

fn present(claims: &[ClaimObservation]) -> Voters {
    claims.iter().map(|c| ServerId(c.ordinal + 1)).collect()
}

fn text(claims: &[ClaimObservation]) -> String {
    let text = |list: &Option<Voters>| list.as_ref().map_or("-".to_owned(), ToString::to_string);
    let one =
        |c: &ClaimObservation| format!("{}:{}>{}", c.ordinal + 1, text(&c.voters), text(&c.next));
    claims.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_start_never_misses_an_acknowledged_write_and_happens_wherever_that_is_certain() {
    let ensembles = [1, 3, 5, 7].map(|replicas| {
        example(ZooKeeperEnsembleSpec {
            replicas,
            ..Default::default()
        })
    });
    let (mut starts, mut losses) = (0, 0);
    every_loss(|moment, claims| {
        for ensemble in &ensembles {
            let observation = Observation {
                claims: claims.clone(),
                ..Default::default()
            };
            match recorded(Rules::ALL, ensemble, &observation) {
                Recorded::Start(start) => {
                    let missed = misses(&start, mask(&present(&claims)), &moment.live);
                    assert_eq!(missed, None, "{{{start}}} from {}", text(&claims));
                    starts += 1;
                }
                Recorded::Lost { .. } => {
                    let known = claims.iter().filter(|c| c.voters.is_some()).cloned();
                    let volumes = present(&known.collect::<Vec<_>>());
                    let said: BTreeSet<&Voters> = lists(&claims).collect();
                    let said: Vec<Voters> = said.into_iter().cloned().collect();
                    // A larger list than any on the claims would count on a former member's volume.
                    let largest = said.iter().map(Voters::len).max().unwrap_or(0);
                    let mut candidates = (1..=8).map(first).filter(|list| list.len() <= largest);
                    let could = candidates.find(|list| {
                        holds_majority(&volumes, list)
                            && misses(list, mask(&volumes), &said).is_none()
                    });
                    assert_eq!(could, None, "{}", text(&claims));
                    losses += 1;
                }
                Recorded::AtRunTime { .. } => panic!("no list has a version"),
                Recorded::Nothing => assert!(claims.iter().all(|c| c.voters.is_none())),
                Recorded::Disagree(why) => panic!("{why}: {}", text(&claims)),
            }
        }
    });
    assert!(starts > 10_000 && losses > 10_000, "{starts} {losses}");
}

/// A start is safe only because the lists of begun steps count too.
#[test]
fn with_the_finished_list_alone_writes_would_be_lost() {
    let ensemble = example(ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    });
    let rules = Rules::ALL.without(Rule::StartFromClaims);
    let mut missed = BTreeSet::new();
    every_loss(|moment, claims| {
        let left = mask(&present(&claims));
        let observation = Observation {
            claims,
            ..Default::default()
        };
        if let Recorded::Start(start) = recorded(rules, &ensemble, &observation)
            && misses(&start, left, &moment.live).is_some()
        {
            missed.insert((start, moment.live.clone()));
        }
    });
    assert!(
        missed.contains(&(first(1), vec![first(2), first(3)])),
        "{missed:?}"
    );
    assert!(
        missed.contains(&(first(3), vec![first(4), first(5)])),
        "{missed:?}"
    );
}
