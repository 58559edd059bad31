//! What follows from the reasons of a `LeaderElection`'s conditions.

use super::Reason;
use crate::guidance::{Guidance, NOTHING};

impl Reason {
    /// What the operator does next, and what a person does.
    pub fn guidance(self) -> Guidance {
        let guidance = Guidance::new(self.outlook(), self.person());
        match self {
            Self::EnsembleNotReady => guidance.more("bellwetherensemblewithoutleader"),
            Self::Forbidden | Self::WriteFailed => guidance.more("bellwetherprojectionwritesfail"),
            Self::RivalLeader => guidance.more("bellwetherrivalleader"),
            _ => guidance,
        }
    }

    fn person(self) -> &'static str {
        match self {
            Self::Current
            | Self::Watching
            | Self::Elected
            | Self::Orderly
            | Self::Detected
            | Self::Bound
            | Self::Following
            | Self::UpToDate
            | Self::Replaced
            | Self::HandedOver
            | Self::NobodyElse
            | Self::ZooKeeperLeads
            | Self::KubernetesLeads
            | Self::Crossing => NOTHING,
            Self::NotProjected => "See the condition `Projected`.",
            Self::EnsembleNotFound => {
                "Correct `spec.ensembleRef`, or create the ensemble. An ensemble in another namespace has to name this one in `spec.elections.namespaces`."
            }
            Self::EnsembleNotReady => "See the conditions of the ensemble.",
            Self::ConnectionNotAllowed => {
                "Compare the hosts of `spec.connection` with those that are meant; then ask the administrator to add them to `connections.allowedHosts` of the operator's chart."
            }
            Self::CredentialsWithoutTls => {
                "Set `spec.connection.tls` and the ports for TLS in `spec.connection.connectString`. Of an ensemble in another namespace, its owner sets `spec.tls.clients`."
            }
            Self::Unreachable => {
                "Check `spec.connection` and the network between the operator and those servers (`networkPolicy.extraEgress` of the chart). The message is the same whatever goes wrong; the operator's log says what it is."
            }
            Self::Disconnected | Self::SessionExpired => {
                "If it lasts: see whether the ensemble has a leader, and whether the operator reaches it."
            }
            Self::AuthenticationFailed => "Correct the Secret that `spec.authentication` names.",
            Self::SecretNotFound => {
                "Create the Secret that the message names with the keys that it names. For a `connection`, annotate it with `zookeeper.bellwether.dev/hosts` and every host of the connection."
            }
            Self::SecretForbidden => {
                "Switch on `rbac.secrets` in the operator's chart, or grant `get` on that Secret."
            }
            Self::SecretUnreadable => "See what the API server says, in the message.",
            Self::SecretInvalid => "Correct the key of the Secret that the message names.",
            Self::NoAuth => {
                "Grant READ on the path in its ACL: to the mirror, `x509:CN=mirror.zookeeper.bellwether.dev` where members ask clients for certificates, or to the user of `spec.authentication`, which gives the operator credentials."
            }
            Self::ReadFailed => "See the message; if it lasts, the ensemble's own status.",
            Self::InvalidSpec => "Correct what the message names.",
            Self::AwaitingAcknowledgement => {
                "If it lasts, the leader hangs before it acknowledged: see its log."
            }
            Self::AwaitingRegistration | Self::NotActive => {
                "If it lasts, see the logs of the candidates."
            }
            Self::MultiLeader => "Nothing, if the recipe lets several lead, as a read lock does.",
            Self::Undecidable => "Grant READ on the candidates, or make them fewer than 1000.",
            Self::DialectUnknown => "See the condition `DialectDetected`.",
            Self::NoElection | Self::NoCandidates => {
                "Nothing, if the application does not run; otherwise compare `spec.path` with its configuration."
            }
            Self::NoMatchingChildren => "Compare `spec.dialect` with the names of the children.",
            Self::NotObserved => "See the condition `Synced`.",
            Self::FencingTokenRegressed => {
                "Find out whether the ensemble was rebuilt or restored; reset the consumers of the token, then create this object anew."
            }
            Self::Flapping => {
                "Find out why the leaders go: sessions that expire, for example over long pauses of the garbage collection, or candidates that fail when they begin to lead."
            }
            Self::NonEphemeral => "Delete the node if its creator is dead.",
            Self::DuplicateCandidate => {
                "Find the orphan by its session in `status.candidates`, and restart that client or delete the node."
            }
            Self::OrderAnomaly => "Look for clients that write sequence numbers of their own.",
            Self::SequenceOverflow => "Delete the parent while no candidate leads.",
            Self::Unreadable => "Grant READ on the candidates' nodes.",
            Self::NotDetected | Self::Ambiguous => "Name the dialect in `spec.dialect.type`.",
            Self::NoLeader => "Nothing; see the condition `LeaderElected`.",
            Self::PodNotFound | Self::PodAmbiguous | Self::PatternInvalid => {
                "Say with `spec.podBinding` which pod is whose."
            }
            Self::SelectorRequired => {
                "Set `spec.podBinding.selector` to labels that the candidates' pods have."
            }
            Self::LabelNotAllowed => {
                "Take `spec.projections.podLabels.key` out, or ask the administrator to add it to `projections.labelKeys` of the operator's chart."
            }
            Self::PortNotFound => {
                "Name the port in `ports` of a container of the candidates' pods, or give `targetPort` as a number."
            }
            Self::Forbidden => "Switch on `rbac.projections` in the operator's chart.",
            Self::NameTaken => {
                "Choose another name in `spec.projections`, or delete the object that has it."
            }
            Self::LabelTaken => {
                "Choose another key in `spec.projections.podLabels`, or take the label off the pod."
            }
            Self::Refused => "See what the API server says, in the message.",
            Self::WriteFailed => "If it lasts, see the API server's health.",
            Self::Replacing => {
                "If it lasts: see why the pods that the message names are not ready, or do not stand for the election."
            }
            Self::LeaderUnknown => {
                "See the conditions `Synced` and `LeaderBound`; to have the pods replaced nonetheless, delete them, or set `goOnAfterSeconds`."
            }
            Self::EvictionRefused => {
                "See the disruption budget that the message names; it must let one pod go."
            }
            Self::WorkloadUnusable => {
                "Correct `spec.projections.rollout.workload`, or the workload."
            }
            Self::HandingOver => "If it lasts: see the application's log.",
            Self::HandoverFailed => {
                "See what the application says of the request; restart its pod if it must not lead."
            }
            Self::HandoverNotAllowed => {
                "Add the port to `handover.ports` of the operator's chart, or switch on `handover.onCordon`."
            }
            Self::HandoverUnusable => {
                "Use `kubectl bellwether handover NAME`, and see the condition `LeaderBound`."
            }
            Self::RivalLeader => {
                "Restart the pod that claims the lead without its znode, and find out what it wrote since another one leads."
            }
            Self::NoAnswer => {
                "If it lasts: compare `spec.leadershipCheck.http` with the application, and see the condition `LeaderBound`."
            }
            Self::CheckNotAllowed => {
                "Add the port to `leadershipChecks.ports` of the operator's chart."
            }
            Self::CandidatesAhead | Self::LeaseHeld => {
                "Stop the candidates of the side that shall not lead any more."
            }
            Self::TwoMayLead => {
                "Stop the candidates of one side at once, and find out what both of them wrote."
            }
            Self::BridgeFailed => {
                "See the message: the identity of the mirror needs READ, CREATE and DELETE on the path and WRITE below."
            }
            Self::BridgeNotAllowed => "Switch on `bridges.enabled` in the operator's chart.",
            Self::RolloutForbidden => "Switch on `rbac.rollouts` in the operator's chart.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::ConditionType;
    use crate::guidance::described;

    #[test]
    fn no_reason_and_no_type_is_missing_in_the_lists() {
        let words = |described: Vec<(String, String)>| -> Vec<String> {
            assert!(described.iter().all(|(_, text)| !text.is_empty()));
            described.into_iter().map(|(word, _)| word).collect()
        };
        assert_eq!(
            words(described::<Reason>()),
            Reason::ALL.map(Reason::as_str)
        );
        let types = ConditionType::ALL.map(ConditionType::as_str);
        assert_eq!(words(described::<ConditionType>()), types);
    }
}
