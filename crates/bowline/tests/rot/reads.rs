//! Reads a database in every way and compares each answer with what is known: an answer is right,
//! or it is an error that names the damage.

use std::collections::{BTreeMap, BTreeSet};

use bowline::{BlockId, ChangeKind, Db, Direction, Error, Revision, Snapshot};
use bowline_testing::Model;
use bowline_testing::lease_id;
use bowline_testing::model::{EdgeKey, Entry};

use crate::support::plain_entry;
use crate::victim::Step;

/// The key that is written after the damage.
pub const PROBE: &[u8] = b"probe";

/// Whether an error names the damage; what is wrong with it, if not.
pub type NamesDamage<'a> = &'a dyn Fn(&Error) -> Result<(), String>;

/// What a database must hold.
#[derive(Clone, Copy)]
pub struct Truth<'a> {
    pub model: &'a Model,
    pub step: &'a Step,
    /// The revision at which [`PROBE`] was put, if it was.
    pub probe: Option<Revision>,
    /// The oldest revision that was readable before the damage.
    pub oldest: Revision,
}

impl Truth<'_> {
    fn revision(&self) -> Revision {
        self.probe.unwrap_or(self.step.revision)
    }

    fn probe_entry(&self, at: Revision) -> Option<Entry> {
        let put = self.probe.filter(|put| *put <= at)?;
        Some(Entry {
            value: PROBE.to_vec(),
            create_revision: put,
            mod_revision: put,
            version: 1,
            lease: 0,
        })
    }

    fn entry(&self, key: &[u8], at: Revision) -> Option<Entry> {
        match key == PROBE {
            true => self.probe_entry(at),
            false => self.model.get(key, at.min(self.step.revision)).cloned(),
        }
    }

    fn entries(&self, at: Revision) -> Vec<(Vec<u8>, Entry)> {
        let held = self.model.range(.., at.min(self.step.revision));
        let mut all: Vec<_> = held
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        all.extend(self.probe_entry(at).map(|entry| (PROBE.to_vec(), entry)));
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The changes of a key that are known, oldest first.
    fn history(&self, key: &[u8]) -> Vec<(Revision, Option<Entry>)> {
        if key == PROBE {
            let put = self.probe.into_iter();
            return put.map(|at| (at, self.probe_entry(at))).collect();
        }
        let all = self.model.history(key).iter();
        all.filter(|(at, _)| *at <= self.step.revision)
            .cloned()
            .collect()
    }
}

/// The keys that any victim may hold, and one that none does.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (0..40).map(|at| format!("k{at:02}").into_bytes()).collect();
    keys.extend((0..3).map(|at| format!("k{at}").into_bytes()));
    keys.extend([b"absent".to_vec(), PROBE.to_vec()]);
    keys
}

/// Reads in progress.
pub struct Reader<'a> {
    db: &'a Db,
    truth: Truth<'a>,
    names_damage: NamesDamage<'a>,
    errors: u64,
}

impl<'a> Reader<'a> {
    /// Reads everything; gives the number of reads that ended with an error.
    pub fn read_all(
        db: &'a Db,
        truth: Truth<'a>,
        names_damage: NamesDamage<'a>,
        rng: &mut fastrand::Rng,
    ) -> Result<u64, String> {
        let mut reader = Reader {
            db,
            truth,
            names_damage,
            errors: 0,
        };
        let newest = truth.revision();
        if db.revision() != newest {
            return Err(format!(
                "at revision {}, must be at {newest}",
                db.revision()
            ));
        }
        let oldest = db.oldest_revision();
        if oldest > truth.oldest {
            return Err(format!(
                "reads begin at {oldest}, could begin at {}",
                truth.oldest
            ));
        }
        reader.snapshot(&db.snapshot())?;
        for _ in 0..2 {
            let past = Revision::new(rng.u64(oldest.get()..=newest.get()));
            let snapshot = db
                .snapshot_at(past)
                .map_err(|e| format!("as of {past}: {e}"))?;
            let found = reader.snapshot(&snapshot);
            found.map_err(|why| format!("as of {past}: {why}"))?;
        }
        reader.histories(oldest)?;
        reader.watch(Revision::new(rng.u64(oldest.get() + 1..=newest.get() + 1)))?;
        reader.watch(oldest + 1)?;
        reader.leases()?;
        Ok(reader.errors)
    }

    /// The answer, or nothing after an error of damage.
    fn answer<T>(&mut self, what: &str, result: Result<T, Error>) -> Result<Option<T>, String> {
        match result {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => {
                self.errors += 1;
                (self.names_damage)(&error).map_err(|why| format!("{what}: {error}: {why}"))?;
                Ok(None)
            }
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let at = snapshot.revision();
        for key in keys() {
            let what = format!("get {}", key.escape_ascii());
            let wanted = self.truth.entry(&key, at);
            if let Some(found) = self.answer(&what, snapshot.entry(&key))? {
                same(&what, &found.as_ref().map(plain_entry), &wanted)?;
            }
            if let Some(found) = self.answer(&what, snapshot.get(&key))? {
                let wanted = wanted.map(|entry| entry.value);
                same(&what, &found.as_deref().map(<[u8]>::to_vec), &wanted)?;
            }
        }
        let mut wanted = self.truth.entries(at);
        self.scan("scan", snapshot, false, &wanted)?;
        wanted.reverse();
        self.scan("scan backwards", snapshot, true, &wanted)?;
        self.graph(snapshot)
    }

    /// What a scan gives before its end, or before an error, must be right.
    fn scan(
        &mut self,
        what: &str,
        snapshot: &Snapshot,
        backwards: bool,
        wanted: &[(Vec<u8>, Entry)],
    ) -> Result<(), String> {
        let Some(mut found) = self.answer(what, snapshot.range(..))? else {
            return Ok(());
        };
        let mut wanted = wanted.iter();
        loop {
            let next = match backwards {
                false => found.next(),
                true => found.next_back(),
            };
            let Some(next) = next.transpose().map_or_else(
                |error| self.answer(what, Err(error)),
                |entry| Ok(Some(entry)),
            )?
            else {
                return Ok(());
            };
            let next = next.map(|entry| (entry.key.to_vec(), plain_entry(&entry)));
            same(what, &next.as_ref(), &wanted.next())?;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    fn graph(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let at = snapshot.revision().min(self.truth.step.revision);
        let (graph, wanted) = (snapshot.graph(), self.truth.model.graph(at));
        for id in 1..=crate::support::BLOCKS {
            let what = format!("block {id}");
            if let Some(found) = self.answer(&what, graph.block(BlockId(id)))? {
                let found = found.map(|block| (block.kinds, block.content.to_vec()));
                let wanted = wanted.blocks.get(&id).cloned();
                same(
                    &what,
                    &found,
                    &wanted.map(|block| (block.kinds, block.content)),
                )?;
            }
        }
        let mut blocks = BTreeSet::new();
        let each = graph.for_each_block(|block| {
            blocks.insert(block.id.0);
            Ok(())
        });
        if self.answer("each block", each)?.is_some() {
            same(
                "each block",
                &blocks,
                &wanted.blocks.keys().copied().collect(),
            )?;
        }
        let mut edges = BTreeMap::new();
        let each = graph.for_each_edge(|edge| {
            let text = edge.attributes.get("v").and_then(|value| value.as_text());
            let key = EdgeKey::new(edge.source.0, &edge.kind, edge.target.0);
            edges.insert(key, text.unwrap_or_default().as_bytes().to_vec());
            Ok(())
        });
        if self.answer("each edge", each)?.is_some() {
            same("each edge", &edges, &wanted.edges)?;
        } else if let Some((edge, _)) = edges
            .iter()
            .find(|(edge, text)| wanted.edges.get(edge) != Some(text))
        {
            return Err(format!("each edge: {edge:?} before the error is wrong"));
        }
        for id in wanted.blocks.keys() {
            let what = format!("neighbors of {id}");
            let found = graph.neighbors(BlockId(*id), Direction::Both, [""; 0]);
            let Some(found) = self.answer(&what, found)? else {
                continue;
            };
            let found: BTreeSet<_> = found
                .iter()
                .map(|near| match near.direction {
                    Direction::In => EdgeKey::new(near.id.0, &near.kind, *id),
                    _ => EdgeKey::new(*id, &near.kind, near.id.0),
                })
                .collect();
            let tied = wanted
                .edges
                .keys()
                .filter(|e| e.source == *id || e.target == *id);
            same(&what, &found, &tied.cloned().collect())?;
        }
        Ok(())
    }

    fn histories(&mut self, oldest: Revision) -> Result<(), String> {
        for key in keys() {
            let what = format!("history of {}", key.escape_ascii());
            let Some(found) = self.answer(&what, self.db.history(&key))? else {
                continue;
            };
            let found: Vec<_> = found
                .iter()
                .map(|v| (v.revision, v.entry.as_ref().map(plain_entry)))
                .collect();
            let mut wanted = Vec::new();
            for version in self.truth.history(&key).into_iter().rev() {
                let is_oldest = version.0 <= oldest;
                wanted.push(version);
                if is_oldest {
                    break;
                }
            }
            // That it was deleted before the oldest revision says no more than its absence.
            let ends_with_delete = wanted
                .last()
                .is_some_and(|(at, entry)| *at <= oldest && entry.is_none());
            if found.len() < wanted.len() && ends_with_delete {
                wanted.pop();
            }
            same(&what, &found, &wanted)?;
        }
        Ok(())
    }

    fn watch(&mut self, from: Revision) -> Result<(), String> {
        let what = format!("watch from {from}");
        let mut wanted: BTreeMap<Revision, BTreeMap<Vec<u8>, Option<Entry>>> = BTreeMap::new();
        for key in keys() {
            for (at, entry) in self.truth.history(&key) {
                if at >= from {
                    wanted.entry(at).or_default().insert(key.clone(), entry);
                }
            }
        }
        let started = self.db.watch(..).from(from).start();
        let Some(mut watcher) = self.answer(&what, started)? else {
            return Ok(());
        };
        let mut wanted = wanted.into_iter();
        loop {
            let Some(next) = self.answer(&what, watcher.try_recv())? else {
                return Ok(());
            };
            let next = next.map(|changes| {
                let each = changes.changes.iter().map(|change| {
                    let entry =
                        (change.kind == ChangeKind::Put).then(|| plain_entry(&change.entry));
                    (change.entry.key.to_vec(), entry)
                });
                (changes.revision, each.collect::<BTreeMap<_, _>>())
            });
            let wanted = wanted.next();
            same(&what, &next, &wanted)?;
            if wanted.is_none() {
                return Ok(());
            }
        }
    }

    fn leases(&mut self) -> Result<(), String> {
        let found: BTreeMap<_, _> = self
            .db
            .leases()
            .into_iter()
            .map(|lease| (lease.id.get(), lease.ttl))
            .collect();
        same("leases", &found, &self.truth.step.leases)?;
        for id in self.truth.step.leases.keys() {
            let what = format!("keys of lease {id}");
            if let Some(found) = self.answer(
                &what,
                self.db
                    .lease_keys(lease_id(*id))
                    .and_then(Iterator::collect::<bowline::Result<Vec<_>>>),
            )? {
                let found: BTreeSet<Vec<u8>> = found.iter().map(|key| key.to_vec()).collect();
                let entries = self.truth.entries(self.truth.step.revision);
                let held = entries.into_iter().filter(|(_, entry)| entry.lease == *id);
                same(&what, &found, &held.map(|(key, _)| key).collect())?;
            }
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let short = |value: &T| format!("{value:?}").chars().take(400).collect::<String>();
    Err(format!(
        "WRONG ANSWER, {what}: {}, must be {}",
        short(found),
        short(wanted)
    ))
}
