//! Members of a cluster: what a server refuses of any client, and the command that starts a new member.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bowline_testing::ports::free_ports;

use super::Place;
use super::serve::{terminate, with_server_of};

/// The status line and the body of the reply to a JSON request.
fn post(at: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// A server without certificates for members took them, and could not reach the new member.
#[test]
fn a_server_refuses_peer_urls_with_tls() {
    let place = Place::new();
    with_server_of(&place, "d", "", |at, _| {
        let members = || place.json(&format!("member list --endpoints {at}"));
        let before = members();
        let id = before[0]["member"].as_str().unwrap();
        let id = u64::from_str_radix(id, 16).unwrap();
        let with_tls = r#""peerURLs": ["http://10.0.0.4:2380", "https://10.0.0.4:2380"]"#;
        for (path, body) in [
            ("add", format!("{{{with_tls}}}")),
            ("update", format!("{{\"ID\": \"{id}\", {with_tls}}}")),
        ] {
            let reply = post(at, &format!("/v3/cluster/member/{path}"), &body);
            assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
            assert!(reply.contains("\"code\":3"), "{reply}");
            assert!(
                reply.contains("peer URLs must start with http://"),
                "{reply}"
            );
        }
        assert_eq!(members(), before);
    });
}

/// A server that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        terminate(&self.0);
        let _ = self.0.wait();
    }
}

/// The printed command left out the members that have not been started.
#[test]
fn the_command_for_a_new_member_names_every_member() {
    let place = Place::new();
    with_server_of(&place, "first", "", |at, _| {
        let first = free_ports(2);
        let url = format!("http://127.0.0.1:{}", first + 1);
        // Nobody is there.
        let waiting = "http://127.0.0.1:1";
        let added = place.json(&format!("member add {waiting} --learner --endpoints {at}"));
        let learner = added.iter().find(|member| member["learner"] == true);
        let learner = learner.unwrap()["member"].as_str().unwrap().to_owned();
        let printed = place.ok(&format!("member add {url} --name second --endpoints {at}"));
        let begin = printed.find("bowline serve").expect(&printed);
        let end = printed[begin..].find("\n\n").expect(&printed);
        let line = printed[begin..begin + end].replace('\\', "");
        let mut words = line.split_whitespace().skip(1);
        let cluster = words.find(|word| word.contains('=')).expect(&line);
        let cluster: Vec<&str> = cluster.split(',').collect();
        let [default, member, second] = &cluster[..] else {
            panic!("{line}");
        };
        assert!(default.starts_with("default=http://127.0.0.1:"), "{line}");
        assert_eq!(*member, format!("member-{learner}={waiting}"));
        assert_eq!(*second, format!("second={url}"));

        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let mut second = place.command(&words);
        second.stdout(Stdio::null()).stderr(Stdio::null());
        let _second = Started(second.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        let list = format!("member list --endpoints {at}");
        loop {
            let members = place.json(&list);
            if members.iter().any(|member| member["name"] == "second") {
                break;
            }
            assert!(Instant::now() < deadline, "it did not start: {members:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}
