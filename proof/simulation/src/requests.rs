//! What becomes of the operators' requests to the API server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::api_server::{After, Answer, Before, Call, Faults, Then};

/// What goes wrong now.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Operators whose process is dead: what they still send arrives nowhere.
    pub dead: BTreeSet<String>,
    /// Whether requests fail now and then.
    pub failing: bool,
    /// An operator dies after this many more writes.
    pub dies_after: Option<u16>,
    /// Operators that died so, and are not cleared away yet.
    pub died: BTreeSet<String>,
    /// How many requests of operators read.
    pub reads: usize,
}

/// The requests' way through the trouble.
#[derive(Debug)]
pub struct Requests {
    trouble: Arc<Mutex<Trouble>>,
    rng: fastrand::Rng,
}

impl Requests {
    /// Requests go wrong as `trouble` says from time to time.
    pub fn new(seed: u64, trouble: Arc<Mutex<Trouble>>) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { trouble, rng }
    }
}

impl Faults for Requests {
    fn before(&mut self, call: &Call) -> Before {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = Duration::from_micros(self.rng.u64(300..4000));
        if call.action.is_read() {
            trouble.reads += 1;
        }
        let hang = trouble.dead.contains(&*call.client) || trouble.died.contains(&*call.client);
        let then = match self.rng.u8(0..60) {
            _ if hang => Then::Hang,
            0 if trouble.failing => Then::TooManyRequests(1),
            1..=2 if trouble.failing => Then::InternalError,
            3 if trouble.failing => Then::Unavailable,
            4..=5 if trouble.failing => Then::Refuse,
            _ => Then::CarryOut,
        };
        Before { delay, then }
    }

    fn after(&mut self, call: &Call, code: u16) -> After {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = Duration::from_micros(self.rng.u64(100..1000));
        let mut answer = Answer::Deliver;
        if !call.action.is_read() && code < 300 && !call.namespace.is_empty() {
            // The lease and events are written all the time, and nothing depends on the next one.
            let counts = !["leases", "events"].contains(&call.kind.resource().plural);
            match trouble.dies_after.filter(|_| counts) {
                Some(0) => {
                    trouble.dies_after = None;
                    trouble.died.insert(call.client.to_string());
                    answer = Answer::Lose;
                }
                Some(more) => trouble.dies_after = Some(more - 1),
                None if trouble.failing && self.rng.u8(0..20) == 0 => answer = Answer::Break,
                None => {}
            }
        }
        After { delay, answer }
    }
}
