//! What identities data has.

use std::io::Write as _;

use bellwether_api::election::recipe::{Digits, Layout, Order, Piece};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;

use super::*;

const SOLR: Decoder = Decoder::Solr(Layout {
    name: &[
        Piece::Session,
        Piece::Text("-"),
        Piece::Id,
        Piece::Text("-n_"),
    ],
    digits: Digits::Unsigned,
    order: Order::Number,
});
const CLICKHOUSE: Decoder = Decoder::TextBefore(" (multiple leaders Ok)");

const ALL: [Decoder; 12] = [
    Decoder::Text,
    Decoder::JsonOf(&[&["/a", "/b"], &["/a"]]),
    Decoder::JsonOf(&[&["/descriptors/0/address"]]),
    Decoder::Hadoop,
    Decoder::HBase,
    Decoder::Flink,
    SOLR,
    Decoder::Mesos,
    Decoder::BookKeeper,
    CLICKHOUSE,
    Decoder::NodeName,
    Decoder::Session,
];

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn node(data: &[u8]) -> Node<'_> {
    Node {
        name: "n_0000000001",
        id: None,
        session: 0x1000,
        data,
    }
}

fn identity(decoder: Decoder, data: &[u8]) -> Identity {
    Identity::decode(&Decoding::Recipe(decoder), node(data))
}

fn decode(decoder: Decoder, data: &[u8]) -> (String, IdentitySource) {
    let identity = identity(decoder, data);
    (identity.text, identity.source)
}

fn decoded(text: &str, source: IdentitySource) -> (String, IdentitySource) {
    (text.to_owned(), source)
}

#[test]
fn text_is_the_identity() {
    let data = "host-1:8983_sölr";
    assert_eq!(
        decode(Decoder::Text, data.as_bytes()),
        decoded(data, IdentitySource::Data)
    );
}

#[test]
fn an_anonymous_candidate_is_known_by_its_session() {
    for decoder in ALL
        .into_iter()
        .filter(|decoder| *decoder != Decoder::NodeName)
    {
        assert_eq!(
            decode(decoder, b""),
            decoded("0x1000", IdentitySource::Session),
            "{decoder:?}"
        );
    }
    let persistent = Node {
        session: 0,
        ..node(b"")
    };
    for decoder in ALL {
        let identity = Identity::decode(&Decoding::Recipe(decoder), persistent);
        assert_eq!(identity.text, "n_0000000001", "{decoder:?}");
        assert_eq!(identity.source, IdentitySource::NodeName, "{decoder:?}");
    }
}

#[test]
fn compressed_data_is_unfolded_first() {
    let expected = decoded("participant-1", IdentitySource::Data);
    assert_eq!(decode(Decoder::Text, &gzip(b"participant-1")), expected);
    assert_eq!(decode(Decoder::Text, &gzip(b"")).1, IdentitySource::Session);
    let json = gzip(br#"{"a":"x"}"#);
    assert_eq!(decode(ALL[1], &json), decoded("x", IdentitySource::Json));
    assert!(is_set(&json, "/a"));
}

#[test]
fn a_compression_bomb_and_damaged_data_are_shown_raw() {
    let bomb = gzip(&vec![b'a'; 10 * 1024 * 1024]);
    let (text, source) = decode(Decoder::Text, &bomb);
    assert_eq!(source, IdentitySource::Raw);
    assert!(text.starts_with("0x1f8b"), "{text}");
    let mut damaged = gzip(b"participant-1");
    damaged.truncate(15);
    assert_eq!(decode(Decoder::Text, &damaged).1, IdentitySource::Raw);
}

#[test]
fn json_is_read_where_the_pointers_point() {
    let decoder = ALL[1];
    assert_eq!(
        decode(decoder, br#"{"a":"x","b":80}"#),
        decoded("x:80", IdentitySource::Json)
    );
    assert_eq!(
        decode(decoder, br#"{"a":true}"#),
        decoded("true", IdentitySource::Json)
    );
    // Data without these values is shown as it is.
    for data in [r#"{"a":null}"#, r#"{"a":[1]}"#, "{", "text"] {
        assert_eq!(
            decode(decoder, data.as_bytes()),
            decoded(data, IdentitySource::Data),
            "{data}"
        );
    }
    let pointers = |list: &[&str]| {
        Decoding::Pointers(list.iter().map(|&pointer| pointer.to_owned()).collect())
    };
    let kafka = br#"{"version":2,"brokerid":3,"timestamp":"1"}"#;
    let identity = Identity::decode(&pointers(&["/brokerid"]), node(kafka));
    assert_eq!(
        (identity.text.as_str(), identity.source),
        ("3", IdentitySource::Json)
    );
    let escaped = Identity::decode(&pointers(&["/a~1b"]), node(br#"{"a/b":"x"}"#));
    assert_eq!(escaped.text, "x");
    let none = Identity::decode(&pointers(&[]), node(b"{}"));
    assert_eq!(none.source, IdentitySource::Data);
}

#[test]
fn deep_and_large_json_is_no_identity() {
    let deep = "[".repeat(10_000);
    assert_eq!(decode(ALL[1], deep.as_bytes()).1, IdentitySource::Data);
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(100_000));
    assert_eq!(decode(ALL[1], large.as_bytes()).1, IdentitySource::Data);
}

#[test]
fn a_value_counts_as_set_unless_it_is_null_or_false() {
    let data = br#"{"a":null,"b":false,"c":0,"d":"","e":{"f":[1]}}"#;
    let set = |pointer: &str| is_set(data, pointer);
    assert_eq!([set("/a"), set("/b"), set("/x"), set("/e/f/1")], [false; 4]);
    assert_eq!([set("/c"), set("/d"), set("/e"), set("/e/f/0")], [true; 4]);
    assert!(!is_set(b"no json", "/a"));
}

#[test]
fn solr_registers_the_name_of_its_node_or_its_own() {
    let overseer = br#"{"id":"72057-10.0.0.1:8983_solr-n_0000000004"}"#;
    let expected = decoded("10.0.0.1:8983_solr", IdentitySource::Json);
    assert_eq!(decode(SOLR, overseer), expected);
    let shard = br#"{"core":"c1_shard1_replica_n1","node_name":"10.0.0.1:8983_solr",
        "base_url":"http://10.0.0.1:8983/solr"}"#;
    let leader = identity(SOLR, shard);
    assert_eq!((leader.text, leader.source), expected);
    assert_eq!(leader.address.as_deref(), Some("http://10.0.0.1:8983/solr"));
}

#[test]
fn clickhouses_remark_is_no_part_of_the_identity() {
    assert_eq!(decode(CLICKHOUSE, b"r1").0, "r1");
    let remarked = b"r1 (multiple leaders Ok)";
    assert_eq!(decode(CLICKHOUSE, remarked).0, "r1");
}

#[test]
fn a_name_or_a_session_may_be_the_identity() {
    let named = Node {
        id: Some("host-1"),
        ..node(b"data")
    };
    let by = |decoder| Identity::decode(&Decoding::Recipe(decoder), named);
    assert_eq!(by(Decoder::NodeName).text, "host-1");
    assert_eq!(by(Decoder::Session).text, "0x1000");
    assert_eq!(decode(Decoder::NodeName, b"data").0, "n_0000000001");
}

#[test]
fn a_mesos_master_is_read_as_its_name_says() {
    let by = |name: &'static str, data: &'static [u8]| {
        let decoding = Decoding::Recipe(Decoder::Mesos);
        Identity::decode(&decoding, Node { name, ..node(data) })
    };
    let json = by(
        "json.info_0000000001",
        br#"{"hostname":"m1","port":5050,"pid":"p"}"#,
    );
    assert_eq!(
        (json.text.as_str(), json.source),
        ("m1:5050", IdentitySource::Json)
    );
    let message = by("info_0000000001", b"\x22\x02m@\x2a\x02m1\x18\xba\x27");
    assert_eq!(
        (message.text.as_str(), message.source),
        ("m1:5050", IdentitySource::Protobuf)
    );
    let text = by("0000000001", b"master@10.0.0.1:5050");
    assert_eq!(
        (text.text.as_str(), text.source),
        ("master@10.0.0.1:5050", IdentitySource::Data)
    );
}

#[test]
fn address_and_epoch_are_shown_as_safely_as_the_identity() {
    let hostile = b"\x0a\x01n\x12\x02n1\x1a\x03a\x1b[\x20\x01";
    let leader = identity(Decoder::Hadoop, hostile);
    assert_eq!(leader.text, "n1");
    assert_eq!(leader.address.as_deref(), Some("a\\u{1b}[:1"));
}

#[test]
fn nothing_that_misleads_a_terminal_is_shown() {
    let (text, _) = decode(Decoder::Text, "a\u{1b}[31m\n\u{202e}b\\c".as_bytes());
    assert_eq!(text, "a\\u{1b}[31m\\n\\u{202e}b\\c");
}

#[test]
fn long_identities_with_the_same_beginning_stay_different() {
    let (one, _) = decode(Decoder::Text, format!("{}1", "x".repeat(400)).as_bytes());
    let (two, _) = decode(Decoder::Text, format!("{}2", "x".repeat(400)).as_bytes());
    assert_ne!(one, two);
    assert_eq!(one.chars().count(), MAX_IDENTITY);
    let (exact, _) = decode(Decoder::Text, "x".repeat(MAX_IDENTITY).as_bytes());
    assert_eq!(exact, "x".repeat(MAX_IDENTITY));
}

/// Data that looks like that of some decoder, cut and with some bytes changed.
fn alike() -> impl Strategy<Value = Vec<u8>> {
    let beginnings: Vec<&[u8]> = vec![
        b"",
        b"\xffPBUF",
        b"\xff\x00\x00\x00\x02abPBUF\x0a\x0e\x0a\x02m1\x10\x80\x7d",
        b"PBUF\x0a\xff\xff\xff\xff\x0f",
        b"\xac\xed\x00\x05\x7a\xff\xff\xff\xff",
        b"\xac\xed\x00\x05\x77\x05\x00\x03",
        b"\x0a\x02ns\x12\x03nn1\x1a\x04host\x20",
        b"{\"a\":{\"b\":[",
        b"bookieId: \"",
        b"\x1f\x8b\x08\x00",
    ];
    (
        prop::sample::select(beginnings),
        prop::collection::vec(any::<u8>(), 0..300),
    )
        .prop_map(|(beginning, tail)| [beginning, &tail].concat())
}

proptest! {
    #[test]
    fn no_data_makes_it_panic_and_every_identity_is_bounded(
        data in prop_oneof![prop::collection::vec(any::<u8>(), 0..600), alike()],
        compressed in any::<bool>(),
        text in any::<String>(),
        session in any::<i64>(),
    ) {
        let data = if compressed { gzip(&data) } else { data };
        let pointers = Decoding::Pointers(vec!["/a".to_owned(), text.clone()]);
        let decodings = ALL.into_iter().map(Decoding::Recipe).chain([pointers]);
        for decoding in decodings {
            for data in [data.as_slice(), text.as_bytes()] {
                let node = Node { name: "info_1", id: Some(&text), session, data };
                let identity = Identity::decode(&decoding, node);
                prop_assert!(!identity.text.is_empty());
                let shown = [Some(identity.text), identity.address, identity.epoch];
                for text in shown.into_iter().flatten() {
                    prop_assert!(text.chars().count() <= MAX_IDENTITY);
                    prop_assert!(!text.chars().any(char::is_control));
                }
            }
        }
        let _ = (is_set(&data, "/a"), is_set(text.as_bytes(), &text), ALL.map(|decoder| understands(decoder, &data)));
    }
}
