//! The saved graph view: after a restart it answers as the trees do, or it is not believed.

use std::path::Path;
use std::sync::Arc;

use bowline::vfs::{MemoryVfs, OpenMode, Vfs, VfsFile};
use bowline::{Block, BlockId, Db, Direction, Edge};
use bowline_testing::{Images, SimDisk};

use crate::support::manual;

const FILE: &str = "/db/graph-view";

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

/// Random histories with restarts: each view is loaded where nothing was written since, and built anew where
/// something was.
#[test]
fn a_restarted_database_answers_from_what_was_saved() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let vfs = Arc::new(MemoryVfs::default());
        let (mut saved, mut loads) = (0, 0);
        for round in 0..8 {
            let db = open(&vfs, 1 << 20);
            let is_saved = saved > 0 && saved == db.revision().get();
            if random.u8(..3) == 0 {
                write(&db, &mut random);
            }
            let is_current = is_saved && saved == db.revision().get();
            let is_built = random.u8(..4) > 0;
            if is_built {
                assert!(db.build_graph_view().expect("builds"));
                let builds = db.stats().graph_view.builds;
                let context = format!("seed {seed}, round {round}");
                assert_eq!(builds, u64::from(!is_current), "{context}");
                loads += u64::from(is_current);
            }
            for _ in 0..random.usize(..12) {
                write(&db, &mut random);
                assert_as_trees(&db, &format!("seed {seed}, round {round}"));
            }
            assert!(db.check().expect("checks").is_clean());
            if is_built {
                saved = db.revision().get();
            }
            db.close().expect("closes");
        }
        assert!(loads > 0 || seed > 0);
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

/// The file of another database, and one that is older than the database or beyond it.
#[test]
fn a_file_of_another_state_is_not_believed() {
    let (vfs, other) = (written(), written());
    for (which, foreign) in [("another database", bytes(&other)), ("older", bytes(&vfs))] {
        if which == "older" {
            // Without memory for a view nothing is saved: the file stays behind.
            let db = open(&vfs, 0);
            db.transact(|tx| {
                tx.put_block(&Block::new(id(0), "node"))?;
                tx.put_block(&Block::new(id(5), "node"))?;
                tx.put_edge(&Edge::new(id(5), "later", id(0)))
            })
            .expect("a write");
            assert!(!db.build_graph_view().expect("is told"));
            db.close().expect("closes");
            assert_eq!(bytes(&vfs), foreign, "nothing is saved");
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

    // Beyond: the database of a checkpoint, which is of the same id and has no file, gets one of later.
    let db = open(&vfs, 1 << 20);
    db.checkpoint("/early").expect("a checkpoint");
    assert!(
        vfs.metadata(Path::new("/early/graph-view"))
            .expect("looks")
            .is_none()
    );
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

/// A power loss at any moment of two closes that save a view: the database opens, it answers as its trees do, and
/// both the file before and the new one are believed where they are of the newest revision.
#[test]
fn a_crash_while_saving_costs_a_build_at_most() {
    const SEED: u64 = 12;
    let disk = SimDisk::new();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut begun = None;
    for _ in 0..2 {
        let db = open_on(Arc::new(disk.clone()), 1 << 20);
        (0..8).for_each(|_| write(&db, &mut random));
        assert!(db.build_graph_view().expect("builds"));
        begun.get_or_insert(disk.point());
        db.close().expect("closes");
    }
    let [mut loaded, mut built] = [0; 2];
    let begun = begun.expect("two rounds");
    for image in Images::sample_from(&disk.recording(), begun, SEED, 300) {
        let context = format!("{image:?}");
        let db = open_on(Arc::new(image.build()), 1 << 20);
        assert!(db.check().expect("checks").is_clean(), "{context}");
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
    assert!(loaded > 0 && built > 0, "{loaded} loaded, {built} built");
}
