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
use http_body_util::Empty;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::Key;
use super::feed::Observation;
use super::pod_requests::ask;

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
    /// How soon to look again; `None` if nothing is asked.
    again: Option<Duration>,
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
    /// Takes in what pods answered, and asks them again if it is time to. `led_before` is the fencing token with which the pod
    /// with a uid led before.
    pub(super) fn look(&mut self, scene: &Scene<'_>, led_before: impl Fn(&str) -> Option<String>) {
        let subject = scene.subject;
        let Some(check) = subject.spec().leadership_check.as_deref() else {
            return;
        };
        if !scene.permissions.allows_check(check.http.port) {
            *self = Self {
                told: Some(not_allowed(check)),
                ..Self::default()
            };
            return;
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
        let left = match &self.round {
            // The answers wake the next look.
            Some(round) if !round.is_heard => PATIENCE * 2,
            Some(round) => (round.begun + pause).saturating_duration_since(Instant::now()),
            None => Duration::ZERO,
        };
        self.again = Some(match left.is_zero() {
            true => {
                self.ask(check, scene);
                PATIENCE * 2
            }
            false => left,
        });
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
            let questions = stream::iter(asked).map(|Asked { uid, address }| {
                let path = &path;
                async move { (uid, question(address, path).await) }
            });
            let all = questions.buffer_unordered(AT_ONCE).collect().await;
            // A round is asked once; without a projector nobody waits for it.
            let _ = answers.set(all);
            let _ = observations.send(Observation::Answered(key)).await;
        });
    }

    /// How soon to look again if nothing changes before.
    pub(super) fn again(&self) -> Option<Duration> {
        self.again
    }

    /// The condition, where pods are to be asked.
    pub(super) fn told(&self) -> Option<NewCondition> {
        self.told.clone()
    }
}

async fn question(address: SocketAddr, path: &str) -> Answer {
    let request = http::Request::get(format!("http://{address}{path}")).body(Empty::new());
    let Ok(request) = request else {
        return Answer::Silent;
    };
    match ask(address, request, PATIENCE).await {
        Ok(status) if status.is_success() => Answer::Leads,
        Ok(_) => Answer::Follows,
        Err(_) => Answer::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod_requests::tests::server;
    use super::*;

    /// What a server's answer is taken for, and the request.
    async fn asked(answer: &'static str) -> (Answer, String) {
        let (address, server) = server(answer).await;
        let answer = question(address, "/leads?now").await;
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
