//! What servers, the operator, the user and chance may do next.

use std::collections::BTreeMap;

use bellwether_ensemble::safety::reconfiguration::{Held, Lists, may_reconfigure, may_remove};
use bellwether_ensemble::{ServerId, Voters};
use stateright::{Model, Property};

use super::state::{Disk, Entry, MAX, Role, Server, State, bit, holds_majority, servers};

/// The rules, which a test may switch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// A newcomer names itself and the members, and no other newcomer.
    pub newcomers_apart: bool,
    /// Nobody is removed before the outcome is known.
    pub outcome_known: bool,
    /// A server starts from the files that it had.
    pub own_files: bool,
    /// Newcomers of a list that was asked for go only when the present one has another version.
    pub fenced: bool,
    /// A member that has left and comes back to its volume begins with the list without it. Its volume may be an old copy.
    pub has_left: bool,
}

impl Kept {
    /// All of them.
    pub const ALL: Self = Self {
        newcomers_apart: true,
        outcome_known: true,
        own_files: true,
        fenced: true,
        has_left: true,
    };
}

/// A change from one list to another.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The list at first.
    pub old: u8,
    /// The list that the user wants.
    pub new: u8,
    /// How many servers are killed, at any moments.
    pub faults: u8,
    /// How many are lost with their volumes.
    pub losses: u8,
    /// How often the user turns round.
    pub turns: u8,
    /// Whether the volumes of members that left stay, and they come back to them.
    pub volumes_stay: bool,
    /// The rules.
    pub kept: Kept,
}

/// What may happen. Numbers are servers, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The operator starts a newcomer.
    Create(usize),
    /// The operator asks for the new list.
    Ask,
    /// The request reaches this leader.
    Propose(usize),
    /// The operator asks for the old list again.
    AskAgain,
    /// That request reaches this leader.
    ProposeAgain(usize),
    /// This leader commits the old list again.
    CommitAgain(usize),
    /// The operator decides to remove those who are not wanted, while this one does not answer it.
    Decide(Option<usize>),
    /// They are removed, all at once.
    Remove,
    /// One that was removed comes back to its volume, or to an old copy of it.
    Return(usize, bool),
    /// The user wants the old list again.
    Turn,
    /// A client's write reaches this leader.
    Write(usize),
    /// A follower stores what its leader has.
    Store(usize),
    /// This leader acknowledges the write.
    Acknowledge(usize),
    /// This leader commits the new list.
    Commit(usize),
    /// A follower learns of that.
    Learn(usize),
    /// A server that looks for a leader takes a newer list from another.
    Adopt(usize),
    /// These servers elect this leader.
    Elect(usize, u8),
    /// A server joins this leader.
    Join(usize, usize),
    /// A leader gives up, since too few follow it.
    StepDown(usize),
    /// A follower notices that its leader is gone.
    Notice(usize),
    /// A server is killed.
    Kill(usize),
    /// A server is lost with its volume.
    Lose(usize),
    /// It starts again.
    Start(usize),
}

/// The servers of a mask as the operator has them.
fn voters(mask: u8) -> Voters {
    servers(mask).map(id).collect()
}

/// The epoch that a server followed last, from 1.
fn epoch(disk: &Disk) -> u64 {
    u64::from(disk.epoch) + 1
}

fn id(server: usize) -> ServerId {
    ServerId::of_ordinal(u16::try_from(server).unwrap_or(u16::MAX), 0)
}

impl Change {
    /// The list that a server knows as committed.
    ///
    /// A newcomer starts with a list that names itself. It takes the members' list, which does not, as soon as one of them
    /// answers: theirs has a version above that of its file (`FastLeaderElection`, `QuorumPeer.processReconfig`).
    fn file(&self, state: &State, server: usize) -> u8 {
        let disk = state.disk(server);
        if disk.is_some_and(|disk| disk.changed && !disk.blind) {
            return self.new;
        }
        match self.kept.newcomers_apart || self.old & bit(server) != 0 {
            true => self.old,
            false => self.old | self.new,
        }
    }

    /// The lists of which a server needs a majority each: that of its file, and one that it has stored since.
    fn judged(&self, state: &State, server: usize) -> Vec<u8> {
        let pending = state.disk(server).is_some_and(Disk::pending);
        let later = pending.then_some(self.new);
        std::iter::once(self.file(state, server))
            .chain(later)
            .collect()
    }

    fn convinces(&self, state: &State, server: usize, some: u8) -> bool {
        self.judged(state, server)
            .iter()
            .all(|list| holds_majority(some, *list))
    }

    fn knows(&self, state: &State, server: usize, other: usize) -> bool {
        self.judged(state, server)
            .iter()
            .any(|list| list & bit(other) != 0)
    }

    /// Whether a leader can commit.
    pub fn commits(&self, state: &State, leader: usize) -> bool {
        let following = state.following(leader);
        following != 0 && self.convinces(state, leader, following)
    }

    /// What the operator reads, without this server, while that one leads.
    ///
    /// The new list has the version 1. The transaction of a list that is stored only may be another one, of the epoch that its
    /// server followed last, unless the leader knows the new list.
    fn held(
        &self,
        state: &State,
        silent: Option<usize>,
        leader: Option<usize>,
    ) -> BTreeMap<ServerId, Held> {
        let answers = |s: &usize| state.role(*s) != Role::Down && Some(*s) != silent;
        let known = leader.and_then(|leader| state.disk(leader));
        let known = known.is_some_and(|disk| disk.changed);
        let stored = |disk: &Disk| if known { 1 } else { epoch(disk) << 32 };
        let held = |s: usize| {
            let disk = state.disk(s);
            let changed = disk.is_some_and(|disk| disk.changed);
            Held {
                version: u64::from(changed),
                voters: voters(if changed { self.new } else { self.old }),
                pending: disk.filter(|disk| disk.pending()).map(stored),
                serves: state.leaders().any(|l| state.following(l) & bit(s) != 0),
            }
        };
        (0..MAX).filter(answers).map(|s| (id(s), held(s))).collect()
    }

    fn allowed<T, E>(
        &self,
        state: &State,
        silent: Option<usize>,
        question: impl FnOnce(Lists<'_>) -> Result<T, E>,
    ) -> bool {
        let mut leaders = state.leaders().filter(|l| Some(*l) != silent);
        let leader = match (leaders.next(), leaders.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        };
        let held = self.held(state, silent, leader);
        let lists = Lists {
            leader: leader.map(id),
            epoch: leader.and_then(|l| state.disk(l)).map_or(0, epoch),
            held: &held,
        };
        question(lists).is_ok()
    }

    fn operator(&self, state: &State, actions: &mut Vec<Action>) {
        let wanted = if state.turned { self.old } else { self.new };
        let missing = |s: &usize| state.servers[*s].is_none();
        actions.extend(servers(wanted).filter(missing).map(Action::Create));
        let may = |lists: Lists<'_>| may_reconfigure(lists, &voters(self.new));
        if !state.asked && !state.turned && self.allowed(state, None, may) {
            actions.push(Action::Ask);
        }
        // Nothing tells whether a request that was made is still to arrive.
        let open = state.asked && state.turned;
        let settled = |lists: Lists<'_>| lists.settled().map(drop);
        if open && !state.fenced && self.kept.fenced && self.allowed(state, None, settled) {
            actions.push(Action::AskAgain);
        }
        let exists = |s: &usize| state.servers[*s].is_some();
        let leave: Vec<usize> = servers(!wanted).filter(exists).collect();
        if leave.is_empty() {
            return;
        }
        if state.removing {
            actions.push(Action::Remove);
            return;
        }
        if open && self.kept.fenced {
            return;
        }
        let began = state.asked || state.turned;
        for silent in (0..MAX).filter(exists).map(Some).chain([None]) {
            let may = |lists: Lists<'_>| {
                let mut all = leave.iter();
                all.try_for_each(|server| may_remove(id(*server), lists))
            };
            let may = match self.kept.outcome_known {
                true => self.allowed(state, silent, may),
                false => began && silent.is_none(),
            };
            if may {
                actions.push(Action::Decide(silent));
            }
        }
    }

    fn leader(&self, state: &State, leader: usize, actions: &mut Vec<Action>) {
        let Some(disk) = state.disk(leader) else {
            return;
        };
        let following = state.following(leader);
        let stored = |entry| {
            let has = |s: &usize| state.disk(*s).is_some_and(|d| d.has(entry));
            servers(following)
                .filter(has)
                .fold(0, |all, s| all | bit(s))
        };
        let change = disk.has(Entry::Change) && !disk.changed;
        let knows_of_neither = !disk.has(Entry::Change) && !disk.has(Entry::Fence) && !disk.changed;
        if state.asked && knows_of_neither && holds_majority(following, self.new) {
            actions.push(Action::Propose(leader));
        }
        if state.fenced && state.asked && knows_of_neither {
            actions.push(Action::ProposeAgain(leader));
        }
        if state.asked
            && disk.has(Entry::Fence)
            && self.convinces(state, leader, stored(Entry::Fence))
        {
            actions.push(Action::CommitAgain(leader));
        }
        if change && self.convinces(state, leader, stored(Entry::Change)) {
            actions.push(Action::Commit(leader));
        }
        if !disk.has(Entry::Write) && !state.acknowledged {
            actions.push(Action::Write(leader));
        }
        let waits = change && disk.log[0] == Some(Entry::Change);
        if disk.has(Entry::Write)
            && !state.acknowledged
            && !waits
            && self.convinces(state, leader, stored(Entry::Write))
        {
            actions.push(Action::Acknowledge(leader));
        }
        if !self.commits(state, leader) {
            actions.push(Action::StepDown(leader));
        }
    }

    fn looking(&self, state: &State, server: usize, actions: &mut Vec<Action>) {
        let newer = |s: usize| {
            state.role(s) != Role::Down && state.disk(s).is_some_and(|disk| disk.changed)
        };
        let old = state.disk(server).is_some_and(|disk| !disk.changed);
        if old && (0..MAX).any(newer) {
            actions.push(Action::Adopt(server));
        }
        let joins = |leader: &usize| {
            let others = state.following(*leader) & !bit(server);
            self.commits(state, *leader)
                && self.knows(state, server, *leader)
                && self.convinces(state, server, others)
        };
        actions.extend(
            state
                .leaders()
                .filter(joins)
                .map(|l| Action::Join(server, l)),
        );
        let Some(own) = state.disk(server) else {
            return;
        };
        // Whom its own list does not name does not stand for election, and votes for whoever has as much as it
        // (`FastLeaderElection.getInitId`).
        let stands = |s: usize| self.file(state, s) & bit(s) != 0;
        if !stands(server) {
            return;
        }
        let supports = |s: &usize| {
            let less = |disk: &Disk| {
                let (theirs, ours) = (disk.vote(), own.vote());
                theirs < ours || theirs == ours && (*s <= server || !stands(*s))
            };
            state.role(*s) == Role::Looking
                && state.disk(*s).is_some_and(less)
                && self.knows(state, *s, server)
        };
        let all = (0..MAX).filter(supports).fold(0, |all, s| all | bit(s));
        let agree = |some: &u8| servers(*some).all(|s| self.convinces(state, s, *some));
        let some = (0..1 << MAX).filter(|some| some & !all == 0 && some & bit(server) != 0);
        actions.extend(some.filter(agree).map(|some| Action::Elect(server, some)));
    }

    /// Makes a server a follower of this leader.
    fn follow(&self, state: &mut State, server: usize, leader: usize) {
        let Some(theirs) = state.disk(leader).copied() else {
            return;
        };
        let changed = state.disk(server).is_some_and(|disk| disk.changed) || theirs.changed;
        let role = u8::try_from(leader).map_or(Role::Looking, Role::Follows);
        state.servers[server] = Some(Server {
            role,
            disk: Some(Disk {
                changed,
                blind: false,
                ..theirs
            }),
        });
    }

    /// What an action makes of a state.
    pub fn after(&self, last: &State, action: Action) -> State {
        let mut state = *last;
        match action {
            Action::Create(s) => {
                // Without the permission to start with an empty database a newcomer has no vote; two that name each other
                // have no other way to start.
                let disk = (!self.kept.newcomers_apart).then_some(Disk::NEW);
                let role = Role::Looking;
                state.servers[s] = Some(Server { role, disk });
            }
            Action::Ask => state.asked = true,
            Action::Propose(s) => state.on_disk(s, |disk| disk.append(Entry::Change)),
            Action::AskAgain => state.fenced = true,
            Action::ProposeAgain(s) => state.on_disk(s, |disk| disk.append(Entry::Fence)),
            // The list has another version now, so a request that depends on the one before is refused.
            Action::CommitAgain(_) => state.asked = false,
            Action::Decide(_) => state.removing = true,
            Action::Remove => {
                let wanted = if state.turned { self.old } else { self.new };
                for s in servers(!wanted) {
                    let left = state.servers[s].take().and_then(|server| server.disk);
                    state.left[s] = left.filter(|_| self.volumes_stay);
                }
                state.removing = false;
            }
            Action::Return(s, copy) => {
                let disk = state.left[s].take();
                let disk = disk.map(|disk| if copy { Disk::NEW } else { disk });
                let disk = disk.map(|disk| Disk {
                    changed: disk.changed || self.kept.has_left,
                    ..disk
                });
                let role = Role::Looking;
                state.servers[s] = Some(Server { role, disk });
            }
            Action::Turn => {
                state.turned = true;
                state.turns -= 1;
            }
            Action::Write(s) => state.on_disk(s, |disk| disk.append(Entry::Write)),
            Action::Store(s) => {
                if let Role::Follows(leader) = state.role(s)
                    && let Some(log) = state.disk(usize::from(leader)).map(|disk| disk.log)
                {
                    state.on_disk(s, |disk| disk.log = log);
                }
            }
            Action::Acknowledge(_) => state.acknowledged = true,
            Action::Commit(s) => {
                state.on_disk(s, |disk| disk.changed = true);
                if self.new & bit(s) == 0 {
                    state.set_role(s, Role::Looking);
                }
            }
            Action::Learn(s) | Action::Adopt(s) => state.on_disk(s, |disk| {
                disk.changed = true;
                disk.blind = false;
            }),
            Action::Elect(leader, some) => {
                let newest = (0..MAX)
                    .filter_map(|s| state.disk(s).map(|disk| disk.epoch))
                    .max();
                state.on_disk(leader, |disk| disk.epoch = newest.unwrap_or_default() + 1);
                state.set_role(leader, Role::Leads);
                for s in servers(some).filter(|s| *s != leader) {
                    self.follow(&mut state, s, leader);
                }
                let has = state
                    .disk(leader)
                    .is_some_and(|disk| disk.has(Entry::Write));
                state.lost |= state.acknowledged && !has;
            }
            Action::Join(s, leader) => self.follow(&mut state, s, leader),
            Action::StepDown(s) | Action::Notice(s) => state.set_role(s, Role::Looking),
            Action::Kill(s) => {
                state.set_role(s, Role::Down);
                state.faults -= 1;
            }
            Action::Lose(s) => {
                state.servers[s] = None;
                state.losses -= 1;
            }
            Action::Start(s) => {
                state.set_role(s, Role::Looking);
                if !self.kept.own_files {
                    state.on_disk(s, |disk| disk.blind = true);
                }
            }
        }
        state.ranked()
    }

    fn server(&self, state: &State, server: usize, actions: &mut Vec<Action>) {
        match state.role(server) {
            Role::Down => actions.push(Action::Start(server)),
            Role::Looking => self.looking(state, server, actions),
            Role::Leads => self.leader(state, server, actions),
            Role::Follows(leader) => {
                let leader = usize::from(leader);
                let follows = state.following(leader) & bit(server) != 0;
                let (Some(own), Some(theirs)) = (state.disk(server), state.disk(leader)) else {
                    return actions.push(Action::Notice(server));
                };
                if !follows {
                    return actions.push(Action::Notice(server));
                }
                if own.log != theirs.log {
                    actions.push(Action::Store(server));
                }
                if theirs.changed && !own.changed && own.has(Entry::Change) {
                    actions.push(Action::Learn(server));
                }
            }
        }
    }

    /// Whether clients are served, and no list is on its way.
    fn serves(&self, state: &State) -> bool {
        let settled = |l: usize| state.disk(l).is_some_and(|disk| !disk.pending());
        state
            .leaders()
            .any(|l| self.commits(state, l) && settled(l))
    }

    /// Whether clients are served again once nobody is killed any more, the user has made up his mind, and everything that can
    /// happen does.
    fn comes_back(&self, state: &State) -> bool {
        let mut state = *state;
        for _ in 0..200 {
            if self.serves(&state) {
                return true;
            }
            let mut actions = Vec::new();
            for server in (0..MAX).filter(|s| state.servers[*s].is_some()) {
                self.server(&state, server, &mut actions);
            }
            self.operator(&state, &mut actions);
            let useful = actions.into_iter().min_by_key(|action| match action {
                Action::Start(_) => 0,
                Action::StepDown(_) | Action::Notice(_) => 1,
                Action::Adopt(_) => 2,
                Action::Store(_) => 3,
                Action::Commit(_) | Action::Learn(_) => 4,
                Action::Join(..) => 5,
                // The more elect a leader, the better.
                Action::Elect(_, some) => 16 - some.count_ones(),
                Action::Create(_) => 20,
                _ => 30,
            });
            match useful {
                Some(
                    Action::Write(_) | Action::Acknowledge(_) | Action::Decide(_) | Action::Remove,
                )
                | None => return false,
                Some(action) => state = self.after(&state, action),
            }
        }
        false
    }
}

impl Model for Change {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let rest = |leader| State {
            faults: self.faults,
            losses: self.losses,
            turns: self.turns,
            ..State::at_rest(self.old, leader)
        };
        servers(self.old).map(rest).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for server in (0..MAX).filter(|s| state.servers[*s].is_some()) {
            self.server(state, server, actions);
            if state.faults > 0 && state.role(server) != Role::Down {
                actions.push(Action::Kill(server));
            }
            if state.losses > 0 {
                actions.push(Action::Lose(server));
            }
        }
        self.operator(state, actions);
        if state.turns > 0 {
            actions.push(Action::Turn);
        }
        let left = (0..MAX).filter(|s| state.left[*s].is_some());
        actions.extend(left.flat_map(|s| [false, true].map(|copy| Action::Return(s, copy))));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        Some(self.after(last, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leader", |change: &Self, state| {
                let commit = |l: &usize| change.commits(state, *l);
                state.leaders().filter(commit).count() <= 1
            }),
            Property::always("no write lost", |_, state: &State| !state.lost),
            Property::always("service comes back", Self::comes_back),
        ]
    }
}
