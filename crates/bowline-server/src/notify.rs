//! Messages to the service manager that started this process: the protocol of `sd_notify(3)`.
//!
//! systemd names a datagram socket in `NOTIFY_SOCKET` for a unit of `Type=notify`. Each message is one datagram with a
//! line `NAME=value` for each fact. Without the variable nobody listens, and nothing is sent. A manager that does not
//! take a message does not stop the server: the failure is logged.
//!
//! With `WatchdogSec=` in the unit, `WATCHDOG_USEC` is the time after which a silent process counts as hung. A message
//! is sent twice as often.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// The service manager, if there is one that listens.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog_interval: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    pub(crate) fn from_environment() -> ServiceManager {
        let socket = env::var_os("NOTIFY_SOCKET")
            .filter(|name| !name.is_empty())
            .and_then(|name| {
                open(&name)
                    .inspect_err(|error| {
                        tracing::warn!(%error, socket = ?name, "the service manager cannot be notified");
                    })
                    .ok()
            });
        let usec = env::var("WATCHDOG_USEC").ok();
        let pid = env::var("WATCHDOG_PID").ok();
        let watchdog_interval = match &socket {
            Some(_) => watchdog_interval(usec.as_deref(), pid.as_deref(), std::process::id()),
            None => None,
        };
        ServiceManager {
            socket,
            watchdog_interval,
        }
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// The server serves. `status` is one line for people.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The server shuts down.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing the requests under way");
    }

    /// Shows again and again, where the manager asks for it, that the threads of the server still run. Ends with them.
    pub(crate) async fn keep_watchdog(self: Arc<ServiceManager>) {
        let Some(interval) = self.watchdog_interval else {
            return;
        };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(interval).await;
        }
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, message, "the service manager did not take a message");
        }
    }
}

/// A path, or after `@` a name of Linux's abstract namespace.
fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that reads nothing loses messages, and the server goes on.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// Half of the time that the manager waits, if it is this process that it watches.
fn watchdog_interval(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != own_pid.to_string()) {
        return None;
    }
    let usec = usec?.parse().ok().filter(|usec| *usec > 1)?;
    Some(Duration::from_micros(usec) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_kept_by_the_process_that_is_watched() {
        let every = |usec, pid| watchdog_interval(usec, pid, 7);
        let half = Some(Duration::from_secs(1));
        assert_eq!(every(Some("2000000"), Some("7")), half);
        assert_eq!(every(Some("2000000"), None), half);
        assert_eq!(every(Some("2000000"), Some("8")), None);
        assert_eq!(every(None, Some("7")), None);
        for nonsense in ["", "0", "1", "-5", "soon"] {
            assert_eq!(every(Some(nonsense), None), None, "{nonsense}");
        }
    }
}
