//! Clients that prove who they are: users and certificates, ACLs that name them, and the mirror as one of them.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellwether_e2e::clients::{Client, Clients};
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};

use crate::tls::{authority, presents};

/// How long a kubelet may take to show another Secret, and members to restart.
const PATIENCE: Duration = Duration::from_secs(240);

/// A name and a password that are hard to quote.
const ALICE: (&str, &str) = ("al.i-c_e", "s \"e\\cret; #1");
const ROOT: (&str, &str) = ("root", "above all");
const BOB: (&str, &str) = ("bob", "came later");
/// The port for TLS.
const HOSTS: &str = "main:2281";
/// Who the mirror is.
const MIRROR: &str = "x509:CN=mirror.zookeeper.bellwether.dev";

/// An authority of this name.
fn issuer(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = named(name)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn named(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// The certificate of a client of this name, after its key.
fn certificate(name: &str, issuer: &CertifiedIssuer<'static, KeyPair>) -> Result<String> {
    let key = KeyPair::generate()?;
    let mut params = named(name)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(key.serialize_pem() + &params.signed_by(&key, issuer)?.pem())
}

fn users(users: &[(&str, &str)]) -> Value {
    let users: Value = users.iter().copied().collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "zookeeper-users" }, "stringData": users })
}

/// The Secret with a certificate that members present to clients, as cert-manager writes it, and that certificate.
fn of_members(
    world: &World,
    issuer: &CertifiedIssuer<'static, KeyPair>,
) -> Result<(Value, String)> {
    let key = KeyPair::generate()?;
    let service = format!("main.{}.svc.cluster.local", world.namespace);
    let mut params = CertificateParams::new(vec!["main".to_owned(), service])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, issuer)?.pem();
    let data =
        json!({ "ca.crt": issuer.pem(), "tls.crt": certificate, "tls.key": key.serialize_pem() });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "zookeeper-tls" }, "stringData": data,
    });
    Ok((secret, certificate))
}

/// What a client reads at this path: its data, or the name of what it is told instead.
fn reads(clients: &Clients<'_>, path: &str) -> Result<String> {
    let script = format!(
        "import common\ntry:\n  client = common.connect('{HOSTS}', patience=10)\n  \
         print(client.get('{path}')[0].decode())\nexcept Exception as error:\n  print(type(error).__name__)\n\
         import os; os._exit(0)"
    );
    let said = clients.output(&["python3", "-c", &script])?;
    let mut lines = said.lines().filter(|line| !line.starts_with('{'));
    Ok(lines.next_back().unwrap_or_default().to_owned())
}

/// The programs of all libraries, each in an election of its own, and what the mirror shows of each. `kind` names the
/// elections apart from those of other clients.
fn lead_everywhere<'w>(
    world: &'w World,
    clients: &Clients<'w>,
    kind: &str,
    go: bool,
) -> Result<Vec<Client<'w>>> {
    let path = |library: &str| format!("/{kind}/{library}");
    let arguments = ["--hosts", HOSTS, "--path", &path("kazoo"), "--id", "kazoo"];
    let mut running = vec![
        (
            "kazoo",
            "Kazoo",
            clients.python("kazoo", "kazoo_lock.py", &arguments)?,
        ),
        (
            "curator",
            "CuratorLock",
            clients.java("curator", "MutexClient", HOSTS, &path("curator"))?,
        ),
        (
            "java",
            "ZkElection",
            clients.java("java", "SupportClient", HOSTS, &path("java"))?,
        ),
        (
            "rust",
            "CuratorLock",
            clients.rust_lock("rust", HOSTS, &path("rust"))?,
        ),
    ];
    // go-zookeeper speaks no SASL.
    if go {
        running.push(("go", "GoZkLock", clients.go_lock("go", HOSTS, &path("go"))?));
    }
    for (library, dialect, client) in &running {
        let name = format!("{kind}-{library}");
        let election = world.election(&name, &path(library), json!({ "type": dialect }))?;
        election.wait_agrees(&[client], 1)?;
    }
    Ok(running.into_iter().map(|(.., client)| client).collect())
}

/// Whoever proves nothing is refused. Users and clients with certificates are let in, ACLs tell them apart, and the mirror
/// sees what it is granted. Other users are taken up by a restart in turn, and users that cannot be are told.
pub(crate) fn clients_prove_who_they_are_and_the_mirror_is_one_of_them(
    world: &World,
) -> Result<()> {
    let trusted = issuer("of clients")?;
    world.apply(&users(&[ALICE, ROOT]))?;
    world.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "of-clients" },
        "data": { "ca.crt": trusted.pem() },
    }))?;
    let company = issuer("of the company")?;
    world.apply(&of_members(world, &company)?.0)?;
    let mut spec = Ensemble::small(1);
    spec["tls"] = json!({ "clients": "Required", "clientPortSecretName": "zookeeper-tls" });
    spec["authentication"] = json!({
        "required": true,
        "users": { "secretName": "zookeeper-users", "superUser": ROOT.0 },
        "certificates": { "configMapName": "of-clients" },
    });
    spec["membershipChange"] = json!("Reconfiguration");
    let ensemble = world.ensemble("main", spec)?;
    ensemble.wait_ready(1)?;

    let nobody = world
        .clients()?
        .over_tls(&authority(world, "main-client")?)?;
    let alice = nobody.as_user(ALICE.0, ALICE.1)?;
    let root = nobody.as_user(ROOT.0, ROOT.1)?;
    let refused = |clients: &Clients<'_>| -> Result<()> {
        let said = reads(clients, "/zookeeper/config")?;
        let ends = [
            "ConnectionLoss",
            "SessionClosedRequireSaslError",
            "KazooTimeoutError",
        ];
        ensure!(ends.contains(&&*said), "it read {said:?}");
        Ok(())
    };
    refused(&nobody)?;
    refused(&nobody.as_user(ALICE.0, "wrong")?)?;
    let alice = alice.as_user(ALICE.0, ALICE.1)?;
    let _users = lead_everywhere(world, &alice, "users", false)?;
    let stranger = issuer("of others")?;
    refused(&nobody.with_certificate(&certificate("carol", &stranger)?)?)?;
    let carol = nobody.with_certificate(&certificate("carol", &trusted)?)?;
    let _certified = lead_everywhere(world, &carol, "certified", true)?;

    // What an ACL hides from the mirror no election shows.
    let own = |id: &str, node: &str, reader: &str| {
        let arguments = [
            "--hosts", HOSTS, "--id", id, "--node", node, "--reader", reader,
        ];
        let client = alice.python(id, "znodes.py", &arguments)?;
        client.wait_event("ready")?;
        anyhow::Ok(client)
    };
    let _hidden = own(
        "hidden",
        "/hidden/node=secret",
        &format!("sasl:{}", ALICE.0),
    )?;
    let _shown = own("shown", "/shown=public", MIRROR)?;
    ensure!(
        reads(&alice, "/hidden/node")? == "secret",
        "its owner reads it"
    );
    ensure!(
        reads(&carol, "/hidden/node")? == "NoAuthError",
        "an ACL has a hole"
    );
    ensure!(
        reads(&root, "/hidden/node")? == "secret",
        "the super user reads all"
    );
    let single = |name, path| world.election(name, path, json!({ "type": "SingleText" }));
    single("hidden", "/hidden/node")?.wait_condition("Synced", "False", "NoAuth")?;
    let shown = single("shown", "/shown")?;
    until("the mirror shows what it may read", PATIENCE, || {
        let status = shown.status()?;
        let leads = status["leader"]["identity"] == "public";
        leads.then_some(()).ok_or(status.to_string())
    })?;

    // Another user comes: the member takes it up by itself.
    let before = ensemble.uids();
    refused(&nobody.as_user(BOB.0, BOB.1)?)?;
    world.apply(&users(&[ALICE, ROOT, BOB]))?;
    until("the member restarts for another user", PATIENCE, || {
        let restarted = ensemble.uids() != before;
        restarted.then_some(()).ok_or("it runs on".to_owned())
    })?;
    ensemble.wait_ready(1)?;
    let bob = nobody.as_user(BOB.0, BOB.1)?;
    until("the new user is let in", PATIENCE, || {
        let said = reads(&bob, "/users").map_err(|e| e.to_string())?;
        (said.is_empty()).then_some(()).ok_or(said)
    })?;

    // The servers take a request for another list from their member programs, though `required` is set.
    let before = ensemble.uids();
    ensemble.scale(3)?;
    ensemble.wait_ready(3)?;
    let after = ensemble.uids();
    ensure!(
        before.iter().all(|(pod, uid)| after.get(pod) == Some(uid)),
        "{before:?} became {after:?}"
    );

    // A password that no server could start with is told, and a renewed certificate is presented. Nothing restarts.
    let before = ensemble.uids();
    world.apply(&users(&[ALICE, ROOT, (BOB.0, "broken\n")]))?;
    let (renewed, certificate) = of_members(world, &company)?;
    world.apply(&renewed)?;
    until("the broken password is told", PATIENCE, || {
        let (status, reason, message) = ensemble.condition("Degraded")?;
        let told = status == "True" && reason == "CredentialsUnusable" && message.contains("bob");
        told.then_some(()).ok_or(format!("{reason}: {message}"))
    })?;
    ensure!(
        reads(&bob, "/users")?.is_empty(),
        "the member does not serve on"
    );
    let shown = STANDARD.encode(&certificate);
    until(
        "clients are shown the renewed certificate",
        PATIENCE,
        || presents(world, "main-0", 2281, &shown),
    )?;
    ensure!(ensemble.uids() == before, "a member restarted");
    Ok(())
}
