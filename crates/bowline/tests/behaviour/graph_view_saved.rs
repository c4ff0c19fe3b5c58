//! The saved graph view: after a restart it answers as the trees do, or it is not believed.

use std::path::Path;
use std::sync::Arc;

use bowline::vfs::{MemoryVfs, OpenMode, Vfs, VfsFile};
use bowline::{Block, BlockId, Db, Direction, Edge};
use bowline_testing::{FaultVfs, Images, Seed, SimDisk};

use crate::support::manual;

const FILE: &str = "/db/graph-view";
const FILE_NEW: &str = "/db/graph-view.new";

fn open(vfs: &Arc<MemoryVfs>, budget: u64) -> Db {
    open_on(vfs.clone(), budget)
}

fn open_on(vfs: Arc<dyn Vfs>, budget: u64) -> Db {
    let builder = manual().graph_view_bytes(budget).vfs(vfs);
    builder.open("/db").expect("it opens")
}

fn id(number: u64) -> BlockId {
    BlockId(u128::from(number) << 64 | 7)
}

fn write(db: &Db, random: &mut fastrand::Rng) {
    let (a, b) = (id(random.u64(..6)), id(random.u64(..6)));
    let what = random.u8(..8);
    let written = db.transact(|tx| match what {
        0 => tx.delete_block(a).map(drop),
        1 => tx.put("key", "value"),
        2 | 3 => tx.delete_edge(a, "to", b).map(drop),
        _ => {
            tx.put_block(&Block::new(a, "node"))?;
            tx.put_block(&Block::new(b, "node"))?;
            tx.put_edge(&Edge::new(a, "to", b))
        }
    });
    written.expect("a write");
}

fn assert_as_trees(db: &Db, context: &str) {
    let graph = db.snapshot().graph();
    let mut wanted = Vec::new();
    let read = graph.for_each_edge(|edge| {
        wanted.push((edge.source, edge.target));
        Ok(())
    });
    read.expect("reads");
    for direction in [Direction::Out, Direction::In] {
        let mut found = Vec::new();
        for near in (0..6).map(id) {
            if !graph.has_block(near).expect("reads") {
                continue;
            }
            let row = graph.neighbors(near, direction, [""; 0]).expect("reads");
            found.extend(row.iter().map(|there| match direction {
                Direction::In => (there.id, near),
                _ => (near, there.id),
            }));
        }
        // Edges are in the order of their kinds first.
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{context}: {direction:?}");
    }
}

fn file(vfs: &MemoryVfs, path: &str) -> Arc<dyn VfsFile> {
    vfs.open(Path::new(path), OpenMode::ReadWrite)
        .expect("opens")
}

fn bytes(vfs: &MemoryVfs) -> Vec<u8> {
    let file = file(vfs, FILE);
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    assert_eq!(file.read_at(&mut bytes, 0).expect("reads"), bytes.len());
    bytes
}

fn written() -> Arc<MemoryVfs> {
    let vfs = Arc::new(MemoryVfs::default());
    let db = open(&vfs, 1 << 20);
    let mut random = fastrand::Rng::with_seed(4);
    (0..20).for_each(|_| write(&db, &mut random));
    assert!(db.build_graph_view().expect("builds"));
    db.close().expect("closes");
    vfs
}

/// Random histories with restarts, merges of the trees, and processes that never ask for the view: once a view was
/// saved, none is built again, and each answers as the trees do.
#[test]
fn a_restarted_database_answers_from_what_was_saved() {
    let mut caught_up = 0;
    for seed in crate::seeds(0..150) {
        let mut random = fastrand::Rng::with_seed(seed);
        let vfs = Arc::new(MemoryVfs::default());
        let mut is_saved = false;
        for round in 0..8 {
            let context = format!("seed {seed}, round {round}");
            let db = open(&vfs, 1 << 20);
            let before = db.revision();
            for _ in 0..random.usize(..6) {
                write(&db, &mut random);
                maybe_merge(&db, &mut random);
            }
            if random.u8(..4) > 0 {
                assert!(db.build_graph_view().expect("builds"));
                let builds = db.stats().graph_view.builds;
                assert_eq!(builds, u64::from(!is_saved), "{context}");
                caught_up += u64::from(is_saved && before != db.revision());
                is_saved = true;
                assert_as_trees(&db, &context);
            }
            for _ in 0..random.usize(..12) {
                write(&db, &mut random);
                maybe_merge(&db, &mut random);
                assert_as_trees(&db, &context);
            }
            assert!(db.check().expect("checks").is_clean());
            db.close().expect("closes");
        }
    }
    assert!(Seed::named().is_some() || caught_up > 100, "{caught_up}");
}

/// Merges drop every version that nobody may ask for.
fn maybe_merge(db: &Db, random: &mut fastrand::Rng) {
    match random.u8(..6) {
        0 => db.flush().expect("flushes"),
        1 => db.compact().expect("compacts"),
        _ => {}
    }
}

/// A flipped byte anywhere: a check lists it, the view is built, and the answers are those of the trees.
#[test]
fn a_damaged_file_is_listed_and_not_believed() {
    let vfs = written();
    let whole = bytes(&vfs);
    for at in 0..whole.len() {
        file(&vfs, FILE)
            .write_at(&[whole[at] ^ 0x10], at as u64)
            .expect("writes");
        let db = open(&vfs, 1 << 20);
        let check = db.check().expect("checks");
        let errors: Vec<_> = check.files.errors().collect();
        assert_eq!(errors.len(), 1, "byte {at}: {errors:?}");
        assert!(errors[0].to_string().contains("graph-view"), "byte {at}");
        assert!(db.build_graph_view().expect("builds"));
        assert_eq!(db.stats().graph_view.builds, 1, "byte {at}");
        assert_as_trees(&db, &format!("byte {at}"));
        // It is replaced.
        db.close().expect("closes");
        assert_eq!(bytes(&vfs), whole);
    }
}

/// The file of another database, one that is older than what the tree of edges holds, and one that is beyond the
/// database.
#[test]
fn a_file_of_another_state_is_not_believed() {
    let (vfs, other) = (written(), written());
    for (which, foreign) in [("another database", bytes(&other)), ("older", bytes(&vfs))] {
        if which == "older" {
            let db = open(&vfs, 1 << 20);
            assert!(db.build_graph_view().expect("loads"));
            db.transact(|tx| {
                tx.put_block(&Block::new(id(0), "node"))?;
                tx.put_block(&Block::new(id(5), "node"))?;
                tx.put_edge(&Edge::new(id(5), "later", id(0)))
            })
            .expect("a write");
            db.close().expect("closes");
            assert_ne!(bytes(&vfs), foreign, "a later one is saved");
        }
        file(&vfs, FILE).write_at(&foreign, 0).expect("writes");
        file(&vfs, FILE)
            .set_len(foreign.len() as u64)
            .expect("cuts");
        let db = open(&vfs, 1 << 20);
        assert!(db.build_graph_view().expect("builds"));
        assert_eq!(db.stats().graph_view.builds, 1, "{which}");
        assert_as_trees(&db, which);
        db.close().expect("closes");
    }

    // Beyond: the database of a checkpoint, which is of the same id, gets the file of a later revision.
    let db = open(&vfs, 1 << 20);
    db.checkpoint("/early").expect("a checkpoint");
    write(&db, &mut fastrand::Rng::with_seed(1));
    assert!(db.build_graph_view().expect("builds"));
    db.close().expect("closes");
    vfs.rename(Path::new(FILE), Path::new("/early/graph-view"))
        .expect("moves");
    let early = manual().vfs(vfs.clone()).open("/early").expect("it opens");
    assert!(early.build_graph_view().expect("builds"));
    assert_eq!(early.stats().graph_view.builds, 1);
    assert_as_trees(&early, "beyond");
}

/// Without memory for a view its file goes, and nothing holds history for it any more.
#[test]
fn who_keeps_no_view_removes_what_was_saved() {
    let vfs = written();
    let db = open(&vfs, 0);
    assert!(!db.build_graph_view().expect("is told"));
    let found = vfs.metadata(Path::new(FILE)).expect("looks");
    assert!(found.is_none());
    db.close().expect("closes");
    let db = open(&vfs, 1 << 20);
    assert!(db.build_graph_view().expect("builds"));
    assert_eq!(db.stats().graph_view.builds, 1);
}

/// A checkpoint has the view that was saved, and catches up from it.
#[test]
fn a_checkpoint_has_the_saved_view() {
    let vfs = written();
    let db = open(&vfs, 1 << 20);
    let mut random = fastrand::Rng::with_seed(9);
    for at in 0..10 {
        write(&db, &mut random);
        maybe_merge(&db, &mut random);
        let path = format!("/copy{at}");
        db.checkpoint(&path).expect("a checkpoint");
        let copy = manual().vfs(vfs.clone()).open(&path).expect("it opens");
        assert!(copy.build_graph_view().expect("loads"));
        assert_eq!(copy.stats().graph_view.builds, 0, "{path}");
        assert_as_trees(&copy, &path);
        write(&copy, &mut random);
        assert_as_trees(&copy, &path);
    }
}

/// A power loss at any moment between and during saves of a view, with merges of the trees: the database opens, and
/// answers as its trees do, whichever file it finds. Nearly always that file is of use.
#[test]
fn a_crash_while_saving_costs_a_build_at_most() {
    const SEED: u64 = 12;
    let disk = SimDisk::new();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut begun = None;
    for _ in 0..3 {
        let db = open_on(Arc::new(disk.clone()), 1 << 20);
        for _ in 0..8 {
            write(&db, &mut random);
            maybe_merge(&db, &mut random);
        }
        begun.get_or_insert(disk.point());
        // It is saved now, if it is built, and at the close.
        assert!(db.build_graph_view().expect("builds"));
        for _ in 0..8 {
            write(&db, &mut random);
            maybe_merge(&db, &mut random);
        }
        db.close().expect("closes");
    }
    let [mut loaded, mut built] = [0; 2];
    let begun = begun.expect("three rounds");
    for image in Images::sample_from(&disk.recording(), begun, SEED, 400) {
        let context = format!("{image:?}");
        let db = open_on(Arc::new(image.build()), 1 << 20);
        assert!(db.check().expect("checks").is_clean(), "{context}");
        if random.bool() {
            db.compact().expect("compacts");
        }
        assert!(db.build_graph_view().expect("builds"));
        match db.stats().graph_view.builds {
            0 => loaded += 1,
            _ => built += 1,
        }
        assert_as_trees(&db, &context);
        // What the crash left is in the way of nothing.
        write(&db, &mut random.clone());
        assert_as_trees(&db, &context);
        db.close().expect("closes");
    }
    assert!(loaded > 300 && built > 0, "{loaded} loaded, {built} built");
}

fn is_there(vfs: &dyn Vfs, path: &str) -> bool {
    let found = vfs.metadata(Path::new(path)).expect("looks");
    found.is_some()
}

/// A save that found the disk full left what it had written: the disk stayed full, and the database, which had had room,
/// refused writes.
#[test]
fn a_save_on_a_full_disk_takes_no_room() {
    let disk = FaultVfs::new(MemoryVfs::default());
    // Few puts are more than the log has room for.
    let small = manual().log_segment_bytes(64 << 10);
    let db = small
        .vfs(Arc::new(disk.clone()))
        .open("/db")
        .expect("opens");
    for hub in 0..8 {
        db.transact(|tx| {
            let ids = (0..1000).map(|number| id(hub * 1000 + number));
            let mut blocks = ids.clone();
            blocks.try_for_each(|id| tx.put_block(&Block::new(id, "node")))?;
            let mut edges = ids.map(|far| Edge::new(id(hub * 1000), "to", far));
            edges.try_for_each(|edge| tx.put_edge(&edge))
        })
        .expect("a write");
    }
    db.flush().expect("flushes");
    disk.limit_space(200_000);
    assert!(db.build_graph_view().expect("builds"));
    assert!(!is_there(&disk, FILE), "there was no room for it");
    assert!(!is_there(&disk, FILE_NEW));
    for at in 0..3 {
        let (key, value) = (format!("key{at}"), vec![7; 50_000]);
        db.put(key, value).expect("there is room for it");
    }
    disk.lift_space_limit();
    db.close().expect("closes");
    let db = open_on(Arc::new(disk.clone()), 1 << 30);
    assert!(is_there(&disk, FILE), "with room it is saved");
    // A copy of it that fails leaves nothing, either.
    disk.limit_space(60_000);
    db.checkpoint("/copy").expect("a checkpoint");
    assert!(!is_there(&disk, "/copy/graph-view"), "no room for it");
    assert!(!is_there(&disk, "/copy/graph-view.new"));
}

/// What a killed process had written of a view stayed until the next save, and on a full disk was in the way of
/// everything else. It goes once the view is opened, or the saved view is removed; who only reads removes nothing.
#[test]
fn what_a_killed_save_left_is_removed() {
    for budget in [1 << 20, 0] {
        let vfs = written();
        vfs.open(Path::new(FILE_NEW), OpenMode::CreateNew)
            .expect("is made");
        let reader = manual().vfs(vfs.clone()).graph_view_bytes(budget);
        let reader = reader.open_read_only("/db").expect("it opens");
        assert_eq!(reader.build_graph_view().expect("loads"), budget > 0);
        assert!(is_there(&*vfs, FILE_NEW), "a reader changes nothing");
        let db = open(&vfs, budget);
        assert_eq!(db.build_graph_view().expect("loads"), budget > 0);
        assert_eq!(db.stats().graph_view.builds, 0, "it is loaded");
        assert!(!is_there(&*vfs, FILE_NEW));
    }
}

/// Entries of the tables of edges, tombstones and old versions included.
fn edge_entries(db: &Db) -> u64 {
    let levels = &db.stats().engine.levels[2];
    levels.iter().map(|level| level.entries).sum()
}

fn edges(db: &Db) -> u64 {
    let mut count = 0;
    let read = db.snapshot().graph().for_each_edge(|_| {
        count += 1;
        Ok(())
    });
    read.expect("reads");
    count
}

/// A saved view held its revision for ever, once none was saved any more: every edge that was deleted since kept its
/// tombstone, in every merge.
#[test]
fn a_view_that_is_saved_no_more_holds_nothing() {
    type Case = (&'static str, u64, fn(&Db, &MemoryVfs));
    let cases: [Case; 3] = [
        ("outgrown", 100, |db, vfs| {
            assert!(!db.build_graph_view().expect("is told"));
            assert!(!is_there(vfs, FILE), "outgrown");
        }),
        ("too large for this process", 100, |_, _| {}),
        ("gone", 1 << 20, |_, vfs| {
            vfs.remove_file(Path::new(FILE)).expect("is removed");
        }),
    ];
    for (case, budget, then) in cases {
        let vfs = written();
        let db = open(&vfs, budget);
        then(&db, &vfs);
        for number in 10..20 {
            let (a, b) = (id(number), id(number + 1));
            let written = db.transact(|tx| {
                tx.put_block(&Block::new(a, "node"))?;
                tx.put_block(&Block::new(b, "node"))?;
                tx.put_edge(&Edge::new(a, "to", b))
            });
            written.expect("a write");
            let deleted = db.transact(|tx| tx.delete_edge(a, "to", b));
            assert!(deleted.expect("a write"));
        }
        db.put("key", "of later").expect("a write");
        db.compact().expect("compacts");
        assert_eq!(edge_entries(&db), edges(&db), "{case}");
        assert!(!is_there(&*vfs, FILE), "{case}");
        db.close().expect("closes");
        let db = open(&vfs, 1 << 20);
        assert!(db.build_graph_view().expect("builds"), "{case}");
        assert_eq!(db.stats().graph_view.builds, 1, "{case}");
        assert_as_trees(&db, case);
    }
}
