//! A socket with a connection on it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::connection::{Connection, End, Sink};
use super::headers::Target;
use super::way::Way;

/// The bytes between the two sides.
enum Socket {
    Clear(TcpStream),
    /// With TLS. Boxed, as its buffers are large.
    Tls(Box<dyn Duplex>),
}

/// What TLS makes of a socket.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// A socket with a connection on it.
pub(crate) struct Link {
    socket: Socket,
    connection: Connection,
    input: Vec<u8>,
}

/// How much is read at once.
const INPUT_BYTES: usize = 64 << 10;

impl Link {
    /// Connects to `host:port`, and waits for the server's greeting.
    pub(crate) async fn connect(address: &str, targets: &[Target], way: &Way) -> io::Result<Link> {
        let connect_timeout = Duration::from_secs(5);
        let socket = tokio::time::timeout(connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
            .flatten()
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot connect to {address}: {error}"),
                )
            })?;
        socket.set_nodelay(true)?;
        let socket = match &way.tls {
            None => Socket::Clear(socket),
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let secured = tls.connect_http2(host, socket);
                let secured = tokio::time::timeout(connect_timeout, secured).await;
                let secured = secured
                    .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
                    .flatten();
                Socket::Tls(Box::new(secured.map_err(|error| {
                    let text = format!("cannot speak TLS with {address}: {error}");
                    io::Error::new(error.kind(), text)
                })?))
            }
        };
        let mut link = Link {
            socket,
            connection: Connection::new(targets, address, way),
            input: vec![0; INPUT_BYTES],
        };
        // Its limits hold from the first request on.
        tokio::time::timeout(connect_timeout, async {
            while !link.connection.is_greeted() {
                link.exchange(&mut Nobody).await?;
            }
            Ok(())
        })
        .await
        .map_err(|_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{address} does not speak HTTP/2"),
            )
        })
        .flatten()?;
        Ok(link)
    }

    /// The connection, to begin requests.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Writes what is to be written, waits until something has come, and takes it in.
    ///
    /// Can be dropped at any time.
    pub(crate) async fn exchange(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        let count = match &mut self.socket {
            Socket::Clear(socket) => {
                exchange(socket, self.connection.output(), &mut self.input).await?
            }
            Socket::Tls(stream) => {
                let (output, input) = (self.connection.output(), &mut self.input);
                poll_fn(|task| poll_exchange(&mut **stream, task, output, input)).await?
            }
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sink.arrived();
        self.connection.receive(&self.input[..count], sink)
    }
}

/// Writes, and reads what comes; gives the number of bytes read.
async fn exchange(socket: &TcpStream, output: &mut Vec<u8>, input: &mut [u8]) -> io::Result<usize> {
    loop {
        write(socket, output)?;
        let interest = if output.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        let ready = socket.ready(interest).await?;
        if !ready.is_readable() {
            continue;
        }
        match socket.try_read(input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Writes as much as the socket takes now.
fn write(socket: &TcpStream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        match socket.try_write(output) {
            Ok(count) if count == output.len() => output.clear(),
            Ok(count) => drop(output.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// [`exchange`] with TLS, where what was written waits in a buffer until the socket takes it.
fn poll_exchange(
    stream: &mut dyn Duplex,
    task: &mut Context<'_>,
    output: &mut Vec<u8>,
    input: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut stream = Pin::new(stream);
    while !output.is_empty() {
        match stream.as_mut().poll_write(task, output)? {
            Poll::Ready(count) if count == output.len() => output.clear(),
            Poll::Ready(count) => drop(output.drain(..count)),
            Poll::Pending => break,
        }
    }
    // What does not leave now does so when the socket wakes this task.
    let _ = stream.as_mut().poll_flush(task)?;
    let mut buffer = ReadBuf::new(input);
    ready!(stream.poll_read(task, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Expects nothing.
struct Nobody;

impl Sink for Nobody {
    fn arrived(&mut self) {}

    fn data(&mut self, _: u32, _: &[u8]) {}

    fn end(&mut self, _: u32, _: End) {}
}
