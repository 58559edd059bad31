//! An ensemble with its members, and who is waited for and why.

use bellwether_api::ZooKeeperEnsemble;
use bellwether_api::ensemble::MemberState;
use bellwether_api::ensemble::status::{MemberRole, MemberStatus, Phase};
use bellwether_ensemble::desired::stateful_set::CONTAINER;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;

use super::timeline::{Stage, Timeline};
use super::{ConditionView, Tone};

/// The facts about a member that are in its pod and not in the ensemble's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodFacts {
    /// Whether it passes its readiness probe.
    pub ready: bool,
    /// The image of its server.
    pub image: Option<String>,
}

impl PodFacts {
    /// What this pod says.
    pub(crate) fn of(pod: &Pod) -> Self {
        let conditions = pod
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions
            .filter(|c| c.type_ == "Ready")
            .any(|c| c.status == "True");
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let image = containers
            .filter(|c| c.name == CONTAINER)
            .find_map(|c| c.image.clone());
        Self { ready, image }
    }
}

/// An ensemble as people are shown it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EnsembleView {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// How many voters the spec asks for.
    pub size: i32,
    /// Serving voters of existing ones, such as `3/3`.
    pub ready: String,
    /// The ZooKeeper version or image that is wanted.
    pub version: String,
    /// What the operator is doing, in one word.
    pub phase: String,
    /// What the phase means.
    pub tone: Tone,
    /// What is the case and what happens next.
    pub message: String,
    /// The pod that leads.
    pub leader: Option<String>,
    /// The server ids that vote under the configuration that new pods get.
    pub voters: Vec<i32>,
    /// Serving observers of those that are wanted.
    pub observers: Option<String>,
    /// Every member, the voters first.
    pub members: Vec<MemberView>,
    /// Every condition.
    pub conditions: Vec<ConditionView>,
    /// The change that is under way.
    pub timeline: Option<Timeline>,
}

/// A member as people are shown it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberView {
    /// The pod.
    pub name: String,
    /// The number at the end of the pod's name.
    pub ordinal: String,
    /// Its role.
    pub role: String,
    /// What the role means.
    pub tone: Tone,
    /// The server id.
    pub id: i32,
    /// The epoch of the last transaction that it saw.
    pub epoch: Option<i64>,
    /// The last transaction that it saw, in hexadecimal.
    pub zxid: Option<String>,
    /// Whether its pod is ready; absent for who may not read pods.
    pub ready: Option<bool>,
    /// The image of its server, without the registry.
    pub image: Option<String>,
    /// The node that it runs on.
    pub node: Option<String>,
    /// What becomes of it.
    pub state: MemberState,
    /// The same in words.
    pub verdict: String,
    /// How far the change that is under way has come here.
    pub stage: Stage,
}

impl MemberView {
    fn of(member: &MemberStatus, pod: Option<&PodFacts>) -> Self {
        let image = pod.and_then(|pod| pod.image.as_deref());
        Self {
            name: member.name.clone(),
            ordinal: member
                .name
                .rsplit('-')
                .next()
                .unwrap_or_default()
                .to_owned(),
            role: member.role.to_string(),
            tone: match member.role {
                MemberRole::Leader | MemberRole::Follower | MemberRole::Observer => Tone::Good,
                MemberRole::Looking => Tone::Busy,
                MemberRole::Down => Tone::Bad,
            },
            id: member.server_id,
            epoch: member.epoch,
            zxid: member.zxid.clone(),
            ready: pod.map(|pod| pod.ready),
            image: image.map(|image| image.rsplit('/').next().unwrap_or(image).to_owned()),
            node: member.node.clone(),
            state: member.state,
            verdict: member.verdict.clone(),
            stage: Stage::of(member),
        }
    }
}

impl EnsembleView {
    /// An ensemble, with the facts from its pods.
    pub(crate) fn of<'p>(
        ensemble: &ZooKeeperEnsemble,
        pod: impl Fn(&str) -> Option<&'p PodFacts>,
    ) -> Self {
        let status = ensemble.status.clone().unwrap_or_default();
        let behind = status.observed_generation != ensemble.metadata.generation;
        let message = match (&status.message, behind) {
            (_, true) => {
                "The operator has not looked at the present spec yet; does it run?".to_owned()
            }
            (Some(message), _) => message.clone(),
            (None, _) => String::new(),
        };
        Self {
            namespace: ensemble.namespace().unwrap_or_default(),
            name: ensemble.name_any(),
            size: ensemble.spec.replicas,
            ready: status.ready.clone().unwrap_or_default(),
            version: status.version.clone().unwrap_or_default(),
            phase: status
                .phase
                .map_or_else(|| "Unknown".to_owned(), |phase| format!("{phase:?}")),
            tone: match status.phase {
                Some(Phase::Ready) => Tone::Good,
                Some(Phase::Blocked | Phase::Invalid) | None => Tone::Bad,
                Some(_) => Tone::Busy,
            },
            message,
            leader: status.leader.clone(),
            voters: status.voters.clone(),
            observers: status.observers.as_ref().map(|o| o.ready.clone()),
            members: status
                .members
                .iter()
                .map(|member| MemberView::of(member, pod(&member.name)))
                .collect(),
            conditions: status.conditions.iter().map(ConditionView::of).collect(),
            timeline: Timeline::of(ensemble),
        }
    }

    /// Whether a person should look. A change without problems is no reason, although `Ready` is False then.
    pub(crate) fn needs_attention(&self) -> bool {
        let wrong = |c: &ConditionView| c.tone == Tone::Bad && c.type_ != "Ready";
        self.tone == Tone::Bad || self.conditions.iter().any(wrong)
    }
}
