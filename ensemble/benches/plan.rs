//! One decision in the middle of a roll of seven members: three have restarted, three followers and
//! the leader have not. The operator makes it every time something moves.

#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::unwrap_used, reason = "a benchmark may")]

use bellwether_ensemble::encryption::Encryption;
use std::hint::black_box;

use bellwether_api::ensemble::MemberRole;
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
use bellwether_ensemble::desired::claims::ClaimSizes;
use bellwether_ensemble::desired::{config, stateful_set};
use bellwether_ensemble::observation::{
    BootstrapPermission, PodObservation, PodState, ServerReport, StatefulSetObservation,
};
use bellwether_ensemble::validate::{Context, ValidEnsemble};
use bellwether_ensemble::{Observation, Voters, plan, validate};
use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;

/// The allocator of the operator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIZE: u16 = 7;
const RESTARTED: u16 = 3;

fn ensemble() -> ValidEnsemble {
    let spec = ZooKeeperEnsembleSpec {
        replicas: i32::from(SIZE),
        ..Default::default()
    };
    let mut ensemble = ZooKeeperEnsemble::new("main", spec);
    ensemble.metadata.namespace = Some("default".to_owned());
    let context = Context {
        member_image: "bellwether:1".to_owned(),
        version: "1".to_owned(),
        ..Context::default()
    };
    validate(&ensemble, &context).unwrap()
}

fn observation(ensemble: &ValidEnsemble) -> Observation {
    let voters = Voters::first(SIZE, 0);
    let revision = config::render(ensemble, &voters, None, Encryption::NONE).revision;
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let pod = |ordinal: u16| PodObservation {
        name: format!("main-{ordinal}"),
        ordinal,
        uid: format!("uid-{ordinal}"),
        resource_version: ordinal.to_string(),
        revision: Some(revision.clone()),
        controller_revision: Some(if ordinal < RESTARTED { "new" } else { "old" }.to_owned()),
        template_hash: None,
        controller: None,
        silent_since: None,
        terminating: false,
        failing_container: None,
        state: PodState::Running,
        ready: true,
        unready_since: None,
        created: now,
        node: Some(format!("node-{ordinal}")),
        volumes: None,
        presents: None,
        credentials: Default::default(),
        client_authority: None,
        server: ServerReport::Serving {
            role: if ordinal == SIZE - 1 {
                MemberRole::Leader
            } else {
                MemberRole::Follower
            },
            zxid: (4 << 32) + 1000,
            voters: voters.clone(),
            observers: Default::default(),
            version: 0,
        },
    };
    Observation {
        now,
        stateful_set: Some(StatefulSetObservation {
            replicas: SIZE,
            template: Some(revision.clone()),
            template_hash: None,
            update_revision: Some("new".to_owned()),
            inputs_hash: Some(stateful_set::inputs_hash(
                ensemble,
                &revision,
                ClaimSizes::wanted(ensemble),
            )),
            claim_size: None,
            log_claim_size: None,
            restart: None,
            rendered_by: Some("1".to_owned()),
            edited: None,
            left_over: None,
            client_port_secret: None,
            terminating: false,
        }),
        pods: (0..SIZE).map(pod).collect(),
        bootstrap: Some(BootstrapPermission::default()),
        revisions: [revision.name.clone(), "main-config-0123456789".to_owned()].into(),
        ..Default::default()
    }
}

fn in_the_middle_of_a_roll(criterion: &mut Criterion) {
    let ensemble = ensemble();
    let observation = observation(&ensemble);
    assert!(
        plan(&ensemble, &observation).step.is_some(),
        "the next follower restarts"
    );
    criterion.bench_function("plan, 7 members in the middle of a roll", |bencher| {
        bencher.iter(|| plan(black_box(&ensemble), black_box(&observation)));
    });
}

criterion_group!(benches, in_the_middle_of_a_roll);
criterion_main!(benches);
