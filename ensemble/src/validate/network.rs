//! Who may connect to the members.

use bellwether_api::ensemble::{MAX_PEERS, MembersPolicy, Network, PEERS};
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer};

use super::Problems;
use super::affinity::label_selector;

/// Checks it as the API server checks a NetworkPolicy (`ValidateNetworkPolicyPeer`).
pub(super) fn check(network: &Network, problems: &mut Problems) {
    let Network {
        policy,
        clients_from,
        metrics_from,
    } = network;
    let lists = [("clientsFrom", clients_from), ("metricsFrom", metrics_from)];
    for (name, list) in lists {
        let Some(list) = list else { continue };
        let field = format!("spec.network.{name}");
        if *policy == Some(MembersPolicy::Disabled) {
            problems.add(
                &field,
                "without a NetworkPolicy it has no effect: leave it out, or network.policy: Disabled",
            );
        }
        // For the API server no peer means everybody.
        if list.is_empty() || list.len() > MAX_PEERS {
            problems.add(
                &field,
                format!("use 1 to {MAX_PEERS} peers, or leave it out to let everybody connect"),
            );
        }
        for (index, peer) in list.iter().enumerate() {
            check_peer(&format!("{field}[{index}]"), peer, problems);
        }
    }
}

fn check_peer(field: &str, peer: &NetworkPolicyPeer, problems: &mut Problems) {
    let NetworkPolicyPeer {
        ip_block,
        namespace_selector,
        pod_selector,
    } = peer;
    let selectors = [
        ("namespaceSelector", namespace_selector),
        ("podSelector", pod_selector),
    ];
    let selects = selectors.iter().any(|(_, selector)| selector.is_some());
    if ip_block.is_some() == selects {
        problems.add(field, PEERS);
    }
    for (name, selector) in selectors {
        if let Some(selector) = selector {
            label_selector(&format!("{field}.{name}"), selector, problems);
        }
    }
    if let Some(block) = ip_block {
        check_block(&format!("{field}.ipBlock"), block, problems);
    }
}

fn check_block(field: &str, block: &IPBlock, problems: &mut Problems) {
    let mut network = |field: String, text: &str| {
        let network = text.parse::<IpNet>().ok();
        if network.is_none() {
            let problem =
                format!("{text:?}: use an address and a number of bits, such as 10.0.0.0/8");
            problems.add(field, problem);
        }
        network
    };
    let whole = network(format!("{field}.cidr"), &block.cidr);
    let mut outside = Vec::new();
    for (index, text) in block.except.iter().flatten().enumerate() {
        let field = format!("{field}.except[{index}]");
        if let (Some(part), Some(whole)) = (network(field.clone(), text), whole)
            && (!whole.contains(&part) || whole == part)
        {
            outside.push((field, format!("{text} is no part of {}", block.cidr)));
        }
    }
    for (field, problem) in outside {
        problems.add(field, problem);
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec};
    use serde_json::{Value, json};

    use super::super::tests::context;
    use super::super::validate;

    /// The fields that are refused with this `spec.network`.
    fn refused(network: Value) -> Vec<String> {
        let spec = ZooKeeperEnsembleSpec {
            replicas: 3,
            network: Some(serde_json::from_value(network).unwrap()),
            ..Default::default()
        };
        let problems = validate(&ZooKeeperEnsemble::new("zk", spec), &context());
        let problems = problems.err().unwrap_or_default();
        problems.into_iter().map(|p| p.field).collect()
    }

    fn clients(peers: Value) -> Vec<String> {
        let refused = refused(json!({ "clientsFrom": peers }));
        let field = |field: String| field.trim_start_matches("spec.network.").to_owned();
        refused.into_iter().map(field).collect()
    }

    #[test]
    fn peers_are_those_of_a_network_policy() {
        let shop = json!({ "matchLabels": { "team": "shop" } });
        let any = json!({});
        let good = json!([
            { "podSelector": shop },
            { "namespaceSelector": any },
            { "podSelector": any, "namespaceSelector": shop },
            { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } },
            { "ipBlock": { "cidr": "fd00::/8" } },
        ]);
        assert_eq!(clients(good), Vec::<String>::new());
        let bad = json!([
            {},
            { "podSelector": any, "ipBlock": { "cidr": "10.0.0.0/8" } },
            { "podSelector": { "matchLabels": { "a b": "c" } } },
            { "ipBlock": { "cidr": "10.0.0.0" } },
            { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["11.0.0.0/16", "10.0.0.0/8", "x"] } },
        ]);
        let fields = [
            "clientsFrom[0]",
            "clientsFrom[1]",
            "clientsFrom[2].podSelector.matchLabels",
            "clientsFrom[3].ipBlock.cidr",
            "clientsFrom[4].ipBlock.except[2]",
            "clientsFrom[4].ipBlock.except[0]",
            "clientsFrom[4].ipBlock.except[1]",
        ];
        assert_eq!(clients(bad), fields);
    }

    #[test]
    fn an_empty_list_is_refused_because_it_would_mean_everybody() {
        assert_eq!(clients(json!([])), ["clientsFrom"]);
        let fields = refused(json!({ "metricsFrom": [] }));
        assert_eq!(fields, ["spec.network.metricsFrom"]);
    }

    #[test]
    fn peers_without_a_policy_are_refused() {
        let peers = json!([{ "podSelector": {} }]);
        let without = json!({ "policy": "Disabled", "clientsFrom": peers, "metricsFrom": peers });
        let fields = ["spec.network.clientsFrom", "spec.network.metricsFrom"];
        assert_eq!(refused(without), fields);
        assert!(refused(json!({ "policy": "Disabled" })).is_empty());
        assert!(refused(json!({ "policy": "Enabled", "clientsFrom": peers })).is_empty());
    }
}
