//! The rules of one election: its spec, checked, with the dialect that it is read in.

use std::borrow::Cow;
use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::{CandidateOrder, DialectType, LeaderRule};

use crate::decode::{Decoder, Decoding, Identity, Node, all_lead, is_set, time};
use crate::dialect::{
    Detection, Matcher, Names, Order, Pattern, Queue, detect, detect_node, pattern, recipe,
};
use crate::reading::{Claim, NodeStat};

/// How many candidates are read at most where all of them have to be, to know the first of them.
pub const MAX_READ: usize = 1000;

/// Why a spec cannot be followed, although the API server accepted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSpec(
    /// A sentence that says which field is wrong and why.
    pub String,
);

/// The rules of one election.
#[derive(Clone, Debug)]
pub struct Rules {
    spec: Arc<LeaderElectionSpec>,
    /// `None` while the dialect is `Auto` and nothing was detected.
    dialect: Option<Dialect>,
    /// What was detected, if the spec asks for it.
    detection: Option<Detection>,
}

/// A dialect with what the spec says about it.
#[derive(Clone, Debug)]
struct Dialect {
    type_: DialectType,
    /// `None` if the path is the leader's node.
    names: Option<Names>,
    identity: Decoding,
    registration: Decoding,
    leader: Leads,
    /// Where in the data the time is until which its owner leads.
    expiry: Option<String>,
    acknowledgement: Option<&'static str>,
    host_identity: bool,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leads {
    /// The first in the queue, or the owner of the only node.
    First,
    /// The first whose data has something at this JSON pointer, or the owner if its data has.
    Marked(String),
}

/// Where an election's candidates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The path is itself the node of the leader.
    Node,
    /// The children of the path are candidates.
    Queue,
    /// Nobody knows before the znodes were seen.
    Unknown,
}

/// Where another znode is that belongs to an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where<'s> {
    /// It is a child of the election's path, with this name. Watching the children covers its
    /// coming and going.
    Child(&'s str),
    /// It is another znode, with this path.
    Elsewhere(Cow<'s, str>),
}

impl Where<'_> {
    /// The name of the child, or the path.
    pub(crate) fn into_name(self) -> String {
        match self {
            Self::Child(name) => name.to_owned(),
            Self::Elsewhere(path) => path.into_owned(),
        }
    }
}

impl Rules {
    /// Checks a spec. `detected` is the dialect that was detected before, for a spec that leaves
    /// the dialect open.
    ///
    /// # Errors
    ///
    /// If the pattern of the dialect `Custom` is none.
    pub fn new(spec: Arc<LeaderElectionSpec>, detected: Option<&str>) -> Result<Self, InvalidSpec> {
        let type_ = spec.dialect.type_;
        if type_ == DialectType::Auto {
            let known = |dialect: &DialectType| Some(dialect.as_str()) == detected;
            let detected = DialectType::ALL.into_iter().find(known);
            let dialect = detected.and_then(|detected| Dialect::of_table(&spec, detected));
            let detection = dialect
                .as_ref()
                .map(|dialect| Detection::Found(dialect.type_));
            return Ok(Self {
                spec,
                dialect,
                detection: Some(detection.unwrap_or(Detection::Nothing { sequential: 0 })),
            });
        }
        let dialect = match type_ {
            DialectType::Custom => Some(Dialect::custom(&spec)?),
            type_ => Dialect::of_table(&spec, type_),
        };
        Ok(Self {
            spec,
            dialect,
            detection: None,
        })
    }

    /// The spec.
    pub fn spec(&self) -> &LeaderElectionSpec {
        &self.spec
    }

    /// The dialect that the election is read in, once it is known.
    pub fn dialect(&self) -> Option<DialectType> {
        self.dialect.as_ref().map(|dialect| dialect.type_)
    }

    /// What was detected, if the spec leaves the dialect open.
    pub(crate) fn detection(&self) -> Option<&Detection> {
        self.detection.as_ref()
    }

    /// Tells the dialect by the names of the path's children, unless it is known.
    pub fn detect(&mut self, children: &[String]) {
        if self.dialect.is_none() {
            let named = self.spec.dialect.acknowledgement.as_deref();
            let names = children.iter().map(String::as_str);
            let leader_path = &self.spec.dialect.leader_path;
            let solr = leader_path.is_some() || solr_leader_path(&self.spec.path).is_some();
            self.found(detect(names.filter(|child| Some(*child) != named), solr));
        }
    }

    /// Tells the dialect by the path's own data, unless it is known. Only an ephemeral node is the
    /// node of a leader.
    pub fn detect_node(&mut self, stat: &NodeStat, data: &[u8]) {
        if self.dialect.is_none() && stat.ephemeral_owner != 0 {
            self.found(Detection::Found(detect_node(
                last_name(&self.spec.path),
                data,
            )));
        }
    }

    fn found(&mut self, detection: Detection) {
        if let Detection::Found(type_) = &detection {
            self.dialect = Dialect::of_table(&self.spec, *type_);
        }
        self.detection = Some(detection);
    }

    /// Where the candidates are.
    pub fn place(&self) -> Place {
        match &self.dialect {
            None => Place::Unknown,
            Some(Dialect { names: None, .. }) => Place::Node,
            Some(_) => Place::Queue,
        }
    }

    /// The znode where the leader registers itself, if that decides who leads.
    pub fn leader_path(&self) -> Option<Where<'_>> {
        if self.place() == Place::Node {
            return None;
        }
        if let Some(path) = &self.spec.dialect.leader_path {
            return Some(self.place_of(path));
        }
        let derived =
            (self.dialect()? == DialectType::Solr).then(|| solr_leader_path(&self.spec.path))??;
        Some(Where::Elsewhere(derived.into()))
    }

    /// The znode that the leader creates as an acknowledgement, if there is to be one.
    pub fn acknowledgement(&self) -> Option<Where<'_>> {
        let named = self.acknowledgement_name()?;
        Some(if named.starts_with('/') {
            self.place_of(named)
        } else {
            Where::Child(named)
        })
    }

    /// The name of the acknowledgement as the spec or the recipe has it.
    pub(crate) fn acknowledgement_name(&self) -> Option<&str> {
        let of_recipe = self
            .dialect
            .as_ref()
            .and_then(|dialect| dialect.acknowledgement);
        self.spec.dialect.acknowledgement.as_deref().or(of_recipe)
    }

    fn place_of<'s>(&self, path: &'s str) -> Where<'s> {
        let below = path.strip_prefix(&self.spec.path);
        match below.and_then(|rest| rest.strip_prefix('/')) {
            Some(child) if !child.contains('/') => Where::Child(child),
            _ => Where::Elsewhere(path.into()),
        }
    }

    /// Whether the first candidate is only known when all of them were read. Then all that a
    /// snapshot holds have to be watched, too.
    pub fn reads_all(&self) -> bool {
        self.order() == Some(Order::CreationZxid) || (self.marks() && self.place() == Place::Queue)
    }

    /// Whether a client that comes back may have the same name as before, so that a node is known
    /// by its name only as long as the list of children did not change.
    pub fn reuses_names(&self) -> bool {
        let dialect = self.dialect();
        self.reads_all() || matches!(dialect, Some(DialectType::Solr | DialectType::Custom))
    }

    /// The children whose nodes a snapshot has to hold, in the order of their names.
    pub fn wanted(&self, children: &[String]) -> Vec<String> {
        let Some(queue) = self.rank(children) else {
            return Vec::new();
        };
        let all = self.reads_all() && queue.order.len() <= MAX_READ;
        let limit = if all { MAX_READ } else { self.max_candidates() };
        let order = queue.order.into_iter().take(limit);
        order.map(|ranked| ranked.node.to_owned()).collect()
    }

    /// How many candidates the status lists.
    pub fn max_candidates(&self) -> usize {
        usize::try_from(self.spec.max_candidates)
            .unwrap_or(0)
            .max(1)
    }

    /// The queue that children make, in the order of their names; `None` without a queue.
    pub(crate) fn rank<'c>(&self, children: &'c [String]) -> Option<Queue<'c>> {
        let names = self.dialect.as_ref()?.names.as_ref()?;
        let child = |place| match place {
            Some(Where::Child(name)) => Some(name),
            _ => None,
        };
        let (one, other) = (child(self.acknowledgement()), child(self.leader_path()));
        let children = children.iter().map(String::as_str);
        Some(names.rank(children.filter(|name| Some(*name) != one && Some(*name) != other)))
    }

    /// How candidates are ordered.
    pub(crate) fn order(&self) -> Option<Order> {
        Some(self.dialect.as_ref()?.names.as_ref()?.order)
    }

    /// Whether data says who leads.
    pub(crate) fn marks(&self) -> bool {
        self.dialect
            .as_ref()
            .is_some_and(|dialect| dialect.leader != Leads::First)
    }

    /// Whether several may lead together in this dialect.
    pub(crate) fn may_share(&self) -> bool {
        let shares = |dialect: &Dialect| {
            let shared = dialect
                .names
                .as_ref()
                .is_some_and(|names| !names.shared.is_empty());
            shared || dialect.type_ == DialectType::ClickHouse
        };
        self.dialect.as_ref().is_some_and(shares)
    }

    /// Whether clients on one machine may have the same identity without being the same.
    pub(crate) fn host_identity(&self) -> bool {
        self.dialect
            .as_ref()
            .is_some_and(|dialect| dialect.host_identity)
    }

    /// What a candidate's node says; without a queue, the leader's.
    pub fn claim(&self, name: &str, stat: &NodeStat, data: &[u8]) -> Claim {
        let text = Decoding::Recipe(Decoder::Text);
        let dialect = self.dialect.as_ref();
        let decoding = dialect.map_or(&text, |dialect| &dialect.identity);
        let names = dialect.and_then(|dialect| dialect.names.as_ref());
        let id = names.and_then(|names| names.read(name)?.id);
        let marked = match dialect.map(|dialect| &dialect.leader) {
            Some(Leads::Marked(pointer)) => is_set(data, pointer),
            _ => true,
        };
        let expiry = self.expiry();
        let expires = expiry.and_then(|pointer| time(data, pointer));
        // Whoever ought to say until when it leads and does not might lead for ever.
        let leads = marked && (expiry.is_none() || expires.is_some());
        let all_lead = self.dialect() == Some(DialectType::ClickHouse) && all_lead(data);
        let token = match self.place() {
            Place::Queue if self.marks() => stat.mzxid,
            // In a queue the order of creation decides, whoever writes what later.
            Place::Queue | Place::Unknown => stat.czxid,
            Place::Node => stat.owned_by(),
        };
        let claim = self.read(decoding, name, id, stat, data);
        Claim {
            token,
            leads,
            all_lead,
            expires,
            ..claim
        }
    }

    /// Where in the leader's data the time is until which it leads, if it leads for a time.
    pub(crate) fn expiry(&self) -> Option<&str> {
        self.dialect.as_ref()?.expiry.as_deref()
    }

    /// What the node says in which the leader registers itself.
    pub fn registration(&self, path: &str, stat: &NodeStat, data: &[u8]) -> Claim {
        let text = Decoding::Recipe(Decoder::Text);
        let decoding = self
            .dialect
            .as_ref()
            .map_or(&text, |dialect| &dialect.registration);
        Claim {
            token: stat.owned_by(),
            ..self.read(decoding, last_name(path), None, stat, data)
        }
    }

    pub(crate) fn read(
        &self,
        decoding: &Decoding,
        name: &str,
        id: Option<&str>,
        stat: &NodeStat,
        data: &[u8],
    ) -> Claim {
        let session = stat.ephemeral_owner;
        let time = |millisecond| jiff::Timestamp::from_millisecond(millisecond).ok();
        let owned = match session {
            0 => stat.ctime.max(stat.mtime),
            _ => stat.ctime,
        };
        let node = Node {
            name,
            id,
            session,
            data,
        };
        Claim {
            czxid: stat.czxid,
            token: stat.czxid,
            created: time(stat.ctime),
            owned: time(owned),
            session,
            identity: Identity::decode(decoding, node),
            leads: true,
            all_lead: false,
            expires: None,
        }
    }
}

impl Dialect {
    /// A dialect of the table; `None` for those that are not in it.
    fn of_table(spec: &LeaderElectionSpec, type_: DialectType) -> Option<Self> {
        let recipe = recipe(type_)?;
        let options = &spec.dialect;
        let prefix = options
            .sequence
            .as_ref()
            .map_or("", |sequence| sequence.prefix.as_str());
        let json = options
            .json
            .as_ref()
            .filter(|_| type_ == DialectType::SingleJson);
        let mut dialect = Self {
            type_,
            names: Names::of(&recipe, prefix),
            identity: match json {
                Some(json) => Decoding::Pointers(json.pointers.clone()),
                None => Decoding::Recipe(recipe.identity),
            },
            registration: Decoding::Recipe(recipe.registration),
            leader: match json.and_then(|json| json.active.clone()) {
                Some(pointer) => Leads::Marked(pointer),
                None => Leads::First,
            },
            expiry: json.and_then(|json| json.expiry.clone()),
            acknowledgement: recipe.acknowledgement,
            host_identity: recipe.host_identity,
        };
        dialect.overrule(spec);
        Some(dialect)
    }

    fn custom(spec: &LeaderElectionSpec) -> Result<Self, InvalidSpec> {
        let missing = |what: &str| InvalidSpec(format!("spec.dialect.custom{what} is missing."));
        let options = spec.dialect.custom.as_ref().ok_or_else(|| missing(""))?;
        let order = match options.order {
            CandidateOrder::Numeric => Order::Number,
            CandidateOrder::Lexical => Order::Text,
            CandidateOrder::CreationZxid => Order::CreationZxid,
        };
        let names = if options.leader_rule == LeaderRule::Exists {
            None
        } else {
            let text = options.child_pattern.as_deref();
            let text = text.ok_or_else(|| missing(".childPattern"))?;
            let compiled = pattern(text, order).map_err(|reason| {
                let field = "spec.dialect.custom.childPattern";
                InvalidSpec(format!("{field} cannot be used: {reason}."))
            })?;
            Some(Self::names(compiled, order))
        };
        let leader = match options.leader_rule {
            LeaderRule::First | LeaderRule::LeaderPath | LeaderRule::Exists => Leads::First,
            LeaderRule::DataPointer => {
                let pointer = options.data_pointer.clone();
                Leads::Marked(pointer.ok_or_else(|| missing(".dataPointer"))?)
            }
        };
        let mut dialect = Self {
            type_: DialectType::Custom,
            names,
            identity: Decoding::Recipe(Decoder::Text),
            registration: Decoding::Recipe(Decoder::Text),
            leader,
            expiry: None,
            acknowledgement: None,
            host_identity: false,
        };
        dialect.overrule(spec);
        Ok(dialect)
    }

    fn names(pattern: Pattern, order: Order) -> Names {
        Names {
            matcher: Matcher::Pattern(pattern),
            order,
            shared: &[],
        }
    }

    /// Puts the decoder of the spec in the place of the recipe's: of the registration, if that
    /// tells the leader.
    fn overrule(&mut self, spec: &LeaderElectionSpec) {
        let Some(options) = &spec.identity else {
            return;
        };
        let registers = spec.dialect.leader_path.is_some() || self.type_ == DialectType::Solr;
        if registers && self.names.is_some() {
            self.registration = Decoding::of(options);
        } else {
            self.identity = Decoding::of(options);
        }
    }
}

/// Where Solr registers the leader of a queue (OverseerElectionContext.java and
/// ZkStateReader.java, `getShardLeadersPath`).
fn solr_leader_path(queue: &str) -> Option<String> {
    let election = queue.strip_suffix("/election")?;
    if let Some(root) = election.strip_suffix("/overseer_elect") {
        return Some(format!("{root}/overseer_elect/leader"));
    }
    let (collection, shard) = election.rsplit_once('/')?;
    let collection = collection.strip_suffix("/leader_elect")?;
    Some(format!("{collection}/leaders/{shard}/leader"))
}

pub(crate) fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
