//! A member that loses one of its two volumes, and the person who does what the status asks for then.

use std::time::Duration;

use bellwether_api::labels;
use bellwether_api_server::{Delete, Kind};
use bellwether_ensemble::desired::claims::{data_claim, log_claim};
use serde_json::Value;

use super::{Later, Life};
use crate::cluster::{ENSEMBLE, NAME, NAMESPACE};

/// What the status asks for when a member has one volume without the other.
const ASKS: &str = "delete both volume claims";

impl Life {
    /// Whether members have a volume of their own for the transaction log.
    pub(super) fn has_transaction_log(&self) -> bool {
        self.spec["storage"]["transactionLog"].is_object()
    }

    /// The claim of one volume and the pod are deleted.
    pub(super) fn lose_one_disk(&mut self, ordinal: u16, log: bool, noticed: Duration) {
        let claim = match log {
            true => log_claim(NAME, ordinal),
            false => data_claim(NAME, ordinal),
        };
        self.lost_disk = Some(self.cluster.now());
        self.delete(Kind::CLAIM, &claim, &Delete::default());
        self.delete(Kind::POD, &Self::pod(ordinal), &Delete::default());
        self.half.insert(ordinal);
        self.later(noticed, Later::LookAtDisks);
    }

    /// A person does what the status asks for, once every other member serves. Until then the member that lost a
    /// volume may still be needed.
    pub(super) fn replace_disks(&mut self) {
        for ordinal in self.half.clone() {
            if !self.others_serve(ordinal) || !self.status_asks(ordinal) {
                continue;
            }
            let name = Self::pod(ordinal);
            self.tell(&format!(
                "the user deletes both claims of {name} and the pod, as the status asks"
            ));
            for claim in [data_claim(NAME, ordinal), log_claim(NAME, ordinal)] {
                self.delete(Kind::CLAIM, &claim, &Delete::default());
            }
            // Where a webhook refuses that, the person tries again later.
            if self.delete(Kind::POD, &name, &Delete::default()) {
                self.half.remove(&ordinal);
            }
        }
    }

    /// A person deletes the pods that nobody owns and that use volumes which are being deleted, as the status asks.
    pub(super) fn end_orphans(&mut self) {
        if !self.last_message.contains("delete these pods") {
            return;
        }
        let orphans: Vec<String> = {
            let store = self.cluster.api.store();
            let pods = store.list(Kind::POD, Some(NAMESPACE));
            let orphans = pods.filter(|pod| {
                let owned = !pod["metadata"]["ownerReferences"][0].is_null();
                !owned && self.last_message.contains(pod.name())
            });
            orphans.map(|pod| pod.name().to_owned()).collect()
        };
        for name in orphans {
            self.tell(&format!("the user deletes {name}, as the status asks"));
            self.delete(Kind::POD, &name, &Delete::default());
        }
    }

    /// A person accepts the loss of empty disks that never held a write: an ensemble was deleted and created again before it
    /// had served, and the operator cannot know what was on its volumes.
    pub(super) fn accept_nothing(&mut self) {
        let asks = self.last_message.contains(labels::ACCEPT_DATA_LOSS);
        let was_written = {
            let machines = self.cluster.machines();
            machines.zoo.committed(ENSEMBLE) > 0 || !machines.zoo.acknowledged(ENSEMBLE).is_empty()
        };
        if asks && !was_written && !std::mem::replace(&mut self.accepted_nothing, true) {
            self.accept_loss();
        }
    }

    /// Whether a condition names the member's pod and says what a person can do.
    fn status_asks(&self, ordinal: u16) -> bool {
        let store = self.cluster.api.store();
        let ensemble = store.get(Kind::ENSEMBLE, NAMESPACE, NAME);
        let conditions = ensemble.and_then(|e| e["status"]["conditions"].as_array());
        let asks = |condition: &Value| {
            let message = condition["message"].as_str().unwrap_or_default();
            message.contains(ASKS) && message.contains(&Self::pod(ordinal))
        };
        conditions.into_iter().flatten().any(asks)
    }

    fn others_serve(&self, ordinal: u16) -> bool {
        let pods = super::observing::voters(&self.cluster.api.store());
        pods.len() >= 3 && self.voters_serve(Some(&Self::pod(ordinal)))
    }
}
