//! Since when servers do not answer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bellwether_ensemble::observation::PodObservation;
use jiff::{SignedDuration, Timestamp};

/// Pods that were not looked at for so long are gone.
const FORGET: SignedDuration = SignedDuration::from_mins(10);

/// The pods whose servers do not answer this process, by uid: since when, and when that was last so.
///
/// It is forgotten when the operator ends, and then silence counts anew: it makes the operator wait longer,
/// never act sooner.
#[derive(Default)]
pub(crate) struct Silence(Mutex<HashMap<String, (Timestamp, Timestamp)>>);

impl Silence {
    /// Since when the server of this pod has not answered; `None` if it does.
    pub(crate) fn since(&self, pod: &PodObservation, now: Timestamp) -> Option<Timestamp> {
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|_, (_, seen)| now.duration_since(*seen) < FORGET);
        if pod.answers() {
            silent.remove(&pod.uid);
            return None;
        }
        let (since, seen) = silent.entry(pod.uid.clone()).or_insert((now, now));
        *seen = now;
        Some(*since)
    }
}
