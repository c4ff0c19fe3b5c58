//! Servers for tests whose answers the test writes itself.

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Router;

/// Starts one with these services on a free port, until the test's runtime ends. Gives its address.
pub(crate) async fn serve(services: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(services.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}
