//! What is encrypted.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::grammar;

/// How the name of a Secret with a certificate of members ends.
pub const CERTIFICATE_SUFFIX: &str = "zookeeper-tls";
/// What is wrong with the name of another Secret.
pub const NO_CERTIFICATE: &str = "the name of the Secret has to end with zookeeper-tls: who may edit an ensemble could show any other Secret to its image";
/// What is wrong with a certificate for clients where there is no port for it.
pub const NO_CLIENT_PORT: &str =
    "a certificate for clients needs their port for TLS: set tls.clients to Optional or Required";

/// What is wrong with two sources of one certificate.
pub const TWO_SOURCES: &str =
    "a certificate comes from clientPortSecretName or from issuerRef: leave one of them out";

/// Encryption and mutual authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.clientPortSecretName) || has(self.clients) && self.clients != 'Disabled'").message(NO_CLIENT_PORT),
    validation = Rule::new("!has(self.issuerRef) || has(self.clients) && self.clients != 'Disabled'").message(NO_CLIENT_PORT),
    validation = Rule::new("!has(self.issuerRef) || !has(self.clientPortSecretName)").message(TWO_SOURCES)
)]
pub struct Tls {
    /// Whether the servers speak mutual TLS among themselves, with certificates that the operator makes and renews.
    /// Default: `Required` for a new ensemble; one that was created before this setting existed keeps plaintext until
    /// it is set. A running ensemble changes in three rolls, one with a single member in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<ServersTls>,
    /// Whether clients may or must connect over TLS, on port 2281, to a certificate of an authority that the operator
    /// makes for the ensemble's clients; its certificate is in the ConfigMap `NAME-client`. Default: `Optional` for a new
    /// ensemble; one that was created before this setting existed keeps plaintext until it is set. A running ensemble
    /// changes in one roll for each step from `Disabled` by `Optional` to `Required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsTls>,
    /// The Secret with the certificate that members present to clients, such as cert-manager writes: `tls.crt` with the chain,
    /// `tls.key` as PKCS#8, and `ca.crt`, the authority that clients trust. Its name ends with `zookeeper-tls`. The
    /// certificate has to name the client Service. A renewed one is taken up without a restart. Default: a certificate that the operator makes and
    /// renews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    #[x_kube(validation = Rule::new("self.endsWith('zookeeper-tls')").message(NO_CERTIFICATE))]
    pub client_port_secret_name: Option<String>,
    /// The issuer of cert-manager that signs the certificate that members present to clients. The operator keeps a Certificate
    /// `NAME-zookeeper-tls` for it, and needs `rbac.certManager` of its chart. Default: none; the operator makes the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerReference>,
}

/// An issuer of cert-manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    pub name: String,
    /// Its kind. Default: `Issuer`, one of the ensemble's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]+$"))]
    pub kind: Option<String>,
    /// The group of its kind, of issuers that are not cert-manager's own. Default: `cert-manager.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::NAME))]
    pub group: Option<String>,
}

/// Whether servers speak mutual TLS among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServersTls {
    /// They speak TLS only, and refuse a server without a certificate of this ensemble.
    Required,
    /// They speak plaintext. Any server that reaches their ports can join as an observer and read all data.
    Disabled,
}

/// Whether clients connect over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientsTls {
    /// Over TLS only: nobody but the member itself reaches the port for plaintext, 2181.
    Required,
    /// In plaintext on port 2181, or over TLS on port 2281.
    Optional,
    /// In plaintext only.
    Disabled,
}
