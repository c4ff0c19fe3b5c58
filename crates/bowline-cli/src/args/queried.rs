//! The arguments of `graph query`.

use bowline::{AttributeValue, Attributes, Revision};
use clap::Args;

use super::graph::{parse_attribute, parse_json_attribute};
use super::{Durability, Write};

/// A query with its parameters.
#[derive(Debug, Args)]
pub struct Queried {
    /// The query; read from standard input if `-`
    #[arg(value_name = "QUERY")]
    pub text: Option<String>,
    /// A parameter that is a text; may be given several times
    #[arg(long = "param", value_parser = parse_attribute, value_name = "NAME=TEXT")]
    texts: Vec<(String, String)>,
    /// A parameter in JSON, as `bowline export` writes it: 41, true, [1,2], {"$date":"2026-01-02"}
    #[arg(long = "param-json", value_parser = parse_json_attribute, value_name = "NAME=JSON")]
    values: Vec<(String, AttributeValue)>,
    /// As it was at this revision
    #[arg(long, value_name = "REVISION")]
    pub rev: Option<Revision>,
    /// Show how the query would be run, and run nothing
    #[arg(long)]
    explain: bool,
    /// Show the rows and the time of each operator, after the answer
    #[arg(long, conflicts_with = "explain")]
    profile: bool,
    /// How a write is acknowledged.
    #[command(flatten)]
    write: Write,
}

/// What of a statement is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Its answer.
    Answer,
    /// Its plan; nothing is run.
    Plan,
    /// Its answer, and its plan with what each operator did.
    Profile,
}

/// A query with what it is run with.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) parameters: Attributes,
    pub(crate) rev: Option<Revision>,
    pub(crate) shown: Shown,
    pub(crate) durability: Durability,
}

impl Queried {
    /// A query with these settings.
    pub(crate) fn statement(&self, text: String) -> Statement {
        Statement {
            text,
            parameters: self.parameters(),
            rev: self.rev,
            shown: match (self.explain, self.profile) {
                (true, _) => Shown::Plan,
                (_, true) => Shown::Profile,
                _ => Shown::Answer,
            },
            durability: self.write.durability,
        }
    }

    /// All parameters.
    #[must_use]
    pub fn parameters(&self) -> Attributes {
        let texts = self.texts.iter();
        let texts = texts.map(|(name, text)| (name.clone(), text.into()));
        texts.chain(self.values.iter().cloned()).collect()
    }
}
