//! The API server through kube's own client, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::time::Duration;

use bellwether_api_server::{After, Answer, ApiServer, Before, Call, Faults, Kind, Link, Then};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMetaExt as _;
use kube::runtime::events::{EventType, Recorder, Reporter};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

fn map(name: &str, data: &Value) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap()
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("{other}"),
    }
}

fn server() -> (ApiServer, Client) {
    let server = ApiServer::new(1, 2);
    let client = server.client("operator");
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn objects_are_made_read_changed_and_deleted() {
    let (_server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let made = api
        .create(&PostParams::default(), &map("a", &json!({"k": "1"})))
        .await
        .unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    let again = api
        .create(&PostParams::default(), &map("a", &json!({})))
        .await;
    assert_eq!(code(again), (409, "AlreadyExists".to_owned()));

    let mut wanted = made.clone();
    wanted
        .data
        .as_mut()
        .unwrap()
        .insert("l".to_owned(), "2".to_owned());
    let changed = api
        .replace("a", &PostParams::default(), &wanted)
        .await
        .unwrap();
    assert_ne!(changed.resource_version(), made.resource_version());
    let outdated = api.replace("a", &PostParams::default(), &wanted).await;
    assert_eq!(code(outdated), (409, "Conflict".to_owned()));

    let merge = Patch::Merge(json!({"data": {"k": null, "m": "3"}}));
    let merged = api
        .patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    let keys: Vec<String> = merged.data.clone().unwrap().into_keys().collect();
    assert_eq!(keys, ["l", "m"]);
    let same = api
        .patch("a", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(same.resource_version(), merged.resource_version());

    let exactly = |uid: Option<String>, resource_version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version,
        })
    };
    let other = api
        .delete("a", &exactly(Some("other".to_owned()), None))
        .await;
    assert_eq!(code(other), (409, "Conflict".to_owned()));
    let old = api
        .delete("a", &exactly(None, made.resource_version()))
        .await;
    assert_eq!(code(old), (409, "Conflict".to_owned()));
    let gone = api
        .delete("a", &exactly(merged.uid(), merged.resource_version()))
        .await;
    assert!(gone.unwrap().is_right());
    assert_eq!(code(api.get("a").await), (404, "NotFound".to_owned()));
    assert_eq!(code(api.delete("a", &DeleteParams::default()).await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn an_apply_removes_what_it_owned_and_leaves_the_rest() {
    let (_server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let apply = async |manager: &str, force: bool, data: Value| {
        let mut params = PatchParams::apply(manager);
        params.force = force;
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
        api.patch("a", &params, &Patch::Apply(body)).await
    };
    apply("one", false, json!({"a": "1", "b": "1"}))
        .await
        .unwrap();
    apply("two", false, json!({"b": "1", "c": "2"}))
        .await
        .unwrap();
    let conflict = apply("two", false, json!({"a": "2"})).await.unwrap_err();
    let kube::Error::Api(status) = conflict else {
        panic!("{conflict}");
    };
    let cause = &status.details.as_ref().unwrap().causes[0];
    assert_eq!(
        (status.code, cause.reason.as_str()),
        (409, "FieldManagerConflict")
    );
    assert_eq!(cause.field, ".data.a");
    assert_eq!(cause.message, "conflict with \"one\" using v1");
    // Both own b: it stays until the last lets go.
    let after = apply("one", false, json!({"a": "1"})).await.unwrap();
    assert_eq!(
        after.data.unwrap().into_keys().collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    let forced = apply("two", true, json!({"a": "2"})).await.unwrap();
    assert_eq!(
        forced.data.unwrap(),
        [("a".to_owned(), "2".to_owned())].into()
    );
    let same = apply("two", true, json!({"a": "2"})).await.unwrap();
    assert_eq!(
        same.metadata.resource_version,
        forced.metadata.resource_version
    );
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_at_one_revision_and_selected() {
    let (_server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c", "d", "e"] {
        api.create(&PostParams::default(), &map(name, &json!({})))
            .await
            .unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    api.delete("c", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    let rest = api
        .list(&ListParams::default().limit(9).continue_token(&token))
        .await
        .unwrap();
    let names: Vec<String> = first.iter().chain(&rest).map(|o| o.name_any()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(
        first.metadata.resource_version,
        rest.metadata.resource_version
    );
    let one = api
        .list(&ListParams::default().fields("metadata.name=d"))
        .await
        .unwrap();
    assert_eq!(one.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_are_read_watched_and_patched() {
    let (_server, client) = server();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let read = pods.get_metadata("p").await.unwrap();
    assert_eq!(read.name_any(), "p");
    let meta = kube::core::ObjectMeta {
        labels: Some([("role".to_owned(), "leader".to_owned())].into()),
        ..Default::default()
    };
    let body = Patch::Apply(meta.into_request_partial::<Pod>());
    let params = PatchParams::apply("roles");
    let patched = pods.patch_metadata("p", &params, &body).await.unwrap();
    assert_eq!(patched.labels()["role"], "leader");
    assert_eq!(
        pods.get("p").await.unwrap().spec.unwrap().containers.len(),
        1
    );
    let list = pods.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].labels()["role"], "leader");
    for read in [&patched, &list.items[0]] {
        let managers = read.managed_fields().iter();
        let managers = managers.map(|entry| (entry.manager.as_deref(), entry.operation.as_deref()));
        let expected = [("operator", "Update"), ("roles", "Apply")];
        assert!(managers.eq(expected.map(|(name, operation)| (Some(name), Some(operation)))));
    }
}

#[tokio::test(start_paused = true)]
async fn the_recorder_writes_events_that_the_core_lists() {
    let (_server, client) = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let about = maps
        .create(&PostParams::default(), &map("a", &json!({})))
        .await
        .unwrap();
    let reporter = Reporter {
        controller: "bellwether".to_owned(),
        instance: None,
    };
    let recorder = Recorder::new(client.clone(), reporter);
    for _ in 0..2 {
        let event = kube::runtime::events::Event {
            type_: EventType::Normal,
            reason: "Why".to_owned(),
            note: Some("what happened".to_owned()),
            action: "Acting".to_owned(),
            secondary: None,
        };
        recorder
            .publish(&event, &about.object_ref(&()))
            .await
            .unwrap();
    }
    let events: Api<Event> = Api::default_namespaced(client);
    let about = ListParams::default().fields("involvedObject.kind=ConfigMap,involvedObject.name=a");
    let listed = events.list(&about).await.unwrap().items;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].message.as_deref(), Some("what happened"));
    assert_eq!(listed[0].series.as_ref().unwrap().count, Some(2));
}

struct Once(Option<(Before, After)>);

impl Faults for Once {
    fn before(&mut self, call: &Call) -> Before {
        let other = call.kind != Kind::LEASE;
        self.0
            .filter(|_| !other)
            .map(|(before, _)| before)
            .unwrap_or_default()
    }

    fn after(&mut self, call: &Call, _code: u16) -> After {
        let other = call.kind != Kind::LEASE;
        self.0
            .take_if(|_| !other)
            .map(|(_, after)| after)
            .unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn faults_refuse_delay_and_lose_requests() {
    let (server, client) = server();
    let api: Api<Lease> = Api::default_namespaced(client);
    let fault = |then: Then, answer: Answer| {
        let before = Before {
            then,
            ..Before::default()
        };
        let after = After {
            answer,
            ..After::default()
        };
        server.set_faults(Once(Some((before, after))));
    };
    fault(Then::TooManyRequests(2), Answer::Deliver);
    assert_eq!(
        code(api.get("a").await),
        (429, "TooManyRequests".to_owned())
    );
    fault(Then::InternalError, Answer::Deliver);
    assert_eq!(code(api.get("a").await).0, 500);
    fault(Then::Unavailable, Answer::Deliver);
    assert_eq!(code(api.get("a").await).0, 503);
    fault(Then::Refuse, Answer::Deliver);
    assert!(matches!(api.get("a").await, Err(kube::Error::Service(_))));
    fault(Then::Hang, Answer::Deliver);
    let hangs = tokio::time::timeout(Duration::from_secs(60), api.get("a")).await;
    assert!(hangs.is_err());
    // The write is carried out, and the client does not know.
    let mut lease = Lease::default();
    lease.metadata.name = Some("a".to_owned());
    fault(Then::CarryOut, Answer::Break);
    assert!(api.create(&PostParams::default(), &lease).await.is_err());
    assert_eq!(api.get("a").await.unwrap().name_any(), "a");
    assert_eq!(server.store().writes().len(), 1);
    server.set_link("operator", 0, Link::Refused);
    assert!(api.get("a").await.is_err());
    server.set_link("operator", 0, Link::Up);
    assert!(api.get("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_ensemble_has_defaults_rules_a_status_of_its_own_and_a_scale() {
    let (_server, client) = server();
    let api: Api<bellwether_api::ZooKeeperEnsemble> = Api::default_namespaced(client);
    let apply = async |spec: Value| {
        let body = json!({
            "apiVersion": format!("{}/{}", bellwether_api::GROUP, bellwether_api::VERSION),
            "kind": "ZooKeeperEnsemble",
            "spec": spec,
        });
        let params = PatchParams::apply("user").force();
        api.patch("zk", &params, &Patch::Apply(body)).await
    };
    let made = apply(json!({ "replicas": 3, "storage": { "size": "2Gi" } }))
        .await
        .unwrap();
    assert_eq!((made.spec.replicas, made.metadata.generation), (3, Some(1)));
    let smaller = apply(json!({ "replicas": 3, "storage": { "size": "1Gi" } })).await;
    assert_eq!(code(smaller), (422, "Invalid".to_owned()));
    let status = Patch::Merge(json!({ "spec": { "replicas": 5 }, "status": { "ready": "3/3" } }));
    let params = PatchParams::default();
    let written = api.patch_status("zk", &params, &status).await.unwrap();
    assert_eq!(
        (written.spec.replicas, written.metadata.generation),
        (3, Some(1))
    );
    assert_ne!(
        written.metadata.resource_version,
        made.metadata.resource_version
    );
    let mut both = written.clone();
    both.spec.replicas = 5;
    both.status = None;
    let changed = api
        .replace("zk", &PostParams::default(), &both)
        .await
        .unwrap();
    assert!(changed.status.is_some());
    assert_eq!(changed.metadata.generation, Some(2));
    let scale = Patch::Merge(json!({ "spec": { "replicas": 7 } }));
    let scaled = api.patch_scale("zk", &params, &scale).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(7));
    assert_eq!(api.get("zk").await.unwrap().spec.replicas, 7);
}
