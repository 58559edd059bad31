//! Which list comes next, and how many pods there are.
#![allow(clippy::unwrap_used, reason = "a test may")]

use super::*;
use crate::client_tls::ClientTls;
use crate::observation::BootstrapPermission;
use crate::plan::example::{Running, ago, away, claim, first, looks, outdate, runs, serves};
use crate::plan::view::View;
use crate::server_tls::ServerTls;
use bellwether_api::ensemble::{ClientsTls, MemberRole, ServersTls};

type Edit = fn(&mut Running);

fn change(running: &Running) -> Change {
    let set = running.observation.stateful_set.as_ref().unwrap();
    let view = View::new(
        crate::rules::Rules::ALL,
        &running.ensemble,
        &running.observation,
        set,
    );
    next(&running.ensemble, &view.unwrap(), set)
}

/// So many members at rest, and another size wanted.
fn wanting(size: u16, wanted: u16) -> Running {
    let mut running = Running::new(size, 0);
    running.ensemble.size = wanted;
    running
}

/// The same, and all claims carry the list of the next step.
fn recorded(size: u16, wanted: u16) -> Running {
    let mut running = wanting(size, wanted);
    let next = if wanted > size { size + 1 } else { size - 1 };
    for claim in &mut running.observation.claims {
        claim.next = Some(first(next));
    }
    running
}

#[test]
fn a_step_is_one_member_and_begins_when_all_claims_carry_it() {
    let waits = change(&wanting(3, 7));
    assert_eq!((waits.voters, waits.replicas), (first(3), 3));
    assert_eq!(waits.begins, Some(first(4)));
    let begins = change(&recorded(3, 7));
    assert_eq!((begins.voters, begins.replicas), (first(4), 4));
    assert_eq!(
        (begins.begins, begins.initialize, begins.held),
        (None, None, None)
    );
    let mut last = recorded(3, 7);
    last.observation.claims[2].next = None;
    assert_eq!(change(&last).voters, first(3));
    let rests = change(&Running::new(3, 0));
    assert_eq!(
        (rests.voters, rests.replicas, rests.begins),
        (first(3), 3, None)
    );
}

#[test]
fn only_the_newcomer_beside_one_member_starts_with_a_vote() {
    assert_eq!(change(&recorded(1, 3)).initialize, Some(ServerId(2)));
    assert_eq!(change(&recorded(2, 3)).initialize, None);
    // While the claims only record the list, no newcomer may start with an empty disk.
    assert_eq!(change(&wanting(1, 3)).initialize, None);
}

#[test]
fn a_leaver_that_leads_restarts_first_where_another_can_be_elected() {
    let running = recorded(5, 3);
    let bounces = change(&running);
    assert_eq!(
        (bounces.bounce, &bounces.voters),
        (Some(ServerId(5)), &first(5))
    );
    let mut follows = running;
    serves(follows.voter(4), MemberRole::Follower, 1);
    serves(follows.voter(0), MemberRole::Leader, 1);
    let begins = change(&follows);
    assert_eq!(
        (begins.bounce, &begins.voters, begins.replicas),
        (None, &first(4), 5)
    );
    // Of two members the one that leaves would be elected again.
    let two = change(&recorded(2, 1));
    assert_eq!((two.bounce, two.voters), (None, first(1)));
}

#[test]
fn no_step_begins_before_the_last_one_is_finished() {
    let edits: [Edit; 6] = [
        |r| looks(r.voter(0), 3),
        |r| r.voter(0).terminating = true,
        |r| {
            r.observation.pods.remove(0);
        },
        |r| serves(r.voter(2), MemberRole::Follower, 1),
        |r| r.observation.claims[0].voters = Some(first(4)),
        |r| {
            r.observation.bootstrap = Some(BootstrapPermission {
                initialize: Some(first(3)),
                ..Default::default()
            });
        },
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        for wanted in [1, 5] {
            let mut running = recorded(3, wanted);
            edit(&mut running);
            let change = change(&running);
            assert_eq!(
                (change.voters, change.begins),
                (first(3), None),
                "{number} {wanted}"
            );
        }
    }
}

#[test]
fn only_a_leaver_that_has_been_gone_for_long_is_not_waited_for() {
    let gone = |ordinal: usize, since| {
        let mut running = recorded(5, 3);
        serves(running.voter(4), MemberRole::Follower, 1);
        serves(running.voter(3), MemberRole::Leader, 1);
        if ordinal == 3 {
            serves(running.voter(2), MemberRole::Leader, 1);
        }
        away(running.voter(ordinal), 10_000);
        running.voter(ordinal).unready_since = Some(ago(since));
        change(&running).voters
    };
    assert_eq!(gone(4, 60), first(4));
    assert_eq!(gone(4, 59), first(5));
    assert_eq!(gone(3, 60), first(5));
    // One that grows waits for all.
    let mut growing = recorded(3, 5);
    serves(growing.voter(1), MemberRole::Leader, 1);
    away(growing.voter(2), 10_000);
    growing.voter(2).unready_since = Some(ago(60));
    assert_eq!(change(&growing).voters, first(3));
}

#[test]
fn a_step_turns_round_where_the_target_lies_behind_it() {
    for (wanted, list) in [(3, 3), (1, 3), (4, 4), (5, 4)] {
        let mut running = Running::stepping(3, 4, &[3]);
        running.ensemble.size = wanted;
        let change = change(&running);
        assert_eq!(change.voters, first(list), "{wanted}");
        assert_eq!(change.initialize, None);
    }
}

#[test]
fn the_pod_of_a_leaver_stays_until_all_run_without_it_and_another_leads() {
    let left = |updated: &[usize], leader: usize| {
        let mut running = Running::new(4, 0);
        let new = running.template(3, None);
        running.ensemble.size = 3;
        for ordinal in 0..4 {
            match updated.contains(&ordinal) {
                true => runs(running.voter(ordinal), &new),
                false => outdate(running.voter(ordinal)),
            }
            let role = match ordinal == leader {
                true => MemberRole::Leader,
                false => MemberRole::Follower,
            };
            serves(running.voter(ordinal), role, 1);
        }
        change(&running).replicas
    };
    assert_eq!(left(&[0, 1, 2], 0), 3);
    assert_eq!(left(&[0, 1], 0), 4);
    assert_eq!(left(&[0, 1, 2], 3), 4);
}

/// Three members run their list; somebody wrote the list of five into the template. The pods in `updated` were
/// created from it.
fn foreign(updated: &[u16]) -> Running {
    let mut running = Running::new(3, 0);
    let new = running.template(5, None);
    for ordinal in 3..5 {
        let mut pod = running.voter(0).clone();
        pod.ordinal = ordinal;
        pod.name = format!("zk-{ordinal}");
        if updated.contains(&ordinal) {
            pod.revision = Some(new.clone());
            pod.server = crate::observation::ServerReport::Looking;
            running.observation.pods.push(pod);
        }
    }
    for ordinal in updated.iter().filter(|o| **o < 3) {
        runs(running.voter(usize::from(*ordinal)), &new);
    }
    running
}

#[test]
fn a_list_that_somebody_else_wrote_is_taken_back_while_it_cannot_commit() {
    for updated in [&[][..], &[3], &[3, 4], &[0, 3]] {
        let change = change(&foreign(updated));
        assert_eq!(
            (change.voters, change.held),
            (first(3), None),
            "{updated:?}"
        );
    }
    // From then on two leaders could commit, whatever the operator does.
    for updated in [&[0, 3, 4][..], &[0, 1]] {
        let change = change(&foreign(updated));
        assert_eq!(change.voters, first(5), "{updated:?}");
        let held = change.held.unwrap();
        assert!(held.ends_with("need not share a server"), "{held}");
        assert_eq!((change.bounce, change.replicas), (None, 5));
    }
}

#[test]
fn the_list_of_the_last_finished_step_is_nobody_elses() {
    // The claims say that the five were finished; members that run another list restart into it.
    let finished = || {
        let mut running = foreign(&[0, 3, 4]);
        running.observation.claims = (0..5).map(|o| claim("zk", o, Some(first(5)))).collect();
        running.ensemble.size = 5;
        for ordinal in 0..5 {
            serves(running.voter(ordinal), MemberRole::Follower, 1);
        }
        running
    };
    let mut running = finished();
    assert_eq!(change(&running).held, None);
    serves(running.voter(0), MemberRole::Leader, 1);
    assert_eq!(change(&running).held, None);
    // A leader with another list may have had writes acknowledged under it.
    let mut other = finished();
    serves(other.voter(1), MemberRole::Leader, 1);
    assert!(change(&other).held.is_some());
    let mut two = finished();
    serves(two.voter(0), MemberRole::Leader, 1);
    serves(two.voter(3), MemberRole::Leader, 1);
    assert!(change(&two).held.is_some());
}

/// Three members at rest with this state of TLS, and `asked` of them.
fn speaking(tls: ServerTls, asked: ServersTls) -> Running {
    let mut running = Running::new(3, 1);
    running.ensemble.tls.servers = Some(asked);
    running.set().template.as_mut().unwrap().tls.servers = tls;
    let observers = &mut running.observation.observers.pods;
    for pod in running.observation.pods.iter_mut().chain(observers) {
        pod.revision.as_mut().unwrap().tls.servers = tls;
    }
    running
}

fn speaks(pod: &mut crate::observation::PodObservation, tls: ServerTls) {
    pod.revision.as_mut().unwrap().tls.servers = tls;
}

#[test]
fn the_next_state_of_tls_waits_for_voters_and_for_observers_that_serve() {
    use ServerTls::{Accepted, Disabled, Preferred};
    let at_rest = || speaking(Accepted, ServersTls::Required);
    assert_eq!(change(&at_rest()).tls.servers, Preferred);
    let edits: [Edit; 3] = [
        |r| speaks(r.voter(0), Disabled),
        |r| speaks(r.observer(0), Disabled),
        |r| looks(r.voter(0), 90),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut running = at_rest();
        edit(&mut running);
        assert_eq!(change(&running).tls.servers, Accepted, "{number}");
    }
    // The change does not wait for an observer that does not serve.
    let mut running = at_rest();
    speaks(running.observer(0), Disabled);
    looks(running.observer(0), 90);
    assert_eq!(change(&running).tls.servers, Preferred);
}

#[test]
fn a_size_change_and_one_of_tls_never_overlap() {
    // The size comes first, when both are asked for at once.
    let mut both = speaking(ServerTls::Disabled, ServersTls::Required);
    both.ensemble.size = 5;
    for claim in &mut both.observation.claims {
        claim.next = Some(first(4));
    }
    let begins = change(&both);
    assert_eq!(
        (begins.voters, begins.tls.servers),
        (first(4), ServerTls::Disabled)
    );
    // In the middle of a roll the size waits for its end.
    speaks(both.voter(0), ServerTls::Accepted);
    both.set().template.as_mut().unwrap().tls.servers = ServerTls::Accepted;
    let waits = change(&both);
    assert_eq!(
        (waits.voters, waits.tls.servers),
        (first(3), ServerTls::Accepted)
    );
    assert_eq!(waits.begins, None);
}

/// The member that is away may be why the ensemble shrinks.
#[test]
fn a_shrinking_ensemble_does_not_wait_for_the_tls_of_a_last_member_that_is_away() {
    let mut running = recorded(5, 3);
    running.ensemble.tls.servers = Some(ServersTls::Required);
    running.set().template.as_mut().unwrap().tls.servers = ServerTls::Accepted;
    for ordinal in 0..4 {
        speaks(running.voter(ordinal), ServerTls::Accepted);
    }
    serves(running.voter(4), MemberRole::Follower, 1);
    serves(running.voter(0), MemberRole::Leader, 1);
    assert_eq!(change(&running).voters, first(5), "it waits for the roll");
    away(running.voter(4), 10_000);
    running.voter(4).unready_since = Some(ago(60));
    assert_eq!(change(&running).voters, first(4));
}

#[test]
fn a_single_member_changes_tls_in_one_restart() {
    let mut running = Running::new(1, 0);
    running.ensemble.size = 1;
    running.ensemble.tls.servers = Some(ServersTls::Required);
    assert_eq!(change(&running).tls.servers, ServerTls::Required);
    // Its pod serves on until it is gone.
    running.set().template.as_mut().unwrap().tls.servers = ServerTls::Required;
    running.observation.pods[0].terminating = true;
    assert_eq!(change(&running).tls.servers, ServerTls::Required);
    // A member that is left of three is no single server.
    let mut left = speaking(ServerTls::Disabled, ServersTls::Required);
    left.observation.pods.truncate(1);
    left.observation.observers.pods.clear();
    assert_eq!(change(&left).tls.servers, ServerTls::Disabled);
}

/// Both are part of the same restart of each member. Plaintext of clients ends in a roll of its own.
#[test]
fn tls_of_servers_and_of_clients_change_in_the_same_rolls() {
    let mut running = speaking(ServerTls::Disabled, ServersTls::Required);
    running.ensemble.tls.clients = Some(ClientsTls::Required);
    let first = change(&running).tls;
    let expected = Encryption {
        servers: ServerTls::Accepted,
        clients: ClientTls::Optional,
    };
    assert_eq!(first, expected);
}

#[test]
fn an_ensemble_of_an_earlier_version_keeps_plaintext() {
    assert_eq!(change(&Running::new(3, 0)).tls, Encryption::NONE);
}
