//! The last judge: with one member hurt, the others answer.
//!
//! The random faults come and go within seconds, and clients write all the time, which hides what an idle cluster lacks. So
//! in the end, when all is well and nobody asks anything, the leader is hurt, and stays hurt. After a while in which the
//! cluster may elect another leader, every other member must answer a linearizable read, and then take a put, and a learner an
//! eventual read. And users over the network must find a member that does so, whichever they have talked to before.

use std::fmt;
use std::time::Duration;

use bowline_cluster::{LocalClient, ReadLevel};
use bowline_replica::{Command, Op, PutOp, RangeOp, Txn};

use crate::cluster::Cluster;
use crate::member::{Member, Role};
use crate::remote::program::{Answer, KEY};
use crate::trace::name;

/// Nobody asks anything for so long.
const IDLE: Duration = Duration::from_secs(3);
/// Then everything is answered within this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
/// Users over the network have found a member that answers within this time: the longest of a request that is not answered,
/// and some.
const FOUND_WITHIN: Duration = Duration::from_secs(8);
/// Before the leader is hurt in the next way, all is well for so long.
const REST: Duration = Duration::from_secs(1);
/// The most a message takes on a slow path: the round trip is longer than the interval of heartbeats.
const SLOW: Duration = Duration::from_millis(90);

/// How a member is hurt.
#[derive(Clone, Copy, Debug)]
enum Hurt {
    /// Messages to and from it take long.
    Slow,
    /// Nothing reaches it.
    Deaf,
    /// Nothing comes from it.
    Mute,
    /// Its process is stopped.
    Paused,
}

/// Judges, in every way to be hurt.
pub(crate) fn judge(cluster: &mut Cluster) {
    for hurt in [Hurt::Slow, Hurt::Deaf, Hurt::Mute, Hurt::Paused] {
        let leader = cluster.leader();
        let note = format_args!("hurt for long: {hurt:?}, the leader");
        cluster.trace.note(name(leader), note);
        begin(cluster, hurt, leader);
        wait(cluster, IDLE);
        let asked = ask_all(cluster, leader).and_then(|()| ask_users(cluster));
        if let Err(reason) = asked {
            cluster.fail(format!("{hurt:?}, the leader {}: {reason}", name(leader)));
        }
        cluster.wire.mend();
        cluster.members[leader].is_paused = false;
        wait(cluster, REST);
        if cluster.failure.is_some() {
            return;
        }
    }
}

fn begin(cluster: &mut Cluster, hurt: Hurt, member: usize) {
    for other in (0..cluster.members.len()).filter(|&other| other != member) {
        let (to, from) = ((other, member), (member, other));
        let cut = |(from, to)| cluster.wire.set_path(from, to, |path| path.is_cut = true);
        let slow = |(from, to)| {
            let delay = (SLOW * 3 / 4, SLOW);
            cluster.wire.set_path(from, to, |path| path.delay = delay);
        };
        match hurt {
            Hurt::Slow => [to, from].into_iter().for_each(slow),
            Hurt::Deaf => cut(to),
            Hurt::Mute => cut(from),
            Hurt::Paused => {}
        }
    }
    cluster.members[member].is_paused = matches!(hurt, Hurt::Paused);
}

fn wait(cluster: &mut Cluster, span: Duration) {
    let until = cluster.now + span;
    while cluster.now < until && cluster.failure.is_none() {
        cluster.step();
    }
}

/// Asks every member but one for a read, and then for a put.
fn ask_all(cluster: &mut Cluster, hurt: usize) -> Result<(), String> {
    for what in [What::Read, What::Put, What::Eventual] {
        let members = { cluster.members.iter() }
            .filter(|member| member.number != hurt && what.may_be_asked_of(member));
        let asked: Vec<_> = members
            .map(|member| {
                let client = member.client().ok_or("it has no client")?;
                let answer = Answer::default();
                let written = answer.clone();
                member.spawn(async move {
                    let answered = what.ask(client).await;
                    *written.lock() = Some(answered);
                });
                Ok((member.number, answer))
            })
            .collect::<Result<_, &str>>()?;
        let until = cluster.now + ANSWERED_WITHIN;
        let is_open = |(_, answer): &(usize, Answer)| answer.lock().is_none();
        while cluster.now < until && asked.iter().any(is_open) && cluster.failure.is_none() {
            cluster.step();
        }
        for (member, answer) in asked {
            match answer.lock().take() {
                Some(Ok(())) => {}
                Some(Err(reason)) => return Err(format!("{what} of {}: {reason}", name(member))),
                None => {
                    return Err(format!(
                        "{what} of {}: no answer within {ANSWERED_WITHIN:?}",
                        name(member)
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Has users over the network look for a member that answers.
fn ask_users(cluster: &mut Cluster) -> Result<(), String> {
    let asked = cluster.ask_users();
    let until = cluster.now + FOUND_WITHIN;
    let is_open = |(_, answer): &(String, Answer)| answer.lock().is_none();
    while cluster.now < until && asked.iter().any(is_open) && cluster.failure.is_none() {
        cluster.step();
    }
    match asked.iter().find(|asked| is_open(asked)) {
        None => Ok(()),
        Some((user, _)) => Err(format!(
            "{user} found nobody who answers within {FOUND_WITHIN:?}"
        )),
    }
}

/// What a member is asked.
#[derive(Clone, Copy)]
enum What {
    Read,
    Put,
    /// What a learner is good for.
    Eventual,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Read => "a linearizable read",
            What::Put => "a put",
            What::Eventual => "an eventual read",
        })
    }
}

impl What {
    fn may_be_asked_of(self, member: &Member) -> bool {
        match self {
            What::Eventual => member.role == Role::Learner,
            What::Read | What::Put => member.is_used() && member.role != Role::Learner,
        }
    }

    async fn ask(self, client: LocalClient) -> Result<(), String> {
        match self {
            What::Read => read(&client, ReadLevel::Linearizable).await,
            What::Eventual => {
                read(&client, ReadLevel::Eventual).await?;
                match read(&client, ReadLevel::Linearizable).await {
                    Ok(()) => Err("a learner has answered a linearizable read".to_owned()),
                    Err(_) => Ok(()),
                }
            }
            What::Put => {
                let put = PutOp {
                    key: KEY.to_vec(),
                    ..PutOp::default()
                };
                let applied = client.execute(Command::Txn(Txn::of(Op::Put(put)))).await;
                let applied = applied.map_err(|error| error.to_string())?;
                let result = applied.reply.result;
                result.map(drop).map_err(|refusal| refusal.to_string())
            }
        }
    }
}

async fn read(client: &LocalClient, level: ReadLevel) -> Result<(), String> {
    let range = RangeOp {
        key: KEY.to_vec(),
        ..RangeOp::default()
    };
    let read = client.range(&range, level).await;
    read.map(drop).map_err(|error| error.to_string())
}
