//! Processes of the operator.

use std::sync::Arc;

use bellwether::{Guards, Operator, Permissions, Settings, ZooKeepers};
use bellwether_ensemble::rules::Rules;
use bellwether_ensemble::validate::Context;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Unsigned};

/// An operator's process.
pub struct Process {
    /// Its name.
    pub name: String,
    /// The API server that it is connected to.
    pub front_end: usize,
    /// What runs.
    pub task: JoinHandle<anyhow::Result<()>>,
}

/// What an operator is started with.
pub struct Start {
    /// Counts the operators, and gives it its name.
    pub number: usize,
    /// How many seconds its clock is ahead of the cluster's.
    pub ahead: i64,
    /// Its version.
    pub version: u32,
    /// What elections may do.
    pub permissions: Permissions,
    /// The safety rules that it keeps.
    pub rules: Rules,
    /// What its mirror does so that nothing deceives it.
    pub guards: Guards,
}

impl Start {
    /// The name of the operator.
    pub fn name(&self) -> String {
        format!("operator-{}", self.number)
    }

    /// Starts it in this cluster, with this way to ZooKeeper.
    pub fn run(self, cluster: &Cluster, zookeepers: Arc<dyn ZooKeepers>) -> Process {
        let name = self.name();
        let front_end = self.number % 2;
        cluster.api.connect(&name, front_end);
        cluster.api.stops().clocks().set(&name, self.ahead);
        let settings = Settings {
            identity: name.clone(),
            lease_namespace: "bellwether-system".to_owned(),
            lease_name: "bellwether".to_owned(),
            namespaces: vec![None],
            contribution: Context {
                member_image: format!("bellwether:{}", self.version),
                version: self.version.to_string(),
                ..Context::default()
            },
            permissions: self.permissions,
            rules: self.rules,
            guards: self.guards,
        };
        let client = cluster.api.client(&name);
        let members = cluster.members(&name);
        let operator = Operator::new(settings, client, members, zookeepers, Arc::new(Unsigned));
        let (stops, own) = (cluster.api.stops().clone(), name.clone());
        let task = tokio::spawn(async move {
            let program = operator.run(Box::pin(std::future::pending()));
            stops.run(&own, program).await
        });
        Process {
            name,
            front_end,
            task,
        }
    }
}
