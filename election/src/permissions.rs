//! What elections may do beyond their namespace: to which hosts they connect, where credentials are sent, which labels
//! pods get, at which ports of pods leaders are asked to hand over and pods whether they lead, whether they move to Leases, and how many have series
//! of their own.
//!
//! Whoever may create a `LeaderElection` has the operator act, from its place in the network and with its
//! rights. So the administrator names the hosts and the keys of labels, and the owner of a Secret names the
//! hosts that it is meant for. Nothing is allowed that nobody named.

mod hosts;

use bellwether_api::election::{Connection, DEFAULT_ROLE_KEY, LeaderElectionSpec, Reason};

pub use hosts::{HostPattern, HostPatterns, hosts, is_local};

/// What the administrator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The hosts that elections may connect to in `spec.connection`.
    pub hosts: HostPatterns,
    /// The keys of labels on pods, beside [`DEFAULT_ROLE_KEY`].
    pub label_keys: Vec<LabelKeyPattern>,
    /// The ports of pods at which leaders may be asked to hand over.
    pub handover_ports: Vec<u16>,
    /// The ports of pods at which they may be asked whether they lead.
    pub check_ports: Vec<u16>,
    /// Whether leaders may be asked because their node is cordoned: the operator then watches which nodes are.
    pub handover_on_cordon: bool,
    /// Whether elections may move to Leases and back: the operator then writes in ZooKeeper, and Leases of applications.
    pub bridges: bool,
    /// How many elections may have series of their own in the operator's metrics.
    pub own_series: usize,
}

impl Permissions {
    /// Why an election must not connect to a ZooKeeper that Bellwether does not run, if it must not. Nothing is
    /// looked up for this.
    pub fn refusal(&self, connection: &Connection, authenticates: bool) -> Option<Refusal> {
        let hosts = self.hosts.refused(&connection.connect_string);
        if !hosts.is_empty() {
            let more = match hosts.len().saturating_sub(MAX_LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let hosts = hosts[..hosts.len().min(MAX_LISTED)].join(", ");
            return Some(Refusal {
                reason: Reason::ConnectionNotAllowed,
                detail: format!(
                    "Elections may not connect to {hosts}{more}: the administrator allowed other hosts only, or none."
                ),
            });
        }
        let count = hosts::hosts(&connection.connect_string).count();
        if count > MAX_HOSTS {
            return Some(Refusal {
                reason: Reason::InvalidSpec,
                detail: format!(
                    "spec.connection.connectString names {count} hosts, and may name {MAX_HOSTS} at most."
                ),
            });
        }
        (authenticates && connection.tls.is_none()).then(|| Refusal {
            reason: Reason::CredentialsWithoutTls,
            detail: "spec.authentication would send credentials over a connection that is not encrypted."
                .to_owned(),
        })
    }

    /// Whether leaders may be asked to hand over at this port of their pods.
    pub fn allows_handover(&self, port: i32) -> bool {
        has(&self.handover_ports, port)
    }

    /// Whether pods may be asked at this port whether they lead.
    pub fn allows_check(&self, port: i32) -> bool {
        has(&self.check_ports, port)
    }

    /// Whether pods may get a label with this key.
    pub fn allows_label_key(&self, key: &str) -> bool {
        key == DEFAULT_ROLE_KEY || self.label_keys.iter().any(|pattern| pattern.matches(key))
    }

    /// The key of the label that a spec asks for on pods, if it is not allowed.
    pub fn refused_label_key<'s>(&self, spec: &'s LeaderElectionSpec) -> Option<&'s str> {
        let labels = spec.projections.as_ref()?.pod_labels.as_ref()?;
        (!self.allows_label_key(&labels.key)).then_some(&labels.key)
    }
}

fn has(ports: &[u16], port: i32) -> bool {
    ports.iter().any(|allowed| i32::from(*allowed) == port)
}

/// Why a connection is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason of the condition `Synced`.
    pub reason: Reason,
    /// A sentence that says what is the case.
    pub detail: String,
}

/// How many hosts a connection may have: each takes a listener on loopback.
const MAX_HOSTS: usize = 64;

/// How many hosts a sentence lists at most.
const MAX_LISTED: usize = 5;

/// The key of a label, or all keys with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelKeyPattern {
    /// The prefix with its slash, or the whole key.
    text: String,
    is_prefix: bool,
}

impl LabelKeyPattern {
    /// Reads `example.com/role`, `role`, or `example.com/*` for all keys with that prefix.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            Err(format!(
                "{text:?} is neither the key of a label, such as example.com/role, nor a prefix with an asterisk, such as example.com/*"
            ))
        };
        let (prefix, name) = match text.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, text),
        };
        let is_prefix = prefix.is_some() && name == "*";
        if prefix.is_some_and(|prefix| !is_dns_name(prefix)) || !(is_prefix || is_label_name(name))
        {
            return wrong();
        }
        let text = if is_prefix {
            text.trim_end_matches('*')
        } else {
            text
        };
        Ok(Self {
            text: text.to_owned(),
            is_prefix,
        })
    }

    fn matches(&self, key: &str) -> bool {
        if self.is_prefix {
            key.starts_with(&self.text)
        } else {
            key == self.text
        }
    }
}

/// Whether a text is a DNS name as Kubernetes takes it as the prefix of a key.
fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !hyphenated(label)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether a text is a key without its prefix.
fn is_label_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(inner)
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

/// Whether a text begins or ends with a hyphen.
fn hyphenated(text: &str) -> bool {
    text.starts_with('-') || text.ends_with('-')
}

#[cfg(test)]
mod tests;
