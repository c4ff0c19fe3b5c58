//! One who watches all keys over the network. The client's watch goes on at another member by itself; and now and then a
//! new one goes on where the last has ended, or asks for its progress, or is left alone until its queue is full.

use std::time::Duration;

use bowline::Revision;
use bowline_client::{Error, KeyRange};

use super::program::Program;
use crate::subscribers::{Inbox, News};
use crate::told::Told;

/// After one of so many batches, one of these is done.
const MOVES: u32 = 100;
/// So long a watch is left alone, in milliseconds. The judge of a hurt leader, in the end, takes longer.
const ALONE_MILLIS: std::ops::Range<u64> = 2_000..12_000;

pub(super) struct Watch {
    pub(super) program: Program,
    pub(super) number: usize,
    pub(super) inbox: Inbox,
    pub(super) random: fastrand::Rng,
}

impl Watch {
    /// Watches for as long as the run lasts.
    pub(super) async fn run(mut self) {
        let mut next = Revision::FIRST;
        loop {
            self.program.note(format_args!("watches from {next} on"));
            if let Err(error) = self.watch(&mut next).await {
                self.program.note(format_args!("its watch ends: {error}"));
                self.program.judge(&error);
                if let Error::Compacted {
                    compact_revision: Some(oldest),
                } = error
                {
                    next = oldest.max(next);
                    self.tell(News::Compacted(oldest));
                }
            }
            let pause = Duration::from_millis(self.random.u64(1..300));
            tokio::time::sleep(pause).await;
        }
    }

    /// Takes nothing from the queue for a while, unless the run is about to end.
    async fn leave_alone(&mut self) {
        let millis = self.random.u64(ALONE_MILLIS);
        if !self.program.history.is_over() {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }

    fn tell(&self, news: News) {
        self.inbox.lock().push((self.number, news));
    }

    /// Watches from a revision on, which it moves behind what it was told.
    async fn watch(&mut self, next: &mut Revision) -> Result<(), Error> {
        let mut watch = self.program.client.watch(KeyRange::all()).from(*next);
        if self.random.bool() {
            watch = watch.own_stream();
        }
        let mut watcher = watch.await?;
        while let Some(batch) = watcher.next().await? {
            Told::all_of(&batch).for_each(|told| self.tell(News::Told(told)));
            // All up to there has come, it says.
            self.tell(News::Progress(batch.revision));
            *next = watcher.next_revision();
            match self.random.u32(0..MOVES) {
                0 => return Ok(()),
                1..=3 => watcher.request_progress()?,
                4 => self.leave_alone().await,
                _ => {}
            }
        }
        Ok(())
    }
}
