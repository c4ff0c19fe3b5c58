//! Queries in Cypher over the network: the answers of the library, refusals with their places, limits, transactions that
//! conflict, and queries whose clients leave.

use std::time::Duration;

use bowline::cypher::{self, Parameters};
use bowline::{Attributes, Db};
use bowline_client::graph::{Node, QueryReply, Relationship, Value, Walk};
use bowline_client::{Client, Error, QueryProblem, QueryProblemKind, ReadLevel, Revision};
use bowline_proto::v1 as pb;
use pb::graph_client::GraphClient;
use tonic::Code;

use crate::support::{Running, start, start_with};

async fn client(running: &Running) -> Client {
    let client = Client::builder().endpoints([running.address()]);
    client.connect_lazy().unwrap()
}

/// Runs a query without parameters. A member that has just started announces the commands that it knows in a moment.
async fn asked(client: &Client, text: &str) -> QueryReply {
    loop {
        match client.query(text, &Attributes::new()).await {
            Ok(reply) => return reply,
            Err(error) if error.to_string().contains("needs version") => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{text}: {error}"),
        }
    }
}

async fn problem(client: &Client, text: &str) -> QueryProblem {
    match client.query(text, &Attributes::new()).await {
        Err(Error::Query(problem)) => *problem,
        other => panic!("{text}: {other:?}"),
    }
}

/// The number in the only row.
fn number(reply: &QueryReply) -> i64 {
    reply.rows[0][0].as_int().unwrap()
}

/// A value of the library as the client has it.
fn of_library(value: &cypher::Value) -> Value {
    let properties = |all: &cypher::Properties| {
        let one = |(name, value): (&cypher::Name, &cypher::Value)| {
            (name.to_string(), value.to_attribute().unwrap())
        };
        all.iter().map(one).collect()
    };
    let node = |node: &cypher::Node| {
        let record = node.record.clone().unwrap_or_default();
        Node {
            id: node.id,
            kinds: record.labels.iter().map(ToString::to_string).collect(),
            attributes: properties(&record.properties),
            is_deleted: node.record.is_none(),
        }
    };
    let relationship = |it: &cypher::Relationship| Relationship {
        source: it.id.source,
        kind: it.id.kind.to_string(),
        target: it.id.target,
        discriminator: it.id.discriminator,
        attributes: it.properties.as_deref().map(properties).unwrap_or_default(),
        is_deleted: it.properties.is_none(),
    };
    match value {
        cypher::Value::Node(found) => Value::Node(node(found)),
        cypher::Value::Relationship(found) => Value::Relationship(relationship(found)),
        cypher::Value::Path(path) => Value::Path(Walk {
            nodes: path.nodes.iter().map(node).collect(),
            relationships: path.relationships.iter().map(relationship).collect(),
        }),
        other => match (other.to_attribute(), other) {
            (Some(plain), _) => Value::Plain(plain),
            (None, cypher::Value::List(list)) => Value::List(list.iter().map(of_library).collect()),
            (None, cypher::Value::Map(map)) => {
                let entries = map.iter();
                Value::Map(
                    entries
                        .map(|(name, value)| (name.to_string(), of_library(value)))
                        .collect(),
                )
            }
            (None, other) => panic!("{other}"),
        },
    }
}

/// What writes is written in both, so that later questions are of the same graph. Ids are random: none is returned there.
const QUERIES: [&str; 22] = [
    "CREATE (:person {name: 'Ada', born: date('1815-12-10')}), (:person {name: 'Alan', at: time('10:00+01:00')})",
    "MATCH (a {name: 'Ada'}), (b {name: 'Alan'}) CREATE (a)-[k:knows {since: 1840}]->(b) RETURN type(k), k.since",
    "MERGE (l:lang {name: 'Cypher'}) ON CREATE SET l.new = true ON MATCH SET l.new = false RETURN l.new",
    "MERGE (l:lang {name: 'Cypher'}) ON CREATE SET l.new = true ON MATCH SET l.new = false RETURN l.new",
    "MATCH (p:person), (l:lang) MERGE (p)-[:uses]->(l) MERGE (p)-[:uses]->(l) RETURN count(*)",
    "UNWIND range(1, 5) AS i CREATE (n:item {i: i}) WITH n MATCH (m:item) RETURN count(*), max(m.i)",
    "MATCH (n:item) WHERE n.i > 3 SET n.big = true, n:large REMOVE n:item RETURN n.i ORDER BY n.i",
    "MATCH (n:item {i: 1}) DETACH DELETE n RETURN n IS NULL",
    "MATCH (n) WHERE n:item OR n:large RETURN labels(n), n.i ORDER BY n.i",
    "MATCH (p:person)-[u:uses]->() WHERE p.name = 'Alan' DELETE u RETURN count(u)",
    "MATCH (n) RETURN labels(n), count(*) ORDER BY labels(n)",
    "MATCH (a)-[r]->(b) RETURN a.name, type(r), b.name ORDER BY a.name, b.name",
    "MATCH p = (:person {name: 'Ada'})-[*1..2]-(x) RETURN length(p), x.name ORDER BY length(p), x.name",
    "RETURN 1 AS one, -2.5, 'ä', true, null, [1, [2, 'x']], {a: {b: [null]}}",
    "RETURN datetime('2026-01-02T03:04:05.678[Europe/Berlin]') AS a, duration('P1Y2M3DT4H'), localdatetime('2026-01-02T03:04')",
    "UNWIND [3, 1, 2] AS i RETURN i ORDER BY i DESC SKIP 1",
    "MATCH (n) WHERE n.nothing = 1 RETURN n",
    "MATCH (a:person) WHERE EXISTS { (a)-[:uses]->() } RETURN a.name, a.born",
    "MATCH (n:person) SET n += {x: 1, y: [1, 2]} RETURN n.x, n.y, size(keys(n)) ORDER BY n.name",
    "MATCH (a {name: 'Ada'}), (b {name: 'Alan'}) CREATE (b)-[:answers]->(a)-[:asks]->(b) RETURN 1",
    "MATCH (a)-[r]->(b) WHERE a.name = 'Alan' RETURN type(r), b.name ORDER BY type(r)",
    "CALL bowline.degrees({direction: 'out', kinds: ['asks']}) YIELD node, degree WHERE degree > 0 RETURN node.name, degree",
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_effects_are_those_of_the_library() {
    let running = start(&[]).await;
    let client = client(&running).await;
    let library = Db::in_memory().unwrap();
    for text in QUERIES {
        let ours = library.query(text, &Parameters::new()).unwrap();
        let theirs = asked(&client, text).await;
        let columns: Vec<_> = ours.columns.iter().map(ToString::to_string).collect();
        assert_eq!(theirs.columns, columns, "{text}");
        let row = |row: &Vec<cypher::Value>| row.iter().map(of_library).collect::<Vec<_>>();
        let rows: Vec<_> = ours.rows.iter().map(row).collect();
        assert_eq!(theirs.rows, rows, "{text}");
        let effects = [
            (ours.effects.nodes_created, theirs.effects.blocks_created),
            (ours.effects.nodes_deleted, theirs.effects.blocks_deleted),
            (
                ours.effects.relationships_created,
                theirs.effects.edges_created,
            ),
            (
                ours.effects.relationships_deleted,
                theirs.effects.edges_deleted,
            ),
            (ours.effects.properties_set, theirs.effects.attributes_set),
            (ours.effects.labels_added, theirs.effects.kinds_added),
            (ours.effects.labels_removed, theirs.effects.kinds_removed),
        ];
        assert!(
            effects.iter().all(|(ours, theirs)| ours == theirs),
            "{text}: {effects:?}"
        );
    }
    // Nodes, relationships and paths, with their ids: the library on the server's own database.
    let snapshot = running.server.client().db().snapshot();
    for text in [
        "MATCH p = (a)-[r]->(b) RETURN p, r, a, [a, {b: b}] ORDER BY elementId(a), type(r)",
        "MATCH (a:person) RETURN collect(a), {n: a} LIMIT 1",
    ] {
        let ours = snapshot.query(text, &Parameters::new()).unwrap();
        let theirs = asked(&client, text).await;
        let row = |row: &Vec<cypher::Value>| row.iter().map(of_library).collect::<Vec<_>>();
        assert_eq!(
            theirs.rows,
            ours.rows.iter().map(row).collect::<Vec<_>>(),
            "{text}"
        );
        assert_eq!(theirs.revision, snapshot.revision());
    }
    running.server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_has_its_place_and_nothing_is_written() {
    let running = start(&[]).await;
    let client = client(&running).await;
    let before = asked(&client, "CREATE (:a {x: 1})").await.header.revision;
    let found = problem(&client, "MATCH (n)\nRETURN m").await;
    assert_eq!((found.line, found.column, found.width), (2, 8, 1));
    assert_eq!(
        (&*found.class, &*found.detail),
        ("SyntaxError", "UndefinedVariable")
    );
    assert!(
        found.caret.ends_with("2 | RETURN m\n  |        ^"),
        "{}",
        found.caret
    );
    assert!(found.to_string().contains(&found.caret), "{found}");
    let deep = format!("RETURN {}1{}", "[".repeat(300), "]".repeat(300));
    for (text, detail) in [
        ("RETURN $x", "MissingParameter"),
        ("MATCH (n RETURN n", "UnexpectedSyntax"),
        (&*deep, "QueryTooDeep"),
        ("CREATE (n:b) WITH n RETURN 1 / 0", "DivisionByZero"),
        (
            "CALL bowline.pagerank() YIELD node RETURN node",
            "ProcedureNotFound",
        ),
    ] {
        assert_eq!(problem(&client, text).await.detail, detail, "{text}");
    }
    let found = problem(&client, "RETURN 'ä' =~ 'x'").await;
    assert_eq!(
        (found.kind, found.column),
        (QueryProblemKind::Unsupported, 8)
    );
    // Parameters of every type come over, and one that is not used does not.
    let parameters = Attributes::from([("x".to_owned(), vec![1.into(), 2.into()].into())]);
    let reply = client.query("RETURN $x[1]", &parameters).await.unwrap();
    assert_eq!(number(&reply), 2);
    let unused = client.query("RETURN 1", &parameters).await.unwrap_err();
    assert!(unused.to_string().contains("`$x` is given"), "{unused}");
    // What writes is refused at a revision of the past, in the text, too, and where it is to read only.
    let none = Attributes::new();
    let query = || client.query("CREATE (:b)", &none);
    let old = client.query(format!("AT REVISION {before} CREATE (:b)"), &none);
    for refused in [query().read_only(), query().revision(before), old] {
        match refused.await {
            Err(Error::Query(problem)) => assert_eq!(problem.detail, "WriteInReadOnlyQuery"),
            other => panic!("{other:?}"),
        }
    }
    let both = client.query(format!("AT REVISION {before} RETURN 1"), &none);
    let both = both.revision(Revision::new(1)).await.unwrap_err();
    assert!(both.to_string().contains("another revision"), "{both}");
    let count = client
        .query("MATCH (n) RETURN count(n)", &none)
        .level(ReadLevel::Eventual);
    let count = count.await.unwrap();
    assert_eq!((number(&count), count.header.revision), (1, before));
    running.server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_end_a_query_and_parts_are_bounded() {
    let running = start(&[]).await;
    let client = client(&running).await;
    asked(&client, "UNWIND range(1, 40) AS i CREATE (:n {i: i})").await;
    let none = Attributes::new();
    let limit = |error: Error| match error {
        Error::Query(problem) => (problem.kind, problem.limit.unwrap_or_default()),
        other => panic!("{other}"),
    };
    let rows = client.query("MATCH (n) RETURN n", &none);
    assert_eq!(rows.clone().rows_max(40).await.unwrap().rows.len(), 40);
    let refused = rows.rows_max(39).await.unwrap_err();
    assert_eq!(limit(refused), (QueryProblemKind::Limit, "rows".to_owned()));
    let sorted = client.query(
        "UNWIND range(1, 1000) AS i WITH i ORDER BY -i RETURN i",
        &none,
    );
    let refused = sorted.memory_max_bytes(10_000).await.unwrap_err();
    assert_eq!(
        limit(refused),
        (QueryProblemKind::Limit, "memory_bytes".to_owned())
    );
    // Forty to the power of six rows, none of which passes. A query that writes has the time, too.
    let endless = "MATCH (a:n), (b:n), (c:n), (d:n), (e:n), (f:n) WHERE a.i + b.i + c.i + d.i + e.i + f.i < 0";
    for end in ["RETURN a", "SET a.x = 1"] {
        let query = client.query(format!("{endless} {end}"), &none);
        let refused = query.time_max(Duration::from_millis(60)).await.unwrap_err();
        assert!(
            refused.to_string().contains("takes longer than the 60ms"),
            "{refused}"
        );
    }
    // Each part is about 256 KiB at most, and a row that is too large is refused.
    let mut graph = GraphClient::new(running.channel().await);
    let of = |text: &str| pb::QueryRequest {
        text: text.to_owned(),
        ..pb::QueryRequest::default()
    };
    let text = "WITH reduce(s = 'x', i IN range(1, 12) | s + s) AS s UNWIND range(1, 300) AS i RETURN s, i";
    let mut parts = graph.query(of(text)).await.unwrap().into_inner();
    let (mut sizes, mut rows, mut is_end) = (Vec::new(), 0, false);
    while let Some(part) = parts.message().await.unwrap() {
        assert_eq!(part.header.is_some(), sizes.is_empty());
        assert_eq!(part.columns.len(), if sizes.is_empty() { 2 } else { 0 });
        sizes.push(prost::Message::encoded_len(&part));
        rows += part.rows.len();
        is_end = part.end.is_some();
    }
    assert!(is_end && rows == 300 && sizes.len() > 5, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size < 300 << 10), "{sizes:?}");
    let large = "RETURN reduce(s = 'x', i IN range(1, 21) | s + s) AS s";
    let mut stream = graph.query(of(large)).await.unwrap().into_inner();
    let refused = stream.message().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("more than 1 MiB"), "{refused}");
    let unknown = pb::QueryRequest {
        mode: 9,
        ..of("RETURN 1")
    };
    assert_eq!(
        graph.query(unknown).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    running.server.shutdown().await.unwrap();
}

/// The rows of a query that writes were charged a second time after its commit. Where that was refused for want of memory,
/// which says that nothing was written, the query was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_is_refused_for_its_answer_has_written_nothing() {
    let running = start_with(&[], |config| config.max_connection_memory = 4 << 20).await;
    let client = client(&running).await;
    asked(&client, "CREATE (:start)").await;
    let parameters = Attributes::from([("text".to_owned(), "v".repeat(750 << 10).into())]);
    let mut written = 0;
    for (rows, is_answered) in [(1, true), (8, false), (1, true)] {
        let text = format!("CREATE (:n) WITH 1 AS a UNWIND range(1, {rows}) AS i RETURN $text");
        match client.query(text, &parameters).await {
            Ok(reply) => {
                assert!(is_answered && reply.rows.len() == rows, "{rows} rows");
                written += 1;
            }
            Err(Error::Other { code, .. }) => {
                assert_eq!((code, is_answered), (Code::ResourceExhausted, false));
            }
            Err(other) => panic!("{other}"),
        }
        let count = asked(&client, "MATCH (n:n) RETURN count(n)").await;
        assert_eq!(number(&count), written);
    }
}

/// All that a query would write was held until its commit, and refused only then: with a text of a megabyte for each of many
/// blocks, the memory of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_writes_too_much_ends_before_it_holds_it() {
    let running = start(&[]).await;
    let client = client(&running).await;
    asked(&client, "CREATE (:a)").await;
    let big = "x".repeat(1 << 20);
    let parameters = Attributes::from([("big".to_owned(), big.as_str().into())]);
    for text in [
        "UNWIND range(1, 200) AS i CREATE (:a {t: $big})",
        "MATCH (a:a) UNWIND range(1, 200) AS i CREATE (a)-[:to {t: $big}]->(:a)",
    ] {
        let refused = client.query(text, &parameters).await.unwrap_err();
        let is_told = refused
            .to_string()
            .contains("writes more than a transaction may");
        assert!(is_told, "{refused}");
    }
    // What fits is written.
    let one = client.query("CREATE (:a {t: $big})", &parameters);
    assert_eq!(one.await.unwrap().effects.blocks_created, 1);
    assert_eq!(
        number(&asked(&client, "MATCH (n:a) RETURN count(n)").await),
        2
    );
    running.server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_conflict_are_run_again_and_none_is_lost() {
    let running = start(&[]).await;
    let client = client(&running).await;
    asked(&client, "CREATE (:counter {n: 0})").await;
    // Before the first member has announced itself nothing with a scan is written.
    asked(&client, "MATCH (c:counter) SET c.n = 0").await;
    let increments = (0..20).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let text = "MATCH (c:counter) SET c.n = c.n + 1 RETURN c.n";
            number(&client.query(text, &Attributes::new()).await.unwrap())
        })
    });
    let mut seen = Vec::new();
    for increment in increments.collect::<Vec<_>>() {
        seen.push(increment.await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
        (1..=20).collect::<Vec<i64>>(),
        "each row is of the attempt that was committed"
    );
    // Of two that create the same, one finds the other's, although nothing of the kind was there to conflict on.
    let merges = (0..8).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let text = "MERGE (s:single {name: 'x'}) RETURN s.name";
            client.query(text, &Attributes::new()).await.unwrap()
        })
    });
    for merge in merges.collect::<Vec<_>>() {
        merge.await.unwrap();
    }
    let count = asked(&client, "MATCH (s:single) RETURN count(s)").await;
    assert_eq!(number(&count), 1);
    running.server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_ends_when_its_client_leaves() {
    let running = start(&[]).await;
    let client = client(&running).await;
    asked(&client, "UNWIND range(1, 60) AS i CREATE (:n {i: i})").await;
    // One row at once, and then nothing of sixty to the power of five.
    let text = "RETURN 0 AS a UNION ALL MATCH (a:n), (b:n), (c:n), (d:n), (e:n) \
                WHERE a.i + b.i + c.i + d.i + e.i < 0 RETURN a.i AS a";
    let mut graph = GraphClient::new(running.channel().await);
    let request = pb::QueryRequest {
        text: text.to_owned(),
        ..pb::QueryRequest::default()
    };
    let mut streams = Vec::new();
    // As many as there may be at a time.
    for _ in 0..8 {
        let mut stream = graph.query(request.clone()).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!(first.rows.len(), 1, "it comes at once");
        streams.push(stream);
    }
    drop(streams);
    assert_eq!(number(&asked(&client, "RETURN 7").await), 7);
    running.server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_and_its_profile_are_told() {
    let running = start(&[]).await;
    let client = client(&running).await;
    asked(&client, "CREATE (:n {i: 1}), (:n {i: 2}), (:n {i: 3})").await;
    let none = Attributes::new();
    let query = || client.query("MATCH (n:n) WHERE n.i > 1 RETURN n.i", &none);
    let told = query().explain().await.unwrap();
    let plan = told.plan.unwrap();
    assert!(
        plan.starts_with("Project n.i\n  Filter n.i > 1\n"),
        "{plan}"
    );
    assert!(told.rows.is_empty() && told.columns.is_empty());
    let told = query().profile().await.unwrap();
    let plan = told.plan.unwrap();
    let lines: Vec<&str> = plan.lines().collect();
    assert!(
        lines[0].contains("[2 rows, ") && lines[2].contains("[3 rows, "),
        "{plan}"
    );
    assert_eq!(told.rows.len(), 2);
    assert!(query().await.unwrap().plan.is_none());
    let written = client
        .query("CREATE (:n) RETURN 1", &none)
        .profile()
        .await
        .unwrap();
    assert!(written.writes && written.plan.unwrap().contains("Create (_0:n)  [1 rows, "));
    running.server.shutdown().await.unwrap();
}
