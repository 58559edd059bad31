//! What objects of one text cannot be together, though each could be alone.

use bellwether_ensemble::desired::members_service;

use crate::finding::{Problem, Source};
use crate::path::Path;
use crate::yaml::Node;

/// The objects that stand in the way of others, with what is wrong.
///
/// The Service of an election that has the name of an ensemble's own Service is not written: the
/// operator does not touch an object that is not the election's, and reports that in the status.
pub(crate) fn check<'n>(objects: &[&'n Node]) -> Vec<(&'n Node, Problem)> {
    let named = |object: &Node, key: &str| {
        let metadata = object.get("metadata")?;
        metadata.text_at(key).map(str::to_owned)
    };
    let of_kind = |kind: &'static str| {
        let all = objects.iter().copied();
        all.filter(move |object| object.text_at("kind") == Some(kind))
    };
    let mut found = Vec::new();
    for election in of_kind("LeaderElection") {
        let spec = election.get("spec");
        let projections = spec.and_then(|spec| spec.get("projections"));
        let Some(projection) = projections.and_then(|p| p.get("service")) else {
            continue;
        };
        let own = projection.text_at("name").map(str::to_owned);
        let Some(service) = own.or_else(|| named(election, "name")) else {
            continue;
        };
        for ensemble in of_kind("ZooKeeperEnsemble") {
            let Some(name) = named(ensemble, "name") else {
                continue;
            };
            let together = named(ensemble, "namespace") == named(election, "namespace");
            if together && (service == name || service == members_service(&name)) {
                let text = format!(
                    "the Service {service} is one of the ensemble {name}, and is not touched: choose another \
                     name for the Service of the election"
                );
                let path = Path::parse("spec.projections.service.name");
                found.push((election, Problem::error(Source::Operator, path, text)));
            }
        }
    }
    found
}
