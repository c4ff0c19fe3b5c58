//! TLS between members: a cluster of three, whose certificates are bound to them and replaced while they serve.

use std::fs;
use std::time::{Duration, Instant};

use bowline_client::{Client, MemberId, ReadLevel};
use bowline_server::config::{Config, Layers};
use bowline_server::{ServeError, Server};
use bowline_testing::ports::free_ports;
use bowline_tls::Request;

use crate::tls::Certificates;

/// The members listen on addresses of the loopback network that are theirs alone.
fn host(member: usize) -> String {
    format!("127.0.0.{}", 2 + member)
}

struct Member {
    server: Server,
    _data: tempfile::TempDir,
}

/// The settings of a member of three. Its certificate is `m<member>`, unless another is named.
fn settings(
    certificates: &Certificates,
    port: u16,
    member: usize,
    certificate: &str,
    data_dir: &str,
) -> Vec<(&'static str, String)> {
    let url = |member: usize| format!("https://{}:{port}", host(member));
    let all: Vec<_> = { (0..3).map(|member| format!("m{member}={}", url(member))) }.collect();
    vec![
        ("name", format!("m{member}")),
        ("data-dir", data_dir.to_owned()),
        ("listen-client-urls", "http://127.0.0.1:0".to_owned()),
        ("listen-peer-urls", url(member)),
        ("initial-advertise-peer-urls", url(member)),
        ("initial-cluster", all.join(",")),
        (
            "peer-cert-file",
            certificates.file(&format!("{certificate}.crt")),
        ),
        (
            "peer-key-file",
            certificates.file(&format!("{certificate}.key")),
        ),
        ("peer-client-cert-auth", "true".to_owned()),
        ("peer-trusted-ca-file", certificates.file("ca.crt")),
    ]
}

async fn start(settings: Vec<(&'static str, String)>) -> Result<Server, ServeError> {
    let mut layers = Layers::default();
    for (key, value) in settings {
        layers.add_flag(key, value).unwrap();
    }
    Server::start(Config::from_layers(&layers).unwrap()).await
}

/// Starts three members, each with the certificate that is named for it.
async fn cluster(certificates: &Certificates, names: [&str; 3]) -> Vec<Member> {
    let port = free_ports(1);
    let starting = (0..3).map(|member| {
        let data = tempfile::tempdir().unwrap();
        let data_dir = data.path().join("data").display().to_string();
        let settings = settings(certificates, port, member, names[member], &data_dir);
        async move {
            let server = start(settings).await.unwrap();
            Member {
                server,
                _data: data,
            }
        }
    });
    futures_all(starting).await
}

/// Runs them at the same time: founders wait for each other.
async fn futures_all<T: Send + 'static>(
    all: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = all.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.unwrap());
    }
    done
}

fn client(members: &[Member]) -> Client {
    let all = members
        .iter()
        .map(|member| member.server.addresses()[0].to_string());
    let client = Client::builder()
        .endpoints(all)
        .request_timeout(Duration::from_secs(20));
    client.connect_lazy().unwrap()
}

async fn served(client: &Client, key: &str) {
    let begun = Instant::now();
    while let Err(error) = client.put(key.to_owned(), "v").await {
        assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether a member has a key, by its own state.
async fn has(member: &Member, key: &str) -> bool {
    let client = client(std::slice::from_ref(member));
    let read = client.get(key.to_owned()).level(ReadLevel::Eventual).await;
    read.is_ok_and(|read| !read.entries.is_empty())
}

async fn wait_for(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn issue(certificates: &Certificates) {
    for member in 0..3 {
        let request = Request::peer(format!("m{member}"), [host(member)]);
        certificates.issue(&request, &format!("m{member}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_speak_tls_and_take_new_certificates_without_a_failed_call() {
    let certificates = Certificates::new();
    issue(&certificates);
    let members = cluster(&certificates, ["m0", "m1", "m2"]).await;
    let client = client(&members);
    served(&client, "first").await;
    // New certificates for all, and a transfer of the lead, which makes connections in the other direction.
    for round in 0..3 {
        issue(&certificates);
        for member in &members {
            member.server.reload_certificates();
        }
        let status = client.status().await.unwrap();
        let leader = status.leader.unwrap();
        let listed = client.members(ReadLevel::Linearizable).await.unwrap();
        let next: Vec<MemberId> = { listed.members.iter() }
            .map(|member| member.id)
            .filter(|id| *id != leader)
            .collect();
        // It may be refused while the next leader catches up.
        let _ = client.move_leader(next[round % 2]).await;
        for number in 0..20 {
            let key = format!("k/{round}/{number}");
            client.put(key, "v").await.expect("no call fails");
        }
    }
    for (number, member) in members.iter().enumerate() {
        wait_for(&format!("member {number} follows"), async || {
            has(member, "k/2/19").await
        })
        .await;
    }
    for member in members {
        member.server.shutdown().await.unwrap();
    }
}

/// A certificate of the cluster's CA that is another member's, or only a client's: nobody listens to it, whatever it says
/// its name is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_cannot_speak_in_the_name_of_another() {
    let certificates = Certificates::new();
    issue(&certificates);
    let port = free_ports(1);
    let data: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let data_dir = |member: usize| data[member].path().join("data").display().to_string();
    let begin = |member: usize, certificate: &str| {
        start(settings(
            &certificates,
            port,
            member,
            certificate,
            &data_dir(member),
        ))
    };
    let begun = futures_all((0..3).map(|member| begin(member, &format!("m{member}")))).await;
    let mut servers: Vec<Option<Server>> =
        begun.into_iter().map(|one| Some(one.unwrap())).collect();
    let address = |servers: &[Option<Server>], member: usize| {
        servers[member].as_ref().unwrap().addresses()[0].to_string()
    };
    let to = |addresses: Vec<String>| {
        let client = Client::builder().endpoints(addresses);
        client
            .request_timeout(Duration::from_secs(20))
            .connect_lazy()
            .unwrap()
    };
    let others = to(vec![address(&servers, 0), address(&servers, 1)]);
    served(&others, "first").await;
    // The third one comes back with the certificate of the second.
    servers[2].take().unwrap().shutdown().await.unwrap();
    served(&others, "meanwhile").await;
    servers[2] = Some(begin(2, "m1").await.unwrap());
    let third = to(vec![address(&servers, 2)]);
    let own = |key: &'static str| {
        let third = third.clone();
        async move {
            third
                .get(key)
                .level(ReadLevel::Eventual)
                .await
                .unwrap()
                .entries
                .len()
        }
    };
    served(&others, "later").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Nobody reaches it, as its certificate is for another host; and nobody hears it.
    assert_eq!(own("later").await, 0);
    let linearizable = Client::builder()
        .endpoints([address(&servers, 2)])
        .request_timeout(Duration::from_secs(3));
    assert!(
        linearizable
            .connect_lazy()
            .unwrap()
            .get("later")
            .await
            .is_err()
    );
    // The others stay as they were, and take no term from it.
    served(&others, "undisturbed").await;
    // With its own certificate it is a member again, without a restart.
    let right = |name: &str, ending: &str| {
        fs::read(certificates.file(&format!("{name}.{ending}"))).unwrap()
    };
    servers[2].take().unwrap().shutdown().await.unwrap();
    certificates.issue(&Request::peer("m2", [host(0)]), "third");
    servers[2] = Some(begin(2, "third").await.unwrap());
    for ending in ["crt", "key"] {
        fs::write(
            certificates.file(&format!("third.{ending}")),
            right("m2", ending),
        )
        .unwrap();
    }
    servers[2].as_ref().unwrap().reload_certificates();
    let third = to(vec![address(&servers, 2)]);
    wait_for("the third member follows", async || {
        let read = third.get("undisturbed").level(ReadLevel::Eventual).await;
        read.is_ok_and(|read| read.entries.len() == 1)
    })
    .await;
    for server in servers.into_iter().flatten() {
        server.shutdown().await.unwrap();
    }
}

/// As etcd's: encrypted, and nobody is verified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_make_their_own_certificates_for_a_trial() {
    let port = free_ports(1);
    let url = |member: usize| format!("https://{}:{port}", host(member));
    let all: Vec<_> = (0..3)
        .map(|member| format!("m{member}={}", url(member)))
        .collect();
    let starting = (0..3).map(|member| {
        let data = tempfile::tempdir().unwrap();
        let settings = vec![
            ("name", format!("m{member}")),
            ("data-dir", data.path().join("data").display().to_string()),
            ("listen-client-urls", "http://127.0.0.1:0".to_owned()),
            ("listen-peer-urls", url(member)),
            ("initial-advertise-peer-urls", url(member)),
            ("initial-cluster", all.join(",")),
            ("peer-auto-tls", "true".to_owned()),
        ];
        async move {
            let server = start(settings).await.unwrap();
            Member {
                server,
                _data: data,
            }
        }
    });
    let members = futures_all(starting).await;
    served(&client(&members), "k").await;
    for member in members {
        member.server.shutdown().await.unwrap();
    }
}
