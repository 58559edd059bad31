//! Who clients are, and whether they have to prove it.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::grammar;

/// What is wrong with `authentication` where clients may not connect over TLS.
pub const WITHOUT_TLS: &str = "authentication needs tls.clients, Optional or Required: passwords and certificates are for connections over TLS, and the operator's own mirror of elections proves who it is by a certificate";
/// What is wrong with `authentication` that names neither users nor certificates.
pub const NOBODY: &str =
    "name the clients that can authenticate themselves: users, certificates or both";
/// How the name of a Secret with users ends.
pub const USERS_SUFFIX: &str = "zookeeper-users";
/// What is wrong with the name of another Secret.
pub const NO_USERS: &str = "the name of the Secret has to end with zookeeper-users: who may edit an ensemble could show any other Secret to its image";
/// What is wrong with a name of a super user by certificate.
pub const NO_SUBJECT: &str = "superUser is the subject of a certificate as ZooKeeper writes it (RFC 2253), such as CN=admin,O=Example, on one line of at most 512 characters";

/// How clients prove who they are. ACLs always hold; they name a user as `sasl:NAME`, and a certificate by its subject as
/// `x509:CN=NAME,O=...`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("has(self.users) || has(self.certificates)").message(NOBODY)
)]
pub struct Authentication {
    /// Whether the members refuse clients that do not prove who they are. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Users with passwords, by SASL DIGEST-MD5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Users>,
    /// Clients with certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<ClientCertificates>,
}

/// Users with passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Users {
    /// The Secret with the users: each key is a name, its value the password, in printable ASCII. Its name ends with
    /// `zookeeper-users`. Only the members' pods read it. When it changes, the members restart one after the other.
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    #[x_kube(validation = Rule::new("self.endsWith('zookeeper-users')").message(NO_USERS))]
    pub secret_name: String,
    /// The one among them whom no ACL holds up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub super_user: Option<String>,
}

/// Clients with certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertificates {
    /// The ConfigMap with the authorities that sign certificates of clients, as PEM under the key `ca.crt`, each with
    /// another subject. When it changes, the members restart one after the other.
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    pub config_map_name: String,
    /// The subject of the certificate of a client whom no ACL holds up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9.]+=[^[:cntrl:]]+$')").message(NO_SUBJECT))]
    pub super_user: Option<String>,
}
