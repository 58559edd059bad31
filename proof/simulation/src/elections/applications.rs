//! Applications that elect: their pods, the candidates in them, and who truly leads.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_api_server::{Delete, Kind, Store, now as cluster_time, time_stamp};
use serde_json::{Value, json};

use super::tree::{Change, Tree};
use super::zookeeper::Zoo;
use crate::cluster::NAMESPACE;

/// How many candidates an application has.
pub const CANDIDATES: usize = 3;
/// How long a candidate may take to stand for election again.
const RETURN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long sessions of applications live without their process.
const TIMEOUT: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(30));

/// How an application elects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Curator's latch: the child with the lowest number leads.
    Latch,
    /// kazoo's lock: the same under other names.
    Kazoo,
    /// One node, which belongs to the leader.
    Node,
}

/// Every form.
pub const FORMS: [Form; 3] = [Form::Latch, Form::Kazoo, Form::Node];

impl Form {
    /// The name of the application and of its election.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latch => "latch",
            Self::Kazoo => "kazoo",
            Self::Node => "node",
        }
    }

    /// The path of the election.
    pub fn path(self) -> String {
        format!("/{}", self.name())
    }

    fn dialect(self) -> &'static str {
        match self {
            Self::Latch => "CuratorLatch",
            Self::Kazoo => "Kazoo",
            Self::Node => "SingleText",
        }
    }

    /// The node that makes its owner the leader, with its path.
    pub fn first(self, tree: &Tree) -> Option<String> {
        let path = self.path();
        match self {
            Self::Node => tree.node(&path).map(|_| path),
            Self::Latch | Self::Kazoo => {
                let children = tree.children(&path);
                let number = |name: &String| name.get(name.len() - 10..).map(str::to_owned);
                let first = children.into_iter().min_by_key(number)?;
                Some(format!("{path}/{first}"))
            }
        }
    }
}

/// What the process of a candidate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// It runs.
    Runs,
    /// It is stopped, as by SIGSTOP.
    Stopped,
    /// It does not run.
    Ended,
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its pod.
    pub pod: String,
    /// Counts the starts of its container.
    pub start: u32,
    /// When it started last, in milliseconds of Unix time.
    pub started: i64,
    process: Process,
    session: Option<i64>,
    node: Option<String>,
    /// When it stands for election next.
    next: Duration,
}

/// An application.
#[derive(Clone, Debug)]
pub struct Application {
    /// How it elects.
    pub form: Form,
    /// Its candidates.
    pub candidates: Vec<Candidate>,
    pods: u32,
    /// In which pod, and after how many starts of its container, each node was made, by the transaction that made it.
    makers: BTreeMap<i64, (usize, u32)>,
}

impl Application {
    /// One that elects in this way, whose pods run.
    pub fn new(form: Form, store: &mut Store, zoo: &mut Zoo) -> Self {
        if form != Form::Node {
            zoo.commit(Change::Create {
                path: form.path(),
                data: Vec::new(),
                owner: 0,
            });
        }
        let candidate = |at: usize| Candidate {
            pod: format!("{}-{at}", form.name()),
            start: 1,
            started: milliseconds(),
            process: Process::Runs,
            session: None,
            node: None,
            next: Duration::ZERO,
        };
        let mut application = Self {
            form,
            candidates: (0..CANDIDATES).map(candidate).collect(),
            pods: 0,
            makers: BTreeMap::new(),
        };
        for at in 0..CANDIDATES {
            application.create_pod(store, at);
        }
        application
    }

    /// The election, as the user applies it.
    pub fn election(&self, lease_seconds: i32) -> Value {
        let name = self.form.name();
        json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "LeaderElection",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": {
                "connection": { "connectString": "zk.example:2181" },
                "path": self.form.path(),
                "dialect": { "type": self.form.dialect() },
                "podBinding": { "selector": { "matchLabels": { "app": name } } },
                "projections": {
                    "lease": { "leaseDurationSeconds": lease_seconds },
                    "podLabels": {},
                    "service": { "ports": [{ "name": "http", "port": 80 }] },
                },
            },
        })
    }

    fn create_pod(&mut self, store: &mut Store, at: usize) {
        self.pods += 1;
        let name = self.form.name();
        let subnet = name.len() + usize::from(self.form == Form::Kazoo);
        let ip = format!("10.{subnet}.{at}.{}", self.pods);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.candidates[at].pod,
                "namespace": NAMESPACE,
                "labels": { "app": name },
            },
            "spec": {
                "nodeName": "node-1",
                "containers": [{ "name": "app", "image": "app:1" }],
            },
        });
        let _ = store.create("kubelet", Kind::POD, pod);
        self.run_container(store, at, Some(&ip));
    }

    /// The container of a pod runs since now.
    fn run_container(&self, store: &mut Store, at: usize, ip: Option<&str>) {
        self.update(store, at, |status| {
            status["phase"] = json!("Running");
            if let Some(ip) = ip {
                status["podIP"] = json!(ip);
                status["podIPs"] = json!([{ "ip": ip }]);
            }
            let since = time_stamp(0);
            status["conditions"] = json!([
                { "type": "Ready", "status": "True", "lastTransitionTime": since },
            ]);
            status["containerStatuses"] = json!([{
                "name": "app", "ready": true, "image": "app:1", "imageID": "", "restartCount": 0,
                "state": { "running": { "startedAt": since } },
            }]);
        });
    }

    fn update(&self, store: &mut Store, at: usize, change: impl FnOnce(&mut Value)) {
        let target = (NAMESPACE, &*self.candidates[at].pod);
        let _ = store.update_status("kubelet", Kind::POD, target, change);
    }

    /// The process of a candidate ends. With `in_order` it gives up its place, else its session lives on for a while.
    pub fn end(&mut self, store: &mut Store, zoo: &mut Zoo, at: usize, in_order: bool) {
        let candidate = &mut self.candidates[at];
        candidate.process = Process::Ended;
        candidate.node = None;
        let session = candidate.session.take();
        if let Some(session) = session.filter(|_| in_order) {
            zoo.close(session);
        }
        self.update(store, at, |status| {
            let since = time_stamp(0);
            status["conditions"] = json!([
                { "type": "Ready", "status": "False", "lastTransitionTime": since },
            ]);
            status["containerStatuses"][0]["ready"] = json!(false);
            status["containerStatuses"][0]["state"] = json!({
                "waiting": { "reason": "CrashLoopBackOff" },
            });
        });
    }

    /// The process of a candidate starts again, in the same pod.
    pub fn start(&mut self, store: &mut Store, now: Duration, at: usize) {
        if self.candidates[at].process == Process::Ended {
            self.begin(now, at);
            self.run_container(store, at, None);
        }
    }

    /// The pod of a candidate is deleted at once, and another one has its name.
    pub fn replace_pod(&mut self, store: &mut Store, now: Duration, at: usize) {
        let pod = self.candidates[at].pod.clone();
        let options = Delete {
            grace_period_seconds: Some(0),
            ..Delete::default()
        };
        let _ = store.delete("user", Kind::POD, (NAMESPACE, &pod), &options);
        self.begin(now, at);
        self.create_pod(store, at);
    }

    fn begin(&mut self, now: Duration, at: usize) {
        let candidate = &mut self.candidates[at];
        candidate.start += 1;
        candidate.started = milliseconds();
        candidate.process = Process::Runs;
        candidate.session = None;
        candidate.node = None;
        // A program takes a moment before it stands for election, and the times of pods are in whole seconds.
        candidate.next = now + Duration::from_secs(3);
    }

    /// The process of a candidate is stopped, or goes on.
    pub fn stop(&mut self, at: usize, stopped: bool) {
        let process = &mut self.candidates[at].process;
        match (*process, stopped) {
            (Process::Runs, true) => *process = Process::Stopped,
            (Process::Stopped, false) => *process = Process::Runs,
            _ => {}
        }
    }

    /// Which candidate made the node of this transaction, and whether its process has ended or started again since.
    pub fn maker(&self, czxid: i64) -> Option<(&Candidate, bool)> {
        let (at, start) = self.makers.get(&czxid)?;
        let candidate = &self.candidates[*at];
        let is_gone = candidate.start != *start || candidate.process == Process::Ended;
        Some((candidate, is_gone))
    }

    /// Whether a candidate's own process may have made a node: it did, or started so soon after that the times of pods, which
    /// are in whole seconds, and the operator's allowance for clocks do not tell.
    pub fn may_own(candidate: &Candidate, lead: &Lead) -> bool {
        candidate.started < lead.made + 3_000
    }

    /// Which candidate leads by its own node.
    pub fn leader(&self, zoo: &Zoo) -> Option<usize> {
        let first = self.form.first(zoo.truth())?;
        let (_, stat) = zoo.truth().node(&first)?;
        let owns = |candidate: &Candidate| candidate.session == Some(stat.ephemeral_owner);
        self.candidates.iter().position(owns)
    }

    /// The candidate that leads resigns, and stands again.
    pub fn resign(&mut self, zoo: &mut Zoo) {
        if let Some(at) = self.leader(zoo)
            && let Some(path) = self.candidates[at].node.take()
        {
            zoo.commit(Change::Delete { path });
        }
    }

    /// What the candidates do by themselves.
    pub fn step(&mut self, zoo: &mut Zoo, now: Duration) {
        if !zoo.is_up() {
            return;
        }
        for at in 0..self.candidates.len() {
            if self.candidates[at].process == Process::Runs {
                self.live(zoo, now, at);
            }
        }
    }

    fn live(&mut self, zoo: &mut Zoo, now: Duration, at: usize) {
        let form = self.form;
        let candidate = &mut self.candidates[at];
        if candidate.session.is_some_and(|session| !zoo.hear(session)) {
            candidate.session = None;
            candidate.node = None;
            candidate.next = now + zoo.between(RETURN.0, RETURN.1);
        }
        if let Some(path) = &candidate.node {
            let owner = zoo.truth().node(path).map(|(_, stat)| stat.ephemeral_owner);
            if owner.is_some() && owner == candidate.session {
                return;
            }
            candidate.node = None;
            candidate.next = now + zoo.between(RETURN.0, RETURN.1);
        }
        let taken = form == Form::Node && zoo.truth().node(&form.path()).is_some();
        if now < candidate.next || taken {
            return;
        }
        let session = match candidate.session {
            Some(session) => session,
            None => {
                let timeout = zoo.between(TIMEOUT.0, TIMEOUT.1);
                let session = zoo.open(timeout);
                candidate.session = Some(session);
                session
            }
        };
        let data = candidate.pod.clone().into_bytes();
        let path = form.path();
        let unique = format!(
            "{:032x}",
            u128::from(session.unsigned_abs()) << 32 | u128::from(candidate.start)
        );
        candidate.node = match form {
            Form::Node => {
                zoo.commit(Change::Create {
                    path: path.clone(),
                    data,
                    owner: session,
                });
                Some(path)
            }
            _ if zoo.truth().node(&path).is_none() => {
                // Whoever stands first makes the place.
                zoo.commit(Change::Create {
                    path,
                    data: Vec::new(),
                    owner: 0,
                });
                None
            }
            Form::Latch => {
                let (a, b) = (&unique[..8], &unique[8..12]);
                let (c, d, e) = (&unique[12..16], &unique[16..20], &unique[20..]);
                let name = format!("{path}/_c_{a}-{b}-{c}-{d}-{e}-latch-");
                Some(zoo.create_sequential(&name, data, session))
            }
            Form::Kazoo => {
                let name = format!("{path}/{unique}__lock__");
                Some(zoo.create_sequential(&name, data, session))
            }
        };
        let made = candidate
            .node
            .as_ref()
            .and_then(|path| zoo.truth().node(path));
        if let Some((_, stat)) = made {
            self.makers.insert(stat.czxid, (at, candidate.start));
        }
    }
}

/// A leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// What the leader is called.
    pub identity: String,
    /// The name of its node.
    pub node: String,
    /// The transaction that made its node.
    pub czxid: i64,
    /// When that was, in milliseconds of Unix time.
    pub made: i64,
}

/// Who led when.
#[derive(Clone, Debug)]
pub struct Term {
    /// Since when.
    pub from: Duration,
    /// The leader; `None` if nobody leads.
    pub lead: Option<Lead>,
}

/// What truly happened in one election.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    terms: Vec<Term>,
}

impl Truth {
    /// Notes who leads. Returns whether the leader changed.
    pub fn look(&mut self, form: Form, tree: &Tree, now: Duration) -> bool {
        let lead = form.first(tree).and_then(|path| {
            let (data, stat) = tree.node(&path)?;
            Some(Lead {
                identity: String::from_utf8_lossy(data).into_owned(),
                node: path.rsplit('/').next().unwrap_or_default().to_owned(),
                czxid: stat.czxid,
                made: stat.ctime,
            })
        });
        if self.terms.last().is_some_and(|term| term.lead == lead) {
            return false;
        }
        self.terms.push(Term { from: now, lead });
        true
    }

    /// Who leads now.
    pub fn now(&self) -> Option<&Lead> {
        self.terms.last()?.lead.as_ref()
    }

    /// Since when that is so.
    pub fn since(&self) -> Duration {
        self.terms.last().map_or(Duration::ZERO, |term| term.from)
    }

    /// Whether this leader led at some moment between these.
    pub fn led_between(&self, from: Duration, to: Duration, is: impl Fn(&Lead) -> bool) -> bool {
        let ends = self.terms.iter().skip(1).map(|term| term.from);
        let ends = ends.chain([Duration::MAX]);
        let terms = self.terms.iter().zip(ends);
        let mut within = terms.filter(|(term, end)| term.from <= to && *end >= from);
        within.any(|(term, _)| term.lead.as_ref().is_some_and(&is))
    }
}

/// The time of the cluster, in milliseconds of Unix time.
pub fn milliseconds() -> i64 {
    cluster_time().as_millisecond()
}
