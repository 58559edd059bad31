//! The start of a pod's server: the member program, the volumes and the configuration.

use std::collections::BTreeMap;

use bellwether_api::labels;
use bellwether_api_server::{Kind, Object, Store, now};
use bellwether_ensemble::desired::bootstrap_config_map;
use bellwether_ensemble::desired::config::{SERVERS, SETTINGS};
use bellwether_ensemble::desired::stateful_set::{INITIALIZE, PREPARE_CONTAINER};
use bellwether_ensemble::{ServerId, Voters};
use bellwether_member::{identify, zoo_cfg};
use serde_json::Value;

use super::{Kubelets, Sandbox};
use crate::zookeeper::{Bootstrap, List, Prepare, Start, Zoo};

impl Kubelets {
    /// What the member program does, and how the server starts then.
    pub(super) fn prepared(
        &mut self,
        store: &Store,
        zoo: &mut Zoo,
        sandbox: &Sandbox,
        pod: &Object,
    ) -> Result<Start, String> {
        let prepare = member_program(pod)?;
        self.claims_seen = None;
        let mut disks = Vec::new();
        for claim in &sandbox.claims {
            disks.push(
                *self
                    .disks
                    .entry(claim.clone())
                    .or_insert_with(|| zoo.new_disk()),
            );
        }
        let (Some(disk), log_disk) = (disks.first().copied(), disks.get(1).copied()) else {
            return Err("the pod has no volume".to_owned());
        };
        let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str();
        let revision = annotation(labels::CONFIG_REVISION).ok_or("the pod names no revision")?;
        let config = store.get(Kind::CONFIG_MAP, &sandbox.namespace, revision);
        let config = config.ok_or_else(|| format!("configmap \"{revision}\" not found"))?;
        let id = prepare.id;
        let at_run_time = AtRunTime::of(&config["data"], zoo.committed_list(disk), pod, id)?;
        let text = match prepare.observer {
            _ if at_run_time.is_some() => at_run_time.as_ref().map(|own| own.text.clone()),
            // All observers share one file, into which each puts its own id and name.
            true => config["data"]["zoo-observer.cfg"].as_str().map(|text| {
                let text = text.replace("{id}", &id.to_string());
                text.replace("{pod}", pod.name())
            }),
            false => (config["data"][format!("zoo-{id}.cfg")].as_str()).map(str::to_owned),
        };
        let text = text.ok_or_else(|| format!("the revision has no file for server {id}"))?;
        let bootstrap = bootstrap_config_map(&prepare.ensemble_name);
        let bootstrap = store.get(Kind::CONFIG_MAP, &sandbox.namespace, &bootstrap);
        let word = |key: &str| bootstrap.and_then(|b| b["data"][key].as_str().map(str::to_owned));
        zoo.prepare(&Prepare {
            ensemble: prepare.ensemble.clone(),
            id,
            disk,
            log_disk,
            bootstrap: Bootstrap {
                initialize: word("initialize"),
                until: word("until"),
                epochs: word("epochs"),
            },
            required: annotation(INITIALIZE).map(str::to_owned),
            now: u64::try_from(now().as_second()).unwrap_or(0),
        })?;
        let start = Start::parse(&prepare.ensemble, id, &text, disk, log_disk);
        let mut start = start.map_err(|error| error.to_string())?;
        if let Some(own) = at_run_time {
            (start.version, start.servers) = (own.version, own.servers);
        }
        Ok(start)
    }
}

/// How a server starts whose list changes at run time.
struct AtRunTime {
    /// Its `zoo.cfg`, with the lines of the servers in it.
    text: String,
    /// The version of that list; 0 if it was made anew.
    version: i64,
    /// All servers that the ensemble can have.
    servers: BTreeMap<ServerId, String>,
}

impl AtRunTime {
    /// By the member program's own decision; `None` where lists are in files that the operator writes.
    fn of(
        config: &Value,
        committed: Option<&List>,
        pod: &Object,
        id: ServerId,
    ) -> Result<Option<Self>, String> {
        let (Some(settings), Some(servers)) = (config[SETTINGS].as_str(), config[SERVERS].as_str())
        else {
            return Ok(None);
        };
        let line = |id: ServerId| {
            let begins = format!("server.{id}=");
            let mut lines = servers.lines();
            lines
                .find(|line| line.starts_with(&begins))
                .unwrap_or_default()
        };
        let lines = |ids: &mut dyn Iterator<Item = ServerId>| -> String {
            ids.flat_map(|id| [line(id), "\n"]).collect()
        };
        let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str();
        let members: Option<Voters> = annotation(labels::VOTERS).and_then(|v| v.parse().ok());
        let members = members.ok_or("the pod does not say which members there are")?;
        let version =
            annotation(labels::LIST_VERSION).and_then(|v| u64::from_str_radix(v, 16).ok());
        let members = lines(&mut members.iter());
        let given = bellwether_member::List {
            version: version.ok_or("the pod does not say the version of its list")?,
            lines: &members,
        };
        let known = committed.map(|list| {
            let version = u64::try_from(list.version).unwrap_or(0);
            (
                version,
                lines(&mut list.voters.keys().chain(&list.observers).copied()),
            )
        });
        let file = known.as_ref().map(|(version, lines)| {
            let list = bellwether_member::List {
                version: *version,
                lines,
            };
            ("file", list)
        });
        let text = zoo_cfg(settings, file, given, (id.0, line(id)));
        let goes_on = text.contains("\ndynamicConfigFile=");
        let (text, version) = match (&known, committed) {
            (Some((_, lines)), Some(list)) if goes_on => {
                (format!("{settings}{lines}"), list.version)
            }
            _ => (text, 0),
        };
        let server = |line: &str| {
            let (id, rest) = line.strip_prefix("server.")?.split_once('=')?;
            let host = rest.split(':').next()?;
            Some((ServerId(id.parse().ok()?), host.to_owned()))
        };
        Ok(Some(Self {
            text,
            version,
            servers: servers.lines().filter_map(server).collect(),
        }))
    }
}

/// What the member program learns from its pod.
struct Told {
    ensemble: String,
    ensemble_name: String,
    id: ServerId,
    observer: bool,
}

fn member_program(pod: &Object) -> Result<Told, String> {
    let containers = pod["spec"]["initContainers"]
        .as_array()
        .into_iter()
        .flatten();
    let prepare = containers.clone().find(|c| c["name"] == PREPARE_CONTAINER);
    let prepare = prepare.ok_or("the pod has no member program")?;
    let variables = prepare["env"].as_array().into_iter().flatten();
    let value = |name: &str| {
        let mut named = variables.clone().filter(|v| v["name"] == name);
        named
            .next()
            .and_then(|v| v["value"].as_str())
            .unwrap_or_default()
    };
    let identity = identify(
        Some(pod.name()),
        Some(value("ENSEMBLE")),
        Some(value("ID_OFFSET")),
    )?;
    let id = u16::try_from(identity.server_id).map_err(|error| error.to_string())?;
    let name = identity.ensemble.rsplit('/').next().unwrap_or_default();
    Ok(Told {
        ensemble_name: name.to_owned(),
        ensemble: identity.ensemble,
        id: ServerId(id),
        observer: value("PEER_TYPE") == "observer",
    })
}
