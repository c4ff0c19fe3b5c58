//! Back-pressure: how far flush and compaction are behind, and how long a writer waits for them.
//!
//! The *pressure* is 0 while the jobs keep up. It grows with the fill of the memtables and with the
//! number of runs on level 0. At 1 writers stop: when `sealed_memtables_max` full memtables wait, or
//! level 0 has six times the number of runs that starts a compaction.

use crate::engine::core::Core;
use crate::engine::view::SuperVersion;
use crate::error::{Error, Result};

impl Core {
    /// The pressure, from 0 to just below 1; waits while it is 1. When a job fails, it is tried again
    /// for this writer, and the error is that of an attempt that began after the writer's arrival.
    pub(in crate::engine) fn wait_for_background(&self) -> Result<f64> {
        if !self.options.has_threads() {
            return Ok(0.0);
        }
        let pressure = self.pressure(&self.view.load());
        if pressure < 1.0 {
            return Ok(pressure);
        }
        self.counters.rounds_stopped.add(1);
        let start = self.clock.monotonic();
        let bearable = || {
            let pressure = self.pressure(&self.view.load());
            (pressure < 1.0).then_some(pressure)
        };
        // A member of a cluster applies entries that are already agreed on. It has no caller to whom it
        // could report a lack of open files, so it waits.
        let is_retried =
            |error: &Error| self.is_replicated && matches!(error, Error::TooManyFiles { .. });
        let pressure = self.jobs.wait_until(bearable, is_retried)?;
        let waited = self.clock.monotonic().saturating_sub(start);
        self.counters.throttle_ms.add(waited.as_millis() as u64);
        Ok(pressure)
    }

    /// How far flush and compaction are behind.
    pub(in crate::engine) fn pressure(&self, super_version: &SuperVersion) -> f64 {
        let graded = |value: f64, soft: f64, hard: f64| {
            if value <= soft {
                0.0
            } else {
                ((value - soft) / (hard - soft)).min(1.0)
            }
        };
        let active = &super_version.active;
        let filled = active.used_bytes() as f64 / active.capacity_bytes().max(1) as f64;
        let waiting = super_version.sealed.len() as f64;
        let hard = self.options.sealed_memtables_max.max(1) as f64;
        let memory = if waiting < 1.0 {
            0.0
        } else if waiting >= hard {
            1.0
        } else {
            graded(waiting + filled.min(1.0), 1.5, hard + 0.5).min(0.999)
        };
        let runs_max = self.options.compaction.runs_max.max(2) as f64;
        let trees = super_version.version.trees.iter();
        let runs = trees
            .map(|tree| tree.levels.first().map_or(0, Vec::len))
            .max()
            .unwrap_or(0);
        memory.max(graded(runs as f64, 2.0 * runs_max, 6.0 * runs_max))
    }
}
