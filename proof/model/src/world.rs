//! The abstract world as a model for the checker: every action that may happen next.

use bellwether_ensemble::rules::Rules;
use stateright::{Model, Property};

use crate::operator::Operator;
use crate::schedule::Schedules;
use crate::servers::{
    commit, commit_quorums, elect, join, joinable, notice_losses, possible_elections,
};
use crate::state::{
    Disk, MAX, Pass, Pod, Process, State, bit, holds_majority, members, number, ordinals,
};

/// Preconditions of the operator's executor, which a test may switch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preconditions {
    /// The StatefulSet is written only as it was read.
    pub set_unchanged: bool,
    /// A pod is deleted only as it was read.
    pub pod_unchanged: bool,
    /// Just before a restart everything is read and planned again, and the step is the same.
    pub planned_again: bool,
}

impl Preconditions {
    /// Every precondition holds.
    pub const ALL: Self = Self {
        set_unchanged: true,
        pod_unchanged: true,
        planned_again: true,
    };
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The user asks for another size.
    Resize(u8),
    /// An operator reads, plans and acts.
    Operate,
    /// An operator reads and plans, and is held up before it acts.
    Hold,
    /// The operator that was held up acts.
    Act,
    /// It does the first of its writes and dies.
    ActHalf,
    /// The StatefulSet controller makes a pod.
    Create(u8),
    /// The StatefulSet controller deletes a pod that it no longer wants.
    Remove(u8),
    /// The kubelet starts a server.
    Start(u8),
    /// A server has been looking for so long that its readiness probe fails.
    Tire(u8),
    /// Looking servers elect a leader.
    Elect(u8, u8),
    /// A server joins a leader.
    Join(u8, u8),
    /// A leader commits the followed write with these servers.
    Commit(u8),
    /// A server's process ends.
    Crash(u8),
    /// A server's process ends and its disk is lost.
    LoseDisk(u8),
    /// A pod's node is cut off from the API server.
    CutOff(u8),
    /// The node is back.
    Reconnect(u8),
}

/// One run of the checker: where it starts, what may happen, and which rules hold.
pub struct World {
    /// The states that it starts in.
    pub starts: Vec<State>,
    /// The sizes that the user may change to in the middle.
    pub sizes: Vec<u8>,
    /// Whether a server may look for so long that it is not ready although it could elect or join a
    /// leader. It makes many more states.
    pub slow_servers: bool,
    /// The executor's preconditions.
    pub preconditions: Preconditions,
    /// The planner.
    pub operator: Operator,
    /// What shows that every chain ends.
    pub schedules: Schedules,
}

impl World {
    /// A change of size, or of the configuration if both sizes are equal, led by each member in
    /// turn.
    ///
    /// # Errors
    /// If the ensembles of the model are no longer valid.
    pub fn change(from: u8, to: u8, rules: Rules) -> Result<Self, String> {
        let starts = (0..from).map(|leader| State {
            wanted: to,
            content: u8::from(from == to),
            ..State::running(from, leader)
        });
        Ok(Self {
            starts: starts.collect(),
            sizes: Vec::new(),
            slow_servers: false,
            preconditions: Preconditions::ALL,
            operator: Operator::new(rules)?,
            schedules: Schedules::default(),
        })
    }

    /// How many faults may happen.
    #[must_use]
    pub fn faults(mut self, faults: u8) -> Self {
        for start in &mut self.starts {
            start.faults = faults;
        }
        self
    }

    /// How often the user may change the size in the middle, and to which sizes.
    #[must_use]
    pub fn user_changes(mut self, changes: u8, sizes: &[u8]) -> Self {
        for start in &mut self.starts {
            start.changes = changes;
        }
        self.sizes = sizes.to_vec();
        self
    }

    /// Which preconditions the executor checks.
    #[must_use]
    pub fn preconditions(mut self, preconditions: Preconditions) -> Self {
        self.preconditions = preconditions;
        self
    }

    /// Carries out an action; `None` if it cannot happen.
    pub fn act(&self, last: &State, action: Action) -> State {
        let mut state = *last;
        match action {
            Action::Resize(size) => {
                state.wanted = size;
                state.changes -= 1;
            }
            Action::Operate => {
                if let Some(pass) = self.operator.read(last) {
                    self.execute(&mut state, pass);
                }
            }
            Action::Hold => state.held = self.operator.read(last),
            Action::Act => {
                if let Some(pass) = state.held.take() {
                    self.execute(&mut state, pass);
                }
            }
            Action::ActHalf => {
                if let Some(Pass::Write { permit, fresh, .. }) = state.held.take()
                    && (fresh || !self.preconditions.set_unchanged)
                {
                    state.permit = permit;
                    touch_set(&mut state);
                }
            }
            Action::Create(o) => {
                state.pods[usize::from(o)] = Some(Pod {
                    template: state.set.template,
                    process: Process::Created,
                    cut_off: false,
                    terminating: false,
                });
                touch(&mut state, usize::from(o));
            }
            Action::Remove(o) => delete(&mut state, usize::from(o)),
            Action::Start(o) => start(&mut state, usize::from(o)),
            Action::Tire(o) => {
                set_process(&mut state, usize::from(o), Process::Looking { long: true });
            }
            Action::Elect(leader, quorum) => {
                elect(&mut state, usize::from(leader), quorum);
            }
            Action::Join(o, leader) => join(&mut state, usize::from(o), usize::from(leader)),
            Action::Commit(quorum) => commit(&mut state, quorum),
            Action::Crash(o) => {
                state.faults -= 1;
                set_process(&mut state, usize::from(o), Process::Crashed);
            }
            Action::LoseDisk(o) => {
                state.faults -= 1;
                set_process(&mut state, usize::from(o), Process::Crashed);
                state.disks[usize::from(o)] = Disk::Empty;
            }
            Action::CutOff(o) => {
                state.faults -= 1;
                if let Some(pod) = &mut state.pods[usize::from(o)] {
                    pod.cut_off = true;
                }
                touch(&mut state, usize::from(o));
            }
            Action::Reconnect(o) => {
                let ordinal = usize::from(o);
                if let Some(pod) = &mut state.pods[ordinal] {
                    pod.cut_off = false;
                    if pod.terminating {
                        state.pods[ordinal] = None;
                    }
                }
                touch(&mut state, ordinal);
            }
        }
        notice_losses(&mut state);
        state.canonical()
    }

    /// What the executor does with a planned pass.
    fn execute(&self, state: &mut State, pass: Pass) {
        match pass {
            Pass::Write { permit, set, fresh } => {
                if fresh || !self.preconditions.set_unchanged {
                    state.permit = permit;
                    state.set = set;
                    touch_set(state);
                }
            }
            Pass::Restart { ordinal, fresh, .. } => {
                let ordinal = usize::from(ordinal);
                let unchanged = fresh || !self.preconditions.pod_unchanged;
                let confirmed =
                    !self.preconditions.planned_again || self.operator.read(state) == Some(pass);
                let there = state.pods[ordinal].is_some_and(|p| !p.terminating);
                if unchanged && confirmed && there {
                    self.restart(state, ordinal);
                }
            }
        }
    }

    fn restart(&self, state: &mut State, ordinal: usize) {
        let before = *state;
        delete(state, ordinal);
        notice_losses(state);
        judge_restart(&before, state, ordinal);
    }
}

/// Notes whether the operator should not have restarted this member.
fn judge_restart(before: &State, after: &mut State, ordinal: usize) {
    let template = before.set.template;
    let serving = ordinals(before.leaders())
        .map(|l| before.followers(l))
        .fold(0, |a, b| a | b);
    // A pod on a node that is cut off cannot be restarted.
    let due = before.mask(|p| p.template != template && !p.cut_off) & members(template.list);
    if before.leads(ordinal) {
        // A leaver that leads has to step down, also while other members are due.
        let leaves = before.wanted < template.list && ordinal + 1 == usize::from(template.list)
            || members(template.list) & bit(ordinal) == 0;
        let lists = before.live_lists();
        let another = ordinals(due & serving & !bit(ordinal)).any(|o| {
            let stays = serving & !bit(o);
            (1..=MAX as u8)
                .filter(|n| lists & (1 << n) != 0)
                .all(|n| holds_majority(stays, n))
        });
        after.harm.leader_early |= another && !leaves;
        return;
    }
    let ended = before.leaders() != 0 && after.leaders() == 0;
    // Updated members that cannot join before a majority of their list runs have to be freed.
    let looking = before.mask(|p| {
        p.template == template && matches!(p.process, Process::Looking { .. }) && !p.cut_off
    });
    let stuck = ordinals(looking).any(|o| joinable(before, o).next().is_none());
    after.harm.service_ended |= ended && avoidable(before, ordinal) && !stuck;
}

/// Whether the leader's list could have a majority without this member: not with one or two members,
/// and not if a leaver is down for long or is an observer already.
fn avoidable(state: &State, ordinal: usize) -> bool {
    let voting = (0..MAX)
        .filter(|o| {
            // A leaver that the operator sent away early could have been kept.
            number(*o) >= state.set.replicas
                || state.pods[*o].is_some_and(|p| {
                    members(p.template.list) & bit(*o) != 0
                        && p.process != Process::Looking { long: true }
                        && !p.cut_off
                })
        })
        .map(bit)
        .fold(members(state.set.template.list), |a, b| a | b);
    ordinals(state.leaders()).all(|leader| {
        let list = state.pods[leader].map_or(0, |p| p.template.list);
        holds_majority(voting & !bit(ordinal), list)
    })
}

/// A pod changed: nothing that was planned for it as it was may be done any more.
fn touch(state: &mut State, pod: usize) {
    if let Some(Pass::Restart { ordinal, fresh, .. }) = &mut state.held
        && usize::from(*ordinal) == pod
    {
        *fresh = false;
    }
}

fn touch_set(state: &mut State) {
    if let Some(Pass::Write { fresh, .. }) = &mut state.held {
        *fresh = false;
    }
}

fn set_process(state: &mut State, ordinal: usize, process: Process) {
    if let Some(pod) = &mut state.pods[ordinal] {
        pod.process = process;
    }
    touch(state, ordinal);
}

/// Deletes a pod. On a node that is cut off its server runs on.
fn delete(state: &mut State, ordinal: usize) {
    match &mut state.pods[ordinal] {
        Some(pod) if pod.cut_off => pod.terminating = true,
        pod => *pod = None,
    }
    touch(state, ordinal);
}

fn start(state: &mut State, ordinal: usize) {
    let Some(pod) = state.pods[ordinal] else {
        return;
    };
    let id = u8::try_from(ordinal + 1).unwrap_or(u8::MAX);
    if state.disks[ordinal] == Disk::Empty && state.permit == id && pod.template.initialize == id {
        state.disks[ordinal] = Disk::Data {
            epoch: 0,
            write: false,
        };
    }
    set_process(state, ordinal, Process::Looking { long: false });
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.starts.iter().map(|s| s.canonical()).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.changes > 0 {
            let others = self.sizes.iter().filter(|s| **s != state.wanted);
            actions.extend(others.map(|s| Action::Resize(*s)));
        }
        if let Some(pass) = self.operator.read(state) {
            actions.push(Action::Operate);
            // A delayed restart does no harm: the executor first reads again what it was planned from.
            let harmless = matches!(pass, Pass::Restart { .. }) && self.preconditions.planned_again;
            if state.held.is_none() && !harmless {
                actions.push(Action::Hold);
            }
        }
        match state.held {
            Some(Pass::Write { permit, .. }) if permit != state.permit => {
                actions.extend([Action::Act, Action::ActHalf]);
            }
            Some(_) => actions.push(Action::Act),
            None => {}
        }
        let elections = possible_elections(state);
        for ordinal in 0..MAX {
            let o = u8::try_from(ordinal).unwrap_or(u8::MAX);
            let Some(pod) = state.pods[ordinal] else {
                if o < state.set.replicas {
                    actions.push(Action::Create(o));
                }
                continue;
            };
            if o >= state.set.replicas && !pod.terminating {
                actions.push(Action::Remove(o));
            }
            match pod.process {
                Process::Created | Process::Crashed => actions.push(Action::Start(o)),
                Process::Looking { long } => {
                    let elected = |(_, quorum): &(usize, u8)| quorum & bit(ordinal) != 0;
                    let hopeful =
                        joinable(state, ordinal).next().is_some() || elections.iter().any(elected);
                    if !long && (!hopeful || self.slow_servers) {
                        actions.push(Action::Tire(o));
                    }
                    actions.extend(
                        joinable(state, ordinal)
                            .filter_map(|l| u8::try_from(l).ok())
                            .map(|l| Action::Join(o, l)),
                    );
                }
                Process::Serving { .. } => {}
            }
            if pod.cut_off {
                actions.push(Action::Reconnect(o));
            }
            if state.faults > 0 {
                if !matches!(pod.process, Process::Created | Process::Crashed) {
                    actions.push(Action::Crash(o));
                }
                if state.disks[ordinal] != Disk::Empty {
                    actions.push(Action::LoseDisk(o));
                }
                if !pod.cut_off {
                    actions.push(Action::CutOff(o));
                }
            }
        }
        for (leader, quorum) in elections {
            if let Ok(leader) = u8::try_from(leader) {
                actions.push(Action::Elect(leader, quorum));
            }
        }
        if !state.acknowledged {
            for leader in ordinals(state.leaders()) {
                actions.extend(commit_quorums(state, leader).map(Action::Commit));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = self.act(last, action);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leader", |_, s: &State| s.leaders().count_ones() <= 1),
            Property::always("no write lost", |_, s: &State| !s.harm.write_lost),
            Property::always("two lists", |_, s: &State| s.live_lists().count_ones() <= 2),
            Property::always("leader last", |_, s: &State| !s.harm.leader_early),
            Property::always("service kept", |_, s: &State| !s.harm.service_ended),
            Property::always("it ends", |world: &World, s: &State| {
                world.schedules.end(world, s)
            }),
        ]
    }
}
