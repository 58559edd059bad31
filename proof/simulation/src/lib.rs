//! A simulation of the operator in virtual time, on one thread and from one seed: the real operator
//! talks to a simulated API server, controllers and ZooKeeper servers, which fail on demand.

pub mod acts;
pub mod api_server;
pub mod checks;
mod clock;
pub mod clocks;
pub mod cluster;
pub mod controllers;
pub mod kubelet;
pub mod life;
pub mod requests;
pub mod script;
pub mod stops;
pub mod zookeeper;
