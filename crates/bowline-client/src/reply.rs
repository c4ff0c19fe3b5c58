//! The parts that replies share: header and entry.

use bowline_proto::{etcdserverpb as pb, mvccpb, v1};
use bowline_types::Revision;
use bytes::Bytes;
use tonic::metadata::MetadataMap;

use crate::{LeaseId, MemberId, ReadLevel};

/// The metadata in which a read says how fresh it has to be, and an answer how fresh it is.
pub(crate) const READ_LEVEL: &str = "bowline-read";
/// The metadata in which an answer says which log entry was the last to be applied before it.
const APPLIED: &str = "bowline-applied";

/// The reply header.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Header;
///
/// let Header { revision, member_id, read_level, .. } = client.get("greeting").await?.header;
/// println!("member {member_id} is at revision {revision}, read at level {read_level:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Header {
    /// The cluster that answered.
    pub cluster_id: u64,
    /// The member that answered.
    pub member_id: MemberId,
    /// The revision of the change; for a read the newest revision of the member, also when an older one
    /// was requested.
    pub revision: Revision,
    /// The term of the leader it follows.
    pub raft_term: u64,
    /// The level that served a read. Only Bowline sends it.
    pub read_level: Option<ReadLevel>,
    /// The applied log index of the member. Only Bowline sends it.
    pub applied_index: Option<u64>,
}

impl Header {
    pub(crate) fn new(header: Option<pb::ResponseHeader>, metadata: &MetadataMap) -> Header {
        let header = header.unwrap_or_default();
        let text = |name| metadata.get(name)?.to_str().ok();
        Header {
            cluster_id: header.cluster_id,
            member_id: MemberId::new(header.member_id),
            revision: Revision::new(unsigned(header.revision)),
            raft_term: header.raft_term,
            read_level: text(READ_LEVEL).and_then(|level| level.parse().ok()),
            applied_index: text(APPLIED).and_then(|index| index.parse().ok()),
        }
    }

    /// The header of one operation of a transaction. Servers send only its revision there, or nothing.
    pub(crate) fn of_operation(self, header: &Header) -> Header {
        Header {
            revision: match header.revision {
                Revision::ZERO => self.revision,
                revision => revision,
            },
            ..self
        }
    }
}

/// A key as of one revision.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Entry;
///
/// if let Some(Entry { value, version, mod_revision, lease, .. }) = client.get("lock").await?.entry() {
///     println!("{value:?}, written {version} times, last at revision {mod_revision}, lease {lease:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value; empty where only keys were asked for.
    pub value: Bytes,
    /// The revision that made the key, after it was last absent.
    pub create_revision: Revision,
    /// The modification revision.
    pub mod_revision: Revision,
    /// How often it was put since it was made; 1 for the first.
    pub version: u64,
    /// The lease that the key is attached to.
    pub lease: Option<LeaseId>,
}

impl From<mvccpb::KeyValue> for Entry {
    fn from(entry: mvccpb::KeyValue) -> Entry {
        Entry {
            key: entry.key,
            value: entry.value,
            create_revision: Revision::new(unsigned(entry.create_revision)),
            mod_revision: Revision::new(unsigned(entry.mod_revision)),
            version: unsigned(entry.version),
            lease: LeaseId::new(entry.lease),
        }
    }
}

impl From<v1::Entry> for Entry {
    fn from(entry: v1::Entry) -> Entry {
        Entry {
            key: entry.key,
            value: entry.value,
            create_revision: Revision::new(entry.create_revision),
            mod_revision: Revision::new(entry.mod_revision),
            version: entry.version,
            lease: LeaseId::new(entry.lease),
        }
    }
}

/// A number that the wire has signed and that is never negative.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A number for the wire. What does not fit is above every revision there can be.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
