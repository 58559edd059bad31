//! Everything fails, again and again and at once, while the user changes the ensemble.

use std::any::Any;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bellwether_e2e::ensemble::Ensemble;
use bellwether_e2e::load::Load;
use bellwether_e2e::process::{self, Cut, Frozen, Process};
use bellwether_e2e::wait::until;
use bellwether_e2e::world::World;
use fastrand::Rng;
use serde_json::json;

use crate::soak;

/// For how long everything fails where the search is not long.
const SHORT: Duration = Duration::from_secs(60);
/// The seed of the choices. What comes of them also depends on the moment.
const SEED: &str = "BELLWETHER_SOAK_SEED";

const SIZES: [u16; 3] = [1, 3, 5];
/// A container that was killed often is started again after five minutes.
const PATIENCE: Duration = Duration::from_secs(420);

/// A fault that lasts until it is dropped: [`Frozen`] or [`Cut`].
type Lasting = Box<dyn Any>;

/// What a user does, and what happens to servers and the operator.
#[derive(Clone, Copy, Debug)]
enum Act {
    Resize,
    Roll,
    RolloutRestart,
    Delete,
    Kill,
    Freeze,
    FreezeLeader,
    CutOff,
    CutDeaf,
    CutPair,
    KillOperator,
    LoseDisk,
}

const ACTS: [Act; 12] = [
    Act::Resize,
    Act::Roll,
    Act::RolloutRestart,
    Act::Delete,
    Act::Kill,
    Act::Freeze,
    Act::FreezeLeader,
    Act::CutOff,
    Act::CutDeaf,
    Act::CutPair,
    Act::KillOperator,
    Act::LoseDisk,
];

/// The size, the settings and the pods change while servers are killed, hang, and are cut off from all
/// or one of the others or hear nothing, one loses its disk, and the operator is killed. No acknowledged
/// write is lost, two leaders can never commit, and in the end the ensemble is as asked for. In the middle
/// of it, the user has members change at run time instead of by restarts.
pub(crate) fn no_write_is_lost_whatever_fails(world: &World) -> Result<()> {
    let long = soak::long();
    let seed = match std::env::var(SEED).ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed,
        None if long.is_some() => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        None => 1,
    };
    let time = long.unwrap_or(SHORT);
    let ensemble = world.small_ensemble(3)?;
    let load = Load::start(world.clients()?, ensemble, 5)?;
    let mut storm = Storm {
        world,
        ensemble,
        choices: Rng::with_seed(seed),
        size: 3,
        disk_lost: false,
        lasting: Vec::new(),
    };
    let begin = Instant::now();
    let mut done = 0;
    let mut by_restarts = true;
    while begin.elapsed() < time {
        if by_restarts && begin.elapsed() > time / 2 {
            ensemble.patch(&json!({ "membershipChange": "Reconfiguration" }))?;
            by_restarts = false;
            eprintln!("from now on members change at run time");
        }
        storm.lasting.retain(|(end, _)| *end > Instant::now());
        let act = storm.choices.choice(ACTS).unwrap_or(Act::Roll);
        if storm.act(act)? {
            done += 1;
            eprintln!("{} s: {act:?}", begin.elapsed().as_secs());
            std::thread::sleep(storm.seconds(1..10));
        }
    }
    storm.lasting.clear();
    let size = storm.size;
    world.wait_operator()?;
    until("the ensemble is as it was asked for", PATIENCE, || {
        ensemble.is_ready(size)
    })?;
    let verdict = load.finish(size)?;
    eprintln!(
        "seed {seed}: {done} changes and failures in {} s, {} writes, longest gap {} s, {} leader changes",
        begin.elapsed().as_secs(),
        verdict.acknowledged,
        verdict.longest_gap(),
        verdict.leader_changes()
    );
    verdict.assert_safe()
}

struct Storm<'w> {
    world: &'w World,
    ensemble: Ensemble<'w>,
    choices: Rng,
    size: u16,
    disk_lost: bool,
    lasting: Vec<(Instant, Lasting)>,
}

impl Storm<'_> {
    fn seconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_secs(self.choices.u64(range))
    }

    /// Does one of it, and does not wait until the operator has seen it; `false` if it cannot be done now.
    fn act(&mut self, act: Act) -> Result<bool> {
        let pods: Vec<(String, String)> = self.ensemble.uids().into_iter().collect();
        let chosen = self.choices.choice(&pods);
        let chosen = match act {
            Act::FreezeLeader => {
                let status = self.ensemble.status().unwrap_or_default();
                pods.iter().find(|(pod, _)| status["leader"] == **pod)
            }
            _ => chosen,
        };
        let Some((pod, uid)) = chosen else {
            return Ok(false);
        };
        let target = format!("zke/{}", self.ensemble.name());
        match act {
            Act::Resize => {
                let mut others = SIZES.to_vec();
                others.retain(|size| *size != self.size);
                self.size = self.choices.choice(others).unwrap_or(self.size);
                let replicas = format!("--replicas={}", self.size);
                self.world.run(&["scale", &target, &replicas])?;
            }
            Act::Roll => {
                let limit = self.choices.u32(5..50);
                let patch = json!({ "spec": { "config": { "syncLimit": limit } } });
                let patch = patch.to_string();
                self.world
                    .run(&["patch", &target, "--type=merge", "--patch", &patch])?;
            }
            Act::RolloutRestart => {
                let set = format!("statefulset/{}", self.ensemble.name());
                self.world.run(&["rollout", "restart", &set])?;
            }
            Act::Delete => self.ensemble.delete_pod(pod)?,
            Act::KillOperator => {
                self.world.kill_operator()?;
                self.world.replace_operator()?;
            }
            // One only: the next might be lost before the first one has its data again.
            Act::LoseDisk => {
                if self.disk_lost || self.size < 3 || self.ensemble.is_ready(self.size).is_err() {
                    return Ok(false);
                }
                self.disk_lost = true;
                let claim = format!("pvc/data-{pod}");
                self.world.take_away(&[&claim])?;
                self.ensemble.delete_pod(pod)?;
            }
            Act::Kill
            | Act::Freeze
            | Act::FreezeLeader
            | Act::CutOff
            | Act::CutDeaf
            | Act::CutPair => return self.fail(act, uid, &pods),
        }
        Ok(true)
    }

    /// A failure of one server; `false` if its process is elsewhere or has ended.
    fn fail(&mut self, act: Act, uid: &String, pods: &[(String, String)]) -> Result<bool> {
        let is_server = |p: &Process| p.line.contains("QuorumPeerMain");
        let Some(server) = process::of_pod(uid).into_iter().find(is_server) else {
            return Ok(false);
        };
        let lasting: Option<Lasting> = match act {
            Act::Freeze | Act::FreezeLeader => {
                Frozen::servers([uid]).ok().map(|f| Box::new(f) as _)
            }
            Act::CutDeaf => Cut::deaf(&server)?.map(|cut| Box::new(cut) as _),
            Act::CutPair => {
                let others = pods.iter().filter(|(_, other)| other != uid);
                let others: Vec<_> = others.collect();
                let other = self.choices.choice(&others);
                let object = other.and_then(|(pod, _)| self.world.pods.get(pod));
                let object = object.unwrap_or_default();
                let Some(address) = object["status"]["podIP"].as_str() else {
                    return Ok(false);
                };
                Cut::between(&server, address)?.map(|cut| Box::new(cut) as _)
            }
            Act::CutOff => Cut::off(&server)?.map(|cut| Box::new(cut) as _),
            _ => {
                process::signal(&[server], "KILL");
                return Ok(true);
            }
        };
        let end = Instant::now() + self.seconds(3..30);
        let done = lasting.is_some();
        self.lasting.extend(lasting.map(|lasting| (end, lasting)));
        Ok(done)
    }
}
