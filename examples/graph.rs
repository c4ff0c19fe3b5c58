//! The graph: packages and what they depend on, written together with keys in one transaction,
//! then asked who is affected by a change, now and in the past.
//!
//! Run it with `cargo run -p bowline --example graph`.

use bowline::{Block, BlockId, Db, Direction, Edge, Error, History, Stop};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::builder()
        .history(History::All)
        .open(directory.path().join("data"))?;

    // Ids are 128 bits: a UUID of your own, or the hash of a name.
    let [app, web, http, tls, log] = ["app", "web", "http", "tls", "log"].map(BlockId::from_name);
    db.transact(|tx| {
        for (id, name) in [
            (app, "app"),
            (web, "web"),
            (http, "http"),
            (tls, "tls"),
            (log, "log"),
        ] {
            tx.put_block(&Block::new(id, "package").attribute("name", name))?;
        }
        for (from, to) in [
            (app, web),
            (app, log),
            (web, http),
            (http, tls),
            (http, log),
        ] {
            tx.put_edge(&Edge::new(from, "depends_on", to))?;
        }
        // Keys, blocks and edges share the transaction and its revision.
        tx.put("packages/count", "5")
    })?;
    let first = db.revision();

    // An edge needs both of its blocks.
    let dangling =
        db.transact(|tx| tx.put_edge(&Edge::new(app, "depends_on", BlockId::from_name("nowhere"))));
    assert!(matches!(dangling, Err(Error::MissingBlock { .. })));

    // One step, from either end.
    let graph = db.snapshot().graph();
    assert_eq!(
        graph.neighbors(http, Direction::Out, ["depends_on"])?.len(),
        2
    );
    assert_eq!(
        graph.neighbors(http, Direction::In, ["depends_on"])?[0].id,
        web
    );

    // Who has to be built again when `tls` changes? Nearest first.
    let affected = graph.traverse(tls).direction(Direction::In).run()?;
    let ids: Vec<_> = affected.ids().collect();
    assert_eq!(ids, [tls, http, web, app]);
    assert_eq!(affected.stop(), Stop::Exhausted);
    for visit in affected.visits() {
        let block = graph.block(visit.id)?.expect("a visited block exists");
        println!(
            "{:indent$}{}",
            "",
            block.attributes["name"],
            indent = 2 * visit.depth as usize
        );
    }

    // A traversal with a bound says which bound stopped it.
    let near = graph
        .traverse(tls)
        .direction(Direction::In)
        .max_depth(1)
        .run()?;
    assert_eq!((near.len(), near.stop()), (2, Stop::MaxDepth));

    // Deleting a block deletes its edges, in the same transaction.
    db.transact(|tx| tx.delete_block(http).map(|_| ()))?;
    let now = db.snapshot().graph();
    assert!(
        now.neighbors(web, Direction::Out, ["depends_on"])?
            .is_empty()
    );
    assert_eq!(now.traverse(tls).direction(Direction::In).run()?.len(), 1);

    // The graph as it was.
    let then = db.snapshot_at(first)?.graph();
    assert_eq!(then.traverse(tls).direction(Direction::In).run()?.len(), 4);
    assert_eq!(
        then.traverse(app)
            .kinds(["depends_on"])
            .depth_first()
            .run()?
            .len(),
        5
    );

    // Both directions of every edge agree.
    assert!(db.check()?.is_clean());
    Ok(())
}
