//! The encoding of actors, and of changes of users and tokens.
//!
//! ```text
//! by           | actor u8: 0 the process, 1 a user | name bytes, since varint, of a user | command |
//! users        | change u8 | its fields |
//! tokens       | change u8 | its fields |
//! ```

use bowline_storage::codec::{put_bytes, put_varint};

use super::decoder::{CUT, Decoded, Decoder};
use super::format::{TAG_BY, TAG_BY_AT};
use crate::command::Command;
use crate::users::{Actor, Permission, TokenChange, TokenHash, UsersChange};
use crate::users::{put_permission, read_permission};

const ACTOR_PROCESS: u8 = 0;
const ACTOR_USER: u8 = 1;

const ENABLE: u8 = 0;
const DISABLE: u8 = 1;
const ADD_USER: u8 = 2;
const DELETE_USER: u8 = 3;
const CHANGE_PASSWORD: u8 = 4;
const GRANT_ROLE: u8 = 5;
const REVOKE_ROLE: u8 = 6;
const ADD_ROLE: u8 = 7;
const DELETE_ROLE: u8 = 8;
const GRANT_PERMISSION: u8 = 9;
const REVOKE_PERMISSION: u8 = 10;
const ADD_USER_WITHOUT_PASSWORD: u8 = 11;

const LOGIN: u8 = 0;
const RENEW: u8 = 1;
const EXPIRE: u8 = 2;

pub(super) fn put_actor(actor: &Actor, out: &mut Vec<u8>) {
    match actor {
        Actor::Process => out.push(ACTOR_PROCESS),
        Actor::User { name, since } => {
            out.push(ACTOR_USER);
            put_bytes(out, name.as_bytes());
            put_varint(out, *since);
        }
    }
}

pub(super) fn put_users_change(change: &UsersChange, out: &mut Vec<u8>) {
    let mut put = |tag: u8, texts: &[&str]| {
        out.push(tag);
        for text in texts {
            put_bytes(out, text.as_bytes());
        }
    };
    match change {
        UsersChange::Enable => put(ENABLE, &[]),
        UsersChange::Disable => put(DISABLE, &[]),
        UsersChange::AddUser { name, password } => match password {
            Some(password) => put(ADD_USER, &[name, password]),
            None => put(ADD_USER_WITHOUT_PASSWORD, &[name]),
        },
        UsersChange::DeleteUser { name } => put(DELETE_USER, &[name]),
        UsersChange::ChangePassword { name, password } => put(CHANGE_PASSWORD, &[name, password]),
        UsersChange::GrantRole { user, role } => put(GRANT_ROLE, &[user, role]),
        UsersChange::RevokeRole { user, role } => put(REVOKE_ROLE, &[user, role]),
        UsersChange::AddRole { name } => put(ADD_ROLE, &[name]),
        UsersChange::DeleteRole { name } => put(DELETE_ROLE, &[name]),
        UsersChange::GrantPermission { role, permission } => {
            put(GRANT_PERMISSION, &[role]);
            put_permission(permission, out);
        }
        UsersChange::RevokePermission { role, permission } => {
            put(REVOKE_PERMISSION, &[role]);
            put_permission(permission, out);
        }
    }
}

pub(super) fn put_token_change(change: &TokenChange, out: &mut Vec<u8>) {
    match change {
        TokenChange::Login {
            user,
            token,
            checked_at,
            expires_ms,
        } => {
            out.push(LOGIN);
            put_bytes(out, user.as_bytes());
            out.extend_from_slice(token);
            put_varint(out, *checked_at);
            put_varint(out, *expires_ms);
        }
        TokenChange::Renew { token, expires_ms } => {
            out.push(RENEW);
            out.extend_from_slice(token);
            put_varint(out, *expires_ms);
        }
        TokenChange::Expire { before_ms } => {
            out.push(EXPIRE);
            put_varint(out, *before_ms);
        }
    }
}

impl Decoder<'_> {
    fn permission(&mut self) -> Decoded<Permission> {
        read_permission(&mut self.reader).ok_or("a permission that is unknown")
    }

    fn token_hash(&mut self) -> Decoded<TokenHash> {
        let bytes = self.reader.take(32).ok_or(CUT)?;
        bytes.try_into().map_err(|_| CUT)
    }

    /// A command with its actor, and with the time when it was received, if it has one.
    pub(super) fn by(&mut self, has_time: bool) -> Decoded<Command> {
        let actor = match self.u8()? {
            ACTOR_PROCESS => Actor::Process,
            ACTOR_USER => Actor::User {
                name: self.user()?,
                since: self.number()?,
            },
            _ => return Err("an actor that is unknown"),
        };
        let at_ms = match has_time {
            true => Some(self.number()?),
            false => None,
        };
        // Its tag is looked at first: bytes of actors of actors must not use up the stack.
        let tag = self.u8()?;
        if matches!(tag, TAG_BY | TAG_BY_AT) {
            return Err("an actor of a command that has one");
        }
        let command = Box::new(self.command_of_tag(tag)?);
        Ok(Command::By {
            actor,
            at_ms,
            command,
        })
    }

    pub(super) fn users_change(&mut self) -> Decoded<UsersChange> {
        Ok(match self.u8()? {
            ENABLE => UsersChange::Enable,
            DISABLE => UsersChange::Disable,
            ADD_USER => UsersChange::AddUser {
                name: self.text()?,
                password: Some(self.text()?),
            },
            ADD_USER_WITHOUT_PASSWORD => UsersChange::AddUser {
                name: self.text()?,
                password: None,
            },
            DELETE_USER => UsersChange::DeleteUser { name: self.text()? },
            CHANGE_PASSWORD => UsersChange::ChangePassword {
                name: self.text()?,
                password: self.text()?,
            },
            GRANT_ROLE => UsersChange::GrantRole {
                user: self.text()?,
                role: self.text()?,
            },
            REVOKE_ROLE => UsersChange::RevokeRole {
                user: self.text()?,
                role: self.text()?,
            },
            ADD_ROLE => UsersChange::AddRole { name: self.text()? },
            DELETE_ROLE => UsersChange::DeleteRole { name: self.text()? },
            GRANT_PERMISSION => UsersChange::GrantPermission {
                role: self.text()?,
                permission: self.permission()?,
            },
            REVOKE_PERMISSION => UsersChange::RevokePermission {
                role: self.text()?,
                permission: self.permission()?,
            },
            _ => return Err("a change of users that is unknown"),
        })
    }

    pub(super) fn token_change(&mut self) -> Decoded<TokenChange> {
        Ok(match self.u8()? {
            LOGIN => TokenChange::Login {
                user: self.text()?,
                token: self.token_hash()?,
                checked_at: self.number()?,
                expires_ms: self.number()?,
            },
            RENEW => TokenChange::Renew {
                token: self.token_hash()?,
                expires_ms: self.number()?,
            },
            EXPIRE => TokenChange::Expire {
                before_ms: self.number()?,
            },
            _ => return Err("a change of tokens that is unknown"),
        })
    }
}
