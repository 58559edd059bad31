use axum::Router;
use bellwether_api::election::Connection;
use tokio::io::AsyncWriteExt;

use super::super::relay::tests::server;
use super::super::target::Holder;
use super::*;

/// Keeps a session to a server, and returns the link that mirrors follow.
pub(in crate::election) fn kept(
    address: String,
) -> (watch::Receiver<Link>, watch::Sender<Presence>) {
    let (link, told) = watch::channel(Link::Starting);
    let (present, presence) = watch::channel(Presence::Present(String::new()));
    let connection = Connection {
        connect_string: address.clone(),
        tls: None,
    };
    let keeper = Keeper {
        target: Target {
            namespace: "default".to_owned(),
            holder: Holder::External(connection),
            authentication: None,
        },
        address,
        presence,
        link,
        kube: kube::Client::new(Router::new(), "default"),
        metrics: Metrics::default(),
    };
    tokio::spawn(keeper.keep());
    (told, present)
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
    let down = |link: &Link| match link {
        Link::Down { reason, detail, .. } => Some((*reason, detail.clone())),
        _ => None,
    };
    let told = told.wait_for(|link| down(link).is_some()).await.unwrap();
    let (reason, detail) = down(&told).unwrap();
    assert_eq!(reason, Reason::ReadFailed);
    let says = format!("The server {address} announces an answer of 2147483647 bytes");
    assert!(detail.starts_with(&says), "{detail}");
}
