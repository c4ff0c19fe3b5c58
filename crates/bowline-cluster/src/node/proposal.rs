//! Checks that a proposal passes before it enters a log.
//!
//! Every member applies what is committed, again at each start. So bytes that cannot be applied must not be
//! committed: a leader checks what it proposes, and a follower checks what it appends before it acknowledges
//! that.
//!
//! *Versions.* Every member announces its command version in the membership. Nothing is proposed that needs a
//! version which one of them does not support. A member that receives such an entry all the same, from the
//! leader that it follows, stops: it could never apply it.
//!
//! Invariant: every proposal in a log decodes to commands, by this program's decoder.

use bowline_replica::{DecodeError, commands_version, decode_commands};
use bytes::Bytes;

use super::core::Core;
use super::limits::PROPOSAL_BYTES_MAX;
use crate::error::{Error, Result};
use crate::peer::Unfit;
use crate::raft::waiters::{HEAD_BYTES, proposer_of};
use crate::types::NodeId;

/// Checks that this program can apply a proposal. One that is proposed for `from` must name it as the
/// proposer: otherwise another member would take it for its own.
pub(crate) fn check(proposal: &Bytes, from: Option<NodeId>) -> std::result::Result<(), Unfit> {
    let malformed = |reason: String| Err(Unfit::Malformed(reason));
    if proposal.len() > PROPOSAL_BYTES_MAX {
        let len = proposal.len();
        return malformed(format!(
            "{len} bytes, over the limit of {PROPOSAL_BYTES_MAX}"
        ));
    }
    let Some(proposer) = proposer_of(proposal) else {
        return malformed("it is shorter than its head".to_owned());
    };
    if from.is_some_and(|from| from != proposer) {
        return malformed(format!("it is of member {proposer:016x}"));
    }
    match decode_commands(&proposal.slice(HEAD_BYTES..)) {
        Ok(_) => Ok(()),
        Err(error @ DecodeError::Newer { .. }) => Err(Unfit::Newer(error.to_string())),
        Err(error) => malformed(error.to_string()),
    }
}

impl Core {
    /// Checks that a proposal may be appended: it is not too large, and every member supports its command
    /// version.
    pub(crate) fn check_before_proposing(&self, proposal: &Bytes) -> Result<()> {
        if proposal.len() > PROPOSAL_BYTES_MAX {
            return Err(Error::RequestTooLarge {
                size: proposal.len() as u64,
                limit: PROPOSAL_BYTES_MAX as u64,
            });
        }
        let version = proposal.get(HEAD_BYTES..).and_then(commands_version);
        self.check_version(version.unwrap_or(1))
    }
}
