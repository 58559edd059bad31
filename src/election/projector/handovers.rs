//! Asking the leader of one election to hand over, by a request to its pod.
//!
//! When it is asked is [`bellwether_election::handover`]'s rule.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bellwether_api::conditions::NewCondition;
use bellwether_api::election::{Handover, HandoverMethod, Reason};
use bellwether_election::handover::{
    ASKED_AGAIN, Asked, Cordoned, Next, Request, next, request, told, unseen_nodes,
};
use bellwether_election::permissions::Permissions;
use bellwether_election::projection::{CandidatePods, PodFacts, Subject};
use http::Method;
use http_body_util::Empty;
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::info;

use super::super::Key;
use super::feed::Observation;
use super::pod_requests::ask;

/// How long the leader may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The headers that tell the application which of its terms is meant.
const ELECTION: &str = "Bellwether-Election";
const TOKEN: &str = "Bellwether-Fencing-Token";

/// A leader that was asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    token: String,
    first: Instant,
    last: Instant,
    /// Empty until it answered.
    answer: Arc<OnceLock<Result<(), String>>>,
}

impl Question {
    /// Whether the leader with this token was asked less than `timeout` ago and did not refuse.
    pub(super) fn is_open(&self, token: &str, timeout: Duration) -> bool {
        let refused = matches!(self.answer.get(), Some(Err(_)));
        self.token == token && self.first.elapsed() < timeout && !refused
    }
}

/// What has to be known to ask the leader of an election.
#[derive(Clone, Debug)]
pub(super) struct Questioner {
    key: Key,
    handover: Handover,
    is_allowed: bool,
    /// Whether the spec asks for what the administrator did not allow.
    lacks_cordon: bool,
    /// What a person asks for.
    request: Option<Request>,
    /// The leader, if its node is cordoned.
    cordoned: Option<Cordoned>,
    question: Option<Question>,
    observations: mpsc::Sender<Observation>,
}

/// What became of a request.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) question: Option<Question>,
    /// The condition, if there is a request.
    pub(super) told: Option<NewCondition>,
    /// How soon to look again if nothing changes before.
    pub(super) again: Option<Duration>,
}

impl Questioner {
    /// `None` if the spec does not say how a leader hands over. `cordoned` is the leader if its node is cordoned, `question` how a
    /// leader was asked before.
    pub(super) fn new(
        subject: &Subject,
        permissions: &Permissions,
        cordoned: Option<Cordoned>,
        question: Option<Question>,
        observations: &mpsc::Sender<Observation>,
    ) -> Option<Self> {
        let handover = subject.spec().handover.as_deref()?;
        Some(Self {
            key: Key::of(&subject.object.metadata),
            is_allowed: permissions.allows_handover(handover.http.port),
            lacks_cordon: handover.on_cordon && !permissions.handover_on_cordon,
            handover: handover.clone(),
            request: request(subject),
            cordoned,
            question,
            observations: observations.clone(),
        })
    }

    fn timeout(&self) -> Duration {
        let seconds = u64::try_from(self.handover.timeout_seconds).unwrap_or_default();
        Duration::from_secs(seconds)
    }

    fn asked(&self) -> Option<Asked> {
        let now = Instant::now();
        self.question.as_ref().map(|question| Asked {
            token: question.token.clone(),
            first: now - question.first,
            last: now - question.last,
            answer: question.answer.get().cloned(),
        })
    }

    /// Why the leader must not or cannot be asked, or where it is.
    fn address(&self, pods: Option<&CandidatePods>) -> Result<SocketAddr, (Reason, String)> {
        if !self.is_allowed {
            let port = self.handover.http.port;
            let what = format!("Leaders may not be asked at port {port} of their pods.");
            return Err((Reason::HandoverNotAllowed, what));
        }
        let unusable = |what: &str| (Reason::HandoverUnusable, what.to_owned());
        let pod = pods.and_then(|pods| pods.pod.as_ref());
        let pod = pod.ok_or_else(|| unusable("It is not known in which pod the leader runs."))?;
        let ip = reachable(pod).map_err(unusable)?;
        let port = u16::try_from(self.handover.http.port);
        let port = port.map_err(|_| unusable("spec.handover.http.port is no port."))?;
        Ok(SocketAddr::new(ip, port))
    }

    /// Asks the leader with this token if it is time to. Returns what is to be done then: never to ask. The answer is not waited
    /// for: the next leader may be there before it.
    fn ask(&mut self, address: SocketAddr, token: &str) -> Next {
        let due = next(token, self.asked().as_ref(), self.timeout());
        if due != Next::Ask {
            return due;
        }
        let last = Instant::now();
        let same = self
            .question
            .as_ref()
            .filter(|question| question.token == token);
        let question = Question {
            token: token.to_owned(),
            first: same.map_or(last, |question| question.first),
            last,
            answer: Arc::default(),
        };
        let answered = question.answer.clone();
        self.question = Some(question);
        let (handover, key, token) = (self.handover.clone(), self.key.clone(), token.to_owned());
        let (observations, cordoned) = (self.observations.clone(), self.cordoned.clone());
        tokio::spawn(async move {
            let answer = send(&handover, &key.to_string(), address, &token).await;
            info!(
                election = %key,
                %address,
                token,
                agreed = answer.is_ok(),
                answer = answer.as_ref().err(),
                cordoned = cordoned.map(|cordoned| cordoned.node),
                "asked the leader to hand over"
            );
            // This question has no other answer; without a projector nobody waits for it.
            let _ = answered.set(answer);
            let _ = observations.send(Observation::Answered(key)).await;
        });
        Next::Wait
    }

    /// Asks the leader if a person wants it or its node is cordoned.
    pub(super) fn answer(mut self, pods: Option<&CandidatePods>) -> Answered {
        let by_person = match &self.request {
            Some(Request::Open(token)) => Some(token.clone()),
            _ => None,
        };
        let by_cordon = self
            .cordoned
            .as_ref()
            .map(|cordoned| cordoned.token.clone());
        let mut refusal = None;
        let mut again = None;
        let open = by_person.or_else(|| by_cordon.clone());
        if let Some(token) = &open {
            match self.address(pods) {
                Ok(address) => {
                    if self.ask(address, token) != Next::GiveUp {
                        again = Some(ASKED_AGAIN);
                    }
                }
                Err(why) => refusal = Some(why),
            }
        }
        let request = open.map(Request::Open).or_else(|| self.request.clone());
        let asked = self.asked();
        let mut told = request
            .map(|request| told(&request, asked.as_ref(), self.timeout(), refusal))
            .or_else(|| self.lacks_cordon.then(unseen_nodes));
        if let (Some(told), Some(cordoned)) = (&mut told, &self.cordoned) {
            let node = &cordoned.node;
            told.message = format!("Node {node} of the leader is cordoned. {}", told.message);
        }
        Answered {
            question: self.question,
            told,
            again,
        }
    }

    /// Asks the leader before its pod is evicted. Returns whether the eviction has to wait.
    pub(super) fn holds_up_eviction(
        &mut self,
        subject: &Subject,
        pods: Option<&CandidatePods>,
    ) -> bool {
        let leader = subject.leader();
        let Some(token) = leader.and_then(|leader| leader.fencing_token.clone()) else {
            return false;
        };
        match self.address(pods) {
            Ok(address) => self.ask(address, &token) != Next::GiveUp,
            Err(_) => false,
        }
    }
}

/// The address of a pod that a request may go to.
fn reachable(pod: &PodFacts) -> Result<IpAddr, &'static str> {
    if pod.is_on_node_network {
        return Err("The leader's pod is in the network of its node, which is not asked.");
    }
    pod.ips
        .first()
        .copied()
        .ok_or("The leader's pod has no address.")
}

async fn send(
    handover: &Handover,
    election: &str,
    address: SocketAddr,
    token: &str,
) -> Result<(), String> {
    let path = &handover.http.path;
    let request = http::Request::builder()
        .method(match handover.http.method {
            HandoverMethod::Post => Method::POST,
            HandoverMethod::Put => Method::PUT,
            HandoverMethod::Delete => Method::DELETE,
        })
        .uri(format!("http://{address}{path}"))
        .header(ELECTION, election)
        .header(TOKEN, token)
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|error| format!("spec.handover.http cannot be used: {error}"))?;
    match ask(address, request, PATIENCE).await? {
        status if status.is_success() => Ok(()),
        status => Err(format!("{address} answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use bellwether_api::election::HandoverRequest;
    use tokio::net::TcpListener;

    use super::super::pod_requests::tests::server;
    use super::*;

    fn handover(port: u16) -> Handover {
        Handover {
            http: HandoverRequest {
                port: port.into(),
                path: "/resign?now=1".to_owned(),
                method: HandoverMethod::Put,
            },
            timeout_seconds: 30,
            on_cordon: false,
        }
    }

    /// What becomes of a request to a server that answers this, and the request.
    async fn asked(answer: &'static str) -> (Result<(), String>, String) {
        let (address, server) = server(answer).await;
        let answer = send(&handover(address.port()), "shop/app", address, "17").await;
        (answer, server.await.unwrap())
    }

    #[tokio::test]
    async fn the_request_names_the_election_and_the_term() {
        let (answer, request) = asked("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(answer, Ok(()));
        assert!(
            request.starts_with("PUT /resign?now=1 HTTP/1.1\r\n"),
            "{request}"
        );
        let request = request.to_lowercase();
        for header in [
            "bellwether-election: shop/app\r\n",
            "bellwether-fencing-token: 17\r\n",
        ] {
            assert!(request.contains(header), "{request}");
        }
    }

    #[tokio::test]
    async fn any_other_answer_is_no_agreement_and_no_redirection_is_followed() {
        for (answer, words) in [
            (
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
                "302",
            ),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "503"),
            ("SSH-2.0-OpenSSH_9.2\r\n", "not answer in HTTP"),
        ] {
            let why = asked(answer).await.0.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let why = send(&handover(address.port()), "shop/app", address, "17").await;
        assert!(why.unwrap_err().contains("takes no connection"));
    }

    #[test]
    fn a_pod_on_its_nodes_network_is_not_asked() {
        let mut pod = PodFacts {
            ips: vec!["10.0.0.1".parse().unwrap()],
            ..PodFacts::default()
        };
        assert_eq!(reachable(&pod), Ok("10.0.0.1".parse().unwrap()));
        pod.is_on_node_network = true;
        assert!(reachable(&pod).is_err());
    }
}
