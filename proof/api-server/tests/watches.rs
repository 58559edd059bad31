//! What clients hear of changes: watches, and caches that are behind, through kube's own `watcher` and `Controller`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_api_server::{ApiServer, Kind};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

fn server() -> (ApiServer, Client) {
    let server = ApiServer::new(1, 2);
    let client = server.client("operator");
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_lagging_front_end_is_behind_and_another_is_not() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    server.set_lag(0, Kind::CONFIG_MAP, Duration::from_secs(5));
    api.create(&PostParams::default(), &map("a")).await.unwrap();
    let any = ListParams::default().match_any();
    assert_eq!(
        api.list(&ListParams::default()).await.unwrap().items.len(),
        1
    );
    assert_eq!(api.list(&any).await.unwrap().items.len(), 0);
    server.connect("operator", 1);
    assert_eq!(api.list(&any).await.unwrap().items.len(), 1);
    server.connect("operator", 0);
    assert_eq!(api.list(&any).await.unwrap().items.len(), 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(api.list(&any).await.unwrap().items.len(), 1);
}

async fn next(
    stream: &mut (impl futures::Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> + Unpin),
) -> String {
    match stream.try_next().await.unwrap().unwrap() {
        watcher::Event::Init => "init".to_owned(),
        watcher::Event::InitApply(map) => format!("init {}", map.name_any()),
        watcher::Event::InitDone => "done".to_owned(),
        watcher::Event::Apply(map) => format!("apply {}", map.name_any()),
        watcher::Event::Delete(map) => format!("delete {}", map.name_any()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_follows_and_survives_breaks_and_restarts() {
    let (server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let post = PostParams::default();
    api.create(&post, &map("a")).await.unwrap();
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let mut stream = Box::pin(watcher(api.clone(), config).default_backoff());
        assert_eq!(next(&mut stream).await, "init");
        assert_eq!(next(&mut stream).await, "init a");
        assert_eq!(next(&mut stream).await, "done");
        api.create(&post, &map("b")).await.unwrap();
        assert_eq!(next(&mut stream).await, "apply b");
        // A watch ends after some minutes, and the client resumes it where it was.
        tokio::select! {
            _ = stream.next() => panic!("nothing happens"),
            () = tokio::time::sleep(Duration::from_secs(1000)) => {}
        }
        api.delete("b", &DeleteParams::default()).await.unwrap();
        assert_eq!(next(&mut stream).await, "delete b");
        // The connection breaks; nothing is missed.
        server.connect("operator", 1);
        api.create(&post, &map("c")).await.unwrap();
        let mut broke = 0;
        let seen = loop {
            match stream.next().await.unwrap() {
                Ok(watcher::Event::Apply(map)) => break map.name_any(),
                Ok(_) => panic!("another event"),
                Err(_) => broke += 1,
            }
        };
        assert_eq!((seen.as_str(), broke), ("c", 1));
        // The front end no longer has the older changes: the watcher lists again.
        api.delete("c", &DeleteParams::default()).await.unwrap();
        server.restart(1);
        let mut events = Vec::new();
        while events.last().map(String::as_str) != Some("done") {
            match stream.next().await.unwrap() {
                Ok(watcher::Event::InitApply(map)) => {
                    events.push(format!("init {}", map.name_any()))
                }
                Ok(watcher::Event::InitDone) => events.push("done".to_owned()),
                Ok(watcher::Event::Init) => events.push("init".to_owned()),
                Ok(_) => panic!("another event"),
                Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) => {
                    events.push(status.code.to_string());
                }
                Err(watcher::Error::WatchError(status)) => events.push(status.code.to_string()),
                Err(_) => events.push("broken".to_owned()),
            }
        }
        assert_eq!(events, ["broken", "410", "init", "init a", "done"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_selected_no_more_is_deleted_for_the_watch() {
    let (_server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut labelled = map("a");
    labelled
        .labels_mut()
        .insert("app".to_owned(), "zk".to_owned());
    let made = api.create(&PostParams::default(), &labelled).await.unwrap();
    let params = WatchParams::default().labels("app=zk").timeout(30);
    let watch = api
        .watch(&params, &made.resource_version().unwrap())
        .await
        .unwrap();
    let mut watch = Box::pin(watch);
    let other = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
    api.patch("a", &PatchParams::default(), &other)
        .await
        .unwrap();
    let Some(Ok(WatchEvent::Deleted(last))) = watch.next().await else {
        panic!("another event");
    };
    assert_eq!(last.labels()["app"], "zk");
    let back = Patch::Merge(json!({"metadata": {"labels": {"app": "zk"}}}));
    api.patch("a", &PatchParams::default(), &back)
        .await
        .unwrap();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(_)))));
    // It ends when its time is over.
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_controller_reconciles_what_changes() {
    let (_server, client) = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reconcile = |map: Arc<ConfigMap>, seen: Arc<Mutex<Vec<String>>>| async move {
        seen.lock().unwrap().push(map.name_any());
        Ok::<_, std::convert::Infallible>(Action::await_change())
    };
    let controller = Controller::new(api.clone(), watcher::Config::default())
        .owns(
            Api::<Secret>::default_namespaced(client.clone()),
            watcher::Config::default(),
        )
        .run(reconcile, |_, _, _| Action::await_change(), seen.clone())
        .for_each(|_| async {});
    let controller = tokio::spawn(controller);
    let made = api.create(&PostParams::default(), &map("a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let secrets: Api<Secret> = Api::default_namespaced(client);
    let mut secret = Secret::default();
    secret.metadata.name = Some("s".to_owned());
    secret.metadata.owner_references = Some(vec![made.controller_owner_ref(&()).unwrap()]);
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*seen.lock().unwrap(), ["a", "a"]);
    controller.abort();
}

#[cfg(feature = "listen")]
#[tokio::test]
async fn a_watch_on_loopback_is_open_as_long_as_its_client_listens() {
    let (server, _) = server();
    let address = server.listen("operator").await.unwrap();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let api: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let mut stream = Box::pin(watcher(api.clone(), watcher::Config::default()));
    assert_eq!(next(&mut stream).await, "init");
    assert_eq!(next(&mut stream).await, "done");
    // Both connections are open at once.
    let (seen, made) = tokio::join!(next(&mut stream), async {
        while server.watches() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        api.create(&PostParams::default(), &map("a")).await
    });
    assert_eq!((seen.as_str(), made.is_ok()), ("apply a", true));
    drop(stream);
    let closed = async {
        while server.watches() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(10), closed).await;
    assert_eq!(closed, Ok(()));
    server.set_link("operator", 0, bellwether_api_server::Link::Refused);
    assert!(matches!(
        api.get("a").await,
        Err(kube::Error::HyperError(_) | kube::Error::Service(_))
    ));
}
