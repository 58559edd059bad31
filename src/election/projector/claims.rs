//! Asking the pods of one election whether they lead.
//!
//! What their answers say is [`bellwether_election::claims`]' rule.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bellwether_api::conditions::NewCondition;
use bellwether_api::election::LeadershipCheck;
use bellwether_election::claims::{Answer, Asked, Claims, Term, asked, not_allowed, term};
use bellwether_election::permissions::Permissions;
use bellwether_election::projection::{CandidatePods, Pods, Subject};
use futures::StreamExt;
use futures::stream;
use http::Method;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::super::Key;
use super::feed::Observation;

/// How long a pod may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many pods of an election are asked at the same time.
const AT_ONCE: usize = 8;

/// How often pods are asked while something may be wrong, and for how long after a change of the leader that is so.
const HASTE: Duration = Duration::from_secs(1);
const HASTY_FOR: Duration = Duration::from_secs(30);

/// Questions that were put together.
struct Round {
    term: Term,
    begun: Instant,
    /// Empty until all answered, or did not in time.
    answers: Arc<OnceLock<Vec<(String, Answer)>>>,
    is_heard: bool,
}

/// What is known of the claims of one election's pods.
#[derive(Default)]
pub(super) struct Inquiry {
    claims: Claims,
    round: Option<Round>,
    changed: Option<Instant>,
    told: Option<NewCondition>,
}

/// What an inquiry is about, and with whom.
pub(super) struct Scene<'s> {
    pub(super) subject: &'s Subject,
    pub(super) candidate_pods: &'s CandidatePods,
    pub(super) pods: &'s Pods,
    pub(super) permissions: &'s Permissions,
    pub(super) observations: &'s mpsc::Sender<Observation>,
}

impl Inquiry {
    /// Takes in what pods answered, and asks them again if it is time to. Returns how soon to look again; `None` if nothing is
    /// asked. `led_before` is the fencing token with which the pod with a uid led before.
    pub(super) fn look(
        &mut self,
        scene: &Scene<'_>,
        led_before: impl Fn(&str) -> Option<String>,
    ) -> Option<Duration> {
        let subject = scene.subject;
        let Some(check) = subject.spec().leadership_check.as_deref() else {
            *self = Self::default();
            return None;
        };
        if !scene.permissions.allows_check(check.http.port) {
            *self = Self {
                told: Some(not_allowed(check)),
                ..Self::default()
            };
            return None;
        }
        if self.claims.follow(subject) {
            self.changed = Some(Instant::now());
        }
        if let Some(round) = self.round.as_mut().filter(|round| !round.is_heard)
            && let Some(answers) = round.answers.get()
        {
            self.claims.hear(&round.term, answers);
            round.is_heard = true;
        }
        let candidate_pods = scene.candidate_pods;
        let binding = candidate_pods.leader.as_ref();
        let told = self.claims.told(subject, binding, scene.pods, led_before);
        self.told = Some(told);
        let pause = self.pause(check, candidate_pods);
        let next = match &self.round {
            // The answers wake the next look.
            Some(round) if !round.is_heard => return Some(PATIENCE * 2),
            Some(round) => (round.begun + pause).saturating_duration_since(Instant::now()),
            None => Duration::ZERO,
        };
        if !next.is_zero() {
            return Some(next);
        }
        self.ask(check, scene);
        Some(PATIENCE * 2)
    }

    /// How long a round lasts.
    fn pause(&self, check: &LeadershipCheck, candidate_pods: &CandidatePods) -> Duration {
        let period = u64::try_from(check.period_seconds).unwrap_or(1);
        let period = Duration::from_secs(period).max(HASTE);
        let has_changed = self
            .changed
            .is_some_and(|changed| changed.elapsed() < HASTY_FOR);
        match has_changed || self.claims.is_doubtful(candidate_pods.pod.as_ref()) {
            true => HASTE,
            false => period,
        }
    }

    fn ask(&mut self, check: &LeadershipCheck, scene: &Scene<'_>) {
        let answers = Arc::<OnceLock<_>>::default();
        self.round = Some(Round {
            term: term(scene.subject),
            begun: Instant::now(),
            answers: answers.clone(),
            is_heard: false,
        });
        let asked = asked(check, scene.pods);
        let path = check.http.path.clone();
        let key = Key::of(&scene.subject.object.metadata);
        let observations = scene.observations.clone();
        tokio::spawn(async move {
            // Bodies are not read, and connections closed with the client.
            let client = Client::builder(TokioExecutor::new()).build_http();
            let questions = stream::iter(asked).map(|Asked { uid, address }| {
                let (client, path) = (&client, &path);
                async move { (uid, question(client, address, path).await) }
            });
            let all = questions.buffer_unordered(AT_ONCE).collect().await;
            // A round is asked once; without a projector nobody waits for it.
            let _ = answers.set(all);
            let _ = observations.send(Observation::Answered(key)).await;
        });
    }

    /// The condition, where pods are to be asked.
    pub(super) fn told(&self) -> Option<NewCondition> {
        self.told.clone()
    }
}

async fn question(
    client: &Client<HttpConnector, Empty<Bytes>>,
    address: SocketAddr,
    path: &str,
) -> Answer {
    let request = http::Request::builder()
        .method(Method::GET)
        .uri(format!("http://{address}{path}"))
        .body(Empty::<Bytes>::new());
    let Ok(request) = request else {
        return Answer::Silent;
    };
    match timeout(PATIENCE, client.request(request)).await {
        Ok(Ok(answer)) if answer.status().is_success() => Answer::Leads,
        Ok(Ok(_)) => Answer::Follows,
        Ok(Err(_)) | Err(_) => Answer::Silent,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What a server's answer is taken for, and the request.
    async fn asked(answer: &'static str) -> (Answer, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = question(&client, address, "/leads?now").await;
        (answer, server.await.unwrap())
    }

    #[tokio::test]
    async fn an_answer_of_two_hundred_says_that_the_pod_leads() {
        let (answer, request) = asked("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(answer, Answer::Leads);
        assert!(
            request.starts_with("GET /leads?now HTTP/1.1\r\n"),
            "{request}"
        );
        for (text, answer) in [
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", Answer::Follows),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
                Answer::Follows,
            ),
            ("SSH-2.0-OpenSSH_9.2\r\n", Answer::Silent),
        ] {
            assert_eq!(asked(text).await.0, answer);
        }
    }
}
