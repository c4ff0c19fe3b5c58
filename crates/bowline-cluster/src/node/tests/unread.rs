//! Peers that ask and do not read the replies.

use std::io;
use std::net::SocketAddr;

use bowline_proto::peer as proto;
use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tonic::transport::{Channel, Endpoint};

use super::hostile::{grpc, sender};
use super::*;
use crate::peer::network::Tcp;
use crate::peer::{Connection, Listener, Network};

const UNREAD_TIMEOUT: Duration = Duration::from_millis(300);

/// A network with one connection, a pipe in memory, so that a test decides how much fits into it.
#[derive(Debug)]
struct Pipe(Arc<Mutex<Option<DuplexStream>>>);

impl Network for Pipe {
    fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        let listener: Box<dyn Listener> = Box::new(Pipe(self.0.clone()));
        async { Ok(listener) }.boxed()
    }

    fn channel(&self, endpoint: Endpoint) -> Channel {
        Tcp.channel(endpoint)
    }

    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Tcp.connect(url)
    }
}

impl Listener for Pipe {
    fn address(&self) -> io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 1).into())
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Connection>, SocketAddr)>> {
        async {
            let stream = self.0.lock().take();
            match stream {
                Some(stream) => Ok((Box::new(stream) as Box<dyn Connection>, self.address()?)),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

/// The head of a request; `is_all` if it has no body.
fn request(stream: u32, method: &str, is_all: bool) -> Vec<u8> {
    let path = format!("/bowline.peer.v1.Peer/{method}");
    // POST, http, and what HPACK calls literals without indexing.
    let mut head = vec![0x83, 0x86];
    for (name, value) in [
        (&b"\x04"[..], path.as_str()),
        (b"\x01", "one"),
        (b"\x0f\x10", "application/grpc"),
    ] {
        head.extend(name);
        head.push(u8::try_from(value.len()).unwrap());
        head.extend(value.as_bytes());
    }
    let flags = if is_all { 0b101 } else { 0b100 };
    frame(1, flags, stream, &head)
}

/// A peer that kept sending and read nothing held its connection for ever, and with it what it had sent and the
/// replies: the pings are for connections on which nothing arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_takes_no_bytes_is_ended() {
    const PIPE_BYTES: usize = 256;
    let (mut peer, member) = duplex(PIPE_BYTES);
    let disk = SimDisk::new();
    let mut config = config("one", &disk);
    config.peers.network = Arc::new(Pipe(Arc::new(Mutex::new(Some(member)))));
    config.peers.keep_alive_interval = Duration::from_millis(200);
    config.peers.keep_alive_timeout = Duration::from_millis(300);
    config.peers.port.unread_timeout = UNREAD_TIMEOUT;
    let node = start(&config).await;
    let hello = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &frame(4, 0, 0, &[])[..],
    ]
    .concat();
    peer.write_all(&hello).await.unwrap();
    // The member's settings, and its receipt for the peer's: else it would wait to send those, and would not read.
    let receipt = frame(4, 1, 0, &[]);
    let mut read = Vec::new();
    while !read.windows(receipt.len()).any(|found| found == receipt) {
        let some = tokio::time::timeout(PATIENCE, peer.read_buf(&mut read)).await;
        assert!(some.expect("it answers").unwrap() > 0);
    }
    // A message that has begun, and requests whose refusals fill the pipe.
    peer.write_all(&request(1, "Append", false)).await.unwrap();
    let begun = frame(0, 0, 1, &[0, 0, 1, 0, 0]);
    peer.write_all(&begun).await.unwrap();
    for stream in (3..).step_by(2).take(40) {
        peer.write_all(&request(stream, "Members", true))
            .await
            .unwrap();
    }
    let trickling = async {
        while peer.write_all(&frame(0, 0, 1, b"x")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, trickling).await;
    ended.expect("a connection that takes no bytes stays");
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), PIPE_BYTES, "the replies fill the pipe");
    surely(&node.client(), &put("a", "1")).await;
    node.shutdown().await.unwrap();
}

/// A peer that answered pings and opened no window for the replies held all requests that a connection may have, for
/// ever. Those that wait for the member are not ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_for_which_the_peer_opens_no_window_ends_its_connection() {
    let disk = SimDisk::new();
    let mut config = config("one", &disk);
    config.peers.port.unread_timeout = UNREAD_TIMEOUT;
    let node = start(&config).await;
    let client = node.client();
    eventually("it leads", || client.core().is_leading()).await;
    let ask = || proto::MembersRequest {
        sender: Some(sender(&client, &client)),
        ..proto::MembersRequest::default()
    };
    let mut good = grpc(&node).await;
    let mut waiting = good.clone();
    let waiting = waiting.append(futures_util::stream::pending());
    let mut waiting = std::pin::pin!(waiting);
    assert!((&mut waiting).now_or_never().is_none());
    let url = format!("http://{}", node.peer_addresses()[0]);
    let closed = Endpoint::from_shared(url).unwrap();
    let closed = closed.initial_stream_window_size(0).connect_lazy();
    let closed = GrpcClient::new(closed);
    for _ in 0..2 {
        let mut asked = Vec::new();
        for _ in 0..10 {
            let mut closed = closed.clone();
            let request = ask();
            asked.push(tokio::spawn(async move { closed.members(request).await }));
        }
        for asked in asked {
            let ended = tokio::time::timeout(PATIENCE, asked).await;
            let ended = ended.expect("a reply that is not read stays").unwrap();
            ended.expect_err("there is no room for it");
        }
    }
    good.members(ask()).await.expect("it reads");
    match waiting.as_mut().now_or_never() {
        None => {}
        Some(replies) => {
            let mut replies = replies.expect("the head of the replies").into_inner();
            assert!(replies.message().now_or_never().is_none(), "it was ended");
        }
    }
    surely(&client, &put("a", "1")).await;
    drop(client);
    node.shutdown().await.unwrap();
}
