//! [`Users`]: users, roles and whether authentication is enabled.
//!
//! The records in the system tree:
//!
//! ```text
//! u c          | version 1 | is enabled u8 | auth revision varint |
//! u u NAME     | since varint | has a password u8 | password bytes | roles in order: count, each bytes |
//! u r NAME     | permissions: count, each |
//! permission   | kind u8: 0 keys, 1 kinds | grant u8 | key bytes, range end bytes; or prefix bytes |
//! u t HASH     a token; see `tokens`
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_storage::codec::{Reader, put_bytes, put_varint};

use super::{Grant, NAME_BYTES_MAX, Permission, ROOT, Rights, UsersChange, UsersRefusal};

const VERSION: u8 = 1;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The auth revision that added it, or gave it its password.
    pub since: u64,
    /// The hash of its password, in the PHC string format, or empty where none fits; `None` if it has no password.
    pub password: Option<String>,
    /// Its roles.
    pub roles: BTreeSet<String>,
    rights: Rights,
}

impl User {
    /// What its roles allow.
    #[must_use]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }
}

/// A role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// What it allows, in the order of keys, then of kinds.
    pub permissions: Vec<Permission>,
}

/// The users, the roles, and whether authentication is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    is_enabled: bool,
    revision: u64,
    users: BTreeMap<String, Arc<User>>,
    roles: BTreeMap<String, Arc<Role>>,
}

impl Default for Users {
    fn default() -> Users {
        Users {
            is_enabled: false,
            revision: Users::FIRST_REVISION,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
        }
    }
}

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordKey {
    Config,
    User(String),
    Role(String),
}

/// A record to be written, or with `None` to be deleted.
pub(crate) type Record = (RecordKey, Option<Vec<u8>>);

impl Users {
    /// The auth revision before the first change, as in etcd.
    pub const FIRST_REVISION: u64 = 1;

    /// Whether authentication is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// The auth revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A user.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|user| &**user)
    }

    /// A role.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name).map(|role| &**role)
    }

    /// The names of the users, in order.
    pub fn user_names(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }

    /// The names of the roles, in order.
    pub fn role_names(&self) -> impl Iterator<Item = &str> {
        self.roles.keys().map(String::as_str)
    }

    /// Loads a state from its records.
    pub(crate) fn load(
        config: Option<&[u8]>,
        users: BTreeMap<String, Arc<User>>,
        roles: BTreeMap<String, Arc<Role>>,
    ) -> Option<Users> {
        let mut loaded = Users {
            users,
            roles,
            ..Users::default()
        };
        if let Some(record) = config {
            let mut reader = Reader::new(record);
            if reader.u8()? != VERSION {
                return None;
            }
            loaded.is_enabled = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            loaded.revision = reader.varint()?;
            if !reader.is_empty() {
                return None;
            }
        }
        let names: Vec<String> = loaded.users.keys().cloned().collect();
        for name in names {
            loaded.renew_rights(&name);
        }
        Some(loaded)
    }

    /// The state after a change, with the records that differ; `None` when the change does nothing.
    pub(crate) fn changed(
        &self,
        change: &UsersChange,
    ) -> Result<Option<(Users, Vec<Record>)>, UsersRefusal> {
        self.check(change)?;
        let mut after = self.clone();
        let mut changed = Vec::new();
        match change {
            UsersChange::Enable if self.is_enabled => return Ok(None),
            UsersChange::Disable if !self.is_enabled => return Ok(None),
            UsersChange::Enable => after.is_enabled = true,
            UsersChange::Disable => after.is_enabled = false,
            UsersChange::AddUser { name, password } => {
                let user = User {
                    since: self.revision + 1,
                    password: password.clone(),
                    roles: BTreeSet::new(),
                    rights: Rights::default(),
                };
                after.users.insert(name.clone(), Arc::new(user));
                changed.push(RecordKey::User(name.clone()));
            }
            UsersChange::DeleteUser { name } => {
                after.users.remove(name);
                changed.push(RecordKey::User(name.clone()));
            }
            UsersChange::ChangePassword { name, password } => {
                let since = self.revision + 1;
                after.change_user(name, |user| {
                    user.since = since;
                    if let Some(before) = &mut user.password {
                        before.clone_from(password);
                    }
                });
                changed.push(RecordKey::User(name.clone()));
            }
            UsersChange::GrantRole { user, role } => {
                if self
                    .user(user)
                    .is_some_and(|user| user.roles.contains(role))
                {
                    return Ok(None);
                }
                after.change_user(user, |user| {
                    user.roles.insert(role.clone());
                });
                changed.push(RecordKey::User(user.clone()));
            }
            UsersChange::RevokeRole { user, role } => {
                after.change_user(user, |user| {
                    user.roles.remove(role);
                });
                changed.push(RecordKey::User(user.clone()));
            }
            UsersChange::AddRole { name } => {
                after.roles.insert(name.clone(), Arc::default());
                changed.push(RecordKey::Role(name.clone()));
            }
            UsersChange::DeleteRole { name } => {
                after.roles.remove(name);
                changed.push(RecordKey::Role(name.clone()));
                for user in after.users_with(name) {
                    after.change_user(&user, |user| {
                        user.roles.remove(name);
                    });
                    changed.push(RecordKey::User(user));
                }
            }
            UsersChange::GrantPermission { role, permission } => {
                after.change_role(role, |role| role.grant(permission));
                changed.push(RecordKey::Role(role.clone()));
            }
            UsersChange::RevokePermission { role, permission } => {
                after.change_role(role, |role| {
                    role.permissions
                        .retain(|has| !has.is_on_the_same(permission));
                });
                changed.push(RecordKey::Role(role.clone()));
            }
        }
        // As in etcd, enabling is no change of the revision.
        if *change != UsersChange::Enable {
            after.revision += 1;
        }
        changed.push(RecordKey::Config);
        let records = changed.into_iter().map(|key| {
            let record = after.record(&key);
            (key, record)
        });
        let records = records.collect();
        Ok(Some((after, records)))
    }

    /// Refuses a change, in the order of etcd's checks.
    fn check(&self, change: &UsersChange) -> Result<(), UsersRefusal> {
        use UsersRefusal as R;
        let is_last_root = |name: &str| self.is_enabled && name == ROOT;
        let user_of = |name: &str| self.user(name).ok_or(R::UserNotFound);
        let role_of = |name: &str| self.role(name).ok_or(R::RoleNotFound);
        match change {
            UsersChange::Enable if self.is_enabled => Ok(()),
            UsersChange::Enable => {
                let root = self.user(ROOT).ok_or(R::RootUserMissing)?;
                match root.roles.contains(ROOT) {
                    true => Ok(()),
                    false => Err(R::RootRoleMissing),
                }
            }
            UsersChange::Disable => Ok(()),
            UsersChange::AddUser { name, .. } if name.is_empty() => Err(R::UserNameEmpty),
            UsersChange::AddUser { name, .. } | UsersChange::AddRole { name }
                if name.len() > NAME_BYTES_MAX =>
            {
                Err(R::NameTooLong)
            }
            UsersChange::AddUser { name, .. } => match self.user(name) {
                Some(_) => Err(R::UserExists),
                None => Ok(()),
            },
            UsersChange::DeleteUser { name } if is_last_root(name) => Err(R::InvalidManagement),
            UsersChange::DeleteUser { name } | UsersChange::ChangePassword { name, .. } => {
                user_of(name).map(drop)
            }
            UsersChange::GrantRole { user, role } => {
                user_of(user)?;
                match role == ROOT {
                    true => Ok(()),
                    false => role_of(role).map(drop),
                }
            }
            UsersChange::RevokeRole { user, role } if is_last_root(user) && role == ROOT => {
                Err(R::InvalidManagement)
            }
            UsersChange::RevokeRole { user, role } => match user_of(user)?.roles.contains(role) {
                true => Ok(()),
                false => Err(R::RoleNotGranted),
            },
            UsersChange::AddRole { name } if name.is_empty() => Err(R::RoleNameEmpty),
            UsersChange::AddRole { name } => match self.role(name) {
                Some(_) => Err(R::RoleExists),
                None => Ok(()),
            },
            UsersChange::DeleteRole { name } if is_last_root(name) => Err(R::InvalidManagement),
            UsersChange::DeleteRole { name } => role_of(name).map(drop),
            UsersChange::GrantPermission { permission, .. } if !permission.is_valid() => {
                Err(R::InvalidManagement)
            }
            UsersChange::GrantPermission { role, .. } => role_of(role).map(drop),
            UsersChange::RevokePermission { role, permission } => {
                let mut has = role_of(role)?.permissions.iter();
                match has.any(|has| has.is_on_the_same(permission)) {
                    true => Ok(()),
                    false => Err(R::PermissionNotGranted),
                }
            }
        }
    }

    fn change_user(&mut self, name: &str, change: impl FnOnce(&mut User)) {
        if let Some(user) = self.users.get_mut(name) {
            change(Arc::make_mut(user));
        }
        self.renew_rights(name);
    }

    fn change_role(&mut self, name: &str, change: impl FnOnce(&mut Role)) {
        if let Some(role) = self.roles.get_mut(name) {
            change(Arc::make_mut(role));
        }
        for user in self.users_with(name) {
            self.renew_rights(&user);
        }
    }

    fn users_with(&self, role: &str) -> Vec<String> {
        let all = self.users.iter();
        let with = all.filter(|(_, user)| user.roles.contains(role));
        with.map(|(name, _)| name.clone()).collect()
    }

    /// Computes the rights of a user from its roles.
    fn renew_rights(&mut self, name: &str) {
        let Some(user) = self.users.get_mut(name) else {
            return;
        };
        let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
        let permissions = roles.flat_map(|role| &role.permissions);
        let rights = Rights::of(user.roles.contains(ROOT), permissions);
        if user.rights != rights {
            Arc::make_mut(user).rights = rights;
        }
    }

    /// The record of a key; `None` if there is nothing under it.
    pub(crate) fn record(&self, key: &RecordKey) -> Option<Vec<u8>> {
        match key {
            RecordKey::Config => {
                let mut out = vec![VERSION, u8::from(self.is_enabled)];
                put_varint(&mut out, self.revision);
                Some(out)
            }
            RecordKey::User(name) => self.user(name).map(encode_user),
            RecordKey::Role(name) => self.role(name).map(encode_role),
        }
    }
}

impl Role {
    fn grant(&mut self, permission: &Permission) {
        let mut all = self.permissions.iter_mut();
        match all.find(|has| has.is_on_the_same(permission)) {
            Some(has) => has.clone_from(permission),
            None => {
                let behind = self
                    .permissions
                    .partition_point(|has| order(has) <= order(permission));
                self.permissions.insert(behind, permission.clone());
            }
        }
    }
}

/// The order of a role's permissions: keys by their first key, then kinds by their prefix.
fn order(permission: &Permission) -> (bool, &[u8]) {
    match permission {
        Permission::Keys { key, .. } => (false, key),
        Permission::Kinds { prefix, .. } => (true, prefix.as_bytes()),
    }
}

/// Encodes a user.
pub(crate) fn encode_user(user: &User) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, user.since);
    out.push(u8::from(user.password.is_some()));
    put_bytes(
        &mut out,
        user.password.as_deref().unwrap_or_default().as_bytes(),
    );
    put_varint(&mut out, user.roles.len() as u64);
    for role in &user.roles {
        put_bytes(&mut out, role.as_bytes());
    }
    out
}

/// Decodes the record of a user, whose rights are computed later.
pub(crate) fn decode_user(record: &[u8]) -> Option<User> {
    let mut reader = Reader::new(record);
    let since = reader.varint()?;
    let has_password = reader.u8()?;
    let password = text(&mut reader)?;
    let count = reader.varint_usize()?;
    let mut roles = BTreeSet::new();
    for _ in 0..count {
        let role = text(&mut reader)?;
        if roles.last().is_some_and(|last| *last >= role) {
            return None;
        }
        roles.insert(role);
    }
    let password = match has_password {
        0 if password.is_empty() => None,
        1 => Some(password),
        _ => return None,
    };
    reader.is_empty().then(|| User {
        since,
        password,
        roles,
        rights: Rights::default(),
    })
}

/// Encodes a role.
pub(crate) fn encode_role(role: &Role) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, role.permissions.len() as u64);
    for permission in &role.permissions {
        put_permission(permission, &mut out);
    }
    out
}

/// Decodes the record of a role.
pub(crate) fn decode_role(record: &[u8]) -> Option<Role> {
    let mut reader = Reader::new(record);
    let count = reader.varint_usize()?;
    let mut permissions = Vec::new();
    for _ in 0..count {
        permissions.push(read_permission(&mut reader)?);
    }
    reader.is_empty().then_some(Role { permissions })
}

const ON_KEYS: u8 = 0;
const ON_KINDS: u8 = 1;

/// Appends a permission.
pub(crate) fn put_permission(permission: &Permission, out: &mut Vec<u8>) {
    match permission {
        Permission::Keys {
            grant,
            key,
            range_end,
        } => {
            out.extend_from_slice(&[ON_KEYS, *grant as u8]);
            put_bytes(out, key);
            put_bytes(out, range_end);
        }
        Permission::Kinds { grant, prefix } => {
            out.extend_from_slice(&[ON_KINDS, *grant as u8]);
            put_bytes(out, prefix.as_bytes());
        }
    }
}

/// Reads a permission.
pub(crate) fn read_permission(reader: &mut Reader<'_>) -> Option<Permission> {
    let on = reader.u8()?;
    let grant = match reader.u8()? {
        0 => Grant::Read,
        1 => Grant::Write,
        2 => Grant::ReadWrite,
        _ => return None,
    };
    match on {
        ON_KEYS => Some(Permission::Keys {
            grant,
            key: reader.bytes()?.to_vec(),
            range_end: reader.bytes()?.to_vec(),
        }),
        ON_KINDS => Some(Permission::Kinds {
            grant,
            prefix: text(reader)?,
        }),
        _ => None,
    }
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    let bytes = reader.bytes()?;
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
