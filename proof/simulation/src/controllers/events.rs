//! Events as client-go's recorder writes them: one that is like an earlier one counts that up.

use bellwether_api_server::{Kind, Object, Store};
use serde_json::json;

/// Records an event about an object.
pub(super) fn record(
    store: &mut Store,
    (actor, about): (&str, &Object),
    warning: bool,
    reason: &str,
    message: &str,
) {
    let now = bellwether_api_server::now();
    let seconds = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
    let seconds = seconds.to_string();
    let known = store
        .list(Kind::EVENT, Some(about.namespace()))
        .find(|event| {
            event["involvedObject"]["uid"] == about.uid()
                && event["reason"] == reason
                && event["message"] == message
                && event["source"]["component"] == actor
        });
    // An event that cannot be written is lost.
    if let Some(known) = known {
        let (namespace, name) = (known.namespace().to_owned(), known.name().to_owned());
        let _ = store.update(actor, Kind::EVENT, (&namespace, &name), |event| {
            event["count"] = (event["count"].as_i64().unwrap_or(1) + 1).into();
            event["lastTimestamp"] = seconds.into();
        });
        return;
    }
    let metadata = &about["metadata"];
    let event = json!({
        "metadata": {
            "name": format!("{}.{:x}", about.name(), now.as_nanosecond()),
            "namespace": about.namespace(),
        },
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "reason": reason,
        "message": message,
        "type": if warning { "Warning" } else { "Normal" },
        "count": 1,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "eventTime": null,
        "source": { "component": actor },
        "reportingComponent": actor,
        "reportingInstance": "",
    });
    if let Err(refusal) = store.create(actor, Kind::EVENT, event)
        && refusal.is_already_exists()
    {
        // Two in one instant of virtual time: the number behind the name only has to be another.
        let other = json!({ "name": format!("{}.{:x}", about.name(), store.revision()) });
        tracing::debug!(%other, "two events in one instant");
    }
}
