//! What a member says of its volumes: whether there is a database, its epochs, and how full the
//! volumes are.

use serde_json::Value;

/// The volumes of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeReport {
    /// Whether the volume holds a database; without one the member does not vote.
    pub has_database: bool,
    /// The epoch that the server last served in, as its disk says.
    pub current_epoch: Option<u64>,
    /// The epoch that the server last promised to serve in, as its disk says.
    pub accepted_epoch: Option<u64>,
    /// The version of a server list that the server has stored and does not know as committed, where members change at run
    /// time. The highest number if it cannot be read.
    pub stored_list: Option<u64>,
    /// The data volume.
    pub data: Usage,
    /// The volume of the transaction log, if it is another one.
    pub transaction_log: Option<Usage>,
}

/// How full a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its size in bytes, as the file system says.
    pub total: u64,
    /// What an ordinary process can still write, in bytes.
    pub free: u64,
}

/// From this part of a volume on it counts as nearly full, in percent: ZooKeeper still needs room for
/// a snapshot and a transaction log that it allocates in advance, and a person needs time.
pub const NEARLY_FULL: u64 = 80;

impl Usage {
    /// How much of it is used, in whole percent.
    pub fn percent(&self) -> u64 {
        let used = u128::from(self.total.saturating_sub(self.free));
        u64::try_from(used * 100 / u128::from(self.total.max(1))).unwrap_or(100)
    }

    /// Whether a person should make room.
    pub fn is_nearly_full(&self) -> bool {
        self.percent() >= NEARLY_FULL
    }
}

/// Reads the answer. Unknown fields are ignored: another version of the member program may say more.
///
/// # Errors
/// What is missing in it.
pub fn parse(text: &str) -> Result<VolumeReport, String> {
    read(&serde_json::from_str(text).map_err(|e| format!("no JSON: {e}"))?)
}

/// Reads the JSON of the answer.
///
/// # Errors
/// What is missing in it.
pub fn read(value: &Value) -> Result<VolumeReport, String> {
    let usage = |value: &Value| {
        let number = |key: &str| value[key].as_u64().ok_or(format!("no {key}"));
        Ok::<_, String>(Usage {
            total: number("total")?,
            free: number("free")?,
        })
    };
    Ok(VolumeReport {
        has_database: value["database"].as_bool().ok_or("no database")?,
        current_epoch: value["currentEpoch"].as_u64(),
        accepted_epoch: value["acceptedEpoch"].as_u64(),
        stored_list: value["storedList"].as_u64(),
        data: usage(&value["data"])?,
        transaction_log: match &value["datalog"] {
            Value::Null => None,
            log => Some(usage(log)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = r#"{"database":true,"currentEpoch":7,"acceptedEpoch":8,
            "data":{"total":1000,"free":200},"datalog":null,"new":1}"#;
        let report = parse(text).unwrap();
        assert!(report.has_database && report.data.is_nearly_full());
        assert_eq!(report.data.percent(), 80);
        assert_eq!(
            (report.current_epoch, report.accepted_epoch),
            (Some(7), Some(8))
        );
        assert_eq!(report.transaction_log, None);
    }

    #[test]
    fn what_is_no_report_is_unknown() {
        for text in [
            "",
            "null",
            "{}",
            r#"{"database":true}"#,
            "ask for /live or /ready",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let odd = r#"{"database":false,"data":{"total":0,"free":9}}"#;
        assert_eq!(parse(odd).unwrap().data.percent(), 0);
    }
}
