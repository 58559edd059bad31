//! The certificates of an ensemble's members: when new ones are due, and the objects that hold them.
//!
//! The authority of an ensemble signs one certificate, which all its members present: to the operator on the
//! control port. Its key is in the Secret `NAME-identity-HASH`, which the operator writes and never reads. What the
//! operator needs to know of it is public and in the ConfigMap `NAME-authorities`.

use bellwether_api::ensemble::status::{CertificateStatus, Reason};
use bellwether_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::desired::{DesiredObject, ObjectKind, apply, members_service, metadata, short_hash};
use crate::plan::trouble::Trouble;
use crate::validate::ValidEnsemble;

/// The name in the certificate of every member. A certificate with this name belongs to a member.
pub const MEMBER: &str = "member.zookeeper.bellwether.dev";
/// The name in the operator's certificate. Members answer to a certificate with this name only.
pub const OPERATOR: &str = "operator.zookeeper.bellwether.dev";

/// For how long a member's certificate is valid.
pub const VALID: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long before its end a certificate is replaced: early enough for people to notice that it fails.
const EARLY: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How long before its end a person has to know that a certificate was not replaced: the operator has failed to for
/// ten days then.
const LATE: SignedDuration = SignedDuration::from_hours(20 * 24);

/// The name of the Secret with the members' certificate and its key. The hash in it keeps the name from being that
/// of a user's Secret: the operator cannot read what is there before it writes.
pub fn identity_secret(ensemble: &ValidEnsemble) -> String {
    let hash = short_hash(&(&ensemble.namespace, &ensemble.name));
    format!("{}-identity-{hash}", ensemble.name)
}

/// The name of the ConfigMap with the authority's certificate.
pub fn authorities_config_map(ensemble: &str) -> String {
    format!("{ensemble}-authorities")
}

/// An authority: its key follows from this and the operator's root key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorityName {
    /// The namespace of the ensemble.
    pub namespace: String,
    /// The name of the ensemble.
    pub ensemble: String,
    /// Tells the authorities of one ensemble apart.
    pub id: String,
}

/// What is on record of the members' certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id of the authority that signed it.
    pub authority: String,
    /// When it ends.
    pub until: Timestamp,
    /// A hash of the names in it.
    pub names: String,
}

impl Record {
    /// What the status shows.
    pub fn status(&self) -> CertificateStatus {
        CertificateStatus {
            authority: self.authority.clone(),
            until: self.until.to_string(),
        }
    }

    /// Reads the annotations of the ConfigMap; `None` if one is missing or makes no sense.
    pub fn parse(config_map: &Value) -> Option<Self> {
        let annotations = &config_map["metadata"]["annotations"];
        let text = |key: &str| annotations[key].as_str();
        Some(Self {
            authority: text(labels::AUTHORITY).filter(|id| is_id(id))?.to_owned(),
            until: text(labels::IDENTITY_UNTIL)?.parse().ok()?,
            names: text(labels::IDENTITY_NAMES)?.to_owned(),
        })
    }
}

/// Whether this is the id of an authority: anybody who may write ConfigMaps can write another text there.
fn is_id(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The authority of an ensemble: the one on record. An ensemble without a record gets one that is named after its
/// uid, so that an ensemble that was deleted and created again does not trust what it trusted before.
pub fn authority(
    namespace: &str,
    ensemble: &str,
    uid: &str,
    record: Option<&Record>,
) -> AuthorityName {
    let id = match record {
        Some(record) => record.authority.clone(),
        None => short_hash(&uid),
    };
    AuthorityName {
        namespace: namespace.to_owned(),
        ensemble: ensemble.to_owned(),
        id,
    }
}

/// The names in the members' certificate.
pub fn names(ensemble: &ValidEnsemble) -> Vec<String> {
    let members = members_service(&ensemble.name);
    let domain = &ensemble.context.cluster_domain;
    vec![
        MEMBER.to_owned(),
        format!("*.{members}.{}.svc.{domain}", ensemble.namespace),
    ]
}

/// Whether the members need a new certificate.
pub fn is_due(ensemble: &ValidEnsemble, record: Option<&Record>, now: Timestamp) -> bool {
    record.is_none_or(|record| {
        record.names != short_hash(&names(ensemble)) || record.until.duration_since(now) <= EARLY
    })
}

/// A certificate that should have been replaced.
pub fn expiring(record: Option<&Record>, now: Timestamp) -> Option<Trouble> {
    let until = record?.until;
    let left = until.duration_since(now);
    let end = match left.is_positive() {
        true => format!("ends on {until}"),
        false => format!("ended on {until}"),
    };
    (left <= LATE).then(|| Trouble {
        reason: Reason::CertificateExpiring,
        message: format!(
            "The certificate of the members {end}, and the operator could not replace it. After its end the operator cannot \
             ask any member, and restarts none; and servers that speak TLS to each other take up no new connection, \
             so that a member that restarts stays away. The operator's log says why the Secret or the ConfigMap could \
             not be written."
        ),
    })
}

/// A certificate that an authority signed.
#[derive(Clone)]
pub struct Issued {
    /// The authority's own certificate, as PEM.
    pub authority: String,
    /// The certificate of the members, as PEM.
    pub certificate: String,
    /// Its private key, as PEM in PKCS#8, which is the only form that ZooKeeper reads (`util/PemReader.java`).
    pub key: String,
    /// When it ends.
    pub until: Timestamp,
}

/// The whole Secret with the members' certificate and its key.
pub fn secret(ensemble: &ValidEnsemble, issued: &Issued) -> Secret {
    let metadata = metadata(ensemble, &identity_secret(ensemble));
    let data = [
        ("ca.crt", &issued.authority),
        ("tls.crt", &issued.certificate),
        ("tls.key", &issued.key),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
    Secret {
        // The operator's own metadata always reads as Kubernetes' type.
        metadata: serde_json::from_value(metadata).unwrap_or_default(),
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into()),
        ..Secret::default()
    }
}

/// The ConfigMap that records what the Secret holds.
pub fn config_map(ensemble: &ValidEnsemble, id: &str, issued: &Issued) -> DesiredObject {
    let name = authorities_config_map(&ensemble.name);
    let mut metadata = metadata(ensemble, &name);
    metadata["annotations"] = json!({
        labels::AUTHORITY: id,
        labels::IDENTITY_UNTIL: issued.until.to_string(),
        labels::IDENTITY_NAMES: short_hash(&names(ensemble)),
    });
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": { "ca.crt": issued.authority },
    });
    apply(ObjectKind::ConfigMap, name, metadata, body)
}

#[cfg(test)]
mod tests {
    use bellwether_api::ZooKeeperEnsembleSpec;

    use super::*;
    use crate::validate::example;

    fn ensemble() -> ValidEnsemble {
        example(ZooKeeperEnsembleSpec {
            replicas: 3,
            ..Default::default()
        })
    }

    fn issued() -> Issued {
        Issued {
            authority: "authority".to_owned(),
            certificate: "certificate".to_owned(),
            key: "key".to_owned(),
            until: "2026-06-01T00:00:00Z".parse().unwrap(),
        }
    }

    fn recorded() -> Value {
        config_map(&ensemble(), "abc", &issued()).body
    }

    #[test]
    fn what_is_written_into_the_record_is_read_from_it() {
        let record = Record::parse(&recorded()).unwrap();
        assert_eq!(record.authority, "abc");
        assert_eq!(record.until, issued().until);
        let known = authority("shop", "zk", "uid", Some(&record));
        assert_eq!(known.id, "abc");
        assert_ne!(authority("shop", "zk", "uid", None).id, "abc");
    }

    #[test]
    fn a_record_that_makes_no_sense_is_none() {
        for (key, value) in [
            (labels::AUTHORITY, json!("a/../b")),
            (labels::AUTHORITY, json!("")),
            (labels::AUTHORITY, json!("0123456789abcdef0")),
            (labels::IDENTITY_UNTIL, json!("tomorrow")),
            (labels::IDENTITY_NAMES, Value::Null),
        ] {
            let mut map = recorded();
            map["metadata"]["annotations"][key] = value;
            assert_eq!(Record::parse(&map), None, "{key}");
        }
    }

    #[test]
    fn a_certificate_is_due_early_and_when_its_names_change() {
        let record = Record::parse(&recorded()).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let due = |ensemble: &ValidEnsemble, now| is_due(ensemble, Some(&record), at(now));
        assert!(is_due(&ensemble(), None, at("2026-03-01T00:00:00Z")));
        assert!(!due(&ensemble(), "2026-05-01T00:00:00Z"));
        assert!(due(&ensemble(), "2026-05-02T00:00:00Z"));
        let mut moved = ensemble();
        moved.context.cluster_domain = "example.internal".to_owned();
        assert!(due(&moved, "2026-03-01T00:00:00Z"));
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
        assert_eq!(expiring(None, issued().until), None);
    }

    /// A Secret in a Secret volume is updated as a whole, so that certificate, key and authority belong together.
    #[test]
    fn the_secret_has_what_a_member_needs_and_goes_with_the_ensemble() {
        let secret = secret(&ensemble(), &issued());
        let data = secret.data.unwrap();
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"]);
        assert!(secret.metadata.name.unwrap().starts_with("zk-identity-"));
        let owners = secret.metadata.owner_references.unwrap();
        assert_eq!(owners[0].kind, "ZooKeeperEnsemble");
    }
}
