//! What users over the network read, and the judge of how fresh it is.
//!
//! | read | judged by |
//! |---|---|
//! | of one register, or of all at once, that is linearizable or rests on the leader's lease | the checker of histories |
//! | of the same that is eventual, or of an earlier revision | the state of the revision that it tells, in the end |
//! | every reply | the level that it says it has, and its revision: none is older than what anybody was told before |

use bowline::Revision;
use bowline_client::{Error, Header, KeyRange, RangeReply, ReadLevel};
use bowline_testing::linear::{Held, Operation};

use super::program::Program;
use super::user::User;
use crate::clients::{KEYS, block_id, key, number};

pub(super) const LEVELS: [ReadLevel; 3] = [
    ReadLevel::Linearizable,
    ReadLevel::Lease,
    ReadLevel::Eventual,
];
/// A read of the past goes back by fewer revisions than this.
const BACK_MAX: u64 = 40;

impl User {
    /// Reads a register. Gives what it holds, unless that may be old.
    pub(super) async fn read(&self, at: usize, level: ReadLevel) -> Option<Held> {
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &Operation::read(at, None));
        let known = history.newest_told();
        let read = self.program.client.get(key(at)).level(level).await;
        let read = read.inspect_err(|error| self.has_failed(error)).ok();
        let seen = read.as_ref().map(held);
        if let Some(read) = &read {
            self.judge_header(level, known, &read.header);
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

    /// Reads all keys at once.
    pub(super) async fn read_keys(&self, level: ReadLevel) {
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &Operation::read(0, None));
        let known = history.newest_told();
        let all = KeyRange::between(key(0), key(KEYS));
        let read = self.program.client.range(all).level(level).await;
        let read = read.inspect_err(|error| self.has_failed(error)).ok();
        let mut answer = None;
        if let Some(read) = &read {
            self.judge_header(level, known, &read.header);
            let all = (0..KEYS).map(|at| (at, held_in(read, at)));
            if level == ReadLevel::Eventual {
                all.for_each(|(at, held)| history.is_eventual(at, read.header.revision, held));
            } else {
                let operation = Operation::read(0, held_in(read, 0));
                let operation = all
                    .skip(1)
                    .fold(operation, |so_far, (at, held)| so_far.saw(at, held));
                answer = Some(operation.noted(format!("{name} {level:?}, all at once")));
            }
        }
        history.answer(name, call, answer);
    }

    /// Reads a register as it was at a revision that somebody was told of.
    pub(super) async fn read_past(&mut self, at: usize, level: ReadLevel) {
        let Program { name, history, .. } = &self.program;
        let known = history.newest_told();
        let back = self.random.u64(0..BACK_MAX);
        let revision = known.saturating_sub(back).max(Revision::FIRST);
        self.program
            .note(format_args!("asks for r{at} at {revision}"));
        let get = self.program.client.get(key(at)).revision(revision);
        match get.level(level).await {
            Ok(read) => {
                self.judge_header(level, known, &read.header);
                history.is_eventual(at, revision, held(&read));
            }
            Err(Error::FutureRevision) if level != ReadLevel::Eventual => {
                let reason = format!(
                    "{name}: asked for revision {revision} at {level:?}, and was told that it is to come"
                );
                history.fail(reason);
            }
            Err(error) => self.has_failed(&error),
        }
    }

    /// Reads the content of a block.
    pub(super) async fn read_block(&self, at: usize) {
        let Program { name, history, .. } = &self.program;
        let call = history.call(name, &Operation::read(at, None));
        let known = history.newest_told();
        let read = self.program.client.graph().blocks([block_id(at)]).await;
        let read = read.inspect_err(|error| self.has_failed(error)).ok();
        let answer = read.map(|read| {
            self.judge_revision(known, read.revision);
            let seen = { read.blocks.first() }.and_then(|block| number(&block.content));
            Operation::read(at, seen).noted(format!("{name} at {}", read.revision))
        });
        history.answer(name, call, answer);
    }

    /// Judges an error of a read.
    pub(super) fn has_failed(&self, error: &Error) {
        self.program.note(format_args!("fails: {error}"));
        self.program.judge(error);
        if matches!(error, Error::UnknownOutcome { .. }) {
            let name = &self.program.name;
            let reason = format!("{name}: a read has changed something: {error}");
            self.program.history.fail(reason);
        }
    }

    /// A reply says that it is at least as fresh as it was asked for, and is: `known` was told before it was asked.
    fn judge_header(&self, asked: ReadLevel, known: Revision, header: &Header) {
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
        match asked {
            ReadLevel::Eventual => self.program.history.is_told_of(header.revision),
            _ => self.judge_revision(known, header.revision),
        }
    }

    /// A reply is not older than what was told before it was asked for.
    fn judge_revision(&self, known: Revision, told: Revision) {
        let Program { name, history, .. } = &self.program;
        if told < known {
            let reason = format!("{name}: a reply of revision {told}, after {known} was told");
            history.fail(reason);
        }
        history.is_told_of(told);
    }
}

pub(super) fn held(read: &RangeReply) -> Held {
    number(read.value()?)
}

/// What one of the keys of a range holds.
fn held_in(read: &RangeReply, at: usize) -> Held {
    let key = key(at);
    let entry = read.entries.iter().find(|entry| entry.key == key)?;
    number(&entry.value)
}
