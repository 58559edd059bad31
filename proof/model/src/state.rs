//! The state of the abstract world. It is small and canonical, since every reachable one is visited.
//!
//! Server lists are written as their size: every list of the operator is {1, .., n}. Sets of servers
//! are bit masks by ordinal.

use bellwether_ensemble::plan::Expect;

/// The most servers in any world.
pub const MAX: usize = 7;

/// What a pod template says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Template {
    /// The server list, by its size.
    pub list: u8,
    /// The server id that may start with an empty disk and vote; 0 for none.
    pub initialize: u8,
    /// Which of the user's configurations it has.
    pub content: u8,
}

/// The StatefulSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Set {
    /// Its pod template.
    pub template: Template,
    /// How many pods it wants.
    pub replicas: u8,
}

/// What a server's process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// Its pod was made and it has not started yet.
    Created,
    /// It ended; the kubelet starts it again.
    Crashed,
    /// It looks for a leader.
    Looking {
        /// For so long that its readiness probe fails.
        long: bool,
    },
    /// It serves under this ordinal's leadership, its own if it leads.
    Serving {
        /// The leader's ordinal.
        leader: u8,
    },
}

/// A pod with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// The template that it was made from; it cannot change.
    pub template: Template,
    /// Its server.
    pub process: Process,
    /// Whether its node is cut off from the API server: its server runs on and its peers reach it,
    /// but a deletion has no effect and the operator's probes do not get through.
    pub cut_off: bool,
    /// Whether its deletion was asked for.
    pub terminating: bool,
}

/// A volume, with what counts in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disk {
    /// No database: its server joins a leader but has no vote until it has synced.
    Empty,
    /// A database.
    Data {
        /// The epoch of the last leader that it followed, as a rank among all disks.
        epoch: u8,
        /// Whether it holds the write that the run follows. The write is any one write, by any
        /// leader and at any moment, so what holds for it holds for all.
        write: bool,
    },
}

impl Disk {
    /// How it compares in a vote, before the server id (`FastLeaderElection.totalOrderPredicate`).
    pub fn vote(self) -> Option<(u8, bool)> {
        match self {
            Self::Empty => None,
            Self::Data { epoch, write } => Some((epoch, write)),
        }
    }
}

/// What an operator is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// It is about to write the bootstrap permission, and then the StatefulSet.
    Write {
        /// The server that may start with an empty disk and vote; 0 for none.
        permit: u8,
        /// The StatefulSet.
        set: Set,
        /// Whether both are still as they were read, by their resource versions.
        fresh: bool,
    },
    /// It is about to delete a pod.
    Restart {
        /// The pod's ordinal.
        ordinal: u8,
        /// What the server said of itself.
        expect: Expectation,
        /// Whether the pod is still as it was read, by its uid and resource version.
        fresh: bool,
    },
}

/// [`Expect`], hashable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expectation {
    /// See [`Expect::Follower`].
    Follower,
    /// See [`Expect::Leader`].
    Leader,
    /// See [`Expect::Idle`].
    Idle,
}

impl From<Expect> for Expectation {
    fn from(expect: Expect) -> Self {
        match expect {
            Expect::Follower => Self::Follower,
            Expect::Leader => Self::Leader,
            Expect::Idle => Self::Idle,
        }
    }
}

/// What must never happen, and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Harm {
    /// A server leads that does not have a write that was acknowledged.
    pub write_lost: bool,
    /// The operator restarted the leader although another member was due and could be restarted.
    pub leader_early: bool,
    /// The operator's restart of a follower ended the service, and waiting would have kept it.
    pub service_ended: bool,
}

/// The world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The size that the user wants.
    pub wanted: u8,
    /// The configuration that the user wants.
    pub content: u8,
    /// The StatefulSet.
    pub set: Set,
    /// Pods by ordinal.
    pub pods: [Option<Pod>; MAX],
    /// Volumes by ordinal.
    pub disks: [Disk; MAX],
    /// Whether the followed write was acknowledged.
    pub acknowledged: bool,
    /// How many more faults may happen.
    pub faults: u8,
    /// How often the user may still change the wanted size.
    pub changes: u8,
    /// The server that may start with an empty disk and vote; 0 for none.
    pub permit: u8,
    /// A pass that one operator planned and has not carried out yet, while servers and other operators
    /// act. Two such passes are no worse than one: the first that writes makes the other stale.
    pub held: Option<Pass>,
    /// What went wrong.
    pub harm: Harm,
}

/// The bit of an ordinal.
pub fn bit(ordinal: usize) -> u8 {
    1 << ordinal
}

/// An ordinal or a size as the state keeps it.
pub fn number(ordinal: usize) -> u8 {
    u8::try_from(ordinal).unwrap_or(u8::MAX)
}

/// The ordinals of a mask.
pub fn ordinals(mask: u8) -> impl Iterator<Item = usize> {
    (0..MAX).filter(move |o| mask & bit(*o) != 0)
}

/// The servers of a list.
pub fn members(list: u8) -> u8 {
    ((1u16 << list) - 1) as u8
}

/// Whether `servers` hold a majority of `list`.
pub fn holds_majority(servers: u8, list: u8) -> bool {
    (servers & members(list)).count_ones() > u32::from(list) / 2
}

impl State {
    /// An ensemble of `size` members that runs, led by this ordinal.
    pub fn running(size: u8, leader: u8) -> Self {
        let template = Template {
            list: size,
            initialize: 0,
            content: 0,
        };
        let mut state = Self {
            wanted: size,
            content: 0,
            set: Set {
                template,
                replicas: size,
            },
            pods: [None; MAX],
            disks: [Disk::Empty; MAX],
            acknowledged: false,
            faults: 0,
            changes: 0,
            permit: 0,
            held: None,
            harm: Harm::default(),
        };
        for ordinal in 0..usize::from(size) {
            state.pods[ordinal] = Some(Pod {
                template,
                process: Process::Serving { leader },
                cut_off: false,
                terminating: false,
            });
            state.disks[ordinal] = Disk::Data {
                epoch: 0,
                write: false,
            };
        }
        state
    }

    /// The servers whose pod satisfies a condition.
    pub fn mask(&self, condition: impl Fn(&Pod) -> bool) -> u8 {
        (0..MAX)
            .filter(|o| self.pods[*o].as_ref().is_some_and(&condition))
            .map(bit)
            .fold(0, |a, b| a | b)
    }

    /// The servers that lead.
    pub fn leaders(&self) -> u8 {
        (0..MAX)
            .filter(|o| self.leads(*o))
            .map(bit)
            .fold(0, |a, b| a | b)
    }

    /// Whether this server leads.
    pub fn leads(&self, ordinal: usize) -> bool {
        self.leader_of(ordinal) == Some(ordinal)
    }

    /// The leader that this server serves under.
    pub fn leader_of(&self, ordinal: usize) -> Option<usize> {
        match self.pods[ordinal]?.process {
            Process::Serving { leader } => Some(usize::from(leader)),
            _ => None,
        }
    }

    /// The servers that serve under this leader, itself among them.
    pub fn followers(&self, leader: usize) -> u8 {
        (0..MAX)
            .filter(|o| self.leader_of(*o) == Some(leader))
            .map(bit)
            .fold(0, |a, b| a | b)
    }

    /// The servers that look for a leader.
    pub fn looking(&self) -> u8 {
        self.mask(|p| matches!(p.process, Process::Looking { .. }))
    }

    /// The different server lists that are live, as a mask of their sizes.
    pub fn live_lists(&self) -> u16 {
        let template = 1u16 << self.set.template.list;
        self.pods
            .iter()
            .flatten()
            .fold(template, |lists, p| lists | (1 << p.template.list))
    }

    /// Whether every live list has a majority of disks that can vote.
    pub fn majority_of_disks_intact(&self) -> bool {
        let intact = (0..MAX)
            .filter(|o| self.disks[*o] != Disk::Empty)
            .map(bit)
            .fold(0, |a, b| a | b);
        // A server that is permitted to initialize its disk needs no data.
        let intact = intact | members(self.permit) & !members(self.permit.saturating_sub(1));
        let lists = self.live_lists();
        (1..=MAX as u8)
            .filter(|n| lists & (1 << n) != 0)
            .all(|n| holds_majority(intact, n))
    }

    /// Renames the epochs so that equal worlds are equal states: only their order counts.
    pub fn canonical(mut self) -> Self {
        // The volume of a member that left and never comes back plays no part any more.
        let last = self.wanted.max(self.set.replicas);
        if self.changes == 0 && self.held.is_none() {
            for ordinal in usize::from(last)..MAX {
                if self.pods[ordinal].is_none() {
                    self.disks[ordinal] = Disk::Empty;
                }
            }
        }
        let mut used = [false; MAX + 1];
        for disk in &self.disks {
            if let Disk::Data { epoch, .. } = disk {
                used[usize::from(*epoch)] = true;
            }
        }
        for disk in &mut self.disks {
            if let Disk::Data { epoch, .. } = disk {
                let older = used[..usize::from(*epoch)].iter().filter(|u| **u);
                *epoch = u8::try_from(older.count()).unwrap_or(u8::MAX);
            }
        }
        self
    }
}
