//! A mirrored election under test.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::clients::Client;
use crate::wait::until;
use crate::world::World;

/// How long the mirror and the applications may take to agree: a lost session ends after some
/// seconds, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// A handle; the object itself lives in the cluster.
#[derive(Clone, Debug)]
pub struct Election<'w> {
    world: &'w World,
    name: String,
}

impl<'w> Election<'w> {
    /// The object.
    pub fn manifest(name: &str, ensemble: &str, path: &str, dialect: Value) -> Value {
        json!({
            "apiVersion": "zookeeper.bellwether.dev/v1alpha1",
            "kind": "LeaderElection",
            "metadata": { "name": name },
            "spec": { "ensembleRef": { "name": ensemble }, "path": path, "dialect": dialect },
        })
    }

    pub(crate) fn new(world: &'w World, name: &str) -> Self {
        Self {
            world,
            name: name.to_owned(),
        }
    }

    /// The status as last seen.
    pub fn status(&self) -> Result<Value, String> {
        let mut object = self
            .world
            .elections
            .get(&self.name)
            .ok_or("the election is not there".to_owned())?;
        let status = object["status"].take();
        if status.is_null() {
            Err("there is no status yet".to_owned())
        } else {
            Ok(status)
        }
    }

    /// The leader's identity, and the queue with the leader first.
    pub fn view(&self) -> Result<(Option<String>, Vec<String>), String> {
        let status = self.status()?;
        let identity = |v: &Value| v["identity"].as_str().map(str::to_owned);
        let queue = status["candidates"].as_array().into_iter().flatten();
        Ok((
            identity(&status["leader"]),
            queue.filter_map(identity).collect(),
        ))
    }

    /// Status and reason of a condition.
    pub fn condition(&self, type_: &str) -> Result<(String, String), String> {
        let status = self.status()?;
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
        conditions
            .filter(|c| c["type"] == type_)
            .map(|c| (text(c, "status"), text(c, "reason")))
            .next()
            .ok_or_else(|| format!("there is no condition {type_}"))
    }

    /// The message of a condition.
    pub fn message(&self, type_: &str) -> Result<String, String> {
        let status = self.status()?;
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let told = conditions.find(|condition| condition["type"] == type_);
        let message = told.and_then(|condition| condition["message"].as_str());
        message
            .map(str::to_owned)
            .ok_or_else(|| format!("there is no condition {type_}: {status}"))
    }

    /// Waits until a condition has this status and reason.
    pub fn wait_condition(&self, type_: &str, status: &str, reason: &str) -> Result<()> {
        until(
            &format!("{} is {status} with {reason}", type_),
            PATIENCE,
            || {
                let found = self.condition(type_)?;
                if found == (status.to_owned(), reason.to_owned()) {
                    Ok(())
                } else {
                    Err(format!("it is {} with {}", found.0, found.1))
                }
            },
        )
    }

    /// Waits until the queue is exactly this, the leader first.
    pub fn wait_queue(&self, queue: &[&str]) -> Result<Value> {
        until(
            &format!("the queue of {} is {queue:?}", self.name),
            PATIENCE,
            || {
                let (leader, found) = self.view()?;
                let synced = self.condition("Synced")?;
                if leader.as_deref() == queue.first().copied()
                    && found == queue
                    && synced.0 == "True"
                {
                    self.status()
                } else {
                    Err(format!(
                        "leader {leader:?}, queue {found:?}, Synced {synced:?}"
                    ))
                }
            },
        )
    }

    /// Waits until the status shows what *every* one of these clients learned from its own library:
    /// the same leader and, if the library knows it, the same queue, with `count` candidates.
    pub fn wait_agrees(&self, clients: &[&Client<'_>], count: usize) -> Result<Value> {
        let what = format!("the status of {} and {count} candidates agree", self.name);
        until(&what, PATIENCE, || {
            let (leader, queue) = self.view()?;
            let synced = self.condition("Synced")?;
            if synced.0 != "True" {
                return Err(format!("Synced is {synced:?}"));
            }
            if queue.len() != count {
                let said: Vec<String> = clients.iter().map(|c| c.last_words()).collect();
                return Err(format!(
                    "the status lists {queue:?}; the clients said {said:?}"
                ));
            }
            // Until the session of a killed leader ends, everybody still agrees on it.
            let known = |id: &String| clients.iter().any(|c| c.id() == id);
            if !leader.as_ref().is_some_and(known) {
                return Err(format!(
                    "{leader:?} leads, which is none of those that live"
                ));
            }
            for client in clients {
                let view = client
                    .last_view()
                    .ok_or("a client has no view yet".to_owned())?;
                let told = view["leader"].as_str().map(str::to_owned);
                let listed = &view["queue"];
                if told != leader || (!listed.is_null() && *listed != json!(queue)) {
                    return Err(format!(
                        "the status says {leader:?} of {queue:?}, {} is told {told:?} of {listed}",
                        client.id()
                    ));
                }
                let leads = view["hasLeadership"] == true;
                if leads != (leader.as_deref() == Some(client.id())) {
                    return Err(format!("{} thinks that it leads: {leads}", client.id()));
                }
            }
            self.status()
        })
    }

    /// Waits until the status agrees with anonymous candidates, which know only of themselves: exactly
    /// one of them leads, and the leader's session is one of its own, as is the epoch if it knows one;
    /// each of the others waits, with a session of its own. Returns the status and who leads.
    pub fn wait_agrees_on_sessions(&self, clients: &[&Client<'_>]) -> Result<(Value, String)> {
        let what = format!("the status of {} and {} agree", self.name, clients.len());
        until(&what, PATIENCE, || {
            let status = self.status()?;
            let synced = self.condition("Synced")?;
            if synced.0 != "True" {
                return Err(format!("Synced is {synced:?}"));
            }
            let candidates = status["candidates"].as_array().into_iter().flatten();
            let candidates: Vec<&Value> = candidates.map(|c| &c["sessionID"]).collect();
            let mut leaders = Vec::new();
            for client in clients {
                let view = client
                    .last_view()
                    .ok_or("a client has no view yet".to_owned())?;
                let own = view["sessions"].as_array().into_iter().flatten();
                let own: Vec<&Value> = own.collect();
                let nodes = candidates.iter().filter(|session| own.contains(session));
                if nodes.count() != 1 {
                    return Err(format!(
                        "{} has {own:?} of {candidates:?}, which is not one",
                        client.id()
                    ));
                }
                let leads = view["hasLeadership"] == true;
                if leads != own.contains(&&status["leader"]["sessionID"]) {
                    return Err(format!(
                        "{} with {own:?} says that it leads: {leads}; the status says {}",
                        client.id(),
                        status["leader"]
                    ));
                }
                let epoch = &view["epoch"];
                if leads && !epoch.is_null() && *epoch != status["leader"]["epoch"] {
                    return Err(format!(
                        "{} leads in epoch {epoch}; the status says {}",
                        client.id(),
                        status["leader"]
                    ));
                }
                if leads {
                    leaders.push(client.id().to_owned());
                }
            }
            match &leaders[..] {
                [leader] if candidates.len() == clients.len() => {
                    Ok((status.clone(), leader.clone()))
                }
                _ => Err(format!("{leaders:?} lead of {candidates:?}")),
            }
        })
    }

    /// The leader's fencing token in a status.
    pub fn token(status: &Value) -> u64 {
        let text = status["leader"]["fencingToken"].as_str();
        text.and_then(|t| t.parse().ok()).unwrap_or(0)
    }
}
