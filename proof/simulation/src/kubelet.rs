//! The kubelets and the scheduler: pods get nodes, containers start, fail, answer probes and end.

mod prepare;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bellwether_api_server::{Delete, Kind, Object, Store};
use bellwether_ensemble::desired::stateful_set::CONTAINER;
use serde_json::Value;

use crate::zookeeper::{DiskId, Phase, ProcessId, Zoo};
use status::{other_containers, write_status};

/// Who writes what the kubelets write.
const ACTOR: &str = "kubelet";
/// How often the readiness probe runs, and how often it may fail, as in the pod template.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
const PROBE_FAILURES: u32 = 3;
/// After how long the control plane notices that a node is lost.
const NODE_GRACE: Duration = Duration::from_secs(40);
/// The first pause before a container that ended starts again; it doubles up to the last.
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// What a container of a pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The volume is attached and the image is pulled until then.
    Creating(Duration),
    /// A container ended or its image is missing; it is tried again then.
    Waiting {
        until: Duration,
        reason: &'static str,
        message: String,
        init: bool,
    },
    /// The server's process was started.
    Running(ProcessId),
    /// The server was asked to end, and ends at this time.
    Ending(Duration),
}

/// What runs of one pod.
#[derive(Clone, Debug)]
struct Sandbox {
    namespace: String,
    name: String,
    node: usize,
    address: IpAddr,
    claims: Vec<String>,
    /// The containers beside the server's.
    others: Vec<String>,
    stage: Stage,
    /// When the kubelet notices that the pod is to end; the server serves until then.
    notices: Option<Duration>,
    process: Option<ProcessId>,
    ends: u32,
    ready: bool,
    failures: u32,
    next_probe: Duration,
    /// What was written to the pod's status last, and what that was made from.
    written: Value,
    shown: Option<(Stage, bool, bool)>,
}

/// A machine of the cluster.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Since when it cannot be reached.
    lost: Option<Duration>,
}

/// Every kubelet of the cluster, and the scheduler.
#[derive(Debug)]
pub struct Kubelets {
    nodes: Vec<Node>,
    /// By pod uid.
    sandboxes: BTreeMap<String, Sandbox>,
    /// By claim uid.
    disks: BTreeMap<String, DiskId>,
    /// Pods, by uid, in which a container beside the server's does not run.
    beside: BTreeSet<String>,
    addresses: u32,
    /// The revision of the claims that was looked at last.
    claims_seen: Option<u64>,
    rng: fastrand::Rng,
}

fn name_of(node: usize) -> String {
    format!("node-{node}")
}

impl Kubelets {
    /// This many nodes without pods.
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self {
            nodes: vec![Node::default(); nodes],
            sandboxes: BTreeMap::new(),
            disks: BTreeMap::new(),
            beside: BTreeSet::new(),
            addresses: 0,
            claims_seen: None,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// The server's process behind a pod's address.
    pub fn process_at(&self, address: IpAddr) -> Option<ProcessId> {
        let at = self.sandboxes.values().find(|s| s.address == address)?;
        at.process.filter(|_| self.nodes[at.node].lost.is_none())
    }

    /// Whether the member program of the pod with this address answers: its pod runs on a node that can
    /// be reached.
    pub fn volumes_at(&self, address: IpAddr) -> Option<(DiskId, Option<DiskId>)> {
        let at = self.sandboxes.values().find(|s| s.address == address)?;
        if self.nodes[at.node].lost.is_some()
            || !matches!(
                at.stage,
                Stage::Running(_) | Stage::Waiting { init: false, .. }
            )
        {
            return None;
        }
        let disk = |claim: &String| self.disks.get(claim).copied();
        Some((
            at.claims.first().and_then(disk)?,
            at.claims.get(1).and_then(disk),
        ))
    }

    /// The server's process of the pod with this uid.
    pub fn process_of(&self, uid: &str) -> Option<ProcessId> {
        self.sandboxes.get(uid)?.process
    }

    /// The processes of every pod of this name, also of one that was deleted and runs on.
    pub fn processes_named(&self, name: &str) -> Vec<ProcessId> {
        let named = self.sandboxes.values().filter(|s| s.name == name);
        named.filter_map(|s| s.process).collect()
    }

    /// Every server process in this namespace that its clients can reach.
    pub fn processes(&self) -> Vec<ProcessId> {
        let reachable = self.sandboxes.values();
        let reachable = reachable.filter(|s| self.nodes[s.node].lost.is_none());
        reachable.filter_map(|s| s.process).collect()
    }

    /// The node of a pod, by the pod's name.
    pub fn node_of(&self, name: &str) -> Option<usize> {
        let named = self.sandboxes.values().find(|s| s.name == name)?;
        Some(named.node)
    }

    /// Whether a node is lost now.
    pub fn has_lost_node(&self) -> bool {
        self.nodes.iter().any(|node| node.lost.is_some())
    }

    /// Takes a node off the network: nothing reaches it, and its processes keep running.
    pub fn lose_node(&mut self, now: Duration, zoo: &mut Zoo, node: usize) {
        self.nodes[node].lost.get_or_insert(now);
        for sandbox in self.sandboxes.values().filter(|s| s.node == node) {
            if let Some(process) = sandbox.process {
                zoo.isolate(now, process);
            }
        }
    }

    /// The node is back.
    pub fn regain_node(&mut self, now: Duration, zoo: &mut Zoo, node: usize) {
        self.nodes[node].lost = None;
        for sandbox in self.sandboxes.values_mut().filter(|s| s.node == node) {
            if let Some(process) = sandbox.process {
                zoo.join(now, process);
            }
            sandbox.written = Value::Null;
            sandbox.shown = None;
        }
    }

    /// A container beside the server's does not run any more in this pod.
    pub fn fail_beside(&mut self, uid: &str) {
        self.beside.insert(uid.to_owned());
    }

    /// The process of a pod's container ends at once, as when it runs out of memory.
    pub fn kill(&mut self, now: Duration, zoo: &mut Zoo, name: &str) {
        for process in self.processes_named(name) {
            zoo.kill(now, process);
        }
    }

    /// Everything that is due.
    pub fn step(&mut self, now: Duration, store: &mut Store, zoo: &mut Zoo) {
        zoo.advance(now);
        let pods: Vec<_> = store.list(Kind::POD, None).cloned().collect();
        self.end_orphans(now, zoo, &pods);
        for pod in pods {
            if !self.sandboxes.contains_key(pod.uid()) && !pod.is_terminating() {
                self.schedule(now, store, &pod);
            }
            if self.sandboxes.contains_key(pod.uid()) {
                self.look_after(now, store, zoo, &pod);
            } else if pod.is_terminating() {
                // It never ran anywhere.
                let _ = store.delete(
                    ACTOR,
                    Kind::POD,
                    (pod.namespace(), pod.name()),
                    &Delete::now(pod.uid()),
                );
            }
        }
    }

    /// A process whose pod does not exist any more ends, once its kubelet hears of that.
    fn end_orphans(&mut self, now: Duration, zoo: &mut Zoo, pods: &[std::sync::Arc<Object>]) {
        let nodes = &self.nodes;
        self.sandboxes.retain(|uid, sandbox| {
            if nodes[sandbox.node].lost.is_some() || pods.iter().any(|p| p.uid() == uid) {
                return true;
            }
            if let Some(process) = sandbox.process {
                zoo.kill(now, process);
            }
            false
        });
    }

    fn schedule(&mut self, now: Duration, store: &mut Store, pod: &Object) {
        let up = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, n)| n.lost.is_none());
        let load = |node: usize| self.sandboxes.values().filter(|s| s.node == node).count();
        let Some(node) = up.map(|(i, _)| i).min_by_key(|i| (load(*i), *i)) else {
            return;
        };
        let Some(claims) = claims_of(store, pod) else {
            return;
        };
        // A volume is attached to one node at a time.
        if self
            .sandboxes
            .values()
            .any(|s| s.claims.iter().any(|c| claims.contains(c)))
        {
            return;
        }
        self.addresses += 1;
        let [_, _, high, low] = self.addresses.to_be_bytes();
        let sandbox = Sandbox {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            node,
            address: IpAddr::V4(Ipv4Addr::new(10, 0, high, low)),
            claims,
            others: other_containers(pod),
            stage: Stage::Creating(now + Duration::from_millis(self.rng.u64(300..2500))),
            notices: None,
            process: None,
            ends: 0,
            ready: false,
            failures: 0,
            next_probe: now,
            written: Value::Null,
            shown: None,
        };
        self.sandboxes.insert(pod.uid().to_owned(), sandbox);
        let at = (pod.namespace(), pod.name());
        // It may be gone by now.
        let _ = store.bind("scheduler", at, &name_of(node));
    }

    fn look_after(&mut self, now: Duration, store: &mut Store, zoo: &mut Zoo, pod: &Object) {
        let Some(mut sandbox) = self.sandboxes.remove(pod.uid()) else {
            return;
        };
        match self.nodes[sandbox.node].lost {
            Some(since) if now >= since + NODE_GRACE => {
                sandbox.ready = false;
                write_status(store, &mut sandbox, true, false);
            }
            Some(_) => {}
            None => {
                if pod.is_terminating() {
                    if self.end(now, zoo, &mut sandbox) {
                        let target = (pod.namespace(), pod.name());
                        let _ = store.delete(ACTOR, Kind::POD, target, &Delete::now(pod.uid()));
                        return;
                    }
                } else {
                    self.run(now, store, zoo, &mut sandbox, pod);
                }
                let beside = self.beside.contains(pod.uid());
                write_status(store, &mut sandbox, false, beside);
            }
        }
        self.sandboxes.insert(pod.uid().to_owned(), sandbox);
    }

    /// Ends the server; whether it has ended.
    fn end(&mut self, now: Duration, zoo: &mut Zoo, sandbox: &mut Sandbox) -> bool {
        if let Stage::Ending(at) = sandbox.stage {
            return now >= at;
        }
        let late = Duration::from_millis(self.rng.u64(0..400));
        if now < *sandbox.notices.get_or_insert(now + late) {
            return false;
        }
        if let Some(process) = sandbox.process.take() {
            let host = zoo.start_of(process).host.clone();
            zoo.kill(now, process);
            let late = Duration::from_millis(self.rng.u64(0..1500));
            zoo.resolve(&host, None, now + late);
        }
        sandbox.ready = false;
        sandbox.stage = Stage::Ending(now + Duration::from_millis(self.rng.u64(50..1500)));
        false
    }

    fn run(
        &mut self,
        now: Duration,
        store: &Store,
        zoo: &mut Zoo,
        sandbox: &mut Sandbox,
        pod: &Object,
    ) {
        match sandbox.stage.clone() {
            Stage::Creating(at) if now >= at => self.begin(now, store, zoo, sandbox, pod),
            Stage::Waiting { until, .. } if now >= until => {
                self.begin(now, store, zoo, sandbox, pod)
            }
            Stage::Running(process) => {
                if zoo.phase(process) == Phase::Down {
                    let why = zoo
                        .exit_message(process)
                        .unwrap_or("the process was killed");
                    let message = why.to_owned();
                    self.fail(now, sandbox, "CrashLoopBackOff", message, false);
                } else if now >= sandbox.next_probe {
                    probe(now, zoo, sandbox, process);
                }
            }
            _ => {}
        }
    }

    fn fail(
        &mut self,
        now: Duration,
        sandbox: &mut Sandbox,
        reason: &'static str,
        message: String,
        init: bool,
    ) {
        sandbox.process = None;
        sandbox.ready = false;
        sandbox.ends += 1;
        let pause = (BACK_OFF * 2_u32.pow(sandbox.ends.min(6) - 1)).min(LONGEST_BACK_OFF);
        // The first time a container starts again at once.
        let pause = if sandbox.ends == 1 {
            Duration::from_secs(1)
        } else {
            pause
        };
        sandbox.stage = Stage::Waiting {
            until: now + pause,
            reason,
            message,
            init,
        };
    }

    /// Starts the containers: the member program first, then the server.
    fn begin(
        &mut self,
        now: Duration,
        store: &Store,
        zoo: &mut Zoo,
        sandbox: &mut Sandbox,
        pod: &Object,
    ) {
        let containers = pod["spec"]["containers"].as_array();
        let server = containers
            .into_iter()
            .flatten()
            .find(|c| c["name"] == CONTAINER);
        let image = server.and_then(|c| c["image"].as_str()).unwrap_or_default();
        if image.contains("missing") {
            let message = format!("Back-off pulling image \"{image}\"");
            self.fail(now, sandbox, "ImagePullBackOff", message, false);
            return;
        }
        match self.prepared(store, zoo, sandbox, pod) {
            Ok(start) => {
                let host = start.host.clone();
                let process = zoo.start(now, start);
                let late = Duration::from_millis(self.rng.u64(10..2000));
                zoo.resolve(&host, Some(process), now + late);
                sandbox.process = Some(process);
                sandbox.stage = Stage::Running(process);
                sandbox.failures = 0;
                sandbox.next_probe = now + PROBE_PERIOD;
            }
            Err(message) => self.fail(now, sandbox, "CrashLoopBackOff", message, true),
        }
    }

    /// Deletes the data of volumes whose claims were deleted.
    pub fn forget_claims(&mut self, store: &Store) {
        let seen = Some(store.changed(Kind::CLAIM));
        if self.claims_seen == seen {
            return;
        }
        self.claims_seen = seen;
        let claims: Vec<&str> = store.list(Kind::CLAIM, None).map(|c| c.uid()).collect();
        self.disks.retain(|uid, _| claims.contains(&uid.as_str()));
    }
}

fn probe(now: Duration, zoo: &Zoo, sandbox: &mut Sandbox, process: ProcessId) {
    sandbox.next_probe = now + PROBE_PERIOD;
    let answer = zoo.answer(process, "srvr");
    let serves = answer.is_some_and(|text| text.contains("Mode:"));
    sandbox.failures = if serves { 0 } else { sandbox.failures + 1 };
    sandbox.ready = serves || sandbox.ready && sandbox.failures < PROBE_FAILURES;
    if serves {
        sandbox.ends = 0;
    }
}

/// The uids of the pod's claims, data first; `None` while one does not exist or is not bound.
fn claims_of(store: &Store, pod: &Object) -> Option<Vec<String>> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = volumes
        .filter_map(|v| v["persistentVolumeClaim"]["claimName"].as_str())
        .collect();
    // `data-...` comes before `datalog-...`.
    names.sort_by_key(|name| name.starts_with("datalog-"));
    let claim = |name: &&str| store.get(Kind::CLAIM, pod.namespace(), name);
    let bound = |claim: &std::sync::Arc<Object>| claim["status"]["phase"] == "Bound";
    let uid = |name: &str| {
        claim(&name)
            .filter(|c| bound(c))
            .map(|c| c.uid().to_owned())
    };
    names.into_iter().map(uid).collect()
}
