//! When certificates are due, and what is on record of them.

use bellwether_api::ZooKeeperEnsembleSpec;

use super::*;
use crate::validate::example;

fn ensemble() -> ValidEnsemble {
    example(ZooKeeperEnsembleSpec {
        replicas: 3,
        ..Default::default()
    })
}

fn issued() -> Certificates {
    let of = |party: &str| Issued {
        authority: format!("authority of {party}"),
        authority_until: "2036-03-01T00:00:00Z".parse().unwrap(),
        certificate: format!("certificate for {party}"),
        key: format!("key for {party}"),
        until: "2026-06-01T00:00:00Z".parse().unwrap(),
    };
    Certificates {
        members: of("members"),
        clients: of("clients"),
    }
}

fn record_of(trust: &Trust) -> Value {
    config_map(&ensemble(), (trust, "root"), &issued(), None).body
}

fn recorded() -> Value {
    record_of(&Trust::only("abc"))
}

#[test]
fn what_is_written_into_the_record_is_read_from_it() {
    let record = Record::parse(&recorded()).unwrap();
    assert_eq!(record.trust, Trust::only("abc"));
    assert_eq!(record.authorities, "authority of members");
    assert_eq!(record.root.as_deref(), Some("root"));
    assert_eq!(record.until, issued().members.until);
    assert_eq!(
        record.clients.as_ref().unwrap().certificate,
        "authority of clients"
    );
    for other in [Other::Next("def".to_owned()), Other::Last("def".to_owned())] {
        let trust = Trust {
            signer: "abc".to_owned(),
            other: Some(other),
        };
        assert_eq!(Record::parse(&record_of(&trust)).unwrap().trust, trust);
        let name = authority("shop", "zk", &trust);
        assert_eq!(
            (name.id.as_str(), name.other.as_deref()),
            ("abc", Some("def"))
        );
    }
}

#[test]
fn a_record_that_makes_no_sense_is_none() {
    for (key, value) in [
        (labels::AUTHORITY, json!("a/../b")),
        (labels::AUTHORITY, json!("")),
        (labels::AUTHORITY, json!("0123456789abcdef0")),
        (labels::OTHER_AUTHORITY, json!("def")),
        (labels::OTHER_AUTHORITY, json!("next:a/b")),
        (labels::IDENTITY_UNTIL, json!("tomorrow")),
        (labels::IDENTITY_NAMES, Value::Null),
    ] {
        let mut map = recorded();
        map["metadata"]["annotations"][key] = value;
        assert_eq!(Record::parse(&map), None, "{key}");
    }
}

/// Three members that present `presents`, with this on record, at this time.
fn observed(record: Option<Value>, presents: Option<&str>, now: &str) -> Observation {
    let mut observation = crate::plan::example::Running::new(3, 1).observation;
    observation.now = now.parse().unwrap();
    observation.identity = record.map(|record| Record::parse(&record).unwrap());
    let observers = &mut observation.observers.pods;
    for pod in observation.pods.iter_mut().chain(observers) {
        pod.presents = presents.map(str::to_owned);
    }
    observation
}

const SPRING: &str = "2026-04-01T00:00:00Z";
/// A minute after the certificate on record was made.
const SOON: &str = "2026-03-03T00:01:00Z";

/// What members present that have what is on record.
fn given() -> String {
    let Certificates { members, .. } = issued();
    presented(&members.authority, &members.certificate)
}

#[test]
fn certificates_are_due_early_and_when_their_names_change() {
    let due = |ensemble: &ValidEnsemble, now| {
        let observation = observed(Some(recorded()), None, now);
        due(ensemble, &observation, Some("root"))
    };
    let same = Some(Trust::only("abc"));
    assert_eq!(due(&ensemble(), "2026-05-01T00:00:00Z"), None);
    assert_eq!(due(&ensemble(), "2026-05-02T00:00:00Z"), same);
    let mut moved = ensemble();
    moved.context.cluster_domain = "example.internal".to_owned();
    assert_eq!(due(&moved, SPRING), same);
}

#[test]
fn an_ensemble_without_a_record_gets_certificates_of_its_first_authority() {
    let observation = observed(None, None, SPRING);
    for root in [None, Some("root")] {
        let trust = due(&ensemble(), &observation, root).unwrap();
        assert_eq!(trust, first(&ensemble().uid));
    }
}

#[test]
fn an_authority_is_replaced_when_asked_a_step_at_a_time_as_members_take_it_up() {
    let mut asked = ensemble();
    asked.replace_authority = Some("after the incident".to_owned());
    let next = |record: &Value, presents: Option<&str>, now| {
        due(
            &asked,
            &observed(Some(record.clone()), presents, now),
            Some("root"),
        )
    };
    let given = given();
    let mut record = recorded();
    let mut steps = Vec::new();
    while let Some(trust) = next(&record, Some(&given), SOON) {
        // Members that present something else are waited for.
        assert_eq!(next(&record, Some("older"), SOON), None);
        assert_eq!(next(&record, None, SOON), None);
        steps.push(trust.clone());
        record = record_of(&trust);
    }
    assert_eq!(steps.len(), 3);
    let new = &steps[2];
    assert!(new.other.is_none() && new.signer != "abc");
    assert_eq!(steps[0].other, Some(Other::Next(new.signer.clone())));
    assert_eq!(steps[1].other, Some(Other::Last("abc".to_owned())));
}

/// The operator may have ended between the Secret and the record.
#[test]
fn members_that_do_not_take_up_a_step_are_given_it_again() {
    let begun = Trust {
        signer: "abc".to_owned(),
        other: Some(Other::Next("def".to_owned())),
    };
    let next = |now: &str| {
        let observation = observed(Some(record_of(&begun)), Some("other"), now);
        due(&ensemble(), &observation, Some("root"))
    };
    // The certificate on record was made on 3 March.
    assert_eq!(next("2026-03-03T00:09:00Z"), None);
    assert_eq!(next("2026-03-03T00:10:00Z"), Some(begun.clone()));
}

/// With another root key, nothing that is on record signs any more.
#[test]
fn another_root_key_makes_another_authority_at_once() {
    let observation = observed(Some(recorded()), Some(&given()), SPRING);
    let new = due(&ensemble(), &observation, Some("another")).unwrap();
    assert!(new.other.is_none() && new.signer != "abc");
    // While the root key cannot be read, nothing is concluded.
    assert_eq!(due(&ensemble(), &observation, None), None);
    // An earlier version of the operator recorded no root key.
    let mut older = recorded();
    older["metadata"]["annotations"][labels::ROOT] = Value::Null;
    let observation = observed(Some(older), None, SPRING);
    assert_eq!(due(&ensemble(), &observation, Some("another")), None);
}

#[test]
fn a_person_is_told_when_a_certificate_was_not_replaced_in_time() {
    let record = Record::parse(&recorded()).unwrap();
    let told = |now: &str| {
        let trouble = expiring(Some(&record), now.parse().unwrap());
        trouble.map(|trouble| trouble.message)
    };
    assert_eq!(told("2026-05-11T00:00:00Z"), None);
    let message = told("2026-05-13T00:00:00Z").unwrap();
    assert!(message.contains("ends on 2026-06-01"), "{message}");
    let message = told("2026-06-02T00:00:00Z").unwrap();
    assert!(message.contains("ended on 2026-06-01"), "{message}");
    assert_eq!(expiring(None, issued().members.until), None);
}

#[test]
fn clients_keep_the_authority_that_they_were_given_while_its_id_stays() {
    let record = Record::parse(&recorded()).unwrap();
    let mut renewed = issued();
    renewed.clients.authority = "the same authority, signed again".to_owned();
    let authority = |id, root| {
        let trust = Trust::only(id);
        let map = config_map(&ensemble(), (&trust, root), &renewed, Some(&record));
        map.body["data"]["client-ca.crt"].clone()
    };
    // Also when the members' authority is another one.
    for id in ["abc", "def"] {
        assert_eq!(authority(id, "root"), "authority of clients");
    }
    let another = authority("abc", "another root key");
    assert_eq!(another, "the same authority, signed again");
    // Clients are told of a newer certificate years before the older one ends.
    renewed.clients.authority_until = "2041-03-02T00:00:00Z".parse().unwrap();
    let trust = Trust::only("abc");
    let map = config_map(&ensemble(), (&trust, "root"), &renewed, Some(&record));
    let told = &map.body["data"]["client-ca.crt"];
    assert_eq!(*told, "the same authority, signed again");
}

#[test]
fn clients_may_connect_by_every_name_that_resolves() {
    insta::assert_snapshot!(client_port_names(&ensemble()).join("\n"), @r"
    zk
    zk.shop.svc.cluster.local
    zk.shop.svc
    zk.shop
    *.zk-members.shop.svc.cluster.local
    *.zk-members.shop.svc
    *.zk-members.shop
    localhost
    ");
}

/// A Secret in a Secret volume is updated as a whole, so that certificate, key and authority belong together.
#[test]
fn the_secret_has_what_a_member_needs_and_goes_with_the_ensemble() {
    let secret = secret(&ensemble(), &issued());
    let data = secret.data.unwrap();
    let keys: Vec<&str> = data.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "ca.crt",
            "client-ca.crt",
            "client-port.crt",
            "client-port.key",
            "tls.crt",
            "tls.key"
        ]
    );
    assert!(secret.metadata.name.unwrap().starts_with("zk-identity-"));
    let owners = secret.metadata.owner_references.unwrap();
    assert_eq!(owners[0].kind, "ZooKeeperEnsemble");
}
