//! The Lease that the leader appears to hold.

use bellwether_api::election::LeaseProjection;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{Step, Subject, say_token};

/// The name of the Lease of an election of this name.
pub fn lease_name<'a>(election: &'a str, projection: &'a LeaseProjection) -> &'a str {
    projection.name.as_deref().unwrap_or(election)
}

/// What has to be done about the Lease that exists under the name of the election's.
///
/// While the mirror is blind it is left alone, so that it expires. The Lease runs from `read`, when the
/// leader was last read, so that it never shows a leader for longer than its duration after that read. It is
/// renewed by a read at least a quarter of its duration later, and with every other change.
pub fn lease(
    subject: &Subject,
    projection: &LeaseProjection,
    live: Option<&Lease>,
    read: Timestamp,
) -> Step<Lease> {
    if live.is_some_and(|live| !subject.owns(&live.metadata)) {
        return Step::Taken;
    }
    if subject.is_stale() {
        return Step::Nothing;
    }
    let old = live.and_then(|live| live.spec.as_ref());
    let spec = LeaseSpec {
        lease_duration_seconds: Some(projection.lease_duration_seconds),
        lease_transitions: Some(subject.status.leader_transitions),
        renew_time: old.and_then(|old| old.renew_time.clone()),
        ..match subject.leader() {
            Some(leader) => LeaseSpec {
                holder_identity: Some(leader.identity.clone()),
                acquire_time: leader.acquire_time.clone(),
                ..LeaseSpec::default()
            },
            // An empty holder means that the Lease has no holder.
            None => LeaseSpec {
                holder_identity: Some(String::new()),
                ..LeaseSpec::default()
            },
        }
    };
    let name = lease_name(subject.name(), projection).to_owned();
    let mut metadata = subject.meta(name, live.map(|live| &live.metadata));
    say_token(&mut metadata, subject.token());
    let mut wanted = Lease {
        metadata,
        spec: Some(spec),
    };
    let due = subject.leader().is_some()
        && live.is_none_or(|live| renewal(live, projection).is_none_or(|at| at <= read));
    let renewed = wanted
        .spec
        .as_ref()
        .and_then(|spec| spec.renew_time.as_ref());
    // A clock that was ahead must not keep the Lease from expiring.
    let ahead = renewed.is_some_and(|renewed| renewed.0 > read);
    if (due || ahead || live != Some(&wanted))
        && let Some(spec) = &mut wanted.spec
    {
        spec.renew_time = Some(MicroTime(read));
    }
    Step::towards(live, wanted)
}

fn renewal(live: &Lease, projection: &LeaseProjection) -> Option<Timestamp> {
    let renewed = live.spec.as_ref()?.renew_time.as_ref()?;
    let period = SignedDuration::from_secs(projection.lease_duration_seconds.into()) / 4;
    renewed.0.checked_add(period).ok()
}
