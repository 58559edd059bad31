//! From what a user wrote to what the operator works with. The same rules as in the CRD, checked
//! again, because a CRD may be old, edited or stored before a rule existed; and those of the API server
//! for the objects that are made of a spec, and of ZooKeeper for its settings.
//!
//! An ensemble whose spec breaks a rule is left as it is: nothing is applied and no member restarts. That also
//! holds for an ensemble that an older version of the operator accepted.

mod affinity;
mod authentication;
mod config;
mod image;
mod names;
mod network;
mod pod;
mod resources;
mod storage;

use std::collections::BTreeMap;

use crate::ids::ServerId;
use bellwether_api::ensemble::{
    Authentication, DEFAULT_IMAGE_REPOSITORY, ImagePullPolicy, LEAST_REPLACED_AFTER,
    MAX_NAME_LENGTH, MAX_OBSERVERS, MAX_REPLICAS, MOST_REPLACED_AFTER, MembershipChange, Network,
    Pod, ReclaimPolicy, Storage, Tls, versions,
};
use bellwether_api::{ZooKeeperEnsemble, ZooKeeperEnsembleSpec, labels};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// What the operator itself contributes to an ensemble.
#[derive(Clone, Debug)]
pub struct Context {
    /// The image with `bellwether-member` in it.
    pub member_image: String,
    /// The DNS domain of the cluster.
    pub cluster_domain: String,
    /// The operator's version.
    pub version: String,
    /// The operator's own pods, if it runs in some.
    pub operator_pods: Option<OperatorPods>,
    /// Whether the operator may ask cert-manager for certificates.
    pub cert_manager: bool,
    /// The images of ensembles that name none.
    pub catalogue: Catalogue,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            member_image: "bellwether".to_owned(),
            cluster_domain: "cluster.local".to_owned(),
            version: String::new(),
            operator_pods: None,
            cert_manager: false,
            catalogue: Catalogue::default(),
        }
    }
}

/// Where the images of ensembles come from that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// Their repository.
    pub repository: String,
    /// The digest of each version's image. If there is any, ensembles use these versions only.
    pub digests: BTreeMap<String, String>,
}

impl Default for Catalogue {
    /// The official image, by its tags.
    fn default() -> Self {
        Self {
            repository: DEFAULT_IMAGE_REPOSITORY.to_owned(),
            digests: BTreeMap::new(),
        }
    }
}

/// The operator's pods, as the NetworkPolicies of ensembles let them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorPods {
    /// Their namespace.
    pub namespace: String,
    /// Labels that all of them carry and no other pod of the namespace; at least one.
    pub labels: BTreeMap<String, String>,
}

/// A spec that keeps every rule, with every default in place.
#[derive(Clone, Debug)]
pub struct ValidEnsemble {
    /// The ensemble's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its unique id; owner references carry it.
    pub uid: String,
    /// The generation of the spec, which the API server counts.
    pub generation: Option<i64>,
    /// How many voters the spec asks for: an odd number.
    pub size: u16,
    /// How the server list changes. One that changes at run time once does so for ever: see
    /// [`ValidEnsemble::changes_at_run_time`].
    pub membership_change: MembershipChange,
    /// How many observers the spec asks for.
    pub observers: u16,
    /// Added to every server id.
    pub id_offset: u16,
    /// The whole image reference.
    pub image: String,
    /// The version in the status: that of the spec or the default, or the image if the spec names only an
    /// image.
    pub version: String,
    /// The ZooKeeper release, if the version or a tag like the official image's contains it.
    pub release: Option<String>,
    /// When the kubelet pulls the image.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Credentials for the registry.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The size of each volume.
    pub storage_size: Quantity,
    /// The class of each volume; the cluster's default when absent.
    pub storage_class: Option<String>,
    /// The volume of the transaction log, if it has one of its own.
    pub transaction_log: Option<LogVolume>,
    /// What becomes of the volumes at deletion.
    pub reclaim_policy: ReclaimPolicy,
    /// Every setting of `zoo.cfg` that the user controls, defaults included.
    pub settings: BTreeMap<String, String>,
    /// The heap in MiB.
    pub heap_mib: u32,
    /// Further options of the virtual machine.
    pub jvm_options: Vec<String>,
    /// Labels, scheduling and resources.
    pub pod: Pod,
    /// Whether the members serve ZooKeeper's own metrics.
    pub metrics: bool,
    /// What is to be encrypted, as far as the spec says so.
    pub tls: Tls,
    /// The Secret with the certificate that members present to clients, if the operator does not make it. That of an issuer is
    /// known with what was observed: see [`crate::desired::certificate`].
    pub client_port_secret: Option<String>,
    /// How clients prove who they are. Without users and certificates they do not.
    pub authentication: Authentication,
    /// Who may connect to the members.
    pub network: Network,
    /// Whether nothing may be changed.
    pub paused: bool,
    /// The value of the restart annotation.
    pub restart_at: Option<String>,
    /// The annotation that asks for another authority of the members.
    pub replace_authority: Option<String>,
    /// The annotation that asks for the replacement of a member.
    pub replace_member: Option<String>,
    /// After which time in which a member could not run it is replaced, if ever.
    pub replace_after: Option<SignedDuration>,
    /// The annotation that accepts a loss of data.
    pub accept_data_loss: Option<AcceptRequest>,
    /// What the operator contributes.
    pub context: Context,
}

/// A volume for the transaction log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogVolume {
    /// Its size.
    pub size: Quantity,
    /// Its class; the cluster's default when absent.
    pub class: Option<String>,
}

/// A person's wish to go on without the data that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptRequest {
    /// The token that names the loss.
    pub token: String,
    /// The program that set the annotation, such as `kubectl-annotate`. Which person ran it is in the
    /// API server's audit log.
    pub by: Option<String>,
}

fn accept_request(metadata: &ObjectMeta) -> Option<AcceptRequest> {
    let token = metadata
        .annotations
        .as_ref()?
        .get(labels::ACCEPT_DATA_LOSS)?;
    let sets = |entry: &&ManagedFieldsEntry| {
        let key = format!("f:{}", labels::ACCEPT_DATA_LOSS);
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|f| f.0["f:metadata"]["f:annotations"].get(&key).is_some())
    };
    let entry = metadata.managed_fields.iter().flatten().find(sets);
    Some(AcceptRequest {
        token: token.trim().to_owned(),
        by: entry.and_then(|e| e.manager.clone()),
    })
}

impl ValidEnsemble {
    /// Whether the members agree on another list while they run.
    pub fn changes_at_run_time(&self) -> bool {
        self.membership_change == MembershipChange::Reconfiguration
    }

    /// The ordinal of the pod of a server.
    pub fn ordinal(&self, id: ServerId) -> u16 {
        id.0.saturating_sub(self.id_offset + 1)
    }
}

/// One thing that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The field, as a path from the object's root.
    pub field: String,
    /// What is wrong and what to do.
    pub problem: String,
}

/// The sentence of a spec with problems: all of them, and what happens meanwhile.
pub fn invalid_message(problems: &[Invalid]) -> String {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    format!(
        "{}. The running ensemble is left as it is until the spec is corrected.",
        all.join("; ")
    )
}

struct Problems(Vec<Invalid>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Invalid {
            field: field.into(),
            problem: problem.into(),
        });
    }

    fn range(&mut self, field: &str, value: Option<i32>, min: i32, max: i32) {
        if let Some(v) = value.filter(|v| *v < min || *v > max) {
            self.add(field, format!("{v} is outside {min} to {max}"));
        }
    }
}

/// Checks a spec and puts the defaults in place.
///
/// # Errors
/// Everything that is wrong with it, not only the first.
pub fn validate(
    ensemble: &ZooKeeperEnsemble,
    context: &Context,
) -> Result<ValidEnsemble, Vec<Invalid>> {
    let mut problems = Problems(Vec::new());
    // Every field is named, so that a new one does not compile before it is checked and handed on.
    let ZooKeeperEnsembleSpec {
        replicas,
        membership_change,
        observers,
        version: wanted_version,
        image: wanted_image,
        image_pull_policy,
        image_pull_secrets,
        storage,
        config,
        jvm,
        pod,
        metrics,
        tls,
        authentication,
        network,
        elections,
        replacement,
        id_offset,
        paused,
    } = &ensemble.spec;
    let name = ensemble.metadata.name.clone().unwrap_or_default();
    if name.len() > MAX_NAME_LENGTH || !is_dns_label(&name) {
        problems.add(
            "metadata.name",
            format!(
                "{name:?} becomes the name of Services and pods: use at most {MAX_NAME_LENGTH} \
                 lower-case letters, digits and '-', starting with a letter"
            ),
        );
    }
    let size = validate_replicas(*replicas, &mut problems);
    let observers = observers.as_ref().map_or(0, |o| o.replicas);
    problems.range("spec.observers.replicas", Some(observers), 0, MAX_OBSERVERS);
    problems.range("spec.idOffset", *id_offset, 0, 80);
    let replace_after = replacement.map(|replacement| replacement.after_minutes);
    let (least, most) = (LEAST_REPLACED_AFTER, MOST_REPLACED_AFTER);
    problems.range("spec.replacement.afterMinutes", replace_after, least, most);
    let id_offset = id_offset.unwrap_or(0);
    let (image, version) = image::check(
        wanted_image.as_deref(),
        wanted_version.as_deref(),
        &context.catalogue,
        &mut problems,
    );
    pod::pull_secrets(image_pull_secrets, &mut problems);
    let settings = config::check(&config.clone().unwrap_or_default(), &mut problems);
    let jvm = jvm.clone().unwrap_or_default();
    let heap_mib = parse_heap(jvm.heap.as_deref().unwrap_or("512Mi")).unwrap_or_else(|| {
        problems.add(
            "spec.jvm.heap",
            "use a whole number with Mi or Gi, such as 512Mi",
        );
        0
    });
    config::options(&jvm.additional_options, &mut problems);
    let pod = pod.clone().unwrap_or_default();
    pod::check(&name, &pod, heap_mib, &mut problems);
    let tls = tls.clone().unwrap_or_default();
    authentication::check_certificate(&tls, &mut problems);
    if let Some(authentication) = authentication {
        authentication::check(authentication, &tls, &mut problems);
    }
    let membership_change = membership_change.unwrap_or_default();
    let network = network.clone().unwrap_or_default();
    network::check(&network, &mut problems);
    // The mirror of elections reads the field itself.
    if let Some(elections) = elections {
        names::namespaces(&elections.namespaces, &mut problems);
    }
    let storage = storage.clone().unwrap_or_default();
    let log_file = config.as_ref().and_then(|c| c.pre_alloc_size);
    storage::check(&storage, log_file, &mut problems);
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    let annotations = ensemble.metadata.annotations.as_ref();
    let annotation = |key| annotations.and_then(|all| all.get(key).cloned());
    let release = versions::release_of_image(&image)
        .or(wanted_version.as_deref())
        .map(str::to_owned);
    Ok(ValidEnsemble {
        release,
        namespace: ensemble.metadata.namespace.clone().unwrap_or_default(),
        uid: ensemble.metadata.uid.clone().unwrap_or_default(),
        generation: ensemble.metadata.generation,
        name,
        size,
        membership_change,
        observers: u16::try_from(observers).unwrap_or(0),
        id_offset: u16::try_from(id_offset).unwrap_or(0),
        image,
        version,
        image_pull_policy: *image_pull_policy,
        image_pull_secrets: image_pull_secrets.clone(),
        storage_size: storage_size(Some(&storage)),
        transaction_log: log_volume(&storage),
        storage_class: storage.storage_class_name,
        reclaim_policy: storage.reclaim_policy.unwrap_or_default(),
        settings,
        heap_mib,
        jvm_options: jvm.additional_options,
        pod,
        metrics: metrics.is_some_and(|m| m.enabled),
        client_port_secret: tls.client_port_secret_name.clone(),
        tls,
        authentication: authentication.clone().unwrap_or_default(),
        network,
        paused: *paused,
        restart_at: annotation(labels::RESTART_AT),
        replace_authority: annotation(labels::REPLACE_AUTHORITY),
        replace_member: annotation(labels::REPLACE_MEMBER),
        replace_after: replace_after.map(|minutes| SignedDuration::from_mins(minutes.into())),
        accept_data_loss: accept_request(&ensemble.metadata),
        context: context.clone(),
    })
}

/// The size of each member's volume.
pub fn storage_size(storage: Option<&Storage>) -> Quantity {
    size_or_default(storage.and_then(|s| s.size.as_ref()))
}

/// The volume of each member's transaction log, if it has one of its own.
pub fn log_volume(storage: &Storage) -> Option<LogVolume> {
    let log = storage.transaction_log.as_ref()?;
    Some(LogVolume {
        size: size_or_default(log.size.as_ref()),
        class: log.storage_class_name.clone(),
    })
}

fn size_or_default(size: Option<&Quantity>) -> Quantity {
    size.cloned().unwrap_or_else(|| Quantity("8Gi".to_owned()))
}

fn is_dns_label(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn validate_replicas(replicas: i32, problems: &mut Problems) -> u16 {
    if replicas < 1 {
        problems.add(
            "spec.replicas",
            format!(
                "{replicas}: an ensemble has at least 1 member; to remove it, delete the \
                 ZooKeeperEnsemble"
            ),
        );
    } else if replicas > MAX_REPLICAS {
        problems.add(
            "spec.replicas",
            format!(
                "{replicas}: at most {MAX_REPLICAS} members are supported, since every write waits \
                 for a majority; use {MAX_REPLICAS} or fewer"
            ),
        );
    } else if replicas % 2 == 0 {
        problems.add(
            "spec.replicas",
            format!(
                "{replicas}: an even ensemble tolerates no more failures than one of {0}; use {0} \
                 or {1}",
                replicas - 1,
                replicas + 1
            ),
        );
    }
    u16::try_from(replicas).unwrap_or(0)
}

fn parse_heap(text: &str) -> Option<u32> {
    let (number, factor) = match (text.strip_suffix("Mi"), text.strip_suffix("Gi")) {
        (Some(n), _) => (n, 1),
        (_, Some(n)) => (n, 1024),
        _ => return None,
    };
    let number: u32 = number.parse().ok().filter(|n| (1..1_000_000).contains(n))?;
    number.checked_mul(factor)
}

#[cfg(test)]
mod field_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::example;
