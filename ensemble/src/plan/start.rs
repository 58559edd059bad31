//! An ensemble without a StatefulSet: a new one, one that was deleted and kept its volumes, or one
//! whose StatefulSet was deleted by hand.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bellwether_api::ensemble::Phase;
use bellwether_api::ensemble::status::Reason;

use super::facts::Facts;
use super::orphans;
use super::permission::{PERMISSION, closed, open_permission};
use super::reconfiguration;
use super::report::Report;
use super::trouble::Trouble;
use super::volumes::{self, Recorded};
use super::{Plan, SOON};
use crate::desired::claims::ClaimSizes;
use crate::desired::{self, claims, config, discovery, network, services, stateful_set};
use crate::encryption::Encryption;
use crate::ids::Voters;
use crate::observation::{BootstrapPermission, Observation, PodObservation, Revision};
use crate::rules::{Rule, Rules};
use crate::safety::may_live_together;
use crate::stage::Running;
use crate::validate::ValidEnsemble;

/// What to start, or why nothing is started.
enum Start {
    /// Create the StatefulSet.
    Create {
        /// Its first server list.
        voters: Voters,
        /// The version of that list, where members change at run time and it has one.
        version: Option<u64>,
        /// The newcomer that initializes its empty disk, if one did already.
        initialize: Option<crate::ids::ServerId>,
        /// What is encrypted.
        tls: Encryption,
        /// How many pods it wants.
        replicas: u16,
        /// Who may start with an empty disk.
        permission: Box<BootstrapPermission>,
        /// What happens, for people.
        message: String,
    },
    /// Something has to happen first.
    Wait(String),
    /// A person has to decide.
    Refuse(Trouble),
}

/// Plans the first objects.
pub(super) fn plan_start(
    rules: Rules,
    ensemble: &ValidEnsemble,
    observation: &Observation,
) -> Plan {
    let start = decide(rules, ensemble, observation);
    let (voters, version, initialize, tls, replicas, permission, message) = match start {
        Start::Create {
            voters,
            version,
            initialize,
            tls,
            replicas,
            permission,
            message,
        } => (
            voters, version, initialize, tls, replicas, permission, message,
        ),
        Start::Wait(message) => {
            let mut plan = Plan::nothing(Report::new(Phase::Starting, message));
            plan.requeue = SOON;
            return plan;
        }
        Start::Refuse(trouble) => {
            return Plan::nothing(Report::of_trouble(Phase::Blocked, trouble));
        }
    };
    let ensemble = &*match version {
        Some(_) => reconfiguration::at_run_time(ensemble),
        None => Cow::Borrowed(ensemble),
    };
    let mut rendered = config::render(ensemble, &voters, initialize, tls);
    rendered.revision.version = version.or(rendered.revision.version);
    let sizes = ClaimSizes::wanted(ensemble);
    let inputs = stateful_set::inputs_hash(ensemble, &rendered.revision, sizes);
    let authority = discovery::client_authority(ensemble, observation);
    let client_config = discovery::client_config(ensemble, tls.clients, authority);
    let last = client_config.into_iter().chain(network::policy(ensemble));
    let mut report = Report::new(Phase::Starting, message);
    report.revision = Some(rendered.revision.clone());
    Plan {
        objects: vec![
            config::config_map(ensemble, &rendered),
            desired::bootstrap(ensemble, &permission),
            services::headless_service(ensemble, tls.clients),
            services::client_service(ensemble, tls.clients),
            services::pod_disruption_budget(ensemble),
            stateful_set::stateful_set(ensemble, &rendered.revision, &inputs, replicas, sizes),
        ],
        prune: Vec::new(),
        last: last.collect(),
        step: None,
        facts: Facts::default(),
        accepted: None,
        report,
        requeue: SOON,
    }
}

fn decide(rules: Rules, ensemble: &ValidEnsemble, observation: &Observation) -> Start {
    let orphans_only = rules.keep(Rule::AdoptOrphansOnly);
    if let Some(going) = pods_that_go(observation).filter(|_| orphans_only) {
        return Start::Wait(going);
    }
    let logs = &observation.log_claims;
    let mut all = observation.claims.iter().chain(logs);
    if let Some(held) = orphans::volumes_in_use(observation) {
        return Start::Refuse(held);
    }
    if let Some(going) = all.find(|c| c.terminating) {
        return Start::Wait(format!(
            "Volume claim {} is being deleted; members are created when it is gone.",
            going.name
        ));
    }
    if !observation.pods.is_empty() {
        return adopt(ensemble, observation);
    }
    let open = observation
        .bootstrap
        .as_ref()
        .and_then(|b| b.first_start(observation.now).cloned());
    // Snapshots without their log are an old copy of the data, and a log without snapshots is not a copy.
    if (ensemble.transaction_log.is_none() || observation.claims.is_empty()) && !logs.is_empty() {
        return Start::Refuse(logs_left_over(observation));
    }
    if observation.claims.is_empty() {
        let voters = Voters::first(ensemble.size, ensemble.id_offset);
        let message = format!("Creating {}.", members(ensemble.size.into()));
        return first_start(ensemble, observation, voters, message);
    }
    match (volumes::recorded(rules, ensemble, observation), open) {
        (Recorded::Start(voters), _) => {
            let message = last_known(&voters);
            let permission = closed(observation);
            start_all(ensemble, voters, permission, message)
        }
        (
            Recorded::AtRunTime {
                list,
                version,
                pods,
            },
            _,
        ) => Start::Create {
            replicas: pods.last().map_or(0, |last| ensemble.ordinal(last) + 1),
            message: last_known(&list),
            voters: list,
            version: Some(version),
            initialize: None,
            tls: Encryption::of_new(&ensemble.tls),
            permission: Box::new(closed(observation)),
        },
        // It never served.
        (Recorded::Nothing, Some(voters)) => {
            let message = format!("Creating {}.", members(voters.len()));
            first_start(ensemble, observation, voters, message)
        }
        (Recorded::Nothing, None) => unrecorded(ensemble, observation),
        (Recorded::Lost { voters, intact }, _) => Start::Refuse(Trouble {
            reason: Reason::VolumesLost,
            message: lost(ensemble, observation, &voters, &intact),
        }),
        (Recorded::Disagree(why), _) => Start::Refuse(Trouble {
            reason: Reason::VolumesLeftOver,
            message: format!(
                "{why}. Nothing is created until they agree: delete the claims that are not of this \
                 ensemble's last members, or all of them to start empty."
            ),
        }),
    }
}

fn last_known(voters: &Voters) -> String {
    format!(
        "Creating the members {{{voters}}}, the last that are known to have served, on the volumes that exist."
    )
}

/// So many members, in words.
fn members(count: usize) -> String {
    match count {
        1 => "1 member".to_owned(),
        _ => format!("{count} members"),
    }
}

/// No voter runs: all of them start at the same time.
fn start_all(
    ensemble: &ValidEnsemble,
    voters: Voters,
    permission: BootstrapPermission,
    message: String,
) -> Start {
    Start::Create {
        replicas: u16::try_from(voters.len()).unwrap_or(u16::MAX),
        voters,
        version: None,
        initialize: None,
        tls: Encryption::of_new(&ensemble.tls),
        permission: Box::new(permission),
        message,
    }
}

/// All of these members may start with an empty disk.
fn first_start(
    ensemble: &ValidEnsemble,
    observation: &Observation,
    voters: Voters,
    message: String,
) -> Start {
    let permission = BootstrapPermission {
        initialize: Some(voters.clone()),
        until: Some(observation.now + PERMISSION),
        ..Default::default()
    };
    start_all(ensemble, voters, permission, message)
}

/// Pods that Kubernetes deletes or is about to delete: their StatefulSet does not exist, and only orphaned pods
/// outlive it. The operator does not adopt them, and Kubernetes may delete their volumes with them.
fn pods_that_go(observation: &Observation) -> Option<String> {
    let names = |goes: fn(&PodObservation) -> bool| -> String {
        let pods = observation.pods.iter().filter(|p| goes(p));
        pods.map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let deleted = names(|p| p.terminating);
    let controlled = names(|p| !p.terminating && p.controller.is_some());
    if !controlled.is_empty() {
        return Some(format!(
            "The StatefulSet is gone, and Kubernetes deletes its pods ({controlled}); members are created \
             when they are gone. Pods of a StatefulSet that was deleted with --cascade=orphan stay."
        ));
    }
    (!deleted.is_empty()).then(|| {
        format!("Pods are being deleted ({deleted}); members are created when they are gone.")
    })
}

/// The StatefulSet was deleted and orphaned its pods: the server lists that they run are live.
fn adopt(ensemble: &ValidEnsemble, observation: &Observation) -> Start {
    let mut live: BTreeSet<&Voters> = BTreeSet::new();
    let mut revisions: Vec<&Revision> = Vec::new();
    for pod in &observation.pods {
        let Some(revision) = &pod.revision else {
            let message = format!(
                "Pod {} does not say which servers vote under its configuration. No StatefulSet is \
                 created until this is understood or the pod is deleted.",
                pod.name
            );
            return Start::Refuse(Trouble {
                reason: Reason::UnknownState,
                message,
            });
        };
        live.insert(&revision.voters);
        revisions.push(revision);
    }
    // The lists in the annotations of such pods are of different times; their servers go on with their own.
    let at_run_time = reconfiguration::latest(observation, ensemble.id_offset);
    if let Some((_, list)) = &at_run_time {
        live = BTreeSet::from([list]);
    }
    let meet = may_live_together(live.iter().copied());
    let chosen = revisions
        .iter()
        .min_by_key(|r| r.voters.len().abs_diff(usize::from(ensemble.size)));
    let (Some(chosen), true) = (chosen, meet) else {
        let lists: Vec<String> = live.iter().map(|v| format!("{{{v}}}")).collect();
        return Start::Refuse(Trouble {
            reason: Reason::UnknownState,
            message: format!(
                "The pods run the server lists {}, under which two leaders could commit. No \
                 StatefulSet is created until this is understood or the pods are deleted.",
                lists.join(" and ")
            ),
        });
    };
    let pods = observation.pods.iter().map(|p| p.ordinal + 1).max();
    let open = observation.bootstrap.as_ref();
    let served = observation.pods.iter().any(|p| p.ready || p.serves());
    let first = open.and_then(|b| b.first_start(observation.now).cloned());
    let permission = first.filter(|_| !served).map_or_else(
        || closed(observation),
        |initialize| open_permission(observation, initialize),
    );
    let voters = at_run_time
        .as_ref()
        .map_or(&chosen.voters, |(_, list)| list);
    let message =
        format!("The StatefulSet is gone; creating it again for the members {{{voters}}}.");
    let wanted = chosen.tls.wanted(&ensemble.tls);
    let tls = Encryption::next(chosen.tls, &Running::of(observation), wanted, false);
    let last = voters.last().map_or(0, |last| ensemble.ordinal(last) + 1);
    Start::Create {
        replicas: last.max(pods.unwrap_or(0)),
        voters: voters.clone(),
        version: at_run_time.as_ref().map(|(version, _)| *version),
        initialize: chosen.initialize,
        tls,
        permission: Box::new(permission),
        message,
    }
}

/// Claims of an operator version that recorded nothing on them, or of an ensemble that served only
/// for a moment.
fn unrecorded(ensemble: &ValidEnsemble, observation: &Observation) -> Start {
    let ordinals: BTreeSet<u16> = observation.claims.iter().map(|c| c.ordinal).collect();
    if ordinals == (0..ensemble.size).collect() {
        let message = format!(
            "Creating {} on the volumes that exist.",
            members(ensemble.size.into())
        );
        let voters = Voters::first(ensemble.size, ensemble.id_offset);
        let permission = closed(observation);
        return start_all(ensemble, voters, permission, message);
    }
    let names: Vec<&str> = observation.claims.iter().map(|c| c.name.as_str()).collect();
    let count = ordinals.len();
    // An ensemble of another size can use these claims only if they are exactly those of its members.
    let fits = count % 2 == 1 && ordinals.iter().copied().eq((0..).take(count));
    let take_up = match fits {
        true => format!("Set replicas to {count} to take them up, or delete them"),
        false => "Delete them, if their data is not needed,".to_owned(),
    };
    Start::Refuse(Trouble {
        reason: Reason::VolumesLeftOver,
        message: format!(
            "Volume claims of an earlier ensemble exist ({}), do not say which members it had, and \
             do not match {} members. {take_up} to start empty; nothing is created until then.",
            names.join(", "),
            ensemble.size,
        ),
    })
}

fn logs_left_over(observation: &Observation) -> Trouble {
    let logs = observation.log_claims.iter();
    let names: Vec<&str> = logs.map(|c| c.name.as_str()).collect();
    let what = if observation.claims.is_empty() {
        "the data volumes that go with them are gone. Restore these, or delete the claims to start \
         empty"
    } else {
        "the spec asks for none: the members would start without writes that they acknowledged. Set \
         storage.transactionLog, or delete all claims of the ensemble to start empty"
    };
    Trouble {
        reason: Reason::VolumesLeftOver,
        message: format!(
            "Volumes with transaction logs of an earlier ensemble exist ({}), and {what}; nothing is \
             created until then.",
            names.join(", ")
        ),
    }
}

fn lost(
    ensemble: &ValidEnsemble,
    observation: &Observation,
    voters: &Voters,
    intact: &Voters,
) -> String {
    let name = &ensemble.name;
    let claim = |id| {
        let ordinal = ensemble.ordinal(id);
        let has_data = observation.claims.iter().any(|c| c.ordinal == ordinal);
        if has_data && ensemble.transaction_log.is_some() {
            claims::log_claim(name, ordinal)
        } else {
            claims::data_claim(name, ordinal)
        }
    };
    let gone: Vec<String> = voters.difference(intact).iter().map(claim).collect();
    let left = if intact.is_empty() {
        "none of them has".to_owned()
    } else {
        format!("only {{{intact}}} of them has")
    };
    format!(
        "The last members that are known to have served are {{{voters}}}, and {left} a volume: {} \
         are gone, and with them writes may be lost that no other member has. Nothing is created \
         until a majority is there: restore these volume claims, or delete all claims of the \
         ensemble to start empty.",
        gone.join(", "),
    )
}

#[cfg(test)]
#[path = "start/tests.rs"]
mod tests;
