//! The table of dialects: one row for each recipe.
//!
//! A new dialect is a new row here, and a variant of `DialectType`. What the rows say comes from
//! the sources of the libraries, which are named beside each of them.

use bellwether_api::election::DialectType;

use super::{Digits, Layout, Order, Piece, Recipe};
use crate::decode::Decoder;
use Digits::{Any, Ten, TenCharacters, Unsigned, UpToTen};
use Order::{Magnitude, Number, Text};
use Piece::{Free, Hex32, Id, Label, Prefix, Session, SessionOrHex, Text as Just, Uuid};

/// A recipe without a queue: the path is the leader's node.
const fn node(identity: Decoder) -> Recipe {
    Recipe {
        layout: None,
        identity,
        registration: Decoder::Text,
        shared: &[],
        acknowledgement: None,
        host_identity: false,
    }
}

/// A recipe with a queue whose candidates write their identity as text.
const fn queue(name: &'static [Piece], digits: Digits, order: Order) -> Recipe {
    Recipe {
        layout: Some(Layout {
            name,
            digits,
            order,
        }),
        ..node(Decoder::Text)
    }
}

/// The row of a dialect; `None` for those that the spec or the znodes describe.
pub(crate) fn recipe(dialect: DialectType) -> Option<Recipe> {
    Some(match dialect {
        DialectType::Auto | DialectType::Custom => return None,

        // The plain recipe with one ephemeral node. Patroni, patroni/dcs/zookeeper.py: the data is
        // the name of the member.
        DialectType::SingleText => node(Decoder::Text),
        // The spec says where in the data the identity is.
        DialectType::SingleJson => node(Decoder::Text),
        // Hadoop, ActiveStandbyElector.java: the data is what HDFS or YARN gave to joinElection.
        DialectType::HadoopElector => node(Decoder::Hadoop),
        // HBase, ActiveMasterManager.java and MasterAddressTracker.java.
        DialectType::HBaseMaster => node(Decoder::HBase),
        // Flink, ZooKeeperUtils.java, writeLeaderInformationToZooKeeper.
        DialectType::FlinkComponent => node(Decoder::Flink),
        // ElasticJob, LeaderNode.java: the data is the id of the job instance.
        DialectType::ElasticJob => node(Decoder::Text),

        // The plain recipe with sequential nodes, whatever their prefix.
        DialectType::Sequence => queue(&[Prefix], Any, Number),
        // ZooKeeper, LeaderElectionSupport.java: Integer.valueOf of what follows "n_".
        DialectType::ZkElection => queue(&[Just("n_")], Any, Number),
        // ZooKeeper, ZNodeName.java: Integer.parseInt of what follows the last '-', so the sign is
        // lost. The data of the Java version is the same for everybody. zoo_lock.c compares the same
        // as text, which differs only between -999999999 and -1.
        DialectType::ZkWriteLock => Recipe {
            identity: Decoder::Session,
            ..queue(&[Just("x-"), SessionOrHex, Just("-")], Any, Magnitude)
        },
        // ZooKeeper, recipes.md, "Recoverable Errors and the GUID".
        DialectType::GuidN => queue(&[Free, Just("-n_")], Any, Number),
        // Curator, LeaderLatch.java: LockInternals compares what follows "latch-".
        DialectType::CuratorLatch => queue(&[Just("_c_"), Uuid, Just("-latch-")], Any, Text),
        // Curator, InterProcessMutex.java and LeaderSelector.java: the same with "lock-". The data
        // of a client that gives none is its address.
        DialectType::CuratorLock => Recipe {
            host_identity: true,
            ..queue(&[Just("_c_"), Uuid, Just("-lock-")], Any, Text)
        },
        // Curator, InterProcessReadWriteLock.java: readers before the first writer hold it.
        DialectType::CuratorReadWrite => Recipe {
            shared: &["__READ__"],
            host_identity: true,
            ..queue(
                &[
                    Just("_c_"),
                    Uuid,
                    Just("-"),
                    Label(&["__WRIT__", "__READ__"]),
                ],
                Any,
                Text,
            )
        },
        // go-zookeeper/zk, lock.go: an integer after "lock-".
        DialectType::GoZkLock => queue(&[Just("_c_"), Hex32, Just("-lock-")], Any, Number),
        // kazoo/recipe/lock.py: the contenders' pattern ends in (-?\d{10})$, compared as text.
        DialectType::Kazoo => Recipe {
            shared: &["__rlock__"],
            ..queue(&[Hex32, Label(&["__lock__", "__rlock__"])], Ten, Text)
        },
        // aiozk/recipes/sequential.py: int of the last ten characters, which must be digits.
        DialectType::Aiozk => queue(&[Free, Just("-"), Hex32, Just("-")], Ten, Magnitude),
        // zk-ruby, lib/zk/election.rb: to_i of the digits at the end; the winner creates leader_ack.
        DialectType::ZkRubyElection => Recipe {
            acknowledgement: Some("leader_ack"),
            ..queue(&[Just("ballot")], Any, Magnitude)
        },
        // zk-ruby, lib/zk/locker/*.rb: the same; "ex" waits for all, "sh" for each "ex".
        DialectType::ZkRubyLock => Recipe {
            shared: &["sh", "sem"],
            ..queue(&[Label(&["ex", "sh", "sem"])], Any, Magnitude)
        },
        // Twitter commons, Group.java and CandidateImpl.java: the natural order of texts. The data
        // of a client that gives none is its address.
        DialectType::TwitterGroup => Recipe {
            identity: Decoder::JsonOf(&[
                &["/serviceEndpoint/host", "/serviceEndpoint/port"],
                &["/serviceEndpoint/host"],
            ]),
            host_identity: true,
            ..queue(&[Label(&["member_", "singleton_candidate_"])], Any, Text)
        },
        // Vitess, go/vt/topo/zk2topo/election.go: sort.Strings. Samza, ZkUtils.java: sort of texts.
        DialectType::Bare => queue(&[], Any, Text),
        // Solr, LeaderElector.java, sortSeqs: getSeq, then the whole name; OverseerElectionContext
        // and ShardLeaderElectionContextBase write the registration.
        DialectType::Solr => Recipe {
            identity: Decoder::NodeName,
            registration: Decoder::Solr,
            ..queue(&[Session, Just("-"), Id, Just("-n_")], Unsigned, Number)
        },
        // Mesos, src/zookeeper/group.cpp: numify<int32_t> of what follows the label.
        DialectType::Mesos => Recipe {
            identity: Decoder::Mesos,
            ..queue(&[Label(&["json.info_", "info_", ""])], Any, Number)
        },
        // Accumulo, ServiceLock.java, validateAndSort: Integer.valueOf of exactly ten characters.
        DialectType::Accumulo => Recipe {
            identity: Decoder::JsonOf(&[&["/descriptors/0/address"]]),
            ..queue(&[Just("zlock#"), Uuid, Just("#")], TenCharacters, Number)
        },
        // BookKeeper, ZkLedgerAuditorManager.java, ElectionComparator: Long.parseLong after "V_".
        DialectType::BookKeeper => Recipe {
            identity: Decoder::BookKeeper,
            ..queue(&[Just("V_")], Any, Number)
        },
        // ClickHouse, LeaderElection.h: the sorted names. The data ends in a remark where all lead.
        DialectType::ClickHouse => Recipe {
            identity: Decoder::ClickHouse,
            ..queue(&[Just("leader_election-")], UpToTen, Text)
        },
        // Samza, ZkUtils.java: sort of texts.
        DialectType::Samza => queue(&[Just("processor-")], Any, Text),
    })
}
