//! Users, roles and what they may do: etcd's Auth service.
//!
//! A *user* has a password, or none, and *roles*. A role has *permissions*: to read, to write, or both, on ranges of keys. The
//! role `root` may do everything, and the user `root` has it. While authentication is enabled, a server answers users only;
//! a client names its user with [`ClientBuilder::user`](crate::ClientBuilder::user).
//!
//! ```no_run
//! # async fn example() -> bowline_client::Result<()> {
//! use bowline_client::auth::Permission;
//! use bowline_client::{Client, KeyRange};
//!
//! let client = Client::builder().endpoints(["10.0.0.1:2379"]).user("root", "a secret").connect().await?;
//! let auth = client.auth();
//! auth.user_add("root", "a secret").await?;
//! auth.user_grant_role("root", "root").await?;
//! auth.enable().await?;
//!
//! auth.role_add("workers").await?;
//! auth.role_grant("workers", Permission::read_write(KeyRange::prefix("jobs/"))).await?;
//! auth.user_add("ann", "another secret").await?;
//! auth.user_grant_role("ann", "workers").await?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;

use bowline_proto::authpb;
use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::auth_client::AuthClient as Service;
use bowline_proto::v1;
use bowline_proto::v1::roles_client::RolesClient as Roles;

use crate::caller::{Caller, Repeat};
use crate::v1::{header, senseless};
use crate::{Error, Header, KeyRange, Result};

/// What a permission allows on its keys.
///
/// ```
/// use bowline_client::auth::Access;
///
/// assert_eq!(Access::ReadWrite.to_string(), "readwrite");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// To read.
    Read,
    /// To write, which includes to delete.
    Write,
    /// Both.
    ReadWrite,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "readwrite",
        })
    }
}

/// A permission of a role.
///
/// ```
/// use bowline_client::KeyRange;
/// use bowline_client::auth::{Access, Permission};
///
/// let permission = Permission::read(KeyRange::prefix("config/"));
/// assert_eq!(permission.access, Access::Read);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Permission {
    /// What it allows.
    pub access: Access,
    /// The keys.
    pub range: KeyRange,
}

impl Permission {
    /// To read keys.
    ///
    /// ```
    /// use bowline_client::auth::Permission;
    ///
    /// let one_key = Permission::read("leader");
    /// assert!(one_key.range.end().is_empty());
    /// ```
    pub fn read(range: impl Into<KeyRange>) -> Permission {
        Permission {
            access: Access::Read,
            range: range.into(),
        }
    }

    /// To write keys.
    ///
    /// ```
    /// use bowline_client::KeyRange;
    /// use bowline_client::auth::Permission;
    ///
    /// let logs = Permission::write(KeyRange::prefix("logs/"));
    /// assert_eq!(logs.access.to_string(), "write");
    /// ```
    pub fn write(range: impl Into<KeyRange>) -> Permission {
        Permission {
            access: Access::Write,
            range: range.into(),
        }
    }

    /// To read and to write keys.
    ///
    /// ```
    /// use bowline_client::KeyRange;
    /// use bowline_client::auth::Permission;
    ///
    /// let everything = Permission::read_write(KeyRange::all());
    /// assert_eq!(everything.access.to_string(), "readwrite");
    /// ```
    pub fn read_write(range: impl Into<KeyRange>) -> Permission {
        Permission {
            access: Access::ReadWrite,
            range: range.into(),
        }
    }

    fn into_wire(self) -> authpb::Permission {
        let perm_type = match self.access {
            Access::Read => 0,
            Access::Write => 1,
            Access::ReadWrite => 2,
        };
        let (key, range_end) = self.range.into_parts();
        authpb::Permission {
            perm_type,
            key,
            range_end,
        }
    }

    fn of_wire(wire: authpb::Permission) -> Result<Permission> {
        let access = match wire.perm_type {
            0 => Access::Read,
            1 => Access::Write,
            2 => Access::ReadWrite,
            _ => return Err(senseless("the type of a permission is not known")),
        };
        // The role `root` is written with an empty first key.
        let range = match (&wire.key[..], &wire.range_end[..]) {
            ([], [0]) => KeyRange::all(),
            _ => KeyRange::from_wire(wire.key, wire.range_end),
        };
        Ok(Permission { access, range })
    }
}

/// A permission of a role on the blocks and edges of kinds.
///
/// ```
/// use bowline_client::auth::{Access, KindPermission};
///
/// let services = KindPermission::new(Access::ReadWrite, "service");
/// assert_eq!(services.prefix, "service");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KindPermission {
    /// What it allows.
    pub access: Access,
    /// The names of the kinds begin with it. Empty: all kinds, and blocks without one.
    pub prefix: String,
}

impl KindPermission {
    /// A permission on all kinds whose names begin with a text.
    ///
    /// ```
    /// use bowline_client::auth::{Access, KindPermission};
    ///
    /// let everything = KindPermission::new(Access::Read, "");
    /// assert_eq!(everything.access, Access::Read);
    /// ```
    pub fn new(access: Access, prefix: impl Into<String>) -> KindPermission {
        KindPermission {
            access,
            prefix: prefix.into(),
        }
    }

    fn into_wire(self) -> v1::KindPermission {
        let access = match self.access {
            Access::Read => v1::Access::Read,
            Access::Write => v1::Access::Write,
            Access::ReadWrite => v1::Access::ReadWrite,
        };
        v1::KindPermission {
            access: access.into(),
            prefix: self.prefix,
        }
    }

    fn of_wire(wire: v1::KindPermission) -> Result<KindPermission> {
        let access = match v1::Access::try_from(wire.access) {
            Ok(v1::Access::Read) => Access::Read,
            Ok(v1::Access::Write) => Access::Write,
            Ok(v1::Access::ReadWrite) => Access::ReadWrite,
            Err(_) => return Err(senseless("the access of a permission is not known")),
        };
        Ok(KindPermission::new(access, wire.prefix))
    }
}

/// A user.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::auth::User;
///
/// let ann: User = client.auth().user_get("ann").await?;
/// println!("{} has the roles {}", ann.name, ann.roles.join(", "));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its roles, in the order of their names.
    pub roles: Vec<String>,
}

/// A role.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::auth::Role;
///
/// let workers: Role = client.auth().role_get("workers").await?;
/// for permission in workers.permissions {
///     println!("{} {:?}", permission.access, permission.range);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Role {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub permissions: Vec<Permission>,
}

/// Whether authentication is enabled.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::auth::AuthStatus;
///
/// let status: AuthStatus = client.auth().status().await?;
/// println!("enabled: {}, after {} changes", status.is_enabled, status.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AuthStatus {
    /// The reply header.
    pub header: Header,
    /// Whether it is.
    pub is_enabled: bool,
    /// The auth revision: it counts the changes of users and roles.
    pub revision: u64,
}

/// The calls about users and roles. [`Client::auth`](crate::Client::auth) gives it; clones share connections.
///
/// Unless it says otherwise, a call needs the role `root` while authentication is enabled.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// let auth = client.auth();
/// for name in auth.user_list().await? {
///     println!("{name}: {:?}", auth.user_get(&name).await?.roles);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AuthClient {
    caller: Arc<Caller>,
}

/// Sends a request; gives the reply and its header.
macro_rules! send {
    ($client:expr, $repeat:ident, $method:ident, $request:expr) => {{
        let send = |channel, request| async move { Service::new(channel).$method(request).await };
        let called = $client.caller.call(Repeat::$repeat, None, $request, send);
        let (reply, metadata) = called.await?;
        let header = Header::new(reply.header.clone(), &metadata);
        (reply, header)
    }};
}

/// Sends a request of `bowline.v1.Roles`; gives the reply.
macro_rules! send_roles {
    ($client:expr, $repeat:ident, $method:ident, $request:expr) => {{
        let send = |channel, request| async move { Roles::new(channel).$method(request).await };
        let called = $client.caller.call(Repeat::$repeat, None, $request, send);
        called.await?.0
    }};
}

/// A server takes a call without a user's name for one of nobody.
fn checked(name: &str) -> Result<String> {
    match name {
        "" => Err(Error::InvalidArgument {
            message: "the name is empty: give one".to_owned(),
        }),
        name => Ok(name.to_owned()),
    }
}

impl AuthClient {
    pub(crate) fn new(caller: Arc<Caller>) -> AuthClient {
        AuthClient { caller }
    }

    /// Enables authentication: from now on servers answer users only.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// // A client that names the user `root` shows its token from the next call on.
    /// client.auth().enable().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RootUserMissing`, `RootRoleMissing`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn enable(&self) -> Result<Header> {
        let request = pb::AuthEnableRequest {};
        Ok(send!(self, Never, auth_enable, request).1)
    }

    /// Disables authentication: everybody may do everything. Users and roles stay.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().disable().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn disable(&self) -> Result<Header> {
        let request = pb::AuthDisableRequest {};
        Ok(send!(self, Never, auth_disable, request).1)
    }

    /// Whether authentication is enabled.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// if client.auth().status().await?.is_enabled {
    ///     println!("users only");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn status(&self) -> Result<AuthStatus> {
        let (reply, header) = send!(self, Always, auth_status, pb::AuthStatusRequest {});
        Ok(AuthStatus {
            header,
            is_enabled: reply.enabled,
            revision: reply.auth_revision,
        })
    }

    /// Adds a user. The password travels as it is: a server keeps its hash alone.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().user_add("ann", "a secret").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserExists`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn user_add(&self, name: &str, password: &str) -> Result<Header> {
        let request = pb::AuthUserAddRequest {
            name: checked(name)?,
            password: password.to_owned(),
            ..pb::AuthUserAddRequest::default()
        };
        Ok(send!(self, Never, user_add, request).1)
    }

    /// Adds a user that cannot log in, until it has a password.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let auth = client.auth();
    /// auth.user_add_without_password("bob").await?;
    /// auth.user_change_password("bob", "a secret").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserExists`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn user_add_without_password(&self, name: &str) -> Result<Header> {
        let request = pb::AuthUserAddRequest {
            name: checked(name)?,
            options: Some(authpb::UserAddOptions { no_password: true }),
            ..pb::AuthUserAddRequest::default()
        };
        Ok(send!(self, Never, user_add, request).1)
    }

    /// Deletes a user. Its tokens end.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().user_delete("ann").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserNotFound`; `InvalidAuthChange` for `root` while authentication is enabled; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn user_delete(&self, name: &str) -> Result<Header> {
        let request = pb::AuthUserDeleteRequest {
            name: checked(name)?,
        };
        Ok(send!(self, Never, user_delete, request).1)
    }

    /// The names of all users, in order.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// println!("{}", client.auth().user_list().await?.join(", "));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn user_list(&self) -> Result<Vec<String>> {
        Ok(send!(self, Always, user_list, pb::AuthUserListRequest {})
            .0
            .users)
    }

    /// A user with its roles. A user may look at itself.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for role in client.auth().user_get("ann").await?.roles {
    ///     println!("{role}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserNotFound`; those of [any read](crate::Error#errors-of-any-read).
    pub async fn user_get(&self, name: &str) -> Result<User> {
        let name = checked(name)?;
        let request = pb::AuthUserGetRequest { name: name.clone() };
        let (reply, _) = send!(self, Always, user_get, request);
        Ok(User {
            name,
            roles: reply.roles,
        })
    }

    /// Gives a user another password. Its tokens end, so a client that knows the old password is refused.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().user_change_password("ann", "another secret").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserNotFound`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn user_change_password(&self, name: &str, password: &str) -> Result<Header> {
        let request = pb::AuthUserChangePasswordRequest {
            name: checked(name)?,
            password: password.to_owned(),
            ..pb::AuthUserChangePasswordRequest::default()
        };
        Ok(send!(self, Never, user_change_password, request).1)
    }

    /// Gives a user a role.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().user_grant_role("ann", "workers").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserNotFound`, `RoleNotFound`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn user_grant_role(&self, user: &str, role: &str) -> Result<Header> {
        let request = pb::AuthUserGrantRoleRequest {
            user: checked(user)?,
            role: checked(role)?,
        };
        Ok(send!(self, Never, user_grant_role, request).1)
    }

    /// Takes a role from a user.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().user_revoke_role("ann", "workers").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UserNotFound`, `RoleNotGranted`; `InvalidAuthChange` for the last root while authentication is enabled; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn user_revoke_role(&self, user: &str, role: &str) -> Result<Header> {
        let request = pb::AuthUserRevokeRoleRequest {
            name: checked(user)?,
            role: checked(role)?,
        };
        Ok(send!(self, Never, user_revoke_role, request).1)
    }

    /// Adds a role, without permissions.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().role_add("workers").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleExists`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn role_add(&self, name: &str) -> Result<Header> {
        let request = pb::AuthRoleAddRequest {
            name: checked(name)?,
        };
        Ok(send!(self, Never, role_add, request).1)
    }

    /// Deletes a role. Every user loses it.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().role_delete("workers").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`; `InvalidAuthChange` for `root` while authentication is enabled; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn role_delete(&self, name: &str) -> Result<Header> {
        let request = pb::AuthRoleDeleteRequest {
            role: checked(name)?,
        };
        Ok(send!(self, Never, role_delete, request).1)
    }

    /// The names of all roles, in order.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// println!("{}", client.auth().role_list().await?.join(", "));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn role_list(&self) -> Result<Vec<String>> {
        Ok(send!(self, Always, role_list, pb::AuthRoleListRequest {})
            .0
            .roles)
    }

    /// A role with its permissions. A user may look at its own roles.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// println!("{:?}", client.auth().role_get("workers").await?.permissions);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`; those of [any read](crate::Error#errors-of-any-read).
    pub async fn role_get(&self, name: &str) -> Result<Role> {
        let name = checked(name)?;
        let request = pb::AuthRoleGetRequest { role: name.clone() };
        let (reply, _) = send!(self, Always, role_get, request);
        let permissions = reply.perm.into_iter().map(Permission::of_wire);
        Ok(Role {
            name,
            permissions: permissions.collect::<Result<_>>()?,
        })
    }

    /// Gives a role a permission. One for the same keys is replaced.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::KeyRange;
    /// use bowline_client::auth::Permission;
    ///
    /// let config = Permission::read(KeyRange::prefix("config/"));
    /// client.auth().role_grant("workers", config).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`; `InvalidAuthChange` for an empty range; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn role_grant(&self, role: &str, permission: Permission) -> Result<Header> {
        let request = pb::AuthRoleGrantPermissionRequest {
            name: checked(role)?,
            perm: Some(permission.into_wire()),
        };
        Ok(send!(self, Never, role_grant_permission, request).1)
    }

    /// Takes a permission from a role: the one that was granted for this very range.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::KeyRange;
    ///
    /// client.auth().role_revoke("workers", KeyRange::prefix("config/")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`, `PermissionNotGranted`; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn role_revoke(&self, role: &str, range: impl Into<KeyRange>) -> Result<Header> {
        let (key, range_end) = range.into().into_parts();
        let request = pb::AuthRoleRevokePermissionRequest {
            role: checked(role)?,
            key,
            range_end,
        };
        Ok(send!(self, Never, role_revoke_permission, request).1)
    }

    /// Gives a role a permission on the blocks and edges of kinds. One for the same prefix is replaced. Servers of Bowline have
    /// it, etcd has not.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::auth::{Access, KindPermission};
    ///
    /// let services = KindPermission::new(Access::ReadWrite, "service");
    /// client.auth().role_grant_kinds("workers", services).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`; `Unimplemented` by a server without the graph; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn role_grant_kinds(&self, role: &str, permission: KindPermission) -> Result<Header> {
        let request = v1::GrantKindsRequest {
            role: checked(role)?,
            permission: Some(permission.into_wire()),
        };
        let reply = send_roles!(self, Never, grant_kinds, request);
        Ok(header(reply.header)?.0)
    }

    /// Takes a permission on kinds from a role: the one that was granted for this very prefix.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.auth().role_revoke_kinds("workers", "service").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`, `PermissionNotGranted`; `Unimplemented` by a server without the graph; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn role_revoke_kinds(&self, role: &str, prefix: &str) -> Result<Header> {
        let request = v1::RevokeKindsRequest {
            role: checked(role)?,
            prefix: prefix.to_owned(),
        };
        let reply = send_roles!(self, Never, revoke_kinds, request);
        Ok(header(reply.header)?.0)
    }

    /// The permissions of a role on kinds. A user may look at its own roles.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for permission in client.auth().role_kinds("workers").await? {
    ///     println!("{} {}", permission.access, permission.prefix);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `RoleNotFound`; `Unimplemented` by a server without the graph; those of [any
    /// read](crate::Error#errors-of-any-read).
    pub async fn role_kinds(&self, role: &str) -> Result<Vec<KindPermission>> {
        let request = v1::ListKindsRequest {
            role: checked(role)?,
        };
        let reply = send_roles!(self, Always, list_kinds, request);
        reply
            .permissions
            .into_iter()
            .map(KindPermission::of_wire)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_the_same_after_the_wire() {
        for permission in [
            Permission::read("k"),
            Permission::write(KeyRange::prefix("a/")),
            Permission::read_write(KeyRange::all()),
        ] {
            let wire = permission.clone().into_wire();
            assert_eq!(Permission::of_wire(wire).unwrap(), permission);
        }
    }

    #[test]
    fn a_permission_of_an_unknown_type_is_an_error() {
        let unknown = authpb::Permission {
            perm_type: 7,
            ..authpb::Permission::default()
        };
        let read = Permission::of_wire(unknown);
        assert!(matches!(read, Err(Error::InvalidReply { .. })), "{read:?}");
    }
}
