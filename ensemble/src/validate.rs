//! From what a user wrote to what the operator works with. The same rules as in the CRD, checked
//! again, because a CRD may be old, edited or stored before a rule existed.

use std::collections::BTreeMap;

use crate::ids::ServerId;
use bellwether_api::ensemble::settings::{self, KeyKind};
use bellwether_api::ensemble::versions;
use bellwether_api::ensemble::{
    Config, DEFAULT_IMAGE_REPOSITORY, DEFAULT_VERSION, ImagePullPolicy, MAX_NAME_LENGTH,
    MAX_OBSERVERS, MAX_REPLICAS, Pod, ReclaimPolicy, SESSION_TIMEOUTS, Storage,
};
use bellwether_api::{ZooKeeperEnsemble, labels};
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
    /// How many voting members it is to have: odd.
    pub size: u16,
    /// How many observers it is to have.
    pub observers: u16,
    /// Added to every server id.
    pub id_offset: u16,
    /// The whole image reference.
    pub image: String,
    /// What the status shows as version: the version, or the image where there is none.
    pub version: String,
    /// The ZooKeeper release, where the version or a tag like the official image's tells it.
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
    /// Whether nothing may be changed.
    pub paused: bool,
    /// The value of the restart annotation.
    pub restart_at: Option<String>,
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
    let spec = &ensemble.spec;
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
    let size = validate_replicas(spec.replicas, &mut problems);
    let id_offset = spec.id_offset.unwrap_or(0);
    let observers = spec.observers.as_ref().map_or(0, |o| o.replicas);
    problems.range("spec.observers.replicas", Some(observers), 0, MAX_OBSERVERS);
    problems.range("spec.idOffset", spec.id_offset, 0, 80);
    let (image, version) = validate_image(
        spec.image.as_deref(),
        spec.version.as_deref(),
        &mut problems,
    );
    let settings = validate_settings(&spec.config.clone().unwrap_or_default(), &mut problems);
    let jvm = spec.jvm.clone().unwrap_or_default();
    let heap_mib = parse_heap(jvm.heap.as_deref().unwrap_or("512Mi")).unwrap_or_else(|| {
        problems.add(
            "spec.jvm.heap",
            "use a whole number with Mi or Gi, such as 512Mi",
        );
        0
    });
    for option in &jvm.additional_options {
        let owned = ["-Xmx", "-Xms", "-Djava.security.properties"];
        if !option.starts_with('-')
            || option.contains(char::is_whitespace)
            || owned.iter().any(|o| option.starts_with(o))
        {
            problems.add(
                "spec.jvm.additionalOptions",
                format!(
                    "{option:?}: an option starts with '-' and holds no white space; the heap is \
                     set through jvm.heap, and java.security.properties belongs to the operator"
                ),
            );
        }
    }
    let pod = spec.pod.clone().unwrap_or_default();
    validate_pod(&pod, &mut problems);
    let storage = spec.storage.clone().unwrap_or_default();
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    let release = versions::release_of_image(&image)
        .or(spec.version.as_deref())
        .map(str::to_owned);
    Ok(ValidEnsemble {
        release,
        namespace: ensemble.metadata.namespace.clone().unwrap_or_default(),
        uid: ensemble.metadata.uid.clone().unwrap_or_default(),
        generation: ensemble.metadata.generation,
        name,
        size,
        observers: u16::try_from(observers).unwrap_or(0),
        id_offset: u16::try_from(id_offset).unwrap_or(0),
        image,
        version,
        image_pull_policy: spec.image_pull_policy,
        image_pull_secrets: spec.image_pull_secrets.clone(),
        storage_size: storage_size(Some(&storage)),
        transaction_log: log_volume(&storage),
        storage_class: storage.storage_class_name,
        reclaim_policy: storage.reclaim_policy.unwrap_or_default(),
        settings,
        heap_mib,
        jvm_options: jvm.additional_options,
        pod,
        metrics: spec.metrics.is_some_and(|m| m.enabled),
        paused: spec.paused,
        restart_at: ensemble
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(labels::RESTART_AT).cloned()),
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

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn validate_image(
    image: Option<&str>,
    version: Option<&str>,
    problems: &mut Problems,
) -> (String, String) {
    let of_a_line = |v: &&str| {
        let patch = v.strip_prefix("3.8.").or_else(|| v.strip_prefix("3.9."));
        patch.is_some_and(|p| p == "0" || !p.starts_with('0') && is_number(p))
    };
    let of_version = version.filter(of_a_line);
    if let (Some(v), None) = (version, of_version) {
        problems.add(
            "spec.version",
            format!("{v:?}: use a ZooKeeper release 3.8.x or 3.9.x, such as {DEFAULT_VERSION}"),
        );
    }
    // What the tag says is what runs, whatever the version says.
    let of_tag = image.and_then(versions::release_of_image);
    for (field, release) in [("spec.version", of_version), ("spec.image", of_tag)] {
        let flaw = release.and_then(versions::flaw);
        if let Some(flaw) = flaw.filter(|f| f.refused) {
            problems.add(field, versions::sentence(flaw));
        }
    }
    if image.is_some_and(|i| i.is_empty() || i.contains(char::is_whitespace)) {
        problems.add(
            "spec.image",
            "an image reference is not empty and holds no white space",
        );
    }
    match (image, version) {
        (Some(image), Some(version)) => (image.to_owned(), version.to_owned()),
        (Some(image), None) => (image.to_owned(), image.to_owned()),
        (None, version) => {
            let version = version.unwrap_or(DEFAULT_VERSION);
            (
                format!("{DEFAULT_IMAGE_REPOSITORY}:{version}"),
                version.to_owned(),
            )
        }
    }
}

fn validate_settings(config: &Config, problems: &mut Problems) -> BTreeMap<String, String> {
    let typed = [
        ("tickTime", config.tick_time, Some(2000), 100, 60_000),
        ("initLimit", config.init_limit, Some(10), 1, 1000),
        ("syncLimit", config.sync_limit, Some(5), 1, 1000),
        (
            "minSessionTimeout",
            config.min_session_timeout,
            None,
            1,
            3_600_000,
        ),
        (
            "maxSessionTimeout",
            config.max_session_timeout,
            None,
            1,
            3_600_000,
        ),
        (
            "maxClientCnxns",
            config.max_client_cnxns,
            Some(60),
            0,
            100_000,
        ),
        ("snapCount", config.snap_count, None, 2, 100_000_000),
        ("preAllocSize", config.pre_alloc_size, None, 64, 4_194_304),
        (
            "autopurge.snapRetainCount",
            config.autopurge_snap_retain_count,
            Some(3),
            3,
            1000,
        ),
        (
            "autopurge.purgeInterval",
            config.autopurge_purge_interval,
            Some(1),
            1,
            8760,
        ),
    ];
    // A server that dials the address of a member that is being restarted waits for this long, and
    // takes no vote from it meanwhile; ZooKeeper's own 5 s would be most of the interruption.
    let mut settings = BTreeMap::from([("cnxTimeout".to_owned(), "2000".to_owned())]);
    for (key, value, default, min, max) in typed {
        problems.range(&format!("spec.config ({key})"), value, min, max);
        if let Some(v) = value.or(default) {
            settings.insert(key.to_owned(), v.to_string());
        }
    }
    // As `QuorumPeerConfig.parseProperties` has it: a server with such a file does not start.
    let tick = config.tick_time.unwrap_or(2000);
    let min = config.min_session_timeout;
    let max = config.max_session_timeout;
    if min.unwrap_or(tick.saturating_mul(2)) > max.unwrap_or(tick.saturating_mul(20)) {
        problems.add("spec.config", SESSION_TIMEOUTS);
    }
    for (key, value) in &config.additional {
        let field = format!("spec.config.additional[{key}]");
        match settings::classify(key) {
            KeyKind::Known => {
                if value.len() > 1024 || value.contains(['\n', '\r']) || value.ends_with('\\') {
                    problems.add(
                        field,
                        "a value is one line of at most 1024 characters that does not end in a \
                         backslash",
                    );
                } else {
                    settings.insert(key.clone(), value.clone());
                }
            }
            KeyKind::Typed => problems.add(field, "this key has a field of its own under config"),
            KeyKind::Reserved => problems.add(field, "this key of zoo.cfg belongs to the operator"),
            KeyKind::Unknown => problems.add(
                field,
                "ZooKeeper has no such key and would ignore it silently; check the spelling",
            ),
        }
    }
    settings
}

fn validate_pod(pod: &Pod, problems: &mut Problems) {
    for key in pod.labels.keys() {
        if key.starts_with("app.kubernetes.io/") || key.contains("bellwether.dev/") {
            problems.add(
                "spec.pod.labels",
                format!("{key}: the operator selects pods by this label"),
            );
        }
    }
    for key in pod
        .annotations
        .keys()
        .filter(|k| k.contains("bellwether.dev/"))
    {
        problems.add(
            "spec.pod.annotations",
            format!("{key}: this annotation belongs to the operator"),
        );
    }
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
mod tests;
#[cfg(test)]
pub(crate) use tests::example;
