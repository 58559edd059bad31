//! The pod of a member, observers' included.

use bellwether_api::ensemble::{Authentication, Pod};
use bellwether_api::labels;
use serde_json::{Map, Value, json};

use super::{
    CONTAINER, CONTROL_PORT, INITIALIZE, PREPARE_CONTAINER, PROBE_PORT, PROBES_CONTAINER, RESTART,
};
use crate::certificates::identity_secret;
use crate::client_tls::ClientTls;
use crate::desired::bootstrap_config_map;
use crate::desired::claims::LOG;
use crate::desired::config::{
    CLIENT_PORT, ELECTION_PORT, METRICS_PORT, QUORUM_PORT, SECURE_CLIENT, SECURE_CLIENT_PORT,
};
use crate::observation::Revision;
use crate::server_tls::ServerTls;
use crate::stage::Stage as _;
use crate::validate::ValidEnsemble;

/// The version of what the member program answers there, which pods carry as the annotation
/// [`labels::CONTROL`].
const CONTROL_VERSION: &str = "1";
/// Where the Secret with the member's certificate is mounted.
const IDENTITY: &str = "/etc/bellwether/identity";

/// Where the Secret with the users of clients is mounted.
const USERS: &str = "/etc/bellwether/users";
/// The volume with the certificate for the clients' port that the operator does not make.
pub(super) const CLIENT_PORT_VOLUME: &str = "client-port";
/// Where the Secret with the user's certificate for the clients' port is mounted.
const CLIENT_PORT_CERTIFICATE: &str = "/etc/bellwether/client-port";
/// Where the ConfigMap with the authorities of clients' certificates is mounted.
const CLIENT_AUTHORITIES: &str = "/etc/bellwether/client-authorities";

/// The most memory that the member program may take. It needs 2 MiB, also while 200 clients keep it
/// busy; the rest is for the container runtime.
const MEMBER_MEMORY: &str = "64Mi";

/// Runs the server, and ends it at once when its pod is deleted.
///
/// A server does nothing to leave its quorum in order: on SIGTERM the virtual machine stops every
/// thread and then takes a third of a second to exit, with its connections open, so that peers and
/// clients wait for a server that does not answer any more. SIGKILL closes them at once and loses
/// nothing more, because a write is on the disks of a majority before it is acknowledged.
///
/// `$!` is the server itself, since `zkServer.sh` replaces itself by it; its exit code becomes that
/// of the container, and 143 is what it would have exited with by SIGTERM.
///
/// The configuration is named by its path, and its directory is not on the class path: Java refuses an archive of classes
/// that an image may bring while a directory with files is (JDK, `SharedClassPathEntry::validate`).
macro_rules! start {
    ($configuration:literal) => {
        concat!(
            "trap 'kill -KILL $!; exit 143' TERM; ZOOCFGDIR=/not-on-the-class-path \
             zkServer.sh start-foreground ",
            $configuration,
            " & wait $!"
        )
    };
}
const START: &str = start!("/conf/zoo.cfg");

/// As [`START`], for a server whose files are on its volume, since ZooKeeper writes each list beside its configuration.
///
/// A server that its own list does not name would exit: one that has left, or follows and is no voter yet, and whose container
/// starts again. It begins with that list and itself.
const START_FROM_VOLUME: &str = concat!(
    "c=/data/config/zoo.cfg; l=$(sed -n 's/^dynamicConfigFile=//p' $c | tail -n 1); \
     me=\"^server[.]$(cat /data/myid)=\"; if [ -f \"$l\" ] && ! grep -q \"$me\" \"$l\"; then \
     { cat /conf/settings.cfg; grep '^server[.]' \"$l\"; grep \"$me\" /conf/servers; } > $c.new && mv $c.new $c; fi; ",
    start!("/data/config/zoo.cfg")
);

pub(super) fn pod_labels(ensemble: &ValidEnsemble) -> Value {
    let mut all = ensemble.pod.labels.clone();
    all.extend(labels::selector(&ensemble.name));
    json!(all)
}

pub(super) fn pod_annotations(ensemble: &ValidEnsemble, revision: &Revision) -> Value {
    let mut all = ensemble.pod.annotations.clone();
    all.insert(labels::CONFIG_REVISION.to_owned(), revision.name.clone());
    // Where members change at run time, the list is no part of the template's hash, and is added after it.
    if revision.version.is_none() {
        all.insert(labels::VOTERS.to_owned(), revision.voters.to_string());
    }
    all.insert(labels::CONTROL.to_owned(), CONTROL_VERSION.to_owned());
    let mut state = |key: &str, state: &str| all.insert(key.to_owned(), state.to_owned());
    if revision.tls.servers != ServerTls::Disabled {
        state(labels::SERVER_TLS, revision.tls.servers.as_str());
    }
    if revision.tls.clients != ClientTls::Disabled {
        state(labels::CLIENT_TLS, revision.tls.clients.as_str());
    }
    if let Some(id) = revision.initialize {
        all.insert(INITIALIZE.to_owned(), id.to_string());
    }
    if let Some(restart) = &ensemble.restart_at {
        all.insert(RESTART.to_owned(), restart.clone());
    }
    json!(all)
}

/// The user and the group of the official image.
const USER: i64 = 1000;

/// As which user the containers run. Without ids the cluster assigns them.
fn identity(pod: &Pod) -> Value {
    let user = pod.user.unwrap_or_default();
    let mut identity = json!({
        "runAsNonRoot": true,
        // Another user may write files of the one before only if the kubelet gives the group the right, each time.
        "fsGroupChangePolicy": if pod.user.is_some() { "Always" } else { "OnRootMismatch" },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    if !user.assigned {
        identity["runAsUser"] = json!(user.id.unwrap_or(USER));
        for field in ["runAsGroup", "fsGroup"] {
            identity[field] = json!(user.group.unwrap_or(USER));
        }
    }
    identity
}

pub(super) fn pod_spec(ensemble: &ValidEnsemble, revision: &Revision) -> Value {
    let pod = &ensemble.pod;
    // The server writes next to nothing there. JVM options of the user may: a dump of the heap, logs of
    // the garbage collector. The kubelet evicts a pod that takes more.
    let scratch = format!("{}Mi", ensemble.heap_mib + 1024);
    let mut spec = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "securityContext": identity(pod),
        "affinity": pod.affinity.as_ref().map_or_else(|| spread(ensemble), |a| json!(a)),
        "volumes": [
            { "name": "config", "configMap": { "name": revision.name } },
            {
                "name": "bootstrap",
                "configMap": { "name": bootstrap_config_map(&ensemble.name), "optional": true },
            },
            {
                "name": "identity",
                "secret": {
                    "secretName": identity_secret(ensemble),
                    // A member that encrypts nothing serves without it, unseen by the operator, which writes the Secret
                    // again.
                    "optional": !revision.tls.needs_certificates(),
                    "defaultMode": 0o440,
                },
            },
            { "name": "conf", "emptyDir": { "sizeLimit": "16Mi" } },
            { "name": "tmp", "emptyDir": { "sizeLimit": scratch } },
            { "name": "logs", "emptyDir": { "sizeLimit": scratch } },
        ],
    });
    let mut prepare = with_log(ensemble, prepare(ensemble), false);
    let mut zookeeper = with_log(ensemble, zookeeper(ensemble, revision.tls.clients), false);
    let mut probes = with_log(ensemble, probes(ensemble, revision.tls.servers), true);
    if revision.version.is_some() {
        zookeeper["command"] = json!(["bash", "-c", START_FROM_VOLUME]);
        if let Some(variables) = prepare["env"].as_array_mut() {
            variables.extend(list_of_the_pod());
        }
        // The password with which it asks the server for another list.
        let conf = json!({ "name": "conf", "mountPath": "/conf", "readOnly": true });
        mount(&mut probes, [conf]);
    }
    if revision.tls.needs_certificates() {
        let identity = json!({ "name": "identity", "mountPath": IDENTITY, "readOnly": true });
        let tls = json!({ "name": "tls", "mountPath": "/tls" });
        let read_only = json!({ "name": "tls", "mountPath": "/tls", "readOnly": true });
        mount(&mut prepare, [identity, tls.clone()]);
        mount(&mut zookeeper, [read_only]);
        mount(&mut probes, [tls]);
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            // The key is on no disk of the node.
            volumes.push(json!({
                "name": "tls",
                "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" },
            }));
        }
    }
    if revision.tls.clients.takes_tls() {
        let users = ensemble.authentication.users.as_ref();
        if let Some(name) = users.and_then(|users| users.super_user.as_ref()) {
            for container in [&mut prepare, &mut probes] {
                if let Some(command) = container["command"].as_array_mut() {
                    command.push(json!(format!("--super-user={name}")));
                }
            }
        }
        for (volume, mount_path) in credentials(ensemble) {
            let name = volume["name"].clone();
            let at = json!({ "name": name, "mountPath": mount_path, "readOnly": true });
            mount(&mut prepare, [at.clone()]);
            mount(&mut probes, [at]);
            if let Some(volumes) = spec["volumes"].as_array_mut() {
                volumes.push(volume);
            }
        }
    }
    let mut set = |key: &str, value: Value| spec[key] = value;
    set("initContainers", Value::Array(vec![prepare]));
    set("containers", Value::Array(vec![zookeeper, probes]));
    if !ensemble.image_pull_secrets.is_empty() {
        set("imagePullSecrets", json!(ensemble.image_pull_secrets));
    }
    if !pod.tolerations.is_empty() {
        set("tolerations", json!(pod.tolerations));
    }
    if !pod.node_selector.is_empty() {
        set("nodeSelector", json!(pod.node_selector));
    }
    if let Some(class) = &pod.priority_class_name {
        set("priorityClassName", json!(class));
    }
    spec
}

/// The volumes with the users of clients, the authorities of their certificates, and the user's certificate for clients,
/// and where each is mounted. They are optional for the kubelet: the member program says what is missing, where the
/// kubelet would only wait.
fn credentials(ensemble: &ValidEnsemble) -> impl Iterator<Item = (Value, &'static str)> {
    let Authentication {
        required: _,
        users,
        certificates,
    } = &ensemble.authentication;
    let of_secret = |volume: &str, name: &str, path| {
        let secret = json!({ "secretName": name, "optional": true, "defaultMode": 0o440 });
        (json!({ "name": volume, "secret": secret }), path)
    };
    let users = users
        .as_ref()
        .map(|users| of_secret("users", &users.secret_name, USERS));
    let own = ensemble.client_port_secret.as_ref();
    let own = own.map(|name| of_secret(CLIENT_PORT_VOLUME, name, CLIENT_PORT_CERTIFICATE));
    let authorities = certificates.as_ref().map(|certificates| {
        let config_map = json!({
            "name": certificates.config_map_name,
            "optional": true,
            "items": [{ "key": "ca.crt", "path": "ca.crt" }],
        });
        let volume = json!({ "name": "client-authorities", "configMap": config_map });
        (volume, CLIENT_AUTHORITIES)
    });
    users.into_iter().chain(own).chain(authorities)
}

/// Members spread over nodes as far as there are enough nodes.
fn spread(ensemble: &ValidEnsemble) -> Value {
    json!({
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": { "matchLabels": labels::selector(&ensemble.name) },
                },
            }],
        },
    })
}

fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// The container with the transaction log's volume, if it has one of its own.
fn with_log(ensemble: &ValidEnsemble, mut container: Value, read_only: bool) -> Value {
    if ensemble.transaction_log.is_some() {
        let mut log = json!({ "name": LOG, "mountPath": "/datalog" });
        if read_only {
            log["readOnly"] = json!(true);
        }
        mount(&mut container, [log]);
    }
    container
}

fn mount(container: &mut Value, mounts: impl IntoIterator<Item = Value>) {
    if let Some(all) = container["volumeMounts"].as_array_mut() {
        all.extend(mounts);
    }
}

fn prepare(ensemble: &ValidEnsemble) -> Value {
    json!({
        "name": PREPARE_CONTAINER,
        "image": ensemble.context.member_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bellwether-member", "prepare"],
        "env": [
            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "ENSEMBLE", "value": format!("{}/{}", ensemble.namespace, ensemble.name) },
            { "name": "ID_OFFSET", "value": ensemble.id_offset.to_string() },
        ],
        "resources": member_resources("10m"),
        "securityContext": restricted(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            { "name": "config", "mountPath": "/etc/bellwether/config", "readOnly": true },
            { "name": "bootstrap", "mountPath": "/etc/bellwether/bootstrap", "readOnly": true },
            { "name": "conf", "mountPath": "/conf" },
            { "name": "data", "mountPath": "/data" },
        ],
    })
}

/// The list of the ensemble when the pod was made, for the member program.
fn list_of_the_pod() -> impl Iterator<Item = Value> {
    [
        ("MEMBERS", labels::VOTERS),
        ("LIST_VERSION", labels::LIST_VERSION),
    ]
    .into_iter()
    .map(|(name, annotation)| {
        let path = format!("metadata.annotations['{annotation}']");
        json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
    })
}

/// What a container with the member program gets. No limit of processor time: it would only make a
/// readiness probe late.
fn member_resources(cpu: &str) -> Value {
    json!({
        "requests": { "cpu": cpu, "memory": "8Mi" },
        "limits": { "memory": MEMBER_MEMORY },
    })
}

/// Answers the kubelet's readiness probe of the ZooKeeper container, and the operator. Programs started by exec
/// probes would cost the node many times more.
fn probes(ensemble: &ValidEnsemble, tls: ServerTls) -> Value {
    let mut command = vec!["/bellwether-member".to_owned(), "serve".to_owned()];
    if tls != ServerTls::Disabled {
        // There it sees whether the server has taken up a new certificate.
        command.push(format!("--elections=127.0.0.1:{ELECTION_PORT}"));
    }
    json!({
        "name": PROBES_CONTAINER,
        "image": ensemble.context.member_image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "ports": [
            { "name": "probes", "containerPort": PROBE_PORT },
            { "name": "control", "containerPort": CONTROL_PORT },
        ],
        "resources": member_resources("5m"),
        "securityContext": restricted(),
        "volumeMounts": [
            // It reports how full the volume is, and what is on it.
            { "name": "data", "mountPath": "/data", "readOnly": true },
            { "name": "identity", "mountPath": IDENTITY, "readOnly": true },
        ],
    })
}

fn zookeeper(ensemble: &ValidEnsemble, tls: ClientTls) -> Value {
    let mut jvm = vec![
        format!("-Xms{}m", ensemble.heap_mib),
        format!("-Xmx{}m", ensemble.heap_mib),
        "-Djava.security.properties=/conf/security.properties".to_owned(),
        "-Dlogback.configurationFile=/conf/logback.xml".to_owned(),
        // A server that runs out of memory must stop instead of continuing in a broken state.
        "-XX:+ExitOnOutOfMemoryError".to_owned(),
    ];
    jvm.extend(ensemble.jvm_options.iter().cloned());
    let mut ports = vec![
        json!({ "name": "client", "containerPort": CLIENT_PORT }),
        json!({ "name": "quorum", "containerPort": QUORUM_PORT }),
        json!({ "name": "election", "containerPort": ELECTION_PORT }),
    ];
    if tls.takes_tls() {
        ports.push(json!({ "name": SECURE_CLIENT, "containerPort": SECURE_CLIENT_PORT }));
    }
    if ensemble.metrics {
        ports.push(json!({ "name": "metrics", "containerPort": METRICS_PORT }));
    }
    let probed = probed(tls);
    let mut container = json!({
        "name": CONTAINER,
        "image": ensemble.image,
        "command": ["bash", "-c", START],
        "env": [
            { "name": "ZOOCFGDIR", "value": "/conf" },
            { "name": "ZOO_LOG_DIR", "value": "/logs" },
            // Otherwise `zkServer.sh` opens JMX on a random port of every address, without a password.
            { "name": "JMXDISABLE", "value": "true" },
            { "name": "ZK_SERVER_HEAP", "value": ensemble.heap_mib.to_string() },
            { "name": "SERVER_JVMFLAGS", "value": jvm.join(" ") },
        ],
        "ports": ports,
        "resources": resources(ensemble),
        "securityContext": restricted(),
        // A server may load a large snapshot before it listens.
        "startupProbe": {
            "tcpSocket": { "port": probed },
            "periodSeconds": 1,
            "failureThreshold": 1800,
        },
        // The kubelet probes the server's own port, so a broken or overloaded container beside the server never
        // kills it. A probe that needs a quorum would kill the members that wait for one.
        "livenessProbe": {
            "tcpSocket": { "port": probed },
            "periodSeconds": 20,
            "timeoutSeconds": 5,
            "failureThreshold": 4,
        },
        "readinessProbe": {
            "httpGet": { "path": "/ready", "port": PROBE_PORT },
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        "volumeMounts": [
            { "name": "conf", "mountPath": "/conf" },
            { "name": "data", "mountPath": "/data" },
            { "name": "tmp", "mountPath": "/tmp" },
            { "name": "logs", "mountPath": "/logs" },
        ],
    });
    if let Some(policy) = ensemble.image_pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}

/// The port of clients that the kubelet reaches. Where plaintext is on loopback only, it is the one for TLS, and ZooKeeper
/// logs each probe as a handshake that failed. A probe of another kind would be quiet, and impossible as long as somebody
/// else has a hold of this one in the pod template, such as by `kubectl rollout undo`: a probe has one kind only.
fn probed(tls: ClientTls) -> &'static str {
    match tls.takes_plaintext() {
        true => "client",
        false => SECURE_CLIENT,
    }
}

fn resources(ensemble: &ValidEnsemble) -> Value {
    let mut all = match &ensemble.pod.resources {
        Some(r) => json!(r).as_object().cloned().unwrap_or_default(),
        None => Map::new(),
    };
    if all.is_empty() {
        // The heap, and half of that size more for the virtual machine itself and its buffers.
        let memory = format!("{}Mi", ensemble.heap_mib + ensemble.heap_mib / 2);
        all.insert(
            "requests".to_owned(),
            json!({ "cpu": "100m", "memory": memory }),
        );
    }
    Value::Object(all)
}

#[cfg(test)]
mod container_tests;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    use super::{START, START_FROM_VOLUME};

    /// Runs the container's command with this script in the place of the image's `zkServer.sh`.
    fn start(name: &str, script: &str) -> Child {
        run(START, name, script)
    }

    fn run(command: &str, name: &str, script: &str) -> Child {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let program = directory.join("zkServer.sh");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let child = Command::new("bash")
            .args(["-c", command])
            .env("PATH", format!("{}:{path}", directory.display()))
            .stdout(Stdio::piped())
            .spawn();
        child.unwrap()
    }

    #[test]
    fn a_server_that_is_told_to_stop_is_gone_at_once_whatever_it_does_about_it() {
        let script = "trap '' TERM; echo $1; exec sleep 1000";
        let mut child = start("stopped", script);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "start-foreground\n");
        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(143));
        // The output ends: no process holds the pipe any more.
        assert_eq!(output.read_to_string(&mut line).unwrap(), 0);
    }

    /// The `zoo.cfg` that server 4 starts with whose last one names a list with these servers, if any.
    fn starts_with(name: &str, list: Option<&[u16]>) -> String {
        let line = |id: &u16| format!("server.{id}=zk-{id}:2888:3888:participant\n");
        let root = std::env::temp_dir().join(format!("volume-{name}-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of_list = root.join("data/config/zoo.cfg.dynamic.100000002");
        let last = match list {
            Some(_) => format!("a=b\ndynamicConfigFile={}\n", of_list.display()),
            None => format!("a=b\n{}", line(&4)),
        };
        write("data/myid", "4\n");
        write("data/config/zoo.cfg", &last);
        write("conf/settings.cfg", "a=b\n");
        let all: String = (1..=13).map(|id| line(&id)).collect();
        write("conf/servers", &all);
        if let Some(list) = list {
            let lines: String = list.iter().map(line).collect();
            write("data/config/zoo.cfg.dynamic.100000002", &lines);
        }
        let (data, conf) = (root.join("data"), root.join("conf"));
        let command = START_FROM_VOLUME
            .replace("/data/", &format!("{}/", data.display()))
            .replace("/conf/", &format!("{}/", conf.display()));
        let output = run(&command, name, "cat $2").wait_with_output().unwrap();
        fs::remove_dir_all(root).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_server_that_its_own_list_does_not_name_begins_with_it_and_itself() {
        let named = starts_with("named", Some(&[1, 4]));
        assert!(named.starts_with("a=b\ndynamicConfigFile="), "{named}");
        assert!(!named.contains("server."), "{named}");
        let line = |id: u16| format!("server.{id}=zk-{id}:2888:3888:participant\n");
        let expected = |ids: [u16; 3]| format!("a=b\n{}", ids.map(line).concat());
        // Server 14 is not server 4.
        let left = starts_with("left", Some(&[1, 14]));
        assert_eq!(left, expected([1, 14, 4]));
        assert_eq!(starts_with("new", None), format!("a=b\n{}", line(4)));
    }

    #[test]
    fn the_exit_code_of_the_server_is_that_of_the_container() {
        for (script, code) in [("exit 0", 0), ("exit 14", 14), ("kill -KILL $$", 137)] {
            let mut child = start("ended", script);
            assert_eq!(child.wait().unwrap().code(), Some(code), "{script}");
        }
    }
}
