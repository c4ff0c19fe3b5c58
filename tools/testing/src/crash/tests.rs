use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use bowline_storage::vfs::{OpenMode, Vfs, VfsFile};

use super::*;
use crate::Seed;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn create(disk: &SimDisk, name: &str) -> Arc<dyn VfsFile> {
    disk.open(path(name), OpenMode::CreateNew).unwrap()
}

/// The steps of a safe replacement of a file; a test leaves one out.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    SyncFile,
    SyncDir,
    Neither,
}

const OLD: [u8; 1500] = [1; 1500];
const NEW: [u8; 9000] = [2; 9000];

/// Replaces "current" by writing "tmp" and renaming it, without one of the steps.
fn replace_without(disk: &SimDisk, left_out: Step) {
    let file = create(disk, "tmp");
    file.write_at(&NEW[..5000], 0).unwrap();
    file.write_at(&NEW[5000..], 5000).unwrap();
    if left_out != Step::SyncFile {
        file.sync_data().unwrap();
    }
    disk.rename(path("tmp"), path("current")).unwrap();
    if left_out != Step::SyncDir {
        disk.sync_dir(path("")).unwrap();
    }
    disk.mark(1);
}

/// The images with a torn replacement, and those that break a marked promise.
fn broken_images(left_out: Step) -> (Vec<String>, Vec<String>, Coverage) {
    let disk = SimDisk::new();
    disk.put_durable(path("current"), &OLD);
    replace_without(&disk, left_out);
    let (mut torn, mut forgotten) = (Vec::new(), Vec::new());
    let mut images = Images::all(&disk.recording(), 1);
    for image in &mut images {
        let found = image.build().read(path("current")).unwrap();
        if found != OLD && found != NEW {
            torn.push(image.to_string());
        }
        if found == OLD && image.marks() == [1] {
            forgotten.push(image.to_string());
        }
    }
    (torn, forgotten, images.coverage())
}

#[test]
fn write_sync_rename_sync_dir_is_atomic_in_every_image() {
    let (torn, forgotten, coverage) = broken_images(Step::Neither);
    assert!(torn.is_empty(), "{torn:#?}");
    assert!(forgotten.is_empty(), "{forgotten:#?}");
    assert!(coverage.total_tried() > 100, "{coverage}");
    assert_eq!(coverage.total_tried(), coverage.total_existing());
    assert_eq!(coverage.points_tried(), 7);
}

#[test]
fn a_rename_of_an_unsynced_file_is_caught() {
    let (torn, _, _) = broken_images(Step::SyncFile);
    assert!(
        torn.iter().any(|image| image.contains("missing [2]")),
        "{torn:#?}"
    );
    assert!(
        torn.iter().any(|image| image.contains("torn #1")),
        "{torn:#?}"
    );
}

#[test]
fn a_missing_sync_dir_is_caught() {
    let (torn, forgotten, _) = broken_images(Step::SyncDir);
    assert!(torn.is_empty(), "{torn:#?}");
    assert!(!forgotten.is_empty());
}

#[test]
fn a_synced_file_without_a_synced_name_may_be_absent() {
    let disk = SimDisk::new();
    disk.create_dir(path("d")).unwrap();
    disk.sync_dir(path("")).unwrap();
    let file = create(&disk, "d/f");
    file.write_at(b"data", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(path("")).unwrap(); // the wrong directory
    assert_eq!(disk.after_power_loss().paths(), ["d"]);
    disk.sync_dir(path("d")).unwrap();
    assert_eq!(disk.after_power_loss().read(path("d/f")).unwrap(), b"data");
}

#[test]
fn syncing_a_directory_does_not_sync_its_own_name() {
    let disk = SimDisk::new();
    disk.create_dir(path("d")).unwrap();
    create(&disk, "d/f").sync_data().unwrap();
    disk.sync_dir(path("d")).unwrap();
    assert!(disk.after_power_loss().paths().is_empty());
    disk.sync_dir(path("")).unwrap();
    assert_eq!(disk.after_power_loss().paths(), ["d", "d/f"]);
}

#[test]
fn lost_names_leave_the_directory_as_it_was() {
    let disk = SimDisk::new();
    for name in ["a", "b", "removed"] {
        disk.put_durable(path(name), name.as_bytes());
    }
    disk.rename(path("a"), path("b")).unwrap(); // 0
    disk.remove_file(path("removed")).unwrap(); // 1
    create(&disk, "new"); // 2
    disk.rename(path("new"), path("newer")).unwrap(); // 3
    let recording = disk.recording();
    let paths = |faults| CrashImage::at(&recording, 4, faults).build().paths();
    assert_eq!(paths(Faults::AllKept), ["b", "newer"]);
    assert_eq!(paths(Faults::AllLost), ["a", "b", "removed"]);
    assert_eq!(paths(Faults::Missing(vec![0])), ["a", "b", "newer"]);
    assert_eq!(paths(Faults::Missing(vec![1])), ["b", "newer", "removed"]);
    // A rename cannot survive without the creation of its file.
    assert_eq!(paths(Faults::Missing(vec![2])), ["b"]);
    assert_eq!(paths(Faults::Missing(vec![3])), ["b", "new"]);
    let kept = CrashImage::at(&recording, 4, Faults::Only(vec![0])).build();
    assert_eq!(kept.read(path("b")).unwrap(), b"a");
    let lost = CrashImage::at(&recording, 4, Faults::Missing(vec![0])).build();
    assert_eq!(
        (lost.read(path("a")).unwrap(), lost.read(path("b")).unwrap()),
        (b"a".to_vec(), b"b".to_vec())
    );
}

#[test]
fn a_lost_rename_never_lets_a_later_remove_hit_another_file() {
    let disk = SimDisk::new();
    disk.put_durable(path("x"), b"precious");
    disk.rename(path("x"), path("y")).unwrap();
    create(&disk, "x");
    disk.remove_file(path("x")).unwrap();
    for image in Images::all(&disk.recording(), 1) {
        let after = image.build();
        let found = after.read(path("x")).or_else(|_| after.read(path("y")));
        let both_names = after.read(path("y")).or(found);
        assert_eq!(both_names.unwrap(), b"precious", "{image}");
    }
}

#[test]
fn a_rename_between_directories_needs_both_synced() {
    let disk = SimDisk::new();
    disk.create_dir(path("a")).unwrap();
    disk.create_dir(path("b")).unwrap();
    create(&disk, "a/f");
    disk.sync_dir(path("")).unwrap();
    disk.sync_dir(path("a")).unwrap();
    disk.rename(path("a/f"), path("b/f")).unwrap();
    disk.sync_dir(path("b")).unwrap();
    assert_eq!(disk.after_power_loss().paths(), ["a", "a/f", "b"]);
    // A later safe operation waits for it, and does not overtake it.
    create(&disk, "b/g");
    disk.sync_dir(path("b")).unwrap();
    assert_eq!(disk.after_power_loss().paths(), ["a", "a/f", "b", "b/g"]);
    disk.sync_dir(path("a")).unwrap();
    assert_eq!(disk.after_power_loss().paths(), ["a", "b", "b/f", "b/g"]);
}

fn has_garbage(image: &CrashImage) -> bool {
    match image.faults() {
        Faults::Torn { tear, .. } => tear.garbage.is_some(),
        Faults::Neighbours { .. } | Faults::Random { .. } => true,
        _ => false,
    }
}

#[test]
fn garbage_stands_where_a_write_was_torn_and_nowhere_else() {
    let disk = SimDisk::new();
    disk.put_durable(path("f"), &[1; 1500]);
    let file = disk.open(path("f"), OpenMode::ReadWrite).unwrap();
    let mut new = vec![2; 1600];
    new[212..724].fill(1);
    file.write_at(&new, 300).unwrap();
    let is_random = |bytes: &[u8]| bytes.iter().collect::<BTreeSet<_>>().len() > 8;
    let mut seen = BTreeSet::new();
    let images = Images::all(&disk.recording(), 1);
    for image in images.filter(|image| image.id().unwrap().kind == ImageKind::Garbage) {
        let bytes = image.build().read(path("f")).unwrap();
        assert_eq!(bytes.len(), 1900);
        assert!(bytes[..300].iter().all(|byte| *byte == 1));
        // What is written again as it was stays.
        assert!(bytes[512..1024].iter().all(|byte| *byte == 1));
        let sectors = [300..512, 1024..1536, 1536..1900];
        let torn = sectors.map(|sector| {
            let part = &bytes[sector];
            let is_torn = is_random(part);
            assert!(is_torn || part.iter().all(|byte| *byte == 2), "{image}");
            is_torn
        });
        seen.insert(torn);
    }
    assert!(seen.contains(&[true; 3]) && seen.len() > 3, "{seen:?}");

    // The whole sectors, up to the end of the file.
    let faults = Faults::Neighbours {
        operation: 0,
        sector_bytes: 512,
        others_kept: true,
        seed: 3,
    };
    let image = CrashImage::at(&disk.recording(), 1, faults);
    let bytes = image.build().read(path("f")).unwrap();
    assert_eq!(bytes.len(), 1900);
    let mut sectors = bytes.chunks(512);
    assert!(sectors.all(is_random), "{image}");
}

#[test]
fn a_directory_whose_sync_failed_may_lose_its_names_until_the_next() {
    let disk = SimDisk::new();
    disk.fail_directory_syncs_after(1, 1);
    disk.sync_dir(path("")).unwrap();
    create(&disk, "f");
    let failed = disk.sync_dir(path("")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5));
    assert!(disk.after_power_loss().paths().is_empty());
    disk.sync_dir(path("")).unwrap();
    assert_eq!(disk.after_power_loss().paths(), ["f"]);
}

#[test]
fn unsynced_writes_survive_in_any_combination() {
    let disk = SimDisk::new();
    disk.put_durable(path("f"), b"....");
    let file = disk.open(path("f"), OpenMode::ReadWrite).unwrap();
    file.write_at(b"AA", 0).unwrap();
    file.write_at(b"BB", 1).unwrap();
    file.set_len(6).unwrap();
    let found: BTreeSet<Vec<u8>> = Images::all(&disk.recording(), 1)
        .filter(|image| image.point() == 3 && !has_garbage(image))
        .map(|image| image.build().read(path("f")).unwrap())
        .collect();
    let all = [
        &b"...."[..],
        b"....\0\0",
        b".BB.",
        b".BB.\0\0",
        b"AA..",
        b"AA..\0\0",
        b"ABB.",
        b"ABB.\0\0",
    ];
    assert_eq!(found, all.iter().map(|bytes| bytes.to_vec()).collect());
}

#[test]
fn a_write_is_torn_at_sectors_and_nowhere_else() {
    let disk = SimDisk::new();
    disk.put_durable(path("f"), &[1; 5000]);
    let file = disk.open(path("f"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[2; 3000], 300).unwrap();
    let sectors = [
        300..512,
        512..1024,
        1024..1536,
        1536..2048,
        2048..2560,
        2560..3072,
        3072..3300,
    ];
    let mut masks = BTreeSet::new();
    let images = Images::all(&disk.recording(), 1);
    for image in images.filter(|image| image.point() == 1 && !has_garbage(image)) {
        let bytes = image.build().read(path("f")).unwrap();
        assert_eq!(bytes.len(), 5000);
        assert!(
            bytes[..300]
                .iter()
                .chain(&bytes[3300..])
                .all(|byte| *byte == 1)
        );
        let mut mask = 0_u32;
        for (number, sector) in sectors.iter().enumerate() {
            let part = &bytes[sector.clone()];
            assert!(
                part.iter().all(|byte| *byte == part[0]),
                "half a sector: {image}"
            );
            mask |= u32::from(part[0] == 2) << number;
        }
        masks.insert(mask);
    }
    let expected = [0, 1, 3, 7, 15, 31, 63, 127, 126, 124, 120, 112, 96, 64]
        .into_iter()
        .chain([125, 123, 119, 111, 95])
        .chain([0b101_0101, 0b010_1010]);
    assert_eq!(masks, expected.collect());
}

#[test]
fn a_torn_append_may_have_its_length_without_its_bytes() {
    let disk = SimDisk::new();
    disk.put_durable(path("f"), &[1; 512]);
    let file = disk.open(path("f"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[2; 1024], 512).unwrap();
    let found: BTreeSet<Vec<u8>> = Images::all(&disk.recording(), 1)
        .filter(|image| !has_garbage(image))
        .map(|image| image.build().read(path("f")).unwrap())
        .collect();
    let file_of =
        |sectors: &[u8]| -> Vec<u8> { sectors.iter().flat_map(|byte| [*byte; 512]).collect() };
    let expected = [
        &[1][..],
        &[1, 2],
        &[1, 2, 0],
        &[1, 0, 2],
        &[1, 0, 0],
        &[1, 2, 2],
    ];
    assert_eq!(found, expected.map(file_of).into_iter().collect());
}

#[test]
fn tears_at_4096_keep_pages_whole() {
    let disk = SimDisk::new();
    disk.put_durable(path("f"), &[1; 3 * 4096]);
    let file = disk.open(path("f"), OpenMode::ReadWrite).unwrap();
    file.write_at(&[2; 3 * 4096], 0).unwrap();
    let mut images = Images::all(&disk.recording(), 1);
    let mut seen = BTreeSet::new();
    for image in &mut images {
        if let Faults::Torn {
            tear: Tear {
                sector_bytes: 4096, ..
            },
            ..
        } = image.faults()
        {
            let bytes = image.build().read(path("f")).unwrap();
            assert!(
                bytes
                    .chunks(4096)
                    .all(|page| page.iter().all(|byte| *byte == page[0]))
            );
            seen.insert([bytes[0], bytes[4096], bytes[8192]]);
        }
    }
    let expected = [[2, 1, 1], [2, 2, 1], [1, 1, 2], [1, 2, 2], [2, 1, 2]];
    assert_eq!(seen, expected.into_iter().collect());
    assert_eq!(images.coverage().tried(ImageKind::Torn4096), 5);
}

#[test]
fn every_numbered_tear_is_different() {
    for (offset, len, grows) in [
        (0, 1, false),
        (0, 1, true),
        (511, 2, true),
        (100, 9000, false),
        (7, 2048, true),
        (0, 512 * 3, true),
    ] {
        let operation = crate::disk::Operation::Write {
            inode: crate::disk::Inode(1),
            offset,
            data: crate::disk::Payload::Zeros(len),
            grows,
        };
        for sector_bytes in [512, 4096] {
            let count = Tear::count(&operation, sector_bytes);
            let tears: BTreeSet<String> = (0..count)
                .map(|nth| Tear::nth(&operation, sector_bytes, nth).to_string())
                .collect();
            assert_eq!(
                tears.len() as u64,
                count,
                "{offset} {len} {grows} {sector_bytes}"
            );
        }
    }
}

#[test]
fn a_failed_sync_may_lose_its_data_though_a_later_sync_succeeds() {
    let disk = SimDisk::new();
    disk.put_durable(path("f"), b"");
    let file = disk.open(path("f"), OpenMode::ReadWrite).unwrap();
    file.write_at(b"first", 0).unwrap();
    disk.fail_syncs(1);
    assert!(file.sync_data().is_err());
    file.write_at(b"second", 5).unwrap();
    file.sync_data().unwrap();
    assert_eq!(
        disk.after_power_loss().read(path("f")).unwrap(),
        b"\0\0\0\0\0second"
    );
    assert_eq!(disk.after_kill().read(path("f")).unwrap(), b"firstsecond");
    // Writing it again and syncing that makes it safe.
    file.write_at(b"first", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(
        disk.after_power_loss().read(path("f")).unwrap(),
        b"firstsecond"
    );
}

#[test]
fn a_crash_during_recovery_is_recorded_like_any_other() {
    let disk = SimDisk::new();
    create(&disk, "f").write_at(b"torn tail", 0).unwrap();
    let recovered = disk.after_kill();
    let file = recovered.open(path("f"), OpenMode::ReadWrite).unwrap();
    file.set_len(4).unwrap();
    let lengths: BTreeSet<_> = Images::all(&recovered.recording(), 1)
        .map(|image| image.build().read(path("f")).unwrap().len())
        .collect();
    assert_eq!(lengths, [4, 9].into_iter().collect());
}

/// Every path, with its bytes if it is a file.
type State = Vec<(String, Option<Vec<u8>>)>;

/// A random program on a few files, with the live state at each point beside the recording.
fn random_program(seed: Seed, steps: usize) -> (SimDisk, Vec<State>) {
    let disk = SimDisk::new();
    let mut states = vec![contents(&disk)];
    disk.create_dir(path("d")).unwrap();
    states.push(contents(&disk));
    let mut random = seed.rng();
    let mut held: Vec<Arc<dyn VfsFile>> = Vec::new();
    let names = ["a", "b", "c", "d/a", "d/b"];
    while disk.point() < steps {
        let before = disk.point();
        let (name, other) = (random.choice(names).unwrap(), random.choice(names).unwrap());
        match random.u8(0..14) {
            0..3 => held.extend(disk.open(path(name), OpenMode::CreateNew).ok()),
            3 => drop(disk.rename(path(name), path(other))),
            4 => drop(disk.remove_file(path(name))),
            5 => disk.sync_dir(path("")).unwrap(),
            6 => disk.sync_dir(path("d")).unwrap(),
            7 if random.u8(0..4) == 0 => disk.fail_syncs(1),
            choice => {
                let file = random.choice(&held).cloned();
                match (file, choice) {
                    (Some(file), 8) => file.set_len(random.u64(0..9000)).unwrap(),
                    (Some(file), 9..11) => drop(file.sync_data()),
                    (Some(file), _) => {
                        let bytes = vec![random.u8(0..3); random.usize(1..6000)];
                        file.write_at(&bytes, random.u64(0..6000)).unwrap();
                    }
                    (None, _) => {}
                }
            }
        }
        if disk.point() > before {
            states.push(contents(&disk));
        }
    }
    (disk, states)
}

fn contents(disk: &SimDisk) -> State {
    let with_bytes = |name: String| {
        let bytes = disk.read(path(&name)).ok();
        (name, bytes)
    };
    disk.paths().into_iter().map(with_bytes).collect()
}

#[test]
fn images_with_nothing_lost_are_what_the_program_saw_at_each_point() {
    let test = "-p bowline-testing images_with_nothing_lost";
    let seed = Seed::from_env_or(11);
    // One more is new in each run.
    let seeds = (0..20).map(|part| seed.part(part)).chain(Seed::fresh(test));
    for (part, seed) in (0..).zip(seeds) {
        let _guard = seed.print_on_failure(test);
        let (disk, states) = random_program(seed, 120);
        let recording = disk.recording();
        assert_eq!(states.len(), recording.len() + 1);
        for image in Images::sample(&recording, part, 2000) {
            let built = contents(&image.build());
            if *image.faults() == Faults::AllKept {
                assert_eq!(built, states[image.point()], "{image}");
            }
        }
    }
}

/// The state after losing everything unsynced, kept by a copy at each sync. One directory only.
#[test]
fn losing_everything_unsynced_leaves_the_copies_made_at_each_sync() {
    let seed = Seed::from_env_or(15);
    let _guard = seed.print_on_failure("losing_everything_unsynced");
    for part in 0..10 {
        let disk = SimDisk::new();
        let mut random = seed.part(part).rng();
        // File number and handle by name; the same at the last sync_dir; bytes by file number.
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let mut safe_names = names.clone();
        let mut files: Vec<Arc<dyn VfsFile>> = Vec::new();
        let mut safe_bytes: Vec<Vec<u8>> = Vec::new();
        for _ in 0..200 {
            let (name, other) = (
                random.choice(["a", "b", "c"]),
                random.choice(["a", "b", "c"]),
            );
            let (name, other) = (name.unwrap().to_owned(), other.unwrap().to_owned());
            match (random.u8(0..6), names.get(&name).copied()) {
                (0, None) => {
                    names.insert(name.clone(), files.len());
                    files.push(create(&disk, &name));
                    safe_bytes.push(Vec::new());
                }
                (0, Some(_)) => {
                    disk.remove_file(path(&name)).unwrap();
                    names.remove(&name);
                }
                (1, Some(file)) => {
                    disk.rename(path(&name), path(&other)).unwrap();
                    names.remove(&name);
                    names.insert(other, file);
                }
                (2, _) => {
                    disk.sync_dir(path("")).unwrap();
                    safe_names = names.clone();
                }
                (3, Some(file)) => {
                    files[file].sync_data().unwrap();
                    safe_bytes[file] = disk.read(path(&name)).unwrap();
                }
                (4, Some(file)) => files[file].set_len(random.u64(0..6000)).unwrap(),
                (_, Some(file)) => {
                    let bytes = vec![random.u8(0..4); random.usize(1..5000)];
                    files[file].write_at(&bytes, random.u64(0..3000)).unwrap();
                }
                (_, None) => {}
            }
            let expected: State = safe_names
                .iter()
                .map(|(name, file)| (name.clone(), Some(safe_bytes[*file].clone())))
                .collect();
            assert_eq!(contents(&disk.after_power_loss()), expected);
        }
    }
}

#[test]
fn going_forward_gives_the_same_images_as_starting_anew() {
    let seed = Seed::from_env_or(12);
    let _guard = seed.print_on_failure("going_forward");
    let (disk, _) = random_program(seed, 150);
    let recording = disk.recording();
    // Held, so that the iterator must copy its state instead of changing it.
    let images: Vec<_> = Images::sample(&recording, seed.0, 500).collect();
    for image in &images {
        let again = CrashImage::at(&recording, image.point(), image.faults().clone());
        assert_eq!(
            contents(&image.build()),
            contents(&again.build()),
            "{image}"
        );
    }
}

#[test]
fn everything_is_safe_after_everything_is_synced() {
    let seed = Seed::from_env_or(13);
    let _guard = seed.print_on_failure("everything_is_safe");
    for part in 0..20 {
        let disk = SimDisk::new();
        let mut random = seed.part(part).rng();
        let files: Vec<_> = (0..3).map(|i| create(&disk, &format!("f{i}"))).collect();
        for _ in 0..20 {
            let file = random.choice(&files).unwrap();
            file.write_at(&[3; 700], random.u64(0..5000)).unwrap();
        }
        disk.rename(path("f0"), path("f1")).unwrap();
        files.iter().for_each(|file| file.sync_data().unwrap());
        disk.sync_dir(path("")).unwrap();
        assert_eq!(contents(&disk.after_power_loss()), contents(&disk));
        let last = Images::all(&disk.recording(), 1)
            .filter(|i| i.point() == disk.point())
            .count();
        assert_eq!(last, 1, "with nothing pending there is one state");
    }
}

#[test]
fn a_sample_is_repeatable_bounded_and_spread() {
    let (disk, _) = random_program(Seed(14), 200);
    let recording = disk.recording();
    let sample = |seed| -> Vec<String> {
        Images::sample(&recording, seed, 400)
            .map(|image| image.to_string())
            .collect()
    };
    assert_eq!(sample(1), sample(1));
    assert_ne!(sample(1), sample(2));
    let distinct: BTreeSet<_> = sample(1).into_iter().collect();
    assert_eq!(distinct.len(), 400);
    let mut images = Images::sample(&recording, 1, 400);
    images.by_ref().for_each(drop);
    let coverage = images.coverage();
    for kind in ImageKind::ALL {
        // All prefixes, and an even share of the rest.
        let rest = 400 - coverage.existing(ImageKind::Prefix);
        let even = rest / (ImageKind::ALL.len() as u64 - 1);
        let fair = match kind {
            ImageKind::Prefix => coverage.existing(kind),
            _ => coverage.existing(kind).min(even),
        };
        assert!(coverage.tried(kind) >= fair, "{kind:?}: {coverage}");
    }
    assert!(coverage.points_tried() > 100, "{coverage}");
    let few = Images::sample(&recording, 1, u64::MAX / 2).count() as u64;
    assert_eq!(
        few,
        coverage.total_existing(),
        "a sample of everything is everything"
    );
}

#[test]
fn thousands_of_images_of_large_files_are_built_quickly() {
    let disk = SimDisk::new();
    let files: Vec<_> = (0..4).map(|i| create(&disk, &format!("f{i}"))).collect();
    for (number, file) in files.iter().enumerate() {
        file.write_at(&vec![number as u8 + 1; 1 << 20], 0).unwrap();
        file.sync_data().unwrap();
    }
    disk.sync_dir(path("")).unwrap();
    for round in 0..500_u64 {
        let file = &files[round as usize % 4];
        file.write_at(&[9; 2000], (round * 2000) % (1 << 20))
            .unwrap();
        if round % 8 == 7 {
            file.sync_data().unwrap();
        }
    }
    let start = Instant::now();
    let mut images = Images::sample(&disk.recording(), 5, 5000);
    for image in &mut images {
        drop(image.build());
    }
    let elapsed = start.elapsed();
    println!("{elapsed:?} for {}", images.coverage());
    assert_eq!(images.coverage().total_tried(), 5000);
}
