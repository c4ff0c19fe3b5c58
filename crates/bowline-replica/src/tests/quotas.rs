//! Quotas: the counters are those of a scan, whatever happened, and a command is refused exactly for what it takes more.

use super::*;
use crate::quota::{Limited, QuotaChange, QuotaRefusal};

fn set(prefix: &str, keys: Option<u64>, bytes: Option<u64>) -> Command {
    Command::Quota(QuotaChange::Set {
        prefix: prefix.into(),
        limits: QuotaLimits { keys, bytes },
    })
}

fn remove(prefix: &str) -> Command {
    Command::Quota(QuotaChange::Remove {
        prefix: prefix.into(),
    })
}

fn delete(key: &str, range_end: &str) -> Op {
    Op::DeleteRange(DeleteRangeOp {
        key: key.into(),
        range_end: range_end.into(),
        prev_kv: false,
    })
}

/// What the keys of a prefix take, by a look at every key.
fn recount(member: &Member, prefix: &[u8]) -> QuotaUse {
    let mut used = QuotaUse::default();
    for entry in member.replica.db().range(..).unwrap() {
        let entry = entry.unwrap();
        if entry.key.starts_with(prefix) {
            used.keys += 1;
            used.bytes += (entry.key.len() + entry.value.len()) as u64;
        }
    }
    used
}

fn used(member: &Member, prefix: &str) -> (u64, u64) {
    let quotas = member.replica.quotas();
    let of = |quota: &&Quota| quota.prefix == prefix.as_bytes();
    let used = quotas.iter().find(of).map(|quota| quota.used).unwrap();
    assert_eq!(used, recount(member, prefix.as_bytes()));
    (used.keys, used.bytes)
}

fn run(member: &mut Member, command: Command) -> Result<Outcome, Refusal> {
    member.run(&[command]).remove(0).result
}

/// Runs a command that must be refused for a quota, and sees that it leaves no trace.
#[track_caller]
fn exceeded(member: &mut Member, command: Command) -> (String, Limited, u64, u64, u64) {
    let before = (member.dump(), member.replica.quotas());
    let refused = run(member, command).unwrap_err();
    assert_eq!((member.dump(), member.replica.quotas()), before);
    match refused {
        Refusal::Quota(QuotaRefusal::Exceeded {
            prefix,
            limited,
            limit,
            used,
            asked,
        }) => (
            String::from_utf8(prefix).unwrap(),
            limited,
            limit,
            used,
            asked,
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_that_takes_more_is_refused_as_a_whole_and_names_everything() {
    let mut member = Member::open(&SimDisk::new(), 1);
    run(&mut member, set("a/", Some(2), Some(20))).unwrap();
    run(&mut member, txn_of(vec![Op::Put(put("a/1", "v"))])).unwrap();
    let three = ["a/2", "a/3", "b"].map(|key| Op::Put(put(key, "v")));
    let refused = exceeded(&mut member, txn_of(three.to_vec()));
    assert_eq!(refused, ("a/".to_owned(), Limited::Keys, 2, 1, 3));
    let long = "v".repeat(18);
    let refused = exceeded(&mut member, txn_of(vec![Op::Put(put("a/1", &long))]));
    assert_eq!(refused, ("a/".to_owned(), Limited::Bytes, 20, 4, 21));
    let text = run(&mut member, txn_of(three.to_vec()))
        .unwrap_err()
        .to_string();
    for part in ["\"a/\"", "2 keys", "take 1", "take 3", "bowline quota set"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(member.replica.quota_refusals(), 3);
    // What fits, and what is outside.
    run(&mut member, txn_of(three[1..].to_vec())).unwrap();
    assert_eq!(used(&member, "a/"), (2, 8));
}

#[test]
fn the_net_effect_counts_and_nested_prefixes_all_do() {
    let mut member = Member::open(&SimDisk::new(), 1);
    for (prefix, keys) in [("", 4), ("a/", 3), ("a/b/", 2)] {
        run(&mut member, set(prefix, Some(keys), None)).unwrap();
    }
    let puts = |keys: &[&str]| keys.iter().map(|key| Op::Put(put(key, "v"))).collect();
    run(&mut member, txn_of(puts(&["a/b/1", "a/b/2"]))).unwrap();
    assert_eq!(exceeded(&mut member, txn_of(puts(&["a/b/3"]))).0, "a/b/");
    // One goes, one comes, in either order; and a key that goes and comes again stays one.
    let swap = vec![delete("a/b/1", ""), Op::Put(put("a/b/3", "vv"))];
    run(&mut member, txn_of(swap)).unwrap();
    let swap = vec![Op::Put(put("a/b/4", "v")), delete("a/b/3", "")];
    run(&mut member, txn_of(swap)).unwrap();
    let again = vec![delete("a/b/", "a/b0"), Op::Put(put("a/b/4", "v"))];
    run(&mut member, txn_of(again)).unwrap();
    assert_eq!(used(&member, "a/b/"), (1, 6));
    run(&mut member, txn_of(puts(&["a/1", "a/2", "z"]))).unwrap();
    assert_eq!(exceeded(&mut member, txn_of(puts(&["a/3"]))).0, "");
    run(&mut member, txn_of(vec![delete("z", "")])).unwrap();
    assert_eq!(exceeded(&mut member, txn_of(puts(&["a/3"]))).0, "a/");
    // `ignore_value` keeps the value, and its bytes.
    let keep = PutOp {
        ignore_value: true,
        ..put("a/1", "")
    };
    run(&mut member, txn_of(vec![Op::Put(keep)])).unwrap();
    assert_eq!(used(&member, ""), (3, 14));
    assert_eq!(used(&member, "a/"), (3, 14));
}

#[test]
fn a_new_quota_counts_what_is_there_and_what_is_over_it_may_only_shrink() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let long = "v".repeat(200);
    let puts: Vec<Op> = ["a/1", "a/2", "a/3", "b"]
        .map(|key| Op::Put(put(key, &long)))
        .to_vec();
    run(&mut member, txn_of(puts)).unwrap();
    member.replica.db().flush().unwrap();
    run(&mut member, set("a/", Some(1), Some(1))).unwrap();
    assert_eq!(used(&member, "a/"), (3, 609));
    // The same and less is allowed, more is not.
    run(&mut member, txn_of(vec![Op::Put(put("a/1", &long))])).unwrap();
    run(&mut member, txn_of(vec![Op::Put(put("a/1", "v"))])).unwrap();
    assert_eq!(
        exceeded(&mut member, txn_of(vec![Op::Put(put("a/1", "vv"))])).1,
        Limited::Bytes
    );
    run(&mut member, txn_of(vec![delete("a/2", "")])).unwrap();
    assert_eq!(
        exceeded(&mut member, txn_of(vec![Op::Put(put("a/2", ""))])).1,
        Limited::Keys
    );
    // Another limit keeps the count; after a removal it is counted anew.
    run(&mut member, set("a/", Some(3), None)).unwrap();
    run(&mut member, txn_of(vec![Op::Put(put("a/4", &long))])).unwrap();
    assert_eq!(used(&member, "a/"), (3, 410));
    run(&mut member, remove("a/")).unwrap();
    run(&mut member, txn_of(vec![Op::Put(put("a/5", ""))])).unwrap();
    assert!(member.replica.quotas().is_empty() && !member.replica.has_quotas());
    run(&mut member, set("a/", Some(3), None)).unwrap();
    assert_eq!(used(&member, "a/"), (4, 413));
}

#[test]
fn a_lease_that_ends_gives_back_what_its_keys_took() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let ttl = Duration::from_secs(60);
    let grant = |id| Command::LeaseGrant { id, ttl };
    let leased = |key: &str, lease| {
        Op::Put(PutOp {
            lease,
            ..put(key, "v")
        })
    };
    run(&mut member, set("a/", Some(2), None)).unwrap();
    for id in [1, 2] {
        run(&mut member, grant(id)).unwrap();
        run(&mut member, txn_of(vec![leased(&format!("a/{id}"), id)])).unwrap();
    }
    exceeded(&mut member, txn_of(vec![Op::Put(put("a/3", "v"))]));
    run(&mut member, Command::LeaseRevoke { id: 1 }).unwrap();
    assert_eq!(used(&member, "a/"), (1, 4));
    let (term, granted) = (1, None);
    run(
        &mut member,
        Command::LeaseExpire {
            id: 2,
            term,
            granted,
        },
    )
    .unwrap();
    assert_eq!(used(&member, "a/"), (0, 0));
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let refused = |member: &mut Member, command| match run(member, command) {
        Err(Refusal::Quota(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(&mut member, set("a", None, None)),
        QuotaRefusal::Unlimited
    );
    let long = "a".repeat(1025);
    assert_eq!(
        refused(&mut member, set(&long, Some(1), None)),
        QuotaRefusal::PrefixTooLong
    );
    let prefix = b"a".to_vec();
    assert_eq!(
        refused(&mut member, remove("a")),
        QuotaRefusal::NotFound { prefix }
    );
    let many: Vec<Command> = (0..1_000)
        .map(|n| set(&n.to_string(), Some(1), None))
        .collect();
    for part in many.chunks(500) {
        member.run(part);
    }
    assert_eq!(
        refused(&mut member, set("a", Some(1), None)),
        QuotaRefusal::TooMany
    );
    run(&mut member, set("7", Some(2), None)).unwrap();
}

/// A wrong counter is a problem that a check finds.
#[test]
fn a_check_compares_the_counters_with_the_keys() {
    let db = Db::in_memory().unwrap();
    db.put("a/1", "v").unwrap();
    let limits = QuotaLimits {
        keys: Some(9),
        bytes: None,
    };
    for (keys, is_clean) in [(1, true), (2, false)] {
        let used = QuotaUse { keys, bytes: 4 };
        let record = bowline_core::quota::encode(limits, used);
        db.put_system_record(&trees::quota_key(b"a/"), record)
            .unwrap();
        assert_eq!(db.check().unwrap().is_clean(), is_clean);
    }
}

/// A command, or a change of the quotas of few prefixes.
pub(super) fn quota_command() -> impl Strategy<Value = Command> {
    let prefix = || prop::sample::select(&["", "a", "b", "c", "aa"][..]);
    let keys = prop::option::weighted(0.7, 0u64..5);
    let bytes = prop::option::weighted(0.5, 0u64..1_500);
    prop_oneof![
        2 => (prefix(), keys, bytes).prop_map(|(prefix, keys, bytes)| set(prefix, keys, bytes)),
        1 => prefix().prop_map(remove),
        9 => command(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A member with quotas, one with the same log that loses power and that installs tables, and one without quotas,
    /// which skips what was refused for them. After each command the counters are those of a scan; nothing that was done
    /// took more of what is limited; and what was refused, done without quotas, takes what the refusal says.
    #[test]
    fn counters_are_those_of_a_scan_and_refusals_are_right(
        commands in prop::collection::vec(quota_command(), 1..50),
        seeds in prop::collection::vec(any::<u8>(), 50),
    ) {
        let mut member = Member::open(&SimDisk::new(), 1);
        let mut shaken = Member::open(&SimDisk::new(), 2);
        let mut free = Member::open(&SimDisk::new(), 3);
        for (number, command) in commands.iter().enumerate() {
            let before = member.replica.quotas();
            let result = run(&mut member, command.clone());
            prop_assert_eq!(&run(&mut shaken, command.clone()), &result);
            match &result {
                Err(Refusal::Quota(QuotaRefusal::Exceeded { prefix, limited, limit, used, asked })) => {
                    let mut trial = Member::open(&free.disk.after_power_loss(), 3);
                    prop_assert!(run(&mut trial, command.clone()).is_ok());
                    let of = |used: QuotaUse| match limited {
                        Limited::Keys => used.keys,
                        Limited::Bytes => used.bytes,
                    };
                    prop_assert_eq!(of(recount(&trial, prefix)), *asked);
                    prop_assert_eq!(of(recount(&free, prefix)), *used);
                    prop_assert!(asked > limit && asked > used);
                    free.run(&[]);
                }
                _ if matches!(command, Command::Quota(_)) => drop(free.run(&[])),
                result => prop_assert_eq!(&run(&mut free, command.clone()), result),
            }
            for quota in member.replica.quotas() {
                prop_assert_eq!(quota.used, recount(&free, &quota.prefix), "{:?}", command);
                if let Some(old) = before.iter().find(|old| old.prefix == quota.prefix)
                    && old.limits == quota.limits
                {
                    let is_within = |limit: Option<u64>, now: u64, old: u64| {
                        now <= old || limit.is_none_or(|limit| now <= limit)
                    };
                    prop_assert!(is_within(quota.limits.keys, quota.used.keys, old.used.keys));
                    prop_assert!(is_within(quota.limits.bytes, quota.used.bytes, old.used.bytes));
                }
            }
            match seeds[number] % 8 {
                0 => {
                    let disk = shaken.disk.after_power_loss();
                    shaken = Member::open(&disk, 2);
                }
                1 => {
                    shaken = Member::open(&SimDisk::new(), 2);
                    take_over(&member, &mut shaken);
                }
                2 => shaken.replica.db().compact().unwrap(),
                _ => {}
            }
            prop_assert_eq!(shaken.replica.quotas(), member.replica.quotas());
        }
        prop_assert_eq!(free.dump(), member.dump());
        prop_assert_eq!(shaken.dump(), member.dump());
        prop_assert_eq!(shaken.replica.tree_hashes().unwrap(), member.replica.tree_hashes().unwrap());
        let check = member.replica.db().check().unwrap();
        prop_assert!(check.is_clean(), "{:?}", check.problems);
    }
}
