//! Operands: whatever flushes and merges do, a reader completes each to the same.

use super::*;
use crate::codec::{Reader, put_varint};
use crate::compaction::MergeOperator;

/// Numbers. A value is one, an operand is to be added to the one below it.
#[derive(Debug)]
struct Sum;

const VALUE: u8 = 0;
const OPERAND: u8 = 1;

/// Padded, so that some of them would go to a blob file.
fn encode(tag: u8, number: u64, padding: usize, out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(out, number);
    out.resize(out.len() + padding, b'.');
}

fn decode(bytes: &[u8]) -> Option<(u8, u64, usize)> {
    let mut reader = Reader::new(bytes);
    let (tag, number) = (reader.u8()?, reader.varint()?);
    (tag <= OPERAND).then(|| (tag, number, bytes.len() - reader.position()))
}

impl MergeOperator for Sum {
    fn is_operand(&self, value: &[u8]) -> bool {
        value.first() == Some(&OPERAND)
    }

    fn apply(
        &self,
        (_, operand): (Revision, &[u8]),
        below: Option<(Revision, &[u8])>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (_, number, padding) = decode(operand)?;
        let (tag, base) = match below {
            Some((_, bytes)) => decode(bytes).map(|(tag, base, _)| (tag, base))?,
            None => (VALUE, 0),
        };
        encode(tag, base + number, padding, out);
        Some(())
    }
}

/// The number of a key at a revision, as a reader completes it; and how far down it had to look.
fn read(engine: &Engine, key: &[u8], at: Revision) -> (Option<u64>, u64) {
    let sources = engine.super_version();
    let (mut sum, mut depth, mut at) = (None, 0, at);
    loop {
        let found = sources.get(TreeId(0), key, at, 0, Want::Head, |found| {
            let found = found.filter(|found| found.kind == EntryKind::Put);
            found.map(|found| (decode(found.bytes()).unwrap(), found.revision))
        });
        let Some(((tag, number, _), revision)) = found.unwrap() else {
            return (sum, depth);
        };
        sum = Some(sum.unwrap_or(0) + number);
        depth += 1;
        if tag == VALUE {
            return (sum, depth);
        }
        at = revision - 1;
    }
}

/// What each key is at each revision, `None` for absent.
type Numbers = BTreeMap<(Vec<u8>, Revision), Option<u64>>;

fn expected(numbers: &Numbers, key: &[u8], at: Revision) -> Option<u64> {
    let from = (key.to_vec(), 0);
    let to = (key.to_vec(), at);
    numbers.range(from..=to).next_back().and_then(|(_, n)| *n)
}

fn commit(engine: &Engine, rng: &mut fastrand::Rng, numbers: &mut Numbers) {
    let revision = engine.visible() + 1;
    let mut batch = Vec::new();
    let mut writer = BatchWriter::start(&mut batch, revision);
    let key = format!("key-{:02}", rng.u32(0..40)).into_bytes();
    let number = rng.u64(1..1000);
    let mut value = Vec::new();
    // Most are shorter than what goes to a blob file.
    let padding = if rng.u8(0..4) == 0 { 200 } else { 10 };
    let now = match rng.u8(0..10) {
        0 => None,
        1..3 => {
            encode(VALUE, number, padding, &mut value);
            Some(number)
        }
        _ => {
            encode(OPERAND, number, padding, &mut value);
            Some(expected(numbers, &key, revision).unwrap_or(0) + number)
        }
    };
    match now {
        Some(_) => writer.put(TreeId(0), &key, &[], &value),
        None => writer.delete(TreeId(0), &key),
    }
    let mut round = engine.begin_group(1, 1, batch.len() as u64).unwrap();
    round.apply(&batch).unwrap();
    assert_eq!(round.finish().unwrap(), revision);
    numbers.insert((key, revision), now);
    engine.run_background_if_manual().unwrap();
}

fn compare(engine: &Engine, numbers: &Numbers, at: Revision) {
    for key in 0..40 {
        let key = format!("key-{key:02}").into_bytes();
        let (found, _) = read(engine, &key, at);
        let key_text = key.escape_ascii();
        assert_eq!(found, expected(numbers, &key, at), "{key_text} at {at}");
    }
}

fn with_operands(strategy: Strategy, history: History) -> EngineOptions {
    let mut options = options(strategy, history);
    options.memtable_bytes = 2 << 10;
    options.blobs.threshold_bytes = Some(128);
    let sum: Arc<dyn MergeOperator> = Arc::new(Sum);
    options.merge_operators.insert(TreeId(0), sum);
    options
}

#[test]
fn operands_mean_the_same_after_every_flush_and_merge() {
    for (seed, strategy) in strategies(71) {
        for history in [History::None, History::All, History::Revisions(50)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let vfs = MemoryVfs::default();
            let options = with_operands(strategy, history);
            let mut engine = open(&vfs, &options);
            let mut numbers = Numbers::new();
            let mut pins = Vec::new();
            for step in 0..1500 {
                commit(&engine, &mut rng, &mut numbers);
                match rng.u8(0..40) {
                    0 => pins.push(engine.pin_newest()),
                    1 if !pins.is_empty() => drop(pins.swap_remove(rng.usize(0..pins.len()))),
                    2 => engine.flush().unwrap(),
                    3 if step % 7 == 0 => engine.compact_tables().unwrap(),
                    4 if step % 5 == 0 => {
                        pins.clear();
                        engine.close().unwrap();
                        engine = open(&vfs, &options);
                    }
                    _ => {}
                }
                if step % 10 == 0 {
                    compare(&engine, &numbers, engine.visible());
                    for pin in &pins {
                        compare(&engine, &numbers, pin.revision());
                    }
                    let floor = engine.history_floor();
                    compare(&engine, &numbers, rng.u64(floor..=engine.visible()));
                }
            }
            // Where there is nothing below, all are complete.
            pins.clear();
            engine.compact_tables().unwrap();
            let newest = engine.visible();
            compare(&engine, &numbers, newest);
            if history == History::None {
                for key in 0..40 {
                    let key = format!("key-{key:02}").into_bytes();
                    let (found, depth) = read(&engine, &key, newest);
                    assert_eq!(depth, u64::from(found.is_some()));
                }
            }
            let counters = engine.stats().counters;
            assert!(counters.flushes > 0 && counters.compactions > 0);
        }
    }
}

#[test]
fn an_operand_that_does_not_decode_is_an_error_and_stays() {
    let vfs = MemoryVfs::default();
    let engine = open(&vfs, &with_operands(Strategy::default(), History::None));
    let put = |value: &[u8]| {
        let mut batch = Vec::new();
        let revision = engine.visible() + 1;
        BatchWriter::start(&mut batch, revision).put(TreeId(0), b"k", &[], value);
        let mut round = engine.begin_group(1, 1, batch.len() as u64).unwrap();
        round.apply(&batch).unwrap();
        round.finish().unwrap()
    };
    put(&[OPERAND]);
    let revision = put(&[OPERAND, 7]);
    let error = engine.flush().unwrap_err();
    assert!(error.to_string().contains("cannot be completed"), "{error}");
    let read = |found: Option<Found<'_>>| found.map(|found| found.revision);
    assert_eq!(
        engine.read_newest(TreeId(0), b"k", read).unwrap(),
        Some(revision)
    );
}
