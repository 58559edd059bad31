//! How the mirror reaches and addresses the ensemble that holds an election.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ensemble that holds an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnsembleRef {
    /// The name of a `ZooKeeperEnsemble`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of the ensemble. An ensemble in another namespace than the `LeaderElection` has to name the latter's in
    /// `spec.elections.namespaces`. Default: the namespace of the `LeaderElection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: Option<String>,
}

impl EnsembleRef {
    /// The namespace of the ensemble that an election in the namespace `own` means.
    pub fn namespace_for<'a>(&'a self, own: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(own)
    }
}

/// A ZooKeeper that Bellwether does not run.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Hosts, ports and an optional chroot as ZooKeeper's clients take them, such as
    /// `zk-0.example:2181,zk-1.example:2181/chroot`. Without a port it is 2181. `spec.path` is
    /// within the chroot.
    ///
    /// The hosts may change, to other ones of the same ensemble; the chroot may not.
    #[schemars(
        length(min = 1, max = 2048),
        regex(
            pattern = r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(,([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)*(/[^/\x00-\x20\x7f-\x9f,]+)*$"
        )
    )]
    #[x_kube(validation = Rule::new("(self.indexOf('/') < 0 ? '' : self.substring(self.indexOf('/'))) == (oldSelf.indexOf('/') < 0 ? '' : oldSelf.substring(oldSelf.indexOf('/')))").message("the chroot of connectString is immutable: create another LeaderElection for an election in another chroot"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(name, name == '.' || name == '..')").message("connectString must not hold '.' or '..' in its chroot: ZooKeeper has no relative paths"))]
    pub connect_string: String,

    /// Encrypts the connection. The ports are then those of `secureClientPort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ConnectionTls>,
}

/// How a connection is encrypted.
///
/// The servers' certificates must name the hosts of the connect string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionTls {
    /// Where the certificates of the authorities are that sign the servers' certificates.
    pub ca_secret_ref: CaSecretRef,

    /// A Secret of the type `kubernetes.io/tls` (keys `tls.crt` and `tls.key`) with the certificate
    /// that the mirror shows, for servers that ask for one. Its annotation `zookeeper.bellwether.dev/hosts` has
    /// to name every host of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_secret_ref: Option<SecretRef>,
}

/// A Secret in the namespace of the `LeaderElection` that holds certificates of authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key that holds them, in PEM. Default: `ca.crt`.
    #[serde(default = "default_ca_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

fn default_ca_key() -> String {
    "ca.crt".to_owned()
}

/// A Secret in the namespace of the `LeaderElection`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// As whom the mirror reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authentication {
    /// How it proves that.
    #[serde(rename = "type")]
    pub type_: AuthenticationType,
    /// A Secret of the type `kubernetes.io/basic-auth` (keys `username` and `password`). For a `connection` its
    /// annotation `zookeeper.bellwether.dev/hosts` has to name every host of the connection.
    pub secret_ref: SecretRef,
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AuthenticationType {
    /// ZooKeeper's scheme `digest`: it opens nodes whose ACL names the digest of this name and
    /// password. ZooKeeper does not tell whether they are right.
    #[default]
    Digest,
    /// SASL with the mechanism DIGEST-MD5, against the accounts that the servers know. A wrong
    /// password ends the session.
    SaslDigestMd5,
}
