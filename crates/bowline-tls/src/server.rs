//! [`ServerTls`]: the side that accepts connections.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;

use crate::begun::{Begun, begin};
use crate::error::{HandshakeError, TlsError};
use crate::files::{Content, KeyPairFiles, key_pair};
use crate::gate::Gate;
use crate::identity::PeerIdentity;
use crate::open::{Guard, Open, is_revoked};
use crate::reload::{Looked, Reload, Reloading};
use crate::versions::Protocol;

/// A connection after the handshake, on the side that accepted it. It ends with an error when the certificate of the other
/// side is revoked.
#[derive(Debug)]
pub struct ServerStream<S> {
    inner: tokio_rustls::server::TlsStream<Begun<S>>,
    guard: Option<Guard>,
}

impl<S> ServerStream<S> {
    fn check(&self) -> io::Result<()> {
        self.guard.as_ref().map_or(Ok(()), Guard::check)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ServerStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let read = Pin::new(&mut self.inner).poll_read(task, buffer);
        match &self.guard {
            Some(guard) => guard.after_read(task, read),
            None => read,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ServerStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write_vectored(task, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(task)
    }
}

/// Which of the certificates that the CA has issued are allowed; an empty list allows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Common names.
    pub common_names: Vec<String>,
    /// Hosts, one of which the certificate must be for.
    pub hosts: Vec<String>,
}

impl Allowed {
    fn admits(&self, identity: &PeerIdentity) -> bool {
        let is_named = self.common_names.is_empty() || { self.common_names.iter() }
            .any(|name| identity.common_name.as_ref() == Some(name));
        let is_host =
            self.hosts.is_empty() || self.hosts.iter().any(|host| identity.has_host(host));
        is_named && is_host
    }
}

/// The settings of [`ServerTls`].
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What it is for, in the log, such as `"certificates for clients"`.
    pub what: &'static str,
    /// The certificate that it shows.
    pub key_pair: KeyPairFiles,
    /// The CAs of the certificates that the other side must show; `None` asks for none.
    pub trusted_ca: Option<PathBuf>,
    /// Revocation lists of these CAs.
    pub revocations: Option<PathBuf>,
    /// Which certificates of these CAs are allowed.
    pub allowed: Allowed,
    /// Versions and cipher suites.
    pub protocol: Protocol,
    /// The protocols above TLS, such as `h2`, the preferred one first; none negotiates none.
    pub alpn: Vec<Vec<u8>>,
    /// The deadline of a handshake, from its connection's beginning.
    pub handshake_timeout: Duration,
    /// The most handshakes under way.
    pub handshakes_max: usize,
}

impl ServerOptions {
    /// With a certificate, and asking for none. A handshake may take 10 s, and 512 may be under way.
    #[must_use]
    pub fn new(what: &'static str, key_pair: KeyPairFiles) -> ServerOptions {
        ServerOptions {
            what,
            key_pair,
            trusted_ca: None,
            revocations: None,
            allowed: Allowed::default(),
            protocol: Protocol::default(),
            alpn: Vec::new(),
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 512,
        }
    }
}

/// The side that accepts connections. Its clones share everything.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline_tls::{KeyPairFiles, ServerOptions, ServerTls};
///
/// let files = KeyPairFiles { certificate: "server.crt".into(), key: "server.key".into() };
/// let tls = ServerTls::new(ServerOptions::new("certificates", files))?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:2379").await?;
/// let (stream, address) = listener.accept().await?;
/// let (stream, identity) = tls.accept(stream, address.ip()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerTls {
    shared: Arc<Shared>,
}

struct Shared {
    files: Reloading<Made>,
    allowed: Allowed,
    gate: Gate,
    handshake_timeout: Duration,
    /// The connections that a revocation ends, where there are revocation lists.
    open: Option<Arc<Open>>,
    handshakes_done: AtomicU64,
    handshakes_failed: AtomicU64,
}

struct Made {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    expires: SystemTime,
}

impl Made {
    /// Whether the lists of this set have one of the certificates of a chain that was verified then.
    fn has_revoked(&self, chain: &[CertificateDer<'_>], verified_at: UnixTime) -> bool {
        let Some((own, issuers)) = chain.split_first() else {
            return false;
        };
        let verified = self.verifier.verify_client_cert(own, issuers, verified_at);
        is_revoked(&verified)
    }
}

/// What has happened to the files and handshakes of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// How many sets of files were taken after the first one.
    pub sets_taken: u64,
    /// How many sets of files were refused.
    pub sets_refused: u64,
    /// How many handshakes are under way.
    pub handshakes: usize,
    /// How many handshakes were given up for others.
    pub handshakes_evicted: u64,
    /// How many handshakes succeeded.
    pub handshakes_done: u64,
    /// How many handshakes failed, or were given up.
    pub handshakes_failed: u64,
    /// How many open connections were ended, as their certificates were revoked.
    pub connections_ended: u64,
}

impl ServerTls {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn new(options: ServerOptions) -> Result<ServerTls, TlsError> {
        if options.revocations.is_some() && options.trusted_ca.is_none() {
            let text = "a revocation list needs the file of the CAs that issued it";
            return Err(TlsError::Settings(text.to_owned()));
        }
        // Wrong ones are refused also where no file is.
        options.protocol.versions()?;
        let mut files = vec![
            options.key_pair.certificate.clone(),
            options.key_pair.key.clone(),
        ];
        files.extend(options.trusted_ca.clone());
        files.extend(options.revocations.clone());
        let (protocol, alpn) = (options.protocol.clone(), options.alpn.clone());
        let make = move |contents: &[Content]| make(contents, &protocol, &alpn);
        Ok(ServerTls {
            shared: Arc::new(Shared {
                files: Reloading::new(options.what, files, make)?,
                allowed: options.allowed,
                gate: Gate::new(options.handshakes_max),
                handshake_timeout: options.handshake_timeout,
                open: options.revocations.map(|_| Arc::default()),
                handshakes_done: AtomicU64::new(0),
                handshakes_failed: AtomicU64::new(0),
            }),
        })
    }

    /// Takes a connection through its handshake; gives the names of the certificate of the other side, if it had to
    /// show one. Until the first bytes have arrived, and are those of a handshake, nothing is allocated.
    ///
    /// # Errors
    /// [`HandshakeError`]; the connection is gone.
    pub async fn accept<S>(
        &self,
        stream: S,
        address: IpAddr,
    ) -> Result<(ServerStream<S>, Option<Arc<PeerIdentity>>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let limit = self.shared.handshake_timeout;
        let accepted = tokio::time::timeout(limit, self.handshake(stream, address))
            .await
            .unwrap_or(Err(HandshakeError::Late(limit)));
        let count = match accepted {
            Ok(_) => &self.shared.handshakes_done,
            Err(_) => &self.shared.handshakes_failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        accepted
    }

    async fn handshake<S>(
        &self,
        stream: S,
        address: IpAddr,
    ) -> Result<(ServerStream<S>, Option<Arc<PeerIdentity>>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = match begin(stream).await? {
            Ok(stream) => stream,
            Err((mut stream, head)) => {
                if head
                    .iter()
                    .all(|byte| byte.is_ascii_uppercase() || b" /".contains(byte))
                {
                    const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
                        content-length: 32\r\nconnection: close\r\n\r\nthis port speaks TLS: use https\n";
                    // It is a help, and nothing depends on it.
                    let _ = stream.write_all(ANSWER).await;
                    Box::pin(linger(stream)).await;
                }
                return Err(HandshakeError::NotTls);
            }
        };
        // It is large, and a connection that has sent nothing yet has no need of it.
        Box::pin(self.verified(stream, address)).await
    }

    async fn verified<S>(
        &self,
        stream: Begun<S>,
        address: IpAddr,
    ) -> Result<(ServerStream<S>, Option<Arc<PeerIdentity>>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let turn = self.shared.gate.enter(address.to_canonical());
        let made = self.shared.files.current();
        let acceptor = TlsAcceptor::from(made.config.clone());
        let stream = tokio::select! {
            biased;
            () = turn.evicted() => return Err(HandshakeError::Crowded),
            accepted = acceptor.accept(stream).into_fallible() => accepted,
        };
        drop(turn);
        let stream = match stream {
            Ok(stream) => stream,
            Err((error, stream)) => {
                linger(stream).await;
                return Err(error.into());
            }
        };
        let shown = stream.get_ref().1.peer_certificates();
        let identity = match shown.and_then(|chain| chain.first()) {
            Some(leaf) => {
                let identity = PeerIdentity::of_certificate(leaf);
                Some(Arc::new(identity.map_err(HandshakeError::Certificate)?))
            }
            None => None,
        };
        match &identity {
            Some(identity) if !self.shared.allowed.admits(identity) => {
                Err(HandshakeError::NotAllowed(identity.to_string()))
            }
            _ => Ok((self.guarded(stream, &made)?, identity)),
        }
    }

    /// The stream, with a guard where its certificate may be revoked; `made` is the set that has verified it.
    fn guarded<S>(
        &self,
        inner: tokio_rustls::server::TlsStream<Begun<S>>,
        made: &Arc<Made>,
    ) -> Result<ServerStream<S>, HandshakeError> {
        let chain = inner.get_ref().1.peer_certificates();
        let guard = match (&self.shared.open, chain) {
            (Some(open), Some(chain)) => {
                let guard = open.enter(chain);
                // It may have come into the list after the connections of another set were verified.
                let newest = self.shared.files.current();
                let at = guard.verified_at();
                if !Arc::ptr_eq(made, &newest) && newest.has_revoked(chain, at) {
                    return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
                }
                Some(guard)
            }
            _ => None,
        };
        Ok(ServerStream { inner, guard })
    }

    /// Ends the connections whose certificates the files of now revoke.
    fn end_revoked(&self, looked: Looked) -> Looked {
        if let (Looked::Taken, Some(open)) = (looked, &self.shared.open) {
            let made = self.shared.files.current();
            open.end_revoked(|chain, verified_at| made.has_revoked(chain, verified_at));
        }
        looked
    }

    /// When the certificate expires.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.shared.files.current().expires
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            sets_taken: self.shared.files.taken(),
            sets_refused: self.shared.files.refused(),
            handshakes: self.shared.gate.count(),
            handshakes_evicted: self.shared.gate.evicted.load(Ordering::Relaxed),
            handshakes_done: self.shared.handshakes_done.load(Ordering::Relaxed),
            handshakes_failed: self.shared.handshakes_failed.load(Ordering::Relaxed),
            connections_ended: { self.shared.open.as_ref() }
                .map_or(0, |open| open.ended.load(Ordering::Relaxed)),
        }
    }
}

impl Reload for ServerTls {
    fn look(&self) -> Result<Looked, TlsError> {
        let looked = self.shared.files.look(false)?;
        Ok(self.end_revoked(looked))
    }

    fn reload(&self) -> Result<Looked, TlsError> {
        let looked = self.shared.files.look(true)?;
        Ok(self.end_revoked(looked))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// Ends a connection so that the other side learns why: what it has sent meanwhile and nobody has read would make the
/// system drop the alert that is on its way.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    const TIMEOUT: Duration = Duration::from_millis(500);
    const BYTES_MAX: usize = 64 << 10;
    let lingering = async {
        stream.shutdown().await?;
        let mut buffer = [0; 1024];
        let mut read = 0;
        while read < BYTES_MAX {
            match stream.read(&mut buffer).await? {
                0 => break,
                count => read += count,
            }
        }
        Ok::<(), io::Error>(())
    };
    // It is a help, and nothing depends on it.
    let _ = tokio::time::timeout(TIMEOUT, lingering).await;
}

/// From the contents of certificate, key, and perhaps CAs and revocation lists.
fn make(contents: &[Content], protocol: &Protocol, alpn: &[Vec<u8>]) -> Result<Made, TlsError> {
    let [certificate, key, trust @ ..] = contents else {
        return Err(TlsError::Settings(
            "a certificate and a key are needed".to_owned(),
        ));
    };
    let (pair, expires) = key_pair(certificate, key)?;
    let provider = Arc::new(protocol.provider()?);
    let refused = |error: rustls::Error| TlsError::Settings(error.to_string());
    let verifier: Arc<dyn ClientCertVerifier> = match trust {
        [] => Arc::new(NoClientAuth),
        [authorities, lists @ ..] => {
            let roots = Arc::new(authorities.authorities()?);
            let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            for list in lists {
                // An issuer without a list has revoked nothing.
                let lists = list.revocations(authorities)?;
                builder = builder.with_crls(lists).allow_unknown_revocation_status();
            }
            builder.build().map_err(|error| TlsError::Malformed {
                path: lists.first().unwrap_or(authorities).path().to_owned(),
                reason: error.to_string(),
            })?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocol.versions()?)
        .map_err(refused)?
        .with_client_cert_verifier(verifier.clone())
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = alpn.to_vec();
    if !trust.is_empty() {
        // A session that is taken up again has its certificate not looked at again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Made {
        config: Arc::new(config),
        verifier,
        expires,
    })
}
