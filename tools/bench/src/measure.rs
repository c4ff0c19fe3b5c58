//! Takes turns: every round takes one sample of every row by every contestant, so that a disturbance of the machine
//! meets neighbors alike. Rows come in order; of a row another contestant begins in each round.
//!
//! A ratio is taken between two samples of one round; shown are the median over rounds, the
//! smallest and the largest. A first round warms up and is not counted, but for rows that are long.
//!
//! # Invariants
//!
//! - A sample counts only if its row's checks held: the values read were those written, the
//!   flushes were made. A check that fails on Bowline ends the run with an error. One that fails
//!   on another store makes its cell *void*, and no ratio is taken of it.
//! - Figures of one cell stand in the order of the rounds, one for each; a ratio pairs the same
//!   round of two cells.

use std::error::Error;
use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::fallible::Fallible;
use crate::result::{Bound, Cell, Note, Ratio, Reference, RowResult, Unit};
use crate::statistics::{Percentiles, Spread, histogram};
use crate::timing::Timed;

/// The contestant that measures the machine and not a store.
pub const MACHINE: &str = "machine";

pub fn check(holds: bool, what: &str) -> Fallible<()> {
    if holds {
        Ok(())
    } else {
        Err(what.to_owned().into())
    }
}

/// Why a figure of a store says nothing: it does not do the work that the row is about.
#[derive(Debug)]
pub struct Void(pub String);

impl fmt::Display for Void {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Void {}

/// What one turn gave.
pub struct Sample {
    pub figure: f64,
    pub latency: Option<Histogram<u64>>,
    /// What else is worth telling, by name.
    pub notes: Vec<(&'static str, f64)>,
    /// Figures of other rows that the same work gave.
    pub also: Vec<(&'static str, f64)>,
}

impl Sample {
    pub fn figure(figure: f64) -> Sample {
        Sample {
            figure,
            latency: None,
            notes: Vec::new(),
            also: Vec::new(),
        }
    }

    /// Operations per second.
    pub fn rate(timed: Timed) -> Sample {
        let figure = timed.operations as f64 / timed.elapsed.as_secs_f64();
        Sample {
            latency: Some(timed.latency),
            ..Sample::figure(figure)
        }
    }

    /// Nanoseconds per operation.
    pub fn time(timed: Timed) -> Sample {
        let figure = timed.elapsed.as_nanos() as f64 / timed.operations.max(1) as f64;
        Sample {
            latency: Some(timed.latency),
            ..Sample::figure(figure)
        }
    }

    pub fn note(mut self, name: &'static str, figure: f64) -> Sample {
        self.notes.push((name, figure));
        self
    }

    pub fn also(mut self, row: &'static str, figure: f64) -> Sample {
        self.also.push((row, figure));
        self
    }
}

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    /// For rows that take seconds whatever is asked.
    pub long_rounds: usize,
    /// About how long one sample lasts.
    pub sample: Duration,
}

/// The turn of one contestant.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub contestant: &'static str,
    pub sample: Duration,
    /// The same for all contestants of a round: they draw the same keys.
    pub seed: u64,
}

/// What a row of a contestant is compared with.
#[derive(Debug, Clone)]
pub enum To {
    /// Another row of the same contestant, or of the machine.
    Row(&'static str),
    /// The same row of another contestant.
    Peer(&'static str),
    /// The ratio to that contestant, over the ratio in another row: whether what changes between the rows costs
    /// us more than it costs the peer.
    PeerAsIn {
        peer: &'static str,
        row: &'static str,
    },
}

/// A ratio that is told, and perhaps a goal.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub to: To,
    /// The other figure counts so many times.
    pub times: f64,
    pub label: String,
    /// Whether the ratio is the other figure over the own, and not the own over the other.
    pub is_inverse: bool,
    pub bound: Option<Bound>,
}

impl Comparison {
    /// The ratio in each round.
    fn of(&self, own: &[f64], other: &[f64]) -> Vec<f64> {
        let pairs = own.iter().zip(other);
        pairs
            .map(|(own, other)| {
                let other = other * self.times;
                match self.is_inverse {
                    true => other / own,
                    false => own / other,
                }
            })
            .collect()
    }
}

type Run<'a> = Box<dyn FnMut(Turn) -> Fallible<Sample> + 'a>;

/// One line of the table, and how its samples are taken.
pub struct Row<'a> {
    pub name: &'static str,
    pub unit: Unit,
    /// Of the figure itself.
    pub bound: Option<Bound>,
    pub comparisons: Vec<Comparison>,
    pub contestants: Vec<&'static str>,
    pub is_long: bool,
    /// Of a row that is long: how many rounds are enough.
    pub rounds_max: usize,
    /// What has to be known to read the row, such as the figures published elsewhere.
    pub remark: String,
    /// The same row elsewhere.
    pub reference: Option<Reference>,
    /// None: its samples come with those of a row before it.
    run: Option<Run<'a>>,
}

impl<'a> Row<'a> {
    pub fn new(
        name: &'static str,
        unit: Unit,
        contestants: Vec<&'static str>,
        run: impl FnMut(Turn) -> Fallible<Sample> + 'a,
    ) -> Row<'a> {
        Row {
            run: Some(Box::new(run)),
            ..Row::told(name, unit, contestants)
        }
    }

    /// A row whose figures come with the samples of another ([`Sample::also`]).
    pub fn told(name: &'static str, unit: Unit, contestants: Vec<&'static str>) -> Row<'a> {
        Row {
            name,
            unit,
            bound: None,
            comparisons: Vec::new(),
            contestants,
            is_long: false,
            rounds_max: usize::MAX,
            remark: String::new(),
            reference: None,
            run: None,
        }
    }

    pub fn long(mut self) -> Row<'a> {
        self.is_long = true;
        self
    }

    /// Taken in one round: it takes minutes, and is not noisy.
    pub fn once(self) -> Row<'a> {
        Row {
            rounds_max: 1,
            ..self.long()
        }
    }

    pub fn bound(mut self, bound: impl Into<Option<Bound>>) -> Row<'a> {
        self.bound = bound.into();
        self
    }

    pub fn remark(mut self, remark: impl Into<String>) -> Row<'a> {
        self.remark = remark.into();
        self
    }

    /// Its figure over a multiple of that of another row.
    pub fn over(
        mut self,
        row: &'static str,
        times: f64,
        label: &str,
        bound: Option<Bound>,
    ) -> Row<'a> {
        self.comparisons.push(Comparison {
            to: To::Row(row),
            times,
            label: label.into(),
            is_inverse: false,
            bound,
        });
        self
    }

    /// The figure of another row over its own.
    pub fn under(mut self, row: &'static str, label: &str, bound: Option<Bound>) -> Row<'a> {
        self.comparisons.push(Comparison {
            to: To::Row(row),
            times: 1.0,
            label: label.into(),
            is_inverse: true,
            bound,
        });
        self
    }

    /// How many times better than a peer it is.
    pub fn beside(mut self, peer: &'static str, bound: Option<f64>) -> Row<'a> {
        self.comparisons.push(Comparison {
            to: To::Peer(peer),
            times: 1.0,
            label: format!("× {peer}"),
            is_inverse: !self.unit.is_more_better(),
            bound: bound.map(Bound::AtLeast),
        });
        self
    }

    /// How many times better than a peer it is, over the same in another row: not worse is the goal.
    pub fn beside_as_in(
        mut self,
        peer: &'static str,
        row: &'static str,
        label: impl Into<String>,
    ) -> Row<'a> {
        self.comparisons.push(Comparison {
            to: To::PeerAsIn { peer, row },
            times: 1.0,
            label: label.into(),
            is_inverse: !self.unit.is_more_better(),
            bound: Some(Bound::AtLeast(1.0)),
        });
        self
    }
}

/// What is known of one cell while the rounds go on.
#[derive(Default)]
struct Taken {
    figures: Vec<f64>,
    latency: Option<Histogram<u64>>,
    notes: Vec<(&'static str, Vec<f64>)>,
    void: Option<String>,
}

impl Taken {
    fn add(&mut self, sample: Sample) {
        self.figures.push(sample.figure);
        if let Some(latency) = sample.latency {
            let all = self.latency.get_or_insert_with(histogram);
            // Both have the same bounds.
            let _ = all.add(latency);
        }
        for (name, figure) in sample.notes {
            match self.notes.iter_mut().find(|(other, _)| *other == name) {
                Some((_, figures)) => figures.push(figure),
                None => self.notes.push((name, vec![figure])),
            }
        }
    }

    fn cell(&self, contestant: &str) -> Cell {
        Cell {
            contestant: contestant.to_owned(),
            figures: self.figures.clone(),
            latency: self.latency.as_ref().and_then(Percentiles::of),
            notes: self
                .notes
                .iter()
                .filter_map(|(name, figures)| {
                    Some(Note {
                        name: (*name).to_owned(),
                        spread: Spread::of(figures.iter().copied())?,
                    })
                })
                .collect(),
            void: self.void.clone(),
        }
    }
}

/// Takes the samples of all rounds. `ours` are the contestants whose failures end the run and
/// whose ratios are told.
pub fn measure(rows: &mut [Row<'_>], plan: &Plan, ours: &[&str]) -> Fallible<Vec<RowResult>> {
    let mut taken: Vec<Vec<Taken>> = rows
        .iter()
        .map(|row| row.contestants.iter().map(|_| Taken::default()).collect())
        .collect();
    let progress = Progress::new(rows, plan);
    for round in 0..=plan.rounds {
        progress.round(round, plan.rounds);
        for at in 0..rows.len() {
            let row = &mut rows[at];
            // Rows that are long do without the warming, and without the last rounds.
            let long_rounds = plan.long_rounds.min(row.rounds_max);
            if row.is_long && !(1..=long_rounds).contains(&round) {
                continue;
            }
            let Some(run) = &mut row.run else {
                continue;
            };
            let mut told = Vec::new();
            let count = row.contestants.len();
            for place in 0..count {
                // Another one begins in each round: who follows whom is no part of the figures.
                let column = (place + round) % count;
                let contestant = row.contestants[column];
                progress.step(row.name, contestant);
                let taken = &mut taken[at][column];
                if taken.void.is_some() {
                    continue;
                }
                let turn = Turn {
                    contestant,
                    sample: plan.sample,
                    seed: seed(row.name, round),
                };
                match run(turn) {
                    Ok(mut sample) if round > 0 => {
                        let also = std::mem::take(&mut sample.also);
                        told.extend(also.into_iter().map(|also| (contestant, also)));
                        taken.add(sample);
                    }
                    Ok(_) => {}
                    Err(error) if error.is::<Void>() && !ours.contains(&contestant) => {
                        taken.void = Some(error.to_string());
                    }
                    Err(error) => {
                        return Err(format!("{}, {contestant}: {error}", row.name).into());
                    }
                }
            }
            for (contestant, (name, figure)) in told {
                // A row that was left out by name is not missed.
                if let Some((place, column)) = place_of(rows, name, contestant) {
                    taken[place][column].add(Sample::figure(figure));
                }
            }
        }
    }
    progress.end();
    Ok(results(rows, &taken, ours))
}

/// Where a contestant's cell of a row is.
fn place_of(rows: &[Row<'_>], name: &str, contestant: &str) -> Option<(usize, usize)> {
    let place = rows.iter().position(|row| row.name == name)?;
    let mut columns = rows[place].contestants.iter();
    Some((place, columns.position(|&other| other == contestant)?))
}

/// Differs between rows and rounds, and for nothing else.
fn seed(row: &str, round: usize) -> u64 {
    row.bytes()
        .fold(crate::data::SEED ^ round as u64, |seed, byte| {
            crate::data::spread(seed ^ u64::from(byte))
        })
}

fn results(rows: &[Row<'_>], taken: &[Vec<Taken>], ours: &[&str]) -> Vec<RowResult> {
    let cell = |row: &str, contestant: &str| {
        let (place, column) = place_of(rows, row, contestant)?;
        let taken = &taken[place][column];
        taken.void.is_none().then_some(taken)
    };
    let mut all = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let mut ratios = Vec::new();
        for (column, &contestant) in row.contestants.iter().enumerate() {
            if !ours.contains(&contestant) {
                continue;
            }
            for comparison in &row.comparisons {
                let own = &taken[place][column].figures;
                let figures = match comparison.to {
                    To::Row(name) => cell(name, contestant)
                        .or_else(|| cell(name, MACHINE))
                        .map(|other| comparison.of(own, &other.figures)),
                    To::Peer(peer) => {
                        cell(row.name, peer).map(|other| comparison.of(own, &other.figures))
                    }
                    To::PeerAsIn { peer, row: base } => cell(row.name, peer)
                        .zip(cell(base, contestant).zip(cell(base, peer)))
                        .map(|(peer, (own_base, peer_base))| {
                            let here = comparison.of(own, &peer.figures);
                            let there = comparison.of(&own_base.figures, &peer_base.figures);
                            here.iter().zip(&there).map(|(of, to)| of / to).collect()
                        }),
                };
                let spread = figures.and_then(Spread::of);
                ratios.extend(spread.map(|spread| Ratio {
                    of: contestant.to_owned(),
                    label: comparison.label.clone(),
                    spread,
                    is_more_better: comparison.bound.map_or(
                        comparison.is_inverse || row.unit.is_more_better(),
                        |bound| matches!(bound, Bound::AtLeast(_)),
                    ),
                    bound: comparison.bound,
                }));
            }
        }
        all.push(RowResult {
            name: row.name.to_owned(),
            unit: row.unit,
            bound: row.bound,
            remark: row.remark.clone(),
            reference: row.reference.clone(),
            cells: row
                .contestants
                .iter()
                .zip(&taken[place])
                .map(|(contestant, taken)| taken.cell(contestant))
                .collect(),
            ratios,
        });
    }
    all
}

/// A bar where somebody looks, a line for each round where nobody does.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(rows: &[Row<'_>], plan: &Plan) -> Progress {
        let steps = |row: &Row<'_>| {
            let rounds = if row.is_long {
                plan.long_rounds.min(row.rounds_max).min(plan.rounds)
            } else {
                plan.rounds + 1
            };
            if row.run.is_some() {
                rounds * row.contestants.len()
            } else {
                0
            }
        };
        let bar = ProgressBar::new(rows.iter().map(steps).sum::<usize>() as u64);
        let style = "{elapsed_precise} [{bar:30}] {pos}/{len}, about {eta} left: {msg}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| {
            // Only the looks would change.
            ProgressStyle::default_bar()
        }));
        Progress { bar }
    }

    fn round(&self, round: usize, of: usize) {
        if !std::io::stderr().is_terminal() {
            let what = if round == 0 { " (warming up)" } else { "" };
            eprintln!("round {round} of {of}{what}");
        }
    }

    fn step(&self, row: &str, contestant: &str) {
        self.bar.set_message(format!("{row}, {contestant}"));
        self.bar.inc(1);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const PLAN: Plan = Plan {
        rounds: 3,
        long_rounds: 1,
        sample: Duration::ZERO,
    };

    fn spread_of(rows: &[RowResult], row: &str, label: &str) -> Spread {
        let row = rows.iter().find(|other| other.name == row).unwrap();
        let ratio = row.ratios.iter().find(|ratio| ratio.label == label);
        ratio.unwrap().spread
    }

    #[test]
    fn contestants_take_turns_and_the_first_round_does_not_count() {
        let order = RefCell::new(Vec::new());
        let run = |turn: Turn| {
            order.borrow_mut().push(turn.contestant);
            Ok(Sample::figure(order.borrow().len() as f64))
        };
        let mut rows = [
            Row::new("a", Unit::PerSecond, vec!["us", "them"], run),
            Row::new("b", Unit::PerSecond, vec!["us"], run),
        ];
        let results = measure(&mut rows, &PLAN, &["us"]).unwrap();
        assert_eq!(
            order.borrow()[..6],
            ["us", "them", "us", "them", "us", "us"]
        );
        assert_eq!(results[0].cells[0].figures, [5.0, 7.0, 11.0]);
        assert_eq!(results[0].cells[1].figures, [4.0, 8.0, 10.0]);
        assert_eq!(results[1].cells[0].figures, [6.0, 9.0, 12.0]);
    }

    #[test]
    fn ratios_pair_the_figures_of_one_round() {
        let figures = |figures: [f64; 4]| {
            let mut next = figures.into_iter();
            move |_| Ok(Sample::figure(next.next().unwrap_or(f64::NAN)))
        };
        let mut ours = figures([0.0, 10.0, 20.0, 90.0]);
        let mut theirs = figures([0.0, 5.0, 20.0, 10.0]);
        let mut rows = [
            Row::new(
                "raw",
                Unit::PerSecond,
                vec![MACHINE],
                figures([1.0, 10.0, 10.0, 100.0]),
            ),
            Row::new("time", Unit::Nanoseconds, vec!["us", "them"], move |turn| {
                if turn.contestant == "us" {
                    ours(turn)
                } else {
                    theirs(turn)
                }
            })
            .over("raw", 2.0, "of twice raw", None)
            .beside("them", Some(1.0)),
        ];
        let results = measure(&mut rows, &PLAN, &["us"]).unwrap();
        // 10/20, 20/20, 90/200.
        let spread = spread_of(&results, "time", "of twice raw");
        assert_eq!((spread.min, spread.median, spread.max), (0.45, 0.5, 1.0));
        // Less is better: theirs over ours.
        let spread = spread_of(&results, "time", "× them");
        assert_eq!(
            (spread.min, spread.median, spread.max),
            (1.0 / 9.0, 0.5, 1.0)
        );
    }

    #[test]
    fn a_ratio_of_ratios_says_whether_a_change_costs_us_more() {
        let row = |name, ours: f64, theirs: f64| {
            let run = move |turn: Turn| {
                Ok(Sample::figure(match turn.contestant {
                    "us" => ours,
                    _ => theirs,
                }))
            };
            Row::new(name, Unit::Nanoseconds, vec!["us", "them"], run)
        };
        let mut rows = [
            row("short", 10.0, 20.0),
            // 1.5 times better instead of 2 times.
            row("long", 20.0, 30.0).beside_as_in("them", "short", "of × them"),
        ];
        let results = measure(&mut rows, &PLAN, &["us"]).unwrap();
        assert_eq!(spread_of(&results, "long", "of × them").median, 0.75);
    }

    #[test]
    fn a_peer_that_does_not_do_the_work_is_void_and_we_are_an_error() {
        let run = |turn: Turn| match turn.contestant {
            "them" => Err(Void("does not flush".into()).into()),
            _ => Ok(Sample::figure(1.0)),
        };
        let mut rows =
            [Row::new("a", Unit::PerSecond, vec!["us", "them"], run).beside("them", None)];
        let results = measure(&mut rows, &PLAN, &["us"]).unwrap();
        assert_eq!(results[0].cells[1].void.as_deref(), Some("does not flush"));
        assert!(results[0].ratios.is_empty());
        let error = measure(&mut rows, &PLAN, &["us", "them"]).unwrap_err();
        assert_eq!(error.to_string(), "a, them: does not flush");
    }

    #[test]
    fn a_peers_other_failure_ends_the_run() {
        let run = |_| Err("a wrong value".into());
        let mut rows = [Row::new("a", Unit::PerSecond, vec!["them"], run)];
        assert!(measure(&mut rows, &PLAN, &["us"]).is_err());
    }

    #[test]
    fn long_rows_take_their_own_number_of_rounds_and_tell_other_rows() {
        let mut rows = [
            Row::new("work", Unit::PerSecond, vec!["us"], |_| {
                Ok(Sample::figure(2.0).also("bytes", 7.0).also("left out", 1.0))
            })
            .long(),
            Row::told("bytes", Unit::Bytes, vec!["us"]),
        ];
        let results = measure(&mut rows, &PLAN, &["us"]).unwrap();
        assert_eq!(results[0].cells[0].figures, [2.0]);
        assert_eq!(results[1].cells[0].figures, [7.0]);
    }

    #[test]
    fn a_row_of_one_round_takes_one() {
        let plan = Plan {
            long_rounds: 2,
            ..PLAN
        };
        let row = |name| Row::new(name, Unit::Bytes, vec!["us"], |_| Ok(Sample::figure(1.0)));
        let mut rows = [row("long").long(), row("once").once()];
        let results = measure(&mut rows, &plan, &["us"]).unwrap();
        let counts = results.iter().map(|row| row.cells[0].figures.len());
        assert_eq!(counts.collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn all_contestants_of_a_round_draw_the_same() {
        let seeds = RefCell::new(Vec::new());
        let run = |turn: Turn| {
            seeds.borrow_mut().push(turn.seed);
            Ok(Sample::figure(1.0))
        };
        let mut rows = [Row::new("a", Unit::PerSecond, vec!["us", "them"], run)];
        measure(&mut rows, &PLAN, &["us"]).unwrap();
        let seeds = seeds.borrow();
        assert!(seeds.chunks(2).all(|pair| pair[0] == pair[1]));
        assert_ne!(seeds[0], seeds[2]);
    }
}
