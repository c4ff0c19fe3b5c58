//! TLS for servers, members and clients of Bowline, by rustls.
//!
//! ```text
//!  server ──▶ gate       bounds the handshakes under way
//!    │   └──▶ begun      the first bytes, before anything is allocated
//!    │
//!  client ◀── connector  for a client of HTTP/2
//!    │
//!  reload ◀── signing    a set of files, read again when it changes; the keys of signed tokens
//!    │ └──▶ open          connections that end when their certificates are revoked
//!    │
//!  files ──▶ identity    certificates, keys, CAs, revocation lists; the names in a certificate
//!    │
//!  versions, error       authority: a CA for trials, and for tests
//! ```
//!
//! Invariants:
//!
//! - A set of files is used as a whole or not at all, and one that is bad changes nothing.
//! - A connection costs nothing but its socket until the first bytes of a handshake have arrived. Handshakes are bounded
//!   in time, in number, and by the library in their memory: no message of one may have more than 64 KiB.
//! - A certificate that is revoked ends the connections that it has, when the new list is read.
//! - Where a certificate of the other side is asked for, no session is taken up again: every handshake looks at the
//!   certificate, with the CAs and revocation lists of that moment.

#![warn(clippy::missing_errors_doc)]

mod authority;
mod begun;
mod client;
mod connector;
mod error;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod identity;
mod open;
mod reload;
mod server;
mod signing;
#[cfg(test)]
mod tests;
mod versions;

pub use authority::{Authority, Issued, Purpose, Request, self_signed};
pub use begun::Begun;
pub use client::{ClientOptions, ClientStream, ClientTls};
pub use connector::Connector;
pub use error::{HandshakeError, TlsError};
pub use files::KeyPairFiles;
pub use identity::PeerIdentity;
pub use reload::{LOOK_INTERVAL, Looked, Reload, Watching};
pub use server::{Allowed, Counts, ServerOptions, ServerStream, ServerTls};
#[doc(hidden)]
pub use signing::new_pair;
pub use signing::{SigningKeys, SigningMethod};
pub use versions::{Protocol, Version};

/// The cryptography of all of this.
fn provider() -> rustls::crypto::CryptoProvider {
    rustls::crypto::ring::default_provider()
}
