//! The consistency check of an open database: the checksums of every file, then cross-references: keys
//! and their leases, edges and their blocks, both directions of each edge, blocks and their entries in indexes, quotas and
//! what they count.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bowline_storage::engine::{CheckReport, FileReport, ScanDirection, check_directory};
use bowline_storage::version::{Identity, Layout};
use bowline_storage::vfs::{OsVfs, UninterruptedVfs, Vfs};
use bowline_storage::{EntryKind, TreeId};
use bowline_types::{QuotaUse, Revision};

use crate::handle::Handle;
use crate::snapshot::Snapshot;
use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::csr;
use bowline_core::graph::{self, BlockId};
use bowline_core::index::{Definition, IndexSet, State, block_of_entry};
use bowline_core::kv::{author, order, record};
use bowline_core::lease::decode_grant;
use bowline_core::quota::{self, Quotas};
use bowline_core::state::Core;
use bowline_core::trees;

/// How many problems are listed; further ones are only counted.
const PROBLEMS_MAX: usize = 100;

/// The result of a check.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// db.put("k", "v")?;
/// let check = db.check()?;
/// assert!(check.is_clean(), "{:?}", check.problems);
/// assert_eq!(check.keys, 1);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Check {
    /// The files, each with its verdict.
    pub files: CheckReport,
    /// Descriptions of the inconsistencies, at most a hundred.
    pub problems: Vec<String>,
    /// The number of inconsistencies that are not listed.
    pub more_problems: u64,
    /// The number of keys read.
    pub keys: u64,
    /// The number of blocks read.
    pub blocks: u64,
    /// The number of edges read, each in both directions.
    pub edges: u64,
    /// The revision at which the cross-references were read; `None` when damaged files prevented it.
    pub revision: Option<Revision>,
}

impl Check {
    /// Whether the check found no problem.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// assert!(db.check()?.is_clean());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.files.is_clean() && self.problems.is_empty()
    }

    pub(crate) fn new(files: CheckReport) -> Check {
        Check {
            files,
            problems: Vec::new(),
            more_problems: 0,
            keys: 0,
            blocks: 0,
            edges: 0,
            revision: None,
        }
    }

    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        } else {
            self.more_problems += 1;
        }
    }
}

/// Verifies the files of a database that is not open, also of one that cannot be opened.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// # bowline::Db::open(&path)?.close()?;
/// let report = bowline::check_files(&path)?;
/// assert!(report.is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Storage`] with `NotADatabase` when the directory holds no database. Damage is listed in the
/// result.
pub fn check_files(path: impl AsRef<Path>) -> Result<CheckReport> {
    let vfs: Arc<dyn Vfs> = Arc::new(UninterruptedVfs::new(Arc::new(OsVfs)));
    let mut report = check_directory(&vfs, path.as_ref())?;
    check_view(&*vfs, path.as_ref(), &mut report);
    Ok(report)
}

/// Verifies the saved graph view, if there is one. A directory without a readable identity has its error already.
fn check_view(vfs: &dyn Vfs, directory: &Path, report: &mut CheckReport) {
    let Ok(Some(identity)) = Identity::read(vfs, &Layout::new(directory)) else {
        return;
    };
    let place = csr::Place {
        vfs,
        directory,
        database_id: identity.database_id,
    };
    let (summary, error) = match csr::check(&place) {
        Ok(None) => return,
        Ok(Some(summary)) => (summary, None),
        Err(error) => (String::new(), Some(error)),
    };
    report.files.push(FileReport {
        path: place.path(),
        summary,
        error,
    });
}

pub(crate) fn check_open(handle: &Handle) -> Result<Check> {
    let around = &handle.around;
    let mut files = handle
        .engine
        .while_files_rest(|| check_directory(&around.vfs, &around.path))?;
    check_view(&*around.vfs, &around.path, &mut files);
    let mut check = Check::new(files);
    check_trees(handle, &mut check)?;
    Ok(check)
}

/// Verifies the cross-references at the newest revision.
pub(crate) fn check_trees(handle: &Handle, check: &mut Check) -> Result<()> {
    let snapshot = Snapshot::newest(handle);
    check.revision = Some(snapshot.revision());
    let mut pass = Pass {
        core: handle,
        snapshot: &snapshot,
        check,
    };
    for part in [
        Pass::keys,
        Pass::order,
        Pass::author,
        Pass::attachments,
        Pass::blocks,
        Pass::edges_out,
        Pass::edges_in,
        Pass::quotas,
        Pass::index_entries,
        Pass::indexed_blocks,
    ] {
        match part(&mut pass) {
            Ok(()) => {}
            // Damage ends this part of the check; the other parts still run.
            Err(Error::Storage(error)) if error.is_corruption() => {
                pass.check.problem(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct Pass<'a> {
    core: &'a Core,
    snapshot: &'a Snapshot,
    check: &'a mut Check,
}

impl Pass<'_> {
    fn each(
        &mut self,
        tree: TreeId,
        prefix: &[u8],
        mut visit: impl FnMut(&mut Self, &[u8], u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let upper = trees::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let engine = &self.core.engine;
        let at = self.snapshot.revision();
        let mut scan = engine.scan(tree, lower, upper, at.get(), ScanDirection::Forward);
        while scan.advance()? {
            visit(self, scan.key(), scan.revision(), scan.bytes())?;
        }
        Ok(())
    }

    fn has(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        let engine = &self.core.engine;
        Ok(
            engine.peek_at(tree, key, self.snapshot.revision().get(), |found| {
                found.is_some_and(|found| found.kind == EntryKind::Put)
            })?,
        )
    }

    fn keys(&mut self) -> Result<()> {
        self.each(trees::KV, &[], |pass, key, revision, bytes| {
            pass.check.keys += 1;
            let Some((record::Head { meta, .. }, _)) =
                record::decode(bytes, Revision::new(revision))
            else {
                pass.check
                    .problem(format!("key {}: its record does not decode", show_key(key)));
                return Ok(());
            };
            if let Some(lease) = meta.lease
                && !pass.has(trees::SYSTEM, &trees::attachment_key(lease, key))?
            {
                let key = show_key(key);
                pass.check
                    .problem(format!("key {key}: lease {lease} does not know of it"));
            }
            Ok(())
        })
    }

    /// Checks only the newest record; older ones are read with their history.
    fn order(&mut self) -> Result<()> {
        self.each(
            trees::SYSTEM,
            &trees::order_key(),
            |pass, _, revision, bytes| {
                if order::decode(bytes, Revision::new(revision)).is_none() {
                    let text = format!("the order of revision {revision} does not decode");
                    pass.check.problem(text);
                }
                Ok(())
            },
        )
    }

    /// Checks only the newest record, as [`Pass::order`] does.
    fn author(&mut self) -> Result<()> {
        self.each(
            trees::SYSTEM,
            &trees::author_key(),
            |pass, _, revision, bytes| {
                if author::decode(bytes).is_none() {
                    let text = format!("the author of revision {revision} does not decode");
                    pass.check.problem(text);
                }
                Ok(())
            },
        )
    }

    fn attachments(&mut self) -> Result<()> {
        self.each(
            trees::SYSTEM,
            &trees::attachments_prefix(),
            |pass, key, _, _| {
                let Some((lease, user_key)) = trees::split_attachment(key) else {
                    pass.check
                        .problem(format!("lease record {} does not decode", show_key(key)));
                    return Ok(());
                };
                let entry = pass.snapshot.entry(user_key)?;
                if entry.is_none_or(|entry| entry.lease != Some(lease)) {
                    let key = show_key(user_key);
                    pass.check
                        .problem(format!("lease {lease}: key {key} is not attached to it"));
                }
                if !pass.has(trees::SYSTEM, &trees::lease_key(lease))? {
                    pass.check
                        .problem(format!("lease {lease} has keys but does not exist"));
                }
                Ok(())
            },
        )?;
        self.each(
            trees::SYSTEM,
            &trees::leases_prefix(),
            |pass, key, _, bytes| {
                if decode_grant(bytes).is_none() {
                    pass.check
                        .problem(format!("lease record {} does not decode", show_key(key)));
                }
                Ok(())
            },
        )
    }

    /// Counts the keys of every quota.
    fn quotas(&mut self) -> Result<()> {
        let (engine, at) = (&self.core.engine, self.snapshot.revision());
        let quotas = Quotas::load(engine, at)?;
        if quotas.is_empty() {
            return Ok(());
        }
        let mut counted = vec![QuotaUse::default(); quotas.len()];
        quota::for_each_size(engine, &[], at, |key, value_bytes| {
            quotas.for_each_of(key, |place| {
                if let Some(used) = counted.get_mut(place) {
                    used.keys += 1;
                    used.bytes += key.len() as u64 + value_bytes;
                }
            });
        })?;
        for (quota, counted) in quotas.all().into_iter().zip(counted) {
            let (prefix, used) = (show_key(&quota.prefix), quota.used);
            if used != counted {
                self.check.problem(format!(
                    "the quota of {prefix} counts {} keys and {} bytes, and there are {} and {}",
                    used.keys, used.bytes, counted.keys, counted.bytes
                ));
            }
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<()> {
        self.each(trees::BLOCK, &[], |pass, key, _, bytes| {
            pass.check.blocks += 1;
            let block = graph::decode_block(bytes).filter(|_| key.len() == 16);
            let has_name = |kind| pass.core.kinds.name(kind).is_some();
            let text = match block {
                None => "does not decode",
                Some(block) if !block.kinds.iter().all(has_name) => "has a kind without a name",
                Some(_) => return Ok(()),
            };
            pass.check
                .problem(format!("block {} {text}", show_key(key)));
            Ok(())
        })
    }

    /// Every entry is that of its block, and no two of a unique index have the same values.
    fn index_entries(&mut self) -> Result<()> {
        let set = IndexSet::read(&self.core.engine, self.snapshot.revision().get())?;
        let mut last: Vec<u8> = Vec::new();
        self.each(trees::INDEX, &[], |pass, key, _, _| {
            if key.starts_with(&Definition::PREFIX) {
                return Ok(());
            }
            let id = key.first_chunk().copied().map(u32::from_be_bytes);
            let index = id.and_then(|id| set.get(id));
            let (Some(index), Some(block)) = (index, block_of_entry(key)) else {
                let text = format!("index entry {} is of no index", show_key(key));
                pass.check.problem(text);
                return Ok(());
            };
            if index.state == State::Dropped {
                return Ok(());
            }
            let name = pass.index_name(index);
            if pass.entry(index, block)?.as_deref() != Some(key) {
                let text = format!("index {name}: an entry of block {block} is not of its values");
                pass.check.problem(text);
            }
            if index.is_unique && Definition::values_of(&last) == Definition::values_of(key) {
                let text = format!("index {name}: block {block} has the values of another block");
                pass.check.problem(text);
            }
            key.clone_into(&mut last);
            Ok(())
        })
    }

    /// Every block has its entries in the indexes that are complete.
    fn indexed_blocks(&mut self) -> Result<()> {
        let mut set = IndexSet::read(&self.core.engine, self.snapshot.revision().get())?;
        let is_ready = |index: &Arc<Definition>| matches!(index.state, State::Ready { .. });
        set.kept.retain(is_ready);
        if set.kept.is_empty() {
            return Ok(());
        }
        self.each(trees::BLOCK, &[], |pass, key, _, bytes| {
            for index in &set.kept {
                if let Some(entry) = index.entry(key, bytes)
                    && !pass.has(trees::INDEX, &entry)?
                {
                    let name = pass.index_name(index);
                    let text = format!("index {name}: block {} is missing", show_key(key));
                    pass.check.problem(text);
                }
            }
            Ok(())
        })
    }

    fn index_name(&self, index: &Definition) -> String {
        let kind = self.core.kinds.name(index.kind);
        let kind = kind.map(|kind| kind.to_string()).unwrap_or_default();
        format!("of {kind} by {}", index.attributes.join(", "))
    }

    /// The entry that a block should have.
    fn entry(&self, index: &Definition, block: BlockId) -> Result<Option<Vec<u8>>> {
        let key = graph::block_key(block);
        let at = self.snapshot.revision().get();
        let engine = &self.core.engine;
        Ok(engine.read_at(trees::BLOCK, &key, at, |found| {
            let put = found.as_ref().filter(|found| found.kind == EntryKind::Put);
            put.and_then(|found| index.entry(&key, found.bytes()))
        })?)
    }

    fn edges_out(&mut self) -> Result<()> {
        self.each(trees::EDGE_OUT, &[], |pass, key, _, bytes| {
            pass.check.edges += 1;
            let Some((source, kind, target)) = graph::split_edge_key(key) else {
                pass.check
                    .problem(format!("edge {} does not decode", show_key(key)));
                return Ok(());
            };
            if graph::decode_edge(bytes).is_none() {
                pass.check
                    .problem(format!("edge {source} -> {target} does not decode"));
            }
            if pass.core.kinds.name(kind).is_none() {
                pass.check
                    .problem(format!("edge {source} -> {target}: its kind has no name"));
            }
            if !pass.has(trees::EDGE_IN, &graph::edge_in_key(target, kind, source))? {
                pass.check
                    .problem(format!("edge {source} -> {target} is missing backwards"));
            }
            for id in [source, target] {
                if !pass.has(trees::BLOCK, &graph::block_key(id))? {
                    let text = format!("edge {source} -> {target}: block {id} does not exist");
                    pass.check.problem(text);
                }
            }
            Ok(())
        })
    }

    fn edges_in(&mut self) -> Result<()> {
        self.each(trees::EDGE_IN, &[], |pass, key, _, _| {
            let Some((target, kind, source)) = graph::split_edge_key(key) else {
                pass.check
                    .problem(format!("edge {} does not decode", show_key(key)));
                return Ok(());
            };
            if !pass.has(trees::EDGE_OUT, &graph::edge_out_key(source, kind, target))? {
                pass.check
                    .problem(format!("edge {source} -> {target} is missing forwards"));
            }
            Ok(())
        })
    }
}
