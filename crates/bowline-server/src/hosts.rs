//! The hosts by which HTTP requests may call the server.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Which names of hosts are the server's own.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// Whether every name is.
    any: bool,
    /// In small letters.
    names: HashSet<String>,
}

impl Hosts {
    /// The server's own hosts, and those that `--host-whitelist` names; `*` is every name.
    pub(crate) fn new<'a>(own: impl Iterator<Item = &'a str>, listed: &str) -> Hosts {
        let listed = listed.split(',').map(str::trim);
        let listed: Vec<&str> = listed.filter(|name| !name.is_empty()).collect();
        let own = own.map(str::to_ascii_lowercase);
        Hosts {
            any: listed.contains(&"*"),
            names: own
                .chain(listed.iter().map(|name| name.to_ascii_lowercase()))
                .collect(),
        }
    }

    /// Whether a host, with or without a port, is the server's.
    pub(crate) fn contain(&self, authority: &str) -> bool {
        let host = host_of(authority);
        self.any
            || host.parse::<Ipv4Addr>().is_ok()
            || is_ipv6(host)
            || host.eq_ignore_ascii_case("localhost")
            || self.names.contains(&host.to_ascii_lowercase())
    }
}

/// A host without its port. An address of IPv6 keeps its brackets.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn is_ipv6(host: &str) -> bool {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}
