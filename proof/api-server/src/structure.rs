//! How lists and maps are merged: by the schema of a kind.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use kube::CustomResourceExt;
use serde_json::{Map, Value};

use super::kind::Kind;

/// The merge rules in a CustomResourceDefinition.
#[derive(Debug, Default)]
struct Custom {
    atomic_map: bool,
    /// The keys of a list's items; `None` for an atomic list.
    keys: Option<Vec<String>>,
    set: bool,
    fields: BTreeMap<String, Custom>,
    additional: Option<Box<Custom>>,
    items: Option<Box<Custom>>,
}

impl Custom {
    fn read(schema: &Value) -> Self {
        let below = |key: &str| {
            let below = schema.get(key).filter(|below| below.is_object());
            below.map(|below| Box::new(Self::read(below)))
        };
        let fields = schema["properties"].as_object();
        let fields = fields.into_iter().flatten();
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        let keys = keys.filter(|_| schema["x-kubernetes-list-type"] == "map");
        let words = |keys: &Vec<Value>| {
            let keys = keys.iter().filter_map(Value::as_str);
            keys.map(str::to_owned).collect()
        };
        Self {
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            keys: keys.map(words),
            set: schema["x-kubernetes-list-type"] == "set",
            fields: fields
                .map(|(name, below)| (name.clone(), Self::read(below)))
                .collect(),
            additional: below("additionalProperties"),
            items: below("items"),
        }
    }

    fn of<K: CustomResourceExt>() -> Self {
        let crd = serde_json::to_value(K::crd()).unwrap_or_default();
        Self::read(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    }
}

static ENSEMBLE: LazyLock<Custom> = LazyLock::new(Custom::of::<ZooKeeperEnsemble>);
static ELECTION: LazyLock<Custom> = LazyLock::new(Custom::of::<LeaderElection>);

/// Reads the schema of ensembles now instead of at the first write.
pub(crate) fn prepare() {
    LazyLock::force(&ENSEMBLE);
}

/// A place in objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    kind: Kind,
    /// The last field on the way; empty for the object itself.
    name: &'p str,
    /// The field above that.
    above: &'p str,
    depth: usize,
    custom: Option<&'static Custom>,
    is_item: bool,
}

/// How the items of a list are identified.
pub(crate) enum Items<'p> {
    /// They are not: the list is one value.
    Atomic,
    /// By themselves.
    Set,
    /// By these fields.
    Keys(&'p [&'static str]),
    /// By these fields, from a CustomResourceDefinition.
    CustomKeys(&'static [String]),
}

impl<'p> Place<'p> {
    /// An object of a kind.
    pub(crate) fn root(kind: Kind) -> Self {
        let custom = match kind {
            Kind::ENSEMBLE => Some(&*ENSEMBLE),
            Kind::ELECTION => Some(&*ELECTION),
            _ => None,
        };
        Self {
            kind,
            name: "",
            above: "",
            depth: 0,
            custom,
            is_item: false,
        }
    }

    /// A field here.
    pub(crate) fn field<'f>(&self, name: &'f str) -> Place<'f>
    where
        'p: 'f,
    {
        let below =
            |custom: &'static Custom| custom.fields.get(name).or(custom.additional.as_deref());
        Place {
            kind: self.kind,
            name,
            above: self.name,
            depth: self.depth + 1,
            custom: self.custom.and_then(below),
            is_item: false,
        }
    }

    /// An item of the list here.
    pub(crate) fn item(&self) -> Self {
        Self {
            custom: self.custom.and_then(|custom| custom.items.as_deref()),
            is_item: true,
            ..*self
        }
    }

    /// Whether field ownership ignores this field.
    pub(crate) fn is_ignored(&self, name: &str) -> bool {
        match self.depth {
            0 => matches!(name, "apiVersion" | "kind"),
            1 => {
                self.name == "metadata"
                    && matches!(
                        name,
                        "name"
                            | "namespace"
                            | "uid"
                            | "creationTimestamp"
                            | "deletionTimestamp"
                            | "deletionGracePeriodSeconds"
                            | "generation"
                            | "resourceVersion"
                            | "selfLink"
                            | "managedFields"
                            | "generateName"
                    )
            }
            _ => false,
        }
    }

    /// Whether a map or list here is one value.
    pub(crate) fn is_atomic(&self, value: &Value) -> bool {
        match value {
            Value::Array(_) => matches!(self.items(), Items::Atomic),
            _ if self.custom.is_some() => self.custom.is_some_and(|custom| custom.atomic_map),
            _ if self.is_item => self.name == "ownerReferences",
            _ => ATOMIC_MAPS.contains(&self.name),
        }
    }

    /// How the items of the list here are identified.
    pub(crate) fn items(&self) -> Items<'p> {
        if let Some(custom) = self.custom {
            return match &custom.keys {
                Some(keys) => Items::CustomKeys(keys),
                None if custom.set => Items::Set,
                None => Items::Atomic,
            };
        }
        let keys: &'static [&'static str] = match (self.name, self.above) {
            ("finalizers", "metadata") => return Items::Set,
            ("ownerReferences", "metadata") => &["uid"],
            ("containers" | "initContainers" | "ephemeralContainers", _) => &["name"],
            ("env" | "volumes" | "imagePullSecrets", _) => &["name"],
            ("volumeMounts", _) => &["mountPath"],
            ("volumeDevices", _) => &["devicePath"],
            ("hostAliases" | "podIPs" | "hostIPs", _) => &["ip"],
            ("topologySpreadConstraints", _) => &["topologyKey", "whenUnsatisfiable"],
            ("conditions", _) => &["type"],
            ("ports", "spec") if self.kind == Kind::SERVICE => &["port", "protocol"],
            ("ports", _) if matches!(self.kind, Kind::POD | Kind::STATEFUL_SET) => {
                &["containerPort", "protocol"]
            }
            _ => return Items::Atomic,
        };
        Items::Keys(keys)
    }
}

/// Maps that are one value.
const ATOMIC_MAPS: &[&str] = &[
    "selector",
    "labelSelector",
    "nodeSelector",
    "namespaceSelector",
    "fieldRef",
    "resourceFieldRef",
    "secretKeyRef",
    "configMapKeyRef",
    "secretRef",
    "targetRef",
    "claimRef",
    "involvedObject",
];

/// The path element of an item of a list.
pub(crate) fn item_element(item: &Value, place: &Place<'_>) -> String {
    let keyed = |keys: &mut dyn Iterator<Item = &str>| {
        let mut key = Map::new();
        for name in keys {
            let value = match item.get(name) {
                Some(value) => value.clone(),
                None if name == "protocol" => Value::from("TCP"),
                None => continue,
            };
            key.insert(name.to_owned(), value);
        }
        format!("k:{}", Value::Object(key))
    };
    match place.items() {
        Items::Keys(keys) => keyed(&mut keys.iter().copied()),
        Items::CustomKeys(keys) => keyed(&mut keys.iter().map(String::as_str)),
        Items::Set | Items::Atomic => format!("v:{item}"),
    }
}
