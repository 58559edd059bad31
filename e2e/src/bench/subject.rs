//! One ensemble under load, and what is measured of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use bellwether_api::labels::{TEMPLATE_HASH, VOTERS};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

use super::plain::{NAME, Pattern, Strategy};
use super::{Options, Way};
use crate::ensemble::Ensemble;
use crate::history::{Deletion, deletions, is_ready};
use crate::load::{Load, Verdict, pod_of, serves};
use crate::wait::until;
use crate::watch::Watch;
use crate::world::World;

/// How often every member is asked for its role, in seconds.
const SAMPLING: &str = "0.1";
/// How long an ensemble may take to start, and one member to come back.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a whole change may take. A plain StatefulSet whose members elected two leaders never
/// ends it.
const WHOLE_CHANGE: Duration = Duration::from_secs(180);
/// The shortest time without an acknowledged write that is added to a total, in seconds.
const NOTABLE: f64 = 0.3;
/// How many clients write, each on a connection of its own: with few, it would be luck whether all
/// of them are connected to the member that restarts.
const WRITERS: u32 = 4;
/// How many writes a second each of them sends at most.
const RATE: &str = "100";

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Who carried the change out.
    pub way: Way,
    /// The longest time in which no write of any client was acknowledged during the change, in seconds.
    pub longest_gap: f64,
    /// The sum of all such times of at least 0.3 s: shorter ones are the machine's noise.
    pub total_gap: f64,
    /// The same for one client, on average: it also counts when its own member restarts.
    pub client_gap: f64,
    /// From the change to the last member serving under it, in seconds; `None` if it did not come to
    /// that within three minutes.
    pub wall: Option<f64>,
    /// How often another leader was elected.
    pub leader_changes: usize,
    /// Pods that were replaced or removed.
    pub restarts: usize,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How many of them a member lacks at the end; `None` when they could not be read back.
    pub lost: Option<u64>,
    /// How long two members led at once, in seconds, where that could do harm.
    pub two_leaders: f64,
}

/// An ensemble under load.
#[derive(Debug)]
pub struct Subject<'w> {
    world: &'w World,
    way: Way,
    timeline: bool,
    ensemble: Ensemble<'w>,
    sets: Watch,
    load: Load<'w>,
}

impl<'w> Subject<'w> {
    /// Creates `size` members, starts the load, and makes the last of them the leader: it is the one
    /// that a fresh ensemble elects, and every way must begin alike. `largest` is the size that it
    /// is going to have at the most.
    pub fn start(
        world: &'w World,
        options: &Options,
        way: Way,
        pattern: &Pattern,
        size: u16,
        largest: u16,
    ) -> Result<Self> {
        let sets = Watch::start::<StatefulSet>(&world.namespace)?;
        let clients = world.clients()?;
        let ensemble = match way {
            Way::Operator | Way::Other => world.small_ensemble(size)?,
            Way::RunTime => {
                let mut spec = Ensemble::small(size);
                spec["membershipChange"] = json!("Reconfiguration");
                let ensemble = world.ensemble("main", spec)?;
                ensemble.wait_ready(size)?;
                ensemble
            }
            Way::Plain => {
                pattern.create(world, size, Strategy::RollingUpdate)?;
                Ensemble::new(world, NAME)
            }
            Way::Hand => {
                pattern.create(world, size, Strategy::OnDelete)?;
                Ensemble::new(world, NAME)
            }
        };
        let load = Load::start_many(clients, ensemble, largest, (WRITERS, RATE), SAMPLING)?;
        let subject = Self {
            world,
            way,
            timeline: options.timeline,
            ensemble,
            sets,
            load,
        };
        subject.wait_rest(size)?;
        let wanted = subject.ensemble.pod(size - 1);
        for _ in 0..2 * size {
            let leader = subject.leader()?;
            if leader == wanted {
                break;
            }
            subject.restart(&leader)?;
            subject.wait_rest(size)?;
        }
        subject.load.wait_writes(100)?;
        Ok(subject)
    }

    /// The world that it is in.
    pub fn world(&self) -> &'w World {
        self.world
    }

    /// Its names.
    pub fn ensemble(&self) -> Ensemble<'w> {
        self.ensemble
    }

    /// The last role that each member was seen in, by pod.
    fn roles(&self) -> BTreeMap<String, String> {
        let role = |line: &Value| line["role"].as_str().unwrap_or_default().to_owned();
        let lines = self.load.roles();
        let own = |line| (pod_of(line).to_owned(), role(line));
        lines.iter().map(own).collect()
    }

    /// The pod that leads, by its own report.
    pub fn leader(&self) -> Result<String> {
        until("one member leads", PATIENCE, || {
            let roles = self.roles();
            let mut leaders = roles.iter().filter(|(_, role)| *role == "leader");
            match (leaders.next(), leaders.next()) {
                (Some((pod, _)), None) => Ok(pod.clone()),
                _ => Err(format!("{roles:?}")),
            }
        })
    }

    /// Deletes a pod by hand and waits until its successor serves.
    pub fn restart(&self, pod: &str) -> Result<()> {
        let from = UNIX_EPOCH.elapsed()?.as_secs_f64();
        let target = ["delete", "pod", pod, "--wait=false"];
        self.world.run(&target)?;
        until(&format!("{pod} serves again"), PATIENCE, || {
            let lines = self.load.roles();
            let of_pod = |l: &&Value| pod_of(l) == pod && l["sent"].as_f64() >= Some(from);
            let mut own = lines.iter().filter(of_pod);
            let away = own.any(|line| !serves(line["role"].as_str()));
            match (away, own.next_back()) {
                (true, Some(line)) if serves(line["role"].as_str()) => Ok(()),
                _ => Err(format!("{:?}", self.roles())),
            }
        })
    }

    /// Restarts the first `count` members by hand in the best order: each waited for, and the leader
    /// last, since nothing but its own restart takes the lead from it.
    pub fn restart_all(&self, count: u16) -> Result<()> {
        let leader = self.leader()?;
        let mut pods: Vec<String> = (0..count).map(|o| self.ensemble.pod(o)).collect();
        pods.sort_by_key(|pod| *pod == leader);
        pods.iter().try_for_each(|pod| self.restart(pod))
    }

    /// Waits until this member follows or leads.
    pub fn wait_serves(&self, pod: &str) -> Result<()> {
        until(&format!("{pod} serves"), PATIENCE, || {
            let roles = self.roles();
            if serves(roles.get(pod).map(String::as_str)) {
                Ok(())
            } else {
                Err(format!("{roles:?}"))
            }
        })
    }

    /// Waits until all `size` members are ready and serve.
    fn wait_rest(&self, size: u16) -> Result<()> {
        until("all members serve", PATIENCE, || self.is_done(size, None))
    }

    /// The revision of the pod template.
    pub fn revision(&self) -> Result<String> {
        let set = self.sets.get(NAME);
        let revision = set.and_then(|s| s["status"]["updateRevision"].as_str().map(str::to_owned));
        revision.ok_or_else(|| anyhow!("the StatefulSet has no revision yet"))
    }

    /// Whether there are exactly `size` members, all of them made from the StatefulSet's present
    /// template, which is not `old`, ready and serving.
    fn is_done(&self, size: u16, old: Option<&str>) -> Result<(), String> {
        let set = self.sets.get(NAME).ok_or("there is no StatefulSet")?;
        let (status, revision) = (&set["status"], &set["status"]["updateRevision"]);
        if set["spec"]["replicas"] != size
            || status["observedGeneration"] != set["metadata"]["generation"]
            || revision.is_null()
            || revision.as_str() == old
        {
            return Err(format!("the StatefulSet's status is {status}"));
        }
        let pods = self.world.pods.all();
        let is_member = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["name"] == NAME;
        let members: Vec<&Value> = pods.iter().filter(is_member).collect();
        // Where members change at run time, the template's list changes without a restart.
        let template = &set["spec"]["template"]["metadata"]["annotations"];
        let list = template[VOTERS].as_str().unwrap_or_default();
        let at_run_time = !template[TEMPLATE_HASH].is_null();
        if at_run_time && list.split(',').count() != usize::from(size) {
            return Err(format!("the server list is {list}"));
        }
        let up_to_date = |pod: &Value| {
            let metadata = &pod["metadata"];
            let same = match at_run_time {
                true => metadata["annotations"][TEMPLATE_HASH] == template[TEMPLATE_HASH],
                false => metadata["labels"]["controller-revision-hash"] == *revision,
            };
            same && pod["metadata"]["deletionTimestamp"].is_null() && is_ready(pod)
        };
        let done = members.iter().filter(|pod| up_to_date(pod)).count();
        if members.len() != usize::from(size) || done != usize::from(size) {
            return Err(format!("{done} of {} pods are done", members.len()));
        }
        let roles = self.roles();
        let serving =
            (0..size).all(|o| serves(roles.get(&self.ensemble.pod(o)).map(String::as_str)));
        if serving {
            Ok(())
        } else {
            Err(format!("{roles:?}"))
        }
    }

    /// Carries the change out, waits until `size` members serve under it, and reads every
    /// acknowledged write back from each of them.
    pub fn measure(self, size: u16, change: impl FnOnce(&Self) -> Result<()>) -> Result<Measured> {
        let old = self.revision()?;
        let seen = self.world.pods.history().len();
        let from = UNIX_EPOCH.elapsed()?.as_secs_f64();
        let asked = Instant::now();
        let ended = change(&self).and_then(|()| {
            until("the change is carried out", WHOLE_CHANGE, || {
                self.is_done(size, Some(&old))
            })
        });
        let wall = asked.elapsed().as_secs_f64();
        let to = UNIX_EPOCH.elapsed()?.as_secs_f64();
        if let (Err(error), Way::Operator | Way::RunTime) = (&ended, self.way) {
            println!("    it did not end: {error:#}");
        }
        let before = leaders(&self.load.roles(), 0.0, from);
        let deleted = deletions(&self.world.pods.history()[seen..]);
        let (way, timeline) = (self.way, self.timeline);
        let members = self.ensemble.members(size);
        let verdict = self.load.finish_as_it_is(&members)?;
        let mut all = verdict.acknowledged_at.concat();
        all.sort_by(f64::total_cmp);
        let of_all = gaps(&all, from, to);
        if timeline {
            print_timeline(from, &verdict, &deleted, &of_all);
        }
        let clients = verdict.acknowledged_at.iter();
        let of_clients: f64 = clients.map(|times| total(&gaps(times, from, to))).sum();
        let during = leaders(&verdict.samples, from, f64::INFINITY);
        let changes = during.difference(&before).count();
        let harm = verdict.assert_one_leader().is_err();
        let overlap = verdict.roles["longestOverlap"].as_f64().unwrap_or(0.0);
        let unread = verdict.verified["unread"].as_array();
        Ok(Measured {
            way,
            longest_gap: of_all.iter().map(|(_, gap)| *gap).fold(0.0, f64::max),
            total_gap: total(&of_all),
            client_gap: of_clients / f64::from(WRITERS),
            wall: ended.is_ok().then_some(wall),
            leader_changes: changes,
            restarts: deleted.len(),
            acknowledged: verdict.acknowledged,
            lost: if unread.is_some_and(Vec::is_empty) {
                verdict.verified["lostCount"].as_u64()
            } else {
                None
            },
            two_leaders: if harm { overlap } else { 0.0 },
        })
    }
}

/// The epochs that a leader was seen in: each leader has one of its own.
fn leaders(samples: &[Value], from: f64, to: f64) -> BTreeSet<i64> {
    let within = |s: &&Value| {
        let at = s["sent"].as_f64();
        s["role"] == "leader" && at >= Some(from) && at < Some(to)
    };
    let samples = samples.iter().filter(within);
    samples.filter_map(|s| s["epoch"].as_i64()).collect()
}

/// The times between acknowledgements that lie at least partly within a span of time: when each
/// began, and its length in seconds.
fn gaps(acknowledged_at: &[f64], from: f64, to: f64) -> Vec<(f64, f64)> {
    let last = acknowledged_at.last().copied().unwrap_or(from);
    let mut all: Vec<(f64, f64)> = acknowledged_at
        .windows(2)
        .filter(|pair| pair[1] > from && pair[0] < to)
        .map(|pair| (pair[0], pair[1] - pair[0]))
        .collect();
    if last < to {
        all.push((last.max(from), to - last.max(from)));
    }
    all
}

/// The sum of the notable ones.
fn total(gaps: &[(f64, f64)]) -> f64 {
    let notable = gaps.iter().map(|(_, gap)| *gap).filter(|g| *g >= NOTABLE);
    notable.sum()
}

/// What happened, in seconds since the change was asked for.
fn print_timeline(from: f64, verdict: &Verdict, deleted: &[Deletion], gaps: &[(f64, f64)]) {
    let mut lines: Vec<(f64, String)> = Vec::new();
    for sample in verdict.samples.iter() {
        let pod = pod_of(sample);
        let role = sample["role"].as_str().unwrap_or_default();
        lines.push((
            sample["sent"].as_f64().unwrap_or_default(),
            format!("{pod} {role}"),
        ));
    }
    lines.extend(deleted.iter().map(|d| (d.at, format!("{} deleted", d.pod))));
    let notable = gaps.iter().filter(|(_, seconds)| *seconds >= NOTABLE);
    lines.extend(notable.map(|(at, s)| (*at, format!("no write for {s:.2} s"))));
    lines.retain(|(at, _)| *at >= from - 0.5);
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, text) in lines {
        println!("    {:>7.2}  {text}", at - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_the_change_and_an_open_one_counts() {
        let times = [0.0, 5.0, 5.1, 6.1, 9.0];
        let rounded = |from, to| -> Vec<i64> {
            let gaps = gaps(&times, from, to);
            gaps.iter()
                .map(|(_, g)| (g * 10.0).round() as i64)
                .collect()
        };
        assert_eq!(rounded(5.05, 6.0), [1, 10]);
        assert_eq!(rounded(6.1, 12.0), [29, 30]);
    }
}
