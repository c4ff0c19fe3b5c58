//! The records of users, roles and tokens: they hold the whole state, and whatever is not a whole record is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::users::state::Record;

/// A change among few names, so that changes meet. Also used for logs of commands.
pub(crate) fn any_change() -> impl Strategy<Value = UsersChange> {
    let user = || prop::sample::select(&[ROOT, "ann", "bob", ""][..]);
    let role = || prop::sample::select(&[ROOT, "r", "s"][..]);
    let permission = || {
        let grant = prop::sample::select(&[Grant::Read, Grant::Write, Grant::ReadWrite][..]);
        let key = || prop::sample::select(&["a", "b", "d", "g"][..]);
        let end = prop::sample::select(&["", "\0", "b", "c", "f", "z"][..]);
        let prefix = prop::sample::select(&["", "kind", "kind 1", "tie"][..]);
        let keys = (grant.clone(), key(), end).prop_map(|(grant, key, end)| keys(grant, key, end));
        let kinds = (grant, prefix).prop_map(|(grant, prefix)| kinds(grant, prefix));
        prop_oneof![3 => keys, 1 => kinds]
    };
    prop_oneof![
        2 => Just(UsersChange::Enable),
        1 => Just(UsersChange::Disable),
        3 => user().prop_map(add_user),
        1 => user().prop_map(|name| UsersChange::AddUser { name: name.to_owned(), password: None }),
        1 => user().prop_map(delete_user),
        1 => user().prop_map(change_password),
        4 => (user(), role()).prop_map(|(user, role)| grant_role(user, role)),
        2 => (user(), role()).prop_map(|(user, role)| revoke_role(user, role)),
        3 => role().prop_map(add_role),
        1 => role().prop_map(delete_role),
        5 => (role(), permission()).prop_map(|(role, permission)| grant(role, permission)),
        2 => (role(), permission()).prop_map(|(role, permission)| revoke(role, permission)),
    ]
}

/// What is stored.
#[derive(Default)]
struct Stored {
    config: Option<Vec<u8>>,
    users: BTreeMap<String, Vec<u8>>,
    roles: BTreeMap<String, Vec<u8>>,
}

impl Stored {
    fn write(&mut self, (key, record): Record) {
        let (records, name) = match key {
            RecordKey::Config => {
                self.config = record;
                return;
            }
            RecordKey::User(name) => (&mut self.users, name),
            RecordKey::Role(name) => (&mut self.roles, name),
        };
        match record {
            Some(record) => drop(records.insert(name, record)),
            None => assert!(records.remove(&name).is_some(), "{name} is no record"),
        }
    }

    fn load(&self) -> Option<Users> {
        let (mut users, mut roles) = (BTreeMap::new(), BTreeMap::new());
        for (name, record) in &self.users {
            users.insert(name.clone(), Arc::new(decode_user(record)?));
        }
        for (name, record) in &self.roles {
            roles.insert(name.clone(), Arc::new(decode_role(record)?));
        }
        Users::load(self.config.as_deref(), users, roles)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// After any changes the records alone make the same state, with the same rights; and what holds of users holds.
    #[test]
    fn records_hold_the_whole_state(changes in prop::collection::vec(any_change(), 0..60)) {
        let (mut users, mut stored) = (Users::default(), Stored::default());
        for change in &changes {
            let Ok(Some((after, records))) = users.changed(change) else {
                continue;
            };
            records.into_iter().for_each(|record| stored.write(record));
            let raised = after.revision() - users.revision();
            prop_assert_eq!(raised, u64::from(*change != UsersChange::Enable));
            users = after;
            prop_assert_eq!(stored.load(), Some(users.clone()), "{:?}", change);
            if users.is_enabled() {
                let root = users.user(ROOT).expect("root is there while enabled");
                prop_assert!(root.rights().is_root());
            }
            for name in users.user_names() {
                let user = users.user(name).expect("listed");
                prop_assert!(user.since <= users.revision());
                let known = |role: &String| role == ROOT || users.role(role).is_some();
                prop_assert!(user.roles.iter().all(known), "{:?}", user);
            }
        }
    }
}

/// The record of `name` in a state.
fn record(users: &Users, key: &RecordKey) -> Vec<u8> {
    users.record(key).unwrap()
}

#[test]
fn a_record_that_is_cut_or_longer_is_refused() {
    let users = after(&some(), &[grant_role("ann", ROOT)]);
    let ann = record(&users, &RecordKey::User("ann".to_owned()));
    let role = record(&users, &RecordKey::Role("r".to_owned()));
    let config = record(&users, &RecordKey::Config);
    let token = encode_token("ann", 300, 1_700_000_000_000);
    let load = |record: &[u8]| Users::load(Some(record), BTreeMap::new(), BTreeMap::new());
    type Decodes<'a> = &'a dyn Fn(&[u8]) -> bool;
    let all: [(&[u8], Decodes<'_>); 4] = [
        (&ann, &|record| decode_user(record).is_some()),
        (&role, &|record| decode_role(record).is_some()),
        (&config, &|record| load(record).is_some()),
        (&token, &|record| decode_token([7; 32], record).is_some()),
    ];
    for (record, decodes) in all {
        assert!(decodes(record));
        for end in 0..record.len() {
            assert!(!decodes(&record[..end]), "{end} of {record:?}");
        }
        assert!(!decodes(&[record, &[0]].concat()), "{record:?}");
    }
    // Any one byte that differs makes another record, or none; never a panic.
    for (record, decodes) in all {
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut damaged = record.to_vec();
                damaged[at] ^= 1 << bit;
                let _ = decodes(&damaged);
            }
        }
    }
}

#[test]
fn a_record_of_what_is_unknown_is_refused() {
    // since 1, a password flag, the password, no roles.
    assert!(decode_user(&[1, 0, 0, 0]).is_some());
    assert!(decode_user(&[1, 1, 0, 0]).is_some());
    for bad in [
        &[1, 2, 0, 0][..],
        // Without a password, but with one.
        &[1, 0, 1, b'x', 0],
        // No text.
        &[1, 1, 1, 0xff, 0],
        &[1, 0, 0, 1, 1, 0xff],
        // More roles than bytes.
        &[1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        // Twice the same role, and out of order.
        &[1, 0, 0, 2, 1, b'a', 1, b'a'],
        &[1, 0, 0, 2, 1, b'b', 1, b'a'],
    ] {
        assert_eq!(decode_user(bad), None, "{bad:?}");
    }
    assert!(decode_role(&[0]).is_some());
    assert!(decode_role(&[1, 0, 2, 1, b'a', 0]).is_some());
    assert!(decode_role(&[1, 1, 2, 1, b'a']).is_some());
    for bad in [
        // Not on keys nor kinds; another grant; no text.
        &[1, 2, 2, 1, b'a', 0][..],
        &[1, 0, 3, 1, b'a', 0],
        &[1, 1, 2, 1, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
    ] {
        assert_eq!(decode_role(bad), None, "{bad:?}");
    }
    let load = |record: &[u8]| Users::load(Some(record), BTreeMap::new(), BTreeMap::new());
    assert_eq!(load(&[1, 1, 9]).map(|users| users.revision()), Some(9));
    assert!(load(&[1, 1, 9]).is_some_and(|users| users.is_enabled()));
    assert!(load(&[1, 0, 9]).is_some_and(|users| !users.is_enabled()));
    for bad in [&[2, 1, 9][..], &[1, 2, 9], &[0, 0, 9]] {
        assert_eq!(load(bad), None, "{bad:?}");
    }
    assert!(decode_token([0; 32], &[1, 1, 1, 0xff]).is_none());
}

#[test]
fn a_token_is_of_its_record() {
    let session = decode_token([7; 32], &encode_token("ann", 300, 9000)).unwrap();
    assert_eq!((session.user(), session.since()), ("ann", 300));
    assert_eq!(
        (session.token(), session.expires_ms()),
        (Some(&[7; 32]), 9000)
    );
    assert!(session.is_valid(8999) && !session.is_valid(9000));
    let actor = Actor::User {
        name: "ann".into(),
        since: 300,
    };
    assert_eq!(session.actor(), actor);
    let without = Session::without_token("ann", 3);
    assert!(without.is_valid(u64::MAX - 1) && without.token().is_none());
}
