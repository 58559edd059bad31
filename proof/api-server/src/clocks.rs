//! The wall clocks of the operators: each process has its own, which may be ahead of the cluster's or behind it.
//!
//! The C library has one clock for the whole program, so it is set to that of a process whenever
//! the process continues: when its run is polled, and when it has sent something or got an answer.
//! Between two of these moments a process reads no clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many seconds the wall clock of each process is ahead of the cluster's, by name.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    ahead: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Clocks {
    /// The clock of this process is so many seconds ahead of the cluster's, or behind it.
    pub fn set(&self, process: &str, ahead: i64) {
        let mut all = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(process.to_owned(), ahead);
    }

    /// This process continues: the time that it reads is that of its own clock.
    pub fn show(&self, process: &str) {
        let all = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        bellwether_virtual_time::set_ahead(all.get(process).copied().unwrap_or(0));
    }
}
