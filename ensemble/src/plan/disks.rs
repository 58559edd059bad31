//! How full the members' disks are.

use bellwether_api::ensemble::status::Reason;

use super::trouble::Trouble;
use crate::observation::PodObservation;
use crate::quantity;

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
