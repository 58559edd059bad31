//! Configuration revisions: immutable ConfigMaps with every member's whole `zoo.cfg`.
//!
//! A revision is named by the hash of its content and the pod template names it, so what a pod runs
//! is known from its annotations, and a restart of its container never changes it.

use std::collections::BTreeMap;

use bellwether_api::ensemble::{Authentication, MAX_OBSERVERS, MAX_REPLICAS};
use bellwether_api::labels;
use serde_json::{Value, json};

use super::{
    DesiredObject, ObjectKind, apply, members_service, metadata, observers, pod_name, short_hash,
};
use crate::client_tls::ClientTls;
use crate::encryption::Encryption;
use crate::ids::{ServerId, Voters};
use crate::observation::Revision;
use crate::server_tls::ServerTls;
use crate::validate::ValidEnsemble;

/// The port of clients.
pub const CLIENT_PORT: u16 = 2181;
/// The port of clients that speak TLS: the one of the examples in ZooKeeper's administrator's guide.
pub const SECURE_CLIENT_PORT: u16 = 2281;
/// The name of that port in pods and Services.
pub const SECURE_CLIENT: &str = "secure-client";
/// The port on which followers connect to the leader.
pub const QUORUM_PORT: u16 = 2888;
/// The port of elections.
pub const ELECTION_PORT: u16 = 3888;

/// The port of ZooKeeper's own metrics, which is also its default.
pub const METRICS_PORT: u16 = 7000;

/// The file with the settings of every member, where members change at run time.
pub const SETTINGS: &str = "settings.cfg";
/// The file with the lines of all servers that the ensemble can have.
pub const SERVERS: &str = "servers";

/// A revision with its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedRevision {
    /// Its name and voters.
    pub revision: Revision,
    /// Its files by name.
    pub files: BTreeMap<String, String>,
}

/// Settings that every member has and no user can change.
///
/// * `standaloneEnabled=false`: one server must run as a quorum of one, or it could never grow.
/// * `quorumListenOnAllIPs`: the server need not resolve its own name before it listens.
/// * `db.autocreate=false` (ZOOKEEPER-261): a member that lost its disk does not vote with an empty
///   one.
/// * `electionPortBindRetry=0`: retry for ever; after three failures a server would never take part
///   in an election again.
/// * the two time limits: a server that looks for a leader asks again after half a second at most,
///   where the default lets it sleep for a minute (a vote that reaches a server before it looks for a leader
///   itself is lost, so the sender has to ask again), and a prospective leader waits 2 s for epochs.
/// * the AdminServer on the loopback interface tells who is connected and who watches what. The four-letter words that tell
///   the same would be for every client, and `wchp` is costly (CVE-2017-5637): only those are answered that the member
///   program needs, and `isro`, by which clients find a server that takes writes.
const FIXED: &[(&str, &str)] = &[
    ("dataDir", "/data"),
    ("standaloneEnabled", "false"),
    ("quorumListenOnAllIPs", "true"),
    ("db.autocreate", "false"),
    ("electionPortBindRetry", "0"),
    ("fastleader.maxNotificationInterval", "500"),
    ("leader.maxTimeToWaitForEpoch", "2000"),
    ("admin.serverAddress", "127.0.0.1"),
    ("admin.serverPort", "8077"),
    ("admin.snapshot.enabled", "false"),
    ("admin.restore.enabled", "false"),
    ("4lw.commands.whitelist", "conf,isro,mntr,ruok,srvr"),
];

/// Settings that serve better than ZooKeeper's defaults, and that a user may set otherwise.
///
/// * `leaderConnectDelayDuringRetryMs`: a follower tries five times to connect to a new leader
///   (`Learner.LeaderConnector`), which needs a moment to open its port: up to half a second on a
///   machine that is short of processor time. When the tries are used up, both give up and elect
///   again, after four seconds and more without service. ZooKeeper's default, 100 ms between the
///   tries, is just enough; twice that costs nothing that can be measured.
const PREFERRED: &[(&str, &str)] = &[("leaderConnectDelayDuringRetryMs", "200")];

/// What serves ZooKeeper's own metrics: part of every distribution since 3.6.
const METRICS_PROVIDER: &str = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider";

/// A short DNS cache in the virtual machine: a restarted member has another address, and a JVM
/// remembers the old one for 30 s by default. A system property would be ignored for the negative
/// cache, since `java.security` sets it.
const SECURITY_PROPERTIES: &str =
    "networkaddress.cache.ttl=1\nnetworkaddress.cache.negative.ttl=0\n";

/// Where Java finds the users (`sun.security.provider.ConfigFile`). The member program writes the file, so that no password is in
/// a ConfigMap or on a command line.
const LOGIN: &str = "login.config.url.1=file:/tls/jaas.conf\n";

const LOGBACK: &str = r#"<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="CONSOLE" /></root>
</configuration>
"#;

/// Renders the revision of these voters.
///
/// `initialize` is the newcomer that must vote at once although its disk is empty: only in the step
/// from one to two members, where the newcomer cannot follow before the old member has restarted.
/// It is harmless there: a majority of two is both, and the old member's data is newer.
pub fn render(
    ensemble: &ValidEnsemble,
    voters: &Voters,
    initialize: Option<ServerId>,
    tls: Encryption,
) -> RenderedRevision {
    let mut security = SECURITY_PROPERTIES.to_owned();
    if tls.clients.takes_tls() && ensemble.authentication.users.is_some() {
        security.push_str(LOGIN);
    }
    let mut files = BTreeMap::from([
        ("security.properties".to_owned(), security),
        ("logback.xml".to_owned(), LOGBACK.to_owned()),
    ]);
    if ensemble.changes_at_run_time() {
        return render_without_list(ensemble, voters, tls, files);
    }
    let servers = server_lines(ensemble, voters);
    let of_a_voter = cfg(ensemble, tls, &servers, None);
    // A leaver that restarts before its pod is removed must not vote, so its file makes it an observer.
    if let Some(last) = voters.last() {
        let leaver = ServerId(last.0 + 1);
        let host = member_host(ensemble, leaver);
        files.insert(
            format!("zoo-{leaver}.cfg"),
            cfg(ensemble, tls, &servers, Some((&leaver.to_string(), &host))),
        );
    }
    // One file for any number of observers, so that a change of their number restarts no member; each observer
    // fills in its own id and name. No voter lists them: a leader accepts learners that it does not know.
    files.insert(
        "zoo-observer.cfg".to_owned(),
        cfg(
            ensemble,
            tls,
            &servers,
            Some(("{id}", &host(ensemble, "{pod}"))),
        ),
    );
    if let Some(id) = initialize {
        files.insert("initialize".to_owned(), id.to_string());
    }
    // The voters' files are equal, and their server lines name all voters, so the hash includes only one of
    // them. The planner runs often, and this file is most of what it hashes.
    let hash = short_hash(&(&files, &of_a_voter));
    let name = format!("{}-config-{hash}", ensemble.name);
    for id in voters.iter() {
        files.insert(format!("zoo-{id}.cfg"), of_a_voter.clone());
    }
    RenderedRevision {
        revision: Revision {
            name,
            voters: voters.clone(),
            version: None,
            initialize,
            tls,
        },
        files,
    }
}

/// The revision of an ensemble whose members change at run time: the settings, and the lines of all servers that it can have, of
/// which the member program makes the list that a server begins with. So no change of the list makes another revision.
fn render_without_list(
    ensemble: &ValidEnsemble,
    voters: &Voters,
    tls: Encryption,
    mut files: BTreeMap<String, String>,
) -> RenderedRevision {
    let most = u16::try_from(MAX_REPLICAS).unwrap_or(u16::MAX);
    let all = Voters::first(most, ensemble.id_offset);
    files.insert(SETTINGS.to_owned(), cfg(ensemble, tls, "", None));
    let observers = (0..u16::try_from(MAX_OBSERVERS).unwrap_or(0)).map(|ordinal| {
        let id = ServerId::of_observer(ordinal, ensemble.id_offset).to_string();
        let pod = observers::pod_name(&ensemble.name, ordinal);
        server_line(&id, &host(ensemble, &pod), "observer")
    });
    let servers = server_lines(ensemble, &all) + &observers.collect::<String>();
    files.insert(SERVERS.to_owned(), servers);
    let name = format!("{}-config-{}", ensemble.name, short_hash(&files));
    RenderedRevision {
        revision: Revision {
            name,
            voters: voters.clone(),
            version: Some(0),
            initialize: None,
            tls,
        },
        files,
    }
}

/// The line of a server, which is a `participant` or an `observer`.
fn server_line(id: &str, host: &str, peer_type: &str) -> String {
    format!("server.{id}={host}:{QUORUM_PORT}:{ELECTION_PORT}:{peer_type}\n")
}

/// The lines of the voters.
fn server_lines(ensemble: &ValidEnsemble, voters: &Voters) -> String {
    let line =
        |id: ServerId| server_line(&id.to_string(), &member_host(ensemble, id), "participant");
    voters.iter().map(line).collect()
}

/// A whole file with the voters' lines; `observer` is the id and host of a server that observes.
fn cfg(
    ensemble: &ValidEnsemble,
    tls: Encryption,
    servers: &str,
    observer: Option<(&str, &str)>,
) -> String {
    let port = CLIENT_PORT.to_string();
    let users = ensemble.settings.iter();
    let mut lines: BTreeMap<&str, &str> = PREFERRED.iter().copied().collect();
    lines.extend(users.map(|(key, value)| (key.as_str(), value.as_str())));
    lines.extend(FIXED.iter().copied());
    // Without it each server keeps to its own file (ZOOKEEPER-2819).
    let reconfigures = ensemble.changes_at_run_time();
    lines.insert(
        "reconfigEnabled",
        if reconfigures { "true" } else { "false" },
    );
    lines.extend(server_tls_lines(tls.servers));
    lines.insert("clientPort", &port);
    let secure_port = SECURE_CLIENT_PORT.to_string();
    lines.extend(client_tls_lines(tls.clients, &secure_port));
    if tls.clients.takes_tls() {
        lines.extend(authentication_lines(&ensemble.authentication));
    }
    let metrics_port = METRICS_PORT.to_string();
    if ensemble.metrics {
        lines.insert("metricsProvider.className", METRICS_PROVIDER);
        lines.insert("metricsProvider.httpPort", &metrics_port);
    }
    if ensemble.transaction_log.is_some() {
        lines.insert("dataLogDir", "/datalog");
    }
    if observer.is_some() {
        lines.insert("peerType", "observer");
    }
    let mut text = String::from("# Written by Bellwether.\n");
    for (key, value) in lines {
        // The file is a Java properties file: a backslash starts an escape.
        text.extend([key, "=", &value.replace('\\', "\\\\"), "\n"]);
    }
    text.push_str(servers);
    if let Some((id, host)) = observer {
        text.push_str(&server_line(id, host, "observer"));
    }
    text
}

/// The settings of TLS between the servers.
///
/// * Host names are not verified: a certificate that the ensemble's own authority signed proves membership, and every
///   member presents the same one. To verify them, a server would look up the names of addresses (`ZKTrustManager`).
/// * `sslQuorumReloadCertFiles`: a renewed certificate needs no restart (`FileChangeWatcher`, which sees files that
///   are renamed into the directory, as the member program does).
fn server_tls_lines(tls: ServerTls) -> Vec<(&'static str, &'static str)> {
    let flag = |set: bool| if set { "true" } else { "false" };
    if tls == ServerTls::Disabled {
        return Vec::new();
    }
    vec![
        ("sslQuorum", flag(tls >= ServerTls::Preferred)),
        ("portUnification", flag(tls <= ServerTls::Preferred)),
        ("sslQuorumReloadCertFiles", "true"),
        ("ssl.quorum.hostnameVerification", "false"),
        ("ssl.quorum.keyStore.location", "/tls/member.pem"),
        ("ssl.quorum.trustStore.location", "/tls/authorities.pem"),
    ]
}

/// The settings of the ports of clients.
///
/// * Only the factory on Netty has a port for TLS (`ServerCnxnFactory`, administrator's guide, "secureClientPort"); it
///   serves both ports.
/// * Clients need no certificate: who they are is for the ACLs of what they read and write.
/// * ZooKeeper reads the file for each connection that it accepts (`NettyServerCnxnFactory.initSSL`), so a renewed
///   certificate needs no restart.
fn client_tls_lines(tls: ClientTls, port: &str) -> Vec<(&'static str, &str)> {
    if tls == ClientTls::Disabled {
        return Vec::new();
    }
    let mut lines = vec![
        (
            "serverCnxnFactory",
            "org.apache.zookeeper.server.NettyServerCnxnFactory",
        ),
        ("secureClientPort", port),
        ("ssl.clientAuth", "none"),
        ("ssl.keyStore.location", "/tls/client-port.pem"),
        // Without it ZooKeeper logs a warning for every connection.
        ("ssl.trustStore.location", "/tls/client-authorities.pem"),
    ];
    if !tls.takes_plaintext() {
        lines.push(("clientPortAddress", "127.0.0.1"));
    }
    lines
}

/// How clients prove who they are. These lines replace those of [`client_tls_lines`] with the same keys.
///
/// * Without a certificate a client is still let in, and refused later if it has to authenticate itself: it may be a user
///   (`NettyServerCnxnFactory.CertificateVerifier`).
/// * A server refuses requests of a connection that is of none of these schemes (`AuthenticationHelper`). The four-letter
///   words, which the member program asks on the loopback interface, are no requests.
/// * The operator's mirror of elections has a certificate of the clients' authority, so certificates are always among them.
fn authentication_lines(authentication: &Authentication) -> Vec<(&'static str, &str)> {
    let Authentication {
        required,
        users,
        certificates,
    } = authentication;
    if users.is_none() && certificates.is_none() {
        return Vec::new();
    }
    let mut lines = vec![
        ("ssl.clientAuth", "want"),
        ("ssl.trustStore.location", "/tls/client-trust.pem"),
        (
            "authProvider.x509",
            "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        ),
    ];
    if let Some(users) = users {
        lines.push((
            "authProvider.sasl",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        ));
        let user = users.super_user.as_deref();
        lines.extend(user.map(|user| ("superUser", user)));
    }
    let subject = certificates.as_ref().and_then(|c| c.super_user.as_deref());
    lines.extend(subject.map(|subject| ("X509AuthenticationProvider.superUser", subject)));
    if *required {
        let schemes = if users.is_some() { "sasl,x509" } else { "x509" };
        lines.extend([
            ("enforce.auth.enabled", "true"),
            ("enforce.auth.schemes", schemes),
        ]);
    }
    lines
}

/// The DNS name of a member.
pub fn member_host(ensemble: &ValidEnsemble, id: ServerId) -> String {
    let ordinal = id.0.saturating_sub(ensemble.id_offset + 1);
    host(ensemble, &pod_name(&ensemble.name, ordinal))
}

fn host(ensemble: &ValidEnsemble, pod: &str) -> String {
    format!(
        "{pod}.{}.{}.svc.{}",
        members_service(&ensemble.name),
        ensemble.namespace,
        ensemble.context.cluster_domain
    )
}

/// The immutable ConfigMap of a revision.
pub fn config_map(ensemble: &ValidEnsemble, rendered: &RenderedRevision) -> DesiredObject {
    let mut meta: Value = metadata(ensemble, &rendered.revision.name);
    // A revision whose members change at run time outlives its lists: only the pod template tells the present one.
    if rendered.revision.version.is_none() {
        meta["annotations"] = json!({ labels::VOTERS: rendered.revision.voters.to_string() });
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "immutable": true,
    });
    let mut object = apply(
        ObjectKind::ConfigMap,
        rendered.revision.name.clone(),
        meta,
        body,
    );
    // Its name is already the hash of the files.
    object.body["data"] = json!(rendered.files);
    object
}

#[cfg(test)]
mod tests {
    use bellwether_api::ZooKeeperEnsembleSpec;
    use bellwether_api::ensemble::{ClientCertificates, Config, Users};

    use super::*;
    use crate::validate::example;

    /// The other half of scenario 12: in a cluster with a domain of its own, members find each other.
    #[test]
    fn scenario_12_another_cluster_domain_is_in_every_address() {
        let spec = ZooKeeperEnsembleSpec {
            replicas: 3,
            ..Default::default()
        };
        let mut valid = example(spec);
        valid.context.cluster_domain = "example.internal".to_owned();
        let rendered = render(&valid, &Voters::first(3, 0), None, Encryption::NONE);
        for (name, file) in rendered.files.iter().filter(|(n, _)| n.ends_with(".cfg")) {
            let servers: Vec<&str> = file.lines().filter(|l| l.starts_with("server.")).collect();
            assert!(servers.len() >= 3, "{name}: {file}");
            for server in servers {
                let host = ".zk-members.shop.svc.example.internal:2888:3888:";
                assert!(server.contains(host), "{name}: {server}");
            }
        }
    }

    fn rendered(additional: &[(&str, &str)]) -> String {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let spec = ZooKeeperEnsembleSpec {
            replicas: 1,
            config: Some(Config {
                additional: additional.iter().map(owned).collect(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let ensemble = example(spec);
        let servers = server_lines(&ensemble, &Voters::first(1, 0));
        cfg(&ensemble, Encryption::NONE, &servers, None)
    }

    #[test]
    fn metrics_are_served_where_they_are_wanted() {
        let text = |metrics: bool| {
            let mut ensemble = example(ZooKeeperEnsembleSpec {
                replicas: 1,
                ..Default::default()
            });
            ensemble.metrics = metrics;
            cfg(&ensemble, Encryption::NONE, "", None)
        };
        assert!(text(true).contains("\nmetricsProvider.httpPort=7000\n"));
        assert!(!text(false).contains("metricsProvider"));
    }

    fn single() -> ValidEnsemble {
        example(ZooKeeperEnsembleSpec {
            replicas: 1,
            ..Default::default()
        })
    }

    #[test]
    fn each_state_of_tls_has_its_flags_and_plaintext_has_none() {
        let ensemble = single();
        for (tls, ssl, both) in [
            (ServerTls::Accepted, "false", "true"),
            (ServerTls::Preferred, "true", "true"),
            (ServerTls::Required, "true", "false"),
        ] {
            let tls = Encryption {
                servers: tls,
                ..Encryption::NONE
            };
            let text = cfg(&ensemble, tls, "", None);
            assert!(text.contains(&format!("\nsslQuorum={ssl}\n")), "{text}");
            assert!(
                text.contains(&format!("\nportUnification={both}\n")),
                "{text}"
            );
            assert!(text.contains("\nsslQuorumReloadCertFiles=true\n"), "{text}");
        }
        let plain = cfg(&ensemble, Encryption::NONE, "", None);
        assert!(
            !plain.contains("ssl") && !plain.contains("portUni"),
            "{plain}"
        );
    }

    #[test]
    fn clients_find_plaintext_tls_or_both() {
        let ports = |clients| {
            let servers = ServerTls::Required;
            let text = cfg(&single(), Encryption { servers, clients }, "", None);
            let lines = text
                .lines()
                .filter(|line| line.to_lowercase().contains("clientport"));
            lines.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ports(ClientTls::Disabled), "clientPort=2181");
        assert_eq!(
            ports(ClientTls::Optional),
            "clientPort=2181 secureClientPort=2281"
        );
        let required = "clientPort=2181 clientPortAddress=127.0.0.1 secureClientPort=2281";
        assert_eq!(ports(ClientTls::Required), required);
    }

    fn with_authentication(required: bool, users: bool, certificates: bool) -> ValidEnsemble {
        let users = users.then(|| Users {
            secret_name: "users".to_owned(),
            super_user: Some("root".to_owned()),
        });
        let certificates = certificates.then(|| ClientCertificates {
            config_map_name: "authorities".to_owned(),
            super_user: Some("CN=admin,O=a\\,b".to_owned()),
        });
        let authentication = Authentication {
            required,
            users,
            certificates,
        };
        ValidEnsemble {
            authentication,
            ..single()
        }
    }

    fn over_tls(ensemble: &ValidEnsemble, clients: ClientTls) -> RenderedRevision {
        let servers = ServerTls::Required;
        let tls = Encryption { servers, clients };
        render(ensemble, &Voters::first(1, 0), None, tls)
    }

    #[test]
    fn clients_that_have_to_prove_who_they_are_do_it_in_every_way_that_is_asked_for_and_no_other() {
        let said = |ensemble: &ValidEnsemble| {
            let plain = over_tls(&single(), ClientTls::Optional);
            let files = over_tls(ensemble, ClientTls::Optional).files;
            let before = plain.files["zoo-1.cfg"].lines().collect::<Vec<_>>();
            let lines = files["zoo-1.cfg"]
                .lines()
                .filter(|line| !before.contains(line));
            let login =
                files["security.properties"].contains("login.config.url.1=file:/tls/jaas.conf");
            (lines.collect::<Vec<_>>().join("\n"), login)
        };
        insta::assert_snapshot!(said(&with_authentication(true, true, true)).0, @r"
        X509AuthenticationProvider.superUser=CN=admin,O=a\\,b
        authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
        authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
        enforce.auth.enabled=true
        enforce.auth.schemes=sasl,x509
        ssl.clientAuth=want
        ssl.trustStore.location=/tls/client-trust.pem
        superUser=root
        ");
        let (certificates, login) = said(&with_authentication(true, false, true));
        assert!(certificates.contains("enforce.auth.schemes=x509"));
        assert!(!certificates.contains("sasl") && !login);
        let (users, login) = said(&with_authentication(false, true, false));
        assert!(!users.contains("enforce.auth") && login);
    }

    /// On the way from plaintext, no member demands what it has no port for.
    #[test]
    fn without_a_port_for_tls_nobody_proves_anything() {
        let ensemble = with_authentication(true, true, true);
        let plain = over_tls(&single(), ClientTls::Disabled);
        assert_eq!(over_tls(&ensemble, ClientTls::Disabled), plain);
    }

    #[test]
    fn a_preferred_setting_gives_way_to_the_users() {
        let key = PREFERRED[0].0;
        let line = |value: &str| format!("\n{key}={value}\n");
        assert!(rendered(&[]).contains(&line("200")));
        let text = rendered(&[(key, "70")]);
        assert!(text.contains(&line("70")) && !text.contains(&line("200")));
    }
}
