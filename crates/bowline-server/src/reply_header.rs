//! The header that every reply begins with: the cluster, the member, a revision and a term.

use bowline::Revision;
use bowline_cluster::{Leadership, LocalClient};
use bowline_proto::etcdserverpb::ResponseHeader;
use tokio::sync::watch;

/// What the headers of this member's replies have in common, and the term that it knows.
#[derive(Debug)]
pub(crate) struct ReplyHeader {
    cluster_id: u64,
    member_id: u64,
    leadership: watch::Receiver<Leadership>,
}

impl ReplyHeader {
    pub(crate) fn new(client: &LocalClient) -> ReplyHeader {
        let status = client.status();
        ReplyHeader {
            cluster_id: status.cluster_id,
            member_id: status.member_id,
            leadership: client.leadership(),
        }
    }

    /// The header of a reply as of a revision and a term.
    pub(crate) fn at(&self, revision: Revision, term: u64) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision: revision.get() as i64,
            raft_term: term,
        })
    }

    /// The present term.
    pub(crate) fn term(&self) -> u64 {
        self.leadership.borrow().term
    }

    /// Whether this member leads, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.leadership.borrow().leader == Some(self.member_id)
    }
}
