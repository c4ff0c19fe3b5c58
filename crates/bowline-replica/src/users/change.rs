//! Changes of users, roles and tokens, and the actor of a command.

use std::sync::Arc;

use super::{Grant, Permission};

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A change of users or roles. Each that is not refused raises the auth revision by one, as in etcd also the grant of a
/// permission that the role has; only enabling, and what is said to do nothing, does not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsersChange {
    /// Enables authentication. Nothing happens when it is enabled.
    Enable,
    /// Disables it, and ends all tokens. Nothing happens when it is disabled.
    Disable,
    /// Adds a user.
    AddUser {
        /// Its name.
        name: String,
        /// The hash of its password, in the PHC string format; `None` for a user that has no password.
        password: Option<String>,
    },
    /// Deletes a user and its tokens.
    DeleteUser {
        /// Its name.
        name: String,
    },
    /// Replaces the password of a user, and ends its tokens. A user without a password stays without one.
    ChangePassword {
        /// The user.
        name: String,
        /// The hash of the password; empty where none fits until another is set.
        password: String,
    },
    /// Gives a role to a user. Nothing happens when the user has it.
    GrantRole {
        /// The user.
        user: String,
        /// The role: one that exists, or `root`.
        role: String,
    },
    /// Takes a role from a user.
    RevokeRole {
        /// The user.
        user: String,
        /// The role.
        role: String,
    },
    /// Adds a role without permissions.
    AddRole {
        /// Its name.
        name: String,
    },
    /// Deletes a role, also from the users that have it.
    DeleteRole {
        /// Its name.
        name: String,
    },
    /// Gives a permission to a role, in place of one on the same keys or kinds.
    GrantPermission {
        /// The role.
        role: String,
        /// The permission.
        permission: Permission,
    },
    /// Takes the permission on exactly these keys or kinds from a role, whatever it grants.
    RevokePermission {
        /// The role.
        role: String,
        /// The permission; what it grants does not matter.
        permission: Permission,
    },
}

impl UsersChange {
    /// The revocation of what is on a range of keys.
    #[must_use]
    pub fn revoke_keys(role: String, key: Vec<u8>, range_end: Vec<u8>) -> UsersChange {
        let grant = Grant::Read;
        let permission = Permission::Keys {
            grant,
            key,
            range_end,
        };
        UsersChange::RevokePermission { role, permission }
    }

    /// The bytes of its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let of_permission = |permission: &Permission| match permission {
            Permission::Keys { key, range_end, .. } => key.len() + range_end.len(),
            Permission::Kinds { prefix, .. } => prefix.len(),
        };
        match self {
            UsersChange::Enable | UsersChange::Disable => 0,
            UsersChange::AddUser { name, password } => {
                name.len() + password.as_ref().map_or(0, String::len)
            }
            UsersChange::ChangePassword { name, password } => name.len() + password.len(),
            UsersChange::DeleteUser { name }
            | UsersChange::AddRole { name }
            | UsersChange::DeleteRole { name } => name.len(),
            UsersChange::GrantRole { user, role } | UsersChange::RevokeRole { user, role } => {
                user.len() + role.len()
            }
            UsersChange::GrantPermission { role, permission }
            | UsersChange::RevokePermission { role, permission } => {
                role.len() + of_permission(permission)
            }
        }
    }
}

/// A change of tokens. It is no change of users: the auth revision stays. Times are of the wall clock, in milliseconds
/// since the Unix epoch, chosen by the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenChange {
    /// Adds a token. Refused if the user was deleted, or got another password, after its password was checked.
    Login {
        /// The user.
        user: String,
        /// The hash of the token.
        token: TokenHash,
        /// The auth revision at which the password was checked.
        checked_at: u64,
        /// When the token ends.
        expires_ms: u64,
    },
    /// Postpones the end of a token that is in use.
    Renew {
        /// The hash of the token.
        token: TokenHash,
        /// When it ends; nothing happens if that is not later.
        expires_ms: u64,
    },
    /// Removes tokens whose time is over, at most a thousand.
    Expire {
        /// Those that end by then.
        before_ms: u64,
    },
}

/// Who asks for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The program that the member is a part of: it may do everything.
    Process,
    /// A user.
    User {
        /// Its name.
        name: Arc<str>,
        /// The auth revision at which the user has logged in: a later user of this name is another.
        since: u64,
    },
}
