use std::io;

use bowline_storage::vfs::{read_full_at, write_all_at};

use super::*;
use crate::SimDisk;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn code<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn every_kind_of_call_fails_at_its_turn_and_only_then() {
    type Try = fn(&FaultVfs, &dyn VfsFile) -> io::Result<()>;
    let tries: [(Call, Try); 13] = [
        (Call::Open, |vfs, _| {
            vfs.open(path("f"), OpenMode::Read).map(drop)
        }),
        (Call::Create, |vfs, _| {
            let name = format!("new{}", vfs.counts().get(Call::Create));
            vfs.open(path(&name), OpenMode::CreateNew).map(drop)
        }),
        (Call::CreateDir, |vfs, _| {
            vfs.create_dir(path(&format!("dir{}", vfs.counts().get(Call::CreateDir))))
        }),
        (Call::ReadDir, |vfs, _| vfs.read_dir(path("")).map(drop)),
        (Call::Stat, |vfs, _| vfs.metadata(path("f")).map(drop)),
        (Call::Rename, |vfs, _| vfs.rename(path("f"), path("f"))),
        (Call::Remove, |vfs, _| {
            vfs.remove_file(path(&format!("r{}", vfs.counts().get(Call::Remove))))
        }),
        (Call::SyncDir, |vfs, _| vfs.sync_dir(path(""))),
        (Call::Lock, |vfs, _| vfs.lock(path("lock")).map(drop)),
        (Call::Read, |_, file| file.read_at(&mut [0; 2], 0).map(drop)),
        (Call::Write, |_, file| file.write_at(b"x", 0).map(drop)),
        (Call::Sync, |_, file| file.sync_data()),
        (Call::SetLen, |vfs, file| {
            file.set_len(vfs.counts().get(Call::SetLen) + 5)
        }),
    ];
    for (call, attempt) in tries {
        let disk = SimDisk::new();
        for name in ["f", "r0", "r1", "r2", "r3"] {
            disk.put_durable(path(name), b"abc");
        }
        let vfs = FaultVfs::new(disk);
        let file = vfs.open(path("f"), OpenMode::ReadWrite).unwrap();
        let before = vfs.counts().get(call);
        vfs.add(Rule::on(call).nth(3).fail(Failure::Os(13)));
        let results: Vec<_> = (0..4).map(|_| code(attempt(&vfs, &*file))).collect();
        assert_eq!(results, [None, None, Some(13), None], "{call:?}");
        assert_eq!(vfs.counts().get(call) - before, 4);
        assert_eq!(vfs.injected().len(), 1);
    }
}

#[test]
fn a_failed_call_does_nothing_and_one_that_fails_after_has_done_it() {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    let file = vfs.open(path("f"), OpenMode::CreateNew).unwrap();
    vfs.add(Rule::on(Call::Write).fail(Failure::Io));
    assert_eq!(code(file.write_at(b"lost", 0)), Some(5));
    assert_eq!(disk.read(path("f")).unwrap(), b"");
    vfs.add(Rule::on(Call::Write).fail_after(Failure::Io));
    assert_eq!(code(file.write_at(b"done", 0)), Some(5));
    assert_eq!(disk.read(path("f")).unwrap(), b"done");
}

#[test]
fn rules_pick_paths_repeat_and_can_be_cleared() {
    let vfs = FaultVfs::new(SimDisk::new());
    let log = vfs.open(path("log"), OpenMode::CreateNew).unwrap();
    let table = vfs.open(path("table"), OpenMode::CreateNew).unwrap();
    vfs.add(
        Rule::on(Call::Sync)
            .path("log")
            .for_ever()
            .fail(Failure::NoSpace),
    );
    for _ in 0..3 {
        assert_eq!(
            log.sync_data().unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert!(table.sync_data().is_ok());
    }
    vfs.clear();
    assert!(log.sync_data().is_ok());
    vfs.add(Rule::on_changes().nth(2).times(2));
    let results = [
        log.sync_data(),
        table.set_len(1),
        vfs.sync_dir(path("")),
        table.set_len(2),
    ];
    assert_eq!(
        results.map(|result| result.is_ok()),
        [true, false, false, true]
    );
    assert!(log.len().is_ok(), "asking for a length is no change");
}

#[test]
fn short_and_interrupted_transfers_are_continued_by_the_helpers() {
    let disk = SimDisk::new();
    let vfs = FaultVfs::new(disk.clone());
    vfs.add(Rule::on(Call::Write).nth(2).fail(Failure::Interrupted));
    vfs.add(Rule::on(Call::Write).for_ever().short(3));
    vfs.add(Rule::on(Call::Read).for_ever().short(4));
    let file = vfs.open(path("f"), OpenMode::CreateNew).unwrap();
    write_all_at(&*file, path("f"), b"0123456789", 0).unwrap();
    assert_eq!(
        vfs.counts().get(Call::Write),
        5,
        "3 + interrupted + 3 + 3 + 1"
    );
    assert_eq!(disk.read(path("f")).unwrap(), b"0123456789");
    let mut buffer = [0; 20];
    assert_eq!(read_full_at(&*file, path("f"), &mut buffer, 0).unwrap(), 10);
    assert_eq!(&buffer[..10], b"0123456789");
}

#[test]
fn a_full_disk_refuses_growth_until_space_is_back() {
    let disk = SimDisk::new();
    disk.put_durable(path("old"), &[1; 50]);
    let vfs = FaultVfs::new(disk);
    let file = vfs.open(path("f"), OpenMode::CreateNew).unwrap();
    vfs.limit_space(100);
    assert_eq!(file.write_at(&[7; 80], 0).unwrap(), 80);
    assert_eq!(
        file.write_at(&[7; 80], 80).unwrap(),
        20,
        "what fits is written"
    );
    assert_eq!(code(file.write_at(&[7; 80], 100)), Some(28));
    assert_eq!(code(file.set_len(200)), Some(28));
    assert_eq!(
        code(vfs.open(path("g"), OpenMode::CreateNew).map(drop)),
        Some(28)
    );
    assert_eq!(
        file.write_at(&[8; 100], 0).unwrap(),
        100,
        "overwriting needs no space"
    );

    vfs.remove_file(path("old")).unwrap();
    file.set_len(90).unwrap();
    assert_eq!(vfs.space_left_bytes(), Some(60));
    assert_eq!(file.write_at(&[7; 80], 90).unwrap(), 60);

    vfs.lift_space_limit();
    assert_eq!(file.write_at(&[7; 80], 150).unwrap(), 80);
    assert!(vfs.open(path("g"), OpenMode::CreateNew).is_ok());
}
