//! Queries in Cypher.
//!
//! A query is parsed and planned on a thread that may block, which shows whether it writes:
//!
//! ```text
//!   read    plan ──▶ operators ──▶ row ──▶ … ──▶ part ──▶ client      a part when it is full, as the client takes them
//!   write   plan ──▶ operators ──▶ all rows ──▶ Command::Commit ──▶ parts
//!             ▲                                      │
//!             └────────────── conflict ──────────────┘                at most [`ATTEMPTS_MAX`] times
//! ```
//!
//! A query that writes runs on a snapshot of this member, which notes what it reads
//! ([`draft_query`](bowline::Graph::draft_query)). The command is that of the transactions of `bowline.v1.Store`: every
//! member looks whether something of that was changed since.
//!
//! Invariants: all rows are of one revision. Rows of a query that writes are sent after its commit, and are those of the
//! attempt that was committed. What a query holds is charged to its connection; the rows of one that writes before its
//! commit, after which nothing refuses them. What it would write is bounded by the size of a command. A query ends soon after its
//! call, or after its time. Nothing is written for a query with a revision, or one that is to read only.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use bowline::cypher::{self, Drafted, Limits, Parameters, Prepared, Query, Summary};
use bowline::{Cancel, Graph, Snapshot};
use bowline_cluster::blocking;
use bowline_proto::v1 as pb;
use bowline_replica::{
    Caller, Command, Commit, CommitRead, CommitWrite, EdgeKey, IndexRefusal, Need, Outcome, Refusal,
};
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::check;
use super::graph_query::{CancelOnDrop, Canceling, Queries, parts_of_bytes};
use super::kv::{execute, foreign_reply};
use super::reading::{Opened, Parts, header, open};
use super::stream::{of_charged_parts, produced};
use crate::context::{Context, respond_applied, respond_read};
use crate::convert::cypher as convert;
use crate::convert::graph::read_level;
use crate::memory::{Account, Charge};
use crate::status::{Fault, status};

/// How many traversals a query counts as.
const WEIGHT: u32 = 2;
/// How often a query that writes is run, and for how long, until it does not conflict.
const ATTEMPTS_MAX: u32 = 100;
const CONFLICTS_FOR_MAX: Duration = Duration::from_secs(10);
/// The most memory of the sorts and groups of a query.
const MEMORY_MAX_BYTES: u64 = 256 << 20;

const WRITES_TOO_MUCH: &str =
    "the query writes more than a transaction may: write in several, as with LIMIT";

/// What a client asks for.
struct Asked {
    text: String,
    parameters: Parameters,
    limits: Limits,
    mode: pb::QueryMode,
    read: pb::Read,
    may_write: bool,
    /// The most that it may write: a command is not larger.
    writes_max_bytes: u64,
    time_max: Duration,
}

impl Asked {
    fn of(context: &Context, request: pb::QueryRequest) -> Result<Asked, Status> {
        if request.encoded_len() > context.settings.request_bytes_max {
            return Err(Fault::RequestTooLarge.into());
        }
        let mode = pb::QueryMode::try_from(request.mode);
        let mode = mode.map_err(|_| Fault::Invalid("the mode is not known: use 0, 1 or 2"))?;
        let or_none = |limit: u64| (limit > 0).then_some(limit);
        let limits = Limits {
            rows: or_none(request.rows_max).unwrap_or(u64::MAX),
            memory_bytes: or_none(request.memory_max_bytes)
                .map_or(MEMORY_MAX_BYTES, |bytes| bytes.min(MEMORY_MAX_BYTES)),
            ..Limits::default()
        };
        let mut read = request.read.unwrap_or_default();
        let in_text = Query::new(&request.text).revision();
        if let Some(revision) = in_text.map_err(convert::refusal)? {
            if read.revision != 0 && read.revision != revision {
                let text = "the text asks for another revision than the request: leave one out";
                return Err(Fault::Invalid(text).into());
            }
            read.revision = revision;
        }
        let time_max = context.settings.query_time_max;
        Ok(Asked {
            parameters: convert::parameters(request.parameters)?,
            text: request.text,
            limits,
            mode,
            may_write: !request.read_only && read.revision == 0,
            writes_max_bytes: context.settings.message_bytes_max() as u64,
            read,
            time_max: or_none(request.time_max_ms)
                .map_or(time_max, |ms| time_max.min(Duration::from_millis(ms))),
        })
    }

    /// Calls `run` with the query as it is to be run.
    fn with_query<T>(
        &self,
        snapshot: &Snapshot,
        charge: Charge,
        cancel: &Cancel,
        run: impl FnOnce(&Query<'_>, &Graph) -> T,
    ) -> T {
        let charge = RefCell::new(charge);
        let may_hold = |bytes: u64| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            charge.borrow_mut().set(bytes).is_ok()
        };
        let cancelled = || cancel.is_canceled();
        let begun = std::time::Instant::now();
        let clock = || begun.elapsed();
        let query = snapshot.build_query(&self.text);
        let query = query.limits(self.limits.clone());
        let query = query.cancelled(&cancelled).may_hold(&may_hold);
        let query = match self.mode {
            pb::QueryMode::Profile => query.profiled(&clock),
            pb::QueryMode::Run | pb::QueryMode::Explain => query,
        };
        run(&query, &snapshot.graph().cancelable(cancel))
    }
}

/// What the first step of a query shows.
enum Planned {
    /// How it would be run.
    Explained(String, Prepared),
    /// It reads: its operators are yet to run.
    Reads(Prepared),
    /// It writes, and has run.
    Drafted(Box<Attempt>),
}

/// A query that writes has run, and is not committed.
struct Attempt {
    columns: Vec<String>,
    rows: Vec<(pb::QueryRow, usize)>,
    summary: Summary,
    drafted: Drafted,
    /// The memory of the rows, and of the parts that are made of them.
    charge: Charge,
}

fn columns(prepared: &Prepared) -> Vec<String> {
    prepared.columns().iter().map(ToString::to_string).collect()
}

fn end(summary: Summary, attempts: Option<u32>) -> pb::QueryEnd {
    pb::QueryEnd {
        effects: Some(convert::effects(summary.effects)),
        plan: summary.profile.unwrap_or_default(),
        writes: attempts.is_some(),
        attempts: attempts.unwrap_or(0),
    }
}

/// The error that ends a query whose row could not be handed on. Why it could not is kept elsewhere.
fn ended() -> cypher::Error {
    cypher::Error::Store(bowline::Error::Canceled.into())
}

fn takes_too_long(time_max: Duration) -> Status {
    let text = format!(
        "the query takes longer than the {time_max:?} that it has: narrow it, or give it more time, up to the server's \
         --max-query-time"
    );
    Fault::Unfit(text).into()
}

/// Whether a query ended because it would write more than a command may.
fn writes_too_much(error: &cypher::Error) -> bool {
    use bowline::Error::TransactionTooLarge;
    let cypher::Error::Store(source) = error else {
        return false;
    };
    let error = source.downcast_ref::<bowline::Error>();
    matches!(error, Some(TransactionTooLarge { .. }))
}

/// Plans a query, and runs it if it writes.
fn plan(
    asked: &Asked,
    snapshot: &Snapshot,
    account: &Arc<Account>,
    cancel: &Cancel,
) -> Result<Planned, Status> {
    let charge = Charge::none(account.clone());
    asked.with_query(snapshot, charge, cancel, |query, graph| {
        let prepared = query.plan(graph).map_err(convert::refusal)?;
        if asked.mode == pb::QueryMode::Explain {
            let plan = query.explain(graph).map_err(convert::refusal)?;
            return Ok(Planned::Explained(plan, prepared));
        }
        if !prepared.writes() || !asked.may_write {
            // One that must not write is refused by its run.
            return Ok(Planned::Reads(prepared));
        }
        let mut charge = Charge::none(account.clone());
        let mut rows = Vec::new();
        let mut refused = None;
        let mut take = |values| {
            let taken = convert::row(values).and_then(|(row, bytes)| {
                let held = charge.bytes() + 2 * bytes + size_of::<pb::QueryRow>();
                charge.set(held).map_err(|_| Fault::OutOfMemory)?;
                rows.push((row, bytes));
                Ok(())
            });
            taken.map_err(|fault| {
                refused = Some(fault);
                ended()
            })
        };
        let (parameters, bytes_max) = (&asked.parameters, asked.writes_max_bytes);
        let drafted = graph.draft_query(query, &prepared, parameters, bytes_max, &mut take);
        if let Some(fault) = refused {
            return Err(fault.into());
        }
        let (summary, drafted) = drafted.map_err(|error| match writes_too_much(&error) {
            true => Fault::Invalid(WRITES_TOO_MUCH).into(),
            false => convert::refusal(error),
        })?;
        Ok(Planned::Drafted(Box::new(Attempt {
            columns: columns(&prepared),
            rows,
            summary,
            drafted,
            charge,
        })))
    })
}

/// Answers a query.
pub(super) async fn query(
    context: &Arc<Context>,
    queries: &Queries,
    request: Request<pb::QueryRequest>,
) -> Result<Response<Canceling<pb::QueryReply>>, Status> {
    let (metadata, _, request) = request.into_parts();
    let asked = Arc::new(Asked::of(context, request)?);
    let mut read = asked.read;
    let begun = Instant::now();
    for attempt in 1.. {
        let opened = open_for(context, &metadata, read).await?;
        let turn = queries.turn(WEIGHT).await?;
        let cancel = Cancel::new();
        let canceled = CancelOnDrop(cancel.clone());
        let job = {
            let (asked, snapshot) = (asked.clone(), opened.snapshot.clone());
            let account = queries.account();
            move || (plan(&asked, &snapshot, &account, &cancel), turn)
        };
        let left = asked.time_max.saturating_sub(begun.elapsed());
        let planned = tokio::time::timeout(left, blocking::spawn(job)).await;
        let planned = planned.map_err(|_| takes_too_long(asked.time_max))?;
        let (planned, turn) = planned.map_err(|error| Fault::Internal(error.to_string()))?;
        drop(canceled);
        let ran = match planned? {
            Planned::Explained(plan, prepared) => {
                let summary = Summary {
                    profile: Some(plan),
                    ..Summary::default()
                };
                let end = end(summary, prepared.writes().then_some(0));
                return told(queries, &opened, Vec::new(), Vec::new(), end, ());
            }
            Planned::Reads(prepared) => {
                // An algorithm holds as much as the graph is large.
                let whole = match prepared.calls() {
                    true => Some(queries.turn_of_whole().await?),
                    false => None,
                };
                let turn = (turn, whole);
                let left = asked.time_max.saturating_sub(begun.elapsed());
                return Ok(stream(queries, asked, opened, prepared, turn, left));
            }
            Planned::Drafted(ran) => *ran,
        };
        drop(turn);
        check(context, &metadata)?;
        let caller = context.caller_of(&metadata).await?;
        let Attempt {
            columns,
            rows,
            summary,
            drafted,
            charge,
        } = ran;
        let end = end(summary, Some(attempt));
        if drafted.writes.is_empty() {
            // It has read one revision, and changed nothing.
            return told(queries, &opened, columns, rows, end, charge);
        }
        let at = opened.snapshot.revision();
        if let Some(committed) = commit(context, &caller, at, drafted).await? {
            let (revision, term, index) = committed;
            let header = pb::Header {
                read_level: read_level(opened.point.level).into(),
                read_revision: at.get(),
                ..header(context, revision, term, index)
            };
            let parts = parts_of_rows(header, columns, rows, end);
            // It is committed, so nothing may refuse its rows any more, as for want of memory.
            let replies = of_charged_parts(parts, charge);
            let replies = Queries::reading(replies, Cancel::new());
            return Ok(respond_applied(replies, index));
        }
        let elapsed = begun.elapsed();
        if attempt >= ATTEMPTS_MAX || elapsed >= CONFLICTS_FOR_MAX.min(asked.time_max) {
            let text = format!(
                "gave up after {attempt} conflicting attempts in {elapsed:?}: others write what the query reads; try \
                 again later, or read less. Nothing was written"
            );
            return Err(Fault::Contended(text).into());
        }
        // What it conflicts with is to be seen.
        read.set_level(pb::ReadLevel::Linearizable);
        tokio::time::sleep(Duration::from_millis(
            attempt.saturating_sub(1).min(10).into(),
        ))
        .await;
    }
    Err(foreign_reply())
}

async fn open_for(
    context: &Context,
    metadata: &MetadataMap,
    read: pb::Read,
) -> Result<Opened, Status> {
    // What a query can see is not known before it runs: all kinds.
    open(context, metadata, Some(read), &|each| {
        each(Need::read_kind(None))
    })
    .await
}

/// Commits what a query would write; the revision, the term and the index of the commit, or `None` after a conflict.
async fn commit(
    context: &Context,
    caller: &Caller,
    read_revision: bowline::Revision,
    drafted: Drafted,
) -> Result<Option<(bowline::Revision, u64, u64)>, Status> {
    let writes = drafted.writes.into_iter().map(CommitWrite::Graph);
    let command = Command::Commit(Commit {
        read_revision,
        reads: drafted
            .reads
            .into_iter()
            .map(of_read)
            .collect::<Result<_, _>>()?,
        writes: writes.collect(),
        ..Commit::default()
    });
    let client = context.client.by(caller);
    client
        .check_newest(&|each| bowline_replica::needs(&command, each))
        .await
        .map_err(status)?;
    let applied = execute(context, caller, command).await?;
    match applied.reply.result {
        Ok(Outcome::Committed { .. }) => {
            let revision = applied.reply.revision;
            Ok(Some((revision, applied.term, applied.index)))
        }
        Ok(_) => Err(foreign_reply()),
        // The revision that was read may be trimmed meanwhile: then what it conflicts with is not known.
        Err(Refusal::Conflict { .. } | Refusal::Compacted { .. }) => Ok(None),
        Err(Refusal::Index(IndexRefusal::Dropped)) => Ok(None),
        Err(Refusal::TooLarge { .. } | Refusal::TooManyWrites { .. }) => {
            Err(Fault::Invalid(WRITES_TOO_MUCH).into())
        }
        Err(refusal) => Err(status(refusal)),
    }
}

fn of_read(read: cypher::DraftRead) -> Result<CommitRead, Status> {
    use cypher::DraftRead as D;
    Ok(match read {
        D::Blocks { first, last } if first == last => CommitRead::Block(first),
        D::Blocks { first, last } => CommitRead::Blocks { first, last },
        D::Entries { index, first, end } => CommitRead::Entries { index, first, end },
        D::Edge(EdgeKey {
            source,
            kind,
            target,
        }) => CommitRead::Edge {
            source,
            kind,
            target,
        },
        D::EdgesOut(id) => CommitRead::EdgesOut(id),
        D::EdgesIn(id) => CommitRead::EdgesIn(id),
        _ => return Err(foreign_reply()),
    })
}

/// A reply whose rows are known.
fn told(
    queries: &Queries,
    opened: &Opened,
    columns: Vec<String>,
    rows: Vec<(pb::QueryRow, usize)>,
    end: pb::QueryEnd,
    kept: impl Send + 'static,
) -> Result<Response<Canceling<pb::QueryReply>>, Status> {
    let parts = parts_of_rows(opened.header, columns, rows, end);
    let replies = queries.in_parts(parts, kept)?;
    let replies = Queries::reading(replies, Cancel::new());
    Ok(respond_read(replies, &opened.point))
}

fn parts_of_rows(
    header: pb::Header,
    columns: Vec<String>,
    rows: Vec<(pb::QueryRow, usize)>,
    end: pb::QueryEnd,
) -> impl Iterator<Item = pb::QueryReply> + Send {
    let (mut header, mut columns, mut end) = (Some(header), columns, Some(end));
    parts_of_bytes(rows).map(move |(rows, is_last)| pb::QueryReply {
        header: header.take(),
        columns: std::mem::take(&mut columns),
        rows,
        end: end.take_if(|_| is_last),
    })
}

/// A reply whose rows are sent as they are found.
fn stream(
    queries: &Queries,
    asked: Arc<Asked>,
    opened: Opened,
    prepared: Prepared,
    turn: impl Send + 'static,
    time_left: Duration,
) -> Response<Canceling<pb::QueryReply>> {
    let cancel = Cancel::new();
    let (snapshot, header) = (opened.snapshot, opened.header);
    let account = queries.account();
    let charge = Charge::none(account.clone());
    let canceled = cancel.clone();
    let times = (asked.time_max, time_left);
    let replies = produced(account, move |sender| {
        let _turn = turn;
        let mut names = columns(&prepared);
        // Known at the last part.
        let at_end: Cell<Option<pb::QueryEnd>> = Cell::new(None);
        let mut parts = Parts::growing(sender, header, |header, rows, is_last| pb::QueryReply {
            header,
            columns: std::mem::take(&mut names),
            rows,
            end: match is_last {
                true => at_end.take(),
                false => None,
            },
        });
        let mut refused = None;
        let ran = asked.with_query(&snapshot, charge, &canceled, |query, graph| {
            query.for_each(&prepared, graph, &asked.parameters, &mut |values| {
                let (row, bytes) = match convert::row(values) {
                    Ok(row) => row,
                    Err(fault) => {
                        refused = Some(Status::from(fault));
                        return Err(ended());
                    }
                };
                parts.push(row, bytes).map_err(|_| ended())
            })
        });
        let ran = match (refused, ran) {
            (Some(refused), _) => Err(refused),
            (None, Err(error)) => Err(convert::refusal(error)),
            (None, Ok(summary)) => {
                at_end.set(Some(end(summary, None)));
                Ok(())
            }
        };
        parts.finish_with(ran)
    });
    let replies = Queries::canceling_within(replies, cancel, times, takes_too_long);
    respond_read(replies, &opened.point)
}
