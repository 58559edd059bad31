//! Which keys of `zoo.cfg` a user may set beyond the typed ones.
//!
//! ZooKeeper's parser (`QuorumPeerConfig.parseProperties`) turns every key that it does not know
//! into a Java system property without a word, so a misspelt key is silent. Bellwether therefore
//! knows the keys: one that it does not know is refused, and one that it owns is refused with
//! another sentence.

pub mod values;

/// Keys with a typed field of their own beside the map.
pub const TYPED: &[&str] = &[
    "tickTime",
    "initLimit",
    "syncLimit",
    "minSessionTimeout",
    "maxSessionTimeout",
    "maxClientCnxns",
    "snapCount",
    "preAllocSize",
    "autopurge.snapRetainCount",
    "autopurge.purgeInterval",
];

/// Keys that the operator owns, because identity, membership, durability, transport security or
/// the probes depend on them.
pub const RESERVED: &[&str] = &[
    "dataDir",
    "dataLogDir",
    "clientPort",
    "clientPortAddress",
    "secureClientPort",
    "secureClientPortAddress",
    "dynamicConfigFile",
    "version",
    "peerType",
    "electionAlg",
    "electionPortBindRetry",
    "standaloneEnabled",
    "reconfigEnabled",
    "quorumListenOnAllIPs",
    "skipACL",
    "forceSync",
    "db.autocreate",
    "datadir.autocreate",
    "snapshot.trust.empty",
    "oraclePath",
    "observerMasterPort",
    "sslQuorum",
    "portUnification",
    "sslQuorumReloadCertFiles",
    "client.portUnification",
    "serverCnxnFactory",
    "fips-mode",
    "sessionRequireClientSASLAuth",
    "allowSaslFailedClients",
    "letAnySaslUserDoX",
    "superUser",
    "requireKerberosConfig",
    "security.auth_to_local",
    "kinit",
    "client.certReload",
    "client.secure",
    "ensembleAuthName",
    "emulate353TTLNodes",
    "closeSessionTxn.enabled",
    "forceSnapshotSync",
    "serializeLastProcessedZxid.enabled",
    "configuration",
    "controllerPort",
    "audit.impl.class",
    "4lw.commands.whitelist",
    "extendedTypesEnabled",
    "leaderServes",
    "localSessionsEnabled",
    "localSessionsUpgradingEnabled",
    "wideCounterZxidEnabled",
    "leader.maxTimeToWaitForEpoch",
    "fastleader.maxNotificationInterval",
];

/// Prefixes of families of keys that the operator owns.
pub const RESERVED_PREFIXES: &[&str] = &[
    "server.",
    "group.",
    "weight.",
    "multiAddress.",
    "ssl.",
    "authProvider",
    "quorum.auth.",
    "X509AuthenticationProvider.",
    "DigestAuthenticationProvider.",
    "SASLAuthenticationProvider.",
    "IPAuthenticationProvider.",
    "sasl.",
    "kerberos.",
    "jmx.",
    "test.",
    "enforce.auth.",
    "admin.",
    "metricsProvider.",
    "testingonly.",
    "zookeeper.",
    "java.",
];

/// Keys that pass through to `zoo.cfg` as they are. All take effect at a restart.
pub const KNOWN: &[&str] = &[
    "globalOutstandingLimit",
    "maxCnxns",
    "commitLogCount",
    "snapSizeLimitInKb",
    "txnLogSizeLimitInKb",
    "fsync.warningthresholdms",
    "maxResponseCacheSize",
    "maxGetChildrenResponseCacheSize",
    "clientPortListenBacklog",
    "flushDelay",
    "maxBatchSize",
    "maxWriteQueuePollTime",
    "requestThrottleLimit",
    "requestThrottleStallTime",
    "requestThrottleDropStale",
    "requestStaleLatencyCheck",
    "requestStaleConnectionCheck",
    "requestThrottler.shutdownTimeout",
    "connectionMaxTokens",
    "connectionTokenFillTime",
    "connectionTokenFillCount",
    "connectionFreezeTime",
    "connectionDropIncrease",
    "connectionDropDecrease",
    "connectionDecreaseRatio",
    "largeRequestMaxBytes",
    "largeRequestThreshold",
    "enforceQuota",
    "snapshot.compression.method",
    "audit.enable",
    "digest.enabled",
    "cnxTimeout",
    "quorumCnxnTimeoutMs",
    "tcpKeepAlive",
    "clientTcpKeepAlive",
    "connectToLearnerMasterLimit",
    "leaderConnectDelayDuringRetryMs",
    "fastleader.minNotificationInterval",
    "leader.closeSocketAsync",
    "learner.closeSocketAsync",
    "learner.asyncSending",
    "observer.reconnectDelayMs",
    "observer.syncEnabled",
    "syncEnabled",
    "jvm.pause.monitor",
    "jvm.pause.warn-threshold.ms",
    "jvm.pause.info-threshold.ms",
    "jvm.pause.sleep.time.ms",
    "nio.numSelectorThreads",
    "nio.numWorkerThreads",
    "nio.directBufferBytes",
    "nio.shutdownTimeout",
    "commitProcessor.numWorkerThreads",
    "commitProcessor.shutdownTimeout",
    "commitProcessor.maxReadBatchSize",
    "commitProcessor.maxCommitBatchSize",
    "watchManagerName",
    "watcherCleanThreadsNum",
    "watcherCleanThreshold",
    "watcherCleanIntervalInSeconds",
    "maxInProcessingDeadWatchers",
    "throttledOpWaitTime",
    "advancedFlowControlEnabled",
    // What the servers read (release 3.9.5) where the documentation gives a key of `zoo.cfg` that nothing
    // reads: see `NOT_READ`.
    "request_throttle_max_requests",
    "request_throttle_stall_time",
    "request_throttle_drop_stale",
    "request_stale_latency_check",
    "request_stale_connection_check",
    "request_throttler.shutdownTimeout",
    "connection_throttle_tokens",
    "connection_throttle_fill_time",
    "connection_throttle_fill_count",
    "connection_throttle_freeze_time",
    "connection_throttle_drop_increase",
    "connection_throttle_drop_decrease",
    "connection_throttle_decrease_ratio",
    "throttled_op_wait_time",
    "netty.advancedFlowControl.enabled",
    "connection_throttle_weight_enabled",
    "connection_throttle_global_session_weight",
    "connection_throttle_local_session_weight",
    "connection_throttle_renew_session_weight",
    "netty.server.outstandingHandshake.limit",
    "netty.server.earlyDropSecureConnectionHandshakes",
    "nio.sessionlessCnxnTimeout",
    "quorum.cnxn.threads.size",
    "leader.ackLoggingFrequency",
    "leader.maxConcurrentSnapSyncs",
    "leader.maxConcurrentDiffSyncs",
    "follower.skipLearnerRequestToNextProcessor",
    "forward_learner_requests_to_commit_processor_disabled",
    "observer.election.DelayMs",
    "observerMaster.sizeLimit",
    "enableEagerACLCheck",
    "snapshotSizeFactor",
    "bitHashCacheSize",
    "intBufferStartingSizeBytes",
    "jute.maxbuffer.extrasize",
    "messageTracker.BufferSize",
    "messageTracker.Enabled",
    "pathStats.enabled",
    "pathStats.delay",
    "pathStats.initialDelay",
    "pathStats.maxDepth",
    "pathStats.sampleRate",
    "pathStats.slotCapacity",
    "pathStats.slotDuration",
    "pathStats.topPathMax",
];

/// Keys of [`KNOWN`] that ZooKeeper's documentation gives and its servers do not read, each with the
/// one that they read. `QuorumPeerConfig.parseProperties` makes the property `zookeeper.KEY` of a key,
/// and the property that is read is named otherwise.
pub const NOT_READ: &[(&str, &str)] = &[
    ("requestThrottleLimit", "request_throttle_max_requests"),
    ("requestThrottleStallTime", "request_throttle_stall_time"),
    ("requestThrottleDropStale", "request_throttle_drop_stale"),
    ("requestStaleLatencyCheck", "request_stale_latency_check"),
    (
        "requestStaleConnectionCheck",
        "request_stale_connection_check",
    ),
    (
        "requestThrottler.shutdownTimeout",
        "request_throttler.shutdownTimeout",
    ),
    ("connectionMaxTokens", "connection_throttle_tokens"),
    ("connectionTokenFillTime", "connection_throttle_fill_time"),
    ("connectionTokenFillCount", "connection_throttle_fill_count"),
    ("connectionFreezeTime", "connection_throttle_freeze_time"),
    (
        "connectionDropIncrease",
        "connection_throttle_drop_increase",
    ),
    (
        "connectionDropDecrease",
        "connection_throttle_drop_decrease",
    ),
    (
        "connectionDecreaseRatio",
        "connection_throttle_decrease_ratio",
    ),
    ("throttledOpWaitTime", "throttled_op_wait_time"),
    (
        "advancedFlowControlEnabled",
        "netty.advancedFlowControl.enabled",
    ),
];

/// The key that the servers read instead of this one, if they do not read it.
pub fn read_instead(key: &str) -> Option<&'static str> {
    let (_, read) = NOT_READ.iter().find(|(not_read, _)| *not_read == key)?;
    Some(read)
}

/// What a key in `config.additional` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// It passes through.
    Known,
    /// It has a typed field of its own.
    Typed,
    /// The operator owns it.
    Reserved,
    /// ZooKeeper has no such key as far as Bellwether knows.
    Unknown,
}

/// Classifies a key of `config.additional`.
pub fn classify(key: &str) -> KeyKind {
    if TYPED.contains(&key) {
        KeyKind::Typed
    } else if RESERVED.contains(&key) || RESERVED_PREFIXES.iter().any(|p| key.starts_with(p)) {
        KeyKind::Reserved
    } else if KNOWN.contains(&key) {
        KeyKind::Known
    } else {
        KeyKind::Unknown
    }
}

pub(super) fn cel_list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    format!("[{}]", quoted.join(", "))
}

fn reserved_test() -> String {
    let names: Vec<&str> = RESERVED.iter().chain(TYPED).copied().collect();
    let prefixes: Vec<String> = RESERVED_PREFIXES
        .iter()
        .map(|p| format!("k.startsWith('{p}')"))
        .collect();
    format!("k in {} || {}", cel_list(&names), prefixes.join(" || "))
}

/// The CEL rule that refuses the operator's own keys and those with a typed field.
pub fn reserved_rule() -> String {
    format!("self.all(k, !({}))", reserved_test())
}

/// The CEL expression of the sentence for [`reserved_rule`].
pub fn reserved_message() -> String {
    format!(
        "'config.additional must not set ' + self.filter(k, {})[0] + ': this key of \
         zoo.cfg belongs to the operator or has a field of its own under config'",
        reserved_test()
    )
}

fn known_test() -> String {
    format!("k in {}", cel_list(KNOWN))
}

/// The CEL rule that refuses keys which ZooKeeper would ignore silently.
pub fn known_rule() -> String {
    format!("self.all(k, ({}) || {})", reserved_test(), known_test())
}

/// The CEL expression of the sentence for [`known_rule`].
pub fn known_message() -> String {
    format!(
        "'config.additional has an unknown key: ' + self.filter(k, !({} || {}))[0] + \
         '; ZooKeeper would ignore it silently; check the spelling'",
        reserved_test(),
        known_test()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_kind() {
        for key in KNOWN {
            assert_eq!(classify(key), KeyKind::Known, "{key}");
        }
        for key in RESERVED {
            assert_eq!(classify(key), KeyKind::Reserved, "{key}");
        }
        assert_eq!(classify("server.4"), KeyKind::Reserved);
        assert_eq!(classify("zookeeper.forceSync"), KeyKind::Reserved);
        assert_eq!(classify("tickTime"), KeyKind::Typed);
        assert_eq!(classify("ticktime"), KeyKind::Unknown);
    }

    #[test]
    fn a_key_that_is_not_read_has_one_that_is() {
        for (key, read) in NOT_READ {
            assert_eq!(read_instead(key), Some(*read));
            assert_eq!(classify(read), KeyKind::Known, "{key} -> {read}");
            assert_eq!(read_instead(read), None);
        }
    }
}
