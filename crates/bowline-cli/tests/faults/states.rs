//! The check of reads by their revision: the result of a read at any level is the value that the key had at the revision in
//! the reply, according to the events of the watchers.
//!
//! It is the only check of reads that may be stale (`Eventual`). Others (`Linearizable`, `Lease`) are also checked by the
//! linearizability of all operations.

use bowline_testing::linear::Held;

use crate::observed::History;

/// What a read showed.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) key: String,
    /// The revision of the answer.
    pub(crate) revision: u64,
    pub(crate) value: Held,
    pub(crate) note: String,
}

/// What a key was at a revision.
fn at(history: &History, key: &str, revision: u64) -> Held {
    let changes = history.get(key.as_bytes())?;
    let (_, value) = changes.range(..=revision).next_back()?;
    let text = String::from_utf8(value.clone()?).expect("what was written is text");
    Some(text.parse().expect("what was written is a number"))
}

/// The first read that shows what was not.
pub(crate) fn check(history: &History, reads: &[Shown]) -> Result<(), String> {
    for read in reads {
        let was = at(history, &read.key, read.revision);
        if read.value != was {
            return Err(format!(
                "{} was {was:?} at revision {}, and {} showed {:?}",
                read.key, read.revision, read.note, read.value
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(revision: u64, value: Held) -> Shown {
        Shown {
            key: "k".to_owned(),
            revision,
            value,
            note: "c0 eventual".to_owned(),
        }
    }

    /// Planted: an old state is a state that was; a value of another revision is none.
    #[test]
    fn what_was_is_taken_and_what_was_not_is_refused() {
        let changes = [
            (3, Some(b"7".to_vec())),
            (5, Some(b"8".to_vec())),
            (9, None),
        ];
        let history = History::from([(b"k".to_vec(), changes.into())]);
        let right = [
            (2, None),
            (3, Some(7)),
            (4, Some(7)),
            (8, Some(8)),
            (9, None),
        ];
        let right = right.map(|(revision, value)| shown(revision, value));
        assert_eq!(check(&history, &right), Ok(()));
        for wrong in [
            (4, Some(8)),
            (5, Some(7)),
            (8, None),
            (9, Some(8)),
            (2, Some(7)),
        ] {
            let refused = check(&history, &[shown(wrong.0, wrong.1)]);
            assert!(
                refused.is_err_and(|why| why.contains("c0 eventual")),
                "{wrong:?}"
            );
        }
    }
}
