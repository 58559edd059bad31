//! The Service and its slice.

use super::*;

pub(super) fn slice_for(
    status: LeaderElectionStatus,
    on_stale: OnStale,
    pods: &Pods,
    live: Option<&EndpointSlice>,
) -> Step<EndpointSlice> {
    let mut projections = projections();
    let projection = projections.service.as_mut().unwrap();
    projection.on_stale = on_stale;
    let projection = projection.clone();
    let subject = subject(projections, status);
    let service = after(None, service(&subject, &projection, None)).unwrap();
    let candidate_pods = candidate_pods(&subject, &Binder::default(), pods, live);
    let of = SliceOf {
        service: &service,
        pod: candidate_pods.reached(),
    };
    slice(&subject, &projection, of, live)
}

fn addresses(slice: &EndpointSlice) -> Vec<&str> {
    let all = slice.endpoints.iter().flat_map(|one| &one.addresses);
    all.map(String::as_str).collect()
}

#[test]
fn the_service_has_no_selector_and_the_slice_one_address() {
    let subject = subject(projections(), queue(&["a", "b"]));
    let projection = subject.spec().projections.clone().unwrap().service.unwrap();
    let service = after(None, service(&subject, &projection, None)).unwrap();
    let pods = pods(&["a", "b"]);
    let slice = after(
        None,
        slice_for(queue(&["a", "b"]), OnStale::Keep, &pods, None),
    )
    .unwrap();
    insta::assert_yaml_snapshot!(json!({ "service": service, "slice": slice }));
}

#[test]
fn what_the_api_server_adds_to_a_service_is_no_difference() {
    let subject = subject(projections(), queue(&["a"]));
    let projection = subject.spec().projections.clone().unwrap().service.unwrap();
    let mut live = after(None, service(&subject, &projection, None)).unwrap();
    let spec = live.spec.as_mut().unwrap();
    spec.cluster_ip = Some("10.1.1.1".to_owned());
    spec.type_ = Some("ClusterIP".to_owned());
    spec.ip_families = Some(vec!["IPv4".to_owned()]);
    spec.ports.as_mut().unwrap()[0].app_protocol = Some("http".to_owned());
    live.metadata.resource_version = Some("7".to_owned());
    assert_eq!(service(&subject, &projection, Some(&live)), Step::Nothing);
    // A selector would let Kubernetes add addresses.
    let mut selecting = live.clone();
    let selector = BTreeMap::from([("app".to_owned(), "x".to_owned())]);
    selecting.spec.as_mut().unwrap().selector = Some(selector);
    assert_eq!(
        service(&subject, &projection, Some(&selecting)),
        Step::Replace(Box::new(live))
    );
}

#[test]
fn a_port_by_its_name_is_the_one_of_the_leaders_pod() {
    let mut projection = projections().service.unwrap();
    projection.ports[0].target_port = Some(IntOrString::String("web".to_owned()));
    projection.ports.push(ProjectedPort {
        name: "plain".to_owned(),
        port: 9,
        ..ProjectedPort::default()
    });
    let subject = subject(projections(), queue(&["a"]));
    let service = after(None, service(&subject, &projection, None)).unwrap();
    let told = service.spec.clone().unwrap().ports.unwrap();
    let web = IntOrString::String("web".to_owned());
    assert_eq!(told[0].target_port, Some(web));
    assert_eq!(told[1].target_port, Some(IntOrString::Int(9)));
    let reached = |pod: Option<&PodFacts>| {
        let of = SliceOf {
            service: &service,
            pod,
        };
        let slice = after(None, slice(&subject, &projection, of, None)).unwrap();
        let ports = slice.ports.unwrap_or_default().into_iter();
        ports
            .map(|port| (port.name.unwrap(), port.port.unwrap()))
            .collect::<Vec<_>>()
    };
    let port = |name: &str, protocol, number| NamedPort {
        name: name.to_owned(),
        protocol,
        number,
    };
    let mut pod = pod("a", "10.0.0.1");
    pod.ports = vec![
        port("web", PortProtocol::Udp, 1),
        port("web", PortProtocol::Tcp, 2),
        port("web", PortProtocol::Tcp, 3),
    ];
    let (http, plain) = (("http".to_owned(), 2), ("plain".to_owned(), 9));
    assert_eq!(reached(Some(&pod)), [http, plain.clone()]);
    assert_eq!(unreached(&projection, &pod), None);
    // Who has no such port is reached by the others.
    pod.ports.truncate(1);
    assert_eq!(reached(Some(&pod)), std::slice::from_ref(&plain));
    assert_eq!(reached(None), [plain]);
    let failure = unreached(&projection, &pod).unwrap();
    assert_eq!(failure.reason, Reason::PortNotFound);
    assert_eq!(
        failure.what,
        "No container of the leader's pod a names the port web/TCP."
    );
}

#[test]
fn a_leader_without_a_pod_empties_the_slice_at_once() {
    let pods = pods(&["a", "b"]);
    let live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    assert_eq!(addresses(&live), ["10.0.0.1"]);
    let token = |slice: &EndpointSlice| slice.metadata.annotations.clone()?.remove(FENCING_TOKEN);
    assert_eq!(token(&live).as_deref(), Some("17"));
    let next = slice_for(queue(&["stranger"]), OnStale::Keep, &pods, Some(&live));
    let empty = after(Some(&live), next).unwrap();
    assert_eq!((addresses(&empty).len(), token(&empty)), (0, None));
    let next = slice_for(queue(&["b"]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), next).unwrap()), ["10.0.0.2"]);
    let next = slice_for(queue(&[]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), next).unwrap()), [""; 0]);
}

#[test]
fn without_sight_the_address_stays_or_goes_as_the_spec_says() {
    let mut pods = pods(&["a", "b"]);
    let live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    let blind = stale(queue(&["a"]));
    let keep = slice_for(blind.clone(), OnStale::Keep, &pods, Some(&live));
    assert_eq!(keep, Step::Nothing);
    let remove = slice_for(blind.clone(), OnStale::Remove, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), remove).unwrap()), [""; 0]);
    // A new pod of the same name does not get the address: it is unknown whether it leads.
    let mut another = pod("a", "10.0.0.9");
    another.uid = "another".to_owned();
    pods.insert(another);
    let other = slice_for(blind, OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), other).unwrap()), [""; 0]);
}

#[test]
fn without_sight_a_slice_that_is_ahead_of_the_status_keeps_its_pod() {
    let led = |leader: &str, token: &str| {
        let mut status = queue(&[leader]);
        status.leader.as_mut().unwrap().fencing_token = Some(token.to_owned());
        status
    };
    let mut pods = pods(&["a", "b"]);
    let live = after(None, slice_for(led("b", "9"), OnStale::Keep, &pods, None)).unwrap();
    let blind = stale(led("a", "8"));
    let keep = slice_for(blind.clone(), OnStale::Keep, &pods, Some(&live));
    assert_eq!(keep, Step::Nothing);
    // Nobody led when the status was written.
    let mut nobody = stale(queue(&[]));
    nobody.max_fencing_token = Some("8".to_owned());
    let keep = slice_for(nobody, OnStale::Keep, &pods, Some(&live));
    assert_eq!(keep, Step::Nothing);
    // Who is not ahead, or by nobody knows what, is no leader.
    let mut silent = live.clone();
    silent.metadata.annotations = None;
    let mut unknown = blind.clone();
    unknown.leader.as_mut().unwrap().fencing_token = None;
    for (status, on_stale, live) in [
        (stale(led("a", "9")), OnStale::Keep, &live),
        (stale(led("a", "10")), OnStale::Keep, &live),
        (led("stranger", "8"), OnStale::Keep, &live),
        (blind.clone(), OnStale::Remove, &live),
        (blind.clone(), OnStale::Keep, &silent),
        (unknown, OnStale::Keep, &live),
    ] {
        let step = slice_for(status, on_stale, &pods, Some(live));
        assert_eq!(addresses(&after(Some(live), step).unwrap()), [""; 0]);
    }
    // A pod that goes takes its address with it, and so does one that comes back under its name.
    pods.remove("b");
    let gone = slice_for(blind.clone(), OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), gone).unwrap()), [""; 0]);
    let mut another = pod("b", "10.0.0.9");
    another.uid = "another".to_owned();
    pods.insert(another);
    let other = slice_for(blind, OnStale::Keep, &pods, Some(&live));
    assert_eq!(addresses(&after(Some(&live), other).unwrap()), [""; 0]);
}

#[test]
fn an_address_without_sight_goes_when_its_time_is_over() {
    let pods = pods(&["a"]);
    let live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    let mut blind = subject(projections(), stale(queue(&["a"])));
    blind.is_outlived = true;
    let projection = blind.spec().projections.clone().unwrap().service.unwrap();
    let service = after(None, service(&blind, &projection, None)).unwrap();
    let candidate_pods = candidate_pods(&blind, &Binder::default(), &pods, None);
    let of = SliceOf {
        service: &service,
        pod: candidate_pods.pod.as_ref(),
    };
    let step = slice(&blind, &projection, of, Some(&live));
    assert_eq!(addresses(&after(Some(&live), step).unwrap()), [""; 0]);
}

#[test]
fn a_service_has_what_the_spec_asks_for_and_is_made_anew_for_another_kind_of_address() {
    let mut projections = projections();
    let projection = projections.service.as_mut().unwrap();
    projection.headless = true;
    projection.annotations = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    projection.ports[0].protocol = PortProtocol::Udp;
    let projection = projection.clone();
    let subject = subject(projections, queue(&["a"]));
    let mut live = after(None, service(&subject, &projection, None)).unwrap();
    let spec = live.spec.clone().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    assert_eq!(spec.ports.unwrap()[0].protocol.as_deref(), Some("UDP"));
    let annotations = live.metadata.annotations.as_mut().unwrap();
    assert_eq!(annotations["team"], "blue");
    // An annotation of somebody else stays.
    annotations.insert("note".to_owned(), "x".to_owned());
    assert_eq!(service(&subject, &projection, Some(&live)), Step::Nothing);
    let plain = ServiceProjection {
        annotations: BTreeMap::new(),
        ..projection.clone()
    };
    let step = service(&subject, &plain, Some(&live));
    let plain = after(Some(&live), step).unwrap();
    let left = BTreeMap::from([("note".to_owned(), "x".to_owned())]);
    assert_eq!(plain.metadata.annotations, Some(left));
    let other = ServiceProjection {
        headless: false,
        ..projection
    };
    assert_eq!(service(&subject, &other, Some(&live)), Step::Delete);
}

#[test]
fn the_endpoint_is_as_ready_as_the_pod() {
    let conditions = |ready, terminating| {
        let mut pods = Pods::new("shop");
        pods.insert(PodFacts {
            ready,
            terminating,
            ..pod("a", "10.0.0.1")
        });
        let slice = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
        let found = slice.endpoints[0].conditions.clone().unwrap();
        (found.ready, found.serving, found.terminating)
    };
    assert_eq!(
        conditions(true, false),
        (Some(true), Some(true), Some(false))
    );
    assert_eq!(
        conditions(false, false),
        (Some(false), Some(false), Some(false))
    );
    assert_eq!(
        conditions(true, true),
        (Some(false), Some(true), Some(true))
    );
}

#[test]
fn a_slice_of_another_family_is_made_anew() {
    let pods = pods(&["a"]);
    let mut live = after(None, slice_for(queue(&["a"]), OnStale::Keep, &pods, None)).unwrap();
    live.address_type = "IPv6".to_owned();
    let step = slice_for(queue(&["a"]), OnStale::Keep, &pods, Some(&live));
    assert_eq!(step, Step::Delete);
}

proptest! {
    /// For any leader and any pods, seen or blind: a slice never has two addresses, and only that of the
    /// leader's pod.
    #[test]
    fn never_two_addresses(
        steps in proptest::collection::vec((names(), any::<bool>(), any::<bool>(), names()), 1..12),
    ) {
        let mut live: Option<EndpointSlice> = None;
        for (people, blind, keep, there) in steps {
            let named: Vec<String> = people.iter().map(|n| format!("p{n}")).collect();
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let mut known = Pods::new("shop");
            for n in there {
                // Two pods may share an address: pods of a node's network do.
                known.insert(pod(&format!("p{n}"), &format!("10.0.0.{}", n % 3)));
            }
            let status = if blind { stale(queue(&named)) } else { queue(&named) };
            let on_stale = if keep { OnStale::Keep } else { OnStale::Remove };
            let step = slice_for(status, on_stale, &known, live.as_ref());
            live = after(live.as_ref(), step);
            let slice = live.as_ref().unwrap();
            let found = addresses(slice);
            prop_assert!(found.len() <= 1, "{found:?}");
            prop_assert!(!blind || keep || found.is_empty());
            if let Some(target) = slice.endpoints.first().and_then(|one| one.target_ref.clone()) {
                prop_assert_eq!(target.name.as_deref(), named.first().copied());
            }
        }
    }
}
