//! Addresses of the cluster. They exist only in its own network namespaces, so they may be fixed.

use std::net::Ipv4Addr;

/// The control plane, the bridge between the nodes, and the cluster's DNS server.
pub(crate) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// Virtual addresses of Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";

/// The Service `kubernetes`: the first address of [`SERVICES`].
pub(crate) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// All pods of all nodes.
pub(crate) const PODS: &str = "10.244.0.0/16";

/// The DNS zone.
pub(crate) const DOMAIN: &str = "cluster.local";

/// The bridge between the nodes.
pub(crate) const BRIDGE: &str = "br0";

/// The queue in which the kernel hands new connections to a node's agent for NetworkPolicies.
pub(crate) const POLICY_QUEUE: u16 = 100;

/// The command that hands every new TCP connection of a node's pods to the agent, after the rules that replace a
/// Service's address. The agent would do so itself by an expression of nftables that not every kernel has. While it
/// does not listen, connections pass.
///
/// DNS is left out: if a resolver asks two questions at once on one socket, the kernel may lose one of them on its
/// way through the queue (netfilter bug 1766), and the resolver asks again only after five seconds.
pub(crate) fn judge_connections() -> Vec<String> {
    let rule = format!(
        "iptables -w -t mangle -A FORWARD -p tcp -m conntrack --ctstate NEW \
         -j NFQUEUE --queue-num {POLICY_QUEUE} --queue-bypass"
    );
    rule.split_whitespace().map(str::to_owned).collect()
}

/// A node's name.
pub(crate) fn node_name(number: u8) -> String {
    format!("node-{number}")
}

/// A node's address.
pub(crate) fn node_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, 10 + number)
}

/// The pods of one node.
pub(crate) fn node_pods(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

/// The bridge's end of a node's cable: what `cut` pulls.
pub(crate) fn node_cable(number: u8) -> String {
    format!("n{number}")
}

/// A batch for `ip` that makes the control plane's side.
pub(crate) fn control_plane_links() -> String {
    [
        "link set lo up".to_owned(),
        format!("link add {BRIDGE} type bridge"),
        format!("addr add {CONTROL_PLANE}/24 dev {BRIDGE}"),
        format!("link set {BRIDGE} up"),
        // A route makes the kernel come as far as the rules that replace a Service's address.
        format!("route add {SERVICES} dev {BRIDGE}"),
        // The network has no way out: connections fail at once instead of timing out.
        "route add unreachable default".to_owned(),
    ]
    .join("\n")
}

/// A batch for `ip` that plugs a node in, to run on the control plane's side.
pub(crate) fn node_cable_links(number: u8) -> String {
    let (name, cable) = (node_name(number), node_cable(number));
    [
        format!("netns add {name}"),
        format!("link add {cable} type veth peer name eth0 netns {name}"),
        format!("link set {cable} master {BRIDGE} up"),
        format!(
            "route add {} via {} dev {BRIDGE}",
            node_pods(number),
            node_address(number)
        ),
    ]
    .join("\n")
}

/// A batch for `ip` that makes the node's side.
pub(crate) fn node_links(number: u8, nodes: u8) -> String {
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("addr add {}/24 dev eth0", node_address(number)),
        "link set eth0 up".to_owned(),
        format!("route add default via {CONTROL_PLANE}"),
    ];
    for other in (1..=nodes).filter(|other| *other != number) {
        lines.push(format!(
            "route add {} via {}",
            node_pods(other),
            node_address(other)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_routes_to_the_pods_of_all_others() {
        let links = node_links(2, 3);
        assert!(links.contains("route add 10.244.1.0/24 via 10.99.0.11"));
        assert!(!links.contains("10.244.2.0/24"));
        assert!(links.contains("route add 10.244.3.0/24 via 10.99.0.13"));
    }

    #[test]
    fn the_control_plane_routes_to_a_nodes_pods() {
        let links = node_cable_links(1);
        assert!(links.contains("route add 10.244.1.0/24 via 10.99.0.11 dev br0"));
        assert!(links.contains("link add n1 type veth peer name eth0 netns node-1"));
    }
}
