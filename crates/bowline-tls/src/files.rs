//! Reads certificates, keys, CAs and revocation lists, and checks each before anything uses it.
//!
//! A set of files is read once, as bytes; what is made of them and what is remembered of them are the same bytes, also
//! when somebody writes the files meanwhile.
//!
//! Invariant: a private key that others can read is not used. A file of root's that the group of this process may read
//! is used by a process that is not root: so Kubernetes and packages hand keys over.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use crate::error::TlsError;

/// The largest file that is read, in bytes: a revocation list of some hundred thousand certificates.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The files of a certificate and its private key, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate, and those that lead from it to the CA.
    pub certificate: PathBuf,
    /// The private key, which only its owner may read.
    pub key: PathBuf,
}

/// A file's metadata: when it is as before, the content is taken to be as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of a file; `None` when there is none.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        Some(Stamp {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct Content {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Permissions and owner.
    mode: u32,
    owner: u32,
}

impl Content {
    pub(crate) fn read(path: &Path) -> Result<Content, TlsError> {
        let unreadable = |source| TlsError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        let mut bytes = Vec::new();
        let mut limited = file.take(FILE_BYTES_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(TlsError::TooLarge {
                path: path.to_owned(),
                bytes_max: FILE_BYTES_MAX,
            });
        }
        Ok(Content {
            path: path.to_owned(),
            bytes,
            mode: found.mode() & 0o777,
            owner: found.uid(),
        })
    }

    /// As if a file had these bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Content {
        Content {
            path: PathBuf::from("a file"),
            bytes: bytes.to_vec(),
            mode: 0o600,
            owner: rustix::process::geteuid().as_raw(),
        }
    }

    /// Adds what this file is to a digest.
    pub(crate) fn digest(&self, digest: &mut Sha256) {
        digest.update(self.mode.to_le_bytes());
        digest.update((self.bytes.len() as u64).to_le_bytes());
        digest.update(&self.bytes);
    }

    pub(crate) fn malformed(&self, reason: &impl ToString) -> TlsError {
        TlsError::Malformed {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }

    fn empty(&self, what: &'static str) -> TlsError {
        let holds = |word: &str| {
            let word = word.as_bytes();
            self.bytes.windows(word.len()).any(|at| at == word)
        };
        let hint = match what {
            KEY if holds("ENCRYPTED") => ": it is encrypted, write it without a passphrase",
            KEY if holds("BEGIN CERTIFICATE") => ": it holds a certificate",
            CERTIFICATE if holds("PRIVATE KEY") => ": it holds a key",
            _ => "",
        };
        TlsError::Empty {
            path: self.path.clone(),
            what,
            hint,
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let all = CertificateDer::pem_slice_iter(&self.bytes);
        let all: Vec<_> = all
            .collect::<Result<_, _>>()
            .map_err(|error| self.malformed(&error))?;
        match all.is_empty() {
            true => Err(self.empty(CERTIFICATE)),
            false => Ok(all),
        }
    }

    /// The certificates of a key pair, which must be valid now.
    pub(crate) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain = self.certificates()?;
        for certificate in &chain {
            let (from, until) = self.times(certificate)?;
            let now = now_seconds();
            if now > until {
                return Err(TlsError::Expired {
                    path: self.path.clone(),
                    since: moment(until),
                });
            }
            if now < from {
                return Err(TlsError::NotYetValid {
                    path: self.path.clone(),
                    from: moment(from),
                });
            }
        }
        Ok(chain)
    }

    /// From when until when a certificate is valid, in seconds of Unix time.
    fn times(&self, certificate: &CertificateDer<'_>) -> Result<(i64, i64), TlsError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|error| self.malformed(&error))?;
        let valid = parsed.validity();
        Ok((valid.not_before.timestamp(), valid.not_after.timestamp()))
    }

    /// The content as it is.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Says that there is no public key.
    pub(crate) fn empty_of_public_key(&self) -> TlsError {
        self.empty("public key or certificate")
    }

    /// A secret, which others cannot read.
    pub(crate) fn secret(&self) -> Result<&[u8], TlsError> {
        self.check_private()?;
        Ok(&self.bytes)
    }

    /// A private key, which others cannot read.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        self.check_private()?;
        match PrivateKeyDer::from_pem_slice(&self.bytes) {
            Ok(key) => Ok(key),
            Err(rustls::pki_types::pem::Error::NoItemsFound) => Err(self.empty(KEY)),
            Err(error) => Err(self.malformed(&error)),
        }
    }

    fn check_private(&self) -> Result<(), TlsError> {
        let own = rustix::process::geteuid().as_raw();
        let allowed = match self.owner {
            0 if own != 0 => 0o740,
            _ => 0o700,
        };
        if self.mode & !allowed != 0 {
            return Err(TlsError::KeyIsReadable {
                path: self.path.clone(),
                mode: self.mode,
            });
        }
        Ok(())
    }

    /// The CAs that are trusted, at least one of which is valid now.
    pub(crate) fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        let mut ended = None;
        let mut is_any_valid = false;
        for certificate in self.certificates()? {
            let (_, until) = self.times(&certificate)?;
            match now_seconds() > until {
                true => ended = Some(until),
                false => is_any_valid = true,
            }
            store
                .add(certificate)
                .map_err(|error| self.malformed(&error))?;
        }
        match ended {
            Some(until) if !is_any_valid => Err(TlsError::Expired {
                path: self.path.clone(),
                since: moment(until),
            }),
            _ => Ok(store),
        }
    }

    /// Revocation lists, in PEM or one in DER, each issued by one of `authorities`. A list is found by the name of its issuer
    /// alone, so each issuer has one list, and each name one key.
    pub(crate) fn revocations(
        &self,
        authorities: &Content,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        let all = CertificateRevocationListDer::pem_slice_iter(&self.bytes);
        let mut all: Vec<_> = all
            .collect::<Result<_, _>>()
            .map_err(|error| self.malformed(&error))?;
        // DER begins with a sequence.
        if all.is_empty() && self.bytes.first() == Some(&0x30) {
            all.push(CertificateRevocationListDer::from(self.bytes.clone()));
        }
        if all.is_empty() {
            return Err(self.empty("revocation list"));
        }
        let certificates = authorities.certificates()?;
        let trusted: Vec<_> = { certificates.iter() }
            .filter_map(|one| Some(X509Certificate::from_der(one).ok()?.1))
            .collect();
        let mut names = Vec::new();
        for list in &all {
            let (_, list) = CertificateRevocationList::from_der(list)
                .map_err(|error| self.malformed(&error))?;
            let name = list.tbs_cert_list.issuer.as_raw();
            let keys: Vec<_> = { trusted.iter() }
                .filter(|one| one.subject().as_raw() == name)
                .map(|one| one.public_key())
                .collect();
            if !keys.iter().any(|key| list.verify_signature(key).is_ok()) {
                return Err(TlsError::ForeignList {
                    list: self.path.clone(),
                    authorities: authorities.path.clone(),
                });
            }
            if keys.iter().any(|key| key.raw != keys[0].raw) {
                return Err(TlsError::SharedIssuer {
                    list: self.path.clone(),
                    authorities: authorities.path.clone(),
                    issuer: list.issuer().to_string(),
                });
            }
            if names.contains(&name) {
                return Err(TlsError::RepeatedList {
                    list: self.path.clone(),
                    issuer: list.issuer().to_string(),
                });
            }
            names.push(name);
        }
        Ok(all)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

const KEY: &str = "private key";
const CERTIFICATE: &str = "certificate";

/// A certificate with the key that belongs to it, and when the certificate expires.
pub(crate) fn key_pair(
    certificate: &Content,
    key: &Content,
) -> Result<(CertifiedKey, SystemTime), TlsError> {
    let chain = certificate.chain()?;
    let mut expires = i64::MAX;
    for one in &chain {
        expires = expires.min(certificate.times(one)?.1);
    }
    let pair = CertifiedKey::from_der(chain, key.key()?, &crate::provider());
    let pair = pair.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch {
            certificate: certificate.path.clone(),
            key: key.path.clone(),
        },
        error => key.malformed(&error),
    })?;
    let seconds = u64::try_from(expires).unwrap_or(0);
    Ok((pair, UNIX_EPOCH + std::time::Duration::from_secs(seconds)))
}

/// The CAs that this system trusts.
pub(crate) fn system_authorities() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    match store.is_empty() {
        true => Err(TlsError::NoSystemRoots {
            reason: { found.errors.first() }
                .map_or_else(String::new, |error| format!(" ({error})")),
        }),
        false => Ok(store),
    }
}

fn now_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// A time as people read it, in UTC.
fn moment(seconds: i64) -> String {
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) => {
            let (date, time) = (at.date(), at.time());
            format!(
                "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
                date.year(),
                u8::from(date.month()),
                date.day(),
                time.hour(),
                time.minute(),
                time.second()
            )
        }
        Err(_) => format!("{seconds} seconds of Unix time"),
    }
}
