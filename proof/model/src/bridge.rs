//! The bridge between candidates in ZooKeeper and those at a Lease: the real [`cross`] decides, an abstract world executes.
//!
//! The world has a queue of znodes, a Lease, candidates on both sides who come and go, and two operators that both act for the
//! bridge, may want different sides, read one lock after the other, and die between any two requests. A request of an operator
//! that died arrives later or never. Versions are kept as what a request needs of them: whether the object is still as it was when
//! the operator read it. In every state **one side leads** at most: not a candidate that is the first in the queue, and a
//! candidate that holds the Lease.

use bellwether_api::election::BridgeSide;
use bellwether_election::bridge::{Act, Holder, OwnZnode, Place, cross};
use stateright::{Model, Property};

use crate::reconfiguration::Case;

/// The rules that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Before a lock is given up, the other one is written.
    pub other_first: bool,
    /// Locks are written and given up by the version that was read.
    pub versions: bool,
    /// The bridge's znode outlives the operator's session.
    pub persistent: bool,
    /// The bridge's Lease does not expire.
    pub lasting: bool,
    /// The Lease is given up only when no candidate is before the bridge's znode.
    pub first: bool,
}

impl Kept {
    const ALL: Self = Self {
        other_first: true,
        versions: true,
        persistent: true,
        lasting: true,
        first: true,
    };
}

/// A world in which an election moves.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// Who leads at first.
    pub begin: BridgeSide,
    /// The rules that are kept.
    pub kept: Kept,
    /// Whether it is looked for a way across and back, instead of two sides that lead.
    pub looks_for_return: bool,
}

/// The longest queue.
const MAX_QUEUE: usize = 3;
/// How many requests of dead operators may be on their way.
const MAX_LATE: usize = 1;
const SIDES: [BridgeSide; 2] = [BridgeSide::ZooKeeper, BridgeSide::Kubernetes];

/// A znode in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Znode {
    /// A candidate's.
    Candidate,
    /// The bridge's, with a name of its own, as sequence numbers are.
    Own(u8),
}

/// Who holds the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Nobody.
    Free,
    /// The bridge.
    Bridge,
    /// A candidate.
    Candidate,
}

/// A request to ZooKeeper or the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// A znode is created at the end of the queue.
    Create,
    /// The data of a znode is written.
    WriteZnode {
        /// Which one.
        name: u8,
        /// Whether it is as it was read.
        fresh: bool,
    },
    /// A znode is deleted.
    Delete {
        /// Which one.
        name: u8,
        /// Whether it is as it was read.
        fresh: bool,
    },
    /// The Lease is written with the bridge as its holder.
    WriteLease {
        /// Whether it is as it was read.
        fresh: bool,
    },
    /// The Lease is written without a holder.
    FreeLease {
        /// Whether it is as it was read.
        fresh: bool,
    },
}

/// What an operator does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Nothing.
    Rests,
    /// It read the Lease, and will read the queue.
    ReadLease {
        /// The side that it wants to lead.
        side: BridgeSide,
        /// What it read.
        lease: Lease,
        /// Whether the Lease is still as it was read.
        fresh: bool,
    },
    /// It sends these requests, one after the other.
    Sends(Vec<Request>),
}

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    queue: Vec<Znode>,
    lease: Lease,
    operators: [Operator; 2],
    late: Vec<Request>,
    /// Whether a candidate at the Lease has led.
    kubernetes_led: bool,
    /// Whether a candidate in ZooKeeper has led after that.
    came_back: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A candidate stands in ZooKeeper.
    Stand,
    /// The candidate at this place of the queue leaves it.
    Leave(usize),
    /// A candidate takes the Lease.
    Take,
    /// A candidate gives the Lease up, or died long enough ago.
    Release,
    /// An operator reads the Lease, and wants this side to lead.
    Begin(usize, BridgeSide),
    /// It reads the queue, and decides.
    Decide(usize),
    /// Its next request arrives.
    Arrive(usize),
    /// It dies; its next request may arrive later.
    Die(usize),
    /// A request of an operator that died arrives.
    ArriveLate(usize),
    /// It is lost.
    Lose(usize),
    /// Without the rule: the bridge's znode at this place goes with its session.
    Expire(usize),
    /// Without the rule: the bridge's Lease expires.
    ExpireLease,
}

impl State {
    fn zookeeper_leads(&self) -> bool {
        self.queue.first() == Some(&Znode::Candidate)
    }

    fn kubernetes_leads(&self) -> bool {
        self.lease == Lease::Candidate
    }

    /// All requests that are on their way or will be sent.
    fn requests(&mut self) -> impl Iterator<Item = &mut Request> {
        let sent = self
            .operators
            .iter_mut()
            .flat_map(|operator| match operator {
                Operator::Sends(requests) => requests.as_mut_slice(),
                _ => &mut [],
            });
        sent.chain(&mut self.late)
    }

    /// The Lease was written: what was read of it is not fresh any more.
    fn write_lease(&mut self, lease: Lease) {
        self.lease = lease;
        for operator in &mut self.operators {
            if let Operator::ReadLease { fresh, .. } = operator {
                *fresh = false;
            }
        }
        for request in self.requests() {
            if let Request::WriteLease { fresh } | Request::FreeLease { fresh } = request {
                *fresh = false;
            }
        }
    }

    /// A znode was written or deleted.
    fn wrote_znode(&mut self, written: u8) {
        for request in self.requests() {
            if let Request::WriteZnode { name, fresh } | Request::Delete { name, fresh } = request
                && *name == written
            {
                *fresh = false;
            }
        }
    }

    /// A name that no znode has and no request means.
    fn new_name(&mut self) -> u8 {
        let mut taken: Vec<u8> = self
            .requests()
            .filter_map(|request| match request {
                Request::WriteZnode { name, .. } | Request::Delete { name, .. } => Some(*name),
                _ => None,
            })
            .collect();
        taken.extend(self.queue.iter().filter_map(|znode| match znode {
            Znode::Own(name) => Some(*name),
            Znode::Candidate => None,
        }));
        (0..).find(|name| !taken.contains(name)).unwrap_or(u8::MAX)
    }

    fn place_of(&self, name: u8) -> Option<usize> {
        self.queue
            .iter()
            .position(|znode| *znode == Znode::Own(name))
    }

    /// Carries a request out; whether it succeeded.
    fn carry_out(&mut self, kept: Kept, request: Request) -> bool {
        let accepted = |fresh: bool| fresh || !kept.versions;
        match request {
            Request::Create => {
                if self.queue.len() < MAX_QUEUE {
                    let name = self.new_name();
                    self.queue.push(Znode::Own(name));
                }
                true
            }
            Request::WriteZnode { name, fresh } => {
                let written = accepted(fresh) && self.place_of(name).is_some();
                if written {
                    self.wrote_znode(name);
                }
                written
            }
            Request::Delete { name, fresh } => match self.place_of(name) {
                Some(at) if accepted(fresh) => {
                    self.queue.remove(at);
                    self.wrote_znode(name);
                    true
                }
                _ => false,
            },
            // Without versions, an operator still does not overwrite a candidate that holds the Lease.
            Request::WriteLease { fresh } => {
                let written = accepted(fresh) && (kept.versions || self.lease != Lease::Candidate);
                if written {
                    self.write_lease(Lease::Bridge);
                }
                written
            }
            Request::FreeLease { fresh } => {
                let written = accepted(fresh) && (kept.versions || self.lease == Lease::Bridge);
                if written {
                    self.write_lease(Lease::Free);
                }
                written
            }
        }
    }

    /// Removes requests that can have no effect any more, and puts the others in order.
    fn tidy(mut self, kept: Kept) -> Self {
        if kept.versions {
            self.late.retain(|request| {
                !matches!(
                    request,
                    Request::WriteZnode { fresh: false, .. }
                        | Request::Delete { fresh: false, .. }
                        | Request::WriteLease { fresh: false }
                        | Request::FreeLease { fresh: false }
                )
            });
        }
        self.late.sort_unstable();
        self.operators
            .sort_by_cached_key(|operator| format!("{operator:?}"));
        self.kubernetes_led |= self.kubernetes_leads();
        self.came_back |= self.kubernetes_led && self.zookeeper_leads();
        self
    }
}

impl Move {
    /// The requests that follow from what an operator read.
    fn requests(&self, state: &State, side: BridgeSide, lease: Lease, fresh: bool) -> Vec<Request> {
        let own = state.queue.iter().filter_map(|znode| match znode {
            Znode::Own(name) => Some(OwnZnode {
                path: name.to_string(),
                version: 0,
            }),
            Znode::Candidate => None,
        });
        let own: Vec<_> = own.collect();
        let is_candidate = |znode: &&Znode| **znode == Znode::Candidate;
        let ahead = match self.kept.first {
            true => state.queue.iter().take_while(is_candidate).count(),
            false => 0,
        };
        let holder = match lease {
            Lease::Free => Holder::Nobody,
            Lease::Bridge => Holder::Bridge,
            Lease::Candidate => Holder::Other("web".to_owned()),
        };
        let (act, _) = cross(side, &Place { own, ahead }, &holder, "web");
        let name = |own: &OwnZnode| own.path.parse().unwrap_or(u8::MAX);
        let all = match act {
            None => Vec::new(),
            Some(Act::CreateZnode) => vec![Request::Create],
            Some(Act::DeleteSurplus(own)) => vec![Request::Delete {
                name: name(&own),
                fresh: true,
            }],
            Some(Act::TakeLease | Act::RenewLease) => vec![Request::WriteLease { fresh }],
            Some(Act::GiveUpLease(own)) => vec![
                Request::WriteZnode {
                    name: name(&own),
                    fresh: true,
                },
                Request::FreeLease { fresh },
            ],
            Some(Act::GiveUpZnode(own)) => vec![
                Request::WriteLease { fresh },
                Request::Delete {
                    name: name(&own),
                    fresh: true,
                },
            ],
        };
        let skipped = usize::from(all.len() == 2 && !self.kept.other_first);
        all[skipped..].to_vec()
    }
}

impl Model for Move {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (queue, lease) = match self.begin {
            BridgeSide::ZooKeeper => (vec![Znode::Candidate], Lease::Bridge),
            BridgeSide::Kubernetes => (vec![Znode::Own(0)], Lease::Candidate),
        };
        vec![State {
            queue,
            lease,
            operators: [Operator::Rests, Operator::Rests],
            late: Vec::new(),
            kubernetes_led: false,
            came_back: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.queue.len() < MAX_QUEUE {
            actions.push(Action::Stand);
        }
        for (at, znode) in state.queue.iter().enumerate() {
            match znode {
                Znode::Candidate => actions.push(Action::Leave(at)),
                Znode::Own(_) if !self.kept.persistent => actions.push(Action::Expire(at)),
                Znode::Own(_) => {}
            }
        }
        match state.lease {
            Lease::Free => actions.push(Action::Take),
            Lease::Candidate => actions.push(Action::Release),
            Lease::Bridge if !self.kept.lasting => actions.push(Action::ExpireLease),
            Lease::Bridge => {}
        }
        for (at, operator) in state.operators.iter().enumerate() {
            match operator {
                Operator::Rests => actions.extend(SIDES.map(|side| Action::Begin(at, side))),
                Operator::ReadLease { .. } => actions.push(Action::Decide(at)),
                Operator::Sends(_) => {
                    actions.push(Action::Arrive(at));
                    if state.late.len() < MAX_LATE {
                        actions.push(Action::Die(at));
                    }
                }
            }
        }
        for at in 0..state.late.len() {
            actions.extend([Action::ArriveLate(at), Action::Lose(at)]);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Stand => state.queue.push(Znode::Candidate),
            Action::Leave(at) => {
                state.queue.remove(at);
            }
            Action::Expire(at) => {
                if let Znode::Own(name) = state.queue.remove(at) {
                    state.wrote_znode(name);
                }
            }
            Action::Take => state.write_lease(Lease::Candidate),
            Action::Release | Action::ExpireLease => state.write_lease(Lease::Free),
            Action::Begin(at, side) => {
                state.operators[at] = Operator::ReadLease {
                    side,
                    lease: state.lease,
                    fresh: true,
                };
            }
            Action::Decide(at) => {
                if let Operator::ReadLease { side, lease, fresh } = state.operators[at] {
                    let requests = self.requests(&state, side, lease, fresh);
                    state.operators[at] = match requests.is_empty() {
                        true => Operator::Rests,
                        false => Operator::Sends(requests),
                    };
                }
            }
            Action::Arrive(at) => {
                let next = std::mem::replace(&mut state.operators[at], Operator::Rests);
                let Operator::Sends(mut requests) = next else {
                    return None;
                };
                let request = requests.remove(0);
                // What remains has to see what this request changes.
                state.operators[at] = Operator::Sends(requests);
                let done = state.carry_out(self.kept, request);
                if !done || state.operators[at] == Operator::Sends(Vec::new()) {
                    state.operators[at] = Operator::Rests;
                }
            }
            Action::Die(at) => {
                let next = std::mem::replace(&mut state.operators[at], Operator::Rests);
                if let Operator::Sends(requests) = next {
                    state.late.extend(requests.first());
                }
            }
            Action::ArriveLate(at) => {
                let request = state.late.remove(at);
                state.carry_out(self.kept, request);
            }
            Action::Lose(at) => {
                state.late.remove(at);
            }
        }
        Some(state.tidy(self.kept))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.looks_for_return {
            true => vec![Property::always(NO_RETURN, |_, state: &State| {
                !state.came_back
            })],
            false => vec![Property::always(ONE_SIDE, |_, state: &State| {
                !(state.zookeeper_leads() && state.kubernetes_leads())
            })],
        }
    }
}

const ONE_SIDE: &str = "one side leads";
const NO_RETURN: &str = "the lead does not come back";

/// Moves under all rules, from either side; that the lead crosses and comes back; and every rule switched off.
pub fn cases() -> Vec<Case<Move>> {
    let case = |name: &str, begin, kept, expected| Case {
        name: name.to_owned(),
        change: Move {
            begin,
            kept,
            looks_for_return: expected == Some(NO_RETURN),
        },
        expected,
    };
    let [zookeeper, kubernetes] = SIDES;
    let off = |name: &str, kept| {
        case(
            &format!("bridge without {name}"),
            zookeeper,
            kept,
            Some(ONE_SIDE),
        )
    };
    vec![
        case("bridge from ZooKeeper", zookeeper, Kept::ALL, None),
        case("bridge from a Lease", kubernetes, Kept::ALL, None),
        case(
            "bridge across and back",
            zookeeper,
            Kept::ALL,
            Some(NO_RETURN),
        ),
        off(
            "the other lock written first",
            Kept {
                other_first: false,
                ..Kept::ALL
            },
        ),
        off(
            "versions",
            Kept {
                versions: false,
                ..Kept::ALL
            },
        ),
        off(
            "a znode that outlives the session",
            Kept {
                persistent: false,
                ..Kept::ALL
            },
        ),
        off(
            "a Lease that does not expire",
            Kept {
                lasting: false,
                ..Kept::ALL
            },
        ),
        off(
            "waiting for the first place",
            Kept {
                first: false,
                ..Kept::ALL
            },
        ),
    ]
}
