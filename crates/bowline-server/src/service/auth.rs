//! `etcdserverpb.Auth`: authentication is not enabled.
//!
//! There are no users and roles yet. So every reply is that of an etcd without any, and calls that would
//! create one are refused: a server that accepted a user with a password, and then let everybody in, would be
//! worse than one that refuses. A `token` in the metadata of other calls is ignored.

use std::sync::Arc;

use bowline_proto::etcdserverpb as pb;
use pb::auth_server::Auth;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::check;
use crate::context::Context;
use crate::status::Fault;

/// The refusal of calls that would create users or roles, or enable authentication.
const UNSUPPORTED: Fault = Fault::Unsupported(
    "etcdserver: users and roles are not supported yet: leave authentication disabled, and let only \
     trusted machines reach --listen-client-urls",
);

/// etcd's first authentication revision.
const REVISION: u64 = 1;

/// The authentication service.
#[derive(Debug, Clone)]
pub(crate) struct AuthService {
    context: Arc<Context>,
}

impl AuthService {
    pub(crate) fn new(context: Arc<Context>) -> AuthService {
        AuthService { context }
    }

    /// Refuses for the general reasons of [`super::check`], or else with `fault`.
    fn refuse<T>(&self, metadata: &MetadataMap, fault: Fault) -> Result<Response<T>, Status> {
        check(&self.context, metadata)?;
        Err(fault.into())
    }
}

#[tonic::async_trait]
impl Auth for AuthService {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        self.refuse(request.metadata(), UNSUPPORTED)
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        check(&self.context, request.metadata())?;
        Ok(Response::new(pb::AuthDisableResponse {
            header: self.context.header_now(),
        }))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        check(&self.context, request.metadata())?;
        Ok(Response::new(pb::AuthStatusResponse {
            header: self.context.header_now(),
            enabled: false,
            auth_revision: REVISION,
        }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        self.refuse(request.metadata(), Fault::AuthNotEnabled)
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let fault = match request.get_ref().name.as_str() {
            "" => Fault::UserNameEmpty,
            _ => UNSUPPORTED,
        };
        self.refuse(request.metadata(), fault)
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        self.refuse(request.metadata(), Fault::UserNotFound)
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        check(&self.context, request.metadata())?;
        Ok(Response::new(pb::AuthUserListResponse {
            header: self.context.header_now(),
            users: Vec::new(),
        }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        self.refuse(request.metadata(), Fault::UserNotFound)
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        self.refuse(request.metadata(), Fault::UserNotFound)
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        self.refuse(request.metadata(), Fault::UserNotFound)
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        self.refuse(request.metadata(), Fault::UserNotFound)
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let fault = match request.get_ref().name.as_str() {
            "" => Fault::RoleNameEmpty,
            _ => UNSUPPORTED,
        };
        self.refuse(request.metadata(), fault)
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        self.refuse(request.metadata(), Fault::RoleNotFound)
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        check(&self.context, request.metadata())?;
        Ok(Response::new(pb::AuthRoleListResponse {
            header: self.context.header_now(),
            roles: Vec::new(),
        }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        self.refuse(request.metadata(), Fault::RoleNotFound)
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let fault = match request.get_ref().perm {
            None => Fault::PermissionNotGiven,
            Some(_) => Fault::RoleNotFound,
        };
        self.refuse(request.metadata(), fault)
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        self.refuse(request.metadata(), Fault::RoleNotFound)
    }
}
