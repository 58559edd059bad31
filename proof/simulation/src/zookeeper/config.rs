//! How a server reads its `zoo.cfg`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether_ensemble::ServerId;
use bellwether_ensemble::server_tls::ServerTls;

use super::types::{DiskId, Settings, Start};

/// A text that is no `zoo.cfg` of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAConfiguration(pub String);

impl std::fmt::Display for NotAConfiguration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAConfiguration {}

impl Start {
    /// Reads the file of this server. `log_disk` counts only if the file keeps the transaction log
    /// apart.
    ///
    /// # Errors
    /// A line that ZooKeeper would not take, or a number that is missing.
    pub fn parse(
        ensemble: &str,
        id: ServerId,
        zoo_cfg: &str,
        disk: DiskId,
        log_disk: Option<DiskId>,
    ) -> Result<Self, NotAConfiguration> {
        let mut settings = Settings::default();
        let (mut voters, mut host, mut observer) = (Vec::new(), None, false);
        let mut observers = BTreeSet::new();
        let (mut data, mut log) = (None, None);
        let (mut tls, mut both) = (false, false);
        let lines = zoo_cfg.lines().map(str::trim);
        for line in lines.filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (key, value) = line.split_once('=').ok_or_else(|| wrong(line))?;
            let (key, value) = (key.trim(), value.trim());
            if let Some(number) = key.strip_prefix("server.") {
                let server = ServerId(number.parse().map_err(|_| wrong(line))?);
                let name = value.split(':').next().unwrap_or_default().to_owned();
                if server == id {
                    host = Some(name.clone());
                    observer |= value.contains(":observer");
                }
                match value.contains(":observer") {
                    true => drop(observers.insert(server)),
                    false => voters.push((server, name)),
                }
                continue;
            }
            let number = || value.parse::<i64>().map_err(|_| wrong(line));
            let ms = || number().map(|n| Duration::from_millis(u64::try_from(n).unwrap_or(0)));
            let ticks = || number().map(|n| u32::try_from(n).unwrap_or(0));
            match key {
                "tickTime" => settings.tick = ms()?,
                "initLimit" => settings.init_limit = ticks()?,
                "syncLimit" => settings.sync_limit = ticks()?,
                "db.autocreate" => settings.autocreate = value == "true",
                "fastleader.maxNotificationInterval" => settings.longest_notification = ms()?,
                "leader.maxTimeToWaitForEpoch" => {
                    settings.longest_wait_for_epoch =
                        Some(ms()?).filter(|_| !value.starts_with('-'));
                }
                "sslQuorum" => tls = value == "true",
                "portUnification" => both = value == "true",
                "leaderConnectDelayDuringRetryMs" => settings.connect_delay = ms()?,
                "peerType" => observer |= value == "observer",
                "dataDir" => data = Some(value.to_owned()),
                "dataLogDir" => log = Some(value.to_owned()),
                "reconfigEnabled" => settings.reconfigures = value == "true",
                _ => {}
            }
        }
        settings.tls = match (tls, both) {
            (false, false) => ServerTls::Disabled,
            (false, true) => ServerTls::Accepted,
            (true, true) => ServerTls::Preferred,
            (true, false) => ServerTls::Required,
        };
        let apart = log.is_some() && log != data;
        Ok(Self {
            ensemble: ensemble.to_owned(),
            id,
            voters,
            observers,
            version: 0,
            servers: BTreeMap::new(),
            // A server that its own file does not name ends by itself.
            host: host.unwrap_or_default(),
            observer,
            disk,
            log_disk: log_disk.filter(|_| apart),
            settings,
        })
    }
}

fn wrong(line: &str) -> NotAConfiguration {
    NotAConfiguration(format!("ZooKeeper does not take the line {line:?}"))
}
