//! [`GraphView`]: the edges of the whole graph in memory, for traversals; kept up to date by every commit.
//!
//! The trees are the truth. The view is an index over them in compressed sparse rows: it changes how fast an
//! answer comes, not the answer. It needs about 10 bytes an edge and 30 a block.
//!
//! # Algorithm
//!
//! ```text
//!  commit group ── changes of edges ──► pending ──► State = base + deltas ──► fold: a new base
//!                  (in commit order)    (bounded)   (by a reader, or the       when the deltas have
//!                                                    view's thread)            grown to an eighth
//! ```
//!
//! - *Begin*, in the commit order: from now on each group hands over its changes of edges. The visible revision
//!   of that moment is the base's.
//! - *Build*: scans the trees at that revision.
//! - *Publish*: a group appends its changes to `pending` and then raises `published`.
//! - *Drain*: takes `pending`, makes a new [`State`] that shares what did not change, and raises `applied`.
//!   A reader that is ahead of `applied` drains by itself.
//! - *Save*, in the background after a build and after a fold, and at a clean close: the state is folded into the file
//!   `graph-view`, and the tree of edges holds the revision of the file. *Load*: the file, with what changed since
//!   (`catch_up`), takes the place of a build.
//! - *Fold*: also when the base and the deltas are over the budget. If the new base leaves no space for changes, the
//!   view is discarded, as one over the budget; so is one with more edges or blocks than 32 bits can number.
//! - A snapshot at R is answered when base ≤ R ≤ applied. All else is answered by the trees.
//!
//! # Invariants
//!
//! - Every change of an edge in (base, published] is in the state or pending: collecting begins in the commit
//!   order, and a view that cannot keep a change is discarded.
//! - A state is never changed after it was stored: a reader that holds one needs no lock.
//! - `applied` is raised after the state with these changes was stored. So a reader that loads `applied` first and
//!   then the state finds a state that is as new, or newer. A newer state answers, too, as edges carry the revisions
//!   that have them; one with a newer base does not, and a reader sees that by the base's revision.
//! - `generation` changes under the lock of `pending` whenever the view is discarded. A thread that computed a state
//!   outside of that lock stores it only if the generation has not changed since it began.
//! - A revision is saved only once it is durable: a crash cannot take it back, so the same number never stands for
//!   other edges. So a file of this database with the present revision has the present edges.
//! - A file of an older revision is used only if the manifest records that the tree of edges holds that revision: then
//!   each edge that changed since has a newer version. The file is written while the revision is pinned, and
//!   held before the pin is dropped.

mod build;
mod catch_up;
mod changes;
mod delta;
mod file;
mod flat;
mod ids;
mod many;
mod rows;
mod state;
#[cfg(test)]
mod tests;
mod whole;

use std::sync::Arc;

use bowline_storage::engine::{Engine, SnapshotPin};
use bowline_storage::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use bowline_storage::sync::{ArcSwapOption, Mutex, MutexGuard};

use super::block_cache::BlockCache;
use crate::error::show_key;
use crate::{Error, Result, trees};
use build::Built;
pub use changes::{EdgeChange, GraphChanges};
pub use file::{Place, check, copy, remove};
pub(crate) use state::Part;
pub(crate) use state::PlainKinds;
pub use state::{PlainRows, State};

/// Changes that wait at most; 48 bytes each. A view that is further behind is built anew.
const PENDING_MAX: usize = if cfg!(bowline_shuttle) { 4 } else { 1 << 20 };
/// A base leaves this part of the budget to the changes. With less room each few changes would have all of it folded.
const ROOM_PART: u64 = 64;
/// This part of the budget, beside it, is for what queries have read of blocks.
const BLOCKS_PART: u64 = 4;
/// Rows that the trees are asked for before a view is worth its build.
const WORTH_ROWS: u64 = 4096;

/// Figures of the graph view.
///
/// ```
/// let db = bowline::Db::in_memory()?;
/// db.build_graph_view()?;
/// let view = db.stats().graph_view;
/// assert!(view.is_ready && view.memory_bytes < 1 << 10);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GraphViewStats {
    /// Blocks that it knows: at least those with an edge.
    pub blocks: u64,
    /// Edges of its base.
    pub edges: u64,
    /// Changes since the base.
    pub changes: u64,
    /// How much memory it takes.
    pub memory_bytes: u64,
    /// Blocks whose kinds and attributes are held, as queries have read them.
    pub held_blocks: u64,
    /// About how much memory these take, and the names of their attributes, which stay.
    pub held_bytes: u64,
    /// How often the trees were read to build it.
    pub builds: u64,
    /// How often its changes were folded into a new base.
    pub folds: u64,
    /// Whether it answers.
    pub is_ready: bool,
    /// Whether the graph was too large for the budget.
    pub is_over_budget: bool,
}

/// Changes that are not applied.
#[derive(Debug, Default)]
struct Pending {
    changes: Vec<EdgeChange>,
    generation: u64,
}

/// How the last build ended, and how many there were.
#[derive(Debug, Default)]
struct Work {
    builds: u64,
    folds: u64,
    is_over_budget: bool,
}

/// The view of a database.
#[derive(Debug)]
pub struct GraphView {
    budget_bytes: u64,
    is_collecting: AtomicBool,
    published: AtomicU64,
    /// The newest published revision that put or deleted a block.
    blocks_changed: AtomicU64,
    /// What queries have read of blocks.
    blocks: BlockCache,
    pending: Mutex<Pending>,
    state: ArcSwapOption<State>,
    applied: AtomicU64,
    /// Held by the thread that builds, drains or folds.
    work: Mutex<Work>,
    /// Rows that the trees were asked for.
    tree_rows: AtomicU64,
    /// Whether the edges may be others than those of the file. If it is wrong, the file is written once too often, or
    /// once less, and the next opening catches up.
    is_unsaved: AtomicBool,
    /// Whether the file is worth being written: after a build and after a fold.
    is_save_due: AtomicBool,
    /// Held by the thread that writes the file.
    saving: Mutex<()>,
}

/// A file that leads to the revision of a view that begins.
#[derive(Debug)]
enum Usable {
    /// It has the edges of now.
    Current,
    /// It has those of a revision that the tree of edges holds.
    Held,
}

fn invalid(what: &'static str, key: &[u8], reason: &'static str) -> Error {
    Error::InvalidRecord {
        what,
        key: show_key(key),
        reason,
    }
}

/// Whether a file may be used at revision `now`.
fn usable(engine: &Engine, head: &file::Head, now: u64) -> Option<Usable> {
    if head.revision == now {
        return Some(Usable::Current);
    }
    let held = engine.held_revision(trees::EDGE_OUT);
    (held == Some(head.revision) && head.revision < now).then_some(Usable::Held)
}

/// The permission to build: changes after `revision` are collected.
#[derive(Debug)]
#[must_use]
pub struct Begun {
    pub revision: u64,
    generation: u64,
}

impl GraphView {
    /// A view that may take so much memory; none with 0.
    pub fn new(budget_bytes: u64) -> GraphView {
        GraphView {
            budget_bytes,
            is_collecting: AtomicBool::new(false),
            published: AtomicU64::new(0),
            blocks_changed: AtomicU64::new(0),
            blocks: BlockCache::new(budget_bytes / BLOCKS_PART),
            pending: Mutex::new(Pending::default()),
            state: ArcSwapOption::empty(),
            applied: AtomicU64::new(0),
            work: Mutex::new(Work::default()),
            tree_rows: AtomicU64::new(0),
            is_unsaved: AtomicBool::new(false),
            is_save_due: AtomicBool::new(false),
            saving: Mutex::new(()),
        }
    }

    /// Whether a view may be built at all.
    pub fn is_allowed(&self) -> bool {
        self.budget_bytes > 0
    }

    /// What a base may take.
    fn base_bytes_max(&self) -> u64 {
        self.budget_bytes - self.budget_bytes / ROOM_PART
    }

    /// Whether commits must hand over their changes of edges.
    #[inline]
    pub fn is_collecting(&self) -> bool {
        self.is_collecting.load(Ordering::Acquire)
    }

    /// Whether it answers some revision.
    pub fn is_ready(&self) -> bool {
        self.is_collecting() && self.state.load().is_some()
    }

    /// Takes the changes of the commits up to `revision`, which is visible. Called in the commit order; after
    /// a commit without changes of the graph, too. Returns whether the changes should be drained soon.
    #[inline]
    pub fn publish(&self, revision: u64, changes: &mut GraphChanges) -> bool {
        if !self.is_collecting() {
            changes.clear();
            return false;
        }
        let mut is_due = false;
        let blocks = changes.blocks();
        if !blocks.is_empty() {
            // Before `published`: who reads that finds this, or a later one.
            self.blocks_changed.store(revision, Ordering::Release);
            match blocks.are_more {
                true => self.blocks.all_changed(revision),
                false => blocks
                    .ids
                    .iter()
                    .for_each(|id| self.blocks.changed(*id, revision)),
            }
            changes.clear_blocks();
        }
        if changes.edges() > 0 {
            let mut pending = self.pending.lock();
            if pending.changes.len() + changes.edges() > PENDING_MAX {
                self.forget_locked(&mut pending);
                changes.clear();
                return false;
            }
            changes.move_edges(&mut pending.changes);
            is_due = pending.changes.len() > PENDING_MAX / 16;
        }
        self.published.store(revision, Ordering::Release);
        is_due
    }

    /// Begins to collect changes. Called in the commit order, where `visible` is the newest revision.
    pub fn begin(&self, visible: u64) -> Begun {
        let mut pending = self.pending.lock();
        self.forget_locked(&mut pending);
        self.published.store(visible, Ordering::Release);
        self.blocks.open(visible);
        self.is_collecting.store(true, Ordering::Release);
        Begun {
            revision: visible,
            generation: pending.generation,
        }
    }

    /// Builds the view at the revision of `begun`, which must be pinned. Returns whether it is ready: not
    /// when it was cancelled, is too large, or fell too far behind meanwhile.
    pub fn build(
        &self,
        engine: &Engine,
        begun: &Begun,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let mut work = self.work.lock();
        work.builds += 1;
        let built = build::build(engine, begun.revision, self.base_bytes_max(), is_cancelled);
        let mut pending = self.pending.lock();
        // Queries count anew what they read of the trees, and may want a view again. Not after a build that failed
        // or found the graph too large: each one would read the whole graph for nothing.
        if matches!(built, Ok(Built::Done(_))) {
            self.tree_rows.store(0, Ordering::Relaxed);
        }
        if pending.generation != begun.generation {
            return Ok(false);
        }
        match built {
            Ok(Built::Done(base)) => {
                work.is_over_budget = false;
                self.is_unsaved.store(true, Ordering::Relaxed);
                self.is_save_due.store(true, Ordering::Relaxed);
                let state = State::new(*base, self.budget_bytes);
                self.state.store(Some(Arc::new(state)));
                self.applied.store(begun.revision, Ordering::Release);
                Ok(true)
            }
            Ok(Built::OverBudget) => {
                work.is_over_budget = true;
                self.forget_locked(&mut pending);
                Ok(false)
            }
            Ok(Built::Cancelled) => {
                self.forget_locked(&mut pending);
                Ok(false)
            }
            Err(error) => {
                self.forget_locked(&mut pending);
                Err(error)
            }
        }
    }

    /// Whether the saved view leads to revision `now`, by its head. A file that cannot be read does not. What a save
    /// left that was killed is removed.
    pub fn is_saved(&self, engine: &Engine, place: &Place<'_>, now: u64) -> bool {
        // Unless it is being written right now.
        if let Some(_saving) = self.saving.try_lock()
            && let Err(error) = file::remove_unfinished(place)
        {
            tracing::warn!(%error, "an unfinished save of the graph view cannot be removed");
        }
        match file::open(place) {
            Ok(saved) => saved.is_some_and(|saved| {
                usable(engine, &saved.head, now).is_some()
                    && saved.head.memory_bytes() <= self.base_bytes_max()
            }),
            Err(error) => {
                tracing::warn!(%error, "the saved graph view cannot be used: it is built when it is wanted");
                false
            }
        }
    }

    /// Whether the saved view will be of use: it leads to revision `now`, fits into the budget, and is not so far behind
    /// that a build is as fast.
    pub(crate) fn is_of_use(
        &self,
        engine: &Engine,
        place: &Place<'_>,
        now: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let Some(saved) = file::open(place)? else {
            return Ok(false);
        };
        if saved.head.memory_bytes() > self.base_bytes_max() {
            return Ok(false);
        }
        match usable(engine, &saved.head, now) {
            None => Ok(false),
            Some(Usable::Current) => Ok(true),
            Some(Usable::Held) => catch_up::are_few(engine, saved.head.revision, now, is_cancelled),
        }
    }

    /// Whether the graph did not fit into the budget when it was last looked at.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.work.lock().is_over_budget
    }

    /// Does `work` while nobody writes the file, unless the view answers: then its next save replaces the file.
    pub(crate) fn unless_ready(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let _saving = self.saving.lock();
        match self.is_ready() {
            true => Ok(()),
            false => work(),
        }
    }

    /// Takes the saved view, with what changed since, if that leads to the revision of `begun`. Returns whether it is
    /// ready.
    pub fn load(
        &self,
        engine: &Engine,
        place: &Place<'_>,
        begun: &Begun,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let mut work = self.work.lock();
        let Some(saved) = file::open(place)? else {
            return Ok(false);
        };
        let Some(usable) = usable(engine, &saved.head, begun.revision) else {
            return Ok(false);
        };
        let changes = match usable {
            Usable::Current => Vec::new(),
            Usable::Held => {
                let (from, to) = (saved.head.revision, begun.revision);
                match catch_up::changes(engine, from, to, is_cancelled)? {
                    Some(changes) => changes,
                    None => return Ok(false),
                }
            }
        };
        let has_threads = engine.has_threads();
        let mut base = saved.read(has_threads)?;
        // Nothing is answered between the two revisions.
        base.revision = begun.revision;
        let mut state = State::new(base, self.budget_bytes);
        state.apply_all(&changes, has_threads);
        if state.is_full || state.memory_bytes() > self.budget_bytes {
            return Ok(false);
        }
        let is_unsaved = state.changes() > 0;
        let is_taken = self.take(state, begun);
        if is_taken {
            work.is_over_budget = false;
            self.is_unsaved.store(is_unsaved, Ordering::Relaxed);
            self.tree_rows.store(0, Ordering::Relaxed);
        }
        Ok(is_taken)
    }

    /// Begins to answer from a state of the revision of `begun`, unless the view was forgotten since. The caller holds
    /// `work`.
    fn take(&self, state: State, begun: &Begun) -> bool {
        let pending = self.pending.lock();
        if pending.generation != begun.generation {
            return false;
        }
        self.state.store(Some(Arc::new(state)));
        self.applied.store(begun.revision, Ordering::Release);
        true
    }

    /// Saves the view and gives it up. Nothing is written without a view, or if the file has its edges.
    pub(crate) fn save_and_forget(&self, engine: &Engine, place: &Place<'_>) -> Result<()> {
        let work = self.work.lock();
        // A commit or a merge may still be under way that began before the close.
        let pin = engine.pin_newest();
        self.drain();
        let state = self.at(pin.revision());
        self.forget();
        drop(work);
        match state.filter(|_| self.is_unsaved.load(Ordering::Relaxed)) {
            Some(state) => {
                let _saving = self.saving.lock();
                self.save_state(engine, place, &state, pin.revision())
            }
            None => Ok(()),
        }
    }

    /// Whether the view has grown away from its file so far that [`GraphView::save`] is worth it.
    pub fn is_save_due(&self) -> bool {
        self.is_save_due.load(Ordering::Relaxed)
    }

    /// Whether there is a view with other edges than its file.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.is_ready() && self.is_unsaved.load(Ordering::Relaxed)
    }

    /// Saves the view as of a pinned revision; commits and queries go on. Nothing happens if it does not answer that
    /// revision now: then it is due still.
    pub fn save(&self, engine: &Engine, place: &Place<'_>, pin: &SnapshotPin) -> Result<()> {
        let _saving = self.saving.lock();
        // First: what is applied from now on may not be in the file.
        self.is_unsaved.store(false, Ordering::Relaxed);
        let Some(state) = self.at(pin.revision()) else {
            self.is_unsaved.store(true, Ordering::Relaxed);
            return Ok(());
        };
        self.is_save_due.store(false, Ordering::Relaxed);
        self.save_state(engine, place, &state, pin.revision())
    }

    fn save_state(
        &self,
        engine: &Engine,
        place: &Place<'_>,
        state: &State,
        revision: u64,
    ) -> Result<()> {
        let save = || {
            engine.sync()?;
            match state.changes() == 0 {
                true => file::write(place, revision, &state.base)?,
                false => match state.folded(revision, false) {
                    Some(base) => file::write(place, revision, &base)?,
                    // Too many edges: the next fold gives the view up.
                    None => {
                        self.is_unsaved.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                },
            }
            engine.hold_tree(trees::EDGE_OUT, Some(revision))
        };
        Ok(save().inspect_err(|_| self.is_unsaved.store(true, Ordering::Relaxed))?)
    }

    /// Gives the view up; it may be built anew. For a state that was replaced.
    pub fn forget(&self) {
        self.forget_locked(&mut self.pending.lock());
    }

    fn forget_locked(&self, pending: &mut MutexGuard<'_, Pending>) {
        pending.generation += 1;
        pending.changes = Vec::new();
        self.is_collecting.store(false, Ordering::Release);
        self.blocks.close();
        self.is_save_due.store(false, Ordering::Relaxed);
        self.state.store(None);
    }

    /// The state that answers a revision, if there is one.
    #[inline]
    pub fn at(&self, revision: u64) -> Option<Arc<State>> {
        if !self.is_collecting() {
            return None;
        }
        if self.applied.load(Ordering::Acquire) < revision
            && (self.published.load(Ordering::Acquire) < revision || !self.try_drain())
        {
            return None;
        }
        let state = self.state.load_full()?;
        (state.base.revision <= revision).then_some(state)
    }

    /// What is held of blocks, for one who reads at a revision.
    #[inline]
    pub fn blocks(&self, revision: u64) -> Option<&BlockCache> {
        let is_published = self.published.load(Ordering::Acquire) >= revision;
        (self.is_collecting() && is_published).then_some(&self.blocks)
    }

    /// Whether the blocks of a state's base are those of every revision that the state answers up to now.
    pub fn has_all_blocks(&self, state: &State) -> bool {
        let base = &state.base;
        base.has_all_blocks && self.blocks_changed.load(Ordering::Acquire) <= base.revision
    }

    /// Applies what is pending; `false` when another thread works on the view.
    fn try_drain(&self) -> bool {
        let Some(_work) = self.work.try_lock() else {
            return false;
        };
        self.drain();
        true
    }

    /// Applies what is pending. The caller holds `work`.
    fn drain(&self) {
        let published = self.published.load(Ordering::Acquire);
        let mut pending = self.pending.lock();
        // Under the lock: the state and the changes are of one generation. Without a state the changes wait
        // for the build.
        let Some(state) = self.state.load_full() else {
            return;
        };
        let changes = std::mem::take(&mut pending.changes);
        let generation = pending.generation;
        drop(pending);
        // All changes of a group are appended at once: with the newest of them, all before are here.
        let newest = changes.last().map_or(0, |change| change.revision);
        let state = (!changes.is_empty()).then(|| {
            let mut next = State::clone(&state);
            next.apply_all(&changes, false);
            Arc::new(next)
        });
        let mut pending = self.pending.lock();
        if pending.generation != generation {
            return;
        }
        if state.as_ref().is_some_and(|state| state.is_full) {
            self.forget_locked(&mut pending);
            return;
        }
        if state.is_some() {
            self.is_unsaved.store(true, Ordering::Relaxed);
            self.state.store(state);
        }
        self.applied
            .fetch_max(published.max(newest), Ordering::AcqRel);
    }

    /// Drains, and folds if it is due.
    pub(crate) fn maintain(&self) {
        self.maintain_by(&mut self.work.lock());
    }

    /// Drains, and folds if it is due, unless another thread works on the view.
    pub fn try_maintain(&self) {
        if let Some(mut work) = self.work.try_lock() {
            self.maintain_by(&mut work);
        }
    }

    fn maintain_by(&self, work: &mut Work) {
        self.drain();
        let (generation, state) = {
            let pending = self.pending.lock();
            (pending.generation, self.state.load_full())
        };
        let Some(state) = state.filter(|state| state.is_fold_due()) else {
            return;
        };
        // The state has no change after `applied`, as draining raised it to the newest.
        let revision = self.applied.load(Ordering::Acquire);
        let keeps_blocks = self.has_all_blocks(&state);
        let base = state.folded(revision, keeps_blocks);
        let next = base.map(|base| State::new(base, self.budget_bytes));
        let next = next.filter(|next| next.memory_bytes() <= self.base_bytes_max());
        let mut pending = self.pending.lock();
        if pending.generation != generation {
            return;
        }
        let Some(next) = next else {
            work.is_over_budget = true;
            self.forget_locked(&mut pending);
            return;
        };
        work.folds += 1;
        self.is_save_due.store(true, Ordering::Relaxed);
        self.state.store(Some(Arc::new(next)));
    }

    /// Counts rows that the trees were asked for. Returns whether a view is now worth its build, or, at the first
    /// row, a look at whether one was saved.
    #[inline]
    pub fn note_tree_rows(&self, rows: u64) -> bool {
        let before = self.tree_rows.fetch_add(rows, Ordering::Relaxed);
        let is_due = before == 0 || before < WORTH_ROWS && before + rows >= WORTH_ROWS;
        is_due && self.is_allowed()
    }

    /// Whether the trees were asked for enough rows.
    pub(crate) fn is_worth_a_build(&self) -> bool {
        self.tree_rows.load(Ordering::Relaxed) >= WORTH_ROWS
    }

    /// Counts rows from 0 on, if they were enough for a view and there is one: queries at older revisions read the
    /// trees beside it, and if it is discarded, later ones may want a view again.
    pub(crate) fn count_rows_anew(&self) {
        if self.is_worth_a_build() {
            self.tree_rows.store(0, Ordering::Relaxed);
        }
    }

    /// Figures of the view.
    pub fn status(&self) -> GraphViewStats {
        let state = self.state.load_full();
        let (builds, folds, is_over_budget) = match self.work.try_lock() {
            Some(work) => (work.builds, work.folds, work.is_over_budget),
            None => (0, 0, false),
        };
        let (held_blocks, held_bytes) = self.blocks.size();
        GraphViewStats {
            held_blocks,
            held_bytes,
            blocks: state.as_ref().map_or(0, |state| state.ordinals() as u64),
            edges: state.as_ref().map_or(0, |state| state.edge_count()),
            changes: state.as_ref().map_or(0, |state| state.changes()),
            memory_bytes: state.as_ref().map_or(0, |state| state.memory_bytes()),
            builds,
            folds,
            is_ready: state.is_some(),
            is_over_budget,
        }
    }
}
