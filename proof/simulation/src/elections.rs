//! Lives of elections: applications elect in a simulated ZooKeeper, the real operator mirrors them into the simulated API
//! server, everything around it fails, and judges compare what it writes and shows with who truly leads.

pub mod acts;
pub mod applications;
pub mod judge;
pub mod life;
pub mod session;
pub mod tree;
pub mod zookeeper;

pub use life::live;
