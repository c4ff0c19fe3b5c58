//! `etcdserverpb.Cluster`: the members of the cluster.

use std::sync::Arc;

use bowline::Revision;
use bowline_cluster::{MemberInfo, ReadLevel};
use bowline_proto::etcdserverpb as pb;
use pb::cluster_server::Cluster;
use tonic::{Request, Response, Status};

use super::check;
use crate::context::Context;
use crate::status::{Fault, status};
use crate::url::parse_url;

/// The membership service.
#[derive(Debug, Clone)]
pub(crate) struct ClusterService {
    context: Arc<Context>,
}

impl ClusterService {
    pub(crate) fn new(context: Arc<Context>) -> ClusterService {
        ClusterService { context }
    }

    /// As in etcd, a reply about membership has no revision.
    fn header(&self) -> Option<pb::ResponseHeader> {
        self.context.header(Revision::ZERO, self.context.term())
    }

    fn members(&self) -> Vec<pb::Member> {
        let members = self.context.client.members();
        members.into_iter().map(member).collect()
    }
}

fn member(info: MemberInfo) -> pb::Member {
    pb::Member {
        id: info.id,
        name: info.name,
        peer_ur_ls: info.peer_urls,
        client_ur_ls: info.client_urls,
        is_learner: info.is_learner,
    }
}

fn check_urls(urls: &[String], members_have_tls: bool) -> Result<(), Status> {
    // A trailing slash is a path, which etcd refuses.
    let is_wrong = |url: &String| url.ends_with('/') || parse_url(url).is_err();
    if urls.is_empty() || urls.iter().any(is_wrong) {
        return Err(Fault::InvalidMemberUrls.into());
    }
    // etcd takes it, and its text for a wrong URL would not say what is wrong with this one: this member, and likely
    // others, could not reach the member.
    if !members_have_tls && urls.iter().any(|url| !url.starts_with("http://")) {
        let text =
            "bowline: peer URLs must start with http://, as this member has no --peer-cert-file";
        return Err(Fault::Invalid(text).into());
    }
    Ok(())
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        check_urls(&request.peer_ur_ls, self.context.settings.members_have_tls)?;
        let client = self.context.client.by(&caller);
        let added = client.member_add(request.peer_ur_ls, request.is_learner);
        let added = added.await.map_err(status)?;
        Ok(Response::new(pb::MemberAddResponse {
            header: self.header(),
            member: Some(member(added)),
            members: self.members(),
        }))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = self.context.client.by(&caller);
        let removed = client.member_remove(request.into_inner().id);
        removed.await.map_err(status)?;
        Ok(Response::new(pb::MemberRemoveResponse {
            header: self.header(),
            members: self.members(),
        }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        let client = &self.context.client;
        if !client.members().iter().any(|info| info.id == request.id) {
            return Err(Fault::MemberNotFound.into());
        }
        // etcd accepts any URL here, and then cannot reach the member.
        check_urls(&request.peer_ur_ls, self.context.settings.members_have_tls)?;
        let client = client.by(&caller);
        let updated = client.member_update(request.id, request.peer_ur_ls);
        updated.await.map_err(status)?;
        Ok(Response::new(pb::MemberUpdateResponse {
            header: self.header(),
            members: self.members(),
        }))
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        check(&self.context, request.metadata())?;
        if request.into_inner().linearizable {
            let barrier = self.context.client.read_barrier(ReadLevel::Linearizable);
            barrier.await.map_err(status)?;
        }
        Ok(Response::new(pb::MemberListResponse {
            header: self.header(),
            members: self.members(),
        }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = self.context.client.by(&caller);
        let promoted = client.member_promote(request.into_inner().id);
        promoted.await.map_err(status)?;
        Ok(Response::new(pb::MemberPromoteResponse {
            header: self.header(),
            members: self.members(),
        }))
    }
}
