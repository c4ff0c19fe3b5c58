//! One who watches one register over the network, from when it began, with what was there before each change.

use std::time::Duration;

use bowline::Revision;
use bowline_client::{Batch, Error, EventKind};

use super::program::Program;
use crate::clients::{key, number};
use crate::register::{Change, SeenRegister};

/// One of so many batches is the last of a watch, and after one of fewer it asks for its progress.
const MOVES: u32 = 60;
const ASKS: u32 = 20;

pub(super) struct NarrowWatch {
    pub(super) program: Program,
    pub(super) seen: SeenRegister,
    pub(super) random: fastrand::Rng,
}

impl NarrowWatch {
    /// Watches for as long as the run lasts.
    pub(super) async fn run(mut self) {
        let mut next = None;
        loop {
            self.program.note(format_args!("watches from {next:?} on"));
            if let Err(error) = self.watch(&mut next).await {
                self.program.note(format_args!("its watch ends: {error}"));
                self.program.judge(&error);
                if let Error::Compacted {
                    compact_revision: Some(oldest),
                } = error
                {
                    next = next.max(Some(oldest));
                    self.seen.is_behind(oldest);
                }
            }
            let pause = Duration::from_millis(self.random.u64(1..300));
            tokio::time::sleep(pause).await;
        }
    }

    /// Watches from a revision on, which it moves behind what it was told; at first from now on.
    async fn watch(&mut self, next: &mut Option<Revision>) -> Result<(), Error> {
        let register = key(self.seen.register());
        let mut watch = { self.program.client.watch(register) }
            .previous()
            .progress_notify();
        if let Some(next) = *next {
            watch = watch.from(next);
        }
        let mut watcher = watch.await?;
        if next.is_none() {
            self.seen.is_behind(watcher.next_revision());
            *next = Some(watcher.next_revision());
        }
        while let Some(batch) = watcher.next().await? {
            self.take(&batch);
            *next = Some(watcher.next_revision());
            if self.random.u32(0..ASKS) == 0 {
                watcher.request_progress()?;
            }
            if self.random.u32(0..MOVES) == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes down what it was told.
    fn take(&self, batch: &Batch) {
        for event in &batch.events {
            self.seen.add(Change {
                revision: event.revision(),
                held: match event.kind {
                    EventKind::Put => number(&event.entry.value),
                    EventKind::Delete => None,
                },
                previous: { event.previous.as_ref() }
                    .map(|entry| (entry.mod_revision, number(&entry.value))),
            });
        }
        self.seen.has_all_up_to(batch.revision);
    }
}
