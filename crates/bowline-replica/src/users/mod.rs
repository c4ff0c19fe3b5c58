//! Users, roles and what they may do, as replicated state.
//!
//! A *user* has a password, or none, and roles. A *role* has *permissions*: to read, to write, or both, on a range of keys
//! or on kinds of the graph whose names begin with a prefix. The role `root` may do everything. The *auth revision* counts
//! the changes. All of it is in the system tree; its changes are commands ([`UsersChange`]), with etcd's conditions and
//! refusals.
//!
//! While authentication is enabled, a command that a client asks for names its [`Actor`]. Every member checks the actor's
//! rights when it applies the command, against the state that all members have then:
//!
//! ```text
//! call ──token──► Session ──Caller──► needs of the call, checked against the member's state: an early refusal
//!                                      │
//!                                      ▼
//!                     Command::By { actor, command } ── log ──► needs of the command, checked again: this decides
//! ```
//!
//! | part | where |
//! |---|---|
//! | spans of keys and of names, and what a user's roles allow | `rights` |
//! | what a command needs: one exhaustive function | [`needs`](crate::needs) |
//! | users and roles, and how a change is decided | `state` |
//! | changes, actors and their encoding | `change` |
//! | tokens and the sessions that they stand for | `tokens` |
//!
//! Invariants:
//!
//! - A command of a client without an actor is refused while authentication is enabled; so is that of a user who was
//!   deleted, or whose password was changed, after the caller had logged in.
//! - Whether a change is refused, and what it does, depends on the replicated state and the command alone.
//! - There is a user `root` with the role `root` for as long as authentication is enabled.
//! - A token is in the state by its SHA-256 alone: a copy of the data lets nobody in.

mod change;
mod rights;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;

pub use change::{Actor, TokenChange, TokenHash, UsersChange};
pub(crate) use rights::Allowed;
pub use rights::{Access, Grant, Permission, Rights};
pub(crate) use state::{RecordKey, decode_role, decode_user, put_permission, read_permission};
pub use state::{Role, User, Users};
#[cfg(any(test, fuzzing))]
pub(crate) use state::{encode_role, encode_user};
pub use tokens::{Caller, Session};
pub(crate) use tokens::{TOKENS_MAX, Tokens, decode_token, encode_token};

/// The user, and the role, that may do everything.
pub const ROOT: &str = "root";

/// The longest name of a user or a role, in bytes.
pub const NAME_BYTES_MAX: usize = 1 << 10;

/// Why a change of users is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsersRefusal {
    /// A user has no name.
    #[error("the user name is empty: give one")]
    UserNameEmpty,
    /// A role has no name.
    #[error("the role name is empty: give one")]
    RoleNameEmpty,
    /// A name is too long.
    #[error("the name is longer than {NAME_BYTES_MAX} bytes: choose a shorter one")]
    NameTooLong,
    /// The user exists already.
    #[error("the user exists already: choose another name, or change that user")]
    UserExists,
    /// There is no such user.
    #[error("there is no such user: list the users, or add it")]
    UserNotFound,
    /// The role exists already.
    #[error("the role exists already: choose another name, or change that role")]
    RoleExists,
    /// There is no such role.
    #[error("there is no such role: list the roles, or add it")]
    RoleNotFound,
    /// The user does not have the role.
    #[error("the user does not have this role")]
    RoleNotGranted,
    /// The role does not have the permission.
    #[error(
        "the role does not have this permission: it is revoked with the range that it was granted with"
    )]
    PermissionNotGranted,
    /// There is no user `root`, so authentication cannot be enabled.
    #[error("there is no user root: add it before authentication is enabled")]
    RootUserMissing,
    /// The user `root` does not have the role `root`, so authentication cannot be enabled.
    #[error("the user root does not have the role root: grant it before authentication is enabled")]
    RootRoleMissing,
    /// It would remove the last root, or the range of a permission is empty.
    #[error("it would remove the last root while authentication is enabled, or the range is empty")]
    InvalidManagement,
    /// Authentication is not enabled.
    #[error("authentication is not enabled")]
    NotEnabled,
    /// There are as many tokens as may be.
    #[error("there are too many valid tokens: wait until some have expired")]
    TooManyTokens,
    /// The user was changed since its password was checked, or the token has ended.
    #[error("the token is not valid any more: log in again")]
    InvalidToken,
    /// A call without a user.
    #[error("the call names no user, and authentication is enabled: log in")]
    NoUser,
    /// The user may not do this.
    #[error("the user does not have the permission")]
    PermissionDenied,
}
