//! A socket with a connection on it.

use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::connection::{Connection, End, Sink};
use super::headers::Target;

/// A socket with a connection on it.
pub(crate) struct Link {
    socket: TcpStream,
    connection: Connection,
    input: Vec<u8>,
}

/// How much is read at once.
const INPUT_BYTES: usize = 64 << 10;

impl Link {
    /// Connects to `host:port`, and waits for the server's greeting.
    pub(crate) async fn connect(address: &str, targets: &[Target]) -> io::Result<Link> {
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
        let mut link = Link {
            socket,
            connection: Connection::new(targets, address),
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
        loop {
            self.write()?;
            let interest = if self.connection.output().is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.socket.ready(interest).await?;
            if !ready.is_readable() {
                continue;
            }
            match self.socket.try_read(&mut self.input) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    sink.arrived();
                    return self.connection.receive(&self.input[..count], sink);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes as much as the socket takes now.
    fn write(&mut self) -> io::Result<()> {
        let output = self.connection.output();
        while !output.is_empty() {
            match self.socket.try_write(output) {
                Ok(count) if count == output.len() => output.clear(),
                Ok(count) => drop(output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Expects nothing.
struct Nobody;

impl Sink for Nobody {
    fn arrived(&mut self) {}

    fn data(&mut self, _: u32, _: &[u8]) {}

    fn end(&mut self, _: u32, _: End) {}
}
