//! Connections to the peer port that are silent, that begin what they do not end, or that send only what is refused.

use bowline_proto::peer as proto;
use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::Channel;

use super::super::*;
use super::{grpc, sender};

/// Connections to the peer port were neither charged nor counted: one machine could take every file
/// descriptor of a member. Silent ones stayed.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_bounded_and_ended() {
    let three = Three::start(|config| {
        config.peers.port.connections_per_address_max = 40;
        config.peers.port.preface_timeout = Duration::from_millis(500);
    })
    .await;
    let leader = three.leader().await;
    let address = three.nodes[leader].as_ref().unwrap().peer_addresses()[0];
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    // Clients are still served.
    surely(&three.client(leader), &put("a", "1")).await;
    let mut read = Vec::new();
    for stream in &mut crowd {
        // The end of the connection, refused or closed, whatever the server sent before.
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
        let _ = ended.expect("a silent connection stays");
    }
    surely(&three.client(leader), &put("b", "1")).await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// What begins a frame or a head and does not end it is ended by the pings, which nobody can answer there. There was no test of
/// that on the peer port.
#[tokio::test(flavor = "multi_thread")]
async fn heads_that_never_end_are_ended() {
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let disk = SimDisk::new();
    let mut config = config("one", &disk);
    config.peers.keep_alive_interval = Duration::from_millis(200);
    config.peers.keep_alive_timeout = Duration::from_millis(300);
    let node = start(&config).await;
    let address = node.peer_addresses()[0];
    let mut crowd = Vec::new();
    for begun in [
        // The head of a frame, a part of its payload, and a frame after which another must come: HEADERS of one byte
        // that say POST, without the flag of the last one.
        &b"\0\0\x10\x01"[..],
        b"\0\0\x10\x01\x04\0\0\0\x01\x83",
        b"\0\0\x01\x01\0\0\0\0\x01\x83",
    ] {
        for _ in 0..10 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&[HELLO, begun].concat()).await.unwrap();
            crowd.push(stream);
        }
    }
    surely(&node.client(), &put("a", "1")).await;
    let mut read = Vec::new();
    for stream in &mut crowd {
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
        let _ = ended.expect("a head that does not end is waited for");
    }
    surely(&node.client(), &put("b", "1")).await;
    node.shutdown().await.unwrap();
}

/// A request that began and stayed silent lasted for ever, and the declared length of one was not limited.
#[tokio::test(flavor = "multi_thread")]
async fn silent_requests_and_giants_are_ended() {
    let disk = SimDisk::new();
    let mut config = config("one", &disk);
    config.peers.port.append_silence_timeout = Duration::from_millis(200);
    config.peers.port.silence_timeout = Duration::from_millis(200);
    config.peers.message_bytes_max = 1 << 20;
    let node = start(&config).await;
    let mut grpc = grpc(&node).await;
    let silent = grpc.append(futures_util::stream::pending()).await;
    let refused = match silent {
        Ok(replies) => replies.into_inner().message().await.expect_err("ended"),
        Err(status) => status,
    };
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    let silent = grpc.snapshot(futures_util::stream::pending()).await;
    let refused = silent.expect_err("ended");
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    let client = node.client();
    let giant = proto::ProposeRequest {
        sender: Some(sender(&client, &client)),
        term: client.core().leadership().term,
        proposal: vec![0; 2 << 20].into(),
    };
    let refused = grpc.propose(giant).await.expect_err("too large");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    surely(&client, &put("a", "1")).await;
    drop(client);
    node.shutdown().await.unwrap();
}

/// A refused request costs nearly as much as an answered one, and a stranger could send any number on one
/// connection: garbage and stray messages took a fifth of a processor from a member.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_on_which_everything_is_refused_is_closed() {
    let disk = SimDisk::new();
    let node = start(&config("one", &disk)).await;
    let client = node.client();
    eventually("it leads", || client.core().is_leading()).await;
    let address = node.peer_addresses()[0];
    let connections = Arc::new(AtomicUsize::new(0));
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", between.local_addr().unwrap());
    let counted = connections.clone();
    let passing = tokio::spawn(async move {
        loop {
            let (mut asker, _) = between.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let mut member = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut asker, &mut member).await });
        }
    });
    let mut grpc = GrpcClient::new(Channel::from_shared(url).unwrap().connect_lazy());
    let own = sender(&client, &client);
    let stray = proto::Sender {
        cluster_id: own.cluster_id + 1,
        ..own
    };
    let ask = |sender| proto::MembersRequest {
        sender: Some(sender),
        ..proto::MembersRequest::default()
    };
    // A member that is refused now and then keeps its connection.
    for _ in 0..20 {
        for _ in 0..10 {
            grpc.members(ask(stray)).await.expect_err("a stranger");
        }
        grpc.members(ask(own)).await.expect("a member");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    for _ in 0..300 {
        grpc.members(ask(stray)).await.expect_err("a stranger");
    }
    let made = connections.load(Ordering::Relaxed);
    assert!((3..=300 / 64 + 1).contains(&made), "{made} connections");
    // It reconnects, and is served. The end of the last connection may be on its way.
    let mut asked = 0;
    while grpc.members(ask(own)).await.is_err() {
        asked += 1;
        assert!(asked < 3, "a member is refused");
    }
    passing.abort();
    surely(&client, &put("a", "1")).await;
    drop(client);
    node.shutdown().await.unwrap();
}
