//! Queries at random, by columns and by rows: both give the same answers.
//!
//! A seed makes a graph and [`QUERIES`] queries. 90 seeds are always the same, 10 are new each time. A failure names the seed
//! and the query; `BOWLINE_SEED` runs 10 seeds from that one on.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use fastrand::Rng;

use super::{TestGraph, make, shape::Shape};
use crate::error::{Error, Result};
use crate::execute::Limits;
use crate::memory::MemoryGraph;
use crate::query::{Parameters, Query, Summary};
use crate::value::Value;

/// How many queries a graph is asked.
const QUERIES: usize = 16;

/// What was tried.
#[derive(Debug, Default)]
struct Tried {
    queries: usize,
    /// With operators over columns.
    over_columns: usize,
    /// That cannot be planned.
    refused: usize,
    /// That fail as they run.
    failed: usize,
    /// With several rows, or one with more than zeros.
    with_rows: usize,
    shape: Shape,
}

fn seeds() -> Vec<u64> {
    let variable = |name: &str| std::env::var(name).ok();
    let from = |seed: u64, count| (0..count).map(move |at| seed.wrapping_add(at));
    if let Some(seed) = variable("BOWLINE_SEED") {
        return from(seed.parse().expect("BOWLINE_SEED is a number"), 10).collect();
    }
    let mut seeds: Vec<u64> = from(0, 90).collect();
    if variable("BOWLINE_FRESH_SEED").is_none_or(|value| value != "0") {
        seeds.extend(from(RandomState::new().hash_one(0), 10));
    }
    seeds
}

#[test]
fn queries_have_the_same_answers_by_columns_and_by_rows() {
    let mut tried = Tried::default();
    let seeds = seeds();
    for seed in &seeds {
        try_graph(*seed, &mut tried);
    }
    println!("{tried:?}");
    if seeds.len() < 90 {
        return;
    }
    let share = |part: usize, percent: usize| part * 100 >= tried.queries * percent;
    assert!(share(tried.over_columns, 50), "{tried:?}");
    assert!(share(tried.with_rows, 25), "{tried:?}");
    assert!(!share(tried.refused + tried.failed, 12), "{tried:?}");
    let shape = tried.shape;
    assert!(share(shape.groups, 40), "{tried:?}");
    assert!(share(shape.rows, 10), "{tried:?}");
    assert!(share(shape.steps, 80), "{tried:?}");
    assert!(share(shape.merges, 7), "{tried:?}");
    assert!(share(shape.from_loops, 8), "{tried:?}");
    assert!(share(shape.in_ends, 20), "{tried:?}");
}

fn try_graph(seed: u64, tried: &mut Tried) {
    let mut random = Rng::with_seed(seed);
    let has_parallel = random.u8(..5) == 0;
    let setup = make::graph(&mut random, has_parallel);
    let mut graph = MemoryGraph::new();
    let query = Query::new(&setup);
    query.run_mut(&mut graph, &Parameters::new()).unwrap();
    let mut graph = TestGraph::of(graph, has_parallel);
    graph.holds_fields = random.u8(..3) == 0;
    for _ in 0..QUERIES {
        let text = make::query(&mut random);
        tried.queries += 1;
        if let Err(why) = try_query(&mut graph, &text, &mut random, tried) {
            panic!("{why}\n{setup}\n{text}\nrepeat with: BOWLINE_SEED={seed}");
        }
    }
}

fn parameters() -> Parameters {
    let list = Value::list(vec![1.into(), 2.5.into(), Value::Null]);
    Parameters::from([
        ("x".into(), Value::Int(2)),
        ("t".into(), "a".into()),
        ("list".into(), list),
    ])
}

fn try_query(
    graph: &mut TestGraph,
    text: &str,
    random: &mut Rng,
    tried: &mut Tried,
) -> std::result::Result<(), String> {
    let clock = || Duration::ZERO;
    let most = (1 << 18) + random.u64(..4_000);
    let (few, all) = (|bytes: u64| bytes <= most, |_: u64| true);
    let mut query = Query::new(text);
    // A profile asks each operator row by row; without one, they push.
    if random.bool() {
        query = query.profiled(&clock);
    }
    if random.u8(..6) == 0 {
        query = query.limits(Limits {
            memory_bytes: random.u64(400..8_000),
            ..Limits::default()
        });
    }
    query = query.may_hold(if random.u8(..6) == 0 { &few } else { &all });
    let Ok(prepared) = query.plan(&*graph) else {
        tried.refused += 1;
        return Ok(());
    };
    let shape = Shape::of(&prepared.compiled, graph.has_parallel);
    tried.over_columns += usize::from(shape.groups + shape.rows > 0);
    tried.shape.add(shape);
    let mut parameters = parameters();
    parameters.retain(|name, _| prepared.parameters().contains(name));

    let (mut by_columns, mut by_rows) = (Vec::new(), Vec::new());
    let columns = query.for_each(&prepared, &*graph, &parameters, &mut |row| {
        by_columns.push(row);
        Ok(())
    });
    let rows = query.for_each_mut(&prepared, &mut graph.graph, &parameters, &mut |row| {
        by_rows.push(row);
        Ok(())
    });
    tried.failed += usize::from(rows.is_err());
    tried.with_rows += usize::from(has_rows(&by_rows));
    same_end(&columns, &rows)?;
    if rows.is_err() {
        return Ok(());
    }
    // Of rows in no order, any may be the first.
    if text.ends_with("LIMIT 3") && by_columns.len() == by_rows.len() {
        return Ok(());
    }
    match are_close(&mut by_columns, &mut by_rows) {
        true => Ok(()),
        false => Err(format!("by columns {by_columns:?}\nby rows    {by_rows:?}")),
    }
}

fn has_rows(rows: &[Vec<Value>]) -> bool {
    let is_empty = |value: &Value| match value {
        Value::List(list) => list.is_empty(),
        value => value.is_null() || value.order(&Value::Int(0)).is_eq(),
    };
    rows.len() > 1 || !rows.iter().flatten().all(is_empty)
}

/// Both come to an end, with the same profile, or fail in the same way. With too little memory for the rows, columns may do:
/// they ask for other amounts.
fn same_end(columns: &Result<Summary>, rows: &Result<Summary>) -> std::result::Result<(), String> {
    let is_same = match (columns, rows) {
        (_, Err(Error::LimitExceeded { .. })) => true,
        // It meets the limit before another row, which fails.
        (Err(Error::LimitExceeded { .. }), Err(_)) => true,
        (Ok(columns), Ok(rows)) => columns.profile == rows.profile,
        (Err(Error::Query(columns)), Err(Error::Query(rows))) => columns.class == rows.class,
        (Err(columns), Err(rows)) => {
            std::mem::discriminant(columns) == std::mem::discriminant(rows)
        }
        _ => false,
    };
    let show = |it: &Result<Summary>| match it {
        Ok(summary) => summary.profile.clone().unwrap_or_else(|| "its rows".into()),
        Err(error) => error.to_string(),
    };
    match is_same {
        true => Ok(()),
        false => Err(format!(
            "by columns {}\nby rows {}",
            show(columns),
            show(rows)
        )),
    }
}

/// The same rows in any order, with lists in any order.
fn are_close(a: &mut [Vec<Value>], b: &mut [Vec<Value>]) -> bool {
    for rows in [&mut *a, &mut *b] {
        rows.iter_mut().flatten().for_each(sort);
        rows.sort_by(|x, y| {
            let orders = x.iter().zip(y).map(|(x, y)| x.order(y));
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
    }
    let is_close = |(a, b): (&Vec<Value>, &Vec<Value>)| a.iter().zip(b).all(|(a, b)| close(a, b));
    a.len() == b.len() && a.iter().zip(b.iter()).all(is_close)
}

fn sort(value: &mut Value) {
    if let Value::List(list) = value {
        let mut values = list.to_vec();
        values.iter_mut().for_each(sort);
        values.sort_by(Value::order);
        *value = Value::list(values);
    }
}

/// Equal, but for how a sum was rounded. Of 1 and 1.0 either may stand for a group.
fn close(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    };
    match (a, b) {
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| close(a, b))
        }
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0),
            (None, None) => a.order(b).is_eq(),
            _ => false,
        },
    }
}
