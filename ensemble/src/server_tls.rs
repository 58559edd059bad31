//! Mutual TLS between the servers, on the quorum port and the election port: its states, and the order in which a
//! running ensemble goes through them.
//!
//! A server that speaks TLS only and one that speaks plaintext only cannot reach each other, so a running ensemble
//! goes from one to the other by way of two states in between (ZooKeeper administrator's guide, "Upgrading existing
//! non-TLS cluster with no downtime"). Only neighbouring states may run at the same time. A state that no member
//! runs yet begins only when every member runs the one before it and serves.
//!
//! This is about availability alone. Servers that cannot reach each other form no majority together, and what is a
//! majority does not depend on TLS, so no order of these states can make two leaders.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use bellwether_api::ensemble::ServersTls;

use crate::observation::{Observation, PodObservation};

/// How a server speaks to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerTls {
    /// Plaintext only.
    #[default]
    Disabled,
    /// It speaks plaintext to others, and accepts both (`portUnification`).
    Accepted,
    /// It speaks TLS to others, and accepts both (`sslQuorum`, `portUnification`).
    Preferred,
    /// TLS only (`sslQuorum`).
    Required,
}

impl ServerTls {
    /// All states, in their order.
    pub const ALL: [Self; 4] = [
        Self::Disabled,
        Self::Accepted,
        Self::Preferred,
        Self::Required,
    ];

    /// The word for it in annotations and in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Accepted => "Accepted",
            Self::Preferred => "Preferred",
            Self::Required => "Required",
        }
    }

    /// What servers do in this state, for people.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Disabled => "speak plaintext",
            Self::Accepted => "speak plaintext and accept TLS",
            Self::Preferred => "speak TLS and accept plaintext",
            Self::Required => "speak TLS only",
        }
    }

    /// Whether a server in this state accepts a connection of one in that state (`UnifiedServerSocket`).
    pub fn accepts(self, from: Self) -> bool {
        let speaks_tls = from >= Self::Preferred;
        match self {
            Self::Disabled => !speaks_tls,
            Self::Accepted | Self::Preferred => true,
            Self::Required => speaks_tls,
        }
    }

    /// Whether servers in these two states reach each other, whichever of them connects: so do neighbouring states only.
    pub fn reaches(self, other: Self) -> bool {
        self.accepts(other) && other.accepts(self)
    }

    /// What a new ensemble has. All members of an ensemble that does not run yet start in the same state.
    pub fn of_new(asked: Option<ServersTls>) -> Self {
        match asked {
            None | Some(ServersTls::Required) => Self::Required,
            Some(ServersTls::Disabled) => Self::Disabled,
        }
    }

    /// What an ensemble in this state goes to in the end. An ensemble that is older than the setting keeps what it
    /// has, and one on its way goes on.
    pub fn wanted(self, asked: Option<ServersTls>) -> Self {
        match (asked, self) {
            (None, Self::Disabled) => Self::Disabled,
            _ => Self::of_new(asked),
        }
    }

    /// What the pod template has to say next.
    ///
    /// `template` is what it says now. `finished` tells that every member serves and no size change is under way.
    /// Members that reach no common state and none of which serves restart into what the template says.
    pub fn next(template: Self, running: &Running, wanted: Self, finished: bool) -> Self {
        // A server that was started out of reach of the others serves nothing, and restarts into what they run.
        let nearest = |live| nearest(template, live, wanted, finished);
        nearest(&running.all)
            .or_else(|| nearest(&running.serving))
            .unwrap_or(template)
    }
}

/// The state nearest to the wanted one that all these reach. One that has not begun only if all else is finished, or if
/// these reach each other in no other one.
fn nearest(
    template: ServerTls,
    live: &BTreeSet<ServerTls>,
    wanted: ServerTls,
    finished: bool,
) -> Option<ServerTls> {
    let distance = |state: &ServerTls| (*state as u8).abs_diff(wanted as u8);
    let reached = |state: &ServerTls| live.iter().all(|other| state.reaches(*other));
    let states = || ServerTls::ALL.into_iter().filter(|s| reached(s));
    let begun = || {
        let states = states().filter(|state| live.contains(state) || *state == template);
        states.min_by_key(distance)
    };
    let any = || states().min_by_key(distance);
    match finished || begun().is_none() {
        _ if live.is_empty() => None,
        true => any(),
        false => begun(),
    }
}

/// How the servers of an ensemble's pods speak to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// All voters, and the observers that serve: no change waits for an observer that does not.
    pub all: BTreeSet<ServerTls>,
    /// All that serve.
    pub serving: BTreeSet<ServerTls>,
    /// How many pods there are.
    pub pods: usize,
}

impl Running {
    /// What runs, as it was observed.
    pub fn of(observation: &Observation) -> Self {
        let (voters, observers) = (&observation.pods, &observation.observers.pods);
        let state = |pod: &PodObservation| pod.revision.as_ref().map(|revision| revision.tls);
        let serving = voters.iter().chain(observers).filter(|pod| pod.serves());
        let serving: BTreeSet<ServerTls> = serving.filter_map(state).collect();
        let all = voters.iter().filter_map(state);
        Self {
            all: all.chain(serving.iter().copied()).collect(),
            serving,
            pods: voters.len() + observers.len(),
        }
    }
}

impl fmt::Display for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ServerTls {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::ServerTls::{Accepted, Disabled, Preferred, Required};
    use super::*;

    fn serving(live: &[ServerTls]) -> Running {
        let all: BTreeSet<ServerTls> = live.iter().copied().collect();
        Running {
            serving: all.clone(),
            all,
            pods: 3,
        }
    }

    fn next(template: ServerTls, live: &[ServerTls], wanted: ServerTls) -> ServerTls {
        ServerTls::next(template, &serving(live), wanted, true)
    }

    #[test]
    fn neighbouring_states_reach_each_other_and_no_others_do() {
        for one in ServerTls::ALL {
            for other in ServerTls::ALL {
                let distance = (one as u8).abs_diff(other as u8);
                assert_eq!(one.reaches(other), distance <= 1, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_running_ensemble_goes_one_state_at_a_time_there_and_back() {
        for (way, wanted) in [
            ([Disabled, Accepted, Preferred, Required], Required),
            ([Required, Preferred, Accepted, Disabled], Disabled),
        ] {
            for pair in way.windows(2) {
                assert_eq!(next(pair[0], &[pair[0]], wanted), pair[1]);
                // In the middle of a roll the same state stays the next one.
                assert_eq!(next(pair[1], pair, wanted), pair[1]);
            }
            assert_eq!(next(wanted, &[wanted], wanted), wanted);
        }
    }

    #[test]
    fn a_roll_is_turned_round_at_once() {
        assert_eq!(next(Preferred, &[Accepted, Preferred], Disabled), Accepted);
        assert_eq!(next(Accepted, &[Accepted, Preferred], Required), Preferred);
    }

    #[test]
    fn a_state_that_nobody_runs_waits_until_all_serve() {
        let live = serving(&[Disabled]);
        assert_eq!(ServerTls::next(Disabled, &live, Required, false), Disabled);
        // While the first member restarts, no pod runs it.
        assert_eq!(ServerTls::next(Accepted, &live, Required, false), Accepted);
        // Turning round begins nothing new.
        let live = serving(&[Disabled, Accepted]);
        assert_eq!(ServerTls::next(Accepted, &live, Disabled, false), Disabled);
    }

    /// `kubectl rollout undo` puts an older state into the template.
    #[test]
    fn a_template_that_no_pod_runs_is_taken_back() {
        for finished in [true, false] {
            let live = serving(&[Required]);
            let next = ServerTls::next(Disabled, &live, Required, finished);
            assert_eq!(next, Required);
        }
    }

    #[test]
    fn pods_that_do_not_reach_each_other_meet_in_the_middle_or_follow_those_that_serve() {
        assert_eq!(next(Disabled, &[Disabled, Preferred], Required), Accepted);
        let mut live = serving(&[Disabled, Required]);
        live.serving.remove(&Disabled);
        assert_eq!(ServerTls::next(Disabled, &live, Required, false), Required);
        live.serving.clear();
        for template in [Disabled, Required] {
            assert_eq!(ServerTls::next(template, &live, Required, false), template);
        }
    }

    #[test]
    fn no_next_state_is_ever_out_of_reach_of_a_pod() {
        for bits in 1..16_u8 {
            let states = ServerTls::ALL.into_iter();
            let live: Vec<_> = states.filter(|s| bits & (1 << *s as u8) != 0).collect();
            for template in ServerTls::ALL {
                for wanted in ServerTls::ALL {
                    for finished in [true, false] {
                        let running = serving(&live);
                        let next = ServerTls::next(template, &running, wanted, finished);
                        if live.contains(&Disabled) && live.contains(&Required) {
                            continue;
                        }
                        assert!(live.iter().all(|s| s.reaches(next)), "{live:?} {next}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_older_ensemble_keeps_plaintext_until_somebody_asks() {
        assert_eq!(Disabled.wanted(None), Disabled);
        assert_eq!(Disabled.wanted(Some(ServersTls::Required)), Required);
        assert_eq!(Accepted.wanted(None), Required);
        assert_eq!(Required.wanted(Some(ServersTls::Disabled)), Disabled);
        assert_eq!(ServerTls::of_new(None), Required);
    }

    #[test]
    fn every_word_is_read_back() {
        for state in ServerTls::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert_eq!("required".parse::<ServerTls>(), Err(()));
    }
}
