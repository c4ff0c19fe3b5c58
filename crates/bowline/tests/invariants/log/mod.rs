//! What the log promises: state, order and revisions survive; aborted transactions do not.

mod aborts;
mod order;
mod recovery;
mod state;
mod values;

use bowline_testing::model::Change;

use crate::harness::Run;
use crate::support::random_changes;

pub fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Change {
    Change::put(key.as_ref(), value.as_ref())
}

pub fn delete(key: impl AsRef<[u8]>) -> Change {
    Change::delete(key.as_ref())
}

/// Transactions of random keys, blocks and edges, with upkeep between them.
pub fn random_work(run: &mut Run, transactions: usize) {
    for at in 0..transactions {
        let changes = random_changes(&mut run.rng, &run.model);
        run.transact(&changes);
        if at % 7 == 6 {
            run.upkeep_or_end();
        }
    }
}
