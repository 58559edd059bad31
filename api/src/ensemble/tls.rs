//! What is encrypted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Encryption and mutual authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
