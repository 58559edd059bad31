//! Volumes that grow. A claim can request more, never less; the claim template of the StatefulSet cannot change
//! its size, so claims that are created from it later grow like the first ones.

use bellwether_api::ensemble::status::{Reason, StorageStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::trouble::Trouble;
use crate::desired::claims::ClaimSizes;
use crate::desired::{self, DesiredObject};
use crate::observation::{ClaimObservation, Observation, StatefulSetObservation};
use crate::quantity::{bytes, exact, words};
use crate::validate::ValidEnsemble;

/// What the operator requests and reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Growth {
    /// Claims to ask for more.
    pub requests: Vec<DesiredObject>,
    /// Volumes that have not reached the size that their claims ask for.
    pub under_way: Option<String>,
    /// A change of size that is impossible.
    pub trouble: Option<Trouble>,
}

/// The sizes to render into the claim templates of a StatefulSet.
pub fn template_sizes<'a>(
    ensemble: &'a ValidEnsemble,
    set: &'a StatefulSetObservation,
) -> ClaimSizes<'a> {
    let wanted = ClaimSizes::wanted(ensemble);
    let log = |log| template_size(log, set.log_claim_size.as_ref());
    ClaimSizes {
        data: template_size(wanted.data, set.claim_size.as_ref()),
        log: wanted.log.map(log),
    }
}

/// The size in the template, since it cannot change. If it equals the size that the user asks for, the result
/// has the user's spelling: the API server writes `8192Mi` as `8Gi`, and another spelling must not count as
/// another size.
fn template_size<'a>(wanted: &'a Quantity, has: Option<&'a Quantity>) -> &'a Quantity {
    has.filter(|has| bytes(has) != bytes(wanted))
        .unwrap_or(wanted)
}

/// Plans the growth of all volumes of voters and observers.
pub fn plan(ensemble: &ValidEnsemble, observation: &Observation, members: u16) -> Growth {
    let others = &observation.observers;
    let sizes = ClaimSizes::wanted(ensemble);
    let data = of_members(&observation.claims, members)
        .chain(of_members(&others.claims, ensemble.observers));
    let mut growth = plan_growth("storage.size", sizes.data, data);
    if let Some(size) = sizes.log {
        let logs = of_members(&observation.log_claims, members)
            .chain(of_members(&others.log_claims, ensemble.observers));
        let log = plan_growth("storage.transactionLog.size", size, logs);
        growth.requests.extend(log.requests);
        growth.under_way = match (growth.under_way, log.under_way) {
            (Some(data), Some(log)) => Some(format!("{data} {log}")),
            (data, log) => data.or(log),
        };
        growth.trouble = growth.trouble.or(log.trouble);
    }
    growth
}

/// What the claims ask for, those of former members among them: no spec can ask for less.
pub fn asked(observation: &Observation) -> Option<StorageStatus> {
    let largest = |voters: &[ClaimObservation], observers: &[ClaimObservation]| {
        let all = voters.iter().chain(observers).filter(|c| !c.terminating);
        all.filter_map(|c| c.requested).max().map(exact)
    };
    let others = &observation.observers;
    let asked = StorageStatus {
        size: largest(&observation.claims, &others.claims),
        transaction_log_size: largest(&observation.log_claims, &others.log_claims),
    };
    (asked != StorageStatus::default()).then_some(asked)
}

/// The claims of present members. Claims of former members grow when their members return.
fn of_members(
    claims: &[ClaimObservation],
    members: u16,
) -> impl Iterator<Item = &ClaimObservation> {
    claims
        .iter()
        .filter(move |c| !c.terminating && c.ordinal < members)
}

/// Plans the growth of these claims to what this field of the spec asks for.
fn plan_growth<'a>(
    field: &str,
    size: &Quantity,
    claims: impl Iterator<Item = &'a ClaimObservation>,
) -> Growth {
    let mut growth = Growth::default();
    let Some(wanted) = bytes(size) else {
        return growth;
    };
    let mut stuck = Vec::new();
    let mut larger = Vec::new();
    let mut growing = Vec::new();
    for claim in claims {
        let (Some(requested), Some(capacity)) = (claim.requested, claim.capacity) else {
            continue;
        };
        if requested > wanted {
            larger.push(format!("{} ({})", claim.name, words(requested)));
        } else if requested < wanted && claim.expandable == Some(false) {
            stuck.push(claim);
        } else if requested < wanted {
            let request = desired::claims::grow(claim, size);
            growth.requests.push(request);
        } else if capacity < wanted {
            let state = claim.resize.as_ref();
            growing.push(state.map_or_else(
                || claim.name.clone(),
                |said| format!("{} ({said})", claim.name),
            ));
        }
    }
    if !growing.is_empty() {
        let text = format!("Growing to {}: {}.", words(wanted), growing.join(", "));
        growth.under_way = Some(text);
    }
    growth.trouble = cannot_grow(&stuck, wanted).or_else(|| cannot_shrink(field, &larger, wanted));
    growth
}

fn cannot_grow(stuck: &[&ClaimObservation], wanted: u64) -> Option<Trouble> {
    let first = stuck.first()?;
    let names: Vec<&str> = stuck.iter().map(|c| c.name.as_str()).collect();
    let class = first.class.as_deref().unwrap_or_default();
    Some(Trouble {
        reason: Reason::VolumeCannotGrow,
        message: format!(
            "{} cannot grow to {}: StorageClass {class} does not have allowVolumeExpansion. \
             Everything else goes on; allow it there if the storage driver can, and the volumes \
             grow, or set the size back.",
            names.join(", "),
            words(wanted)
        ),
    })
}

fn cannot_shrink(field: &str, larger: &[String], wanted: u64) -> Option<Trouble> {
    (!larger.is_empty()).then(|| Trouble {
        reason: Reason::VolumeCannotShrink,
        message: format!(
            "{field} is {}, less than {} have. No volume can shrink: they stay as they are; \
             set it to their size.",
            words(wanted),
            larger.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(
        ordinal: u16,
        requested: u64,
        capacity: u64,
        expandable: Option<bool>,
    ) -> ClaimObservation {
        ClaimObservation {
            name: format!("data-zk-{ordinal}"),
            ordinal,
            uid: ordinal.to_string(),
            requested: Some(requested << 30),
            capacity: Some(capacity << 30),
            resize: None,
            class: Some("fast".to_owned()),
            expandable,
            ..Default::default()
        }
    }

    /// Claims asked for more, growing, and the reason of the trouble.
    fn table(size: &str, claims: &[ClaimObservation]) -> (usize, bool, Option<Reason>) {
        let size = Quantity(size.to_owned());
        let growth = plan_growth("storage.size", &size, of_members(claims, 3));
        let trouble = growth.trouble.map(|t| t.reason);
        (growth.requests.len(), growth.under_way.is_some(), trouble)
    }

    #[test]
    fn the_largest_request_is_told() {
        let mut observation = Observation::default();
        assert_eq!(asked(&observation), None);
        observation.claims = vec![claim(0, 8, 8, None), claim(1, 9, 8, None)];
        observation.claims[1].terminating = true;
        observation.observers.claims = vec![claim(0, 4, 4, None)];
        observation.observers.log_claims = vec![claim(0, 2, 2, None)];
        let told = StorageStatus {
            size: Some("8Gi".to_owned()),
            transaction_log_size: Some("2Gi".to_owned()),
        };
        assert_eq!(asked(&observation), Some(told));
    }

    #[test]
    fn claims_grow_and_never_shrink() {
        let same = [claim(0, 8, 8, None), claim(1, 8, 8, None)];
        assert_eq!(table("8Gi", &same), (0, false, None));
        assert_eq!(table("9Gi", &same), (2, false, None));
        assert_eq!(
            table("7Gi", &same),
            (0, false, Some(Reason::VolumeCannotShrink))
        );
        let asked = [claim(0, 9, 8, None), claim(1, 9, 9, None)];
        assert_eq!(table("9Gi", &asked), (0, true, None));
        let no = [claim(0, 8, 8, Some(false)), claim(1, 8, 8, Some(true))];
        assert_eq!(
            table("9Gi", &no),
            (1, false, Some(Reason::VolumeCannotGrow))
        );
        // A former member's claim is left alone.
        assert_eq!(table("9Gi", &[claim(3, 8, 8, None)]), (0, false, None));
    }

    #[test]
    fn a_request_holds_the_size_in_the_users_words() {
        let size = Quantity("10240Mi".to_owned());
        let growth = plan_growth("storage.size", &size, [claim(0, 8, 8, None)].iter());
        let body = &growth.requests[0].body;
        assert_eq!(body["spec"]["resources"]["requests"]["storage"], "10240Mi");
        assert_eq!(body["metadata"]["uid"], "0");
    }

    #[test]
    fn the_claim_template_keeps_its_size_and_the_users_words_for_it() {
        let quantity = |text: &str| Quantity(text.to_owned());
        let size = |wanted, has| {
            let (wanted, has) = (quantity(wanted), quantity(has));
            template_size(&wanted, Some(&has)).0.clone()
        };
        assert_eq!(size("8192Mi", "8Gi"), "8192Mi");
        assert_eq!(size("20Gi", "8Gi"), "8Gi");
    }

    #[test]
    fn growth_that_is_under_way_or_cannot_be_is_told_in_full() {
        let size = Quantity("9Gi".to_owned());
        let mut growing = claim(0, 9, 8, None);
        growing.resize = Some("waits for a restart".to_owned());
        let reached = claim(2, 9, 9, None);
        let all = [growing, claim(1, 9, 8, None), reached];
        let growth = plan_growth("storage.size", &size, all.iter());
        let told = "Growing to 9 GiB: data-zk-0 (waits for a restart), data-zk-1.";
        assert_eq!(growth.under_way.as_deref(), Some(told));
        let stuck = [claim(0, 8, 8, Some(false)), claim(1, 8, 8, Some(false))];
        let message = plan_growth("storage.size", &size, stuck.iter())
            .trouble
            .unwrap()
            .message;
        let start = "data-zk-0, data-zk-1 cannot grow to 9 GiB: StorageClass fast does not have";
        assert!(message.starts_with(start), "{message}");
        let larger = [claim(0, 10, 10, None), claim(1, 11, 11, None)];
        let message = plan_growth("storage.size", &size, larger.iter())
            .trouble
            .unwrap()
            .message;
        let start = "storage.size is 9 GiB, less than data-zk-0 (10 GiB), data-zk-1 (11 GiB) have.";
        assert!(message.starts_with(start), "{message}");
        // A claim that has no volume yet is not asked.
        let mut unbound = claim(0, 8, 8, None);
        unbound.capacity = None;
        assert_eq!(
            plan_growth("storage.size", &size, [unbound].iter()),
            Growth::default()
        );
    }

    #[test]
    fn the_volumes_of_data_and_of_the_log_grow_each_to_its_own_size() {
        use bellwether_api::ensemble::{Storage, TransactionLog};
        let quantity = |text: &str| Some(Quantity(text.to_owned()));
        let ensemble = crate::validate::example(bellwether_api::ZooKeeperEnsembleSpec {
            replicas: 3,
            storage: Some(Storage {
                size: quantity("9Gi"),
                transaction_log: Some(TransactionLog {
                    size: quantity("5Gi"),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            observers: Some(bellwether_api::ensemble::Observers { replicas: 1 }),
            ..Default::default()
        });
        let mut observation = Observation {
            claims: vec![claim(0, 8, 8, None), claim(3, 8, 8, None)],
            log_claims: vec![claim(0, 4, 4, None)],
            ..Default::default()
        };
        observation.observers.claims = vec![claim(0, 8, 8, None), claim(1, 8, 8, None)];
        observation.observers.log_claims = vec![claim(0, 4, 4, None), claim(1, 4, 4, None)];
        assert_eq!(plan(&ensemble, &observation, 3).requests.len(), 4);
        observation.claims = vec![claim(0, 9, 8, None)];
        observation.log_claims = vec![claim(0, 5, 4, None)];
        let told = "Growing to 9 GiB: data-zk-0. Growing to 5 GiB: data-zk-0.";
        assert_eq!(
            plan(&ensemble, &observation, 3).under_way.as_deref(),
            Some(told)
        );
        observation.log_claims = vec![claim(0, 6, 6, None)];
        let growth = plan(&ensemble, &observation, 3);
        assert_eq!(growth.trouble.unwrap().reason, Reason::VolumeCannotShrink);
        assert_eq!(
            growth.under_way.as_deref(),
            Some("Growing to 9 GiB: data-zk-0.")
        );
        // The template of the StatefulSet keeps both of its sizes.
        let mut running = crate::plan::example::Running::new(3, 0);
        (running.set().claim_size, running.set().log_claim_size) =
            (quantity("8Gi"), quantity("4Gi"));
        let sizes = template_sizes(&ensemble, running.set());
        assert_eq!(
            (sizes.data.0.as_str(), sizes.log.unwrap().0.as_str()),
            ("8Gi", "4Gi")
        );
    }
}
