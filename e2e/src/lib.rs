//! What the end-to-end tests are made of.
//!
//! * [`mod@bench`]: what changes cost, compared with other ways to carry them out;
//! * [`page`] and [`browser`]: the page, and a real browser that looks at it;
//! * [`kubectl`]: commands, as a user types them;
//! * [`helm`]: the chart, as a user installs it;
//! * [`watch`]: a kind of object in one namespace, kept current, with its history;
//! * [`wait`]: conditions with a deadline; no test sleeps to be on the safe side;
//! * [`world`]: the namespace of one test, and what is printed when the test fails;
//! * [`ensemble`] and [`election`]: the two kinds;
//! * [`clients`]: programs in the cluster that use ZooKeeper as applications do;
//! * [`churn`]: elections whose candidates come and go all the time, and what ZooKeeper reports about them;
//! * [`load`]: writes and role samples during a change, and the verdict on them;
//! * [`demo`]: the demonstration of `cargo xtask demo`;
//! * [`history`]: what the operator did to the pods, read from the watch.

pub mod bench;
pub mod browser;
pub mod churn;
pub mod clients;
pub mod demo;
pub mod election;
pub mod ensemble;
pub mod helm;
pub mod history;
pub mod kubectl;
pub mod load;
pub mod page;
pub mod process;
pub mod wait;
pub mod watch;
pub mod world;
