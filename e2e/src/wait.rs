//! Conditions with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at, and how often at least where it takes long: each look starts a program, and a dozen
/// tests wait at the same time.
const INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_millis(500);

/// The pause after the first so many looks.
fn pause(looks: u32) -> Duration {
    (INTERVAL + INTERVAL * (looks / 8)).min(LONGEST_INTERVAL)
}

/// The shortest deadline: on a machine that has much else to do, everything may take minutes. A deadline says only when a
/// test gives up.
const LEAST: Duration = Duration::from_secs(240);

/// Looks until `look` succeeds. What it says in its errors is why it is not the case *yet*; the last
/// of them is reported when the deadline passes, and not before four minutes.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    look: impl FnMut() -> Result<T, String>,
) -> Result<T> {
    within(what, deadline.max(LEAST), look)
}

fn within<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> Result<T> {
    let start = Instant::now();
    let mut looks = 0;
    loop {
        looks += 1;
        match look() {
            Ok(found) => return Ok(found),
            Err(why) if start.elapsed() > deadline => {
                bail!("not within {} s: {what}. Last: {why}", deadline.as_secs())
            }
            Err(_) => thread::sleep(pause(looks)),
        }
    }
}

/// Looks for the whole time and fails as soon as `look` does: for what must *not* happen.
pub fn throughout(
    what: &str,
    time: Duration,
    mut look: impl FnMut() -> Result<(), String>,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Err(why) = look() {
            bail!(
                "{what} did not hold after {} s: {why}",
                start.elapsed().as_secs()
            );
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reason_is_reported_when_time_is_up() {
        let error = within::<()>("tea", Duration::ZERO, || Err("still brewing".to_owned()));
        assert_eq!(
            error.unwrap_err().to_string(),
            "not within 0 s: tea. Last: still brewing"
        );
    }
}
