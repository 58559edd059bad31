//! The way to a state, as text that a person can follow.

use crate::state::{Disk, MAX, Pass, Process, State};
use crate::world::Action;

/// One line for each state and what happened in it.
pub fn tell(path: &[(State, Option<Action>)]) -> String {
    path.iter()
        .map(|(state, action)| match action {
            Some(action) => format!("  {}  then {action:?}\n", show(state)),
            None => format!("  {}\n", show(state)),
        })
        .collect()
}

/// What the letters mean, for people.
pub const LEGEND: &str = "\
  wanted size; list, replicas and permission of the template | server: list (* not the template's),
  process (>n serves under n), disk (epoch, W has the followed write) | ...; ordinals in actions start at 0";

fn show(state: &State) -> String {
    let pods: Vec<String> = (0..MAX).filter_map(|o| show_pod(state, o)).collect();
    let held = state.held.map(|held| match held {
        Pass::Write { set, fresh, .. } => format!(
            " held up before writing list {} replicas {}{}",
            set.template.list,
            set.replicas,
            if fresh { "" } else { " (stale)" }
        ),
        Pass::Restart { ordinal, .. } => {
            format!(" held up before restarting server {}", ordinal + 1)
        }
    });
    format!(
        "{} L{} r{} p{} | {} |{}{}{}",
        state.wanted,
        state.set.template.list,
        state.set.replicas,
        state.permit,
        pods.join(" "),
        if state.acknowledged {
            " write acknowledged"
        } else {
            ""
        },
        held.unwrap_or_default(),
        show_harm(state),
    )
}

fn show_harm(state: &State) -> &'static str {
    if state.harm.write_lost {
        " THE WRITE IS LOST"
    } else if state.harm.service_ended {
        " the restart ended the service"
    } else if state.harm.leader_early {
        " the leader restarted early"
    } else {
        ""
    }
}

fn show_pod(state: &State, ordinal: usize) -> Option<String> {
    let pod = state.pods[ordinal]?;
    let process = match pod.process {
        Process::Serving { leader } => format!(">{}", leader + 1),
        Process::Looking { long: true } => " looks for long".to_owned(),
        Process::Looking { long: false } => " looks".to_owned(),
        Process::Created => " new".to_owned(),
        Process::Crashed => " down".to_owned(),
    };
    let disk = match state.disks[ordinal] {
        Disk::Empty => "empty".to_owned(),
        Disk::Data { epoch, write } => format!("e{epoch}{}", if write { "W" } else { "" }),
    };
    Some(format!(
        "{}:L{}{}{}{}{process} {disk};",
        ordinal + 1,
        pod.template.list,
        if pod.template == state.set.template {
            ""
        } else {
            "*"
        },
        if pod.cut_off { " cut off" } else { "" },
        if pod.terminating { " terminating" } else { "" },
    ))
}
