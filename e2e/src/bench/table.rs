//! Every run, medians and ratios to the floor.

use anyhow::{Result, ensure};

use super::subject::Measured;
use super::{WAYS, Way};

/// The runs of one change.
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    runs: Vec<(u16, Measured)>,
    failed: u16,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            runs: Vec::new(),
            failed: 0,
        }
    }

    /// Adds a run, and prints it as progress.
    pub fn add(&mut self, repetition: u16, way: Way, run: Result<Measured>) {
        let number = repetition.to_string();
        match run {
            Ok(measured) => {
                let line = line(&number, &measured);
                println!("{}, {}", self.title, line.trim());
                self.runs.push((repetition, measured));
            }
            Err(error) => {
                println!("{}, {number} {way} failed: {error:#}", self.title);
                self.failed += 1;
            }
        }
    }

    /// Prints all.
    pub fn print(&self) {
        println!("\n== {}\n", self.title);
        println!(
            "  run     way                  longest gap s  total gap s  one client s   wall s  leader changes  restarts  acknowledged    lost  two leaders s"
        );
        for way in WAYS {
            for (repetition, run) in self.runs.iter().filter(|(_, run)| run.way == way) {
                println!("{}", line(&repetition.to_string(), run));
            }
        }
        println!();
        for way in WAYS {
            if let Some(median) = self.median(way) {
                println!("{}", line("median", &median));
            }
        }
        self.print_ratios();
    }

    fn print_ratios(&self) {
        let Some(floor) = self.median(Way::Hand) else {
            return;
        };
        println!();
        for way in [Way::Operator, Way::RunTime, Way::Other, Way::Plain] {
            self.print_ratio(way, "floor", &floor);
        }
        if let Some(other) = self.median(Way::Other) {
            self.print_ratio(Way::Operator, "other", &other);
        }
    }

    /// The medians of a way as ratios to those of another one.
    fn print_ratio(&self, way: Way, to: &str, other: &Measured) {
        let Some(median) = self.median(way) else {
            return;
        };
        let wall = match (median.wall, other.wall) {
            (Some(wall), Some(other)) => format!("{:.2}", wall / other),
            _ => "-".to_owned(),
        };
        println!(
            "  / {to} {:<20} {:>13.2}  {:>11.2}  {:>12.2}  {wall:>7}",
            way.to_string(),
            median.longest_gap / other.longest_gap,
            median.total_gap / other.total_gap,
            median.client_gap / other.client_gap,
        );
    }

    /// The median of each figure; a change that did not end counts as longer than all others.
    fn median(&self, way: Way) -> Option<Measured> {
        let runs: Vec<&Measured> = self.of(way).collect();
        let first = (*runs.first()?).clone();
        let of =
            |figure: &dyn Fn(&Measured) -> f64| median(runs.iter().map(|r| figure(r)).collect());
        let count = |figure: &dyn Fn(&Measured) -> u64| {
            let mut all: Vec<u64> = runs.iter().map(|r| figure(r)).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        let wall = of(&|r| r.wall.unwrap_or(f64::INFINITY));
        Some(Measured {
            longest_gap: of(&|r| r.longest_gap),
            total_gap: of(&|r| r.total_gap),
            client_gap: of(&|r| r.client_gap),
            wall: wall.is_finite().then_some(wall),
            leader_changes: usize::try_from(count(&|r| r.leader_changes as u64))
                .unwrap_or_default(),
            restarts: usize::try_from(count(&|r| r.restarts as u64)).unwrap_or_default(),
            acknowledged: count(&|r| r.acknowledged),
            lost: Some(count(&|r| r.lost.unwrap_or(u64::MAX))).filter(|lost| *lost < u64::MAX),
            two_leaders: of(&|r| r.two_leaders),
            ..first
        })
    }

    fn of(&self, way: Way) -> impl Iterator<Item = &Measured> {
        let runs = self.runs.iter().map(|(_, run)| run);
        runs.filter(move |run| run.way == way)
    }

    /// Speed is printed and judged by people; safety is not a matter of judgement.
    ///
    /// # Errors
    /// When the operator lost a write, let two members lead or did not carry the change out; or when
    /// a run failed for another reason.
    pub fn assert_safe(&self) -> Result<()> {
        for run in self.of(Way::Operator).chain(self.of(Way::RunTime)) {
            ensure!(
                run.lost == Some(0) && run.two_leaders == 0.0 && run.wall.is_some(),
                "{}: the operator lost writes, had two leaders or did not end: {run:?}",
                self.title
            );
        }
        ensure!(
            self.failed == 0,
            "{}: {} runs failed; why is above",
            self.title,
            self.failed
        );
        Ok(())
    }
}

pub(super) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn line(run: &str, measured: &Measured) -> String {
    let wall = measured
        .wall
        .map_or("never".to_owned(), |w| format!("{w:.1}"));
    let lost = measured.lost.map_or("unread".to_owned(), |l| l.to_string());
    format!(
        "  {run:<7} {:<20} {:>13.2}  {:>11.2}  {:>12.2}  {wall:>7}  {:>14}  {:>8}  {:>12}  {lost:>6}  {:>13.1}",
        measured.way.to_string(),
        measured.longest_gap,
        measured.total_gap,
        measured.client_gap,
        measured.leader_changes,
        measured.restarts,
        measured.acknowledged,
        measured.two_leaders,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(way: Way, wall: Option<f64>, lost: u64) -> Measured {
        Measured {
            way,
            longest_gap: 1.0,
            total_gap: 2.0,
            client_gap: 2.0,
            wall,
            leader_changes: 1,
            restarts: 3,
            acknowledged: 100,
            lost: Some(lost),
            two_leaders: 0.0,
        }
    }

    #[test]
    fn a_change_that_did_not_end_is_the_longest_of_all() {
        let mut table = Table::new("t");
        for wall in [Some(3.0), None, Some(5.0)] {
            table.add(1, Way::Plain, Ok(run(Way::Plain, wall, 0)));
        }
        assert_eq!(table.median(Way::Plain).unwrap().wall, Some(5.0));
        assert!(table.median(Way::Hand).is_none());
    }

    #[test]
    fn a_write_lost_by_the_operator_fails_the_benchmark_and_by_others_does_not() {
        let mut table = Table::new("t");
        table.add(1, Way::Plain, Ok(run(Way::Plain, None, 7)));
        assert!(table.assert_safe().is_ok());
        table.add(1, Way::Operator, Ok(run(Way::Operator, Some(1.0), 1)));
        assert!(table.assert_safe().is_err());
    }
}
