//! One life of elections.

mod acting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::{Guards, HostPattern, Permissions};
use bellwether_api_server::{Kind, Write, now as cluster_time};
use bellwether_ensemble::rules::Rules;
use jiff::Timestamp;
use tokio::time::sleep;

use self::acting::Later;
use super::acts::{Act, Application as Change, choose};
use super::applications::{Application, FORMS, Truth};
use super::judge::{Judge, Scene};
use super::session::{DEFECT, Reach};
use super::zookeeper::Servers;
use crate::cluster::{Cluster, NAMESPACE};
use crate::life::{Options, Story};
use crate::operator::{Process, Start};
use crate::requests::{Requests, Trouble};

/// How often the world moves on.
const TICK: Duration = Duration::from_millis(50);
/// How often it is looked at what is shown.
const GLANCE: Duration = Duration::from_millis(500);
/// How long elections and pods have to be seen for the first time.
const BEGINNING: Duration = Duration::from_secs(60);
/// How long the operator may take after something that went wrong: it waits before it tries again, a lease has to run out, and
/// what an ACL hid is looked at again.
const RECOVERY: Duration = Duration::from_secs(90);
/// How often leaders change in the end, while nothing goes wrong.
const CHANGES: usize = 4;

struct Life {
    cluster: Cluster,
    servers: Servers,
    trouble: Arc<Mutex<Trouble>>,
    begin: Timestamp,
    guards: Guards,
    operators: Vec<Process>,
    started: usize,
    applications: Vec<Application>,
    truths: Vec<Truth>,
    judges: Vec<Judge>,
    /// When the pods of each application last changed.
    pods_since: Vec<Duration>,
    /// When what went wrong last is made good.
    well_since: Duration,
    api_well_since: Duration,
    /// When it is looked next at what is shown.
    next_glance: Duration,
    later: Vec<(Duration, Later)>,
    stopped: Vec<String>,
    story: Story,
}

/// Lives through one life of elections.
pub async fn live(options: &Options) -> Story {
    forgive_wanted_panics();
    let mut rng = fastrand::Rng::with_seed(options.seed ^ 0xe1ec);
    let acts = choose(&mut rng);
    let mut life = Life::new(options, &mut rng);
    life.story.acts = acts.len();
    life.go_on(BEGINNING).await;
    for (number, (pause, act)) in acts.into_iter().enumerate() {
        life.go_on(pause).await;
        if !life.story.violations.is_empty() {
            break;
        }
        if !options.without.contains(&number) {
            life.tell(&format!("ACT {number} {act:?}"));
            life.count(format!("act {}", act.name()));
            life.act(&act, &mut rng);
        }
    }
    life.end(&mut rng).await;
    life.finish()
}

/// Panics of the client library that the life asks for are not printed.
fn forgive_wanted_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some(DEFECT) {
            usual(panic);
        }
    }));
}

impl Life {
    fn new(options: &Options, rng: &mut fastrand::Rng) -> Self {
        let seed = options.seed;
        let cluster = Cluster::new(seed, 2);
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        let stops = cluster.api.stops().clone();
        let requests = Requests::new(seed ^ 5, trouble.clone(), stops);
        cluster.api.set_faults(requests);
        let servers = Servers::new(seed ^ 7);
        let applications: Vec<Application> = {
            let (mut store, mut zoo) = (cluster.api.store(), servers.lock());
            let new = |form| Application::new(form, &mut store, &mut zoo);
            FORMS.into_iter().map(new).collect()
        };
        let mut life = Self {
            cluster,
            servers,
            trouble,
            begin: cluster_time(),
            guards: options.guards,
            operators: Vec::new(),
            started: 0,
            truths: applications.iter().map(|_| Truth::default()).collect(),
            judges: applications.iter().map(|_| Judge::default()).collect(),
            pods_since: applications.iter().map(|_| Duration::ZERO).collect(),
            applications,
            well_since: BEGINNING,
            api_well_since: BEGINNING,
            next_glance: Duration::ZERO,
            later: Vec::new(),
            stopped: Vec::new(),
            story: Story {
                seed,
                ..Story::default()
            },
        };
        let replicas = if rng.bool() { 2 } else { 1 };
        for _ in 0..replicas {
            life.start_operator();
        }
        for application in &life.applications {
            let lease = [5, 15, 15, 40][rng.usize(0..4)];
            let election = application.election(lease);
            let target = (NAMESPACE, application.form.name());
            let mut store = life.cluster.api.store();
            let applied = store.apply("user", Kind::ELECTION, target, election, true);
            if let Err(refusal) = applied {
                life.story.violations.push(format!("{refusal:?}"));
            }
        }
        life
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&mut self, line: &str) {
        let at = self.cluster.now().as_secs_f64();
        self.story.lines.push(format!("{at:9.3} {line}"));
    }

    fn count(&mut self, what: String) {
        *self.story.coverage.entry(what).or_default() += 1;
    }

    fn violate(&mut self, what: String) {
        self.tell(&format!("VIOLATION {what}"));
        self.story.violations.push(what);
    }

    fn later(&mut self, after: Duration, what: Later) {
        self.later.push((self.cluster.now() + after, what));
    }

    /// Something goes wrong for so long, and the operator may take so long after it.
    fn ill(&mut self, time: Duration, recovery: Duration) {
        let until = self.cluster.now() + time + recovery;
        self.well_since = self.well_since.max(until);
    }

    fn ill_api(&mut self, time: Duration) {
        self.ill(time, RECOVERY);
        let until = self.cluster.now() + time + RECOVERY;
        self.api_well_since = self.api_well_since.max(until);
    }

    fn start_operator(&mut self) {
        self.started += 1;
        let hosts: Result<Vec<HostPattern>, _> =
            ["zk.example"].into_iter().map(HostPattern::parse).collect();
        let start = Start {
            number: self.started,
            ahead: 0,
            version: 1,
            permissions: Permissions {
                hosts: hosts.unwrap_or_default().into(),
                ..Permissions::default()
            },
            rules: Rules::ALL,
            guards: self.guards,
        };
        let name = start.name();
        let reach = Reach::new(self.servers.clone(), &name);
        let process = start.run(&self.cluster, Arc::new(reach));
        self.tell(&format!("{name} starts"));
        self.operators.push(process);
    }

    fn kill_operator(&mut self, at: usize, after: Duration) {
        let process = self.operators.remove(at);
        process.task.abort();
        self.trouble().dead.insert(process.name.clone());
        self.tell(&format!("{} is dead", process.name));
        self.later(after, Later::StartOperator);
        self.ill_api(after);
    }

    async fn go_on(&mut self, duration: Duration) {
        let until = self.cluster.now() + duration;
        while self.cluster.now() < until && self.story.violations.is_empty() {
            self.tick().await;
        }
    }

    /// A moment passes.
    async fn tick(&mut self) {
        sleep(TICK).await;
        let now = self.cluster.now();
        bellwether_virtual_time::set(now);
        self.look();
        let due = self.later.iter().position(|(at, _)| *at <= now);
        if let Some(due) = due {
            let (_, what) = self.later.remove(due);
            self.end_of(what);
        }
        let dead = self.trouble().dead.clone();
        let silent = dead.into_iter().chain(self.stopped.clone());
        {
            let mut zoo = self.servers.lock();
            zoo.silence(silent);
            for application in &mut self.applications {
                application.step(&mut zoo, now);
            }
            zoo.advance();
        }
        self.note_leaders();
        let strays = std::mem::take(&mut self.trouble().strays);
        for stray in strays {
            self.violate(stray);
        }
        let stopped = std::mem::take(&mut self.trouble().stopped);
        for (name, time) in stopped {
            self.note_stop(name, time);
        }
        let died = std::mem::take(&mut self.trouble().died);
        for name in died {
            if let Some(at) = self.operators.iter().position(|p| p.name == name) {
                self.kill_operator(at, Duration::from_secs(2));
            }
        }
        if let Some(at) = self.operators.iter().position(|p| p.task.is_finished()) {
            self.kill_operator(at, Duration::from_secs(1));
        }
    }

    fn note_stop(&mut self, name: String, time: Duration) {
        self.tell(&format!("{name} is stopped for {time:?}"));
        self.ill_api(time);
        self.stopped.push(name.clone());
        self.later(time, Later::Resume(name));
    }

    /// Who leads now.
    fn note_leaders(&mut self) {
        let now = self.cluster.now();
        let servers = self.servers.clone();
        let zoo = servers.lock();
        let mut changes = Vec::new();
        for (application, truth) in self.applications.iter().zip(&mut self.truths) {
            if truth.look(application.form, zoo.truth(), now) {
                let lead = truth.now();
                let leads = match lead {
                    Some(lead) => format!("{} leads with {:x}", lead.identity, lead.czxid),
                    None => "nobody leads".to_owned(),
                };
                changes.push(format!("{}: {leads}", application.form.name()));
            }
        }
        drop(zoo);
        for change in changes {
            self.count("another leader".to_owned());
            self.tell(&change);
        }
    }

    /// Judges what was written since the last look, and what is shown.
    fn look(&mut self) {
        let writes = self.cluster.api.store().take_writes();
        let mut wrong = Vec::new();
        let glances = self.cluster.now() >= self.next_glance;
        if glances {
            self.next_glance = self.cluster.now() + GLANCE;
        }
        {
            let (store, zoo) = (self.cluster.api.store(), self.servers.lock());
            let scene = Scene {
                now: self.cluster.now(),
                begin: self.begin,
                zoo: &zoo,
                store: &store,
                well_since: self.well_since,
                api_well_since: self.api_well_since,
            };
            for (at, application) in self.applications.iter().enumerate() {
                let (judge, truth) = (&mut self.judges[at], &self.truths[at]);
                for write in writes.iter().filter(|write| is_operators(write)) {
                    wrong.extend(judge.write(&scene, application, truth, write).err());
                }
                if glances {
                    let picture = judge.picture(&scene, application, truth, self.pods_since[at]);
                    wrong.extend(picture.err());
                }
            }
        }
        for write in writes.iter().filter(|write| is_operators(write)) {
            self.note_write(write);
        }
        for violation in wrong {
            self.violate(violation);
        }
    }

    fn note_write(&mut self, write: &Write) {
        let kind = write.kind.resource().name;
        if kind == "Event" || write.namespace != NAMESPACE {
            return;
        }
        let result = match &write.result {
            Ok(_) => String::new(),
            Err((code, why)) => format!(": {code} {why}"),
        };
        self.count(format!("write {kind}{}", write.subresource));
        let object = write.result.as_ref().ok().and_then(Option::as_ref);
        let shown = match write.kind {
            Kind::LEASE => object.map(|lease| format!(" {}", lease["spec"])),
            Kind::ELECTION => object.map(|e| format!(" {}", e["status"]["leader"])),
            _ => None,
        };
        self.tell(&format!(
            "{} {:?} {kind} {}{result}{}",
            write.actor,
            write.verb,
            write.name,
            shown.unwrap_or_default()
        ));
    }

    /// Nothing goes wrong any more; leaders change a few times more.
    async fn end(&mut self, rng: &mut fastrand::Rng) {
        self.tell("END of faults");
        {
            let mut trouble = self.trouble();
            trouble.dies_after = None;
            trouble.stops_after = None;
        }
        while !self.later.is_empty() && self.story.violations.is_empty() {
            self.tick().await;
        }
        let rest = self.well_since.saturating_sub(self.cluster.now());
        self.go_on(rest).await;
        for _ in 0..CHANGES {
            if !self.story.violations.is_empty() {
                return;
            }
            let application = rng.usize(0..self.applications.len());
            let change = match rng.bool() {
                true => Change::Resign(1),
                false => Change::CrashLeader,
            };
            let act = Act::Application(application, change);
            self.tell(&format!("CHANGE {act:?}"));
            self.act(&act, rng);
            self.go_on(Duration::from_secs(40)).await;
        }
        if self.cluster.now() < self.well_since && self.story.violations.is_empty() {
            self.violate("something went wrong in the end of the life".to_owned());
        }
    }

    fn finish(mut self) -> Story {
        self.story.seconds = self.cluster.now().as_secs_f64();
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.story.lines.iter().flat_map(|line| line.bytes()) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.story.digest = digest;
        self.story
    }
}

/// Whether an operator made a write.
fn is_operators(write: &Write) -> bool {
    write.actor.starts_with("operator-")
}
