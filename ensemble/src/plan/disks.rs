//! What the members' disks say: nearly full, or empty on too many members.

use bellwether_api::ensemble::status::Reason;

use super::report::Trouble;
use super::view::{Member, View};
use crate::ids::{ServerId, Voters};
use crate::observation::PodObservation;
use crate::quantity;
use crate::safety::{holds_majority, majority};

/// A volume on which ZooKeeper will soon not be able to write.
pub fn nearly_full<'a>(pods: impl Iterator<Item = &'a PodObservation>) -> Option<Trouble> {
    let all = pods.filter_map(|pod| {
        let report = pod.volumes.as_ref()?;
        let log = report.transaction_log.map(|u| ("transaction log", u));
        let fullest = [("data", report.data)]
            .into_iter()
            .chain(log)
            .max_by_key(|(_, usage)| usage.percent())?;
        Some((&pod.name, fullest))
    });
    let full: Vec<String> = all
        .filter(|(_, (_, usage))| usage.is_nearly_full())
        .map(|(pod, (volume, usage))| {
            let size = quantity::words(usage.total);
            format!(
                "the {volume} volume of {pod} is {} % full, of {size}",
                usage.percent()
            )
        })
        .collect();
    (!full.is_empty()).then(|| Trouble {
        reason: Reason::VolumeNearlyFull,
        message: format!(
            "{}. A server stops when it cannot write its transaction log. Give the volumes more \
             room with storage.size if their StorageClass lets them grow, keep fewer snapshots \
             (config.autopurgeSnapRetainCount, config.autopurgePurgeInterval), or store less.",
            full.join("; ")
        ),
    })
}

/// No leader can be elected any more: a majority of the voters is known to have an empty disk.
///
/// A member of which nothing is known counts as one that has its disk. While two lists are live a
/// newcomer may rightly be empty, so nothing is said.
pub fn lost_majority(view: &View<'_>) -> Option<Trouble> {
    let voters = &view.template.voters;
    if view.may_initialize || view.leaders > 0 || view.live().len() > 1 {
        return None;
    }
    let report = |id: ServerId| view.members.get(&id)?.pod.volumes.as_ref();
    let empty: Voters = voters
        .iter()
        .filter(|id| report(*id).is_some_and(|r| !r.has_database))
        .collect();
    let rest = voters.difference(&empty);
    if empty.is_empty() || holds_majority(&rest, voters) {
        return None;
    }
    let of = |ids: &Voters, words: &dyn Fn(&Member<'_>) -> String| {
        let all: Vec<String> = ids
            .iter()
            .filter_map(|id| view.members.get(&id).map(words))
            .collect();
        all.join(", ")
    };
    let epoch = |m: &Member<'_>| {
        let epoch = m.pod.volumes.as_ref().and_then(|r| r.current_epoch);
        let epoch = epoch.map_or_else(|| "unknown".to_owned(), |e| e.to_string());
        format!("{} (epoch {epoch})", m.pod.name)
    };
    let survivors = if rest.is_empty() {
        "No other member has data".to_owned()
    } else {
        format!("{} still have theirs", of(&rest, &epoch))
    };
    Some(Trouble {
        reason: Reason::DisksLost,
        message: format!(
            "No leader can be elected: the disks of {} are empty, and an empty member does not vote. \
             {survivors}; {} of {} are needed. Writes that only the empty members had acknowledged \
             are gone with their disks. Nothing is decided without a person: bring the lost volumes \
             back, or accept the loss as the runbook says under DisksLost.",
            of(&empty, &|m| m.pod.name.clone()),
            majority(voters),
            voters.len(),
        ),
    })
}
