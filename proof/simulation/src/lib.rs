//! A simulation of the operator in virtual time, on one thread and from one seed: the real operator talks to
//! an API server, controllers and ZooKeeper servers that are made here and fail as they are told to.

pub mod api_server;
pub mod controllers;
