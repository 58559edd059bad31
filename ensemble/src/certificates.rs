//! The certificates of an ensemble's members: when new ones are due, and the objects that hold them.
//!
//! An ensemble has two authorities. The members' authority signs one certificate, which all members present to each other,
//! and to the operator on the control port. The clients' authority signs one that they present to clients: a client that
//! trusts it, or has a certificate of it one day, is no member. The keys of both certificates are in the Secret
//! `NAME-identity-HASH`, which the operator writes and never reads. What the operator needs to know of them is public and in
//! the ConfigMap `NAME-authorities`.

pub mod replacement;

use bellwether_api::ensemble::status::{CertificateStatus, Reason};
use bellwether_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::desired::{DesiredObject, ObjectKind, apply, members_service, metadata, short_hash};
use crate::observation::{Observation, PodObservation};
use crate::plan::trouble::Trouble;
use crate::validate::ValidEnsemble;
use replacement::{Other, Trust};

/// The name in the certificate of every member. A certificate with this name belongs to a member.
pub const MEMBER: &str = "member.zookeeper.bellwether.dev";
/// The name in the operator's certificate. Members answer to a certificate with this name only.
pub const OPERATOR: &str = "operator.zookeeper.bellwether.dev";

/// For how long the certificate of an authority is valid. It is made anew with each certificate that the authority signs.
pub const AUTHORITY_VALID: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Half of that time.
const HALF: SignedDuration = SignedDuration::from_hours(5 * 365 * 24);

/// For how long a member's certificate is valid.
pub const VALID: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long before its end a certificate is replaced: early enough for people to notice that it fails.
const EARLY: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How long before its end a person has to know that a certificate was not replaced: the operator has failed to for
/// ten days then.
const LATE: SignedDuration = SignedDuration::from_hours(20 * 24);

/// How long members may take to present what they were given, while their authority is replaced. It is given to them again
/// then: the record may have been lost. A kubelet takes up to two minutes to show a new Secret.
const TAKEN_UP: SignedDuration = SignedDuration::from_mins(10);

/// The key of the certificate of the members' authorities, in the Secret and in the ConfigMap.
const AUTHORITIES: &str = "ca.crt";
/// The key of the certificate of the clients' authority, in the Secret and in the ConfigMap.
const CLIENT_AUTHORITY: &str = "client-ca.crt";

/// The name of the Secret with the members' certificates and their keys. The hash in it keeps the name from being that
/// of a user's Secret: the operator cannot read what is there before it writes.
pub fn identity_secret(ensemble: &ValidEnsemble) -> String {
    let hash = short_hash(&(&ensemble.namespace, &ensemble.name));
    format!("{}-identity-{hash}", ensemble.name)
}

/// The name of the ConfigMap with the authorities' certificates.
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
    /// The id of another one that is trusted as well, while an authority is replaced.
    pub other: Option<String>,
}

impl AuthorityName {
    /// The name of the other one.
    pub fn of_other(&self) -> Option<Self> {
        let id = self.other.clone()?;
        Some(Self {
            id,
            other: None,
            ..self.clone()
        })
    }
}

/// The name in the certificate of the operator's mirror of elections, which is a client of the ensemble.
pub const MIRROR: &str = "mirror.zookeeper.bellwether.dev";

/// For whom a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// For members and the operator, by the members' authority: each connects to the others.
    Members,
    /// For members to present to clients, by the clients' authority.
    Clients,
    /// For a client to present to members, by the clients' authority.
    Client,
}

/// What is on record of the members' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The authorities of the members.
    pub trust: Trust,
    /// The certificates of these authorities, as PEM.
    pub authorities: String,
    /// The id of the root key that the authorities follow from. `None` if an earlier operator version wrote the record.
    pub root: Option<String>,
    /// A hash of what members are given, as [`presented`] has it. `None` if an earlier operator version wrote the record.
    pub given: Option<String>,
    /// When the certificate ends.
    pub until: Timestamp,
    /// A hash of the names in both.
    pub names: String,
    /// The authority that clients were told to trust. `None` if an earlier operator version wrote the record.
    pub clients: Option<ClientAuthority>,
}

/// The clients' authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    /// Its id.
    pub id: String,
    /// When its certificate ends.
    pub until: Timestamp,
    /// Its certificate, as PEM.
    pub certificate: String,
}

impl ClientAuthority {
    fn parse(config_map: &Value) -> Option<Self> {
        let annotations = &config_map["metadata"]["annotations"];
        let text = |key: &str| annotations[key].as_str();
        Some(Self {
            id: text(labels::CLIENT_AUTHORITY)?.to_owned(),
            until: text(labels::CLIENT_AUTHORITY_UNTIL)?.parse().ok()?,
            certificate: config_map["data"][CLIENT_AUTHORITY].as_str()?.to_owned(),
        })
    }
}

impl Record {
    /// What the status shows.
    pub fn status(&self) -> CertificateStatus {
        CertificateStatus {
            authority: self.trust.signer.clone(),
            also_trusted: self.trust.other.as_ref().map(|other| other.id().to_owned()),
            until: self.until.to_string(),
        }
    }

    /// Reads the annotations of the ConfigMap; `None` if one is missing or makes no sense.
    pub fn parse(config_map: &Value) -> Option<Self> {
        let annotations = &config_map["metadata"]["annotations"];
        let text = |key: &str| annotations[key].as_str();
        let id = |text: &str| is_id(text).then(|| text.to_owned());
        let other = match text(labels::OTHER_AUTHORITY).map(|text| text.split_once(':')) {
            None => None,
            Some(Some(("next", other))) => Some(Other::Next(id(other)?)),
            Some(Some(("last", other))) => Some(Other::Last(id(other)?)),
            Some(_) => return None,
        };
        Some(Self {
            trust: Trust {
                signer: id(text(labels::AUTHORITY)?)?,
                other,
            },
            authorities: config_map["data"][AUTHORITIES].as_str()?.to_owned(),
            root: text(labels::ROOT).map(str::to_owned),
            given: text(labels::IDENTITY_GIVEN).map(str::to_owned),
            until: text(labels::IDENTITY_UNTIL)?.parse().ok()?,
            names: text(labels::IDENTITY_NAMES)?.to_owned(),
            clients: ClientAuthority::parse(config_map),
        })
    }
}

impl Record {
    /// Whether the authorities follow from another root key than the one with this id.
    pub fn is_of_another(&self, root: &str) -> bool {
        self.root.as_deref().is_some_and(|known| known != root)
    }

    /// Whether every member presents what it was given last.
    fn is_taken_up(&self, observation: &Observation) -> bool {
        let pods = || observation.pods.iter().chain(&observation.observers.pods);
        let presents = |pod: &PodObservation| pod.presents == self.given;
        self.given.is_some() && pods().next().is_some() && pods().all(presents)
    }
}

/// Whether this is the id of an authority: anybody who may write ConfigMaps can write another text there.
fn is_id(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The name of the authorities of an ensemble.
pub fn authority(namespace: &str, ensemble: &str, trust: &Trust) -> AuthorityName {
    AuthorityName {
        namespace: namespace.to_owned(),
        ensemble: ensemble.to_owned(),
        id: trust.signer.clone(),
        other: trust.other.as_ref().map(|other| other.id().to_owned()),
    }
}

/// The authorities that an ensemble begins with. One that was deleted and created again does not trust what it trusted
/// before.
pub fn first(uid: &str) -> Trust {
    Trust::only(short_hash(&uid))
}

/// The id of an authority under this root key. Authorities of different root keys have different subjects: ZooKeeper
/// keeps only one of a subject (ZOOKEEPER-4992).
fn under(uid: &str, root: &str) -> String {
    short_hash(&(uid, root))
}

/// The authority of an ensemble's clients. It stays when that of the members is replaced: clients have to be told of another
/// one.
pub fn client_authority(namespace: &str, ensemble: &str, uid: &str, root: &str) -> AuthorityName {
    authority(namespace, ensemble, &Trust::only(under(uid, root)))
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

/// The names in the certificate that members present to clients: those of the client Service and of each member, in all the
/// forms that resolve in the cluster.
pub fn client_port_names(ensemble: &ValidEnsemble) -> Vec<String> {
    let (name, namespace) = (&ensemble.name, &ensemble.namespace);
    let domain = &ensemble.context.cluster_domain;
    let forms = |host: String| {
        [
            format!("{host}.{namespace}.svc.{domain}"),
            format!("{host}.{namespace}.svc"),
            format!("{host}.{namespace}"),
        ]
    };
    let members = format!("*.{}", members_service(name));
    let mut names = vec![name.clone()];
    names.extend(forms(name.clone()).into_iter().chain(forms(members)));
    names.push("localhost".to_owned());
    names
}

/// A hash of the names in both certificates.
fn names_hash(ensemble: &ValidEnsemble) -> String {
    short_hash(&(names(ensemble), client_port_names(ensemble)))
}

/// The authorities of the certificates that the members need now; `None` if they need none.
///
/// `root` is the id of the operator's root key, if it is known: with another one, the authorities on record sign nothing any
/// more.
pub fn due(
    ensemble: &ValidEnsemble,
    observation: &Observation,
    root: Option<&str>,
) -> Option<Trust> {
    let now = observation.now;
    let Some(record) = &observation.identity else {
        return Some(first(&ensemble.uid));
    };
    if let Some(root) = root.filter(|root| record.is_of_another(root)) {
        return Some(Trust::only(under(&ensemble.uid, root)));
    }
    let again = || Some(record.trust.clone());
    if record.names != names_hash(ensemble) || record.until.duration_since(now) <= EARLY {
        return again();
    }
    let asked = ensemble.replace_authority.as_ref();
    let asked = asked
        .zip(root)
        .map(|(asked, root)| short_hash(&(&ensemble.uid, asked, root)));
    let wanted = asked.unwrap_or_else(|| record.trust.signer.clone());
    let replaces = record.trust.other.is_some() || record.trust.signer != wanted;
    if !replaces {
        return None;
    }
    // A record of an earlier operator version does not say what members were given.
    if record.given.is_none() {
        return again();
    }
    let next = record.trust.next(&wanted, record.is_taken_up(observation));
    let is_late = now.duration_since(record.until - VALID) >= TAKEN_UP;
    match next {
        None if is_late => again(),
        next => next,
    }
}

/// A hash of what a member presents to others: the authorities that it trusts, and its certificate, as PEM.
pub fn presented(authorities: &str, certificate: &str) -> String {
    short_hash(&(authorities.trim(), certificate.trim()))
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

/// The certificates of an ensemble's members.
#[derive(Clone)]
pub struct Certificates {
    /// For each other and for the operator.
    pub members: Issued,
    /// For clients.
    pub clients: Issued,
}

/// A certificate that an authority signed.
#[derive(Clone)]
pub struct Issued {
    /// The authority's own certificate, and that of the other one that is trusted, as PEM.
    pub authority: String,
    /// When the authority's own certificate ends.
    pub authority_until: Timestamp,
    /// The certificate, as PEM.
    pub certificate: String,
    /// Its private key, as PEM in PKCS#8, which is the only form that ZooKeeper reads (`util/PemReader.java`).
    pub key: String,
    /// When it ends.
    pub until: Timestamp,
}

/// The whole Secret with the members' certificates and their keys.
pub fn secret(ensemble: &ValidEnsemble, issued: &Certificates) -> Secret {
    let metadata = metadata(ensemble, &identity_secret(ensemble));
    let Certificates { members, clients } = issued;
    let data = [
        (AUTHORITIES, &members.authority),
        ("tls.crt", &members.certificate),
        ("tls.key", &members.key),
        (CLIENT_AUTHORITY, &clients.authority),
        ("client-port.crt", &clients.certificate),
        ("client-port.key", &clients.key),
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
///
/// The certificate of the clients' authority stays the one on record for half of its time while its id does: clients that
/// were given it need no other one until it ends, since the authority's key stays the same.
pub fn config_map(
    ensemble: &ValidEnsemble,
    (trust, root): (&Trust, &str),
    issued: &Certificates,
    record: Option<&Record>,
) -> DesiredObject {
    let client_id = under(&ensemble.uid, root);
    let made = ClientAuthority {
        id: client_id,
        until: issued.clients.authority_until,
        certificate: issued.clients.authority.clone(),
    };
    let known = record.and_then(|record| record.clients.as_ref());
    let known = known.filter(|known| known.id == made.id && made.until - HALF < known.until);
    let clients = known.unwrap_or(&made);
    let name = authorities_config_map(&ensemble.name);
    let mut metadata = metadata(ensemble, &name);
    metadata["annotations"] = json!({
        labels::AUTHORITY: trust.signer,
        labels::ROOT: root,
        labels::IDENTITY_GIVEN: presented(&issued.members.authority, &issued.members.certificate),
        labels::CLIENT_AUTHORITY: clients.id,
        labels::CLIENT_AUTHORITY_UNTIL: clients.until.to_string(),
        labels::IDENTITY_UNTIL: issued.members.until.to_string(),
        labels::IDENTITY_NAMES: names_hash(ensemble),
    });
    let other = trust.other.as_ref().map(|other| match other {
        Other::Next(id) => format!("next:{id}"),
        Other::Last(id) => format!("last:{id}"),
    });
    if let Some(other) = other {
        metadata["annotations"][labels::OTHER_AUTHORITY] = json!(other);
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {
            AUTHORITIES: issued.members.authority,
            CLIENT_AUTHORITY: clients.certificate,
        },
    });
    apply(ObjectKind::ConfigMap, name, metadata, body)
}

/// What a test has on record.
#[cfg(test)]
pub(crate) fn example() -> Record {
    Record {
        trust: Trust::only("abc"),
        authorities: "authority of members".to_owned(),
        root: Some("root".to_owned()),
        given: None,
        until: Timestamp::MAX,
        names: String::new(),
        clients: Some(ClientAuthority {
            id: "def".to_owned(),
            until: Timestamp::MAX,
            certificate: "the clients' authority".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
