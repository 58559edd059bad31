//! The API server as clients see it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tower::BoxError;

use super::faults::{Answer, Faults, NoFaults, Then};
use super::front_end::{Connection, FrontEnds, Link};
use super::kind::Kind;
use super::object::written;
use super::refusal::{self, Refusal};
use super::reply::{Reply, carry_out};
use super::request::read;
use super::store::Store;
use crate::stops::Stops;

/// After this time the client's kernel gives a connection up on which nothing is acknowledged.
const GIVEN_UP: Duration = Duration::from_secs(15 * 60);

pub(crate) struct Shared {
    store: Mutex<Store>,
    front_ends: Mutex<FrontEnds>,
    faults: Mutex<Box<dyn Faults>>,
    stops: Stops,
    /// Held by each watch that is open.
    pub(crate) watching: Arc<()>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn front_ends(&self) -> MutexGuard<'_, FrontEnds> {
        self.front_ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Box<dyn Faults>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The API servers of a cluster.
#[derive(Clone, Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl ApiServer {
    /// This many API servers before one empty store; everything random comes from the seed.
    pub fn new(seed: u64, front_ends: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                store: Mutex::new(Store::new(seed)),
                front_ends: Mutex::new(FrontEnds::new(front_ends)),
                faults: Mutex::new(Box::new(NoFaults)),
                stops: Stops::default(),
                watching: Arc::default(),
            }),
        }
    }

    /// The store, for everything that is not the operator. Never hold it across an await.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store()
    }

    /// Sets what decides about requests.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        *self.shared.faults() = Box::new(faults);
    }

    /// The clients whose processes are stopped.
    pub fn stops(&self) -> &Stops {
        &self.shared.stops
    }

    /// Connects a client to a front end; what it had open breaks.
    pub fn connect(&self, client: &str, front_end: usize) {
        self.shared
            .front_ends()
            .connect(&Arc::from(client), front_end);
    }

    /// Sets what is between a client and a front end.
    pub fn set_link(&self, client: &str, front_end: usize, link: Link) {
        let client = Arc::from(client);
        self.shared.front_ends().link(&client, front_end, link);
    }

    /// Sets how long after a change of a kind a front end's cache has it.
    pub fn set_lag(&self, front_end: usize, kind: Kind, lag: Duration) {
        self.shared.front_ends().set_lag(front_end, kind, lag);
    }

    /// Stops a front end's caches where they are.
    pub fn freeze(&self, front_end: usize) {
        let now = self.store().revision();
        self.shared.front_ends().freeze(front_end, Some(now));
    }

    /// Lets a front end's caches follow the store again.
    pub fn thaw(&self, front_end: usize) {
        self.shared.front_ends().freeze(front_end, None);
    }

    /// Restarts a front end: its connections break, and watches that ask for older changes get the
    /// error that they are too old.
    pub fn restart(&self, front_end: usize) {
        let now = self.store().revision();
        self.shared.front_ends().restart(front_end, now);
    }

    /// A client of this name, whose namespace is `default` where it says none.
    pub fn client(&self, name: &str) -> Client {
        let (server, name) = (self.clone(), Arc::<str>::from(name));
        let service =
            tower::service_fn(move |request: Request<Body>| server.answer(&name, request));
        Client::new(service, "default")
    }

    /// How many watches are open.
    pub fn watches(&self) -> usize {
        Arc::strong_count(&self.shared.watching) - 1
    }

    /// Answers a request of a client.
    pub(crate) fn answer<B>(
        &self,
        client: &Arc<str>,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, BoxError>> + use<B>
    where
        B: http_body::Body<Error: Into<BoxError>>,
    {
        let (shared, client) = (self.shared.clone(), client.clone());
        async move {
            let answer = serve(&shared, &client, request).await;
            // A process that is stopped reads no answer.
            shared.stops.passed(&client).await;
            answer
        }
    }
}

/// A request that led to no answer.
fn failed(kind: io::ErrorKind, what: &str) -> BoxError {
    io::Error::new(kind, what).into()
}

fn broken() -> BoxError {
    failed(io::ErrorKind::ConnectionReset, "connection reset by peer")
}

/// The client hears nothing, until its connection breaks.
async fn silence(shared: &Shared, client: &Arc<str>, connection: Connection) -> BoxError {
    let wait = async {
        loop {
            let notify = shared.front_ends().notify.clone();
            let changed = notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if shared.front_ends().connection(client).number != connection.number {
                return;
            }
            changed.await;
        }
    };
    let _ = timeout(GIVEN_UP, wait).await;
    failed(io::ErrorKind::TimedOut, "connection timed out")
}

async fn serve<B>(
    shared: &Arc<Shared>,
    client: &Arc<str>,
    request: Request<B>,
) -> Result<Response<AnswerBody>, BoxError>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    let connection = shared.front_ends().connection(client);
    match connection.link {
        Link::Up => {}
        Link::Refused => {
            return Err(failed(
                io::ErrorKind::ConnectionRefused,
                "connection refused",
            ));
        }
        Link::Silent => return Err(silence(shared, client, connection).await),
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    let (call, query) = match read(client, connection.front_end, &parts) {
        Ok(read) => read,
        Err(refusal) => return refused(&refusal),
    };
    shared.faults().made(&call);
    // A process that is stopped sends nothing.
    shared.stops.passed(client).await;
    let before = shared.faults().before(&call);
    if !before.delay.is_zero() {
        sleep(before.delay).await;
    }
    match before.then {
        Then::CarryOut => {}
        Then::TooManyRequests(seconds) => return refused(&refusal::too_many_requests(seconds)),
        Then::InternalError => return refused(&refusal::internal_error()),
        Then::Unavailable => return refused(&refusal::unavailable()),
        Then::Forbid => {
            return refused(&refusal::forbidden(
                call.kind,
                &call.name,
                "no rule allows it",
            ));
        }
        Then::Expired => {
            let told = "too old resource version".to_owned();
            return refused(&refusal::expired(told));
        }
        Then::Refuse => {
            return Err(failed(
                io::ErrorKind::ConnectionRefused,
                "connection refused",
            ));
        }
        Then::Hang => return Err(silence(shared, client, connection).await),
    }
    let now = shared.front_ends().connection(client);
    match now.link {
        _ if now.number != connection.number => return Err(broken()),
        Link::Up => {}
        Link::Refused => return Err(broken()),
        Link::Silent => return Err(silence(shared, client, connection).await),
    }
    let reply = carry_out(shared, &call, &query, &body, connection).await;
    let code = match &reply {
        Ok(Reply::Text(code, _)) => *code,
        Ok(Reply::Watch(_)) => 200,
        Err(refusal) => refusal.code,
    };
    let after = shared.faults().after(&call, code);
    if !after.delay.is_zero() {
        sleep(after.delay).await;
    }
    let now = shared.front_ends().connection(client);
    match (after.answer, now.link) {
        (Answer::Break, _) | (_, Link::Refused) => return Err(broken()),
        _ if now.number != connection.number => return Err(broken()),
        (Answer::Lose, _) | (_, Link::Silent) => {
            return Err(silence(shared, client, connection).await);
        }
        (Answer::Deliver, Link::Up) => {}
    }
    match reply {
        Ok(Reply::Text(code, text)) => answer(code, text),
        Ok(Reply::Watch(watch)) => {
            let lines = watch.stream().map(|line| match line {
                Ok(line) => Ok(Frame::data(line)),
                Err(error) => Err(BoxError::from(error)),
            });
            let body = StreamBody::new(lines).boxed_unsync();
            Ok(Response::builder()
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body)?)
        }
        Err(refusal) => refused(&refusal),
    }
}

fn answer(code: u16, text: Bytes) -> Result<Response<AnswerBody>, BoxError> {
    let body = Full::new(text).map_err(|never: Infallible| match never {});
    Ok(Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.boxed_unsync())?)
}

fn refused(refusal: &Refusal) -> Result<Response<AnswerBody>, BoxError> {
    let mut status = serde_json::to_value(refusal)?;
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    status["metadata"] = json!({});
    let mut response = answer(refusal.code, written(&status))?;
    let retry = refusal.details.as_ref().map(|d| d.retry_after_seconds);
    if let Some(seconds) = retry.filter(|seconds| *seconds > 0) {
        let headers = response.headers_mut();
        headers.insert(http::header::RETRY_AFTER, seconds.into());
    }
    Ok(response)
}
