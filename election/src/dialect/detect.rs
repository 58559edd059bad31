//! Which dialect the znodes of an election look like.

use bellwether_api::election::DialectType;

use super::{Names, looks_sequential, recipe};
use crate::decode;

/// The dialects that can be told by the names of children, in the order in which they are tried:
/// a name that fits several belongs to the first of them.
const BY_NAMES: [DialectType; 19] = [
    DialectType::CuratorLatch,
    DialectType::CuratorLock,
    DialectType::GoZkLock,
    DialectType::CuratorReadWrite,
    DialectType::Kazoo,
    DialectType::ZkElection,
    DialectType::ZkWriteLock,
    DialectType::Solr,
    DialectType::GuidN,
    DialectType::Accumulo,
    DialectType::Mesos,
    DialectType::Bare,
    DialectType::TwitterGroup,
    DialectType::BookKeeper,
    DialectType::ZkRubyElection,
    DialectType::ZkRubyLock,
    DialectType::Aiozk,
    DialectType::ClickHouse,
    DialectType::Samza,
];

/// What the dialect `Auto` makes of the znodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detection {
    /// They are of this dialect.
    Found(DialectType),
    /// Nothing looks like a candidate of a dialect that can be detected.
    Nothing {
        /// How many children end in a sequence number all the same.
        sequential: usize,
    },
    /// Children of several dialects are there, or of one and of none.
    Ambiguous {
        /// How many there are of each.
        counts: Vec<(DialectType, usize)>,
        /// How many end in a sequence number and are of no known dialect.
        unknown: usize,
    },
}

/// A child of the path: whether its name ends in a sequence number, and which of [`BY_NAMES`] it
/// fits, one bit for each.
struct Child {
    sequential: bool,
    fits: u32,
}

/// Tells the dialect by the names of children.
///
/// It is the first one that some child fits, and that every child fits that ends in a sequence
/// number. Children without a number are no candidates in most dialects, so they do not count.
/// `solr` says that Solr may have made them: its names look like those of ZooKeeper's documented recipe
/// with an id that begins with digits, and only its paths tell.
pub(crate) fn detect<'n>(children: impl IntoIterator<Item = &'n str>, solr: bool) -> Detection {
    let rows: Vec<Option<Names>> = BY_NAMES
        .into_iter()
        .map(|dialect| {
            let possible = solr || dialect != DialectType::Solr;
            Names::of(&recipe(dialect).filter(|_| possible)?, "")
        })
        .collect();
    let mesos = BY_NAMES
        .iter()
        .position(|dialect| *dialect == DialectType::Mesos);
    let mut labelled = false;
    let mut children: Vec<Child> = children
        .into_iter()
        .map(|name| {
            let mut fits = 0;
            for (at, names) in rows.iter().enumerate() {
                if let Some(ranked) = names.as_ref().and_then(|names| names.read(name)) {
                    fits |= 1 << at;
                    labelled |= Some(at) == mesos && ranked.label != Some("");
                }
            }
            let sequential = looks_sequential(name);
            Child { sequential, fits }
        })
        .collect();
    // A bare number is one of Mesos only beside labelled ones.
    if let (false, Some(mesos)) = (labelled, mesos) {
        children
            .iter_mut()
            .for_each(|child| child.fits &= !(1 << mesos));
    }
    let fits = |child: &Child, at: usize| child.fits & (1 << at) != 0;
    for (at, dialect) in BY_NAMES.into_iter().enumerate() {
        let some = children.iter().any(|child| fits(child, at));
        if some
            && children
                .iter()
                .all(|child| !child.sequential || fits(child, at))
        {
            return Detection::Found(dialect);
        }
    }
    let counts: Vec<(DialectType, usize)> = BY_NAMES
        .into_iter()
        .enumerate()
        .map(|(at, dialect)| {
            let first = |child: &&Child| child.fits.trailing_zeros() as usize == at;
            (dialect, children.iter().filter(first).count())
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let sequential = children.iter().filter(|child| child.sequential);
    if counts.is_empty() {
        let sequential = sequential.count();
        Detection::Nothing { sequential }
    } else {
        let unknown = sequential.filter(|child| child.fits == 0).count();
        Detection::Ambiguous { counts, unknown }
    }
}

/// Tells the dialect of an ephemeral node, which is the leader's own, by its name and data.
pub(crate) fn detect_node(name: &str, data: &[u8]) -> DialectType {
    if name == "ActiveStandbyElectorLock" {
        DialectType::HadoopElector
    } else if decode::is_hbase(data) {
        DialectType::HBaseMaster
    } else if decode::is_flink(data) {
        DialectType::FlinkComponent
    } else {
        DialectType::SingleText
    }
}
