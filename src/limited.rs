//! A client of the API server whose requests end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::BoxError;

/// How long the API server may take to answer. It gives up on most requests after 60 s itself, and on a
/// webhook after at most 30 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client whose requests fail when no answer comes, watches excepted.
///
/// An API server that vanishes, or a link that drops packets, leaves a request without an answer until the
/// kernel gives the connection up, which takes a quarter of an hour. A pass would be held up for as long, while
/// the lease is renewed over another connection and no other replica takes over. A request that fails closes
/// its connection, and the next one opens another.
pub(crate) fn limited(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| send(client.clone(), request));
    Client::new(service, namespace)
}

/// A client that sends only so many requests at once, watches excepted. The others wait for their turn.
pub(crate) fn at_most(requests: usize, client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let turns = Arc::new(Semaphore::new(requests));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, turns) = (client.clone(), turns.clone());
        async move {
            let watches = is_watch(request.uri().query().unwrap_or_default());
            let turn = if watches {
                None
            } else {
                Some(turns.acquire().await?)
            };
            let answer = client.send(request).await;
            drop(turn);
            Ok::<_, BoxError>(answer?)
        }
    });
    Client::new(service, namespace)
}

async fn send(client: Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let watches = is_watch(request.uri().query().unwrap_or_default());
    let answer = client.send(request);
    Ok(match watches {
        true => answer.await?,
        false => timeout(PATIENCE, answer).await.map_err(|_| late())??,
    })
}

fn late() -> BoxError {
    let why = format!("the API server did not answer within {PATIENCE:?}");
    io::Error::new(io::ErrorKind::TimedOut, why).into()
}

fn is_watch(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == "watch" && value != "false")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::WatchParams;
    use tokio::time::Instant;

    use super::*;

    /// A client whose requests are never answered.
    fn unanswered() -> Client {
        let service = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, BoxError>>()
        });
        limited(Client::new(service, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_fails_and_a_watch_goes_on() {
        let api: Api<ConfigMap> = Api::default_namespaced(unanswered());
        let begin = Instant::now();
        let error = api.get("zk").await.unwrap_err().to_string();
        assert!(error.contains("did not answer within 30s"), "{error}");
        assert_eq!(begin.elapsed(), PATIENCE);
        let watch = async {
            let watch = api.watch(&WatchParams::default(), "0").await;
            watch.map(drop)
        };
        assert!(timeout(PATIENCE * 2, watch).await.is_err());
    }
}
