//! The operator in the abstract world: the real `plan`, fed with an observation of the state, and
//! what its executor would write.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use bellwether_api::ensemble::{Config, MemberRole};
use bellwether_api::labels;
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
use bellwether_ensemble::desired::claims::ClaimSizes;
use bellwether_ensemble::desired::stateful_set::{INITIALIZE, inputs_hash};
use bellwether_ensemble::desired::{ObjectKind, Write, bootstrap_config_map, config};
use bellwether_ensemble::observation::{
    BootstrapPermission, Observation, PodObservation, PodState, Revision, ServerReport,
    StatefulSetObservation,
};
use bellwether_ensemble::plan::{Plan, Step, plan_under};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::{Context, ValidEnsemble, validate};
use bellwether_ensemble::volume_report::{Usage, VolumeReport};
use bellwether_ensemble::{ServerId, Voters};
use jiff::{SignedDuration, Timestamp};

use crate::state::{
    Disk, Expectation, MAX, Pass, Pod, Process, Set, State, Template, bit, members, number,
};

/// Longer than the planner waits for anything.
const LONG: SignedDuration = SignedDuration::from_hours(1);

/// All that the planner can see of a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sight {
    wanted: u8,
    content: u8,
    set: Set,
    permit: u8,
    pods: Vec<(u8, Pod)>,
    /// The members that say that their disks are empty.
    empty: u8,
}

/// The operator: the real planner under some rules.
pub struct Operator {
    rules: Rules,
    ensembles: HashMap<(u8, u8), ValidEnsemble>,
    /// What the templates are rendered to, each once.
    revisions: Mutex<HashMap<Template, Revision>>,
    /// A plan depends on nothing but what is seen, so each is made once.
    plans: Mutex<HashMap<Sight, Option<Pass>>>,
}

fn voters(list: u8) -> Voters {
    Voters::first(list.into(), 0)
}

fn initialize(id: u8) -> Option<ServerId> {
    (id > 0).then(|| ServerId(id.into()))
}

fn ensemble(size: u8, content: u8) -> Result<ValidEnsemble, String> {
    let spec = ZooKeeperEnsembleSpec {
        replicas: size.into(),
        config: Some(Config {
            snap_count: Some(1000 + i32::from(content)),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
    ensemble.metadata.namespace = Some("default".to_owned());
    let context = Context {
        member_image: "bellwether:1".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        version: "1".to_owned(),
    };
    validate(&ensemble, &context).map_err(|e| format!("{e:?}"))
}

impl Operator {
    /// An operator that plans under these rules.
    ///
    /// # Errors
    /// If the ensembles of the model are no longer valid.
    pub fn new(rules: Rules) -> Result<Self, String> {
        let mut ensembles = HashMap::new();
        for size in [1, 3, 5, 7] {
            for content in [0, 1] {
                ensembles.insert((size, content), ensemble(size, content)?);
            }
        }
        Ok(Self {
            rules,
            ensembles,
            revisions: Mutex::new(HashMap::new()),
            plans: Mutex::new(HashMap::new()),
        })
    }

    /// What an operator that reads the state now is about to do; `None` if nothing.
    pub fn read(&self, state: &State) -> Option<Pass> {
        let pods = state.pods.iter().enumerate();
        let sight = Sight {
            wanted: state.wanted,
            content: state.content,
            set: state.set,
            permit: state.permit,
            pods: pods
                .filter_map(|(o, p)| Some((u8::try_from(o).ok()?, (*p)?)))
                .collect(),
            empty: (0..MAX)
                .filter(|o| state.disks[*o] == Disk::Empty && state.pods[*o].is_some_and(tells))
                .map(bit)
                .fold(0, |a, b| a | b),
        };
        let known = |plans: &Mutex<HashMap<_, _>>| {
            let plans = plans.lock().unwrap_or_else(|e| e.into_inner());
            plans.get(&sight).copied()
        };
        if let Some(pass) = known(&self.plans) {
            return pass;
        }
        let pass = self.decide(&sight);
        let mut plans = self.plans.lock().unwrap_or_else(|e| e.into_inner());
        plans.insert(sight, pass);
        pass
    }

    fn decide(&self, sight: &Sight) -> Option<Pass> {
        let ensemble = self.ensembles.get(&(sight.wanted, sight.content))?;
        let plan = plan_under(self.rules, ensemble, &self.observe(sight)?);
        let (permit, set) = written(&plan, sight);
        if set != sight.set || permit != sight.permit {
            return Some(Pass::Write {
                permit,
                set,
                fresh: true,
            });
        }
        plan.step
            .map(|Step::RestartMember { id, expect, .. }| Pass::Restart {
                ordinal: u8::try_from(id.0 - 1).unwrap_or(u8::MAX),
                expect: Expectation::from(expect),
                fresh: true,
            })
    }

    fn revision(&self, template: Template) -> Option<Revision> {
        let ensemble = self.ensembles.get(&(1, template.content))?;
        let mut known = self.revisions.lock().unwrap_or_else(|e| e.into_inner());
        let revision = known.entry(template).or_insert_with(|| {
            let newcomer = initialize(template.initialize);
            config::render(ensemble, &voters(template.list), newcomer).revision
        });
        Some(revision.clone())
    }

    fn observe(&self, sight: &Sight) -> Option<Observation> {
        let revision = self.revision(sight.set.template)?;
        let ensemble = self.ensembles.get(&(1, sight.set.template.content))?;
        let set = StatefulSetObservation {
            replicas: sight.set.replicas.into(),
            update_revision: Some(format!("{:?}", sight.set.template)),
            inputs_hash: Some(inputs_hash(
                ensemble,
                &revision,
                ClaimSizes::wanted(ensemble),
            )),
            rendered_by: Some("1".to_owned()),
            template: Some(revision),
            claim_size: Some(ensemble.storage_size.clone()),
            log_claim_size: None,
            restart: None,
            terminating: false,
        };
        let pods = sight.pods.iter().map(|(ordinal, pod)| {
            Some(PodObservation {
                name: format!("zk-{ordinal}"),
                ordinal: (*ordinal).into(),
                uid: "uid".to_owned(),
                resource_version: "1".to_owned(),
                revision: Some(self.revision(pod.template)?),
                controller_revision: Some(format!("{:?}", pod.template)),
                terminating: pod.terminating,
                state: match pod.process {
                    Process::Created => PodState::Starting,
                    _ => PodState::Running,
                },
                ready: !pod.cut_off
                    && matches!(
                        pod.process,
                        Process::Serving { .. } | Process::Looking { long: false }
                    ),
                // Who has been looking for long, or cannot be asked, has been so for very long.
                unready_since: match pod.process {
                    Process::Looking { long: true } => Some(Timestamp::UNIX_EPOCH - LONG),
                    _ if pod.cut_off => Some(Timestamp::UNIX_EPOCH - LONG),
                    _ => None,
                },
                created: Timestamp::UNIX_EPOCH,
                node: None,
                server: report(*ordinal, pod),
                volumes: tells(*pod).then(|| volumes(sight.empty & bit((*ordinal).into()) == 0)),
            })
        });
        Some(Observation {
            now: Timestamp::UNIX_EPOCH,
            stateful_set: Some(set),
            pods: pods.collect::<Option<Vec<_>>>()?,
            bootstrap: Some(BootstrapPermission {
                initialize: initialize(sight.permit).map(|id| Voters::from_iter([id])),
                until: Some(Timestamp::UNIX_EPOCH + SignedDuration::from_mins(10)),
                // Nothing that is planned depends on them; they make a pod refuse an old copy of its
                // volume, which this world does not have.
                epochs: BTreeMap::new(),
                // Nobody accepts a loss here: no write is lost as long as nobody says so.
                acceptance: None,
            }),
            ..Default::default()
        })
    }
}

/// Whether the member says what is on its volume.
fn tells(pod: Pod) -> bool {
    !pod.cut_off && !matches!(pod.process, Process::Created | Process::Crashed)
}

fn volumes(has_database: bool) -> VolumeReport {
    VolumeReport {
        has_database,
        current_epoch: None,
        accepted_epoch: None,
        data: Usage {
            total: 8 << 30,
            free: 7 << 30,
        },
        transaction_log: None,
    }
}

fn report(ordinal: u8, pod: &Pod) -> ServerReport {
    match pod.process {
        _ if pod.cut_off => ServerReport::Unreachable("its node is cut off".to_owned()),
        Process::Created | Process::Crashed => ServerReport::Unreachable("it is down".to_owned()),
        Process::Looking { .. } => ServerReport::Looking,
        Process::Serving { leader } => ServerReport::Serving {
            role: if leader == ordinal {
                MemberRole::Leader
            } else if members(pod.template.list) & bit(ordinal.into()) == 0 {
                MemberRole::Observer
            } else {
                MemberRole::Follower
            },
            zxid: 0,
            voters: voters(pod.template.list),
        },
    }
}

/// The permission and the StatefulSet as the plan writes them.
fn written(plan: &Plan, sight: &Sight) -> (u8, Set) {
    let (mut permit, mut set) = (sight.permit, sight.set);
    for object in &plan.objects {
        if object.name == bootstrap_config_map("zk") {
            let id = object.body["data"]["initialize"].as_str();
            permit = id.and_then(|id| id.parse().ok()).unwrap_or(0);
        }
        if object.kind != ObjectKind::StatefulSet {
            continue;
        }
        let spec = &object.body["spec"];
        if let Some(replicas) = spec["replicas"].as_u64() {
            set.replicas = u8::try_from(replicas).unwrap_or(u8::MAX);
        }
        if object.write == Write::Apply {
            let notes = &spec["template"]["metadata"]["annotations"];
            let list: Option<Voters> = notes[labels::VOTERS].as_str().and_then(|v| v.parse().ok());
            let initialize = notes[INITIALIZE].as_str().and_then(|id| id.parse().ok());
            set.template = Template {
                list: list.map_or(0, |l| number(l.len())),
                initialize: initialize.unwrap_or(0),
                content: sight.content,
            };
        }
    }
    (permit, set)
}
