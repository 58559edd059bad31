//! What a change would take if nothing went wrong: the real planner, pass after pass, on a world in
//! which every pod starts and every server joins.
//!
//! It is for people who want to see a change before they make it. Nothing is decided from it.

mod difference;
mod world;

use std::fmt;

use bellwether_api::ensemble::{Phase, ReclaimPolicy};

use crate::ids::{ServerId, Voters};
use crate::validate::ValidEnsemble;
pub use difference::Line;
use world::World;

/// The most passes of the planner: the longest change, one member to thirteen, takes a few hundred.
const MAX_PASSES: usize = 5000;
/// After how many passes without any change nothing is expected to come any more.
const QUIET: usize = 8;

/// One thing that would happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// New pods get another configuration or pod template.
    Configure {
        /// The configuration revision (a ConfigMap).
        revision: String,
        /// The voters before, if there were any.
        from: Option<Voters>,
        /// The voters under it.
        voters: Voters,
        /// How a voter's `zoo.cfg` differs from the one before.
        zoo_cfg: Vec<Line>,
        /// How the rest of the pod template differs.
        template: Vec<Line>,
    },
    /// A pod is created.
    Create {
        /// The pod.
        pod: String,
    },
    /// A pod is removed for good.
    Remove {
        /// The pod.
        pod: String,
        /// What becomes of its volumes.
        volumes: ReclaimPolicy,
    },
    /// A pod is deleted, so that it is made anew from the current template.
    Restart {
        /// The pod.
        pod: String,
        /// Its server id.
        id: ServerId,
        /// Whether it leads.
        leads: bool,
        /// Why.
        reason: String,
    },
    /// A volume claim is asked for more.
    Grow {
        /// The claim.
        claim: String,
        /// The size in the user's words.
        size: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configure {
                revision,
                from,
                voters,
                ..
            } => match from {
                Some(from) if from != voters => {
                    write!(
                        f,
                        "new pods get {revision}: voters {{{from}}} -> {{{voters}}}"
                    )
                }
                _ => write!(f, "new pods get {revision}: voters {{{voters}}}"),
            },
            Self::Create { pod } => write!(f, "pod {pod} is created"),
            Self::Remove {
                pod,
                volumes: ReclaimPolicy::Retain,
            } => {
                write!(f, "pod {pod} is removed; its volumes stay")
            }
            Self::Remove {
                pod,
                volumes: ReclaimPolicy::Delete,
            } => {
                write!(f, "pod {pod} is removed, and its volumes are deleted")
            }
            Self::Restart {
                pod, leads, reason, ..
            } => {
                let who = if *leads { ", the leader," } else { "" };
                write!(f, "pod {pod}{who} restarts: {reason}")
            }
            Self::Grow { claim, size } => {
                write!(
                    f,
                    "claim {claim} asks for {size}, which its StorageClass must allow"
                )
            }
        }
    }
}

/// A change from beginning to end.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// What happens, in order.
    pub events: Vec<Event>,
    /// Where it ends.
    pub phase: Phase,
    /// The operator's last sentence.
    pub message: String,
    /// Whether it came to an end.
    pub complete: bool,
}

impl Forecast {
    /// How many pods restart, and how many of them lead then.
    pub fn restarts(&self) -> (usize, usize) {
        let leads = self.events.iter().filter_map(|event| match event {
            Event::Restart { leads, .. } => Some(*leads),
            _ => None,
        });
        leads.fold((0, 0), |(all, led), leads| {
            (all + 1, led + usize::from(leads))
        })
    }
}

/// Forecasts the change from `old`, healthy and led by `leader`, to `new`. Without `old` the ensemble is
/// created on empty volumes.
pub fn forecast(
    old: Option<&ValidEnsemble>,
    new: &ValidEnsemble,
    leader: Option<ServerId>,
) -> Forecast {
    let mut world = World::default();
    if let Some(old) = old {
        // Whether it is paused now decides nothing about how it came to be.
        let running = ValidEnsemble {
            paused: false,
            ..old.clone()
        };
        run(&mut world, &running);
        if let Some(leader) = leader {
            world.elect(&running, leader);
        }
        world.events.clear();
    }
    run(&mut world, new)
}

fn run(world: &mut World, ensemble: &ValidEnsemble) -> Forecast {
    let mut quiet = 0;
    let mut passes = 0;
    let plan = loop {
        let plan = crate::plan(ensemble, &world.observe(ensemble));
        let before = world.fingerprint();
        world.pass(ensemble, &plan);
        quiet = if before == world.fingerprint() {
            quiet + 1
        } else {
            0
        };
        passes += 1;
        if quiet >= QUIET || passes >= MAX_PASSES {
            break plan;
        }
    };
    Forecast {
        events: world.events.clone(),
        phase: plan.report.phase,
        message: plan.report.message,
        complete: quiet >= QUIET,
    }
}

#[cfg(test)]
mod tests;
