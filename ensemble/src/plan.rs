//! The plan: the objects as they should be, at most one disruptive step, and the report.
//!
//! A plan leaves nothing to decide. The planner makes it from the spec and one fresh observation, without
//! memory: after any interruption the next plan continues from the state that it observes.

pub mod continuity;
pub mod disks;
#[cfg(test)]
pub(crate) mod example;
pub mod facts;
pub mod growth;
pub mod loss;
pub mod membership;
pub mod observers;
mod orphans;
pub mod permission;
pub mod reclaim;
pub mod reconfiguration;
pub mod replacement;
pub mod report;
pub mod roll;
mod runs;
mod split;
mod start;
pub mod trouble;
pub mod verdict;
pub mod view;
pub mod volumes;

use std::borrow::Cow;
use std::time::Duration;

use bellwether_api::ensemble::Phase;
use bellwether_api::ensemble::status::Reason;

use crate::certificates;
use crate::desired::{
    self, DesiredObject, ObjectKind, certificate, config, discovery, network, services,
    stateful_set,
};
use crate::encryption::Encryption;
use crate::ids::{ServerId, ServerList};
use crate::observation::{Acceptance, Observation, Revision, StatefulSetObservation};
use crate::rules::{Rule, Rules};
use crate::validate::ValidEnsemble;
use facts::Facts;
use report::{Findings, Report};
use trouble::Trouble;
use view::View;

/// How soon to look again when the next step waits only for what was just written.
const AT_ONCE: Duration = Duration::from_millis(10);
/// How soon to look again while something is under way. Kubernetes sends pod events; a ZooKeeper server has to
/// be asked.
const SOON: Duration = Duration::from_millis(400);
/// How soon to look again when nothing is under way, for the roles in the status.
pub const LATER: Duration = Duration::from_secs(5);

/// What to do now.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The objects as they should be, in the order in which to write them.
    pub objects: Vec<DesiredObject>,
    /// Objects that are not wanted any more.
    pub prune: Vec<Unwanted>,
    /// Objects that the API server may reject although the ensemble is healthy: requests for larger volumes,
    /// the ConfigMap for clients and the NetworkPolicy, whose names somebody else's objects may have. The executor
    /// writes them last, each by itself, and nothing else waits for them.
    pub last: Vec<DesiredObject>,
    /// The one disruptive step, if any.
    pub step: Option<Step>,
    /// The facts that the step was decided on. The executor takes it only while they are the same.
    pub facts: Facts,
    /// The loss of data that this plan accepts, because a person said so.
    pub accepted: Option<Acceptance>,
    /// The plan's verdict on every member, and why.
    pub report: Report,
    /// When to look again at the latest.
    pub requeue: Duration,
}

/// An object that is not wanted any more: a configuration revision that no pod uses, or the NetworkPolicy of an
/// ensemble whose spec wants none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwanted {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Its unique id, if the name alone does not say which object is meant: never delete the one that replaced it.
    pub uid: Option<String>,
}

impl Unwanted {
    /// A configuration revision. Its name is a hash of what it holds.
    pub fn revision(name: impl Into<String>) -> Self {
        Self {
            kind: ObjectKind::ConfigMap,
            name: name.into(),
            uid: None,
        }
    }
}

/// A disruptive step. The executor carries it out with every precondition, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Delete a pod, so that the StatefulSet controller creates it again from the current template.
    RestartMember {
        /// The pod.
        pod: String,
        /// Its unique id: never delete the pod that replaced it.
        uid: String,
        /// Its resource version: never act on a pod that changed since it was judged.
        resource_version: String,
        /// Its server id.
        id: ServerId,
        /// The role that the server must report when it is asked again just before.
        expect: Expect,
        /// Why, for people.
        reason: String,
    },
    /// Ask the members to agree on another list of servers.
    Reconfigure {
        /// The pod whose server is asked.
        pod: String,
        /// Its server id.
        id: ServerId,
        /// The list.
        list: ServerList,
        /// The version that the present list must have: the servers refuse the request if it has another.
        version: u64,
    },
    /// Delete the volume claims of a member and its pod, so that it starts again with empty volumes.
    Replace {
        /// Its server id.
        id: ServerId,
        /// The claims; the one of the transaction log comes first, so that a request is carried out when that of the data is gone.
        claims: Vec<Seen>,
        /// The pod, if there is one: it keeps the claims.
        pod: Option<Seen>,
        /// Why, for people.
        reason: String,
    },
    /// Delete the volume claim of a member that left.
    DeleteClaim {
        /// The claim.
        claim: String,
        /// Its unique id: never delete the claim that replaced it.
        uid: String,
        /// Its resource version: never act on a claim that changed since it was judged.
        resource_version: String,
        /// The server id of the member that left.
        id: ServerId,
        /// Why, for people.
        reason: String,
    },
}

/// An object as it was judged: never act on another one of this name, or on one that changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// Its unique id.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
}

impl Seen {
    fn of(name: &str, uid: &str, resource_version: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
        }
    }
}

/// What a member must be when it is asked again just before its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A follower: if it leads by now, the plan is out of date.
    Follower,
    /// The leader: if another leads by now, the plan is out of date.
    Leader,
    /// Not part of any quorum: if it serves by now, the plan is out of date.
    Idle,
}

/// Decides what to do.
pub fn plan(ensemble: &ValidEnsemble, observation: &Observation) -> Plan {
    plan_under(Rules::ALL, ensemble, observation)
}

/// As [`plan`], but only some safety rules hold: for the model check, which shows what each rule is
/// good for.
#[doc(hidden)]
pub fn plan_under(rules: Rules, ensemble: &ValidEnsemble, observation: &Observation) -> Plan {
    let ensemble = &*certificate::with_secret(ensemble, observation);
    let waits = !observation.leftovers.is_empty() && rules.keep(Rule::LeftoversFirst);
    let mut plan = match &observation.stateful_set {
        _ if waits => wait_for_leftovers(observation),
        None if let Some(message) = certificate::awaited(ensemble, observation) => {
            wait_for_certificate(ensemble, message)
        }
        None => start::plan_start(rules, ensemble, observation),
        Some(set) => plan_existing(rules, &with_last_restart(ensemble, set), observation, set),
    };
    if plan.objects.is_empty() {
        // Even without a plan the report contains the members that run.
        let waiting = "the trouble in the status to be corrected";
        plan.report
            .list_pods(observation, ensemble.id_offset, waiting);
    }
    let accepted = observation.bootstrap.as_ref();
    let accepted = accepted.and_then(|b| b.acceptance.clone());
    plan.report.accepted = plan.report.accepted.take().or(accepted);
    plan.report.go_on_from(observation.phase);
    if ensemble.paused {
        plan.objects.clear();
        plan.prune.clear();
        plan.last.clear();
        plan.step = None;
        plan.accepted = None;
        plan.report.pause();
        plan.requeue = LATER;
    }
    plan
}

/// Waits until Kubernetes has deleted the objects of a deleted ensemble of the same name, its volumes included:
/// the new ensemble would adopt them a moment before their deletion.
fn wait_for_leftovers(observation: &Observation) -> Plan {
    if let Some(held) = orphans::volumes_in_use(observation) {
        return Plan::nothing(Report::of_trouble(Phase::Blocked, held));
    }
    let message = format!(
        "Kubernetes still deletes objects of an earlier ensemble of this name ({}). Nothing is changed until \
         they are gone.",
        observation.leftovers.join(", ")
    );
    let mut plan = Plan::nothing(Report::new(Phase::Starting, message));
    plan.requeue = SOON;
    plan
}

/// Waits until cert-manager has made the certificate for clients: members would otherwise restart for it at once.
fn wait_for_certificate(ensemble: &ValidEnsemble, message: String) -> Plan {
    let mut plan = Plan::nothing(Report::new(Phase::Starting, message));
    plan.objects.extend(certificate::certificate(ensemble));
    plan.requeue = SOON;
    plan
}

/// A restart request counts once. Removing the annotation requests no restart, so the last request stays in the
/// pod template.
fn with_last_restart<'a>(
    ensemble: &'a ValidEnsemble,
    set: &StatefulSetObservation,
) -> Cow<'a, ValidEnsemble> {
    if ensemble.restart_at.is_some() || set.restart.is_none() {
        return Cow::Borrowed(ensemble);
    }
    Cow::Owned(ValidEnsemble {
        restart_at: set.restart.clone(),
        ..ensemble.clone()
    })
}

fn plan_existing(
    rules: Rules,
    ensemble: &ValidEnsemble,
    observation: &Observation,
    set: &StatefulSetObservation,
) -> Plan {
    if set.terminating {
        let message = "The StatefulSet is being deleted; it is created again when it is gone.";
        return Plan::nothing(Report::new(Phase::Recovering, message.to_owned()));
    }
    let judged = reconfiguration::as_judged(observation, ensemble.id_offset);
    let of_judged = judged.stateful_set.as_ref().unwrap_or(set);
    let view = match View::new(rules, ensemble, &judged, of_judged) {
        Ok(view) => view,
        Err(unknown) => {
            let message = format!(
                "{unknown}. Nothing is restarted until this is understood. {}",
                unknown.remedy()
            );
            let trouble = Trouble {
                reason: Reason::UnknownState,
                message,
            };
            return Plan::nothing(Report::of_trouble(Phase::Blocked, trouble));
        }
    };
    let ensemble = &*reconfiguration::for_now(ensemble, &view, set);
    let change = membership::next(ensemble, &view, set);
    let mut rendered = config::render(ensemble, &change.voters, change.initialize, change.tls);
    rendered.revision.version = change.version.or(rendered.revision.version);
    let sizes = growth::template_sizes(ensemble, set);
    let inputs = stateful_set::inputs_hash(ensemble, &rendered.revision, sizes);
    let same_inputs = set.inputs_hash.as_ref() == Some(&inputs);
    // What an older operator rendered stays until the user changes something.
    let written = set.edited.as_ref().and_then(stateful_set::revision_name);
    let kept = written.unwrap_or(&view.template.name);
    let keep_template = same_inputs
        && set.rendered_by.as_ref() != Some(&ensemble.context.version)
        && observation.revisions.contains(kept);
    let kept_revision = Revision {
        voters: change.voters.clone(),
        version: change.version,
        ..view.template.clone()
    };
    let revision = if keep_template {
        &kept_revision
    } else {
        &rendered.revision
    };

    let loss = loss::decide(ensemble, observation, &view);

    let mut objects = Vec::new();
    if !keep_template {
        objects.push(config::config_map(ensemble, &rendered));
    }
    objects.push(desired::bootstrap(
        ensemble,
        &permission::permission(observation, &view, &change, &loss),
    ));
    let clients = Encryption::least(&view.tls).unwrap_or(change.tls).clients;
    objects.push(services::headless_service(ensemble, clients));
    objects.push(services::client_service(ensemble, clients));
    objects.push(services::pod_disruption_budget(ensemble));
    let whole = || stateful_set::stateful_set(ensemble, revision, &inputs, change.replicas, sizes);
    let foreign = membership::names_foreign_newcomer(&view);
    objects.push(match (&set.edited, &set.rendered_by) {
        _ if foreign => stateful_set::without_newcomer(&ensemble.name),
        _ if let Some(patch) = &set.left_over => {
            stateful_set::without_left_over(&ensemble.name, patch)
        }
        (Some(template), Some(by)) if keep_template => {
            stateful_set::put_back(ensemble, template, by, whole())
        }
        _ if keep_template => match change.version {
            Some(version) => {
                stateful_set::list_only(&ensemble.name, &change.voters, version, change.replicas)
            }
            None => stateful_set::replicas_only(&ensemble.name, change.replicas),
        },
        _ => whole(),
    });

    let records = volumes::plan_records(&view, &change);
    let recording = !records.is_empty();
    objects.extend(records);
    if !recording {
        objects.extend(reclaim::plan_owners(ensemble, observation));
    }

    let writes = foreign || set.is_foreign();
    let template_changes = writes || !same_inputs || change.replicas != set.replicas;
    let given = set.template.as_ref();
    let list_changes = change.version.is_some()
        && given.is_some_and(|given| {
            (&given.voters, given.version) != (&change.voters, change.version)
        });
    let mut roll = roll::plan_roll(&view, set, change.bounce);
    roll.waiting = roll.waiting.take().or(change.waiting.clone());
    if (template_changes || list_changes) && rules.keep(Rule::WriteThenLook) {
        roll.hold("the change of the pod template to take effect");
    }
    if let Some(held) = &change.held {
        roll.block(held);
    }
    let observers = observers::plan_observers(ensemble, observation, &view, &rendered.revision);
    if !template_changes && change.held.is_none() {
        observers.go_first(ensemble, &view, &mut roll);
    }
    if observers.needs_rendered && keep_template {
        objects.push(config::config_map(ensemble, &rendered));
    }
    objects.extend(observers.object.clone());
    let observing = observation.observers.stateful_set.as_ref();
    let mut sets = [Some(set), observing].into_iter().flatten();
    let growth = growth::plan(ensemble, observation, set.replicas);
    let expiring = certificates::expiring(observation.identity.as_ref(), observation.now);
    let not_issued = certificate::trouble(ensemble, observation);
    let full = disks::nearly_full(observation.pods.iter().chain(&observation.observers.pods));
    let settled = !template_changes && !list_changes && !recording && change.held.is_none();
    let ask = || reconfiguration::step(ensemble, &view, &change);
    let ask = settled.then(ask).flatten();
    let replacement = replacement::plan(ensemble, observation, &view);
    let replace = replacement.step.clone().filter(|_| settled);
    let step = roll.step.clone().or(ask).or(replace);
    let step = step.or_else(|| loss.step.clone());
    let step = step.or_else(|| {
        let deletion = || reclaim::plan_deletion(ensemble, observation, &view);
        settled.then(deletion).flatten()
    });
    let report = report::compose(Findings {
        ensemble,
        view: &view,
        change: &change,
        roll: &roll,
        revision,
        template_changes,
        observers: &observers,
        edited: sets.any(StatefulSetObservation::is_foreign),
        refused: &observation.refused,
        growth: &growth,
        full: full.as_ref(),
        replacement: replacement.trouble.as_ref(),
        expiring: expiring.as_ref(),
        not_issued: not_issued.as_ref(),
        loss: &loss,
        step: step.as_ref(),
    });
    let mut used: Vec<&str> = observation
        .pods
        .iter()
        .filter_map(|p| p.revision.as_ref().map(|r| r.name.as_str()))
        .collect();
    used.extend([revision.name.as_str(), view.template.name.as_str(), kept]);
    used.extend(observers.revisions.iter());
    if observers.needs_rendered {
        used.push(&rendered.revision.name);
    }
    let unused = observation.revisions.iter();
    let unused = unused.filter(|r| !used.contains(&r.as_str()));
    let mut prune: Vec<Unwanted> = unused.map(Unwanted::revision).collect();
    let policy = network::policy(ensemble);
    if policy.is_none() {
        prune.extend(observation.network_policy.as_ref().map(|uid| Unwanted {
            kind: ObjectKind::NetworkPolicy,
            name: network::policy_name(&ensemble.name),
            uid: Some(uid.clone()),
        }));
    }
    let of_issuer = certificate::certificate(ensemble);
    if ensemble.tls.issuer_ref.is_none() {
        prune.extend(observation.certificate.as_ref().map(|found| Unwanted {
            kind: ObjectKind::Certificate,
            name: certificate::certificate_name(&ensemble.name),
            uid: found.uid.clone(),
        }));
    }
    let mut last = growth.requests;
    last.extend(discovery::client_config(
        ensemble,
        clients,
        discovery::client_authority(ensemble, observation),
    ));
    last.extend(policy);
    last.extend(of_issuer);
    let idle = report.phase == Phase::Ready;
    let deletes = matches!(step, Some(Step::DeleteClaim { .. }));
    let asks = matches!(step, Some(Step::Reconfigure { .. }));
    Plan {
        objects,
        prune,
        last,
        step,
        facts: Facts::of(ensemble.generation, observation),
        accepted: loss.acceptance.filter(|_| loss.is_new),
        report,
        requeue: match () {
            () if recording || list_changes || deletes || asks => AT_ONCE,
            () if idle => LATER,
            () => SOON,
        },
    }
}

impl Plan {
    /// A plan that changes nothing.
    fn nothing(report: Report) -> Self {
        Self {
            objects: Vec::new(),
            prune: Vec::new(),
            last: Vec::new(),
            step: None,
            facts: Facts::default(),
            accepted: None,
            report,
            requeue: LATER,
        }
    }
}

#[cfg(test)]
mod tests;
