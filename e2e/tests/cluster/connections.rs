//! Elections in a ZooKeeper that Bellwether does not run, with a chroot, TLS, digest and SASL, and in an ensemble of another
//! namespace.

use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_e2e::election::Election;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::scenarios::expect_refusal;

const PATIENCE: Duration = Duration::from_secs(90);

/// An authority that signs certificates.
fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// A certificate and its key, in PEM.
fn certificate(
    name: &str,
    authority: &CertifiedIssuer<'static, KeyPair>,
) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let signed = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, authority)?;
    Ok((signed.pem(), key.serialize_pem()))
}

fn secret(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data })
}

/// A Secret that the mirror may show to this host.
fn secret_for(host: &str, name: &str, data: Value) -> Value {
    let mut secret = secret(name, data);
    secret["metadata"]["annotations"] = json!({ "zookeeper.bellwether.dev/hosts": host });
    secret
}

const ZOO_CFG: &str = "\
dataDir=/data
clientPort=2181
secureClientPort=2281
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location=/settings/server.pem
ssl.trustStore.location=/settings/ca.pem
ssl.clientAuth=need
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
admin.enableServer=false
";

const JAAS: &str = "Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_mirror=\"right\";
};
";

/// One server with a plain port, and one for TLS that asks for a certificate.
fn start_server(world: &World, settings: Value) -> Result<()> {
    world.apply(&secret("external-settings", settings))?;
    let restricted = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
    });
    world.apply(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "external", "labels": { "app": "external" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "zookeeper",
                "image": "docker.io/library/zookeeper:3.9.5",
                "imagePullPolicy": "IfNotPresent",
                "command": ["zkServer.sh", "start-foreground", "/settings/zoo.cfg"],
                "env": [{
                    "name": "SERVER_JVMFLAGS",
                    "value": "-Xmx96m -Djava.security.auth.login.config=/settings/jaas.conf",
                }],
                "readinessProbe": { "tcpSocket": { "port": 2281 }, "periodSeconds": 1 },
                "securityContext": restricted,
                "volumeMounts": [
                    { "name": "settings", "mountPath": "/settings" },
                    { "name": "data", "mountPath": "/data" },
                ],
            }],
            "volumes": [
                { "name": "settings", "secret": { "secretName": "external-settings" } },
                { "name": "data", "emptyDir": {} },
            ],
        },
    }))?;
    world.apply(&json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "external" },
        "spec": {
            "selector": { "app": "external" },
            "ports": [{ "name": "plain", "port": 2181 }, { "name": "tls", "port": 2281 }],
        },
    }))?;
    until("the server is ready", PATIENCE, || {
        let pod = world.pods.get("external").ok_or("there is no pod")?;
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|c| c["type"] == "Ready" && c["status"] == "True");
        ready.next().map(|_| ()).ok_or(pod["status"].to_string())
    })
}

/// Mirrors the znode `path`, whose data names the leader.
fn mirror<'w>(world: &'w World, name: &str, path: &str, spec: Value) -> Result<Election<'w>> {
    let mut object = Election::manifest(name, "", path, json!({ "type": "SingleText" }));
    let merged = object["spec"].as_object_mut();
    if let (Some(merged), Value::Object(spec)) = (merged, spec) {
        merged.remove("ensembleRef");
        merged.extend(spec);
    }
    world.adopt_election(&object)
}

fn wait_leader(election: &Election<'_>, identity: &str) -> Result<()> {
    until(&format!("{identity} leads"), PATIENCE, || {
        let status = election.status()?;
        let leads = status["leader"]["identity"] == identity && status["staleSince"].is_null();
        leads.then_some(()).ok_or(status.to_string())
    })
}

/// The message of the condition `Synced`.
fn told(election: &Election<'_>) -> Result<String, String> {
    let status = election.status()?;
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut synced = conditions.filter(|c| c["type"] == "Synced");
    let message = synced.next().and_then(|c| c["message"].as_str());
    Ok(message.unwrap_or_default().to_owned())
}

/// Leaders behind a chroot with a digest ACL, and behind TLS with a client's certificate and SASL.
/// Faults in Secrets are reported, and disappear when the Secrets are corrected.
pub(crate) fn elections_in_a_zookeeper_of_others_are_read_with_tls_and_credentials(
    world: &World,
) -> Result<()> {
    let clients = world.clients()?;
    let host = format!("external.{}.svc.cluster.local", world.namespace);
    let (right, other) = (authority("right")?, authority("other")?);
    let (server, server_key) = certificate(&host, &right)?;
    let (shown, shown_key) = certificate("mirror", &right)?;
    start_server(
        world,
        json!({
            "zoo.cfg": ZOO_CFG,
            "jaas.conf": JAAS,
            "server.pem": format!("{server_key}{server}"),
            "ca.pem": right.pem(),
        }),
    )?;
    let certificate = json!({ "tls.crt": shown, "tls.key": shown_key });
    world.apply(&secret_for(&host, "certificate", certificate))?;
    world.apply(&secret("authority", json!({ "ca.crt": other.pem() })))?;
    let login = |password: &str| json!({ "username": "mirror", "password": password });
    world.apply(&secret_for(&host, "login", login("right")))?;
    world.apply(&secret_for(&host, "wrong-login", login("wrong")))?;

    let plain = format!("{host}:2181");
    let own = |id: &str, node: &str, reader: &str| {
        let arguments = [
            "--hosts", &plain, "--id", id, "--node", node, "--reader", reader,
        ];
        let client = clients.python(id, "znodes.py", &arguments)?;
        client.wait_event("ready")?;
        anyhow::Ok(client)
    };
    let alice = own("alice", "/root/digest=alice", "digest:mirror:right")?;
    let _bob = own("bob", "/sasl=bob", "sasl:mirror")?;

    // TLS, with a certificate that the server asks for.
    let tls = |chroot: &str, authority: &str| {
        json!({
            "connectString": format!("{host}:2281{chroot}"),
            "tls": {
                "caSecretRef": { "name": authority },
                "clientCertificateSecretRef": { "name": "certificate" },
            },
        })
    };
    world.apply(&secret("right-authority", json!({ "ca.crt": right.pem() })))?;

    // A chroot, and an ACL that opens to the name and password only.
    let chroot = tls("/root", "right-authority");
    let closed = mirror(world, "closed", "/digest", json!({ "connection": chroot }))?;
    closed.wait_condition("Synced", "False", "NoAuth")?;
    let digest = json!({ "type": "Digest", "secretRef": { "name": "login" } });
    let open = json!({ "connection": chroot, "authentication": digest });
    wait_leader(&mirror(world, "closed", "/digest", open)?, "alice")?;

    // First the wrong authority, then the right one.
    let tls = tls("", "authority");
    let sasl = |secret: &str| json!({ "type": "SaslDigestMd5", "secretRef": { "name": secret } });
    let spec = json!({ "connection": tls, "authentication": sasl("login") });
    let secured = mirror(world, "secured", "/sasl", spec)?;
    secured.wait_condition("Synced", "False", "Unreachable")?;
    // What goes wrong is for the operator's log only: it would show what listens where.
    let message = told(&secured).map_err(anyhow::Error::msg)?;
    let says = format!("No server of {host}:2281 opens a session. ");
    ensure!(message.starts_with(&says), "it says {message:?}");
    world.apply(&secret("authority", json!({ "ca.crt": right.pem() })))?;
    wait_leader(&secured, "bob")?;

    let spec = json!({ "connection": tls, "authentication": sasl("wrong-login") });
    let wrong = mirror(world, "wrong", "/sasl", spec)?;
    wrong.wait_condition("Synced", "False", "AuthenticationFailed")?;
    let spec = json!({ "connection": tls, "authentication": sasl("no-login") });
    let missing = mirror(world, "missing", "/sasl", spec)?;
    missing.wait_condition("Synced", "False", "SecretNotFound")?;
    // A Secret without the key, or that is not for this host, is told in the same words as none.
    let absent = told(&missing).map_err(anyhow::Error::msg)?;
    ensure!(
        absent.contains("zookeeper.bellwether.dev/hosts"),
        "it says {absent:?}"
    );
    let colon = json!({ "username": "a:b", "password": "right" });
    for unusable in [
        secret_for(&host, "no-login", json!({ "username": "mirror" })),
        secret("no-login", login("right")),
        secret_for("other.example.com", "no-login", login("right")),
    ] {
        world.apply(&secret_for(&host, "no-login", colon.clone()))?;
        missing.wait_condition("Synced", "False", "SecretInvalid")?;
        world.run(&["delete", "secret", "no-login"])?;
        world.apply(&unusable)?;
        missing.wait_condition("Synced", "False", "SecretNotFound")?;
        let message = told(&missing).map_err(anyhow::Error::msg)?;
        ensure!(message == absent, "it says {message:?} and said {absent:?}");
    }
    world.apply(&secret_for(&host, "no-login", login("right")))?;
    wait_leader(&missing, "bob")?;
    // When it goes, so does the session.
    world.run(&["delete", "secret", "no-login"])?;
    missing.wait_condition("Synced", "False", "SecretNotFound")?;

    // Ports behind which there is no ZooKeeper look alike, whatever is there.
    let mut messages = Vec::new();
    for (name, port) in [("refused", 9), ("spoken-to", 2281)] {
        let connection = json!({ "connectString": format!("{host}:{port}") });
        let other = mirror(world, name, "/sasl", json!({ "connection": connection }))?;
        other.wait_condition("Synced", "False", "Unreachable")?;
        let message = told(&other).map_err(anyhow::Error::msg)?;
        messages.push(message.replace(&format!(":{port}"), ":PORT"));
    }
    ensure!(messages[0] == messages[1], "they differ: {messages:?}");

    // A host that the administrator did not allow.
    let foreign = json!({ "connection": { "connectString": format!("{plain},zk.example.com") } });
    let foreign = mirror(world, "foreign", "/sasl", foreign)?;
    foreign.wait_condition("Synced", "False", "ConnectionNotAllowed")?;
    let message = told(&foreign).map_err(anyhow::Error::msg)?;
    ensure!(
        message.contains("connect to zk.example.com:2181:")
            && message.contains("connections.allowedHosts"),
        "it says {message:?}"
    );

    // The leader goes without notice.
    alice.kill()?;
    closed.wait_condition("LeaderElected", "False", "NoElection")
}

/// Neither or both of the ways to name an ensemble, invalid connect strings, another chroot.
pub(crate) fn connections_that_cannot_be_are_refused(world: &World) -> Result<()> {
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &["either ensembleRef"]),
        (
            json!({ "ensembleRef": { "name": "main" }, "connection": { "connectString": "a" } }),
            &["either ensembleRef"],
        ),
        (
            json!({ "connection": { "connectString": "" } }),
            &["connectString"],
        ),
        (
            json!({ "connection": { "connectString": "tcp://a:2181" } }),
            &["connectString"],
        ),
        (
            json!({ "connection": { "connectString": "a:2181,b:2181/x/../y" } }),
            &["connectString must not hold"],
        ),
        (
            json!({ "connection": { "connectString": "a", "tls": {} } }),
            &["caSecretRef"],
        ),
        (
            json!({
                "connection": { "connectString": "a" },
                "authentication": { "type": "Kerberos", "secretRef": { "name": "x" } },
            }),
            &["Kerberos"],
        ),
        (
            json!({
                "connection": { "connectString": "a" },
                "authentication": { "type": "Digest", "secretRef": { "name": "x" } },
            }),
            &["needs connection.tls"],
        ),
    ];
    let object = |spec: &Value| {
        let mut object = Election::manifest("refused", "", "/app", json!({ "type": "Kazoo" }));
        let merged = object["spec"].as_object_mut();
        if let (Some(merged), Value::Object(spec)) = (merged, spec.clone()) {
            merged.remove("ensembleRef");
            merged.extend(spec);
        }
        object
    };
    for (spec, words) in cases {
        expect_refusal(&spec.to_string(), world.try_apply(&object(spec))?, words)?;
    }
    let connection = |hosts: &str| json!({ "connection": { "connectString": hosts } });
    world.apply(&object(&connection("a:2181,b/x")))?;
    world.apply(&object(&connection("c:2181/x")))?;
    let another = world.try_apply(&object(&connection("c:2181/y")))?;
    expect_refusal("another chroot", another, &["chroot", "immutable"])?;
    let ensemble = world.try_apply(&object(&json!({ "ensembleRef": { "name": "main" } })))?;
    expect_refusal("an ensemble instead", ensemble, &["cannot become"])
}

/// The elections of another namespace are mirrored from when its ensemble names that until it does not any more.
pub(crate) fn an_ensemble_admits_elections_of_the_namespaces_that_it_names(
    world: &World,
) -> Result<()> {
    let ensemble = world.small_ensemble(1)?;
    let before = ensemble.uids();
    let (hosts, path) = (ensemble.members(1), "/admitted");
    let arguments = ["--hosts", &hosts, "--path", path, "--id", "admitted"];
    let candidate = world
        .clients()?
        .python("admitted", "kazoo_lock.py", &arguments)?;

    let other = World::named(&world.kubectl, &format!("{}-b", world.namespace))?;
    let mut manifest = Election::manifest("admitted", "main", path, json!({ "type": "Kazoo" }));
    manifest["spec"]["ensembleRef"]["namespace"] = json!(world.namespace);
    let election = other.adopt_election(&manifest)?;
    election.wait_condition("Synced", "False", "EnsembleNotFound")?;
    ensemble.patch(&json!({ "elections": { "namespaces": [other.namespace] } }))?;
    election.wait_agrees(&[&candidate], 1)?;
    ensemble.patch(&json!({ "elections": null }))?;
    election.wait_condition("Synced", "False", "EnsembleNotFound")?;
    ensure!(ensemble.uids() == before, "a member restarted");
    other.remove();
    Ok(())
}
