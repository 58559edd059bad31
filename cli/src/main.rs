//! The program: the operator as a process, the commands for people, and the page.

mod arguments;
mod commands;
mod page;
mod run;
mod view;

use std::process::ExitCode;

use bellwether::{log, traces};
use bellwether_api::{LeaderElection, ZooKeeperEnsemble};
use kube::CustomResourceExt;

use arguments::{Arguments, Command, CrdFormat, this_command};
use commands::act::Action;

/// A plan is mostly the making and dropping of JSON, for which this one is much faster than the C
/// library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Does what the command line of this process asks for.
///
/// # Errors
/// When it cannot be done; why, for people.
#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Arguments::read().command {
        Command::Run(arguments) => {
            let traces = arguments.traces_endpoint.as_ref();
            let traces = traces
                .map(|endpoint| traces::Traces::start(endpoint, arguments.traces_sample_ratio))
                .transpose()?;
            let file = arguments.log_filter_file.clone();
            log::start(arguments.log_format.into(), file, traces.as_ref());
            let ended = run::run(*arguments).await;
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
        Command::Lint(arguments) => Ok(commands::lint::lint(&arguments)),
        Command::Plan(arguments) => commands::plan::plan(&arguments).await,
        Command::Status(arguments) => commands::status::status(&arguments).await,
        Command::Elections(arguments) => commands::elections::elections(&arguments).await,
        Command::Timeline(arguments) => commands::timeline::timeline(&arguments).await,
        Command::Page(arguments) => commands::page::page(&arguments).await,
        Command::Restart(arguments) => commands::act::act(Action::Restart, &arguments).await,
        Command::Pause(arguments) => commands::act::act(Action::Pause, &arguments).await,
        Command::Resume(arguments) => commands::act::act(Action::Resume, &arguments).await,
        Command::Handover(arguments) => commands::handover::handover(&arguments).await,
        Command::Replace(arguments) => commands::replace::replace(&arguments).await,
        Command::SupportBundle(arguments) => commands::bundle::bundle(&arguments).await,
        Command::Completion(arguments) => {
            commands::generate::completion(&arguments, this_command())
        }
        Command::Reference(arguments) => commands::reference::reference(&arguments),
        Command::Man => commands::generate::man(this_command()),
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
