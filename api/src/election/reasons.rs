//! The conditions of a `LeaderElection` and their reasons.

use schemars::JsonSchema;

use crate::vocabulary::vocabulary;

vocabulary! {
    /// The types of conditions that a `LeaderElection` carries.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
    pub enum ConditionType {
        /// The status says what is in ZooKeeper, and the projections, if there are any, say the same.
        Ready,
        /// The mirror sees the election and follows every change.
        Synced,
        /// Somebody leads, and acknowledged it where the spec asks for that.
        LeaderElected,
        /// Nothing about the znodes of the election looks wrong.
        QueueHealthy,
        /// The dialect was detected. Only with the dialect `Auto`.
        DialectDetected,
        /// The leader's pod is known. Only with a projection that has to know it.
        LeaderBound,
        /// The projections say what the status says. Only with projections.
        Projected,
        /// Every pod of the workload has its newest revision. Only with a rollout.
        RolledOut,
        /// The leader that was asked to hand over does not lead any more. Only where a handover was asked for.
        HandedOver,
        /// No pod but the leader's says that it leads. Only where pods are asked.
        SoleLeader,
        /// Candidates of the side that shall lead may, and those of the other side may not. Only with a bridge.
        Bridged,
    }
}

vocabulary! {
    /// Why a condition of a `LeaderElection` is as it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
    pub enum Reason {
        /// `Ready`: the status, and all that it is projected to, is current.
        Current,
        /// `Ready`: a projection does not say what the status says.
        NotProjected,
        /// `Synced`: watches are set and the last read succeeded.
        Watching,
        /// `Synced`: there is no ensemble of that name, or it is in another namespace and does not admit elections of this one.
        EnsembleNotFound,
        /// `Synced`: the ensemble exists but no session could be opened yet.
        EnsembleNotReady,
        /// `Synced`: the administrator did not allow the operator to connect to a host of the connection.
        ConnectionNotAllowed,
        /// `Synced`: credentials would go over a connection that is not encrypted.
        CredentialsWithoutTls,
        /// `Synced`: no server of a connection opens a session.
        Unreachable,
        /// `Synced`: the connection is lost; the session may still live.
        Disconnected,
        /// `Synced`: the session is gone.
        SessionExpired,
        /// `Synced`: ZooKeeper does not accept the operator's credentials.
        AuthenticationFailed,
        /// `Synced`: there is no Secret of that name with the keys that are needed and, for a connection, with an
        /// annotation that permits its hosts.
        SecretNotFound,
        /// `Synced`: the operator may not read a Secret that the spec names.
        SecretForbidden,
        /// `Synced`: a Secret that the spec names could not be read for another cause.
        SecretUnreadable,
        /// `Synced`: a key of a Secret that the spec names holds something that cannot be used.
        SecretInvalid,
        /// `Synced`: the path may not be read.
        NoAuth,
        /// `Synced`: a read failed for another cause.
        ReadFailed,
        /// `Synced`: the spec cannot be followed.
        InvalidSpec,

        /// `LeaderElected`: there is a leader.
        Elected,
        /// `LeaderElected`: there is a leader, but its acknowledgement is missing, or it is not active yet by Hadoop's
        /// breadcrumb.
        AwaitingAcknowledgement,
        /// `LeaderElected`: there are candidates, but nobody is registered as the leader.
        AwaitingRegistration,
        /// `LeaderElected`: there are candidates, but the data of none says that it leads.
        NotActive,
        /// `LeaderElected`: several clients lead together.
        MultiLeader,
        /// `LeaderElected`: too many candidates, or hidden ones, to know which is the first.
        Undecidable,
        /// `LeaderElected`: the dialect is not known yet.
        DialectUnknown,
        /// `LeaderElected`: the path does not exist.
        NoElection,
        /// `LeaderElected`: the path exists and has no children.
        NoCandidates,
        /// `LeaderElected`: the path has children, but none is a candidate in this dialect.
        NoMatchingChildren,
        /// All but `Synced`: the mirror cannot see.
        NotObserved,

        /// `QueueHealthy`: nothing to remark.
        Orderly,
        /// `QueueHealthy`: the leader's fencing token is smaller than one seen before.
        FencingTokenRegressed,
        /// `QueueHealthy`: the leader changes again and again.
        Flapping,
        /// `QueueHealthy`: the leader's node does not go away with its creator.
        NonEphemeral,
        /// `QueueHealthy`: one session, one id or one identity holds several nodes.
        DuplicateCandidate,
        /// `QueueHealthy`: the leader by the recipe's rule is not the candidate that came first.
        OrderAnomaly,
        /// `QueueHealthy`: the sequence numbers are about to overflow, or have.
        SequenceOverflow,
        /// `QueueHealthy`: candidates whose nodes may not be read.
        Unreadable,

        /// `DialectDetected`: one dialect fits.
        Detected,
        /// `DialectDetected`: nothing was found that looks like a candidate of a known dialect.
        NotDetected,
        /// `DialectDetected`: children of several dialects are there.
        Ambiguous,

        /// `LeaderBound`: one pod fits.
        Bound,
        /// `LeaderBound`: no candidate leads.
        NoLeader,
        /// `LeaderBound`: no pod fits.
        PodNotFound,
        /// `LeaderBound`: several pods fit.
        PodAmbiguous,
        /// `LeaderBound`: `podBinding` cannot be used.
        PatternInvalid,
        /// `LeaderBound` and `Projected`: no selector says which pods a Service or labels may be for.
        SelectorRequired,
        /// `LeaderBound`, `Projected` and `SoleLeader`: another candidate leads, or nobody, since a moment ago, and these are not
        /// about it yet.
        Following,
        /// `Projected`: everything is as it should be.
        UpToDate,
        /// `LeaderBound` and `Projected`: the operator may not do it.
        Forbidden,
        /// `Projected`: an object of that name belongs to somebody else.
        NameTaken,
        /// `Projected`: somebody else sets the label.
        LabelTaken,
        /// `Projected`: the administrator did not allow the operator to set labels with this key.
        LabelNotAllowed,
        /// `Projected`: no container of the leader's pod names the port that the Service is to reach.
        PortNotFound,
        /// `Projected`: the API server does not accept an object.
        Refused,
        /// `Projected` and `RolledOut`: the API server does not answer as it should.
        WriteFailed,

        /// `RolledOut`: every pod has the newest revision.
        Replaced,
        /// `RolledOut`: pods of an older revision are replaced, the followers first.
        Replacing,
        /// `RolledOut`: it is not known which pod leads, so none is evicted.
        LeaderUnknown,
        /// `RolledOut`: the API server refuses to evict a pod, as a disruption budget makes it.
        EvictionRefused,
        /// `RolledOut`: the workload does not exist, or replaces its pods itself.
        WorkloadUnusable,
        /// `RolledOut`: the operator may not read the workload, or evict its pods.
        RolloutForbidden,

        /// `HandedOver`: the leader that was asked does not lead any more.
        HandedOver,
        /// `HandedOver`: the leader is asked, and still leads.
        HandingOver,
        /// `HandedOver`: the leader could not be asked, or still led after the time of the spec.
        HandoverFailed,
        /// `HandedOver`: the administrator did not allow the port of `spec.handover`, or its `onCordon`.
        HandoverNotAllowed,
        /// `HandedOver`: the annotation does not hold this leader's fencing token, or the leader's pod cannot be asked.
        HandoverUnusable,

        /// `SoleLeader`: no other pod says that it leads.
        NobodyElse,
        /// `SoleLeader`: a pod says that it leads, and another one leads by the znodes, or nobody.
        RivalLeader,
        /// `SoleLeader`: a pod does not answer, or the leader's pod is not known.
        NoAnswer,
        /// `SoleLeader`: the administrator did not allow the port of `spec.leadershipCheck`.
        CheckNotAllowed,

        /// `Bridged`: candidates in ZooKeeper lead; the bridge holds the Lease.
        ZooKeeperLeads,
        /// `Bridged`: candidates at the Lease lead; the bridge's znode is before all others.
        KubernetesLeads,
        /// `Bridged`: the bridge changes the locks that it holds.
        Crossing,
        /// `Bridged`: candidates in ZooKeeper are before the bridge's znode, so it keeps the Lease.
        CandidatesAhead,
        /// `Bridged`: a candidate holds the Lease, so the bridge keeps its znode.
        LeaseHeld,
        /// `Bridged`: the bridge holds neither lock.
        TwoMayLead,
        /// `Bridged`: the locks cannot be read or written.
        BridgeFailed,
        /// `Bridged`: the administrator did not allow bridges.
        BridgeNotAllowed,
    }
}

impl Reason {
    /// What happens next, as a sentence to put after what is the case.
    pub fn outlook(self) -> &'static str {
        match self {
            Self::Current => "The status shows every change.",
            Self::NotProjected => "The condition Projected says why, and what happens next.",
            Self::Watching => "Every change wakes the mirror.",
            Self::EnsembleNotFound => "The mirror starts when there is one.",
            Self::EnsembleNotReady => {
                "The mirror keeps trying and starts when a member answers; the ensemble's own \
                 status says what it waits for."
            }
            Self::ConnectionNotAllowed => {
                "The mirror does not connect, and reads no Secret, until they are allowed: ask the administrator of the operator to add them to connections.allowedHosts of its chart."
            }
            Self::CredentialsWithoutTls => {
                "Nothing is sent, and no Secret is read: set spec.connection.tls with the ports for TLS, or spec.tls.clients of the ensemble, or take spec.authentication out."
            }
            Self::Unreachable => {
                "The mirror keeps trying and starts when a server answers; compare spec.connection with the \
                 servers' settings, or ask the administrator of the operator, whose log says what goes wrong."
            }
            Self::Disconnected => {
                "The mirror reconnects by itself and then reads everything again; until then the \
                 last known state stands unconfirmed."
            }
            Self::SessionExpired => {
                "The mirror opens a new session and then reads everything again; until then the \
                 last known state stands unconfirmed."
            }
            Self::AuthenticationFailed => {
                "The mirror tries again; it succeeds when the ensemble accepts the credentials."
            }
            Self::SecretNotFound => "The mirror tries again, and starts when there is.",
            Self::SecretForbidden => "The mirror tries again, and starts when it may.",
            Self::SecretUnreadable => "The mirror tries again.",
            Self::SecretInvalid => "The mirror reads it again, and starts when it is corrected.",
            Self::NoAuth => {
                "The mirror tries again several times a minute; it recovers when the ACL grants \
                 READ on the path."
            }
            Self::ReadFailed => "The mirror tries again, more slowly the longer it fails.",
            Self::InvalidSpec => "The mirror starts when the spec is corrected.",
            Self::Elected => "If its node goes, the next candidate leads.",
            Self::AwaitingAcknowledgement => {
                "LeaderElected becomes True when the leader has acknowledged."
            }
            Self::AwaitingRegistration => {
                "LeaderElected becomes True when a leader has registered there."
            }
            Self::NotActive => "LeaderElected becomes True when the data says who leads.",
            Self::MultiLeader => {
                "No leader is shown; one is when a client holds the election alone."
            }
            Self::Undecidable => {
                "The leader is shown when every candidate can be read and there are at most 1000."
            }
            Self::DialectUnknown => "It is decided when DialectDetected is True.",
            Self::NoElection => "The mirror notices when an application creates it.",
            Self::NoCandidates => "The mirror notices when the first candidate comes.",
            Self::NoMatchingChildren => {
                "The mirror notices when a candidate comes; if there should be one now, compare \
                 spec.dialect with the names of the children."
            }
            Self::NotObserved => "It is known again when Synced is True again.",
            Self::Orderly => "",
            Self::FencingTokenRegressed => {
                "Consumers that remember the larger token refuse this leader. It happens when an \
                 ensemble was rebuilt or restored from a backup: reset the consumers, then delete \
                 and create this object."
            }
            Self::Flapping => {
                "Further changes are shown later the longer it goes on, after four seconds at most, until one leader stays."
            }
            Self::NonEphemeral => {
                "When its creator dies, no other client can lead until someone deletes the node."
            }
            Self::DuplicateCandidate => {
                "One of them may be an orphan of a create whose reply was lost; the election hangs \
                 behind it until that session ends or the node is deleted."
            }
            Self::OrderAnomaly => {
                "Fencing tokens may decrease at the next change of the leader; the clients or the \
                 sequence numbers deserve a look."
            }
            Self::SequenceOverflow => {
                "After 2147483647 order is no longer certain: delete the parent while no \
                 candidate leads, and the numbers start again at 0."
            }
            Self::Unreadable => {
                "Such candidates are shown by the names of their nodes, and a leader among them has \
                 no fencing token, until the ACL grants READ."
            }
            Self::Detected => "It stands until the spec changes.",
            Self::NotDetected => {
                "The mirror looks again at every change; name the dialect in spec.dialect if it \
                 is none of those that are detected."
            }
            Self::Ambiguous => "Name the dialect in spec.dialect.",
            Self::Bound => "If the leader changes, so does the pod.",
            Self::NoLeader => "It is looked for when there is a leader.",
            Self::PodNotFound => {
                "Every change of a pod is looked at; if there should be one now, say with spec.podBinding.identityPattern how the identity names its pod."
            }
            Self::PodAmbiguous => {
                "None of them is taken; say with spec.podBinding.selector or spec.podBinding.identityPattern which is meant."
            }
            Self::PatternInvalid => "Correct spec.podBinding.",
            Self::SelectorRequired => {
                "No pod is labelled and the Service has no address until spec.podBinding.selector names at least one label of the candidates' pods."
            }
            Self::Following => "The projections follow at once.",
            Self::UpToDate => "Every change of the leader changes them.",
            Self::Forbidden => {
                "Switch on rbac.projections in the operator's Helm chart, or grant the rights that the chart would; it is tried again twice a minute."
            }
            Self::NameTaken => {
                "It is not touched: choose another name in spec.projections, or delete it; it is tried again twice a minute."
            }
            Self::LabelTaken => {
                "It is not touched: choose another key in spec.projections.podLabels, or take the label out of the pod; it is tried again twice a minute."
            }
            Self::LabelNotAllowed => {
                "No pod is labelled: use the default key, or ask the administrator of the operator to add this one to projections.labelKeys of its chart."
            }
            Self::PortNotFound => {
                "The Service has its other ports only, until a candidate leads whose pod names the port."
            }
            Self::Refused => "It is tried again, and when the spec changes.",
            Self::WriteFailed => "It is tried again, more slowly the longer it fails.",
            Self::Replaced => "A change of the workload begins the next rollout.",
            Self::Replacing => {
                "The next one is evicted when all others are ready and candidates again, and the leader's pod is the last one. If a pod of the newest revision does not get ready, no other is replaced: correct the workload, or undo its change."
            }
            Self::LeaderUnknown => {
                "No pod is evicted until that is known, or until spec.projections.rollout.goOnAfterSeconds are over."
            }
            Self::EvictionRefused => "It is tried again every few seconds.",
            Self::WorkloadUnusable => {
                "No pod is evicted: name a StatefulSet or DaemonSet whose spec.updateStrategy.type is OnDelete."
            }
            Self::HandedOver => "Take the annotation away, or leave it: it asks no other leader.",
            Self::HandingOver => {
                "Another leader is waited for until spec.handover.timeoutSeconds are over; a leader that did not agree is asked again every few seconds."
            }
            Self::HandoverFailed => {
                "It is asked no more: look at the application's log, and restart its pod if it must not lead."
            }
            Self::HandoverNotAllowed => {
                "The leader is not asked: ask the administrator of the operator to allow it, with handover.ports or handover.onCordon of its chart."
            }
            Self::HandoverUnusable => {
                "The leader is not asked: set the annotation to status.leader.fencingToken, as kubectl bellwether handover does, and spec.handover to a port of the pod."
            }
            Self::NobodyElse => "Every pod is asked again and again.",
            Self::RivalLeader => {
                "It is told until that pod says otherwise or is gone: restart it if it does not end, and find out what it wrote where resources do not check fencing tokens."
            }
            Self::NoAnswer => "Every pod is asked again and again.",
            Self::CheckNotAllowed => {
                "No pod is asked: ask the administrator of the operator to allow the port, with leadershipChecks.ports of its chart."
            }
            Self::ZooKeeperLeads | Self::KubernetesLeads => {
                "It stays so until spec.bridge.side changes."
            }
            Self::Crossing => "The next look is in a moment.",
            Self::CandidatesAhead => {
                "It gives the Lease up when they are gone: stop those candidates, or replace their pods by ones that elect by the Lease."
            }
            Self::LeaseHeld => {
                "The bridge takes it, and then gives its znode up, when that holder gives it up or does not renew it: stop those candidates, or replace their pods by ones that elect in ZooKeeper."
            }
            Self::TwoMayLead => {
                "Candidates of both sides may lead: stop those that shall not. The bridge takes the Lease, or the first place in ZooKeeper, as soon as it is free."
            }
            Self::BridgeFailed => {
                "What the bridge holds it keeps, and it tries again every few seconds, or when the spec is corrected."
            }
            Self::BridgeNotAllowed => {
                "Neither the Lease nor ZooKeeper is written: ask the administrator of the operator to allow it, with bridges.enabled of its chart."
            }
            Self::RolloutForbidden => {
                "No pod is evicted: switch on rbac.rollouts in the operator's Helm chart, or grant the rights that the chart would; it is tried again twice a minute."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_are_distinct_words_that_the_api_accepts() {
        let words: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for word in words {
            assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
            assert!(word.starts_with(|c: char| c.is_ascii_uppercase()), "{word}");
        }
    }

    #[test]
    fn every_reason_but_the_good_one_says_what_happens_next() {
        for reason in Reason::ALL {
            let outlook = reason.outlook();
            assert!(
                outlook.ends_with('.') || reason == Reason::Orderly,
                "{reason:?}: {outlook}"
            );
        }
    }
}
