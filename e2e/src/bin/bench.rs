//! The benchmarks that `cargo xtask bench` runs, on a cluster with the operator installed.

use anyhow::{Context as _, bail};
use bellwether_e2e::bench::{
    Options, Release, WAYS, elections, fleet, resize, roll, rollouts, start,
};
use bellwether_e2e::kubectl::{Kubectl, VARIABLE};

fn main() -> anyhow::Result<()> {
    let kubectl = Kubectl::from_environment()
        .with_context(|| format!("{VARIABLE} is not set: run `cargo xtask bench`"))?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["elections", sizes @ ..] = words.as_slice() {
        let sizes: Vec<usize> = sizes.iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
        let [elections, rate, seconds, many, burst, idle] = sizes.as_slice() else {
            bail!("run `cargo xtask bench elections`");
        };
        let size = elections::Size {
            elections: *elections,
            rate: *rate,
            seconds: u64::try_from(*seconds)?,
            many: *many,
            burst: *burst,
            idle: u64::try_from(*idle)?,
        };
        return elections::run(&kubectl, size, Release::from_environment().as_ref());
    }
    if let ["fleet", sizes @ ..] = words.as_slice() {
        let sizes: Vec<u32> = sizes.iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
        let [ensembles, change, hang, idle] = sizes.as_slice() else {
            bail!("run `cargo xtask bench fleet`");
        };
        let size = fleet::Size {
            ensembles: *ensembles,
            change: *change,
            hang: *hang,
            idle: u64::from(*idle),
        };
        return fleet::run(&kubectl, size, Release::from_environment().as_ref());
    }
    if let ["start", repetitions] = words.as_slice() {
        return start::run(&kubectl, repetitions.parse()?);
    }
    let [what, repetitions, rest @ ..] = words.as_slice() else {
        bail!("run `cargo xtask bench`");
    };
    let options = Options {
        repetitions: repetitions.parse()?,
        timeline: rest.contains(&"--timeline"),
        only: WAYS
            .into_iter()
            .filter(|way| rest.contains(&way.word()))
            .collect(),
        other: Release::from_environment(),
    };
    match *what {
        "roll" => roll::run(&kubectl, &options),
        "resize" => resize::run(&kubectl, &options),
        "rollouts" => {
            let [application] = rest else {
                bail!("run `cargo xtask bench rollouts`");
            };
            rollouts::run(&kubectl, options.repetitions, application.parse()?)
        }
        other => bail!("there is no benchmark {other}: run `cargo xtask bench`"),
    }
}
