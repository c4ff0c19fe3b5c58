//! Files that are bad for a while, and revocation lists that stand in each other's way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::files::Content;
use crate::reload::Reloading;

/// A certificate that was put in place before it was valid was looked at twice and then never again: the old one was served
/// until it had expired.
#[test]
fn a_certificate_that_is_not_valid_yet_is_taken_once_it_is() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.server_options()).unwrap();
    let soon = Request {
        valid_from_seconds: 5,
        valid_seconds: 3600,
        ..Request::server("m1", ["localhost"])
    };
    trial.issue(&soon, "server");
    let begun = Instant::now();
    let mut refused = 0;
    let taken = loop {
        match server.look() {
            Ok(looked) => break looked,
            Err(error) => {
                assert!(matches!(error, TlsError::NotYetValid { .. }), "{error}");
                refused += 1;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody looked");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(taken, Looked::Taken);
    assert!(refused > 2, "{refused} looks");
    let counts = server.counts();
    assert_eq!((counts.sets_taken, counts.sets_refused), (1, 1));
}

/// What could not be read at two looks, as while the process had no descriptors left, was never read again.
#[test]
fn files_that_could_not_be_read_for_a_while_are_read_afterwards() {
    const OUT_OF_FILES: i32 = 24;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("a file");
    fs::write(&path, "old").unwrap();
    // How many times more it cannot be read.
    let failures = Arc::new(AtomicUsize::new(0));
    let left = failures.clone();
    let make = move |contents: &[Content]| {
        let one_less = |left: usize| left.checked_sub(1);
        let failing = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        match failing {
            Ok(_) => Err(TlsError::Unreadable {
                path: contents[0].path().to_owned(),
                source: io::Error::from_raw_os_error(OUT_OF_FILES),
            }),
            Err(_) => Ok(contents[0].bytes().to_vec()),
        }
    };
    let reloading = Reloading::new("files", vec![path.clone()], make).unwrap();
    fs::write(&path, "newer").unwrap();
    failures.store(20, Ordering::Relaxed);
    for _ in 0..20 {
        assert!(reloading.look(false).is_err());
    }
    assert_eq!(reloading.refused(), 1, "it is reported once");
    assert_eq!(reloading.look(false).unwrap(), Looked::Taken);
    assert_eq!(reloading.current().as_slice(), b"newer");
    assert_eq!(reloading.look(false).unwrap(), Looked::Unchanged);
}

/// Only the first of two lists of one CA counts. Whoever appended the newer list to the file was told that it was taken, and
/// what it revokes came in.
#[tokio::test]
async fn two_lists_of_one_issuer_do_not_hide_each_other() {
    let trial = Trial::new();
    let serial = PeerIdentity::of_certificate(&trial.issued_der("client"))
        .unwrap()
        .serial;
    let (first, second) = (
        trial.authority.revoke(&[]).unwrap(),
        trial.authority.revoke(&[&serial]).unwrap(),
    );
    let list = trial.path().join("list.pem");
    fs::write(&list, &first).unwrap();
    let options = || ServerOptions {
        revocations: Some(list.clone()),
        ..trial.mutual_options()
    };
    let server = ServerTls::new(options()).unwrap();
    for both in [format!("{first}{second}"), format!("{second}{first}")] {
        fs::write(&list, both).unwrap();
        for error in [
            ServerTls::new(options()).unwrap_err(),
            server.reload().unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(matches!(error, TlsError::RepeatedList { .. }), "{text}");
            assert!(
                text.contains("CN=a CA") && text.contains("list.pem"),
                "{text}"
            );
        }
    }
    // One list of each of two CAs.
    let other = Authority::generate("another CA", 10).unwrap();
    let cas = [&trial.authority, &other].map(|ca| ca.own().certificate.as_str());
    fs::write(trial.path().join("ca.crt"), cas.concat()).unwrap();
    fs::write(&list, format!("{}{second}", other.revoke(&[]).unwrap())).unwrap();
    assert_eq!(server.reload().unwrap(), Looked::Taken);
    let client = ClientTls::new(trial.client_options()).unwrap();
    let (accepted, connected) = handshake(&server, &client, "localhost").await;
    assert!(accepted.is_err());
    assert!(said(&connected).contains("was revoked"), "{connected:?}");
}

/// A list was taken for that of every CA with its issuer's name, and barred all clients of the others: of a CA that had got a
/// new key, for example.
#[tokio::test]
async fn a_list_of_a_ca_does_not_bar_the_clients_of_its_namesake() {
    let trial = Trial::new();
    let list = trial.path().join("list.pem");
    fs::write(&list, trial.authority.revoke(&[]).unwrap()).unwrap();
    let options = || ServerOptions {
        revocations: Some(list.clone()),
        ..trial.mutual_options()
    };
    let server = ServerTls::new(options()).unwrap();
    // The same CA twice is one.
    let old = &trial.authority.own().certificate;
    let cas = trial.path().join("ca.crt");
    fs::write(&cas, format!("{old}{old}")).unwrap();
    assert_eq!(server.reload().unwrap(), Looked::Taken);
    let renewed = Authority::generate("a CA", 10).unwrap();
    fs::write(&cas, format!("{old}{}", renewed.own().certificate)).unwrap();
    for error in [
        ServerTls::new(options()).unwrap_err(),
        server.reload().unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, TlsError::SharedIssuer { .. }), "{text}");
        assert!(text.contains("a name of its own"), "{text}");
    }
    // Without a list both CAs are good.
    let client = renewed.issue(&Request::client("bob")).unwrap();
    client.write(trial.path(), "bob").unwrap();
    let client = ClientTls::new(ClientOptions {
        key_pair: Some(trial.files("bob")),
        ..trial.client_options()
    });
    let client = client.unwrap();
    let without = ServerTls::new(trial.mutual_options()).unwrap();
    handshake(&without, &client, "localhost").await.0.unwrap();
}
