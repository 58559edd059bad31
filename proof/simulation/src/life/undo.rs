//! `kubectl rollout undo` on the StatefulSet, and what it does to the server list in the template.

use bellwether_api::labels;
use bellwether_api_server::Kind;
use bellwether_ensemble::Voters;
use bellwether_ensemble::safety::may_become_live;
use serde_json::Value;

use super::Life;
use crate::checks::is_at_run_time;
use crate::cluster::{NAME, NAMESPACE};

/// The server list in the annotations of a pod or of a pod template.
fn list_of(object: &Value) -> Option<Voters> {
    let voters = object["metadata"]["annotations"][labels::VOTERS].as_str();
    voters.and_then(|voters| voters.parse().ok())
}

impl Life {
    /// Puts the template of an earlier revision into the StatefulSet, as kubectl does.
    pub(super) fn undo_rollout(&mut self, back: usize) {
        let Some(template) = self.earlier_template(back) else {
            self.tell("not done: there is no earlier revision");
            return;
        };
        if self.is_foreign(&template) && !self.pods_stay() {
            self.tell("not done: a pod that is made now would run a foreign server list");
            return;
        }
        let list = list_of(&template).map(|list| list.to_string());
        let list = list.unwrap_or_default();
        self.tell(&format!("the template returns to one of {{{list}}}"));
        self.edit_set(|set| set["spec"]["template"] = template);
    }

    fn earlier_template(&self, back: usize) -> Option<Value> {
        let store = self.cluster.api.store();
        let set = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME)?;
        let all = store.list(Kind::CONTROLLER_REVISION, Some(NAMESPACE));
        let mut all: Vec<_> = all
            .filter(|r| r.controller().is_some_and(|o| o["uid"] == set.uid()))
            .collect();
        all.sort_by_key(|r| r["revision"].as_i64());
        // Steps beyond the first revision end at the first.
        let earlier = all.len().checked_sub(2)?.saturating_sub(back - 1);
        let mut template = all.get(earlier)?["data"]["spec"]["template"].clone();
        // The revision is a strategic merge patch.
        template.as_object_mut()?.remove("$patch");
        Some(template)
    }

    /// Whether the StatefulSet makes pods with a list that must not be live beside those of its pods. The
    /// operator cannot keep such a pod from voting; it can only put the template back before there is one.
    pub(super) fn template_is_foreign(&self) -> bool {
        let set = {
            let store = self.cluster.api.store();
            store.get(Kind::STATEFUL_SET, NAMESPACE, NAME).cloned()
        };
        set.is_some_and(|set| self.is_foreign(&set["spec"]["template"]))
    }

    fn is_foreign(&self, template: &Value) -> bool {
        let store = self.cluster.api.store();
        let set = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME);
        let written = set.and_then(|set| {
            let text = set["metadata"]["annotations"][labels::TEMPLATE].as_str()?;
            serde_json::from_str::<Value>(text).ok()
        });
        // A pod with its list in a file has no part in lists that change at run time.
        if written.is_some_and(|written| is_at_run_time(&written)) {
            return !is_at_run_time(template);
        }
        // The lists of observers count nowhere.
        let pods = super::observing::voters(&store);
        let lists: Vec<Voters> = pods.iter().filter_map(|pod| list_of(pod)).collect();
        list_of(template).is_some_and(|list| may_become_live(lists.iter(), &list).is_err())
    }

    /// Whether the StatefulSet makes no pod now: it has all of them, and none terminates.
    fn pods_stay(&self) -> bool {
        let store = self.cluster.api.store();
        let set = store.get(Kind::STATEFUL_SET, NAMESPACE, NAME);
        let wanted = set.and_then(|set| set["spec"]["replicas"].as_u64());
        let pods = super::observing::voters(&store);
        let staying = pods.iter().filter(|pod| !pod.is_terminating()).count();
        u64::try_from(staying).ok() >= wanted
    }
}
