//! Runs a model under many schedules, and says how to repeat the one that failed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bowline_testing::Seed;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Schedules that share a seed. PCT learns from the first how many steps there are.
const BATCH: usize = 20;
/// At how many points PCT changes priorities, plus one: bugs that need that many are in reach.
const PCT_DEPTHS: [usize; 3] = [2, 3, 5];
/// More is taken for a thread that spins for ever.
const STEPS_MAX: usize = 400_000;

/// Runs `model` under as many schedules as `BOWLINE_SCHEDULES` says (`ordinary`, if nothing).
///
/// A failure prints the seed of its batch; with `BOWLINE_SEED` set, that batch alone is run.
pub(crate) fn explore(test: &str, ordinary: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let start = Instant::now();
    let chosen = std::env::var_os("BOWLINE_SEED").map(|_| Seed::from_env_or(0));
    let schedules = std::env::var("BOWLINE_SCHEDULES").ok();
    let schedules = schedules.map_or(ordinary, |text| {
        // A percentage, so that long models stay in proportion to short ones.
        let percent: usize = text
            .parse()
            .expect("BOWLINE_SCHEDULES is a number of percent");
        (ordinary * percent).div_ceil(100)
    });
    // A batch more is new in each run.
    let seeds: Vec<Seed> = match chosen {
        Some(seed) => vec![seed],
        None => (0..schedules.div_ceil(BATCH))
            .map(|batch| Seed(0xb0_71_1e).part(batch as u64))
            .chain(Seed::fresh(&format!("checks/interleavings {test}")))
            .collect(),
    };
    let tried = Arc::new(AtomicUsize::new(0));
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, &model, &tried)));
        if let Err(panic) = outcome {
            eprintln!(
                "{test}: schedule {} of its batch failed; repeat with: BOWLINE_SEED={} checks/interleavings {test}",
                tried.load(Ordering::Relaxed) % BATCH,
                seed.0
            );
            resume_unwind(panic);
        }
    }
    println!(
        "{test}: {} schedules in {:.1} s",
        tried.load(Ordering::Relaxed),
        start.elapsed().as_secs_f64()
    );
}

fn run(seed: Seed, model: &Arc<impl Fn() + Send + Sync + 'static>, tried: &Arc<AtomicUsize>) {
    let scheduler: Box<dyn Scheduler + Send> = match seed.0 % 2 {
        0 => Box::new(RandomScheduler::new_from_seed(seed.0, BATCH)),
        _ => {
            let depth = PCT_DEPTHS[(seed.0 / 2) as usize % PCT_DEPTHS.len()];
            Box::new(PctScheduler::new_from_seed(seed.0, depth, BATCH))
        }
    };
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config.failure_persistence = shuttle::FailurePersistence::None;
    let (model, tried) = (model.clone(), tried.clone());
    Runner::new(scheduler, config).run(move || {
        tried.fetch_add(1, Ordering::Relaxed);
        // Salts and ids come from here: the same in each execution, or it could not be repeated.
        fastrand::seed(7);
        model();
    });
}
