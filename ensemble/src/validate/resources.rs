//! Requests and limits of the container that runs ZooKeeper.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Problems, names};
use crate::quantity;

/// What the virtual machine needs at the least beside the heap, in MiB: its code, classes, threads and
/// buffers. An idle server takes more.
const BESIDE_HEAP_MIB: u64 = 64;

type Amounts = BTreeMap<String, Quantity>;

/// Checks them as the API server does, and the limit of memory against the heap.
pub(super) fn check(all: &ResourceRequirements, heap_mib: u32, problems: &mut Problems) {
    let empty = Amounts::new();
    let limits = all.limits.as_ref().unwrap_or(&empty);
    let requests = all.requests.as_ref().unwrap_or(&empty);
    for (which, amounts) in [("limits", limits), ("requests", requests)] {
        let field = format!("spec.pod.resources.{which}");
        for (name, amount) in amounts {
            resource(&field, name, &amount.0, problems);
        }
    }
    for (name, request) in requests {
        request_within_limit(name, request, limits.get(name), problems);
    }
    let names = || limits.keys().chain(requests.keys());
    let has = |name: &str| names().any(|n| n == name);
    if names().any(|n| is_huge_page(n)) && !has("cpu") && !has("memory") {
        let problem = "huge pages need cpu or memory beside them";
        problems.add("spec.pod.resources", problem);
    }
    // The pod has no resource claims that a container could name.
    if all.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        let problem = "the members' pods have no resource claims: leave it out";
        problems.add("spec.pod.resources.claims", problem);
    }
    let least = (u64::from(heap_mib) + BESIDE_HEAP_MIB) << 20;
    let limit = limits.get("memory");
    if let Some((limit, bytes)) = limit.and_then(|l| Some((l, quantity::bytes(l)?)))
        && heap_mib > 0
        && bytes < least
    {
        problems.add(
            "spec.pod.resources.limits",
            format!(
                "memory {}: the heap (jvm.heap) is {heap_mib}Mi, and the virtual machine needs at least \
                 {BESIDE_HEAP_MIB}Mi beside it, or the kernel kills the server when the heap is full; use \
                 {}Mi or more, or a smaller heap",
                limit.0,
                u64::from(heap_mib) + BESIDE_HEAP_MIB
            ),
        );
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether it is one of Kubernetes' own: `IsNativeResource`.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn resource(field: &str, name: &str, amount: &str, problems: &mut Problems) {
    let known = ["cpu", "memory", "ephemeral-storage"].contains(&name) || is_huge_page(name);
    let extended = !is_native(name)
        && !name.starts_with("requests.")
        && names::is_key(&format!("requests.{name}"));
    // A name in the domain of Kubernetes only has to be a key.
    let native = name.contains('/') && is_native(name);
    if !names::is_key(name) || !(known || extended || native) {
        problems.add(
            field,
            format!(
                "{name:?} is no resource of a container: use cpu, memory, ephemeral-storage, hugepages-SIZE, \
                 or the whole name of another, such as example.org/device"
            ),
        );
        return;
    }
    let Some(sign) = quantity::compare(amount, "0") else {
        problems.add(field, format!("{amount:?} of {name}: {}", quantity::NONE));
        return;
    };
    if sign == Ordering::Less {
        problems.add(field, format!("{amount:?} of {name}: use 0 or more"));
    }
    if extended && quantity::is_whole(amount) == Some(false) {
        problems.add(field, format!("{amount:?} of {name}: use a whole number"));
    }
    if is_huge_page(name) {
        let size = name.strip_prefix("hugepages-").map(str::to_owned);
        let page = size.and_then(|size| quantity::bytes(&Quantity(size)));
        let whole = quantity::bytes(&Quantity(amount.to_owned()))
            .zip(page)
            .is_some_and(|(amount, page)| page > 0 && amount % page == 0);
        if !whole {
            let problem = format!("{amount:?} of {name}: use a multiple of the size of a page");
            problems.add(field, problem);
        }
    }
}

fn request_within_limit(
    name: &str,
    request: &Quantity,
    limit: Option<&Quantity>,
    problems: &mut Problems,
) {
    let field = "spec.pod.resources.requests";
    // Only native resources other than huge pages may be overcommitted.
    let divisible = is_native(name) && !is_huge_page(name);
    let Some(limit) = limit else {
        if !divisible {
            let problem = format!("{name}: it needs a limit of the same amount: set limits too");
            problems.add(field, problem);
        }
        return;
    };
    let (wanted, most) = (&request.0, &limit.0);
    match quantity::compare(wanted, most) {
        Some(Ordering::Greater) => problems.add(
            field,
            format!("{wanted} of {name} is more than its limit of {most}: use the limit or less"),
        ),
        Some(Ordering::Less) if !divisible => problems.add(
            field,
            format!("{wanted} of {name}: it must be the same as its limit of {most}"),
        ),
        _ => {}
    }
}
