use bellwether_api::election::{ConnectionTls, PodLabelsProjection, Projections};
use serde_json::json;

use super::*;

fn patterns(texts: &[&str]) -> HostPatterns {
    let parsed = texts.iter().map(|text| HostPattern::parse(text).unwrap());
    HostPatterns::from(parsed.collect::<Vec<_>>())
}

#[test]
fn hosts_are_read_as_clients_read_them() {
    let text = "a.b:2281,c,[::1]:3,[fe80::1]/chroot/d:4";
    let expected = [("a.b", 2281), ("c", 2181), ("::1", 3), ("fe80::1", 2181)];
    assert_eq!(hosts(text).collect::<Vec<_>>(), expected);
}

#[test]
fn without_patterns_no_host_is_allowed() {
    let nobody = Permissions::default();
    for connection in ["zk", "zk.example.com:2181", "10.0.0.1", "[::1]", ""] {
        assert!(!nobody.hosts.allow(connection), "{connection}");
    }
}

#[test]
fn a_pattern_means_exactly_what_it_says() {
    // The pattern, hosts that it allows, and hosts that it does not.
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "zk.example.com",
            &["zk.example.com", "ZK.Example.com:9", "zk.example.com.:1/x"],
            &[
                "example.com",
                "a.zk.example.com",
                "zk.example.com.evil",
                "zk",
                "zkxexample.com",
            ],
        ),
        (
            "zk.example.com:2281",
            &["zk.example.com:2281"],
            &[
                "zk.example.com",
                "zk.example.com:2181",
                "zk.example.com:22810",
            ],
        ),
        ("zk", &["zk", "zk:2281"], &["zk.example.com", "zk2"]),
        (
            "*.example.com",
            &["a.example.com", "a.b.Example.COM:3", "a.example.com."],
            &[
                "example.com",
                "aexample.com",
                ".example.com",
                "a.example.com.evil",
                "a.example.org",
            ],
        ),
        (
            "*.example.com:2181",
            &["a.example.com", "a.example.com:2181"],
            &["a.example.com:22"],
        ),
        (
            "10.1.2.3",
            &["10.1.2.3", "10.1.2.3:22", "[::ffff:10.1.2.3]"],
            &["10.1.2.4", "10.1.2.3.example.com", "[::10.1.2.3]"],
        ),
        (
            "10.0.0.0/9:2181",
            &["10.0.0.0", "10.127.255.255:2181"],
            &[
                "10.128.0.0",
                "10.0.0.1:22",
                "11.0.0.0",
                "10.0.0.1.example.com",
            ],
        ),
        (
            "0.0.0.0/0",
            &["1.2.3.4", "127.0.0.1"],
            &["[::1]", "zk", "127.1", "2130706433", "0x7f.1"],
        ),
        (
            "fd00::/8",
            &["[fd00::1]", "[fdff::]:3"],
            &["[fe00::1]", "[::1]", "10.0.0.1", "fd00"],
        ),
        (
            "[fd00::/8]:3",
            &["[fd00::1]:3"],
            &["[fd00::1]", "[fd00::1]:4"],
        ),
        ("[fd00::1]", &["[fd00::1]:9", "[fd00:0::1]"], &["[fd00::2]"]),
        ("::/0", &["[::1]"], &["1.2.3.4", "[::ffff:1.2.3.4]"]),
    ];
    for (pattern, allowed, refused) in cases {
        let patterns = patterns(&[pattern]);
        for host in *allowed {
            assert!(patterns.allow(host), "{pattern} has to allow {host}");
        }
        for host in *refused {
            assert!(!patterns.allow(host), "{pattern} must not allow {host}");
        }
    }
}

#[test]
fn texts_that_are_no_patterns_are_refused() {
    for text in [
        "",
        "*",
        "*.",
        "*.*",
        "a*",
        "*a.example.com",
        "a.*.com",
        "a b",
        "a/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "fd00::/129",
        "10.0.0/8",
        "10.1",
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "a:0",
        "a:",
        "a:65536",
        "a:b",
        "[a]",
        "[a]:1",
        "[10.0.0.1]:1",
        "[fd00::1",
        "[fd00::1]1",
        "::ffff:10.0.0.0/104",
        "http://a",
        "a..b",
        "-a",
        "a-",
        "*.1",
        "a.1",
        ":1",
    ] {
        let error = HostPattern::parse(text).unwrap_err();
        assert!(
            error.starts_with(&format!("{text:?} is no pattern")),
            "{error}"
        );
    }
}

#[test]
fn every_host_of_a_connection_has_to_be_allowed() {
    let some = patterns(&["a.example.com", "10.0.0.0/8:2181"]);
    assert!(some.allow("a.example.com:1,10.0.0.7/chroot"));
    let refused = some.refused("a.example.com,b.example.com:5,10.0.0.7:22,[::1]/b.example.com");
    assert_eq!(refused, ["b.example.com:5", "10.0.0.7:22", "[::1]:2181"]);
}

#[test]
fn a_list_of_patterns_allows_what_it_names_and_nothing_for_what_it_cannot_be_read_as() {
    let listed =
        HostPatterns::listed(" zk1.example.com:2281,\n zk2.example.com:2281 , * nonsense! ");
    assert!(listed.allow("zk1.example.com:2281,zk2.example.com:2281"));
    assert!(!listed.allow("zk1.example.com:2281,zk3.example.com:2281"));
    assert!(!listed.allow("zk1.example.com"));
    assert!(!HostPatterns::listed("").allow("a"));
}

#[test]
fn the_default_key_is_allowed_and_others_as_they_are_named() {
    let none = Permissions::default();
    assert!(none.allows_label_key(DEFAULT_ROLE_KEY));
    assert!(!none.allows_label_key("role"));
    let named = Permissions {
        label_keys: ["role", "example.com/*", "example.org/role"]
            .map(|text| LabelKeyPattern::parse(text).unwrap())
            .to_vec(),
        ..Permissions::default()
    };
    for key in ["role", "example.com/a", "example.org/role"] {
        assert!(named.allows_label_key(key), "{key}");
    }
    for key in [
        "app",
        "roles",
        "example.org/other",
        "an.example.com/a",
        "example.com",
        "example.comx/a",
    ] {
        assert!(!named.allows_label_key(key), "{key}");
    }
    for text in [
        "",
        "*",
        "/",
        "/a",
        "a/",
        "a/b/c",
        "*/a",
        "a*",
        "example.com/r*",
        "Example.com/a",
        "-a",
        "a b",
    ] {
        assert!(LabelKeyPattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn only_a_label_that_a_spec_asks_for_is_refused() {
    let spec = |key: Option<&str>| -> LeaderElectionSpec {
        let projections = Projections {
            pod_labels: key.map(|key| PodLabelsProjection {
                key: key.to_owned(),
                ..PodLabelsProjection::default()
            }),
            ..Projections::default()
        };
        serde_json::from_value(json!({
            "ensembleRef": {"name": "main"}, "path": "/e", "dialect": {"type": "Kazoo"},
            "projections": projections,
        }))
        .unwrap()
    };
    let none = Permissions::default();
    assert_eq!(none.refused_label_key(&spec(None)), None);
    assert_eq!(none.refused_label_key(&spec(Some(DEFAULT_ROLE_KEY))), None);
    assert_eq!(none.refused_label_key(&spec(Some("app"))), Some("app"));
}

#[test]
fn a_connection_is_refused_for_its_hosts_and_credentials_without_encryption() {
    let connection = |hosts: &str, tls: bool| Connection {
        connect_string: hosts.to_owned(),
        tls: tls.then(ConnectionTls::default),
    };
    let permissions = Permissions {
        hosts: patterns(&["zk.example.com"]),
        ..Permissions::default()
    };
    let refusal = |hosts: &str, tls, authenticates| {
        let refusal = permissions.refusal(&connection(hosts, tls), authenticates);
        refusal.map(|refusal| refusal.reason)
    };
    assert_eq!(refusal("zk.example.com", false, false), None);
    assert_eq!(refusal("zk.example.com", true, true), None);
    let in_clear = refusal("zk.example.com", false, true);
    assert_eq!(in_clear, Some(Reason::CredentialsWithoutTls));
    for tls in [false, true] {
        let other = refusal("zk.example.com,other", tls, true);
        assert_eq!(other, Some(Reason::ConnectionNotAllowed));
    }
    let crowd = |count: usize| vec!["zk.example.com"; count].join(",");
    assert_eq!(refusal(&crowd(64), false, false), None);
    let too_many = refusal(&crowd(65), false, false);
    assert_eq!(too_many, Some(Reason::InvalidSpec));
    let many = connection("a,b,c,d,e,f,g", false);
    let detail = permissions.refusal(&many, false).unwrap().detail;
    assert!(detail.contains("a:2181, b:2181"), "{detail}");
    assert!(detail.contains("e:2181 and 2 more:"), "{detail}");
}

#[test]
fn addresses_of_the_machine_itself_are_known_in_every_notation() {
    for local in [
        "127.0.0.1",
        "127.8.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "::1",
        "::",
        "fe80::1",
        "febf::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.0.1",
    ] {
        assert!(is_local(local.parse().unwrap()), "{local}");
    }
    for other in [
        "10.0.0.1",
        "192.168.0.1",
        "8.8.8.8",
        "fd00::1",
        "fec0::1",
        "2001:db8::1",
    ] {
        assert!(!is_local(other.parse().unwrap()), "{other}");
    }
}
