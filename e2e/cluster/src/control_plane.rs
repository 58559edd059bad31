//! The control plane's programs and their flags. What differs from a real cluster's is said.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use super::{
    config,
    keeper::{self, Component},
    network::{self, CONTROL_PLANE},
    paths::Paths,
};
use crate::process;

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

/// The command line of a program of the `kube` binary.
pub(crate) fn kube(paths: &Paths, program: &str, flags: Vec<String>) -> Vec<String> {
    let mut words = vec![text(paths.programs().join("kube")), program.to_owned()];
    words.extend(flags);
    words
}

/// Writes every key, certificate and kubeconfig of a new cluster.
pub(crate) fn write_certificates(paths: &Paths, nodes: u8) -> Result<()> {
    let nodes: Vec<String> = (1..=nodes)
        .map(|number| {
            format!(
                "{}={}",
                network::node_name(number),
                network::node_address(number)
            )
        })
        .collect();
    let names = format!(
        "localhost,kubernetes,kubernetes.default,kubernetes.default.svc,\
         kubernetes.default.svc.{},127.0.0.1,{CONTROL_PLANE},{}",
        network::DOMAIN,
        network::KUBERNETES_SERVICE
    );
    let flags = vec![
        format!("--directory={}", text(paths.state.join("pki"))),
        format!("--server=https://{CONTROL_PLANE}:6443"),
        format!("--server-names={names}"),
        format!("--nodes={}", nodes.join(",")),
    ];
    process::run(&mut keeper::in_namespace(
        None,
        &kube(paths, "certificates", flags),
    ))
}

fn component(name: &str, command: Vec<String>) -> Component {
    Component {
        name: name.to_owned(),
        node: None,
        command,
    }
}

/// etcd and the API server.
pub(crate) fn first(paths: &Paths) -> [Component; 2] {
    let pki = |name: &str| text(paths.state.join("pki").join(name));
    let etcd = vec![
        format!("--data-dir={}", text(paths.state.join("etcd"))),
        "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        // The data need not outlive the machine, and tests should not wait for its disk.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let api_server = vec![
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--service-cluster-ip-range={}", network::SERVICES),
        format!("--advertise-address={CONTROL_PLANE}"),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", pki("service-account.pub")),
        format!(
            "--service-account-signing-key-file={}",
            pki("service-account.key")
        ),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        format!(
            "--kubelet-client-certificate={}",
            pki("apiserver-kubelet-client.crt")
        ),
        format!(
            "--kubelet-client-key={}",
            pki("apiserver-kubelet-client.key")
        ),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        // Pods of a node that is gone are evicted after 30 s, not 5 min.
        "--default-not-ready-toleration-seconds=30".to_owned(),
        "--default-unreachable-toleration-seconds=30".to_owned(),
    ];
    [
        component("etcd", kube(paths, "etcd", etcd)),
        component("kube-apiserver", kube(paths, "kube-apiserver", api_server)),
    ]
}

/// What needs the API server to be there.
pub(crate) fn controllers(paths: &Paths) -> Result<Vec<Component>> {
    let pki = |name: &str| text(paths.state.join("pki").join(name));
    let write = |name: &str, content: String| -> Result<String> {
        let file = paths.state.join(name);
        fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
        Ok(text(file))
    };
    let controller_manager = vec![
        format!("--kubeconfig={}", pki("controller-manager.conf")),
        format!(
            "--service-account-private-key-file={}",
            pki("service-account.key")
        ),
        format!("--root-ca-file={}", pki("ca.crt")),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        // kubelet renews every 5 s; a node that is cut off is noticed in 20 s, not 50.
        "--node-monitor-grace-period=20s".to_owned(),
        "--node-monitor-period=2s".to_owned(),
    ];
    let scheduler = vec![
        format!("--kubeconfig={}", pki("scheduler.conf")),
        "--leader-elect=false".to_owned(),
    ];
    let provisioner = vec![
        format!("--kubeconfig={}", pki("admin.conf")),
        format!("--volumes={}/{{node}}/volumes", text(paths.state.clone())),
    ];
    let proxy = write("proxy.json", config::proxy(paths, 1).to_string())?;
    let corefile = write("Corefile", config::coredns(paths))?;
    let coredns = vec![
        text(paths.programs().join("coredns")),
        "-conf".to_owned(),
        corefile,
    ];
    Ok(vec![
        component(
            "kube-controller-manager",
            kube(paths, "kube-controller-manager", controller_manager),
        ),
        component("kube-scheduler", kube(paths, "kube-scheduler", scheduler)),
        component("provisioner", kube(paths, "provisioner", provisioner)),
        component("coredns", coredns),
        component(
            "kube-proxy",
            kube(paths, "kube-proxy", vec![format!("--config={proxy}")]),
        ),
    ])
}
