//! Asks a server, and tells the answer as text in which nothing is left that two servers may choose:
//! ids, terms, sizes, what is left of a time.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::KeyValue;
use pb::response_op::Response as Reply;
use prost::Message;
use tonic::{Request, Status};

use crate::calls;
use crate::differences;
use crate::servers::Clients;
use crate::step::{Names, Step};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an answer is compared by, and the revision in its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) revision: Option<i64>,
    /// Whether it is a code and a text.
    pub(crate) is_refusal: bool,
}

/// Whether an id is there is all that can be the same.
fn shape(id: &mut u64) {
    *id = (*id).min(1);
}

pub(crate) fn tidy_header(header: &mut Option<pb::ResponseHeader>) -> Option<i64> {
    let header = header.as_mut()?;
    shape(&mut header.cluster_id);
    shape(&mut header.member_id);
    shape(&mut header.raft_term);
    Some(header.revision)
}

/// Makes the same what two servers have for themselves.
pub(crate) fn tidy_members<'a>(members: impl IntoIterator<Item = &'a mut pb::Member>) {
    for member in members {
        shape(&mut member.id);
        for url in member.peer_ur_ls.iter_mut().chain(&mut member.client_ur_ls) {
            *url = url.chars().filter(|c| !c.is_ascii_digit()).collect();
        }
    }
}

fn tidy_kvs<'a>(kvs: impl IntoIterator<Item = &'a mut KeyValue>, names: &Names) {
    for kv in kvs {
        names.name_lease(&mut kv.lease);
        shorten(&mut kv.value);
    }
}

fn tidy_txn(reply: &mut pb::TxnResponse, names: &Names) {
    for op in &mut reply.responses {
        match &mut op.response {
            Some(Reply::ResponseRange(range)) => {
                tidy_header(&mut range.header);
                tidy_kvs(&mut range.kvs, names);
            }
            Some(Reply::ResponsePut(put)) => {
                tidy_header(&mut put.header);
                tidy_kvs(&mut put.prev_kv, names);
            }
            Some(Reply::ResponseDeleteRange(deletion)) => {
                tidy_header(&mut deletion.header);
                tidy_kvs(&mut deletion.prev_kvs, names);
            }
            Some(Reply::ResponseTxn(txn)) => {
                tidy_header(&mut txn.header);
                tidy_txn(txn, names);
            }
            None => {}
        }
    }
}

pub(crate) fn refused(status: &Status) -> Answer {
    Answer {
        text: format!("{:?}: {}", status.code(), status.message()),
        revision: None,
        is_refusal: true,
    }
}

/// What the head of a request says besides.
pub(crate) type Metadata = Option<(&'static str, &'static str)>;

/// A message with metadata.
pub(crate) fn with<T>(metadata: Metadata, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some((key, value)) = metadata {
        let value = tonic::metadata::MetadataValue::from_static(value);
        request.metadata_mut().insert(key, value);
    }
    request
}

/// Makes a long value short: it is compared by its length and a hash.
pub(crate) fn shorten(value: &mut bytes::Bytes) {
    const LONG_BYTES: usize = 1000;
    if value.len() > LONG_BYTES {
        let mut hasher = DefaultHasher::new();
        hasher.write(value);
        *value = format!("{} bytes, {:x}", value.len(), hasher.finish()).into();
    }
}

/// Asks, and makes text of the answer with what tidies it up.
macro_rules! answer {
    ($call:expr, |$reply:ident| $tidy:expr) => {
        match $call.await {
            Ok(reply) => {
                let mut $reply = reply.into_inner();
                let revision = tidy_header(&mut $reply.header);
                {
                    $tidy
                }
                Answer {
                    text: format!("{:?}", $reply),
                    revision,
                    is_refusal: false,
                }
            }
            Err(status) => refused(&status),
        }
    };
}

pub(crate) use answer;

/// Has a step carried out that concerns no stream.
pub(crate) async fn ask(clients: &mut Clients, step: &Step, names: &mut Names) -> Answer {
    let asking = ask_patiently(clients, step, names);
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => Answer {
            text: "no answer".to_owned(),
            revision: None,
            is_refusal: true,
        },
    }
}

async fn ask_patiently(clients: &mut Clients, step: &Step, names: &mut Names) -> Answer {
    let (metadata, step) = match names.resolved(step) {
        Step::With(key, value, step) => (Some((key, value)), *step),
        step => (None, step),
    };
    match step {
        Step::Range(range) => {
            let is_tidied = names.hides_leases && range.keys_only;
            answer!(clients.kv.range(with(metadata, range)), |reply| {
                tidy_kvs(&mut reply.kvs, names);
                if is_tidied {
                    differences::hide_leases(&mut reply);
                }
            })
        }
        Step::Put(put) => answer!(clients.kv.put(with(metadata, put)), |reply| {
            tidy_kvs(&mut reply.prev_kv, names);
        }),
        Step::Delete(deletion) => {
            answer!(clients.kv.delete_range(with(metadata, deletion)), |reply| {
                tidy_kvs(&mut reply.prev_kvs, names);
            })
        }
        Step::Txn(txn) => {
            let asked = names.hides_leases.then(|| txn.clone());
            names.txn_reply_bytes = 0;
            answer!(clients.kv.txn(with(metadata, txn)), |reply| {
                names.txn_reply_bytes = reply.encoded_len();
                tidy_txn(&mut reply, names);
                if let Some(txn) = asked {
                    differences::hide_leases_of_txn(&txn, &mut reply);
                }
            })
        }
        Step::Compact(compact) => {
            let revision = compact.revision;
            let answer = answer!(clients.kv.compact(with(metadata, compact)), |_reply| {});
            if answer.revision.is_some() {
                names.compacted = revision;
                names.compactions.push(revision);
            }
            answer
        }
        Step::Grant(grant) => {
            let is_chosen = grant.id == 0;
            answer!(clients.lease.lease_grant(with(metadata, grant)), |reply| {
                if is_chosen {
                    names.chosen.push(reply.id);
                }
                names.name_lease(&mut reply.id);
            })
        }
        Step::Revoke(revoke) => answer!(
            clients.lease.lease_revoke(with(metadata, revoke)),
            |_reply| {}
        ),
        Step::TimeToLive(asked) => answer!(
            clients.lease.lease_time_to_live(with(metadata, asked)),
            |reply| {
                names.name_lease(&mut reply.id);
                // What has passed for one server by its question is not what has for the other.
                let passed = names.began.map_or(0, |began| began.elapsed().as_secs());
                let passed = i64::try_from(passed).unwrap_or(i64::MAX);
                let least = reply.granted_ttl.saturating_sub(passed).saturating_sub(1);
                if reply.ttl >= 0 && (least..=reply.granted_ttl).contains(&reply.ttl) {
                    reply.ttl = reply.granted_ttl;
                }
                differences::sort_lease_keys(&mut reply);
            }
        ),
        Step::Leases => {
            let asked = pb::LeaseLeasesRequest {};
            answer!(clients.lease.lease_leases(with(metadata, asked)), |reply| {
                for lease in &mut reply.leases {
                    names.name_lease(&mut lease.id);
                }
            })
        }
        Step::KeepAlive(id) => keep_alive(clients, id, metadata, names).await,
        Step::Call(call) => calls::call(clients, call, metadata, names).await,
        Step::Members(linearizable) => {
            let asked = pb::MemberListRequest { linearizable };
            answer!(
                clients.cluster.member_list(with(metadata, asked)),
                |reply| {
                    tidy_members(&mut reply.members);
                }
            )
        }
        Step::Alarm(alarm) => {
            let asked = clients.maintenance.alarm(with(metadata, alarm));
            let answer = answer!(asked, |reply| differences::tidy_alarm(&mut reply));
            Answer {
                revision: None,
                ..answer
            }
        }
        Step::Status => {
            let asked = clients
                .maintenance
                .status(with(metadata, pb::StatusRequest {}));
            answer!(asked, |reply| differences::tidy_status(&mut reply))
        }
        Step::HashKv(revision) => {
            let asked = pb::HashKvRequest { revision };
            let mut changed = None;
            let answer = answer!(
                clients.maintenance.hash_kv(with(metadata, asked)),
                |reply| {
                    let at = match (reply.hash_revision, revision) {
                        (0, 0) => reply.header.as_ref().map_or(0, |header| header.revision),
                        (0, asked) => asked,
                        (told, _) => told,
                    };
                    let of = (at, reply.compact_revision);
                    let first = *names.hashes.entry(of).or_insert(reply.hash);
                    if first != reply.hash {
                        changed = Some(format!("hash of {of:?} was {first}, is {}", reply.hash));
                    }
                    differences::tidy_hash(&mut reply);
                }
            );
            Answer {
                text: changed.unwrap_or(answer.text),
                ..answer
            }
        }
        Step::Watch(..) | Step::Settle | Step::With(..) => Answer {
            text: String::new(),
            revision: None,
            is_refusal: false,
        },
    }
}

async fn keep_alive(clients: &mut Clients, id: i64, metadata: Metadata, names: &Names) -> Answer {
    let requests = tokio_stream::once(pb::LeaseKeepAliveRequest { id });
    let mut replies = match clients
        .lease
        .lease_keep_alive(with(metadata, requests))
        .await
    {
        Ok(replies) => replies.into_inner(),
        Err(status) => return refused(&status),
    };
    match replies.message().await {
        Ok(Some(mut reply)) => {
            let revision = tidy_header(&mut reply.header);
            names.name_lease(&mut reply.id);
            Answer {
                text: format!("{reply:?}"),
                revision,
                is_refusal: false,
            }
        }
        Ok(None) => Answer {
            text: "the end".to_owned(),
            revision: None,
            is_refusal: true,
        },
        Err(status) => refused(&status),
    }
}
