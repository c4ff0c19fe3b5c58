//! Restore: creation of a new cluster's member directory from a saved copy of a database.
//!
//! Each member of the new cluster restores the same copy with the same members and the same token,
//! independently. So nothing here is random: the ids of the cluster, its members and the database, and the
//! incarnations, are derived from the copy, the token and the members, and differ from those of the copied
//! cluster. The copy's contents count as committed: the mark in the database says that its last entry was
//! applied with term 0, and that the membership is that of the new cluster. A member starts like any other,
//! and the first election begins behind that entry.
//!
//! Invariants:
//!
//! - The members of one restored cluster begin with the same state at the same index, or with different
//!   cluster ids, so that they do not talk to each other.
//! - The membership names the incarnation of each, so that no other directory can be the member, except one that is
//!   restored from the same copy once more: so none votes before it has proved that it may (see `restored`).
//! - Nothing remains of the old cluster's members, votes and alarms.
//! - The file `MEMBER` is durable before the directory is a database.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use bowline::Revision;
use bowline_replica::{FrozenSource, RestoredAs};
use bowline_storage::engine::FrozenContents;

use super::config::NodeConfig;
use super::parents::make_parents;
use super::restored::owed_at_first;
use super::start::{file_id_base, founders, hash, membership};
use crate::error::{Error, Result};
use crate::member_file::{MemberFile, MemberState};
use crate::peer::Acknowledgements;
use crate::raft::state_machine::encode_mark;
use crate::types::{NodeId, StoredMembership, log_id};

/// A saved copy from [`LocalClient::freeze`](super::LocalClient::freeze), read from its present place.
pub struct Saved<'a> {
    /// The path for error messages.
    pub path: &'a Path,
    /// The SHA-256 of the whole copy: different copies make different clusters.
    pub sha256: [u8; 32],
    /// The index of the last log entry in it, from 1.
    pub index: u64,
    /// The newest revision in it.
    pub revision: Revision,
    /// The structure of the tables.
    pub state: &'a [u8],
    /// The tables' names and lengths.
    pub tables: &'a [(String, u64)],
    /// The tables' contents in order.
    pub contents: &'a mut dyn Read,
}

impl std::fmt::Debug for Saved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saved")
            .field("path", &self.path)
            .field("index", &self.index)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The new cluster's id.
    pub cluster_id: u64,
    /// The directory's member.
    pub member_id: NodeId,
    /// The index of the last log entry in it, from 1.
    pub index: u64,
    /// The revision.
    pub revision: Revision,
}

/// The tables listed in a state; `None` for an invalid state.
#[must_use]
pub fn frozen_contents(state: &[u8]) -> Option<FrozenContents> {
    bowline_storage::engine::frozen_contents(state)
}

/// Creates a new cluster's member directory. It uses these settings: the directory, the name, the initial
/// members with this one's URLs, the token and the file system.
///
/// # Errors
/// `Config` for invalid settings; `Storage` when the copy is damaged, the directory is not empty, or the disk
/// fails. No file is left then.
pub fn restore(saved: &mut Saved<'_>, config: &NodeConfig) -> Result<Restored> {
    config.check()?;
    // The ids are derived from the token, so the copy's hash becomes a part of it.
    let mut config = config.clone();
    config.cluster_token.push_str(" restored ");
    for byte in saved.sha256 {
        // Writing to a string does not fail.
        let _ = write!(config.cluster_token, "{byte:02x}");
    }
    let mut founders = founders(&config);
    for (id, member) in &mut founders {
        let parts: [&[u8]; 3] = [
            &id.to_be_bytes(),
            config.cluster_token.as_bytes(),
            b"incarnation",
        ];
        // 0 is none.
        member.incarnation = hash(&parts).max(1);
    }
    let own = founders
        .iter()
        .find(|(_, member)| member.name == config.name);
    let Some((member_id, own)) = own else {
        return Err(Error::Config {
            setting: "initial-cluster",
            reason: "this member's name is not in it".to_owned(),
        });
    };
    let (member_id, incarnation) = (*member_id, own.incarnation);
    let ids: Vec<[u8; 8]> = founders.iter().map(|(id, _)| id.to_be_bytes()).collect();
    let (ids, token) = (ids.concat(), config.cluster_token.as_bytes());
    let cluster_id = hash(&[&ids, token]);
    let high = u128::from(hash(&[&ids, token, b"database"]));
    let database_id = (high << 64) | u128::from(cluster_id);

    let last = saved.index.checked_sub(1).ok_or_else(|| {
        let reason = "nothing had been agreed on when it was saved";
        Error::from(bowline_storage::Error::corrupt(saved.path, 0, reason))
    })?;
    let membership = membership(&founders)?;
    let id = log_id(0, 0, last);
    // Everything up to here is committed, and these are the members from then on.
    let mark = encode_mark(&id, &StoredMembership::new(Some(id), membership.clone()));
    make_parents(&*config.vfs, &config.data_dir)?;
    let mut source = FrozenSource {
        path: saved.path,
        index: saved.index,
        revision: saved.revision,
        state: saved.state,
        tables: saved.tables,
        contents: &mut *saved.contents,
    };
    let restored = RestoredAs {
        database_id,
        file_id_base: file_id_base(member_id),
        mark: &mark,
    };
    let (vfs, dir) = (config.vfs.clone(), &config.data_dir);
    let own_files = || -> Result<()> {
        let state = MemberState {
            cluster_id,
            member_id,
            database_id,
            founders: Some(membership),
            vote: None,
            incarnation,
            // A cluster of one asks nobody.
            owed: (founders.len() > 1).then(owed_at_first),
            remembered: Acknowledgements::new(),
        };
        MemberFile::create(&*config.vfs, dir, state)?;
        Ok(())
    };
    bowline_replica::restore(vfs, dir, &mut source, &restored, own_files)?;
    Ok(Restored {
        cluster_id,
        member_id,
        index: saved.index,
        revision: saved.revision,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline_replica::{Replica, ReplicaOptions};
    use bowline_storage::vfs::{self, MemoryVfs, Vfs};
    use bowline_testing::{Images, SimDisk};

    use super::*;
    use crate::raft::state_machine::decode_mark;

    /// The parts of a saved copy.
    struct Parts {
        index: u64,
        revision: Revision,
        state: Vec<u8>,
        tables: Vec<(String, u64)>,
        contents: Vec<u8>,
    }

    impl Parts {
        fn restore(&self, vfs: Arc<dyn Vfs>) -> Result<Restored> {
            self.restore_as("a", vfs)
        }

        fn restore_as(&self, name: &str, vfs: Arc<dyn Vfs>) -> Result<Restored> {
            let mut config = NodeConfig::new(name, "data");
            config.vfs = vfs;
            let of = |name: &str| (name.to_owned(), format!("http://{name}:2380"));
            config.initial_cluster = vec![of("a"), of("b")];
            let mut saved = Saved {
                path: Path::new("saved"),
                sha256: [7; 32],
                index: self.index,
                revision: self.revision,
                state: &self.state,
                tables: &self.tables,
                contents: &mut &self.contents[..],
            };
            restore(&mut saved, &config)
        }
    }

    fn open(vfs: &Arc<dyn Vfs>, dir: &Path, visit: &mut u64) -> bowline::Result<Replica> {
        let options = ReplicaOptions {
            database_id: 1,
            first_file_id: 1 << 32,
            locked: &mut |_| Ok(()),
            damaged: &mut |_| Ok(false),
            visit: &mut |_, _| {
                *visit += 1;
                Ok(())
            },
        };
        let builder = bowline::Db::builder().vfs(vfs.clone()).create(false);
        Replica::open(builder, dir, options).map(|(replica, _)| replica)
    }

    fn parts() -> Parts {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let dir = Path::new("old");
        let db = bowline::Db::builder()
            .vfs(vfs.clone())
            .blobs(bowline::BlobOptions {
                threshold_bytes: Some(64),
                ..bowline::BlobOptions::default()
            })
            .open(dir)
            .expect("open");
        for number in 0..20_u8 {
            db.put([number % 7], [number; 100]).expect("put");
        }
        db.flush().expect("flush");
        db.close().expect("close");
        let replica = open(&vfs, dir, &mut 0).expect("open");
        let (frozen, _) = replica.freeze().expect("freeze");
        let mut contents = Vec::new();
        for table in &frozen.tables {
            let mut bytes = vec![0; table.file_bytes() as usize];
            vfs::read_exact_at(&**table.file(), dir, &mut bytes, 0).expect("read");
            contents.extend_from_slice(&bytes);
        }
        let tables = frozen.tables.iter();
        Parts {
            index: frozen.index,
            revision: Revision::new(frozen.revision),
            state: frozen.state.clone(),
            tables: tables.map(|t| (t.name(), t.file_bytes())).collect(),
            contents,
        }
    }

    fn disk() -> SimDisk {
        let disk = SimDisk::new();
        disk.sync_dir(Path::new("")).expect("sync");
        disk
    }

    /// After any crash there is a complete member, or nothing that opens.
    #[test]
    fn a_crash_leaves_a_member_or_no_database() {
        let parts = parts();
        let disk = disk();
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        disk.mark(1);
        let restored = parts.restore(vfs).expect("restored");
        disk.mark(2);
        let dir = Path::new("data");
        let (mut whole, mut none) = (0, 0);
        for image in Images::all(&disk.recording(), 11) {
            let is_done = image.marks().contains(&2);
            let crashed: Arc<dyn Vfs> = Arc::new(image.build());
            match open(&crashed, dir, &mut 0) {
                Ok(replica) => {
                    whole += 1;
                    assert_eq!(replica.db().revision(), parts.revision, "{image}");
                    assert!(!replica.applied().mark.is_empty(), "{image}");
                    let member = MemberFile::open(&*crashed, dir).expect("a member");
                    assert_eq!(member.state().member_id, restored.member_id);
                    assert_eq!(member.state().cluster_id, restored.cluster_id);
                }
                Err(error) => {
                    none += 1;
                    assert!(!is_done, "{image}: {error}");
                    let is_damage =
                        matches!(&error, bowline::Error::Storage(e) if e.is_corruption());
                    assert!(!is_damage, "{image}: {error}");
                }
            }
        }
        assert!(whole > 2 && none > 20, "{whole} {none}");
    }

    /// The members of a restored cluster had no incarnations, so that any directory which claimed to be the
    /// member received its messages.
    #[test]
    fn restored_members_agree_on_an_incarnation_of_each() {
        let parts = parts();
        let mut memberships = Vec::new();
        let mut incarnations = Vec::new();
        for name in ["a", "b"] {
            let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
            let restored = parts.restore_as(name, vfs.clone()).expect("restored");
            let dir = Path::new("data");
            let member = MemberFile::open(&*vfs, dir).expect("a member").state();
            let replica = open(&vfs, dir, &mut 0).expect("open");
            let (_, agreed) = decode_mark(&replica.applied().mark).expect("a mark");
            let agreed = agreed.membership().clone();
            let own = agreed.get_node(&restored.member_id).expect("a member");
            assert_ne!(member.incarnation, 0, "{name}");
            assert_eq!(own.incarnation, member.incarnation, "{name}");
            incarnations.push(member.incarnation);
            memberships.push(agreed);
        }
        assert_eq!(memberships[0], memberships[1]);
        assert_ne!(incarnations[0], incarnations[1]);
    }

    /// The member may have the id of one that made some of the tables.
    #[test]
    fn no_number_of_a_table_is_given_twice() {
        let parts = parts();
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::default());
        let mut source = FrozenSource {
            path: Path::new("saved"),
            index: parts.index,
            revision: parts.revision,
            state: &parts.state,
            tables: &parts.tables,
            contents: &mut &parts.contents[..],
        };
        let restored = RestoredAs {
            database_id: 9,
            // As in a database that was not a member's.
            file_id_base: 0,
            mark: b"mark",
        };
        let dir = Path::new("data");
        let done = bowline_replica::restore(vfs.clone(), dir, &mut source, &restored, || {
            Ok::<_, Error>(())
        });
        done.expect("restored");
        let names = vfs.read_dir(&dir.join("tables")).expect("list");
        assert_eq!(names.len(), parts.tables.len() + 1, "{names:?}");
        let replica = open(&vfs, dir, &mut 0).expect("open");
        assert_eq!(replica.applied().mark, b"mark");
        assert_eq!(replica.db().revision(), parts.revision);
        assert_eq!(
            replica.db().get([0]).expect("read").as_deref(),
            Some(&[14; 100][..])
        );
    }

    /// Every file sync fails once: no file stays, and the next attempt succeeds.
    #[test]
    fn a_failing_disk_leaves_no_file() {
        let parts = parts();
        let mut failures = 0;
        for number in 0.. {
            let disk = disk();
            let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
            disk.fail_syncs_after(number, 1);
            let Err(error) = parts.restore(vfs.clone()) else {
                break;
            };
            failures += 1;
            let left = match vfs.metadata(Path::new("data")).expect("stat") {
                None => Vec::new(),
                Some(_) => vfs.read_dir(Path::new("data")).expect("list"),
            };
            let is_empty = left.iter().all(|name| name == "tables");
            assert!(is_empty, "sync {number}: {error}: {left:?}");
            parts.restore(vfs).expect("again");
        }
        assert!(failures >= 5, "{failures}");
    }
}
