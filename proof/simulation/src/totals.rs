//! What many lives were made of.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_simulation::life::Story;

/// What all lives were made of.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// How many there were.
    pub lives: u64,
    seconds: f64,
    acknowledged: usize,
    coverage: BTreeMap<String, usize>,
}

impl Totals {
    /// One more life.
    pub(crate) fn add(&mut self, story: &Story) {
        self.lives += 1;
        self.seconds += story.seconds;
        self.acknowledged += story.acknowledged;
        for (what, count) in &story.coverage {
            *self.coverage.entry(what.clone()).or_default() += count;
        }
    }

    /// Prints them.
    #[allow(clippy::print_stdout, reason = "printing is what this program is for")]
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    pub(crate) fn print(&self, took: Duration) {
        for (what, count) in &self.coverage {
            println!("{count:8} {what}");
        }
        let acknowledged = match self.acknowledged {
            0 => String::new(),
            count => format!(", {count} writes acknowledged"),
        };
        println!(
            "{} lives of {:.0} virtual seconds each{acknowledged}, in {:.1} s: {:.1} lives a second",
            self.lives,
            self.seconds / self.lives.max(1) as f64,
            took.as_secs_f64(),
            self.lives as f64 / took.as_secs_f64()
        );
    }
}
