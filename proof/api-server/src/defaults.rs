//! What the API server fills in.

use serde_json::{Value, json};

use super::kind::Kind;

/// Fills in a new object, whose status begins.
pub(crate) fn fill_new(kind: Kind, object: &mut Value) {
    match kind {
        Kind::POD | Kind::CLAIM | Kind::VOLUME => object["status"] = json!({ "phase": "Pending" }),
        Kind::STATEFUL_SET => {
            object["status"] = json!({ "replicas": 0, "availableReplicas": 0 });
        }
        Kind::SERVICE => object["status"] = json!({ "loadBalancer": {} }),
        _ => {}
    }
    if kind == Kind::CLAIM {
        // The admission plugin StorageObjectInUseProtection.
        let finalizers = &mut object["metadata"]["finalizers"];
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(finalizers) = finalizers.as_array_mut() {
            let protection = Value::from("kubernetes.io/pvc-protection");
            if !finalizers.contains(&protection) {
                finalizers.push(protection);
            }
        }
    }
    fill(kind, object);
}

/// Fills in an object, and writes its amounts as the API server writes them.
pub(crate) fn fill(kind: Kind, object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else {
        return;
    };
    match kind {
        Kind::POD => {
            fill_pod(spec);
            for list in ["containers", "initContainers"] {
                items(spec, list).for_each(|c| ask_for_limits(&mut c["resources"]));
            }
        }
        Kind::STATEFUL_SET => fill_stateful_set(spec),
        Kind::SERVICE => fill_service(spec),
        Kind::CLAIM => fill_claim(spec),
        _ => {}
    }
}

fn items<'v>(object: &'v mut Value, list: &str) -> impl Iterator<Item = &'v mut Value> {
    let items = object.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten()
}

/// Sets those of these fields that the object does not have.
fn default(object: &mut Value, defaults: Value) {
    let (Some(object), Value::Object(defaults)) = (object.as_object_mut(), defaults) else {
        return;
    };
    for (name, value) in defaults {
        object.entry(name).or_insert(value);
    }
}

fn fill_stateful_set(spec: &mut Value) {
    default(
        spec,
        json!({
            "replicas": 1,
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": 10,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            "persistentVolumeClaimRetentionPolicy": {},
        }),
    );
    let retention = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
    default(&mut spec["persistentVolumeClaimRetentionPolicy"], retention);
    if let Some(template) = spec.get_mut("template").and_then(|t| t.get_mut("spec")) {
        fill_pod(template);
    }
    for claim in items(spec, "volumeClaimTemplates") {
        let kind = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim" });
        default(claim, kind);
        if let Some(spec) = claim.get_mut("spec") {
            fill_claim(spec);
        }
    }
}

fn fill_claim(spec: &mut Value) {
    default(spec, json!({ "volumeMode": "Filesystem" }));
    if let Some(resources) = spec.get_mut("resources") {
        write_amounts(resources);
    }
}

fn fill_service(spec: &mut Value) {
    default(
        spec,
        json!({
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "clusterIP": "10.96.0.10",
        }),
    );
    let address = spec["clusterIP"].clone();
    default(spec, json!({ "clusterIPs": [address] }));
    for port in items(spec, "ports") {
        let number = port["port"].clone();
        default(port, json!({ "protocol": "TCP", "targetPort": number }));
    }
}

fn fill_pod(spec: &mut Value) {
    default(
        spec,
        json!({
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {},
        }),
    );
    for list in ["containers", "initContainers"] {
        items(spec, list).for_each(fill_container);
    }
    for volume in items(spec, "volumes") {
        for source in ["configMap", "secret"] {
            if let Some(source) = volume.get_mut(source) {
                default(source, json!({ "defaultMode": 420 }));
            }
        }
        if let Some(limit) = volume
            .get_mut("emptyDir")
            .and_then(|e| e.get_mut("sizeLimit"))
        {
            write_amount(limit);
        }
    }
}

fn fill_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|name| name.split_once(':'));
    let pull = match tag {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    };
    default(
        container,
        json!({
            "imagePullPolicy": pull,
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }),
    );
    write_amounts(&mut container["resources"]);
    for port in items(container, "ports") {
        default(port, json!({ "protocol": "TCP" }));
    }
    for variable in items(container, "env") {
        let source = variable
            .get_mut("valueFrom")
            .and_then(|v| v.get_mut("fieldRef"));
        if let Some(source) = source {
            default(source, json!({ "apiVersion": "v1" }));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else {
            continue;
        };
        default(
            probe,
            json!({
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            }),
        );
        if let Some(get) = probe.get_mut("httpGet") {
            default(get, json!({ "path": "/", "scheme": "HTTP" }));
        }
    }
}

/// A pod that may take at most so much asks for as much. A pod template does not.
fn ask_for_limits(resources: &mut Value) {
    let limits = resources["limits"].clone();
    if limits.is_object() {
        default(resources, json!({ "requests": {} }));
        default(&mut resources["requests"], limits);
    }
}

fn write_amounts(resources: &mut Value) {
    for part in ["requests", "limits"] {
        let amounts = resources.get_mut(part).and_then(Value::as_object_mut);
        amounts
            .into_iter()
            .flatten()
            .for_each(|(_, amount)| write_amount(amount));
    }
}

fn write_amount(amount: &mut Value) {
    let text = match &*amount {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return,
    };
    *amount = canonical(&text).unwrap_or(text).into();
}

/// An amount as `resource.Quantity` writes it: without a fraction, with the largest suffix that allows it.
/// `None` for a text that is not an amount, or too precise: it stays as it is.
fn canonical(text: &str) -> Option<String> {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let below = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let binary = BINARY.iter().position(|s| *s == suffix).filter(|i| *i > 0);
    let nano = 1_000_000_000;
    let times = match binary {
        Some(power) => 1024_u128.pow(u32::try_from(power).ok()?) * nano,
        None => {
            let power = DECIMAL.iter().position(|s| *s == suffix)?;
            1000_u128.pow(u32::try_from(power).ok()?)
        }
    };
    let product = digits.checked_mul(times)?;
    let nanos = (product % below == 0).then(|| product / below)?;
    let shortened = |mut value: u128, base: u128, suffixes: &[&str]| {
        let mut at = 0;
        while value > 0 && value.is_multiple_of(base) && at + 1 < suffixes.len() {
            (value, at) = (value / base, at + 1);
        }
        format!("{value}{}", suffixes[at])
    };
    Some(match (binary, nanos / nano) {
        (_, 0) if nanos == 0 => "0".to_owned(),
        (Some(_), whole) if whole >= 1024 && nanos % nano == 0 => shortened(whole, 1024, &BINARY),
        _ => shortened(nanos, 1000, &DECIMAL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_no_fraction_and_the_largest_suffix() {
        for (given, written) in [
            ("3072Mi", "3Gi"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1000", "1k"),
            ("100", "100"),
            ("0", "0"),
            ("0.0005Ki", "512m"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(written), "{given}");
        }
        assert_eq!(canonical("much"), None);
    }

    #[test]
    fn what_is_filled_in_is_not_filled_in_again() {
        let mut set = json!({ "spec": { "template": { "spec": {
            "containers": [{
                "name": "a",
                "image": "a:1",
                "ports": [{ "containerPort": 1 }],
                "readinessProbe": { "httpGet": { "port": 1 } },
                "resources": { "limits": { "memory": "1024Mi" } },
            }],
            "volumes": [{ "name": "tmp", "emptyDir": { "sizeLimit": "2048Mi" } }],
        } } } });
        fill(Kind::STATEFUL_SET, &mut set);
        let pod = &set["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["readinessProbe"]["httpGet"]["scheme"], "HTTP");
        assert_eq!(
            container["resources"],
            json!({ "limits": { "memory": "1Gi" } })
        );
        assert_eq!(pod["volumes"][0]["emptyDir"]["sizeLimit"], "2Gi");
        let before = set.clone();
        fill(Kind::STATEFUL_SET, &mut set);
        assert_eq!(set, before);
        let mut pod = json!({ "spec": before["spec"]["template"]["spec"] });
        fill(Kind::POD, &mut pod);
        let asked = &pod["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(asked["memory"], "1Gi");
    }
}
