//! Leaders that are asked to hand over.

use bellwether_election::permissions::Permissions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Shows an election that `leader` leads with this token, while a person asks for a handover of the one with the token 7.
fn show(bench: &Bench, port: u16, leader: &str, token: &str) {
    let object = json!({"apiVersion": "zookeeper.bellwether.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"name": "app", "namespace": "default", "uid": "uid-1", "generation": 1,
            "annotations": {"zookeeper.bellwether.dev/handover": "7"}},
        "spec": {"ensembleRef": {"name": "main"}, "path": "/e", "dialect": {"type": "Kazoo"},
            "handover": {"http": {"port": port, "path": "/resign"}},
            "podBinding": {"selector": {"matchLabels": {"app": "candidate"}}}}});
    let leader = Leader {
        identity: leader.to_owned(),
        node: format!("node-of-{leader}"),
        fencing_token: Some(token.to_owned()),
        ..Leader::default()
    };
    let status = LeaderElectionStatus {
        leader: Some(leader),
        ..LeaderElectionStatus::default()
    };
    let update = ElectionUpdate::Election {
        object: Arc::new(serde_json::from_value(object).unwrap()),
        status: Some(Arc::new(status)),
        sighting: Some(bench.sighting.clone()),
        owned: None,
        noticed: None,
    };
    bench.updates.send(update).unwrap();
}

/// Gives a pod the address of this machine.
fn move_here(bench: &Bench, pod: &str) {
    let here = |status: &mut Value| status["podIP"] = json!("127.0.0.1");
    let mut store = bench.server.store();
    let moved = store.update_status("kubelet", Kind::POD, ("default", pod), here);
    moved.unwrap();
}

#[tokio::test]
async fn the_leader_is_asked_once_and_the_next_one_never() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let permissions = Permissions {
        handover_ports: vec![port],
        ..Permissions::default()
    };
    let bench = Bench::in_scope(Scope {
        permissions: Arc::new(permissions),
        ..Scope::default()
    });
    move_here(&bench, "a");
    move_here(&bench, "b");
    show(&bench, port, "a", "7");
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await.unwrap();
    let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
    assert!(
        request.contains("bellwether-fencing-token: 7\r\n"),
        "{request}"
    );
    // While it has not answered, nothing waits for it, and nobody asks again.
    bench.reason("HandingOver").await;
    show(&bench, port, "b", "9");
    bench.reason("HandedOver").await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(answer).await.unwrap();
    let again = tokio::time::timeout(QUIET, listener.accept()).await;
    assert!(again.is_err(), "a leader was asked again");
}

#[tokio::test]
async fn a_port_that_nobody_allowed_is_not_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bench = Bench::new(true);
    move_here(&bench, "a");
    show(&bench, listener.local_addr().unwrap().port(), "a", "7");
    bench.reason("HandoverNotAllowed").await;
    let asked = tokio::time::timeout(QUIET, listener.accept()).await;
    assert!(asked.is_err(), "the leader was asked");
}
