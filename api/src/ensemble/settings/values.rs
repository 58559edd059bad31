//! What the values of the known keys of `zoo.cfg` may be.
//!
//! The server parses the values of some keys when it starts, and does not start if such a value has another
//! type (`Integer.parseInt`, `Double.parseDouble`). With other keys it ignores such a value silently
//! (`Integer.getInteger`, `Boolean.getBoolean`). Both are refused. The source is ZooKeeper 3.9.5.

use super::cel_list;

/// Keys whose value is a whole number.
const NUMBERS: &[Number] = &[
    int("globalOutstandingLimit"),
    int("maxCnxns"),
    long("snapSizeLimitInKb"),
    long("txnLogSizeLimitInKb"),
    long("fsync.warningthresholdms"),
    int("maxResponseCacheSize"),
    int("maxGetChildrenResponseCacheSize"),
    int("clientPortListenBacklog").decimal(),
    long("flushDelay"),
    int("maxBatchSize"),
    long("maxWriteQueuePollTime"),
    int("largeRequestMaxBytes"),
    int("largeRequestThreshold"),
    // A server that waits for less than nothing ends with an exception.
    int("cnxTimeout").decimal().least(0),
    int("quorumCnxnTimeoutMs"),
    int("connectToLearnerMasterLimit").decimal(),
    int("leaderConnectDelayDuringRetryMs").least(0),
    int("fastleader.minNotificationInterval"),
    long("observer.reconnectDelayMs"),
    long("observer.election.DelayMs"),
    long("jvm.pause.warn-threshold.ms").decimal(),
    long("jvm.pause.info-threshold.ms").decimal(),
    long("jvm.pause.sleep.time.ms").decimal().least(0),
    int("nio.numSelectorThreads").least(1),
    int("nio.numWorkerThreads").least(0),
    int("nio.directBufferBytes").least(0),
    long("nio.shutdownTimeout"),
    int("nio.sessionlessCnxnTimeout"),
    int("commitProcessor.numWorkerThreads").least(0),
    long("commitProcessor.shutdownTimeout"),
    int("commitProcessor.maxReadBatchSize"),
    int("commitProcessor.maxCommitBatchSize"),
    int("watcherCleanThreadsNum"),
    int("watcherCleanThreshold"),
    int("watcherCleanIntervalInSeconds"),
    int("maxInProcessingDeadWatchers"),
    int("bitHashCacheSize"),
    int("request_throttle_max_requests"),
    int("request_throttle_stall_time"),
    int("request_throttler.shutdownTimeout"),
    int("throttled_op_wait_time"),
    int("connection_throttle_tokens"),
    int("connection_throttle_fill_time"),
    int("connection_throttle_fill_count"),
    int("connection_throttle_freeze_time"),
    int("connection_throttle_global_session_weight"),
    int("connection_throttle_local_session_weight"),
    int("connection_throttle_renew_session_weight"),
    int("netty.server.outstandingHandshake.limit"),
    int("quorum.cnxn.threads.size").decimal(),
    int("leader.ackLoggingFrequency"),
    int("leader.maxConcurrentSnapSyncs"),
    int("leader.maxConcurrentDiffSyncs"),
    int("observerMaster.sizeLimit"),
    int("intBufferStartingSizeBytes").least(32),
    int("jute.maxbuffer.extrasize"),
    int("messageTracker.BufferSize"),
    long("pathStats.delay"),
    long("pathStats.initialDelay"),
    int("pathStats.maxDepth"),
    int("pathStats.slotCapacity"),
    int("pathStats.slotDuration"),
    int("pathStats.topPathMax"),
    int("commitLogCount").decimal(),
];

/// Keys whose value is true or false.
const SWITCHES: &[&str] = &[
    "request_throttle_drop_stale",
    "request_stale_latency_check",
    "request_stale_connection_check",
    "enforceQuota",
    "audit.enable",
    "digest.enabled",
    "tcpKeepAlive",
    "clientTcpKeepAlive",
    "leader.closeSocketAsync",
    "learner.closeSocketAsync",
    "learner.asyncSending",
    "observer.syncEnabled",
    "syncEnabled",
    "jvm.pause.monitor",
    "netty.advancedFlowControl.enabled",
    "netty.server.earlyDropSecureConnectionHandshakes",
    "connection_throttle_weight_enabled",
    "follower.skipLearnerRequestToNextProcessor",
    "forward_learner_requests_to_commit_processor_disabled",
    "enableEagerACLCheck",
    "messageTracker.Enabled",
    "pathStats.enabled",
];

/// Keys whose value is a number with a fraction.
const FRACTIONS: &[&str] = &[
    "connection_throttle_drop_increase",
    "connection_throttle_drop_decrease",
    "connection_throttle_decrease_ratio",
    "snapshotSizeFactor",
    "pathStats.sampleRate",
];

/// A key whose value is a whole number.
struct Number {
    key: &'static str,
    least: i64,
    most: i64,
    /// Whether it is read by `parseInt` or `parseLong`, which know decimal numbers alone.
    decimal: bool,
}

const fn int(key: &'static str) -> Number {
    Number {
        key,
        least: i32::MIN as i64,
        most: i32::MAX as i64,
        decimal: false,
    }
}

const fn long(key: &'static str) -> Number {
    Number {
        key,
        least: i64::MIN,
        most: i64::MAX,
        decimal: false,
    }
}

impl Number {
    const fn least(self, least: i64) -> Self {
        Self { least, ..self }
    }

    const fn decimal(self) -> Self {
        Self {
            decimal: true,
            ..self
        }
    }

    fn refusal(&self, value: &str) -> Option<String> {
        let number = if self.decimal {
            value.parse().ok()
        } else {
            decode(value)
        };
        match number {
            Some(number) if (self.least..=self.most).contains(&number) => None,
            Some(number) if number < self.least => {
                Some(format!("{value:?}: use {} or more", self.least))
            }
            Some(_) => Some(format!("{value:?}: use {} or less", self.most)),
            None => Some(format!("{value:?} is no whole number that ZooKeeper reads")),
        }
    }
}

/// A number as Java's `Long.decode` reads it: decimal, `0x`, `0X` or `#` and hexadecimal, or `0` and octal.
fn decode(text: &str) -> Option<i64> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = ["0x", "0X", "#"];
    let (digits, radix) = match hexadecimal.iter().find_map(|p| rest.strip_prefix(p)) {
        Some(digits) => (digits, 16),
        None => match rest.strip_prefix('0').filter(|digits| !digits.is_empty()) {
            Some(digits) => (digits, 8),
            None => (rest, 10),
        },
    };
    // The type's own parser would take a second sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// Why ZooKeeper cannot use this value of a known key; `None` if it can, or the key takes any text.
pub fn refusal(key: &str, value: &str) -> Option<String> {
    // As `parseProperties` does it.
    let value = value.trim();
    if let Some(number) = NUMBERS.iter().find(|n| n.key == key) {
        return number.refusal(value);
    }
    if SWITCHES.contains(&key) {
        let known = ["true", "false"];
        let is = known.iter().any(|k| value.eq_ignore_ascii_case(k));
        return (!is).then(|| format!("{value:?}: use true or false"));
    }
    if FRACTIONS.contains(&key) {
        let is = value.parse::<f64>().is_ok_and(f64::is_finite);
        return (!is).then(|| format!("{value:?}: use a number such as 0.5"));
    }
    if key == "snapshot.compression.method" {
        let known = ["", "gz", "snappy"];
        let is = known.iter().any(|k| value.eq_ignore_ascii_case(k));
        return (!is).then(|| format!("{value:?}: use gz or snappy, or leave the key out"));
    }
    None
}

/// The API server's message about a value that is not a number, or is neither true nor false.
pub const SENTENCE: &str = "a value in config.additional is not of the kind that ZooKeeper reads for its key: \
                            a whole number, or true or false";

/// The CEL rule that finds values that are not numbers, or are neither true nor false. Bounds and the rarer
/// kinds are left to the operator.
pub fn rule() -> String {
    let numbers: Vec<&str> = NUMBERS.iter().map(|n| n.key).collect();
    format!(
        "self.all(k, (!(k in {}) || self[k].matches('^ *[-+]?(0[xX]|#)?[0-9a-fA-F]+ *$')) && (!(k in {}) || \
         self[k].matches('^ *([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]) *$')))",
        cel_list(&numbers),
        cel_list(SWITCHES)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ensemble::settings::{KNOWN, read_instead};

    #[test]
    fn every_known_key_that_is_read_has_a_kind() {
        let texts = ["watchManagerName", "snapshot.compression.method"];
        for key in KNOWN.iter().filter(|k| read_instead(k).is_none()) {
            let has = refusal(key, "no such value").is_some() || texts.contains(key);
            assert!(has, "{key}");
        }
        let all = NUMBERS.iter().map(|n| n.key);
        for key in all.chain(SWITCHES.iter().chain(FRACTIONS).copied()) {
            assert!(KNOWN.contains(&key), "{key}");
        }
    }

    #[test]
    fn values_are_read_as_java_reads_them() {
        for (key, value, is) in [
            ("globalOutstandingLimit", "2000", true),
            ("globalOutstandingLimit", " 2000 ", true),
            ("globalOutstandingLimit", "0x10", true),
            ("globalOutstandingLimit", "010", true),
            ("globalOutstandingLimit", "-1", true),
            ("globalOutstandingLimit", "08", false),
            ("globalOutstandingLimit", "2k", false),
            ("globalOutstandingLimit", "2_000", false),
            ("globalOutstandingLimit", "--1", false),
            ("globalOutstandingLimit", "", false),
            ("globalOutstandingLimit", "2147483648", false),
            ("snapSizeLimitInKb", "2147483648", true),
            ("snapSizeLimitInKb", "9223372036854775808", false),
            ("snapSizeLimitInKb", "-9223372036854775808", true),
            ("clientPortListenBacklog", "+5", true),
            ("clientPortListenBacklog", "08", true),
            ("clientPortListenBacklog", "0x10", false),
            ("cnxTimeout", "-1", false),
            ("nio.numSelectorThreads", "0", false),
            ("flushDelay", "-5", true),
            ("intBufferStartingSizeBytes", "16", false),
            ("enforceQuota", "TRUE", true),
            ("enforceQuota", "yes", false),
            ("enforceQuota", "1", false),
            ("pathStats.sampleRate", "0.1", true),
            ("pathStats.sampleRate", "a tenth", false),
            ("snapshot.compression.method", "snappy", true),
            ("snapshot.compression.method", "zstd", false),
            ("watchManagerName", "org.example.Manager", true),
            // What is not read cannot be wrong.
            ("requestThrottleLimit", "x", true),
        ] {
            assert_eq!(refusal(key, value).is_none(), is, "{key}={value}");
        }
    }
}
