//! What must be true of the mirror: at every moment of what it writes, and once nothing has gone wrong for a while of what
//! it shows.

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether_api::election::DEFAULT_ROLE_KEY;
use bellwether_api::labels::FENCING_TOKEN;
use bellwether_api_server::{Kind, Object, Store, Write};
use jiff::Timestamp;
use serde_json::Value;

use super::applications::{Application, Lead, Truth};
use super::zookeeper::Zoo;
use crate::cluster::NAMESPACE;

/// How long a read may take, and everything that it waits for before it is sent.
const READ: Duration = Duration::from_secs(2);
/// For how long a Service and labels may go by what was read last.
const BELIEVED: Duration = Duration::from_secs(15);
/// How long a change of the leader, or of its pod, may take until everything shows it.
const SHOWN: Duration = Duration::from_secs(5);

/// What is judged now, and by what.
pub struct Scene<'s> {
    /// The time since the life began.
    pub now: Duration,
    /// When the life began.
    pub begin: Timestamp,
    /// The servers.
    pub zoo: &'s Zoo,
    /// The API server.
    pub store: &'s Store,
    /// Since when nothing has gone wrong, with the time that the operator may take after that.
    pub well_since: Duration,
    /// The same of the requests to the API server alone.
    pub api_well_since: Duration,
}

/// The judge of one election.
#[derive(Debug, Default)]
pub struct Judge {
    /// The last token on the Lease, and how often the servers had gone back to an earlier state when it was read.
    token: Option<(i64, usize)>,
}

fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

fn token(object: &Object) -> Option<i64> {
    number(&object["metadata"]["annotations"][FENCING_TOKEN])
}

/// When a Lease with this spec was renewed.
fn renewal(spec: &Value) -> Option<Timestamp> {
    spec["renewTime"].as_str()?.parse().ok()
}

impl Judge {
    /// Judges what an operator wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn write(
        &mut self,
        scene: &Scene<'_>,
        application: &Application,
        truth: &Truth,
        write: &Write,
    ) -> Result<(), String> {
        let Ok(Some(object)) = &write.result else {
            return Ok(());
        };
        match write.kind {
            Kind::LEASE if write.name == application.form.name() => {
                self.lease(scene, application, truth, object)
            }
            Kind::POD => label(scene, application, truth, write, object),
            _ => Ok(()),
        }
    }

    /// A Lease with a holder says that the holder led when it was renewed, and its token never decreases.
    fn lease(
        &mut self,
        scene: &Scene<'_>,
        application: &Application,
        truth: &Truth,
        lease: &Object,
    ) -> Result<(), String> {
        let name = application.form.name();
        let spec = &lease["spec"];
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        if holder.is_empty() {
            return Ok(());
        }
        let token = token(lease);
        let renewed = renewal(spec).ok_or_else(|| format!("the Lease {name} was never renewed"))?;
        let renewed = renewed.duration_since(scene.begin);
        let renewed = Duration::try_from(renewed).unwrap_or_default();
        if renewed > scene.now + READ {
            return Err(format!("the Lease {name} is renewed in {renewed:?}"));
        }
        let lag = scene.zoo.lag_since(renewed.saturating_sub(READ));
        let from = renewed.saturating_sub(lag + READ);
        // Where an ACL hides the leader's node, only its name is known.
        let is = |lead: &Lead| match token {
            Some(token) => lead.identity == holder && lead.czxid == token,
            None => lead.node == holder,
        };
        if !truth.led_between(from, renewed + READ, is) {
            return Err(format!(
                "the Lease {name} says that {holder} with token {token:x?} led at {renewed:?}, and it did not"
            ));
        }
        let Some(token) = token else { return Ok(()) };
        // What was read before the servers went back may still be written after that.
        let restores = scene.zoo.restores(renewed);
        let before = self.token.replace((token, restores));
        match before {
            Some((before, same)) if token < before && same == restores => Err(format!(
                "the token on the Lease {name} went from {before:x} back to {token:x}"
            )),
            _ => Ok(()),
        }
    }

    /// Judges what is shown, once it has had its time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn picture(
        &self,
        scene: &Scene<'_>,
        application: &Application,
        truth: &Truth,
        pods_since: Duration,
    ) -> Result<(), String> {
        let changed = truth.since().max(pods_since);
        if scene.now < scene.well_since || scene.now < changed + SHOWN {
            return Ok(());
        }
        let name = application.form.name();
        let get = |kind| scene.store.get(kind, NAMESPACE, name);
        let status = get(Kind::ELECTION).map(|election| election["status"].clone());
        let status = status.unwrap_or_default();
        let lead = truth.now();
        let shown = status["leader"]["identity"].as_str();
        let shown_token = number(&status["leader"]["fencingToken"]);
        let (identity, czxid) = (lead.map(|l| &*l.identity), lead.map(|l| l.czxid));
        if (shown, shown_token) != (identity, czxid) {
            return Err(format!(
                "the status of {name} shows {shown:?} with token {shown_token:x?}, and {identity:?} leads with {czxid:x?}"
            ));
        }
        let conditions = status["conditions"].as_array().cloned();
        let mut conditions = conditions.iter().flatten();
        if !conditions.any(|c| c["type"] == "Synced" && c["status"] == "True") {
            return Err(format!("{name} is not synced: {}", status["conditions"]));
        }
        let lease = get(Kind::LEASE).ok_or_else(|| format!("there is no Lease {name}"))?;
        let spec = &lease["spec"];
        let holder = spec["holderIdentity"].as_str().filter(|h| !h.is_empty());
        let left = renewal(spec).map(|renewed| {
            let now =
                scene.begin.as_millisecond() + i64::try_from(scene.now.as_millis()).unwrap_or(0);
            renewed.as_millisecond() - now
                + spec["leaseDurationSeconds"].as_i64().unwrap_or(0) * 1000
        });
        if holder != identity || (lead.is_some() && left.is_none_or(|left| left <= 0)) {
            return Err(format!(
                "the Lease {name} shows {holder:?} for {left:?} ms more, and {identity:?} leads"
            ));
        }
        self.bound(scene, application, lead)
    }

    /// The label and the address are those of the leader's pod, if its process still runs.
    fn bound(
        &self,
        scene: &Scene<'_>,
        application: &Application,
        lead: Option<&Lead>,
    ) -> Result<(), String> {
        let name = application.form.name();
        let maker = lead.and_then(|lead| Some((lead, application.maker(lead.czxid)?)));
        let (must, may) = match maker {
            None => (None, None),
            Some((_, (candidate, false))) => (Some(&*candidate.pod), Some(&*candidate.pod)),
            Some((lead, (candidate, true))) => {
                let may_own = Application::may_own(candidate, lead);
                (None, may_own.then_some(&*candidate.pod))
            }
        };
        let is_right = |shown: &BTreeSet<String>| {
            let only = shown.iter().all(|pod| Some(&**pod) == may);
            only && must.is_none_or(|must| shown.contains(must))
        };
        let pods: Vec<_> = scene.store.list(Kind::POD, Some(NAMESPACE)).collect();
        let own = pods.iter().filter(|pod| pod.label("app") == Some(name));
        let labelled = own.filter(|pod| pod.label(DEFAULT_ROLE_KEY) == Some("leader"));
        let labelled: BTreeSet<String> = labelled.map(|pod| pod.name().to_owned()).collect();
        if !is_right(&labelled) {
            return Err(format!(
                "{labelled:?} of {name} have the leader's label, and {must:?} leads"
            ));
        }
        let slices = scene.store.list(Kind::ENDPOINT_SLICE, Some(NAMESPACE));
        let own = slices.filter(|s| s.label("kubernetes.io/service-name") == Some(name));
        let mut addressed = BTreeSet::new();
        for endpoint in own.flat_map(|s| s["endpoints"].as_array().cloned().unwrap_or_default()) {
            let address = endpoint["addresses"][0].as_str().unwrap_or_default();
            let has_it = |pod: &&&std::sync::Arc<Object>| pod["status"]["podIP"] == address;
            let pod = pods.iter().find(has_it);
            addressed.insert(pod.map_or(address, |pod| pod.name()).to_owned());
        }
        match is_right(&addressed) {
            true => Ok(()),
            false => Err(format!(
                "the Service of {name} leads to {addressed:?}, and {must:?} leads"
            )),
        }
    }
}

/// The leader's label is put only on the pod of a leader, whose process has not started again since it stood for election.
fn label(
    scene: &Scene<'_>,
    application: &Application,
    truth: &Truth,
    write: &Write,
    pod: &Object,
) -> Result<(), String> {
    let is_labelled = |pod: &Object| pod.label(DEFAULT_ROLE_KEY) == Some("leader");
    let before = write.before.as_ref().is_some_and(|pod| is_labelled(pod));
    let is_own = pod.label("app") == Some(application.form.name());
    if before || !is_own || !is_labelled(pod) || scene.now < scene.api_well_since {
        return Ok(());
    }
    let mut candidates = application.candidates.iter();
    let Some(candidate) = candidates.find(|candidate| candidate.pod == pod.name()) else {
        return Err(format!("{} is labelled and is no candidate", pod.name()));
    };
    let is = |lead: &Lead| lead.identity == candidate.pod && Application::may_own(candidate, lead);
    let from = scene.now.saturating_sub(BELIEVED + READ);
    let from = from.saturating_sub(scene.zoo.lag_since(from));
    match truth.led_between(from, scene.now, is) {
        true => Ok(()),
        false => Err(format!(
            "{} gets the leader's label, and did not lead since it started",
            candidate.pod
        )),
    }
}
