//! The operator and its command line.
//!
//! This is a library for one reason: the simulation runs [`Operator`] as it is, with a client of an API
//! server and with members that exist in memory only.

mod admin;
mod arguments;
mod backoff;
mod cli;
mod election;
mod ensemble;
mod lease;
mod limited;
mod log;
mod metrics;
mod operator;
mod page;
mod run;
mod scoped;
mod traces;
mod view;
mod zookeeper;

use std::process::ExitCode;

use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use kube::CustomResourceExt;

use arguments::{Arguments, Command, CrdFormat, this_command};
use cli::act::Action;

pub use ensemble::members::{Members, Network};
pub use operator::{Operator, Settings};

/// Does what the command line of this process asks for.
///
/// # Errors
/// When it cannot be done; why, for people.
pub async fn main() -> anyhow::Result<ExitCode> {
    match Arguments::read().command {
        Command::Run(arguments) => {
            let traces = arguments.traces_endpoint.as_ref();
            let traces = traces
                .map(|endpoint| traces::Traces::start(endpoint, arguments.traces_sample_ratio))
                .transpose()?;
            let file = arguments.log_filter_file.clone();
            log::start(arguments.log_format, file, traces.as_ref());
            let ended = run::run(arguments).await;
            if let Some(traces) = traces {
                traces.stop().await;
            }
            ended?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Crd { format } => {
            print_crds(format)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Lint(arguments) => Ok(cli::lint::lint(&arguments)),
        Command::Plan(arguments) => cli::plan::plan(&arguments).await,
        Command::Status(arguments) => cli::status::status(&arguments).await,
        Command::Elections(arguments) => cli::elections::elections(&arguments).await,
        Command::Restart(arguments) => cli::act::act(Action::Restart, &arguments).await,
        Command::Pause(arguments) => cli::act::act(Action::Pause, &arguments).await,
        Command::Resume(arguments) => cli::act::act(Action::Resume, &arguments).await,
        Command::SupportBundle(arguments) => cli::bundle::bundle(&arguments).await,
        Command::Completion(arguments) => cli::generate::completion(&arguments, this_command()),
        Command::Reference(arguments) => cli::reference::reference(&arguments),
        Command::Man => cli::generate::man(this_command()),
    }
}

#[allow(clippy::print_stdout, reason = "printing is what this command is for")]
fn print_crds(format: CrdFormat) -> anyhow::Result<()> {
    let crds = [ZooKeeperEnsemble::crd(), LeaderElection::crd()];
    match format {
        CrdFormat::Json => println!("{}", serde_json::to_string(&crds)?),
        CrdFormat::Yaml => {
            for crd in crds {
                println!("---\n{}", serde_yaml::to_string(&crd)?.trim_end());
            }
        }
    }
    Ok(())
}
