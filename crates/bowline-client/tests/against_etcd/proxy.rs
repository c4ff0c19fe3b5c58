//! A connection that can be cut at a chosen moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Passes bytes on between a client and a server.
pub(crate) struct Proxy {
    pub(crate) endpoint: String,
    control: Arc<Control>,
}

#[derive(Default)]
struct Control {
    /// The next bytes of the server are thrown away, and the connection with them.
    cut_at_reply: AtomicBool,
    connections: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn to(server: String) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let control = Arc::new(Control::default());
        let shared = Arc::clone(&control);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, server.clone(), Arc::clone(&shared)));
            }
        });
        Proxy { endpoint, control }
    }

    /// Lets the next request through, and loses its answer with the connection.
    pub(crate) fn cut_at_next_reply(&self) {
        self.control.cut_at_reply.store(true, Ordering::SeqCst);
    }

    pub(crate) fn connections(&self) -> usize {
        self.control.connections.load(Ordering::SeqCst)
    }
}

async fn pass(mut client: TcpStream, server: String, control: Arc<Control>) {
    let Ok(mut server) = TcpStream::connect(&server).await else {
        return;
    };
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            sent = client.read(&mut up) => match sent {
                Ok(count) if count > 0 => {
                    if server.write_all(&up[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            received = server.read(&mut down) => match received {
                Ok(count) if count > 0 => {
                    let is_reply = has_reply(&down[..count]);
                    if is_reply && control.cut_at_reply.swap(false, Ordering::SeqCst) {
                        return;
                    }
                    if client.write_all(&down[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

/// Whether frames of data or headers are among these, not only what connections say to each other. Each
/// read begins with a frame: servers write whole ones.
fn has_reply(mut frames: &[u8]) -> bool {
    while let [a, b, c, kind, ..] = frames {
        if *kind <= 1 {
            return true;
        }
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        frames = frames.get(9 + length..).unwrap_or_default();
    }
    false
}
