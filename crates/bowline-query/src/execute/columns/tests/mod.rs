//! Groups over columns against known numbers, and against the operators that work row by row ([`random`]).

mod make;
mod random;
mod shape;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bowline_types::{BlockId, Direction};

use crate::error::{Class, Error, Result};
use crate::execute::Limits;
use crate::graph::{FieldColumns, FieldsAsked, Graph, GraphMut, StoreResult};
use crate::memory::MemoryGraph;
use crate::query::{Answer, Parameters, Query};
use crate::value::{Name, NodeRecord, Properties, RelationshipId, Value};
use shape::Shape;

/// A graph that says whether it has parallel relationships, and counts what a query asks of it.
struct TestGraph {
    graph: MemoryGraph,
    has_parallel: bool,
    holds_fields: bool,
    /// The fields of this node cannot be read.
    fails_at: Option<BlockId>,
    /// From how many nodes steps were taken.
    starts: Cell<usize>,
}

impl TestGraph {
    fn of(graph: MemoryGraph, has_parallel: bool) -> TestGraph {
        TestGraph {
            graph,
            has_parallel,
            holds_fields: false,
            fails_at: None,
            starts: Cell::new(0),
        }
    }

    /// Without parallel relationships.
    fn new(setup: &str) -> TestGraph {
        let mut graph = MemoryGraph::new();
        let query = Query::new(setup);
        query.run_mut(&mut graph, &Parameters::new()).unwrap();
        TestGraph::of(graph, false)
    }

    /// So many nodes with numbers from 0 on, each with a relationship to each other one, or to each.
    fn complete(nodes: i64, has_loops: bool) -> TestGraph {
        let mut graph = MemoryGraph::new();
        let ids: Vec<BlockId> = (0..nodes).map(|i| node(&mut graph, "N", i)).collect();
        for from in &ids {
            for to in ids.iter().filter(|to| has_loops || *to != from) {
                join(&mut graph, *from, "T", *to);
            }
        }
        TestGraph::of(graph, false)
    }
}

fn node(graph: &mut MemoryGraph, label: &str, number: i64) -> BlockId {
    let record = NodeRecord {
        labels: vec![label.into()],
        properties: [("i".into(), Value::Int(number))].into(),
    };
    graph.create_node(record).unwrap()
}

fn join(graph: &mut MemoryGraph, from: BlockId, kind: &str, to: BlockId) {
    let properties = Properties::new();
    graph
        .create_relationship(from, kind.into(), to, properties)
        .unwrap();
}

impl Graph for TestGraph {
    fn has_parallel_relationships(&self) -> bool {
        self.has_parallel
    }

    fn holds_fields(&self) -> bool {
        self.holds_fields
    }

    fn ends(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        visit: &mut dyn FnMut(usize, BlockId) -> bool,
    ) -> StoreResult<()> {
        self.graph.ends(nodes, direction, kinds, &mut |place, to| {
            let goes_on = visit(place, to);
            if !goes_on {
                self.starts.set(self.starts.get() + place);
            }
            goes_on
        })?;
        self.starts.set(self.starts.get() + nodes.len());
        Ok(())
    }

    fn fields(
        &self,
        nodes: &[BlockId],
        asked: FieldsAsked<'_>,
        found: &mut FieldColumns,
    ) -> StoreResult<bool> {
        match self.fails_at.filter(|id| nodes.contains(id)) {
            Some(id) => Err(format!("node {id} is damaged").into()),
            None => self.graph.fields(nodes, asked, found),
        }
    }

    fn nodes(
        &self,
        label: Option<&str>,
        after: Option<BlockId>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<()> {
        self.graph.nodes(label, after, count, page)
    }

    fn node(&self, id: BlockId) -> StoreResult<Option<Arc<NodeRecord>>> {
        self.graph.node(id)
    }

    fn relationships(
        &self,
        node: BlockId,
        direction: Direction,
        kinds: &[Name],
        after: Option<&RelationshipId>,
        count: usize,
        page: &mut Vec<Arc<RelationshipId>>,
    ) -> StoreResult<()> {
        self.graph
            .relationships(node, direction, kinds, after, count, page)
    }

    fn relationship(&self, id: &RelationshipId) -> StoreResult<Option<Arc<Properties>>> {
        self.graph.relationship(id)
    }

    fn node_count(&self, label: Option<&str>) -> StoreResult<u64> {
        self.graph.node_count(label)
    }

    fn relationship_count(&self, kind: Option<&str>) -> StoreResult<u64> {
        self.graph.relationship_count(kind)
    }
}

/// What the plan of a query does over columns.
fn shape(graph: &TestGraph, text: &str) -> Shape {
    let prepared = Query::new(text).plan(graph).unwrap();
    Shape::of(&prepared.compiled, graph.has_parallel)
}

/// The rows as text, of a query that makes its groups over columns.
fn rows(graph: &TestGraph, text: &str) -> Vec<String> {
    assert!(shape(graph, text).groups > 0, "not over columns: {text}");
    let answer = Query::new(text).run(graph, &Parameters::new());
    let answer = answer.unwrap_or_else(|error| panic!("{text}\n{error}"));
    let show = |row: Vec<Value>| row.iter().map(ToString::to_string).collect::<Vec<_>>();
    let shown = answer.rows.into_iter().map(|row| show(row).join(" "));
    shown.collect()
}

/// The answers by columns and by rows.
fn both(graph: &mut TestGraph, query: &Query<'_>) -> [Result<Answer>; 2] {
    let parameters = Parameters::new();
    let by_columns = query.run(&*graph, &parameters);
    [by_columns, query.run_mut(&mut graph.graph, &parameters)]
}

#[test]
fn equal_rows_have_weights() {
    let graph = TestGraph::complete(5, false);
    // 5 * 4 * 4 walks: the third step never is the second one back, for that is another relationship.
    let text =
        "MATCH (a)-[:T]->(b)-[:T]->(c) RETURN count(*), sum(c.i), count(DISTINCT c), max(c.i)";
    assert_eq!(rows(&graph, text), ["80 160 5 4"]);
    // 5 * 4 * 4 * 4 walks.
    let text = "MATCH (a)-[:T]->(b) MATCH (b)-[:T]->(c) MATCH (c)-[:T]->(d) RETURN d.i AS i, count(*), sum(d.i), avg(d.i) ORDER BY i";
    let expected = [
        "0 64 0 0.0",
        "1 64 64 1.0",
        "2 64 128 2.0",
        "3 64 192 3.0",
        "4 64 256 4.0",
    ];
    assert_eq!(shape(&graph, text).merges, 3);
    assert_eq!(rows(&graph, text), expected);
    // From each node: the first step is taken from 5 nodes, and the others from 5, although there are 20 and 80 rows.
    assert_eq!(graph.starts.get(), 10 + 15);
    // Without a -> b -> a -> b.
    let text = "MATCH (a)-[:T]->(b)-[:T]->(c)-[:T]->(d) RETURN count(*), sum(d.i)";
    assert_eq!(rows(&graph, text), ["300 600"]);
    let text = "MATCH (a)-[:T]->(b)-[:T]->(c)-[:T]->(d) RETURN count(*)";
    assert_eq!(rows(&graph, text), ["300"]);
}

#[test]
fn a_loop_is_not_followed_twice() {
    let mut graph = TestGraph::new("CREATE (a {i: 1})-[:T]->(a)-[:T]->({i: 2})-[:T]->(a)");
    // Of 5 walks, one takes the loop twice.
    let chain = "MATCH (a)-[:T]->(b)-[:T]->(c) RETURN count(*), sum(c.i)";
    assert_eq!(rows(&graph, chain), ["4 6"]);
    assert_eq!(shape(&graph, chain).from_loops, 1);
    let two = "MATCH (a)-[:T]->(b) MATCH (b)-[:T]->(c) RETURN count(*), sum(c.i)";
    assert_eq!(rows(&graph, two), ["5 7"]);
    let backwards = "MATCH (c)<-[:T]-(b)<-[:T]-(a) RETURN count(*), sum(c.i)";
    assert_eq!(rows(&graph, backwards), ["4 6"]);
    let itself = "MATCH (a)-[:T]->(a)-[:T]->(a) RETURN count(*)";
    assert_eq!(rows(&graph, itself), ["0"]);
    // Another kind is another relationship.
    let kinds = "MATCH (a)-[:T]->(b)-[:U]->(c) RETURN count(*)";
    let setup = "MATCH (a {i: 1}) CREATE (a)-[:U]->(a)";
    let query = Query::new(setup);
    query.run_mut(&mut graph.graph, &Parameters::new()).unwrap();
    assert_eq!(rows(&graph, kinds), ["2"]);
    // With parallel relationships, ends do not tell them apart: the second step is left to the rows.
    let graph = TestGraph {
        has_parallel: true,
        ..TestGraph::new("CREATE (a)-[:T]->(a)-[:T]->(a)")
    };
    assert_eq!(shape(&graph, chain).steps, 0);
    let answer = Query::new(chain).run(&graph, &Parameters::new()).unwrap();
    assert_eq!(answer.rows, [[Value::Int(2), Value::Int(0)]]);
}

#[test]
fn a_star_has_no_ray_twice() {
    let setup =
        "CREATE (a:Hub)-[:T]->({i: 1}), (a)-[:T]->({i: 2}), (a)-[:T]->({i: 4}), ({i: 8})-[:T]->(a)";
    let graph = TestGraph::new(setup);
    let star = "MATCH (b)<-[:T]-(a)-[:T]->(c) RETURN count(*), sum(b.i), sum(c.i)";
    assert_eq!(rows(&graph, star), ["6 14 14"]);
    assert_eq!(shape(&graph, star).in_ends, 1);
    let two = "MATCH (b)<-[:T]-(a) MATCH (a)-[:T]->(c) RETURN count(*), sum(c.i)";
    assert_eq!(rows(&graph, two), ["10 21"]);
    let from_hub =
        "MATCH (a:Hub)-[:T]->(b), (a)-[:T]->(c), (d)-[:T]->(a) RETURN count(*), sum(b.i), sum(d.i)";
    assert_eq!(rows(&graph, from_hub), ["6 14 48"]);
    let inwards = "MATCH (b)-[:T]->(a:Hub)<-[:T]-(c) RETURN count(*)";
    assert_eq!(rows(&graph, inwards), ["0"]);
    // With a loop, its ends are those of the same relationship in both directions.
    let setup = "CREATE (a {i: 1})-[:T]->(a)-[:T]->({i: 2})";
    assert_eq!(rows(&TestGraph::new(setup), star), ["2 3 3"]);
}

#[test]
fn a_circle_closes_at_the_node_that_is_bound() {
    let triangle = "MATCH (a)-[:T]->(b)-[:T]->(c)-[:T]->(a) RETURN count(*), sum(b.i)";
    let mut graph = TestGraph::complete(4, false);
    assert_eq!(rows(&graph, triangle), ["24 36"]);
    // A loop, and there and back again, from any of the three on, with 3 others.
    let setup = "MATCH (a {i: 0}) CREATE (a)-[:T]->(a)";
    let query = Query::new(setup);
    query.run_mut(&mut graph.graph, &Parameters::new()).unwrap();
    assert_eq!(rows(&graph, triangle), ["33 42"]);
    let clauses = "MATCH (a)-[:T]->(b) MATCH (b)-[:T]->(a) RETURN count(*), sum(a.i)";
    assert_eq!(rows(&graph, clauses), ["13 18"]);
}

/// 2,100 leaves of a hub, and 5 places for each leaf: batches of a scan, of a hub and of steps split.
#[test]
fn batches_split_and_no_row_is_lost() {
    let mut graph = MemoryGraph::new();
    let hub = node(&mut graph, "Hub", 0);
    let places: Vec<BlockId> = (0..5).map(|i| node(&mut graph, "Place", i)).collect();
    for i in 0..2_100 {
        let leaf = node(&mut graph, "Leaf", i);
        join(&mut graph, hub, "T", leaf);
        for place in &places {
            join(&mut graph, leaf, "AT", *place);
        }
    }
    let graph = TestGraph::of(graph, false);
    let sum = 2_099 * 2_100 / 2;
    let text = "MATCH (l:Leaf) WHERE l.i >= 0 RETURN count(*), count(DISTINCT l), sum(l.i)";
    assert_eq!(rows(&graph, text), [format!("2100 2100 {sum}")]);
    // From one start: more rows than a batch has.
    let text =
        "MATCH (h:Hub)-[:T]->(l) WHERE l.i % 2 = 1 RETURN count(*), sum(l.i), collect(h.i)[0]";
    assert_eq!(rows(&graph, text), [format!("1050 {} 0", 1_050 * 1_050)]);
    // From 1,024 starts: more steps than a batch has. `collect`, so that nothing is merged.
    for text in [
        "MATCH (l:Leaf)-[:AT]->(p) RETURN count(*), sum(l.i * 10 + p.i), size(collect(l.i))",
        "MATCH (h:Hub)-[:T]->(l)-[:AT]->(p) RETURN count(*), sum(l.i * 10 + p.i), size(collect(p.i))",
    ] {
        let expected = format!("10500 {} 10500", sum * 50 + 2_100 * 10);
        assert_eq!(rows(&graph, text), [expected]);
    }
    // What was merged leaves in batches, too.
    let text = "MATCH (p:Place)<-[:AT]-(l) MATCH (l)-[:AT]->(q) RETURN q.i AS i, count(*) ORDER BY i DESC LIMIT 1";
    assert_eq!(rows(&graph, text), ["4 10500"]);
    let text = "MATCH (p:Place)<-[:AT]-(l) WITH l MATCH (l)<-[:T]-(h) RETURN count(*), sum(h.i)";
    assert_eq!(rows(&graph, text), ["10500 0"]);
    // Rows of an operator that has no columns.
    let text = "UNWIND range(1, 2500) AS u MATCH (h:Hub)-[:T]->(l:Leaf {i: u - 1}) RETURN count(*)";
    let text = text.replace("2500", "3");
    assert_eq!(rows(&graph, &text), ["3"]);
    let text =
        "MATCH (l:Leaf) WITH l LIMIT 2050 MATCH (l)-[:AT]->(p:Place) RETURN count(*), sum(l.i)";
    assert_eq!(rows(&graph, text), [format!("10250 {}", 5 * 2_049 * 1_025)]);
}

#[test]
fn a_sum_with_weights_does_not_overflow_in_silence() {
    let large = i64::MAX / 2;
    let setup = format!("UNWIND [1, 2, 3] AS u MERGE (b {{i: {large}}}) CREATE ()-[:T]->(b)");
    let mut graph = TestGraph::new(&setup);
    let text = "MATCH (a)-[:T]->(b) RETURN sum(b.i)";
    assert_eq!(shape(&graph, text).merges, 1);
    for answer in both(&mut graph, &Query::new(text)) {
        let error = answer.expect_err("it is more than 64 bits");
        assert_eq!(error.problem().unwrap().class, Class::ArithmeticError);
    }
    let text = "MATCH (a)-[:T]->(b) RETURN sum(DISTINCT b.i), max(b.i), avg(b.i * 1.0)";
    let average = Value::Float(large as f64);
    assert_eq!(rows(&graph, text), [format!("{large} {large} {average}")]);
}

/// 16 nodes, each joined to each: there are 16^16 = 2^64 walks of 15 steps, and 2^60 of 14.
#[test]
fn a_count_does_not_overflow_in_silence() {
    let graph = TestGraph::complete(16, true);
    let chain = |steps: usize| {
        let step = |at| format!("MATCH (n{at})-[:T]->(n{})", at + 1);
        (0..steps).map(step).collect::<Vec<_>>().join(" ")
    };
    for what in ["count(*)", "count(n1)", "n15.i AS i, count(*)"] {
        let text = format!("{} RETURN {what} LIMIT 1", chain(14).replace("n14", "n15"));
        let expected = match what.contains("AS i") {
            true => format!("0 {}", 1_u64 << 56),
            false => (1_u64 << 60).to_string(),
        };
        assert_eq!(rows(&graph, &text), [expected]);
    }
    for (steps, what) in [
        (15, "count(*)"),
        (15, "count(n15.i)"),
        (15, "n15:N, count(*)"),
        (16, "count(*)"),
        (16, "count(n16.i)"),
        (16, "n16.i, count(*)"),
    ] {
        let text = format!("{} RETURN {what}", chain(steps));
        let answer = Query::new(&text).run(&graph, &Parameters::new());
        let error = answer.expect_err("there are more than can be counted");
        assert_eq!(
            error.problem().unwrap().class,
            Class::ArithmeticError,
            "{what}"
        );
    }
}

/// 1,100 leaves are more than a batch.
#[test]
fn without_memory_rows_go_on_unmerged_and_the_answer_stays() {
    let mut graph = MemoryGraph::new();
    let hub = node(&mut graph, "Hub", 0);
    for i in 0..3 {
        let end = node(&mut graph, "End", i);
        join(&mut graph, hub, "U", end);
    }
    for i in 0..1_100 {
        let leaf = node(&mut graph, "Leaf", i);
        join(&mut graph, leaf, "T", hub);
    }
    let mut graph = TestGraph::of(graph, false);
    let text = "MATCH (a:Leaf)-[:T]->(b) MATCH (b)-[:U]->(c) WHERE b:Hub AND c.i > 0 \
                RETURN count(*), sum(c.i), min(b.i + c.i)";
    assert_eq!(shape(&graph, text).merges, 1);
    let few = |bytes| bytes <= 600;
    let mut starts = Vec::new();
    for memory_bytes in [1 << 30, 1_000, 200, 0] {
        let limits = Limits {
            memory_bytes,
            ..Limits::default()
        };
        for query in [
            Query::new(text).limits(limits.clone()),
            Query::new(text).limits(limits).may_hold(&few),
        ] {
            graph.starts.set(0);
            let by_columns = query.run(&graph, &Parameters::new()).unwrap().rows;
            starts.push(graph.starts.get());
            assert_eq!(by_columns, [[2_200.into(), 3_300.into(), Value::Int(1)]]);
            let [_, by_rows] = both(&mut graph, &query);
            assert_eq!(by_columns, by_rows.unwrap().rows, "{memory_bytes} bytes");
        }
    }
    // From the leaves, and from the hub: once, or for each batch of leaves where there is no memory to wait for the next.
    assert_eq!(starts[..2], [1_101, 1_102]);
    assert_eq!(starts[4..], [1_102; 4]);
}

#[test]
fn a_long_query_can_be_cancelled() {
    let graph = TestGraph::complete(24, false);
    for text in [
        "MATCH (a)-[:T]->(b), (c)-[:T]->(d) RETURN count(*)",
        "MATCH (a)-[:T]->(b)-[:T]->(c)-[:T]->(d) RETURN count(*)",
        "MATCH (a)-[:T]->(b)-[:T]->(c)-[:T]->(d) RETURN a.i, collect(d.i)",
    ] {
        is_cancelled_when_it_asks(4, &graph, text);
    }
}

/// A hub has 600 rays, so there are 360,000 pairs of them: one batch of rows, but more than a query looks at before it asks whether
/// to stop. It did not ask before it had looked at all, and a hub has millions of rays.
#[test]
fn pairs_of_the_rays_of_a_hub_can_be_cancelled() {
    let mut graph = MemoryGraph::new();
    let hub = node(&mut graph, "Hub", 0);
    for i in 0..600 {
        let leaf = node(&mut graph, "Leaf", i);
        join(&mut graph, hub, "T", leaf);
    }
    let graph = TestGraph::of(graph, false);
    for text in [
        "MATCH (b)<-[:T]-(a:Hub)-[:T]->(c) RETURN count(*)",
        "MATCH (a:Hub)-[:T]->(b) MATCH (a)-[:T]->(c) WHERE b.i = c.i RETURN count(*)",
        "MATCH (a:Hub)-[:T]->(b) MATCH (a)-[:T]->(b) RETURN count(*), sum(b.i)",
        "MATCH (a:Hub)-[:T]->(b) MATCH (a)-[:T]->(b) RETURN collect(b.i)",
    ] {
        assert!(shape(&graph, text).groups > 0, "not over columns: {text}");
        is_cancelled_when_it_asks(6, &graph, text);
    }
    let star = "MATCH (b)<-[:T]-(a:Hub)-[:T]->(c) RETURN count(*)";
    assert_eq!(rows(&graph, star), [(600 * 599).to_string()]);
    let same = "MATCH (a:Hub)-[:T]->(b) MATCH (a)-[:T]->(b) RETURN count(*)";
    assert_eq!(rows(&graph, same), ["600"]);
}

fn is_cancelled_when_it_asks(times: u32, graph: &TestGraph, text: &str) {
    let asked = Cell::new(0);
    let cancelled = || {
        asked.set(asked.get() + 1);
        asked.get() == times
    };
    let query = Query::new(text).cancelled(&cancelled);
    match query.run(graph, &Parameters::new()) {
        Err(Error::Cancelled { .. }) => assert_eq!(asked.get(), times),
        Err(error) => panic!("{text}: {error}"),
        Ok(_) => panic!("{text}: it asks {} times", asked.get()),
    }
}

#[test]
fn a_profile_has_the_numbers_of_rows() {
    let clock = || Duration::ZERO;
    let mut graph = TestGraph::complete(6, true);
    for text in [
        "MATCH (a)-[:T]->(b) RETURN count(*)",
        "MATCH (a:N)-[:T]->(b)-[:T]->(c) WHERE b.i > 1 RETURN c.i, count(*)",
        "MATCH (a)-[:T]->(b) MATCH (b)-[:T]->(c) MATCH (c)-[:T]->(d) WHERE d.i < 2 RETURN count(*)",
        "MATCH (a)-[:T]->(b)-[:T]->(c)-[:T]->(a) WITH a, c.i AS i WHERE i <> 3 RETURN i, count(a)",
        "UNWIND [1, 2] AS u MATCH (a {i: u})-[:T]->(b) RETURN u, count(b)",
        "MATCH (a)-[:T]->(b) WITH b, count(*) AS c MATCH (b)-[:T]->(d) RETURN d.i, sum(c)",
        "MATCH (a) WHERE a.i > 9 MATCH (a)-[:T]->(b) RETURN count(*)",
    ] {
        assert!(shape(&graph, text).groups > 0, "not over columns: {text}");
        let query = Query::new(text).profiled(&clock);
        let [by_columns, by_rows] = both(&mut graph, &query).map(|it| it.unwrap().profile.unwrap());
        assert_eq!(by_columns, by_rows, "{text}");
    }
}

/// There are 63 bits for labels: what else is asked is evaluated as in a row. And at most 64 operators pass batches on: those below
/// give rows.
#[test]
fn what_is_too_much_for_columns_is_left_to_the_rows() {
    let labels: Vec<String> = (0..70).map(|at| format!("L{at}")).collect();
    let setup = "CREATE (a:L0 {i: 1})-[:T]->(b:L1:L69 {i: 2})-[:T]->(a), (b)-[:T]->(:L64 {i: 4})";
    let graph = TestGraph::new(setup);
    for (at, expected) in [
        (0, "1 1"),
        (1, "1 2"),
        (63, "0 0"),
        (64, "1 4"),
        (69, "1 2"),
    ] {
        let any = labels
            .iter()
            .map(|it| format!("b:{it}"))
            .collect::<Vec<_>>();
        let any = any.join(" OR ");
        let text =
            format!("MATCH (a)-[:T]->(b) WHERE ({any}) AND b:L{at} RETURN count(*), sum(b.i)");
        assert_eq!(rows(&graph, &text), [expected]);
    }
    let graph = TestGraph::new("CREATE (a {i: 5})-[:T]->(a)");
    let step = |at| format!("MATCH (n{at})-[:T]->(n{})", at + 1);
    let chain = (0..100).map(step).collect::<Vec<_>>().join(" ");
    let text = format!("{chain} RETURN count(*), sum(n100.i)");
    let shape = shape(&graph, &text);
    assert_eq!((shape.groups, shape.rows, shape.steps), (1, 3, 100));
    assert_eq!(rows(&graph, &text), ["1 5"]);
}

#[test]
fn a_node_that_cannot_be_read_fails_the_query() {
    let mut graph = TestGraph::complete(4, false);
    graph.fails_at = Some(BlockId(3));
    let ask = |text: &str| Query::new(text).run(&graph, &Parameters::new());
    for text in [
        "MATCH (a)-[:T]->(b) WHERE b.i > 0 RETURN count(*)",
        "MATCH (a)-[:T]->(b) RETURN b.i, count(*)",
        "MATCH (a)-[:T]->(b) RETURN sum(b.i)",
        "MATCH (a)-[:T]->(b) WITH b, b.i AS i RETURN i, count(*)",
        "MATCH (a)-[:T]->(b) WHERE NOT b:N RETURN count(*)",
    ] {
        let error = ask(text).expect_err(text);
        assert!(matches!(error, Error::Store(_)), "{text}: {error}");
        assert!(error.to_string().contains("damaged"), "{error}");
    }
    // Nothing is asked of it.
    let answer = ask("MATCH (a)-[:T]->(b) RETURN count(*)").unwrap();
    assert_eq!(answer.rows, [[Value::Int(12)]]);
}
