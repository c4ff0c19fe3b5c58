//! The identity of a directory, whatever later settings say and wherever the first start ended.

use std::path::Path;
use std::sync::atomic::Ordering;

use bowline_storage::vfs::OpenMode;
use bowline_testing::{CrashImage, Images};

use super::*;

/// A founder that was started again before anything was committed read the founders from its settings.
/// Settings that named only itself made it found a cluster of one, with the id of the cluster of three.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_never_begins_a_cluster_of_its_own() {
    let urls = free_urls(3);
    let cluster = ["a", "b", "c"].into_iter().zip(&urls);
    let cluster: Vec<_> = cluster.map(|(n, u)| (n.to_owned(), u.clone())).collect();
    let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new()).collect();
    let founder = |number: usize| NodeConfig {
        listen_peer_urls: vec![urls[number].clone()],
        initial_cluster: cluster.clone(),
        ..config(&cluster[number].0, &disks[number])
    };
    let mut ids = Vec::new();
    for number in 0..3 {
        let node = start(&founder(number)).await;
        ids.push((node.client().status().member_id, number));
        node.shutdown().await.unwrap();
    }
    // The one with the lowest id is who may begin.
    ids.sort_unstable();
    let [(first_id, first_at), (_, second_at), (_, third_at)] = ids[..] else {
        unreachable!("three founders")
    };
    let alone = NodeConfig {
        initial_cluster: vec![cluster[first_at].clone()],
        advertise_peer_urls: vec![urls[first_at].clone()],
        ..founder(first_at)
    };
    for is_existing in [false, true] {
        let first = start(&NodeConfig {
            is_existing,
            ..alone.clone()
        })
        .await;
        assert_eq!(first.client().status().member_id, first_id);
        asks_in_vain(&first).await;
        assert_eq!(first.client().status().leader, None, "one of three");
        assert_eq!(first.client().members().len(), 3);
        first.shutdown().await.unwrap();
    }
    let second = start(&founder(second_at)).await;
    let first = start(&alone).await;
    // The third may hold committed entries.
    for founder in [&first, &second] {
        asks_in_vain(founder).await;
        assert_eq!(founder.client().status().leader, None, "two of three");
    }
    let third = start(&founder(third_at)).await;
    surely(&first.client(), &put("k", "all three")).await;
    for node in [first, second, third] {
        node.shutdown().await.unwrap();
    }
}

/// Waits until a founder has asked the others several times.
async fn asks_in_vain(founder: &Node) {
    let rounds = || {
        let client = founder.client();
        let counts = &client.core().counts;
        counts.admission_rounds.load(Ordering::Relaxed)
    };
    let at = rounds();
    eventually("it asks the others", || rounds() >= at + 3).await;
    assert!(founder.client().core().is_blank());
}

/// Founders start in any order and at any time, even twice: they found one cluster, in which each has the
/// incarnation of its directory.
#[tokio::test(flavor = "multi_thread")]
async fn founders_start_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let urls = free_urls(3);
        let cluster = ["a", "b", "c"].into_iter().zip(&urls);
        let cluster: Vec<_> = cluster.map(|(n, u)| (n.to_owned(), u.clone())).collect();
        let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new()).collect();
        let founder = |number: usize| NodeConfig {
            listen_peer_urls: vec![urls[number].clone()],
            initial_cluster: cluster.clone(),
            ..config(&cluster[number].0, &disks[number])
        };
        let mut nodes = Vec::new();
        for number in order {
            let node = start(&founder(number)).await;
            let incarnation = node.client().core().incarnation;
            node.shutdown().await.unwrap();
            let node = start(&founder(number)).await;
            assert_eq!(node.client().core().incarnation, incarnation);
            if nodes.len() < 2 {
                asks_in_vain(&node).await;
            }
            nodes.push(node);
        }
        surely(&nodes[0].client(), &put("k", "v")).await;
        let membership = nodes[0].client().core().membership();
        for node in &nodes {
            let client = node.client();
            let core = client.core();
            let member = membership.get_node(&core.member_id).unwrap();
            assert_eq!(member.incarnation, core.incarnation);
            assert_ne!(core.incarnation, 0);
        }
        for node in nodes {
            node.shutdown().await.unwrap();
        }
    }
}

/// A start on the directory of a running member rewrote the file `MEMBER` with what it had read a moment
/// before: a vote given in between was revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_on_a_directory_writes_nothing() {
    let disk = SimDisk::new();
    let node = start(&config("one", &disk)).await;
    let client = node.client();
    eventually("it has voted", || client.holds_lease()).await;
    let raw = disk
        .open(Path::new("db/MEMBER"), OpenMode::ReadWrite)
        .unwrap();
    // Newer than what the second start reads.
    raw.write_at(b"damage", 4096 + 100).unwrap();
    let error = Node::start(config("one", &disk)).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    let mut found = [0; 6];
    raw.read_at(&mut found, 4096 + 100).unwrap();
    assert_eq!(&found, b"damage");
    node.shutdown().await.unwrap();
}

/// Every crash point without data loss, up to `count`, and as many of the others.
fn sample(images: Vec<CrashImage>, count: usize) -> Vec<CrashImage> {
    let (whole, others): (Vec<_>, Vec<_>) = images
        .into_iter()
        .partition(|image| image.to_string().starts_with("prefix:"));
    let every = |images: Vec<CrashImage>| {
        let stride = images.len().div_ceil(count).max(1);
        images.into_iter().step_by(stride)
    };
    every(whole).chain(every(others)).collect()
}

/// A crash at each point of a first start: the directory becomes the same member's.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_cut_short_goes_on_as_the_same_member() {
    const IMAGES: usize = 45;
    let urls = free_urls(3);
    let cluster = ["a", "b", "c"].into_iter().zip(&urls);
    let cluster: Vec<_> = cluster.map(|(n, u)| (n.to_owned(), u.clone())).collect();
    let founder = |disk: &SimDisk| NodeConfig {
        listen_peer_urls: vec![urls[0].clone()],
        initial_cluster: cluster.clone(),
        ..config("a", disk)
    };
    let disk = SimDisk::new();
    let node = start(&founder(&disk)).await;
    let id = node.client().status().member_id;
    node.shutdown().await.unwrap();
    let images = Images::all(&disk.recording(), 3).collect();
    let mut unfinished = 0;
    for image in sample(images, IMAGES) {
        let crashed = image.build();
        let has = |name: &str| {
            crashed
                .metadata(&Path::new("db").join(name))
                .unwrap()
                .is_some()
        };
        unfinished += usize::from(has("MEMBER") && !has("BOWLINE"));
        let node = start(&founder(&crashed)).await;
        assert_eq!(node.client().status().member_id, id, "{image}");
        eventually("it knows the founders", || {
            node.client().members().len() == 3
        })
        .await;
        node.shutdown().await.unwrap();
    }
    assert!(unfinished > 0, "the point this is about was not hit");
}

/// The same for an embedded directory: it stays embedded with its data, or is the member's with its data.
#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_directory_survives_a_conversion_that_was_cut_short() {
    const IMAGES: usize = 45;
    let disk = SimDisk::new();
    let db = Db::builder()
        .vfs(Arc::new(disk.clone()))
        .open("db")
        .unwrap();
    for number in 0..20 {
        db.put(format!("old{number}"), "embedded").unwrap();
    }
    db.close().unwrap();
    drop(db);
    disk.mark(1);
    let first = NodeConfig {
        listen_peer_urls: free_urls(1),
        ..config("one", &disk)
    };
    let node = start(&first).await;
    node.shutdown().await.unwrap();
    let images = Images::all(&disk.recording(), 5);
    let images: Vec<_> = images.filter(|image| image.marks().contains(&1)).collect();
    let (mut embedded, mut members) = (0, 0);
    for image in sample(images, IMAGES) {
        let crashed = image.build();
        let is_member = crashed.metadata(Path::new("db/MEMBER")).unwrap().is_some();
        if !is_member {
            embedded += 1;
            let db = Db::builder().vfs(Arc::new(crashed.clone())).open("db");
            let db = db.unwrap_or_else(|error| panic!("{image}: {error}"));
            assert_eq!(&*db.get("old7").unwrap().unwrap(), b"embedded", "{image}");
            db.close().unwrap();
        } else {
            members += 1;
        }
        let config = NodeConfig {
            vfs: Arc::new(crashed.clone()),
            ..first.clone()
        };
        let node = start(&config).await;
        let client = node.client();
        surely(&client, &put("new", "served")).await;
        for number in 0..20 {
            let found = client.db().get(format!("old{number}")).unwrap();
            assert_eq!(found.as_deref(), Some(&b"embedded"[..]), "{image}");
        }
        drop(client);
        node.shutdown().await.unwrap();
    }
    assert!(embedded > 0 && members > 0, "{embedded} and {members}");
}

/// A lease of the embedded time that expired between the flush of a conversion and its end wrote to the log
/// once more: the directory could be opened neither way.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_does_not_disturb_a_conversion() {
    for pause_ms in [0, 5, 10, 20, 30] {
        let disk = SimDisk::new();
        let db = Db::builder()
            .vfs(Arc::new(disk.clone()))
            .open("db")
            .unwrap();
        let lease = db.grant_lease(Duration::from_millis(1)).unwrap();
        drop(db.put_with_lease("gone", "soon", lease));
        db.put("stays", "here").unwrap();
        db.close().unwrap();
        drop(db);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let node = start(&config("one", &disk)).await;
        let client = node.client();
        assert!(client.db().get("stays").unwrap().is_some());
        eventually("the lease ends", || {
            client.db().get("gone").unwrap().is_none()
        })
        .await;
        drop(client);
        node.shutdown().await.unwrap();
    }
}

/// Its vote shows that it has been part of a cluster; an empty database shows that it has not.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_lost_its_database_does_not_start() {
    let disk = SimDisk::new();
    let settings = config("one", &disk);
    let node = start(&settings).await;
    surely(&node.client(), &put("k", "v")).await;
    node.shutdown().await.unwrap();
    for name in disk.read_dir(Path::new("db")).unwrap() {
        let path = Path::new("db").join(&name);
        if !disk.metadata(&path).unwrap().unwrap().is_dir {
            if name != "MEMBER" {
                disk.remove_file(&path).unwrap();
            }
            continue;
        }
        for inner in disk.read_dir(&path).unwrap() {
            disk.remove_file(&path.join(inner)).unwrap();
        }
    }
    let error = Node::start(settings).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("BOWLINE") && text.contains("add it again"),
        "{text}"
    );
}

/// A founder with a lost disk would vote as if it never had: the error advises to add it anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_has_lost_its_directory_does_not_found_again() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    surely(&three.client(leader), &put("k", "v")).await;
    let lost = (leader + 1) % 3;
    let id = three.client(lost).status().member_id;
    eventually("it has said its name", || {
        let members = three.client(leader).members();
        let member = members.iter().find(|member| member.id == id);
        member.is_some_and(|member| !member.client_urls.is_empty())
    })
    .await;
    three.stop(lost).await;
    let empty = NodeConfig {
        vfs: Arc::new(SimDisk::new()),
        ..three.configs[lost].clone()
    };
    for is_existing in [false, true] {
        let again = NodeConfig {
            is_existing,
            ..empty.clone()
        };
        let error = Node::start(again).await.unwrap_err();
        assert!(matches!(error, Error::Directory { .. }), "{error}");
        assert!(error.to_string().contains("add it again"), "{error}");
    }
    // As the error advises.
    let client = three.client(leader);
    let url = three.configs[lost].listen_peer_urls[0].clone();
    client.member_remove(id).await.unwrap();
    let added = client.member_add(vec![url], false).await.unwrap();
    let joining = NodeConfig {
        is_existing: true,
        ..empty
    };
    three.nodes[lost] = Some(start(&joining).await);
    assert_eq!(three.client(lost).status().member_id, added.id);
    eventually("it votes again", || {
        let members = client.members();
        members.iter().filter(|member| !member.is_learner).count() == 3
    })
    .await;
    three.assert_equal().await;
    drop(client);
    three.shutdown().await;
}

/// A member's promise to a leader's lease is not on disk: after a restart it gives no vote before every such
/// promise is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_restarted_does_not_vote_at_once() {
    use crate::node::service::Service;
    use crate::raft::network::PeerService as _;

    let disk = SimDisk::new();
    let settings = NodeConfig {
        election_timeout: Duration::from_secs(2),
        ..config("one", &disk)
    };
    let node = start(&settings).await;
    assert!(
        Service(node.client().core().clone()).may_vote(),
        "it is new"
    );
    surely(&node.client(), &put("k", "v")).await;
    node.shutdown().await.unwrap();
    let node = start(&settings).await;
    let service = Service(node.client().core().clone());
    assert!(!service.may_vote());
    eventually("the election timeout is over", || service.may_vote()).await;
    drop(service);
    node.shutdown().await.unwrap();
}

/// Three members that started side by side made the directory above theirs at the same time: two of them ended with
/// "cannot create".
#[test]
fn members_side_by_side_make_the_directory_above_them() {
    use bowline_storage::vfs::OsVfs;

    use crate::node::parents::make_parents;

    let place = tempfile::tempdir().unwrap();
    for round in 0..300 {
        let above = place.path().join(round.to_string()).join("kept");
        let all = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let (above, all) = (&above, &all);
                scope.spawn(move || {
                    all.wait();
                    make_parents(&OsVfs, &above.join(name)).unwrap();
                });
            }
        });
        assert!(above.is_dir());
    }
}

/// A process that was killed just after it had created a directory above its own left a name that was not on the disk. The
/// next one found the directory there and did not flush the name: a power loss took the member with its votes and data.
#[test]
fn a_directory_above_that_a_killed_process_has_made_is_made_durable() {
    use crate::node::parents::make_parents;

    let data_dir = Path::new("all/of/them/db");
    let disk = SimDisk::new();
    make_parents(&disk, data_dir).unwrap();
    let recording = disk.recording();
    assert!(recording.len() >= 6, "three directories, three flushes");
    for point in 0..=recording.len() {
        let killed = SimDisk::killed_at(&recording, point);
        make_parents(&killed, data_dir).unwrap();
        let left = killed.after_power_loss();
        assert!(
            left.paths().contains(&"all/of/them".to_owned()),
            "killed at point {point}: {:?}",
            left.paths()
        );
    }
}
