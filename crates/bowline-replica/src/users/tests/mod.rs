//! Users without a database: what a change does and refuses, and the records of the result.
//!
//! | file | what it tests |
//! |---|---|
//! | here | every refusal of a change in etcd's order, what a change does, and what it raises |
//! | [`records`] | the records of users, roles and tokens |
//! | [`oracle`] | rights and needs against a plain oracle, which looks at every key by itself |

mod oracle;
pub(crate) mod records;

use super::*;

pub(crate) fn add_user(name: &str) -> UsersChange {
    UsersChange::AddUser {
        name: name.to_owned(),
        password: Some(format!("hash of {name}")),
    }
}

pub(crate) fn delete_user(name: &str) -> UsersChange {
    let name = name.to_owned();
    UsersChange::DeleteUser { name }
}

pub(crate) fn change_password(name: &str) -> UsersChange {
    UsersChange::ChangePassword {
        name: name.to_owned(),
        password: "another hash".to_owned(),
    }
}

pub(crate) fn grant_role(user: &str, role: &str) -> UsersChange {
    let (user, role) = (user.to_owned(), role.to_owned());
    UsersChange::GrantRole { user, role }
}

pub(crate) fn revoke_role(user: &str, role: &str) -> UsersChange {
    let (user, role) = (user.to_owned(), role.to_owned());
    UsersChange::RevokeRole { user, role }
}

pub(crate) fn add_role(name: &str) -> UsersChange {
    let name = name.to_owned();
    UsersChange::AddRole { name }
}

pub(crate) fn delete_role(name: &str) -> UsersChange {
    let name = name.to_owned();
    UsersChange::DeleteRole { name }
}

pub(crate) fn keys(grant: Grant, key: &str, range_end: &str) -> Permission {
    Permission::Keys {
        grant,
        key: key.into(),
        range_end: range_end.into(),
    }
}

pub(crate) fn kinds(grant: Grant, prefix: &str) -> Permission {
    let prefix = prefix.to_owned();
    Permission::Kinds { grant, prefix }
}

pub(crate) fn grant(role: &str, permission: Permission) -> UsersChange {
    let role = role.to_owned();
    UsersChange::GrantPermission { role, permission }
}

pub(crate) fn revoke(role: &str, permission: Permission) -> UsersChange {
    let role = role.to_owned();
    UsersChange::RevokePermission { role, permission }
}

/// A state after a change, which is the same state for a change that does nothing.
fn changed(users: &Users, change: &UsersChange) -> Result<Users, UsersRefusal> {
    let changed = users.changed(change)?;
    Ok(changed.map_or_else(|| users.clone(), |(after, _)| after))
}

/// A state after changes, none of which is refused.
fn after(before: &Users, changes: &[UsersChange]) -> Users {
    let mut users = before.clone();
    for change in changes {
        users = changed(&users, change).unwrap_or_else(|why| panic!("{change:?}: {why}"));
    }
    users
}

/// A root, a user `ann` with the role `r` that may do something, and a role that nobody has.
fn some() -> Users {
    let changes = [
        add_user(ROOT),
        grant_role(ROOT, ROOT),
        add_role("r"),
        add_role("spare"),
        grant("r", keys(Grant::ReadWrite, "a", "c")),
        grant("r", kinds(Grant::Read, "team/")),
        add_user("ann"),
        grant_role("ann", "r"),
    ];
    after(&Users::default(), &changes)
}

#[test]
fn a_change_is_refused_in_the_order_of_etcd() {
    use UsersRefusal as R;
    let (none, off) = (Users::default(), some());
    let on = after(&off, &[UsersChange::Enable]);
    let alone = after(&none, &[add_user(ROOT)]);
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let longest = "n".repeat(NAME_BYTES_MAX);
    let inverted = || keys(Grant::Read, "c", "a");
    let cases = [
        (&none, UsersChange::Enable, Some(R::RootUserMissing)),
        (&alone, UsersChange::Enable, Some(R::RootRoleMissing)),
        (&off, UsersChange::Enable, None),
        (&on, UsersChange::Enable, None),
        (&off, UsersChange::Disable, None),
        (&on, UsersChange::Disable, None),
        // Users.
        (&on, add_user(""), Some(R::UserNameEmpty)),
        (&on, add_user(&long), Some(R::NameTooLong)),
        (&on, add_user(&longest), None),
        (&on, add_user("ann"), Some(R::UserExists)),
        (&on, delete_user("nobody"), Some(R::UserNotFound)),
        (&on, delete_user("ann"), None),
        (&on, change_password("nobody"), Some(R::UserNotFound)),
        (&on, change_password(ROOT), None),
        // The user comes before the role.
        (&on, grant_role("nobody", "none"), Some(R::UserNotFound)),
        (&on, grant_role("ann", "none"), Some(R::RoleNotFound)),
        // The role root need not have been added.
        (&on, grant_role("ann", ROOT), None),
        (&on, revoke_role("nobody", "none"), Some(R::UserNotFound)),
        (&on, revoke_role("ann", "none"), Some(R::RoleNotGranted)),
        (&on, revoke_role("ann", "spare"), Some(R::RoleNotGranted)),
        (&on, revoke_role("ann", ROOT), Some(R::RoleNotGranted)),
        (&on, revoke_role("ann", "r"), None),
        // Roles.
        (&on, add_role(""), Some(R::RoleNameEmpty)),
        (&on, add_role(&long), Some(R::NameTooLong)),
        (&on, add_role(&longest), None),
        (&on, add_role("r"), Some(R::RoleExists)),
        (&on, add_role(ROOT), None),
        (&on, delete_role("none"), Some(R::RoleNotFound)),
        (&on, delete_role("r"), None),
        // The last root.
        (&on, delete_user(ROOT), Some(R::InvalidManagement)),
        (&off, delete_user(ROOT), None),
        (&on, revoke_role(ROOT, ROOT), Some(R::InvalidManagement)),
        (&off, revoke_role(ROOT, ROOT), None),
        (&on, delete_role(ROOT), Some(R::InvalidManagement)),
        (&off, delete_role(ROOT), Some(R::RoleNotFound)),
        // Permissions: the range comes before the role.
        (&on, grant("none", inverted()), Some(R::InvalidManagement)),
        (
            &on,
            grant("r", keys(Grant::Read, "", "a")),
            Some(R::InvalidManagement),
        ),
        (
            &on,
            grant("r", keys(Grant::Read, "a", "a")),
            Some(R::InvalidManagement),
        ),
        (
            &on,
            grant("none", keys(Grant::Read, "a", "")),
            Some(R::RoleNotFound),
        ),
        (&on, grant("r", keys(Grant::Read, "a", "")), None),
        (&on, grant("r", keys(Grant::Read, "a", "\0")), None),
        (&on, grant("r", keys(Grant::Read, "\0", "\0")), None),
        (&on, grant("r", kinds(Grant::Read, "")), None),
        (&on, revoke("none", inverted()), Some(R::RoleNotFound)),
        (
            &on,
            revoke("r", keys(Grant::ReadWrite, "a", "b")),
            Some(R::PermissionNotGranted),
        ),
        (
            &on,
            revoke("r", keys(Grant::ReadWrite, "a", "")),
            Some(R::PermissionNotGranted),
        ),
        (
            &on,
            revoke("r", kinds(Grant::Read, "team")),
            Some(R::PermissionNotGranted),
        ),
        // What it grants does not matter.
        (&on, revoke("r", keys(Grant::Read, "a", "c")), None),
        (&on, revoke("r", kinds(Grant::Write, "team/")), None),
    ];
    let mut met = Vec::new();
    for (users, change, refusal) in cases {
        assert_eq!(users.changed(&change).err(), refusal, "{change:?}");
        met.extend(refusal);
    }
    for refusal in [
        R::UserNameEmpty,
        R::RoleNameEmpty,
        R::NameTooLong,
        R::UserExists,
        R::UserNotFound,
        R::RoleExists,
        R::RoleNotFound,
        R::RoleNotGranted,
        R::PermissionNotGranted,
        R::RootUserMissing,
        R::RootRoleMissing,
        R::InvalidManagement,
    ] {
        assert!(met.contains(&refusal), "{refusal:?}");
    }
}

#[test]
fn each_change_raises_the_revision_by_one_and_enabling_does_not() {
    let mut users = Users::default();
    assert_eq!(users.revision(), Users::FIRST_REVISION);
    let write = || keys(Grant::Write, "a", "c");
    for (change, raises) in [
        (add_user(ROOT), 1),
        (grant_role(ROOT, ROOT), 1),
        (UsersChange::Enable, 0),
        (add_user("ann"), 1),
        (add_role("r"), 1),
        (grant_role("ann", "r"), 1),
        (grant("r", write()), 1),
        // As in etcd, a permission counts also when the role has it.
        (grant("r", write()), 1),
        (revoke("r", write()), 1),
        (change_password("ann"), 1),
        (revoke_role("ann", "r"), 1),
        (grant_role("ann", "r"), 1),
        // With its users it is one change.
        (delete_role("r"), 1),
        (delete_user("ann"), 1),
        (UsersChange::Disable, 1),
    ] {
        let done = users.changed(&change).unwrap();
        let (after, records) = done.unwrap_or_else(|| panic!("{change:?} does nothing"));
        assert_eq!(after.revision(), users.revision() + raises, "{change:?}");
        assert!(records.iter().any(|(key, _)| *key == RecordKey::Config));
        users = after;
    }
}

#[test]
fn what_is_so_already_is_no_change() {
    let off = some();
    let on = after(&off, &[UsersChange::Enable]);
    for (users, change) in [
        (&off, UsersChange::Disable),
        (&on, UsersChange::Enable),
        (&on, grant_role("ann", "r")),
        (&on, grant_role(ROOT, ROOT)),
    ] {
        assert_eq!(users.changed(&change), Ok(None), "{change:?}");
    }
}

#[test]
fn a_deleted_role_is_taken_from_its_users_with_its_rights() {
    let extra = [
        add_role("s"),
        grant("s", keys(Grant::Read, "x", "")),
        grant_role("ann", "s"),
        add_user("bob"),
        grant_role("bob", "s"),
    ];
    let before = after(&some(), &extra);
    let reads = |users: &Users, name: &str, key: &str| {
        let rights = users.user(name).unwrap().rights();
        rights.allows_keys(Access::Read, key.as_bytes(), b"")
    };
    assert!(reads(&before, "ann", "a") && reads(&before, "ann", "x"));
    let (after_it, records) = before.changed(&delete_role("r")).unwrap().unwrap();
    assert!(!reads(&after_it, "ann", "a") && reads(&after_it, "ann", "x"));
    assert!(after_it.role("r").is_none());
    let ann = after_it.user("ann").unwrap();
    assert_eq!(ann.roles.iter().collect::<Vec<_>>(), ["s"]);
    let written: Vec<&RecordKey> = records.iter().map(|(key, _)| key).collect();
    let [role, user] = [
        RecordKey::Role("r".to_owned()),
        RecordKey::User("ann".to_owned()),
    ];
    assert_eq!(written, [&role, &user, &RecordKey::Config]);
    assert!(records[0].1.is_none() && records[1].1.is_some());
    // A role that is added again is another one: nobody has it.
    let again = after(
        &after_it,
        &[add_role("r"), grant("r", keys(Grant::Read, "a", ""))],
    );
    assert!(!reads(&again, "ann", "a"));
    let none = after(&before, &[delete_role("s"), delete_role("r")]);
    assert!(!reads(&none, "ann", "x") && !reads(&none, "bob", "x"));
}

#[test]
fn a_change_of_a_role_reaches_everybody_who_has_it() {
    let users = after(&some(), &[add_user("bob"), grant_role("bob", "r")]);
    let can = |users: &Users, access, key: &str, end: &str| {
        ["ann", "bob"].map(|name| {
            let rights = users.user(name).unwrap().rights();
            rights.allows_keys(access, key.as_bytes(), end.as_bytes())
        })
    };
    assert_eq!(can(&users, Access::Write, "a", "c"), [true; 2]);
    // In place of the one on the same range.
    let reading = after(&users, &[grant("r", keys(Grant::Read, "a", "c"))]);
    assert_eq!(can(&reading, Access::Write, "a", ""), [false; 2]);
    assert_eq!(can(&reading, Access::Read, "a", "c"), [true; 2]);
    let wider = after(&reading, &[grant("r", keys(Grant::Read, "c", "\0"))]);
    assert_eq!(can(&wider, Access::Read, "a", "\0"), [true; 2]);
    let revoked = UsersChange::revoke_keys("r".to_owned(), b"a".to_vec(), b"c".to_vec());
    let narrower = after(&wider, &[revoked]);
    assert_eq!(can(&narrower, Access::Read, "b", ""), [false; 2]);
    assert_eq!(can(&narrower, Access::Read, "c", "d"), [true; 2]);
    let kind = |users: &Users| {
        let rights = users.user("bob").unwrap().rights();
        rights.allows_kind(Access::Read, Some("team/a"))
    };
    assert!(kind(&narrower));
    assert!(!kind(&after(
        &narrower,
        &[revoke("r", kinds(Grant::Read, "team/"))]
    )));
    let root = after(&users, &[grant_role("bob", ROOT)]);
    assert!(root.user("bob").unwrap().rights().is_root());
    assert!(!root.user("ann").unwrap().rights().is_root());
    let again = after(&root, &[revoke_role("bob", ROOT)]);
    assert_eq!(can(&again, Access::Write, "a", "c"), [true; 2]);
    assert_eq!(can(&again, Access::Write, "x", ""), [false; 2]);
}

#[test]
fn the_permissions_of_a_role_are_in_the_order_of_their_keys_then_of_their_kinds() {
    let users = after(
        &Users::default(),
        &[
            add_role("r"),
            grant("r", kinds(Grant::Read, "a")),
            grant("r", keys(Grant::Read, "m", "")),
            grant("r", kinds(Grant::Write, "")),
            grant("r", keys(Grant::Read, "b", "c")),
            grant("r", keys(Grant::Write, "b", "d")),
            grant("r", keys(Grant::Write, "m", "")),
        ],
    );
    let expected = [
        keys(Grant::Read, "b", "c"),
        keys(Grant::Write, "b", "d"),
        keys(Grant::Write, "m", ""),
        kinds(Grant::Write, ""),
        kinds(Grant::Read, "a"),
    ];
    assert_eq!(users.role("r").unwrap().permissions, expected);
}

#[test]
fn a_user_is_another_after_its_deletion_and_after_a_change_of_its_password() {
    let users = after(&some(), &[UsersChange::Enable]);
    let ann = |users: &Users| users.user("ann").unwrap().clone();
    let since = ann(&users).since;
    assert!(since <= users.revision());
    // Not by a change of what it may do.
    let more = after(&users, &[grant_role("ann", ROOT), revoke_role("ann", "r")]);
    assert_eq!(ann(&more).since, since);
    let changed = after(&users, &[change_password("ann")]);
    assert_eq!(ann(&changed).since, changed.revision());
    assert!(ann(&changed).since > users.revision());
    assert_eq!(ann(&changed).password.as_deref(), Some("another hash"));
    assert_eq!(ann(&changed).roles, ann(&users).roles);
    let again = after(&users, &[delete_user("ann"), add_user("ann")]);
    assert_eq!(ann(&again).since, again.revision());
    assert!(ann(&again).roles.is_empty());
    assert_eq!(ann(&again).rights(), &Rights::default());
}

#[test]
fn a_user_without_a_password_stays_without_one() {
    let bob = UsersChange::AddUser {
        name: "bob".to_owned(),
        password: None,
    };
    let users = after(&some(), &[bob, change_password("bob")]);
    let bob = users.user("bob").unwrap();
    assert_eq!((&bob.password, bob.since), (&None, users.revision()));
}

#[test]
fn names_are_listed_in_order() {
    let users = after(&some(), &[add_user("Bob"), add_role("a")]);
    assert_eq!(users.user_names().collect::<Vec<_>>(), ["Bob", "ann", ROOT]);
    let roles: Vec<_> = users.role_names().collect();
    assert_eq!(roles, ["a", "r", "spare"]);
}

/// To attach a key to a lease, all keys of the lease were read, twice on the way and once on every member.
#[test]
fn the_keys_of_a_lease_are_passed_over_in_spans() {
    use std::cell::Cell;
    use std::convert::Infallible;

    use bowline_types::BlockId;

    use crate::needs::{Need, Present};

    /// A lease with the keys `k000` to `k999`, and how often it was looked at.
    struct Counted(Cell<usize>);

    impl Present for Counted {
        type Error = Infallible;

        fn key_of_lease(&self, _: i64, from: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
            self.0.set(self.0.get() + 1);
            let mut keys = (0..1000).map(|number| format!("k{number:03}").into_bytes());
            Ok(keys.find(|key| &key[..] >= from))
        }

        fn kinds_of_block(
            &self,
            _: BlockId,
            _: &mut dyn FnMut(Option<&str>) -> bool,
        ) -> Result<(), Infallible> {
            Ok(())
        }
    }

    let write = |key: &str, range_end: &str| Permission::Keys {
        grant: Grant::Write,
        key: key.into(),
        range_end: range_end.into(),
    };
    for (permissions, is_met, looks) in [
        (vec![write("k", "l")], true, 2),
        (vec![write("k", "\0")], true, 1),
        (
            vec![write("k", "k500"), write("k500", "k999"), write("k999", "")],
            true,
            2,
        ),
        (vec![write("k", "k500"), write("k501", "l")], false, 2),
        (vec![write("k", "k999")], false, 2),
        (vec![], false, 1),
    ] {
        let rights = Rights::of(false, permissions.iter());
        let present = Counted(Cell::new(0));
        let met = rights.meet(Need::write_keys_of(1), &present);
        assert_eq!(met, Ok(is_met), "{permissions:?}");
        assert_eq!(present.0.get(), looks, "{permissions:?}");
    }
}
