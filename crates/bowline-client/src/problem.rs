//! [`QueryProblem`]: why a server refused a query.

use std::fmt;

use bowline_proto::problem::of_details;
use bowline_proto::v1 as pb;
use pb::query_problem::Kind;

/// Why a query in Cypher was refused, with its place in the text. It displays as the server's text, with the line and carets
/// under the place.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) {
/// use bowline_client::Error;
/// use bowline_client::graph::Attributes;
///
/// let refused = client.query("MATCH (n) RETURN m", &Attributes::new()).await.unwrap_err();
/// if let Error::Query(problem) = refused {
///     assert_eq!((problem.line, problem.column, &*problem.detail), (1, 18, "UndefinedVariable"));
///     println!("{}", problem.caret);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryProblem {
    /// What sort of problem.
    pub kind: QueryProblemKind,
    /// openCypher's name of the class, as in `SyntaxError`; empty if it has none.
    pub class: String,
    /// openCypher's name of the exact problem, as in `UndefinedVariable`; empty if it has none.
    pub detail: String,
    /// One sentence.
    pub message: String,
    /// What to do next, if anything is known.
    pub help: Option<String>,
    /// The line of the text, from 1; 0 if no place is known.
    pub line: u32,
    /// The column in characters, from 1; 0 if no place is known.
    pub column: u32,
    /// How many characters of the line are meant.
    pub width: u32,
    /// The line, with carets under the place; empty if no place is known.
    pub caret: String,
    /// The limit that was reached, as in `rows`.
    pub limit: Option<String>,
    /// All of it, as the server says it.
    pub text: String,
}

/// What sort of problem a query has.
///
/// ```
/// use bowline_client::QueryProblemKind;
///
/// assert_ne!(QueryProblemKind::Query, QueryProblemKind::Limit);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryProblemKind {
    /// The text, the parameters, or the data that it met.
    Query,
    /// It is openCypher that the server does not support.
    Unsupported,
    /// It reached a limit.
    Limit,
}

impl fmt::Display for QueryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl QueryProblem {
    /// The problem among the details of a refusal with this text.
    pub(crate) fn of_details(details: &[u8], text: &str) -> Option<QueryProblem> {
        let problem: pb::QueryProblem = of_details(details)?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Some(QueryProblem {
            kind: match problem.kind() {
                Kind::Query => QueryProblemKind::Query,
                Kind::Unsupported => QueryProblemKind::Unsupported,
                Kind::Limit => QueryProblemKind::Limit,
            },
            class: problem.class,
            detail: problem.detail,
            message: problem.message,
            help: given(problem.help),
            line: problem.line,
            column: problem.column,
            width: problem.width,
            caret: problem.caret,
            limit: given(problem.limit),
            text: text.to_owned(),
        })
    }
}
