//! What goes wrong with requests on their way.

use std::time::Duration;

use super::request::Call;

/// Decides what becomes of requests. It is asked about each before it is carried out, and again after.
pub trait Faults: Send {
    /// When a client makes a request.
    fn made(&mut self, _call: &Call) {}

    /// Before a request is carried out.
    fn before(&mut self, _call: &Call) -> Before {
        Before::default()
    }

    /// After a request was carried out; the code is that of the answer.
    fn after(&mut self, _call: &Call, _code: u16) -> After {
        After::default()
    }
}

/// Nothing goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct NoFaults;

impl Faults for NoFaults {}

/// What happens before a request is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// How long the request is on its way.
    pub delay: Duration,
    /// What happens then.
    pub then: Then,
}

/// What becomes of a request that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// It is carried out.
    #[default]
    CarryOut,
    /// 429, to be tried again after this many seconds.
    TooManyRequests(u32),
    /// 500.
    InternalError,
    /// 503.
    Unavailable,
    /// 403: the client has no right to it.
    Forbid,
    /// 410, as the answer's code; a front end itself reports it in an event of the watch.
    Expired,
    /// The connection is refused.
    Refuse,
    /// It arrives nowhere, and the client hears nothing.
    Hang,
}

/// What happens after a request was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// How long the answer is on its way.
    pub delay: Duration,
    /// What becomes of it.
    pub answer: Answer,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// The client gets it.
    #[default]
    Deliver,
    /// The connection breaks instead.
    Break,
    /// The client hears nothing.
    Lose,
}
