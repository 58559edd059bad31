//! The program as a person runs it.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bellwether"))
}

fn here(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn lint(arguments: &[&str], input: &str) -> Output {
    let mut child = program()
        .arg("lint")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

const EVEN: &str = "apiVersion: zookeeper.bellwether.dev/v1alpha1\nkind: ZooKeeperEnsemble\n\
                    metadata:\n  name: main\nspec:\n  replicas: 4\n";

#[test]
fn as_a_plugin_of_kubectl_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-bellwether");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bellwether"), &plugin).unwrap();
    for (arguments, usage) in [
        (&["--help"][..], "Usage: kubectl bellwether <COMMAND>"),
        (&["lint", "--help"], "Usage: kubectl bellwether lint"),
    ] {
        let output = Command::new(&plugin).args(arguments).output().unwrap();
        assert!(
            text(&output.stdout).contains(usage),
            "{}",
            text(&output.stdout)
        );
    }
    let output = program().arg("--help").output().unwrap();
    assert!(text(&output.stdout).contains("Usage: bellwether <COMMAND>"));
}

#[test]
fn lint_says_where_and_what_and_exits_accordingly() {
    let output = lint(&["-"], EVEN);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "<stdin>:6:13: error: spec.replicas: Invalid value: an even ensemble tolerates no more \
         failures than one member fewer; use 3 or 5\n"
    );
    assert_eq!(
        text(&output.stderr),
        "1 objects checked: 1 errors, 0 warnings\n"
    );
    let output = lint(&["-"], &EVEN.replace('4', "5"));
    assert_eq!(output.status.code(), Some(0));
    let warned = EVEN.replace('4', "5\n  version: 3.9.4");
    assert_eq!(lint(&["-"], &warned).status.code(), Some(0));
    assert_eq!(lint(&["--strict", "-"], &warned).status.code(), Some(1));
    let output = lint(&["no-such-file", "-"], EVEN);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stdout).contains("spec.replicas"),
        "the rest is checked"
    );
    assert!(text(&output.stderr).contains("no-such-file: cannot be read"));
}

#[test]
fn lint_prints_json_of_a_folder() {
    let output = lint(
        &[
            "--output",
            "json",
            here("../lint/tests/bad").to_str().unwrap(),
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = found.as_array().unwrap();
    let even = found
        .iter()
        .find(|f| f["file"].as_str().unwrap().ends_with("replicas-even.yaml"))
        .unwrap();
    assert_eq!(even["field"], "spec.replicas");
    assert_eq!(
        (even["line"].as_u64(), even["column"].as_u64()),
        (Some(8), Some(13))
    );
    assert_eq!(even["severity"], "error");
    assert_eq!(even["source"], "rule");
    assert_eq!(even["object"], "ZooKeeperEnsemble/replicas-even");
}

#[test]
fn lint_compares_with_what_is_there() {
    let new = here("../lint/tests/bad/change-id-offset.yaml");
    let old = here("../lint/tests/bad/change-id-offset.old.yaml");
    let (new, old) = (new.to_str().unwrap(), old.to_str().unwrap());
    assert_eq!(lint(&[new], "").status.code(), Some(0));
    let output = lint(&["--against", old, new], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("idOffset is immutable"));
    assert_eq!(
        lint(&["--against", "no-such-file", new], "").status.code(),
        Some(2)
    );
}

#[test]
fn lint_leaves_other_groups_alone() {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let output = lint(&["-"], other);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), String::new())
    );
    assert!(!text(&output.stderr).contains("ConfigMap"));
    let output = lint(&["--verbose", "-"], other);
    assert!(text(&output.stderr).contains("v1 ConfigMap/a left alone"));
}

/// A folder with a manifest that is not YAML: lint reports a fault of the text, not of the program.
#[test]
fn lint_tells_of_a_text_that_is_no_yaml() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), "spec: [1\n").unwrap();
    fs::write(folder.path().join("b.txt"), "spec: [1\n").unwrap();
    let output = lint(&[folder.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1));
    let lines = text(&output.stdout);
    assert!(
        lines.contains("a.yaml:") && !lines.contains("b.txt"),
        "{lines}"
    );
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

#[test]
fn plan_shows_the_steps_and_what_changes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let old = write("old.yaml", EVEN.replace('4', "3"));
    let new = write("new.yaml", EVEN.replace('4', "5"));
    let even = write("even.yaml", EVEN.to_owned());
    let output = run(&["plan", &new, "--against", &old]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in [
        "ZooKeeperEnsemble default/main: 3 -> 5 members\n",
        "        +server.4=main-3.main-members.default.svc.cluster.local:2888:3888:participant\n",
        " 2. pod main-3 is created\n",
        "7 restarts, 2 of them of a leader.\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    let nothing = run(&["plan", &new, "--against", "nothing"]);
    assert!(text(&nothing.stdout).starts_with("ZooKeeperEnsemble default/main: new, 5 members\n"));
    let same = run(&["plan", &new, "--against", &new]);
    assert!(text(&same.stdout).contains("\nNothing would change.\n"));
    let refused = run(&["plan", &even, "--against", &old]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("spec.replicas"));
    // `--against cluster` without a cluster fails instead of assuming that nothing exists.
    let kubeconfig = folder.path().join("none");
    let output = program()
        .args(["plan", &new, "--against", "cluster", "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
}

#[test]
fn completions_and_the_manual_page_know_every_command() {
    let help = text(&run(&["--help"]).stdout);
    let commands = help.split("Commands:\n").nth(1).unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        commands.contains(&"support-bundle") && commands.len() > 8,
        "{commands:?}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(&["completion", shell]).stdout);
        for command in &commands {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
    }
    let page = text(&run(&["man"]).stdout);
    for command in commands.iter().filter(|command| **command != "help") {
        let heading = format!(".SH {}\n", command.to_uppercase());
        assert!(
            page.contains(&heading),
            "the manual page does not know {command}"
        );
    }
}
