//! One node: a network namespace, containerd, kubelet, kube-proxy and the agent for NetworkPolicies.

use std::fs;

use anyhow::Result;

use super::{
    cgroup::Hierarchies,
    config, control_plane,
    keeper::{self, Component},
    network,
    paths::Paths,
    seed,
    state::Layout,
};
use crate::process;

/// Makes everything of a node that is not a process.
pub(crate) fn prepare(
    paths: &Paths,
    layout: &Layout,
    cgroups: &Hierarchies,
    number: u8,
) -> Result<()> {
    let directory = paths.node(number);
    fs::create_dir_all(directory.join("cni"))?;
    keeper::batch(None, &network::node_cable_links(number))?;
    keeper::batch(Some(number), &network::node_links(number, layout.nodes))?;
    keeper::forward_packets(Some(number))?;
    process::run(&mut keeper::in_namespace(
        Some(number),
        &network::judge_connections(),
    ))?;
    cgroups.create(&layout.cgroup, &network::node_name(number))?;
    let root = directory.join("containerd/root");
    seed::copy(&layout.seed, &root)?;
    let containerd = config::containerd(&directory, &root, Some(&layout.cni));
    fs::write(directory.join("containerd.toml"), containerd)?;
    let kubelet = config::kubelet(paths, number, &layout.cgroup);
    for (file, content) in [
        ("cni/10-pods.conflist", config::cni(&directory, number)),
        ("kubelet.json", kubelet),
        ("proxy.json", config::proxy(paths, number)),
    ] {
        fs::write(directory.join(file), content.to_string())?;
    }
    Ok(())
}

fn component(program: &str, number: u8, command: Vec<String>) -> Component {
    Component {
        name: format!("node-{number}-{program}"),
        node: Some(number),
        command,
    }
}

/// The container runtime.
pub(crate) fn containerd(paths: &Paths, number: u8) -> Component {
    let configuration = paths.node(number).join("containerd.toml");
    let words = ["containerd", "--config", &configuration.to_string_lossy()].map(str::to_owned);
    component("containerd", number, words.to_vec())
}

/// What needs the API server and the container runtime: kubelet, kube-proxy, and the agent that obeys
/// NetworkPolicies.
pub(crate) fn agents(paths: &Paths, number: u8) -> [Component; 3] {
    let directory = paths.node(number);
    let directory = directory.display();
    let name = network::node_name(number);
    let kubelet = vec![
        format!("--config={directory}/kubelet.json"),
        format!("--kubeconfig={}/pki/{name}.conf", paths.state.display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={}", network::node_address(number)),
        format!("--root-dir={directory}/kubelet"),
        format!("--cert-dir={directory}/kubelet/pki"),
    ];
    let proxy = vec![format!("--config={directory}/proxy.json")];
    let policies = vec![
        paths.programs().join("policies").display().to_string(),
        format!("--kubeconfig={}/pki/admin.conf", paths.state.display()),
        format!("--node={name}"),
        format!("--queue={}", network::POLICY_QUEUE),
        // The agents would spend all processor time on the benchmark's thousand policies. Its pods do not run.
        "--ignored-namespace=bench-fleet".to_owned(),
    ];
    [
        component(
            "kubelet",
            number,
            control_plane::kube(paths, "kubelet", kubelet),
        ),
        component(
            "kube-proxy",
            number,
            control_plane::kube(paths, "kube-proxy", proxy),
        ),
        component("policies", number, policies),
    ]
}
