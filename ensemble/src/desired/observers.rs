//! The StatefulSet of the observers: that of the voters under another name, with server ids of its
//! own.

use bellwether_api::labels;
use serde_json::{Value, json};

use super::claims::ClaimSizes;
use super::stateful_set::{inputs_hash, parts};
use super::{DesiredObject, ObjectKind, apply, written};
use crate::ids::OBSERVER_OFFSET;
use crate::observation::Revision;
use crate::validate::ValidEnsemble;

/// The name of the observers' StatefulSet.
pub fn set_name(ensemble: &str) -> String {
    format!("{ensemble}-observer")
}

/// The name of the observer's pod with this ordinal.
pub fn pod_name(ensemble: &str, ordinal: u16) -> String {
    format!("{}-{ordinal}", set_name(ensemble))
}

fn name_it(metadata: &mut Value) {
    metadata["labels"][labels::COMPONENT] = json!(labels::COMPONENT_OBSERVER);
}

/// The whole StatefulSet. Its pods carry the voters' labels too, so that the Services find them, and one more
/// label, by which the disruption budget excludes them.
pub fn stateful_set(
    ensemble: &ValidEnsemble,
    revision: &Revision,
    replicas: u16,
    sizes: ClaimSizes<'_>,
) -> DesiredObject {
    let name = set_name(&ensemble.name);
    let inputs = inputs_hash(ensemble, revision, sizes);
    let (mut metadata, mut body) = parts(ensemble, revision, &inputs, replicas, sizes);
    let mut selector = labels::selector(&ensemble.name);
    selector.insert(
        labels::COMPONENT.to_owned(),
        labels::COMPONENT_OBSERVER.to_owned(),
    );
    metadata["name"] = json!(name);
    name_it(&mut metadata);
    body["spec"]["selector"]["matchLabels"] = json!(selector);
    for claim in body["spec"]["volumeClaimTemplates"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        name_it(&mut claim["metadata"]);
    }
    let template = &mut body["spec"]["template"];
    name_it(&mut template["metadata"]);
    if ensemble.pod.affinity.is_none() {
        let term = "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0\
                    /podAffinityTerm/labelSelector/matchLabels";
        if let Some(labels) = template.pointer_mut(term) {
            *labels = json!(selector);
        }
    }
    for container in template["spec"]["initContainers"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        set_environment(container, ensemble);
    }
    written::remember(&mut metadata, &body);
    apply(ObjectKind::StatefulSet, name, metadata, body)
}

/// The first observer is server 101, and each has the configuration of observers.
fn set_environment(container: &mut Value, ensemble: &ValidEnsemble) {
    let Some(variables) = container["env"].as_array_mut() else {
        return;
    };
    variables.retain(|v| v["name"] != "ID_OFFSET");
    let offset = ensemble.id_offset + OBSERVER_OFFSET;
    variables.push(json!({ "name": "ID_OFFSET", "value": offset.to_string() }));
    variables.push(json!({ "name": "PEER_TYPE", "value": "observer" }));
}

#[cfg(test)]
mod tests {
    use bellwether_api::ZooKeeperEnsembleSpec;
    use bellwether_api::ensemble::Observers;

    use super::*;
    use crate::desired::{config, services};
    use crate::encryption::Encryption;
    use crate::ids::Voters;
    use crate::validate::example;

    fn ensemble(observers: i32) -> ValidEnsemble {
        let spec = ZooKeeperEnsembleSpec {
            replicas: 3,
            id_offset: Some(7),
            observers: Some(Observers {
                replicas: observers,
            }),
            ..Default::default()
        };
        example(spec)
    }

    #[test]
    fn the_number_of_observers_is_in_no_file_so_a_change_of_it_restarts_nobody() {
        let voters = Voters::first(3, 7);
        let none = config::render(&ensemble(0), &voters, None, Encryption::NONE);
        assert_eq!(
            none,
            config::render(&ensemble(50), &voters, None, Encryption::NONE)
        );
        let voter = &none.files["zoo-8.cfg"];
        assert!(!voter.contains("observer"), "{voter}");
        let observer = &none.files["zoo-observer.cfg"];
        let own = "server.{id}={pod}.zk-members.shop.svc.cluster.local:2888:3888:observer\n";
        assert!(observer.contains(own), "{observer}");
        assert!(observer.contains("peerType=observer\n"), "{observer}");
        let participants = observer.lines().filter(|l| l.ends_with(":participant"));
        assert_eq!(participants.count(), 3);
    }

    #[test]
    fn observers_have_their_own_ids_labels_and_volumes() {
        let ensemble = ensemble(2);
        let rendered = config::render(&ensemble, &Voters::first(3, 7), None, Encryption::NONE);
        let set = stateful_set(
            &ensemble,
            &rendered.revision,
            2,
            ClaimSizes::wanted(&ensemble),
        );
        assert_eq!(set.name, "zk-observer");
        let spec = &set.body["spec"];
        assert_eq!(spec["replicas"], 2);
        assert_eq!(spec["serviceName"], "zk-members");
        let prepare = &spec["template"]["spec"]["initContainers"][0]["env"];
        let value = |name: &str| {
            let mut all = prepare.as_array().unwrap().iter();
            all.find(|v| v["name"] == name).unwrap()["value"].clone()
        };
        assert_eq!(value("ID_OFFSET"), "107");
        assert_eq!(value("PEER_TYPE"), "observer");
        let labels = &spec["template"]["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/component"], "observer");
        let selected = &spec["selector"]["matchLabels"];
        assert!(
            selected
                .as_object()
                .unwrap()
                .iter()
                .all(|(k, v)| labels[k] == *v)
        );
        let budget = services::pod_disruption_budget(&ensemble).body;
        let left_out = &budget["spec"]["selector"]["matchExpressions"][0];
        assert_eq!(left_out["operator"], "NotIn");
        assert_eq!(left_out["values"][0], "observer");
    }
}
