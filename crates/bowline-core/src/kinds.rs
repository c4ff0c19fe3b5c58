//! The registry of block and edge kinds: names and the numbers that are stored for them.
//!
//! The first write that uses a name registers it, in a separate commit without a revision. Kinds are never
//! removed, so a number always means the same name.

use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::engine::{Engine, ScanDirection};
use bowline_storage::sync::{ArcSwap, Mutex};
use smallvec::SmallVec;

use crate::error::{Error, Result, show_key};
use crate::graph::{KindFilter, KindId, KindIds};
use crate::trees;

const NAME_MAX_BYTES: usize = 256;

/// Kinds are few, and each read of a block or an edge looks one up: a search is cheaper than a hash.
#[derive(Debug, Default, Clone)]
struct Names {
    /// Ascending by name.
    by_name: Vec<(Arc<str>, KindId)>,
    /// Ascending by number. Numbers are assigned from 1 without gaps.
    by_id: Vec<(KindId, Arc<str>)>,
}

/// The registry.
#[derive(Debug, Default)]
pub struct Kinds {
    names: ArcSwap<Names>,
    /// Held while a kind is registered.
    pub registering: Mutex<()>,
}

/// The names of kinds at one moment.
#[derive(Debug, Clone)]
pub struct KindNames(Arc<Names>);

impl KindNames {
    /// The name of a kind.
    #[inline]
    pub fn name(&self, id: KindId) -> Option<&Arc<str>> {
        self.0.name(id)
    }

    /// Whether every number from 1 to `max` has a name.
    #[inline]
    pub fn have_all_to(&self, max: KindId) -> bool {
        self.0.have_all_to(max)
    }
}

pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES {
        let shown = name.chars().take(64).collect();
        return Err(Error::InvalidKind { name: shown });
    }
    Ok(())
}

impl Kinds {
    pub fn load(engine: &Engine) -> Result<Kinds> {
        let prefix = trees::kinds_prefix();
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let at = engine.visible();
        let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
        let mut names = Names::default();
        while scan.advance()? {
            let invalid = |reason| Error::InvalidRecord {
                what: "kind",
                key: show_key(scan.key()),
                reason,
            };
            let id = scan.key()[1..].try_into().map(u32::from_be_bytes);
            let id = KindId(id.map_err(|_| invalid("its key is not 5 bytes"))?);
            if !(1..u32::MAX).contains(&id.0) {
                return Err(invalid("its number is none that is given"));
            }
            let name = std::str::from_utf8(scan.bytes()).map_err(|_| invalid("it is not text"))?;
            names.insert(id, name);
        }
        Ok(Kinds {
            names: ArcSwap::from_pointee(names),
            registering: Mutex::new(()),
        })
    }

    /// Reads the kinds again after the state was replaced.
    pub fn reload(&self, engine: &Engine) -> Result<()> {
        let read = Kinds::load(engine)?;
        self.names.store(read.names.load_full());
        Ok(())
    }

    pub fn id(&self, name: &str) -> Option<KindId> {
        self.names.load().id(name)
    }

    /// All names of this moment. Names are never removed.
    pub fn names(&self) -> KindNames {
        KindNames(self.names.load_full())
    }

    pub fn name(&self, id: KindId) -> Option<Arc<str>> {
        self.names.load().name(id).cloned()
    }

    /// Calls `read` with the borrowed names of a block's kinds, ascending. Fails with a number that has none.
    #[inline]
    pub fn with_names<R>(
        &self,
        ids: KindIds<'_>,
        read: impl FnOnce(&[&str]) -> R,
    ) -> Result<R, KindId> {
        let names = self.names.load();
        match ids.only() {
            Some(id) => Ok(read(&[names.name(id).ok_or(id)?])),
            None => Ok(read(&names.sorted(ids)?)),
        }
    }

    /// The number after the largest in use.
    pub fn next_id(&self) -> KindId {
        let names = self.names.load();
        let last = names.by_id.last();
        last.map_or(KindId(1), |(id, _)| KindId(id.0 + 1))
    }

    pub fn insert(&self, id: KindId, name: &str) {
        let mut names = Names::clone(&self.names.load());
        names.insert(id, name);
        self.names.store(Arc::new(names));
    }

    /// Every name, sorted.
    pub fn all(&self) -> Vec<String> {
        let names = self.names.load();
        let all = names.by_name.iter();
        all.map(|(name, _)| name.to_string()).collect()
    }

    /// A filter over these names; no names means every kind.
    pub fn filter<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<KindFilter> {
        let mut ids = Vec::new();
        for name in names {
            let name = name.as_ref();
            let unknown = || Error::UnknownKind {
                name: name.to_owned(),
                known: self.all(),
            };
            ids.push(self.id(name).ok_or_else(unknown)?);
        }
        Ok(if ids.is_empty() {
            KindFilter::All
        } else {
            KindFilter::only(ids)
        })
    }
}

impl Names {
    fn insert(&mut self, id: KindId, name: &str) {
        let name: Arc<str> = name.into();
        match self.by_name.binary_search_by(|(held, _)| held.cmp(&name)) {
            Ok(at) => self.by_name[at].1 = id,
            Err(at) => self.by_name.insert(at, (name.clone(), id)),
        }
        match self.by_id.binary_search_by_key(&id, |(held, _)| *held) {
            Ok(at) => self.by_id[at].1 = name,
            Err(at) => self.by_id.insert(at, (id, name)),
        }
    }

    fn id(&self, name: &str) -> Option<KindId> {
        let found = self
            .by_name
            .binary_search_by(|(held, _)| (**held).cmp(name));
        found.ok().map(|at| self.by_name[at].1)
    }

    #[inline]
    fn name(&self, id: KindId) -> Option<&Arc<str>> {
        let expected = (id.0 as usize).checked_sub(1)?;
        if let Some((held, name)) = self.by_id.get(expected)
            && *held == id
        {
            return Some(name);
        }
        let found = self.by_id.binary_search_by_key(&id, |(held, _)| *held);
        found.ok().map(|at| &self.by_id[at].1)
    }

    /// The names of several kinds, ascending.
    #[cold]
    fn sorted(&self, ids: KindIds<'_>) -> Result<SmallVec<[&str; 8]>, KindId> {
        let name = |id| self.name(id).map(|name| &**name).ok_or(id);
        let mut names = ids.iter().map(name).collect::<Result<SmallVec<_>, _>>()?;
        names.sort_unstable();
        Ok(names)
    }

    #[inline]
    fn have_all_to(&self, max: KindId) -> bool {
        // So many different numbers, none above `max`, are all of them.
        let is_last = |(held, _): &(KindId, _)| *held == max;
        match (max.0 as usize).checked_sub(1) {
            Some(last) => self.by_id.get(last).is_some_and(is_last),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also with gaps, which only a foreign writer can make.
    #[test]
    fn names_and_numbers_lead_to_each_other() {
        let mut names = Names::default();
        let given = [(3, "c"), (1, "z"), (9, "a"), (2, ""), (u32::MAX - 1, "m")];
        for (id, name) in given {
            names.insert(KindId(id), name);
        }
        for (id, name) in given {
            assert_eq!(names.id(name), Some(KindId(id)));
            assert_eq!(names.name(KindId(id)).map(|name| &**name), Some(name));
        }
        for absent in [0, 4, 5, 8, 10, u32::MAX] {
            assert_eq!(names.name(KindId(absent)), None);
        }
        assert_eq!(names.id("b"), None);
        for max in 0..12 {
            assert_eq!(names.have_all_to(KindId(max)), max <= 3, "to {max}");
        }
        assert!(!names.have_all_to(KindId(u32::MAX)));
        names.insert(KindId(3), "again");
        assert_eq!(names.name(KindId(3)).map(|name| &**name), Some("again"));
    }
}
