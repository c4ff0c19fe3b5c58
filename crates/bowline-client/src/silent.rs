//! A server for tests that takes requests and never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// Starts one that ends each connection once a request with `mark` in it has come. Gives its address, and how
/// many connections there were.
pub(crate) async fn silent_server(mark: &'static [u8]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut bytes = Vec::new();
            while !bytes.windows(mark.len()).any(|part| part == mark) {
                if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                    break;
                }
            }
        }
    });
    (address, taken)
}
