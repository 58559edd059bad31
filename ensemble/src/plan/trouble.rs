//! What a person has to know or act on: members that are away, cannot run or cannot be asked.

use bellwether_api::ensemble::status::Reason;
use jiff::SignedDuration;

use crate::desired::config::CLIENT_PORT;
use crate::desired::stateful_set::{CONTROL_PORT, PROBE_PORT};
use crate::observation::{Credentials, PodObservation, PodState, ServerReport};
use crate::plan::report::{START_TIME, is_new, serve};
use crate::plan::view::{Member, View};

/// What a person has to know or act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word.
    pub reason: Reason,
    /// What is wrong, and what happens next or what to do.
    pub message: String,
}

impl Trouble {
    /// What members wait for until a person has corrected it.
    pub fn awaited(&self) -> String {
        format!("a correction: {}", self.message)
    }

    /// All troubles as one, the gravest first: it gives the reason, and the message contains all of them.
    pub fn all(troubles: impl IntoIterator<Item = Self>) -> Option<Self> {
        troubles.into_iter().reduce(|graver, less| Self {
            message: format!("{} Also: {}", sentence(&graver.message), less.message),
            ..graver
        })
    }
}

/// How long a server that Kubernetes counts as ready may be silent before the operator warns. A server that has
/// exited becomes unready sooner.
const SILENCE: SignedDuration = SignedDuration::from_secs(30);

/// Members that serve according to their readiness probes, but do not answer the operator.
pub(crate) fn unreachable(view: &View<'_>) -> Option<Trouble> {
    let members = view.members.values();
    let unasked = members.filter(|m| m.pod.ready && m.pod.has_been_silent(SILENCE, view.now));
    let unasked: Vec<String> = unasked
        .filter_map(|m| match &m.pod.server {
            ServerReport::Unreachable(why) => Some(format!("{} ({why})", m.pod.name)),
            _ => None,
        })
        .collect();
    (!unasked.is_empty()).then(|| Trouble {
        reason: Reason::MembersUnreachable,
        message: format!(
            "The operator cannot ask {}, and Kubernetes counts them as ready. A NetworkPolicy or a service mesh \
             may keep the operator from them: let its pods reach the port {CONTROL_PORT} of these ({CLIENT_PORT} and \
             {PROBE_PORT} in pods that an earlier version of the operator made). Until then the operator restarts \
             none of them and begins no step of a size change.",
            unasked.join(", ")
        ),
    })
}

/// Members that are down although no change took them down; `idle` means that no change is under way.
pub(crate) fn trouble(view: &View<'_>, idle: bool) -> Vec<Trouble> {
    let members = || view.members.values();
    let failing = members().filter_map(|m| match &m.pod.state {
        PodState::Failing { reason, message } => Some(Trouble {
            reason: Reason::PodFailing,
            message: format!(
                "Pod {} cannot run: {reason}{}.",
                m.pod.name,
                if message.is_empty() {
                    String::new()
                } else {
                    format!(" ({message})")
                }
            ),
        }),
        _ => None,
    });
    // A new pod is still starting and needs no warning.
    // The server of a pod that is still ready may be in the middle of an election.
    let late = |m: &Member<'_>| {
        let fails = matches!(m.pod.state, PodState::Failing { .. });
        !m.serves() && !m.pod.ready && !fails && !is_new(view, m)
    };
    // During a change a member may be stopping or starting. The operator still warns when that takes long,
    // since the others may have to wait for it.
    let long = |m: &Member<'_>| {
        let since = m.pod.unready_since;
        let long = since.is_some_and(|since| view.now.duration_since(since) >= START_TIME);
        long && (view.template.voters.contains(m.id) || view.joining.contains(m.id))
    };
    let mut late = members().filter(|m| late(m));
    let down = late.any(|m| idle || long(m)).then(|| Trouble {
        reason: Reason::MemberDown,
        message: format!("{}.", serve(view)),
    });
    let beside = members().find_map(|m| beside(m.pod));
    let credentials = unusable_credentials(view);
    failing
        .chain(down)
        .chain(credentials)
        .chain(beside)
        .collect()
}

/// Members that could not start with the users or authorities of clients, or their certificate for them, as they are now.
fn unusable_credentials(view: &View<'_>) -> Option<Trouble> {
    let said = |m: &Member<'_>| match &m.pod.credentials {
        Credentials::Unusable(why) => Some((m.pod.name.clone(), why.clone())),
        Credentials::Current | Credentials::Outdated => None,
    };
    let (pod, why) = view.members.values().find_map(said)?;
    Some(Trouble {
        reason: Reason::CredentialsUnusable,
        message: format!(
            "Pod {pod} says: {} Members that run serve on with what they started with, and a member that restarts does \
             not come up. Correct the Secret or the ConfigMap that the spec names.",
            sentence(&why)
        ),
    })
}

/// A text with a full stop at its end.
fn sentence(text: &str) -> String {
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{text}{end}")
}

/// A container that fails beside the server of this pod.
pub(crate) fn beside(pod: &PodObservation) -> Option<Trouble> {
    let container = pod.failing_container.as_ref()?;
    let said = if container.message.is_empty() {
        String::new()
    } else {
        format!(" ({})", container.message)
    };
    Some(Trouble {
        reason: Reason::ContainerFailing,
        message: format!(
            "Container {} of pod {} does not run: {}{said}. The server does not depend on it, but until \
             it runs the pod is not ready, and Services send no clients to it.",
            container.name, pod.name, container.reason
        ),
    })
}
