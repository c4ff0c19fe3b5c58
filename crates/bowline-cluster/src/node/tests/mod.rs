//! Nodes in one process that communicate over loopback, each on a disk in memory.
//!
//! | file | what it tests |
//! |---|---|
//! | [`answers`] | what a member answers while it executes commands |
//! | [`cost`] | what requests cost: entries, waiting, wake-ups |
//! | [`disk`] | members with full or failing disks |
//! | [`failover`] | a leader that is silent, with open connections |
//! | [`forged`] | appends in the name of the leader |
//! | [`founding`] | the identity of a directory, from its first start on |
//! | [`hostile`] | messages that no honest member sends |
//! | [`identity`] | the identity of a member: a foreign directory neither votes nor acknowledges |
//! | [`indexes`] | indexes of blocks over members |
//! | [`leases`] | leases over changes of leader |
//! | [`membership`] | changes of the membership |
//! | [`replication`] | what one member acknowledges is read on all members |
//! | [`restored`] | the first votes of a restored cluster |
//! | [`rights`] | rights of calls that are no commands, at a member that lags |
//! | [`rot`] | damage does not spread with a snapshot |
//! | [`settings`] | settings with which a node does not start |
//! | [`unread`] | peers that do not read the replies |
//! | [`unreachable`] | the cost of a peer that is down |
//! | [`users`] | rights that a member has not applied yet |
//!
//! Here is what they share: one node or three of them, and requests that are repeated until they succeed.

mod answers;
mod cost;
mod disk;
mod failover;
mod forged;
mod founding;
mod hostile;
mod identity;
mod indexes;
mod leases;
mod membership;
mod repair;
mod replication;
mod restored;
mod rights;
mod rot;
mod settings;
pub(crate) mod unreachable;
mod unread;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::{Db, Value};
use bowline_replica::{Command, Op, Outcome, PutOp, RangeOp, RangeReply, Refusal, Txn};
use bowline_storage::vfs::Vfs;
use bowline_testing::SimDisk;

use super::*;
use crate::error::Error;

const PATIENCE: Duration = Duration::from_secs(20);

fn config(name: &str, disk: &SimDisk) -> NodeConfig {
    NodeConfig {
        vfs: Arc::new(disk.clone()) as Arc<dyn Vfs>,
        // Nobody listens there; the URL shows that the member was started.
        advertise_client_urls: vec!["http://127.0.0.1:1".to_owned()],
        heartbeat_interval: Duration::from_millis(30),
        // A machine busy with other tests may delay a member.
        election_timeout: Duration::from_millis(600),
        ..NodeConfig::new(name, "db")
    }
}

fn put(key: &str, value: &str) -> Command {
    Command::Txn(Txn::of(Op::Put(PutOp {
        key: key.into(),
        value: Value::from(value),
        ..PutOp::default()
    })))
}

fn key(key: &str) -> RangeOp {
    RangeOp {
        key: key.into(),
        ..RangeOp::default()
    }
}

fn value_of(read: &Read<RangeReply>) -> Option<Vec<u8>> {
    let first = read.value.entries.first();
    first.map(|entry| entry.value.to_vec())
}

/// Free loopback ports, for URLs that must be known before anybody listens.
fn free_urls(count: usize) -> Vec<String> {
    let url = |_| format!("http://127.0.0.1:{}", bowline_testing::ports::free_port());
    (0..count).map(url).collect()
}

/// Retries the start: a port that was free may be taken for a moment.
async fn start(config: &NodeConfig) -> Node {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match Node::start(config.clone()).await {
            Ok(node) => return node,
            Err(Error::Bind { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Three founders of one cluster.
struct Three {
    configs: Vec<NodeConfig>,
    disks: Vec<SimDisk>,
    nodes: Vec<Option<Node>>,
}

impl Three {
    async fn start(change: impl Fn(&mut NodeConfig)) -> Three {
        let urls = free_urls(3);
        let names = ["a", "b", "c"];
        let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new()).collect();
        let cluster = names.iter().zip(&urls);
        let cluster: Vec<_> = cluster.map(|(n, u)| ((*n).to_owned(), u.clone())).collect();
        let mut configs = Vec::new();
        let mut nodes = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let mut config = NodeConfig {
                listen_peer_urls: vec![urls[number].clone()],
                initial_cluster: cluster.clone(),
                ..config(name, &disks[number])
            };
            change(&mut config);
            nodes.push(Some(start(&config).await));
            configs.push(config);
        }
        Three {
            configs,
            disks,
            nodes,
        }
    }

    fn client(&self, number: usize) -> LocalClient {
        self.nodes[number].as_ref().unwrap().client()
    }

    fn number_of(&self, id: u64) -> usize {
        let mut numbers = 0..self.nodes.len();
        let is_it = |number: &usize| {
            let node = self.nodes[*number].as_ref();
            node.is_some_and(|node| node.client().status().member_id == id)
        };
        numbers.find(is_it).unwrap()
    }

    async fn leader(&self) -> usize {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            for node in self.nodes.iter().flatten() {
                let status = node.client().status();
                if status.leader == Some(status.member_id) {
                    return self.number_of(status.member_id);
                }
            }
            assert!(tokio::time::Instant::now() < deadline, "nobody leads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes `target` the leader. On a busy machine the leader may not have heard from it for a moment, or
    /// may have changed; a client would retry, and so does this.
    async fn move_leader(&self, target: u64) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.client(self.leader().await).move_leader(target).await {
                Ok(()) => return,
                Err(Error::NotLeader | Error::BadTransferee { .. })
                    if tokio::time::Instant::now() < deadline => {}
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop(&mut self, number: usize) {
        self.nodes[number].take().unwrap().shutdown().await.unwrap();
    }

    /// Waits until all running members have applied the same, and checks that they hold the same.
    async fn assert_equal(&self) {
        let running: Vec<LocalClient> = self.nodes.iter().flatten().map(Node::client).collect();
        eventually("all have applied the same", || {
            let mut at = running.iter().map(|client| client.status().applied_index);
            let first = at.next();
            at.all(|index| Some(index) == first)
        })
        .await;
        let dump = |client: &LocalClient| {
            let entries = client.db().range(..).unwrap();
            entries.map(Result::unwrap).collect::<Vec<_>>()
        };
        let first = dump(&running[0]);
        for client in &running[1..] {
            assert_eq!(dump(client), first);
        }
        // Entries that are proposed meanwhile (the leader records leases) reach the members at different
        // times.
        eventually("all have the same in every tree", || {
            let mut hashes = running.iter().map(|client| client.tree_hashes().unwrap());
            let first = hashes.next();
            let mut same_index = hashes.filter(|(index, _)| Some(*index) == first.map(|it| it.0));
            let count = same_index.clone().count() + 1;
            assert!(same_index.all(|it| Some(it) == first), "members differ");
            count == running.len()
        })
        .await;
    }

    async fn shutdown(mut self) {
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_some() {
                self.stop(number).await;
            }
        }
    }
}

/// Repeats a command whose outcome is unknown: for commands that may be executed twice.
async fn surely(client: &LocalClient, command: &Command) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let is_late = tokio::time::Instant::now() >= deadline;
        match client.execute(command.clone()).await {
            Ok(applied) if applied.reply.result.is_ok() => return,
            // An alarm may be raised late, after its cause has passed, and is then cleared.
            Ok(applied) if applied.reply.result == Err(Refusal::NoSpace) && !is_late => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Error::Refused(Refusal::NoSpace)) if !is_late => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Error::LeaderChanged | Error::Timeout | Error::NoLeader) if !is_late => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
