//! A simulation of the operator in virtual time, on one thread and from one seed: the real operator
//! talks to a simulated API server, controllers and ZooKeeper servers, which fail on demand.

pub mod acts;
pub mod checks;
pub mod cluster;
pub mod controllers;
pub mod elections;
pub mod kubelet;
pub mod life;
pub mod operator;
pub mod requests;
pub mod script;
pub mod zookeeper;
