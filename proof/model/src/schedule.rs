//! That every chain ends: from any state, when no further fault happens, everything that is due is
//! done in turn, and after a bounded time the ensemble is as the user wants it.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::servers::{joinable, ordinary_election};
use crate::state::{Harm, MAX, Pod, Process, State, number};
use crate::world::{Action, World};

/// More rounds than any change of seven members needs.
const ROUNDS: usize = 400;

/// When the operator gets its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Order {
    /// When nothing else moves.
    OperatorLast,
    /// After everything that happens.
    OperatorBetween,
}

/// Follows schedules to their end and remembers the states from which they end well.
#[derive(Default)]
pub struct Schedules {
    good: Mutex<HashSet<(State, Order)>>,
}

impl Schedules {
    /// Whether every schedule from this state ends as the user wants. True also where a majority of
    /// disks is lost: no operator can promise that end then.
    pub fn end(&self, world: &World, state: &State) -> bool {
        state.harm != Harm::default()
            || !state.majority_of_disks_intact()
            || [Order::OperatorLast, Order::OperatorBetween]
                .into_iter()
                .all(|order| self.ends(world, state, order))
    }

    fn ends(&self, world: &World, state: &State, order: Order) -> bool {
        let mut now = State {
            faults: 0,
            changes: 0,
            held: None,
            ..*state
        }
        .canonical();
        let mut seen = Vec::new();
        for _ in 0..ROUNDS {
            if self.known(&(now, order)) {
                break;
            }
            seen.push((now, order));
            match next(world, &now, order) {
                Some(later) => now = later,
                None if is_wanted(&now) => break,
                None => return false,
            }
            if seen.len() == ROUNDS {
                return false;
            }
        }
        let mut good = self.good.lock().unwrap_or_else(|e| e.into_inner());
        good.extend(seen);
        true
    }

    fn known(&self, key: &(State, Order)) -> bool {
        let good = self.good.lock().unwrap_or_else(|e| e.into_inner());
        good.contains(key)
    }
}

/// Whether the ensemble is as the user wants it.
fn is_wanted(state: &State) -> bool {
    (0..MAX).all(|o| match state.pods[o] {
        None => o >= usize::from(state.wanted),
        Some(pod) => {
            o < usize::from(state.wanted)
                && pod.template.list == state.wanted
                && pod.template.content == state.content
                && matches!(pod.process, Process::Serving { .. })
        }
    })
}

/// The next state of a schedule; `None` when nothing moves.
fn next(world: &World, state: &State, order: Order) -> Option<State> {
    if order == Order::OperatorBetween
        && let Some(later) = operate(world, state)
    {
        return Some(later);
    }
    if let Some(action) = environment(state) {
        return Some(world.act(state, action));
    }
    operate(world, state)
}

/// One pass of the operator that does something.
fn operate(world: &World, state: &State) -> Option<State> {
    let acted = world.act(state, Action::Operate);
    (acted != *state).then_some(acted)
}

/// What happens by itself. Servers agree on a leader sooner than a pod starts.
fn environment(state: &State) -> Option<Action> {
    let looks =
        |o: &usize| state.pods[*o].is_some_and(|p| matches!(p.process, Process::Looking { .. }));
    for ordinal in (0..MAX).filter(looks) {
        if let Some(leader) = joinable(state, ordinal).next() {
            return Some(Action::Join(number(ordinal), number(leader)));
        }
    }
    if let Some((leader, quorum)) = ordinary_election(state) {
        return Some(Action::Elect(number(leader), quorum));
    }
    for ordinal in 0..MAX {
        let o = number(ordinal);
        match state.pods[ordinal] {
            None if o < state.set.replicas => return Some(Action::Create(o)),
            Some(pod) if pod.cut_off => return Some(Action::Reconnect(o)),
            Some(pod) if o >= state.set.replicas && !pod.terminating => {
                return Some(Action::Remove(o));
            }
            Some(pod) if matches!(pod.process, Process::Created | Process::Crashed) => {
                return Some(Action::Start(o));
            }
            _ => {}
        }
    }
    let tired = |p: Pod| p.process == Process::Looking { long: false };
    let tires = (0..MAX).find(|o| state.pods[*o].is_some_and(tired))?;
    Some(Action::Tire(number(tires)))
}
