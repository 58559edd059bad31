//! Identities in protobuf messages, as far as the identity needs them.
//!
//! The messages are declared by hand: they are a few fields of what the applications' `.proto` files declare,
//! and unknown fields are skipped. No field is required, because a message without its identity is only shown
//! in another way.

use bellwether_api::election::IdentitySource;
use prost::Message;

use super::Decoded;

/// Larger data is not an identity.
const MAX_MESSAGE: usize = 64 * 1024;

/// Hadoop, HAZKInfo.proto, `ActiveNodeInfo`, of HDFS. The first two fields of
/// yarn_server_resourcemanager_service_protos.proto, `ActiveRMInfoProto`, are of the same types: the
/// ids of the cluster and of the resource manager.
#[derive(Clone, PartialEq, Message)]
struct HadoopActive {
    #[prost(string, optional, tag = "1")]
    group: Option<String>,
    #[prost(string, optional, tag = "2")]
    id: Option<String>,
    #[prost(string, optional, tag = "3")]
    hostname: Option<String>,
    #[prost(int32, optional, tag = "4")]
    port: Option<i32>,
}

/// HBase, ZooKeeper.proto, `Master`.
#[derive(Clone, PartialEq, Message)]
struct Master {
    #[prost(message, optional, tag = "1")]
    master: Option<ServerName>,
}

/// HBase, HBase.proto, `ServerName`.
#[derive(Clone, PartialEq, Message)]
struct ServerName {
    #[prost(string, optional, tag = "1")]
    host_name: Option<String>,
    #[prost(uint32, optional, tag = "2")]
    port: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    start_code: Option<u64>,
}

/// Mesos, mesos.proto, `MasterInfo`.
#[derive(Clone, PartialEq, Message)]
struct MasterInfo {
    #[prost(uint32, optional, tag = "3")]
    port: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pid: Option<String>,
    #[prost(string, optional, tag = "5")]
    hostname: Option<String>,
}

fn message<M: Message + Default>(data: &[u8]) -> Option<M> {
    // An empty message says nothing, whatever its type.
    if data.is_empty() || data.len() > MAX_MESSAGE {
        return None;
    }
    M::decode(data).ok()
}

/// The namenode or resource manager, by the id that its configuration gives it.
pub(super) fn hadoop(data: &[u8]) -> Option<Decoded> {
    let active: HadoopActive = message(data)?;
    let address = active.hostname.as_ref().zip(active.port);
    Some(Decoded {
        address: address.map(|(hostname, port)| format!("{hostname}:{port}")),
        ..Decoded::new(active.id?, IdentitySource::Protobuf)
    })
}

/// The master as HBase itself names servers: host, port and start code.
pub(super) fn hbase(data: &[u8]) -> Option<Decoded> {
    let data = without_metadata(data)?.strip_prefix(b"PBUF")?;
    let name = message::<Master>(data)?.master?;
    let (host, port) = (name.host_name?, name.port.unwrap_or(0));
    let start_code = name.start_code.unwrap_or(0);
    Some(Decoded {
        address: Some(format!("{host}:{port}")),
        ..Decoded::new(
            format!("{host},{port},{start_code}"),
            IdentitySource::Protobuf,
        )
    })
}

/// HBase puts 0xFF, a length in four bytes and so many bytes about the writer before the data.
fn without_metadata(data: &[u8]) -> Option<&[u8]> {
    let Some(rest) = data.strip_prefix(b"\xff") else {
        return Some(data);
    };
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.get(length..)
}

/// A Mesos master by its host and port.
pub(super) fn mesos(data: &[u8]) -> Option<Decoded> {
    let info: MasterInfo = message(data)?;
    let host = info
        .hostname
        .zip(info.port)
        .map(|(host, port)| format!("{host}:{port}"));
    Some(Decoded::new(host.or(info.pid)?, IdentitySource::Protobuf))
}

/// A string field of a protobuf message in text format that is on a line of its own.
pub(super) fn text_field<'d>(data: &'d [u8], name: &str) -> Option<&'d str> {
    let text = std::str::from_utf8(data).ok()?;
    text.lines().find_map(|line| {
        let value = line
            .trim()
            .strip_prefix(name)?
            .trim_start()
            .strip_prefix(':')?;
        value.trim().strip_prefix('"')?.strip_suffix('"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// `ActiveNodeInfo` of namenode nn1 of nameservice ns, at host:8020, its controller at 8019.
    const HDFS: &str = "0a026e73 12036e6e31 1a04686f7374 20d43e 28d33e";

    #[test]
    fn an_active_namenode_is_known_by_its_id_and_address() {
        let decoded = hadoop(&bytes(HDFS)).unwrap();
        assert_eq!(
            (decoded.text.as_str(), decoded.address.as_deref()),
            ("nn1", Some("host:8020"))
        );
    }

    #[test]
    fn an_active_resource_manager_is_known_by_its_id() {
        let decoded = hadoop(&bytes("0a0779617261636c31 1203726d32")).unwrap();
        assert_eq!((decoded.text.as_str(), decoded.address), ("rm2", None));
        assert_eq!(hadoop(&bytes("0a02")), None);
        assert_eq!(hadoop(b""), None);
    }

    #[test]
    fn an_hbase_master_is_read_behind_what_hbase_puts_before_it() {
        // Master { master: ServerName { host "m1", port 16000, start code 1700000000000 } }.
        let body = "50425546 0a0e 0a026d31 10807d 1880d095ffbc31";
        let decoded = hbase(&bytes(body)).unwrap();
        assert_eq!(decoded.text, "m1,16000,1700000000000");
        assert_eq!(decoded.address.as_deref(), Some("m1:16000"));
        let with_metadata = format!("ff 00000003 616263 {body}");
        assert_eq!(hbase(&bytes(&with_metadata)), Some(decoded));
        for broken in [
            "ff",
            "ff 7fffffff 00",
            "ff ffffffff 50425546",
            "50425546",
            "00",
        ] {
            assert_eq!(hbase(&bytes(broken)), None, "{broken}");
        }
    }

    #[test]
    fn a_mesos_master_is_known_by_host_and_port_or_by_its_process() {
        let decoded = mesos(&bytes("0a0161 1001 18ba27 22076d4031 2e323a33 2a026d31")).unwrap();
        assert_eq!(decoded.text, "m1:5050");
        let decoded = mesos(&bytes("22026d40")).unwrap();
        assert_eq!(decoded.text, "m@");
    }

    #[test]
    fn a_field_in_text_format_is_read() {
        let data = b"bookieId: \"bookie-1:3181\"\n";
        assert_eq!(text_field(data, "bookieId"), Some("bookie-1:3181"));
        assert_eq!(text_field(b"bookieIdent: \"x\"", "bookieId"), None);
        assert_eq!(text_field(b"\xff", "bookieId"), None);
    }
}
