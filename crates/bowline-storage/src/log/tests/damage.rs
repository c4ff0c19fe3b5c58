//! Bytes that are not what was written: what was never synced is cut off, what was synced is an
//! error, and no byte anywhere turns into a wrong entry.

use super::*;
use crate::error::Error;
use crate::log::frame::{FRAME_HEADER_BYTES, FrameKind, Life, finish_frame};
use crate::log::scan::scan;
use crate::log::segment::SegmentHeader;

/// Three synced groups, the last one's place and length.
fn three_groups() -> (Disk, u64, u64) {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"first group", b"second group"]);
    let offset = FRAMES_START + 2 * 56;
    write(&mut log, &[b"third", b"group"]);
    (disk, offset, 56)
}

fn header_of(disk: &Disk, id: u64) -> SegmentHeader {
    let file = disk.open(&segment(id), OpenMode::Read).expect("open");
    SegmentHeader::read(&*file, &segment(id), id).expect("header")
}

#[test]
fn an_unsynced_group_garbled_at_any_byte_is_cut_off() {
    let (disk, offset, len) = three_groups();
    let (_, all) = open(&disk.crashed(Crash::Kill), 0).expect("open");
    assert_eq!(
        all,
        entries(1, &[b"first group", b"second group", b"third", b"group"])
    );
    for position in offset..offset + len {
        let damaged = disk.crashed(Crash::Kill);
        let byte = bytes_of(&disk, &segment(1))[position as usize];
        overwrite(&damaged, &segment(1), position, &[byte ^ 0x5a]);
        for attempt in 0..2 {
            let (log, found) = open(&damaged, 0).expect("open");
            assert_eq!(found, all[..2], "byte {position}, attempt {attempt}");
            assert_eq!(log.next_index(), 3);
        }
    }
}

#[test]
fn an_unsynced_group_cut_at_any_byte_is_cut_off() {
    let (disk, offset, len) = three_groups();
    for kept in 0..len {
        let damaged = disk.crashed(Crash::Kill);
        overwrite(
            &damaged,
            &segment(1),
            offset + kept,
            &vec![0; (len - kept) as usize],
        );
        let (mut log, found) = open(&damaged, 0).expect("open");
        let is_padding_only = kept >= FRAME_HEADER_BYTES as u64 + 12;
        assert_eq!(
            found.len(),
            if is_padding_only { 4 } else { 2 },
            "{kept} bytes kept"
        );
        let next = log.stage(b"new");
        log.write().expect("write");
        log.sync().expect("sync");
        let (_, again) = open(&damaged.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(again.last(), Some(&(next, b"new".to_vec())));
        assert_eq!(again[..again.len() - 1], found);
    }
}

#[test]
fn a_synced_group_garbled_at_any_byte_is_damage_with_its_place() {
    let (disk, third, _) = three_groups();
    for position in FRAMES_START..third {
        let damaged = disk.crashed(Crash::Kill);
        let byte = bytes_of(&disk, &segment(1))[position as usize];
        overwrite(&damaged, &segment(1), position, &[byte ^ 0x01]);
        let start = FRAMES_START + (position - FRAMES_START) / 56 * 56;
        match open(&damaged, 0) {
            Err(Error::Corrupt { path, offset, .. }) => {
                assert_eq!((path, offset), (segment(1), start), "byte {position}");
            }
            // Only the third group proves that the second was synced, and it is intact here.
            other => panic!("byte {position}: {:?}", other.map(|(_, found)| found)),
        }
        assert!(
            Log::verify(&damaged, Path::new(DIR)).is_err(),
            "byte {position}"
        );
    }
}

/// A record of etcd's log that claimed an extreme length (CVE-2020-15106), or an entry with an extreme index
/// (CVE-2020-15112), ended its process. A frame's header has a checksum; here it is right, and the numbers are forged.
#[test]
fn forged_lengths_counts_and_indices_with_right_checksums_are_damage_or_cut_off() {
    let (disk, third, _) = three_groups();
    let life = header_of(&disk, 1).life();
    let bytes = bytes_of(&disk, &segment(1));
    let (_, all) = open(&disk.crashed(Crash::Kill), 0).expect("open");
    // The length of the body, the first index, the synced offset and the number of entries.
    for (at, len) in [(8, 4), (16, 8), (24, 8), (32, 4)] {
        for value in [
            1 << 30,
            u64::from(u32::MAX),
            (1 << 62) - 1,
            1 << 62,
            u64::MAX,
        ] {
            for offset in [FRAMES_START, FRAMES_START + 56, third] {
                let mut header = bytes[offset as usize..][..FRAME_HEADER_BYTES].to_vec();
                header[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
                life.repair_header(&mut header, offset)
                    .expect("a whole header");
                let forged = disk.crashed(Crash::Kill);
                overwrite(&forged, &segment(1), offset, &header);
                match open(&forged, 0) {
                    Err(Error::Corrupt { path, .. }) => assert_eq!(path, segment(1)),
                    Ok((_, found)) => {
                        assert_eq!(offset, third, "{at} {value}: a synced frame was cut off");
                        assert_eq!(found, all[..2], "{at} {value}");
                    }
                    Err(error) => panic!("{at} {value} at {offset}: {error}"),
                }
            }
        }
    }
}

/// A member of a cluster cut off a rotten end of its log as if a crash had torn it, and went on voting
/// without entries that it had acknowledged. What vouches for the last group survives the loss of the
/// group's sectors.
#[test]
fn once_a_log_is_vouched_for_any_lost_byte_or_sector_of_its_end_is_damage() {
    for payload in [16, 100, 400, 424, 900, 2000] {
        let disk = Disk::new();
        let (mut log, _) = open(&disk, 0).expect("open");
        commit_each(&mut log, &[b"before"]);
        assert!(!log.is_vouched_for());
        assert!(log.vouch().expect("vouch"));
        let start = FRAMES_START + 48;
        let file_end = {
            commit_each(&mut log, &[&vec![7; payload]]);
            assert!(!log.is_vouched_for());
            assert!(log.vouch().expect("vouch"));
            assert_eq!(log.sync().expect("sync"), 2);
            assert!(log.is_vouched_for() && !log.vouch().expect("nothing to do"));
            FRAMES_START + 48 + 512 + 40 + 48 + payload as u64 + 1024
        };
        let (_, all) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(all.len(), 2);
        // The group stands behind the frames that vouch for the first one.
        let bytes = bytes_of(&disk, &segment(1));
        let body = bytes
            .windows(payload)
            .rposition(|it| it.iter().all(|byte| *byte == 7));
        let body = body.expect("it is there") as u64;
        assert!((start..file_end).contains(&body));
        let is_damage = |disk: &Disk, what: &str| match open(disk, 0) {
            Err(Error::Corrupt { path, offset, .. }) => {
                assert_eq!(path, segment(1));
                assert!((FRAMES_START..=body).contains(&offset), "{what}");
            }
            other => panic!("{payload} {what}: {:?}", other.map(|(_, found)| found)),
        };
        for position in [body - 10, body, body + payload as u64 - 1] {
            let damaged = disk.crashed(Crash::PowerLoss);
            overwrite(
                &damaged,
                &segment(1),
                position,
                &[bytes[position as usize] ^ 1],
            );
            is_damage(&damaged, &format!("byte {position}"));
        }
        let first_sector = (body - 40) / 512 * 512;
        for sector in (first_sector..body + payload as u64).step_by(512) {
            let damaged = disk.crashed(Crash::PowerLoss);
            overwrite(&damaged, &segment(1), sector, &[0; 512]);
            is_damage(&damaged, &format!("sector {sector}"));
        }
    }
}

/// A crash tears what vouches as it tears anything else: that is no damage, and nothing is lost.
#[test]
fn what_vouches_may_be_torn_itself() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one", b"two"]);
    assert!(log.vouch().expect("vouch"));
    drop(log);
    let vouching = FRAMES_START + 2 * 48;
    for sectors in 0..4 {
        let damaged = disk.crashed(Crash::Kill);
        let zeros: &[(u64, usize)] = match sectors {
            0 => &[(vouching, 416)],
            1 => &[(FRAMES_START + 512, 512)],
            2 => &[(vouching, 416 + 512)],
            _ => &[(vouching, 8)],
        };
        for (offset, len) in zeros {
            overwrite(&damaged, &segment(1), *offset, &vec![0; *len]);
        }
        for _ in 0..2 {
            let (_, found) = open(&damaged, 0).expect("a torn tail, not damage");
            assert_eq!(found, entries(1, &[b"one", b"two"]));
        }
    }
}

/// Where the segment has no room left, what the next one begins with vouches for it; without a next
/// one nothing is written.
#[test]
fn at_the_end_of_a_segment_the_next_one_vouches_for_it() {
    for is_prepared in [false, true] {
        let disk = Disk::new();
        let (mut log, _) = open(&disk, 0).expect("open");
        // 8 KiB with its header: about 500 bytes are left.
        commit_each(&mut log, &[[3; 3500].as_slice()]);
        if is_prepared {
            log.prepare_now();
        }
        assert_eq!(log.vouch().expect("vouch"), is_prepared);
        assert_eq!(log.is_vouched_for(), is_prepared);
        log.sync().expect("sync");
        let damaged = disk.crashed(Crash::PowerLoss);
        overwrite(&damaged, &segment(1), FRAMES_START + 100, &[9]);
        assert_eq!(open(&damaged, 0).is_err(), is_prepared);
        commit_each(&mut log, &[b"next"]);
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
        assert_eq!(found, entries(1, &[[3; 3500].as_slice(), b"next"]));
    }
}

/// Vouching changes nothing of what the log says, at any step of a crash, whatever comes between.
#[test]
fn a_log_that_is_vouched_for_now_and_then_reads_as_any_other() {
    for seed in crate::seeds(4..5) {
        let disk = Disk::new();
        let (mut log, _) = open(&disk, 0).expect("open");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut expected = Entries::new();
        let mut synced = 0;
        for number in 0..400_u64 {
            match random.u8(0..10) {
                0 => {
                    log.vouch().expect("vouch");
                }
                1 | 2 => {
                    log.sync().expect("sync");
                    synced = expected.len();
                    log.vouch().expect("vouch");
                }
                3 if !expected.is_empty() => {
                    let keep = random.usize(expected.len().saturating_sub(3)..=expected.len());
                    log.cut_suffix(keep as u64 + 1).expect("cut");
                    expected.truncate(keep);
                    log.sync().expect("sync");
                    synced = keep;
                }
                _ => {
                    let payload = vec![random.u8(..); random.usize(0..600)];
                    let index = log.stage(&payload);
                    log.write().expect("write");
                    expected.push((index, payload));
                }
            }
            if number % 7 == 0 {
                let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
                assert!(
                    expected.starts_with(&found) && found.len() >= synced,
                    "{number}"
                );
                let (_, found) = open(&disk.crashed(Crash::Kill), 0).expect("open");
                assert_eq!(found, expected, "{number}");
            }
        }
        log.close().expect("close");
        assert!(Log::verify(&disk, Path::new(DIR)).expect("sound").is_sealed);
    }
}

#[test]
fn a_zeroed_sector_in_synced_groups_is_damage() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[[9u8; 400].as_slice(); 8]);
    drop(log);
    for sector in (4096..4096 + 3000).step_by(512) {
        let damaged = disk.crashed(Crash::Kill);
        overwrite(&damaged, &segment(1), sector, &[0; 512]);
        let error = open(&damaged, 0).expect_err("damaged");
        assert!(matches!(error, Error::Corrupt { .. }), "{sector}: {error}");
    }
}

#[test]
fn of_two_unsynced_groups_the_second_does_not_survive_the_first() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"synced"]);
    write(&mut log, &[b"lost"]);
    let lost_at = FRAMES_START + 48;
    write(&mut log, &[b"survives alone"]);
    drop(log);
    overwrite(&disk, &segment(1), lost_at, &[0; 48]);
    for _ in 0..3 {
        let (_, found) = open(&disk, 0).expect("a torn tail, not damage");
        assert_eq!(found, entries(1, &[b"synced"]));
    }
    // The group that survived would fit exactly behind this one, in the old segment.
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"new2"]);
    let (_, found) = open(&disk.crashed(Crash::PowerLoss), 0).expect("open");
    assert_eq!(found, entries(1, &[b"synced", b"new2"]));
}

#[test]
fn a_damaged_cut_that_was_synced_is_damage() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one", b"two", b"three"]);
    log.cut_suffix(2).expect("cut");
    log.sync().expect("sync");
    // Indices go on below what the log held before the cut: offsets tell, indices would not.
    commit_each(&mut log, &[b"new two"]);
    overwrite(&disk, &segment(1), FRAMES_START + 3 * 48, &[0; 8]);
    let error = open(&disk, 0).expect_err("damaged");
    assert!(
        matches!(error, Error::Corrupt { offset: 4240, .. }),
        "{error}"
    );
}

#[test]
fn every_byte_of_a_closed_log_is_checked() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    let payloads = [[3u8; 900].as_slice(); 6];
    commit_each(&mut log, &payloads);
    log.close().expect("close");
    let found = scan(&disk, Path::new(DIR), |_| 1).expect("sound");
    let count = found.segments.len() as u64;
    assert!(count >= 2);
    for (id, scanned) in (1..).zip(&found.segments) {
        let bytes = bytes_of(&disk, &segment(id));
        // A segment that is continued: up to the end that its successor states.
        let end = match id == count {
            true => bytes.len() as u64,
            false => scanned.end_offset,
        };
        assert!(end > FRAMES_START);
        for position in 0..end {
            let damaged = disk.crashed(Crash::Kill);
            let flipped = bytes[position as usize] ^ 0x80;
            overwrite(&damaged, &segment(id), position, &[flipped]);
            match Log::verify(&damaged, Path::new(DIR)) {
                Err(error) => assert!(error.is_corruption(), "{id} {position}: {error}"),
                Ok(_) => panic!("segment {id}, byte {position}: not noticed"),
            }
        }
    }
}

#[test]
fn any_byte_of_any_file_never_gives_a_wrong_entry() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    let payloads: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 200]).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    commit_each(&mut log, &payloads);
    drop(log);
    let expected = entries(1, &payloads);
    let segments = names(&disk, Path::new(DIR)).0;
    // Where the last group begins: with its header, and two bytes for the length of its entry.
    let last = Path::new(DIR).join(segments.last().expect("a segment"));
    let bytes = bytes_of(&disk, &last);
    let payload = bytes.windows(200).position(|some| some == [39; 200]);
    let border = payload.expect("the last group") - 2 - FRAME_HEADER_BYTES;
    for seed in crate::seeds(11..12) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..3000 {
            let damaged = disk.crashed(Crash::Kill);
            let path = Path::new(DIR).join(&segments[random.usize(..segments.len())]);
            let len = bytes_of(&damaged, &path).len();
            let position = random.usize(..len);
            let noise: Vec<u8> = (0..random.usize(1..20)).map(|_| random.u8(..)).collect();
            let noise = &noise[..noise.len().min(len - position)];
            overwrite(&damaged, &path, position as u64, noise);
            match open(&damaged, 0) {
                Ok((_, found)) => {
                    assert!(expected.starts_with(&found), "wrong entries");
                    // What hits the last group and the one before it leaves none to prove that one.
                    let hit = position..position + noise.len();
                    let is_both = path == last && hit.start < border && hit.end > border;
                    assert!(
                        found.len() >= if is_both { 38 } else { 39 },
                        "{} groups, bytes {hit:?}: only the last group is not proven synced",
                        found.len()
                    );
                }
                Err(error) => assert!(error.is_corruption(), "{error}"),
            }
        }
    }
}

#[test]
fn a_destroyed_header_is_damage_and_never_an_empty_segment() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"acknowledged"]);
    drop(log);
    for len in [512, 4096] {
        let damaged = disk.crashed(Crash::Kill);
        overwrite(&damaged, &segment(1), 0, &vec![0; len]);
        let error = open(&damaged, 0).expect_err("damaged");
        assert!(matches!(error, Error::Corrupt { offset: 0, .. }), "{error}");
    }
    for len in [0, 100, 4096, 5000] {
        let damaged = disk.crashed(Crash::Kill);
        let file = damaged
            .open(&segment(1), OpenMode::ReadWrite)
            .expect("open");
        file.set_len(len).expect("cut");
        let error = open(&damaged, 0).expect_err("cut short");
        assert!(matches!(error, Error::Corrupt { .. }), "{len}: {error}");
    }
}

#[test]
fn a_segment_of_another_log_under_the_right_name_is_damage() {
    let (disk, other) = (Disk::new(), Disk::new());
    for disk in [&disk, &other] {
        let (mut log, _) = open(disk, 0).expect("open");
        commit_each(&mut log, &[[5u8; 3000].as_slice(); 3]);
    }
    overwrite(&disk, &segment(1), 0, &bytes_of(&other, &segment(1)));
    let error = open(&disk, 0).expect_err("swapped");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// A frame as an earlier life of the file would have left it.
fn stale_frame(life: Life, offset: u64, index: Index) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    crate::codec::put_bytes(&mut frame, b"stale");
    finish_frame(&mut frame, life, offset, FrameKind::Data, index, 1, offset);
    frame
}

#[test]
fn a_frame_of_an_earlier_life_is_never_accepted() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one"]);
    drop(log);
    let header = header_of(&disk, 1);
    let offset = FRAMES_START + 48;
    // The index continues exactly, the place is right: only the life differs.
    for life in [
        Life::new(header.id, header.salt ^ 1),
        Life::new(header.id + 1, header.salt),
        Life::new(0, 0),
    ] {
        let crafted = disk.crashed(Crash::Kill);
        overwrite(&crafted, &segment(1), offset, &stale_frame(life, offset, 2));
        let (_, found) = open(&crafted, 0).expect("open");
        assert_eq!(found, entries(1, &[b"one"]));
    }
    let crafted = disk.crashed(Crash::Kill);
    overwrite(
        &crafted,
        &segment(1),
        offset,
        &stale_frame(header.life(), offset, 2),
    );
    let (_, found) = open(&crafted, 0).expect("open");
    assert_eq!(
        found,
        entries(1, &[b"one", b"stale"]),
        "the crafted frame is well made"
    );
}

#[test]
fn a_recycled_segment_shows_nothing_of_its_earlier_life() {
    let disk = Disk::new();
    // Several pages of frames: a write wipes what is left of the page it enters, and no more.
    let options = LogOptions {
        first_segment_bytes: 20 << 10,
        segment_bytes: 20 << 10,
        ..small()
    };
    let open = |disk: &Disk, after| {
        open_with(
            Arc::new(disk.clone()),
            Path::new(DIR),
            options.clone(),
            after,
            false,
        )
    };
    let (mut log, _) = open(&disk, 0).expect("open");
    // All frames of one size, so that those of every life begin at the same places.
    let mut index = 0;
    let mut recycled = 0;
    let mut old_lives = 0;
    for _ in 0..400 {
        index += 1;
        let payload = format!("{index:<200}");
        commit_each(&mut log, &[payload.as_bytes()]);
        log.release_prefix(index - 1).expect("release");
        let (segments, spares) = names(&disk, Path::new(DIR));
        recycled += u64::from(spares.len() == 1);
        // What a write enters it fills, and what it does not enter it leaves as it was.
        let active = segments.last().expect("a segment");
        let bytes = bytes_of(&disk, &Path::new(DIR).join(active));
        let mut found = bytes.windows(200).rposition(|it| it == payload.as_bytes());
        let end = found.take().expect("the entry is there") + 200;
        let page_end = end.next_multiple_of(4096);
        assert!(bytes[end..page_end].iter().all(|byte| *byte == 0));
        old_lives += u64::from(bytes[page_end..].iter().any(|byte| *byte != 0));
        let first = log.first_index();
        let (_, found) = open(&disk.crashed(Crash::PowerLoss), first - 1).expect("open");
        assert_eq!(found.len() as u64, index - first + 1);
        for (index, payload) in found {
            assert_eq!(payload, format!("{index:<200}").as_bytes());
        }
    }
    assert!(recycled > 0, "segments were recycled");
    assert!(old_lives > 0, "frames of an earlier life lay behind");
}

#[test]
fn a_frame_moved_within_its_segment_is_not_accepted() {
    let disk = Disk::new();
    let (mut log, _) = open(&disk, 0).expect("open");
    commit_each(&mut log, &[b"one"]);
    drop(log);
    let bytes = bytes_of(&disk, &segment(1));
    overwrite(
        &disk,
        &segment(1),
        FRAMES_START + 48,
        &bytes[4096..4096 + 48],
    );
    let (_, found) = open(&disk, 0).expect("open");
    assert_eq!(found, entries(1, &[b"one"]));
}
