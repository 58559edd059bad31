//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::credentials::Credentials;

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
Usage: bellwether-member prepare [--config DIR] [--bootstrap DIR] [--conf DIR] [--data DIR]
                                 [--datalog DIR] [--identity DIR] [--tls DIR]
                                 [--users DIR] [--super-user NAME] [--client-authorities DIR]
                                 [--client-port-certificate DIR] [--termination-log FILE]
       bellwether-member serve [--listen PORT] [--control PORT] [--port PORT] [--elections ADDRESS]
                               [--identity DIR] [--tls DIR] [--users DIR] [--super-user NAME]
                               [--client-authorities DIR] [--client-port-certificate DIR]
                               [--conf DIR] [--data DIR] [--datalog DIR]
       bellwether-member volumes [--data DIR] [--datalog DIR]
       bellwether-member --help | --version

prepare reads POD_NAME, ENSEMBLE (namespace/name) and ID_OFFSET (default 0) from its environment; and where
members change at run time, MEMBERS and LIST_VERSION: the server list when the pod was made, and its version.";

/// The port that ZooKeeper serves clients on.
const CLIENT_PORT: u16 = 2181;
/// The port that `serve` answers probes on.
const PROBE_PORT: u16 = 8079;
/// The port that `serve` answers the operator on.
const CONTROL_PORT: u16 = 8078;

/// Where `prepare` reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directories {
    /// The configuration revision: one `zoo-<id>.cfg` for each member, and files for all of them.
    pub(crate) config: PathBuf,
    /// The permission to bootstrap; may be empty or absent.
    pub(crate) bootstrap: PathBuf,
    /// ZooKeeper's configuration directory, written by `prepare`.
    pub(crate) conf: PathBuf,
    /// ZooKeeper's `dataDir`.
    pub(crate) data: PathBuf,
    /// ZooKeeper's `dataLogDir`; may be absent.
    pub(crate) datalog: PathBuf,
    /// What the server's certificates and the users of its clients come from.
    pub(crate) credentials: Credentials,
    /// The file that Kubernetes shows as the container's termination message.
    pub(crate) termination_log: PathBuf,
}

impl Default for Directories {
    fn default() -> Self {
        Self {
            config: "/etc/bellwether/config".into(),
            bootstrap: "/etc/bellwether/bootstrap".into(),
            conf: "/conf".into(),
            data: "/data".into(),
            datalog: "/datalog".into(),
            credentials: Credentials::default(),
            termination_log: "/dev/termination-log".into(),
        }
    }
}

/// Where the volumes are that `serve` reports on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volumes {
    /// ZooKeeper's `dataDir`.
    pub(crate) data: PathBuf,
    /// ZooKeeper's `dataLogDir`; may be absent.
    pub(crate) datalog: PathBuf,
}

/// Where `serve` listens, and what it answers about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serve {
    /// The port for probes.
    pub(crate) listen: u16,
    /// The port for the operator.
    pub(crate) control: u16,
    /// ZooKeeper's port on the loopback interface.
    pub(crate) zookeeper: u16,
    /// Where the server listens for elections, if it speaks TLS there.
    pub(crate) elections: Option<SocketAddr>,
    /// ZooKeeper's configuration directory.
    pub(crate) conf: PathBuf,
    /// What the server's certificates and the users of its clients come from.
    pub(crate) credentials: Credentials,
    /// Where the volumes are.
    pub(crate) volumes: Volumes,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
    /// Prepare the volumes.
    Prepare(Directories),
    /// Answer probes and the operator.
    Serve(Serve),
    /// Print what is on the volumes.
    Volumes(Volumes),
}

/// Reads the command line, without the program's name.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => Err("a command is missing".to_owned()),
        ["--help" | "-h" | "help", ..] => Ok(Command::Help),
        ["--version" | "-V", ..] => Ok(Command::Version),
        ["prepare", flags @ ..] => directories(flags).map(Command::Prepare),
        ["serve", flags @ ..] => serve(flags),
        ["volumes", flags @ ..] => volumes(flags).map(Command::Volumes),
        [other, ..] => Err(format!("there is no command {other:?}")),
    }
}

fn pairs<'a>(flags: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let mut pairs = Vec::new();
    let mut rest = flags;
    while let [flag, tail @ ..] = rest {
        if let Some((name, value)) = flag.split_once('=') {
            pairs.push((name, value));
            rest = tail;
        } else if let [value, tail @ ..] = tail {
            pairs.push((*flag, *value));
            rest = tail;
        } else {
            return Err(format!("{flag} needs a value"));
        }
    }
    Ok(pairs)
}

fn directories(flags: &[&str]) -> Result<Directories, String> {
    let mut directories = Directories::default();
    for (flag, value) in pairs(flags)? {
        let place = match flag {
            "--config" => &mut directories.config,
            "--bootstrap" => &mut directories.bootstrap,
            "--conf" => &mut directories.conf,
            "--data" => &mut directories.data,
            "--datalog" => &mut directories.datalog,
            "--termination-log" => &mut directories.termination_log,
            "--super-user" => {
                directories.credentials.super_user = Some(value.to_owned());
                continue;
            }
            other => place(&mut directories.credentials, other)
                .ok_or_else(|| format!("prepare has no option {other}"))?,
        };
        *place = PathBuf::from(value);
    }
    Ok(directories)
}

/// Where the option of this name says what the server's certificates and the users of its clients come from.
fn place<'a>(credentials: &'a mut Credentials, option: &str) -> Option<&'a mut PathBuf> {
    Some(match option {
        "--identity" => &mut credentials.identity,
        "--tls" => &mut credentials.tls,
        "--users" => &mut credentials.users,
        "--client-authorities" => &mut credentials.authorities,
        "--client-port-certificate" => &mut credentials.client_port,
        _ => return None,
    })
}

fn serve(flags: &[&str]) -> Result<Command, String> {
    let Directories {
        conf,
        data,
        datalog,
        credentials,
        ..
    } = Directories::default();
    let mut serve = Serve {
        listen: PROBE_PORT,
        control: CONTROL_PORT,
        zookeeper: CLIENT_PORT,
        elections: None,
        conf,
        credentials,
        volumes: Volumes { data, datalog },
    };
    for (flag, value) in pairs(flags)? {
        match flag {
            "--listen" => serve.listen = port_number(value)?,
            "--control" => serve.control = port_number(value)?,
            "--port" => serve.zookeeper = port_number(value)?,
            "--elections" => serve.elections = Some(address(value)?),
            "--conf" => serve.conf = PathBuf::from(value),
            "--data" => serve.volumes.data = PathBuf::from(value),
            "--datalog" => serve.volumes.datalog = PathBuf::from(value),
            "--super-user" => serve.credentials.super_user = Some(value.to_owned()),
            other => {
                *place(&mut serve.credentials, other)
                    .ok_or_else(|| format!("serve has no option {other}"))? = PathBuf::from(value);
            }
        }
    }
    Ok(Command::Serve(serve))
}

fn volumes(flags: &[&str]) -> Result<Volumes, String> {
    let Directories { data, datalog, .. } = Directories::default();
    let mut volumes = Volumes { data, datalog };
    for (flag, value) in pairs(flags)? {
        match flag {
            "--data" => volumes.data = PathBuf::from(value),
            "--datalog" => volumes.datalog = PathBuf::from(value),
            other => return Err(format!("volumes has no option {other}")),
        }
    }
    Ok(volumes)
}

fn port_number(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a port number"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an address with a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn every_directory_has_a_default_and_an_option() {
        assert_eq!(
            parse_line("prepare"),
            Ok(Command::Prepare(Directories::default()))
        );
        let all = "prepare --config a --bootstrap b --conf c --data=d --datalog e \
                   --identity h --tls=i --users j --super-user m --client-authorities k \
                   --client-port-certificate l --termination-log g";
        let expected = Directories {
            config: "a".into(),
            bootstrap: "b".into(),
            conf: "c".into(),
            data: "d".into(),
            datalog: "e".into(),
            credentials: Credentials {
                identity: "h".into(),
                tls: "i".into(),
                users: "j".into(),
                super_user: Some("m".to_owned()),
                authorities: "k".into(),
                client_port: "l".into(),
            },
            termination_log: "g".into(),
        };
        assert_eq!(parse_line(all), Ok(Command::Prepare(expected)));
    }

    #[test]
    fn the_volumes_to_report_on_have_a_default() {
        for (line, data, datalog) in [
            ("volumes", "/data", "/datalog"),
            ("volumes --data a --datalog=b", "a", "b"),
        ] {
            let (data, datalog) = (PathBuf::from(data), PathBuf::from(datalog));
            let expected = Command::Volumes(Volumes { data, datalog });
            assert_eq!(parse_line(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "prepare --data",
            "prepare --dta x",
            "serve --port 65536",
            "serve --host x",
            "serve --elections 3888",
            "volumes --port 1",
            "sing",
        ] {
            assert!(parse_line(line).is_err(), "{line:?} was accepted");
        }
    }
}
