//! Every difference that may be, with its reason. There are no others.
//!
//! *Between versions of etcd*, where Bowline is as the newer one is:
//!
//! | what | until 3.4 | since |
//! |---|---|---|
//! | an unknown target of a sort | ends the process | is refused |
//! | an unknown order of a sort | is no order | is refused |
//! | in a transaction, a put and a read that are both wrong | the put is told of | the first is told of |
//! | in a transaction, a put whose key and whose lease are not there | the key is told of | the lease is told of (3.7) |
//! | a token, without users | is refused | is not looked at |
//! | a role without a name, a permission that is none | is taken | is refused |
//! | a text that is no UTF-8 | is taken | is refused (3.7) |
//! | a path without a service | is ResourceExhausted | is Unimplemented |
//! | the end of a downgrade, when none is under way | is refused (3.5) | is answered |
//! | two kinds of alarms at once | the later one counts, and its end is that of both | both count (3.6) |
//! | a watch from a revision below 0 | is one from the compacted revision or an ended one | is an ended one (3.7) |
//! | a watch from the compacted revision, at which a key was deleted | is not told of it | is told |
//! | a question for progress | is answered at once | is answered when every event is out |
//! | an alarm of no kind | is raised | is not |
//! | the header of a reply about alarms | is not there | is there |
//! | `hash_revision`, `storage_version`, quota and downgrade in replies | are not there | are there |
//! | without space, a put in a transaction within a transaction | is taken | is refused (3.7.1) |
//!
//! *Between etcd and Bowline*:
//!
//! | what | why |
//! |---|---|
//! | a put that keeps the value or the lease of a key which its transaction has deleted: refused here | etcd looks only before the transaction whether the key is there; then its process ends |
//! | a compaction to a revision at which a transaction has deleted a key and put it again, 3.6 | etcd takes what was put as well, and its process ends at the next read of the key; 3.4 keeps it, as here |
//! | a compaction of revision 0, in a reply about hashes | told as none here: it compacts nothing |
//! | the values of hashes | they cover what is stored, which is another format |
//! | sizes, log indexes, ids, terms, what is left of a lease | a server's own |
//! | the hash at the revision of a compaction | etcd gives away that of its compaction, when that is done; before 3.5 it refuses |
//! | Lock and Campaign under a lease that has the key already: they put it again | so that a call which is given up takes back what it has put itself, not what a later one waits with or holds; etcd takes that away |
//! | a resignation that names no lease | etcd grants one, which nobody uses |
//! | an update of a member to addresses that are none | etcd takes it, and the member is lost |
//! | what exactly is wrong with bytes that are no message | each library has its own words |
//! | a field of another type than its own, 3.7 | the library of etcd takes it for a field that nobody knows; here the message is refused, as by etcd before |
//! | where exactly a request is too large | etcd counts its envelope, whose size is random |
//! | the keys of a lease: in no order in etcd | sorted here |
//! | the leases of keys in a range with `keys_only`, 3.7 | etcd takes the keys from its index, which knows no leases, and says 0; here they are told as before, which who holds a lock by a lease relies on |
//! | a transaction that looks at more than 8 MiB (64 if it only reads) or a million keys: refused here | it would hold up every member; a sequence ends there, as its later steps meet another state |
//! | the blanks between the words of an alarm in `Status.errors` | the library of etcd chooses them anew in each build |

use bowline_proto::etcdserverpb as pb;
use pb::request_op::Request as Op;
use pb::response_op::Response as Reply;
use pb::watch_request::RequestUnion;

use crate::calls::Call;
use crate::step::{Names, Step};

/// Since when a step can be compared, and why not before; `None` for always.
type Since = Option<((u32, u32), &'static str)>;

/// Why a step is not sent to a server of this version; `None` when it is.
pub(crate) fn unsent(step: &Step, version: (u32, u32), names: &Names) -> Option<&'static str> {
    let since: Since = match step {
        Step::Range(range) => sort_since(range),
        Step::Txn(txn) => {
            if may_keep_what_is_deleted(txn) {
                return Some("a put that keeps what its transaction has deleted ends the process");
            }
            if orders_chosen_ids(txn, &names.chosen) {
                return Some("of two ids that a server chose, either may be the smaller one");
            }
            txn_since(txn)
        }
        Step::Alarm(alarm) if alarm.action != 0 && alarm.alarm == 0 => {
            Some(((3, 5), "an alarm of no kind could be raised"))
        }
        Step::Call(call) => {
            if call
                .queues_up()
                .is_some_and(|place| names.queued.contains(&place))
            {
                return Some("a lease that queues up once more puts its key again");
            }
            if version >= (3, 7) && has_another_type(call) {
                return Some("a field of another type than its own is one that nobody knows");
            }
            call_since(call)
        }
        Step::With(key, _, inner) => {
            return unsent(inner, version, names).or_else(|| metadata_since(key, version));
        }
        Step::Compact(compact)
            if version >= (3, 6) && names.put_again.contains(&compact.revision) =>
        {
            return Some(
                "a read after a compaction to where a key was deleted and put ends the process",
            );
        }
        Step::HashKv(revision) if names.compactions.contains(revision) => {
            return Some("etcd may remember the hash that it made for a compaction");
        }
        Step::Watch(_, request) => match &request.request_union {
            Some(RequestUnion::CreateRequest(create)) if create.start_revision < 0 => Some((
                (3, 7),
                "a start below 0 was one from the oldest revision, or was told as compacted to -1",
            )),
            Some(RequestUnion::CreateRequest(create))
                if create.start_revision == names.compacted && names.compacted > 0 =>
            {
                Some(((3, 6), "a deletion at the compacted revision was forgotten"))
            }
            // Only the answers to those that settle can be counted.
            Some(RequestUnion::ProgressRequest(_)) => return Some("asked by settling"),
            _ => None,
        },
        _ => None,
    };
    since
        .filter(|(since, _)| version < *since)
        .map(|(_, reason)| reason)
}

fn metadata_since(key: &str, version: (u32, u32)) -> Option<&'static str> {
    let is_token = matches!(key, "token" | "authorization");
    (is_token && version < (3, 5)).then_some("a token was looked at without users")
}

/// Whether a field of the bytes of a call has another type than it should.
fn has_another_type(call: &Call) -> bool {
    let Call::Bytes(path, bytes) = call else {
        return false;
    };
    // The key as a number, and the time to live as a text.
    matches!(
        (*path, &bytes[..]),
        ("/etcdserverpb.KV/Range", b"\x08\x01") | ("/etcdserverpb.Lease/LeaseGrant", b"\x0a\x01a")
    )
}

fn call_since(call: &Call) -> Since {
    match call {
        Call::AuthStatus => Some(((3, 5), "nobody could ask for it")),
        Call::RoleAdd(_) => Some(((3, 5), "a role could be without a name")),
        Call::Downgrade(_) => Some(((3, 6), "nobody could ask for it")),
        Call::RoleGrant(request) if request.perm.is_none() => {
            Some(((3, 5), "a permission could be none"))
        }
        Call::Bytes("/Range", _) => Some(((3, 5), "a path that is none had another code")),
        Call::Bytes(path, _) if path.contains(".Cluster/") || path.contains(".Auth/") => {
            Some(((3, 7), "any bytes were a text"))
        }
        _ => None,
    }
}

fn sort_since(range: &pb::RangeRequest) -> Since {
    let is_known = (0..=2).contains(&range.sort_order) && (0..=4).contains(&range.sort_target);
    (!is_known).then_some(((3, 6), "an unknown sort ended the process"))
}

fn txn_since(txn: &pb::TxnRequest) -> Since {
    let both = [&txn.success, &txn.failure];
    let mut ops = both.into_iter().flatten();
    if let Some(found) = ops.find_map(|op| match &op.request {
        Some(Op::RequestRange(range)) => sort_since(range),
        Some(Op::RequestTxn(inner)) => txn_since(inner),
        _ => None,
    }) {
        return Some(found);
    }
    let (mut all, mut deletions) = (Vec::new(), Vec::new());
    collect(txn, &mut all, &mut deletions);
    if all.iter().any(|put| put.lease != 0 && put.ignore_value) {
        return Some(((3, 7), "a key was looked up before a lease"));
    }
    let (reads, puts) = may_be_wrong(txn);
    (reads && puts).then_some(((3, 5), "puts were checked before reads"))
}

/// Whether reads, and whether puts of a transaction may be refused when it is carried out.
fn may_be_wrong(txn: &pb::TxnRequest) -> (bool, bool) {
    let mut found = (false, false);
    for op in txn.success.iter().chain(&txn.failure) {
        match &op.request {
            Some(Op::RequestRange(range)) => found.0 |= range.revision != 0,
            Some(Op::RequestPut(put)) => {
                found.1 |= put.lease != 0 || put.ignore_value || put.ignore_lease;
            }
            Some(Op::RequestTxn(inner)) => {
                let inner = may_be_wrong(inner);
                found = (found.0 | inner.0, found.1 | inner.1);
            }
            _ => {}
        }
    }
    found
}

/// Whether a put may find its key, whose value or lease it keeps, deleted by its own transaction.
fn may_keep_what_is_deleted(txn: &pb::TxnRequest) -> bool {
    may_put_what_is_deleted(txn, |put| put.ignore_value || put.ignore_lease)
}

/// Whether a step may put a key that it has deleted.
pub(crate) fn may_put_again(step: &Step) -> bool {
    match step {
        Step::Txn(txn) => may_put_what_is_deleted(txn, |_| true),
        Step::With(_, _, inner) => may_put_again(inner),
        _ => false,
    }
}

fn may_put_what_is_deleted(txn: &pb::TxnRequest, is_meant: fn(&pb::PutRequest) -> bool) -> bool {
    let (mut puts, mut deletions) = (Vec::new(), Vec::new());
    collect(txn, &mut puts, &mut deletions);
    puts.retain(|put| is_meant(put));
    let covers = |deletion: &&pb::DeleteRangeRequest, key: &bytes::Bytes| {
        let from = &deletion.key;
        match &deletion.range_end[..] {
            [] => key == from,
            [0] => key >= from,
            end => key >= from && &key[..] < end,
        }
    };
    let mut deletions = deletions.iter();
    deletions.any(|deletion| puts.iter().any(|put| covers(deletion, &put.key)))
}

fn collect<'a>(
    txn: &'a pb::TxnRequest,
    puts: &mut Vec<&'a pb::PutRequest>,
    deletions: &mut Vec<&'a pb::DeleteRangeRequest>,
) {
    for op in txn.success.iter().chain(&txn.failure) {
        match &op.request {
            Some(Op::RequestPut(put)) => puts.push(put),
            Some(Op::RequestDeleteRange(delete)) => deletions.push(delete),
            Some(Op::RequestTxn(inner)) => collect(inner, puts, deletions),
            _ => {}
        }
    }
}

/// Whether a condition asks which of two leases has the smaller id, where servers chose at least one of them.
fn orders_chosen_ids(txn: &pb::TxnRequest, chosen: &[i64]) -> bool {
    use pb::compare::{CompareResult, TargetUnion};
    let orders = txn.compare.iter().any(|compare| {
        let is_order = [CompareResult::Less, CompareResult::Greater].contains(&compare.result());
        let of_lease = match &compare.target_union {
            Some(TargetUnion::Lease(id)) => chosen.contains(id),
            _ => false,
        };
        is_order && of_lease
    });
    let ops = txn.success.iter().chain(&txn.failure);
    let mut inner = ops.filter_map(|op| match &op.request {
        Some(Op::RequestTxn(inner)) => Some(inner),
        _ => None,
    });
    orders || inner.any(|inner| orders_chosen_ids(inner, chosen))
}

/// The transaction of a step, if Bowline has refused it for its work.
fn refused_for_its_work<'a>(step: &'a Step, ours: &str) -> Option<&'a pb::TxnRequest> {
    let step = match step {
        Step::With(_, _, inner) => inner,
        step => step,
    };
    match step {
        Step::Txn(txn)
            if ours.starts_with("ResourceExhausted: the transaction looks at too many") =>
        {
            Some(txn)
        }
        _ => None,
    }
}

/// Why nothing after a step can be compared: Bowline refused a transaction for its work, which etcd did. What it looks
/// at is known of etcd's reply only, so the values that conditions read are left as room below the budget.
pub(crate) fn ends_a_sequence(
    step: &Step,
    etcd_reply_bytes: usize,
    ours: &str,
) -> Option<&'static str> {
    const LARGE_BYTES: usize = 16 << 20;
    refused_for_its_work(step, ours)?;
    (etcd_reply_bytes > LARGE_BYTES)
        .then_some("a transaction that looks at too much is refused: the sequence ends")
}

/// Why two refusals of a step may differ: etcd refused a transaction for something within it, and Bowline before that for its
/// work. A value is at most one and a half MiB long, so as much work as that has many ranges.
pub(crate) fn are_both_refused(
    step: &Step,
    is_refused_by_etcd: bool,
    ours: &str,
) -> Option<&'static str> {
    const RANGES: usize = 11;
    fn ranges(txn: &pb::TxnRequest) -> usize {
        let ops = txn.success.iter().chain(&txn.failure);
        ops.map(|op| match &op.request {
            Some(Op::RequestRange(_)) => 1,
            Some(Op::RequestTxn(inner)) => ranges(inner),
            _ => 0,
        })
        .sum()
    }
    let txn = refused_for_its_work(step, ours)?;
    (is_refused_by_etcd && ranges(txn) >= RANGES)
        .then_some("a transaction that both refuse, one of them for its work")
}

/// Makes the same what two servers have for themselves.
pub(crate) fn tidy_status(reply: &mut pb::StatusResponse) {
    reply.version = if reply.version.is_empty() {
        "none"
    } else {
        "one"
    }
    .to_owned();
    reply.storage_version.clear();
    reply.downgrade_info = None;
    for size in [&mut reply.db_size, &mut reply.db_size_in_use] {
        *size = (*size).min(1);
    }
    reply.db_size_quota = 0;
    for error in &mut reply.errors {
        let words: Vec<&str> = error.split_whitespace().collect();
        *error = words.join(" ");
    }
    let indexes = [&mut reply.raft_index, &mut reply.raft_applied_index];
    for number in indexes
        .into_iter()
        .chain([&mut reply.raft_term, &mut reply.leader])
    {
        *number = (*number).min(1);
    }
}

/// The same.
pub(crate) fn tidy_alarm(reply: &mut pb::AlarmResponse) {
    reply.header = None;
}

/// The same.
pub(crate) fn tidy_hash(reply: &mut pb::HashKvResponse) {
    reply.hash = reply.hash.min(1);
    reply.hash_revision = 0;
    // Whether there was none or one of revision 0 is not told apart.
    reply.compact_revision = reply.compact_revision.max(0);
}

/// Whether an etcd tells no leases of keys in a range with `keys_only`.
pub(crate) fn hides_leases(version: (u32, u32)) -> bool {
    version >= (3, 7)
}

/// Leaves out the leases of a range with `keys_only`.
pub(crate) fn hide_leases(reply: &mut pb::RangeResponse) {
    for kv in &mut reply.kvs {
        kv.lease = 0;
    }
}

/// The same for the ranges of a transaction.
pub(crate) fn hide_leases_of_txn(txn: &pb::TxnRequest, reply: &mut pb::TxnResponse) {
    let ops = match reply.succeeded {
        true => &txn.success,
        false => &txn.failure,
    };
    for (op, reply) in ops.iter().zip(&mut reply.responses) {
        match (&op.request, &mut reply.response) {
            (Some(Op::RequestRange(range)), Some(Reply::ResponseRange(reply)))
                if range.keys_only =>
            {
                hide_leases(reply);
            }
            (Some(Op::RequestTxn(txn)), Some(Reply::ResponseTxn(reply))) => {
                hide_leases_of_txn(txn, reply);
            }
            _ => {}
        }
    }
}

/// etcd tells them in no order.
pub(crate) fn sort_lease_keys(reply: &mut pb::LeaseTimeToLiveResponse) {
    reply.keys.sort();
}
