//! Sessions and their tokens: who gets one, when it ends, also for those who keep it, and how many there may be.

use super::users::{
    assert_done, assert_refused, by, by_process, enable, enabled, login, run, session, users_of,
};
use super::*;
use crate::users::tests::{add_user, change_password, delete_user, grant_role};
use crate::users::{TOKENS_MAX, decode_token, encode_token};

#[test]
fn a_session_ends_with_its_token_its_user_its_password_and_authentication() {
    let delete = || delete_user("ann");
    let expire = |before_ms| Command::Tokens(TokenChange::Expire { before_ms });
    let ends = |since| {
        let root = move |change| by(ROOT, since, Command::Users(change));
        // Whether that of bob ends, too.
        [
            (root(delete()), false),
            (root(change_password("ann")), false),
            (root(UsersChange::Disable), true),
            (expire(100), false),
            (expire(200), true),
            // Of the same token.
            (login("ann", 1, since, 300), false),
        ]
    };
    let cases = ends(0).len();
    for case in 0..cases {
        let (mut member, since) = enabled();
        assert_done(&mut member, login("ann", 1, since, 100));
        assert_done(&mut member, login("bob", 2, since, 200));
        let (ann, bob) = (session(&member, 1), session(&member, 2));
        assert!(ann.is_valid(99) && !ann.is_valid(100) && bob.is_valid(199));
        // What changes neither the user nor its password.
        for change in [
            change_password(ROOT),
            grant_role("ann", ROOT),
            add_user("eve"),
        ] {
            assert_done(&mut member, by_process(Command::Users(change)));
        }
        assert_done(&mut member, expire(99));
        assert!(ann.is_valid(99) && bob.is_valid(99));
        let since = member.replica.users().revision();
        let (command, ends_all) = ends(since)[case].clone();
        assert_done(&mut member, command.clone());
        assert!(!ann.is_valid(0), "{command:?}");
        assert_eq!(bob.is_valid(0), !ends_all, "{command:?}");
        let is_found = |token| member.replica.session(&[token; 32]).is_some();
        let is_again = matches!(&command, Command::Tokens(TokenChange::Login { .. }));
        assert_eq!(is_found(1), is_again, "{command:?}");
        assert_eq!(is_found(2), !ends_all, "{command:?}");
        let again = Member::open(&member.disk.after_power_loss(), 1);
        assert_eq!(users_of(&again), users_of(&member), "{command:?}");
    }
}

#[test]
fn a_token_is_given_to_whom_the_password_was_checked_of() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let refused = |member: &mut Member, command, refusal| assert_refused(member, command, refusal);
    refused(
        &mut member,
        login("ann", 1, 99, 100),
        UsersRefusal::NotEnabled,
    );
    let since = enable(&mut member);
    let unknown = login("nobody", 1, since, 100);
    refused(&mut member, unknown, UsersRefusal::InvalidToken);
    let root = by_process(Command::Users(change_password("ann")));
    assert_done(&mut member, root);
    // The password was changed between its check and this command.
    let late = login("ann", 1, since, 100);
    refused(&mut member, late, UsersRefusal::InvalidToken);
    assert_done(&mut member, login("ann", 1, since + 1, 100));
    assert_eq!(session(&member, 1).since(), since + 1);
}

#[test]
fn a_token_is_renewed_and_never_shortened() {
    let (mut member, since) = enabled();
    let renew = |token: u8, expires_ms| {
        Command::Tokens(TokenChange::Renew {
            token: [token; 32],
            expires_ms,
        })
    };
    assert_done(&mut member, login("ann", 1, since, 100));
    let kept = session(&member, 1);
    for (command, expires_ms) in [
        (renew(1, 150), 150),
        (renew(1, 150), 150),
        (renew(1, 90), 150),
        // An unknown one is not made.
        (renew(2, 400), 150),
        (renew(1, 151), 151),
    ] {
        assert_done(&mut member, command);
        assert_eq!(kept.expires_ms(), expires_ms);
        assert!(kept.is_valid(expires_ms - 1) && !kept.is_valid(expires_ms));
        let again = Member::open(&member.disk.after_power_loss(), 1);
        assert_eq!(users_of(&again), users_of(&member));
    }
    assert!(member.replica.session(&[2; 32]).is_none());
    // A change of tokens is none of users.
    assert_eq!(member.replica.users().revision(), since);
}

/// A hash with a number in it.
fn numbered(number: usize) -> TokenHash {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&(number as u64).to_be_bytes());
    hash
}

#[test]
fn tokens_expire_a_thousand_at_once_by_the_order_of_their_hashes() {
    let mut members = [1, 2].map(|number| Member::open(&SimDisk::new(), number));
    let since = members.each_mut().map(enable)[0];
    let login = |number: usize| {
        Command::Tokens(TokenChange::Login {
            user: "ann".to_owned(),
            token: numbered(number),
            checked_at: since,
            // Those of the even numbers are over.
            expires_ms: if number.is_multiple_of(2) { 10 } else { 20 },
        })
    };
    let first: Vec<Command> = (0..1020).map(login).collect();
    let second: Vec<Command> = (1020..2040).map(login).collect();
    let expire = |before_ms| Command::Tokens(TokenChange::Expire { before_ms });
    for member in &mut members {
        member.run(&first);
        member.run(&second);
        assert!(!member.replica.has_expired_tokens(9));
        assert!(member.replica.has_expired_tokens(10));
        assert_done(member, expire(10));
        let left = member.replica.tokens.filtered(usize::MAX, |_| true);
        assert_eq!(left.len(), 1040);
        let left_even: Vec<usize> = (2000..2040).step_by(2).collect();
        for number in 0..2040 {
            let is_left = number % 2 == 1 || left_even.contains(&number);
            assert_eq!(left.contains(&numbered(number)), is_left, "{number}");
        }
        assert!(member.replica.has_expired_tokens(10));
        assert_done(member, expire(10));
        assert!(!member.replica.has_expired_tokens(10));
    }
    let [one, other] = &members;
    assert_eq!(users_of(one), users_of(other));
    let hashes = one.replica.tree_hashes().unwrap();
    assert_eq!(other.replica.tree_hashes().unwrap(), hashes);
    let again = Member::open(&one.disk.after_power_loss(), 1);
    assert_eq!(users_of(&again), users_of(one));
}

#[test]
fn there_are_at_most_so_many_tokens() {
    let (mut member, since) = enabled();
    let record = encode_token("ann", since, 100);
    // As if so many had logged in.
    for number in 0..TOKENS_MAX - 1 {
        let token = numbered(number);
        let session = decode_token(token, &record).unwrap();
        member.replica.tokens.add(token, session);
    }
    assert_done(&mut member, login("ann", 0xfe, since, 200));
    let one_more = login("ann", 0xff, since, 200);
    let reply = run(&mut member, one_more.clone());
    let too_many = Err(Refusal::Users(UsersRefusal::TooManyTokens));
    assert_eq!(reply.result, too_many);
    assert!(member.replica.session(&[0xff; 32]).is_none());
    let expire = Command::Tokens(TokenChange::Expire { before_ms: 100 });
    assert_done(&mut member, expire);
    assert_done(&mut member, one_more);
}
