//! What the operator did to the pods, read from the watch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::load::{Verdict, pod_of, serves};
use crate::watch::Event;

/// One deletion of a member's pod.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// The pod.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// When the deletion was seen, in Unix seconds.
    pub at: f64,
    /// The configuration revision of the pod that took its place; `None` if none did.
    pub replaced_by: Option<String>,
    /// Whether that pod is in its own server list.
    pub votes_after: bool,
}

fn is_member(event: &Event) -> bool {
    event.object["metadata"]["labels"]["app.kubernetes.io/name"] == "zookeeper"
}

/// Whether the pod is deleted or being deleted.
fn is_going(event: &Event) -> bool {
    event.deleted || !event.object["metadata"]["deletionTimestamp"].is_null()
}

/// When it was seen, in Unix seconds.
fn seconds(event: &Event) -> f64 {
    let since = event.at.duration_since(UNIX_EPOCH);
    since.map_or(0.0, |d| d.as_secs_f64())
}

fn revision(object: &Value) -> Option<String> {
    let annotations = &object["metadata"]["annotations"];
    annotations["zookeeper.bellwether.dev/config-revision"]
        .as_str()
        .map(str::to_owned)
}

/// The server list that a pod judges quorums by.
fn voters(object: &Value) -> Vec<u32> {
    let list = object["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"].as_str();
    let ids = list.unwrap_or_default().split(',');
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// The server id of a member's pod.
fn server_id(pod: &str) -> Option<u32> {
    let ordinal: u32 = pod.rsplit('-').next()?.parse().ok()?;
    Some(ordinal + 1)
}

/// Every deletion of a member's pod, in order.
pub fn deletions(history: &[Event]) -> Vec<Deletion> {
    let mut seen = BTreeSet::new();
    let mut found: Vec<Deletion> = Vec::new();
    for (index, event) in history.iter().enumerate().filter(|(_, e)| is_member(e)) {
        if !is_going(event) || !seen.insert(event.uid().to_owned()) {
            continue;
        }
        let next = history[index..]
            .iter()
            .find(|e| e.name() == event.name() && e.uid() != event.uid() && is_member(e));
        found.push(Deletion {
            pod: event.name().to_owned(),
            uid: event.uid().to_owned(),
            at: seconds(event),
            replaced_by: next.and_then(|e| revision(&e.object)),
            votes_after: next
                .zip(server_id(event.name()))
                .is_some_and(|(e, id)| voters(&e.object).contains(&id)),
        });
    }
    found
}

/// How often each pod was replaced.
pub fn restarts(deletions: &[Deletion]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for deletion in deletions {
        *counts.entry(deletion.pod.clone()).or_insert(0) += 1;
    }
    counts
}

/// The most members that were not ready at the same time, from when all were ready first.
pub fn most_unready(history: &[Event], size: usize) -> usize {
    let mut ready: BTreeMap<String, bool> = BTreeMap::new();
    let (mut worst, mut complete) = (0, false);
    for event in history.iter().filter(|e| is_member(e)) {
        let serves = is_ready(&event.object) && !is_going(event);
        ready.insert(event.name().to_owned(), serves);
        let serving = ready.values().filter(|r| **r).count();
        complete |= serving == size;
        if complete {
            worst = worst.max(size.saturating_sub(serving));
        }
    }
    worst
}

/// Whether a pod, or an ensemble, is ready.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// At no time did members judge quorums by more than two server lists; and every newcomer came when
/// all members ran one list and each of them had joined, that is one step after the other. The
/// operator asks the servers themselves, as the samples do; a pod's readiness comes later than their
/// answers, and on a busy machine later than the next step.
pub fn assert_one_step_at_a_time(history: &[Event], verdict: &Verdict) -> Result<()> {
    let mut members: BTreeMap<String, Value> = BTreeMap::new();
    let mut since: BTreeMap<String, f64> = BTreeMap::new();
    let (mut ready, mut complete) = (BTreeSet::new(), false);
    for event in history.iter().filter(|e| is_member(e)) {
        if event.deleted {
            members.remove(event.name());
            continue;
        }
        if !since.contains_key(event.name()) {
            since.insert(event.name().to_owned(), seconds(event));
            let lists: BTreeSet<Vec<u32>> = members.values().map(voters).collect();
            let names: BTreeSet<&String> = members.keys().collect();
            let joined = |name: &String| {
                let first = since.get(name).copied().unwrap_or_default() - BEHIND;
                let until = seconds(event) + BEHIND;
                let in_time = |sent: f64, _: Option<&str>| (first..=until).contains(&sent);
                ready.contains(name) || served(verdict, name, in_time)
            };
            let late: Vec<&String> = members.keys().filter(|name| !joined(name)).collect();
            ensure!(
                !complete || lists.len() == 1 && late.is_empty(),
                "{} came before the step before it was finished: {names:?} run {lists:?}, and \
                 {late:?} had not joined",
                event.name()
            );
        }
        members.insert(event.name().to_owned(), event.object.clone());
        if is_ready(&event.object) {
            ready.insert(event.name().to_owned());
        }
        let lists: BTreeSet<Vec<u32>> = members.values().map(voters).collect();
        ensure!(lists.len() <= 2, "three server lists are live: {lists:?}");
        complete |= members.values().all(is_ready);
    }
    Ok(())
}

/// Whether this restart made a leader hand over that left for good next: it came back without a vote,
/// or had been restarted in this roll already.
fn hands_over(deletion: &Deletion, deletions: &[Deletion]) -> bool {
    let of_pod = || deletions.iter().filter(|d| d.pod == deletion.pod);
    let next = of_pod().find(|d| d.at > deletion.at);
    let again = of_pod().any(|d| d.at < deletion.at && d.replaced_by == deletion.replaced_by);
    next.is_some_and(|d| d.replaced_by.is_none()) && (again || !deletion.votes_after)
}

/// Within every roll, that is among the pods that were replaced by pods of one revision, the leader
/// went last, except a leader that handed over because it left next. No pod led when it left for good.
pub fn assert_leader_last(deletions: &[Deletion], verdict: &Verdict) -> Result<()> {
    let mut rolls: BTreeMap<&str, Vec<(&Deletion, Option<String>)>> = BTreeMap::new();
    for deletion in deletions {
        // The watch is a little behind the deletion, and a sample a quarter of a second at most.
        let leader = verdict.leader_at(deletion.at - 0.3);
        match &deletion.replaced_by {
            Some(revision) => rolls.entry(revision).or_default().push((deletion, leader)),
            None => ensure!(
                leader.as_deref() != Some(deletion.pod.as_str()),
                "{} led when it was removed for good",
                deletion.pod
            ),
        }
    }
    for (revision, mut roll) in rolls {
        roll.retain(|(d, leader)| {
            leader.as_deref() != Some(d.pod.as_str()) || !hands_over(d, deletions)
        });
        let order: Vec<String> = roll
            .iter()
            .map(|(d, leader)| {
                format!("{} (leader {})", d.pod, leader.as_deref().unwrap_or("none"))
            })
            .collect();
        let early = roll
            .iter()
            .rev()
            .skip(1)
            .find(|(d, leader)| leader.as_deref() == Some(d.pod.as_str()));
        ensure!(
            early.is_none(),
            "in the roll to {revision} the leader did not restart last: {}",
            order.join(", ")
        );
    }
    Ok(())
}

/// How long the samples of roles may be behind what the operator saw, in seconds: each member is asked four times a second,
/// on a machine that has more to do.
const BEHIND: f64 = 3.0;

/// Whenever a member's pod was deleted, the others that had joined held a majority of every server
/// list that was in use. Lists of one or two servers are exempt: they need every server.
pub fn assert_quorum_kept(history: &[Event], verdict: &Verdict) -> Result<()> {
    let addresses = addresses(history);
    // By pod: its uid, and its server list.
    let mut members: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for event in history.iter().filter(|e| is_member(e)) {
        if !is_going(event) {
            let notes = &event.object["metadata"]["annotations"];
            let list = notes["zookeeper.bellwether.dev/voters"].as_str();
            let of_this = members.entry(event.name()).or_default();
            if of_this.0 != event.uid() {
                *of_this = (event.uid(), list.unwrap_or_default());
            }
            continue;
        }
        let known = members
            .get(event.name())
            .is_some_and(|m| m.0 == event.uid());
        let lists: BTreeSet<&str> = members.values().map(|m| m.1).collect();
        if !known {
            continue;
        }
        members.remove(event.name());
        let until = seconds(event) + BEHIND;
        let joined: BTreeSet<u32> = members
            .iter()
            .filter(|(pod, (uid, _))| {
                let address = addresses.get(uid);
                served(verdict, pod, |sent, at| {
                    sent <= until && address.is_some_and(|address| at == Some(address))
                })
            })
            .filter_map(|(pod, _)| server_id(pod))
            .collect();
        for list in lists {
            let voters: Vec<u32> = list.split(',').filter_map(|v| v.parse().ok()).collect();
            let here = voters.iter().filter(|v| joined.contains(v)).count();
            ensure!(
                voters.len() < 3 || here > voters.len() / 2,
                "when {} was deleted only servers {joined:?} had joined, no majority of {list}",
                event.name()
            );
        }
    }
    Ok(())
}

/// The address of each pod, by uid.
fn addresses(history: &[Event]) -> BTreeMap<&str, &str> {
    let pods = history.iter();
    pods.filter_map(|pod| Some((pod.uid(), pod.object["status"]["podIP"].as_str()?)))
        .collect()
}

/// Whether the pod of this name served in a sample that counts, by when it was asked, in Unix seconds, and by the address
/// that answered. The time at which a watch tells of a pod is no measure: on a busy machine the pod may serve before.
fn served(verdict: &Verdict, pod: &str, counts: impl Fn(f64, Option<&str>) -> bool) -> bool {
    verdict.samples.iter().any(|sample| {
        let sent = sample["sent"].as_f64().unwrap_or_default();
        let serves = pod_of(sample) == pod && serves(sample["role"].as_str());
        serves && counts(sent, sample["address"].as_str())
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;

    fn event(pod: &str, uid: &str, going: bool, ready: bool) -> Event {
        let mut object = json!({
            "metadata": {
                "name": pod,
                "uid": uid,
                "labels": { "app.kubernetes.io/name": "zookeeper" },
                "annotations": { "zookeeper.bellwether.dev/config-revision": format!("r-{uid}") },
            },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        });
        if going {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Event {
            at: SystemTime::now(),
            deleted: false,
            object,
        }
    }

    fn verdict(samples: &[Value]) -> Verdict {
        Verdict {
            acknowledged: 0,
            acknowledged_at: Vec::new(),
            verified: Value::Null,
            roles: Value::Null,
            samples: samples.to_vec(),
            writer: Value::Null,
        }
    }

    #[test]
    fn a_deletion_is_counted_once_and_knows_its_successor() {
        let history = [
            event("zk-0", "a", false, true),
            event("zk-0", "a", true, true),
            event("zk-0", "a", true, false),
            event("zk-0", "b", false, false),
            event("zk-1", "c", true, false),
        ];
        let found = deletions(&history);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].replaced_by.as_deref(), Some("r-b"));
        assert_eq!(found[1].replaced_by, None);
        assert_eq!(restarts(&found)["zk-0"], 1);
    }

    #[test]
    fn a_newcomer_before_the_end_of_the_step_is_noticed() {
        let mut first = event("zk-0", "a", false, true);
        first.object["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"] = json!("1");
        let mut second = event("zk-1", "b", false, false);
        second.object["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"] = json!("1,2");
        let mut third = event("zk-2", "c", false, false);
        third.object["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"] = json!("1,2,3");
        let good = [first.clone(), second.clone()];
        assert!(assert_one_step_at_a_time(&good, &verdict(&[])).is_ok());
        let unfinished = [first.clone(), second.clone(), third.clone()];
        assert!(assert_one_step_at_a_time(&unfinished, &verdict(&[])).is_err());
        first.object["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"] = json!("1,2");
        let early = [first, second, third];
        assert!(assert_one_step_at_a_time(&early, &verdict(&[])).is_err());
        // The kubelet has not said so, but the member itself has.
        let sent = seconds(&early[1]) + 0.5;
        let joined = json!({ "member": "zk-1.x:2181", "role": "follower", "sent": sent });
        assert!(assert_one_step_at_a_time(&early, &verdict(&[joined])).is_ok());
    }

    #[test]
    fn a_leader_that_leaves_hands_over_and_any_other_restarts_last() {
        let deletion = |at: u32, pod: &str, by: Option<&str>| Deletion {
            pod: pod.to_owned(),
            uid: format!("{pod}-{at}"),
            at: f64::from(at),
            replaced_by: by.map(str::to_owned),
            votes_after: true,
        };
        let leads = |from: u32, pod: &str| {
            json!({ "member": format!("{pod}.x:2181"), "role": "leader", "sent": f64::from(from),
                    "epoch": from })
        };
        // zk-2 led and went last; zk-3 was elected, led, and handed over because it left next.
        let mut roll = vec![
            deletion(10, "zk-0", Some("a")),
            deletion(20, "zk-3", Some("a")),
            deletion(30, "zk-2", Some("a")),
            deletion(40, "zk-3", Some("a")),
            deletion(50, "zk-0", Some("b")),
            deletion(60, "zk-2", Some("b")),
            deletion(70, "zk-3", None),
        ];
        let seen = verdict(&[leads(1, "zk-2"), leads(35, "zk-3"), leads(45, "zk-2")]);
        assert!(assert_leader_last(&roll, &seen).is_ok());
        // A restart that was the first in the roll hands over only if it took the vote away.
        roll.remove(1);
        let seen = verdict(&[leads(1, "zk-3"), leads(45, "zk-2")]);
        roll[1].at = 45.0;
        roll.sort_by(|a, b| a.at.total_cmp(&b.at));
        assert!(assert_leader_last(&roll, &seen).is_err());
        roll[1].votes_after = false;
        assert!(assert_leader_last(&roll, &seen).is_ok());
        // One that stays never goes first.
        roll.pop();
        assert!(assert_leader_last(&roll, &seen).is_err());
    }

    #[test]
    fn unready_members_count_from_when_all_were_ready() {
        let history = [
            event("zk-0", "a", false, false),
            event("zk-1", "b", false, true),
            event("zk-0", "a", false, true),
            event("zk-1", "b", true, true),
            event("zk-1", "c", false, true),
        ];
        assert_eq!(most_unready(&history, 2), 1);
    }

    #[test]
    fn a_deletion_before_the_one_before_has_joined_is_noticed() {
        let now = SystemTime::now();
        let time = |seconds| now + Duration::from_secs(seconds);
        let member = |seconds, pod: &str, uid: &str, going| {
            let mut event = event(pod, uid, going, true);
            event.at = time(seconds);
            event.object["metadata"]["annotations"]["zookeeper.bellwether.dev/voters"] =
                json!("1,2,3");
            event.object["status"]["podIP"] = json!(format!("of {uid}"));
            event
        };
        let sample = |seconds, uid: &str, pod: &str, role: &str| {
            let sent = time(seconds).duration_since(UNIX_EPOCH).unwrap();
            json!({ "member": format!("{pod}.x:2181"), "address": format!("of {uid}"), "role": role,
                    "sent": sent.as_secs_f64() })
        };
        let history = [
            member(0, "zk-0", "a", false),
            member(0, "zk-1", "b", false),
            member(0, "zk-2", "c", false),
            member(10, "zk-0", "a", true),
            member(11, "zk-0", "d", false),
            member(20, "zk-1", "b", true),
        ];
        let mut samples = vec![
            sample(1, "a", "zk-0", "follower"),
            sample(1, "b", "zk-1", "follower"),
            sample(1, "c", "zk-2", "leader"),
            sample(12, "d", "zk-0", "looking"),
            sample(19, "d", "zk-0", "follower"),
        ];
        assert!(assert_quorum_kept(&history, &verdict(&samples)).is_ok());
        // A sample of the pod that was there before does not count.
        samples[4] = sample(19, "a", "zk-0", "follower");
        assert!(assert_quorum_kept(&history, &verdict(&samples)).is_err());
        // A sample counts although the watch told of the pod after it.
        samples[4] = sample(10, "d", "zk-0", "follower");
        assert!(assert_quorum_kept(&history, &verdict(&samples)).is_ok());
        samples[4] = sample(24, "d", "zk-0", "follower");
        assert!(assert_quorum_kept(&history, &verdict(&samples)).is_err());
    }
}
