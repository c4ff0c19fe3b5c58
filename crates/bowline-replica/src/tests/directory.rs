//! The directory of a member, when it is opened: damage to its manifest is found, only a member may open it, and
//! what belongs to another state is removed.

use super::*;

#[test]
fn a_member_is_not_opened_without_its_cluster() {
    let disk = SimDisk::new();
    let mut member = Member::open(&disk, 1);
    member.run(&[txn_of(vec![Op::Put(put("k", "v"))])]);
    let db = member.replica.db();
    assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    drop(member);
    disk.open(Path::new("db/MEMBER"), OpenMode::CreateNew)
        .unwrap();
    let refused = builder(Arc::new(disk.clone())).open("db");
    assert!(matches!(
        refused,
        Err(Error::Storage(bowline_storage::Error::Member { .. }))
    ));
}

/// In a young member, the manifest's record of the start of the log was the last one. When it rotted it
/// looked torn, so the log counted as void, and the next opening discarded it with all that the member had
/// acknowledged. The same happened to the record that turns an embedded database into a member's. Found in a
/// search for edits whose loss is not detected otherwise.
#[test]
fn a_member_whose_manifest_rots_does_not_discard_its_log() {
    let mut member = Member::open(&SimDisk::new(), 1);
    member.run(&[txn_of(vec![Op::Put(put("k", "v"))])]);
    let embedded = SimDisk::new();
    let open = |path| builder(Arc::new(embedded.clone())).open(path).unwrap();
    let (db, source) = (open("db"), open("source"));
    db.put("k", "v").unwrap();
    // A copy has tables, and a log of its own behind them.
    source.put("k", "v").unwrap();
    source.checkpoint("copy").unwrap();
    let copy = open("copy");
    copy.put("k", "w").unwrap();
    assert!(refused_when_rotten(&member.disk, "db") > 20);
    refused_when_rotten(&embedded, "db");
    assert!(refused_when_rotten(&embedded, "copy") > 20);
}

/// Damages each byte of the manifest in turn: opening it as a member refuses, or finds the one entry of the
/// log. Returns the number of refusals.
fn refused_when_rotten(disk: &SimDisk, directory: &str) -> u32 {
    let names = disk.read_dir(Path::new(directory)).unwrap();
    let mut manifests = names.iter().filter(|it| it.starts_with("manifest-"));
    let manifest = Path::new(directory).join(manifests.next().unwrap());
    let mut refused = 0;
    for at in 0..disk.read(&manifest).unwrap().len() {
        let disk = disk.after_power_loss();
        let file = disk.open(&manifest, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at as u64).unwrap();
        file.write_at(&[byte[0] ^ 0x40], at as u64).unwrap();
        file.sync_data().unwrap();
        let mut found = 0;
        let options = ReplicaOptions {
            database_id: 7,
            first_file_id: 1 << 32,
            locked: &mut |_| Ok(()),
            damaged: &mut |_| Ok(false),
            visit: &mut |_, _| {
                found += 1;
                Ok(())
            },
        };
        match Replica::open(builder(Arc::new(disk)), directory, options) {
            Ok(_) => assert_eq!(found, 1, "{directory}, byte {at}"),
            Err(Error::Storage(error)) => {
                assert!(error.is_corruption(), "{directory}, byte {at}: {error}");
                refused += 1;
            }
            Err(other) => panic!("{directory}, byte {at}: {other}"),
        }
    }
    refused
}

/// A view that was saved while the directory was not a member's is gone: the member's state may get to the same
/// revision by another history, and whoever opens the directory later would believe the file.
#[test]
fn a_member_removes_a_saved_graph_view() {
    let disk = SimDisk::new();
    drop(Member::open(&disk, 1));
    let file = Path::new("db/graph-view");
    disk.open(file, OpenMode::CreateNew).unwrap();
    drop(Member::open(&disk, 1));
    assert!(disk.metadata(file).unwrap().is_none());
}

/// A directory with indexes was refused, as members did not keep them.
#[test]
fn a_member_goes_on_with_the_indexes_of_the_directory() {
    let disk = SimDisk::new();
    let db = builder(Arc::new(disk.clone())).open("db").unwrap();
    let block = |id: u128| Block::new(BlockId(id), "person").attribute("name", "Ada");
    db.transact(|tx| tx.put_block(&block(1))).unwrap();
    db.create_index("person", ["name"]).unwrap();
    Replica::end_embedded_time(&db).unwrap();
    drop(db);
    let mut member = Member::open(&disk, 1);
    assert!(member.replica.has_indexes());
    member.run(&[Command::Graph(vec![GraphWrite::PutBlock(block(2))])]);
    let db = member.replica.db();
    assert!(db.check().unwrap().is_clean());
    let graph = db.snapshot().graph();
    let found = graph
        .blocks("person")
        .filter("name", bowline::Filter::equals("Ada"));
    assert!(found.index().is_some());
    assert_eq!(found.ids().unwrap(), [1, 2].map(BlockId));
}
