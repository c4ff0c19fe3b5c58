//! Listening to what the code under test logs, in a process whose other tests log as well.
//!
//! `tracing` asks each place that logs once, when it is first come to, whether anybody is interested, and keeps the
//! answer. While a process has one subscriber, only the thread that came first is asked: where that is the thread of
//! another test, the place is silent for good, for the one that listens, too. With a second subscriber every one is asked.
//! So [`listen`] keeps two that want nothing.

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Wants nothing, and leaves open whether it will.
struct Nobody;

impl Subscriber for Nobody {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Gives `subscriber` everything that this thread logs, until the guard is dropped, whichever thread came to a place first.
///
/// ```
/// let log = tracing::subscriber::NoSubscriber::new();
/// let _here = bowline_testing::listen(log);
/// tracing::info!("heard by `log`");
/// ```
#[must_use = "it ends when the guard is dropped"]
pub fn listen(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static NOBODY: OnceLock<[Dispatch; 2]> = OnceLock::new();
    NOBODY.get_or_init(|| [Dispatch::new(Nobody), Dispatch::new(Nobody)]);
    tracing::subscriber::set_default(subscriber)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counts(Arc<AtomicUsize>);

    impl Subscriber for Counts {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// A test that listened heard nothing, now and then: another test's thread had come first to what the server logs,
    /// after the first had begun to listen.
    #[test]
    fn a_place_that_another_thread_came_to_first_is_heard() {
        let heard = Arc::new(AtomicUsize::new(0));
        let _here = listen(Counts(heard.clone()));
        let say = || tracing::info!("said");
        std::thread::spawn(say).join().unwrap();
        assert_eq!(heard.load(Ordering::SeqCst), 0, "another thread's");
        say();
        assert_eq!(heard.load(Ordering::SeqCst), 1);
    }
}
