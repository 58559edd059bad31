//! The sentences of a report: what the voters do, and what is waited for.

use bellwether_api::ensemble::Phase;

use super::Findings;
use crate::desired::pod_name;
use crate::ids::Voters;
use crate::observation::ServerReport;
use crate::plan::Step;
use crate::plan::membership::Change;
use crate::plan::roll::Roll;
use crate::plan::split;
use crate::plan::trouble::Trouble;
use crate::plan::verdict::{Verdict, WaitingOn};
use crate::plan::view::{Member, View};
use crate::validate::ValidEnsemble;

/// What the voters do.
pub(super) fn sentence(
    found: &Findings<'_>,
    troubles: &[Trouble],
    phase: Phase,
    waits: bool,
    wanted: &Voters,
) -> String {
    let view = found.view;
    match (Trouble::all(troubles.iter().cloned()), phase) {
        (Some(trouble), Phase::Blocked | Phase::Starting | Phase::Recovering) => trouble.message,
        _ if waits => format!(
            "{} to {}: the next step begins when every member serves, and {}.",
            if wanted.len() > view.template.voters.len() {
                "Growing"
            } else {
                "Shrinking"
            },
            wanted.len(),
            away(view)
        ),
        _ => message(
            found.ensemble,
            view,
            found.change,
            found.roll,
            phase,
            wanted,
        ),
    }
}

/// How many members serve, and what the others do.
pub(crate) fn serve(view: &View<'_>) -> String {
    let (serving, all) = (view.serving.len(), view.template.voters.len());
    let away = away(view);
    let colon = if away.is_empty() { "" } else { ": " };
    format!("{serving} of {all} members serve{colon}{away}")
}

/// What the members do that do not serve.
pub(super) fn away(view: &View<'_>) -> String {
    let mut words: Vec<String> = view
        .missing
        .iter()
        .map(|o| format!("the pod with ordinal {o} does not exist yet"))
        .collect();
    let away = |m: &&Member<'_>| !m.serves() || m.pod.terminating;
    words.extend(view.members.values().filter(away).map(|m| {
        if let Some(why) = split::cannot_follow(view, m) {
            return why;
        }
        let what = match &m.pod.server {
            _ if m.pod.terminating => "is being deleted",
            ServerReport::Looking => "looks for a leader",
            _ => "does not answer yet",
        };
        format!("{} {what}", m.pod.name)
    }));
    words.join(", ")
}

fn message(
    ensemble: &ValidEnsemble,
    view: &View<'_>,
    change: &Change,
    roll: &Roll,
    phase: Phase,
    wanted: &Voters,
) -> String {
    let doing = match &roll.step {
        Some(Step::RestartMember { pod, reason, .. }) => format!("Restarting {pod}: {reason}."),
        _ => match &change.ask {
            Some(ask) if ask.list == view.template.voters => {
                "Asking the members for their list again, so that the last request comes to nothing."
                    .to_owned()
            }
            Some(ask) => format!("Asking the members for the list {{{}}}.", ask.list),
            None => waiting(roll),
        },
    };
    let size = wanted.len();
    match phase {
        Phase::Ready => {
            let leader = view
                .leader
                .map(|l| pod_name(&ensemble.name, view.ordinal(l)));
            let leader = leader.unwrap_or_default();
            match size {
                1 => format!("{leader} serves and leads."),
                _ => format!("All {size} members serve; {leader} leads."),
            }
        }
        Phase::Starting => format!(
            "{}. Members elect a leader when a majority is up.",
            serve(view)
        ),
        Phase::Recovering if view.leader.is_none() => format!(
            "No member leads: {}. Members elect a leader as soon as a majority can.",
            away(view)
        ),
        Phase::Recovering => format!("{}.", serve(view)),
        Phase::Growing | Phase::Shrinking => {
            let word = if phase == Phase::Growing {
                "Growing"
            } else {
                "Shrinking"
            };
            if view.lists.is_some() {
                let list = &view.template.voters;
                return format!(
                    "{word} to {size} without a restart; the server list is {{{list}}}. {doing}"
                )
                .trim_end()
                .to_owned();
            }
            let next = change.begins.as_ref().unwrap_or(&change.voters);
            let step = if view.template.voters == *next {
                format!("the server list is {{{next}}}")
            } else {
                format!("the next server list is {{{next}}}")
            };
            format!("{word} to {size} in steps of one member; {step}. {doing}")
                .trim_end()
                .to_owned()
        }
        Phase::Rolling => {
            let tls = tls_changes(ensemble, view, change);
            let sentences: Vec<String> = tls.into_iter().chain([doing]).collect();
            sentences.join(" ").trim().to_owned()
        }
        _ => doing,
    }
}

/// What servers and clients will do after this roll, as far as it changes TLS.
fn tls_changes(ensemble: &ValidEnsemble, view: &View<'_>, change: &Change) -> Vec<String> {
    let (next, wanted) = (change.tls, change.tls.wanted(&ensemble.tls));
    let (servers, clients) = (next.servers, next.clients);
    let all = || view.tls.all.iter();
    let mut sentences = Vec::new();
    if servers != wanted.servers || all().any(|tls| tls.servers != servers) {
        let goes_on = match servers == wanted.servers {
            true => String::new(),
            false => format!(", and go on until they {}", wanted.servers.explain()),
        };
        sentences.push(format!(
            "Servers change until they {}{goes_on}.",
            servers.explain()
        ));
    }
    if clients != wanted.clients || all().any(|tls| tls.clients != clients) {
        let goes_on = match clients == wanted.clients {
            true => String::new(),
            false => format!(", and go on until clients {}", wanted.clients.explain()),
        };
        sentences.push(format!(
            "Members change until clients {}{goes_on}.",
            clients.explain()
        ));
    }
    sentences
}

fn waiting(roll: &Roll) -> String {
    if let Some(on) = &roll.waiting {
        return format!("Waiting for {on}.");
    }
    roll.verdicts
        .iter()
        .find_map(|(_, verdict)| match verdict {
            Verdict::Waiting(WaitingOn::Leave) => None,
            Verdict::Waiting(on) => Some(format!("Waiting for {on}.")),
            _ => None,
        })
        .unwrap_or_default()
}
