//! The rules of one election: its spec, checked, with the dialect that it is read in.

mod dialect;

use std::borrow::Cow;
use std::sync::Arc;

use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::DialectType;
use bellwether_api::election::recipe::{Decoder, Definition, Order, Recipe, Registration};

use crate::decode::{Decoding, Identity, Node, is_set, time};
use crate::dialect::{Detection, Queue, detect, detect_node, registration_path};
use crate::reading::{Candidacy, NodeStat};
use dialect::{Dialect, LeaderChoice};

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

/// Where an election's candidates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The path is itself the node of the leader.
    Node,
    /// The children of the path are candidates.
    Queue,
    /// Unknown until the znodes were seen.
    Unknown,
}

/// The location of another znode that belongs to an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZnodeLocation<'s> {
    /// It is a child of the election's path, with this name. Watching the children covers its creation and
    /// deletion.
    Child(&'s str),
    /// It is another znode, with this path.
    Elsewhere(Cow<'s, str>),
}

impl ZnodeLocation<'_> {
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
    /// If the pattern of the dialect `Custom` cannot be used.
    pub fn new(spec: Arc<LeaderElectionSpec>, detected: Option<&str>) -> Result<Self, InvalidSpec> {
        let type_ = spec.dialect.type_;
        let (dialect, detection) = match type_.definition() {
            Definition::Detected => {
                let known = |dialect: &DialectType| Some(dialect.as_str()) == detected;
                let detected = DialectType::ALL.into_iter().find(known);
                let dialect = detected.and_then(|detected| Dialect::of_table(&spec, detected));
                let detection = match &dialect {
                    Some(dialect) => Detection::Found(dialect.type_),
                    None => Detection::Nothing { sequential: 0 },
                };
                (dialect, Some(detection))
            }
            Definition::Custom => (Some(Dialect::custom(&spec)?), None),
            Definition::Recipe(_) => (Dialect::of_table(&spec, type_), None),
        };
        Ok(Self {
            spec,
            dialect,
            detection,
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

    /// Detects the dialect by the names of the path's children, unless it is known.
    pub fn detect(&mut self, children: &[String]) {
        if self.dialect.is_none() {
            let named = self.spec.dialect.acknowledgement.as_deref();
            let names = children.iter().map(String::as_str);
            let has_registration = |registration: &Registration| {
                self.spec.dialect.leader_path.is_some()
                    || registration_path(registration, &self.spec.path).is_some()
            };
            let candidates = names.filter(|child| Some(*child) != named);
            self.found(detect(candidates, has_registration));
        }
    }

    /// Detects the dialect by the path's own data, unless it is known. Only an ephemeral node is the
    /// node of a leader.
    pub fn detect_node(&mut self, stat: &NodeStat, data: &[u8]) {
        if self.dialect.is_none()
            && stat.ephemeral_owner != 0
            && let Some(dialect) = detect_node(last_name(&self.spec.path), data)
        {
            self.found(Detection::Found(dialect));
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
    pub fn leader_path(&self) -> Option<ZnodeLocation<'_>> {
        if self.place() == Place::Node {
            return None;
        }
        if let Some(path) = &self.spec.dialect.leader_path {
            return Some(self.place_of(path));
        }
        let derived = registration_path(&self.recipe()?.registration, &self.spec.path)?;
        Some(ZnodeLocation::Elsewhere(derived.into()))
    }

    /// The znode that the leader creates as an acknowledgement, if the spec or the recipe requires one.
    pub fn acknowledgement(&self) -> Option<ZnodeLocation<'_>> {
        let named = self.acknowledgement_name()?;
        Some(if named.starts_with('/') {
            self.place_of(named)
        } else {
            ZnodeLocation::Child(named)
        })
    }

    /// The name of the acknowledgement as the spec or the recipe has it.
    pub(crate) fn acknowledgement_name(&self) -> Option<&str> {
        let of_recipe = self.recipe().and_then(|recipe| recipe.acknowledgement);
        self.spec.dialect.acknowledgement.as_deref().or(of_recipe)
    }

    fn place_of<'s>(&self, path: &'s str) -> ZnodeLocation<'s> {
        let below = path.strip_prefix(&self.spec.path);
        match below.and_then(|rest| rest.strip_prefix('/')) {
            Some(child) if !child.contains('/') => ZnodeLocation::Child(child),
            _ => ZnodeLocation::Elsewhere(path.into()),
        }
    }

    /// Whether the first candidate is only known when all of them were read. Then all that a
    /// snapshot holds have to be watched, too.
    pub fn reads_all(&self) -> bool {
        self.order() == Some(Order::CreationZxid)
            || (self.data_decides() && self.place() == Place::Queue)
    }

    /// Whether a client that comes back may have the same name as before, so that a node is known
    /// by its name only as long as the list of children did not change.
    pub fn reuses_names(&self) -> bool {
        self.reads_all() || self.recipe().is_some_and(|recipe| recipe.reuses_names)
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

    /// The candidates among the children, in the order of their names; none without a queue.
    pub fn candidates<'c>(&self, children: &'c [String]) -> Vec<&'c str> {
        let queue = self.rank(children).unwrap_or_default();
        queue.order.into_iter().map(|ranked| ranked.node).collect()
    }

    /// What the name of a bridge's znode begins with; `uid` is that of its election. `None` in dialects in which the bridge cannot
    /// stand for election: where not the first of the children leads, or where candidates read each other's data.
    pub fn bridge_name(&self, uid: &str) -> Option<String> {
        let dialect = self.dialect.as_ref()?;
        let recipe = dialect.recipe;
        let first_leads = dialect.leader == LeaderChoice::First
            && recipe.all_lead.is_none()
            && matches!(
                recipe.identity,
                Decoder::Text | Decoder::Session | Decoder::NodeName
            )
            && (recipe.head_leads
                || recipe.registration.places.is_empty()
                    && self.spec.dialect.leader_path.is_none());
        let names = dialect.names.as_ref().filter(|_| first_leads)?;
        names.beginning(uid)
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
            Some(ZnodeLocation::Child(name)) => Some(name),
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
    pub(crate) fn data_decides(&self) -> bool {
        self.dialect
            .as_ref()
            .is_some_and(|dialect| dialect.leader != LeaderChoice::First)
    }

    /// Whether several may lead together in this dialect.
    pub(crate) fn may_share(&self) -> bool {
        self.recipe()
            .is_some_and(|recipe| !recipe.shared.is_empty() || recipe.all_lead.is_some())
    }

    /// Whether different clients on one machine may have the same identity.
    pub(crate) fn host_identity(&self) -> bool {
        self.recipe().is_some_and(|recipe| recipe.host_identity)
    }

    /// Whether the library decides by the queue who leads, although the leader registers itself.
    pub(crate) fn head_leads(&self) -> bool {
        self.recipe().is_some_and(|recipe| recipe.head_leads)
    }

    /// The name of the znode beside the leader's that contains who was active last.
    pub(crate) fn breadcrumb_name(&self) -> Option<&'static str> {
        self.recipe()?.breadcrumb
    }

    fn recipe(&self) -> Option<&'static Recipe> {
        Some(self.dialect.as_ref()?.recipe)
    }

    /// Decodes a candidate's node; without a queue, the leader's.
    pub fn candidacy(&self, name: &str, stat: &NodeStat, data: &[u8]) -> Candidacy {
        let text = Decoding::Recipe(Decoder::Text);
        let dialect = self.dialect.as_ref();
        let decoding = dialect.map_or(&text, |dialect| &dialect.identity);
        let names = dialect.and_then(|dialect| dialect.names.as_ref());
        let id = names.and_then(|names| names.parse(name)?.id);
        let marked = match dialect.map(|dialect| &dialect.leader) {
            Some(LeaderChoice::Marked(pointer)) => is_set(data, pointer),
            _ => true,
        };
        let expiry = self.expiry();
        let expires = expiry.and_then(|pointer| time(data, pointer));
        // A lease without an end in its data would last for ever, so its owner does not lead.
        let leads = marked && (expiry.is_none() || expires.is_some());
        let remark = self.recipe().and_then(|recipe| recipe.all_lead);
        let all_lead = remark.is_some_and(|remark| data.ends_with(remark.as_bytes()));
        let token = match self.place() {
            Place::Queue if self.data_decides() => stat.mzxid,
            // In a queue the order of creation decides, and later writes do not matter.
            Place::Queue | Place::Unknown => stat.czxid,
            Place::Node => stat.owned_by(),
        };
        let candidacy = self.decode_node(decoding, name, id, stat, data);
        Candidacy {
            token,
            leads,
            all_lead,
            expires,
            ..candidacy
        }
    }

    /// The JSON pointer to the end of the leader's term in its data, if the term is limited.
    pub(crate) fn expiry(&self) -> Option<&str> {
        self.dialect.as_ref()?.expiry.as_deref()
    }

    /// Decodes the node in which the leader registers itself.
    pub fn registration(&self, path: &str, stat: &NodeStat, data: &[u8]) -> Candidacy {
        let text = Decoding::Recipe(Decoder::Text);
        let decoding = self
            .dialect
            .as_ref()
            .map_or(&text, |dialect| &dialect.registration);
        Candidacy {
            token: stat.owned_by(),
            ..self.decode_node(decoding, last_name(path), None, stat, data)
        }
    }

    pub(crate) fn decode_node(
        &self,
        decoding: &Decoding,
        name: &str,
        id: Option<&str>,
        stat: &NodeStat,
        data: &[u8],
    ) -> Candidacy {
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
        Candidacy {
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

pub(crate) fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
