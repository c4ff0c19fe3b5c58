//! [`HeavyTurns`]: transactions that read much and write are proposed one by one, with pauses.
//!
//! Such a transaction is read where it is proposed, and again by every member that applies it; meanwhile all other
//! commands wait. Many of them in one log entry would be applied one after the other, and a put behind them would wait for
//! all. So each one is followed by a pause of [`PAUSES`] times about the time that a member takes to apply it, in which
//! other commands are proposed.
//!
//! Invariants:
//!
//! - Turns come in the order in which they were asked for. A caller that goes away loses its place, and holds up nobody.
//! - A transaction that reads little has no turn, and waits for none.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::{Error, Result};

/// The pause after a turn, in times that applying the transaction takes: with it, they take a twentieth of a member's time.
const PAUSES: u32 = 20;

/// The turns of one member.
#[derive(Debug)]
pub(crate) struct HeavyTurns {
    /// When the next turn may begin. The queue of the lock is that of the turns.
    next: Mutex<Instant>,
}

/// A turn. While it is held, no other begins.
#[must_use]
pub(crate) struct Turn<'a> {
    next: MutexGuard<'a, Instant>,
}

impl HeavyTurns {
    pub(crate) fn new() -> HeavyTurns {
        HeavyTurns {
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// `TooManyRequests` when none comes in time.
    pub(crate) async fn wait(&self, wait_max: Duration) -> Result<Turn<'_>> {
        let turn = async {
            let next = self.next.lock().await;
            sleep_until(*next).await;
            Turn { next }
        };
        timeout(wait_max, turn)
            .await
            .map_err(|_| Error::TooManyRequests)
    }
}

impl Turn<'_> {
    /// Ends the turn of a transaction that takes so long to apply.
    pub(crate) fn end(mut self, apply_time: Duration) {
        *self.next = Instant::now() + apply_time * PAUSES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPLY_TIME: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_secs(60);

    /// A hundred transactions of which each took a member 1 ms were applied one after the other, and every put waited.
    #[tokio::test(start_paused = true)]
    async fn turns_are_taken_in_order_with_pauses() {
        let turns = HeavyTurns::new();
        let begun = Instant::now();
        let take = |number: u32| {
            let turns = &turns;
            async move {
                let turn = turns.wait(LONG).await.expect("in time");
                assert_eq!(begun.elapsed(), APPLY_TIME * PAUSES * number);
                turn.end(APPLY_TIME);
            }
        };
        tokio::join!(take(0), take(1), take(2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_or_waits_too_long_holds_up_nobody() {
        let turns = HeavyTurns::new();
        turns.wait(LONG).await.expect("at once").end(APPLY_TIME);
        let short = turns.wait(APPLY_TIME).await;
        assert!(matches!(short, Err(Error::TooManyRequests)));
        drop(turns.wait(LONG));
        let begun = Instant::now();
        let turn = turns.wait(LONG).await.expect("the pause is over");
        assert_eq!(begun.elapsed(), APPLY_TIME * (PAUSES - 1));
        drop(turn);
        assert_eq!(begun.elapsed(), APPLY_TIME * (PAUSES - 1));
        drop(turns.wait(Duration::ZERO).await.expect("nothing was read"));
    }
}
