//! Hosts of connections, and patterns of hosts.

use std::net::IpAddr;

use ipnet::IpNet;

use super::hyphenated;

/// The port of a host that names none, as for ZooKeeper's own clients.
const DEFAULT_PORT: u16 = 2181;

/// The hosts and ports of a connect string.
///
/// What is allowed and what is connected to are both read by this function, so that they cannot differ.
pub fn hosts(connect_string: &str) -> impl Iterator<Item = (&str, u16)> {
    let hosts = connect_string.split('/').next().unwrap_or_default();
    hosts.split(',').map(|host| {
        let bare = |name: &'_ str| name.len() > 2 && name.starts_with('[') && name.ends_with(']');
        match host.rsplit_once(':') {
            Some((name, port)) if !bare(host) => {
                let name = name.trim_start_matches('[').trim_end_matches(']');
                (name, port.parse().unwrap_or(DEFAULT_PORT))
            }
            _ => {
                let name = host.trim_start_matches('[').trim_end_matches(']');
                (name, DEFAULT_PORT)
            }
        }
    })
}

/// Whether an address is one of the machine that connects to it, or of its own link. A name that is allowed must not
/// lead there: whoever answers for the name in DNS says nothing of the operator's machine.
pub fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_unspecified() || address.is_link_local()
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unspecified() || address.is_unicast_link_local()
        }
    }
}

/// A host and port as people write them.
fn shown(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Patterns of hosts; a host has to match one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPatterns(Vec<HostPattern>);

impl From<Vec<HostPattern>> for HostPatterns {
    fn from(patterns: Vec<HostPattern>) -> Self {
        Self(patterns)
    }
}

impl HostPatterns {
    /// Reads patterns that are separated by commas or white space, as the annotation of a Secret has them.
    /// One that cannot be read matches nothing.
    pub fn listed(text: &str) -> Self {
        let words = text.split(|c: char| c == ',' || c.is_whitespace());
        let words = words.filter(|word| !word.is_empty());
        Self(
            words
                .filter_map(|word| HostPattern::parse(word).ok())
                .collect(),
        )
    }

    /// The hosts of a connect string that match no pattern, with their ports.
    pub fn refused(&self, connect_string: &str) -> Vec<String> {
        hosts(connect_string)
            .filter(|(host, port)| !self.0.iter().any(|pattern| pattern.matches(host, *port)))
            .map(|(host, port)| shown(host, port))
            .collect()
    }

    /// Whether every host of a connect string matches a pattern.
    pub fn allow(&self, connect_string: &str) -> bool {
        self.refused(connect_string).is_empty()
    }
}

/// Which hosts are meant: one name, the names within a domain, or the addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: Host,
    /// `None` for every port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    /// This name, in lower case and without a final dot.
    Name(String),
    /// Every name that ends in this, which begins with a dot. Not the domain itself.
    Within(String),
    /// Hosts that are written as an address of this network. No name matches it: which address a name has
    /// can change between a check and the connection.
    Network(IpNet),
}

impl HostPattern {
    /// Reads `zk.example.com`, `*.example.com`, `10.0.0.1`, `10.0.0.0/8`, `fd00::1` or `fd00::/8`, each with a
    /// port if only that port is meant. An IPv6 address or network with a port is in brackets:
    /// `[fd00::/8]:2281`.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} is no pattern of hosts: {why}");
        let (host, port) = split_port(text).ok_or_else(|| {
            wrong("the port has to be a number from 1 to 65535, after an IPv6 address in brackets")
        })?;
        let host = match host.contains('/') {
            true => network(host).ok_or_else(|| {
                wrong("a network is an address, a slash and the length of its prefix, such as 10.0.0.0/8")
            })?,
            false => match host.parse::<IpAddr>() {
                Ok(address) => Host::Network(IpNet::from(address.to_canonical())),
                Err(_) => named(host).ok_or_else(|| {
                    wrong("give a name such as zk.example.com, the names within a domain such as *.example.com, an address, or a network such as 10.0.0.0/8")
                })?,
            },
        };
        Ok(Self { host, port })
    }

    /// Whether this host of a connect string is meant.
    fn matches(&self, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|own| own != port) {
            return false;
        }
        match (&self.host, host.parse::<IpAddr>()) {
            (Host::Network(network), Ok(address)) => network.contains(&address.to_canonical()),
            (Host::Name(name), Err(_)) => *name == plain(host),
            (Host::Within(domain), Err(_)) => {
                let host = plain(host);
                host.len() > domain.len() && host.ends_with(domain) && is_name(&host)
            }
            (Host::Network(_), Err(_)) | (Host::Name(_) | Host::Within(_), Ok(_)) => false,
        }
    }
}

/// The text before the port, and the port; `None` if the port is none.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        // Brackets are for IPv6 only.
        host.contains(':').then_some(())?;
        return match rest.strip_prefix(':') {
            Some(number) => Some((host, Some(port(number)?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        // More than one colon: an IPv6 address.
        Some((_, rest)) if rest.contains(':') => Some((text, None)),
        Some((host, number)) => Some((host, Some(port(number)?))),
        None => Some((text, None)),
    }
}

fn named(text: &str) -> Option<Host> {
    if let Some(domain) = text.strip_prefix("*.") {
        let domain = plain(domain);
        return is_name(&domain).then(|| Host::Within(format!(".{domain}")));
    }
    let name = plain(text);
    is_name(&name).then_some(Host::Name(name))
}

/// A name as it is compared: DNS knows no case, and a final dot changes nothing here.
fn plain(name: &str) -> String {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.to_ascii_lowercase()
}

/// Whether a text is a name. What ends in a number is none: resolvers take `127.1` and `0x7f000001` for
/// addresses.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.chars().all(inner) && !hyphenated(label)
    };
    let is_number = |label: &str| label.starts_with(|c: char| c.is_ascii_digit());
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_single = !text.contains('.');
    let is_address = if is_single {
        last.chars().all(|c| c.is_ascii_digit()) || last.starts_with("0x")
    } else {
        is_number(last)
    };
    text.len() <= 253 && text.split('.').all(is_label) && !is_address
}

fn network(text: &str) -> Option<Host> {
    let network: IpNet = text.parse().ok()?;
    // An IPv4 network in the notation of IPv6 would match nothing, since hosts are compared as IPv4.
    let address = network.addr();
    (address.to_canonical() == address).then_some(Host::Network(network))
}
