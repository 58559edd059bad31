//! What clients asked for, for tests that count it.

use std::sync::{Arc, Mutex, PoisonError};

use super::faults::Faults;
use super::request::Call;

/// The requests of all clients, in order. As [`Faults`] it lets every request pass.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Call>>>);

impl Recorder {
    /// The requests so far.
    pub fn calls(&self) -> Vec<Call> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.clone()
    }
}

impl Faults for Recorder {
    fn made(&mut self, call: &Call) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call.clone());
    }
}
