//! Histories that must pass, and histories that must fail.

use std::time::Instant;

use super::{Failure, Operation, check, check_within};

fn passes(history: &[Operation]) {
    if let Err(failure) = check(history) {
        panic!("{failure}");
    }
}

fn fails(history: &[Operation]) {
    let verdict = check(history);
    assert!(
        matches!(verdict, Err(Failure::NotLinearizable(_))),
        "{verdict:?}"
    );
}

#[test]
fn one_after_the_other() {
    passes(&[]);
    passes(&[
        Operation::read(0, None).lasted(0, 1),
        Operation::put(0, 1).lasted(2, 3),
        Operation::read(0, Some(1)).lasted(4, 5),
        Operation::swap(0, Some(1), 2).lasted(6, 7),
        Operation::swap(0, Some(1), 3)
            .saw(0, Some(2))
            .refused()
            .lasted(8, 9),
        Operation::delete(0).lasted(10, 11),
        Operation::swap(0, None, 4).lasted(12, 13),
        Operation::read(0, Some(4)).lasted(14, 15),
    ]);
}

#[test]
fn what_overlaps_may_come_in_either_order() {
    let write = Operation::put(0, 1).lasted(0, 10);
    for seen in [None, Some(1)] {
        passes(&[write.clone(), Operation::read(0, seen).lasted(5, 6)]);
    }
    let both = [write, Operation::put(0, 2).lasted(1, 9)];
    for seen in [1, 2] {
        let read = Operation::read(0, Some(seen)).lasted(11, 12);
        passes(&[both.as_slice(), &[read]].concat());
    }
    fails(&[both.as_slice(), &[Operation::read(0, None).lasted(11, 12)]].concat());
}

#[test]
fn a_stale_read() {
    let mut history = vec![
        Operation::put(0, 1).lasted(0, 1),
        Operation::put(0, 2).lasted(2, 3),
        Operation::read(0, Some(1)).lasted(4, 5),
    ];
    fails(&history);
    history[2].start = 3; // at the same instant: it may have been before
    passes(&history);
}

#[test]
fn reads_that_go_back() {
    fails(&[
        Operation::put(0, 1).lasted(0, 1),
        Operation::put(0, 2).lasted(2, 20),
        Operation::read(0, Some(2)).lasted(4, 5),
        Operation::read(0, Some(1)).lasted(6, 7),
    ]);
}

#[test]
fn a_lost_update() {
    // Both swapped from 1.
    fails(&[
        Operation::put(0, 1).lasted(0, 1),
        Operation::swap(0, Some(1), 2).lasted(2, 10),
        Operation::swap(0, Some(1), 3).lasted(3, 9),
    ]);
    // An acknowledged write that is lost.
    fails(&[
        Operation::put(0, 1).lasted(0, 1),
        Operation::read(0, None).lasted(2, 3),
    ]);
}

#[test]
fn a_value_that_nobody_wrote() {
    fails(&[Operation::read(0, Some(9)).lasted(0, 1)]);
    fails(&[
        Operation::read(0, Some(9)).lasted(0, 1), // before it was written
        Operation::put(0, 9).lasted(2, 3),
    ]);
}

#[test]
fn a_swap_that_was_refused_has_done_nothing() {
    let refused = Operation::swap(0, Some(5), 2).refused().lasted(2, 3);
    let put = Operation::put(0, 1).lasted(0, 1);
    passes(&[put.clone(), refused.clone()]);
    fails(&[
        put.clone(),
        refused,
        Operation::read(0, Some(2)).lasted(4, 5),
    ]);
    // Refused although its condition held all the time.
    let wrongly = Operation::swap(0, Some(1), 2).refused().lasted(2, 3);
    fails(&[put.clone(), wrongly.clone()]);
    // Unless an unseen write without an answer came between.
    passes(&[put, wrongly, Operation::put(0, 3).unanswered(1)]);
}

#[test]
fn a_write_without_an_answer_may_appear_late_or_never() {
    let unknown = Operation::put(0, 7).unanswered(0);
    let write = Operation::put(0, 1).lasted(1, 2);
    let read = |seen, at| Operation::read(0, seen).lasted(at, at + 1);
    let (one, seven) = (Some(1), Some(7));
    passes(&[unknown.clone(), write.clone(), read(one, 3), read(one, 5)]);
    passes(&[unknown.clone(), write.clone(), read(one, 3), read(seven, 5)]);
    passes(&[
        unknown.clone(),
        write.clone(),
        read(seven, 3),
        read(seven, 5),
    ]);
    // Not twice, and not before it was sent.
    let twice = [read(seven, 3), read(one, 5)];
    fails(&[[unknown.clone(), write.clone()].as_slice(), &twice].concat());
    let again = [
        read(seven, 3),
        Operation::put(0, 2).lasted(5, 6),
        read(Some(2), 7),
        read(seven, 9),
    ];
    fails(&[[unknown, write].as_slice(), &again].concat());
    fails(&[read(seven, 0), Operation::put(0, 7).unanswered(5)]);
}

/// What such a commit had read was noted as seen, which counts only with an answer. So one of unknown outcome could have
/// happened whatever had become of what it had read.
#[test]
fn an_unanswered_transaction_has_no_effect_where_what_it_read_has_changed() {
    let first = Operation::put(0, 1).lasted(0, 1);
    let second = Operation::put(0, 2).lasted(2, 3);
    let commit = Operation::transaction([(0, Some(1))]).writing(1, Some(9));
    let read = |seen, at| Operation::read(1, seen).lasted(at, at + 1);
    let unknown = commit.clone().unanswered(4);
    passes(&[first.clone(), unknown.clone(), read(Some(9), 5)]);
    passes(&[
        first.clone(),
        second.clone(),
        unknown.clone(),
        read(None, 5),
    ]);
    fails(&[first.clone(), second.clone(), unknown, read(Some(9), 5)]);
    // It may have come before the change.
    let early = commit.clone().unanswered(1);
    passes(&[first.clone(), second.clone(), early, read(Some(9), 5)]);
    // With an answer it is the same.
    passes(&[first.clone(), commit.clone().lasted(4, 5)]);
    fails(&[first, second, commit.lasted(4, 5)]);
}

#[test]
fn a_deletion_without_an_answer_takes_effect_once() {
    let history = [
        Operation::delete(0).unanswered(0),
        Operation::put(0, 1).lasted(1, 2),
        Operation::read(0, None).lasted(3, 4),
    ];
    passes(&history);
    let more = [
        Operation::put(0, 2).lasted(5, 6),
        Operation::read(0, None).lasted(7, 8),
    ];
    fails(&[history.as_slice(), &more].concat());
}

#[test]
fn a_chain_of_swaps_without_answers_is_followed_back() {
    let chain = [
        Operation::put(0, 1).lasted(0, 1),
        Operation::swap(0, Some(1), 2).unanswered(2),
        Operation::swap(0, Some(2), 3).unanswered(4),
    ];
    passes(
        &[
            chain.as_slice(),
            &[Operation::read(0, Some(3)).lasted(6, 7)],
        ]
        .concat(),
    );
    let without = [chain[0].clone(), chain[2].clone()];
    fails(
        &[
            without.as_slice(),
            &[Operation::read(0, Some(3)).lasted(6, 7)],
        ]
        .concat(),
    );
}

#[test]
fn a_deletion_of_what_is_absent_may_come_later() {
    passes(&[
        Operation::delete(0).lasted(0, 10),
        Operation::put(0, 1).lasted(1, 2),
        Operation::read(0, None).lasted(11, 12),
    ]);
}

/// A transfer: expects both, writes both.
fn transfer(from: [u64; 2], to: [u64; 2]) -> Operation {
    let expects = Operation::new()
        .expecting(0, Some(from[0]))
        .expecting(1, Some(from[1]));
    expects.writing(0, Some(to[0])).writing(1, Some(to[1]))
}

fn both(values: [u64; 2]) -> Operation {
    Operation::read(0, Some(values[0])).saw(1, Some(values[1]))
}

#[test]
fn transfers_between_two_keys() {
    let start = Operation::put(0, 10).writing(1, Some(20)).lasted(0, 1);
    let moved = transfer([10, 20], [11, 21]).lasted(2, 10);
    passes(&[start.clone(), moved.clone(), both([10, 20]).lasted(3, 4)]);
    passes(&[start.clone(), moved.clone(), both([11, 21]).lasted(3, 4)]);
    // Half of it.
    fails(&[start.clone(), moved.clone(), both([11, 20]).lasted(3, 4)]);
    fails(&[start.clone(), moved.clone(), both([10, 21]).lasted(3, 4)]);
    // Both transfers from the same state.
    let other = transfer([10, 20], [12, 22]).lasted(2, 10);
    fails(&[start.clone(), moved.clone(), other.clone()]);
    passes(&[
        start.clone(),
        moved,
        other.refused().saw(0, Some(11)).saw(1, Some(21)),
    ]);
    // Contradictory reads of one key each: the two keys are one object.
    let moved = transfer([10, 20], [11, 21]).lasted(2, 20);
    fails(&[
        start,
        moved,
        Operation::read(0, Some(11)).lasted(3, 4),
        Operation::read(1, Some(20)).lasted(5, 6),
    ]);
}

#[test]
fn without_states_nothing_is_judged() {
    let history = [Operation::put(0, 1).lasted(0, 1)];
    let verdict = check_within(&history, 0);
    assert!(
        matches!(verdict, Err(Failure::TooManyStates(_))),
        "{verdict:?}"
    );
}

/// Random operations of eight clients on a register; each takes effect at a moment between its start and its
/// end, and one in ten has no answer.
fn random_history(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut clocks = [0u64; 8];
    let mut calls = Vec::new();
    for value in 1..=count as u64 {
        let client = random.usize(0..clocks.len());
        let start = clocks[client] + random.u64(1..20);
        let effect = start + random.u64(1..30);
        let end = effect + random.u64(1..30);
        clocks[client] = end;
        calls.push((effect, start, end, value, random.u8(0..20)));
    }
    calls.sort_unstable();
    let mut held = None;
    let mut history = Vec::new();
    for (_, start, end, value, kind) in calls {
        let is_lost = random.u8(0..10) == 0;
        let has_effect = !is_lost || random.bool();
        let after = match kind {
            0..10 => held,
            10 => None,
            _ => Some(value),
        };
        let operation = match kind {
            0..10 if is_lost => continue,
            0..10 => Operation::read(0, held),
            10 => Operation::delete(0),
            11..15 => Operation::put(0, value),
            _ => Operation::swap(0, held, value),
        };
        if has_effect {
            held = after;
        }
        history.push(match is_lost {
            true => operation.unanswered(start),
            false => operation.lasted(start, end),
        });
    }
    history
}

#[test]
fn long_random_histories_pass_and_fail_once_they_are_spoiled() {
    let seed = crate::Seed::from_env_or(11);
    let test = "-p bowline-testing long_random_histories";
    let _guard = seed.print_on_failure(test);
    let began = Instant::now();
    let mut spoiled = 0;
    // One more is new in each run.
    let seeds = (0..40)
        .map(|part| seed.part(part))
        .chain(crate::Seed::fresh(test));
    for seed in seeds {
        let mut history = random_history(seed.0, 400);
        passes(&history);
        // A late read returns the first value that was read and then replaced.
        let Some(old) = history.iter().find_map(|one| match one.expects[..] {
            [(0, Some(value))] if one.end.is_some() => Some(value),
            _ => None,
        }) else {
            continue;
        };
        let is_read = |one: &Operation| one.writes.is_empty() && one.seen[0].1 != Some(old);
        let at = history.iter().rposition(is_read).expect("a read");
        history[at].seen[0].1 = Some(old);
        fails(&history);
        spoiled += 1;
    }
    assert!(spoiled > 30, "{spoiled} of 40 were spoiled");
    println!("40 histories, {spoiled} spoiled, in {:?}", began.elapsed());
}

/// Forty writes of unknown outcome, of which each may be anywhere: a search through all of them does not end.
#[test]
fn what_nobody_saw_is_left_out_first() {
    let unknown = (100..140).map(|value| Operation::put(0, value).unanswered(0));
    let mut history: Vec<_> = unknown.collect();
    for at in 0..40 {
        let time = 10 * at + 10;
        history.push(Operation::put(0, at).lasted(time, time + 5));
        history.push(Operation::swap(0, Some(at), 1000 + at).lasted(time + 6, time + 7));
        history.push(Operation::read(0, Some(1000 + at)).lasted(time + 8, time + 9));
    }
    passes(&history);
}

/// Nobody saw the value, but without it the condition would have held.
#[test]
fn what_nobody_saw_may_have_happened() {
    let history = [
        Operation::put(0, 1).lasted(0, 1),
        Operation::put(0, 2).unanswered(2),
        Operation::swap(0, Some(1), 3).refused().lasted(4, 5),
    ];
    passes(&history);
    fails(&[history[0].clone(), history[2].clone()]);
}

/// The search does not overwrite a value that somebody has yet to find, as it does not come back. One that is
/// written twice does.
#[test]
fn a_value_that_is_written_twice_comes_back() {
    passes(&[
        Operation::put(0, 7).lasted(0, 1),
        Operation::put(0, 8).lasted(2, 3),
        Operation::put(0, 7).lasted(4, 5),
        Operation::read(0, Some(7)).lasted(6, 7),
    ]);
    let once = [
        Operation::put(0, 7).lasted(0, 1),
        Operation::put(0, 8).lasted(2, 9),
        Operation::read(0, Some(7)).lasted(3, 8),
    ];
    passes(&once);
    let gone = Operation::read(0, Some(7)).lasted(10, 11);
    fails(&[&once[..], &[gone]].concat());
}

/// A step of the search once cost as much as the whole history: a seed of the simulation with seven members and some
/// 30,000 operations was not judged within a minute.
#[test]
fn a_long_history_is_judged_in_a_few_steps_for_each_operation() {
    let history = random_history(3, 30_000);
    assert_eq!(check_within(&history, 4 * history.len()), Ok(()));
}

/// Deletions of a key whose outcome is unknown can change places. The search tried every choice of them, and gave up.
#[test]
fn unanswered_deletions_are_tried_in_one_order() {
    let mut history: Vec<Operation> = (0..24)
        .map(|start| Operation {
            start,
            ..Operation::delete(0)
        })
        .collect();
    for value in 1..=12 {
        let at = 100 * value;
        history.push(Operation::put(0, value).lasted(at, at + 1));
        history.push(Operation::read(0, None).lasted(at + 2, at + 3));
    }
    assert!(check_within(&history, 5_000).is_ok());
    history.push(Operation::read(0, Some(99)).lasted(5_000, 5_001));
    let verdict = check_within(&history, 5_000);
    assert!(
        matches!(verdict, Err(Failure::NotLinearizable(_))),
        "{verdict:?}"
    );
}
