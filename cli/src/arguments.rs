//! The command line.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use bellwether::traces::{self, Endpoint};
use bellwether::{HostPattern, LabelKeyPattern, log};
use bellwether_api::ensemble::DEFAULT_IMAGE_REPOSITORY;

use crate::commands;

/// A Kubernetes operator for ZooKeeper ensembles and the elections held in them.
#[derive(Debug, Parser)]
#[command(name = "bellwether", version, about)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// The command line of this process. Help and errors say `kubectl bellwether` when kubectl runs the
    /// program as its plugin, which is then called `kubectl-bellwether`.
    pub(crate) fn read() -> Self {
        let matches = this_command().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The command line of this program, under the name that it was called by.
pub(crate) fn this_command() -> clap::Command {
    command(std::env::args_os().next().as_deref())
}

fn command(called: Option<&OsStr>) -> clap::Command {
    let name = called.and_then(|path| Path::new(path).file_stem());
    let command = Arguments::command();
    if name == Some(OsStr::new("kubectl-bellwether")) {
        command
            .name("kubectl-bellwether")
            .bin_name("kubectl bellwether")
    } else {
        command
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the operator.
    Run(Box<Run>),
    /// Print the CustomResourceDefinitions, to apply with kubectl.
    Crd {
        /// YAML documents, or one JSON list.
        #[arg(long, value_enum, default_value = "yaml")]
        format: CrdFormat,
    },
    /// Check manifests by the API server's rules and the operator's, without a cluster.
    Lint(commands::lint::Lint),
    /// Show the steps that a change would take, and what each of them changes. Reads only.
    Plan(commands::plan::Plan),
    /// Show an ensemble: its members, and who is waited for and why.
    Status(commands::status::Status),
    /// Show who leads in each election.
    Elections(commands::elections::Elections),
    /// Show the last changes of the leaders of all elections, in one order.
    Timeline(commands::timeline::Timeline),
    /// Show the page here, /page: ensembles, changes under way and elections, with your own rights in the cluster.
    Page(commands::page::Page),
    /// Restart every member of an ensemble once, the leader last.
    Restart(commands::act::Act),
    /// Let the operator change nothing of an ensemble until it is resumed.
    Pause(commands::act::Act),
    /// Let the operator go on with an ensemble that is paused.
    Resume(commands::act::Act),
    /// Have a member whose node or disk is gone for good replaced by one with an empty volume.
    Replace(commands::replace::Replace),
    /// Ask the leader of an election to let another candidate lead, and wait until one does.
    Handover(commands::handover::Handover),
    /// Collect objects, logs and answers of the servers into one file, without Secrets.
    SupportBundle(commands::bundle::Bundle),
    /// Print the completions for a shell.
    Completion(commands::generate::Completion),
    /// Print the manual page.
    Man,
    /// Print what pages of the documentation are generated from.
    #[command(hide = true)]
    Reference(commands::reference::Reference),
}

/// How to run the operator.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The namespace of the operator's own lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub lease_namespace: String,
    /// The name of the operator's own lease.
    #[arg(long, default_value = "bellwether")]
    pub lease_name: String,
    /// The name of the Secret, in the same namespace, with the root key. The keys of all ensembles' authorities follow
    /// from it. The operator makes it if there is none.
    #[arg(long, default_value = "bellwether-root")]
    pub root_secret: String,
    /// Who holds the lease: this replica.
    #[arg(long, env = "POD_NAME", default_value = "bellwether")]
    pub identity: String,
    /// Work in this namespace only; repeat it for several. All namespaces if none is given.
    #[arg(long = "watch-namespace", value_name = "NAMESPACE")]
    pub watch_namespaces: Vec<String>,
    /// The image with the member program, which every ZooKeeper pod runs first.
    #[arg(long, env = "MEMBER_IMAGE")]
    pub member_image: String,
    /// The DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// A label of the operator's own pods; repeat it for several. The NetworkPolicies of ensembles let the pods with all of
    /// these labels in the lease's namespace reach members, and if none is given, everybody reach the members' control ports.
    #[arg(long = "own-pod-label", value_name = "KEY=VALUE", value_parser = label)]
    pub own_pod_labels: Vec<(String, String)>,
    /// Ask cert-manager for the certificates of ensembles with `spec.tls.issuerRef`. The operator needs rights for them.
    #[arg(long)]
    pub cert_manager: bool,
    /// The repository of the images of ensembles that name none, such as a mirror of the official one.
    #[arg(long, value_name = "REPOSITORY", default_value = DEFAULT_IMAGE_REPOSITORY, value_parser = repository)]
    pub zookeeper_repository: String,
    /// The digest of the image of a version, for ensembles that name no image; repeat it for several. If any is given,
    /// only these versions run.
    #[arg(long = "zookeeper-digest", value_name = "VERSION=DIGEST", value_parser = digest)]
    pub zookeeper_digests: Vec<(String, String)>,
    /// Let elections connect to a ZooKeeper at this host, in `spec.connection`; repeat it for several. None is allowed
    /// if none is given. A name (zk.example.com), the names within a domain (*.example.com), an address, or the
    /// addresses of a network (10.0.0.0/8); with a port (zk.example.com:2281, [fd00::/8]:2281) only that port. A
    /// network allows hosts that are given as addresses, not names that have such an address.
    #[arg(long = "allow-connection-host", value_name = "PATTERN", value_parser = HostPattern::parse)]
    pub allowed_hosts: Vec<HostPattern>,
    /// Let elections set labels with this key on pods, in `spec.projections.podLabels`, beside the default key
    /// zookeeper.bellwether.dev/role; repeat it for several. `example.com/*` allows all keys with that prefix.
    #[arg(long = "allow-label-key", value_name = "KEY", value_parser = LabelKeyPattern::parse)]
    pub allowed_label_keys: Vec<LabelKeyPattern>,
    /// Let leaders be asked to hand over at this port of their pods, in `spec.handover`; repeat it for several. None is allowed
    /// if none is given.
    #[arg(long = "allow-handover-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub allowed_handover_ports: Vec<u16>,
    /// Let pods be asked at this port whether they lead, in `spec.leadershipCheck`; repeat it for several. None is allowed if none
    /// is given.
    #[arg(long = "allow-leadership-check-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub allowed_check_ports: Vec<u16>,
    /// Let leaders be asked to hand over when their node is cordoned, in `spec.handover.onCordon`. The operator then watches
    /// which nodes are.
    #[arg(long)]
    pub handover_on_cordon: bool,
    /// Let elections move to Leases and back, with `spec.bridge`. The operator then creates and deletes znodes in those elections,
    /// and writes the Leases that they name.
    #[arg(long)]
    pub allow_bridges: bool,
    /// How many elections may have series of their own in the metrics, with `spec.ownSeries`. An election has up to eleven.
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub election_series: usize,
    /// Where to serve /livez and /readyz, and without --secure-listen also /metrics and the page, in clear and to everybody
    /// who reaches it.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Serve /metrics and the page here instead, over TLS, to those whom the API server lets `get` the nonResourceURL /metrics
    /// or /page. They bring a token of Kubernetes: as Bearer, or as the password that a browser asks for.
    #[arg(long, value_name = "ADDRESS")]
    pub secure_listen: Option<SocketAddr>,
    /// A directory with the certificate to present there, tls.crt and tls.key. Changed files are presented within a minute.
    /// Without it, a self-signed one.
    #[arg(long, value_name = "DIRECTORY", requires = "secure_listen")]
    pub serving_certificate: Option<PathBuf>,
    /// Serve a page for browsers beside the metrics, /page: ensembles, changes under way and elections. It is read only.
    #[arg(long)]
    pub page: bool,
    /// Answer the page under this name as well, such as that of an ingress; repeat it for several. Addresses, names
    /// without a dot and those of the cluster always are.
    #[arg(long = "page-host", value_name = "NAME")]
    pub page_hosts: Vec<String>,
    /// How to write the log. What to write is set by RUST_LOG, or by --log-filter-file.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// A file with what to log, such as `info,bellwether=debug`. Every change of it is followed without a
    /// restart; as long as it makes no sense, what was logged before is.
    #[arg(long, value_name = "FILE")]
    pub log_filter_file: Option<PathBuf>,
    /// Send traces of reconciles and of changes in elections to this OpenTelemetry collector, by OTLP over HTTP
    /// (protobuf), such as `http://collector:4318`. Without a path in it, `/v1/traces` is added.
    #[arg(long, value_name = "URL")]
    pub traces_endpoint: Option<Endpoint>,
    /// Which part of all traces to send, from 0 to 1. All of them, or what OTEL_TRACES_SAMPLER says, if not given.
    #[arg(long, value_name = "RATIO", value_parser = traces::ratio)]
    pub traces_sample_ratio: Option<f64>,
}

/// Reads `key=value`. The API server checks key and value, in the first NetworkPolicy that has them.
fn label(text: &str) -> Result<(String, String), String> {
    let label = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = label.ok_or("a label is a key, '=' and a value")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads the name of a repository.
fn repository(text: &str) -> Result<String, String> {
    let has_tag = text
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains(':'));
    if text.is_empty() || text.contains(char::is_whitespace) || text.contains('@') || has_tag {
        return Err(
            "a repository has neither a tag nor a digest, such as registry.example.com/zookeeper"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Reads `version=sha256:...`.
fn digest(text: &str) -> Result<(String, String), String> {
    let (version, digest) = text.split_once('=').unwrap_or_default();
    let number = digest.strip_prefix("sha256:").unwrap_or_default();
    let is_number = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if version.is_empty() || number.len() != 64 || !number.bytes().all(is_number) {
        return Err("it is a version, '=', and sha256: with 64 digits from 0 to f".to_owned());
    }
    Ok((version.to_owned(), digest.to_owned()))
}

/// How to write the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogFormat> for log::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// How to print the CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrdFormat {
    /// YAML documents.
    Yaml,
    /// One JSON list.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_given_by_repository_and_digest() {
        for text in ["zookeeper", "registry.example.com:5000/team/zookeeper"] {
            assert_eq!(repository(text).unwrap(), text);
        }
        for text in ["", "zookeeper:3.9.5", "zookeeper@sha256:0", "a b"] {
            assert!(repository(text).is_err(), "{text}");
        }
        let number = "0a".repeat(32);
        let given = digest(&format!("3.9.5=sha256:{number}")).unwrap();
        assert_eq!(given, ("3.9.5".to_owned(), format!("sha256:{number}")));
        for text in [
            "3.9.5",
            "3.9.5=sha256:0a",
            &format!("=sha256:{number}"),
            &format!("3.9.5={number}"),
        ] {
            assert!(digest(text).is_err(), "{text}");
        }
    }
}
