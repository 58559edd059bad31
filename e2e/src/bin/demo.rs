//! The demonstration that `cargo xtask demo` shows, on a cluster with the operator installed.

use anyhow::Context as _;
use bellwether_e2e::kubectl::{Kubectl, VARIABLE};

fn main() -> anyhow::Result<()> {
    let kubectl = Kubectl::from_environment()
        .with_context(|| format!("{VARIABLE} is not set: run `cargo xtask demo`"))?;
    bellwether_e2e::demo::run(&kubectl)
}
