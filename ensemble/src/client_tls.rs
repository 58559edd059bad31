//! TLS from clients to servers, on a port beside the one for plaintext: its states.
//!
//! A running ensemble goes from plaintext to TLS only by way of a state in which every member offers both, so that a
//! client that knows one of the two finds it on all members while they change.

use bellwether_api::ensemble::ClientsTls;

use crate::stage::Stage;

/// How clients connect to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientTls {
    /// In plaintext only.
    #[default]
    Disabled,
    /// In plaintext or over TLS, on two ports.
    Optional,
    /// Over TLS only. The port for plaintext listens on the loopback interface, where the member program asks the server.
    Required,
}

impl Stage for ClientTls {
    const ALL: &'static [Self] = &[Self::Disabled, Self::Optional, Self::Required];

    fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Optional => "Optional",
            Self::Required => "Required",
        }
    }
}

impl ClientTls {
    /// How clients connect in this state, for people.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Disabled => "connect in plaintext only",
            Self::Optional => "connect in plaintext or over TLS",
            Self::Required => "connect over TLS only",
        }
    }

    /// Whether clients may connect in plaintext.
    pub fn takes_plaintext(self) -> bool {
        self != Self::Required
    }

    /// Whether clients may connect over TLS.
    pub fn takes_tls(self) -> bool {
        self != Self::Disabled
    }

    /// What a new ensemble has.
    pub fn of_new(asked: Option<ClientsTls>) -> Self {
        match asked {
            None | Some(ClientsTls::Optional) => Self::Optional,
            Some(ClientsTls::Required) => Self::Required,
            Some(ClientsTls::Disabled) => Self::Disabled,
        }
    }

    /// What an ensemble in this state goes to in the end. An ensemble that is older than the setting keeps plaintext.
    pub fn wanted(self, asked: Option<ClientsTls>) -> Self {
        match (asked, self) {
            (None, Self::Disabled) => Self::Disabled,
            _ => Self::of_new(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClientTls::{Disabled, Optional, Required};
    use super::*;
    use crate::stage::Running;

    fn next(template: ClientTls, live: &[ClientTls], wanted: ClientTls) -> ClientTls {
        let running = Running {
            all: live.iter().copied().collect(),
            serving: live.iter().copied().collect(),
            pods: 3,
        };
        Stage::next(template, &running, wanted, true)
    }

    /// A client that knows one way to connect finds it on every member of a roll that it need not know of.
    #[test]
    fn states_that_run_at_the_same_time_have_a_way_to_connect_in_common() {
        for one in ClientTls::ALL {
            for other in ClientTls::ALL {
                let common = one.takes_tls() && other.takes_tls()
                    || one.takes_plaintext() && other.takes_plaintext();
                assert_eq!(one.fits(*other), common, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn plaintext_ends_only_after_every_member_offers_tls() {
        assert_eq!(next(Disabled, &[Disabled], Required), Optional);
        assert_eq!(next(Optional, &[Disabled, Optional], Required), Optional);
        assert_eq!(next(Optional, &[Optional], Required), Required);
        assert_eq!(next(Required, &[Optional, Required], Disabled), Optional);
        assert_eq!(next(Optional, &[Optional], Disabled), Disabled);
    }

    #[test]
    fn an_older_ensemble_keeps_plaintext_until_somebody_asks() {
        assert_eq!(Disabled.wanted(None), Disabled);
        assert_eq!(Disabled.wanted(Some(ClientsTls::Required)), Required);
        assert_eq!(Required.wanted(None), Optional);
        assert_eq!(ClientTls::of_new(None), Optional);
    }

    #[test]
    fn every_word_is_read_back() {
        for state in ClientTls::ALL {
            assert_eq!(ClientTls::of_word(state.as_str()), Some(*state));
        }
        assert_eq!(ClientTls::of_word("required"), None);
    }
}
