//! Queries in Cypher: [`Query`], its rows as a stream, and the values of rows.
//!
//! A query that writes is sent once: whether a request writes only the server knows, so one that is not said to read, by
//! [`Query::read_only`] or by a revision, is not sent again after a broken connection. The server commits before it answers:
//! until the end of the answer says that nothing was written, the outcome of one that breaks off is unknown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_proto::attributes::{value_of_wire, value_to_wire};
use bowline_proto::v1 as pb;
use bowline_types::{AttributeValue, Revision};
use tonic::{Request, Streaming};

use super::parts::Parts;
use super::wire::id_of;
use super::{Attributes, BlockId, GraphClient, service};
use crate::Result;
use crate::caller::{Caller, Repeat};
use crate::v1::{awaits, cut_off, header, read_settings, senseless, typed};
use crate::{Error, Header, ReadLevel};

/// A query in Cypher. Await it for all rows, or ask for a stream with [`Query::rows`].
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::ReadLevel;
/// use bowline_client::graph::Attributes;
///
/// let text = "MATCH (p:package)-[:depends_on*1..3]->({name: $name}) RETURN p.name AS name";
/// let parameters = Attributes::from([("name".to_owned(), "lib".into())]);
/// let answer = client.query(text, &parameters).level(ReadLevel::Eventual).read_only().await?;
/// for row in &answer.rows {
///     println!("{:?}", row[0].as_text());
/// }
/// // Within limits, and with the rows and the time of each operator.
/// let query = client.query(text, &parameters).rows_max(1_000).memory_max_bytes(1 << 20);
/// let answer = query.time_max(std::time::Duration::from_secs(5)).profile().await?;
/// println!("{}", answer.plan.unwrap_or_default());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a query is sent when it is awaited, or its rows are asked for"]
pub struct Query {
    caller: Arc<Caller>,
    request: pb::QueryRequest,
}

read_settings!(Query);
awaits!(Query, QueryReply);

/// All rows of a query.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// # use bowline_client::graph::{Attributes, QueryReply};
/// let text = "MERGE (s:service {name: 'api'}) RETURN s";
/// let reply: QueryReply = client.query(text, &Attributes::new()).await?;
/// println!("{} blocks created at {}", reply.effects.blocks_created, reply.header.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryReply {
    /// The reply header. Its revision is that of the commit of a query that writes.
    pub header: Header,
    /// The revision that was read.
    pub revision: Revision,
    /// The names of the columns; none if the query returns nothing.
    pub columns: Vec<String>,
    /// The rows: one value per column.
    pub rows: Vec<Vec<Value>>,
    /// What was changed.
    pub effects: Effects,
    /// The plan, if it was asked for: an operator a line, each above those that it reads from.
    pub plan: Option<String>,
    /// Whether the query writes.
    pub writes: bool,
}

/// What a query has changed.
///
/// ```
/// assert_eq!(bowline_client::graph::Effects::default().blocks_created, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effects {
    /// Blocks created.
    pub blocks_created: u64,
    /// Blocks deleted.
    pub blocks_deleted: u64,
    /// Edges created.
    pub edges_created: u64,
    /// Edges deleted.
    pub edges_deleted: u64,
    /// Attributes set, removals included.
    pub attributes_set: u64,
    /// Kinds added to blocks that existed.
    pub kinds_added: u64,
    /// Kinds removed.
    pub kinds_removed: u64,
}

/// A value of a row.
///
/// ```
/// use bowline_client::graph::Value;
///
/// assert_eq!(Value::Plain(3.into()).as_int(), Some(3));
/// assert_eq!(Value::Plain(3.into()).as_node(), None);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// What an attribute can hold; also a list or a map, unless there is a node, a relationship or a path in it.
    Plain(AttributeValue),
    /// A list with nodes, relationships or paths in it.
    List(Vec<Value>),
    /// A map with nodes, relationships or paths in it.
    Map(BTreeMap<String, Value>),
    /// A node.
    Node(Node),
    /// A relationship.
    Relationship(Relationship),
    /// A path.
    Path(Walk),
}

/// A block, as it was when its row was made.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// # use bowline_client::graph::{Attributes, Node, Value};
/// let reply = client.query("MATCH (n) RETURN n", &Attributes::new()).await?;
/// if let Some(Value::Node(Node { id, kinds, .. })) = reply.rows.first().map(|row| &row[0]) {
///     println!("{id}: {kinds:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its id.
    pub id: BlockId,
    /// Its kinds.
    pub kinds: Vec<String>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Whether the query has deleted it: then only its id is known.
    pub is_deleted: bool,
}

/// An edge, as it was when its row was made.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// # use bowline_client::graph::{Attributes, Relationship, Value};
/// let reply = client.query("MATCH ()-[r]->() RETURN r", &Attributes::new()).await?;
/// if let Some(Value::Relationship(Relationship { kind, .. })) = reply.rows.first().map(|row| &row[0]) {
///     println!("{kind}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Relationship {
    /// Where it starts.
    pub source: BlockId,
    /// Its kind.
    pub kind: String,
    /// Where it ends.
    pub target: BlockId,
    /// Which of several of the kind between these ends.
    pub discriminator: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// Whether the query has deleted it: then its attributes are not known.
    pub is_deleted: bool,
}

/// A path of a query: nodes, and between each two of them a relationship, followed in either direction.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// # use bowline_client::graph::{Attributes, Value, Walk};
/// let reply = client.query("MATCH p = ()-[*1..2]->() RETURN p", &Attributes::new()).await?;
/// if let Some(Value::Path(Walk { nodes, relationships })) = reply.rows.first().map(|row| &row[0]) {
///     assert_eq!(nodes.len(), relationships.len() + 1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Walk {
    /// The nodes: one more than relationships.
    pub nodes: Vec<Node>,
    /// The relationships.
    pub relationships: Vec<Relationship>,
}

impl Value {
    /// The integer, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Plain(AttributeValue::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// The text, if it is one.
    ///
    /// ```
    /// # use bowline_client::graph::Value;
    /// assert_eq!(Value::Plain("lib".into()).as_text(), Some("lib"));
    /// ```
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Plain(value) => value.as_text(),
            _ => None,
        }
    }

    /// The node, if it is one.
    #[must_use]
    pub fn as_node(&self) -> Option<&Node> {
        match self {
            Value::Node(node) => Some(node),
            _ => None,
        }
    }
}

impl GraphClient {
    /// A query in Cypher: see [`Client::query`](crate::Client::query).
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::Attributes;
    /// let reply = client.graph().query("MATCH (n) RETURN count(n)", &Attributes::new()).await?;
    /// println!("{:?}", reply.rows[0][0].as_int());
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&self, text: impl Into<String>, parameters: &Attributes) -> Query {
        let parameter = |(name, value): (&String, &AttributeValue)| {
            (name.clone(), value_to_wire(value.clone()))
        };
        Query {
            caller: Arc::clone(&self.caller),
            request: pb::QueryRequest {
                text: text.into(),
                parameters: parameters.iter().map(parameter).collect(),
                ..pb::QueryRequest::default()
            },
        }
    }
}

impl Query {
    /// The query does not write: one that does is refused. The client may then ask another member after a broken
    /// connection, as it does for all reads.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::Attributes;
    /// let count = client.query("MATCH (n) RETURN count(n)", &Attributes::new()).read_only().await?;
    /// println!("{:?}", count.rows[0][0].as_int());
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self) -> Query {
        self.request.read_only = true;
        self
    }

    /// Refuses an answer of more rows. Default: no limit.
    pub fn rows_max(mut self, rows: u64) -> Query {
        self.request.rows_max = rows.max(1);
        self
    }

    /// Bounds the memory of sorts and groups, below the server's own bound.
    pub fn memory_max_bytes(mut self, bytes: u64) -> Query {
        self.request.memory_max_bytes = bytes.max(1);
        self
    }

    /// Bounds the time, below the server's own bound. The client waits for each part of the answer as long as for any
    /// reply.
    pub fn time_max(mut self, time: Duration) -> Query {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.request.time_max_ms = ms.max(1);
        self
    }

    /// Asks for the plan, and runs nothing.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::Attributes;
    /// let reply = client.query("MATCH (n:a) RETURN n", &Attributes::new()).explain().await?;
    /// println!("{}", reply.plan.unwrap_or_default());
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(mut self) -> Query {
        self.request.set_mode(pb::QueryMode::Explain);
        self
    }

    /// Asks for the plan with the rows and the time of each operator, in addition to the answer.
    pub fn profile(mut self) -> Query {
        self.request.set_mode(pb::QueryMode::Profile);
        self
    }

    /// Sends the query, and gives its rows as they come.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use bowline_client::graph::Attributes;
    /// let mut rows = client.query("MATCH (n) RETURN n.name", &Attributes::new()).rows().await?;
    /// while let Some(row) = rows.next().await? {
    ///     println!("{:?}", row[0].as_text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Query`] with the place in the text; `Contended` after many conflicts; those of reads, or, unless it is said
    /// to read only, of changes.
    pub async fn rows(self) -> Result<RowStream> {
        let asks_for_old = self.request.read.is_some_and(|read| read.revision != 0);
        let reads = self.request.read_only || asks_for_old;
        let reads = reads || self.request.mode() == pb::QueryMode::Explain;
        let repeat = match reads {
            true => Repeat::Always,
            false => Repeat::Never,
        };
        let caller = &*self.caller;
        let send = |channel, request: Request<pb::QueryRequest>| async move {
            service(caller, channel).query(request).await
        };
        let called = caller.call(repeat, None, self.request, send).await;
        let (parts, _) = called.map_err(typed)?;
        let begun = RowStream::begin(self.caller, parts, repeat).await;
        begun.map_err(|error| repeat.ended(error))
    }

    async fn send(self) -> Result<QueryReply> {
        let mut stream = self.rows().await?;
        let mut rows = Vec::new();
        while let Some(row) = stream.next().await? {
            rows.push(row);
        }
        let end = stream.end.unwrap_or_default();
        Ok(QueryReply {
            header: stream.header,
            revision: stream.revision,
            columns: stream.columns,
            rows,
            effects: effects(&end),
            writes: end.writes,
            plan: Some(end.plan).filter(|plan| !plan.is_empty()),
        })
    }
}

fn effects(end: &pb::QueryEnd) -> Effects {
    let effects = end.effects.unwrap_or_default();
    Effects {
        blocks_created: effects.blocks_created,
        blocks_deleted: effects.blocks_deleted,
        edges_created: effects.edges_created,
        edges_deleted: effects.edges_deleted,
        attributes_set: effects.attributes_set,
        kinds_added: effects.kinds_added,
        kinds_removed: effects.kinds_removed,
    }
}

/// The rows of a query, as the server finds them. Dropping it ends the query.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::graph::{Attributes, RowStream};
///
/// let query = client.query("UNWIND range(1, 10) AS i RETURN i", &Attributes::new()).read_only();
/// let mut rows: RowStream = query.rows().await?;
/// println!("{:?} at {}, of member {}", rows.columns(), rows.revision(), rows.header().member_id);
/// while let Some(row) = rows.next().await? {
///     println!("{:?}", row[0].as_int());
/// }
/// assert!(!rows.writes() && rows.plan().is_none() && rows.effects().blocks_created == 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is read until it is asked for"]
pub struct RowStream {
    parts: Parts<pb::QueryReply>,
    header: Header,
    revision: Revision,
    columns: Vec<String>,
    rows: std::vec::IntoIter<pb::QueryRow>,
    end: Option<pb::QueryEnd>,
    repeat: Repeat,
}

impl RowStream {
    async fn begin(
        caller: Arc<Caller>,
        parts: Streaming<pb::QueryReply>,
        repeat: Repeat,
    ) -> Result<RowStream> {
        let inspect = |part: &pb::QueryReply| (part.header, part.end.is_some());
        let mut parts = Parts::begin(caller, parts, inspect).await?;
        let mut first = parts.next().await?.ok_or_else(cut_off)?;
        let (header, revision) = header(first.header.take())?;
        let mut stream = RowStream {
            parts,
            header,
            revision,
            columns: std::mem::take(&mut first.columns),
            rows: Vec::new().into_iter(),
            end: None,
            repeat,
        };
        stream.take(first);
        Ok(stream)
    }

    /// The reply header. Its revision is that of the commit of a query that writes.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The revision that is read.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The next row: one value per column; `None` after the last.
    ///
    /// # Errors
    /// Those of [`Query::rows`]. What came before is right.
    pub async fn next(&mut self) -> Result<Option<Vec<Value>>> {
        let next = self.receive().await;
        next.map_err(|error| match &self.end {
            Some(end) if !end.writes => error,
            _ => self.repeat.ended(error),
        })
    }

    async fn receive(&mut self) -> Result<Option<Vec<Value>>> {
        loop {
            if let Some(row) = self.rows.next() {
                if row.values.len() != self.columns.len() {
                    return Err(senseless("a row has not one value for each column"));
                }
                let values = row.values.into_iter().map(value);
                return values.collect::<Result<_>>().map(Some);
            }
            let Some(part) = self.parts.next().await? else {
                return Ok(None);
            };
            self.take(part);
        }
    }

    fn take(&mut self, part: pb::QueryReply) {
        self.rows = part.rows.into_iter();
        self.end = part.end;
    }

    /// What was changed. Known once [`next`](RowStream::next) has given `None`.
    #[must_use]
    pub fn effects(&self) -> Effects {
        self.end.as_ref().map(effects).unwrap_or_default()
    }

    /// Whether the query writes. Known once [`next`](RowStream::next) has given `None`.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.writes)
    }

    /// The plan, if it was asked for. Known once [`next`](RowStream::next) has given `None`.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        let plan = self.end.as_ref().map(|end| &*end.plan);
        plan.filter(|plan| !plan.is_empty())
    }
}

/// A value from its message. The decoder of messages bounds how deep it is.
fn value(value: pb::QueryValue) -> Result<Value> {
    use pb::query_value::Value as Wire;
    Ok(match value.value {
        Some(Wire::Plain(value)) => Value::Plain(plain(value)?),
        Some(Wire::List(list)) => {
            let values = list.values.into_iter().map(self::value);
            Value::List(values.collect::<Result<_>>()?)
        }
        Some(Wire::Map(map)) => {
            let entry = |(name, value)| Ok((name, self::value(value)?));
            Value::Map(map.values.into_iter().map(entry).collect::<Result<_>>()?)
        }
        Some(Wire::Node(found)) => Value::Node(node(found)?),
        Some(Wire::Relationship(found)) => Value::Relationship(relationship(found)?),
        Some(Wire::Path(path)) => {
            let nodes: Vec<Node> = path.nodes.into_iter().map(node).collect::<Result<_>>()?;
            let relationships = path.relationships.into_iter().map(relationship);
            let relationships: Vec<Relationship> = relationships.collect::<Result<_>>()?;
            if nodes.len() != relationships.len() + 1 {
                return Err(senseless("a path has not one edge between each two blocks"));
            }
            Value::Path(Walk {
                nodes,
                relationships,
            })
        }
        None => return Err(senseless("a value has no type that is known")),
    })
}

fn plain(value: pb::AttributeValue) -> Result<AttributeValue, Error> {
    value_of_wire(value, AttributeValue::DEPTH_MAX).map_err(senseless)
}

fn attributes(all: BTreeMap<String, pb::AttributeValue>) -> Result<Attributes> {
    let all = all.into_iter();
    all.map(|(name, value)| Ok((name, plain(value)?))).collect()
}

fn node(node: pb::QueryNode) -> Result<Node> {
    Ok(Node {
        id: id_of(&node.id)?,
        kinds: node.kinds,
        attributes: attributes(node.attributes)?,
        is_deleted: node.is_deleted,
    })
}

fn relationship(relationship: pb::QueryRelationship) -> Result<Relationship> {
    Ok(Relationship {
        source: id_of(&relationship.source)?,
        kind: relationship.kind,
        target: id_of(&relationship.target)?,
        discriminator: relationship.discriminator,
        attributes: attributes(relationship.attributes)?,
        is_deleted: relationship.is_deleted,
    })
}

#[cfg(test)]
mod tests;
