//! Labels and annotations on the objects that the operator owns.

use std::collections::BTreeMap;

/// `app.kubernetes.io/name`, the recommended label for the kind of application.
pub const NAME: &str = "app.kubernetes.io/name";
/// `app.kubernetes.io/instance`: the ensemble's name.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// `app.kubernetes.io/managed-by`: this operator.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// `app.kubernetes.io/component`: only observers carry it. The selector of the voters' StatefulSet is
/// older than observers, and immutable.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// The value of [`COMPONENT`] on observers.
pub const COMPONENT_OBSERVER: &str = "observer";
/// How the names of the operator's annotations begin.
pub const PREFIX: &str = "zookeeper.bellwether.dev/";
/// Pod annotation: the name of the configuration revision (a ConfigMap) that the pod runs.
pub const CONFIG_REVISION: &str = "zookeeper.bellwether.dev/config-revision";
/// Annotation of pods and of configuration revisions: the voters, as comma-separated server ids.
///
/// A pod's configuration never changes while it exists, so this tells which server list the pod
/// judges quorums by. On a volume claim it is the last list that was finished: every server of it
/// ran it and served.
pub const VOTERS: &str = "zookeeper.bellwether.dev/voters";
/// Where members change at run time: the version of the server list in [`VOTERS`], which is the zxid of the transaction that
/// made it, in hexadecimal digits; 0 before the ensemble has served for the first time. On a pod it is that of the list when
/// the pod was made: its server goes on with the files on its volume.
pub const LIST_VERSION: &str = "zookeeper.bellwether.dev/list-version";
/// Annotation of the pods of such an ensemble: a hash of their template without the server list, by which a pod that was made
/// before a change of that list is told from one that has to restart.
pub const TEMPLATE_HASH: &str = "zookeeper.bellwether.dev/template-hash";
/// Annotation of a volume claim: the server list of the step that has begun after the list in [`VOTERS`]
/// was finished. Writes may have been acknowledged under it. Absent while no step is under way.
pub const NEXT_VOTERS: &str = "zookeeper.bellwether.dev/next-voters";
/// Annotation on every applied object: a hash of what was applied.
pub const APPLIED_HASH: &str = "zookeeper.bellwether.dev/applied-hash";
/// StatefulSet annotation: a hash of what the user asked for, free of what an operator version adds.
pub const INPUTS_HASH: &str = "zookeeper.bellwether.dev/inputs-hash";
/// StatefulSet annotation: the operator version that rendered the pod template.
pub const RENDERED_BY: &str = "zookeeper.bellwether.dev/rendered-by";
/// StatefulSet annotation: the pod template as the operator wrote it, so that what somebody else changes in
/// it is seen by every operator version.
pub const TEMPLATE: &str = "zookeeper.bellwether.dev/template";
/// Pod annotation: how the server speaks to the others, `Accepted`, `Preferred` or `Required`. Pods whose servers speak
/// plaintext only have none.
pub const SERVER_TLS: &str = "zookeeper.bellwether.dev/server-tls";
/// Pod annotation: how clients connect, `Optional` or `Required`. Pods with no port for TLS have none.
pub const CLIENT_TLS: &str = "zookeeper.bellwether.dev/client-tls";
/// Pod annotation: the member program answers on the control port, in this version of the protocol. Pods that an
/// earlier operator version made have none.
pub const CONTROL: &str = "zookeeper.bellwether.dev/control";
/// ConfigMap annotation: the id of the authority that signed the certificate for clients.
pub const CLIENT_AUTHORITY: &str = "zookeeper.bellwether.dev/client-authority";
/// ConfigMap annotation: when the certificate of that authority ends.
pub const CLIENT_AUTHORITY_UNTIL: &str = "zookeeper.bellwether.dev/client-authority-until";
/// ConfigMap annotation: another authority that members trust while theirs is replaced: `next:ID`, the one that signs next,
/// or `last:ID`, the one that signed before.
pub const OTHER_AUTHORITY: &str = "zookeeper.bellwether.dev/other-authority";
/// ConfigMap annotation: the id of the operator's root key, from which the authorities follow.
pub const ROOT: &str = "zookeeper.bellwether.dev/root";
/// ConfigMap annotation: a hash of what members are given, to tell when they have taken it up.
pub const IDENTITY_GIVEN: &str = "zookeeper.bellwether.dev/identity-given";
/// Ensemble annotation: each new value asks for another authority of the members, without a restart.
pub const REPLACE_AUTHORITY: &str = "zookeeper.bellwether.dev/replace-authority";
/// ConfigMap annotation: the id of the authority that signed the members' certificate.
pub const AUTHORITY: &str = "zookeeper.bellwether.dev/authority";
/// ConfigMap annotation: when the members' certificate ends.
pub const IDENTITY_UNTIL: &str = "zookeeper.bellwether.dev/identity-until";
/// ConfigMap annotation: a hash of the names in the members' certificate.
pub const IDENTITY_NAMES: &str = "zookeeper.bellwether.dev/identity-names";
/// Ensemble annotation a user sets to ask for one restart of every member; the value is free, a
/// time by custom. It is read, never written, so GitOps tools may own it.
pub const RESTART_AT: &str = "zookeeper.bellwether.dev/restartedAt";
/// Ensemble annotation a user sets to go on although data is lost; the value is the token that the
/// status gives with the reason `DisksLost`, and means that loss only. It is read, never written.
pub const ACCEPT_DATA_LOSS: &str = "zookeeper.bellwether.dev/accept-data-loss";

/// Ensemble annotation a user sets to replace a member whose node or disk is gone for good: the name of its pod and the unique id of
/// its data volume's claim, as `main-1:UID`. It means that claim only. It is read, never written.
pub const REPLACE_MEMBER: &str = "zookeeper.bellwether.dev/replace-member";

/// Annotation of a Secret: the hosts that an election may show it to in `spec.connection`, separated by commas,
/// in the notation of the operator's `--allow-connection-host`. Its owner sets it; it is read, never written.
pub const SECRET_HOSTS: &str = "zookeeper.bellwether.dev/hosts";

/// Label on everything that an election is projected to, but pods: the uid of the `LeaderElection`.
pub const ELECTION_UID: &str = "zookeeper.bellwether.dev/election-uid";
/// Annotation on the Lease and the EndpointSlice of an election: the fencing token, in decimal, of the leader that they
/// show; absent if they show none.
pub const FENCING_TOKEN: &str = "zookeeper.bellwether.dev/fencing-token";

/// Annotation on an election: the fencing token of the leader that is to hand over, in decimal. People set it; the operator
/// reads it.
pub const HANDOVER: &str = "zookeeper.bellwether.dev/handover";

/// On the Service of an election: the keys of its annotations that the spec of the election asked for, with commas between
/// them. They are taken out when the spec does not ask for them any more.
pub const SERVICE_ANNOTATIONS: &str = "zookeeper.bellwether.dev/service-annotations";
/// Label on every pod that carries a label of a projected election, so that such pods are found.
pub const ROLE_LABELLED: &str = "zookeeper.bellwether.dev/role-labelled";
/// Prefix of the annotation on a labelled pod whose name is the uid of the `LeaderElection`, and
/// whose value is its name.
pub const LABELLED_BY: &str = "elections.zookeeper.bellwether.dev/";

/// The annotation of a pod that says how late a ReplicaSet deletes it when it has too many.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Prefix of the field manager that labels pods for one election; the election's uid follows. Each
/// election has its own, so that what one of them set can be taken back without touching the rest.
pub const ROLE_MANAGER: &str = "bellwether-election.";
/// `endpointslice.kubernetes.io/managed-by` on projected EndpointSlices.
pub const SLICE_MANAGED_BY_VALUE: &str = "leaderelections.zookeeper.bellwether.dev";

/// The value of [`NAME`] on everything that belongs to an ensemble.
pub const NAME_VALUE: &str = "zookeeper";
/// The value of [`MANAGED_BY`].
pub const MANAGED_BY_VALUE: &str = "bellwether";

/// The labels that select the objects of one ensemble. They are immutable: the StatefulSet's
/// selector is made of them.
pub fn selector(ensemble: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (NAME.to_owned(), NAME_VALUE.to_owned()),
        (INSTANCE.to_owned(), ensemble.to_owned()),
        (MANAGED_BY.to_owned(), MANAGED_BY_VALUE.to_owned()),
    ])
}

/// The pods of one ensemble's voters as a selector string, as the scale subresource takes it: it knows
/// no `!=`.
pub fn voters_selector_string(ensemble: &str) -> String {
    format!(
        "{},{COMPONENT} notin ({COMPONENT_OBSERVER})",
        selector_string(ensemble)
    )
}

/// The same labels as a selector string, as `kubectl get -l` takes it.
pub fn selector_string(ensemble: &str) -> String {
    selector(ensemble)
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect::<Vec<_>>()
        .join(",")
}
