//! Runs a sequence on both servers, and cuts one down that shows a difference.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::call::ask;
use crate::differences;
use crate::servers::{Clients, Pair, Pool};
use crate::step::{Names, Step, readable};
use crate::streams::{Both, Stream};

/// What both did otherwise.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The step.
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// What was asked.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Requests that both answered.
    pub(crate) requests: usize,
    /// Of them, those that both refused.
    pub(crate) refused: usize,
    /// By reason: what was not sent.
    pub(crate) unsent: BTreeMap<&'static str, usize>,
}

impl Asked {
    /// Adds what was asked elsewhere.
    pub(crate) fn add(&mut self, other: Asked) {
        self.requests += other.requests;
        self.refused += other.refused;
        for (reason, count) in other.unsent {
            *self.unsent.entry(reason).or_default() += count;
        }
    }
}

/// Runs a sequence on new servers.
pub(crate) async fn run(
    pair: &mut Pair,
    steps: &[Step],
    asked: &mut Asked,
) -> Result<(), Difference> {
    let hides_leases = differences::hides_leases(pair.etcd.version);
    let of = |clients: &Clients| Names {
        hides_leases,
        began: Some(Instant::now()),
        revision: 1,
        member_id: clients.member_id,
        peer_url: clients.peer_url.clone(),
        ..Names::default()
    };
    let mut names = [of(&pair.etcd.clients), of(&pair.bowline.clients)];
    let mut streams: BTreeMap<usize, Both> = BTreeMap::new();
    let mut last_watch: Option<Instant> = None;
    let mut last_compaction: Option<Instant> = None;
    for (at, step) in steps.iter().enumerate() {
        let wrong = |text: String| Difference { at, text };
        let exact = names[0].resolved(step);
        if let Some(reason) = differences::unsent(&exact, pair.etcd.version, &names[0]) {
            *asked.unsent.entry(reason).or_default() += 1;
            continue;
        }
        names[0].queued.extend(exact.queues_up());
        asked.requests += 1;
        let both = [&names[0], &names[1]];
        match step {
            Step::Watch(number, request) => {
                if !streams.contains_key(number) {
                    let opened = open(pair, *number, both).await.map_err(wrong)?;
                    streams.insert(*number, opened);
                }
                let Some(stream) = streams.get_mut(number) else {
                    continue;
                };
                // What a compaction takes is told until etcd commits that it is gone, every 100 ms.
                const GONE: Duration = Duration::from_millis(300);
                if exact.is_watch_from(names[0].compacted)
                    && let Some(last) = last_compaction
                {
                    tokio::time::sleep(GONE.saturating_sub(last.elapsed())).await;
                }
                // An event that is under way when its watch ends may be told or not.
                stream.settle(both, Duration::ZERO).await.map_err(wrong)?;
                stream.send(request, both).await.map_err(wrong)?;
                last_watch = Some(Instant::now());
                continue;
            }
            // A watch that has not caught up would end; etcd looks after those every 100 ms, and says
            // nothing when there was nothing to tell.
            Step::Settle | Step::Compact(_) => {
                const CAUGHT_UP: Duration = Duration::from_millis(300);
                if let Some(last) = last_watch.take() {
                    tokio::time::sleep(CAUGHT_UP.saturating_sub(last.elapsed())).await;
                }
                for stream in streams.values_mut() {
                    stream.settle(both, Duration::ZERO).await.map_err(wrong)?;
                }
            }
            _ => {}
        }
        let [of_etcd, of_bowline] = &mut names;
        let (theirs, ours) = tokio::join!(
            ask(&mut pair.etcd.clients, step, of_etcd),
            ask(&mut pair.bowline.clients, step, of_bowline),
        );
        if theirs != ours {
            if let Some(reason) =
                differences::are_both_refused(&exact, theirs.is_refusal, &ours.text)
            {
                *asked.unsent.entry(reason).or_default() += 1;
                continue;
            }
            if let Some(reason) =
                differences::ends_a_sequence(&exact, of_etcd.txn_reply_bytes, &ours.text)
            {
                *asked.unsent.entry(reason).or_default() += steps.len() - at - 1;
                return Ok(());
            }
            let text = format!("\n      etcd: {}\n   bowline: {}", theirs.text, ours.text);
            return Err(wrong(text));
        }
        asked.refused += usize::from(theirs.is_refusal);
        if matches!(step, Step::Compact(_)) {
            last_compaction = Some(Instant::now());
        }
        if let Some(revision) = theirs.revision.filter(|revision| *revision > 0) {
            if differences::may_put_again(&exact) {
                of_etcd.put_again.insert(revision);
            }
            of_etcd.revision = revision;
            of_bowline.revision = revision;
        }
    }
    let wrong = |text: String| Difference {
        at: steps.len(),
        text,
    };
    if !pair.etcd.is_running() {
        return Err(wrong("etcd has ended".to_owned()));
    }
    for stream in streams.values_mut() {
        let both = [&names[0], &names[1]];
        let moment = Duration::from_millis(20);
        stream.settle(both, moment).await.map_err(wrong)?;
    }
    Ok(())
}

async fn open(pair: &mut Pair, number: usize, names: [&Names; 2]) -> Result<Both, String> {
    let metadata = (number > 0).then_some(("hasleader", "true"));
    let (etcd, bowline) = tokio::join!(
        Stream::open(&mut pair.etcd.clients, metadata, names[0]),
        Stream::open(&mut pair.bowline.clients, metadata, names[1]),
    );
    Ok(Both {
        etcd: etcd.map_err(|error| format!("etcd: {error}"))?,
        bowline: bowline.map_err(|error| format!("bowline: {error}"))?,
        start_max: 0,
    })
}

/// Leaves out what a difference does not need: ever smaller pieces, each time on new servers.
pub(crate) async fn shrink(
    pool: &mut Pool,
    mut steps: Vec<Step>,
    found: Difference,
) -> (Vec<Step>, Difference) {
    /// How many runs, and how long, it may take.
    const RUNS_MAX: usize = 300;
    const TIME_MAX: Duration = Duration::from_secs(300);
    let begun = Instant::now();
    let mut found = found;
    // Another difference may be in there, too.
    let kind = |steps: &[Step], at: usize| steps.get(at).map(std::mem::discriminant);
    let wanted = kind(&steps, found.at);
    steps.truncate(found.at + 1);
    let mut piece = steps.len().div_ceil(2);
    let mut runs = 0;
    while piece > 0 {
        let mut from = 0;
        let mut is_shorter = false;
        while from < steps.len() && runs < RUNS_MAX && begun.elapsed() < TIME_MAX {
            let mut candidate = steps.clone();
            candidate.drain(from..(from + piece).min(steps.len()));
            let mut pair = pool.take().await;
            runs += 1;
            let ran = run(&mut pair, &candidate, &mut Asked::default()).await;
            pair.stop().await;
            match ran {
                Err(difference) if kind(&candidate, difference.at) == wanted => {
                    candidate.truncate(difference.at + 1);
                    steps = candidate;
                    found = difference;
                    is_shorter = true;
                }
                Ok(()) | Err(_) => from += piece,
            }
        }
        if !is_shorter || piece > 1 {
            piece /= 2;
        }
        if runs >= RUNS_MAX || begun.elapsed() >= TIME_MAX {
            break;
        }
    }
    (steps, found)
}

/// A sequence, and where it shows a difference, to be read and to be made a test of.
pub(crate) fn show(steps: &[Step], found: &Difference) -> String {
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("    {}\n", readable(&format!("{step:?}"))));
    }
    format!(
        "{text}differs at step {}: {}",
        found.at,
        readable(&found.text)
    )
}
