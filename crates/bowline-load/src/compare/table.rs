//! The table of a comparison: medians, their spread, and the ratios to etcd.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Comparison, ROWS, Row, Sample, System, counterpart};
use crate::error::{Error, Result};
use crate::report::{Figure, Figures};

/// The columns of a table beside etcd.
const BESIDE_ETCD: &[&str] = &[
    "row",
    "system",
    "per_second",
    "min",
    "max",
    "of_etcd",
    "p50_ms",
    "p99_ms",
    "p99_of_etcd",
    "p999_ms",
    "server_cpu_us",
    "cpu_of_etcd",
    "client_cpu_us",
    "switches",
    "syscalls",
    "remark",
];

/// The columns of a table of guards. The last ones are of the ratios of each round.
const OF_GUARDS: &[&str] = &[
    "row",
    "system",
    "per_second",
    "min",
    "max",
    "of_bowline",
    "p50_ms",
    "p99_ms",
    "p99_of_bowline",
    "p999_ms",
    "server_cpu_us",
    "cpu_of_bowline",
    "client_cpu_us",
    "switches",
    "syscalls",
    "remark",
    "cpu_ratio_min",
    "cpu_ratio_max",
];

/// The middle and the ends of several figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = if figures.len() % 2 == 1 {
            figures[middle]
        } else {
            f64::midpoint(figures[middle - 1], figures[middle])
        };
        Some(Spread { median, min, max })
    }

    fn to_json(self) -> serde_json::Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// All runs of one row by one system.
struct Cell<'a> {
    samples: Vec<&'a Sample>,
}

impl Cell<'_> {
    fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| figure(sample)))
    }

    fn median(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        Some(self.spread(figure)?.median)
    }

    /// Where they could be counted.
    fn syscalls(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| sample.syscalls))
    }

    /// Why the figures say nothing, if they do not.
    fn flaw(&self) -> Option<String> {
        let errors: u64 = self.samples.iter().map(|sample| sample.errors).sum();
        let empty: u64 = self.samples.iter().map(|sample| sample.empty).sum();
        match (errors, empty) {
            (0, 0) => None,
            (errors, 0) => Some(format!("{errors} errors")),
            (_, empty) => Some(format!(
                "{errors} errors, {empty} answers without a value: void"
            )),
        }
    }
}

impl Comparison {
    fn cell(&self, row: &str, system: System) -> Cell<'_> {
        let is_of = |sample: &&Sample| sample.row == row && sample.system == system;
        Cell {
            samples: self.samples.iter().filter(is_of).collect(),
        }
    }

    /// The runs of one row by one system, in the order of the rounds.
    pub(super) fn rounds_of(&self, row: &str, system: System) -> Vec<&Sample> {
        self.cell(row, system).samples
    }

    /// A comparison of nothing says nothing.
    pub fn expect_some_success(&self) -> Result<()> {
        if self.samples.is_empty() {
            return Err(Error::NotFound("no system could be run".to_owned()));
        }
        Ok(())
    }

    /// What has to be known to read the figures.
    #[must_use]
    pub fn circumstances(&self) -> Figures {
        let machine = &self.machine;
        let list = |pairs: &[(System, String)]| {
            let texts = pairs
                .iter()
                .map(|(system, text)| format!("{system}: {text}"));
            Figure::List(texts.collect())
        };
        let mut figures = vec![
            ("processor", machine.processor.as_str().into()),
            ("cores", machine.cores.into()),
            ("kernel", machine.kernel.as_str().into()),
            ("file_system", machine.file_system.as_str().into()),
            ("flushes_per_second", self.flushes_per_second.round().into()),
            ("versions", list(&self.versions)),
            ("rounds", self.rounds.into()),
            ("seconds_per_row", self.duration.as_secs_f64().into()),
        ];
        if !self.left_out.is_empty() {
            figures.push(("left_out", list(&self.left_out)));
        }
        figures
    }

    /// The columns of the table.
    #[must_use]
    pub fn columns(&self) -> &'static [&'static str] {
        match self.reference {
            System::Etcd => BESIDE_ETCD,
            System::Bowline | System::Guarded(_) => OF_GUARDS,
        }
    }

    /// The lines of the table, with a figure for each of the [`Comparison::columns`].
    #[must_use]
    pub fn lines(&self) -> Vec<Vec<Figure>> {
        let lines = ROWS.iter().flat_map(|row| {
            let systems = self.systems.iter();
            systems.map(|system| self.line(row, *system))
        });
        lines.flatten().collect()
    }

    /// The time of the servers' processors per operation, to the reference's, in each round.
    fn cpu_ratios(&self, row: &Row, system: System) -> Option<Spread> {
        let ours = self.rounds_of(row.name, system);
        let theirs = self.rounds_of(self.beside(row), self.reference);
        let pairs = ours.iter().zip(&theirs);
        Spread::of(pairs.map(|(ours, theirs)| ours.server_cpu_us / theirs.server_cpu_us))
    }

    /// The row of the reference that a row is compared with.
    fn beside(&self, row: &Row) -> &'static str {
        match self.reference {
            System::Etcd => counterpart(row),
            System::Bowline | System::Guarded(_) => row.name,
        }
    }

    fn line(&self, row: &Row, system: System) -> Option<Vec<Figure>> {
        let cell = self.cell(row.name, system);
        let reference = self.cell(self.beside(row), self.reference);
        let per_second = cell.spread(|sample| sample.per_second)?;
        let figure =
            |figure: fn(&Sample) -> f64| cell.median(figure).map_or(Figure::Absent, Figure::Real);
        let ratio = |figure: fn(&Sample) -> f64| {
            let ratio = cell.median(figure)? / reference.median(figure)?;
            (system != self.reference && ratio.is_finite()).then_some(Figure::Real(ratio))
        };
        let is_beside = row.is_own && self.reference == System::Etcd;
        let beside = is_beside.then(|| format!("etcd: {}", counterpart(row)));
        let mut line = vec![
            row.name.into(),
            system.to_string().as_str().into(),
            Figure::Real(per_second.median.round()),
            Figure::Real(per_second.min.round()),
            Figure::Real(per_second.max.round()),
            ratio(|sample| sample.per_second).unwrap_or(Figure::Absent),
            figure(|sample| sample.p50_ms),
            figure(|sample| sample.p99_ms),
            ratio(|sample| sample.p99_ms).unwrap_or(Figure::Absent),
            figure(|sample| sample.p99_9_ms),
            figure(|sample| sample.server_cpu_us),
            ratio(|sample| sample.server_cpu_us).unwrap_or(Figure::Absent),
            figure(|sample| sample.client_cpu_us),
            figure(|sample| sample.switches),
            cell.syscalls()
                .map_or(Figure::Absent, |calls| Figure::Real(calls.median)),
            cell.flaw().or(beside).map_or(Figure::Absent, Figure::Text),
        ];
        if self.reference != System::Etcd {
            let ratios = self.cpu_ratios(row, system);
            let ratios = ratios.filter(|_| system != self.reference);
            let end = |end: fn(Spread) -> f64| {
                ratios.map_or(Figure::Absent, |ratios| Figure::Real(end(ratios)))
            };
            line.extend([end(|ratios| ratios.min), end(|ratios| ratios.max)]);
        }
        Some(line)
    }

    /// Everything, as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut rows = Vec::new();
        for row in &ROWS {
            for system in self.systems.iter().copied() {
                let cell = self.cell(row.name, system);
                let spread = |figure: fn(&Sample) -> f64| cell.spread(figure).map(Spread::to_json);
                if cell.samples.is_empty() {
                    continue;
                }
                rows.push(json!({
                    "row": row.name,
                    "system": system.to_string(),
                    "beside": self.beside(row),
                    "per_second": spread(|sample| sample.per_second),
                    "p50_ms": spread(|sample| sample.p50_ms),
                    "p99_ms": spread(|sample| sample.p99_ms),
                    "p999_ms": spread(|sample| sample.p99_9_ms),
                    "server_cpu_us": spread(|sample| sample.server_cpu_us),
                    "client_cpu_us": spread(|sample| sample.client_cpu_us),
                    "switches": spread(|sample| sample.switches),
                    "syscalls": cell.syscalls().map(Spread::to_json),
                    "flaw": cell.flaw(),
                    "server_cpu_ratio": self.cpu_ratios(row, system).map(Spread::to_json),
                }));
            }
        }
        let pairs = |pairs: &[(System, String)]| -> serde_json::Map<String, serde_json::Value> {
            pairs
                .iter()
                .map(|(system, text)| (system.to_string(), text.as_str().into()))
                .collect()
        };
        json!({
            "processor": self.machine.processor,
            "cores": self.machine.cores,
            "kernel": self.machine.kernel,
            "file_system": self.machine.file_system,
            "flushes_per_second": self.flushes_per_second,
            "versions": pairs(&self.versions),
            "left_out": pairs(&self.left_out),
            "rounds": self.rounds,
            "seconds_per_row": self.duration.as_secs_f64(),
            "rows": rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Machine;
    use super::*;

    fn sample(row: &'static str, system: System, per_second: f64, cpu: f64) -> Sample {
        Sample {
            row,
            system,
            per_second,
            p50_ms: 1.0,
            p99_ms: 2.0,
            p99_9_ms: 3.0,
            server_cpu_us: cpu,
            client_cpu_us: 4.0,
            switches: 5.0,
            syscalls: None,
            errors: 0,
            empty: 0,
        }
    }

    fn comparison() -> Comparison {
        let linearizable = "linearizable read 200/1000";
        Comparison {
            systems: vec![System::Bowline, System::Etcd],
            reference: System::Etcd,
            machine: Machine {
                processor: "a processor".into(),
                cores: 2,
                kernel: "6.1".into(),
                file_system: "ext4".into(),
            },
            flushes_per_second: 8_000.4,
            versions: vec![(System::Etcd, "3".into())],
            left_out: vec![],
            rounds: 3,
            duration: Duration::from_secs(5),
            samples: vec![
                sample("put 1/1", System::Bowline, 300.0, 10.0),
                sample("put 1/1", System::Bowline, 100.0, 30.0),
                sample("put 1/1", System::Bowline, 200.0, 20.0),
                sample("put 1/1", System::Etcd, 100.0, 80.0),
                sample(linearizable, System::Etcd, 50.0, 40.0),
                sample("lease read 200/1000", System::Bowline, 150.0, 10.0),
            ],
        }
    }

    #[test]
    fn medians_and_ratios_are_of_the_right_rows() {
        let comparison = comparison();
        let line = comparison.line(&ROWS[0], System::Bowline).unwrap();
        let expected = [200.0, 100.0, 300.0, 2.0].map(Figure::Real);
        assert_eq!(line[2..6], expected);
        assert_eq!(
            (&line[10], &line[11]),
            (&Figure::Real(20.0), &Figure::Real(0.25))
        );
        // A row of its own stands beside etcd's linearizable read.
        let lease = ROWS.iter().find(|row| row.is_own).unwrap();
        let line = comparison.line(lease, System::Bowline).unwrap();
        assert_eq!(line[5], Figure::Real(3.0));
        assert!(comparison.line(lease, System::Etcd).is_none());
        // What was not run is not shown.
        assert!(comparison.line(&ROWS[1], System::Bowline).is_none());
    }

    /// With guards, the figures stand beside those of Bowline in the clear, round by round.
    #[test]
    fn guards_are_compared_with_bowline_in_the_clear() {
        let guarded = System::Guarded(crate::args::Guard::Both);
        let mut comparison = comparison();
        comparison.systems = vec![System::Bowline, guarded];
        comparison.reference = System::Bowline;
        for cpu in [12.0, 30.0, 30.0] {
            let sample = sample("put 1/1", guarded, 100.0, cpu);
            comparison.samples.push(sample);
        }
        let line = comparison.line(&ROWS[0], guarded).unwrap();
        assert_eq!(line.len(), comparison.columns().len());
        assert_eq!(
            (&line[5], &line[11]),
            (&Figure::Real(0.5), &Figure::Real(1.5))
        );
        assert_eq!(line[16..], [1.0, 1.5].map(Figure::Real));
        let line = comparison.line(&ROWS[0], System::Bowline).unwrap();
        assert_eq!(line[16..], [Figure::Absent, Figure::Absent]);
    }

    #[test]
    fn answers_without_a_value_void_a_row() {
        let mut comparison = comparison();
        comparison.samples[0].empty = 5;
        let line = comparison.line(&ROWS[0], System::Bowline).unwrap();
        assert!(matches!(line.last(), Some(Figure::Text(text)) if text.contains("void")));
        assert!(comparison.to_json()["rows"][0]["flaw"].is_string());
    }

    #[test]
    fn a_spread_has_its_middle_between_its_ends() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0].into_iter()).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!(Spread::of([].into_iter()), None);
    }
}
