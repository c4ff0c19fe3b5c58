//! How a figure is taken and shown, whatever it measures.
//!
//! *Interleaved.* Every round takes one sample of every row, in order, so that a disturbance of
//! the machine meets neighbours alike. A ratio is taken between the two samples of one round; its
//! median is over rounds.
//!
//! *Timed inside.* A sample runs for a given time and says how many operations it did. With
//! several threads it lasts from the first one's start to the last one's end.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What one sample did.
pub struct Sample {
    pub operations: u64,
    pub elapsed: Duration,
    /// How many commits shared a flush, for the rows where that is of interest.
    pub commits_per_flush: Option<f64>,
}

impl Sample {
    fn per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

/// How a row is shown.
#[derive(Clone, Copy)]
pub enum Unit {
    PerSecond,
    Nanoseconds,
}

/// What a row is compared with.
pub enum Ratio {
    /// Its rate over a multiple of that of another row.
    Rate {
        of: &'static str,
        times: f64,
        label: &'static str,
    },
    /// Its time over that of another row.
    Time {
        of: &'static str,
        label: &'static str,
    },
}

type Run<'a> = Box<dyn FnMut(Duration) -> Fallible<Sample> + 'a>;

/// One line of the table.
pub struct Row<'a> {
    name: &'static str,
    unit: Unit,
    goal: &'static str,
    ratios: Vec<Ratio>,
    run: Run<'a>,
    rates: Vec<f64>,
    commits_per_flush: Vec<f64>,
}

impl<'a> Row<'a> {
    pub fn new(
        name: &'static str,
        unit: Unit,
        run: impl FnMut(Duration) -> Fallible<Sample> + 'a,
    ) -> Row<'a> {
        Row {
            name,
            unit,
            goal: "",
            ratios: Vec::new(),
            run: Box::new(run),
            rates: Vec::new(),
            commits_per_flush: Vec::new(),
        }
    }

    pub fn goal(mut self, goal: &'static str) -> Row<'a> {
        self.goal = goal;
        self
    }

    pub fn against(mut self, ratio: Ratio) -> Row<'a> {
        self.ratios.push(ratio);
        self
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    fn shown(&self, per_second: f64) -> String {
        match self.unit {
            Unit::PerSecond if per_second >= 1e6 => format!("{:.2} M/s", per_second / 1e6),
            Unit::PerSecond if per_second >= 1e5 => format!("{:.0} K/s", per_second / 1e3),
            Unit::PerSecond => format!("{per_second:.0} /s"),
            Unit::Nanoseconds if per_second > 2e7 => format!("{:.1} ns", 1e9 / per_second),
            Unit::Nanoseconds => format!("{:.0} ns", 1e9 / per_second),
        }
    }

    fn line(&self, all: &[Row<'_>]) -> String {
        let middle = Middle::of(&self.rates);
        let (mut low, mut high) = (middle.min, middle.max);
        if matches!(self.unit, Unit::Nanoseconds) {
            (low, high) = (high, low);
        }
        let mut beside = Vec::new();
        for ratio in &self.ratios {
            let (of, times, label) = match ratio {
                Ratio::Rate { of, times, label } => (of, *times, label),
                Ratio::Time { of, label } => (of, 1.0, label),
            };
            let Some(base) = all.iter().find(|row| row.name == *of) else {
                continue;
            };
            let values: Vec<f64> = self
                .rates
                .iter()
                .zip(&base.rates)
                .map(|(own, base)| match ratio {
                    Ratio::Rate { .. } => own / (base * times),
                    Ratio::Time { .. } => base / own,
                })
                .collect();
            let Middle { median, min, max } = Middle::of(&values);
            beside.push(format!("{median:.2} {label} ({min:.2}–{max:.2})"));
        }
        if !self.commits_per_flush.is_empty() {
            let median = Middle::of(&self.commits_per_flush).median;
            beside.push(format!("{median:.1} commits per flush"));
        }
        format!(
            "| {} | {} | {} – {} | {} | {} |",
            self.name,
            self.shown(middle.median),
            self.shown(low),
            self.shown(high),
            beside.join("; "),
            self.goal,
        )
    }
}

struct Middle {
    median: f64,
    min: f64,
    max: f64,
}

impl Middle {
    fn of(values: &[f64]) -> Middle {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first().copied(), sorted.last().copied()) else {
            return Middle {
                median: f64::NAN,
                min: f64::NAN,
                max: f64::NAN,
            };
        };
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[half - 1], sorted[half])
        } else {
            sorted[half]
        };
        Middle { median, min, max }
    }
}

/// Takes `rounds` samples of each row, after one that does not count, and gives the table.
pub fn measure(rows: &mut [Row<'_>], rounds: usize, sample: Duration) -> Fallible<String> {
    for round in 0..=rounds {
        eprint!("\rround {round} of {rounds} ");
        for row in &mut *rows {
            let taken = (row.run)(sample).map_err(|error| format!("{}: {error}", row.name))?;
            if taken.operations == 0 {
                return Err(format!("{}: a sample without an operation", row.name).into());
            }
            if round > 0 {
                row.rates.push(taken.per_second());
                row.commits_per_flush.extend(taken.commits_per_flush);
            }
        }
    }
    eprintln!();
    let mut table =
        "| row | median | min – max | beside | goal |\n|---|---|---|---|---|\n".to_owned();
    for row in &*rows {
        writeln!(table, "{}", row.line(rows))?;
    }
    Ok(table)
}

/// Runs `operation` for about `sample`; the clock is read once in `batch` operations.
pub fn run_for(
    sample: Duration,
    batch: u64,
    mut operation: impl FnMut() -> Fallible<()>,
) -> Fallible<(u64, Instant, Instant)> {
    let start = Instant::now();
    let mut operations = 0;
    loop {
        for _ in 0..batch {
            operation()?;
        }
        operations += batch;
        let now = Instant::now();
        if now - start >= sample {
            return Ok((operations, start, now));
        }
    }
}

/// Runs `operation(thread, thread's state)` on several threads at once; see [`run_for`].
pub fn run_on<S: Send>(
    states: Vec<S>,
    sample: Duration,
    batch: u64,
    operation: impl Fn(&mut S) -> Fallible<()> + Sync,
) -> Fallible<Sample> {
    let barrier = Barrier::new(states.len());
    let body = |mut state: S| {
        barrier.wait();
        run_for(sample, batch, || operation(&mut state))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = states
            .into_iter()
            .map(|state| scope.spawn(move || body(state)))
            .collect();
        threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let mut operations = 0;
    let mut span: Option<(Instant, Instant)> = None;
    for result in results {
        let (count, start, end) = result.map_err(|_| "a thread panicked")??;
        operations += count;
        let (first, last) = span.unwrap_or((start, end));
        span = Some((first.min(start), last.max(end)));
    }
    let (first, last) = span.ok_or("no threads")?;
    Ok(Sample {
        operations,
        elapsed: last - first,
        commits_per_flush: None,
    })
}

/// The machine, kernel and file system, one per line.
pub fn surroundings(directory: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name\t: "));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let mounts = read("/proc/mounts");
    // Device, mount point, type, options: the longest mount point that holds the directory.
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields.len() > 3 && directory.starts_with(fields[1]))
        .max_by_key(|fields| fields[1].len());
    let file_system = mount.map_or("unknown".to_owned(), |fields| {
        format!("{} on {} ({})", fields[2], fields[0], fields[3])
    });
    format!(
        "- machine: {} × {}\n- kernel: {} {}\n- file system: {file_system}",
        cores,
        model.unwrap_or("unknown processor"),
        std::env::consts::OS,
        kernel.trim(),
    )
}

/// The load averages of the last 1, 5 and 15 minutes: what else ran.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
