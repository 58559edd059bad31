//! The plan: the objects as they should be, at most one disruptive step, and the report.
//!
//! A plan leaves nothing to decide. It is made from the spec and one fresh observation, and holds
//! no memory: whatever was interrupted, the next plan goes on from what is there.

pub mod disks;
pub mod growth;
pub mod membership;
pub mod observers;
pub mod report;
pub mod roll;
mod start;
pub mod view;
pub mod volumes;

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api::ensemble::Phase;
use bellwether_api::ensemble::status::Reason;
use jiff::SignedDuration;

use crate::desired::{self, DesiredObject, config, services, stateful_set};
use crate::ids::{ServerId, Voters};
use crate::observation::{BootstrapPermission, Observation, StatefulSetObservation};
use crate::rules::Rules;
use crate::validate::ValidEnsemble;
use membership::Change;
use report::{Report, Trouble};
use view::View;

/// How long a permission to start with an empty disk holds without being renewed. If the operator
/// dies while it is open, a disk that is lost later must not be taken for a new one.
const PERMISSION: SignedDuration = SignedDuration::from_mins(10);
/// How soon to look again when the next step waits only for what was just written.
const AT_ONCE: Duration = Duration::from_millis(10);
/// How soon to look again while something is under way. Pod events come by themselves; what a
/// ZooKeeper server says does not.
const SOON: Duration = Duration::from_millis(400);
/// How soon to look again when nothing is under way, for the roles in the status.
const LATER: Duration = Duration::from_secs(5);

/// What to do now.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The objects as they should be, in the order in which to write them.
    pub objects: Vec<DesiredObject>,
    /// Configuration revisions that no pod uses any more.
    pub prune: Vec<String>,
    /// Requests for larger volumes. The API server or a storage driver may refuse them, so they are
    /// written last, and nothing else waits for them.
    pub growth: Vec<DesiredObject>,
    /// The one disruptive step, if any.
    pub step: Option<Step>,
    /// What the plan says of every member, and why.
    pub report: Report,
    /// When to look again at the latest.
    pub requeue: Duration,
}

/// A disruptive step. The executor carries it out with every precondition, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Delete a pod, so that the StatefulSet controller makes it anew from the current template.
    RestartMember {
        /// The pod.
        pod: String,
        /// Its unique id: never delete the pod that replaced it.
        uid: String,
        /// Its resource version: never act on a pod that changed since it was judged.
        resource_version: String,
        /// Its server id.
        id: ServerId,
        /// What the server must say of itself when it is asked again just before.
        expect: Expect,
        /// Why, for people.
        reason: String,
    },
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
    let mut plan = match &observation.stateful_set {
        None => start::plan_start(ensemble, observation),
        Some(set) => plan_existing(rules, ensemble, observation, set),
    };
    if ensemble.paused {
        plan.objects.clear();
        plan.prune.clear();
        plan.growth.clear();
        plan.step = None;
        plan.report.pause();
        plan.requeue = LATER;
    }
    plan
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
    let view = match View::new(rules, ensemble, observation, set) {
        Ok(view) => view,
        Err(unknown) => {
            let message = format!("{unknown}. Nothing is restarted until this is understood.");
            let trouble = Trouble {
                reason: Reason::UnknownState,
                message,
            };
            return Plan::nothing(Report::trouble(Phase::Blocked, trouble));
        }
    };
    let change = membership::next(ensemble, &view, set);
    let rendered = config::render(ensemble, &change.voters, change.initialize);
    let size = growth::template_size(ensemble, set);
    let inputs = stateful_set::inputs_hash(ensemble, &rendered.revision, size);
    let same_inputs = set.inputs_hash.as_ref() == Some(&inputs);
    // What an older operator rendered stays until the user changes something.
    let keep_template = same_inputs
        && set.rendered_by.as_ref() != Some(&ensemble.context.version)
        && observation.revisions.contains(&view.template.name);
    let revision = if keep_template {
        view.template
    } else {
        &rendered.revision
    };

    let mut objects = Vec::new();
    if !keep_template {
        objects.push(config::config_map(ensemble, &rendered));
    }
    objects.push(desired::bootstrap(
        ensemble,
        &permission(observation, &view, &change),
    ));
    objects.push(services::headless_service(ensemble));
    objects.push(services::client_service(ensemble));
    objects.push(services::pod_disruption_budget(ensemble));
    if keep_template {
        objects.push(stateful_set::replicas_only(&ensemble.name, change.replicas));
    } else {
        objects.push(stateful_set::stateful_set(
            ensemble,
            revision,
            change.replicas,
            size,
        ));
    }

    let records = volumes::plan_records(&observation.claims, &view);
    let recording = !records.is_empty();
    objects.extend(records);

    let template_changes = !same_inputs || change.replicas != set.replicas;
    let mut roll = roll::plan_roll(&view, set, change.bounce);
    if template_changes {
        roll.hold("the change of the pod template to take effect");
    }
    let observers = observers::plan_observers(ensemble, observation, &view, &rendered.revision);
    if !template_changes {
        observers.go_first(ensemble, &view, &mut roll);
    }
    if observers.needs_rendered && keep_template {
        objects.push(config::config_map(ensemble, &rendered));
    }
    objects.extend(observers.object.clone());
    let mut report = report::compose(ensemble, &view, &change, &roll, revision, template_changes);
    observers.tell(ensemble, &view, &mut report);
    let observing = &observation.observers;
    let growth = growth::plan_growth(
        ensemble,
        growth::of_members(&observation.claims, set.replicas)
            .chain(growth::of_members(&observing.claims, ensemble.observers)),
    );
    let full = disks::nearly_full(observation.pods.iter().chain(&observing.pods));
    report.volumes(growth.under_way, growth.trouble.or(full));
    if let Some(lost) = disks::lost_majority(&view) {
        report.block(lost);
    }
    let mut used: Vec<&str> = observation
        .pods
        .iter()
        .filter_map(|p| p.revision.as_ref().map(|r| r.name.as_str()))
        .collect();
    used.extend([revision.name.as_str(), view.template.name.as_str()]);
    used.extend(observers.revisions.iter());
    if observers.needs_rendered {
        used.push(&rendered.revision.name);
    }
    let prune = observation
        .revisions
        .iter()
        .filter(|r| !used.contains(&r.as_str()))
        .cloned()
        .collect();
    let idle = report.phase == Phase::Ready;
    Plan {
        objects,
        prune,
        growth: growth.requests,
        step: roll.step,
        report,
        requeue: match () {
            () if recording => AT_ONCE,
            () if idle => LATER,
            () => SOON,
        },
    }
}

/// The permission to start with an empty disk and a vote.
///
/// The first one ends when the ensemble serves for the first time. The newcomer in the step from one
/// member to two has it until that step is finished: while the lists {1} and {1,2} are live, nothing
/// can be decided without member 1 and its data. No other step begins before it is closed, because
/// under the next list members 2 and 3 decide alone, and a disk of member 2 that was lost and
/// initialized again would outvote member 1.
fn permission(observation: &Observation, view: &View<'_>, change: &Change) -> BootstrapPermission {
    let open = observation.bootstrap.as_ref();
    let first = open
        .and_then(|b| b.initialize.clone())
        .filter(|_| view.serving.is_empty());
    let stepping = change.voters != view.template.voters || !view.is_finished();
    let newcomer = change
        .initialize
        .filter(|_| stepping)
        .map(|id| Voters::from_iter([id]));
    let permission = match newcomer.or(first) {
        Some(initialize) => open_permission(observation, initialize),
        None => BootstrapPermission::default(),
    };
    BootstrapPermission {
        epochs: epochs(observation, view),
        ..permission
    }
}

/// The highest epoch that each voter was seen serving in. It moves only with an election, so an idle
/// ensemble is not written to. A member that left may come back with what it has.
fn epochs(observation: &Observation, view: &View<'_>) -> BTreeMap<ServerId, u64> {
    let mut epochs = recorded_epochs(observation);
    for member in view
        .members
        .values()
        .filter(|m| view.serving.contains(m.id))
    {
        let on_disk = member.pod.volumes.as_ref().and_then(|v| v.current_epoch);
        let seen = member.pod.server.zxid().map(|z| z >> 32).max(on_disk);
        let epoch = epochs.entry(member.id).or_default();
        *epoch = seen.unwrap_or_default().max(*epoch);
    }
    let votes = |id: &ServerId| view.live().iter().any(|voters| voters.contains(*id));
    epochs.retain(|id, epoch| *epoch > 0 && votes(id));
    epochs
}

fn recorded_epochs(observation: &Observation) -> BTreeMap<ServerId, u64> {
    let map = observation.bootstrap.as_ref();
    map.map(|b| b.epochs.clone()).unwrap_or_default()
}

/// A permission that is open for a while from now.
fn open_permission(observation: &Observation, initialize: Voters) -> BootstrapPermission {
    let left = observation
        .bootstrap
        .as_ref()
        .and_then(|b| b.until)
        .map(|u| u.duration_since(observation.now))
        .unwrap_or_default();
    let until = if left < PERMISSION / 2 {
        observation.now + PERMISSION
    } else {
        observation.now + left
    };
    BootstrapPermission {
        initialize: Some(initialize),
        until: Some(until),
        epochs: recorded_epochs(observation),
    }
}

impl Plan {
    /// A plan that changes nothing.
    fn nothing(report: Report) -> Self {
        Self {
            objects: Vec::new(),
            prune: Vec::new(),
            growth: Vec::new(),
            step: None,
            report,
            requeue: LATER,
        }
    }
}
