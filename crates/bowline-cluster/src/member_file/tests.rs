//! The file `MEMBER` through changes, crashes and damage.

use std::collections::BTreeMap;

use bowline_testing::{Images, SimDisk};

use super::*;
use crate::types::Member;

fn dir() -> &'static Path {
    Path::new("data")
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir(dir()).expect("make");
    disk.sync_dir(Path::new("")).expect("sync");
    disk
}

fn state(cluster_id: u64, member_id: u64) -> MemberState {
    let member = |id: u64| Member {
        name: format!("m{id}"),
        peer_urls: vec![format!("http://127.0.0.1:{id}")],
        client_urls: Vec::new(),
        wants_vote: true,
        ..Member::default()
    };
    let ids = [1, 5, 9];
    let nodes: BTreeMap<_, _> = ids.into_iter().map(|id| (id, member(id))).collect();
    let founders = Membership::new(vec![ids.into_iter().collect()], nodes);
    MemberState {
        cluster_id,
        member_id,
        database_id: 0xfeed_u128 << 100,
        founders: Some(founders.expect("they are members")),
        vote: None,
        incarnation: 9,
        owed: None,
        remembered: Acknowledgements::new(),
    }
}

fn vote(number: u64) -> Vote {
    Vote {
        leader_id: LeaderId {
            term: number,
            node_id: number % 3,
        },
        committed: number.is_multiple_of(2),
    }
}

fn number(file: &MemberFile) -> u64 {
    file.read_vote().map_or(0, |vote| vote.leader_id.term)
}

#[test]
fn what_was_saved_reads_back() {
    let disk = disk();
    assert!(!MemberFile::exists(&disk, dir()).expect("stat"));
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    assert_eq!(file.read_vote(), None);
    for number in 1..4 {
        file.save_vote(&vote(number)).expect("save");
        let again = MemberFile::open(&disk, dir()).expect("open");
        assert_eq!(again.state(), file.state());
        assert_eq!(again.read_vote(), Some(vote(number)));
    }
    assert!(MemberFile::create(&disk, dir(), state(77, 5)).is_err());
}

/// After every crash, and the loss or tearing of either slot, an answered vote is still there.
#[test]
fn an_answered_vote_is_never_rolled_back() {
    let disk = disk();
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    disk.mark(100);
    for number in 1..6 {
        file.save_vote(&vote(number)).expect("save");
        disk.mark(100 + number);
    }
    let mut images = 0;
    for image in Images::all(&disk.recording(), 11) {
        let answered = image.marks().into_iter().max();
        let crashed = image.build();
        let Some(answered) = answered else {
            // There may be no file yet; if there is one, it is complete.
            if MemberFile::exists(&crashed, dir()).expect("stat") {
                MemberFile::open(&crashed, dir()).expect("whole");
            }
            continue;
        };
        images += 1;
        let file = MemberFile::open(&crashed, dir()).expect("open");
        assert!(number(&file) >= answered - 100, "{image}");
        // Either slot is lost, wholly or in part, before any opening has repaired it.
        let path = dir().join(MEMBER_FILE);
        if image.pending().is_empty() {
            for lost in [
                0..SLOT_BYTES,
                SLOT_BYTES..2 * SLOT_BYTES,
                0..512,
                4096..4100,
            ] {
                let damaged = image.build();
                let file = damaged.open(&path, OpenMode::ReadWrite).expect("open");
                file.write_at(&vec![0xff; lost.len()], lost.start as u64)
                    .expect("write");
                let file = MemberFile::open(&damaged, dir()).expect("one is left");
                assert!(number(&file) >= answered - 100, "{image}, lost {lost:?}");
                let again = damaged.open(&path, OpenMode::Read).expect("open");
                let slots = [0, 1].map(|slot| read_slot(&*again, &path, slot));
                assert_eq!(slots[0].as_ref().ok(), slots[1].as_ref().ok(), "mended");
            }
        }
    }
    assert!(images > 20);
}

/// A process that is killed leaves what it has not synced to the next one, which reads it as if it were on the disk. Tests
/// took all that a killed process had written for durable, so an opening that did not sync it again was noticed by none.
#[test]
fn what_a_killed_process_left_unsynced_is_synced_before_it_is_used() {
    let disk = disk();
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    for number in 1..4 {
        file.save_vote(&vote(number)).expect("save");
    }
    let recording = disk.recording();
    let mut ahead = 0;
    for point in 0..=recording.len() {
        let killed = SimDisk::killed_at(&recording, point);
        if !MemberFile::exists(&killed, dir()).expect("stat") {
            continue;
        }
        let durable = MemberFile::read(&killed.after_power_loss(), dir()).expect("whole");
        let durable = durable.map(|state| state.vote.map_or(0, |vote| vote.leader_id.term));
        let file = MemberFile::open(&killed, dir()).expect("open");
        let shown = number(&file);
        ahead += u32::from(durable != Some(shown));
        let again = MemberFile::open(&killed.after_power_loss(), dir()).expect("open");
        assert_eq!(number(&again), shown, "killed at point {point}");
    }
    // The name, and each of the votes.
    assert!(ahead >= 4, "{ahead}");
}

#[test]
fn reading_changes_nothing_and_founders_stay() {
    let disk = disk();
    assert_eq!(MemberFile::read(&disk, dir()).expect("none"), None);
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    file.save_vote(&vote(1)).expect("save");
    let raw = disk
        .open(&dir().join(MEMBER_FILE), OpenMode::ReadWrite)
        .expect("open");
    raw.write_at(b"damage", 4096 + 20).expect("write");
    let read = MemberFile::read(&disk, dir()).expect("read");
    let mut found = [0; 6];
    raw.read_at(&mut found, 4096 + 20).expect("read");
    assert_eq!(&found, b"damage", "who only reads mends nothing");
    let expected = MemberState {
        vote: Some(vote(1)),
        ..state(77, 5)
    };
    assert_eq!(read, Some(expected));
}

/// Only members count, the greater entry stays, and a vote beside it is not touched. Where founders leave no room, what
/// is remembered has none, and nothing fails.
#[test]
fn what_others_have_acknowledged_is_remembered_where_there_is_room() {
    let disk = disk();
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    file.save_vote(&vote(3)).expect("save");
    let at = |term, index| log_id(term, 1, index);
    let told = [(1, at(2, 10)), (5, at(2, 9)), (8, at(2, 8))].into();
    file.remember(&told, |id| id != 8).expect("save");
    let older = [(1, at(1, 99)), (5, at(2, 11))].into();
    file.remember(&older, |id| id != 8).expect("save");
    drop(file);
    let file = MemberFile::open(&disk, dir()).expect("open");
    let found = [1, 5, 8].map(|id| file.read_remembered(id));
    assert_eq!(found, [Some(at(2, 10)), Some(at(2, 11)), None]);
    assert_eq!(number(&file), 3);
    let many: Acknowledgements = (0..300).map(|id| (id, at(4, id))).collect();
    for room in [0, REMEMBERED_BYTES, 5 * REMEMBERED_BYTES] {
        let mut filled = state(77, 5);
        let name = |bytes| "n".repeat(bytes);
        let bytes_of = |bytes| {
            let member = Member {
                name: name(bytes),
                ..Member::default()
            };
            let nodes: BTreeMap<u64, Member> = [(1, member)].into();
            let founders = Membership::new(vec![[1].into()], nodes).expect("a member");
            let mut out = Vec::new();
            record::encode_membership(&founders, &mut out);
            (out.len(), founders)
        };
        let fixed = bytes_of(1000).0 - 1000;
        let (bytes, founders) = bytes_of(FOUNDERS_BYTES_MAX - room - fixed);
        assert_eq!(bytes, FOUNDERS_BYTES_MAX - room);
        filled.founders = Some(founders);
        filled.remembered = many.clone();
        let slot = encode(7, &filled).expect("it fits");
        let (_, read) = decode(Path::new("MEMBER"), 0, &slot).expect("it is valid");
        assert_eq!(read.founders, filled.founders);
        let kept = room.saturating_sub(1) / REMEMBERED_BYTES;
        assert_eq!(read.remembered.len(), kept, "in {room} bytes");
    }
}

#[test]
fn founders_that_do_not_fit_are_refused() {
    let disk = disk();
    let mut state = state(77, 5);
    let members = (1..200).map(|id| {
        let member = Member {
            name: format!("member number {id}"),
            peer_urls: vec![format!("http://member-{id}.example:2380")],
            client_urls: Vec::new(),
            wants_vote: true,
            ..Member::default()
        };
        (id, member)
    });
    let nodes: BTreeMap<_, _> = members.collect();
    let founders = Membership::new(vec![nodes.keys().copied().collect()], nodes);
    state.founders = Some(founders.expect("they are members"));
    MemberFile::create(&disk, dir(), state).expect_err("too long");
    assert!(!MemberFile::exists(&disk, dir()).expect("stat"));
}

#[test]
fn a_member_that_has_forgotten_its_vote_does_not_open() {
    let disk = disk();
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    file.save_vote(&vote(1)).expect("save");
    let path = dir().join(MEMBER_FILE);
    let raw = disk.open(&path, OpenMode::ReadWrite).expect("open");
    for offset in [100, 4096 + 100] {
        raw.write_at(b"x", offset).expect("write");
    }
    let error = MemberFile::open(&disk, dir()).expect_err("forgotten");
    assert!(error.is_corruption() && error.to_string().contains("MEMBER"));
    raw.set_len(100).expect("cut");
    assert!(
        MemberFile::open(&disk, dir())
            .expect_err("short")
            .is_corruption()
    );
}

#[test]
fn after_a_failed_sync_nothing_is_promised() {
    let disk = disk();
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    disk.fail_syncs_after(1, 1);
    file.save_vote(&vote(1)).expect_err("the second slot");
    let error = file.save_vote(&vote(2)).expect_err("refused");
    assert!(matches!(error, Error::Poisoned { .. }));
    assert_eq!(file.read_vote(), None);
}

#[test]
fn every_flipped_byte_of_a_slot_is_damage() {
    let state = MemberState {
        vote: Some(vote(3)),
        ..state(1, 2)
    };
    let slot = encode(9, &state).expect("it fits");
    assert_eq!(decode(Path::new("x"), 0, &slot).expect("valid"), (9, state));
    for position in 0..slot.len() {
        let mut damaged = slot.clone();
        damaged[position] ^= 0x20;
        assert!(decode(Path::new("x"), 0, &damaged).is_err(), "{position}");
    }
}

/// A directory from before there were incarnations is read, and stays as it was, even if its founders
/// take all the room of version 1.
#[test]
fn a_file_of_version_1_stays_one() {
    let plain = MemberState {
        incarnation: 0,
        ..state(1, 2)
    };
    let slot = encode(9, &plain).expect("it fits");
    assert_eq!(slot[8], 1);
    assert_eq!(decode(Path::new("x"), 0, &slot).expect("valid"), (9, plain));
    let slot = encode(9, &state(1, 2)).expect("it fits");
    assert_eq!(slot[8], 2);
}

#[test]
fn what_is_owed_is_kept_until_it_is_there_again() {
    let disk = disk();
    let file = MemberFile::create(&disk, dir(), state(77, 5)).expect("create");
    file.save_vote(&vote(3)).expect("save");
    let (less, more) = (log_id(3, 5, 7), log_id(4, 1, 6));
    for (owed, add, settle) in [
        (Some(less), Some(less), None),
        (Some(more), Some(more), None),
        (Some(more), Some(less), None),
        (Some(more), None, Some(less)),
        (None, None, Some(more)),
    ] {
        if let Some(last) = add {
            file.add_owed(last).expect("save");
        }
        if let Some(last) = settle {
            file.settle_owed(last).expect("save");
        }
        let again = MemberFile::open(&disk.after_power_loss(), dir()).expect("open");
        assert_eq!(again.read_owed(), owed);
        assert_eq!(again.read_vote(), Some(vote(3)));
        assert_eq!(again.state().incarnation, 9);
    }
}
