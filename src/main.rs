//! The program: the operator and its command line.

use std::process::ExitCode;

/// A plan is mostly the making and dropping of JSON, for which this one is much faster than the C
/// library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    bellwether::main().await
}
