//! Credentials against Secrets that an API server in memory has.

use std::sync::Mutex;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use bellwether_api::election::{Authentication, CaSecretRef, Connection, ConnectionTls, SecretRef};
use futures::FutureExt;
use serde_json::{Value, json};

use super::super::Key;
use super::super::target::Holder;
use super::*;

/// What the API server answers for each Secret: its code and the object.
type Answers = Arc<Mutex<Vec<(&'static str, u16, Value)>>>;

/// The Secret `login` is this one, and there is no other.
fn with_login(secret: Value) -> Answers {
    Arc::new(Mutex::new(vec![("login", 200, secret)]))
}

fn client(answers: &Answers) -> Client {
    let answers = answers.clone();
    let route = get(move |Path((_, name)): Path<(String, String)>| async move {
        let answers = answers.lock().unwrap();
        let found = answers.iter().find(|(known, ..)| *known == name);
        let (code, body) =
            found.map_or((404, Value::Null), |(_, code, body)| (*code, body.clone()));
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "reason": "No", "code": code});
        let body = if code == 200 { body } else { status };
        (StatusCode::from_u16(code).unwrap(), body.to_string())
    });
    let path = "/api/v1/namespaces/{namespace}/secrets/{name}";
    Client::new(Router::new().route(path, route), "shop")
}

fn secret(hosts: Option<&str>, data: &[(&str, &[u8])]) -> Value {
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, value)| {
            (
                (*key).to_owned(),
                json!(k8s_openapi::ByteString(value.to_vec())),
            )
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": "x", "annotations": hosts.map(|hosts| json!({SECRET_HOSTS: hosts}))}})
}

const LOGIN: [(&str, &[u8]); 2] = [("username", b"mirror"), ("password", b"right")];

fn login() -> Option<Authentication> {
    Some(Authentication {
        type_: AuthenticationType::Digest,
        secret_ref: SecretRef {
            name: "login".to_owned(),
        },
    })
}

fn external(hosts: &str, tls: Option<ConnectionTls>) -> Target {
    Target {
        namespace: "shop".to_owned(),
        holder: Holder::External(Connection {
            connect_string: hosts.to_owned(),
            tls,
        }),
        authentication: login(),
    }
}

async fn told(answers: &Answers, target: &Target) -> (Reason, String) {
    let error = Credentials::read(&client(answers), target)
        .await
        .unwrap_err();
    (error.reason(), error.to_string())
}

#[tokio::test]
async fn a_secret_is_sent_only_to_the_hosts_that_its_annotation_names() {
    let target = external("zk1.example.com:2281,zk2.example.com:2281/app", None);
    for (hosts, permitted) in [
        (None, false),
        (Some(""), false),
        (Some("zk1.example.com:2281"), false),
        (Some("zk1.example.com,zk2.example.com:2181"), false),
        (Some("zk1.example.com:2281,zk2.example.com:2281"), true),
        (Some("*.example.com"), true),
    ] {
        let answers = with_login(secret(hosts, &LOGIN));
        let read = Credentials::read(&client(&answers), &target).await;
        assert_eq!(read.is_ok(), permitted, "{hosts:?}");
    }
    // Within the namespace every Secret is for the ensemble. In another one it may be anybody's.
    for (namespace, hosts, permitted) in [
        ("shop", None, true),
        ("infra", None, false),
        ("infra", Some("main.shop.svc"), false),
        ("infra", Some("main.infra.svc"), true),
    ] {
        let target = Target {
            holder: ensemble(namespace),
            ..target.clone()
        };
        let answers = with_login(secret(hosts, &LOGIN));
        let read = Credentials::read(&client(&answers), &target).await;
        assert_eq!(read.is_ok(), permitted, "{namespace} {hosts:?}");
    }
}

fn ensemble(namespace: &str) -> Holder {
    Holder::Ensemble(Key {
        namespace: namespace.to_owned(),
        name: "main".to_owned(),
    })
}

#[tokio::test]
async fn a_certificate_is_shown_only_to_the_hosts_that_its_annotation_names() {
    let tls = ConnectionTls {
        ca_secret_ref: CaSecretRef {
            name: "ca".to_owned(),
            key: "ca.crt".to_owned(),
        },
        client_certificate_secret_ref: Some(SecretRef {
            name: "mirror".to_owned(),
        }),
    };
    let target = Target {
        authentication: None,
        ..external("zk1.example.com:2281", Some(tls))
    };
    let shown: [(&str, &[u8]); 2] = [("tls.crt", b"a"), ("tls.key", b"b")];
    for (hosts, permitted) in [
        (None, false),
        (Some("other"), false),
        (Some("zk1.example.com"), true),
    ] {
        let answers = Answers::default();
        let authorities: [(&str, &[u8]); 1] = [("ca.crt", b"c")];
        answers
            .lock()
            .unwrap()
            .push(("ca", 200, secret(None, &authorities)));
        answers
            .lock()
            .unwrap()
            .push(("mirror", 200, secret(hosts, &shown)));
        let read = Credentials::read(&client(&answers), &target).await;
        assert_eq!(read.is_ok(), permitted, "{hosts:?}");
        // A text without a certificate is told as if it did not exist.
        if let Ok(read) = read {
            let error = read.tls_config().unwrap_err();
            assert_eq!(error.reason(), Reason::SecretNotFound);
            assert_eq!(
                error.to_string(),
                "There is no Secret shop/ca with the key ca.crt."
            );
        }
    }
}

#[tokio::test]
async fn what_a_secret_lacks_is_told_in_the_same_words_as_that_it_does_not_exist() {
    for target in [
        external("zk:2281", None),
        Target {
            holder: ensemble("shop"),
            ..external("zk:2281", None)
        },
    ] {
        let nothing = told(&Answers::default(), &target).await;
        assert_eq!(nothing.0, Reason::SecretNotFound);
        assert!(
            nothing
                .1
                .starts_with("There is no Secret shop/login with the keys username and password")
        );
        for (hosts, data) in [
            (Some("zk"), &[("username", &b"a"[..])][..]),
            (Some("zk"), &[("username", b"a"), ("password", b"")]),
            (Some("zk"), &[("username", b"a"), ("password", b"\xff")]),
            (None, &[("other", b"a")]),
        ] {
            let answers = with_login(secret(hosts, data));
            assert_eq!(told(&answers, &target).await, nothing);
        }
    }
    let answers = with_login(secret(None, &LOGIN));
    let foreign = external("zk:2281", None);
    let nothing = told(&Answers::default(), &foreign).await;
    assert_eq!(told(&answers, &foreign).await, nothing);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_goes_ends_its_session_and_an_api_server_that_is_away_does_not() {
    let target = external("zk:2281", None);
    let permitted = secret(Some("zk"), &LOGIN);
    for (code, body, ends) in [
        (200, permitted.clone(), false),
        (500, Value::Null, false),
        (404, Value::Null, true),
        (403, Value::Null, true),
        (200, secret(None, &LOGIN), true),
        (200, secret(Some("zk"), &LOGIN[..1]), true),
        (
            200,
            secret(Some("zk"), &[("username", b"mirror"), ("password", b"new")]),
            true,
        ),
    ] {
        let answers = with_login(permitted.clone());
        let client = client(&answers);
        let credentials = Credentials::read(&client, &target).await.unwrap();
        answers.lock().unwrap()[0] = ("login", code, body.clone());
        let changed = credentials.changed(&client, &target);
        let in_time = tokio::time::timeout(Duration::from_secs(90), changed).await;
        assert_eq!(in_time.is_ok(), ends, "{code} {body}");
    }
}

#[tokio::test]
async fn an_election_without_secrets_asks_for_none() {
    let target = Target {
        authentication: None,
        ..external("zk", None)
    };
    let client = client(&Answers::default());
    let read = Credentials::read(&client, &target).now_or_never();
    assert!(read.is_some_and(|read| read.is_ok()));
}
