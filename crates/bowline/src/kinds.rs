//! The names of block and edge kinds, and the numbers they are stored by.
//!
//! A kind is registered by the first write that uses its name, in a small commit of its own that
//! takes no revision. It is never removed, so a number always means the same name.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use bowline_storage::sync::{ArcSwap, Mutex};
use bowline_storage::tree::{Engine, ScanDirection};

use crate::error::{Error, Result, show_key};
use crate::graph::{KindFilter, KindId};
use crate::trees;

const NAME_MAX_BYTES: usize = 256;

#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    by_name: HashMap<Arc<str>, KindId>,
    by_id: HashMap<KindId, Arc<str>>,
}

/// The registry.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    names: ArcSwap<Names>,
    /// Held while a kind is registered.
    pub(crate) registering: Mutex<()>,
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX_BYTES {
        let shown = name.chars().take(64).collect();
        return Err(Error::InvalidKind { name: shown });
    }
    Ok(())
}

impl Kinds {
    pub(crate) fn load(engine: &Engine) -> Result<Kinds> {
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

    /// Reads them anew, when the whole state was replaced.
    pub(crate) fn reload(&self, engine: &Engine) -> Result<()> {
        let read = Kinds::load(engine)?;
        self.names.store(read.names.load_full());
        Ok(())
    }

    pub(crate) fn id(&self, name: &str) -> Option<KindId> {
        self.names.load().by_name.get(name).copied()
    }

    pub(crate) fn name(&self, id: KindId) -> Option<Arc<str>> {
        self.names.load().by_id.get(&id).cloned()
    }

    /// The number after the largest in use.
    pub(crate) fn next_id(&self) -> KindId {
        KindId(
            self.names
                .load()
                .by_id
                .keys()
                .map(|id| id.0 + 1)
                .max()
                .unwrap_or(1),
        )
    }

    pub(crate) fn insert(&self, id: KindId, name: &str) {
        let mut names = Names::clone(&self.names.load());
        names.insert(id, name);
        self.names.store(Arc::new(names));
    }

    /// Every name, sorted.
    pub(crate) fn all(&self) -> Vec<String> {
        let names = self.names.load();
        let mut all: Vec<_> = names.by_name.keys().map(ToString::to_string).collect();
        all.sort();
        all
    }

    /// A filter over these names; no names means every kind.
    pub(crate) fn filter<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<KindFilter> {
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
        self.by_name.insert(name.clone(), id);
        self.by_id.insert(id, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;
    use crate::commit::{Action, Request, Write, WriteList};

    /// The number of the next kind is one more than the largest: with the largest there is, it
    /// overflowed, and a release gave the number 0, which means none.
    #[test]
    fn a_number_that_is_never_given_is_damage() {
        for (id, is_given) in [
            (0, false),
            (1, true),
            (u32::MAX - 1, true),
            (u32::MAX, false),
        ] {
            let db = Db::in_memory().unwrap();
            db.commit(Request {
                writes: WriteList::from_buf([Write::new(
                    trees::SYSTEM,
                    &trees::kind_key(id),
                    Action::PutRaw {
                        value: b"crate".to_vec(),
                    },
                )]),
                ..Request::default()
            })
            .unwrap();
            match Kinds::load(&db.core().engine) {
                Ok(kinds) => assert!(is_given && kinds.next_id().0 == id + 1, "{id}"),
                Err(Error::InvalidRecord { what, .. }) => assert!(!is_given && what == "kind"),
                Err(other) => panic!("{other}"),
            }
        }
    }
}
