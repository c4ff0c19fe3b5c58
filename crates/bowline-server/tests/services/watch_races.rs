//! Watches come and go while keys are written, with stream queues so small that they fall behind all the
//! time. Whatever happens, a watch gets exactly what was written, in order, from its start on.

use std::collections::HashMap;

use bowline_proto::mvccpb::event::EventType;
use bowline_testing::Seed;

use crate::support::{delete, put, start};
use crate::watches::{Watching, of};

const WRITES: usize = 3000;
const STREAMS: usize = 4;
const ROUNDS: usize = 60;
const END: &str = "z-end";

/// What was written: revision, key, and whether it was a deletion.
type Written = (i64, String, bool);

/// A watch as the test sees it.
#[derive(Default)]
struct Seen {
    key: String,
    range_end: String,
    /// 0 until it is known.
    from: i64,
    events: Vec<Written>,
    is_canceled: bool,
}

impl Seen {
    fn has(&self, key: &str) -> bool {
        match self.range_end.as_str() {
            "" => key == self.key,
            "\0" => key >= self.key.as_str(),
            end => key >= self.key.as_str() && key < end,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_gets_what_was_written_from_its_start_on() {
    let test = "-p bowline-server --test services a_watch_gets_what_was_written";
    for seed in Seed::fixed_and_fresh(0xDEAD_BEEF, test) {
        let _guard = seed.print_on_failure(test);
        watched_and_written(seed.0).await;
    }
}

async fn watched_and_written(seed: u64) {
    let running = start(&[("watch-queue-bytes", "2000")]).await;
    let mut kv = running.kv().await;
    let writer = tokio::spawn(async move {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut written: Vec<Written> = Vec::new();
        for _ in 0..WRITES {
            let key = format!("k{}", random.u8(0..8));
            if random.u8(0..4) == 0 {
                let reply = kv.delete_range(delete(&key)).await.unwrap().into_inner();
                if reply.deleted > 0 {
                    written.push((reply.header.unwrap().revision, key, true));
                }
            } else {
                let value = "v".repeat(random.usize(0..600));
                let reply = kv.put(put(&key, &value)).await.unwrap().into_inner();
                written.push((reply.header.unwrap().revision, key, false));
            }
        }
        let reply = kv.put(put(END, "")).await.unwrap().into_inner();
        let end = reply.header.unwrap().revision;
        written.push((end, END.to_owned(), false));
        written
    });
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let watching = Watching::open(&running).await;
        let random = fastrand::Rng::with_seed(seed + 1 + number as u64);
        streams.push(tokio::spawn(watch(watching, random)));
    }
    let written = writer.await.unwrap();
    let mut count = 0;
    for stream in streams {
        for (id, seen) in stream.await.unwrap() {
            let due = written.iter();
            let due = due.filter(|(revision, key, _)| *revision >= seen.from && seen.has(key));
            let mut due: Vec<_> = due.cloned().collect();
            if seen.is_canceled {
                due.truncate(seen.events.len());
            }
            assert!(
                seen.events == due,
                "watch {id} of {:?} from {}",
                seen.key,
                seen.from
            );
            count += due.len();
        }
    }
    println!("{count} events");
    assert!(count > WRITES);
}

/// Makes and cancels watches, and reads until each has seen the end. The first watch of a stream is
/// of all keys and stays.
async fn watch(mut watching: Watching, mut random: fastrand::Rng) -> HashMap<i64, Seen> {
    let mut all: HashMap<i64, Seen> = HashMap::new();
    let mut rounds = 0;
    let mut newest = 1;
    let mut has_ended = false;
    create(&mut watching, &mut all, 1, ("a", "\0"), 1).await;
    loop {
        if rounds < ROUNDS && random.u8(0..8) == 0 {
            rounds += 1;
            let id = 1 + rounds as i64;
            let spans = [("k1", ""), ("k", "l"), ("a", "\0"), ("k2", "k5")];
            let from = match random.u8(0..3) {
                0 => 0,
                1 => random.i64(1..=newest),
                _ => newest + random.i64(0..20),
            };
            create(&mut watching, &mut all, id, spans[random.usize(0..4)], from).await;
            let victim = random.i64(2..=id + 1);
            if random.bool() && all.get(&victim).is_some_and(|seen| !seen.is_canceled) {
                watching.cancel(victim).await;
            }
        }
        let reply = watching.next().await;
        let seen = all.get_mut(&reply.watch_id).unwrap();
        let revision = reply.header.as_ref().unwrap().revision;
        if reply.created && seen.from == 0 {
            seen.from = revision + 1;
        }
        seen.is_canceled |= reply.canceled;
        for event in reply.events {
            let is_deletion = event.r#type() == EventType::Delete;
            let kv = event.kv.unwrap();
            let key = String::from_utf8(kv.key.to_vec()).unwrap();
            newest = newest.max(kv.mod_revision);
            has_ended |= key == END;
            assert!(!seen.is_canceled, "nothing after the end of a watch");
            seen.events.push((kv.mod_revision, key, is_deletion));
        }
        if has_ended {
            break;
        }
    }
    // Everything is written. What is still due comes before the answer about progress.
    watching.ask_progress().await;
    loop {
        let reply = watching.next().await;
        if reply.watch_id == -1 {
            return all;
        }
        let seen = all.get_mut(&reply.watch_id).unwrap();
        if reply.created && seen.from == 0 {
            seen.from = reply.header.as_ref().unwrap().revision + 1;
        }
        seen.is_canceled |= reply.canceled;
        for event in reply.events {
            let is_deletion = event.r#type() == EventType::Delete;
            let kv = event.kv.unwrap();
            let key = String::from_utf8(kv.key.to_vec()).unwrap();
            seen.events.push((kv.mod_revision, key, is_deletion));
        }
    }
}

async fn create(
    watching: &mut Watching,
    all: &mut HashMap<i64, Seen>,
    id: i64,
    (key, range_end): (&str, &str),
    from: i64,
) {
    let seen = Seen {
        key: key.to_owned(),
        range_end: range_end.to_owned(),
        from,
        ..Seen::default()
    };
    all.insert(id, seen);
    let mut request = of(key, range_end);
    request.watch_id = id;
    request.start_revision = from;
    watching.create(request).await;
}
