//! How the data of a znode tells who owns it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the identity is read, where the dialect's own way does not fit.
///
/// It applies to the nodes of the candidates, or, where a registration node decides who leads, to
/// that node.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.decoder == 'Json') == has(self.pointers)").message("pointers are required for the decoder Json and not allowed for any other"))]
pub struct IdentityOptions {
    /// How the data is read. Data that does not fit is shown as text, or in hexadecimal. Data that
    /// is compressed with gzip is unfolded first.
    pub decoder: IdentityDecoder,

    /// For the decoder `Json`: where the identity is, as JSON pointers; what several of them point
    /// at is joined with `:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 4),
        inner(length(min = 1, max = 256), regex(pattern = r"^(/([^/~]|~[01])*)+$"))
    )]
    pub pointers: Option<Vec<String>>,
}

/// How a znode's data is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum IdentityDecoder {
    /// It is the identity, in UTF-8.
    #[default]
    Text,
    /// It is JSON, and `pointers` say where the identity is in it.
    Json,
    /// Hadoop's protobuf: the id of the namenode (HDFS) or of the resource manager (YARN).
    Hadoop,
    /// HBase's protobuf: host, port and start code of the master.
    HBase,
    /// Flink's serialized Java objects: the address of the leader.
    Flink,
    /// It is ignored; the node's name is the identity, or what `id` matches in it in a `Custom`
    /// dialect.
    NodeName,
    /// It is ignored; the id of the session that owns the node is the identity.
    Session,
}
