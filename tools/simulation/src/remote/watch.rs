//! One who watches all keys over the network. The client's watch goes on at another member by itself; and now and then a
//! new one goes on where the last has ended.

use std::time::Duration;

use bowline::Revision;
use bowline_client::{Error, KeyRange};

use super::program::Program;
use crate::subscribers::{Inbox, News};
use crate::told::Told;

/// One of so many revisions is the last of a watch.
const MOVES: u32 = 300;

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

    fn tell(&self, news: News) {
        self.inbox.lock().push((self.number, news));
    }

    /// Watches from a revision on, which it moves behind what it was told.
    async fn watch(&mut self, next: &mut Revision) -> Result<(), Error> {
        let watch = self.program.client.watch(KeyRange::all()).from(*next);
        let mut watcher = watch.await?;
        while let Some(batch) = watcher.next().await? {
            Told::all_of(&batch).for_each(|told| self.tell(News::Told(told)));
            // All up to there has come, it says.
            *next = batch.revision + 1;
            if self.random.u32(0..MOVES) == 0 {
                return Ok(());
            }
        }
        Ok(())
    }
}
