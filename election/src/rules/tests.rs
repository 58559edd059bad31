//! What becomes of specs.

use bellwether_api::election::{
    CustomOptions, Dialect as Options, EnsembleRef, IdentityDecoder, IdentityOptions,
};

use super::*;

fn spec(path: &str, type_: DialectType) -> LeaderElectionSpec {
    LeaderElectionSpec {
        ensemble_ref: Some(EnsembleRef {
            name: "main".to_owned(),
            namespace: None,
        }),
        connection: None,
        authentication: None,
        path: path.to_owned(),
        dialect: Options::from(type_),
        identity: None,
        handover: None,
        leadership_check: None,
        bridge: None,
        projections: None,
        pod_binding: None,
        max_candidates: 50,
        own_series: false,
    }
}

fn rules(spec: LeaderElectionSpec) -> Rules {
    Rules::new(Arc::new(spec), None).unwrap()
}

fn path(place: Option<ZnodeLocation<'_>>) -> Option<(bool, String)> {
    place.map(|place| (matches!(place, ZnodeLocation::Child(_)), place.into_name()))
}

#[test]
fn solr_registers_leaders_in_a_fixed_place() {
    let cases = [
        ("/overseer_elect/election", Some("/overseer_elect/leader")),
        (
            "/solr/overseer_elect/election",
            Some("/solr/overseer_elect/leader"),
        ),
        (
            "/solr/collections/c1/leader_elect/shard1/election",
            Some("/solr/collections/c1/leaders/shard1/leader"),
        ),
        ("/solr/elsewhere/election", None),
        ("/election", None),
        ("/overseer_elect", None),
    ];
    for (queue, leader) in cases {
        let rules = rules(spec(queue, DialectType::Solr));
        let expected = leader.map(|leader| (false, leader.to_owned()));
        assert_eq!(path(rules.leader_path()), expected, "{queue}");
    }
    let other = rules(spec("/overseer_elect/election", DialectType::GuidN));
    assert_eq!(path(other.leader_path()), None);
}

#[test]
fn named_znodes_may_be_children_or_anywhere() {
    let named = |name: &str| {
        let mut spec = spec("/zkroot", DialectType::Kazoo);
        spec.dialect.acknowledgement = Some(name.to_owned());
        if name.starts_with('/') {
            spec.dialect.leader_path = Some(name.to_owned());
        }
        let rules = rules(spec);
        let place = path(rules.acknowledgement());
        if name.starts_with('/') {
            assert_eq!(path(rules.leader_path()), place);
        }
        place.unwrap()
    };
    assert_eq!(named("ack"), (true, "ack".to_owned()));
    assert_eq!(named("/zkroot/ack"), (true, "ack".to_owned()));
    assert_eq!(named("/zkroot/a/b"), (false, "/zkroot/a/b".to_owned()));
    assert_eq!(named("/zkroot2"), (false, "/zkroot2".to_owned()));
}

#[test]
fn a_recipe_with_an_acknowledgement_needs_none_in_the_spec() {
    let mut spec = spec("/_zkelection/db", DialectType::ZkRubyElection);
    let place = |spec: &LeaderElectionSpec| path(rules(spec.clone()).acknowledgement());
    assert_eq!(place(&spec), Some((true, "leader_ack".to_owned())));
    spec.dialect.acknowledgement = Some("other".to_owned());
    assert_eq!(place(&spec), Some((true, "other".to_owned())));
}

#[test]
fn what_was_detected_is_kept() {
    let spec = Arc::new(spec("/zkroot", DialectType::Auto));
    let mut rules = Rules::new(spec.clone(), None).unwrap();
    assert_eq!((rules.place(), rules.dialect()), (Place::Unknown, None));
    rules.detect(&["config".to_owned()]);
    assert_eq!(rules.dialect(), None);
    rules.detect(&["n_0000000001".to_owned()]);
    assert_eq!(rules.dialect(), Some(DialectType::ZkElection));
    rules.detect(&["V_0000000001".to_owned()]);
    assert_eq!(rules.dialect(), Some(DialectType::ZkElection));
    let again = Rules::new(spec.clone(), Some("ZkElection")).unwrap();
    assert_eq!(again.dialect(), Some(DialectType::ZkElection));
    for nonsense in ["Auto", "Custom", "nonsense", ""] {
        let rules = Rules::new(spec.clone(), Some(nonsense)).unwrap();
        assert_eq!(rules.dialect(), None, "{nonsense}");
        assert_ne!(
            rules.detection(),
            Some(&Detection::Found(DialectType::Auto))
        );
    }
}

#[test]
fn an_ephemeral_node_is_the_leaders_own() {
    let detected = |path: &str, owner: i64, data: &[u8]| {
        let mut rules = rules(spec(path, DialectType::Auto));
        let stat = NodeStat {
            ephemeral_owner: owner,
            ..NodeStat::default()
        };
        rules.detect_node(&stat, data);
        rules.dialect()
    };
    assert_eq!(
        detected("/leader", 7, b"host"),
        Some(DialectType::SingleText)
    );
    assert_eq!(detected("/leader", 0, b"host"), None);
    let lock = "/hadoop-ha/ns/ActiveStandbyElectorLock";
    assert_eq!(detected(lock, 7, b""), Some(DialectType::HadoopElector));
    let master = b"PBUF\x0a\x07\x0a\x02m1\x10\x80\x7d";
    assert_eq!(
        detected("/hbase/master", 7, master),
        Some(DialectType::HBaseMaster)
    );
    let flink = b"\xac\xed\x00\x05\x77\x03\x00\x01a";
    assert_eq!(
        detected("/f/connection_info", 7, flink),
        Some(DialectType::FlinkComponent)
    );
}

#[test]
fn an_unusable_pattern_is_told_with_its_field() {
    let refused = |options: Option<CustomOptions>| {
        let mut spec = spec("/zkroot", DialectType::Custom);
        spec.dialect.custom = options.map(Box::new);
        Rules::new(Arc::new(spec), None).unwrap_err().0
    };
    let broken = CustomOptions {
        child_pattern: Some("n_(".to_owned()),
        ..CustomOptions::default()
    };
    let text = refused(Some(broken));
    assert_eq!(
        text,
        "spec.dialect.custom.childPattern cannot be used: unclosed group."
    );
    // The API server refuses these specs; an older version of its rules may have accepted them.
    assert_eq!(refused(None), "spec.dialect.custom is missing.");
    let text = refused(Some(CustomOptions::default()));
    assert_eq!(text, "spec.dialect.custom.childPattern is missing.");
}

#[test]
fn the_spec_overrules_the_decoder_of_whatever_tells_the_leader() {
    let mut spec = spec("/flink/leader/latch", DialectType::CuratorLatch);
    spec.identity = Some(IdentityOptions {
        decoder: IdentityDecoder::Flink,
        pointers: None,
    });
    let data = b"\xac\xed\x00\x05\x77\x03\x00\x01a";
    let stat = NodeStat::default();
    let name = "_c_6aa2b1b5-6f0d-4b83-9a24-7a9c1f1f6a10-latch-0000000001";
    let candidate = |rules: &Rules| rules.candidacy(name, &stat, data).identity.text;
    let leader = |rules: &Rules| rules.registration("/i", &stat, data).identity.text;
    let without = rules(spec.clone());
    assert_eq!(candidate(&without), "a");
    spec.dialect.leader_path = Some("/flink/leader/dispatcher/connection_info".to_owned());
    let with = rules(spec);
    assert_eq!(leader(&with), "a");
    assert!(candidate(&with).starts_with("0xaced"));
}
