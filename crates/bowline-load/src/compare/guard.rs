//! What guards the nodes of a comparison: certificates, users, or both.
//!
//! With certificates, clients and members show them to each other, as `bowline cert` would make them. With users, the load is
//! the user `load`, whose role may read and write all keys: root's rights would not be looked up.

use std::path::Path;
use std::time::{Duration, Instant};

use bowline_client::KeyRange;
use bowline_client::auth::Permission;
use bowline_client::tls::{ClientOptions, ClientTls, KeyPairFiles, TlsError};
use bowline_tls::{Authority, Request};

use crate::access::Access;
use crate::args::Guard;
use crate::error::{Error, Result};

const USER: &str = "load";
const PASSWORD: &str = "of a load that measures";
const HOST: &str = "127.0.0.1";

impl Guard {
    /// Whether connections have TLS.
    pub(crate) fn has_tls(self) -> bool {
        matches!(self, Guard::Tls | Guard::Both)
    }

    fn has_users(self) -> bool {
        matches!(self, Guard::Users | Guard::Both)
    }

    /// Makes the certificates in a directory. Gives the arguments of each node, and what its clients show.
    pub(crate) fn certificates(self, directory: &Path) -> Result<(Vec<String>, Option<ClientTls>)> {
        if !self.has_tls() {
            return Ok((Vec::new(), None));
        }
        make_certificates(directory).map_err(|error| Error::System(error.to_string()))
    }

    /// Adds the user of the load, and lets in users only; gives the access of the load.
    pub(crate) fn enable_users(self, addresses: &[String], access: &Access) -> Result<Access> {
        if !self.has_users() {
            return Ok(access.clone());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let client = access.client().endpoints(addresses).connect().await?;
            let auth = client.auth();
            // A member takes no change of users before it knows that all members read it, soon after the start.
            let deadline = Instant::now() + Duration::from_secs(20);
            while let Err(error) = auth.user_add("root", PASSWORD).await {
                if Instant::now() > deadline {
                    return Err(error.into());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            auth.user_grant_role("root", "root").await?;
            auth.user_add(USER, PASSWORD).await?;
            auth.role_add(USER).await?;
            let all = Permission::read_write(KeyRange::all());
            auth.role_grant(USER, all).await?;
            auth.user_grant_role(USER, USER).await?;
            auth.enable().await?;
            Result::<()>::Ok(())
        })?;
        Ok(Access {
            user: Some((USER.to_owned(), PASSWORD.to_owned())),
            ..access.clone()
        })
    }
}

fn make_certificates(directory: &Path) -> Result<(Vec<String>, Option<ClientTls>), TlsError> {
    let authority = Authority::generate("a CA for a comparison", 30)?;
    let hosts = [HOST];
    authority.own().write(directory, "ca")?;
    let server = authority.issue(&Request::server("server", hosts))?;
    let server = server.write(directory, "server")?;
    let peer = authority.issue(&Request::peer("peer", hosts))?;
    let peer = peer.write(directory, "peer")?;
    let client = authority.issue(&Request::client(USER))?;
    let client = client.write(directory, "client")?;
    let ca = directory.join("ca.crt");
    let options = ClientOptions {
        trusted_ca: Some(ca.clone()),
        key_pair: Some(client),
        ..ClientOptions::default()
    };
    let mut arguments = Vec::new();
    let ca = ca.display().to_string();
    for (prefix, KeyPairFiles { certificate, key }) in [("", server), ("peer-", peer)] {
        arguments.extend([
            format!("--{prefix}cert-file={}", certificate.display()),
            format!("--{prefix}key-file={}", key.display()),
            format!("--{prefix}client-cert-auth"),
            format!("--{prefix}trusted-ca-file={ca}"),
        ]);
    }
    Ok((arguments, Some(ClientTls::new(options)?)))
}
