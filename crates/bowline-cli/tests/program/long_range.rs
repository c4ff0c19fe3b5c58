//! A long range in parts, from a server that is a process of its own: what that takes in memory is set by
//! the parts, not by the range.
//!
//! What counts is memory that is the server's own (`RssAnon`), the highest of samples every few milliseconds,
//! above what it has when it is idle and its cache of pages is full: that has a bound of its own, 64 MiB, and
//! fills whatever is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bowline::{Db, Durability};
use bowline_proto::etcdserverpb as pb;

use crate::Place;
use crate::crowd::{MIB, RANGE, memory, put};
use crate::raw_http2::Raw;
use crate::serve::with_server_of;

const RANGE_STREAM: &str = "/etcdserverpb.KV/RangeStream";
const MEMORY_MAX: u64 = 64 * MIB;
/// From short values, of which a part has thousands, to such as fill one. They do not compress.
const VALUE_BYTES: [usize; 8] = [
    300,
    3 << 10,
    64 << 10,
    16 << 10,
    64 << 10,
    200 << 10,
    300,
    900 << 10,
];
/// Of each length, so many keys follow one another.
const KEYS_OF_A_LENGTH: usize = 4;
const POOL_BYTES: usize = 1 << 20;

fn key(number: usize) -> String {
    format!("k/{number:08}")
}

/// What stands at a key: a piece of a pool of random bytes.
fn value(pool: &[u8], number: usize) -> &[u8] {
    let length = VALUE_BYTES[number / KEYS_OF_A_LENGTH % VALUE_BYTES.len()];
    let from = number.wrapping_mul(7919) % (pool.len() - length);
    &pool[from..from + length]
}

/// Writes so many bytes as a program does that has the database in itself; gives the number of keys.
fn fill(place: &Place, directory: &str, pool: &[u8], bytes: usize) -> usize {
    let db = Db::builder()
        .durability(Durability::Batched {
            every: Duration::from_millis(100),
        })
        // What is in a table when the server starts is not in its memory.
        .memtable_bytes(4 << 20)
        .open(place.path(directory))
        .unwrap();
    let (mut keys, mut written) = (0, 0);
    while written < bytes {
        let mut tx = db.begin();
        for number in keys..keys + KEYS_OF_A_LENGTH {
            let value = value(pool, number);
            tx.put(key(number), value).unwrap();
            written += value.len();
        }
        tx.commit().unwrap();
        keys += KEYS_OF_A_LENGTH;
    }
    db.close().unwrap();
    keys
}

/// Reads the whole range, with a pause after each part, and compares it with what was written. Gives how
/// many parts there were.
fn read(raw: &mut Raw, pool: &[u8], keys: usize, pause: Duration) -> usize {
    let call = raw.begin(RANGE_STREAM);
    let request = pb::RangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..pb::RangeRequest::default()
    };
    raw.send(call, &request, true);
    let (mut next, mut parts, mut revision) = (0, 0, None);
    while let Some(part) = raw.receive::<pb::RangeStreamResponse>(call) {
        assert!(revision.is_none(), "the last part is the last");
        let part = part.range_response.expect("a part");
        for kv in part.kvs {
            assert_eq!(kv.key, key(next), "every key once, in order");
            let is_its_own = kv.value == value(pool, next);
            assert!(is_its_own && kv.version == 1, "{} is of later", key(next));
            next += 1;
        }
        if let Some(header) = part.header {
            assert_eq!(part.count, keys as i64);
            revision = Some(header.revision);
        }
        parts += 1;
        std::thread::sleep(pause);
    }
    assert!(revision.is_some(), "the last part says of which revision");
    assert_eq!(next, keys);
    parts
}

/// Reads everything once with short ranges, as anybody does, so that the cache of pages is full.
fn fill_cache(raw: &mut Raw, keys: usize) {
    for first in (0..keys).step_by(KEYS_OF_A_LENGTH) {
        let request = pb::RangeRequest {
            key: key(first).into(),
            range_end: key(first + KEYS_OF_A_LENGTH).into(),
            ..pb::RangeRequest::default()
        };
        let reply: pb::RangeResponse = raw.call(RANGE, &request);
        assert_eq!(reply.kvs.len(), KEYS_OF_A_LENGTH);
    }
}

/// The most memory that a process has while something is done.
fn highest_during<T>(pid: u32, what: impl FnOnce() -> T) -> (u64, T) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            let mut highest = 0;
            while !is_done.load(Ordering::Relaxed) {
                highest = memory(pid, "RssAnon").max(highest);
                std::thread::sleep(Duration::from_millis(5));
            }
            highest
        });
        let done = what();
        is_done.store(true, Ordering::Relaxed);
        (sampling.join().expect("samples"), done)
    })
}

#[test]
fn a_long_range_is_read_in_parts_within_the_memory_of_a_few() {
    let mib = std::env::var("BOWLINE_STREAM_MIB");
    let mib: usize = mib.map_or(160, |mib| mib.parse().expect("a number of MiB"));
    let place = Place::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut pool = vec![0; POOL_BYTES];
    random.fill(&mut pool);
    let begun = Instant::now();
    let keys = fill(&place, "long", &pool, mib << 20);
    println!("{keys} keys of {mib} MiB written in {:?}", begun.elapsed());
    with_server_of(
        &place,
        "long",
        "--quota-backend-bytes 8589934592",
        |at, pid| {
            let mut writer = Raw::open(at);
            put(&mut writer, "other", b"v");
            let empty = memory(pid, "RssAnon");
            fill_cache(&mut writer, keys);
            let idle = memory(pid, "RssAnon");
            let begun = Instant::now();
            // Both have windows without an end: what does not fit the socket waits at the server.
            let (fast, parts) = highest_during(pid, || {
                read(&mut Raw::open_wide(at), &pool, keys, Duration::ZERO)
            });
            println!("read in {:?}, {parts} parts", begun.elapsed());
            let pause = Duration::from_secs(3) / u32::try_from(parts).expect("few");
            let (slow, _) = highest_during(pid, || {
                std::thread::scope(|scope| {
                    let reading = scope.spawn(|| read(&mut Raw::open_wide(at), &pool, keys, pause));
                    // What is written once it has begun is not in it, wherever it is.
                    std::thread::sleep(Duration::from_millis(500));
                    put(&mut writer, &key(keys - 1), b"later");
                    put(&mut writer, &key(keys), b"later");
                    reading.join().expect("read")
                })
            });
            println!(
                "{mib} MiB: {} MiB when ready, {} when idle, {} more for a fast client, {} for a slow one",
                empty / MIB,
                idle / MIB,
                fast.saturating_sub(idle) / MIB,
                slow.saturating_sub(idle) / MIB,
            );
            for highest in [fast, slow] {
                let more = highest.saturating_sub(idle);
                assert!(more < MEMORY_MAX, "{} MiB", more / MIB);
            }
        },
    );
}

/// A client that asked for everything twenty times and read nothing had twenty MiB copied, and twenty more measured: the
/// dearest of all attacks, beside which a put took twice as long.
#[test]
fn who_reads_no_long_range_has_no_more_read_than_threads_that_read() {
    let turns = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let place = Place::new();
    let mut pool = vec![0; POOL_BYTES];
    fastrand::Rng::with_seed(7).fill(&mut pool);
    let keys = fill(&place, "deaf", &pool, 4 << 20);
    let everything = pb::RangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..pb::RangeRequest::default()
    };
    let settings = "--max-client-memory 8589934592 --max-connection-memory 4294967296";
    with_server_of(&place, "deaf", settings, |at, _| {
        let mut deaf = Raw::open_shut(at);
        for _ in 0..2 * turns {
            let call = deaf.begin(RANGE);
            deaf.send(call, &everything, true);
        }
        deaf.settle().expect("they have arrived");
        // Whoever asks later is read for after all that was read for before.
        let mut other = Raw::open_wide(at);
        let reply: pb::RangeResponse = other.call(RANGE, &everything);
        assert_eq!(reply.kvs.len(), keys);
        while deaf.begun < turns {
            deaf.read_frame(0).expect("the connection goes on");
        }
        deaf.settle().expect("the connection goes on");
        assert_eq!(deaf.begun, turns);
        // Who reads them gets the others, too.
        deaf.open_up();
        while deaf.ended < 2 * turns {
            deaf.read_frame(0).expect("the connection goes on");
        }
        assert_eq!(deaf.begun, 2 * turns);
    });
}
