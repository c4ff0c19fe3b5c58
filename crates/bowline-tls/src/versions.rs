//! The versions of TLS and the cipher suites, by the names of etcd's flags.

use std::fmt;
use std::str::FromStr;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

use crate::error::TlsError;

/// A version of TLS.
///
/// ```
/// use bowline_tls::Version;
///
/// assert_eq!("TLS1.3".parse(), Ok(Version::Tls13));
/// assert_eq!(Version::Tls12.to_string(), "TLS1.2");
/// assert!("TLS1.1".parse::<Version>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Tls12 => "TLS1.2",
            Version::Tls13 => "TLS1.3",
        })
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        match text {
            "TLS1.2" => Ok(Version::Tls12),
            "TLS1.3" => Ok(Version::Tls13),
            "TLS1.0" | "TLS1.1" => Err(format!("{text} is not safe: use TLS1.2 or TLS1.3")),
            _ => Err(format!("{text:?} is not one of TLS1.2, TLS1.3")),
        }
    }
}

/// Which versions and cipher suites are spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// The oldest version.
    pub version_min: Version,
    /// The newest version.
    pub version_max: Version,
    /// The names of the cipher suites, as IANA and Go have them; none is all that are safe.
    pub cipher_suites: Vec<String>,
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol {
            version_min: Version::Tls12,
            version_max: Version::Tls13,
            cipher_suites: Vec::new(),
        }
    }
}

impl Protocol {
    pub(crate) fn versions(&self) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
        let all = [
            (Version::Tls12, &rustls::version::TLS12),
            (Version::Tls13, &rustls::version::TLS13),
        ];
        let range = self.version_min..=self.version_max;
        let found: Vec<_> = { all.into_iter() }
            .filter(|(version, _)| range.contains(version))
            .map(|(_, version)| version)
            .collect();
        match found.is_empty() {
            true => Err(TlsError::Settings(format!(
                "the oldest version of TLS, {}, is above the newest, {}",
                self.version_min, self.version_max
            ))),
            false => Ok(found),
        }
    }

    /// The cryptography with these cipher suites.
    pub(crate) fn provider(&self) -> Result<CryptoProvider, TlsError> {
        let mut provider = crate::provider();
        if self.cipher_suites.is_empty() {
            // As Go's clients and servers do: AES with 128 bits is no less safe here, and takes less time. The order of the
            // side that connects decides.
            let is_long = |suite: &rustls::SupportedCipherSuite| {
                !format!("{:?}", suite.suite()).contains("AES_128")
            };
            provider.cipher_suites.sort_by_key(is_long);
            return Ok(provider);
        }
        let mut chosen = Vec::new();
        for name in &self.cipher_suites {
            // The library says TLS13_ where everybody else says TLS_.
            let is_named = |suite: &&rustls::SupportedCipherSuite| {
                let own = format!("{:?}", suite.suite());
                own == *name || own.replacen("TLS13_", "TLS_", 1) == *name
            };
            let found = provider.cipher_suites.iter().find(is_named);
            let unknown = || {
                let all = { provider.cipher_suites.iter() }
                    .map(|suite| format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1));
                let all: Vec<_> = all.collect();
                TlsError::Settings(format!(
                    "{name:?} is not one of the cipher suites {}",
                    all.join(", ")
                ))
            };
            chosen.push(*found.ok_or_else(unknown)?);
        }
        provider.cipher_suites = chosen;
        Ok(provider)
    }
}
