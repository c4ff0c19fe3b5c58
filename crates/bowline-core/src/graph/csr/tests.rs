//! A view against a model that keeps every edge with the revisions that have it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::GraphView;
use super::changes::{EdgeChange, GraphChanges};
use super::delta::COST;
use super::ids::Ids;
use super::rows::{EDGES_MAX, RowsBuilder};
use super::state::{Base, ORDINALS_MAX, State};
use crate::graph::{KindFilter, KindId};
use bowline_types::{BlockId, Direction};

type Edge = (BlockId, KindId, BlockId);

/// The edges of each revision from 0 on.
struct History(Vec<BTreeSet<Edge>>);

impl History {
    fn expected(
        &self,
        near: BlockId,
        direction: Direction,
        revision: u64,
        filter: &KindFilter,
    ) -> Vec<(BlockId, KindId, Direction)> {
        let edges = &self.0[revision as usize];
        let mut found = Vec::new();
        let passing = || edges.iter().filter(|edge| filter.passes(edge.1));
        if direction != Direction::In {
            let out = passing().filter(|edge| edge.0 == near);
            found.extend(out.map(|edge| (edge.2, edge.1, Direction::Out)));
        }
        if direction != Direction::Out {
            let incoming = passing().filter(|edge| edge.2 == near);
            let mut list: Vec<_> = incoming.map(|edge| (edge.1, edge.0)).collect();
            list.sort_unstable();
            found.extend(
                list.into_iter()
                    .map(|(kind, far)| (far, kind, Direction::In)),
            );
        }
        found
    }
}

fn visited(
    state: &State,
    near: BlockId,
    direction: Direction,
    revision: u64,
    filter: &KindFilter,
) -> Vec<(BlockId, KindId, Direction)> {
    let mut found = Vec::new();
    let Some(near) = state.ordinal(near) else {
        return found;
    };
    let _ = state.visit(near, direction, revision, filter, |far, kind, direction| {
        found.push((state.id(far), kind, direction));
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Of each block, asked for together, and so often that they take several turns.
fn visited_of_many(
    state: &State,
    ids: &[BlockId],
    direction: Direction,
    revision: u64,
    filter: &KindFilter,
) -> Vec<Vec<(BlockId, KindId, Direction)>> {
    let again: Vec<_> = ids.iter().copied().cycle().take(ids.len() * 9).collect();
    let mut found = vec![Vec::new(); again.len()];
    let _ = state.visit_many(
        &again,
        direction,
        revision,
        filter,
        |place, far, kind, direction| {
            found[place].push((state.id(far), kind, direction));
            ControlFlow::<()>::Continue(())
        },
    );
    for (place, row) in found.iter().enumerate() {
        assert_eq!(row, &found[place % ids.len()]);
    }
    found.truncate(ids.len());
    found
}

fn changes_of(edges: impl IntoIterator<Item = EdgeChange>) -> GraphChanges {
    let mut changes = GraphChanges::default();
    edges.into_iter().for_each(|change| changes.push(change));
    changes
}

/// The rows of all ordinals are those that are visited one by one; the arriving ones ascend.
fn assert_whole_rows(state: &State, revision: u64, filter: &KindFilter) {
    for direction in [Direction::Out, Direction::In] {
        let rows = state.whole_rows(direction, revision, filter);
        assert_eq!(rows.len(), state.ordinals());
        for (near, row) in rows.iter() {
            let mut expected = Vec::new();
            let _ = state.visit(near, direction, revision, filter, |far, _, _| {
                expected.push(far);
                ControlFlow::<()>::Continue(())
            });
            if direction == Direction::In {
                expected.sort_unstable();
            }
            assert_eq!(
                row, expected,
                "{near} {direction:?} {filter:?} at {revision}"
            );
        }
    }
}

fn base(blocks: &BTreeSet<BlockId>, edges: &BTreeSet<Edge>, revision: u64) -> Base {
    let ids = Ids::new(blocks.iter().copied().collect());
    let mut rows = RowsBuilder::new(ids.len());
    for &(source, kind, target) in edges {
        let (near, far) = (ids.ordinal(source), ids.ordinal(target));
        assert!(rows.push(near.expect("a block"), kind, far.expect("a block")));
    }
    Base::new(revision, false, ids, rows.finish())
}

/// Random changes of few edges, so that each is put and deleted again and again, some twice in a row, with
/// blocks that the base does not know and folds in between: every revision from the base on has its edges, in
/// order, in both directions, through every filter.
#[test]
fn every_revision_from_the_base_on_has_its_edges() {
    for seed in crate::seeds(0..120) {
        let mut random = fastrand::Rng::with_seed(seed);
        let ids: Vec<_> = (0..random.usize(2..9))
            .map(|_| BlockId(random.u128(..)))
            .collect();
        let widest = if seed % 4 == 0 { 400 } else { 4 };
        let edge = |random: &mut fastrand::Rng| {
            let kind = KindId(random.u32(1..widest));
            (
                ids[random.usize(..ids.len())],
                kind,
                ids[random.usize(..ids.len())],
            )
        };
        let first: BTreeSet<Edge> = (0..random.usize(..20)).map(|_| edge(&mut random)).collect();
        let known: BTreeSet<_> = first.iter().flat_map(|edge| [edge.0, edge.2]).collect();
        let mut history = History(vec![first.clone()]);
        let mut state = State::new(base(&known, &first, 0), u64::MAX);
        let (mut oldest, mut copies) = (0, 0);
        for revision in 1..40u64 {
            let mut edges = history.0[revision as usize - 1].clone();
            for _ in 0..random.usize(..4) {
                // As a transaction does it, an edge changes once in a revision.
                let (source, kind, target) = edge(&mut random);
                let is_put = random.bool();
                let edge = (source, kind, target);
                let before = &history.0[revision as usize - 1];
                if before.contains(&edge) != edges.contains(&edge) {
                    continue;
                }
                match is_put {
                    true => edges.insert(edge),
                    false => edges.remove(&edge),
                };
                state.apply(&EdgeChange {
                    source,
                    target,
                    revision,
                    kind,
                    is_put,
                });
            }
            history.0.push(edges);
            if random.u8(..12) == 0 {
                let base = state.folded(revision, false).expect("few edges");
                state = State::new(base, u64::MAX);
                oldest = revision;
                assert_eq!(state.changes(), 0);
            }
            for at in oldest..=revision {
                for filter in [KindFilter::All, KindFilter::only([KindId(1), KindId(3)])] {
                    assert_whole_rows(&state, at, &filter);
                }
                for direction in [Direction::Out, Direction::In, Direction::Both] {
                    let some = KindFilter::only([KindId(1), KindId(3), KindId(300)]);
                    for filter in [KindFilter::All, some, KindFilter::only([])] {
                        let many = visited_of_many(&state, &ids, direction, at, &filter);
                        for (&near, many) in ids.iter().zip(many) {
                            let expected = history.expected(near, direction, at, &filter);
                            assert_eq!(many, expected, "seed {seed}: {near} of many at {at}");
                            assert_eq!(
                                visited(&state, near, direction, at, &filter),
                                history.expected(near, direction, at, &filter),
                                "seed {seed}: {near} {direction:?} {filter:?} at {at} of {revision}"
                            );
                        }
                    }
                }
            }
            copies += u64::from(state.flat_bytes() > 0);
        }
        assert!(copies > 0, "seed {seed}: no changed row was copied");
    }
}

/// Changed rows that are read again and again are copied within half of what the budget leaves; a change ends the copies
/// of its chunk, and a long row has none.
#[test]
fn changed_rows_are_copied_within_the_budget_until_they_change() {
    const HUB: u128 = 3;
    let ids: Vec<_> = (0..3000).map(BlockId).collect();
    let degree = |near: u128| if near == HUB { 2000 } else { 4 };
    let edges = ids.iter().flat_map(|&near| {
        let ends = (1..=degree(near.0)).map(move |step| BlockId((near.0 + step) % 3000));
        ends.map(move |far| (near, KindId(1), far))
    });
    let edges: BTreeSet<Edge> = edges.collect();
    let base = || base(&ids.iter().copied().collect(), &edges, 0);
    let size = base().memory_bytes();
    for (room, copied) in [(1 << 20, 8), (8 << 10, 0)] {
        let mut state = State::new(base(), size + room);
        let change = |state: &mut State, revision, near: u128| {
            state.apply(&EdgeChange {
                source: BlockId(near),
                target: BlockId(near),
                revision,
                kind: KindId(1),
                is_put: true,
            });
        };
        (1..10).for_each(|near| change(&mut state, 1, near as u128));
        let read = |state: &State, revision| {
            for _ in 0..3 {
                for &near in &ids[..20] {
                    let found = visited(state, near, Direction::Out, revision, &KindFilter::All);
                    let is_changed = (1..10).contains(&near.0) && revision > 0;
                    assert_eq!(found.len() as u128, degree(near.0) + u128::from(is_changed));
                }
            }
        };
        read(&state, 0);
        assert_eq!(state.flat_bytes(), 0, "an old revision needs none");
        read(&state, 1);
        // A place for each ordinal of the chunk, and an edge takes four bytes and one.
        let bytes = u64::from(copied > 0) * 1025 * 4 + copied * 5 * 5;
        assert_eq!(state.flat_bytes(), bytes);
        let before = state.clone();
        change(&mut state, 2, 30);
        read(&state, 1);
        assert_eq!(state.flat_bytes(), bytes, "that of the state before");
        read(&before, 1);
        drop(before);
        assert_eq!(state.flat_bytes(), 0, "and not of what has changed");
    }
}

/// A visit that breaks sees nothing more, neither of the row nor of the other direction.
#[test]
fn a_visit_ends_where_it_breaks() {
    let ids = [1, 2, 3].map(BlockId);
    let edges = BTreeSet::from([
        (ids[0], KindId(1), ids[1]),
        (ids[0], KindId(1), ids[2]),
        (ids[2], KindId(1), ids[0]),
    ]);
    let mut state = State::new(base(&ids.into(), &edges, 5), u64::MAX);
    for is_changed in [false, true] {
        if is_changed {
            state.apply(&EdgeChange {
                source: ids[0],
                target: ids[0],
                revision: 6,
                kind: KindId(1),
                is_put: true,
            });
        }
        for stop in 1..=3 {
            let mut seen = 0;
            let ended = state.visit(0, Direction::Both, 6, &KindFilter::All, |_, _, _| {
                seen += 1;
                match seen == stop {
                    true => ControlFlow::Break(stop),
                    false => ControlFlow::Continue(()),
                }
            });
            assert_eq!((ended, seen), (ControlFlow::Break(stop), stop));
        }
    }
}

/// G5: 10 bytes an edge and 40 a block, both directions together.
#[test]
fn memory_is_within_the_figure() {
    let blocks: BTreeSet<_> = (0..1000).map(BlockId).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let mut any = || BlockId(random.u128(..1000));
    let edges: BTreeSet<Edge> = (0..20_000).map(|_| (any(), KindId(7), any())).collect();
    let base = base(&blocks, &edges, 1);
    let most = 1000 * 40 + edges.len() as u64 * 10;
    assert!(
        base.memory_bytes() <= most,
        "{} of {most}",
        base.memory_bytes()
    );
}

/// Changes that arrive between the beginning of a view and its load wait for it, also if a query looked for an answer
/// meanwhile.
#[test]
fn changes_wait_for_the_view_that_was_begun() {
    let (a, b, c) = (BlockId(1), BlockId(2), BlockId(3));
    let kind = KindId(1);
    let base = base(&[a, b].into(), &BTreeSet::from([(a, kind, b)]), 7);
    let view = GraphView::new(1 << 20);
    let begun = view.begin(7);
    let change = EdgeChange {
        source: a,
        target: c,
        revision: 8,
        kind,
        is_put: true,
    };
    view.publish(8, &mut changes_of([change]));
    assert!(view.at(8).is_none(), "nothing answers yet");
    assert!(view.take(State::new(base, 1 << 20), &begun));
    for (revision, wanted) in [(7, vec![b]), (8, vec![b, c])] {
        let state = view.at(revision).expect("it answers");
        let found = visited(&state, a, Direction::Out, revision, &KindFilter::All);
        let found: Vec<_> = found.into_iter().map(|(far, _, _)| far).collect();
        assert_eq!(found, wanted, "at {revision}");
    }
}

/// Changes that are applied many at once leave what they leave one by one: those of few edges, each put and deleted
/// again and again, some twice in a row, of which the base has some.
#[test]
fn changes_applied_at_once_are_those_applied_one_by_one() {
    for seed in crate::seeds(0..150) {
        let mut random = fastrand::Rng::with_seed(seed);
        let ids: Vec<_> = (0..random.usize(2..7))
            .map(|_| BlockId(random.u128(..)))
            .collect();
        let mut any = || {
            let (near, far) = (random.usize(..ids.len()), random.usize(..ids.len()));
            (ids[near], KindId(random.u32(1..4)), ids[far])
        };
        let first: BTreeSet<Edge> = (0..12).map(|_| any()).collect();
        let known = first.iter().flat_map(|edge| [edge.0, edge.2]).collect();
        let edges: Vec<_> = (0..200).map(|_| any()).collect();
        let changes: Vec<_> = (1..)
            .zip(edges)
            .map(|(revision, (source, kind, target))| EdgeChange {
                source,
                target,
                revision,
                kind,
                is_put: random.bool(),
            })
            .collect();
        let mut each = State::new(base(&known, &first, 0), u64::MAX);
        let mut at_once = State::new(base(&known, &first, 0), u64::MAX);
        let mut rest = &changes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(random.usize(..120).min(rest.len()));
            now.iter().for_each(|change| each.apply(change));
            at_once.apply_all(now, random.bool());
            rest = later;
        }
        assert_eq!(each.changes(), at_once.changes(), "seed {seed}");
        for revision in (0..=200).step_by(7) {
            for &near in &ids {
                let row = |state| visited(state, near, Direction::Both, revision, &KindFilter::All);
                assert_eq!(
                    row(&each),
                    row(&at_once),
                    "seed {seed}: {near} at {revision}"
                );
            }
        }
    }
}

/// Edges that came to one block in another order than that of their ids were inserted one by one, each before all that
/// had come: the first query after an import cost the square of their number.
#[test]
fn many_edges_at_one_block_are_merged_with_its_row() {
    const PUTS: u64 = 20_000;
    let view = GraphView::new(1 << 30);
    let begun = view.begin(0);
    let nothing = base(&BTreeSet::new(), &BTreeSet::new(), 0);
    assert!(view.take(State::new(nothing, 1 << 30), &begun));
    for revision in 1..=2 {
        let change = |number| EdgeChange {
            source: BlockId(0),
            // Descending, and the second time between the first.
            target: BlockId(u128::from(2 * (PUTS - number) + revision)),
            revision,
            kind: KindId(1),
            is_put: true,
        };
        view.publish(revision, &mut changes_of((0..PUTS).map(change)));
        COST.take();
        let state = view.at(revision).expect("it answers");
        let [compared, moved] = COST.take();
        assert!(
            compared + moved < 20 * PUTS as usize,
            "{compared} compared, {moved} moved"
        );
        assert_eq!(state.changes(), revision * PUTS);
    }
}

/// The bytes of changes make a fold due, and so does the budget, however few changes there are: each new row takes as
/// much memory as many edges of the base.
#[test]
fn the_bytes_of_changes_make_a_fold_due() {
    let ids: Vec<_> = (0..4000).map(BlockId).collect();
    let edge = |number: usize| (ids[number / 1000], KindId(1), ids[number % 1000]);
    let edges: BTreeSet<Edge> = (0..4000).map(edge).collect();
    let base = || base(&ids.iter().copied().collect(), &edges, 0);
    let size = base().memory_bytes();
    // How much the state has grown when a fold is due.
    let grown = |budget_bytes| {
        let mut state = State::new(base(), budget_bytes);
        for near in 1..4000 {
            if state.is_fold_due() {
                assert!(state.changes() < 500, "their number does not make it due");
                return state.memory_bytes() - size;
            }
            state.apply(&EdgeChange {
                source: ids[near],
                target: ids[4000 - near],
                revision: 1,
                kind: KindId(1),
                is_put: true,
            });
        }
        panic!("no fold was due");
    };
    let [free, bound] = [u64::MAX, size + 9000].map(grown);
    assert!((size / 2..size / 2 + 3000).contains(&free), "{free}");
    assert!((9000..9000 + 3000).contains(&bound), "{bound}");
}

/// A fold of more edges than places can number left out the rest of them, and the view went on without them; so did the file
/// that was saved.
#[test]
fn a_fold_of_too_many_edges_ends_the_view() {
    let ids: BTreeSet<_> = (0..=256).map(BlockId).collect();
    let ends = ids.iter().flat_map(|a| ids.iter().map(move |b| (*a, *b)));
    let edges = ends.map(|(source, target)| (source, KindId(1), target));
    let edges: BTreeSet<Edge> = edges.take(EDGES_MAX).collect();
    let base = base(&ids, &edges, 0);
    let view = GraphView::new(1 << 30);
    let begun = view.begin(0);
    // With its budget each change makes a fold due.
    let size = base.memory_bytes();
    assert!(view.take(State::new(base, size), &begun));
    let one_more = EdgeChange {
        source: BlockId(0),
        target: BlockId(1),
        revision: 1,
        kind: KindId(2),
        is_put: true,
    };
    view.publish(1, &mut changes_of([one_more]));
    let state = view.at(1).expect("it answers");
    assert!(state.is_fold_due() && state.folded(1, false).is_none());
    view.maintain();
    assert!(!view.is_ready() && view.status().is_over_budget);
}

/// An edge to a block for which there was no ordinal any more was left out, and the view went on without it.
#[test]
fn a_change_without_an_ordinal_ends_the_view() {
    let ids: BTreeSet<_> = (0..ORDINALS_MAX as u128 - 1).map(BlockId).collect();
    let view = GraphView::new(1 << 30);
    let begun = view.begin(0);
    let base = base(&ids, &BTreeSet::new(), 0);
    assert!(view.take(State::new(base, 1 << 30), &begun));
    for (revision, target) in [(1, ORDINALS_MAX), (2, ORDINALS_MAX + 1)] {
        let change = EdgeChange {
            source: BlockId(0),
            target: BlockId(target as u128),
            revision,
            kind: KindId(1),
            is_put: true,
        };
        view.publish(revision, &mut changes_of([change]));
        assert_eq!(view.at(revision).is_some(), revision == 1);
    }
    assert!(!view.is_ready());
}

/// What is held of blocks answers for revisions whose changes have been told, and not beyond a time in which they were not.
#[test]
fn blocks_are_held_for_published_revisions() {
    let mut record = Vec::new();
    let block = bowline_types::Block::new(BlockId(1), "x");
    super::super::encode_block(&[KindId(1)], &block, &mut record);
    let parts = super::super::decode_block(&record).expect("it decodes");
    let view = GraphView::new(1 << 20);
    let is_held = |at| {
        view.blocks(at).is_some_and(|blocks| {
            let asked = blocks.names([]);
            blocks.visit(BlockId(1), at, &asked, |_| ()).is_some()
        })
    };
    assert!(view.blocks(0).is_none(), "nothing is collected");
    let _begun = view.begin(5);
    view.blocks(5)
        .expect("published")
        .take_in(BlockId(1), 5, &parts);
    assert!(is_held(5));
    assert!(view.blocks(6).is_none(), "visible perhaps, not published");
    let mut changes = GraphChanges::default();
    changes.note_block(BlockId(2));
    view.publish(6, &mut changes);
    assert!(is_held(6), "another block has changed");
    changes.note_block(BlockId(1));
    view.publish(7, &mut changes);
    assert!(!is_held(7));
    view.blocks(7)
        .expect("published")
        .take_in(BlockId(1), 7, &parts);
    assert!(is_held(7));
    view.forget();
    assert!(view.blocks(7).is_none());
    // A commit meanwhile is not told.
    let _begun = view.begin(8);
    assert!(!is_held(8));
    view.blocks(8)
        .expect("published")
        .take_in(BlockId(1), 8, &parts);
    changes.note_blocks();
    view.publish(9, &mut changes);
    assert!(!is_held(9), "any block may have changed");
}
