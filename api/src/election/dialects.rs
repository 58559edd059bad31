//! The table of dialects: one row for each.
//!
//! A new dialect is a new row here, a directory in `election/tests/corpus/`, and a line in
//! `docs/elections.md`. The enum, the words and the rules of the API, what the mirror reads and what `Auto`
//! detects all follow from the rows. What the rows say comes from the sources of the libraries, which are
//! named beside each of them.
//!
//! The order of the rows is that of the documentation, and that in which `Auto` tries them: of two recipes
//! that share names, the narrower one comes first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::recipe::{
    Decoder, Definition, DetectedBy, Digits, Layout, Options, Order, Piece, Recipe, Registration,
    RegistrationPlace,
};
use Digits::{Any, Ten, TenCharacters, Unsigned, UpToTen};
use Order::{Magnitude, Number, Text};
use Piece::{Free, Hex32, Id, Label, Prefix, Session, SessionOrHex, Text as Just, Uuid};

const fn node(identity: Decoder) -> Recipe {
    Recipe::node(identity)
}

const fn queue(name: &'static [Piece], digits: Digits, order: Order) -> Recipe {
    Recipe::queue(name, digits, order)
}

/// The names in the queues of Solr, which its registrations refer to.
const SOLR: Layout = Layout {
    name: &[Session, Just("-"), Id, Just("-n_")],
    digits: Unsigned,
    order: Number,
};

/// What a replica of ClickHouse appends to its name where all replicas lead.
const CLICKHOUSE_ALL_LEAD: &str = " (multiple leaders Ok)";

macro_rules! dialects {
    ($($(#[$attribute:meta])* $name:ident = $definition:expr;)*) => {
        /// The recipes that the mirror can read.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum DialectType {
            $($(#[$attribute])* $name,)*
        }

        impl DialectType {
            /// Every dialect, in the order of the table.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            /// The word that the API carries.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The row of the table.
            pub fn definition(self) -> &'static Definition {
                match self {
                    $(Self::$name => {
                        static ROW: Definition = $definition;
                        &ROW
                    })*
                }
            }
        }
    };
}

dialects! {
    /// The operator looks at the znodes and chooses the dialect that fits. It keeps what it found
    /// until the spec changes, and the condition `DialectDetected` says what that is.
    Auto = Definition::Detected;

    /// Every client creates the same ephemeral node; the one that succeeds leads, the others wait for it
    /// to go. `path` is that node and its data is the leader's identity. Also Patroni.
    // Patroni, patroni/dcs/zookeeper.py: the data is the name of the member.
    #[default]
    SingleText = Definition::Recipe(Recipe {
        detection: DetectedBy::AnyNode,
        ..node(Decoder::Text)
    });

    /// The same with JSON as data. Kafka's controller, Helix, Pulsar, Canal and others.
    // The spec says where in the data the identity is.
    SingleJson = Definition::Recipe(Recipe {
        options: Some(Options::Json),
        ..node(Decoder::Text)
    });

    /// Hadoop's `ActiveStandbyElector` of HDFS and YARN; `path` is the `ActiveStandbyElectorLock`.
    // ActiveStandbyElector.java: the data is what HDFS or YARN gave to joinElection; LOCK_FILENAME and
    // BREADCRUMB_FILENAME.
    HadoopElector = Definition::Recipe(Recipe {
        breadcrumb: Some("ActiveBreadCrumb"),
        detection: DetectedBy::NodeName("ActiveStandbyElectorLock"),
        ..node(Decoder::Hadoop)
    });

    /// HBase's active master; `path` is `/hbase/master`.
    // ActiveMasterManager.java and MasterAddressTracker.java.
    HBaseMaster = Definition::Recipe(Recipe {
        detection: DetectedBy::Data,
        ..node(Decoder::HBase)
    });

    /// The leader of one component of Flink; `path` is the node `connection_info`.
    // ZooKeeperUtils.java, writeLeaderInformationToZooKeeper.
    FlinkComponent = Definition::Recipe(Recipe {
        detection: DetectedBy::Data,
        ..node(Decoder::Flink)
    });

    /// ElasticJob; `path` is the node `leader/election/instance` of a job.
    // LeaderNode.java: the data is the id of the job instance.
    ElasticJob = Definition::Recipe(node(Decoder::Text));

    /// Ephemeral sequential children with a prefix of your choice, next to whatever else is there;
    /// the lowest number leads.
    Sequence = Definition::Recipe(Recipe {
        detection: DetectedBy::Nothing,
        options: Some(Options::Sequence),
        ..queue(&[Prefix], Any, Number)
    });

    /// ZooKeeper's own leader election recipe and `LeaderElectionSupport`: children `n_<sequence>`,
    /// the lowest number leads.
    // LeaderElectionSupport.java: Integer.valueOf of what follows "n_".
    ZkElection = Definition::Recipe(queue(&[Just("n_")], Any, Number));

    /// ZooKeeper's `WriteLock` in Java, C and .NET: children `x-<session>-<sequence>`.
    // ZNodeName.java: Integer.parseInt of what follows the last '-', so the sign is lost. The data of the Java
    // version is the same for everybody. zoo_lock.c compares the same as text, which differs only between
    // -999999999 and -1.
    ZkWriteLock = Definition::Recipe(Recipe {
        identity: Decoder::Session,
        ..queue(&[Just("x-"), SessionOrHex, Just("-")], Any, Magnitude)
    });

    /// Curator's `LeaderLatch`: children `_c_<uuid>-latch-<sequence>`.
    // LeaderLatch.java: LockInternals compares what follows "latch-". A latch whose connection was suspended makes a new
    // node and may keep its session; Flink's connection_info stays with the session.
    CuratorLatch = Definition::Recipe(Recipe {
        head_leads: true,
        ..queue(&[Just("_c_"), Uuid, Just("-latch-")], Any, Text)
    });

    /// Curator's `LeaderSelector` and `InterProcessMutex`: children `_c_<uuid>-lock-<sequence>`.
    // InterProcessMutex.java and LeaderSelector.java: the same with "lock-". The data of a client that gives
    // none is its address.
    CuratorLock = Definition::Recipe(Recipe {
        head_leads: true,
        host_identity: true,
        ..queue(&[Just("_c_"), Uuid, Just("-lock-")], Any, Text)
    });

    /// Curator's `InterProcessReadWriteLock`: children `_c_<uuid>-__WRIT__<sequence>` and
    /// `_c_<uuid>-__READ__<sequence>`. Readers hold it together.
    // InterProcessReadWriteLock.java: readers before the first writer hold it.
    CuratorReadWrite = Definition::Recipe(Recipe {
        shared: &["__READ__"],
        host_identity: true,
        ..queue(&[Just("_c_"), Uuid, Just("-"), Label(&["__WRIT__", "__READ__"])], Any, Text)
    });

    /// The lock of the Go client `go-zookeeper/zk`: children `_c_<hex>-lock-<sequence>`.
    // lock.go: an integer after "lock-".
    GoZkLock = Definition::Recipe(queue(&[Just("_c_"), Hex32, Just("-lock-")], Any, Number));

    /// kazoo's `Election` and locks: children `<hex>__lock__<sequence>`, and of readers, who hold
    /// it together, `<hex>__rlock__<sequence>`.
    // kazoo/recipe/lock.py: the contenders' pattern ends in (-?\d{10})$, compared as text.
    Kazoo = Definition::Recipe(Recipe {
        shared: &["__rlock__"],
        ..queue(&[Hex32, Label(&["__lock__", "__rlock__"])], Ten, Text)
    });

    /// aiozk's elections and locks: children `<label>-<hex>-<sequence>`.
    // aiozk/recipes/sequential.py: int of the last ten characters, which must be digits.
    Aiozk = Definition::Recipe(queue(&[Free, Just("-"), Hex32, Just("-")], Ten, Magnitude));

    /// The Ruby client zk's `Election`: children `ballot<sequence>`, and `leader_ack`.
    // lib/zk/election.rb: to_i of the digits at the end; the winner creates leader_ack.
    ZkRubyElection = Definition::Recipe(Recipe {
        acknowledgement: Some("leader_ack"),
        ..queue(&[Just("ballot")], Any, Magnitude)
    });

    /// The Ruby client zk's locks: children `ex<sequence>`, `sh<sequence>` and `sem<sequence>`.
    /// Those of the latter two kinds hold it together.
    // lib/zk/locker/*.rb: the same; "ex" waits for all, "sh" for each "ex".
    ZkRubyLock = Definition::Recipe(Recipe {
        shared: &["sh", "sem"],
        ..queue(&[Label(&["ex", "sh", "sem"])], Any, Magnitude)
    });

    /// The groups of Twitter's commons: children `member_<sequence>` and
    /// `singleton_candidate_<sequence>`. Also Aurora.
    // Group.java and CandidateImpl.java: the natural order of texts. The data of a client that gives none is
    // its address.
    TwitterGroup = Definition::Recipe(Recipe {
        identity: Decoder::JsonOf(&[
            &["/serviceEndpoint/host", "/serviceEndpoint/port"],
            &["/serviceEndpoint/host"],
        ]),
        host_identity: true,
        ..queue(&[Label(&["member_", "singleton_candidate_"])], Any, Text)
    });

    /// Solr's overseer and shard leaders: children `<session>-<id>-n_<sequence>`, and the node of
    /// `leaderPath`, which decides.
    // LeaderElector.java, sortSeqs: getSeq, then the whole name. OverseerElectionContext and
    // ShardLeaderElectionContextBase write the registration, the latter where ZkStateReader.java,
    // getShardLeadersPath, says. A client that rejoins at the head takes over its number.
    Solr = Definition::Recipe(Recipe {
        identity: Decoder::NodeName,
        registration: Registration {
            decoder: Decoder::Solr(SOLR),
            places: &[
                RegistrationPlace {
                    queue: "/overseer_elect/election",
                    leader: "/overseer_elect/leader",
                },
                RegistrationPlace {
                    queue: "/leader_elect/*/election",
                    leader: "/leaders/*/leader",
                },
            ],
        },
        reuses_names: true,
        detection: DetectedBy::NamesAndRegistration,
        ..queue(SOLR.name, SOLR.digits, SOLR.order)
    });

    /// The documented recipe with an id in the name: children `<id>-n_<sequence>`.
    // ZooKeeper, recipes.md, "Recoverable Errors and the GUID".
    GuidN = Definition::Recipe(queue(&[Free, Just("-n_")], Any, Number));

    /// Mesos masters: children `json.info_<sequence>`, `info_<sequence>` or `<sequence>`.
    // src/zookeeper/group.cpp: numify<int32_t> of what follows the label.
    Mesos = Definition::Recipe(Recipe {
        identity: Decoder::Mesos,
        ..queue(&[Label(&["json.info_", "info_", ""])], Any, Number)
    });

    /// Children whose names are nothing but a sequence number. Vitess, recent Samza.
    // Vitess, go/vt/topo/zk2topo/election.go: sort.Strings. Samza, ZkUtils.java: sort of texts.
    Bare = Definition::Recipe(queue(&[], Any, Text));

    /// Accumulo's service locks: children `zlock#<uuid>#<sequence>`.
    // ServiceLock.java, validateAndSort: Integer.valueOf of exactly ten characters.
    Accumulo = Definition::Recipe(Recipe {
        identity: Decoder::JsonOf(&[&["/descriptors/0/address"]]),
        ..queue(&[Just("zlock#"), Uuid, Just("#")], TenCharacters, Number)
    });

    /// BookKeeper's auditor: children `V_<sequence>`.
    // ZkLedgerAuditorManager.java, ElectionComparator: Long.parseLong after "V_".
    BookKeeper = Definition::Recipe(Recipe {
        identity: Decoder::BookKeeper,
        ..queue(&[Just("V_")], Any, Number)
    });

    /// ClickHouse's replicated tables: children `leader_election-<sequence>`. From 20.6 on all
    /// replicas lead.
    // LeaderElection.h: the sorted names. The data ends in a remark where all lead.
    ClickHouse = Definition::Recipe(Recipe {
        identity: Decoder::TextBefore(CLICKHOUSE_ALL_LEAD),
        all_lead: Some(CLICKHOUSE_ALL_LEAD),
        ..queue(&[Just("leader_election-")], UpToTen, Text)
    });

    /// Older Samza: children `processor-<sequence>`.
    // ZkUtils.java: sort of texts.
    Samza = Definition::Recipe(queue(&[Just("processor-")], Any, Text));

    /// A dialect of your own, described by `custom`.
    Custom = Definition::Custom;
}

impl DialectType {
    /// The recipe of the row, if the row has one.
    pub fn recipe(self) -> Option<&'static Recipe> {
        match self.definition() {
            Definition::Recipe(recipe) => Some(recipe),
            Definition::Detected | Definition::Custom => None,
        }
    }

    /// The options that the spec has to give.
    pub fn options(self) -> Option<Options> {
        match self.definition() {
            Definition::Detected => None,
            Definition::Custom => Some(Options::Custom),
            Definition::Recipe(recipe) => recipe.options,
        }
    }

    /// The dialects in which the path is the leader's node, whatever the options say.
    pub fn of_one_node() -> impl Iterator<Item = Self> {
        let of_one_node = |dialect: &Self| dialect.recipe().is_some_and(|r| r.layout.is_none());
        Self::ALL.into_iter().filter(of_one_node)
    }
}
