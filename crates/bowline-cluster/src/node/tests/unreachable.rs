//! A peer that is down costs few connection attempts and few log lines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

type Counts = BTreeMap<(Level, String), usize>;

/// The events of this thread: counts by level and crate, and the texts of ours.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<(Counts, String)>>);

impl Events {
    fn take(&self) -> Counts {
        std::mem::take(&mut self.0.lock().0)
    }

    pub(super) fn has_said(&self, what: &str) -> bool {
        self.times_said(what) > 0
    }

    pub(crate) fn times_said(&self, what: &str) -> usize {
        self.0.lock().1.matches(what).count()
    }
}

/// Collects the fields of an event.
struct Text<'a>(&'a mut String);

impl tracing::field::Visit for Text<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let target = metadata
            .target()
            .split("::")
            .next()
            .unwrap_or("")
            .to_owned();
        let (counts, said) = &mut *self.0.lock();
        if target.starts_with("bowline") {
            event.record(&mut Text(said));
        }
        *counts.entry((*metadata.level(), target)).or_default() += 1;
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn count(
    events: &BTreeMap<(Level, String), usize>,
    is_counted: impl Fn(Level, &str) -> bool,
) -> usize {
    let counted = events
        .iter()
        .filter(|((level, target), _)| is_counted(*level, target));
    counted.map(|(_, count)| count).sum()
}

/// A follower was killed, and the leader used a whole core and wrote megabytes of warnings a second until it
/// was back: the consensus waits between attempts only where it makes the stream of requests, and a
/// connection that fails at once never polls that stream. So failures followed each other without a wait.
#[tokio::test]
async fn a_dead_follower_is_tried_now_and_then() {
    const ATTEMPTS_MAX: usize = 150;
    let events = Events::default();
    let _here = bowline_testing::listen(events.clone());
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let dead = (0..3).find(|number| *number != leader).unwrap();
    let client = three.client(leader);
    surely(&client, &put("a", "1")).await;
    let address = three.nodes[dead].as_ref().unwrap().peer_addresses()[0];
    three.stop(dead).await;
    // The new listener closes each connection at once, and counts.
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = attempts.clone();
    let counting = tokio::spawn(async move {
        loop {
            if listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    events.take();
    // The leader keeps trying to send the entries that the dead one lacks.
    let end = tokio::time::Instant::now() + Duration::from_secs(2);
    let mut number = 0;
    while tokio::time::Instant::now() < end {
        number += 1;
        surely(&client, &put("b", &number.to_string())).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (found, attempts) = (events.take(), attempts.load(Ordering::Relaxed));
    assert!(attempts > 0, "nobody tried");
    assert!(attempts <= ATTEMPTS_MAX, "{attempts} attempts in 2 s");
    let ours = count(&found, |_, target| target.starts_with("bowline"));
    assert!(ours <= 20, "{found:?}");
    let all = count(&found, |_, _| true);
    assert!(all <= 2_000, "{found:?}");
    assert!(events.has_said("a peer cannot be reached"), "{found:?}");
    counting.abort();
    let _ = counting.await;
    // It is back, and receives what it lacks.
    let config = three.configs[dead].clone();
    three.nodes[dead] = Some(start(&config).await);
    three.assert_equal().await;
    three.shutdown().await;
}

/// Three founders logged an error of the consensus, "the cluster is already undergoing a configuration
/// change", as all published their names at once.
#[tokio::test]
async fn an_ordinary_bootstrap_logs_no_warning() {
    let events = Events::default();
    let _here = bowline_testing::listen(events.clone());
    let three = Three::start(|_| {}).await;
    let client = three.client(three.leader().await);
    eventually("every member has said its name", || {
        client
            .members()
            .iter()
            .all(|member| !member.client_urls.is_empty())
    })
    .await;
    let found = events.take();
    let ours = count(&found, |level, target| {
        level <= Level::WARN && target.starts_with("bowline")
    });
    assert_eq!(ours, 0, "{found:?}");
    // Of the consensus at most warnings: a peer that is not up yet causes one.
    let errors = count(&found, |level, _| level == Level::ERROR);
    assert_eq!(errors, 0, "{found:?}");
}

#[tokio::test]
async fn each_change_of_the_leader_is_logged_with_its_name() {
    let events = Events::default();
    let _here = bowline_testing::listen(events.clone());
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    surely(&client, &put("a", "1")).await;
    let id = client.status().member_id;
    let name = three.configs[leader].name.clone();
    eventually("the others say who leads", || {
        events.has_said(&format!(" member {id:x} ({name}) leads in term "))
            || events.has_said(&format!("=member {id:x} ({name}) leads in term "))
    })
    .await;
    assert!(events.has_said(&format!("this member {id:x} ({name}) leads in term ")));
    assert!(!events.has_said("the leader is lost"));
    for other in (0..3).filter(|number| *number != leader) {
        three.stop(other).await;
    }
    eventually("the loss is said", || {
        events.has_said(&format!(
            "the leader is lost: member {id:x} ({name}) led in term "
        ))
    })
    .await;
}
