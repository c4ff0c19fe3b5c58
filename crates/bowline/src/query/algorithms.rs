//! The graph's algorithms as procedures: `CALL bowline.pageRank({kinds: ['links']}) YIELD node, score`.
//!
//! A procedure takes the nodes that it starts at, and last a map of options, which may be left out. One table has them all;
//! what each is called with, and what it yields, is in docs/cypher.md. An algorithm computes first, and its rows are made one
//! by one as the query takes them; those that find one result after another, simple paths and degrees, search on as their
//! rows are taken.
//!
//! They read the graph of a snapshot. In a query that writes they are refused: they would not see what it has written, and
//! its commit could not check what they have read.

use std::sync::Arc;

use bowline_query::{
    Graph as _, Name, Path, ProcedureRows, Procedures, Properties, Relationship, RelationshipId,
    Signature, StoreError, Type, Value,
};

use crate::graph_view::{BlockValues, Graph, PathOfEdges};
use bowline_core::graph::Precedence;
use bowline_types::{BlockId, Direction};

/// The procedures of every query: the graph's algorithms. [`crate::Db::query`] and the like have them.
///
/// ```
/// use bowline::cypher::{Parameters, Value};
/// # let db = bowline::Db::in_memory()?;
/// let none = Parameters::new();
/// db.query("CREATE (a:page {name: 'a'})-[:links]->(b:page {name: 'b'})", &none)?;
/// let text = "CALL bowline.pageRank({kinds: ['links']}) YIELD node, score RETURN node.name ORDER BY score DESC LIMIT 1";
/// assert_eq!(db.query(text, &none)?.rows, [[Value::from("b")]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Algorithms;

type Rows = Result<ProcedureRows, StoreError>;

/// A procedure.
struct Algorithm {
    name: &'static str,
    inputs: &'static [(&'static str, Type)],
    /// The options that it knows.
    options: &'static [&'static str],
    outputs: &'static [(&'static str, Type)],
    call: fn(&Graph, &[BlockId], &Options<'_>) -> Rows,
}

const NODES: &[(&str, Type)] = &[("from", Type::Node), ("to", Type::Node)];
const START: &[(&str, Type)] = &[("start", Type::Node)];

/// In the order of docs/cypher.md.
const ALL: &[Algorithm] = &[
    Algorithm {
        name: "bowline.shortestPath",
        inputs: NODES,
        options: &["kinds", "direction", "weight", "defaultWeight", "maxDepth"],
        outputs: &[("path", Type::Path), ("cost", Type::Float)],
        call: shortest_path,
    },
    Algorithm {
        name: "bowline.simplePaths",
        inputs: NODES,
        options: &["kinds", "direction", "maxDepth"],
        outputs: &[("path", Type::Path), ("length", Type::Int)],
        call: simple_paths,
    },
    Algorithm {
        name: "bowline.traverse",
        inputs: START,
        options: &["kinds", "direction", "maxDepth", "limit", "depthFirst"],
        outputs: &[("node", Type::Node), ("depth", Type::Int)],
        call: traverse,
    },
    Algorithm {
        name: "bowline.distances",
        inputs: START,
        options: &["kinds", "direction", "weight", "defaultWeight"],
        outputs: &[("node", Type::Node), ("distance", Type::Float)],
        call: distances,
    },
    Algorithm {
        name: "bowline.components",
        inputs: &[],
        options: &["kinds", "strong"],
        outputs: &[("node", Type::Node), ("component", Type::Int)],
        call: components,
    },
    Algorithm {
        name: "bowline.topologicalOrder",
        inputs: &[],
        options: &["kinds", "targetFirst"],
        outputs: &[("node", Type::Node), ("position", Type::Int)],
        call: topological_order,
    },
    Algorithm {
        name: "bowline.pageRank",
        inputs: &[],
        options: &["kinds", "direction", "damping", "iterations"],
        outputs: &[("node", Type::Node), ("score", Type::Float)],
        call: page_rank,
    },
    Algorithm {
        name: "bowline.communities",
        inputs: &[],
        options: &["kinds", "iterations"],
        outputs: &[("node", Type::Node), ("community", Type::Node)],
        call: communities,
    },
    Algorithm {
        name: "bowline.triangles",
        inputs: &[],
        options: &["kinds"],
        outputs: &[("node", Type::Node), ("triangles", Type::Int)],
        call: triangles,
    },
    Algorithm {
        name: "bowline.clustering",
        inputs: &[],
        options: &["kinds", "undirected"],
        outputs: &[("node", Type::Node), ("coefficient", Type::Float)],
        call: clustering,
    },
    Algorithm {
        name: "bowline.degrees",
        inputs: &[],
        options: &["kinds", "direction"],
        outputs: &[("node", Type::Node), ("degree", Type::Int)],
        call: degrees,
    },
    Algorithm {
        name: "bowline.kinds",
        inputs: &[],
        options: &[],
        outputs: &[("kind", Type::Text)],
        call: kinds,
    },
];

fn find(name: &str) -> Option<&'static Algorithm> {
    ALL.iter().find(|algorithm| algorithm.name == name)
}

impl Procedures for Algorithms {
    fn signature(&self, name: &str) -> Option<Signature> {
        let algorithm = find(name)?;
        let named = |all: &[(&str, Type)]| -> Vec<(Name, Type)> {
            all.iter()
                .map(|(name, kind)| ((*name).into(), *kind))
                .collect()
        };
        let mut inputs = named(algorithm.inputs);
        let optional = usize::from(!algorithm.options.is_empty());
        if optional > 0 {
            inputs.push(("options".into(), Type::Map));
        }
        Some(Signature {
            name: algorithm.name.into(),
            inputs,
            optional,
            outputs: named(algorithm.outputs),
        })
    }

    fn names(&self) -> Vec<Name> {
        ALL.iter().map(|algorithm| algorithm.name.into()).collect()
    }

    fn call(&self, name: &str, arguments: &[Value], graph: &dyn bowline_query::Graph) -> Rows {
        let algorithm = find(name).ok_or_else(|| format!("there is no procedure {name}"))?;
        let snapshot = graph
            .store()
            .and_then(|store| store.downcast_ref::<Graph>());
        let snapshot = snapshot.ok_or_else(|| {
            format!(
                "{name} reads a snapshot, and is not called in a query that writes: call it first, and pass its rows as a \
                 parameter"
            )
        })?;
        let mut nodes = Vec::new();
        for (at, (input, _)) in algorithm.inputs.iter().enumerate() {
            match arguments.get(at) {
                Some(Value::Node(node)) => nodes.push(node.id),
                other => {
                    let is = other.map_or("missing", Value::type_name);
                    return Err(format!("`{input}` of {name} is to be a Node, and is {is}").into());
                }
            }
        }
        let none = Properties::new();
        let given = match arguments.get(algorithm.inputs.len()) {
            None | Some(Value::Null) => &none,
            Some(Value::Map(map)) => &**map,
            Some(other) => {
                let is = other.type_name();
                return Err(format!("the options of {name} are to be a Map, and are {is}").into());
            }
        };
        if let Some(unknown) = given.keys().find(|it| !algorithm.options.contains(&&***it)) {
            let known = algorithm.options.join(", ");
            return Err(format!("{name} has no option `{unknown}`; it has {known}").into());
        }
        (algorithm.call)(snapshot, &nodes, &Options { name, given })
    }
}

/// The options of a call.
struct Options<'o> {
    name: &'o str,
    given: &'o Properties,
}

impl Options<'_> {
    fn wrong(&self, option: &str, wanted: &str) -> StoreError {
        format!("`{option}` of {} is to be {wanted}", self.name).into()
    }

    fn get(&self, option: &str) -> Option<&Value> {
        self.given.get(option).filter(|value| !value.is_null())
    }

    fn kinds(&self) -> Result<Vec<String>, StoreError> {
        let wanted = "a list of texts";
        let text = |value: &Value| match value {
            Value::Text(text) => Ok(text.to_string()),
            _ => Err(self.wrong("kinds", wanted)),
        };
        match self.get("kinds") {
            None => Ok(Vec::new()),
            Some(Value::List(list)) => list.iter().map(text).collect(),
            Some(_) => Err(self.wrong("kinds", wanted)),
        }
    }

    fn direction(&self, default: Direction) -> Result<Direction, StoreError> {
        match self.get("direction") {
            None => Ok(default),
            Some(Value::Text(text)) if &**text == "out" => Ok(Direction::Out),
            Some(Value::Text(text)) if &**text == "in" => Ok(Direction::In),
            Some(Value::Text(text)) if &**text == "both" => Ok(Direction::Both),
            Some(_) => Err(self.wrong("direction", "'out', 'in' or 'both'")),
        }
    }

    fn is(&self, option: &str) -> Result<bool, StoreError> {
        match self.get(option) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong(option, "true or false")),
        }
    }

    fn count<T: TryFrom<i64>>(&self, option: &str) -> Result<Option<T>, StoreError> {
        let wrong = || self.wrong(option, "an integer not below 0");
        match self.get(option) {
            None => Ok(None),
            Some(Value::Int(count)) => T::try_from(*count).map(Some).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
        }
    }

    fn number(&self, option: &str) -> Result<Option<f64>, StoreError> {
        match self.get(option) {
            None => Ok(None),
            Some(Value::Int(number)) => Ok(Some(*number as f64)),
            Some(Value::Float(number)) => Ok(Some(*number)),
            Some(_) => Err(self.wrong(option, "a number")),
        }
    }

    fn text(&self, option: &str) -> Result<Option<String>, StoreError> {
        match self.get(option) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.to_string())),
            Some(_) => Err(self.wrong(option, "a text")),
        }
    }
}

fn node(id: BlockId) -> Value {
    Value::Node(id.into())
}

fn int(number: impl TryInto<i64>) -> Value {
    Value::Int(number.try_into().unwrap_or(i64::MAX))
}

/// Rows that are known, made as they are taken.
fn rows<T: 'static>(
    all: impl IntoIterator<Item = T, IntoIter: 'static>,
    row: impl Fn(T) -> Vec<Value> + 'static,
) -> ProcedureRows {
    Box::new(all.into_iter().map(move |each| Ok(row(each))))
}

/// A value for each block.
fn values<T: Copy + 'static>(
    values: &BlockValues<T>,
    value: impl Fn(T) -> Value + 'static,
) -> ProcedureRows {
    let all: Vec<(BlockId, T)> = values.iter().collect();
    rows(all, move |(id, held)| vec![node(id), value(held)])
}

/// A path as a query has it. A path with the fewest edges does not tell which way each leads: where both are possible, it has
/// the leaving one if there is one.
fn path(graph: &Graph, found: &PathOfEdges, direction: Direction) -> Result<Value, StoreError> {
    let mut relationships = Vec::with_capacity(found.kinds.len());
    for (ends, taken) in found.blocks.windows(2).zip(&found.kinds) {
        let edge = |source, target| RelationshipId {
            source,
            kind: taken.kind.clone(),
            target,
            discriminator: 0,
        };
        let (forward, backward) = (edge(ends[0], ends[1]), edge(ends[1], ends[0]));
        let id = match taken.direction.unwrap_or(direction) {
            Direction::Out => forward,
            Direction::In => backward,
            Direction::Both if graph.relationship(&forward)?.is_some() => forward,
            Direction::Both => backward,
        };
        relationships.push(Relationship::from(Arc::new(id)));
    }
    let nodes = found.blocks.iter().map(|id| (*id).into()).collect();
    Ok(Value::Path(Arc::new(Path {
        nodes,
        relationships,
    })))
}

fn shortest_path(graph: &Graph, nodes: &[BlockId], options: &Options<'_>) -> Rows {
    let direction = options.direction(Direction::Out)?;
    let search = graph.shortest_path(nodes[0], nodes[1]).direction(direction);
    let search = search.kinds(options.kinds()?);
    let search = match options.text("weight")? {
        Some(weight) => search.weight(weight),
        None => search,
    };
    let search = match options.number("defaultWeight")? {
        Some(weight) => search.default_weight(weight),
        None => search,
    };
    let search = match options.count("maxDepth")? {
        Some(depth) => search.max_depth(depth),
        None => search,
    };
    let Some(found) = search.find_edges()? else {
        return Ok(Box::new(std::iter::empty()));
    };
    let row = vec![path(graph, &found, direction)?, Value::Float(found.cost)];
    Ok(Box::new(std::iter::once(Ok(row))))
}

fn simple_paths(graph: &Graph, nodes: &[BlockId], options: &Options<'_>) -> Rows {
    let direction = options.direction(Direction::Out)?;
    let search = graph.simple_paths(nodes[0], nodes[1]).direction(direction);
    let search = search.kinds(options.kinds()?);
    let search = match options.count("maxDepth")? {
        Some(depth) => search.max_depth(depth),
        None => search,
    };
    let (graph, mut paths) = (graph.clone(), search.find()?);
    Ok(Box::new(std::iter::from_fn(move || {
        let found = paths.next_edges()?;
        let row = found.map_err(StoreError::from).and_then(|found| {
            let length = int(found.kinds.len());
            Ok(vec![path(&graph, &found, direction)?, length])
        });
        Some(row)
    })))
}

fn traverse(graph: &Graph, nodes: &[BlockId], options: &Options<'_>) -> Rows {
    let direction = options.direction(Direction::Out)?;
    let walk = graph.traverse(nodes[0]).direction(direction);
    let walk = walk.kinds(options.kinds()?);
    let walk = match options.count("maxDepth")? {
        Some(depth) => walk.max_depth(depth),
        None => walk,
    };
    let walk = match options.count("limit")? {
        Some(limit) => walk.limit(limit),
        None => walk,
    };
    let walk = match options.is("depthFirst")? {
        true => walk.depth_first(),
        false => walk,
    };
    let found = walk.run()?;
    let mut next = 0;
    // The result lends its ids: each row asks for one.
    Ok(Box::new(std::iter::from_fn(move || {
        let visit = found.get(next)?;
        next += 1;
        Some(Ok(vec![node(visit.id), int(visit.depth)]))
    })))
}

fn distances(graph: &Graph, nodes: &[BlockId], options: &Options<'_>) -> Rows {
    let (direction, kinds) = (options.direction(Direction::Out)?, options.kinds()?);
    let default = options.number("defaultWeight")?;
    let Some(weight) = options.text("weight")? else {
        if default.is_some() {
            return Err(options.wrong("defaultWeight", "given with a `weight`"));
        }
        let found = graph.distances_from(nodes[0]).direction(direction);
        let found = found.kinds(kinds).run()?;
        return Ok(values(&found, |steps| Value::Float(steps.into())));
    };
    let search = graph.weighted_distances_from(nodes[0], weight);
    let search = search.direction(direction).kinds(kinds);
    let search = match default {
        Some(weight) => search.default_weight(weight),
        None => search,
    };
    Ok(values(&search.run()?, Value::Float))
}

fn components(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    let kinds = options.kinds()?;
    let found = match options.is("strong")? {
        true => graph.strongly_connected_components(&kinds)?,
        false => graph.weakly_connected_components(&kinds)?,
    };
    let numbered = found.into_iter().enumerate();
    let each = numbered.flat_map(|(number, blocks)| blocks.into_iter().map(move |id| (id, number)));
    Ok(rows(each, |(id, number)| vec![node(id), int(number)]))
}

fn topological_order(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    let precedence = match options.is("targetFirst")? {
        true => Precedence::TargetFirst,
        false => Precedence::SourceFirst,
    };
    let order = graph.topological_order(options.kinds()?, precedence)?;
    let numbered = order.into_iter().enumerate();
    Ok(rows(numbered, |(place, id)| vec![node(id), int(place)]))
}

/// How many iterations an algorithm makes at most.
const ITERATIONS_MAX: u32 = 10_000;

fn iterations(options: &Options<'_>, default: u32) -> Result<u32, StoreError> {
    let count = options.count("iterations")?.unwrap_or(default);
    match count <= ITERATIONS_MAX {
        true => Ok(count),
        false => Err(options.wrong("iterations", "at most 10,000")),
    }
}

fn page_rank(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    let ranks = graph.page_rank().kinds(options.kinds()?);
    let ranks = ranks.direction(options.direction(Direction::Out)?);
    let ranks = match options.number("damping")? {
        Some(damping) => ranks.damping(damping),
        None => ranks,
    };
    let ranks = ranks.iterations(iterations(options, 20)?).run()?;
    Ok(values(&ranks, Value::Float))
}

fn communities(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    let labels = graph.communities().kinds(options.kinds()?);
    let labels = labels.iterations(iterations(options, 10)?).run()?;
    let all: Vec<(BlockId, BlockId)> = labels.iter().collect();
    Ok(rows(all, |(id, label)| vec![node(id), node(label)]))
}

fn triangles(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    let counts = graph.triangles().kinds(options.kinds()?).per_block()?;
    Ok(values(&counts, int))
}

fn clustering(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    let coefficients = graph.clustering_coefficients().kinds(options.kinds()?);
    let coefficients = match options.is("undirected")? {
        true => coefficients.undirected(),
        false => coefficients,
    };
    Ok(values(&coefficients.run()?, Value::Float))
}

fn degrees(graph: &Graph, _: &[BlockId], options: &Options<'_>) -> Rows {
    /// How many blocks are looked up at once.
    const PAGE: usize = 256;
    let (direction, kinds) = (options.direction(Direction::Both)?, options.kinds()?);
    let graph = graph.clone();
    let (mut page, mut last, mut is_end) = (Vec::new().into_iter(), None, false);
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(id) = page.next() {
                let mut degree = 0_u64;
                let counted = graph.visit_neighbors(id, direction, &kinds, |_| degree += 1);
                let row = counted.map(|()| vec![node(id), int(degree)]);
                return Some(row.map_err(Into::into));
            }
            if is_end {
                return None;
            }
            let mut ids: Vec<BlockId> = Vec::new();
            if let Err(error) = graph.nodes(None, last, PAGE, &mut ids) {
                is_end = true;
                return Some(Err(error));
            }
            is_end = ids.len() < PAGE;
            last = ids.last().copied();
            page = ids.into_iter();
        }
    })))
}

fn kinds(graph: &Graph, _: &[BlockId], _: &Options<'_>) -> Rows {
    Ok(rows(graph.kind_names(), |name| vec![Value::from(name)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;
    use bowline_query::Parameters;

    fn asked(db: &Db, text: &str) -> Result<Vec<String>, String> {
        let answer = db
            .query(text, &Parameters::new())
            .map_err(|error| error.to_string())?;
        let row = |row: &Vec<Value>| row.iter().map(ToString::to_string).collect::<Vec<_>>();
        Ok(answer.rows.iter().map(|it| row(it).join(" ")).collect())
    }

    fn db() -> Db {
        let db = Db::in_memory().unwrap();
        let text = "CREATE (a:n {x: 1})-[:t {w: 2}]->(b:n {x: 2})-[:t {w: 2}]->(c:n {x: 3}), (a)-[:u {w: 9}]->(c), (:m {x: 4})";
        db.query(text, &Parameters::new()).unwrap();
        db
    }

    /// Two blocks may have an edge of one kind each way. Paths in both directions named the leaving one, whichever was taken: a
    /// cost was not the sum along its path, and of two paths one came twice.
    #[test]
    fn a_path_in_both_directions_has_the_edges_that_it_takes() {
        let db = Db::in_memory().unwrap();
        let text = "CREATE (a:n {x: 1})-[:t {w: 9}]->(b:n {x: 2}), (b)-[:t {w: 1}]->(a)";
        db.query(text, &Parameters::new()).unwrap();
        let ends = "MATCH (a {x: 1}), (b {x: 2})";
        let weights = "[r IN relationships(path) | r.w]";
        let lightest = format!(
            "{ends} CALL bowline.shortestPath(a, b, {{direction: 'both', weight: 'w'}}) YIELD path, cost RETURN {weights}, cost"
        );
        assert_eq!(asked(&db, &lightest).unwrap(), ["[1] 1.0"]);
        let all = format!(
            "{ends} CALL bowline.simplePaths(a, b, {{direction: 'both'}}) YIELD path RETURN {weights}"
        );
        assert_eq!(asked(&db, &all).unwrap(), ["[9]", "[1]"]);
    }

    /// The answers are those that the methods of the graph give: known by hand for four blocks.
    #[test]
    fn every_algorithm_is_called() {
        let db = db();
        let ends = "MATCH (a {x: 1}), (c {x: 3})";
        let cases = [
            (format!("{ends} CALL bowline.shortestPath(a, c) YIELD path, cost RETURN length(path), cost"), vec!["1 1.0"]),
            (
                format!("{ends} CALL bowline.shortestPath(a, c, {{weight: 'w'}}) YIELD path, cost RETURN [n IN nodes(path) | n.x], cost"),
                vec!["[1, 2, 3] 4.0"],
            ),
            (
                format!("{ends} CALL bowline.shortestPath(c, a, {{direction: 'both'}}) YIELD path RETURN type(relationships(path)[0])"),
                vec!["'u'"],
            ),
            (format!("{ends} CALL bowline.shortestPath(c, a) YIELD path RETURN path"), vec![]),
            (format!("{ends} CALL bowline.simplePaths(a, c) YIELD length RETURN length ORDER BY length"), vec!["1", "2"]),
            (
                "MATCH (a {x: 1}) CALL bowline.traverse(a, {kinds: ['t']}) YIELD node, depth RETURN node.x, depth".to_owned(),
                vec!["1 0", "2 1", "3 2"],
            ),
            (
                "MATCH (a {x: 1}) CALL bowline.distances(a, {weight: 'w'}) YIELD node, distance RETURN node.x, distance ORDER BY distance"
                    .to_owned(),
                vec!["1 0.0", "2 2.0", "3 4.0"],
            ),
            (
                "CALL bowline.components() YIELD node, component RETURN component, count(*) AS c ORDER BY c".to_owned(),
                vec![],
            ),
            (
                "CALL bowline.topologicalOrder({targetFirst: true}) YIELD node, position WHERE node:n RETURN node.x ORDER BY position"
                    .to_owned(),
                vec!["3", "2", "1"],
            ),
            ("CALL bowline.pageRank() YIELD node, score RETURN node.x ORDER BY score DESC LIMIT 1".to_owned(), vec!["3"]),
            ("CALL bowline.communities() YIELD community RETURN count(community)".to_owned(), vec!["4"]),
            ("CALL bowline.triangles() YIELD triangles RETURN sum(triangles)".to_owned(), vec!["3"]),
            ("CALL bowline.clustering({undirected: true}) YIELD coefficient RETURN max(coefficient)".to_owned(), vec!["1.0"]),
            (
                "CALL bowline.degrees({direction: 'out'}) YIELD node, degree RETURN node.x, degree ORDER BY node.x".to_owned(),
                vec!["1 2", "2 1", "3 0", "4 0"],
            ),
            ("CALL bowline.kinds()".to_owned(), vec!["'m'", "'n'", "'t'", "'u'"]),
        ];
        for (text, expected) in cases {
            let found = asked(&db, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
            match text.contains("components") {
                true => assert_eq!(found.len(), 2, "{text}: {found:?}"),
                false => assert_eq!(found, expected, "{text}"),
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let db = db();
        for (text, told) in [
            (
                "CALL bowline.pagerank() YIELD node RETURN node",
                "did you mean `bowline.pageRank`?",
            ),
            (
                "CALL bowline.pageRank({kind: ['t']}) YIELD node RETURN node",
                "no option `kind`; it has kinds",
            ),
            (
                "CALL bowline.pageRank({kinds: 't'}) YIELD node RETURN node",
                "is to be a list of texts",
            ),
            (
                "CALL bowline.pageRank({iterations: 10001}) YIELD node RETURN node",
                "at most 10,000",
            ),
            (
                "CALL bowline.pageRank({}, 1) YIELD node RETURN node",
                "takes 0 to 1 arguments (options), not 2",
            ),
            (
                "MATCH (a) CALL bowline.traverse() YIELD node RETURN node",
                "takes 1 to 2 arguments (start, options), not 0",
            ),
            (
                "OPTIONAL MATCH (a:none) CALL bowline.traverse(a) YIELD node RETURN node",
                "is to be a Node, and is Null",
            ),
            (
                "CALL bowline.pageRank() YIELD node, score SET node.r = score",
                "not called in a query that writes",
            ),
            (
                "CALL bowline.pageRank() YIELD rank RETURN rank",
                "has no output `rank`",
            ),
        ] {
            let error = asked(&db, text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
