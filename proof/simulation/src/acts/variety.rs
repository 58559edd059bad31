//! Ensembles with parts that most do not have: observers, a volume for each transaction log, plaintext between servers.
//!
//! What happens to these parts comes from a source of chance of its own, so that a life without them is the same as
//! it was before they were known here.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Act, Edit};

/// What happens to observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObserverAct {
    /// The user asks for this many.
    Resize(u16),
    /// A pod is deleted.
    DeletePod(u16),
    /// A pod is deleted by force.
    ForceDelete(u16),
    /// A pod and its volume claims are deleted.
    LoseDisk(u16),
    /// A server's process ends.
    Crash(u16),
    /// A server's process is frozen for this long.
    Freeze(u16, Duration),
    /// The node of a pod is lost for this long.
    LoseNode(u16, Duration),
    /// Somebody deletes the StatefulSet, with its pods or without.
    DeleteSet {
        /// The pods stay.
        orphan: bool,
    },
    /// Somebody scales the StatefulSet.
    ScaleSet(u16),
}

/// Which of the parts an ensemble has.
#[derive(Debug)]
pub struct Variety {
    observers: u16,
    transaction_log: bool,
    rng: fastrand::Rng,
    /// Whether it begins with plaintext between servers.
    plaintext: bool,
    /// When the user switches TLS on or off, if that happens.
    switches: Option<fastrand::Rng>,
    /// Whether it begins with members that change at run time.
    at_run_time: bool,
    /// Before which act they are to from now on, if that happens.
    changes: Option<usize>,
}

impl Variety {
    /// That of the life with this seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0b5e_7e75);
        let observers = if rng.u8(0..3) == 0 { rng.u16(1..3) } else { 0 };
        let mut tls = fastrand::Rng::with_seed(seed ^ 0x0715);
        let mut lists = fastrand::Rng::with_seed(seed ^ 0x1157);
        Self {
            observers,
            transaction_log: rng.u8(0..4) == 0,
            rng,
            plaintext: tls.u8(0..3) == 0,
            switches: (tls.u8(0..3) == 0).then_some(tls),
            at_run_time: lists.u8(0..2) == 0,
            changes: (lists.u8(0..2) == 0).then(|| lists.usize(0..12)),
        }
    }

    /// Asks for the parts.
    pub fn ask(&self, spec: &mut Value) {
        if self.observers > 0 {
            spec["observers"] = json!({ "replicas": self.observers });
        }
        if self.transaction_log {
            spec["storage"]["transactionLog"] = json!({ "size": "1024Mi" });
        }
        if self.plaintext {
            spec["tls"] = json!({ "servers": "Disabled", "clients": "Disabled" });
        }
        if self.at_run_time {
            spec["membershipChange"] = json!("Reconfiguration");
        }
    }

    /// Puts what happens to the parts between the other acts.
    pub fn mix(&mut self, acts: Vec<(Duration, Act)>, size: u16) -> Vec<(Duration, Act)> {
        let mut mixed = Vec::new();
        for (number, (before, act)) in acts.into_iter().enumerate() {
            mixed.push((before, act));
            if self.changes == Some(number) {
                mixed.push((Duration::ZERO, Act::Edit(Edit::AtRunTime)));
            }
            if let Some(rng) = &mut self.switches
                && rng.u8(0..3) == 0
            {
                let after = Duration::from_millis(rng.u64(0..20_000));
                mixed.push((after, Act::Edit(Edit::Tls(rng.bool()))));
            }
            if self.observers > 0 && self.rng.u8(0..3) > 0 {
                let act = self.of_observers();
                mixed.push((self.pause(), Act::Observers(act)));
            }
            if self.transaction_log && self.rng.u8(0..4) == 0 {
                let act = self.of_disks(size);
                mixed.push((self.pause(), act));
            }
        }
        mixed
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(0..20_000))
    }

    fn of_observers(&mut self) -> ObserverAct {
        let rng = &mut self.rng;
        let observer = rng.u16(0..2);
        let seconds =
            |rng: &mut fastrand::Rng, most: u64| Duration::from_millis(rng.u64(500..most * 1000));
        match rng.u8(0..15) {
            0..=3 => ObserverAct::Resize(rng.u16(0..4)),
            4..=5 => ObserverAct::DeletePod(observer),
            6 => ObserverAct::ForceDelete(observer),
            7 => ObserverAct::LoseDisk(observer),
            8..=9 => ObserverAct::Crash(observer),
            10 => ObserverAct::Freeze(observer, seconds(rng, 40)),
            // Longer than voters wait for it.
            11 => ObserverAct::Freeze(observer, Duration::from_secs(420)),
            12 => ObserverAct::LoseNode(observer, seconds(rng, 120)),
            13 => ObserverAct::DeleteSet { orphan: rng.bool() },
            _ => ObserverAct::ScaleSet(rng.u16(0..4)),
        }
    }

    fn of_disks(&mut self, size: u16) -> Act {
        let rng = &mut self.rng;
        Act::LoseOneDisk {
            ordinal: rng.u16(0..size.max(3)),
            log: rng.u8(0..3) > 0,
            noticed: Duration::from_secs(rng.u64(10..90)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_without_the_parts_is_as_it_was() {
        let acts = vec![(Duration::ZERO, Act::Restart)];
        let mut varieties = (0..100).map(Variety::of);
        let mut plain = varieties
            .find(|v| {
                let lists = v.at_run_time || v.changes.is_some();
                v.observers == 0 && !v.transaction_log && !lists
            })
            .unwrap();
        let mut spec = json!({ "replicas": 3 });
        plain.ask(&mut spec);
        assert_eq!(spec, json!({ "replicas": 3 }));
        assert_eq!(plain.mix(acts.clone(), 3), acts);
    }
}
