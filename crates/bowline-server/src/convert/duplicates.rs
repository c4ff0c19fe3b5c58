//! Whether a transaction may write a key twice.
//!
//! All writes of a transaction have one revision, and a key has one version at a revision. So in
//! whatever way the conditions fall, no key may be put twice, nor be put and deleted. Branches of
//! one transaction exclude each other; everything else may meet:
//!
//! ```text
//! writes(list) = own puts and deletions + for each transaction in the list:
//!                    writes(success) or writes(failure)
//! ```
//!
//! Two deletions may overlap: the second finds nothing.

use std::collections::HashSet;

use bowline::replica::{DeleteRangeOp, Op, Txn};

use crate::status::Fault;

/// What a list of operations may write.
#[derive(Default)]
struct Writes<'a> {
    puts: HashSet<&'a [u8]>,
    deletions: Vec<&'a DeleteRangeOp>,
}

/// Refuses a transaction that may write a key twice.
pub(crate) fn check_duplicates(txn: &Txn) -> Result<(), Fault> {
    writes_of(&txn.success)?;
    writes_of(&txn.failure)?;
    Ok(())
}

fn writes_of(ops: &[Op]) -> Result<Writes<'_>, Fault> {
    let mut all = Writes::default();
    for op in ops {
        let writes = match op {
            Op::Range(_) => continue,
            Op::Put(put) => Writes {
                puts: HashSet::from([&put.key[..]]),
                deletions: Vec::new(),
            },
            Op::DeleteRange(deletion) => Writes {
                puts: HashSet::new(),
                deletions: vec![deletion],
            },
            Op::Txn(txn) => {
                let mut either = writes_of(&txn.success)?;
                let other = writes_of(&txn.failure)?;
                either.puts.extend(other.puts);
                either.deletions.extend(other.deletions);
                either
            }
        };
        all.join(writes)?;
    }
    Ok(all)
}

impl<'a> Writes<'a> {
    /// Adds what happens besides.
    fn join(&mut self, other: Writes<'a>) -> Result<(), Fault> {
        let meet = |puts: &HashSet<&[u8]>, deletions: &[&DeleteRangeOp]| {
            deletions
                .iter()
                .any(|deletion| puts.iter().any(|key| is_deleted(key, deletion)))
        };
        if !self.puts.is_disjoint(&other.puts)
            || meet(&self.puts, &other.deletions)
            || meet(&other.puts, &self.deletions)
        {
            return Err(Fault::DuplicateKey);
        }
        self.puts.extend(other.puts);
        self.deletions.extend(other.deletions);
        Ok(())
    }
}

fn is_deleted(key: &[u8], deletion: &DeleteRangeOp) -> bool {
    match &deletion.range_end[..] {
        [] => key == deletion.key,
        [0] => key >= &deletion.key[..],
        end => key >= &deletion.key[..] && key < end,
    }
}
