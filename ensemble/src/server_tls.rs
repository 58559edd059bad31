//! Mutual TLS between the servers, on the quorum port and the election port: its states, and the order in which a
//! running ensemble goes through them.
//!
//! A server that speaks TLS only and one that speaks plaintext only cannot reach each other, so a running ensemble
//! goes from one to the other by way of two states in between (ZooKeeper administrator's guide, "Upgrading existing
//! non-TLS cluster with no downtime"); see [`Stage`].
//!
//! This is about availability alone. Servers that cannot reach each other form no majority together, and what is a
//! majority does not depend on TLS, so no order of these states can make two leaders.

use bellwether_api::ensemble::ServersTls;

use crate::stage::Stage;

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

impl Stage for ServerTls {
    const ALL: &'static [Self] = &[
        Self::Disabled,
        Self::Accepted,
        Self::Preferred,
        Self::Required,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Accepted => "Accepted",
            Self::Preferred => "Preferred",
            Self::Required => "Required",
        }
    }
}

impl ServerTls {
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ServerTls::{Accepted, Disabled, Preferred, Required};
    use super::*;
    use crate::stage::Running;

    fn serving(live: &[ServerTls]) -> Running<ServerTls> {
        let all: BTreeSet<ServerTls> = live.iter().copied().collect();
        Running {
            serving: all.clone(),
            all,
            pods: 3,
        }
    }

    fn next(template: ServerTls, live: &[ServerTls], wanted: ServerTls) -> ServerTls {
        Stage::next(template, &serving(live), wanted, true)
    }

    #[test]
    fn neighbouring_states_reach_each_other_and_no_others_do() {
        for one in ServerTls::ALL {
            for other in ServerTls::ALL {
                let reach = one.accepts(*other) && other.accepts(*one);
                assert_eq!(one.fits(*other), reach, "{one:?} {other:?}");
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
        assert_eq!(Stage::next(Disabled, &live, Required, false), Disabled);
        // While the first member restarts, no pod runs it.
        assert_eq!(Stage::next(Accepted, &live, Required, false), Accepted);
        // Turning round begins nothing new.
        let live = serving(&[Disabled, Accepted]);
        assert_eq!(Stage::next(Accepted, &live, Disabled, false), Disabled);
    }

    /// `kubectl rollout undo` puts an older state into the template.
    #[test]
    fn a_template_that_no_pod_runs_is_taken_back() {
        for finished in [true, false] {
            let live = serving(&[Required]);
            let next = Stage::next(Disabled, &live, Required, finished);
            assert_eq!(next, Required);
        }
    }

    #[test]
    fn pods_that_do_not_reach_each_other_meet_in_the_middle_or_follow_those_that_serve() {
        assert_eq!(next(Disabled, &[Disabled, Preferred], Required), Accepted);
        let mut live = serving(&[Disabled, Required]);
        live.serving.remove(&Disabled);
        assert_eq!(Stage::next(Disabled, &live, Required, false), Required);
        live.serving.clear();
        for template in [Disabled, Required] {
            assert_eq!(Stage::next(template, &live, Required, false), template);
        }
    }

    #[test]
    fn no_next_state_is_ever_out_of_reach_of_a_pod() {
        for bits in 1..16_u8 {
            let states = ServerTls::ALL.iter().copied();
            let live: Vec<_> = states.filter(|s| bits & (1 << s.place()) != 0).collect();
            for template in ServerTls::ALL.iter().copied() {
                for wanted in ServerTls::ALL.iter().copied() {
                    for finished in [true, false] {
                        let running = serving(&live);
                        let next = Stage::next(template, &running, wanted, finished);
                        if live.contains(&Disabled) && live.contains(&Required) {
                            continue;
                        }
                        assert!(live.iter().all(|s| s.fits(next)), "{live:?} {next:?}");
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
            assert_eq!(ServerTls::of_word(state.as_str()), Some(*state));
        }
        assert_eq!(ServerTls::of_word("required"), None);
    }
}
