//! The vocabulary of the table of dialects ([`super::dialects`]): how one recipe names, orders and fills its
//! znodes.
//!
//! Everything here is data. The crate `bellwether-election` reads znodes by it.

/// Where a dialect is described.
#[derive(Clone, Copy, Debug)]
pub enum Definition {
    /// In another row: the znodes show which.
    Detected,
    /// In the options `custom` of the spec.
    Custom,
    /// Here.
    Recipe(Recipe),
}

/// How one recipe lays out its znodes.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// How candidates are recognised and ordered; `None` if the path is itself the leader's node.
    pub layout: Option<Layout>,
    /// How a candidate's data contains its identity; without a queue, the leader's.
    pub identity: Decoder,
    /// Where the leader registers itself, if that and not the queue decides who leads.
    pub registration: Registration,
    /// Whether the library, and not the application, decides by the queue who leads: a registration then only says where
    /// the leader is, and that of a client which waits in the queue is left over.
    pub head_leads: bool,
    /// Labels of candidates that hold the election together if no other candidate is before them.
    pub shared: &'static [&'static str],
    /// What the data of every candidate ends with, if all of them lead.
    pub all_lead: Option<&'static str>,
    /// The acknowledgement, if the recipe has one and the spec names no other.
    pub acknowledgement: Option<&'static str>,
    /// The name of the znode beside the leader's that contains who was active last.
    pub breadcrumb: Option<&'static str>,
    /// Whether data without an identity is the address of the client, so that clients on one machine have the
    /// same.
    pub host_identity: bool,
    /// Whether a client that reconnects may create a node with the name that it had before. A node is then
    /// known by its name only as long as the list of children did not change.
    pub reuses_names: bool,
    /// How `Auto` recognises it.
    pub detection: DetectedBy,
    /// The options that the spec has to give.
    pub options: Option<Options>,
}

impl Recipe {
    /// A recipe without a queue: the path is the leader's node.
    pub const fn node(identity: Decoder) -> Self {
        Self {
            layout: None,
            identity,
            registration: Registration {
                decoder: Decoder::Text,
                places: &[],
            },
            head_leads: false,
            shared: &[],
            all_lead: None,
            acknowledgement: None,
            breadcrumb: None,
            host_identity: false,
            reuses_names: false,
            detection: DetectedBy::Nothing,
            options: None,
        }
    }

    /// A recipe with a queue whose candidates write their identity as text. The names of the candidates are
    /// enough to detect it.
    pub const fn queue(name: &'static [Piece], digits: Digits, order: Order) -> Self {
        Self {
            layout: Some(Layout {
                name,
                digits,
                order,
            }),
            detection: DetectedBy::Names,
            ..Self::node(Decoder::Text)
        }
    }
}

/// How candidates are recognised and ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What is in front of the sequence number, in order.
    pub name: &'static [Piece],
    /// Which sequence numbers the library recognises.
    pub digits: Digits,
    /// How the library compares sequence numbers.
    pub order: Order,
}

/// A part of a candidate's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This text.
    Text(&'static str),
    /// The prefix that the spec gives.
    Prefix,
    /// A UUID with dashes, 36 characters.
    Uuid,
    /// 32 hexadecimal digits.
    Hex32,
    /// One of these texts, which distinguish kinds of candidates. The first that fits counts. Candidates with
    /// an empty label are detected only beside others of the dialect that have one.
    Label(&'static [&'static str]),
    /// A session: a decimal number, possibly negative.
    Session,
    /// A session: the same, or 16 hexadecimal digits.
    SessionOrHex,
    /// One or more characters, as many as the rest allows: the candidate's identity.
    Id,
    /// One or more characters, as many as the rest allows, without a meaning.
    Free,
}

/// Which texts are sequence numbers.
///
/// ZooKeeper formats the counter with `%010d`, so a negative number of fewer than ten digits has
/// the sign in place of a digit and only nine digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// Every number that ZooKeeper can append.
    Any,
    /// Exactly ten digits after an optional sign. Such a library does not see a candidate with a number
    /// between −999999999 and −1, so the mirror ignores it too.
    Ten,
    /// Exactly ten characters, the sign among them.
    TenCharacters,
    /// Exactly ten digits without a sign.
    Unsigned,
    /// One to ten digits without a sign.
    UpToTen,
}

/// How sequence numbers are compared. The ways differ only below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As signed numbers.
    Number,
    /// As texts.
    Text,
    /// As numbers without their sign, which the library loses.
    Magnitude,
    /// Not compared: the transactions that created the nodes are. By name alone these candidates are equal.
    CreationZxid,
}

/// How the data of a recipe's znode contains the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// The data is the identity, in UTF-8.
    Text,
    /// The same, followed by this remark or not.
    TextBefore(&'static str),
    /// JSON: the first of these lists of pointers that all point at something, joined with `:`.
    JsonOf(&'static [&'static [&'static str]]),
    /// Hadoop's protobuf messages of HDFS and YARN.
    Hadoop,
    /// HBase's protobuf message with what HBase puts before it.
    HBase,
    /// Flink's serialized Java objects.
    Flink,
    /// The registration of a leader of Solr, of the overseer or of a shard: the name of its node in a queue of
    /// this layout, or its own.
    Solr(Layout),
    /// The data of a Mesos master: JSON, protobuf or text, depending on the node's name.
    Mesos,
    /// BookKeeper's protobuf in text format.
    BookKeeper,
    /// The part of the node's name that is the identity.
    NodeName,
    /// The session.
    Session,
}

/// Where the leader of a queue registers itself, and how.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// How the data of the registration contains the leader's identity.
    pub decoder: Decoder,
    /// The places that follow from the path of the queue. Elsewhere `leaderPath` names one.
    pub places: &'static [RegistrationPlace],
}

/// A queue whose leader registers itself in a fixed place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationPlace {
    /// The end of the queue's path. One `*` stands for one name.
    pub queue: &'static str,
    /// What stands there instead in the path of the registration, with the same name for `*`.
    pub leader: &'static str,
}

/// How the dialect `Auto` recognises a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectedBy {
    /// Not at all: the spec has to name it.
    Nothing,
    /// By the names of the children.
    Names,
    /// By the names of the children, where the place of the registration is known: the names alone may be
    /// those of another recipe.
    NamesAndRegistration,
    /// By the name of the leader's node.
    NodeName(&'static str),
    /// By the data of the leader's node, which the recipe's decoder understands.
    Data,
    /// By an ephemeral node that no other recipe claims.
    AnyNode,
}

/// Options of a dialect, a field of `spec.dialect` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Options {
    /// `sequence`
    Sequence,
    /// `json`
    Json,
    /// `custom`
    Custom,
}

impl Options {
    /// The field of the spec.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Json => "json",
            Self::Custom => "custom",
        }
    }
}
