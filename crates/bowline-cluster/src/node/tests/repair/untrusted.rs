//! Members whose data may be wrong: they serve nothing of it.

use super::*;

/// Raises the alarm that the data of a member differs, and waits until that one knows.
async fn accuse(three: &Three, leader: usize, member: usize) {
    let id = three.client(member).status().member_id;
    let alarm = (id, AlarmKind::Corrupt);
    let raise = Command::Alarm {
        member: id,
        kind: AlarmKind::Corrupt,
        is_raised: true,
    };
    surely(&three.client(leader), &raise).await;
    eventually("it knows the alarm", || {
        three.client(member).alarms().contains(&alarm)
    })
    .await;
}

/// A member that the alarm names served reads after each start, until it looked at the alarms for the first time, a quarter
/// of a second later.
#[tokio::test]
async fn a_member_that_differs_refuses_reads_from_its_start_on() {
    let mut three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    accuse(&three, leader, member).await;
    for number in [member, leader] {
        let read = read_at(&three, number, "k50", ReadLevel::Eventual).await;
        assert_eq!(read.is_err(), number == member, "{read:?}");
    }
    // So that the alarm is known at the opening, and does not come with the log.
    three.client(member).db().flush().unwrap();
    three.stop(member).await;
    let config = three.configs[member].clone();
    three.nodes[member] = Some(start(&config).await);
    for level in [ReadLevel::Eventual, ReadLevel::Linearizable] {
        let read = read_at(&three, member, "k50", level).await;
        let is_refused = matches!(read, Err(Error::Refused(Refusal::Corrupt)));
        assert!(is_refused, "{level:?}: {read:?}");
    }
    three.shutdown().await;
}

/// A copy of wrong data was made like any other, and its checksums were right.
#[tokio::test]
async fn no_copy_is_made_of_data_that_differs() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    assert!(three.client(member).freeze().is_ok());
    accuse(&three, leader, member).await;
    let refused = three.client(member).freeze();
    let is_refused = matches!(refused, Err(Error::Refused(Refusal::Corrupt)));
    assert!(is_refused, "{refused:?}");
    assert!(three.client(leader).freeze().is_ok(), "the others do it");
    let id = three.client(member).status().member_id;
    three.client(leader).member_repair(id).await.unwrap();
    eventually("it does it again", || three.client(member).freeze().is_ok()).await;
    is_sound(&three, member).await;
    three.shutdown().await;
}

/// A member waited for sound tables, for damage that it had met itself, and served reads. An administrator who asked for its
/// repair then changed nothing: reads went on, and if the tables proved sound after all, nothing was repaired.
#[tokio::test]
async fn a_repair_that_is_asked_for_while_one_waits_ends_reads() {
    let three = filled(|_| {}).await;
    let leader = three.leader().await;
    let member = (leader + 1) % 3;
    damaged_and_held_back(&three, member, "the test wants it").await;
    let read = read_at(&three, member, "k50", ReadLevel::Eventual).await;
    assert_eq!(read.unwrap().len(), 400);
    let core = three.client(member).core().clone();
    three
        .client(leader)
        .member_repair(core.member_id)
        .await
        .unwrap();
    let refused = read_at(&three, member, "k50", ReadLevel::Eventual).await;
    assert!(matches!(refused, Err(Error::Repairing)), "{refused:?}");
    assert_eq!(
        core.damage.found().as_deref(),
        Some(crate::raft::repairs::ASKED)
    );
    // What was noted before is taken back, and the request stays.
    core.damage.is_none_of("the test wants it");
    assert!(core.damage.found().is_some());
    hold_back(&three, member, false);
    is_sound(&three, member).await;
    eventually("it is done", || core.damage.found().is_none()).await;
    let read = read_at(&three, member, "k50", ReadLevel::Eventual).await;
    assert_eq!(read.unwrap().len(), 400);
    drop(core);
    three.shutdown().await;
}
