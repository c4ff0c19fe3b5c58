//! [`Remembered`]: a graph that is only read, with the nodes that a query has read before.
//!
//! A row names nodes by their ids, and each property or label is asked of the store. Many rows name the same node (all that follow one
//! person), and to read and decode it costs as much as all else that is done for a row. What is read does not change while a query that only reads
//! runs, so a record that was read once is given again.
//!
//! Invariants:
//!
//! - Records are held for queries that only read.
//! - They take a bounded part of the query's memory. They are charged to whoever runs it, and given up before an operator
//!   has to do without memory.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use bowline_types::{BlockId, Direction, IdMap};

use super::loose::Loose;
use crate::error::{Error, Result};
use crate::function::Room;
use crate::graph::{FieldColumns, FieldsAsked, Graph, NodeIndex, Seek, StoreResult};
use crate::value::{LARGE_BYTES, Name, NodeRecord, Properties, RelationshipId, Value};

/// The caller is asked for memory in steps of so many bytes.
const STEP_BYTES: u64 = 1 << 18;
/// The most that records may take, whatever the query may.
const NODES_MAX_BYTES: u64 = 32 << 20;
/// What one takes beside its values.
const NODE_BYTES: u64 = 128;

/// The memory of a query, and what its caller was asked for.
pub(crate) struct Held<'g> {
    may_hold: &'g dyn Fn(u64) -> bool,
    /// The most that operators may hold.
    limit: u64,
    operators: Cell<u64>,
    nodes: Cell<u64>,
    asked: Cell<u64>,
    /// Whether there is no more room for records.
    are_nodes_refused: Cell<bool>,
    /// The large values, whose bytes are among those of operators.
    loose: RefCell<Loose>,
}

/// Operators and values would hold more than so many bytes.
fn exceeded(limit: u64) -> Error {
    Error::LimitExceeded {
        what: "bytes of memory for sorting, grouping, collecting and large values",
        limit,
        setting: "memory_bytes",
    }
}

impl<'g> Held<'g> {
    pub fn new(may_hold: &'g dyn Fn(u64) -> bool, limit: u64) -> Held<'g> {
        Held {
            may_hold,
            limit,
            operators: Cell::new(0),
            nodes: Cell::new(0),
            asked: Cell::new(0),
            are_nodes_refused: Cell::new(false),
            loose: RefCell::default(),
        }
    }

    /// Takes memory for an operator.
    pub fn take(&self, bytes: u64) -> Result<()> {
        let taken = self.add(bytes);
        if taken.is_err() {
            self.give_back(bytes);
        }
        taken
    }

    /// Adds to what operators hold, and refuses where that is too much then.
    fn add(&self, bytes: u64) -> Result<()> {
        self.operators
            .set(self.operators.get().saturating_add(bytes));
        if self.operators.get() > self.limit {
            self.forget_values();
        }
        if self.operators.get() > self.limit {
            return Err(exceeded(self.limit));
        }
        if self.ask() {
            return Ok(());
        }
        self.forget_values();
        if self.ask() {
            return Ok(());
        }
        self.nodes.set(0);
        self.are_nodes_refused.set(true);
        match self.ask() {
            true => Ok(()),
            // What it was allowed, or what it asked for where that was nothing.
            false => Err(exceeded(match self.asked.get() {
                0 => self.operators.get(),
                asked => asked,
            })),
        }
    }

    /// Gives an operator's memory back.
    pub fn give_back(&self, bytes: u64) {
        self.operators
            .set(self.operators.get().saturating_sub(bytes));
    }

    /// What operators hold, without the large values.
    pub fn of_operators(&self) -> u64 {
        let values = self.loose.borrow().bytes();
        self.operators.get().saturating_sub(values)
    }

    /// Takes memory for a large value that an expression has made, until it is gone.
    pub fn take_for_value(&self, value: &Value) -> Result<()> {
        let noted = self.loose.borrow_mut().note(value);
        let Some(bytes) = noted else {
            return Ok(());
        };
        if self.loose.borrow().are_many() {
            self.forget_values();
        }
        // It is given back when the value is gone, also where that is at once.
        self.add(bytes)?;
        // What shares much takes little, and yet nobody could walk through it.
        match value.footprint() > self.limit {
            true => Err(exceeded(self.limit)),
            false => Ok(()),
        }
    }

    fn forget_values(&self) {
        let freed = self.loose.borrow_mut().forget();
        self.give_back(freed);
    }

    /// Whether the caller allows what is held, and a little more.
    fn ask(&self) -> bool {
        let (operators, nodes) = (self.operators.get(), self.nodes.get());
        if operators.saturating_add(nodes) <= self.asked.get() {
            return true;
        }
        let wanted = operators.saturating_add(STEP_BYTES).min(self.limit);
        let wanted = wanted.saturating_add(nodes);
        let is_allowed = (self.may_hold)(wanted);
        if is_allowed {
            self.asked.set(wanted);
        }
        is_allowed
    }

    /// Whether operators have taken the memory of records.
    pub fn has_no_room(&self) -> bool {
        self.are_nodes_refused.get()
    }

    /// Gives memory of records back.
    pub fn give_back_for_nodes(&self, bytes: u64) {
        self.nodes.set(self.nodes.get().saturating_sub(bytes));
    }

    /// Takes memory for a record, if there is some.
    pub fn take_for_node(&self, bytes: u64) -> bool {
        let nodes = self.nodes.get() + bytes;
        if self.are_nodes_refused.get() || nodes > NODES_MAX_BYTES.min(self.limit / 4) {
            return false;
        }
        self.nodes.set(nodes);
        if !self.ask() {
            self.nodes.set(nodes - bytes);
            self.are_nodes_refused.set(true);
            return false;
        }
        true
    }
}

impl Room for Held<'_> {
    fn room_for(&self, bytes: u64) -> Result<()> {
        if bytes >= LARGE_BYTES {
            self.take(bytes)?;
            self.give_back(bytes);
        }
        Ok(())
    }
}

type Record = Option<Arc<NodeRecord>>;

/// See the [module](self).
pub(crate) struct Remembered<'g> {
    graph: &'g dyn Graph,
    held: &'g Held<'g>,
    nodes: RefCell<IdMap<Record>>,
    /// What they take.
    bytes: Cell<u64>,
}

impl<'g> Remembered<'g> {
    pub fn new(graph: &'g dyn Graph, held: &'g Held<'g>) -> Remembered<'g> {
        Remembered {
            graph,
            held,
            nodes: RefCell::default(),
            bytes: Cell::new(0),
        }
    }

    fn keep(&self, id: BlockId, record: &Record) {
        let of_record = |record: &Arc<NodeRecord>| {
            let values = record.properties.values().map(Value::footprint);
            values.map(|bytes| bytes + 48).sum::<u64>()
        };
        let bytes = NODE_BYTES + record.as_ref().map_or(0, of_record);
        let mut nodes = self.nodes.borrow_mut();
        if !self.held.take_for_node(bytes) {
            // Those that are read now are more likely to come again than those of long ago.
            nodes.clear();
            self.held.give_back_for_nodes(self.bytes.take());
            return;
        }
        self.bytes.set(self.bytes.get() + bytes);
        nodes.insert(id, record.clone());
    }
}

impl Graph for Remembered<'_> {
    fn node(&self, id: BlockId) -> StoreResult<Record> {
        if self.held.are_nodes_refused.get() {
            // An operator has taken their memory, perhaps.
            self.nodes.borrow_mut().clear();
            return self.graph.node(id);
        }
        if let Some(record) = self.nodes.borrow().get(&id) {
            return Ok(record.clone());
        }
        let record = self.graph.node(id)?;
        self.keep(id, &record);
        Ok(record)
    }

    fn revision(&self) -> Option<u64> {
        self.graph.revision()
    }

    fn counted_at(&self) -> Option<u64> {
        self.graph.counted_at()
    }

    fn plan_epoch(&self) -> u64 {
        self.graph.plan_epoch()
    }

    fn store(&self) -> Option<&dyn std::any::Any> {
        self.graph.store()
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

    fn indexes(&self, label: &str) -> StoreResult<Vec<NodeIndex>> {
        self.graph.indexes(label)
    }

    fn seek(
        &self,
        seek: &Seek<'_>,
        place: &mut Option<Vec<u8>>,
        count: usize,
        page: &mut Vec<BlockId>,
    ) -> StoreResult<bool> {
        self.graph.seek(seek, place, count, page)
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

    fn has_parallel_relationships(&self) -> bool {
        self.graph.has_parallel_relationships()
    }

    fn ends(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        visit: &mut dyn FnMut(usize, BlockId) -> bool,
    ) -> StoreResult<()> {
        self.graph.ends(nodes, direction, kinds, visit)
    }

    fn degrees(
        &self,
        nodes: &[BlockId],
        direction: Direction,
        kinds: &[Name],
        degrees: &mut Vec<u64>,
    ) -> StoreResult<()> {
        self.graph.degrees(nodes, direction, kinds, degrees)
    }

    fn fields(
        &self,
        nodes: &[BlockId],
        asked: FieldsAsked<'_>,
        found: &mut FieldColumns,
    ) -> StoreResult<bool> {
        self.graph.fields(nodes, asked, found)
    }

    fn holds_fields(&self) -> bool {
        self.graph.holds_fields()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryGraph;

    /// A graph that counts how often it is asked for a node.
    struct Counting {
        graph: MemoryGraph,
        asked: Cell<u32>,
    }

    impl Graph for Counting {
        fn node(&self, id: BlockId) -> StoreResult<Record> {
            self.asked.set(self.asked.get() + 1);
            self.graph.node(id)
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

    fn star(leaves: usize) -> Counting {
        let mut graph = MemoryGraph::new();
        let text = format!(
            "CREATE (a:Hub {{name: 'hub'}}) WITH a UNWIND range(1, {leaves}) AS i CREATE (:Leaf {{i: i}})-[:AT]->(a)"
        );
        let query = crate::Query::new(&text);
        query
            .run_mut(&mut graph, &crate::Parameters::new())
            .unwrap();
        Counting {
            graph,
            asked: Cell::new(0),
        }
    }

    /// Its groups are not made over columns, because of the LIMIT.
    const TEXT: &str = "MATCH (l:Leaf)-[:AT]->(h) WHERE l.i >= 0 AND h.name = 'hub' WITH l LIMIT 9999 \
                        RETURN count(*), sum(l.i)";

    #[test]
    fn a_node_is_read_once_and_within_the_memory() {
        let graph = star(2_000);
        let ask = |query: crate::Query<'_>| {
            graph.asked.set(0);
            let answer = query.run(&graph, &crate::Parameters::new()).unwrap();
            assert_eq!(answer.rows[0][0], Value::from(2_000));
            graph.asked.get()
        };
        assert_eq!(ask(crate::Query::new(TEXT)), 2_001);
        // No memory for records: each is read for each expression, and nothing fails.
        let limits = crate::Limits {
            memory_bytes: 400,
            ..crate::Limits::default()
        };
        assert!(ask(crate::Query::new(TEXT).limits(limits)) > 4_000);
        let most = Cell::new(0);
        let few = |bytes| {
            most.set(most.get().max(bytes));
            bytes <= STEP_BYTES + 1_000
        };
        assert!(ask(crate::Query::new(TEXT).may_hold(&few)) > 2_001);
        assert!(most.get() > STEP_BYTES, "the caller was asked");
    }

    /// It was told that it needed more than 0 bytes.
    #[test]
    fn who_may_hold_nothing_is_told_what_the_query_asked_for() {
        let nothing = |_| false;
        let text = "UNWIND range(1, 100) AS i RETURN i ORDER BY i";
        let query = crate::Query::new(text).may_hold(&nothing);
        let error = query.run(&star(1), &crate::Parameters::new()).unwrap_err();
        assert!(
            matches!(error, Error::LimitExceeded { limit: 1.., .. }),
            "{error}"
        );
    }

    #[test]
    fn records_are_given_up_before_an_operator_goes_without_memory() {
        let graph = star(2_000);
        let few = |bytes| bytes <= 4 * STEP_BYTES;
        let text = "MATCH (l:Leaf) WHERE l.i > 0 WITH l.i AS i ORDER BY i DESC RETURN count(i)";
        let query = crate::Query::new(text).may_hold(&few);
        let answer = query.run(&graph, &crate::Parameters::new()).unwrap();
        assert_eq!(answer.rows[0][0], Value::from(2_000));
    }
}
