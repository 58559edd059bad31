//! What becomes of the operators' requests to the API server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_api_server::{Action, After, Answer, Before, Call, Faults, Kind, Stops, Then};
use tokio::time::Instant;

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
    /// An operator's process is stopped after this many more requests, for this long.
    pub stops_after: Option<(u16, Duration)>,
    /// Operators that were stopped so, and for how long.
    pub stopped: Vec<(String, Duration)>,
    /// How many requests of operators read.
    pub reads: usize,
    /// The operator that wrote the lease last.
    pub holder: Option<String>,
    /// What operators sent although another one had taken the lease.
    pub strays: Vec<String>,
    /// What is held up.
    pub held: Vec<Held>,
    /// Until when the last of it is on its way.
    pub held_until: Option<Instant>,
}

/// Requests that are held up on their way, or their answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The resource, in the plural.
    pub resource: &'static str,
    /// What is asked for; anything if it is not said.
    pub action: Option<Action>,
    /// Whether the answer is held up, and not the request.
    pub answer: bool,
    /// For how long.
    pub time: Duration,
    /// How many more of them.
    pub count: u16,
}

impl Trouble {
    /// How long this request, or its answer, is held up.
    fn hold_up(&mut self, call: &Call, answer: bool) -> Option<Duration> {
        let same = |held: &&mut Held| {
            held.count > 0
                && held.answer == answer
                && held.resource == call.kind.resource().plural
                && held.action.is_none_or(|action| action == call.action)
        };
        let held = self.held.iter_mut().find(same)?;
        held.count -= 1;
        let time = held.time;
        self.held_until = self.held_until.max(Some(Instant::now() + time));
        Some(time)
    }

    /// Whether requests are held up now, or will be.
    pub fn holds_up(&self) -> bool {
        let until = self.held_until;
        self.held.iter().any(|held| held.count > 0) || until.is_some_and(|u| Instant::now() < u)
    }
}

/// The requests' way through the trouble.
#[derive(Debug)]
pub struct Requests {
    trouble: Arc<Mutex<Trouble>>,
    stops: Stops,
    rng: fastrand::Rng,
}

impl Requests {
    /// Requests go wrong as `trouble` says from time to time, and their clients stop.
    pub fn new(seed: u64, trouble: Arc<Mutex<Trouble>>, stops: Stops) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            trouble,
            stops,
            rng,
        }
    }
}

impl Trouble {
    /// A client makes a write: is that for it to do? Only another operator's write of the lease takes it away,
    /// and the operator has to know by its own clock that this may have happened.
    fn judge(&mut self, call: &Call) {
        let taken = self.holder.as_deref().filter(|h| **h != *call.client);
        if let (Some(holder), false) = (taken, call.kind == Kind::LEASE) {
            self.strays.push(format!(
                "{} sent {:?} {} {} although {holder} held the lease",
                call.client,
                call.action,
                call.kind.resource().name,
                call.name
            ));
        }
    }
}

impl Faults for Requests {
    fn made(&mut self, call: &Call) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if !call.action.is_read() {
            trouble.judge(call);
        }
    }

    fn before(&mut self, call: &Call) -> Before {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = Duration::from_micros(self.rng.u64(300..4000));
        let delay = trouble.hold_up(call, false).unwrap_or(delay);
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
        let delay = trouble.hold_up(call, true).unwrap_or(delay);
        let mut answer = Answer::Deliver;
        if call.kind == Kind::LEASE && !call.action.is_read() && code < 300 {
            trouble.holder = Some(call.client.to_string());
        }
        // The lease and events are written all the time, and nothing depends on the next one.
        let counts = !["leases", "events"].contains(&call.kind.resource().plural);
        match trouble.stops_after.filter(|_| counts) {
            Some((0, time)) => {
                trouble.stops_after = None;
                trouble.stopped.push((call.client.to_string(), time));
                self.stops.stop(&call.client);
            }
            Some((more, time)) => trouble.stops_after = Some((more - 1, time)),
            None => {}
        }
        if !call.action.is_read() && code < 300 && !call.namespace.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(client: &str, action: Action, kind: Kind) -> Call {
        Call {
            client: Arc::from(client),
            front_end: 0,
            action,
            kind,
            namespace: "default".to_owned(),
            name: "zk".to_owned(),
            subresource: "",
            sent: Instant::now(),
        }
    }

    #[test]
    fn only_the_operator_that_wrote_the_lease_last_may_write() {
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        let mut requests = Requests::new(1, trouble.clone(), Stops::default());
        let strays = || trouble.lock().unwrap().strays.len();
        let lease = |client| call(client, Action::Update, Kind::LEASE);
        let write = |client| call(client, Action::Apply, Kind::STATEFUL_SET);
        requests.after(&lease("one"), 200);
        requests.made(&write("one"));
        requests.made(&call("other", Action::Get, Kind::POD));
        assert_eq!(strays(), 0);
        requests.made(&write("other"));
        assert_eq!(strays(), 1);
        // A refused write of the lease leaves it with its holder.
        requests.made(&lease("other"));
        requests.after(&lease("other"), 409);
        requests.made(&write("one"));
        assert_eq!(strays(), 1);
        requests.after(&lease("other"), 200);
        requests.made(&write("one"));
        assert_eq!(strays(), 2);
    }
}
