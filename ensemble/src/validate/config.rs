//! Settings of `zoo.cfg`, and options of the virtual machine, which can set the same.

use std::collections::BTreeMap;

use bellwether_api::ensemble::settings::{self, KeyKind, values};
use bellwether_api::ensemble::{Config, SESSION_TIMEOUTS, jvm};

use super::Problems;

/// Checks the options of the virtual machine.
pub(super) fn options(options: &[String], problems: &mut Problems) {
    let field = "spec.jvm.additionalOptions";
    for option in options {
        if !jvm::is_option(option) {
            let problem = "an option starts with '-' and holds no white space";
            problems.add(field, format!("{option:?}: {problem}"));
        } else if let Some(why) = jvm::refusal(option) {
            problems.add(field, format!("{option:?}: {why}"));
        } else if let Some((key, value)) = jvm::setting(option)
            && let Some(why) = values::refusal(key, value)
        {
            problems.add(field, format!("{option:?}: {why}"));
        }
    }
}

/// Checks the settings of `zoo.cfg` and puts the defaults in place.
pub(super) fn check(config: &Config, problems: &mut Problems) -> BTreeMap<String, String> {
    // Every field is named, so that a new one does not compile before it is checked and handed on.
    let Config {
        tick_time,
        init_limit,
        sync_limit,
        min_session_timeout,
        max_session_timeout,
        max_client_cnxns,
        snap_count,
        pre_alloc_size,
        autopurge_snap_retain_count: snap_retain_count,
        autopurge_purge_interval: purge_interval,
        additional,
    } = config;
    let (min_timeout, max_timeout) = (*min_session_timeout, *max_session_timeout);
    let typed = [
        ("tickTime", *tick_time, Some(2000), 100, 60_000),
        ("initLimit", *init_limit, Some(10), 1, 1000),
        ("syncLimit", *sync_limit, Some(5), 1, 1000),
        ("minSessionTimeout", min_timeout, None, 1, 3_600_000),
        ("maxSessionTimeout", max_timeout, None, 1, 3_600_000),
        ("maxClientCnxns", *max_client_cnxns, Some(60), 0, 100_000),
        ("snapCount", *snap_count, None, 2, 100_000_000),
        ("preAllocSize", *pre_alloc_size, None, 64, 4_194_304),
        (
            "autopurge.snapRetainCount",
            *snap_retain_count,
            Some(3),
            3,
            1000,
        ),
        ("autopurge.purgeInterval", *purge_interval, Some(1), 1, 8760),
    ];
    // A server that dials the address of a member that is being restarted waits for this long, and
    // takes no vote from it meanwhile; ZooKeeper's own 5 s would be most of the interruption.
    let mut settings = BTreeMap::from([("cnxTimeout".to_owned(), "2000".to_owned())]);
    for (key, value, default, min, max) in typed {
        problems.range(&format!("spec.config ({key})"), value, min, max);
        if let Some(v) = value.or(default) {
            settings.insert(key.to_owned(), v.to_string());
        }
    }
    // `QuorumPeerConfig.parseProperties` rejects a minimum above the maximum: the server does not start.
    let tick = tick_time.unwrap_or(2000);
    let min = min_timeout.unwrap_or(tick.saturating_mul(2));
    let max = max_timeout.unwrap_or(tick.saturating_mul(20));
    if min > max {
        problems.add("spec.config", SESSION_TIMEOUTS);
    }
    for (key, value) in additional {
        let field = format!("spec.config.additional[{key}]");
        match settings::classify(key) {
            KeyKind::Known => {
                if value.len() > 1024 || value.contains(['\n', '\r']) || value.ends_with('\\') {
                    problems.add(
                        field,
                        "a value is one line of at most 1024 characters that does not end in a \
                         backslash",
                    );
                } else if let Some(why) = values::refusal(key, value) {
                    problems.add(field, why);
                } else {
                    settings.insert(key.clone(), value.clone());
                }
            }
            KeyKind::Typed => problems.add(field, "this key has a field of its own under config"),
            KeyKind::Reserved => problems.add(field, "this key of zoo.cfg belongs to the operator"),
            KeyKind::Unknown => problems.add(
                field,
                "ZooKeeper has no such key and would ignore it silently; check the spelling",
            ),
        }
    }
    settings
}
