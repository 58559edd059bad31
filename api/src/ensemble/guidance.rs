//! What follows from the reasons of an ensemble's conditions.

use super::status::Reason;
use crate::guidance::{Guidance, NOTHING};

impl Reason {
    /// What the operator does next, and what a person does.
    pub fn guidance(self) -> Guidance {
        match self {
            Self::AllMembersServing => {
                Guidance::new("It looks again when something changes.", NOTHING)
            }
            Self::QuorumServing => Guidance::new(
                "One member after the other may be restarted, if the spec asks for it.",
                NOTHING,
            ),
            Self::NoQuorum => Guidance::new(
                "It restarts no member that might still serve, and begins no step of a size change. The members elect a leader by themselves when a majority of them is back.",
                "Right after creation, or for a second in a change of the leader: wait. Otherwise find out why the members that the message of `Ready` names are away. Delete no volumes.",
            )
            .more("quorum-is-lost"),
            Self::Starting => Guidance::new(
                "It waits for a majority to be up; then the members elect a leader.",
                "Wait. If it takes longer than the image takes to pull, see the events of the pods.",
            ),
            Self::Growing => Guidance::new(
                "It adds one member, brings the new server list to all, the leader last, and goes on with the next one.",
                "Nothing. The message says who is waited for, and why.",
            ),
            Self::Shrinking => Guidance::new(
                "It brings a server list without one member to all, the leader last; then that member leaves, and the next step begins.",
                "Nothing. The message says who is waited for, and why.",
            ),
            Self::Rolling => Guidance::new(
                "It restarts observers and followers one at a time, each when the one before serves again, and the leader last.",
                "Nothing. The message says who is waited for, and why.",
            ),
            Self::MemberDown => Guidance::new(
                "It changes nothing that would cost another vote; the member is back in its place when its pod is.",
                "After a minute that is a warning (`Degraded`): see `kubectl describe pod` and the logs of the member that the message names.",
            )
            .more("bellwetherensemblememberaway"),
            Self::ReplacementWaits => Guidance::new(
                "It deletes no volume until the others are known to have every acknowledged write, and the member is known not to run.",
                "Correct the annotation, or what the message names.",
            )
            .more("a-members-node-or-disk-is-gone-for-good"),
            Self::MembersUnreachable => Guidance::new(
                "It decides nothing on members that it cannot ask: none of them is restarted or removed, and no step of a size change begins.",
                "Let the operator's pods reach the port 8078 of the members (2181 and 8079 in pods that an earlier version of the operator made): a NetworkPolicy or a service mesh between the two namespaces is the usual cause. The message says which members do not answer, and how.",
            ),
            Self::PodFailing => Guidance::new(
                "No other member restarts. When the spec is changed it replaces the failing pod at once.",
                "Correct or revert what the message names: image, setting, resources, or the cluster's lack of them. No pod has to be deleted by hand.",
            )
            .more("a-bad-image-or-setting"),
            Self::ContainerFailing => Guidance::new(
                "The member keeps its vote and counts as serving if its server says so. A roll stops if the pod already has the new template.",
                "See `kubectl describe pod` and the logs of the container that the message names. Until it runs the pod is not ready, and Services send no clients to it.",
            )
            .more("a-container-beside-zookeepers-fails"),
            Self::CredentialsUnusable => Guidance::new(
                "It restarts no member for them. Members that run serve on with the users that they started with; one that restarts does not come up.",
                "Correct the Secret or the ConfigMap that the message names. The members take it up by themselves, one after the other.",
            ),
            Self::Stable => Guidance::new("There is nothing to carry out.", NOTHING),
            Self::Paused => Guidance::new(
                "It writes the status and changes nothing.",
                "Set `paused: false`, or `kubectl bellwether resume NAME`, when it may go on.",
            ),
            Self::InvalidSpec => Guidance::new(
                "It leaves what runs as it is, and looks again when the spec changes.",
                "Correct the fields that the message names. `kubectl bellwether lint` finds the same before it is applied.",
            )
            .more("bellwetherensemblenotready"),
            Self::TemplateEdited => Guidance::new(
                "It puts the pod template back at once, and restarts no member into the other one.",
                "Change the `ZooKeeperEnsemble` instead of the StatefulSet. If it is said again and again, another program writes to the StatefulSet: `kubectl get statefulset NAME --show-managed-fields -o yaml` names it.",
            ),
            Self::UnknownState => Guidance::new(
                "It touches nothing, and looks again.",
                "The message names what runs and was not made by this operator, or was changed by hand: put it back, or remove it.",
            ),
            Self::TwoLeaders => Guidance::new(
                "It restarts no member. A leader that was replaced notices within seconds.",
                "If it lasts, decide whose writes are kept, and give the others' members empty disks.",
            )
            .more("two-members-lead"),
            Self::VolumesLeftOver => Guidance::new(
                "It creates no member.",
                "Keep the claims of the last members and delete the others, or delete all of them to start with no data.",
            )
            .more("volumesleftover-volumes-are-in-the-way"),
            Self::VolumesLost => Guidance::new(
                "It creates no member, since those that are left might forget acknowledged writes.",
                "Restore the claims that the message names from a backup, or delete every claim to start with no data.",
            )
            .more("volumeslost-the-ensemble-is-to-be-created-and-a-majority-of-its-last-members-has-no-volume"),
            Self::DisksLost => Guidance::new(
                "It waits for a person: an empty member does not vote.",
                "Bring the lost volumes back, or accept the loss by the token that the message gives.",
            )
            .more("diskslost-a-majority-of-the-members-has-an-empty-disk"),
            Self::DataLossAccepted => Guidance::new(
                "It lets as many empty members vote as a majority needs, restarts them, and takes the permission back when the ensemble serves.",
                "Wait for a leader; then check what the applications have lost.",
            )
            .more("diskslost-a-majority-of-the-members-has-an-empty-disk"),
            Self::VolumeNearlyFull => Guidance::new(
                "Everything goes on; it looks again.",
                "Raise `spec.storage.size`, keep fewer snapshots, or store less.",
            )
            .more("volumenearlyfull-a-volume-is-80--full-or-more"),
            Self::CertificateExpiring => Guidance::new(
                "It tries again to write a new one. Everything goes on until the certificate ends; after that it cannot ask the members.",
                "Give the operator the rights to create and update Secrets and ConfigMaps there, or end the pause (`spec.paused`).",
            ),
            Self::VolumesGrowing => Guidance::new(
                "It waits for the storage driver; no member restarts for it.",
                NOTHING,
            ),
            Self::VolumeCannotGrow => Guidance::new(
                "Everything else goes on. It asks again when the StorageClass allows it.",
                "Set `allowVolumeExpansion: true` in the StorageClass if its driver can, or set the size back.",
            )
            .more("volumecannotgrow-the-storageclass-does-not-let-volumes-grow"),
            Self::VolumeCannotShrink => Guidance::new(
                "Everything else goes on; the claims stay as they are.",
                "Set `storage.size` to what the message says.",
            )
            .more("volumecannotshrink-claims-ask-for-more-than-storagesize"),
            Self::ApplyFailed => Guidance::new(
                "It tries again, more slowly the longer it fails.",
                "The message has the API server's answer: a quota, an admission webhook, a missing right, or an object of that name that is somebody else's.",
            )
            .more("bellwetherreconcilesfail"),
            Self::Healthy => Guidance::new("It looks again when something changes.", NOTHING),
            Self::NoKnownFlaw => Guidance::new("It keeps to this release.", NOTHING),
            Self::KnownFlaw => Guidance::new(
                "It keeps to this release; nothing is refused.",
                "Set `version` (or `image`) to the release that the message names. The members restart one after the other.",
            )
            .more("a-release-of-zookeeper-is-refused-or-not-recommended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ensemble::status::ConditionType;
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
