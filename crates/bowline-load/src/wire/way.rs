//! [`Way`]: what every connection of a load has in common besides its address.

use bowline_client::tls::ClientTls;

/// How connections come in, and who their requests are of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Way {
    /// The certificates; without them, connections are in the clear.
    pub(crate) tls: Option<ClientTls>,
    /// The token of a user, which every request has in its headers.
    pub(crate) token: Option<String>,
}
