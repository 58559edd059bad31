//! Whether the status is honest: its claims about the servers are compared with the servers, and
//! where nothing will change before a person acts, the status has to report that.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api::ensemble::MemberRole;
use bellwether_api::labels;
use bellwether_api_server::Object;
use bellwether_ensemble::four_letter::parse_srvr;
use serde_json::Value;

use super::Sight;
use crate::cluster::{ENSEMBLE, NAME};
use crate::zookeeper::{Phase, ProcessId};

/// For how long the status may report that clients are served when they are not: until another
/// operator holds the lease, and a pass.
const STALE: Duration = Duration::from_secs(60);
/// For how long it may be wrong about members although an operator can ask them: one that just started waits
/// fifteen seconds for the lease, and one that is at rest looks every five seconds and waits one for an answer.
const LOOK: Duration = Duration::from_secs(30);
/// For how long a member may be away before `Degraded` reports it: a new pod is given a minute, and
/// a pass has to come.
const NOTICE: Duration = Duration::from_secs(100);
/// For how long nothing may change before the status has to ask a person to act: longer than a
/// member may be given to join, and shorter than the longest pause of a container that fails.
const STILL: Duration = Duration::from_secs(180);

/// What a look at the status has to know of the life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// No operator can look at the members and report what it sees.
    pub hindered: bool,
    /// Something is broken that comes right by itself.
    pub faulty: bool,
    /// The ensemble is as asked for, or the API server refused what was asked for and the user knows.
    pub as_asked: bool,
    /// How far the operators' clocks are behind the cluster's; a new pod seems newer to them by that time.
    pub behind: Duration,
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(super) struct Honesty {
    /// Since when an operator can look and report.
    able: Option<Duration>,
    /// Since when the status is wrong about each thing.
    untrue: BTreeMap<String, Duration>,
    /// What was the case when something changed last, and when that was.
    still: Option<(Duration, Moment)>,
    /// Whether a violation was found already: only the first is reported.
    told: bool,
}

/// What changes while something goes on.
#[derive(Debug, PartialEq, Eq)]
struct Moment {
    writes: usize,
    generation: Option<i64>,
    pods: Vec<(String, Option<ProcessId>)>,
}

/// The servers, as an operator that can ask them would see them.
#[derive(Clone, Debug, Default)]
struct Servers {
    /// The role of each voter's server, by pod.
    roles: BTreeMap<String, MemberRole>,
    /// The pods of the members that stay, also those that do not exist.
    stay: Vec<String>,
    /// Whether a leader can commit.
    commit: bool,
}

/// Something that the status says and that is not so.
struct Untruth {
    /// What it is about.
    about: String,
    /// What is said, and what is so.
    claim: String,
    /// For how long that may be.
    bound: Duration,
    /// Whether it may be for as long as no operator can look.
    excused: bool,
}

impl Honesty {
    /// What is wrong with the status, given how many writes the operators made of everything else.
    pub(super) fn look(
        &mut self,
        sight: &Sight<'_>,
        life: Circumstances,
        writes: usize,
    ) -> Option<String> {
        let now = sight.now;
        self.able = (!life.hindered).then(|| self.able.unwrap_or(now));
        let ensemble = sight.ensemble.filter(|e| !e.is_terminating());
        let Some(ensemble) = ensemble.filter(|_| !self.told) else {
            *self = Self {
                told: self.told,
                ..Self::default()
            };
            return None;
        };
        let servers = servers(sight);
        let wrong = self.untrue(now, &ensemble["status"], &servers, life.behind);
        let wrong = wrong.or_else(|| self.silent(sight, ensemble, life, writes));
        self.told = wrong.is_some();
        wrong
    }

    /// Another actor changed pods: the status gets its time again.
    pub(super) fn forgive(&mut self) {
        self.untrue.clear();
    }

    fn untrue(
        &mut self,
        now: Duration,
        status: &Value,
        servers: &Servers,
        behind: Duration,
    ) -> Option<String> {
        let all = untruths(status, servers, behind);
        self.untrue
            .retain(|about, _| all.iter().any(|u| u.about == *about));
        let mut found = None;
        for untruth in all {
            let since = *self.untrue.entry(untruth.about.clone()).or_insert(now);
            let since = match (untruth.excused, self.able) {
                (false, _) => since,
                (true, Some(able)) => since.max(able),
                (true, None) => continue,
            };
            if now >= since + untruth.bound {
                let (claim, bound) = (untruth.claim, untruth.bound);
                found.get_or_insert(format!(
                    "{now:?}: for {bound:?} the status says that {claim}"
                ));
            }
        }
        found
    }

    /// Nothing changes, nothing is broken, the ensemble is not as asked for: the status must ask a person to act.
    fn silent(
        &mut self,
        sight: &Sight<'_>,
        ensemble: &Object,
        life: Circumstances,
        writes: usize,
    ) -> Option<String> {
        let now = sight.now;
        let process = |pod: &Object| sight.machines.kubelets.process_of(pod.uid());
        let pods: Vec<_> = (sight.pods.iter())
            .map(|pod| (pod.uid().to_owned(), process(pod)))
            .collect();
        let copies = |process: &ProcessId| {
            let phase = sight.machines.zoo.phase(*process);
            matches!(phase, Phase::Synchronizing { bytes_left } if bytes_left > 0)
        };
        let copying = pods.iter().filter_map(|(_, p)| *p).any(|p| copies(&p));
        let moment = Moment {
            writes,
            generation: ensemble["metadata"]["generation"].as_i64(),
            pods,
        };
        let goes_on = copying || life.faulty || life.hindered || life.as_asked;
        let same = self
            .still
            .as_ref()
            .filter(|(_, m)| *m == moment && !goes_on);
        let since = same.map_or(now, |(since, _)| *since);
        self.still = Some((since, moment));
        // The user asked for that.
        let paused = ensemble["spec"]["paused"] == true;
        if now < since + STILL || paused || tells(&ensemble["status"]) {
            return None;
        }
        let status = &ensemble["status"];
        Some(format!(
            "{now:?}: for {STILL:?} nothing goes on and the ensemble is not as asked for, and the status does \
             not say that a person has to act: {}: {}",
            status["phase"], status["message"]
        ))
    }
}

fn condition<'s>(status: &'s Value, type_: &str) -> Option<&'s Value> {
    let mut all = status["conditions"].as_array()?.iter();
    all.find(|condition| condition["type"] == type_)
}

/// Whether the status reports that a person has to act, and why.
fn tells(status: &Value) -> bool {
    let said = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    let tells = |type_| {
        condition(status, type_)
            .is_some_and(|c| c["status"] == "True" && said(&c["reason"]) && said(&c["message"]))
    };
    status["phase"] != "Ready" && (tells("Stalled") || tells("Degraded"))
}

/// The servers as they answer now.
fn servers(sight: &Sight<'_>) -> Servers {
    let machines = sight.machines;
    let role = |pod: &Object| {
        let address = pod["status"]["podIP"].as_str()?.parse().ok()?;
        let process = machines.kubelets.process_at(address)?;
        let answer = machines.zoo.answer(process, "srvr")?;
        let serving = parse_srvr(&answer).ok()?;
        Some(serving.map_or(MemberRole::Looking, |serving| serving.role))
    };
    let voters = || (sight.pods.iter()).filter(|pod| pod.label(labels::COMPONENT).is_none());
    Servers {
        roles: voters()
            .map(|pod| (pod.name().to_owned(), role(pod).unwrap_or(MemberRole::Down)))
            .collect(),
        stay: (sight.template.iter())
            .flat_map(|list| list.iter())
            .map(|id| format!("{NAME}-{}", id.0.saturating_sub(1)))
            .collect(),
        commit: !machines.zoo.leaders_that_can_commit(ENSEMBLE).is_empty(),
    }
}

/// All that the status reports wrongly at this moment.
fn untruths(status: &Value, servers: &Servers, behind: Duration) -> Vec<Untruth> {
    let mut all = Vec::new();
    let mut say = |about: &str, claim: String, bound: Duration, excused: bool| {
        all.push(Untruth {
            about: about.to_owned(),
            claim,
            bound,
            excused,
        });
    };
    let holds =
        |type_: &str, word: &str| condition(status, type_).is_some_and(|c| c["status"] == word);
    let leaderless = |word: &str| format!("it is {word}, and no leader can commit");
    if status["phase"] == "Ready" && !servers.commit {
        say("Ready", leaderless("Ready"), STALE, false);
    }
    if holds("Available", "True") && !servers.commit {
        say("Available", leaderless("Available"), STALE, false);
    }
    let role = |pod: &str| servers.roles.get(pod).copied().unwrap_or(MemberRole::Down);
    let serving = servers.roles.values().filter(|role| role.serves()).count();
    let ready = &status["readyReplicas"];
    if ready.is_u64() && ready.as_u64() != u64::try_from(serving).ok() {
        let claim = format!("{ready} members serve, and {serving} do");
        say("readyReplicas", claim, LOOK, true);
    }
    for member in status["members"].as_array().into_iter().flatten() {
        let pod = member["name"].as_str().unwrap_or_default();
        let said = serde_json::from_value::<MemberRole>(member["role"].clone());
        let is = role(pod);
        if servers.roles.contains_key(pod) && said.ok() != Some(is) {
            let claim = format!("the role of {pod} is {}, and it is {is}", member["role"]);
            say(pod, claim, LOOK, true);
        }
    }
    let leads = |role: &&MemberRole| **role == MemberRole::Leader;
    let one = servers.roles.values().filter(leads).count() == 1;
    match status["leader"].as_str() {
        Some(leader) if role(leader) != MemberRole::Leader => {
            let claim = format!("{leader} leads, and it does not");
            say("leader", claim, LOOK, true);
        }
        None if one && ready.is_u64() => {
            let claim = "nobody leads, and one member does".to_owned();
            say("leader", claim, LOOK, true);
        }
        _ => {}
    }
    if holds("Degraded", "False") {
        for pod in servers.stay.iter().filter(|pod| !role(pod).serves()) {
            let claim = format!("it is not Degraded, and {pod} does not serve");
            say(&format!("Degraded {pod}"), claim, NOTICE + behind, true);
        }
    }
    all
}

#[cfg(test)]
mod tests;
