//! Updates of one key, decided by the members: a commit that reads nothing and has one write.

use bowline_proto::update::to_wire;
use bowline_proto::v1 as pb;
use bowline_proto::v1::store_client::StoreClient;
use bowline_types::Update;
use bytes::Bytes;
use pb::commit_reply::Outcome;
use pb::transaction_write::Write;

use crate::caller::{Caller, Repeat};
use crate::v1::{self, header, senseless};
use crate::{Error, Header, Result};

/// The result of an update. [`Client::update`](crate::Client::update) gives one.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Update, Updated};
///
/// let Updated { changed, value, .. } = client.update("leader", Update::SetIfAbsent(b"me".to_vec())).await?;
/// println!("{} leads: {value:?}", if changed { "this one" } else { "another" });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Updated {
    /// Its revision is that of the change, or the newest one when nothing changed.
    pub header: Header,
    /// Whether the key was changed.
    pub changed: bool,
    /// The value of the key, behind the update; `None` when it is absent.
    pub value: Option<Bytes>,
}

/// Sends it, once.
pub(crate) async fn update(caller: &Caller, key: Bytes, update: Update) -> Result<Updated> {
    if key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let write = Write::Update(to_wire(key, update));
    let request = pb::CommitRequest {
        writes: vec![pb::TransactionWrite { write: Some(write) }],
        ..pb::CommitRequest::default()
    };
    let send = |channel, request| async move {
        let largest = caller.settings().reply_bytes_max;
        let mut store = StoreClient::new(channel).max_decoding_message_size(largest);
        store.commit(request).await
    };
    let sent = caller.call(Repeat::Never, None, request, send).await;
    let (reply, _) = sent.map_err(v1::typed)?;
    told(reply)
}

fn told(reply: pb::CommitReply) -> Result<Updated> {
    // Something may have been written, whatever the answer means.
    let (header, _) = header(reply.header).map_err(Error::of_change)?;
    let Some(Outcome::Committed(done)) = reply.outcome else {
        return Err(senseless("an update that reads nothing had a conflict").of_change());
    };
    match <[pb::KeyUpdated; 1]>::try_from(done.updated) {
        Ok([one]) => Ok(Updated {
            header,
            changed: one.changed,
            value: one.value,
        }),
        Err(_) => Err(senseless("it does not say what became of the update").of_change()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(outcome: Option<Outcome>) -> pb::CommitReply {
        pb::CommitReply {
            header: Some(pb::Header {
                revision: 7,
                ..pb::Header::default()
            }),
            outcome,
        }
    }

    fn committed(updated: Vec<pb::KeyUpdated>) -> pb::CommitReply {
        reply(Some(Outcome::Committed(pb::Committed {
            changed: true,
            updated,
            ..pb::Committed::default()
        })))
    }

    /// Sent again, an addition could be done twice.
    #[tokio::test]
    async fn an_update_whose_answer_is_lost_is_not_sent_again() {
        let (address, taken) = crate::silent::silent_server(b"KEYTOADD").await;
        let builder = crate::Client::builder().endpoints([address.clone(), address]);
        let client = builder.connect_lazy().expect("a client");
        let sent = client.update("KEYTOADD", Update::Add(1)).await;
        assert!(
            matches!(sent, Err(Error::UnknownOutcome { .. })),
            "{sent:?}"
        );
        assert_eq!(taken.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn a_reply_has_one_update() {
        let one = pb::KeyUpdated {
            changed: true,
            value: Some("42".into()),
        };
        let updated = told(committed(vec![one.clone()])).expect("one");
        assert_eq!((updated.changed, updated.value), (true, Some("42".into())));
        assert_eq!(updated.header.revision, 7);
        let conflict = Outcome::Conflict(pb::Conflict::default());
        for wrong in [
            committed(Vec::new()),
            committed(vec![one.clone(), one]),
            reply(None),
            reply(Some(conflict)),
            pb::CommitReply::default(),
        ] {
            let error = told(wrong).expect_err("it says nothing");
            assert!(matches!(error, Error::UnknownOutcome { .. }), "{error:?}");
        }
    }
}
