//! [`ClientTls`]: the side that makes connections.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

use crate::error::TlsError;
use crate::files::{Content, KeyPairFiles, key_pair, system_authorities};
use crate::open::{Guard, Open, is_revoked};
use crate::reload::{LOOK_INTERVAL, Looked, Reload, Reloading};
use crate::versions::Protocol;

/// A connection after the handshake, on the side that made it.
///
/// With TLS 1.3 a server that refuses the certificate of this side says so only after the handshake, in place of what it
/// would have sent first. So errors of reading are explained, too.
#[derive(Debug)]
pub struct ClientStream<S> {
    inner: tokio_rustls::client::TlsStream<S>,
    refusals: Option<Refusals>,
    guard: Option<Guard>,
}

/// The last refusal of this side's certificate that came after a handshake, and when it came. What is above the stream may
/// report only that the connection is gone.
pub(crate) type Refusals = Arc<Mutex<Option<(Instant, String)>>>;

impl<S> ClientStream<S> {
    /// Notes refusals here.
    pub(crate) fn noting(self, refusals: Refusals) -> ClientStream<S> {
        ClientStream {
            refusals: Some(refusals),
            ..self
        }
    }

    fn check(&self) -> io::Result<()> {
        self.guard.as_ref().map_or(Ok(()), Guard::check)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let read = Pin::new(&mut self.inner).poll_read(task, buffer);
        let read = match &self.guard {
            Some(guard) => guard.after_read(task, read),
            None => read,
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                let error = explained(error);
                if let Some(refusals) = &self.refusals {
                    *refusals.lock() = Some((Instant::now(), error.to_string()));
                }
                error
            }
            _ => error,
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
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

/// The settings of [`ClientTls`].
///
/// ```
/// use bowline_tls::ClientOptions;
///
/// let options = ClientOptions {
///     trusted_ca: Some("ca.crt".into()),
///     ..ClientOptions::default()
/// };
/// assert!(!options.insecure_skip_verify);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// The CAs of servers' certificates; `None` takes those of the system.
    pub trusted_ca: Option<PathBuf>,
    /// Revocation lists of these CAs.
    pub revocations: Option<PathBuf>,
    /// The certificate that is shown to servers which ask for one.
    pub key_pair: Option<KeyPairFiles>,
    /// The name that a server's certificate must be for, instead of the host that is connected to.
    pub server_name: Option<String>,
    /// Takes every certificate. The connection is encrypted, and anybody may be at its other end.
    pub insecure_skip_verify: bool,
    /// Versions and cipher suites.
    pub protocol: Protocol,
    /// The protocols above TLS, such as `h2`; none negotiates none, but for a client of HTTP/2, which offers `h2`.
    pub alpn: Vec<Vec<u8>>,
}

/// The side that makes connections. Its clones share everything. It looks at its files before it connects, at most once
/// a second.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline_tls::{ClientOptions, ClientTls};
///
/// let options = ClientOptions { trusted_ca: Some("ca.crt".into()), ..ClientOptions::default() };
/// let tls = ClientTls::new(options)?;
/// let stream = tokio::net::TcpStream::connect("127.0.0.1:2379").await?;
/// let stream = tls.connect("localhost", stream).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClientTls {
    shared: Arc<Shared>,
}

struct Shared {
    files: Reloading<Made>,
    /// The connections that a revocation ends, where there are revocation lists.
    open: Option<Arc<Open>>,
    server_name: Option<ServerName<'static>>,
    looked: Mutex<Instant>,
}

struct Made {
    config: Arc<ClientConfig>,
    verifier: Arc<dyn ServerCertVerifier>,
}

impl Made {
    /// Whether the lists of this set have one of the certificates of a chain that was verified then.
    fn has_revoked(&self, chain: &[CertificateDer<'_>], verified_at: UnixTime) -> bool {
        let Some((own, issuers)) = chain.split_first() else {
            return false;
        };
        // Lists are looked at before the name is, so that of the connection is not needed.
        let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let verifier = &self.verifier;
        is_revoked(&verifier.verify_server_cert(own, issuers, &name, &[], verified_at))
    }
}

impl ClientTls {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn new(options: ClientOptions) -> Result<ClientTls, TlsError> {
        if options.revocations.is_some() && options.trusted_ca.is_none() {
            let text = "a revocation list needs the file of the CAs that issued it";
            return Err(TlsError::Settings(text.to_owned()));
        }
        let server_name = options.server_name.as_deref().map(|name| {
            server_name(name).map_err(|_| TlsError::Settings(format!("{name:?} is no host name")))
        });
        let server_name = server_name.transpose()?;
        let mut files = Vec::new();
        if let Some(pair) = &options.key_pair {
            files.extend([pair.certificate.clone(), pair.key.clone()]);
        }
        files.extend(options.trusted_ca.clone());
        files.extend(options.revocations.clone());
        let open = options.revocations.as_ref().map(|_| Arc::default());
        let make = move |contents: &[Content]| make(contents, &options);
        Ok(ClientTls {
            shared: Arc::new(Shared {
                files: Reloading::new("certificates for connections", files, make)?,
                open,
                server_name,
                looked: Mutex::new(Instant::now()),
            }),
        })
    }

    /// Takes a connection to a host through its handshake. The caller limits the time.
    ///
    /// # Errors
    /// Of the connection; `InvalidData` with an explanation when the server's certificate, or this side's, is refused.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<ClientStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.connect_offering(None, host, stream).await
    }

    /// The same for a client of HTTP/2, which has to offer `h2` where the options name no protocol: without, servers of etcd
    /// and many proxies speak HTTP/1.1, or end the connection.
    ///
    /// # Errors
    /// Those of [`ClientTls::connect`].
    pub async fn connect_http2<S>(&self, host: &str, stream: S) -> io::Result<ClientStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.connect_offering(Some(&b"h2"[..]), host, stream).await
    }

    /// Offers a protocol where the options name none.
    async fn connect_offering<S>(
        &self,
        protocol: Option<&[u8]>,
        host: &str,
        stream: S,
    ) -> io::Result<ClientStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.look_now_and_then();
        let name = match &self.shared.server_name {
            Some(name) => name.clone(),
            None => server_name(host)?,
        };
        let made = self.shared.files.current();
        let alpn: Vec<Vec<u8>> = match &made.config.alpn_protocols[..] {
            [] => protocol.map(<[u8]>::to_vec).into_iter().collect(),
            named => named.to_vec(),
        };
        let connector = TlsConnector::from(made.config.clone());
        let connecting = connector.with_alpn(alpn).connect(name, stream);
        let inner = connecting.await.map_err(explained)?;
        let guard = match (&self.shared.open, inner.get_ref().1.peer_certificates()) {
            (Some(open), Some(chain)) => {
                let guard = open.enter(chain);
                // It may have come into the list after the connections of another set were verified.
                let newest = self.shared.files.current();
                let at = guard.verified_at();
                if !Arc::ptr_eq(&made, &newest) && newest.has_revoked(chain, at) {
                    let text = "the server's certificate was revoked";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Some(guard)
            }
            _ => None,
        };
        Ok(ClientStream {
            inner,
            refusals: None,
            guard,
        })
    }

    /// Ends the connections whose certificates the files of now revoke.
    fn end_revoked(&self, looked: Looked) -> Looked {
        if let (Looked::Taken, Some(open)) = (looked, &self.shared.open) {
            let made = self.shared.files.current();
            open.end_revoked(|chain, verified_at| made.has_revoked(chain, verified_at));
        }
        looked
    }

    fn look_now_and_then(&self) {
        {
            let mut looked = self.shared.looked.lock();
            if looked.elapsed() < LOOK_INTERVAL {
                return;
            }
            *looked = Instant::now();
        }
        // An error was logged; what there was before stays.
        let _ = self.look();
    }
}

impl Reload for ClientTls {
    fn look(&self) -> Result<Looked, TlsError> {
        let looked = self.shared.files.look(false)?;
        Ok(self.end_revoked(looked))
    }

    fn reload(&self) -> Result<Looked, TlsError> {
        let looked = self.shared.files.look(true)?;
        Ok(self.end_revoked(looked))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("server_name", &self.shared.server_name)
            .finish_non_exhaustive()
    }
}

fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let host = host.trim_matches(['[', ']']);
    ServerName::try_from(host.to_owned()).map_err(|_| {
        let text = format!("{host:?} is not a host name that a certificate can be for");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// An error of a handshake, with what to do about it.
fn explained(error: io::Error) -> io::Error {
    use rustls::{AlertDescription, CertificateError, Error as E};
    let Some(library) = error.get_ref().and_then(|inner| inner.downcast_ref::<E>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let text =
                    "the server closed the connection during the TLS handshake: does it speak TLS?";
                io::Error::new(io::ErrorKind::UnexpectedEof, text)
            }
            _ => error,
        };
    };
    let hint = match library {
        E::InvalidMessage(_) => "the server does not speak TLS: use http://",
        // A CA of the same name has another key.
        E::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the server's certificate is not of a trusted CA: name the file of its CA"
        }
        E::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the server's certificate has expired",
        E::InvalidCertificate(CertificateError::Revoked) => "the server's certificate was revoked",
        E::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate is for another host",
        E::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server asks for a client's certificate: give one"
        }
        E::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "the server does not trust the CA of this side's certificate"
        }
        E::AlertReceived(AlertDescription::CertificateExpired) => {
            "the server says that this side's certificate has expired"
        }
        E::AlertReceived(AlertDescription::CertificateRevoked) => {
            "the server says that this side's certificate was revoked"
        }
        _ => return error,
    };
    let text = format!("{hint} ({library})");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn make(contents: &[Content], options: &ClientOptions) -> Result<Made, TlsError> {
    let (pair, trust) = match (&options.key_pair, contents) {
        (Some(_), [certificate, key, trust @ ..]) => (Some(key_pair(certificate, key)?.0), trust),
        (_, trust) => (None, trust),
    };
    let provider = Arc::new(options.protocol.provider()?);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&options.protocol.versions()?)
        .map_err(|error| TlsError::Settings(error.to_string()))?
        .dangerous();
    let verifier: Arc<dyn ServerCertVerifier> = if options.insecure_skip_verify {
        Arc::new(AnyServer(provider))
    } else {
        let (roots, lists) = match trust {
            [authorities, lists @ ..] => (authorities.authorities()?, lists),
            [] => (system_authorities()?, &[][..]),
        };
        let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        for list in lists {
            let lists = list.revocations(&trust[0])?;
            builder = builder.with_crls(lists).allow_unknown_revocation_status();
        }
        let built = builder.build();
        built.map_err(|error| TlsError::Settings(error.to_string()))?
    };
    let builder = builder.with_custom_certificate_verifier(verifier.clone());
    let mut config = match pair {
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = options.alpn.clone();
    Ok(Made {
        config: Arc::new(config),
        verifier,
    })
}

/// Takes every certificate that the other side has the key of.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// How long a connection may take by itself, where nobody else limits it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
