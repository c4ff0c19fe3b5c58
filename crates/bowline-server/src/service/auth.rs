//! `etcdserverpb.Auth`: users, roles and tokens, with etcd's replies and refusals.
//!
//! Changes are commands; what is read is of a state that is not older than the call, and so are the rights that it takes.
//! Passwords are hashed, and checked, before anything is proposed: see [`crate::login`].

use std::sync::Arc;

use bowline_cluster::{Applied, ReadLevel};
use bowline_proto::authpb;
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{Caller, Grant, Need, Permission, ROOT, Users, UsersChange, UsersRefusal};
use pb::auth_server::Auth;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::{check, check_size};
use crate::context::{Context, respond_applied};
use crate::status::{Fault, status};

/// The authentication service.
#[derive(Debug, Clone)]
pub(crate) struct AuthService {
    context: Arc<Context>,
}

impl AuthService {
    pub(crate) fn new(context: Arc<Context>) -> AuthService {
        AuthService { context }
    }

    /// The hash of a new password, if it is long enough.
    async fn hash(&self, password: String) -> Result<String, Status> {
        if password.len() < self.context.settings.password_bytes_min {
            let text = "the password is shorter than --min-password-bytes: choose a longer one";
            return Err(Fault::Invalid(text).into());
        }
        self.context.hashing.hash_password(password).await
    }

    /// The hash of a password that replaces another one. As in etcd, an empty one lets nobody in until another is set; where
    /// passwords have a minimum length, it is too short.
    async fn hash_of_change(&self, password: String) -> Result<String, Status> {
        match password.is_empty() && self.context.settings.password_bytes_min == 0 {
            true => Ok(String::new()),
            false => self.hash(password).await,
        }
    }

    /// Makes a change on behalf of a call.
    pub(super) async fn change(
        &self,
        metadata: &MetadataMap,
        change: UsersChange,
    ) -> Result<Applied, Status> {
        check(&self.context, metadata)?;
        check_size(&self.context, change.text_bytes())?;
        let caller = self.context.caller_of(metadata).await?;
        let client = self.context.client.by(&caller);
        client.change_users(change).await.map_err(status)
    }

    /// The users and roles, in a state that is not older than the call, and who makes the call.
    pub(super) async fn read(
        &self,
        metadata: &MetadataMap,
    ) -> Result<(Arc<Users>, Caller), Status> {
        check(&self.context, metadata)?;
        let barrier = self.context.client.read_barrier(ReadLevel::Linearizable);
        barrier.await.map_err(status)?;
        // Behind the barrier: before it, authentication may not be enabled here.
        let caller = self.context.caller_of(metadata).await?;
        Ok((self.context.client.users(), caller))
    }

    /// [`AuthService::read`] for a caller with the role `root`.
    async fn read_as_root(&self, metadata: &MetadataMap) -> Result<Arc<Users>, Status> {
        let (users, caller) = self.read(metadata).await?;
        self.check_own(&users, &caller, |_| false)?;
        Ok(users)
    }

    /// Refuses a call about a role by a user that has neither it nor the role `root`.
    pub(super) fn check_own_role(
        &self,
        users: &Users,
        caller: &Caller,
        role: &str,
    ) -> Result<(), Status> {
        self.check_own(users, caller, |name| {
            let user = users.user(name);
            user.is_some_and(|user| user.roles.contains(role))
        })
    }

    /// Refuses a call by a user that does not have the role `root`, unless `is_own` of the user's name.
    fn check_own(
        &self,
        users: &Users,
        caller: &Caller,
        is_own: impl FnOnce(&str) -> bool,
    ) -> Result<(), Status> {
        if !users.is_enabled() {
            return Ok(());
        }
        let client = self.context.client.by(caller);
        match (client.check(|each| each(Need::Root)), caller) {
            (Ok(()), _) => Ok(()),
            (Err(_), Caller::User(session)) if is_own(session.user()) => Ok(()),
            (Err(error), _) => Err(status(error)),
        }
    }
}

/// A permission as on the wire.
fn permission(wire: authpb::Permission) -> Result<Permission, Fault> {
    let grant = match wire.perm_type {
        0 => Grant::Read,
        1 => Grant::Write,
        2 => Grant::ReadWrite,
        _ => {
            return Err(Fault::Invalid(
                "the type of a permission is none of READ, WRITE and READWRITE",
            ));
        }
    };
    Ok(Permission::Keys {
        grant,
        key: wire.key.into(),
        range_end: wire.range_end.into(),
    })
}

/// The permissions of a role on keys.
fn permissions(users: &Users, role: &str) -> Result<Vec<authpb::Permission>, Fault> {
    let known = users.role(role).ok_or(UsersRefusal::RoleNotFound)?;
    if role == ROOT {
        // As in etcd: everything.
        return Ok(vec![authpb::Permission {
            perm_type: Grant::ReadWrite as i32,
            key: bytes::Bytes::new(),
            range_end: bytes::Bytes::from_static(&[0]),
        }]);
    }
    let keys = known.permissions.iter().filter_map(|has| match has {
        Permission::Keys {
            grant,
            key,
            range_end,
        } => Some(authpb::Permission {
            perm_type: *grant as i32,
            key: key.clone().into(),
            range_end: range_end.clone().into(),
        }),
        Permission::Kinds { .. } => None,
    });
    Ok(keys.collect())
}

#[tonic::async_trait]
impl Auth for AuthService {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        let (metadata, _, _) = request.into_parts();
        let applied = self.change(&metadata, UsersChange::Enable).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthEnableResponse { header },
            applied.index,
        ))
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        let (metadata, _, _) = request.into_parts();
        let applied = self.change(&metadata, UsersChange::Disable).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthDisableResponse { header },
            applied.index,
        ))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let (users, _) = self.read(request.metadata()).await?;
        Ok(Response::new(pb::AuthStatusResponse {
            header: self.context.header_now(),
            enabled: users.is_enabled(),
            auth_revision: users.revision(),
        }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        check(&self.context, request.metadata())?;
        let asked = request.into_inner();
        let token = self.context.log_in(asked.name, asked.password).await?;
        Ok(Response::new(pb::AuthenticateResponse {
            header: self.context.header_now(),
            token,
        }))
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        check(&self.context, &metadata)?;
        if asked.name.is_empty() {
            return Err(Fault::UserNameEmpty.into());
        }
        let is_without = asked.options.is_some_and(|options| options.no_password);
        let password = match is_without {
            true => None,
            false => Some(self.hash(asked.password).await?),
        };
        let name = asked.name;
        let change = UsersChange::AddUser { name, password };
        let applied = self.change(&metadata, change).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthUserAddResponse { header },
            applied.index,
        ))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let (users, caller) = self.read(request.metadata()).await?;
        let asked = request.into_inner();
        self.check_own(&users, &caller, |name| name == asked.name)?;
        let user = users.user(&asked.name);
        let user = user.ok_or(Fault::UserNotFound)?;
        Ok(Response::new(pb::AuthUserGetResponse {
            header: self.context.header_now(),
            roles: user.roles.iter().cloned().collect(),
        }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let users = self.read_as_root(request.metadata()).await?;
        Ok(Response::new(pb::AuthUserListResponse {
            header: self.context.header_now(),
            users: users.user_names().map(str::to_owned).collect(),
        }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let applied = self
            .change(&metadata, UsersChange::DeleteUser { name: asked.name })
            .await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthUserDeleteResponse { header },
            applied.index,
        ))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        check(&self.context, &metadata)?;
        let password = self.hash_of_change(asked.password).await?;
        let name = asked.name;
        let change = UsersChange::ChangePassword { name, password };
        let applied = self.change(&metadata, change).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthUserChangePasswordResponse { header },
            applied.index,
        ))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let (user, role) = (asked.user, asked.role);
        let change = UsersChange::GrantRole { user, role };
        let applied = self.change(&metadata, change).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthUserGrantRoleResponse { header },
            applied.index,
        ))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let (user, role) = (asked.name, asked.role);
        let change = UsersChange::RevokeRole { user, role };
        let applied = self.change(&metadata, change).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthUserRevokeRoleResponse { header },
            applied.index,
        ))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let applied = self
            .change(&metadata, UsersChange::AddRole { name: asked.name })
            .await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthRoleAddResponse { header },
            applied.index,
        ))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let (users, caller) = self.read(request.metadata()).await?;
        let role = request.into_inner().role;
        self.check_own_role(&users, &caller, &role)?;
        Ok(Response::new(pb::AuthRoleGetResponse {
            header: self.context.header_now(),
            perm: permissions(&users, &role)?,
        }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let users = self.read_as_root(request.metadata()).await?;
        Ok(Response::new(pb::AuthRoleListResponse {
            header: self.context.header_now(),
            roles: users.role_names().map(str::to_owned).collect(),
        }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let applied = self
            .change(&metadata, UsersChange::DeleteRole { name: asked.role })
            .await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthRoleDeleteResponse { header },
            applied.index,
        ))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let given = asked.perm.ok_or(Fault::PermissionNotGiven)?;
        let (role, permission) = (asked.name, permission(given)?);
        let change = UsersChange::GrantPermission { role, permission };
        let applied = self.change(&metadata, change).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthRoleGrantPermissionResponse { header },
            applied.index,
        ))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let (key, range_end) = (asked.key.into(), asked.range_end.into());
        let change = UsersChange::revoke_keys(asked.role, key, range_end);
        let applied = self.change(&metadata, change).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::AuthRoleRevokePermissionResponse { header },
            applied.index,
        ))
    }
}
