//! Where things are: what is kept between runs, and what belongs to one running cluster.

use std::{env, ffi::OsString, path::PathBuf};

use anyhow::{Context, Result, bail};

/// A Unix socket's path may not be longer than this; the longest one is below a node's directory.
const LONGEST_STATE_PATH: usize = 70;

/// Where built things and a cluster's state are.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Built programs and images; a fresh clone of the repository reuses them.
    pub(crate) cache: PathBuf,
    /// Everything of the running cluster; gone after `down`.
    pub(crate) state: PathBuf,
    /// The repository's root.
    pub(crate) repository: PathBuf,
}

impl Paths {
    /// The paths that the environment asks for.
    pub(crate) fn from_environment() -> Result<Self> {
        let cache = cache_directory(|name| env::var_os(name))?;
        let state = match env::var_os("BELLWETHER_CLUSTER_DIR") {
            Some(directory) if !directory.is_empty() => PathBuf::from(directory),
            _ => env::temp_dir().join("bellwether-cluster"),
        };
        let state = std::path::absolute(state)?;
        if state.as_os_str().len() > LONGEST_STATE_PATH {
            bail!(
                "{} is too long a path for the sockets below it: set BELLWETHER_CLUSTER_DIR to \
                 one of at most {LONGEST_STATE_PATH} characters",
                state.display()
            );
        }
        Ok(Self {
            cache: std::path::absolute(cache)?,
            state,
            repository: crate::cargo::root(),
        })
    }

    /// The Go modules and the image recipes.
    pub(crate) fn recipes(&self) -> PathBuf {
        self.repository.join("e2e/cluster")
    }

    /// The sources of the clients that the tests run in pods.
    pub(crate) fn clients(&self) -> PathBuf {
        self.repository.join("e2e/clients")
    }

    /// The sources of the programs that run whole applications in pods.
    pub(crate) fn applications(&self) -> PathBuf {
        self.repository.join("e2e/applications")
    }

    /// Logs of what was built.
    pub(crate) fn build_log(&self, name: &str) -> PathBuf {
        self.cache.join("log").join(format!("{name}.log"))
    }

    /// The administrator's kubeconfig, valid inside the cluster's network.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join("pki/admin.conf")
    }

    /// Programs on the PATH of `exec`.
    pub(crate) fn programs(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// Logs of what runs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.state.join("log")
    }

    /// Everything of one node.
    pub(crate) fn node(&self, number: u8) -> PathBuf {
        self.state.join(format!("node-{number}"))
    }

    /// A node's containerd.
    pub(crate) fn containerd_socket(&self, number: u8) -> PathBuf {
        self.node(number).join("containerd.sock")
    }
}

fn cache_directory(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let set = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(directory) = set("BELLWETHER_CACHE") {
        return Ok(directory);
    }
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let base = base.context("set BELLWETHER_CACHE: neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("bellwether"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn cache(variables: &[(&str, &str)]) -> Result<PathBuf> {
        cache_directory(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn cache_is_where_the_environment_says() {
        let home = ("HOME", "/home/a");
        let cases = [
            (vec![home], "/home/a/.cache/bellwether"),
            (vec![home, ("XDG_CACHE_HOME", "/c")], "/c/bellwether"),
            (
                vec![home, ("XDG_CACHE_HOME", "")],
                "/home/a/.cache/bellwether",
            ),
            (
                vec![home, ("XDG_CACHE_HOME", "/c"), ("BELLWETHER_CACHE", "/b")],
                "/b",
            ),
        ];
        for (variables, expected) in cases {
            assert_eq!(
                cache(&variables).unwrap(),
                Path::new(expected),
                "{variables:?}"
            );
        }
        assert!(cache(&[]).is_err());
    }
}
