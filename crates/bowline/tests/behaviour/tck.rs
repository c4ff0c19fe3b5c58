//! openCypher's test suite on the database, in the folders that read and write a graph. The whole suite runs on a graph in
//! memory with the tests of `bowline-query`, whose runner this uses.

use std::fs;
use std::path::{Path, PathBuf};

use bowline::Db;
use bowline_query::{Answer, Error, Parameters, Query};
use scenario::{Contents, Ground, Outcome, Tables};

#[path = "../../../bowline-query/tests/tck/expected.rs"]
mod expected;
#[path = "../../../bowline-query/tests/tck/gherkin.rs"]
mod gherkin;
#[path = "../../../bowline-query/tests/tck/scenario.rs"]
mod scenario;

const FOLDERS: &[&str] = &[
    "clauses/create",
    "clauses/delete",
    "clauses/match",
    "clauses/match-where",
    "clauses/merge",
    "clauses/remove",
    "clauses/return",
    "clauses/set",
    "clauses/union",
    "clauses/unwind",
    "clauses/with",
    "clauses/with-where",
    "expressions/existentialSubqueries",
    "expressions/graph",
    "expressions/map",
    "expressions/path",
    "expressions/pattern",
    "useCases/triadicSelection",
];

/// Scenarios that need what the database does not have: a second relationship of a type between the same two nodes.
const SECOND_EDGES: usize = 7;

/// A database as the ground of scenarios.
struct Stored(Db);

impl Default for Stored {
    fn default() -> Stored {
        Stored(Db::in_memory().expect("a database"))
    }
}

impl Ground for Stored {
    fn execute(
        &mut self,
        text: &str,
        parameters: &Parameters,
        _: &Tables,
    ) -> (Result<Answer, Error>, bool) {
        let compiles = Query::new(text).plan(&self.0.snapshot().graph()).is_ok();
        (self.0.query(text, parameters), compiles)
    }

    fn contents(&self) -> Contents {
        let (mut contents, graph) = (Contents::default(), self.0.snapshot().graph());
        let blocks = graph.for_each_block(|block| {
            let attributes = block.attributes.iter();
            let properties = attributes.map(|(name, value)| format!("{name} {value:?}"));
            let kinds = block.kinds.iter().cloned();
            contents.node(&block.id.to_string(), kinds, properties);
            Ok(())
        });
        blocks.expect("the blocks");
        let edges = graph.for_each_edge(|edge| {
            let attributes = edge.attributes.iter();
            let properties = attributes.map(|(name, value)| format!("{name} {value:?}"));
            contents.relationship(&edge.key().to_string(), properties);
            Ok(())
        });
        edges.expect("the edges");
        contents
    }
}

#[test]
fn scenarios_pass_on_the_database() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowline-query/tests/tck");
    let (mut passed, mut second_edges, mut failures) = (0, 0, String::new());
    for folder in FOLDERS {
        let entries = fs::read_dir(root.join("features").join(folder)).expect("a folder");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            for scenario in gherkin::read(&fs::read_to_string(&file).unwrap()) {
                match scenario::run::<Stored>(&scenario, &root) {
                    Outcome::Passed => passed += 1,
                    Outcome::OtherError(reason) if reason.contains("one edge of each kind") => {
                        second_edges += 1;
                    }
                    Outcome::Unsupported(reason)
                    | Outcome::OtherError(reason)
                    | Outcome::Wrong(reason) => {
                        failures += &format!("=== {folder} {}\n{reason}\n", scenario.name);
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert_eq!(
        (passed > 800, second_edges),
        (true, SECOND_EDGES),
        "{passed} passed"
    );
}
