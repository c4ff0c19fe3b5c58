//! One who reads and writes registers over the network.
//!
//! A change whose error is [`Error::UnknownOutcome`] may have been made, at any time from its call on. After every other
//! error nothing was done: that is what the client promises, and the checker of histories takes it at its word.

use std::time::Duration;

use bowline::Revision;
use bowline_client::{
    Compare, Error, Header, Operation as Part, OperationReply, RangeReply, ReadLevel, Transaction,
    TransactionOptions,
};
use bowline_testing::linear::{Held, Operation};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::program::Program;
use crate::clients::{BLOCKS, KEYS, block, block_id, key, number};

const LEVELS: [ReadLevel; 3] = [
    ReadLevel::Linearizable,
    ReadLevel::Lease,
    ReadLevel::Eventual,
];

pub(super) struct User {
    pub(super) program: Program,
    pub(super) random: fastrand::Rng,
    /// Whether it only reads.
    pub(super) is_reader: bool,
    /// The longest pause between two operations.
    pub(super) pause_max: Duration,
}

impl User {
    /// Does one thing after the other.
    pub(super) async fn run(mut self) {
        let mut known: [Held; KEYS] = [None; KEYS];
        loop {
            let pause = self.random.u64(1..=self.pause_max.as_millis() as u64);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.program.history.is_over() {
                return;
            }
            let at = self.random.usize(0..KEYS);
            let block = KEYS + self.random.usize(0..BLOCKS);
            let choice = match self.is_reader {
                true => self.random.u8(0..6),
                false => self.random.u8(0..17),
            };
            match choice {
                0..=3 => {
                    let level = LEVELS[usize::from(choice % 3)];
                    if let Some(held) = self.read(at, level).await {
                        known[at] = held;
                    }
                }
                4..=5 => self.read_block(block).await,
                6..=7 => self.put(at).await,
                8 => self.delete(at).await,
                9 => self.swap(at, known[at]).await,
                10 => self.exchange(at).await,
                11 => self.put_block(block).await,
                12 => self.compare_and_swap(at).await,
                13..=14 => self.transact([at, block]).await,
                _ => self.transact_until_committed(at).await,
            }
        }
    }

    /// Reads everything, when nobody writes any more.
    pub(super) async fn read_all(self) {
        for at in 0..KEYS {
            self.read(at, ReadLevel::Linearizable).await;
        }
        for at in KEYS..KEYS + BLOCKS {
            self.read_block(at).await;
        }
    }

    /// The next value: no other is equal.
    fn value(&self) -> u64 {
        self.program.history.moment()
    }

    /// Makes a change that has the effects of `operation`. `told` tells of its reply what was done, and at which revision.
    async fn change<T>(
        &self,
        operation: Operation,
        sent: impl IntoFuture<Output = Result<T, Error>>,
        told: impl FnOnce(T, Operation) -> (Operation, Option<Revision>),
    ) -> bool {
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        match sent.await {
            Ok(reply) => {
                let (operation, revision) = told(reply, operation.noted(name));
                if let Some(revision) = revision {
                    history.is_acknowledged(&operation, revision);
                }
                history.answer(name, call, Some(operation));
                true
            }
            Err(error) => {
                self.program.note(format_args!("fails: {error}"));
                self.program.judge(&error);
                if !matches!(error, Error::UnknownOutcome { .. }) {
                    history.answer(name, call, None);
                }
                false
            }
        }
    }

    async fn put(&self, at: usize) {
        let value = self.value();
        let put = self.program.client.put(key(at), value.to_string());
        let told =
            |reply: bowline_client::PutReply, operation| (operation, Some(reply.header.revision));
        self.change(Operation::put(at, value), put, told).await;
    }

    async fn delete(&self, at: usize) {
        let delete = self.program.client.delete(key(at));
        let told = |_, operation| (operation, None);
        self.change(Operation::delete(at), delete, told).await;
    }

    async fn swap(&self, at: usize, expected: Held) {
        let value = self.value();
        let condition = match expected {
            Some(expected) => Compare::value(key(at)).equals(expected.to_string()),
            None => Compare::version(key(at)).equals(0),
        };
        let txn = { self.program.client.txn() }
            .when([condition])
            .then([Part::put(key(at), value.to_string())])
            .otherwise([Part::get(key(at))]);
        let told = |reply: bowline_client::TxnReply, operation: Operation| match &reply.replies[..]
        {
            [OperationReply::Get(read)] if !reply.succeeded => {
                (operation.refused().saw(at, held(read)), None)
            }
            _ => (operation, Some(reply.header.revision)),
        };
        self.change(Operation::swap(at, expected, value), txn, told)
            .await;
    }

    /// Reads one key and writes another, at once.
    async fn exchange(&self, at: usize) {
        let (other, value) = ((at + 1) % KEYS, self.value());
        let txn = { self.program.client.txn() }
            .then([Part::get(key(at)), Part::put(key(other), value.to_string())]);
        let told = |reply: bowline_client::TxnReply, operation: Operation| {
            let revision = Some(reply.header.revision);
            match reply.replies.first() {
                Some(OperationReply::Get(read)) => (operation.saw(at, held(read)), revision),
                _ => (operation, revision),
            }
        };
        self.change(Operation::put(other, value), txn, told).await;
    }

    async fn put_block(&self, at: usize) {
        let value = self.value();
        let put = self.program.client.graph().put_block(block(at, value));
        let told = |_, operation| (operation, None);
        self.change(Operation::put(at, value), put, told).await;
    }

    /// Reads a key, and puts it if its revision is still the same.
    async fn compare_and_swap(&self, at: usize) {
        let Ok(read) = self.program.client.get(key(at)).await else {
            return;
        };
        let value = self.value();
        let expected = read.entry().map(|entry| entry.mod_revision).into();
        let mut tx = self.program.client.begin();
        tx.compare_and_swap(key(at), expected, value.to_string())
            .expect("the key is not empty");
        let operation = Operation::swap(at, held(&read), value);
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        match tx.commit().await {
            // What it has read may be there again after others; then its revision is another.
            Err(Error::CompareFailed { .. }) => history.answer(name, call, None),
            committed => self.is_decided(call, operation, committed),
        }
    }

    /// Notes what came of a commit.
    fn is_decided(
        &self,
        call: crate::history::Call,
        operation: Operation,
        committed: Result<bowline_client::Committed, Error>,
    ) {
        let Program { name, history, .. } = &self.program;
        match committed {
            Ok(committed) => {
                history.is_decided(true);
                let operation = operation.noted(name);
                if let Some(revision) = committed.revision {
                    history.is_acknowledged(&operation, revision);
                }
                history.answer(name, call, Some(operation));
            }
            Err(error) => {
                self.program.note(format_args!("fails: {error}"));
                self.program.judge(&error);
                if matches!(
                    error,
                    Error::Conflict { .. } | Error::TooManyConflicts { .. }
                ) {
                    history.is_decided(false);
                }
                if !matches!(error, Error::UnknownOutcome { .. }) {
                    history.answer(name, call, None);
                }
            }
        }
    }

    /// A transaction: reads a key and a block at one revision, and writes another key and perhaps the block, if what
    /// it has read is unchanged.
    async fn transact(&mut self, [at, block_at]: [usize; 2]) {
        let level = LEVELS[self.random.usize(0..LEVELS.len())];
        let options = TransactionOptions::default().level(level);
        let mut tx = self.program.client.begin_with(options);
        let read = async {
            let seen = seen(&mut tx, at).await?;
            let content = tx.block(block_id(block_at)).await?;
            Ok::<_, Error>((seen, content.and_then(|block| number(&block.content))))
        };
        let (seen, content) = match read.await {
            Ok(read) => read,
            Err(error) => {
                self.program.judge(&error);
                return;
            }
        };
        let pause = Duration::from_millis(self.random.u64(0..100));
        tokio::time::sleep(pause).await;
        let (other, value) = ((at + 1) % KEYS, self.value());
        tx.put(key(other), value.to_string())
            .expect("the key is not empty");
        let mut operation = Operation::put(other, value)
            .saw(at, seen)
            .saw(block_at, content);
        if self.random.bool() {
            tx.put_block(block(block_at, value));
            operation = operation.writing(block_at, Some(value));
        }
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        let committed = tx.commit().await;
        self.is_decided(call, operation, committed);
    }

    /// Reads a key and writes another, and begins anew until nobody is in between.
    async fn transact_until_committed(&self, at: usize) {
        let (other, value) = ((at + 1) % KEYS, self.value());
        let operation = Operation::put(other, value);
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        let client = &self.program.client;
        let body = boxed(move |tx| {
            let transacting = async move {
                let seen = seen(tx, at).await?;
                tx.put(key(other), value.to_string())?;
                Ok(seen)
            };
            transacting.boxed()
        });
        match client.transact(body).await {
            Ok(seen) => {
                history.is_decided(true);
                let operation = operation.noted(name).saw(at, seen);
                history.answer(name, call, Some(operation));
            }
            Err(error) => self.is_decided(call, operation, Err(error)),
        }
    }

    /// Judges an error of a read.
    fn has_failed(&self, error: &Error) {
        self.program.note(format_args!("fails: {error}"));
        self.program.judge(error);
        if matches!(error, Error::UnknownOutcome { .. }) {
            let name = &self.program.name;
            let reason = format!("{name}: a read has changed something: {error}");
            self.program.history.fail(reason);
        }
    }

    async fn read(&self, at: usize, level: ReadLevel) -> Option<Held> {
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &Operation::read(at, None));
        let read = self.program.client.get(key(at)).level(level).await;
        let read = read.inspect_err(|error| self.has_failed(error)).ok();
        let seen = read.as_ref().map(held);
        if let Some(read) = &read {
            self.judge_level(level, &read.header);
        }
        let answer = match level {
            // It is judged by the revision that it tells.
            ReadLevel::Eventual => {
                if let Some(read) = &read {
                    history.is_eventual(at, read.header.revision, held(read));
                }
                None
            }
            _ => seen.map(|seen| Operation::read(at, seen).noted(format!("{name} {level:?}"))),
        };
        history.answer(name, call, answer);
        seen.filter(|_| level != ReadLevel::Eventual)
    }

    /// A reply says that it is at least as fresh as it was asked for.
    fn judge_level(&self, asked: ReadLevel, header: &Header) {
        let is_kept = match (asked, header.read_level) {
            (_, None) => false,
            (ReadLevel::Linearizable, Some(served)) => served == ReadLevel::Linearizable,
            (ReadLevel::Lease, Some(served)) => served != ReadLevel::Eventual,
            (ReadLevel::Eventual, Some(_)) => true,
        };
        if !is_kept {
            let (name, served) = (&self.program.name, header.read_level);
            let reason = format!("{name}: asked for {asked:?}, and was served {served:?}");
            self.program.history.fail(reason);
        }
    }

    async fn read_block(&self, at: usize) {
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &Operation::read(at, None));
        let read = self.program.client.graph().blocks([block_id(at)]).await;
        let read = read.inspect_err(|error| self.has_failed(error)).ok();
        let answer = read.map(|read| {
            let seen = { read.blocks.first() }.and_then(|block| number(&block.content));
            Operation::read(at, seen).noted(format!("{name} at {}", read.revision))
        });
        history.answer(name, call, answer);
    }
}

fn held(read: &RangeReply) -> Held {
    number(read.value()?)
}

/// What a transaction reads in a register.
async fn seen(tx: &mut Transaction, at: usize) -> Result<Held, Error> {
    let value = tx.get(key(at)).await?;
    Ok(value.and_then(|value| number(&value)))
}

/// A body of a transaction whose future is known to go from thread to thread, which no `async` closure's is that takes
/// something along.
fn boxed<F>(body: F) -> F
where
    F: for<'a> FnMut(&'a mut Transaction) -> BoxFuture<'a, Result<Held, Error>>,
{
    body
}
