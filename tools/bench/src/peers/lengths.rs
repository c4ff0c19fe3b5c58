//! S13: the rows S1 to S5 with longer values. Held to the same rows with values of 100 bytes: a length at which a store
//! keeps values elsewhere must not cost it more than it costs the others.

use std::cell::RefCell;

use super::commits::{self, ONE, SIXTEEN};
use super::reads::{self, SMALL};
use super::stage::{Dataset, Stage};
use crate::data::{LARGE_VALUE_BYTES, MIDDLE_VALUE_BYTES, VALUE_BYTES};
use crate::measure::{Row, Sample};
use crate::result::Unit;

const GET_FROM_TABLES: &str = "S13 get, cached tables, 100 K keys, 100 B";
const SCAN_OF_TABLES: &str = "S13 scan of 100 K entries, cached tables, 100 B";

/// The rows of one length.
struct Names {
    value_bytes: usize,
    one: &'static str,
    sixteen: &'static str,
    get: &'static str,
    get_from_tables: &'static str,
    scan_of_tables: &'static str,
}

const MIDDLE: Names = Names {
    value_bytes: MIDDLE_VALUE_BYTES,
    one: "S13 durable commit, 1 thread, 400 B",
    sixteen: "S13 durable commit, 16 threads, 400 B",
    get: "S13 get, 100 K keys, 400 B",
    get_from_tables: "S13 get, cached tables, 100 K keys, 400 B",
    scan_of_tables: "S13 scan of 100 K entries, cached tables, 400 B",
};
const LARGE: Names = Names {
    value_bytes: LARGE_VALUE_BYTES,
    one: "S13 durable commit, 1 thread, 1 KiB",
    sixteen: "S13 durable commit, 16 threads, 1 KiB",
    get: "S13 get, 100 K keys, 1 KiB",
    get_from_tables: "S13 get, cached tables, 100 K keys, 1 KiB",
    scan_of_tables: "S13 scan of 100 K entries, cached tables, 1 KiB",
};

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let mut rows = vec![
        get(
            stage,
            GET_FROM_TABLES,
            Dataset::SmallTables,
            VALUE_BYTES,
            None,
        ),
        scan(stage, SCAN_OF_TABLES, VALUE_BYTES, None),
    ];
    for names in [MIDDLE, LARGE] {
        let value_bytes = names.value_bytes;
        let raw = RefCell::default();
        let one = Row::new(names.one, Unit::PerSecond, everyone(stage), move |turn| {
            let sample = commits::alternating(stage, turn, &mut raw.borrow_mut(), value_bytes)?;
            Ok(Sample::rate(sample.own))
        });
        let sixteen = Row::new(
            names.sixteen,
            Unit::PerSecond,
            everyone(stage),
            move |turn| Ok(commits::durable(stage, turn, 16, value_bytes)?.1),
        );
        rows.extend([
            as_in(one, ONE),
            as_in(sixteen, SIXTEEN),
            get(stage, names.get, Dataset::Small, value_bytes, Some(SMALL)),
            get(
                stage,
                names.get_from_tables,
                Dataset::SmallTables,
                value_bytes,
                Some(GET_FROM_TABLES),
            ),
            scan(
                stage,
                names.scan_of_tables,
                value_bytes,
                Some(SCAN_OF_TABLES),
            ),
        ]);
    }
    rows
}

fn everyone(stage: &Stage) -> Vec<&'static str> {
    stage.names(|_| true)
}

fn get<'a>(
    stage: &'a Stage,
    name: &'static str,
    dataset: Dataset,
    value_bytes: usize,
    base: Option<&'static str>,
) -> Row<'a> {
    let row = Row::new(name, Unit::Nanoseconds, everyone(stage), move |turn| {
        reads::get_random(stage, turn, dataset, 1, value_bytes)
    });
    match base {
        Some(base) => as_in(row, base),
        None => row,
    }
}

fn scan<'a>(
    stage: &'a Stage,
    name: &'static str,
    value_bytes: usize,
    base: Option<&'static str>,
) -> Row<'a> {
    let row = Row::new(name, Unit::Nanoseconds, everyone(stage), move |turn| {
        reads::scan(stage, turn, Dataset::SmallTables, value_bytes)
    })
    .remark("per entry");
    match base {
        Some(base) => as_in(row, base),
        None => row,
    }
}

/// Beside each peer, over the same with values of 100 bytes.
fn as_in<'a>(row: Row<'a>, base: &'static str) -> Row<'a> {
    let peers = ["RocksDB", "fjall", "redb", "LMDB", "SurrealKV"];
    peers.into_iter().fold(row, |row, peer| {
        row.beside_as_in(peer, base, format!("of × {peer} with 100 B"))
    })
}
