//! [`PeerIdentity`]: the names in a certificate that was verified.

use std::fmt;
use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The names of the other side of a connection, from its certificate.
///
/// ```
/// # fn main() -> Result<(), bowline_tls::TlsError> {
/// use bowline_tls::{Authority, PeerIdentity, Request};
///
/// let authority = Authority::generate("a CA for a trial", 30)?;
/// let issued = authority.issue(&Request::server("m1", ["m1.example.com", "10.0.0.1"]))?;
/// let identity = PeerIdentity::of_certificate(&issued.der).expect("it is a certificate");
/// assert_eq!(identity.common_name.as_deref(), Some("m1"));
/// assert!(identity.has_host("m1.example.com") && identity.has_host("10.0.0.1"));
/// assert!(!identity.has_host("m2.example.com"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerIdentity {
    /// The common name of the subject. The user of a client, as etcd has it.
    pub common_name: Option<String>,
    /// Host names; the first label of a name may be `*`.
    pub dns_names: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// URIs.
    pub uris: Vec<String>,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
}

impl PeerIdentity {
    /// Reads the names of a certificate in DER. The certificate is not verified here.
    ///
    /// # Errors
    /// What is wrong with its form, as text.
    pub fn of_certificate(der: &[u8]) -> Result<PeerIdentity, String> {
        let (rest, certificate) = X509Certificate::from_der(der)
            .map_err(|error| format!("it is not a certificate: {error}"))?;
        if !rest.is_empty() {
            return Err(format!("{} bytes follow the certificate", rest.len()));
        }
        let mut identity = PeerIdentity {
            // Of several, etcd takes the last one.
            common_name: certificate
                .subject()
                .iter_common_name()
                .filter_map(|name| name.as_str().ok())
                .last()
                .map(str::to_owned),
            serial: format!("{:x}", certificate.serial),
            ..PeerIdentity::default()
        };
        let names = certificate
            .subject_alternative_name()
            .map_err(|error| format!("its alternative names: {error}"))?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => identity.dns_names.push((*name).to_owned()),
                GeneralName::URI(uri) => identity.uris.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => identity.ips.extend(ip_of(bytes)),
                _ => {}
            }
        }
        Ok(identity)
    }

    /// Whether the certificate is for a host: a name, or an address with or without brackets. As in a client's check
    /// of a server, the common name does not count, and `*` stands for one whole first label.
    #[must_use]
    pub fn has_host(&self, host: &str) -> bool {
        let bare = host.trim_matches(['[', ']']);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            let ip = ip.to_canonical();
            return self.ips.iter().any(|own| own.to_canonical() == ip);
        }
        let host = host.trim_end_matches('.');
        self.dns_names.iter().any(|name| is_for(name, host))
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.common_name.as_deref().unwrap_or("no name");
        write!(f, "{name:?} with the serial number {}", self.serial)
    }
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Whether a name of a certificate is for a host.
fn is_for(name: &str, host: &str) -> bool {
    let name = name.trim_end_matches('.');
    match name.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(label, rest)| {
            !label.is_empty() && domain.contains('.') && rest.eq_ignore_ascii_case(domain)
        }),
        None => !name.is_empty() && name.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_whole_label() {
        for (name, host, is_right) in [
            ("a.example.com", "A.Example.COM", true),
            ("a.example.com", "a.example.com.", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "b.a.example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.com", "example.com", false),
            ("a*.example.com", "ab.example.com", false),
            ("example.com", "a.example.com", false),
            ("", "", false),
        ] {
            assert_eq!(
                is_for(name, host.trim_end_matches('.')),
                is_right,
                "{name} {host}"
            );
        }
    }

    #[test]
    fn an_address_is_compared_as_an_address() {
        let identity = PeerIdentity {
            ips: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            dns_names: vec!["10.0.0.2".to_owned()],
            ..PeerIdentity::default()
        };
        assert!(identity.has_host("10.0.0.1") && identity.has_host("[::1]"));
        assert!(identity.has_host("::ffff:10.0.0.1"));
        // A name that looks like an address is none.
        assert!(!identity.has_host("10.0.0.2"));
    }

    /// Bytes of a peer never cause a panic, whatever they are.
    #[test]
    fn damaged_certificates_are_refused_or_read() {
        let authority = crate::Authority::generate("ca", 1).unwrap();
        let request = crate::Request::server("m1", ["m1.example.com", "10.0.0.1", "*.b.c"]);
        let good = authority.issue(&request).unwrap().der;
        let mut random = fastrand::Rng::with_seed(11);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                match random.u8(..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] ^= 1 << random.u8(..8),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.u8(..)),
                }
            }
            if let Ok(identity) = PeerIdentity::of_certificate(&bytes) {
                read += 1;
                let _ = (identity.has_host("m1.example.com"), identity.to_string());
            }
        }
        assert!(read > 100, "{read} could be read: the damage was too great");
    }
}
