//! Running other programs, with errors that say what they said.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// How much of a failed program's output an error shows.
const SHOWN_LINES: usize = 15;

/// A command from a program and its arguments.
pub fn command<I, S>(program: impl AsRef<OsStr>, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The same command, which gets the time that no other program wants of the processor. It runs in a session of its own,
/// since the kernel shares the processor among sessions first (`sched(7)`, autogroup), and only then by niceness. The terminal
/// does not end that session, so the command ends with the thread that starts it.
pub fn in_spare_time(command: Command) -> Command {
    const SCRIPT: &str = r#"echo 19 > /proc/self/autogroup || true; exec nice -n 19 "$0" "$@""#;
    let leashed = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", SCRIPT];
    let mut spare = self::command("setsid", leashed);
    spare.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => spare.env(name, value),
            None => spare.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        spare.current_dir(directory);
    }
    spare
}

/// Runs to the end and returns standard output; failure carries standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {}", name(command)))?;
    checked(command, output)
}

/// Runs to the end, quietly unless it fails.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs with `input` on standard input and returns standard output.
pub fn feed(command: &mut Command, input: &[u8]) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", name(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading shows in its exit status.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output()?;
    checked(command, output)
}

fn checked(command: &Command, output: Output) -> Result<String> {
    if !output.status.success() {
        let said = [output.stderr.as_slice(), output.stdout.as_slice()].concat();
        let said = String::from_utf8_lossy(&said);
        bail!(
            "{} failed ({}):\n{}",
            name(command),
            output.status,
            last_lines(&said, SHOWN_LINES)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a person would type it.
pub fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last `count` lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Where a program is, looking at PATH and where Debian keeps administrators' programs.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_keeps_the_end() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 5), "a");
        assert_eq!(last_lines("", 5), "");
    }

    #[test]
    fn a_command_in_spare_time_is_the_same_and_as_nice_as_can_be() {
        let mut command = command("sh", ["-c", r#"echo "$(nice) $PWD $NAME $1""#, "sh", "a b"]);
        command.current_dir("/").env("NAME", "value");
        let said = output(&mut in_spare_time(command)).unwrap();
        assert_eq!(said, "19 / value a b\n");
    }

    #[test]
    fn failure_shows_what_the_program_said() {
        let error = run(&mut command("sh", ["-c", "echo broken >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }

    #[test]
    fn feed_writes_standard_input() {
        assert_eq!(feed(&mut command("cat", ["-"]), b"hello").unwrap(), "hello");
    }
}
