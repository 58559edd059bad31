//! What a change would take if nothing went wrong: the real planner and the real executor, pass after pass,
//! on a world in which every pod starts and every server joins.
//!
//! It is for people who want to see a change before they make it. The operator decides nothing from it.

use bellwether_api::ensemble::Phase;

use crate::ids::ServerId;
use crate::validate::ValidEnsemble;
use crate::world::World;
pub use crate::world::difference::Line;
pub use crate::world::event::Event;
use crate::world::faults::NoFaults;

/// The most passes of the planner: the longest change, one member to thirteen, takes a few hundred.
const MAX_PASSES: usize = 5000;
/// After this many passes without any change the forecast is complete.
const QUIET: usize = 8;

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
    let Some(old) = old else {
        return run(&mut World::new(new.clone(), NoFaults));
    };
    // The world builds the running ensemble unpaused, even if it is paused now.
    let mut running = old.clone();
    running.paused = false;
    let mut world = World::new(running, NoFaults);
    run(&mut world);
    if let Some(leader) = leader {
        world.elect(leader);
    }
    world.ensemble = new.clone();
    run(&mut world)
}

/// Runs passes of the operator until nothing changes any more.
fn run(world: &mut World<NoFaults>) -> Forecast {
    let (mut quiet, mut passes) = (0, 0);
    loop {
        let plan = crate::plan(&world.ensemble, &world.observe());
        let moved = world.pass(&plan);
        quiet = if matches!(moved, Ok(false)) {
            quiet + 1
        } else {
            0
        };
        passes += 1;
        let complete = quiet >= QUIET;
        if complete || passes >= MAX_PASSES || moved.is_err() {
            return Forecast {
                events: std::mem::take(&mut world.events),
                phase: plan.report.phase,
                message: moved.map_or_else(|refused| refused.to_string(), |_| plan.report.message),
                complete,
            };
        }
    }
}

#[cfg(test)]
mod tests;
