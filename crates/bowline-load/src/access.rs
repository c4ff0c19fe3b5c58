//! [`Access`]: how a load reaches the servers, in the clear or with TLS, and as which user.

use std::io;
use std::time::Duration;

use bowline_client::tls::{ClientOptions, ClientTls};
use bowline_client::{Client, ClientBuilder};
use bowline_proto::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};
use prost::Message;
use tokio::runtime;

use crate::error::{Error, Result};
use crate::wire::{End, Link, Sink, Target, Way, with_prefix};

/// How a load reaches the servers.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The certificates of connections; endpoints with `https://` need none to be named.
    pub tls: Option<ClientTls>,
    /// The user to log in as, and its password.
    pub user: Option<(String, String)>,
}

/// A login waits for its turn on the server, and hashes the password there.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

impl Access {
    /// A client with this access.
    pub(crate) fn client(&self) -> ClientBuilder {
        let mut client = Client::builder();
        if let Some(tls) = &self.tls {
            client = client.tls(tls.clone());
        }
        if let Some((name, password)) = &self.user {
            client = client.user(name, password);
        }
        client
    }

    /// Whether an endpoint speaks TLS, and its address.
    fn parsed<'a>(&self, endpoint: &'a str) -> Result<(bool, &'a str)> {
        match endpoint.split_once("://") {
            Some(("http", address)) => Ok((false, address)),
            Some(("https", address)) => Ok((true, address)),
            Some(_) => {
                let text = format!("{endpoint} is neither http://host:port nor https://host:port");
                Err(Error::Usage(text))
            }
            None => Ok((self.tls.is_some(), endpoint)),
        }
    }

    /// The addresses of endpoints, and the way to them: logs in, if there is a user.
    pub(crate) fn way_to(&self, endpoints: &[String]) -> Result<(Vec<String>, Way)> {
        let found = { endpoints.iter() }.map(|endpoint| self.parsed(endpoint));
        let found = found.collect::<Result<Vec<_>>>()?;
        let has_tls = found.first().is_some_and(|(has_tls, _)| *has_tls);
        if found.iter().any(|(other, _)| *other != has_tls) {
            let text = "some endpoints are http, and some https: a load is of one kind";
            return Err(Error::Usage(text.to_owned()));
        }
        let tls = match (has_tls, &self.tls) {
            (false, _) => None,
            (true, Some(tls)) => Some(tls.clone()),
            (true, None) => {
                let of_system = ClientTls::new(ClientOptions::default());
                Some(of_system.map_err(|error| Error::System(error.to_string()))?)
            }
        };
        let addresses: Vec<_> = found
            .iter()
            .map(|(_, address)| address.trim_end_matches('/').to_owned())
            .collect();
        let mut way = Way { tls, token: None };
        if let (Some((name, password)), Some(address)) = (&self.user, addresses.first()) {
            way.token = Some(log_in(address, &way, name, password)?);
        }
        Ok((addresses, way))
    }
}

/// Logs a user in; gives its token.
fn log_in(address: &str, way: &Way, name: &str, password: &str) -> Result<String> {
    let login = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let login = with_prefix(&login.encode_to_vec());
    let target = Target {
        path: "/etcdserverpb.Auth/Authenticate",
        metadata: None,
    };
    let mut reply = Reply::default();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let exchanged = runtime.block_on(async {
        let exchange = async {
            let mut link = Link::connect(address, &[target], way).await?;
            let connection = link.connection();
            connection.request(0, 0, login.len(), true, |out| out.extend(&login));
            while reply.end.is_none() {
                link.exchange(&mut reply).await?;
            }
            io::Result::Ok(())
        };
        let ended = tokio::time::timeout(LOGIN_TIMEOUT, exchange).await;
        ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    });
    let refused = |reason: String| {
        let text = format!("{name} could not log in at {address}: {reason}");
        Error::Unreachable(text)
    };
    exchanged.map_err(|error| refused(error.to_string()))?;
    match reply.end {
        Some(End::Status(0)) => {}
        Some(End::Status(code)) => {
            let code = bowline_client::Code::from(i32::from(code));
            let code = bowline_client::code_name(code);
            return Err(refused(format!(
                "the server answered {code}: are users enabled, and is the password right?"
            )));
        }
        other => return Err(refused(format!("the login ended with {other:?}"))),
    }
    let message = reply.message.get(5..).unwrap_or_default();
    let reply = AuthenticateResponse::decode(message);
    let reply = reply.map_err(|error| refused(error.to_string()))?;
    Ok(reply.token)
}

/// The answer to one request.
#[derive(Default)]
struct Reply {
    message: Vec<u8>,
    end: Option<End>,
}

impl Sink for Reply {
    fn arrived(&mut self) {}

    fn data(&mut self, _: u32, bytes: &[u8]) {
        self.message.extend_from_slice(bytes);
    }

    fn end(&mut self, _: u32, end: End) {
        self.end = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port_however_it_is_written() {
        let clear = |endpoint: &str| {
            let access = Access::default();
            access.way_to(&[endpoint.to_owned()])
        };
        for endpoint in ["a:1", "http://a:1", "http://a:1/"] {
            let (addresses, way) = clear(endpoint).unwrap();
            assert_eq!(addresses, ["a:1"]);
            assert!(way.tls.is_none() && way.token.is_none());
        }
        assert!(clear("ftp://a:1").is_err());
        let mixed = ["http://a:1".to_owned(), "https://a:1".to_owned()];
        assert!(Access::default().way_to(&mixed).is_err());
    }

    #[test]
    fn certificates_mean_tls_unless_the_endpoint_says_otherwise() {
        let options = ClientOptions {
            insecure_skip_verify: true,
            ..ClientOptions::default()
        };
        let access = Access {
            tls: Some(ClientTls::new(options).unwrap()),
            user: None,
        };
        for (endpoint, has_tls) in [("a:1", true), ("https://a:1", true), ("http://a:1", false)] {
            let (addresses, way) = access.way_to(&[endpoint.to_owned()]).unwrap();
            assert_eq!(addresses, ["a:1"]);
            assert_eq!(way.tls.is_some(), has_tls, "{endpoint}");
        }
    }
}
