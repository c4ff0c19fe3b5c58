//! The settings of TLS: of the port for clients and metrics, and of the port for members. The names and meanings are
//! etcd's.
//!
//! A combination that would leave a connection in the clear although somebody has named certificates is refused here, and
//! so is one that cannot be served. Whether the files are good is seen when the server starts.

use std::path::{Path, PathBuf};

use bowline_tls::{
    Allowed, ClientOptions, ClientTls, KeyPairFiles, Protocol, ServerOptions, ServerTls, TlsError,
    Version, self_signed,
};

use super::parse::{number, one_of};
use crate::url::Url;

/// A setting, and what is wrong with its value.
pub(super) type Wrong = (&'static str, String);

/// The texts of settings, by their keys.
pub(super) struct Texts<'a>(&'a dyn Fn(&str) -> &'a str);

impl<'a> Texts<'a> {
    pub(super) fn new(text: &'a dyn Fn(&str) -> &'a str) -> Texts<'a> {
        Texts(text)
    }

    fn text(&self, key: &str) -> &str {
        (self.0)(key)
    }

    fn parse<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Wrong> {
        parse(self.text(key).trim()).map_err(|reason| self.wrong(key, reason))
    }

    fn wrong(&self, key: &'static str, reason: String) -> Wrong {
        (key, reason)
    }
}

/// The TLS of one kind of port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTls {
    /// The files; `None` makes a certificate that signs itself, in the data directory.
    files: Option<KeyPairFiles>,
    /// Whether the names of these certificates say who the other side is.
    authenticates: bool,
    /// The CAs of the certificates that the other side must show.
    trusted_ca: Option<PathBuf>,
    revocations: Option<PathBuf>,
    allowed: Allowed,
    protocol: Protocol,
    /// The hosts of a certificate that signs itself, and for how many years it is valid.
    hosts: Vec<String>,
    years: u32,
}

/// The keys of one kind of port.
struct Keys {
    urls: &'static str,
    certificate: &'static str,
    key: &'static str,
    authenticate: &'static str,
    trusted_ca: &'static str,
    revocations: &'static str,
    common_names: Option<&'static str>,
    hosts: &'static str,
    automatic: &'static str,
}

const CLIENT: Keys = Keys {
    urls: "listen-client-urls",
    certificate: "cert-file",
    key: "key-file",
    authenticate: "client-cert-auth",
    trusted_ca: "trusted-ca-file",
    revocations: "client-crl-file",
    common_names: None,
    hosts: "client-cert-allowed-hostname",
    automatic: "auto-tls",
};

const PEER: Keys = Keys {
    urls: "listen-peer-urls",
    certificate: "peer-cert-file",
    key: "peer-key-file",
    authenticate: "peer-client-cert-auth",
    trusted_ca: "peer-trusted-ca-file",
    revocations: "peer-crl-file",
    common_names: Some("peer-cert-allowed-cn"),
    hosts: "peer-cert-allowed-hostname",
    automatic: "peer-auto-tls",
};

/// The TLS of the ports for clients and metrics.
pub(super) fn of_clients(
    texts: &Texts<'_>,
    clients: &[Url],
    metrics: &[Url],
) -> Result<Option<PortTls>, Wrong> {
    let clients = clients.iter().map(|url| (CLIENT.urls, url));
    let metrics = metrics.iter().map(|url| ("listen-metrics-urls", url));
    of_port(texts, &CLIENT, &clients.chain(metrics).collect::<Vec<_>>())
}

/// The TLS of the port for members.
pub(super) fn of_peers(texts: &Texts<'_>, urls: &[Url]) -> Result<Option<PortTls>, Wrong> {
    let named: Vec<_> = urls.iter().map(|url| (PEER.urls, url)).collect();
    let tls = of_port(texts, &PEER, &named)?;
    let is_https = |url: &&Url| url.scheme == "https";
    if let (Some(secure), Some(plain)) = (
        urls.iter().find(is_https),
        urls.iter().find(|url| !is_https(url)),
    ) {
        let reason = format!("{secure} and {plain}: members listen with TLS or without it");
        return Err(texts.wrong(PEER.urls, reason));
    }
    Ok(tls)
}

/// `urls` are those at which the port listens, each with the setting that names it.
fn of_port(
    texts: &Texts<'_>,
    keys: &Keys,
    urls: &[(&'static str, &Url)],
) -> Result<Option<PortTls>, Wrong> {
    let path = |key: &str| match texts.text(key).trim() {
        "" => None,
        path => Some(PathBuf::from(path)),
    };
    let is_true =
        |key: &'static str| Ok(texts.parse(key, |text| one_of(text, &["false", "true"]))? == 1);
    let wrong = |key: &'static str, reason: String| Err(texts.wrong(key, reason));
    let (certificate, key) = (path(keys.certificate), path(keys.key));
    let (trusted_ca, revocations) = (path(keys.trusted_ca), path(keys.revocations));
    let files = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(KeyPairFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return wrong(keys.certificate, format!("it needs --{}", keys.key)),
        (None, Some(_)) => return wrong(keys.key, format!("it needs --{}", keys.certificate)),
    };
    let is_automatic = is_true(keys.automatic)?;
    if is_automatic && files.is_some() {
        let reason = format!("it is for a server without --{}", keys.certificate);
        return wrong(keys.automatic, reason);
    }
    let authenticates = is_true(keys.authenticate)?;
    let needs_ca = || {
        format!(
            "it needs the CA of these certificates: --{}",
            keys.trusted_ca
        )
    };
    if authenticates && trusted_ca.is_none() {
        return wrong(keys.authenticate, needs_ca());
    }
    if revocations.is_some() && trusted_ca.is_none() {
        let reason = format!(
            "it needs the CA that issued the list: --{}",
            keys.trusted_ca
        );
        return wrong(keys.revocations, reason);
    }
    let list = |key: &str| -> Vec<String> {
        let parts = texts.text(key).split(',').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let allowed = Allowed {
        common_names: keys.common_names.map(list).unwrap_or_default(),
        hosts: list(keys.hosts),
    };
    if allowed != Allowed::default() && trusted_ca.is_none() {
        let key = match (keys.common_names, allowed.common_names.is_empty()) {
            (Some(key), false) => key,
            _ => keys.hosts,
        };
        return wrong(key, needs_ca());
    }
    let has_any = files.is_some() || is_automatic;
    if !has_any {
        if let Some((key, url)) = urls.iter().find(|(_, url)| url.scheme == "https") {
            let reason = format!(
                "{url}: https needs --{} and --{}, or --{}",
                keys.certificate, keys.key, keys.automatic
            );
            return wrong(key, reason);
        }
        if trusted_ca.is_some() {
            let reason = format!("it needs --{} and --{}", keys.certificate, keys.key);
            return wrong(keys.trusted_ca, reason);
        }
        return Ok(None);
    }
    if !urls.iter().any(|(_, url)| url.scheme == "https") {
        let key = if is_automatic {
            keys.automatic
        } else {
            keys.certificate
        };
        let reason = format!(
            "no URL of --{} is https, so it would not be used, and all would be sent in the clear",
            keys.urls
        );
        return wrong(key, reason);
    }
    let mut hosts: Vec<String> = urls.iter().map(|(_, url)| url.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    let years = texts.parse("self-signed-cert-validity", number)?;
    Ok(Some(PortTls {
        files,
        authenticates,
        trusted_ca,
        revocations,
        allowed,
        protocol: protocol(texts)?,
        hosts,
        years: u32::try_from(years).unwrap_or(u32::MAX).clamp(1, 100),
    }))
}

fn protocol(texts: &Texts<'_>) -> Result<Protocol, Wrong> {
    let version = |key: &'static str, default: Version| {
        texts.parse(key, |text| match text {
            "" => Ok(default),
            text => text.parse(),
        })
    };
    let version_min = version("tls-min-version", Version::Tls12)?;
    let version_max = version("tls-max-version", Version::Tls13)?;
    if version_min > version_max {
        let reason = format!("{version_min} is above --tls-max-version, {version_max}");
        return Err(texts.wrong("tls-min-version", reason));
    }
    let suites = texts.text("cipher-suites").split(',').map(str::trim);
    Ok(Protocol {
        version_min,
        version_max,
        cipher_suites: { suites.filter(|suite| !suite.is_empty()) }
            .map(str::to_owned)
            .collect(),
    })
}

impl PortTls {
    /// Whether the names of the certificates that the other side shows say who it is.
    pub(crate) fn authenticates(&self) -> bool {
        self.authenticates
    }

    /// Reads the files of the port for clients and metrics.
    pub(crate) fn open_for_clients(&self, data_dir: &Path) -> Result<ServerTls, TlsError> {
        let files = self.files(data_dir, "client")?;
        let options = ServerOptions {
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..self.options("certificates for clients", files)
        };
        ServerTls::new(options)
    }

    /// Reads the files of the port for members, and for connections to members: a member shows the others the same
    /// certificate. One that has made its own cannot verify theirs.
    pub(crate) fn open_for_peers(
        &self,
        data_dir: &Path,
    ) -> Result<(ServerTls, ClientTls), TlsError> {
        let files = self.files(data_dir, "peer")?;
        let server = ServerTls::new(self.options("certificates for members", files.clone()))?;
        let client = ClientTls::new(ClientOptions {
            trusted_ca: self.trusted_ca.clone(),
            revocations: self.revocations.clone(),
            key_pair: Some(files),
            insecure_skip_verify: self.files.is_none() && self.trusted_ca.is_none(),
            protocol: self.protocol.clone(),
            ..ClientOptions::default()
        })?;
        Ok((server, client))
    }

    fn options(&self, what: &'static str, files: KeyPairFiles) -> ServerOptions {
        ServerOptions {
            trusted_ca: self.trusted_ca.clone(),
            revocations: self.revocations.clone(),
            allowed: self.allowed.clone(),
            protocol: self.protocol.clone(),
            ..ServerOptions::new(what, files)
        }
    }

    fn files(&self, data_dir: &Path, port: &str) -> Result<KeyPairFiles, TlsError> {
        match &self.files {
            Some(files) => Ok(files.clone()),
            None => {
                let directory = data_dir.join("fixtures").join(port);
                self_signed(&directory, &self.hosts, self.years)
            }
        }
    }
}
