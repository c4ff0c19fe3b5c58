//! What a server tells the service manager that started it, on a socket that the test owns.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bowline_testing::ports::free_ports;

use super::Place;
use super::serve::terminate;

/// A service manager: the socket, and its name as `NOTIFY_SOCKET` has it.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn at(place: &Place) -> Manager {
        let path = place.path("notify");
        Manager {
            socket: UnixDatagram::bind(&path).unwrap(),
            name: path.to_str().unwrap().to_owned(),
        }
        .with_deadline()
    }

    /// As systemd has it where no directory is at hand.
    fn without_a_file() -> Manager {
        let name = format!("bowline-test-{}-{}", std::process::id(), free_ports(1));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Manager {
            socket: UnixDatagram::bind_addr(&address).unwrap(),
            name: format!("@{name}"),
        }
        .with_deadline()
    }

    fn with_deadline(self) -> Manager {
        let deadline = Some(Duration::from_secs(60));
        self.socket.set_read_timeout(deadline).unwrap();
        self
    }

    /// The next message.
    fn message(&self) -> String {
        let mut bytes = [0; 1024];
        let length = self.socket.recv(&mut bytes).expect("a message in time");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// Fails if there is a message.
    fn has_none(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let mut bytes = [0; 1024];
        let received = self.socket.recv(&mut bytes).map(|n| bytes[..n].to_vec());
        let error = received.expect_err("no message");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

/// `bowline serve` on free ports: the command, and the address of its clients.
fn serve(place: &Place, socket: &str, rest: &str) -> (Command, String) {
    let port = free_ports(8);
    let peer = format!("http://127.0.0.1:{}", port + 1);
    let line = format!(
        "serve --name a --listen-client-urls http://127.0.0.1:{port} --listen-peer-urls {peer} \
         --initial-advertise-peer-urls {peer} --initial-cluster a={peer}{rest}"
    );
    let words: Vec<_> = line.split_whitespace().collect();
    let mut command = place.command(&words);
    command.env("NOTIFY_SOCKET", socket).stderr(Stdio::null());
    (command, format!("127.0.0.1:{port}"))
}

/// Does not outlive its test.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Server {
        Server(command.spawn().unwrap())
    }

    fn stop(&mut self) {
        terminate(&self.0);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_is_ready_when_it_serves_and_says_when_it_stops() {
    for is_abstract in [false, true] {
        let place = Place::new();
        let manager = match is_abstract {
            true => Manager::without_a_file(),
            false => Manager::at(&place),
        };
        let (mut command, at) = serve(&place, &manager.name, "");
        let mut server = Server::start(&mut command);
        let status = format!("READY=1\nSTATUS=clients are served on {at}");
        assert_eq!(manager.message(), status);
        // At once, without another try.
        place.ok(&format!("put k v --endpoints {at}"));
        server.stop();
        let stopping = manager.message();
        assert!(stopping.starts_with("STOPPING=1\nSTATUS="), "{stopping}");
        manager.has_none();
    }
}

/// Members start one after the other: the first of them would never be ready if it waited for the rest.
#[test]
fn a_member_is_ready_when_its_client_port_answers_though_it_is_alone() {
    let place = Place::new();
    let manager = Manager::at(&place);
    let nobody = format!(",b=http://127.0.0.1:{}", free_ports(1));
    let (mut command, at) = serve(&place, &manager.name, &nobody);
    let mut server = Server::start(&mut command);
    assert!(manager.message().starts_with("READY=1\n"));
    let status = place.json(&format!("endpoint status --endpoints {at}"));
    assert_eq!(status.len(), 1, "{status:?}");
    place.fails(&format!("endpoint health --endpoints {at}"), 9);
    server.stop();
    assert!(manager.message().starts_with("STOPPING=1\n"));
}

#[test]
fn a_server_that_does_not_start_is_never_ready() {
    let place = Place::new();
    let manager = Manager::at(&place);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let words = ["serve", "--listen-client-urls", &url];
    let mut command = place.command(&words);
    command.env("NOTIFY_SOCKET", &manager.name);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    manager.has_none();
}

#[test]
fn the_watchdog_hears_from_the_server_that_it_watches() {
    let place = Place::new();
    let manager = Manager::at(&place);
    let (mut command, _) = serve(&place, &manager.name, "");
    command.env("WATCHDOG_USEC", "200000");
    let mut server = Server::start(&mut command);
    assert!(manager.message().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(manager.message(), "WATCHDOG=1");
    }
    server.stop();
}

#[test]
fn a_service_manager_that_is_gone_stops_no_server() {
    let place = Place::new();
    let (mut command, at) = serve(&place, "/no/such/socket", "");
    command.stderr(Stdio::piped());
    let mut server = Server::start(&mut command);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while place.run(&format!("put k v --endpoints {at}")).code != 0 {
        assert!(std::time::Instant::now() < deadline, "it does not serve");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop();
    let log = std::io::read_to_string(server.0.stderr.take().unwrap()).unwrap();
    assert!(log.contains("did not take a message"), "{log}");
}
