//! The program that Bellwether runs inside every ZooKeeper pod.
//!
//! `bellwether-member prepare` is the init container: it checks that the volume belongs to this
//! member, writes `myid`, puts the configuration of the pod's revision in place and decides whether
//! the member may bootstrap with an empty disk. `bellwether-member serve`, in a container beside ZooKeeper's, answers
//! the kubelet's readiness probe over HTTP and the operator over mutual TLS; `bellwether-member volumes` prints
//! what is on the volumes.
//!
//! The library decides and is pure; [`prepare`] reads and writes around it. No content of any file makes
//! the program panic: it refuses a file that it cannot understand, with a message that says what a person
//! can do.

mod control;
mod credentials;
mod files;
mod http;
mod options;
mod prepare;
mod probe;
mod reconfigure;
mod run_time_list;
mod serve;
mod taken_up;
mod timed;
mod tls_files;
mod volumes;
mod words;

use std::process::ExitCode;

use options::Command;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match options::parse(&arguments) {
        Ok(Command::Help) => {
            println!("{}", options::USAGE);
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            println!("bellwether-member {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Command::Prepare(directories)) => run_prepare(&directories),
        Ok(Command::Serve(options)) => match serve::serve(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        },
        Ok(Command::Volumes(volumes)) => match volumes::report(&volumes.data, &volumes.datalog) {
            Ok(report) => {
                println!("{report}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        },
        Err(what) => {
            eprintln!("{what}\n\n{}", options::USAGE);
            ExitCode::from(2)
        }
    }
}

fn run_prepare(directories: &options::Directories) -> ExitCode {
    match prepare::prepare(directories, &prepare::Environment::from_process()) {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            // Best effort: the message then also shows in the pod's status.
            let _ = std::fs::write(&directories.termination_log, &why);
            ExitCode::FAILURE
        }
    }
}
