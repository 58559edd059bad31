//! The operator in the abstract world: the real `plan`, fed with an observation of the state, and
//! what its executor would write.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Mutex;

use bellwether_api::ensemble::{ClientsTls, Config, MemberRole, ServersTls, Tls};
use bellwether_api::labels;
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
use bellwether_ensemble::desired::claims::ClaimSizes;
use bellwether_ensemble::desired::stateful_set::{INITIALIZE, inputs_hash};
use bellwether_ensemble::desired::{
    DesiredObject, ObjectKind, Write, bootstrap_config_map, config,
};
use bellwether_ensemble::encryption::Encryption;
use bellwether_ensemble::execute::{self, execute};
use bellwether_ensemble::observation::{
    BootstrapPermission, Observation, PodObservation, PodState, Revision, ServerReport,
    StatefulSetObservation,
};
use bellwether_ensemble::plan::facts::Facts;
use bellwether_ensemble::plan::{Step, Unwanted, plan_under};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::{Context, ValidEnsemble, validate};
use bellwether_ensemble::volume_report::{Usage, VolumeReport};
use bellwether_ensemble::{ServerId, Voters};
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

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
    /// The members that report empty disks.
    empty: u8,
}

/// The operator: the real planner under some rules.
pub struct Operator {
    rules: Rules,
    ensembles: HashMap<(u8, u8), ValidEnsemble>,
    /// What the templates are rendered to, each once.
    revisions: Mutex<HashMap<Template, Revision>>,
    /// A plan depends only on the sight, so each plan is made once.
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
        // The order of the states of TLS concerns no safety rule, and is proven beside it.
        tls: Some(Tls {
            servers: Some(ServersTls::Disabled),
            clients: Some(ClientsTls::Disabled),
            ..Tls::default()
        }),
        ..Default::default()
    };
    let mut ensemble = ZooKeeperEnsemble::new("zk", spec);
    ensemble.metadata.namespace = Some("default".to_owned());
    let context = Context {
        member_image: "bellwether:1".to_owned(),
        version: "1".to_owned(),
        ..Context::default()
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
        let mut pass = Execution {
            facts: plan.facts.clone(),
            sight,
            permit: sight.permit,
            set: sight.set,
            live: live(sight),
            restart: None,
        };
        // Nothing is waited for here, so the execution is over when it is polled once.
        let _ = execute(&mut pass, "zk", &plan).now_or_never();
        if pass.set != sight.set || pass.permit != sight.permit {
            return Some(Pass::Write {
                permit: pass.permit,
                set: pass.set,
                fresh: true,
            });
        }
        pass.restart
    }

    fn revision(&self, template: Template) -> Option<Revision> {
        let ensemble = self.ensembles.get(&(1, template.content))?;
        let mut known = self.revisions.lock().unwrap_or_else(|e| e.into_inner());
        let revision = known.entry(template).or_insert_with(|| {
            let newcomer = initialize(template.initialize);
            config::render(ensemble, &voters(template.list), newcomer, Encryption::NONE).revision
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
            edited: None,
            left_over: None,
            client_port_secret: None,
            template: Some(revision),
            template_hash: None,
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
                template_hash: None,
                controller: None,
                silent_since: None,
                terminating: pod.terminating,
                failing_container: None,
                state: match pod.process {
                    Process::Created => PodState::Starting,
                    _ => PodState::Running,
                },
                ready: !pod.cut_off
                    && matches!(
                        pod.process,
                        Process::Serving { .. } | Process::Looking { long: false }
                    ),
                // A server that has been looking for long, or that is cut off, has been unready for very long.
                unready_since: match pod.process {
                    Process::Looking { long: true } => Some(Timestamp::UNIX_EPOCH - LONG),
                    _ if pod.cut_off => Some(Timestamp::UNIX_EPOCH - LONG),
                    _ => None,
                },
                created: Timestamp::UNIX_EPOCH,
                node: None,
                server: report(*ordinal, pod),
                presents: None,
                credentials: Default::default(),
                client_authority: None,
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
                // No person accepts a loss here: without an acceptance, no write may be lost.
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
        stored_list: None,
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
            observers: Default::default(),
            version: 0,
        },
    }
}

/// One pass of the executor: what it writes and whom it restarts, if nothing happens in between.
struct Execution<'a> {
    facts: Facts,
    sight: &'a Sight,
    permit: u8,
    set: Set,
    live: Value,
    restart: Option<Pass>,
}

/// The StatefulSet as far as the executor compares it: no hash of what was applied last, so it is always
/// written, and its resource version moves with what the model keeps of it.
fn live(sight: &Sight) -> Value {
    json!({ "metadata": { "resourceVersion": version(sight.set) } })
}

fn version(set: Set) -> String {
    format!("{set:?}")
}

impl execute::World for Execution<'_> {
    type Error = Infallible;

    fn may_act(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn live(&self, _: ObjectKind, _: &str) -> Option<&Value> {
        Some(&self.live)
    }

    async fn write(&mut self, object: &DesiredObject) -> Result<Option<String>, Infallible> {
        let body = &object.body;
        if object.name == bootstrap_config_map("zk") {
            let id = body["data"]["initialize"].as_str();
            self.permit = id.and_then(|id| id.parse().ok()).unwrap_or(0);
        }
        if object.kind == ObjectKind::StatefulSet {
            let replicas = body["spec"]["replicas"].as_u64();
            if let Some(replicas) = replicas {
                self.set.replicas = u8::try_from(replicas).unwrap_or(u8::MAX);
            }
            if object.write == Write::Apply {
                let notes = &body["spec"]["template"]["metadata"]["annotations"];
                let list = notes[labels::VOTERS].as_str();
                let list: Option<Voters> = list.and_then(|v| v.parse().ok());
                let initialize = notes[INITIALIZE].as_str().and_then(|id| id.parse().ok());
                self.set.template = Template {
                    list: list.map_or(0, |l| number(l.len())),
                    initialize: initialize.unwrap_or(0),
                    content: self.sight.content,
                };
            }
        }
        Ok(Some(version(self.set)))
    }

    async fn facts(&mut self) -> Result<Option<Facts>, Infallible> {
        Ok(Some(self.facts.clone()))
    }

    async fn take(&mut self, step: &Step) -> Result<bool, Infallible> {
        let Step::RestartMember { id, expect, .. } = step else {
            // There are no claims in this world.
            return Ok(false);
        };
        self.restart = Some(Pass::Restart {
            ordinal: u8::try_from(id.0 - 1).unwrap_or(u8::MAX),
            expect: Expectation::from(*expect),
            fresh: true,
        });
        Ok(true)
    }

    fn declined(&mut self, _: &Step, _: &str) {}

    async fn prune(&mut self, _: &Unwanted) -> Result<(), Infallible> {
        Ok(())
    }
}
