//! `bellwether restart`, `pause` and `resume`: what a user would set by hand, and what comes of it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use bellwether_api::{ZooKeeperEnsemble, labels};
use clap::Args;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::cluster::{Cluster, Target, unanswered};

/// Who owns the fields that these commands set.
pub(super) const FIELD_MANAGER: &str = "kubectl-bellwether";

/// Which ensemble.
#[derive(Debug, Args)]
pub(crate) struct Act {
    /// The ensemble.
    name: String,
    /// Say what would happen and let the API server check it, but change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Restart every member once.
    Restart,
    /// Change nothing any more.
    Pause,
    /// Go on.
    Resume,
}

/// A patch, if one is needed, and the sentence.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) patch: Option<Value>,
    pub(super) says: String,
}

/// Carries out the action, and prints what will happen.
///
/// # Errors
/// When the cluster cannot be asked, refuses, or has no such ensemble.
pub(crate) async fn act(action: Action, arguments: &Act) -> anyhow::Result<ExitCode> {
    let cluster = arguments.target.open().await?;
    let ensemble = cluster.ensemble(&arguments.name).await?;
    let decision = decide(action, &ensemble, Timestamp::now());
    decision
        .carry_out(&cluster, &arguments.name, arguments.dry_run)
        .await
}

impl Decision {
    /// Patches the ensemble of this name, and prints the sentence.
    ///
    /// # Errors
    /// When the cluster cannot be asked or refuses.
    pub(super) async fn carry_out(
        &self,
        cluster: &Cluster,
        name: &str,
        dry_run: bool,
    ) -> anyhow::Result<ExitCode> {
        if let Some(patch) = &self.patch {
            let parameters = PatchParams {
                dry_run,
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let ensembles = cluster.ensembles();
            ensembles
                .patch(name, &parameters, &Patch::Merge(patch))
                .await
                .map_err(unanswered)?;
        }
        let note = if dry_run {
            " (dry run: nothing was changed)"
        } else {
            ""
        };
        writeln!(io::stdout(), "{}{note}", self.says)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn decide(action: Action, ensemble: &ZooKeeperEnsemble, now: Timestamp) -> Decision {
    let paused = ensemble.spec.paused;
    let status = ensemble.status.clone().unwrap_or_default();
    let name = ensemble.metadata.name.clone().unwrap_or_default();
    let nothing = |says: String| Decision { patch: None, says };
    match action {
        Action::Restart => {
            let at = format!("{now:.0}");
            let members = status.members.len();
            let leader = status.leader.map_or_else(
                || "there is no leader now, which each restart waits for".to_owned(),
                |leader| format!("{leader}, which leads now, last of the voters"),
            );
            let order = match members {
                0 => "It has no members yet, so nothing restarts.".to_owned(),
                1 => "Its only member restarts, with a short interruption.".to_owned(),
                _ => format!("{members} members restart, one at a time: {leader}."),
            };
            let held = if paused {
                " It is paused, so this happens when it is resumed."
            } else {
                ""
            };
            Decision {
                patch: Some(json!({ "metadata": { "annotations": { labels::RESTART_AT: at } } })),
                says: format!("{name}: {order}{held}"),
            }
        }
        Action::Pause if paused => nothing(format!("{name}: it is paused already.")),
        Action::Pause => {
            let rest = status.message.filter(|_| {
                let busy = status.conditions.iter().find(|c| c.type_ == "Progressing");
                busy.is_some_and(|c| c.status == "True")
            });
            let rest = rest.map_or_else(String::new, |message| {
                format!(" What is under way stops where it is: {message}")
            });
            Decision {
                patch: Some(json!({ "spec": { "paused": true } })),
                says: format!(
                    "{name}: the operator changes nothing until it is resumed, and goes on \
                     reporting. Pods that fail are still made anew by their StatefulSet.{rest}"
                ),
            }
        }
        Action::Resume if !paused => nothing(format!("{name}: it is not paused.")),
        Action::Resume => Decision {
            patch: Some(json!({ "spec": { "paused": false } })),
            says: format!(
                "{name}: the operator carries out whatever was changed meanwhile, one step at a \
                 time. `bellwether status {name} --watch` shows it."
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensemble(paused: bool, members: usize) -> ZooKeeperEnsemble {
        let members: Vec<Value> = (0..members)
            .map(|n| {
                json!({ "name": format!("main-{n}"), "serverId": n + 1, "role": "Follower",
                        "state": "UpToDate", "verdict": "UpToDate" })
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1", "kind": "ZooKeeperEnsemble",
            "metadata": { "name": "main" },
            "spec": { "replicas": 3, "paused": paused },
            "status": {
                "message": "Restarting main-0.", "leader": "main-2", "members": members,
                "conditions": [{ "type": "Progressing", "status": "True", "reason": "Rolling",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            },
        }))
        .unwrap()
    }

    fn decided(action: Action, paused: bool, members: usize) -> Decision {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        decide(action, &ensemble(paused, members), now)
    }

    #[test]
    fn a_restart_sets_the_annotation_to_the_time_and_names_the_leader() {
        let decision = decided(Action::Restart, false, 3);
        let annotation = json!({ "zookeeper.bellwether.dev/restartedAt": "2026-01-01T00:00:00Z" });
        assert_eq!(
            decision.patch,
            Some(json!({ "metadata": { "annotations": annotation } }))
        );
        let says =
            "main: 3 members restart, one at a time: main-2, which leads now, last of the voters.";
        assert_eq!(decision.says, says);
        assert!(
            decided(Action::Restart, true, 3)
                .says
                .ends_with("when it is resumed.")
        );
        assert!(
            decided(Action::Restart, false, 1)
                .says
                .contains("interruption")
        );
        assert!(
            decided(Action::Restart, false, 0)
                .says
                .contains("no members yet")
        );
    }

    #[test]
    fn pause_and_resume_patch_only_what_changes() {
        let pause = decided(Action::Pause, false, 3);
        assert_eq!(pause.patch, Some(json!({ "spec": { "paused": true } })));
        assert!(
            pause
                .says
                .ends_with("stops where it is: Restarting main-0."),
            "{}",
            pause.says
        );
        assert_eq!(decided(Action::Pause, true, 3).patch, None);
        let resume = decided(Action::Resume, true, 3);
        assert_eq!(resume.patch, Some(json!({ "spec": { "paused": false } })));
        assert_eq!(decided(Action::Resume, false, 3).patch, None);
    }
}
