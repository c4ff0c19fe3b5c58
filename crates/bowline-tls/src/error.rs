//! Errors of certificates, keys and handshakes. Each names the file, what is wrong with it, and what mends it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why files cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is too large to be what it should be.
    #[error("{} has more than {bytes_max} bytes: it is not a file of certificates or keys", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The largest file that is read, in bytes.
        bytes_max: u64,
    },
    /// Others than the owner may read a private key.
    #[error("the key {0} can be read by others (mode {mode:03o}): chmod 600 {0}", path.display())]
    KeyIsReadable {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file has nothing of what it should have.
    #[error("{} holds no {what} in PEM form{hint}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What to do, or nothing.
        hint: &'static str,
    },
    /// A file's content cannot be understood.
    #[error("{} is not valid: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A certificate's time is over.
    #[error("the certificate in {} expired at {since}: replace it", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// Since when, in UTC.
        since: String,
    },
    /// A certificate's time has not begun.
    #[error("the certificate in {} is valid from {from} on only: check the clock of this machine", path.display())]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// From when on, in UTC.
        from: String,
    },
    /// A key belongs to another certificate.
    #[error("the key {} does not fit the certificate {}: they are not of one pair", key.display(), certificate.display())]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A revocation list is of an issuer that is not trusted, so it would revoke nothing.
    #[error(
        "the revocation list {} was not issued by a CA of {}: it would revoke nothing",
        list.display(), authorities.display()
    )]
    ForeignList {
        /// The revocation list's file.
        list: PathBuf,
        /// The file of the CAs.
        authorities: PathBuf,
    },
    /// Two revocation lists are of one issuer. Only the first would be looked at.
    #[error(
        "{} holds two revocation lists of {issuer}: only one of them would count, so keep the newest alone",
        list.display()
    )]
    RepeatedList {
        /// The file of the revocation lists.
        list: PathBuf,
        /// The name of the issuer.
        issuer: String,
    },
    /// CAs of one name have different keys, and one of them has a revocation list. It would count for the certificates of
    /// each.
    #[error(
        "{} holds CAs with different keys that are all named {issuer}, so the revocation list {} would count for each of them: \
         give the new CA a name of its own, or use no list until the old one is taken out",
        authorities.display(), list.display()
    )]
    SharedIssuer {
        /// The file of the revocation lists.
        list: PathBuf,
        /// The file of the CAs.
        authorities: PathBuf,
        /// The name of the CAs.
        issuer: String,
    },
    /// This system has no CA certificates.
    #[error("this system has no CA certificates: name the file of the server's CA{reason}")]
    NoSystemRoots {
        /// Why, if it is known.
        reason: String,
    },
    /// A combination of settings that cannot work.
    #[error("{0}")]
    Settings(String),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Making(String),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl TlsError {
    /// Whether the same files may be good at another time.
    pub(crate) fn may_pass(&self) -> bool {
        // Clocks are set, and files that cannot be opened now are opened later.
        matches!(
            self,
            TlsError::Unreadable { .. }
                | TlsError::Expired { .. }
                | TlsError::NotYetValid { .. }
                | TlsError::NoSystemRoots { .. }
        )
    }
}

/// Why a handshake did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// It took too long.
    #[error("the TLS handshake was not complete within {0:?}")]
    Late(Duration),
    /// Too many handshakes were under way, and this was the oldest of the address with the most of them.
    #[error("the TLS handshake was given up: too many others are under way")]
    Crowded,
    /// The first bytes are not TLS.
    #[error("the other side does not speak TLS: it must use https")]
    NotTls,
    /// The certificate of the other side is valid, but not one of those that are allowed.
    #[error("the certificate of {0} is not allowed here")]
    NotAllowed(String),
    /// The certificate of the other side could not be understood.
    #[error("a certificate that cannot be read: {0}")]
    Certificate(String),
    /// The connection or the protocol failed; the text says whether it was a certificate.
    #[error("{0}")]
    Failed(#[from] io::Error),
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> io::Error {
        match error {
            HandshakeError::Failed(error) => error,
            HandshakeError::Late(_) => io::Error::new(io::ErrorKind::TimedOut, error),
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}
