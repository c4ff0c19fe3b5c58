//! S12: blocks and edges written without a flush for each, beside what one `pwrite` costs in the same moments.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use bowline::{Block, BlockId, Db, Durability, Edge};

use super::stage::Stage;
use crate::data::key;
use crate::fallible::Fallible;
use crate::machine::RawFile;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::{BATCHED_EVERY, BOWLINE};
use crate::timing::{Timed, run_for};

const BLOCK: &str = "S12 block write, `Batched`";
const BLOCK_BEYOND: &str = "S12 block write beyond one `pwrite`";
const EDGE: &str = "S12 edge insert, `Batched`";
const EDGE_BEYOND: &str = "S12 edge insert beyond one `pwrite`";

const CONTENT_BYTES: usize = 500;
/// What the commit of a block writes to the log, about.
const BLOCK_RECORD_BYTES: usize = 560;
/// What that of an edge does: two records.
const EDGE_RECORD_BYTES: usize = 130;

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let ours = || stage.names(|system| system.name == BOWLINE.name);
    let shared = Rc::new(Databases::default());
    let databases = shared.clone();
    let next = Cell::new(0);
    let block_write = move |turn| {
        let db = made(&databases.blocks, || open(stage, "blocks"))?;
        let raw = &mut databases.raw.borrow_mut();
        beside_pwrite(stage, raw, turn, BLOCK_RECORD_BYTES, BLOCK_BEYOND, || {
            let number = next.replace(next.get() + 1);
            let mut content = vec![0; CONTENT_BYTES];
            crate::data::fill(number, &mut content);
            let mut tx = db.begin();
            tx.put_block(&Block::new(id(number), "block").content(content))?;
            check(tx.commit()?.changed, "a block that changed nothing")
        })
    };
    let databases = shared;
    let next = Cell::new(0);
    let edge_insert = move |turn| {
        let blocks = stage.scale.small / 10;
        let db = made(&databases.edges, || {
            let db = open(stage, "edges")?;
            db.transact(|tx| {
                (0..blocks).try_for_each(|n| tx.put_block(&Block::new(id(n), "block")))
            })?;
            Ok(db)
        })?;
        let raw = &mut databases.raw.borrow_mut();
        beside_pwrite(stage, raw, turn, EDGE_RECORD_BYTES, EDGE_BEYOND, || {
            let number = next.replace(next.get() + 1);
            let (source, round) = (number % blocks, number / blocks);
            let target = (source + 1 + round) % blocks;
            let mut tx = db.begin();
            tx.put_edge(&Edge::new(id(source), "next", id(target)))?;
            check(tx.commit()?.changed, "an edge that changed nothing")
        })
    };
    vec![
        Row::new(BLOCK, Unit::Nanoseconds, ours(), block_write).remark("500 bytes of content"),
        Row::told(BLOCK_BEYOND, Unit::Nanoseconds, ours()).bound(Bound::AtMost(1_500.0)),
        Row::new(EDGE, Unit::Nanoseconds, ours(), edge_insert)
            .remark("both blocks checked, both directions written"),
        Row::told(EDGE_BEYOND, Unit::Nanoseconds, ours()).bound(Bound::AtMost(2_500.0)),
    ]
}

#[derive(Default)]
struct Databases {
    blocks: OnceCell<Db>,
    edges: OnceCell<Db>,
    raw: RefCell<Option<RawFile>>,
}

fn made(cell: &OnceCell<Db>, make: impl FnOnce() -> Fallible<Db>) -> Fallible<&Db> {
    if cell.get().is_none() {
        let _ = cell.set(make()?);
    }
    cell.get().ok_or_else(|| "not made".into())
}

fn open(stage: &Stage, name: &str) -> Fallible<Db> {
    const MEMTABLE_BYTES: usize = 1 << 30;
    let db = Db::builder()
        .memtable_bytes(MEMTABLE_BYTES)
        .durability(Durability::Batched {
            every: BATCHED_EVERY,
        });
    Ok(db.open(stage.fresh_directory(name))?)
}

fn id(number: u64) -> BlockId {
    BlockId::from_bytes(key(number))
}

/// Commits in slices, each behind a slice of `pwrite` calls of as many bytes.
fn beside_pwrite(
    stage: &Stage,
    raw: &mut Option<RawFile>,
    turn: Turn,
    bytes: usize,
    beyond: &'static str,
    mut commit: impl FnMut() -> Fallible<()>,
) -> Fallible<Sample> {
    const SLICES: u32 = 10;
    let raw = match raw {
        Some(raw) => raw,
        none => {
            let path = stage.fresh_directory("raw-pwrite");
            none.insert(RawFile::create(&path, u64::MAX)?)
        }
    };
    let (mut own, mut pwrites) = (Timed::nothing(), Timed::nothing());
    for _ in 0..SLICES {
        let slice = turn.sample / SLICES;
        pwrites.join(&raw.write_loop(bytes, slice, false)?)?;
        own.join(&run_for(slice, 1, &mut commit)?)?;
    }
    let pwrite = Sample::time(pwrites).figure;
    let own = Sample::time(own);
    let more = own.figure - pwrite;
    Ok(own.note("ns for one `pwrite`", pwrite).also(beyond, more))
}
