//! Configuration files of the cluster's programs. JSON wherever YAML is read: it is YAML, and a
//! serializer cannot get its quoting wrong.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    network::{self, CONTROL_PLANE, DOMAIN, PODS},
    paths::Paths,
};

/// The image of the process that holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "docker.io/bellwether/pause:1";

/// containerd, for a node or (without `cni`) only to import images.
pub(crate) fn containerd(directory: &Path, root: &Path, cni: Option<&Path>) -> String {
    let mut text = format!(
        "version = 2\nroot = {root:?}\nstate = {state:?}\n\
         [grpc]\n  address = {socket:?}\n\
         [plugins.\"io.containerd.internal.v1.opt\"]\n  path = {opt:?}\n",
        state = directory.join("containerd/state"),
        socket = directory.join("containerd.sock"),
        opt = directory.join("containerd/opt"),
    );
    match cni {
        None => text.insert_str(0, "disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"),
        // restrict_oom_score_adj: without CAP_SYS_RESOURCE, which containers often lack, runc cannot
        // lower the score of a sandbox and fails.
        Some(programs) => text.push_str(&format!(
            "[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = {PAUSE_IMAGE:?}\n  \
             restrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = {programs:?}\n  \
             conf_dir = {configuration:?}\n",
            configuration = directory.join("cni"),
        )),
    }
    text
}

/// Pod networking: a cable and a route per pod. Unlike a bridge it needs no br_netfilter module for
/// a Service whose pods are on the caller's own node.
pub(crate) fn cni(directory: &Path, number: u8) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": directory.join("ipam"),
                    "ranges": [[{ "subnet": network::node_pods(number) }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

/// kubelet. What differs from a real node's defaults is there because several share one kernel, or
/// to keep tests from waiting.
pub(crate) fn kubelet(paths: &Paths, number: u8, cgroup: &str) -> Value {
    let directory = paths.node(number);
    let pki = paths.state.join("pki");
    let name = network::node_name(number);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.join("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki.join(format!("{name}-serving.crt")),
        "tlsPrivateKeyFile": pki.join(format!("{name}-serving.key")),
        "cgroupDriver": "cgroupfs",
        // Kubelets with one root would delete each other's pods.
        "cgroupRoot": format!("/{cgroup}/{name}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "containerRuntimeEndpoint": format!("unix://{}", paths.containerd_socket(number).display()),
        "clusterDNS": [CONTROL_PLANE],
        "clusterDomain": DOMAIN,
        "resolvConf": paths.state.join("resolv.conf"),
        // The disk and the memory are the host's: pods must not be evicted for how full those are.
        "evictionHard": { "memory.available": "50Mi" },
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "localStorageCapacityIsolation": false,
        "podLogsDir": directory.join("pod-logs"),
        "volumePluginDir": directory.join("volume-plugins"),
        "serializeImagePulls": false,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "syncFrequency": "10s",
        // With the controller manager's grace period: a node that is cut off is NotReady in 20 s.
        "nodeLeaseDurationSeconds": 20,
    })
}

/// kube-proxy of a node, or of the control plane, which borrows the first node's name: there it only
/// serves the API server and `exec`.
pub(crate) fn proxy(paths: &Paths, number: u8) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": paths.state.join("pki/proxy.conf") },
        "mode": "iptables",
        "clusterCIDR": PODS,
        "hostnameOverride": network::node_name(number),
        // The kernel's connection table belongs to the host.
        "conntrack": { "maxPerCore": 0 },
        "iptables": { "minSyncPeriod": "100ms" },
    })
}

/// CoreDNS. Names of the cluster are answered from its own watch, never from a cache, so that a
/// pod's new address is there as soon as its endpoint is; nothing else exists.
pub(crate) fn coredns(paths: &Paths) -> String {
    let kubeconfig = paths.kubeconfig();
    format!(
        ".:53 {{\n  bind {CONTROL_PLANE}\n  errors\n  ready {CONTROL_PLANE}:8181\n  loadbalance\n  \
         cache 30 {{\n    disable success {DOMAIN}\n    disable denial {DOMAIN}\n  }}\n  \
         kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{\n    kubeconfig {kubeconfig}\n    \
         pods insecure\n    ttl 2\n  }}\n  \
         template ANY ANY {{\n    rcode NXDOMAIN\n  }}\n}}\n",
        kubeconfig = kubeconfig.display(),
    )
}

/// What is in the cluster from the start.
pub(crate) const MANIFESTS: &str = r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
provisioner: bellwether.dev/local
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer
"#;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn paths() -> Paths {
        Paths {
            cache: "/cache".into(),
            state: "/s".into(),
            repository: "/r".into(),
        }
    }

    #[test]
    fn containerd_for_a_node_has_pods() {
        let text = containerd(
            Path::new("/s/node-1"),
            Path::new("/root"),
            Some(Path::new("/cni")),
        );
        assert!(
            text.contains("address = \"/s/node-1/containerd.sock\""),
            "{text}"
        );
        assert!(
            text.contains("sandbox_image = \"docker.io/bellwether/pause:1\""),
            "{text}"
        );
        assert!(text.contains("bin_dir = \"/cni\""), "{text}");
        assert!(!text.contains("disabled_plugins"), "{text}");
    }

    #[test]
    fn containerd_for_images_has_no_pods() {
        let text = containerd(Path::new("/s"), &PathBuf::from("/root"), None);
        assert!(text.starts_with("disabled_plugins"), "{text}");
        assert!(!text.contains("sandbox_image"), "{text}");
    }

    #[test]
    fn kubelets_do_not_share_a_cgroup() {
        let roots = [1, 2].map(|number| kubelet(&paths(), number, "bw")["cgroupRoot"].clone());
        assert_eq!(roots, [json!("/bw/node-1"), json!("/bw/node-2")]);
    }

    #[test]
    fn names_of_the_cluster_are_not_cached() {
        let text = coredns(&paths());
        assert!(text.contains("disable success cluster.local"), "{text}");
        assert!(text.contains("kubeconfig /s/pki/admin.conf"), "{text}");
        assert_eq!(
            text.matches('{').count(),
            text.matches('}').count(),
            "{text}"
        );
    }
}
