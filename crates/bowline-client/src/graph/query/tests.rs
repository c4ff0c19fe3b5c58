//! Values of rows, and answers that break off, by a server whose answers are written here.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_proto::v1::graph_server::{Graph, GraphServer};
use tokio_stream::Stream;
use tonic::transport::Server;
use tonic::{Response, Status};

use super::*;
use crate::Client;
use crate::fake::serve;

#[test]
fn what_is_no_value_is_an_error() {
    use pb::query_value::Value as Wire;
    let path = pb::QueryPath {
        nodes: vec![pb::QueryNode {
            id: super::super::id_bytes(BlockId(1)),
            ..pb::QueryNode::default()
        }],
        relationships: Vec::new(),
    };
    let of = |wire| value(pb::QueryValue { value: Some(wire) });
    assert!(matches!(of(Wire::Path(path)), Ok(Value::Path(_))));
    let invalid = [
        None,
        Some(Wire::Path(pb::QueryPath::default())),
        Some(Wire::Node(pb::QueryNode::default())),
        Some(Wire::Plain(pb::AttributeValue::default())),
    ];
    for wire in invalid {
        let error = value(pb::QueryValue { value: wire }).unwrap_err();
        assert!(matches!(error, Error::InvalidReply { .. }), "{error}");
    }
}

type Answer<T> = std::result::Result<T, Status>;
type Streamed<T> = Pin<Box<dyn Stream<Item = Answer<T>> + Send>>;

/// A server that answers each query with the headers and these parts, and then ends the answer.
#[derive(Clone)]
struct Fake {
    parts: Vec<Answer<pb::QueryReply>>,
    asked: Arc<AtomicUsize>,
}

/// The service with its calls besides queries, which nobody makes.
macro_rules! graph {
    (
        one { $($one:ident($request:ident) -> $reply:ident;)* }
        many { $($many:ident($question:ident) -> $stream:ident of $part:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl Graph for Fake {
            type QueryStream = Streamed<pb::QueryReply>;

            async fn query(&self, _: Request<pb::QueryRequest>) -> Answer<Response<Self::QueryStream>> {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let parts = tokio_stream::iter(self.parts.clone());
                Ok(Response::new(Box::pin(parts)))
            }

            $(
                async fn $one(&self, _: Request<pb::$request>) -> Answer<Response<pb::$reply>> {
                    Err(Status::unimplemented("only queries"))
                }
            )*

            $(
                type $stream = Streamed<pb::$part>;

                async fn $many(&self, _: Request<pb::$question>) -> Answer<Response<Self::$stream>> {
                    Err(Status::unimplemented("only queries"))
                }
            )*
        }
    };
}

graph! {
    one {
        write(WriteRequest) -> WriteReply;
        get_blocks(GetBlocksRequest) -> GetBlocksReply;
        get_edges(GetEdgesRequest) -> GetEdgesReply;
        shortest_path(ShortestPathRequest) -> ShortestPathReply;
        stats(StatsRequest) -> StatsReply;
    }
    many {
        neighbors(NeighborsRequest) -> NeighborsStream of NeighborsReply;
        traverse(TraverseRequest) -> TraverseStream of TraverseReply;
        list_blocks(ListBlocksRequest) -> ListBlocksStream of ListBlocksReply;
        list_edges(ListEdgesRequest) -> ListEdgesStream of ListEdgesReply;
        order(OrderRequest) -> OrderStream of OrderReply;
        components(ComponentsRequest) -> ComponentsStream of ComponentsReply;
        page_rank(PageRankRequest) -> PageRankStream of RealValuesReply;
        communities(CommunitiesRequest) -> CommunitiesStream of CommunitiesReply;
        triangles(TrianglesRequest) -> TrianglesStream of WholeValuesReply;
        clustering(ClusteringRequest) -> ClusteringStream of RealValuesReply;
        k_hop(KHopRequest) -> KHopStream of KHopReply;
        simple_paths(SimplePathsRequest) -> SimplePathsStream of SimplePathsReply;
    }
}

/// The first part of an answer, with a row of one integer.
fn first_part() -> pb::QueryReply {
    let one = value_to_wire(AttributeValue::Int(1));
    pb::QueryReply {
        header: Some(pb::Header {
            revision: 7,
            ..pb::Header::default()
        }),
        columns: vec!["n".to_owned()],
        rows: vec![pb::QueryRow {
            values: vec![pb::QueryValue {
                value: Some(pb::query_value::Value::Plain(one)),
            }],
        }],
        end: None,
    }
}

/// What comes of a query that is answered with these parts, and of the same one that is said to read only.
async fn ends(parts: Vec<Answer<pb::QueryReply>>) -> [Error; 2] {
    let asked = Arc::new(AtomicUsize::new(0));
    let fake = Fake {
        parts,
        asked: Arc::clone(&asked),
    };
    let address = serve(Server::builder().add_service(GraphServer::new(fake))).await;
    let client = Client::builder().endpoints([address]);
    let client = client.connect_lazy().unwrap();
    let query = client.query("CREATE (n) RETURN 1 AS n", &Attributes::new());
    let may_write = query.clone().await.unwrap_err();
    let reads = query.read_only().await.unwrap_err();
    assert_eq!(asked.load(Ordering::Relaxed), 2, "each is sent once");
    [may_write, reads]
}

/// The server commits before it sends the headers. What came after them was reported as any read's error is: a query whose
/// rows broke off was "not written, and safe to send again", and the loop that the documentation shows wrote twice.
#[tokio::test]
async fn an_answer_that_breaks_off_after_a_commit_is_of_unknown_outcome() {
    let goes_away = || Err(Status::unavailable("the server goes away"));
    let headless = pb::QueryReply::default();
    for parts in [
        vec![Ok(first_part()), goes_away()],
        vec![Ok(first_part())],
        vec![goes_away()],
        Vec::new(),
    ] {
        let [may_write, reads] = ends(parts).await;
        assert!(
            matches!(may_write, Error::UnknownOutcome { .. }) && !may_write.is_retryable(),
            "{may_write}"
        );
        assert!(
            matches!(reads, Error::Disconnected { .. }) && reads.is_retryable(),
            "{reads}"
        );
    }
    let [may_write, reads] = ends(vec![Ok(headless)]).await;
    assert!(
        matches!(may_write, Error::UnknownOutcome { .. }),
        "{may_write}"
    );
    assert!(matches!(reads, Error::InvalidReply { .. }), "{reads}");
}

/// An error of the query itself leaves no doubt, nor does one behind the word that nothing was written.
#[tokio::test]
async fn an_answer_that_says_that_nothing_was_written_is_believed() {
    let refused = Err(Status::failed_precondition("the query takes longer"));
    let read_to_its_end = pb::QueryReply {
        rows: vec![pb::QueryRow::default()],
        end: Some(pb::QueryEnd::default()),
        ..first_part()
    };
    for error in ends(vec![Ok(first_part()), refused]).await {
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    // Its row has no value for the column.
    for error in ends(vec![Ok(read_to_its_end.clone())]).await {
        assert!(matches!(error, Error::InvalidReply { .. }), "{error}");
    }
    let has_written = pb::QueryReply {
        end: Some(pb::QueryEnd {
            writes: true,
            ..pb::QueryEnd::default()
        }),
        ..read_to_its_end
    };
    let [may_write, _] = ends(vec![Ok(has_written)]).await;
    assert!(
        matches!(may_write, Error::UnknownOutcome { .. }),
        "{may_write}"
    );
}
