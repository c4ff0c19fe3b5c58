//! The file `MEMBER`: the identity of a member's directory (cluster, member, incarnation), the founders if it
//! is one of them, and its vote.
//!
//! A directory without the file is an embedded database's; the file turns it into a member's. It consists of
//! two *slots* of 4096 bytes with the same content, so that no single damaged sector can revoke a vote.
//!
//! ```text
//! magic 8 │ version u32 │ crc32c u32 │ sequence u64 │ cluster u64 │ member u64 │ vote 18 │
//! database 16 │ incarnation u64 │ owed 25 │ length u32 │ founders │ remembered │ zeros
//! vote: present u8 │ term u64 │ node u64 │ committed u8
//! owed: present u8 │ term u64 │ node u64 │ index u64
//! remembered: count u8 │ (member u64 │ term u64 │ node u64 │ index u64) × count
//! ```
//!
//! Version 1 has neither `incarnation` nor `owed`; they read as 0. A directory without an incarnation, from
//! before there were any, is written as version 1 while it owes nothing.
//!
//! `incarnation` is the directory's random number, chosen when the file is created and recorded in the
//! membership. An emptied directory gets another incarnation, which the cluster does not accept as the
//! member. `owed` is an entry that this member acknowledged and lost, as an older copy of a directory does:
//! the member votes only after its log has reached the entry again.
//!
//! `founders` is a membership encoded as in a record of the log; with length 0 the member joined a cluster,
//! and learns the membership from the others. The founders recorded at the creation of the directory stay in
//! force: other settings at a later start could make one member found a cluster of its own.
//!
//! `remembered` is what other members, and this one, have acknowledged to leaders: for an election in which one of them has
//! an older directory (`node::memory`). As many as there is room for. Programs from before it read zeros
//! there, or do not look, and write zeros: it is forgotten then.
//!
//! Integers are little-endian; the checksum covers all other bytes of the slot. A change writes slot A and
//! syncs, then slot B and syncs. Of two valid slots the one with the higher sequence counts. Opening writes
//! both again before the vote is used: they may be in the page cache only, from a process that was killed
//! before its sync or whose sync failed.
//!
//! Invariants: a vote is answered only when both slots hold it durably, hence it survives the loss of either;
//! after a failed write nothing is promised any more; two damaged slots are an error, because a member that
//! has forgotten its vote must not vote.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_storage::codec::Reader;
use bowline_storage::vfs::{self, OpenMode, Vfs, VfsFile};
use bowline_storage::{Error, Result};
use parking_lot::{Mutex, RwLock};

use crate::peer::Acknowledgements;
use crate::record;
use crate::types::{LeaderId, LogId, Membership, NodeId, Vote, log_id};

/// The name of the file in the data directory.
pub(crate) const MEMBER_FILE: &str = "MEMBER";
/// The temporary name during creation.
const NEW_NAME: &str = "MEMBER.new";
const MAGIC: &[u8; 8] = b"bowlmemb";
/// The version without an incarnation.
const VERSION_PLAIN: u32 = 1;
const VERSION: u32 = 2;
const SLOT_BYTES: usize = 4096;
const CRC_RANGE: Range<usize> = 12..16;
const VOTE_END: usize = 58;
/// The most bytes of the encoded founders: the remainder of a slot.
pub(crate) const FOUNDERS_BYTES_MAX: usize = SLOT_BYTES - 111;
/// The bytes of what is remembered of one member.
const REMEMBERED_BYTES: usize = 32;
const FOUNDERS_BYTES_MAX_PLAIN: usize = SLOT_BYTES - 78;

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberState {
    /// The directory's cluster.
    pub cluster_id: u64,
    /// The directory's member.
    pub member_id: NodeId,
    /// The id of the database, which all members of the cluster share.
    pub database_id: u128,
    /// The founding membership, if this member is a founder.
    pub founders: Option<Membership>,
    /// The last vote.
    pub vote: Option<Vote>,
    /// The directory's incarnation; 0 from before there were incarnations.
    pub incarnation: u64,
    /// An entry that this member acknowledged and lost.
    pub owed: Option<LogId>,
    /// What members have acknowledged to leaders, as far as this one was told.
    pub remembered: Acknowledgements,
}

impl MemberState {
    /// A joining member: no vote, no founders, and no database yet.
    #[must_use]
    pub fn new(cluster_id: u64, member_id: NodeId) -> MemberState {
        MemberState {
            cluster_id,
            member_id,
            database_id: 0,
            founders: None,
            vote: None,
            incarnation: 0,
            owed: None,
            remembered: Acknowledgements::new(),
        }
    }
}

/// The open file. One thread saves at a time; the others wait.
pub struct MemberFile {
    path: PathBuf,
    state: RwLock<MemberState>,
    writer: Mutex<Writer>,
}

struct Writer {
    file: Arc<dyn VfsFile>,
    sequence: u64,
    failure: Option<Arc<str>>,
}

impl fmt::Debug for MemberFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberFile")
            .field("path", &self.path)
            .field("state", &*self.state.read())
            .finish_non_exhaustive()
    }
}

impl MemberFile {
    /// Whether `dir` is a member's directory.
    pub fn exists(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
        let path = dir.join(MEMBER_FILE);
        let found = vfs.metadata(&path);
        found
            .map(|found| found.is_some())
            .map_err(|error| Error::io("stat", &path, error))
    }

    /// Reads the file in `dir` without a change to it, so the directory's lock is not needed. `None` when
    /// there is no such file.
    ///
    /// # Errors
    /// As [`MemberFile::open`].
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<MemberState>> {
        if !MemberFile::exists(vfs, dir)? {
            return Ok(None);
        }
        let path = dir.join(MEMBER_FILE);
        let file = vfs
            .open(&path, OpenMode::Read)
            .map_err(|error| Error::io("open", &path, error))?;
        read_newest(&*file, &path).map(|(_, state, _)| Some(state))
    }

    /// Turns `dir` into a member's directory, durably. The caller must hold the directory's lock.
    ///
    /// # Errors
    /// `Io`; `Internal` for founders of more than `FOUNDERS_BYTES_MAX` bytes.
    pub fn create(vfs: &dyn Vfs, dir: &Path, state: MemberState) -> Result<MemberFile> {
        if MemberFile::exists(vfs, dir)? {
            let path = dir.join(MEMBER_FILE);
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::io("create", &path, error));
        }
        let new_path = dir.join(NEW_NAME);
        match vfs.remove_file(&new_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &new_path, error));
            }
            _ => {}
        }
        let slot = encode(1, &state)?;
        let file = vfs
            .open(&new_path, OpenMode::CreateNew)
            .map_err(|error| Error::io("create", &new_path, error))?;
        vfs::write_all_at(&*file, &new_path, &[slot.clone(), slot].concat(), 0)?;
        vfs::sync_data(&*file, &new_path)?;
        let path = dir.join(MEMBER_FILE);
        vfs.rename(&new_path, &path)
            .map_err(|error| Error::io("rename", &path, error))?;
        vfs::sync_parent(vfs, &path)?;
        Ok(MemberFile::new(path, file, 1, state))
    }

    /// Opens the file in `dir`. Damage of one slot is repaired, damage of both is an error. The caller must
    /// hold the directory's lock: both slots are rewritten.
    pub fn open(vfs: &dyn Vfs, dir: &Path) -> Result<MemberFile> {
        let path = dir.join(MEMBER_FILE);
        let file = vfs
            .open(&path, OpenMode::ReadWrite)
            .map_err(|error| Error::io("open", &path, error))?;
        let (sequence, state, newest) = read_newest(&*file, &path)?;
        // The process that created the name may have died before its sync.
        vfs::sync_parent(vfs, &path)?;
        // The other slot first: the valid one stays intact until there is a second.
        let bytes = encode(sequence, &state)?;
        for slot in [1 - newest, newest] {
            write_slot(&*file, &path, slot, &bytes)?;
        }
        Ok(MemberFile::new(path, file, sequence, state))
    }

    fn new(path: PathBuf, file: Arc<dyn VfsFile>, sequence: u64, state: MemberState) -> MemberFile {
        let writer = Writer {
            file,
            sequence,
            failure: None,
        };
        MemberFile {
            path,
            state: RwLock::new(state),
            writer: Mutex::new(writer),
        }
    }

    /// The contents, from memory.
    #[must_use]
    pub fn state(&self) -> MemberState {
        self.state.read().clone()
    }

    /// The last vote, from memory.
    #[must_use]
    pub(crate) fn read_vote(&self) -> Option<Vote> {
        self.state.read().vote
    }

    /// Saves a vote; both copies are durable when this returns.
    pub fn save_vote(&self, vote: &Vote) -> Result<()> {
        self.save(|state| state.vote = Some(*vote))
    }

    /// The owed entry, from memory.
    #[must_use]
    pub(crate) fn read_owed(&self) -> Option<LogId> {
        self.state.read().owed
    }

    /// Saves `last` as owed; durable when this returns. Returns whether it was new.
    pub(crate) fn add_owed(&self, last: LogId) -> Result<bool> {
        let mut is_news = false;
        self.save(|state| {
            is_news = state.owed < Some(last);
            state.owed = state.owed.max(Some(last));
        })?;
        Ok(is_news)
    }

    /// Saves what an owed entry is at most.
    pub(crate) fn bound_owed(&self, owed: LogId, at_most: LogId) -> Result<()> {
        self.save(|state| {
            if state.owed == Some(owed) {
                state.owed = Some(at_most);
            }
        })
    }

    /// Saves that the log has reached `last` again.
    pub(crate) fn settle_owed(&self, last: LogId) -> Result<()> {
        self.save(|state| state.owed = state.owed.filter(|owed| *owed > last))
    }

    /// The last entry that a member is known to have acknowledged, from memory.
    pub(crate) fn read_remembered(&self, member: NodeId) -> Option<LogId> {
        self.state.read().remembered.get(&member).copied()
    }

    /// Saves what members have acknowledged, of those that `is_member` holds for; durable when this returns.
    pub(crate) fn remember(
        &self,
        all: &Acknowledgements,
        is_member: impl Fn(NodeId) -> bool,
    ) -> Result<()> {
        let merged = || {
            let mut merged = self.state.read().remembered.clone();
            for (member, last) in all {
                let known = merged.entry(*member).or_insert(*last);
                *known = (*known).max(*last);
            }
            merged.retain(|member, _| is_member(*member));
            merged
        };
        if merged() == self.state.read().remembered {
            return Ok(());
        }
        self.save(|state| state.remembered = merged())
    }

    /// Reads both copies back from the disk, and writes them anew if one is damaged. Gives the damage.
    pub(crate) fn mend(&self) -> Result<Option<Error>> {
        let damage = {
            let writer = self.writer.lock();
            let expected = (writer.sequence, self.state());
            let wrong = || Error::corrupt(&self.path, 0, "a copy of the vote is not the last one");
            let read_back = |slot| match read_slot(&*writer.file, &self.path, slot) {
                Ok(found)
                    if encode(found.0, &found.1).ok() == encode(expected.0, &expected.1).ok() =>
                {
                    Ok(())
                }
                Ok(_) => Err(wrong()),
                Err(error) => Err(error),
            };
            match [0, 1].map(read_back) {
                [Ok(()), Ok(())] => None,
                [Err(error @ Error::Io { .. }), _] | [_, Err(error @ Error::Io { .. })] => {
                    return Err(error);
                }
                [Err(damage), _] | [_, Err(damage)] => Some(damage),
            }
        };
        if damage.is_some() {
            self.save(|_| {})?;
        }
        Ok(damage)
    }

    fn save(&self, change: impl FnOnce(&mut MemberState)) -> Result<()> {
        let mut writer = self.writer.lock();
        if let Some(reason) = &writer.failure {
            let reason = reason.clone();
            return Err(Error::Poisoned { reason });
        }
        let mut state = self.state();
        change(&mut state);
        let sequence = writer.sequence + 1;
        let slot = encode(sequence, &state)?;
        for position in [0, 1] {
            if let Err(error) = write_slot(&*writer.file, &self.path, position, &slot) {
                writer.failure = Some(error.to_string().into());
                return Err(error);
            }
        }
        writer.sequence = sequence;
        *self.state.write() = state;
        Ok(())
    }
}

fn write_slot(file: &dyn VfsFile, path: &Path, slot: usize, bytes: &[u8]) -> Result<()> {
    vfs::write_all_at(file, path, bytes, (slot * SLOT_BYTES) as u64)?;
    vfs::sync_data(file, path)
}

fn crc(slot: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&slot[..CRC_RANGE.start]);
    crc32c::crc32c_append(crc, &slot[CRC_RANGE.end..])
}

fn encode(sequence: u64, state: &MemberState) -> Result<Vec<u8>> {
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    slot.extend_from_slice(MAGIC);
    let is_plain = state.incarnation == 0 && state.owed.is_none() && state.remembered.is_empty();
    let (version, founders_max) = match is_plain {
        true => (VERSION_PLAIN, FOUNDERS_BYTES_MAX_PLAIN),
        false => (VERSION, FOUNDERS_BYTES_MAX),
    };
    slot.extend_from_slice(&version.to_le_bytes());
    slot.extend_from_slice(&[0; 4]);
    for number in [sequence, state.cluster_id, state.member_id] {
        slot.extend_from_slice(&number.to_le_bytes());
    }
    if let Some(vote) = &state.vote {
        slot.push(1);
        slot.extend_from_slice(&vote.leader_id.term.to_le_bytes());
        slot.extend_from_slice(&vote.leader_id.node_id.to_le_bytes());
        slot.push(u8::from(vote.committed));
    }
    slot.resize(VOTE_END, 0);
    slot.extend_from_slice(&state.database_id.to_le_bytes());
    if !is_plain {
        slot.extend_from_slice(&state.incarnation.to_le_bytes());
        slot.push(u8::from(state.owed.is_some()));
        let owed = state.owed.unwrap_or(log_id(0, 0, 0));
        let leader = owed.leader_id;
        for number in [leader.term, leader.node_id, owed.index] {
            slot.extend_from_slice(&number.to_le_bytes());
        }
    }
    let founders = state.founders.as_ref().map_or_else(Vec::new, |founders| {
        let mut out = Vec::new();
        record::encode_membership(founders, &mut out);
        out
    });
    if founders.len() > founders_max {
        let reason = format!("founders of {} bytes", founders.len());
        return Err(Error::Internal(reason));
    }
    slot.extend_from_slice(&(founders.len() as u32).to_le_bytes());
    slot.extend_from_slice(&founders);
    let room = (SLOT_BYTES - slot.len()).saturating_sub(1) / REMEMBERED_BYTES;
    let kept = state.remembered.len().min(room).min(usize::from(u8::MAX));
    if kept > 0 {
        slot.push(kept as u8);
        for (member, last) in state.remembered.iter().take(kept) {
            let leader = last.leader_id;
            for number in [*member, leader.term, leader.node_id, last.index] {
                slot.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    slot.resize(SLOT_BYTES, 0);
    let crc = crc(&slot);
    slot[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
    Ok(slot)
}

/// The valid slot with the highest sequence: its sequence, its contents, and its number.
fn read_newest(file: &dyn VfsFile, path: &Path) -> Result<(u64, MemberState, usize)> {
    let slots = [0, 1].map(|slot| read_slot(file, path, slot));
    let [a, b] = slots;
    // Slot A is written first, so it is the newer one, or both are equal.
    match (a, b) {
        (Ok(a), Ok(b)) if b.0 > a.0 => Ok((b.0, b.1, 1)),
        (Ok(a), _) => Ok((a.0, a.1, 0)),
        (Err(error), Ok(b)) => {
            tracing::warn!(%error, "one copy of the member's vote is damaged; it is mended");
            Ok((b.0, b.1, 1))
        }
        // A newer format and a read error are not damage.
        (Err(error @ (Error::NewerFormat { .. } | Error::Io { .. })), Err(_)) => Err(error),
        (Err(a), Err(b)) => {
            let reason = format!(
                "neither copy of the member's vote can be read ({a}; {b}): a member that has \
                 forgotten its vote must not vote; remove it from the cluster and add it anew"
            );
            Err(Error::corrupt(path, 0, reason))
        }
    }
}

fn read_slot(file: &dyn VfsFile, path: &Path, slot: usize) -> Result<(u64, MemberState)> {
    let offset = (slot * SLOT_BYTES) as u64;
    let mut bytes = vec![0; SLOT_BYTES];
    vfs::read_exact_at(file, path, &mut bytes, offset)?;
    decode(path, offset, &bytes)
}

/// Reads the slot at `offset` of `path`.
fn decode(path: &Path, offset: u64, slot: &[u8]) -> Result<(u64, MemberState)> {
    let corrupt = |at: u64, reason: &str| Error::corrupt(path, offset + at, reason);
    let short = || corrupt(0, "a slot shorter than it must be");
    let mut reader = Reader::new(slot);
    if slot.len() != SLOT_BYTES {
        return Err(short());
    }
    if reader.take(MAGIC.len()) != Some(&MAGIC[..]) {
        return Err(corrupt(0, "not a member's file: wrong magic"));
    }
    let version = reader.u32().ok_or_else(short)?;
    if reader.u32().ok_or_else(short)? != crc(slot) {
        return Err(corrupt(12, "the checksum of the slot does not match"));
    }
    if version > VERSION {
        return Err(Error::NewerFormat {
            path: path.to_owned(),
            found: version,
            supported: VERSION,
        });
    }
    let mut number = || reader.u64().ok_or_else(short);
    let (sequence, cluster_id, member_id) = (number()?, number()?, number()?);
    let has_vote = reader.u8().ok_or_else(short)?;
    let term = reader.u64().ok_or_else(short)?;
    let node_id = reader.u64().ok_or_else(short)?;
    let committed = reader.u8().ok_or_else(short)?;
    let vote = match (has_vote, committed) {
        (0, _) => None,
        (1, 0 | 1) => Some(Vote {
            leader_id: LeaderId { term, node_id },
            committed: committed == 1,
        }),
        _ => return Err(corrupt(40, "the slot contradicts itself")),
    };
    if version == 0 || sequence == 0 || sequence == u64::MAX {
        return Err(corrupt(8, "the slot contradicts itself"));
    }
    let database_id = reader.take(16).and_then(|bytes| bytes.try_into().ok());
    let database_id = u128::from_le_bytes(database_id.ok_or_else(short)?);
    let (mut incarnation, mut owed) = (0, None);
    if version > VERSION_PLAIN {
        let mut number = || reader.u64().ok_or_else(short);
        incarnation = number()?;
        let has_owed = reader.u8().ok_or_else(short)?;
        let mut number = || reader.u64().ok_or_else(short);
        let (term, node_id, index) = (number()?, number()?, number()?);
        owed = match has_owed {
            0 => None,
            1 => Some(log_id(term, node_id, index)),
            _ => return Err(corrupt(82, "the slot contradicts itself")),
        };
    }
    let founders_bytes = reader.u32().ok_or_else(short)? as usize;
    let founders = match founders_bytes {
        0 => None,
        _ => {
            let bytes = reader.take(founders_bytes);
            let bytes =
                bytes.ok_or_else(|| corrupt(74, "the founders are longer than the slot"))?;
            let founders = record::decode_membership(bytes);
            Some(founders.map_err(|error| corrupt(74, &error.to_string()))?)
        }
    };
    let mut remembered = Acknowledgements::new();
    if version > VERSION_PLAIN {
        // Founders may take all of the slot.
        for _ in 0..reader.u8().unwrap_or(0) {
            let mut number = || reader.u64().ok_or_else(short);
            let (member, term, node_id, index) = (number()?, number()?, number()?, number()?);
            remembered.insert(member, log_id(term, node_id, index));
        }
    }
    let state = MemberState {
        cluster_id,
        member_id,
        database_id,
        founders,
        vote,
        incarnation,
        owed,
        remembered,
    };
    Ok((sequence, state))
}

/// Decodes a slot from its first bytes, after correcting the checksum.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_slot(data: &[u8]) {
    let path = Path::new("MEMBER");
    assert!(
        decode(path, 0, data).is_err() || data.len() == SLOT_BYTES,
        "a slot of another length"
    );
    let mut slot = data.to_vec();
    slot.resize(SLOT_BYTES, 0);
    let crc = crc(&slot);
    slot[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
    if let Ok((sequence, state)) = decode(path, 0, &slot) {
        let again = encode(sequence, &state).expect("it fitted before");
        assert_eq!(decode(path, 0, &again).ok(), Some((sequence, state)));
    }
}

/// The first bytes of a slot.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_seed() -> Vec<u8> {
    let state = MemberState {
        cluster_id: 1 << 40,
        member_id: 300,
        database_id: 1 << 100,
        founders: Some(record::sample_membership()),
        vote: Some(Vote {
            leader_id: LeaderId {
                term: 7,
                node_id: 300,
            },
            committed: true,
        }),
        incarnation: 1 << 50,
        owed: Some(log_id(6, 200, 77)),
        remembered: [(300, log_id(6, 200, 70)), (9, log_id(5, 9, 66))].into(),
    };
    let mut slot = encode(9, &state).expect("it fits");
    let used = slot.iter().rposition(|byte| *byte != 0);
    slot.truncate(used.map_or(0, |last| last + 1));
    slot
}

#[cfg(test)]
mod tests;
