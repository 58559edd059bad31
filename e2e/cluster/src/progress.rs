//! Telling a waiting person what is going on.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::process;

/// Between two signs of life of a long step.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

/// How often a running step is looked at.
const POLL: Duration = Duration::from_millis(100);

/// A line on standard error: standard output belongs to what the user asked for.
pub fn say(text: impl AsRef<str>) {
    eprintln!("{}", text.as_ref());
}

/// Runs a step that takes long: its output goes to a log, and a line now and then says that it lives.
pub fn long_step(title: &str, command: &mut Command, log: &Path) -> Result<()> {
    let started = Instant::now();
    say(format!("{title} ..."));
    if let Some(directory) = log.parent() {
        fs::create_dir_all(directory)?;
    }
    let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("run {}", process::name(command)))?;
    if !wait(&mut child, started)? {
        let said = fs::read_to_string(log).unwrap_or_default();
        bail!(
            "{title}: failed. The end of {}:\n{}",
            log.display(),
            process::last_lines(&said, 15)
        );
    }
    say(format!("  done in {}", seconds(started.elapsed())));
    Ok(())
}

fn wait(child: &mut Child, started: Instant) -> Result<bool> {
    let mut next = started + SIGN_OF_LIFE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= next {
            say(format!("  ... {}", seconds(started.elapsed())));
            next += SIGN_OF_LIFE;
        }
        std::thread::sleep(POLL);
    }
}

/// A duration for people.
pub fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_reads_well() {
        assert_eq!(seconds(Duration::from_millis(1540)), "1.5 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
