//! Random work, then a crash anywhere, in every state the fault model allows, again and again.
//!
//! The model keeps the log's contents after each step since the last flush. What is recovered must
//! be one of them: everything that was flushed, and a prefix of the groups that were not.

use super::*;

#[derive(Default)]
struct Model {
    /// Contents after each step; the first one is durable.
    states: Vec<Vec<Vec<u8>>>,
    released: Index,
}

impl Model {
    fn now(&self) -> Vec<Vec<u8>> {
        self.states.last().cloned().unwrap_or_default()
    }

    fn flushed(&mut self) {
        self.states = vec![self.now()];
    }

    /// The contents behind what was released, as an opening shows them.
    fn shown(&self, state: &[Vec<u8>]) -> Entries {
        let entries = (1..).zip(state.iter().cloned());
        entries
            .filter(|(index, _)| *index > self.released)
            .collect()
    }
}

/// Runs steps until one fails (the machine is off) or `steps` are done.
fn work(log: &mut Log, model: &mut Model, random: &mut fastrand::Rng, steps: usize) {
    for _ in 0..steps {
        let mut state = model.now();
        let result = match random.u32(..24) {
            22.. => {
                log.remove_one_now();
                Ok(())
            }
            20..22 => {
                log.prepare_now();
                Ok(())
            }
            0..10 => {
                for _ in 0..random.usize(1..4) {
                    let len = if random.u32(..12) == 0 {
                        9000
                    } else {
                        random.usize(..700)
                    };
                    let payload = vec![random.u8(..); len];
                    log.stage(&payload);
                    state.push(payload);
                }
                model.states.push(state);
                log.write()
            }
            10..16 => log.sync().map(|durable| {
                assert_eq!(durable, model.now().len() as u64);
                model.flushed();
            }),
            16 => {
                let lowest = model.released + 1;
                let from = random.u64(lowest..=(state.len() as u64 + 1).max(lowest));
                state.truncate(from as usize - 1);
                model.states.push(state);
                log.cut_suffix(from)
            }
            _ => {
                // As the engine does: what is flushed elsewhere was synced here before.
                log.sync().and_then(|written| {
                    model.flushed();
                    model.released = random.u64(model.released..=written);
                    log.release_prefix(model.released)
                })
            }
        };
        if result.is_err() {
            return;
        }
    }
}

fn run(seed: u64) {
    fastrand::seed(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut disk = Disk::new();
    let mut model = Model {
        states: vec![Vec::new()],
        released: 0,
    };
    for round in 0..5 {
        if random.bool() {
            disk.stop_after(random.u64(..120));
        }
        if let Ok((mut log, found)) = open(&disk, model.released) {
            let position = model
                .states
                .iter()
                .position(|state| model.shown(state) == found);
            let Some(position) = position else {
                panic!(
                    "seed {seed}, round {round}: found {} entries, none of the {} states fits",
                    found.len(),
                    model.states.len()
                );
            };
            // What an opening has shown is durable from then on.
            model.states = vec![model.states.swap_remove(position)];
            if random.bool() {
                log.leave_releases();
            }
            assert_eq!(
                log.next_index(),
                model.now().len() as u64 + 1,
                "seed {seed}"
            );
            let steps = random.usize(..40);
            work(&mut log, &mut model, &mut random, steps);
            if random.u32(..4) == 0 && log.close().is_ok() {
                model.flushed();
            }
        }
        disk = disk.crashed(match random.u32(..4) {
            0 => Crash::Kill,
            1 => Crash::PowerLoss,
            _ => Crash::Torn(&mut random),
        });
    }
    if let Err(error) = Log::verify(&disk, Path::new(DIR)) {
        panic!("seed {seed}: {error}");
    }
}

#[test]
fn crashes_anywhere_keep_what_was_flushed_and_tear_nothing() {
    for seed in crate::seeds(0..1500) {
        run(seed);
    }
}
