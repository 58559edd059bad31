//! From a znode's data to an identity that is safe to show.

mod java;
mod json;
mod messages;
mod show;

use std::io::Read as _;

use bellwether_api::election::recipe::Decoder;
use bellwether_api::election::{IdentityDecoder, IdentityOptions, IdentitySource, format_session};
use flate2::read::GzDecoder;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};

pub use show::MAX_IDENTITY;
pub(crate) use show::presentable;

use crate::dialect::Names;
use json::Json;
use show::raw;

/// How many bytes compressed data may unfold to; more is not an identity but an attack.
const MAX_UNFOLDED: u64 = 64 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How the data of one election's nodes is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoding {
    /// As the recipe has it.
    Recipe(Decoder),
    /// JSON, with the pointers of the spec.
    Pointers(Vec<String>),
}

impl Decoding {
    /// The decoding that the spec asks for.
    pub(crate) fn from_options(options: &IdentityOptions) -> Self {
        Self::Recipe(match options.decoder {
            IdentityDecoder::Text => Decoder::Text,
            IdentityDecoder::Json => {
                return Self::Pointers(options.pointers.clone().unwrap_or_default());
            }
            IdentityDecoder::Hadoop => Decoder::Hadoop,
            IdentityDecoder::HBase => Decoder::HBase,
            IdentityDecoder::Flink => Decoder::Flink,
            IdentityDecoder::NodeName => Decoder::NodeName,
            IdentityDecoder::Session => Decoder::Session,
        })
    }
}

/// A node whose owner has to be identified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'n> {
    /// Its name.
    pub(crate) name: &'n str,
    /// The part of its name that identifies its owner.
    pub(crate) id: Option<&'n str>,
    /// The session that owns it, or 0 if it is not ephemeral.
    pub(crate) session: i64,
    /// Its data.
    pub(crate) data: &'n [u8],
}

/// The candidate's identity, decoded from its znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// At most [`MAX_IDENTITY`] characters, none of them a control character.
    pub text: String,
    /// Where it comes from.
    pub source: IdentitySource,
    /// The address that the data contains beside it, safe to show.
    pub address: Option<String>,
    /// The application's own name for the term, safe to show.
    pub epoch: Option<String>,
}

/// Decoded data, before it is made safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decoded {
    text: String,
    source: IdentitySource,
    address: Option<String>,
    epoch: Option<String>,
}

impl Decoded {
    fn new(text: impl Into<String>, source: IdentitySource) -> Self {
        Self {
            text: text.into(),
            source,
            address: None,
            epoch: None,
        }
    }
}

impl Identity {
    /// Decodes a node's data. An anonymous candidate is known by its session, and if the node has none (0),
    /// by the name of the node. Data in an unexpected format is shown as it is.
    pub(crate) fn decode(decoding: &Decoding, node: Node<'_>) -> Self {
        let unfolded = unfold(node.data);
        let data = unfolded.as_deref().unwrap_or(node.data);
        let decoded = match decoding {
            Decoding::Pointers(pointers) => Json::parse(data)
                .and_then(|json| json.joined(pointers))
                .map(|text| Decoded::new(text, IdentitySource::Json)),
            Decoding::Recipe(decoder) => decode(*decoder, &Node { data, ..node }),
        };
        match decoded.or_else(|| text(data)) {
            Some(decoded) if !decoded.text.is_empty() => Self {
                text: presentable(&decoded.text),
                source: decoded.source,
                address: decoded.address.as_deref().map(presentable),
                epoch: decoded.epoch.as_deref().map(presentable),
            },
            _ if !data.is_empty() => Self::plain(raw(data), IdentitySource::Raw),
            _ if node.session != 0 => {
                Self::plain(format_session(node.session), IdentitySource::Session)
            }
            _ => Self::of_node(node.name),
        }
    }

    /// The identity of a candidate that is known only by the name of its node.
    pub(crate) fn of_node(node: &str) -> Self {
        Self::plain(presentable(node), IdentitySource::NodeName)
    }

    fn plain(text: String, source: IdentitySource) -> Self {
        Self {
            text,
            source,
            address: None,
            epoch: None,
        }
    }
}

/// What a recipe's decoder makes of a node; `None` if the data is not what the recipe writes.
fn decode(decoder: Decoder, node: &Node<'_>) -> Option<Decoded> {
    let json = |alternatives: &[&[&str]]| {
        let found = Json::parse(node.data)?;
        let text = alternatives
            .iter()
            .find_map(|pointers| found.joined(pointers))?;
        Some(Decoded::new(text, IdentitySource::Json))
    };
    match decoder {
        Decoder::Text => None,
        Decoder::JsonOf(alternatives) => json(alternatives),
        Decoder::Hadoop => messages::hadoop(node.data),
        Decoder::HBase => messages::hbase(node.data),
        Decoder::Flink => {
            let leader = java::flink(node.data)?;
            Some(Decoded {
                epoch: leader.session_id,
                ..Decoded::new(leader.address, IdentitySource::JavaSerialization)
            })
        }
        Decoder::Solr(queue) => {
            let found = Json::parse(node.data)?;
            // The overseer registers the name of its node in the queue.
            let queued = found.joined(&["/id"]).map(|name| {
                let names = Names::of_layout(queue, "");
                let candidate = names.parse(&name).and_then(|ranked| ranked.id);
                candidate.map(str::to_owned).unwrap_or(name)
            });
            let text = queued.or_else(|| found.joined(&["/node_name"]))?;
            Some(Decoded {
                address: found.joined(&["/base_url"]),
                ..Decoded::new(text, IdentitySource::Json)
            })
        }
        Decoder::Mesos if node.name.starts_with("info_") => messages::mesos(node.data),
        Decoder::Mesos => json(&[&["/hostname", "/port"], &["/pid"]]),
        Decoder::BookKeeper => {
            let id = messages::text_field(node.data, "bookieId")?;
            Some(Decoded::new(id, IdentitySource::Protobuf))
        }
        Decoder::TextBefore(remark) => {
            let name = std::str::from_utf8(node.data).ok()?.strip_suffix(remark)?;
            Some(Decoded::new(name, IdentitySource::Data))
        }
        Decoder::NodeName => {
            let name = node.id.unwrap_or(node.name);
            Some(Decoded::new(name, IdentitySource::NodeName))
        }
        Decoder::Session if node.session != 0 => {
            let session = format_session(node.session);
            Some(Decoded::new(session, IdentitySource::Session))
        }
        Decoder::Session => Some(Decoded::new(node.name, IdentitySource::NodeName)),
    }
}

/// Whether the value at a JSON pointer exists and is neither null nor false.
pub(crate) fn is_set(data: &[u8], pointer: &str) -> bool {
    let unfolded = unfold(data);
    let data = unfolded.as_deref().unwrap_or(data);
    Json::parse(data).is_some_and(|json| json.is_set(pointer))
}

/// The time at a JSON pointer. Without an offset it is UTC.
pub(crate) fn time(data: &[u8], pointer: &str) -> Option<Timestamp> {
    let unfolded = unfold(data);
    let json = Json::parse(unfolded.as_deref().unwrap_or(data))?;
    let text = json.text(pointer)?.trim();
    let utc = || {
        let time = text.parse::<civil::DateTime>().ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    text.parse().ok().or_else(utc)
}

/// Where a member can be reached, from the data of Kafka's brokers and of Patroni's members.
pub(crate) fn member_address(data: &[u8]) -> Option<String> {
    let json = Json::parse(data)?;
    // A broker without a plain listener has the host null and the port -1.
    let plain = || {
        let host = json.text("/host").filter(|host| !host.is_empty())?;
        Some(match json.joined(&["/port"]) {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        })
    };
    let other = || {
        ["/endpoints/0", "/conn_url"]
            .iter()
            .find_map(|at| json.text(at))
    };
    let address = plain().or_else(|| other().map(str::to_owned))?;
    Some(presentable(&address))
}

/// Whether data has the format that the recipes of this decoder write. Text, JSON and names fit too much data
/// to show that.
pub(crate) fn understands(decoder: Decoder, data: &[u8]) -> bool {
    match decoder {
        Decoder::Hadoop => messages::hadoop(data).is_some(),
        Decoder::HBase => messages::hbase(data).is_some(),
        Decoder::Flink => java::flink(data).is_some(),
        Decoder::Text
        | Decoder::TextBefore(_)
        | Decoder::JsonOf(_)
        | Decoder::Solr(_)
        | Decoder::Mesos
        | Decoder::BookKeeper
        | Decoder::NodeName
        | Decoder::Session => false,
    }
}

fn text(data: &[u8]) -> Option<Decoded> {
    let text = std::str::from_utf8(data).ok()?;
    Some(Decoded::new(text, IdentitySource::Data))
}

/// Decompresses gzip; `None` if the data is not gzip, is damaged, or unfolds to more than the limit.
fn unfold(data: &[u8]) -> Option<Vec<u8>> {
    if !data.starts_with(&GZIP_MAGIC) {
        return None;
    }
    let mut unfolded = Vec::new();
    GzDecoder::new(data)
        .take(MAX_UNFOLDED + 1)
        .read_to_end(&mut unfolded)
        .ok()?;
    (unfolded.len() as u64 <= MAX_UNFOLDED).then_some(unfolded)
}

#[cfg(test)]
mod tests;
