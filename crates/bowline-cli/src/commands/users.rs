//! `auth`, `user`, `role`.

use bowline_client::auth::{Access, KindPermission, Permission};
use bowline_client::{Error, KeyRange};

use crate::args::{Allowed, Auth, Keys, Role, User, name_and_password};
use crate::context::{Context, not_found, usage};
use crate::exit::Failure;
use crate::output::Field;
use crate::password;
use crate::remote::{KEYS_TIMEOUT, Remote};

/// The role, and the user, that may do everything.
const ROOT: &str = "root";

pub(crate) fn auth(context: &mut Context<'_, '_>, args: &Auth) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    let auth = remote.client.auth();
    match args {
        Auth::Enable => {
            match remote.outcome(auth.enable())? {
                // As etcdctl does: without it nobody could change anything afterwards.
                Err(Error::RootRoleMissing) => {
                    remote.wait(auth.user_grant_role(ROOT, ROOT))?;
                    remote.wait(auth.enable())?;
                }
                Err(Error::RootUserMissing) => {
                    let text = "there is no user root: `bowline user add root` adds it";
                    return Err(not_found(text.to_owned()));
                }
                enabled => drop(enabled?),
            }
            context.record(&[("enabled", Field::Flag(true))])
        }
        Auth::Disable => {
            remote.wait(auth.disable())?;
            context.record(&[("enabled", Field::Flag(false))])
        }
        Auth::Status => {
            let status = remote.wait(auth.status())?;
            context.record(&[
                ("enabled", Field::Flag(status.is_enabled)),
                ("auth_revision", status.revision.into()),
            ])
        }
    }
}

pub(crate) fn user(context: &mut Context<'_, '_>, args: &User) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    let auth = remote.client.auth();
    match args {
        User::Add {
            user,
            no_password,
            password,
        } => {
            let (name, given) = name_and_password(user.reveal());
            match (no_password, given) {
                (true, None) => about(&remote, name, "", auth.user_add_without_password(name))?,
                (true, Some(_)) => {
                    let text = "a password is given, and --no-password: leave one of them out";
                    return Err(usage(text.to_owned()));
                }
                (false, given) => {
                    let given = match given {
                        Some(given) => given,
                        None => password::new(context, name, password)?,
                    };
                    about(&remote, name, "", auth.user_add(name, given.reveal()))?
                }
            };
            context.record(&[
                ("user", name.into()),
                ("has_password", Field::Flag(!no_password)),
            ])
        }
        User::Delete { name } => {
            about(&remote, name, "", auth.user_delete(name))?;
            context.record(&[("user", name.as_str().into())])
        }
        User::List => {
            let names = remote.wait(auth.user_list())?;
            context.rows(
                &["user"],
                names.into_iter().map(|name| Ok(vec![name.into()])),
            )
        }
        User::Get { name } => {
            let user = about(&remote, name, "", auth.user_get(name))?;
            context.record(&[
                ("user", user.name.into()),
                ("roles", Field::List(user.roles)),
            ])
        }
        User::Passwd { name, password } => {
            let password = password::new(context, name, password)?;
            let changed = auth.user_change_password(name, password.reveal());
            about(&remote, name, "", changed)?;
            context.record(&[("user", name.as_str().into())])
        }
        User::GrantRole { user, role } => {
            about(&remote, user, role, auth.user_grant_role(user, role))?;
            of_user_and_role(context, user, role)
        }
        User::RevokeRole { user, role } => {
            about(&remote, user, role, auth.user_revoke_role(user, role))?;
            of_user_and_role(context, user, role)
        }
    }
}

fn of_user_and_role(context: &mut Context<'_, '_>, user: &str, role: &str) -> Result<(), Failure> {
    context.record(&[("user", user.into()), ("role", role.into())])
}

pub(crate) fn role(context: &mut Context<'_, '_>, args: &Role) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    let auth = remote.client.auth();
    match args {
        Role::Add { name } => {
            about(&remote, "", name, auth.role_add(name))?;
            context.record(&[("role", name.as_str().into())])
        }
        Role::Delete { name } => {
            about(&remote, "", name, auth.role_delete(name))?;
            context.record(&[("role", name.as_str().into())])
        }
        Role::List => {
            let names = remote.wait(auth.role_list())?;
            context.rows(
                &["role"],
                names.into_iter().map(|name| Ok(vec![name.into()])),
            )
        }
        Role::Get { name, encoding } => {
            let role = about(&remote, "", name, auth.role_get(name))?;
            let kinds = match remote.outcome(auth.role_kinds(name))? {
                // A server without a graph.
                Err(Error::Unimplemented { .. }) => Vec::new(),
                kinds => kinds?,
            };
            let mut printer = context.printer(encoding.hex);
            let mut rows = printer.rows(&["access", "keys", "key", "range_end"]);
            for permission in role.permissions {
                let mut row = vec![permission.access.to_string().into()];
                row.extend(shown(&permission.range));
                rows.push(row)?;
            }
            for permission in kinds {
                let access = permission.access.to_string();
                let [what, prefix, end] = shown_kinds(&permission.prefix);
                rows.push(vec![access.into(), what, prefix, end])?;
            }
            rows.finish()?;
            Ok(())
        }
        Role::Grant {
            role,
            allowed,
            keys,
        } => {
            let access = match allowed {
                Allowed::Read => Access::Read,
                Allowed::Write => Access::Write,
                Allowed::ReadWrite => Access::ReadWrite,
            };
            if let Some(prefix) = &keys.kind {
                let permission = KindPermission::new(access, prefix);
                about(&remote, "", role, auth.role_grant_kinds(role, permission))?;
                return of_role_and(context, role, Some(access), shown_kinds(prefix), keys);
            }
            let range = range_of(keys)?;
            let permission = Permission {
                access,
                range: range.clone(),
            };
            about(&remote, "", role, auth.role_grant(role, permission))?;
            of_role_and(context, role, Some(access), shown(&range), keys)
        }
        Role::Revoke { role, keys } => {
            if let Some(prefix) = &keys.kind {
                about(&remote, "", role, auth.role_revoke_kinds(role, prefix))?;
                return of_role_and(context, role, None, shown_kinds(prefix), keys);
            }
            let range = range_of(keys)?;
            about(&remote, "", role, auth.role_revoke(role, range.clone()))?;
            of_role_and(context, role, None, shown(&range), keys)
        }
    }
}

fn of_role_and(
    context: &mut Context<'_, '_>,
    role: &str,
    access: Option<Access>,
    shown: [Field; 3],
    keys: &Keys,
) -> Result<(), Failure> {
    let mut fields = vec![("role", role.into())];
    fields.extend(access.map(|access| ("access", access.to_string().into())));
    fields.extend(["keys", "key", "range_end"].into_iter().zip(shown));
    let mut printer = context.printer(keys.encoding.hex);
    Ok(printer.record(&fields)?)
}

/// The keys that the command line names.
fn range_of(keys: &Keys) -> Result<KeyRange, Failure> {
    let decode = |text: &str| keys.encoding.decode(text).map_err(usage);
    let key = decode(keys.key.as_deref().unwrap_or_default())?;
    if keys.prefix {
        return Ok(KeyRange::prefix(key));
    }
    if keys.from_key {
        return Ok(KeyRange::starting_at(key));
    }
    if key.is_empty() {
        let text = "the key is empty: give one, or --prefix for all keys";
        return Err(usage(text.to_owned()));
    }
    Ok(match &keys.range_end {
        Some(end) => KeyRange::between(key, decode(end)?),
        None => KeyRange::key(key),
    })
}

/// What kinds are, with the text that their names begin with.
fn shown_kinds(prefix: &str) -> [Field; 3] {
    ["kinds".into(), prefix.into(), Field::Absent]
}

/// What a range is, with its first key and its end.
fn shown(range: &KeyRange) -> [Field; 3] {
    let (key, end) = (range.start(), range.end());
    let bytes = |bytes: &[u8]| Field::Bytes(bytes.to_vec());
    if *range == KeyRange::all() {
        return ["all".into(), Field::Absent, Field::Absent];
    }
    match &end[..] {
        [] => ["one".into(), bytes(key), Field::Absent],
        _ if *range == KeyRange::prefix(key.clone()) => ["prefix".into(), bytes(key), bytes(end)],
        [0] => ["from".into(), bytes(key), Field::Absent],
        end => ["range".into(), bytes(key), bytes(end)],
    }
}

/// Waits for the reply to a request about a user or a role; says which of them does not exist, or exists already.
fn about<T>(
    remote: &Remote,
    user: &str,
    role: &str,
    request: impl Future<Output = bowline_client::Result<T>>,
) -> Result<T, Failure> {
    match remote.outcome(request)? {
        Ok(reply) => Ok(reply),
        Err(Error::UserNotFound) => Err(not_found(format!(
            "no user `{user}` in this cluster: `bowline user list` shows its users"
        ))),
        Err(Error::RoleNotFound) => Err(not_found(format!(
            "no role `{role}` in this cluster: `bowline role list` shows its roles"
        ))),
        Err(Error::RoleNotGranted) => Err(not_found(format!(
            "user `{user}` does not have the role `{role}`: `bowline user get` shows its roles"
        ))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Encoding;

    fn range(key: &str, range_end: Option<&str>, prefix: bool, from_key: bool) -> KeyRange {
        let keys = Keys {
            key: Some(key.to_owned()),
            range_end: range_end.map(str::to_owned),
            prefix,
            from_key,
            kind: None,
            encoding: Encoding { hex: false },
        };
        range_of(&keys).unwrap()
    }

    /// A permission for more keys than its owner meant is one that nobody notices.
    #[test]
    fn a_permission_is_for_the_keys_that_were_named() {
        assert_eq!(range("a", None, false, false), KeyRange::key("a"));
        assert_eq!(
            range("a", Some("m"), false, false),
            KeyRange::between("a", "m")
        );
        assert_eq!(range("a/", None, true, false), KeyRange::prefix("a/"));
        assert_eq!(range("a", None, false, true), KeyRange::starting_at("a"));
        assert_eq!(range("", None, true, false), KeyRange::all());
        let [what, key, end] = shown(&KeyRange::prefix("a/"));
        let bytes = |text: &str| Field::Bytes(text.into());
        assert_eq!(
            (what, key, end),
            ("prefix".into(), bytes("a/"), bytes("a0"))
        );
        for (range, what) in [
            (KeyRange::key("a"), "one"),
            (KeyRange::between("a", "m"), "range"),
            (KeyRange::starting_at("a"), "from"),
            (KeyRange::all(), "all"),
        ] {
            assert_eq!(shown(&range)[0], what.into(), "{range:?}");
        }
        let empty = Keys {
            key: Some(String::new()),
            range_end: None,
            prefix: false,
            from_key: false,
            kind: None,
            encoding: Encoding { hex: false },
        };
        assert!(range_of(&empty).is_err());
    }
}
