//! URLs as etcd's settings and members have them: a scheme, a host and a port.

use std::fmt;

/// A URL with a scheme, a host and a port, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// `http` or `https`.
    pub scheme: String,
    /// A name or an address; an IPv6 address has no brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Url { scheme, host, port } = self;
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// Parses a URL.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let wrong = |what: &str| format!("{text:?} is not a URL like http://127.0.0.1:2379: {what}");
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| wrong("it has no scheme"))?;
    if !matches!(scheme, "http" | "https") {
        return Err(wrong("its scheme is not http or https"));
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(wrong("it has more than a host and a port"));
    }
    let (host, port) = rest
        .rsplit_once(':')
        .ok_or_else(|| wrong("it has no port"))?;
    let port = port
        .parse()
        .map_err(|_| wrong("its port is not a number up to 65535"))?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let host = if is_bracketed {
        &host[1..host.len() - 1]
    } else {
        host
    };
    let is_of_hosts = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~:%".contains(c);
    if !host.chars().all(is_of_hosts) {
        return Err(wrong("its host has characters that no host has"));
    }
    if host.is_empty() || (host.contains(':') && !is_bracketed) {
        return Err(wrong(
            "its host is missing, or an IPv6 address without brackets",
        ));
    }
    Ok(Url {
        scheme: scheme.to_owned(),
        host: host.to_owned(),
        port,
    })
}
