//! Requests to the leader, from whichever member.

use std::time::Duration;

use bowline_replica::Caller;

use super::core::Core;
use super::leader_request::{LeaderRequest, LeaderResponse};
use crate::error::{Error, Result};
use crate::peer::is_unsent;

impl Core {
    /// Sends a request to the leader until the deadline, on behalf of a caller. A member that is not the leader does
    /// nothing, so a retry is safe.
    pub(crate) async fn ask_leader(
        &self,
        caller: &Caller,
        question: LeaderRequest,
    ) -> Result<LeaderResponse> {
        const PAUSE: Duration = Duration::from_millis(20);
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        // A leader that steps down while it removes a member may have removed it; then a retry finds no such
        // member, which is success.
        let is_known = match &question {
            LeaderRequest::MemberRemove(id) => self.info(*id).is_some(),
            _ => false,
        };
        let mut is_repeated = false;
        loop {
            self.check_running()?;
            let attempt = async {
                let leader = self.leader_id().ok_or(Error::NoLeader)?;
                if leader.node_id == self.member_id {
                    return Ok(self.answer_to(caller, question.clone()).await);
                }
                let client = self.peer(leader.node_id).ok_or(Error::NoLeader)?;
                let lost = || match question.is_idempotent() {
                    true => Err(Error::NoLeader),
                    false => Err(Error::LeaderChanged),
                };
                let answer = tokio::select! {
                    biased;
                    answer = client.ask(question.clone().into_proto_of(caller)) => answer,
                    // The old leader may be silent for long. If a retry is harmless, the new leader is asked.
                    () = self.other_than(leader) => return lost(),
                };
                match answer.map(LeaderResponse::from_proto) {
                    Ok(Some(answer)) => Ok(answer),
                    Ok(None) => Err(Error::stopped("the leader is of a newer version")),
                    Err(status) if is_unsent(&status) => Err(Error::NoLeader),
                    Err(_) => lost(),
                }
            };
            let answer = tokio::time::timeout_at(deadline, attempt).await;
            match answer.map_err(|_| Error::Timeout)? {
                Ok(LeaderResponse::Refused(Error::NotLeader)) | Err(Error::NoLeader) => {
                    if tokio::time::Instant::now() + PAUSE >= deadline {
                        return Err(Error::NoLeader);
                    }
                    is_repeated = true;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(LeaderResponse::Refused(Error::MemberNotFound { .. }))
                    if is_known && is_repeated =>
                {
                    return Ok(LeaderResponse::Done);
                }
                Ok(LeaderResponse::Refused(error)) => return Err(error),
                answer => return answer,
            }
        }
    }
}
