//! Which pod a candidate runs in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bellwether_api::election::{PodBinding, PortProtocol};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use regex::Regex;

use crate::dialect::compile;
use crate::rollout::{REVISION, owner};

/// What has to be known about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its IP addresses, the primary one first.
    pub ips: Vec<IpAddr>,
    /// Its hostname, which is its name unless its spec says otherwise.
    pub hostname: String,
    /// Its subdomain: the name of the headless Service that it has a DNS name of.
    pub subdomain: Option<String>,
    /// Whether its addresses are those of its node.
    pub is_on_node_network: bool,
    /// Its node.
    pub node: Option<String>,
    /// The ports that its containers name.
    pub ports: Vec<NamedPort>,
    /// Whether it is ready.
    pub ready: bool,
    /// Since when it is ready, by the clock of its node.
    pub ready_since: Option<Timestamp>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The uid of the controller that owns it.
    pub owner: Option<String>,
    /// Its revision, as its controller labels it: see [`REVISION`].
    pub revision: Option<String>,
    /// Since when the candidate in it may run, by the clock of its node: the start of the container that
    /// the annotation [`DEFAULT_CONTAINER`] names, or of the last one of all. `None` if one of them does
    /// not run.
    pub since: Option<Timestamp>,
    /// Since when anything of it runs, by the clock of its node: the earliest start of those containers that run. `None` if
    /// none of them does.
    pub began: Option<Timestamp>,
    /// Whether it is evicted, or displaced by a taint or another pod: Kubernetes says so in its condition `DisruptionTarget`.
    pub is_disrupted: bool,
}

/// A port that a container names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: PortProtocol,
    /// Its number.
    pub number: i32,
}

/// The annotation with which tools that add containers to pods say which one is the application's.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// How far the clocks of a node and of a ZooKeeper server may differ. A leader that led sooner after
/// its start than they differ by is not bound to its pod; a container that started within this time
/// after the leader's node was made may be taken for the leader's.
const CLOCKS: SignedDuration = SignedDuration::from_secs(1);

/// When the container of a leader that led at `owned` started at the latest, by the clock of its node.
pub(crate) fn latest_start(owned: Timestamp) -> Timestamp {
    owned.checked_add(CLOCKS).unwrap_or(Timestamp::MAX)
}

/// The ports that containers name, in the order in which Kubernetes looks for the port of a Service: those of init
/// containers that run on come last (`FindPort` in `pkg/api/v1/pod`).
fn named_ports(pod: &Pod) -> Vec<NamedPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars =
        sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars);
    let ports = ports.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(NamedPort {
                name: port.name.clone()?,
                protocol: PortProtocol::named(port.protocol.as_deref())?,
                number: port.container_port,
            })
        })
        .collect()
}

/// The starts of the containers in which the candidate in a pod may run; `None` for one that does not run. Init containers do
/// not count: sidecars among them are not candidates.
fn starts(pod: &Pod) -> Vec<Option<Timestamp>> {
    let annotations = pod.metadata.annotations.as_ref();
    let named = annotations.and_then(|annotations| annotations.get(DEFAULT_CONTAINER));
    let all = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
    let all = all.unwrap_or_default();
    let one = all.iter().find(|container| Some(&container.name) == named);
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_deref());
    let statuses = statuses.unwrap_or_default();
    let may_lead = all
        .iter()
        .filter(|container| one.is_none_or(|one| one.name == container.name));
    let starts = may_lead.map(|container| {
        let status = statuses
            .iter()
            .find(|status| status.name == container.name)?;
        let running = status.state.as_ref()?.running.as_ref()?;
        Some(running.started_at.as_ref()?.0)
    });
    starts.collect()
}

impl PodFacts {
    /// The number of the port that its containers give this name.
    pub fn port(&self, name: &str, protocol: PortProtocol) -> Option<i32> {
        let is_it = |port: &&NamedPort| port.name == name && port.protocol == protocol;
        self.ports.iter().find(is_it).map(|port| port.number)
    }

    /// The facts about a pod; `None` if it has finished, since its addresses may belong to another pod then.
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let name = pod.metadata.name.clone()?;
        let spec = pod.spec.as_ref();
        let several = status.and_then(|status| status.pod_ips.as_ref());
        let one = status.and_then(|status| status.pod_ip.as_deref());
        let ips = match several {
            Some(ips) => ips.iter().filter_map(|ip| ip.ip.parse().ok()).collect(),
            None => one.and_then(|ip| ip.parse().ok()).into_iter().collect(),
        };
        let condition = |type_: &str| {
            let mut all = status
                .iter()
                .flat_map(|status| &status.conditions)
                .flatten();
            all.find(|condition| condition.type_ == type_ && condition.status == "True")
        };
        let ready = condition("Ready");
        let starts = starts(pod);
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let all: Option<Vec<Timestamp>> = starts.iter().copied().collect();
        let latest = all.and_then(|all| all.into_iter().max());
        Some(Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ips,
            hostname: spec
                .and_then(|spec| spec.hostname.clone())
                .unwrap_or_else(|| name.clone()),
            subdomain: spec.and_then(|spec| spec.subdomain.clone()),
            is_on_node_network: spec.and_then(|spec| spec.host_network) == Some(true),
            node: spec.and_then(|spec| spec.node_name.clone()),
            ports: named_ports(pod),
            ready: ready.is_some(),
            ready_since: ready.and_then(|ready| Some(ready.last_transition_time.as_ref()?.0)),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            owner: owner(&pod.metadata).map(str::to_owned),
            revision: pod
                .metadata
                .labels
                .as_ref()
                .and_then(|all| all.get(REVISION))
                .cloned(),
            since: latest.map(|latest| created.map_or(latest, |created| created.max(latest))),
            began: starts.into_iter().flatten().min(),
            is_disrupted: condition("DisruptionTarget").is_some(),
            name,
        })
    }
}

/// The pods that candidates may be bound to: all of one namespace, or those that a selector allows.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    namespace: String,
    pods: BTreeMap<String, PodFacts>,
    by_ip: HashMap<IpAddr, BTreeSet<String>>,
    by_host: HashMap<String, BTreeSet<String>>,
}

impl Pods {
    /// No pods yet, of this namespace.
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        }
    }

    /// Adds or replaces a pod. Returns whether that changed anything.
    pub fn insert(&mut self, facts: PodFacts) -> bool {
        if self.pods.get(&facts.name) == Some(&facts) {
            return false;
        }
        self.remove(&facts.name.clone());
        for ip in &facts.ips {
            self.by_ip
                .entry(*ip)
                .or_default()
                .insert(facts.name.clone());
        }
        let hosts = self.by_host.entry(facts.hostname.clone()).or_default();
        hosts.insert(facts.name.clone());
        self.pods.insert(facts.name.clone(), facts);
        true
    }

    /// Removes a pod. Returns whether it was known.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(facts) = self.pods.remove(name) else {
            return false;
        };
        for ip in &facts.ips {
            take_out(&mut self.by_ip, ip, name);
        }
        take_out(&mut self.by_host, &facts.hostname, name);
        true
    }

    /// Keeps only the pods of these names. Returns whether any was removed.
    pub fn retain(&mut self, listed: &BTreeSet<String>) -> bool {
        let gone: Vec<String> = self
            .pods
            .keys()
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        for name in &gone {
            self.remove(name);
        }
        !gone.is_empty()
    }

    /// The pod of this name.
    pub fn get(&self, name: &str) -> Option<&PodFacts> {
        self.pods.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.values()
    }

    fn with_ip(&self, ip: IpAddr) -> BTreeSet<&str> {
        let names = self.by_ip.get(&ip).into_iter().flatten();
        names.map(String::as_str).collect()
    }

    /// The pods that have this name in DNS. The name may be shortened.
    fn with_host(&self, host: &str) -> BTreeSet<&str> {
        let (first, rest) = host.split_once('.').unwrap_or((host, ""));
        let names = self.by_host.get(first).into_iter().flatten();
        let facts = names.filter_map(|name| self.pods.get(name));
        facts
            .filter(|pod| rest.is_empty() || self.is_in_domain(pod, rest))
            .map(|pod| pod.name.as_str())
            .collect()
    }

    /// Whether a pod is in `SUBDOMAIN`, `SUBDOMAIN.NAMESPACE` or `SUBDOMAIN.NAMESPACE.svc` with
    /// whatever the cluster's domain is.
    fn is_in_domain(&self, pod: &PodFacts, domain: &str) -> bool {
        let mut parts = domain.splitn(4, '.');
        parts.next() == pod.subdomain.as_deref()
            && parts.next().is_none_or(|part| part == self.namespace)
            && parts.next().is_none_or(|part| part == "svc")
    }
}

fn take_out<K: std::hash::Hash + Eq>(
    index: &mut HashMap<K, BTreeSet<String>>,
    key: &K,
    name: &str,
) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

/// The facts about a candidate by which its pod is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claimant<'a> {
    /// Its identity.
    pub identity: &'a str,
    /// The address that its data contains beside the identity.
    pub address: Option<&'a str>,
    /// Where the connection of its session comes from, if that is known.
    pub connection: Option<IpAddr>,
    /// When it had to run at the latest, by the clock of a ZooKeeper server; `None` if that is not known, and
    /// then it may run in every pod.
    pub owned: Option<Timestamp>,
}

impl Claimant<'_> {
    /// Whether the candidate may run in a pod: a container that started after the candidate's node was
    /// created cannot have created that node.
    fn may_run_in(&self, pod: &PodFacts) -> bool {
        let Some(owned) = self.owned else { return true };
        pod.since.is_some_and(|since| since <= latest_start(owned))
    }
}

/// The pod of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It runs in the pod of this name.
    Pod(String),
    /// No pod fits.
    NotFound,
    /// This pod fits, but what runs there started too late to be the candidate.
    Younger(String),
    /// Several pods fit, so the candidate is bound to none of them.
    Ambiguous(Vec<String>),
}

/// Finds pods of candidates, as a spec wants it.
#[derive(Clone, Debug, Default)]
pub struct Binder {
    pattern: Option<Regex>,
}

impl Binder {
    /// A binder for this spec.
    ///
    /// # Errors
    ///
    /// A sentence that says why the pattern cannot be used.
    pub fn new(binding: Option<&PodBinding>) -> Result<Self, String> {
        let Some(text) = binding.and_then(|binding| binding.identity_pattern.as_deref()) else {
            return Ok(Self::default());
        };
        let pattern = compile(text)
            .map_err(|why| format!("spec.podBinding.identityPattern cannot be used: {why}."))?;
        let named = |group| pattern.capture_names().any(|name| name == Some(group));
        if !named("pod") && !named("ip") {
            let what = "spec.podBinding.identityPattern has no group named pod or ip.";
            return Err(what.to_owned());
        }
        Ok(Self {
            pattern: Some(pattern),
        })
    }

    /// The pod that a candidate runs in.
    pub fn bind(&self, claimant: &Claimant<'_>, pods: &Pods) -> Binding {
        let found = match &self.pattern {
            Some(pattern) => by_pattern(pattern, claimant.identity, pods),
            None => by_itself(claimant, pods),
        };
        let found = match claimant.connection {
            Some(ip) if found.is_empty() => pods.with_ip(ip),
            _ => found,
        };
        let (found, younger): (BTreeSet<_>, BTreeSet<_>) = found.into_iter().partition(|name| {
            let pod = pods.get(name);
            pod.is_some_and(|pod| claimant.may_run_in(pod))
        });
        let mut names: Vec<String> = found.into_iter().map(str::to_owned).collect();
        match names.len() {
            0 => match younger.first() {
                Some(pod) => Binding::Younger((*pod).to_owned()),
                None => Binding::NotFound,
            },
            1 => Binding::Pod(names.swap_remove(0)),
            _ => Binding::Ambiguous(names),
        }
    }
}

fn by_pattern<'p>(pattern: &Regex, identity: &str, pods: &'p Pods) -> BTreeSet<&'p str> {
    let Some(found) = pattern.captures(identity) else {
        return BTreeSet::new();
    };
    let named = found.name("pod").and_then(|name| pods.get(name.as_str()));
    let mut fitting: BTreeSet<&str> = named.map(|pod| pod.name.as_str()).into_iter().collect();
    let ip = found.name("ip").and_then(|ip| ip.as_str().parse().ok());
    if let Some(ip) = ip {
        fitting.extend(pods.with_ip(ip));
    }
    fitting
}

fn by_itself<'p>(claimant: &Claimant<'_>, pods: &'p Pods) -> BTreeSet<&'p str> {
    if let Some(pod) = pods.get(claimant.identity) {
        return BTreeSet::from([pod.name.as_str()]);
    }
    let texts = [Some(claimant.identity), claimant.address];
    for text in texts.into_iter().flatten() {
        let ips: BTreeSet<&str> = ips(text).flat_map(|ip| pods.with_ip(ip)).collect();
        if !ips.is_empty() {
            return ips;
        }
        let hosts: BTreeSet<&str> = words(text)
            .flat_map(|word| pods.with_host(&word.to_ascii_lowercase()))
            .collect();
        if !hosts.is_empty() {
            return hosts;
        }
    }
    BTreeSet::new()
}

/// The IP addresses in a text: the whole of it, words of it, and what stands in brackets.
fn ips(text: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let whole = text.parse::<IpAddr>().ok();
    let socket = text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = text
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split(']').next())
        .filter_map(|inner| inner.parse::<Ipv6Addr>().ok().map(IpAddr::from));
    let plain = words(text).filter_map(|word| word.parse().ok());
    whole
        .into_iter()
        .chain(socket)
        .chain(bracketed)
        .chain(plain)
}

/// The words of a text that may be host names or IPv4 addresses.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-')
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.is_empty())
}
