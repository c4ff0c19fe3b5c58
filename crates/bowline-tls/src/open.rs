//! [`Open`]: the connections whose certificates may be revoked while they are open.
//!
//! When a set of files is taken, the certificate of each open connection is verified again with the new lists. One that was
//! revoked ends its connection at once: its flag is set and its task is woken, which finds the flag at its next read or write.
//! Nothing else ends a connection: it may go on when its CA is not trusted any more, or its certificate has expired. So it is
//! verified as of its handshake: a verifier that finds a certificate expired says no more of it.
//!
//! A port without revocation lists has no such connections, and its streams no guards.
//!
//! Invariant: a connection is in the list from before its last verification until it is dropped, so no list is missed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The open connections of a port, or of what connects.
#[derive(Debug, Default)]
pub(crate) struct Open {
    next: AtomicU64,
    shown: Mutex<HashMap<u64, Arc<Shown>>>,
    /// How many were ended.
    pub(crate) ended: AtomicU64,
}

/// What the other side of a connection has shown.
#[derive(Debug)]
struct Shown {
    chain: Vec<CertificateDer<'static>>,
    verified_at: UnixTime,
    is_revoked: AtomicBool,
    /// The task that reads.
    reader: Mutex<Option<Waker>>,
}

/// Says at each read and write whether the connection may go on.
#[derive(Debug)]
pub(crate) struct Guard {
    open: Arc<Open>,
    number: u64,
    shown: Arc<Shown>,
}

/// Whether what a verifier says of a certificate is that it was revoked.
pub(crate) fn is_revoked<T>(verified: &Result<T, Error>) -> bool {
    matches!(
        verified,
        Err(Error::InvalidCertificate(CertificateError::Revoked))
    )
}

/// When a chain was valid that a handshake has just verified: now, or at the end of its first certificate, should that have
/// come during the handshake. The other side may send further ones that nothing rests on, so their ends say nothing.
fn verified_at(chain: &[CertificateDer<'_>]) -> UnixTime {
    let now = UnixTime::now().as_secs();
    let end = chain.first().and_then(|own| {
        let (_, own) = X509Certificate::from_der(own).ok()?;
        u64::try_from(own.validity().not_after.timestamp()).ok()
    });
    let seconds = end.map_or(now, |end| end.min(now));
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

impl Open {
    /// Puts a connection into the list. The caller verifies the chain once more where files were taken meanwhile.
    pub(crate) fn enter(self: &Arc<Open>, chain: &[CertificateDer<'_>]) -> Guard {
        let shown = Arc::new(Shown {
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
            verified_at: verified_at(chain),
            is_revoked: AtomicBool::new(false),
            reader: Mutex::default(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shown.lock().insert(number, shown.clone());
        Guard {
            open: self.clone(),
            number,
            shown,
        }
    }

    /// Ends the connections whose chains are revoked, verified as of their handshakes.
    pub(crate) fn end_revoked(&self, is_revoked: impl Fn(&[CertificateDer<'_>], UnixTime) -> bool) {
        // Verified without the lock: connections come and go meanwhile.
        let all: Vec<_> = self.shown.lock().values().cloned().collect();
        let mut count = 0;
        let is_ended = |shown: &&Arc<Shown>| is_revoked(&shown.chain, shown.verified_at);
        for shown in all.iter().filter(is_ended) {
            if !shown.is_revoked.swap(true, Ordering::AcqRel) {
                count += 1;
            }
            if let Some(reader) = shown.reader.lock().take() {
                reader.wake();
            }
        }
        if count > 0 {
            self.ended.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(
                count,
                "connections were ended: their certificates were revoked"
            );
        }
    }
}

impl Guard {
    /// When the handshake has verified the chain.
    pub(crate) fn verified_at(&self) -> UnixTime {
        self.shown.verified_at
    }

    /// Refuses to go on when the certificate was revoked.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.shown.is_revoked.load(Ordering::Acquire) {
            false => Ok(()),
            true => {
                let text = "the certificate of the other side was revoked";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
        }
    }

    /// What comes of a read: a pending one is woken by a revocation.
    pub(crate) fn after_read(
        &self,
        task: &Context<'_>,
        read: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if read.is_ready() {
            return read;
        }
        {
            let mut reader = self.shown.reader.lock();
            let is_same = { reader.as_ref() }.is_some_and(|kept| kept.will_wake(task.waker()));
            if !is_same {
                *reader = Some(task.waker().clone());
            }
        }
        // A revocation between the first look and the waker has woken nobody.
        match self.check() {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.open.shown.lock().remove(&self.number);
    }
}
