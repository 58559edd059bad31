//! The kinds that the API server knows, and what differs between them.

/// A kind of objects; the number is its place in the list of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(usize);

/// What is known about a kind.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The name of the kind, such as `StatefulSet`.
    pub name: &'static str,
    /// The word in paths, such as `statefulsets`.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether `generation` counts the changes of what is asked for.
    pub counts_generations: bool,
    /// Whether the status is a subresource of its own.
    pub status: bool,
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `pods` or `statefulsets.apps`, as messages name it.
    pub fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// `Pod` or `StatefulSet.apps`, as messages name it.
    pub fn qualified_kind(&self) -> String {
        match self.group {
            "" => self.name.to_owned(),
            group => format!("{}.{group}", self.name),
        }
    }
}

const fn kind(group: &'static str, name: &'static str, plural: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        name,
        plural,
        namespaced: true,
        counts_generations: false,
        status: false,
    }
}

const fn cluster_wide(resource: Resource) -> Resource {
    Resource {
        namespaced: false,
        ..resource
    }
}

const fn with_status(resource: Resource) -> Resource {
    Resource {
        status: true,
        ..resource
    }
}

const fn counted(resource: Resource) -> Resource {
    Resource {
        counts_generations: true,
        ..resource
    }
}

/// All kinds; the constants of [`Kind`] are places in it.
static KINDS: &[Resource] = &[
    with_status(kind("", "Pod", "pods")),
    kind("", "ConfigMap", "configmaps"),
    with_status(kind("", "Service", "services")),
    with_status(kind("", "PersistentVolumeClaim", "persistentvolumeclaims")),
    with_status(cluster_wide(kind(
        "",
        "PersistentVolume",
        "persistentvolumes",
    ))),
    kind("", "Secret", "secrets"),
    // The same objects are served as events.k8s.io/v1, in other words.
    kind("", "Event", "events"),
    with_status(cluster_wide(kind("", "Node", "nodes"))),
    with_status(cluster_wide(kind("", "Namespace", "namespaces"))),
    counted(with_status(kind("apps", "StatefulSet", "statefulsets"))),
    kind("apps", "ControllerRevision", "controllerrevisions"),
    counted(with_status(kind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ))),
    kind("coordination.k8s.io", "Lease", "leases"),
    counted(kind("discovery.k8s.io", "EndpointSlice", "endpointslices")),
    cluster_wide(kind("storage.k8s.io", "StorageClass", "storageclasses")),
    counted(with_status(Resource {
        version: bellwether_api::VERSION,
        ..kind(
            bellwether_api::GROUP,
            "ZooKeeperEnsemble",
            "zookeeperensembles",
        )
    })),
    counted(with_status(Resource {
        version: bellwether_api::VERSION,
        ..kind(bellwether_api::GROUP, "LeaderElection", "leaderelections")
    })),
    kind("", "ServiceAccount", "serviceaccounts"),
    counted(kind(
        "networking.k8s.io",
        "NetworkPolicy",
        "networkpolicies",
    )),
];

#[allow(missing_docs, reason = "each is the kind of its name")]
impl Kind {
    pub const POD: Self = Self(0);
    pub const CONFIG_MAP: Self = Self(1);
    pub const SERVICE: Self = Self(2);
    pub const CLAIM: Self = Self(3);
    pub const VOLUME: Self = Self(4);
    pub const SECRET: Self = Self(5);
    pub const EVENT: Self = Self(6);
    pub const NODE: Self = Self(7);
    pub const NAMESPACE: Self = Self(8);
    pub const STATEFUL_SET: Self = Self(9);
    pub const CONTROLLER_REVISION: Self = Self(10);
    pub const DISRUPTION_BUDGET: Self = Self(11);
    pub const LEASE: Self = Self(12);
    pub const ENDPOINT_SLICE: Self = Self(13);
    pub const STORAGE_CLASS: Self = Self(14);
    pub const ENSEMBLE: Self = Self(15);
    pub const ELECTION: Self = Self(16);
    pub const SERVICE_ACCOUNT: Self = Self(17);
    pub const NETWORK_POLICY: Self = Self(18);
}

impl Kind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..KINDS.len()).map(Self)
    }

    /// The kind at this place of a path.
    pub fn at_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        if (group, version, plural) == ("events.k8s.io", "v1", "events") {
            return Some(Self::EVENT);
        }
        let here = |r: &Resource| r.group == group && r.version == version && r.plural == plural;
        KINDS.iter().position(here).map(Self)
    }

    /// The kind of these names, as an owner reference says them.
    pub fn named(api_version: &str, name: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let here = |r: &Resource| r.group == group && r.version == version && r.name == name;
        KINDS.iter().position(here).map(Self)
    }

    /// What is known about it.
    pub fn resource(self) -> &'static Resource {
        &KINDS[self.0]
    }

    /// Its place among all kinds.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// Whether a CustomResourceDefinition describes it.
    pub fn is_custom(self) -> bool {
        matches!(self, Self::ENSEMBLE | Self::ELECTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_the_places_of_their_names() {
        for (kind, name) in [
            (Kind::POD, "Pod"),
            (Kind::CONFIG_MAP, "ConfigMap"),
            (Kind::SERVICE, "Service"),
            (Kind::CLAIM, "PersistentVolumeClaim"),
            (Kind::VOLUME, "PersistentVolume"),
            (Kind::SECRET, "Secret"),
            (Kind::EVENT, "Event"),
            (Kind::NODE, "Node"),
            (Kind::NAMESPACE, "Namespace"),
            (Kind::STATEFUL_SET, "StatefulSet"),
            (Kind::CONTROLLER_REVISION, "ControllerRevision"),
            (Kind::DISRUPTION_BUDGET, "PodDisruptionBudget"),
            (Kind::LEASE, "Lease"),
            (Kind::ENDPOINT_SLICE, "EndpointSlice"),
            (Kind::STORAGE_CLASS, "StorageClass"),
            (Kind::ENSEMBLE, "ZooKeeperEnsemble"),
            (Kind::ELECTION, "LeaderElection"),
            (Kind::SERVICE_ACCOUNT, "ServiceAccount"),
            (Kind::NETWORK_POLICY, "NetworkPolicy"),
        ] {
            assert_eq!(kind.resource().name, name);
        }
        assert_eq!(Kind::all().count(), 19);
    }
}
