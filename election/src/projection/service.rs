//! The Service that reaches the leader, and its EndpointSlice.

use std::net::IpAddr;

use bellwether_api::election::{OnStale, ProjectedPort, Reason, ServiceProjection};
use bellwether_api::labels::{FENCING_TOKEN, SERVICE_ANNOTATIONS, SLICE_MANAGED_BY_VALUE};
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Failure, PodFacts, Step, Subject, say_token};

/// The label that says which Service a slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label that keeps other controllers away from a slice.
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The name of the Service of an election of this name.
pub fn service_name<'a>(election: &'a str, projection: &'a ServiceProjection) -> &'a str {
    projection.name.as_deref().unwrap_or(election)
}

/// The name of the EndpointSlice of that Service.
pub fn slice_name(election: &str, projection: &ServiceProjection) -> String {
    format!("{}-leader", service_name(election, projection))
}

/// What has to be done about the Service that exists under the name of the election's.
pub fn service(
    subject: &Subject,
    projection: &ServiceProjection,
    live: Option<&Service>,
) -> Step<Service> {
    if live.is_some_and(|live| !subject.owns(&live.metadata)) {
        return Step::Taken;
    }
    // Kubernetes does not let the address of a Service change.
    if live.is_some_and(|live| is_headless(live) != projection.headless) {
        return Step::Delete;
    }
    let name = service_name(subject.name(), projection).to_owned();
    let mut wanted = live.cloned().unwrap_or_default();
    wanted.metadata = subject.meta(name, live.map(|live| &live.metadata));
    annotate(&mut wanted.metadata, projection);
    let spec = wanted.spec.get_or_insert_with(ServiceSpec::default);
    // With a selector Kubernetes would add addresses of its own.
    spec.selector = None;
    if projection.headless {
        spec.cluster_ip = Some(HEADLESS.to_owned());
    }
    let ports: Vec<_> = projection.ports.iter().map(service_port).collect();
    let told = |port: &ServicePort| {
        let target = port.target_port.clone();
        let name = port.name.clone();
        (name, port.port, target, port.protocol.clone())
    };
    let old = spec.ports.as_deref().unwrap_or_default();
    if !old.iter().map(told).eq(ports.iter().map(told)) {
        spec.ports = Some(ports);
    }
    Step::towards(live, wanted)
}

/// Gives a Service the annotations of the spec, and takes out those that the spec asked for before.
fn annotate(meta: &mut ObjectMeta, projection: &ServiceProjection) {
    let annotations = meta.annotations.get_or_insert_default();
    let before = annotations.remove(SERVICE_ANNOTATIONS).unwrap_or_default();
    for key in before.split(',') {
        annotations.remove(key);
    }
    if !projection.annotations.is_empty() {
        let keys: Vec<&str> = projection.annotations.keys().map(String::as_str).collect();
        annotations.insert(SERVICE_ANNOTATIONS.to_owned(), keys.join(","));
        annotations.extend(projection.annotations.clone());
    }
    if annotations.is_empty() {
        meta.annotations = None;
    }
}

/// What stands in the place of a Service's address where it has none.
const HEADLESS: &str = "None";

fn is_headless(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some(HEADLESS)
}

fn service_port(port: &ProjectedPort) -> ServicePort {
    ServicePort {
        name: Some(port.name.clone()),
        port: port.port,
        target_port: Some(
            port.target_port
                .clone()
                .unwrap_or(IntOrString::Int(port.port)),
        ),
        protocol: Some(port.protocol.as_str().to_owned()),
        ..ServicePort::default()
    }
}

/// The number of the leader's port that a port of the Service reaches; `None` if no container of the pod gives a port this
/// name.
fn target(port: &ProjectedPort, pod: Option<&PodFacts>) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => pod?.port(name, port.protocol),
    }
}

/// Why ports of the Service do not reach the leader's pod, if some do not.
pub fn unreached(projection: &ServiceProjection, pod: &PodFacts) -> Option<Failure> {
    let names = projection
        .ports
        .iter()
        .filter_map(|port| match &port.target_port {
            Some(IntOrString::String(name)) if target(port, Some(pod)).is_none() => {
                Some(format!("{name}/{}", port.protocol.as_str()))
            }
            _ => None,
        });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| Failure {
        reason: Reason::PortNotFound,
        what: format!(
            "No container of the leader's pod {} names the port {}.",
            pod.name,
            names.join(", ")
        ),
    })
}

/// The Service and the pod that a slice is for.
#[derive(Clone, Copy, Debug)]
pub struct SliceOf<'a> {
    /// The Service as it exists, which belongs to the election.
    pub service: &'a Service,
    /// The leader's pod, if it is known: that of [`uid_ahead`], if there is one, or else that of the status.
    pub pod: Option<&'a PodFacts>,
}

/// What has to be done about the slice that exists under the name of the election's.
///
/// It never has more than one address, and none if the leader's pod is not known. While the mirror is blind,
/// an address stays only as long as the pod with the same uid exists, and as the spec lets it.
pub fn slice(
    subject: &Subject,
    projection: &ServiceProjection,
    of: SliceOf<'_>,
    live: Option<&EndpointSlice>,
) -> Step<EndpointSlice> {
    if live.is_some_and(|live| !subject.owns(&live.metadata)) {
        return Step::Taken;
    }
    let families = of
        .service
        .spec
        .as_ref()
        .and_then(|spec| spec.ip_families.as_ref());
    let is_v6 = families
        .and_then(|families| families.first())
        .is_some_and(|f| f == "IPv6");
    let address_type = if is_v6 { "IPv6" } else { "IPv4" };
    if live.is_some_and(|live| live.address_type != address_type) {
        return Step::Delete;
    }
    let kept = live.and_then(pod_uid);
    let pod = of.pod.filter(|pod| {
        !subject.is_stale()
            || (projection.on_stale == OnStale::Keep
                && !subject.is_outlived
                && kept == Some(pod.uid.as_str()))
    });
    let address = |pod: &PodFacts| pod.ips.iter().find(|ip| ip.is_ipv6() == is_v6).copied();
    let endpoint = pod.and_then(|pod| Some(endpoint(subject, pod, address(pod)?)));
    let meta = subject.meta(
        slice_name(subject.name(), projection),
        live.map(|live| &live.metadata),
    );
    // As Kubernetes does, a port that the pod has not is left out.
    let ports = projection.ports.iter();
    let ports = ports.filter_map(|port| endpoint_port(port, pod));
    let mut wanted = EndpointSlice {
        metadata: meta,
        address_type: address_type.to_owned(),
        endpoints: endpoint.into_iter().collect(),
        ports: Some(ports.collect()),
    };
    let ahead = live.filter(|live| uid_ahead(subject, live).is_some());
    let token = ahead.map_or(subject.token(), |live| token(&live.metadata));
    let token = token.filter(|_| !wanted.endpoints.is_empty());
    say_token(&mut wanted.metadata, token);
    let labels = wanted.metadata.labels.get_or_insert_default();
    for (key, value) in [
        (SERVICE_NAME, service_name(subject.name(), projection)),
        (SLICE_MANAGED_BY, SLICE_MANAGED_BY_VALUE),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    Step::towards(live, wanted)
}

/// The uid of the pod that a slice shows, if the mirror is blind and the slice is newer than the status.
///
/// An operator writes the slice before the status, and may end between the two. The one after it would take the address of
/// the leader for that of a stranger, were it not for the fencing tokens, which grow from leader to leader.
pub fn uid_ahead<'s>(subject: &Subject, slice: &'s EndpointSlice) -> Option<&'s str> {
    let number = |token: &str| token.parse::<i64>().ok();
    let told = [subject.token(), subject.status.max_fencing_token.as_deref()];
    let told = told.into_iter().flatten().filter_map(number).max()?;
    let shown = token(&slice.metadata).and_then(number)?;
    let is_ahead = subject.is_stale() && subject.owns(&slice.metadata) && shown > told;
    pod_uid(slice).filter(|_| is_ahead)
}

/// The fencing token that an object says.
fn token(meta: &ObjectMeta) -> Option<&str> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(FENCING_TOKEN).map(String::as_str)
}

/// The pod that the address in a slice was given for.
fn pod_uid(slice: &EndpointSlice) -> Option<&str> {
    let target = slice.endpoints.first()?.target_ref.as_ref()?;
    target.uid.as_deref()
}

fn endpoint(subject: &Subject, pod: &PodFacts, address: IpAddr) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(pod.ready && !pod.terminating),
            serving: Some(pod.ready),
            terminating: Some(pod.terminating),
        }),
        node_name: pod.node.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(subject.namespace().to_owned()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}

fn endpoint_port(port: &ProjectedPort, pod: Option<&PodFacts>) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: Some(port.name.clone()),
        port: Some(target(port, pod)?),
        protocol: Some(port.protocol.as_str().to_owned()),
        ..EndpointPort::default()
    })
}
