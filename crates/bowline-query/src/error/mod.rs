//! Errors of queries: what is wrong, when it was found, and where it stands in the text.
//!
//! A [`Problem`] carries the names that openCypher gives to errors: a [`Class`] (`SyntaxError`), a [`Phase`]
//! (compile time or run time) and a [`Detail`] (`UndefinedVariable`). What this implementation does not support is
//! never a different answer: it is [`Error::Unsupported`], which names the construct.
//!
//! Code below the compiler knows no query text. It attaches a [`Span`], and the outermost call turns the span into a
//! [`Place`], which shows the line with a caret. The innermost span wins.

mod place;
mod problem;
mod suggest;

pub use place::{Place, Span};
pub use problem::{Class, Detail, Phase, Problem};
pub(crate) use suggest::nearest;

/// What a function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the store behind a [`Graph`](crate::Graph), passed through unchanged.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Why a query gave no answer, or stopped before its end.
///
/// ```
/// use bowline_query::{Error, MemoryGraph, Query};
///
/// let error = Query::new("RETURN nme").plan(&MemoryGraph::new()).unwrap_err();
/// assert!(matches!(error, Error::Query(_)));
/// assert!(error.to_string().contains("nme"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query, its parameters or the data that it met do not allow an answer.
    #[error("{0}")]
    Query(Box<Problem>),
    /// The query is openCypher, but uses something that this implementation does not have.
    #[error("{}", show_unsupported(.what, .place.as_deref()))]
    Unsupported {
        /// The construct, as in "CALL { … } IN TRANSACTIONS".
        what: String,
        /// Its bytes in the query.
        span: Option<Span>,
        /// Its line, with a caret.
        place: Option<Box<Place>>,
    },
    /// A limit given with the query was reached.
    #[error(
        "the query needs more than {limit} {what}; raise the limit `{setting}`, or narrow the query"
    )]
    LimitExceeded {
        /// What was counted, as in "rows".
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The field of [`Limits`](crate::Limits) that sets it.
        setting: &'static str,
    },
    /// The cancel callback asked the query to stop, because its time was over or its caller went away.
    #[error("the query was cancelled after {rows} rows; allow it more time, or narrow it")]
    Cancelled {
        /// The rows that the operators had produced by then, with the elements that expressions had gone through.
        rows: u64,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[source] StoreError),
}

fn show_unsupported(what: &str, place: Option<&Place>) -> String {
    let mut text = format!("{what} is not supported; see docs/cypher.md for what is");
    if let Some(place) = place {
        text.push('\n');
        text.push_str(&place.to_string());
    }
    text
}

impl Error {
    /// An error found before the query ran.
    pub(crate) fn compile(
        class: Class,
        detail: Detail,
        message: impl Into<String>,
        span: Span,
    ) -> Error {
        Error::Query(Box::new(
            Problem::new(class, Phase::CompileTime, detail, message).with_span(span),
        ))
    }

    /// An error found before the query ran, at no place of its text.
    pub(crate) fn compile_of_all(
        class: Class,
        detail: Detail,
        message: impl Into<String>,
    ) -> Error {
        let problem = Problem::new(class, Phase::CompileTime, detail, message);
        Error::Query(Box::new(problem))
    }

    /// A `SyntaxError` found before the query ran: by far the most frequent class.
    pub(crate) fn syntax(detail: Detail, message: impl Into<String>, span: Span) -> Error {
        Error::compile(Class::SyntaxError, detail, message, span)
    }

    /// An error met while the query ran. The evaluator adds the span.
    pub(crate) fn runtime(class: Class, detail: Detail, message: impl Into<String>) -> Error {
        Error::Query(Box::new(Problem::new(
            class,
            Phase::Runtime,
            detail,
            message,
        )))
    }

    /// A `TypeError: InvalidArgumentType` at run time.
    pub(crate) fn wrong_type(message: impl Into<String>) -> Error {
        Error::runtime(Class::TypeError, Detail::InvalidArgumentType, message)
    }

    /// A value of the right type that the function cannot take.
    pub(crate) fn wrong_value(message: impl Into<String>) -> Error {
        Error::runtime(Class::ArgumentError, Detail::InvalidArgumentValue, message)
    }

    pub(crate) fn unsupported(what: impl Into<String>, span: Span) -> Error {
        Error::Unsupported {
            what: what.into(),
            span: Some(span),
            place: None,
        }
    }

    /// Adds what to do next.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Error {
        if let Error::Query(problem) = &mut self {
            problem.help = Some(help.into());
        }
        self
    }

    /// Adds the place, unless a more exact one is known.
    pub(crate) fn at(mut self, span: Span) -> Error {
        match &mut self {
            Error::Query(problem) if problem.span.is_none() => problem.span = Some(span),
            Error::Unsupported { span: known, .. } if known.is_none() => *known = Some(span),
            _ => {}
        }
        self
    }

    /// Adds the line of the text that the span points to.
    pub(crate) fn in_text(mut self, text: &str) -> Error {
        match &mut self {
            Error::Query(problem) => {
                if let (Some(span), None) = (problem.span, &problem.place) {
                    problem.place = Some(Box::new(Place::new(text, span)));
                }
            }
            Error::Unsupported {
                span: Some(span),
                place,
                ..
            } if place.is_none() => {
                *place = Some(Box::new(Place::new(text, *span)));
            }
            _ => {}
        }
        self
    }

    /// The problem, if the query or its data is at fault.
    ///
    /// ```
    /// use bowline_query::{Detail, MemoryGraph, Query};
    ///
    /// let error = Query::new("RETURN nme").plan(&MemoryGraph::new()).unwrap_err();
    /// assert_eq!(error.problem().unwrap().detail, Detail::UndefinedVariable);
    /// ```
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Query(problem) => Some(problem),
            _ => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        Error::Store(error)
    }
}
