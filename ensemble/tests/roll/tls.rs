//! TLS is switched on and off, between servers and for clients.

use bellwether_api::ensemble::{ClientsTls, ServersTls};

use super::story;
use super::world::World;

#[test]
fn servers_turn_to_tls_in_three_rolls_with_the_leader_last_in_each() {
    let mut world = World::plaintext(3);
    world.elect(1);
    world.tls(ServersTls::Required);
    insta::assert_snapshot!(story(&mut world));
    assert_eq!(world.tls_of_servers(), ["Required"; 3]);
}

#[test]
fn a_change_of_tls_is_turned_round_in_the_middle_of_a_roll() {
    let mut world = World::plaintext(3);
    world.tls(ServersTls::Required);
    while !world.tls_of_servers().contains(&"Preferred") {
        world.reconcile();
    }
    world.tls(ServersTls::Disabled);
    let _ = story(&mut world);
    assert_eq!(world.tls_of_servers(), ["Disabled"; 3]);
}

/// At no time do members run that have no way to connect in common.
#[test]
fn clients_turn_to_tls_in_two_rolls_with_the_leader_last_in_each() {
    let mut world = World::plaintext(3);
    world.elect(1);
    world.tls_of_clients(ClientsTls::Required);
    insta::assert_snapshot!(story(&mut world));
    assert_eq!(world.clients(), ["Required"; 3]);
    world.tls_of_clients(ClientsTls::Optional);
    let _ = story(&mut world);
    assert_eq!(world.clients(), ["Optional"; 3]);
}

/// What `kubectl rollout undo` puts back, the operator replaces before a member has it.
#[test]
fn a_template_with_plaintext_that_somebody_puts_back_reaches_no_member() {
    let mut world = World::plaintext(3);
    let old = world.template();
    world.tls(ServersTls::Required);
    let _ = story(&mut world);
    world.undo(old);
    let _ = story(&mut world);
    assert_eq!(world.tls_of_servers(), ["Required"; 3]);
}

/// A pod that was made from it in between reaches none of the others; it restarts.
#[test]
fn a_member_that_started_out_of_reach_of_the_others_restarts() {
    let mut world = World::plaintext(3);
    let old = world.template();
    world.tls(ServersTls::Required);
    let _ = story(&mut world);
    world.undo(old);
    world.delete_pod(0);
    let _ = story(&mut world);
    assert_eq!(world.tls_of_servers(), ["Required"; 3]);
}
