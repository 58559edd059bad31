//! Real ZooKeeper servers on loopback, changed by the real planner.
//!
//! No cluster: [`world::World`] plays the StatefulSet controller and the kubelets, each server is a
//! process with a loopback address and a directory of its own, and the planner sees what the servers
//! themselves answer. The files that the servers read are those that the operator renders.

pub mod audit;
pub mod authority;
pub mod classes;
pub mod client;
pub mod installation;
pub mod kubelet;
pub mod network;
pub mod server;
pub mod stranger;
pub mod world;

// The operator's own questions to a server, word for word.
#[path = "../../../src/zookeeper.rs"]
mod zookeeper;
