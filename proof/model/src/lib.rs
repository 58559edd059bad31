//! A model check of the planner: the real [`bellwether_ensemble::plan()`] decides, an abstract world
//! executes, and stateright visits every state that the world can reach.
//!
//! The world has servers that judge quorums by their own list and vote by epoch, transaction and
//! server id; disks that survive or are lost; pods that outlive their deletion on a node that is cut
//! off; operators that are held up between reading and writing, die between two writes, or work two
//! at a time; and a user who changes the size in the middle. In every state:
//!
//! * **one leader**: at most one server leads with a majority of its own list;
//! * **no write lost**: no server leads without a write that was acknowledged;
//! * **two lists**: at most two server lists are live;
//! * **leader last**: the leader was not restarted while another due restart was possible;
//! * **service kept**: no restart of a follower ended the service where waiting would have kept it;
//! * **it ends**: once the faults stop, and while a majority of every live list's disks is intact,
//!   the ensemble comes to the size that the user wants.
//!
//! Two more worlds have modules of their own: members that change at run time ([`reconfiguration`]), and an election that moves
//! from ZooKeeper to a Lease ([`bridge`]).
//!
//! A belief about a rule is worth nothing if the checker could not refute it, so every rule is also
//! switched off once, and then a counterexample must be found: see [`checks`].

pub mod bridge;
pub mod checks;
pub mod operator;
pub mod reconfiguration;
pub mod schedule;
pub mod servers;
pub mod state;
pub mod story;
pub mod world;
