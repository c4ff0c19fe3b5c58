//! The host names that HTTP requests may use for this server.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A set of host names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// Whether every name is allowed.
    any: bool,
    /// In lower case.
    names: HashSet<String>,
}

impl Hosts {
    /// The hosts of the server's URLs, without ports, and those of `--host-whitelist`; `*` allows every name.
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

    /// Whether a host, with or without a port, is in the set.
    pub(crate) fn contain(&self, authority: &str) -> bool {
        let host = host_of(authority);
        self.any
            || host.parse::<Ipv4Addr>().is_ok()
            || is_ipv6(host)
            || host.eq_ignore_ascii_case("localhost")
            || self.names.contains(&host.to_ascii_lowercase())
    }
}

/// A host without its port. An IPv6 address keeps its brackets.
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
