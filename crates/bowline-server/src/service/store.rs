//! `bowline.v1.Store`: keys at any level and revision, their history, and transactions.
//!
//! A transaction has no state on the server: its client reads at one revision, from any member, and sends
//! what it has read with its writes as one command, on which all members decide alike.
//!
//! Invariants: every part of a reply is of one revision, which is in the header. At most [`SCANS_MAX`] scans
//! are under way or waiting for their clients. A commit is proposed once.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use bowline::{Author, Revision};
use bowline_cluster::ReadLevel;
use bowline_proto::v1 as pb;
use bowline_replica::{Caller, Command, Need, Outcome, Refusal};
use pb::commit_reply::Outcome as ReplyOutcome;
use pb::store_server::Store;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::check;
use super::kv::{execute, foreign_reply};
use super::reading::{Parts, ask, header, open, read_some, turn_of};
use super::stream::{Replies, produced};
use crate::context::{Context, respond_applied, respond_read};
use crate::convert::store as convert;
use crate::memory::current_account;
use crate::status::{Fault, status};

/// The most concurrent scans.
const SCANS_MAX: usize = 64;

/// The store service.
#[derive(Debug, Clone)]
pub(crate) struct StoreService {
    context: Arc<Context>,
    scans: Arc<Semaphore>,
}

impl StoreService {
    pub(crate) fn new(context: Arc<Context>) -> StoreService {
        StoreService {
            context,
            scans: Arc::new(Semaphore::new(SCANS_MAX)),
        }
    }
}

/// Whose names a caller may see beside what they have changed.
enum ShownNames {
    /// Everybody's.
    All,
    /// Its own.
    Own(String),
    None,
}

impl ShownNames {
    fn shown(&self, author: Author) -> pb::Author {
        let is_shown = match self {
            ShownNames::All => true,
            ShownNames::Own(name) => *name == author.user,
            ShownNames::None => false,
        };
        pb::Author {
            user: if is_shown { author.user } else { String::new() },
            at_ms: author.at_ms,
        }
    }
}

impl StoreService {
    /// Whose names the caller of a request may see.
    async fn shown_names(&self, metadata: &MetadataMap) -> Result<ShownNames, Status> {
        let caller = self.context.caller_of(metadata).await?;
        let client = self.context.client.by(&caller);
        // While authentication is disabled, everybody has this right.
        if client.check(|each| each(Need::Root)).is_ok() {
            return Ok(ShownNames::All);
        }
        Ok(match &caller {
            Caller::User(session) => ShownNames::Own(session.user().to_owned()),
            Caller::Nobody | Caller::Process => ShownNames::None,
        })
    }
}

#[tonic::async_trait]
impl Store for StoreService {
    type RangeStream = Replies<pb::RangeReply>;
    type HistoryStream = Replies<pb::HistoryReply>;

    async fn get(
        &self,
        request: Request<pb::GetRequest>,
    ) -> Result<Response<pb::GetReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let keys = convert::keys(asked.keys)?;
        let opened = open(&self.context, &metadata, asked.read, &|each| {
            let mut keys = keys.iter();
            keys.try_for_each(|key| each(Need::read(key, &[])))
        })
        .await?;
        let snapshot = opened.snapshot;
        let (entries, answered) = ask(&self.context, move || {
            read_some(&keys, |key| {
                let found = snapshot.entry(key)?;
                Ok(found.map(|entry| convert::entry(entry, false)))
            })
        })
        .await?;
        let reply = pb::GetReply {
            header: Some(opened.header),
            entries,
            answered,
        };
        Ok(respond_read(reply, &opened.point))
    }

    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let given = asked.range.clone().unwrap_or_default();
        let range = convert::range(asked.range)?;
        let opened = open(&self.context, &metadata, asked.read, &|each| {
            each(Need::read(&given.key, &given.range_end))
        })
        .await?;
        let turn = turn_of(&self.scans, 1).await?;
        let (snapshot, header) = (opened.snapshot, opened.header);
        let limit = match asked.limit {
            0 => u64::MAX,
            limit => limit,
        };
        let account = current_account(&self.context.memory);
        let stream = produced(account, move |sender| {
            let _turn = turn;
            let more = Cell::new(false);
            let mut parts = Parts::new(sender, header, |header, entries, is_last| pb::RangeReply {
                header,
                entries,
                is_last,
                more: is_last && more.get(),
            });
            let scan = || -> bowline::Result<()> {
                let Some(range) = range else { return Ok(()) };
                let mut entries = snapshot.range(range)?;
                let mut count = 0;
                while let Some(entry) = match asked.reverse {
                    true => entries.next_back(),
                    false => entries.next(),
                } {
                    let entry = convert::entry(entry?, asked.keys_only);
                    if count == limit {
                        more.set(true);
                        break;
                    }
                    count += 1;
                    let bytes = entry.key.len() + entry.value.len();
                    parts.push(entry, bytes)?;
                }
                Ok(())
            };
            let scanned = scan();
            parts.finish(scanned)
        });
        Ok(respond_read(stream, &opened.point))
    }

    async fn history(
        &self,
        request: Request<pb::HistoryRequest>,
    ) -> Result<Response<Self::HistoryStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let key = convert::key(asked.key)?;
        let opened = open(&self.context, &metadata, asked.read, &|each| {
            each(Need::read(&key, &[]))
        })
        .await?;
        let turn = turn_of(&self.scans, 1).await?;
        let header = opened.header;
        let db = self.context.client.db().clone();
        let limit = match asked.limit {
            0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let at = opened.snapshot.revision();
        let shown_names = match asked.authors {
            true => Some(self.shown_names(&metadata).await?),
            false => None,
        };
        let account = current_account(&self.context.memory);
        let stream = produced(account, move |sender| {
            let _turn = turn;
            let mut parts = Parts::new(sender, header, |header, versions, is_last| {
                pb::HistoryReply {
                    header,
                    versions,
                    is_last,
                }
            });
            let mut tell = || -> bowline::Result<()> {
                let mut count = 0;
                let told = db.visit_history(&key, |version| {
                    if version.revision > at {
                        return ControlFlow::Continue(());
                    }
                    if count == limit {
                        return ControlFlow::Break(Ok(()));
                    }
                    count += 1;
                    let mut version = convert::version(version);
                    if let Some(names) = &shown_names {
                        match db.author(Revision::new(version.revision)) {
                            Ok(found) => version.author = found.map(|found| names.shown(found)),
                            Err(error) => return ControlFlow::Break(Err(error)),
                        }
                    }
                    let bytes = version.encoded_len();
                    match parts.push(version, bytes) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(ended) => ControlFlow::Break(Err(ended)),
                    }
                })?;
                told.break_value().unwrap_or(Ok(()))?;
                // Checked afterwards: history trimmed during the read must not look as if it had never been.
                db.snapshot_at(at)?;
                Ok(())
            };
            let told = tell();
            parts.finish(told)
        });
        Ok(respond_read(stream, &opened.point))
    }

    async fn commit(
        &self,
        request: Request<pb::CommitRequest>,
    ) -> Result<Response<pb::CommitReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        check(&self.context, &metadata)?;
        if request.encoded_len() > self.context.settings.request_bytes_max {
            return Err(Fault::RequestTooLarge.into());
        }
        let commit = convert::commit(request)?;
        let caller = self.context.caller_of(&metadata).await?;
        let command = Command::Commit(commit);
        let client = self.context.client.by(&caller);
        client
            .check_newest(&|each| bowline_replica::needs(&command, each))
            .await
            .map_err(status)?;
        let Command::Commit(commit) = command else {
            return Err(foreign_reply());
        };
        if commit.writes.is_empty() && commit.expectations.is_empty() {
            // All reads were of one revision: the transaction is equivalent to a commit at that revision.
            let point = self.context.client.read_barrier(ReadLevel::Eventual).await;
            let point = point.map_err(status)?;
            let (term, index) = (point.term, point.applied_index);
            let reply = pb::CommitReply {
                header: Some(header(&self.context, commit.read_revision, term, index)),
                outcome: Some(ReplyOutcome::Committed(pb::Committed::default())),
            };
            return Ok(Response::new(reply));
        }
        let applied = execute(&self.context, &caller, Command::Commit(commit)).await?;
        let told = match applied.reply.result {
            Ok(Outcome::Committed {
                deleted,
                is_changed,
                updated,
            }) => ReplyOutcome::Committed(pb::Committed {
                changed: is_changed,
                deleted,
                updated: updated.into_iter().map(convert::updated).collect(),
            }),
            Ok(_) => {
                let text = "the reply does not belong to the request".to_owned();
                return Err(Fault::Internal(text).into());
            }
            Err(Refusal::Conflict { what, revision, .. }) => {
                ReplyOutcome::Conflict(convert::conflict(what, revision.get()))
            }
            Err(Refusal::CompareFailed {
                key,
                expected,
                actual,
            }) => ReplyOutcome::Mismatch(pb::Mismatch {
                key: key.into(),
                expected: expected.get(),
                actual: actual.get(),
            }),
            Err(Refusal::TooLarge { .. } | Refusal::TooManyWrites { .. }) => {
                return Err(Fault::Invalid(
                    "the writes are over the limit of a transaction, or a key or value is: split them; of a \
                     block with very many edges, delete edges first",
                )
                .into());
            }
            Err(refusal) => return Err(status(refusal)),
        };
        let (revision, term) = (applied.reply.revision, applied.term);
        let reply = pb::CommitReply {
            header: Some(header(&self.context, revision, term, applied.index)),
            outcome: Some(told),
        };
        Ok(respond_applied(reply, applied.index))
    }
}
