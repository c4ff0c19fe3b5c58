//! What is asked of both servers: requests as a client can send them, with numbers that are only
//! known when they are sent.
//!
//! A sequence must mean the same when a part of it is left out, so revisions are given relative to the
//! newest or the compacted one, and a lease that a server chose by the order of its grant. Such a
//! number is far above any that occurs: [`now`], [`compacted`], [`chosen`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v3electionpb::LeaderKey;
use pb::compare::TargetUnion;
use pb::request_op::Request as Op;
use pb::watch_request::RequestUnion;

use crate::calls::Call;

const NOW: i64 = 1 << 41;
const COMPACTED: i64 = 1 << 42;
const CHOSEN: i64 = 1 << 43;
/// How far a number may lie from the one it is relative to.
const REACH: u64 = 1 << 20;

/// The newest revision, or one beside it.
pub(crate) const fn now(beside: i64) -> i64 {
    NOW + beside
}

/// The revision of the last compaction, or one beside it.
pub(crate) const fn compacted(beside: i64) -> i64 {
    COMPACTED + beside
}

/// The lease that the server chose in the grant with this number.
pub(crate) const fn chosen(number: i64) -> i64 {
    CHOSEN + number
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases,
    KeepAlive(i64),
    Members(bool),
    Alarm(pb::AlarmRequest),
    Status,
    HashKv(i64),
    /// Of everything else.
    Call(Call),
    /// A step that concerns no stream, with metadata.
    With(&'static str, &'static str, Box<Step>),
    /// On the stream with this number.
    Watch(usize, pb::WatchRequest),
    /// Waits for all events, and compares the streams.
    Settle,
}

impl Step {
    /// See [`Call::queues_up`].
    pub(crate) fn queues_up(&self) -> Option<(Vec<u8>, i64)> {
        match self {
            Step::Call(call) => call.queues_up(),
            Step::With(_, _, inner) => inner.queues_up(),
            _ => None,
        }
    }

    /// Whether it is a watch that begins at this revision.
    pub(crate) fn is_watch_from(&self, revision: i64) -> bool {
        let Step::Watch(_, request) = self else {
            return false;
        };
        matches!(&request.request_union, Some(RequestUnion::CreateRequest(create))
            if create.start_revision == revision)
    }
}

/// What the numbers of a sequence stand for on one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// When the sequence began.
    pub(crate) began: Option<Instant>,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    /// All there were.
    pub(crate) compactions: Vec<i64>,
    /// Revisions at which a transaction may have put a key that it had deleted.
    pub(crate) put_again: BTreeSet<i64>,
    pub(crate) chosen: Vec<i64>,
    /// The server's own member.
    pub(crate) member_id: u64,
    pub(crate) peer_url: String,
    /// Under which name and lease somebody has queued up.
    pub(crate) queued: BTreeSet<(Vec<u8>, i64)>,
    /// Who won an election last.
    pub(crate) leader: Option<LeaderKey>,
    /// Whether leases in replies with keys only are not compared.
    pub(crate) hides_leases: bool,
    /// By revision and compaction: the first hash that was told.
    pub(crate) hashes: BTreeMap<(i64, i64), u32>,
    /// The encoded size of the last transaction's reply, 0 if it was refused.
    pub(crate) txn_reply_bytes: usize,
}

impl Names {
    /// The number to be sent.
    pub(crate) fn resolve(&self, number: &mut i64) {
        let near = |base: i64| number.abs_diff(base) <= REACH;
        *number = if near(NOW) {
            self.revision + (*number - NOW)
        } else if near(COMPACTED) {
            self.compacted + (*number - COMPACTED)
        } else if near(CHOSEN) {
            /// No server chooses it.
            const NONE: i64 = 987_654_321;
            let place = usize::try_from(*number - CHOSEN).unwrap_or(usize::MAX);
            self.chosen.get(place).copied().unwrap_or(NONE)
        } else {
            *number
        };
    }

    /// The lease of a reply, as sequences name it.
    pub(crate) fn name_lease(&self, id: &mut i64) {
        if let Some(place) = self.chosen.iter().position(|chosen| chosen == id) {
            *id = chosen(place as i64);
        }
    }

    /// The step with all of its numbers.
    pub(crate) fn resolved(&self, step: &Step) -> Step {
        let mut step = step.clone();
        match &mut step {
            Step::Range(range) => self.range(range),
            Step::Put(put) => self.resolve(&mut put.lease),
            Step::Txn(txn) => self.txn(txn),
            Step::Compact(compact) => self.resolve(&mut compact.revision),
            Step::Grant(grant) => self.resolve(&mut grant.id),
            Step::Revoke(revoke) => self.resolve(&mut revoke.id),
            Step::TimeToLive(asked) => self.resolve(&mut asked.id),
            Step::KeepAlive(id) => self.resolve(id),
            Step::HashKv(revision) => self.resolve(revision),
            Step::Watch(_, request) => {
                if let Some(RequestUnion::CreateRequest(create)) = &mut request.request_union {
                    self.resolve(&mut create.start_revision);
                }
            }
            Step::Call(call) => call.resolve(self),
            Step::With(_, _, inner) => **inner = self.resolved(inner),
            Step::Delete(_)
            | Step::Leases
            | Step::Members(_)
            | Step::Alarm(_)
            | Step::Status
            | Step::Settle => {}
        }
        step
    }

    fn range(&self, range: &mut pb::RangeRequest) {
        for number in [
            &mut range.revision,
            &mut range.min_mod_revision,
            &mut range.max_mod_revision,
            &mut range.min_create_revision,
            &mut range.max_create_revision,
        ] {
            self.resolve(number);
        }
    }

    fn txn(&self, txn: &mut pb::TxnRequest) {
        for compare in &mut txn.compare {
            match &mut compare.target_union {
                Some(
                    TargetUnion::Version(number)
                    | TargetUnion::CreateRevision(number)
                    | TargetUnion::ModRevision(number)
                    | TargetUnion::Lease(number),
                ) => self.resolve(number),
                Some(TargetUnion::Value(_)) | None => {}
            }
        }
        for op in txn.success.iter_mut().chain(&mut txn.failure) {
            match &mut op.request {
                Some(Op::RequestRange(range)) => self.range(range),
                Some(Op::RequestPut(put)) => self.resolve(&mut put.lease),
                Some(Op::RequestTxn(inner)) => self.txn(inner),
                Some(Op::RequestDeleteRange(_)) | None => {}
            }
        }
    }
}

/// A text with the numbers of a sequence by their names, and without the bulk of long values.
pub(crate) fn readable(text: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    let flush = |digits: &mut String, out: &mut String| {
        let name = digits.parse::<i64>().ok().and_then(|number| {
            let bases = [(NOW, "now"), (COMPACTED, "compacted"), (CHOSEN, "chosen")];
            let mut bases = bases.iter();
            bases
                .find(|(base, _)| number.abs_diff(*base) <= REACH)
                .map(|(base, name)| format!("{name}({})", number - base))
        });
        out.push_str(name.as_deref().unwrap_or(digits));
        digits.clear();
    };
    let mut repeated = 0;
    let mut last = ' ';
    for character in text.chars() {
        if character.is_ascii_digit() && repeated == 0 {
            digits.push(character);
            last = character;
            continue;
        }
        flush(&mut digits, &mut out);
        repeated = if character == last { repeated + 1 } else { 0 };
        last = character;
        match repeated {
            0..40 => out.push(character),
            40 => out.push('…'),
            _ => {}
        }
    }
    flush(&mut digits, &mut out);
    out
}
