//! One who reads and writes registers over the network.
//!
//! A change whose error is [`Error::UnknownOutcome`] may have been made, at any time from its call on. After every other
//! error nothing was done: that is what the client promises, and the checker of histories takes it at its word.

use std::time::Duration;

use bowline::Revision;
use bowline_client::{
    Compare, DeleteReply, Error, Operation as Part, OperationReply, PutReply, ReadLevel,
    Transaction, TransactionOptions,
};
use bowline_testing::linear::{Held, Operation};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::program::Program;
use super::reads::{LEVELS, held};
use crate::clients::{BLOCKS, KEYS, block, block_id, key, number};

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
            let level = LEVELS[self.random.usize(0..LEVELS.len())];
            match choice {
                0..=1 => {
                    if let Some(held) = self.read(at, level).await {
                        known[at] = held;
                    }
                }
                2 => self.read_keys(level).await,
                3 => self.read_past(at, level).await,
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
        let known = history.newest_told();
        match sent.await {
            Ok(reply) => {
                let (operation, revision) = told(reply, operation.noted(name));
                if let Some(revision) = revision {
                    self.judge_change(known, revision);
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

    async fn put(&mut self, at: usize) {
        let value = self.value();
        let mut put = self.program.client.put(key(at), value.to_string());
        let asks = self.random.bool();
        if asks {
            put = put.previous();
        }
        let told = |reply: PutReply, operation: Operation| {
            let before = { reply.previous.as_ref() }.and_then(|entry| number(&entry.value));
            let operation = match asks {
                true => operation.saw(at, before),
                false => operation,
            };
            (operation, Some(reply.header.revision))
        };
        self.change(Operation::put(at, value), put, told).await;
    }

    async fn delete(&mut self, at: usize) {
        let mut delete = self.program.client.delete(key(at));
        let asks = self.random.bool();
        if asks {
            delete = delete.previous();
        }
        let told = |reply: DeleteReply, operation: Operation| {
            let before = { reply.previous.first() }.and_then(|entry| number(&entry.value));
            let operation = match asks || reply.deleted == 0 {
                true => operation.saw(at, before),
                false => operation,
            };
            (operation, None)
        };
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
        let read = match self.program.client.get(key(at)).await {
            Ok(read) => read,
            Err(error) => return self.has_failed(&error),
        };
        let value = self.value();
        let expected = read.entry().map(|entry| entry.mod_revision).into();
        let mut tx = self.program.client.begin();
        tx.compare_and_swap(key(at), expected, value.to_string())
            .expect("the key is not empty");
        let operation = Operation::swap(at, held(&read), value);
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        let known = history.newest_told();
        match tx.commit().await {
            // What it has read may be there again after others; then its revision is another.
            Err(Error::CompareFailed { .. }) => history.answer(name, call, None),
            committed => self.is_decided(call, known, operation, committed),
        }
    }

    /// A change is made at a later revision than any that was told before it was asked for.
    fn judge_change(&self, known: Revision, told: Revision) {
        if told <= known {
            let name = &self.program.name;
            let reason = format!("{name}: a change at revision {told}, after {known} was told");
            self.program.history.fail(reason);
        }
    }

    /// Notes what came of a commit. `known` was told before it was sent.
    fn is_decided(
        &self,
        call: crate::history::Call,
        known: Revision,
        operation: Operation,
        committed: Result<bowline_client::Committed, Error>,
    ) {
        let Program { name, history, .. } = &self.program;
        match committed {
            Ok(committed) => {
                history.is_decided(true);
                let operation = operation.noted(name);
                if let Some(revision) = committed.revision {
                    self.judge_change(known, revision);
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
            Err(error) => return self.has_failed(&error),
        };
        let pause = Duration::from_millis(self.random.u64(0..100));
        tokio::time::sleep(pause).await;
        let (other, value) = ((at + 1) % KEYS, self.value());
        tx.put(key(other), value.to_string())
            .expect("the key is not empty");
        let read = [(at, seen), (block_at, content)];
        let mut operation = Operation::transaction(read).writing(other, Some(value));
        if self.random.bool() {
            tx.put_block(block(block_at, value));
            operation = operation.writing(block_at, Some(value));
        }
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        let known = history.newest_told();
        let committed = tx.commit().await;
        self.is_decided(call, known, operation, committed);
    }

    /// Reads a key and writes another, and begins anew until nobody is in between.
    async fn transact_until_committed(&self, at: usize) {
        let (other, value) = ((at + 1) % KEYS, self.value());
        let operation = Operation::put(other, value);
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &operation);
        let known = history.newest_told();
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
            Err(error) => self.is_decided(call, known, operation, Err(error)),
        }
    }
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
