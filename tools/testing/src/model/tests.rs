use super::*;

fn entry(model: &Model, key: &[u8], revision: Revision) -> Option<(u64, u64, u64)> {
    let entry = model.get(key, revision)?;
    Some((
        entry.create_revision.get(),
        entry.mod_revision.get(),
        entry.version,
    ))
}

/// A graph with blocks 1 to `blocks` and these edges.
fn graph(blocks: BlockId, edges: &[(BlockId, &str, BlockId)]) -> Graph {
    let mut model = Model::new();
    let mut changes: Vec<_> = (1..=blocks)
        .map(|id| Change::put_block(id, "n", b""))
        .collect();
    changes.extend(
        edges
            .iter()
            .map(|(from, kind, to)| Change::put_edge(*from, kind, *to, b"")),
    );
    let revision = model.commit(&changes).unwrap();
    model.graph(revision)
}

#[test]
fn create_revision_and_version_start_anew_after_a_delete() {
    let mut model = Model::new();
    assert_eq!(model.revision(), 1);
    model.commit(&[Change::put(b"k", b"1")]).unwrap();
    model
        .commit(&[Change::put(b"k", b"2"), Change::put(b"other", b"")])
        .unwrap();
    model.commit(&[Change::delete(b"k")]).unwrap();
    model
        .commit(&[Change::Put {
            key: b"k".to_vec(),
            value: vec![],
            lease: 9,
        }])
        .unwrap();
    assert_eq!(entry(&model, b"k", Revision::new(1)), None);
    assert_eq!(entry(&model, b"k", Revision::new(2)), Some((2, 2, 1)));
    assert_eq!(entry(&model, b"k", Revision::new(3)), Some((2, 3, 2)));
    assert_eq!(entry(&model, b"k", Revision::new(4)), None);
    assert_eq!(entry(&model, b"k", Revision::new(5)), Some((5, 5, 1)));
    assert_eq!(model.get(b"k", Revision::new(5)).unwrap().lease, 9);
    assert_eq!(entry(&model, b"k", Revision::new(100)), Some((5, 5, 1)));
    let history: Vec<_> = model
        .history(b"k")
        .iter()
        .map(|(r, e)| (r.get(), e.is_some()))
        .collect();
    assert_eq!(history, [(2, true), (3, true), (4, false), (5, true)]);
    assert!(model.history(b"never").is_empty());
}

#[test]
fn only_transactions_that_change_something_take_a_revision() {
    let mut model = Model::new();
    assert_eq!(model.commit(&[]), Ok(Revision::new(1)));
    assert_eq!(model.commit(&[Change::delete(b"k")]), Ok(Revision::new(1)));
    assert_eq!(
        model.commit(&[Change::put(b"k", b""), Change::delete(b"k")]),
        Ok(Revision::new(1))
    );
    assert!(model.history(b"k").is_empty());
    assert_eq!(
        model.commit(&[Change::put(b"k", b"")]),
        Ok(Revision::new(2))
    );
    assert_eq!(
        model.commit(&[Change::put(b"k", b"")]),
        Ok(Revision::new(3)),
        "the same value is a change"
    );
}

#[test]
fn the_last_change_of_a_key_in_a_transaction_counts() {
    let mut model = Model::new();
    model.commit(&[Change::put(b"k", b"1")]).unwrap();
    let both = [
        Change::delete(b"k"),
        Change::put(b"k", b"2"),
        Change::put(b"k", b"3"),
    ];
    model.commit(&both).unwrap();
    assert_eq!(entry(&model, b"k", Revision::new(3)), Some((2, 3, 2)));
    assert_eq!(
        model.key_values(Revision::new(3)),
        BTreeMap::from([(b"k".to_vec(), b"3".to_vec())])
    );
}

#[test]
fn ranges_show_one_revision_in_order() {
    let mut model = Model::new();
    for key in [b"c", b"a", b"b", b"d"] {
        model.commit(&[Change::put(key, b"v")]).unwrap();
    }
    model.commit(&[Change::delete(b"b")]).unwrap();
    let keys = |revision| -> Vec<_> {
        let range = b"a".to_vec()..b"d".to_vec();
        model
            .range(range, revision)
            .map(|(key, _)| key[0])
            .collect()
    };
    assert_eq!(keys(Revision::new(3)), b"ac");
    assert_eq!(keys(Revision::new(5)), b"abc");
    assert_eq!(keys(Revision::new(6)), b"ac");
    assert_eq!(
        model.range(.., Revision::new(6)).next_back().unwrap().0,
        b"d"
    );
}

#[test]
fn deleting_a_block_deletes_its_edges_and_keeps_the_past() {
    let mut model = Model::new();
    let blocks = [1, 2, 3].map(|id| Change::put_block(id, "n", b"x"));
    model.commit(&blocks).unwrap();
    let edges = [(1, 2), (2, 3), (3, 1)].map(|(s, t)| Change::put_edge(s, "a", t, b"w"));
    model.commit(&edges).unwrap();
    model.commit(&[Change::DeleteBlock { id: 1 }]).unwrap();
    assert_eq!(model.graph(Revision::new(3)).edges.len(), 3);
    let now = model.graph(Revision::new(4));
    assert_eq!(now.blocks.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(
        now.edges.into_keys().collect::<Vec<_>>(),
        [EdgeKey::new(2, "a", 3)]
    );
    // The block comes back without its edges.
    model.commit(&[Change::put_block(1, "m", b"y")]).unwrap();
    assert_eq!(model.edge(&EdgeKey::new(1, "a", 2), Revision::new(5)), None);
    assert_eq!(
        model.edge(&EdgeKey::new(1, "a", 2), Revision::new(3)),
        Some(&b"w"[..])
    );
    assert_eq!(model.block(1, Revision::new(5)).unwrap().kinds, "m");
    assert_eq!(model.block(1, Revision::new(3)).unwrap().content, b"x");
}

#[test]
fn a_refused_transaction_leaves_no_trace() {
    let mut model = Model::new();
    model
        .commit(&[Change::put(b"k", b"1"), Change::put_block(1, "n", b"")])
        .unwrap();
    let before = (
        model.key_values(Revision::new(9)),
        model.graph(Revision::new(9)),
    );
    let changes = [
        Change::put(b"k", b"2"),
        Change::put(b"new", b""),
        Change::put_block(2, "n", b""),
        Change::put_edge(1, "a", 2, b""),
        Change::DeleteBlock { id: 1 },
        Change::put_edge(2, "a", 1, b""),
    ];
    assert_eq!(model.commit(&changes), Err(MissingBlock(1)));
    assert_eq!(
        (
            model.revision().get(),
            model.key_values(Revision::new(9)),
            model.graph(Revision::new(9))
        ),
        (2, before.0, before.1)
    );
    assert!(model.history(b"new").is_empty());
    assert_eq!(entry(&model, b"k", Revision::new(9)), Some((2, 2, 1)));
    assert_eq!(
        model.commit(&changes[..5]),
        Ok(Revision::new(3)),
        "an edge sees blocks of its transaction"
    );
}

#[test]
fn neighbors_follow_direction_and_kind() {
    let graph = graph(4, &[(1, "a", 2), (1, "b", 2), (3, "a", 1), (1, "a", 1)]);
    let ends = |direction, kinds: &[&str]| -> Vec<_> {
        graph
            .neighbors(1, direction, kinds)
            .into_iter()
            .map(|(_, end)| end)
            .collect()
    };
    assert_eq!(ends(Direction::Out, &[]), [1, 2, 2]);
    assert_eq!(ends(Direction::Out, &["b"]), [2]);
    assert_eq!(ends(Direction::In, &["a", "b"]), [1, 3]);
    assert_eq!(ends(Direction::Both, &[]), [1, 2, 2, 3]);
    assert!(ends(Direction::Both, &["c"]).is_empty());
}

#[test]
fn breadth_first_finds_the_least_depth_and_stops_at_the_bound() {
    let graph = graph(
        6,
        &[
            (1, "a", 2),
            (2, "a", 3),
            (3, "a", 4),
            (1, "b", 4),
            (4, "a", 5),
        ],
    );
    let depths = |kinds: &[&str], max| -> Vec<_> {
        graph
            .breadth_first(1, Direction::Out, kinds, max)
            .into_iter()
            .collect()
    };
    assert_eq!(
        depths(&[], u32::MAX),
        [(1, 0), (2, 1), (3, 2), (4, 1), (5, 2)]
    );
    assert_eq!(depths(&["a"], 2), [(1, 0), (2, 1), (3, 2)]);
    assert_eq!(depths(&[], 0), [(1, 0)]);
    assert!(graph.breadth_first(99, Direction::Out, &[], 5).is_empty());
    assert_eq!(graph.shortest_path(1, 5, Direction::Out, &["a"]), Some(4));
    assert_eq!(graph.shortest_path(5, 1, Direction::In, &[]), Some(2));
    assert_eq!(graph.shortest_path(5, 2, Direction::Both, &[]), Some(3));
    assert_eq!(graph.shortest_path(1, 6, Direction::Both, &[]), None);
}

#[test]
fn the_cheapest_way_may_be_the_longer_one() {
    let graph = graph(4, &[(1, "a", 4), (1, "a", 2), (2, "a", 3), (3, "a", 4)]);
    let weight = |edge: &EdgeKey, _: &[u8]| {
        if edge.target == edge.source + 3 {
            10
        } else {
            3
        }
    };
    let cost = |from, to, direction| graph.shortest_weighted_path(from, to, direction, &[], weight);
    assert_eq!(cost(1, 4, Direction::Out), Some(9));
    assert_eq!(cost(4, 1, Direction::Out), None);
    assert_eq!(cost(4, 1, Direction::In), Some(9));
    assert_eq!(cost(3, 2, Direction::Both), Some(3));
    assert_eq!(cost(2, 2, Direction::Out), Some(0));
    let heavy = graph.shortest_weighted_path(1, 3, Direction::Out, &[], |_, _| u64::MAX);
    assert_eq!(heavy, None, "a sum over u64 is no way");
}

#[test]
fn cycles_and_components_respect_kinds() {
    let graph = graph(
        5,
        &[
            (1, "a", 2),
            (2, "a", 3),
            (3, "b", 1),
            (4, "a", 3),
            (5, "c", 5),
        ],
    );
    assert!(graph.is_acyclic(&["a"]));
    assert!(graph.is_acyclic(&["b"]));
    assert!(!graph.is_acyclic(&["a", "b"]));
    assert!(!graph.is_acyclic(&["c"]), "a loop is a cycle");
    let components = |sets: &[&[BlockId]]| -> std::collections::BTreeSet<_> {
        sets.iter()
            .map(|set| set.iter().copied().collect())
            .collect()
    };
    assert_eq!(
        graph.strong_components(&[]),
        components(&[&[1, 2, 3], &[4], &[5]])
    );
    assert_eq!(
        graph.strong_components(&["a"]),
        components(&[&[1], &[2], &[3], &[4], &[5]])
    );
}
