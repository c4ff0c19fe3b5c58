//! `bowline.v1.Members`: the repair of a member.

use std::sync::Arc;

use bowline_proto::v1 as pb;
use pb::members_server::Members;
use tonic::{Request, Response, Status};

use super::check;
use super::reading::header;
use crate::context::Context;
use crate::status::status;

/// The service of members that etcd does not have.
#[derive(Debug, Clone)]
pub(crate) struct MembersService {
    context: Arc<Context>,
}

impl MembersService {
    pub(crate) fn new(context: Arc<Context>) -> MembersService {
        MembersService { context }
    }
}

#[tonic::async_trait]
impl Members for MembersService {
    async fn repair(
        &self,
        request: Request<pb::MemberRepairRequest>,
    ) -> Result<Response<pb::MemberRepairReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = &self.context.client;
        let asked = client.by(&caller);
        let repaired = asked.member_repair(request.into_inner().id).await;
        repaired.map_err(status)?;
        // Not a read barrier: this member may be the one that is repaired.
        let known = client.status();
        let header = header(
            &self.context,
            known.revision,
            known.term,
            known.applied_index,
        );
        Ok(Response::new(pb::MemberRepairReply {
            header: Some(header),
        }))
    }
}
