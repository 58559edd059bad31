use std::net::Ipv4Addr;

use axum::Router;
use bellwether_api::LeaderElectionSpec;
use bellwether_api::election::Connection;
use bellwether_election::permissions::HostPattern;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::super::relay::tests::{frame, framed, server};
use super::super::target::Holder;
use super::super::zookeepers::Servers;
use super::*;
use crate::certificates::Authorities;
use crate::ensemble::members::Network;

/// Keeps a session to a server, and returns the link that mirrors follow.
pub(in crate::election) fn kept(
    address: String,
) -> (watch::Receiver<Link>, watch::Sender<Presence>) {
    let (link, told) = watch::channel(Link::Starting);
    let (present, presence) = watch::channel(Presence::Present(Ensemble::default()));
    let hosts = vec![HostPattern::parse("127.0.0.1").unwrap()];
    let permissions = Permissions {
        hosts: hosts.into(),
        ..Permissions::default()
    };
    let keeper = keeper(address, presence, link, permissions);
    tokio::spawn(keeper.keep());
    (told, present)
}

fn keeper(
    address: String,
    presence: watch::Receiver<Presence>,
    link: watch::Sender<Link>,
    permissions: Permissions,
) -> Keeper {
    let connection = Connection {
        connect_string: address.clone(),
        tls: None,
    };
    let kube = kube::Client::new(Router::new(), "default");
    let authorities = Arc::new(Authorities::new(kube.clone(), "default", "root"));
    Keeper {
        target: Target {
            namespace: "default".to_owned(),
            holder: Holder::External(connection),
            authentication: None,
        },
        secure_address: address.clone(),
        address,
        presence,
        link,
        permissions: Arc::new(permissions),
        trust: Trust {
            members: Arc::new(Network::new(authorities.clone())),
            issuer: authorities,
            kube,
        },
        zookeepers: Arc::new(Servers),
        guards: Guards::ALL,
        metrics: Metrics::default(),
    }
}

/// Why no session is open, once that is told.
async fn obstacle(told: &mut watch::Receiver<Link>) -> (Reason, String) {
    let down = |link: &Link| match link {
        Link::Down { reason, detail, .. } => Some((*reason, detail.clone())),
        _ => None,
    };
    let told = told.wait_for(|link| down(link).is_some()).await.unwrap();
    down(&told).unwrap()
}

/// The address of a port where nothing listens.
async fn closed() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_not_connected_to() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (link, mut told) = watch::channel(Link::Starting);
    let (_present, presence) = watch::channel(Presence::Present(Ensemble::default()));
    let keeper = keeper(address.clone(), presence, link, Permissions::default());
    tokio::spawn(keeper.keep());
    let (reason, detail) = obstacle(&mut told).await;
    assert_eq!(reason, Reason::ConnectionNotAllowed);
    assert!(detail.contains(&address), "{detail}");
    let connected = timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(connected.is_err(), "it was connected to");
}

#[tokio::test]
async fn what_listens_on_a_port_is_told_neither_by_the_message_nor_by_the_time() {
    // Nothing, something that is silent, something that speaks, something that closes at once.
    let listener = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (silent, speaking, closing) = tokio::join!(listener(), listener(), listener());
    let (silent, speaking, closing) = (silent.unwrap(), speaking.unwrap(), closing.unwrap());
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let addresses = [
        closed().await,
        address(&silent),
        address(&speaking),
        address(&closing),
    ];
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = speaking.accept().await.unwrap();
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
            tokio::spawn(async move {
                sleep(Duration::from_secs(60)).await;
                drop(stream);
            });
        }
    });
    tokio::spawn(async move { while closing.accept().await.is_ok() {} });
    let began = Instant::now();
    let found = addresses.map(|address| async move {
        let (mut told, _present) = kept(address.clone());
        let (reason, detail) = obstacle(&mut told).await;
        (reason, detail.replace(&address, "HOST"), began.elapsed())
    });
    let found = futures::future::join_all(found).await;
    for (reason, detail, took) in found {
        assert_eq!(reason, Reason::Unreachable);
        assert_eq!(detail, "No server of HOST opens a session.");
        let late = took.saturating_sub(ATTEMPT);
        assert!(took >= ATTEMPT && late < Duration::from_secs(2), "{took:?}");
    }
}

#[tokio::test]
async fn a_server_that_announces_too_much_is_left_and_mirrors_are_told_why() {
    let address = server(|mut stream: tokio::net::TcpStream| async move {
        stream.write_i32(i32::MAX).await?;
        loop {
            stream.write_all(&[0; 4096]).await?;
        }
    });
    let address = address.await;
    let (mut told, _present) = kept(address.clone());
    let (reason, detail) = obstacle(&mut told).await;
    assert_eq!(reason, Reason::ReadFailed);
    let says = format!("The server {address} announces an answer of 2147483647 bytes");
    assert!(detail.starts_with(&says), "{detail}");
}

#[tokio::test]
async fn a_server_that_answers_nonsense_is_told_and_left() {
    let address = server(|mut stream: tokio::net::TcpStream| async move {
        loop {
            let request = frame(&mut stream).await?;
            // The number of the request, a zxid, no error; and nothing of what was asked.
            let header = [&request[..4], &1_i64.to_be_bytes(), &[0; 4]].concat();
            stream.write_all(&framed(&header)).await?;
        }
    });
    let address = address.await;
    let (mut told, _present) = kept(address.clone());
    let (reason, detail) = obstacle(&mut told).await;
    assert_eq!(reason, Reason::ReadFailed);
    let says = format!("{address} does not answer as ZooKeeper does: ");
    assert!(detail.starts_with(&says), "{detail}");
}

#[test]
fn credentials_go_to_another_namespace_over_tls_only() {
    let secret = json!({ "type": "Digest", "secretRef": { "name": "login" } });
    let spec = |namespace: &str, authentication: Value| -> LeaderElectionSpec {
        let spec = json!({
            "ensembleRef": { "name": "main", "namespace": namespace }, "path": "/e",
            "dialect": { "type": "Kazoo" }, "authentication": authentication,
        });
        serde_json::from_value(spec).unwrap()
    };
    for (namespace, authentication, takes_tls, is_refused) in [
        ("infra", secret.clone(), false, true),
        ("infra", secret.clone(), true, false),
        ("infra", Value::Null, false, false),
        ("shop", secret, false, false),
    ] {
        let target = Target::from_spec(&spec(namespace, authentication), "shop").unwrap();
        let ensemble = Ensemble {
            takes_tls,
            ..Ensemble::default()
        };
        let refused = in_clear(&target, &ensemble);
        assert_eq!(refused.is_some(), is_refused, "{namespace} {takes_tls}");
    }
}
