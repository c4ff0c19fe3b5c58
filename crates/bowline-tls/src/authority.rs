//! [`Authority`]: a CA for trials and tests, and the certificates that it issues.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use crate::error::TlsError;
use crate::files::KeyPairFiles;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A server of clients.
    Server,
    /// A client; its common name is the user's.
    Client,
    /// A member of a cluster, which is server and client of the others.
    Peer,
}

/// A certificate that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The common name.
    pub common_name: String,
    /// Host names and addresses.
    pub hosts: Vec<String>,
    /// What it is for.
    pub purpose: Purpose,
    /// From when on it is valid, in seconds from now; negative is the past.
    pub valid_from_seconds: i64,
    /// How long it is valid from then on, in seconds.
    pub valid_seconds: i64,
}

/// How long certificates are valid, unless somebody says otherwise.
const YEAR_SECONDS: i64 = 365 * DAY_SECONDS;
const DAY_SECONDS: i64 = 24 * 3600;
/// Clocks of other machines may be slow.
const CLOCK_SECONDS: i64 = 300;

impl Request {
    /// For a purpose, valid for a year.
    #[must_use]
    pub fn new(
        purpose: Purpose,
        common_name: impl Into<String>,
        hosts: impl IntoIterator<Item = impl Into<String>>,
    ) -> Request {
        Request {
            common_name: common_name.into(),
            hosts: hosts.into_iter().map(Into::into).collect(),
            purpose,
            valid_from_seconds: -CLOCK_SECONDS,
            valid_seconds: YEAR_SECONDS,
        }
    }

    /// For a server.
    #[must_use]
    pub fn server(
        common_name: impl Into<String>,
        hosts: impl IntoIterator<Item = impl Into<String>>,
    ) -> Request {
        Request::new(Purpose::Server, common_name, hosts)
    }

    /// For a client.
    #[must_use]
    pub fn client(common_name: impl Into<String>) -> Request {
        Request::new(Purpose::Client, common_name, [""; 0])
    }

    /// For a member of a cluster.
    #[must_use]
    pub fn peer(
        common_name: impl Into<String>,
        hosts: impl IntoIterator<Item = impl Into<String>>,
    ) -> Request {
        Request::new(Purpose::Peer, common_name, hosts)
    }

    /// Valid for so many days from now.
    #[must_use]
    pub fn days(mut self, days: u32) -> Request {
        self.valid_seconds = i64::from(days) * DAY_SECONDS + CLOCK_SECONDS;
        self
    }

    fn params(&self) -> Result<CertificateParams, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&self.common_name);
        for host in &self.hosts {
            let name = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(Ia5String::try_from(host.as_str()).map_err(making)?),
            };
            params.subject_alt_names.push(name);
        }
        let now = OffsetDateTime::now_utc();
        params.not_before = now + Duration::seconds(self.valid_from_seconds);
        params.not_after = params.not_before + Duration::seconds(self.valid_seconds);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        params.extended_key_usages = match self.purpose {
            Purpose::Server => vec![ServerAuth],
            Purpose::Client => vec![ClientAuth],
            Purpose::Peer => vec![ServerAuth, ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn making(error: rcgen::Error) -> TlsError {
    TlsError::Making(error.to_string())
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// A certificate that was issued, with its key.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The certificate, in PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
    /// The certificate, in DER.
    pub der: Vec<u8>,
}

impl Issued {
    /// Writes `<name>.crt` and `<name>.key` into a directory, which is made if need be. Only the owner may read the key.
    /// Each file is replaced as a whole.
    ///
    /// # Errors
    /// `Unwritable`.
    pub fn write(&self, directory: &Path, name: &str) -> Result<KeyPairFiles, TlsError> {
        let files = KeyPairFiles {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        };
        self.write_files(&files)?;
        Ok(files)
    }

    fn write_files(&self, files: &KeyPairFiles) -> Result<(), TlsError> {
        if let Some(directory) = files.key.parent() {
            fs::create_dir_all(directory).map_err(|source| TlsError::Unwritable {
                path: directory.to_owned(),
                source,
            })?;
        }
        write(&files.key, self.key.as_bytes(), 0o600)?;
        write(&files.certificate, self.certificate.as_bytes(), 0o644)
    }
}

/// Replaces a file as a whole.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), TlsError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = (|| {
        // Left by a process that has ended.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    written.map_err(|source| TlsError::Unwritable {
        path: path.to_owned(),
        source,
    })
}

/// A CA. It is for trials and tests: its key lies beside its certificate.
///
/// ```
/// # fn main() -> Result<(), bowline_tls::TlsError> {
/// use bowline_tls::{Authority, Request};
///
/// let authority = Authority::generate("a CA for a trial", 30)?;
/// let issued = authority.issue(&Request::server("m1", ["localhost", "127.0.0.1"]))?;
/// assert!(issued.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
/// # Ok(())
/// # }
/// ```
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: Issued,
}

impl Authority {
    /// Makes a CA that is valid for so many days.
    ///
    /// # Errors
    /// `Making`.
    pub fn generate(common_name: &str, days: u32) -> Result<Authority, TlsError> {
        let key = KeyPair::generate().map_err(making)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named(common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let now = OffsetDateTime::now_utc();
        params.not_before = now - Duration::seconds(CLOCK_SECONDS);
        params.not_after = now + Duration::days(i64::from(days));
        let certificate = params.self_signed(&key).map_err(making)?;
        let own = Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().to_vec(),
        };
        let issuer = Issuer::new(params, key);
        Ok(Authority { issuer, own })
    }

    /// Reads a CA that [`Issued::write`] has written.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn read(files: &KeyPairFiles) -> Result<Authority, TlsError> {
        let text = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|source| TlsError::Unreadable {
                path: path.clone(),
                source,
            })
        };
        let malformed = |path: &PathBuf, reason: String| TlsError::Malformed {
            path: path.clone(),
            reason,
        };
        let (certificate, key) = (text(&files.certificate)?, text(&files.key)?);
        // With the checks of every pair.
        let contents = crate::files::Content::read(&files.certificate)?;
        crate::files::key_pair(&contents, &crate::files::Content::read(&files.key)?)?;
        let pair = KeyPair::from_pem(&key);
        let pair = pair.map_err(|error| malformed(&files.key, error.to_string()))?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| malformed(&files.certificate, error.to_string()))?;
        let issuer = Issuer::from_ca_cert_der(&der, pair)
            .map_err(|error| malformed(&files.certificate, error.to_string()))?;
        let own = Issued {
            certificate,
            key,
            der: der.to_vec(),
        };
        Ok(Authority { issuer, own })
    }

    /// The CA's own certificate and key.
    #[must_use]
    pub fn own(&self) -> &Issued {
        &self.own
    }

    /// Issues a certificate.
    ///
    /// # Errors
    /// `Making`, for example for a host name that is none.
    pub fn issue(&self, request: &Request) -> Result<Issued, TlsError> {
        let key = KeyPair::generate().map_err(making)?;
        let params = request.params()?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(making)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().to_vec(),
        })
    }

    /// A list that revokes the certificates with these serial numbers, in PEM. The numbers are hexadecimal, as
    /// [`PeerIdentity::serial`](crate::PeerIdentity::serial) has them.
    ///
    /// # Errors
    /// `Making`, for example for what is no number.
    pub fn revoke(&self, serials: &[&str]) -> Result<String, TlsError> {
        let now = OffsetDateTime::now_utc();
        let revoked = serials.iter().map(|serial| {
            let serial_number = SerialNumber::from_slice(&hex(serial)?);
            Ok(RevokedCertParams {
                serial_number,
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: now - Duration::seconds(CLOCK_SECONDS),
            next_update: now + Duration::days(365),
            crl_number: SerialNumber::from(u64::try_from(now.unix_timestamp()).unwrap_or(1)),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<Result<_, TlsError>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).map_err(making)?;
        list.pem().map_err(making)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// The bytes of a number in hexadecimal digits.
fn hex(text: &str) -> Result<Vec<u8>, TlsError> {
    let wrong = || {
        TlsError::Making(format!(
            "{text:?} is no serial number in hexadecimal digits"
        ))
    };
    let padded = match text.len() % 2 {
        0 => text.to_owned(),
        _ => format!("0{text}"),
    };
    if !padded.is_ascii() || padded.is_empty() {
        return Err(wrong());
    }
    (0..padded.len() / 2)
        .map(|at| u8::from_str_radix(&padded[2 * at..2 * at + 2], 16).map_err(|_| wrong()))
        .collect()
}

/// A certificate that signs itself, in `cert.pem` and `key.pem` of a directory, for hosts: as etcd's `--auto-tls` makes
/// one. What is there is used again, unless it has expired, is damaged, or is for other hosts.
///
/// # Errors
/// `Making` and `Unwritable`; `KeyIsReadable` for a key that others can read.
pub fn self_signed(
    directory: &Path,
    hosts: &[String],
    years: u32,
) -> Result<KeyPairFiles, TlsError> {
    let files = KeyPairFiles {
        certificate: directory.join("cert.pem"),
        key: directory.join("key.pem"),
    };
    let is_there = match crate::files::Content::read(&files.certificate) {
        Ok(certificate) => {
            let key = crate::files::Content::read(&files.key);
            match key.and_then(|key| crate::files::key_pair(&certificate, &key)) {
                Ok((pair, _)) => pair.cert.first().is_some_and(|leaf| {
                    let identity = crate::PeerIdentity::of_certificate(leaf);
                    identity.is_ok_and(|own| hosts.iter().all(|host| own.has_host(host)))
                }),
                // That is for people to mend.
                Err(error @ TlsError::KeyIsReadable { .. }) => return Err(error),
                Err(_) => false,
            }
        }
        Err(_) => false,
    };
    if is_there {
        return Ok(files);
    }
    let key = KeyPair::generate().map_err(making)?;
    let request = Request::peer("bowline", hosts.iter().cloned());
    let params = request.days(years.max(1).saturating_mul(365)).params()?;
    let certificate = params.self_signed(&key).map_err(making)?;
    let made = Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        der: certificate.der().to_vec(),
    };
    made.write_files(&files)?;
    Ok(files)
}
