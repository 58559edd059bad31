//! For how long this process has seen a pod not ready, and its server not answer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bellwether_ensemble::observation::PodObservation;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Pods that were not looked at for so long do not exist any more.
const FORGET: Duration = Duration::from_mins(10);

/// What this process has seen of pods, by uid.
///
/// The times in a pod's status are those of the kubelet's clock and the API server's, which may differ from
/// the operator's by minutes. A wait that compared them would be too short, or none at all. So durations are
/// counted from when this process first saw the state, as those of the lease are. A restart of the operator
/// resets them: it then waits longer, and never acts too early.
#[derive(Default)]
pub(crate) struct Durations(Mutex<HashMap<String, Seen>>);

/// What was seen of one pod.
struct Seen {
    last: Instant,
    silent: Option<Instant>,
    /// Since when by this process's clock, and by the kubelet's.
    unready: Option<(Instant, Timestamp)>,
}

impl Durations {
    /// Sets since when the pod is not ready, and since when its server does not answer, both by the
    /// operator's clock, which shows `now`.
    pub(crate) fn complete(&self, pod: &mut PodObservation, now: Timestamp) {
        let at = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&pod.uid) {
            all.retain(|_, seen| at.duration_since(seen.last) < FORGET);
        }
        let seen = all.entry(pod.uid.clone()).or_insert(Seen {
            last: at,
            silent: None,
            unready: None,
        });
        seen.last = at;
        seen.silent = (!pod.answers()).then(|| seen.silent.unwrap_or(at));
        seen.unready = pod.unready_since.map(|kubelet| match seen.unready {
            Some((since, same)) if same == kubelet => (since, kubelet),
            _ => (at, kubelet),
        });
        let by_own_clock = |since: Instant| {
            let long = SignedDuration::try_from(at.duration_since(since)).ok();
            long.and_then(|long| now.checked_sub(long).ok())
                .unwrap_or(now)
        };
        pod.silent_since = seen.silent.map(by_own_clock);
        pod.unready_since = seen.unready.map(|(since, _)| by_own_clock(since));
    }
}

#[cfg(test)]
mod tests {
    use bellwether_ensemble::observation::{PodState, ServerReport};
    use tokio::time::advance;

    use super::*;

    fn pod(kubelet: Option<Timestamp>) -> PodObservation {
        PodObservation {
            name: "zk-0".to_owned(),
            ordinal: 0,
            uid: "1".to_owned(),
            resource_version: "1".to_owned(),
            revision: None,
            controller_revision: None,
            template_hash: None,
            terminating: false,
            controller: None,
            state: PodState::Running,
            failing_container: None,
            ready: kubelet.is_none(),
            unready_since: kubelet,
            silent_since: None,
            created: Timestamp::UNIX_EPOCH,
            node: None,
            server: ServerReport::Looking,
            volumes: None,
            presents: None,
            credentials: Default::default(),
            client_authority: None,
        }
    }

    /// How many seconds ago this became so, by the operator's clock.
    fn ago(since: Option<Timestamp>, now: Timestamp) -> Option<i64> {
        since.map(|since| now.duration_since(since).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_unready_for_as_long_as_this_process_saw_it_so_whatever_the_clocks_show() {
        for ahead in [-120, 0, 120] {
            let durations = Durations::default();
            let now = Timestamp::from_second(1_000_000).unwrap();
            let kubelet = now - SignedDuration::from_secs(ahead);
            let unready = |kubelet, now| {
                let mut pod = pod(Some(kubelet));
                durations.complete(&mut pod, now);
                ago(pod.unready_since, now)
            };
            assert_eq!(unready(kubelet, now), Some(0));
            advance(Duration::from_secs(30)).await;
            // The operator's own clock may be set meanwhile.
            let later = now + SignedDuration::from_secs(500);
            assert_eq!(unready(kubelet, later), Some(30));
            // It was ready in between.
            let again = kubelet + SignedDuration::from_secs(20);
            assert_eq!(unready(again, later), Some(0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_first_look_without_an_answer() {
        let durations = Durations::default();
        let now = Timestamp::from_second(1_000_000).unwrap();
        let silent = |server| {
            let mut pod = PodObservation {
                server,
                ..pod(None)
            };
            durations.complete(&mut pod, now);
            ago(pod.silent_since, now)
        };
        let unreachable = || ServerReport::Unreachable("timed out".to_owned());
        assert_eq!(silent(unreachable()), Some(0));
        advance(Duration::from_secs(40)).await;
        assert_eq!(silent(unreachable()), Some(40));
        assert_eq!(silent(ServerReport::Looking), None);
        assert_eq!(silent(unreachable()), Some(0));
    }
}
