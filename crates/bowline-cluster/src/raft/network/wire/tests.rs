//! What peers say is read as it was written, and what no peer says is refused.

use tonic::Code;

use super::*;
use crate::types::{Payload, Proposal};

fn vote() -> Vote {
    Vote::new_committed(3, 2)
}

fn append() -> AppendEntriesRequest<TypeConfig> {
    let entry = |index| Entry {
        log_id: log_id(3, 2, index),
        payload: Payload::Normal(Proposal("p".into())),
    };
    AppendEntriesRequest {
        vote: vote(),
        prev_log_id: Some(log_id(2, 1, 6)),
        entries: vec![entry(7), entry(8)],
        leader_commit: Some(log_id(2, 1, 5)),
    }
}

fn head() -> wire::SnapshotHead {
    let file = SnapshotFile {
        name: "0000000000000001.table".to_owned(),
        bytes: 5,
        crc32c: 6,
    };
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(2, 1, 6)),
        ..SnapshotMeta::default()
    };
    let sender = wire::Sender::default();
    put_head(
        sender,
        &vote(),
        &meta,
        "id".to_owned(),
        "s".into(),
        [file].into_iter(),
    )
}

#[test]
fn an_append_reads_back_as_sent() {
    let found = get_append(put_append(1, None, &append())).expect("valid");
    assert_eq!(found.vote, append().vote);
    assert_eq!(found.prev_log_id, append().prev_log_id);
    assert_eq!(found.entries, append().entries);
    assert_eq!(found.leader_commit, append().leader_commit);
    for result in [
        Ok(None),
        Ok(Some(log_id(1, 2, 3))),
        Err(StreamAppendError::Conflict(log_id(1, 2, 3))),
        Err(StreamAppendError::HigherVote(vote())),
    ] {
        let reply = put_append_reply(1, &result);
        assert_eq!(get_append_reply(reply).expect("valid"), result);
    }
}

/// A member that accepted it would never vote again.
#[test]
fn an_acknowledgement_to_a_later_leader_is_refused() {
    let of = |id| get_acknowledged(put_log_id(&id), &vote());
    assert_eq!(of(log_id(3, 2, 900)).expect("its own"), log_id(3, 2, 900));
    for future in [log_id(3, 3, 1), log_id(4, 1, 1), log_id(3, 2, u64::MAX)] {
        assert!(of(future).is_err(), "{future:?}");
    }
}

/// An append of 64 entries could be larger than a peer's message limit; then that peer never received
/// them.
#[test]
fn a_large_append_is_split_and_follows_upon_itself() {
    let entry = |index: u64, bytes: usize| Entry {
        log_id: log_id(3, 2, index),
        payload: Payload::Normal(Proposal(vec![7; bytes].into())),
    };
    let sizes = [100, 100, 5000, 900, 900, 10];
    let request = AppendEntriesRequest {
        entries: (7..)
            .zip(sizes)
            .map(|(index, bytes)| entry(index, bytes))
            .collect(),
        ..append()
    };
    let parts = split_append(request.clone(), 2000);
    let counts: Vec<usize> = parts.iter().map(|part| part.entries.len()).collect();
    // The large one alone; of the others as many as fit with their heads.
    assert_eq!(counts, [2, 1, 1, 2]);
    let mut previous = request.prev_log_id;
    let mut entries = Vec::new();
    for part in parts {
        assert_eq!((part.prev_log_id, part.vote), (previous, request.vote));
        assert_eq!(part.leader_commit, request.leader_commit);
        previous = part.entries.last().map(|entry| entry.log_id);
        entries.extend(part.entries);
    }
    assert_eq!(entries, request.entries);
    let heartbeat = AppendEntriesRequest {
        entries: Vec::new(),
        ..append()
    };
    assert_eq!(split_append(heartbeat, 2000).len(), 1);
}

/// A vote of term 2^64-1 was written down, and no leader was ever elected again.
#[test]
fn terms_and_indices_are_bounded() {
    let vote = |term| wire::Ballot {
        term,
        ..wire::Ballot::default()
    };
    assert!(get_vote(Some(vote(TERM_MAX))).is_ok());
    assert!(get_vote(Some(vote(TERM_MAX + 1))).is_err());
    let id = |term, index| wire::LogId {
        term,
        index,
        ..wire::LogId::default()
    };
    assert!(get_log_id(id(TERM_MAX, INDEX_MAX)).is_ok());
    assert!(get_log_id(id(TERM_MAX + 1, 1)).is_err());
    assert!(get_log_id(id(1, INDEX_MAX + 1)).is_err());
    assert!(check_ahead(&Vote::new(5 + TERMS_AHEAD_MAX, 1), 5).is_ok());
    assert!(check_ahead(&Vote::new(6 + TERMS_AHEAD_MAX, 1), 5).is_err());
    assert!(check_ahead(&Vote::new(u64::MAX, 1), u64::MAX).is_ok());
    assert!(check_own(&Vote::new(5, 1), 1).is_ok() && check_own(&Vote::new(5, 1), 2).is_err());
}

/// openraft would panic.
#[test]
fn an_append_that_no_leader_sends_is_refused() {
    let good = put_append(1, None, &append());
    let last = Some(wire::LogId {
        index: u64::MAX,
        ..wire::LogId::default()
    });
    let later = Some(wire::LogId {
        term: 9,
        ..wire::LogId::default()
    });
    let mut falling = append();
    falling.prev_log_id = Some(log_id(3, 2, 6));
    falling.entries[0].log_id = log_id(2, 1, 7);
    let candidate = Some(put_vote(&Vote::new(3, 2)));
    let earlier = Some(put_vote(&Vote::new_committed(3, 1)));
    let mut garbled = good.clone();
    garbled.entries[1].head = "x".into();
    let mut longer = good.clone();
    longer.entries[1].head = [&longer.entries[1].head[..], b"x"].concat().into();
    for bad in [
        wire::AppendRequest {
            vote: None,
            ..good.clone()
        },
        wire::AppendRequest {
            vote: candidate,
            ..good.clone()
        },
        wire::AppendRequest {
            vote: earlier,
            ..good.clone()
        },
        wire::AppendRequest {
            previous: last,
            ..good.clone()
        },
        wire::AppendRequest {
            previous: later,
            ..good.clone()
        },
        put_append(1, None, &falling),
        garbled,
        longer,
    ] {
        let error = get_append(bad).expect_err("refused");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
}

/// openraft takes what is said of a committed entry for granted: in one case it forgot what was committed.
#[test]
fn an_append_that_contradicts_itself_or_what_is_applied_is_refused() {
    let ids = |previous, committed| {
        let mut request = put_append(1, None, &append());
        request.entries.clear();
        request.previous = Some(put_log_id(&previous));
        request.committed = Some(put_log_id(&committed));
        get_append(request)
    };
    // The vote is of term 3 and member 2.
    for (previous, committed) in [
        (log_id(3, 2, 9), log_id(3, 2, 9)),
        (log_id(3, 2, 9), log_id(3, 2, 12)),
        (log_id(2, 1, 6), log_id(3, 2, 12)),
        (log_id(3, 2, 9), log_id(2, 1, 6)),
    ] {
        ids(previous, committed).expect("a leader may say so");
    }
    for (previous, committed) in [
        (log_id(3, 3, 2), log_id(2, 1, 1)),
        (log_id(4, 2, 2), log_id(2, 1, 1)),
        (log_id(2, 1, 6), log_id(4, 2, 7)),
        // Entries of one index, or of terms that fall.
        (log_id(2, 1, 6), log_id(2, 2, 6)),
        (log_id(3, 2, 9), log_id(2, 1, 12)),
        (log_id(2, 1, 6), log_id(3, 2, 5)),
    ] {
        let refused = ids(previous, committed).expect_err("no leader says so");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    // After the entry 2.6 come 3.7 and 3.8; 2.5 is committed.
    let known = |vote, applied| Known {
        vote,
        applied,
        last_index: Some(6),
    };
    let check = |vote, applied| {
        let mut request = append();
        let checked = check_applied(&mut request, &known(vote, applied));
        checked.map(|()| request.leader_commit)
    };
    let committed = Some(log_id(2, 1, 5));
    for applied in [None, Some(log_id(2, 1, 6)), Some(log_id(3, 2, 8))] {
        assert_eq!(check(vote(), applied).expect("of one log"), committed);
    }
    for applied in [
        log_id(1, 1, 6),
        log_id(2, 1, 7),
        log_id(3, 2, 5),
        log_id(2, 2, 6),
    ] {
        check(vote(), Some(applied)).expect_err("of two logs");
        // It leads no more, and its entries were replaced: it has to hear that, not a refusal.
        let later = Vote::new_committed(4, 1);
        assert_eq!(check(later, Some(applied)).expect("for openraft"), None);
    }
    // What an earlier leader had committed is not beyond what there is; that of this one may be.
    let mut request = append();
    for (id, kept) in [
        (log_id(2, 1, 900), None),
        (log_id(3, 2, 900), Some(log_id(3, 2, 900))),
    ] {
        request.leader_commit = Some(id);
        check_applied(&mut request, &known(vote(), None)).expect("of one log");
        assert_eq!(request.leader_commit, kept);
    }
}

#[test]
fn a_snapshot_stays_within_its_directory() {
    let (found, meta, files) = get_head(&head()).expect("valid");
    assert_eq!((found, files.len()), (vote(), 1));
    assert_eq!(meta.last_log_id, Some(log_id(2, 1, 6)));
    for name in [
        "", ".", "..", "../x", "a/b", "/etc/x", "a\0b", ".hidden", "a\\b",
    ] {
        let mut bad = head();
        bad.files[0].name = name.to_owned();
        assert!(get_head(&bad).is_err(), "{name:?}");
    }
    let mut twice = head();
    twice.files.push(twice.files[0].clone());
    assert!(get_head(&twice).is_err());
}

/// Nothing had shown where the bound of the files is.
#[test]
fn a_snapshot_has_as_many_files_as_may_be_and_not_one_more() {
    let mut head = head();
    head.files = (0..FILES_MAX)
        .map(|number| wire::SnapshotFile {
            name: format!("{number:016x}.table"),
            ..wire::SnapshotFile::default()
        })
        .collect();
    let (_, _, files) = get_head(&head).expect("as many as may be");
    assert_eq!(files.len(), FILES_MAX);
    let mut one_more = head.files[0].clone();
    one_more.name = "one-more.table".to_owned();
    head.files.push(one_more);
    let refused = get_head(&head).expect_err("one more");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("too many files"), "{refused}");
}

/// openraft would panic.
#[test]
fn a_snapshot_from_the_future_is_refused() {
    let future = Some(put_log_id(&log_id(4, 1, 6)));
    let candidate = Some(put_vote(&Vote::new(3, 2)));
    for bad in [
        wire::SnapshotHead {
            last: None,
            ..head()
        },
        wire::SnapshotHead {
            last: future,
            ..head()
        },
        wire::SnapshotHead {
            membership_id: future,
            ..head()
        },
        wire::SnapshotHead {
            vote: candidate,
            ..head()
        },
        wire::SnapshotHead {
            membership: "\x01".into(),
            ..head()
        },
    ] {
        assert!(get_head(&bad).is_err());
    }
}
