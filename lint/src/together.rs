//! What objects of one text cannot be together, though each could be alone.

use bellwether_ensemble::desired::members_service;

use crate::finding::{Problem, Source};
use crate::path::Path;
use crate::yaml::Node;

/// The objects that stand in the way of others, with what is wrong.
pub(crate) fn check<'n>(objects: &[&'n Node]) -> Vec<(&'n Node, Problem)> {
    let mut found = Vec::new();
    for election in of_kind(objects, "LeaderElection") {
        let spec = election.get("spec");
        let Some(projections) = spec.and_then(|spec| spec.get("projections")) else {
            continue;
        };
        found.extend(taken_service(objects, election, projections).map(|found| (election, found)));
        found.extend(own_rollout(objects, election, projections).map(|found| (election, found)));
    }
    found
}

fn of_kind<'n>(objects: &[&'n Node], kind: &str) -> impl Iterator<Item = &'n Node> {
    let all = objects.iter().copied();
    all.filter(move |object| object.text_at("kind") == Some(kind))
}

fn named(object: &Node, key: &str) -> Option<String> {
    let metadata = object.get("metadata")?;
    metadata.text_at(key).map(str::to_owned)
}

fn together(one: &Node, other: &Node) -> bool {
    named(one, "namespace") == named(other, "namespace")
}

/// The Service of an election that has the name of an ensemble's own Service is not written: the
/// operator does not touch an object that is not the election's, and reports that in the status.
fn taken_service(objects: &[&Node], election: &Node, projections: &Node) -> Option<Problem> {
    let own = projections.get("service")?.text_at("name");
    let service = own.map(str::to_owned).or_else(|| named(election, "name"))?;
    let ensembles = of_kind(objects, "ZooKeeperEnsemble");
    let mut ensembles = ensembles.filter(|ensemble| together(ensemble, election));
    let name = ensembles.find_map(|ensemble| {
        let name = named(ensemble, "name")?;
        (service == name || service == members_service(&name)).then_some(name)
    })?;
    let text = format!(
        "the Service {service} is one of the ensemble {name}, and is not touched: choose another \
         name for the Service of the election"
    );
    let path = Path::parse("spec.projections.service.name");
    Some(Problem::error(Source::Operator, path, text))
}

/// A workload whose own controller replaces its pods is not rolled out by who leads.
fn own_rollout(objects: &[&Node], election: &Node, projections: &Node) -> Option<Problem> {
    let workload = projections.get("rollout")?.get("workload")?;
    let (kind, name) = (workload.text_at("kind")?, workload.text_at("name")?);
    let mut all = of_kind(objects, kind).filter(|object| together(object, election));
    let object = all.find(|object| named(object, "name").as_deref() == Some(name))?;
    let strategy = object.get("spec")?.get("updateStrategy");
    let strategy = strategy.and_then(|strategy| strategy.text_at("type"));
    if strategy == Some("OnDelete") {
        return None;
    }
    let text = format!(
        "the {kind} {name} has the update strategy {}, by which its own controller replaces pods, the leader among \
         them: set its spec.updateStrategy.type to OnDelete",
        strategy.unwrap_or("RollingUpdate")
    );
    let path = Path::parse("spec.projections.rollout.workload");
    Some(Problem::error(Source::Operator, path, text))
}
