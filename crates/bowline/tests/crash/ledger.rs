//! What all tests of this program tried, in one table at the end: printed by the last test that
//! ends, and by each that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Instant;

use bowline_testing::crash::{Coverage, ImageKind};

use crate::places::Places;
use crate::verify::Tried;

/// How many tests enter.
const TESTS: usize = 11;

static LEDGER: Mutex<Option<Ledger>> = Mutex::new(None);

struct Ledger {
    began: Instant,
    active: usize,
    ended: usize,
    images: [(u64, u64); ImageKind::ALL.len()],
    tried: Tried,
    places: Places,
}

fn with_ledger<R>(with: impl FnOnce(&mut Ledger) -> R) -> R {
    let mut ledger = LEDGER
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    with(ledger.get_or_insert_with(|| Ledger {
        began: Instant::now(),
        active: 0,
        ended: 0,
        images: Default::default(),
        tried: Tried::default(),
        places: Places::default(),
    }))
}

/// Adds what was tried of one recording: the even sample, and that of rare places.
pub fn add(coverage: &Coverage, more: Coverage, tried: &Tried, places: &Places) {
    with_ledger(|ledger| {
        for (sum, kind) in ledger.images.iter_mut().zip(ImageKind::ALL) {
            sum.0 += coverage.tried(kind) + more.tried(kind);
            sum.1 += coverage.existing(kind);
        }
        ledger.tried.add(tried);
        ledger.places.add(places);
    });
}

/// Held by each test while it runs.
#[must_use]
pub struct Entered(());

pub fn enter() -> Entered {
    with_ledger(|ledger| ledger.active += 1);
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        with_ledger(|ledger| {
            ledger.active -= 1;
            ledger.ended += 1;
            let is_filtered = std::env::args().skip(1).any(|arg| !arg.starts_with('-'));
            let is_last = ledger.ended == TESTS || (is_filtered && ledger.active == 0);
            if is_last || std::thread::panicking() {
                println!("{}", ledger.report());
            }
        });
    }
}

impl Ledger {
    fn report(&self) -> String {
        let mut lines = vec![format!(
            "== crash tests: {} images, {} more crashes of recoveries, {} openings, {} s",
            self.tried.images,
            self.tried.crashed_again.iter().sum::<u64>(),
            self.tried.openings,
            self.began.elapsed().as_secs()
        )];
        lines.push("-- images by what the crash did (of all there are)".to_owned());
        for (kind, (tried, existing)) in ImageKind::ALL.into_iter().zip(self.images) {
            lines.push(format!("{:>12} {tried:>8} of {existing}", kind.name()));
        }
        let Tried {
            crashed_again,
            kills,
            copies,
            unfinished_copies,
            past_revisions,
            ..
        } = &self.tried;
        lines.push(format!(
            "   crashes of a recovery {}, of the recovery after it {}, of the one after that {}",
            crashed_again[0], crashed_again[1], crashed_again[2]
        ));
        lines.push(format!(
            "   processes killed and gone on from {kills}; copies opened {copies}, unfinished \
             {unfinished_copies}; past revisions read {past_revisions}"
        ));
        self.operations(&mut lines);
        self.failpoints(&mut lines);
        lines.join("\n")
    }

    /// Calls by files.
    fn operations(&self, lines: &mut Vec<String>) {
        lines.push("-- crashes right behind a call, by call and file (calls made)".to_owned());
        let mut sums: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for (place, (passed, crashed)) in &self.places.0 {
            let sum = sums.entry((place.call, place.file)).or_default();
            sum.0 += passed;
            sum.1 += crashed;
        }
        for ((call, file), (passed, crashed)) in sums {
            let what = format!("{call} {file}");
            lines.push(format!("{what:>36} {crashed:>8} ({passed})"));
        }
    }

    fn failpoints(&self, lines: &mut Vec<String>) {
        let total = self.places.0.len();
        let missed = self.places.missed();
        lines.push(format!(
            "-- failpoints: crashed at {} of {total}",
            total - missed.len()
        ));
        let phases: BTreeSet<&str> = self.places.0.keys().map(|place| place.phase).collect();
        for phase in phases {
            let of_phase = self
                .places
                .0
                .iter()
                .filter(|(place, _)| place.phase == phase);
            let shown = of_phase
                .map(|(place, (_, crashed))| format!("{} {} {crashed}", place.call, place.file));
            lines.push(format!(
                "   {phase}: {}",
                shown.collect::<Vec<_>>().join(", ")
            ));
        }
        lines.push(format!(
            "-- failpoints passed and never crashed at: {}",
            missed.len()
        ));
        lines.extend(missed.into_iter().map(|place| format!("   {place}")));
    }
}
