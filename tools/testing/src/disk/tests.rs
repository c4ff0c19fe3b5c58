use bowline_storage::vfs::{read_file, write_all_at};

use super::*;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

fn create(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn VfsFile> {
    let file = disk.open(path(name), OpenMode::CreateNew).unwrap();
    write_all_at(&*file, path(name), bytes, 0).unwrap();
    file
}

#[test]
fn a_running_program_sees_an_ordinary_file_system() {
    let disk = SimDisk::new();
    disk.create_dir(path("/db")).unwrap();
    let file = create(&disk, "db/a", b"hello");
    assert_eq!(read_file(&disk, path("/db/a"), 100).unwrap(), b"hello");
    file.set_len(2).unwrap();
    assert_eq!(
        (file.len().unwrap(), disk.read(path("db/a")).unwrap()),
        (2, b"he".to_vec())
    );
    create(&disk, "db/b", b"other");
    disk.rename(path("db/a"), path("db/b")).unwrap();
    assert_eq!(disk.read_dir(path("db")).unwrap(), ["b"]);
    assert_eq!(disk.read(path("db/b")).unwrap(), b"he");
    disk.remove_file(path("db/b")).unwrap();
    assert_eq!(disk.metadata(path("db/b")).unwrap(), None);
    assert_eq!(disk.metadata(path("no/such")).unwrap(), None);
    file.write_at(b"still there", 0).unwrap();
    assert_eq!(file.len().unwrap(), 11, "an open file outlives its name");
    assert!(disk.metadata(path("db")).unwrap().unwrap().is_dir);
    assert_eq!(disk.paths(), ["db"]);
}

#[test]
fn what_an_operating_system_refuses_is_refused() {
    use io::ErrorKind::*;
    let disk = SimDisk::new();
    disk.create_dir(path("d")).unwrap();
    create(&disk, "d/f", b"x");
    let open = |name, mode| kind(disk.open(path(name), mode).map(drop));
    assert_eq!(open("d/g", OpenMode::Read), Some(NotFound));
    assert_eq!(open("d/f", OpenMode::CreateNew), Some(AlreadyExists));
    assert_eq!(open("d", OpenMode::ReadWrite), Some(IsADirectory));
    assert_eq!(open("none/f", OpenMode::CreateNew), Some(NotFound));
    assert_eq!(open("d/f/g", OpenMode::CreateNew), Some(NotADirectory));
    assert_eq!(open("../f", OpenMode::CreateNew), Some(InvalidInput));
    assert_eq!(kind(disk.create_dir(path("d"))), Some(AlreadyExists));
    assert_eq!(kind(disk.rename(path("x"), path("y"))), Some(NotFound));
    assert_eq!(
        kind(disk.rename(path("d/f"), path("d"))),
        Some(IsADirectory)
    );
    assert_eq!(
        kind(disk.rename(path("d"), path("d/e"))),
        Some(InvalidInput)
    );
    assert_eq!(kind(disk.remove_file(path("d"))), Some(IsADirectory));
    assert_eq!(kind(disk.sync_dir(path("d/f"))), Some(NotADirectory));
    assert_eq!(kind(disk.read_dir(path("none"))), Some(NotFound));
    let reader = disk.open(path("d/f"), OpenMode::Read).unwrap();
    assert_eq!(kind(reader.write_at(b"x", 0)), Some(PermissionDenied));
    assert_eq!(kind(reader.set_len(0)), Some(PermissionDenied));
    let writer = disk.open(path("d/f"), OpenMode::ReadWrite).unwrap();
    assert_eq!(kind(writer.write_at(b"x", u64::MAX)), Some(FileTooLarge));
}

#[test]
fn a_lock_is_exclusive_until_dropped_or_crashed() {
    let disk = SimDisk::new();
    let held = disk.lock(path("LOCK")).unwrap();
    assert!(held.is_some());
    assert!(disk.lock(path("LOCK")).unwrap().is_none());
    assert!(disk.after_kill().lock(path("LOCK")).unwrap().is_some());
    drop(held);
    assert!(disk.lock(path("LOCK")).unwrap().is_some());
}

#[test]
fn calls_are_recorded_in_order_and_described() {
    let disk = SimDisk::new();
    disk.put_durable(path("old"), b"x");
    disk.create_dir(path("d")).unwrap();
    let file = create(&disk, "d/f", b"abc");
    file.write_at(b"", 9).unwrap();
    file.sync_data().unwrap();
    file.set_len(7).unwrap();
    file.set_len(7).unwrap();
    disk.rename(path("d/f"), path("g")).unwrap();
    disk.sync_dir(path("d")).unwrap();
    disk.open(path("old"), OpenMode::ReadWrite)
        .unwrap()
        .write_at(b"y", 0)
        .unwrap();
    disk.remove_file(path("old")).unwrap();
    let recording = disk.recording();
    let described: Vec<_> = (0..recording.len())
        .map(|i| recording.describe(i))
        .collect();
    assert_eq!(
        described,
        [
            "#0 create_dir d",
            "#1 create d/f",
            "#2 write 3 bytes at 0 of d/f",
            "#3 sync d/f",
            "#4 set_len 7 of d/f",
            "#5 rename d/f to g",
            "#6 sync_dir d",
            "#7 write 1 bytes at 0 of old",
            "#8 remove old",
        ]
    );
    assert!(matches!(
        recording.operations()[2],
        Operation::Write { grows: true, .. }
    ));
    assert!(matches!(
        recording.operations()[7],
        Operation::Write { grows: false, .. }
    ));
}

#[test]
fn marks_belong_to_the_point_at_which_they_were_made() {
    let disk = SimDisk::new();
    disk.mark(1);
    create(&disk, "f", b"x");
    disk.mark(2);
    disk.mark(3);
    disk.sync_dir(path("")).unwrap();
    let recording = disk.recording();
    let marks: Vec<_> = (0..=3).map(|point| recording.marks_until(point)).collect();
    assert_eq!(marks, [vec![1], vec![1], vec![1, 2, 3], vec![1, 2, 3]]);
}

#[test]
fn a_recording_and_an_image_do_not_change_with_the_disk() {
    let disk = SimDisk::new();
    let file = create(&disk, "f", b"before");
    let recording = disk.recording();
    let image = disk.after_kill();
    file.write_at(b"AFTER!", 0).unwrap();
    assert_eq!((recording.len(), image.recording().len()), (2, 0));
    assert_eq!(image.read(path("f")).unwrap(), b"before");
    image
        .open(path("f"), OpenMode::ReadWrite)
        .unwrap()
        .write_at(b"image", 0)
        .unwrap();
    assert_eq!(disk.read(path("f")).unwrap(), b"AFTER!");
    // An image is durable; later operations on it are recorded anew.
    assert_eq!(image.after_power_loss().read(path("f")).unwrap(), b"before");
}

#[test]
fn damage_hits_one_file_of_a_copy() {
    let disk = SimDisk::new();
    let bytes: Vec<u8> = (0..1300).map(|i| (i / 512 + 1) as u8).collect();
    create(&disk, "f", &bytes);
    let after = |damage| {
        disk.damaged(path("f"), damage)
            .unwrap()
            .read(path("f"))
            .unwrap()
    };
    let flipped = after(Damage::FlipBit {
        offset: 600,
        bit: 7,
    });
    assert_eq!((flipped[600], flipped[601]), (0x82, 2));
    let zeroed = after(Damage::ZeroSector { sector: 1 });
    assert_eq!(
        (zeroed[511], zeroed[512], zeroed[1023], zeroed[1024]),
        (1, 0, 0, 3)
    );
    let misdirected = after(Damage::Misdirect { from: 0, to: 2 });
    assert_eq!(
        (misdirected.len(), misdirected[1024], misdirected[1299]),
        (1300, 1, 1)
    );
    assert_eq!(after(Damage::Cut { len: 5 }), &bytes[..5]);
    let replaced = disk.replaced(path("f"), b"other").unwrap();
    assert_eq!(replaced.read(path("f")).unwrap(), b"other");
    assert!(disk.replaced(path("absent"), b"").is_err());
    let lost = disk.damaged(path("f"), Damage::Lose).unwrap();
    assert!(lost.paths().is_empty());
    assert_eq!(
        disk.read(path("f")).unwrap(),
        bytes,
        "the disk itself is whole"
    );
    let outside = disk.damaged(path("f"), Damage::ZeroSector { sector: 3 });
    assert_eq!(kind(outside), Some(io::ErrorKind::InvalidInput));
}

#[test]
fn a_killed_process_leaves_what_it_wrote_and_what_it_did_not_sync() {
    let disk = SimDisk::new();
    let file = create(&disk, "f", b"synced");
    file.sync_data().unwrap();
    disk.sync_dir(path("")).unwrap();
    disk.mark(1);
    file.write_at(b"SYNC", 0).unwrap();
    let point = disk.point();
    disk.remove_file(path("f")).unwrap();
    disk.mark(2);

    let next = SimDisk::killed_at(&disk.recording(), point);
    assert_eq!(next.read(path("f")).unwrap(), b"SYNCed");
    assert_eq!(next.recording().marks_until(point), [1]);
    create(&next, "g", b"").sync_data().unwrap();
    let lost = next.after_power_loss();
    assert_eq!(lost.read(path("f")).unwrap(), b"synced");
    assert_eq!(lost.paths(), ["f"]);

    let lock = disk.lock(path("lock")).unwrap();
    assert!(lock.is_some() && disk.lock(path("lock")).unwrap().is_none());
    std::mem::forget(lock);
    disk.kill();
    assert!(disk.lock(path("lock")).unwrap().is_some());
}

#[test]
fn syncs_fail_after_those_that_are_let_through() {
    let disk = SimDisk::new();
    let file = create(&disk, "f", b"x");
    disk.fail_syncs_after(1, 2);
    let results: Vec<bool> = (0..4).map(|_| file.sync_data().is_ok()).collect();
    assert_eq!(results, [true, false, false, true]);
}

/// The simulation let bits rot by writing them. A power loss then tore that write as one of the program, which left a
/// third value in the byte: the damage counted as gone, and a member was started on a table that nothing could read.
#[test]
fn a_bit_that_flips_beside_a_program_is_flipped_after_every_crash() {
    let disk = SimDisk::new();
    let file = create(&disk, "f", b"synced");
    file.sync_data().unwrap();
    disk.sync_dir(path("")).unwrap();
    disk.flip_bit(path("f"), 0, 5).unwrap();
    assert_eq!(disk.read(path("f")).unwrap(), b"Synced");
    for seed in 0..20 {
        let recording = disk.recording();
        let faults = crate::crash::Faults::Random { seed };
        let image = crate::crash::CrashImage::at(&recording, recording.len(), faults);
        assert_eq!(image.build().read(path("f")).unwrap(), b"Synced");
    }

    // A write before it that is lost does not take it along, and one that is flushed does not end it.
    file.write_at(b"s", 0).unwrap();
    disk.flip_bit(path("f"), 0, 0).unwrap();
    assert_eq!(disk.after_kill().read(path("f")).unwrap(), b"rynced");
    assert_eq!(disk.after_power_loss().read(path("f")).unwrap(), b"Rynced");
    file.sync_data().unwrap();
    assert_eq!(disk.after_power_loss().read(path("f")).unwrap(), b"rynced");
    // One after it does.
    file.write_at(b"s", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.after_power_loss().read(path("f")).unwrap(), b"synced");

    assert_eq!(
        kind(disk.flip_bit(path("f"), 6, 0)),
        Some(io::ErrorKind::InvalidInput)
    );
    assert_eq!(
        kind(disk.flip_bit(path("g"), 0, 0)),
        Some(io::ErrorKind::NotFound)
    );
    assert_eq!(
        kind(disk.flip_bit(path(""), 0, 0)),
        Some(io::ErrorKind::IsADirectory)
    );
}
