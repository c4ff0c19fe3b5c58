//! The arguments of the commands about blocks, edges and the graph they make.

use bowline::{AttributeValue, Attributes, Revision};
use clap::{Args, Subcommand, ValueEnum};

use super::Write;
use super::graph_algorithms::Algorithm;
use super::queried::Queried;
use crate::import::{AttributeJson, BlockRef};
use bowline_load::units::parse_size;

/// `bowline block`.
#[derive(Debug, Subcommand)]
pub enum Block {
    /// Put a block, replacing one of that id
    #[command(after_help = "Examples:
  bowline block put ann --kind person --attr city=Bonn --attr-json age=41
  bowline block put readme --kind file --content - < README.md")]
    Put {
        /// Its name, or its id as a UUID
        #[arg(value_parser = parse_block)]
        block: BlockRef,
        /// Its kind; may be given several times
        #[arg(
            long = "kind",
            value_name = "KIND",
            required_unless_present = "no_kind"
        )]
        kinds: Vec<String>,
        /// Gives it no kind
        #[arg(long, conflicts_with = "kinds")]
        no_kind: bool,
        /// Its content; read from standard input if `-`
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        content: String,
        /// Its attributes.
        #[command(flatten)]
        attributes: GivenAttributes,
        /// How the write is acknowledged.
        #[command(flatten)]
        write: Write,
    },
    /// Print a block
    #[command(after_help = "Examples:
  bowline block get ann
  bowline -o json block get ann --rev 5")]
    Get {
        /// Its name, or its id as a UUID
        #[arg(value_parser = parse_block)]
        block: BlockRef,
        /// As it was at this revision
        #[arg(long, value_name = "REVISION")]
        rev: Option<Revision>,
    },
    /// List blocks in the order of their ids
    #[command(after_help = "Examples:
  bowline block list
  bowline block list --kind person --limit 10")]
    List {
        /// Only blocks of this kind; may be given several times
        #[arg(long = "kind", value_name = "KIND")]
        kinds: Vec<String>,
        /// As it was at this revision
        #[arg(long, value_name = "REVISION")]
        rev: Option<Revision>,
        /// At most this many
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Delete a block and all of its edges
    #[command(after_help = "Examples:
  bowline block del ann")]
    Del {
        /// Its name, or its id as a UUID
        #[arg(value_parser = parse_block)]
        block: BlockRef,
        /// How the write is acknowledged.
        #[command(flatten)]
        write: Write,
    },
}

/// `bowline edge`.
#[derive(Debug, Subcommand)]
pub enum Edge {
    /// Put an edge between two blocks that exist
    #[command(after_help = "Examples:
  bowline edge put ann knows bob
  bowline edge put ann knows bob --attr met=school --attr-json since=2019")]
    Put {
        /// The two blocks and the kind.
        #[command(flatten)]
        edge: EdgeKey,
        /// Its attributes.
        #[command(flatten)]
        attributes: GivenAttributes,
        /// How the write is acknowledged.
        #[command(flatten)]
        write: Write,
    },
    /// Print an edge
    #[command(after_help = "Examples:
  bowline edge get ann knows bob
  bowline -o json edge get ann knows bob --rev 5")]
    Get {
        /// The two blocks and the kind.
        #[command(flatten)]
        edge: EdgeKey,
        /// As it was at this revision
        #[arg(long, value_name = "REVISION")]
        rev: Option<Revision>,
    },
    /// List all edges, or those of a block
    ///
    /// In JSON with the ids of the blocks, too.
    #[command(after_help = "Examples:
  bowline edge list
  bowline edge list --kind knows --limit 10
  bowline edge list ann --direction both")]
    List {
        /// Only edges of this block, by name or id
        #[arg(value_parser = parse_block)]
        block: Option<BlockRef>,
        /// With a block: which of its edges
        #[arg(long, value_enum, default_value_t = Direction::Out, requires = "block")]
        direction: Direction,
        /// Which kinds and when.
        #[command(flatten)]
        scope: Scope,
        /// At most this many
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Delete an edge
    #[command(after_help = "Examples:
  bowline edge del ann knows bob")]
    Del {
        /// The two blocks and the kind.
        #[command(flatten)]
        edge: EdgeKey,
        /// How the write is acknowledged.
        #[command(flatten)]
        write: Write,
    },
}

/// The attributes of a block or an edge.
#[derive(Debug, Args)]
pub struct GivenAttributes {
    /// An attribute that is a text; may be given several times
    #[arg(long = "attr", value_parser = parse_attribute, value_name = "KEY=TEXT")]
    texts: Vec<(String, String)>,
    /// An attribute in JSON, as `bowline export` writes it: 41, true, [1,2], {"$date":"2026-01-02"}
    #[arg(long = "attr-json", value_parser = parse_json_attribute, value_name = "KEY=JSON")]
    values: Vec<(String, AttributeValue)>,
}

impl GivenAttributes {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Attributes {
        let texts = self.texts.iter();
        let texts = texts.map(|(name, text)| (name.clone(), text.into()));
        texts.chain(self.values.iter().cloned()).collect()
    }
}

/// Which edge: between two blocks there is one of each kind.
#[derive(Debug, Args)]
pub struct EdgeKey {
    /// The block it leaves, by name or id
    #[arg(value_parser = parse_block)]
    pub source: BlockRef,
    /// Its kind
    pub kind: String,
    /// The block it enters, by name or id
    #[arg(value_parser = parse_block)]
    pub target: BlockRef,
}

/// `bowline graph`.
#[derive(Debug, Subcommand)]
pub enum Graph {
    /// List the blocks one edge away
    #[command(after_help = "Examples:
  bowline graph neighbors ann
  bowline graph neighbors libc@0.2.180 --direction in --kind depends_on")]
    Neighbors {
        /// The block, by name or id
        #[arg(value_parser = parse_block)]
        block: BlockRef,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// At most this many
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// List every block that can be reached, with its distance
    ///
    /// Says which bound stopped it, if one did: in JSON by a last object `{"stopped_by":"--limit"}`.
    #[command(after_help = "Examples:
  bowline graph reach ann
  bowline graph reach libc@0.2.180 --direction in --max-depth 3
  bowline graph reach ann --kind knows --limit 1000 --max-bytes 16MiB --depth-first --rev 5
  bowline graph reach ann --where since=2019 --max-neighbors 100")]
    Reach {
        /// The block to start from, by name or id
        #[arg(value_parser = parse_block)]
        block: BlockRef,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// How far.
        #[command(flatten)]
        bounds: Bounds,
        /// Follow each path to its end before the next, not by distance
        #[arg(long)]
        depth_first: bool,
    },
    /// Find a shortest path between two blocks
    ///
    /// The exit code is 1 if there is none.
    #[command(after_help = "Examples:
  bowline graph path ann dan
  bowline graph path bonn rome --weight km
  bowline graph path bonn rome --weight km --default-weight 10
  bowline graph path app@0.1.0 libc@0.2.180 --kind depends_on --max-depth 5")]
    Path {
        /// Where it starts, by name or id
        #[arg(value_parser = parse_block)]
        from: BlockRef,
        /// Where it ends, by name or id
        #[arg(value_parser = parse_block)]
        to: BlockRef,
        /// Add up this attribute of the edges, a number not below 0, instead of counting edges
        #[arg(long, value_name = "ATTRIBUTE")]
        weight: Option<String>,
        /// The weight of an edge without the attribute, which is refused otherwise
        #[arg(long, value_name = "W", requires = "weight", value_parser = parse_weight)]
        default_weight: Option<f64>,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// At most this many edges
        #[arg(long, value_name = "N")]
        max_depth: Option<u32>,
    },
    /// List the blocks so that every edge leads forward; refuses a cycle and shows it
    #[command(after_help = "Examples:
  bowline graph order
  bowline graph order --kind depends_on")]
    Order {
        /// Which edges count.
        #[command(flatten)]
        scope: Scope,
    },
    /// List the connected components, the largest first
    #[command(after_help = "Examples:
  bowline graph components
  bowline graph components --strong --limit 10")]
    Components {
        /// Which edges count.
        #[command(flatten)]
        scope: Scope,
        /// Blocks belong together if each reaches the other along the edges' direction
        #[arg(long)]
        strong: bool,
        /// At most this many components
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Answer a query in Cypher: blocks are nodes, edges are relationships
    ///
    /// A query that writes is one transaction. `AT REVISION n` before a query reads an older state. What of openCypher is
    /// supported is in docs/cypher.md. Without a query a terminal begins a session, and standard input has statements that
    /// end with `;`.
    #[command(after_help = "Examples:
  bowline graph query 'MATCH (p:person)-[:knows]->(q) RETURN p.name, q.name'
  bowline graph query 'MATCH (p:person {name: $name})-[:knows*1..3]->(q) RETURN DISTINCT q' --param name=ann
  bowline graph query 'MERGE (p:person {name: $name}) SET p.age = $age' --param name=ann --param-json age=41
  bowline graph query 'MATCH (p:person)-[:knows]->(q) RETURN q.name' --explain
  bowline graph query 'MATCH (p:person)-[:knows*1..3]->(q) RETURN count(q)' --profile --endpoints 10.0.0.1:2379
  bowline -o json graph query - --rev 5 < query.cypher")]
    Query(Queried),
    /// Create, list and drop indexes of blocks by attributes, which queries and filters use
    #[command(
        subcommand,
        after_help = "Examples:
  bowline graph index create person name
  bowline graph index list
  bowline graph index drop person name"
    )]
    Index(Indexed),
    /// An algorithm.
    #[command(flatten)]
    Algorithm(Algorithm),
    /// Count blocks and edges by kind, and degrees
    #[command(after_help = "Examples:
  bowline graph stats
  bowline -o json graph stats --rev 5")]
    Stats {
        /// Which edges count.
        #[command(flatten)]
        scope: Scope,
    },
    /// Print the graph, or what a block reaches, as Graphviz DOT
    #[command(after_help = "Examples:
  bowline graph dot | dot -Tsvg > graph.svg
  bowline graph dot libc@0.2.180 --direction in --max-depth 2")]
    Dot {
        /// Only what this block reaches, by name or id
        #[arg(value_parser = parse_block)]
        block: Option<BlockRef>,
        /// Which edges count.
        #[command(flatten)]
        edges: EdgeFilter,
        /// How far.
        #[command(flatten)]
        bounds: Bounds,
    },
}

/// `bowline graph index`.
#[derive(Debug, Subcommand)]
pub enum Indexed {
    /// Create an index, and build it
    ///
    /// A block of the kind is in it that has all of the attributes. Of several attributes all but the last have to be given to find
    /// a block. It is complete when the command ends. A cluster goes on building it when the command is interrupted; the same
    /// command waits for it again.
    #[command(after_help = "Examples:
  bowline graph index create person name
  bowline graph index create host rack slot --unique
  bowline graph index create person name --endpoints 10.0.0.1:2379")]
    Create {
        /// Of which kind, by which attributes.
        #[command(flatten)]
        of: IndexOf,
        /// Refuse two blocks with the same values
        #[arg(long)]
        unique: bool,
    },
    /// List the indexes
    #[command(after_help = "Examples:
  bowline graph index list
  bowline -o json graph index list")]
    List,
    /// Drop an index
    #[command(after_help = "Examples:
  bowline graph index drop person name")]
    Drop {
        /// Of which kind, by which attributes.
        #[command(flatten)]
        of: IndexOf,
    },
}

/// What an index is of.
#[derive(Debug, Clone, Args)]
pub struct IndexOf {
    /// The kind of its blocks
    pub kind: String,
    /// The attributes, in its order
    #[arg(required = true, value_name = "ATTRIBUTE")]
    pub attributes: Vec<String>,
}

/// Which way edges are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// From source to target
    Out,
    /// From target to source
    In,
    /// Either way
    Both,
}

/// Which part of the graph, at which revision.
#[derive(Debug, Clone, Args)]
pub struct Scope {
    /// Only edges of this kind; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// As it was at this revision
    #[arg(long, value_name = "REVISION")]
    pub rev: Option<Revision>,
}

/// Which edges count, and which way.
#[derive(Debug, Clone, Args)]
pub struct EdgeFilter {
    /// Which way edges are followed
    #[arg(long, value_enum, default_value_t = Direction::Out)]
    pub direction: Direction,
    /// Which kinds and when.
    #[command(flatten)]
    pub scope: Scope,
}

/// How far a traversal goes.
#[derive(Debug, Clone, Args)]
pub struct Bounds {
    /// At most this many edges from the start
    #[arg(long, value_name = "N")]
    pub max_depth: Option<u32>,
    /// At most this many blocks
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// At most this much memory, as in 64MiB
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub max_bytes: Option<u64>,
    /// Of each block at most this many edges, the first by kind and id
    #[arg(long, value_name = "N")]
    pub max_neighbors: Option<u64>,
    /// Only edges with this attribute; may be given several times
    #[arg(long = "where", value_parser = parse_attribute, value_name = "KEY=VALUE")]
    pub attributes: Vec<(String, String)>,
}

impl Bounds {
    /// Whether there are none.
    #[must_use]
    pub fn are_none(&self) -> bool {
        let numbers = [
            self.limit,
            self.max_bytes,
            self.max_neighbors,
            self.max_depth.map(u64::from),
        ];
        numbers.iter().all(Option::is_none) && self.attributes.is_empty()
    }
}

/// Reads a block's name or id.
pub(super) fn parse_block(text: &str) -> Result<BlockRef, String> {
    if text.is_empty() {
        return Err("a block has a name of at least one byte, or an id".to_owned());
    }
    Ok(BlockRef::parse(text))
}

/// Reads a weight.
fn parse_weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("a weight is a finite number not below 0".to_owned()),
    }
}

/// Reads an attribute.
pub(crate) fn parse_json_attribute(text: &str) -> Result<(String, AttributeValue), String> {
    let (name, json) = parse_attribute(text)?;
    let value = serde_json::from_str::<AttributeJson>(&json);
    let value = value.map_err(|error| format!("{error}; a text needs quotes, or --attr"))?;
    Ok((name, value.0))
}

pub(super) fn parse_attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
