//! Evictions: deletions of pods that ask the disruption budgets first.

use std::sync::Arc;

use serde_json::Value;

use super::delete::Delete;
use super::kind::Kind;
use super::object::Object;
use super::refusal::{Refusal, budget_exceeded, not_found};
use super::selector::label_selector_selects;
use super::store::Store;

impl Store {
    /// Deletes a pod if the disruption budgets allow it, as a drain of its node does.
    ///
    /// # Errors
    /// What the API server answers: 429 while a budget does not allow it.
    pub fn evict(
        &mut self,
        actor: &str,
        (namespace, name): (&str, &str),
        options: &Delete,
    ) -> Result<Option<Arc<Object>>, Refusal> {
        let pod = self.get(Kind::POD, namespace, name).cloned();
        let pod = pod.ok_or_else(|| not_found(Kind::POD, name))?;
        let ended = matches!(
            pod["status"]["phase"].as_str(),
            Some("Pending" | "Succeeded" | "Failed")
        );
        if !ended && !pod.is_terminating() {
            let labels = &pod["metadata"]["labels"];
            let mut budgets = self.list(Kind::DISRUPTION_BUDGET, Some(namespace));
            let selects = |b: &Object| label_selector_selects(&b["spec"]["selector"], labels);
            let full = budgets.find(|budget| selects(budget) && !self.allows_one_more(budget));
            if let Some(budget) = full {
                return Err(budget_exceeded(budget.name()));
            }
        }
        self.delete(actor, Kind::POD, (namespace, name), options)
    }

    /// Whether one more of a budget's pods may be missing.
    fn allows_one_more(&self, budget: &Object) -> bool {
        let selected = |pod: &&Arc<Object>| {
            label_selector_selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])
        };
        let ready = |pod: &&Arc<Object>| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready && !pod.is_terminating()
        };
        let pods = || {
            self.list(Kind::POD, Some(budget.namespace()))
                .filter(selected)
        };
        let healthy = i64::try_from(pods().filter(ready).count()).unwrap_or(i64::MAX);
        let expected = self.expected(pods());
        let amount = |value: &Value| match value.as_str() {
            Some(percent) => {
                let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(0);
                (expected * percent + 99) / 100
            }
            None => value.as_i64().unwrap_or(0),
        };
        let spec = &budget["spec"];
        let needed = if spec["maxUnavailable"].is_null() {
            amount(&spec["minAvailable"])
        } else {
            expected - amount(&spec["maxUnavailable"])
        };
        healthy > needed
    }

    /// How many pods there should be, by the sets that own them.
    fn expected<'s>(&'s self, pods: impl Iterator<Item = &'s Arc<Object>>) -> i64 {
        let mut sets: Vec<&Arc<Object>> = Vec::new();
        let mut alone = 0;
        for pod in pods {
            let name = pod.controller().and_then(|owner| owner["name"].as_str());
            let set = name.and_then(|name| self.get(Kind::STATEFUL_SET, pod.namespace(), name));
            match set {
                Some(set) if sets.iter().any(|known| known.uid() == set.uid()) => {}
                Some(set) => sets.push(set),
                None => alone += 1,
            }
        }
        let replicas = |set: &&Arc<Object>| set["spec"]["replicas"].as_i64().unwrap_or(1);
        sets.iter().map(replicas).sum::<i64>() + alone
    }
}
