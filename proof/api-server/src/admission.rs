//! What is asked before a write is carried out: webhooks and quotas.

use std::fmt;

use serde_json::Value;

use super::kind::Kind;
use super::refusal::{Refusal, denied, forbidden, webhook_failed};
use super::store::{Store, Verb};
use super::validation::requested;

/// A write that a webhook is asked about.
#[derive(Debug)]
pub struct Review<'r> {
    /// Who asks.
    pub actor: &'r str,
    /// What is asked for.
    pub verb: Verb,
    /// The kind of the object.
    pub kind: Kind,
    /// The subresource; empty for the object itself.
    pub subresource: &'r str,
    /// The object as it will be; a webhook may change it. Of a deletion, the object that goes.
    pub object: &'r mut Value,
    /// The object as it is.
    pub before: Option<&'r Value>,
}

/// What a webhook says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It may be.
    Allow,
    /// It may not, and why.
    Deny(String),
    /// The webhook does not answer, and the write fails with it.
    Fail(String),
}

type Hook = Box<dyn FnMut(&mut Review<'_>) -> Opinion + Send>;

/// The most objects of a kind in a namespace.
#[derive(Clone, Debug)]
pub struct Quota {
    /// The name of the ResourceQuota.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The kind that is counted.
    pub kind: Kind,
    /// The most objects.
    pub most: usize,
}

/// What is asked before a write is carried out.
#[derive(Default)]
pub struct Admission {
    webhooks: Vec<(String, Hook)>,
    /// The quotas.
    pub quotas: Vec<Quota>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.webhooks.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl Admission {
    /// Adds a webhook, which is asked after those that are there.
    pub fn add_webhook(
        &mut self,
        name: &str,
        hook: impl FnMut(&mut Review<'_>) -> Opinion + Send + 'static,
    ) {
        self.webhooks.push((name.to_owned(), Box::new(hook)));
    }

    /// Removes a webhook.
    pub fn remove_webhook(&mut self, name: &str) {
        self.webhooks.retain(|(other, _)| other != name);
    }

    /// Asks every webhook.
    pub(crate) fn review(&mut self, mut review: Review<'_>) -> Result<(), Refusal> {
        for (name, hook) in &mut self.webhooks {
            match hook(&mut review) {
                Opinion::Allow => {}
                Opinion::Deny(why) => return Err(denied(name, &why)),
                Opinion::Fail(why) => return Err(webhook_failed(name, &why)),
            }
        }
        Ok(())
    }
}

/// Whether one object more may be.
pub(crate) fn check_quotas(
    store: &Store,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Result<(), Refusal> {
    for quota in &store.admission.quotas {
        if quota.kind != kind || quota.namespace != namespace {
            continue;
        }
        // A pod that ended uses nothing any more.
        let ended = |phase: &Value| phase == "Succeeded" || phase == "Failed";
        let used = store.list(kind, Some(namespace));
        let used = used.filter(|object| kind != Kind::POD || !ended(&object["status"]["phase"]));
        let used = used.count();
        if used >= quota.most {
            let what = kind.resource().plural;
            let Quota {
                name: quota, most, ..
            } = quota;
            let why = format!(
                "exceeded quota: {quota}, requested: {what}=1, used: {what}={used}, limited: {what}={most}"
            );
            return Err(forbidden(kind, name, &why));
        }
    }
    Ok(())
}

/// Whether a claim may grow: the admission plugin `PersistentVolumeClaimResize`.
pub(crate) fn check_growth(
    store: &Store,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), Refusal> {
    if requested(after) <= requested(before) {
        return Ok(());
    }
    if before["status"]["phase"] != "Bound" {
        let why = "Only bound persistent volume claims can be expanded";
        return Err(forbidden(Kind::CLAIM, name, why));
    }
    let class = before["spec"]["storageClassName"].as_str();
    let class = class.and_then(|class| store.get(Kind::STORAGE_CLASS, "", class));
    if class.is_none_or(|class| class["allowVolumeExpansion"] != Value::Bool(true)) {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        return Err(forbidden(Kind::CLAIM, name, why));
    }
    Ok(())
}
