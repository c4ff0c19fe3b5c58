//! [`Client`]: the handle of a connection to a server or cluster; its methods build requests.
//!
//! No module below imports it: a request holds its caller.

mod cluster;
mod index;
mod lease;
mod maintenance;
mod quota;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tonic::transport::Channel;

use crate::auth::AuthClient;
use crate::caller::Caller;
use crate::graph::{GraphClient, Query};
use crate::kv::{Delete, Get, Put, Txn};
use crate::settings::Settings;
use crate::watch::{Hubs, Watch};
use crate::{
    History, KeyRange, Result, Transaction, TransactionOptions, Update, Updated, transaction,
    update,
};

/// A client of a server or a cluster. Cloning it is cheap, and clones share connections.
///
/// ```no_run
/// # async fn example() -> bowline_client::Result<()> {
/// use bowline_client::{Client, Compare, Operation, ReadLevel};
///
/// let client = Client::connect(["127.0.0.1:2379", "127.0.0.1:2380"]).await?;
/// let revision = client.put("greeting", "hello").await?.header.revision;
/// let reply = client.get("greeting").level(ReadLevel::Eventual).await?;
/// assert_eq!(reply.value(), Some(&b"hello"[..]));
///
/// let swapped = client
///     .txn()
///     .when([Compare::mod_revision("greeting").equals(revision)])
///     .then([Operation::put("greeting", "goodbye")])
///     .otherwise([Operation::get("greeting")])
///     .await?;
/// assert!(swapped.succeeded);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    caller: Arc<Caller>,
    hubs: Hubs,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = &self.caller.settings().endpoints;
        f.debug_struct("Client")
            .field("endpoints", endpoints)
            .finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(settings: Settings) -> Result<Client> {
        let caller = Arc::new(Caller::new(settings)?);
        Ok(Client {
            hubs: Hubs::new(Arc::clone(&caller)),
            caller,
        })
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Reads a key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let reply = client.get("greeting").await?;
    /// println!("{:?}", reply.value());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: impl Into<Bytes>) -> Get {
        Get::new(Arc::clone(&self.caller), KeyRange::key(key))
    }

    /// Reads keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::KeyRange;
    ///
    /// let reply = client.range(KeyRange::prefix("svc/")).limit(100).keys_only().await?;
    /// println!("{} of {}", reply.entries.len(), reply.count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&self, range: impl Into<KeyRange>) -> Get {
        Get::new(Arc::clone(&self.caller), range.into())
    }

    /// Writes a key.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let put = client.put("greeting", "hello").await?;
    /// println!("revision {}", put.header.revision);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Put {
        Put::new(Arc::clone(&self.caller), key.into(), value.into())
    }

    /// Deletes a key or a range of keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::KeyRange;
    ///
    /// client.delete("greeting").await?;
    /// let gone = client.delete(KeyRange::prefix("tmp/")).await?;
    /// println!("{} keys", gone.deleted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&self, range: impl Into<KeyRange>) -> Delete {
        Delete::new(Arc::clone(&self.caller), range.into())
    }

    /// Begins a transaction.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::{Compare, Operation};
    ///
    /// // Takes the lock if nobody has it.
    /// let taken = client
    ///     .txn()
    ///     .when([Compare::version("lock").equals(0)])
    ///     .then([Operation::put("lock", "me")])
    ///     .await?;
    /// println!("{}", taken.succeeded);
    /// # Ok(())
    /// # }
    /// ```
    pub fn txn(&self) -> Txn {
        Txn::new(Arc::clone(&self.caller))
    }

    /// Reads the history of a key: its readable changes, newest first.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for version in client.history("greeting").limit(10).await?.versions {
    ///     match version.entry {
    ///         Some(entry) => println!("{} {:?}", version.revision, entry.value),
    ///         None => println!("{} deleted", version.revision),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn history(&self, key: impl Into<Bytes>) -> History {
        History::new(Arc::clone(&self.caller), key.into())
    }

    /// Begins an interactive transaction. Nothing is sent before its first read. Servers of Bowline have it,
    /// etcd has not.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut tx = client.begin();
    /// let greeting = tx.get("greeting").await?.unwrap_or_default();
    /// tx.put("copy", greeting)?;
    /// let committed = tx.commit().await?;
    /// println!("revision {:?}", committed.revision);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "nothing is written until it is committed"]
    pub fn begin(&self) -> Transaction {
        self.begin_with(TransactionOptions::default())
    }

    /// [`Client::begin`] with another isolation or level.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::{ReadLevel, TransactionOptions};
    ///
    /// let options = TransactionOptions::default().level(ReadLevel::Lease);
    /// let mut tx = client.begin_with(options);
    /// tx.put("k", "v")?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "nothing is written until it is committed"]
    pub fn begin_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::new(Arc::clone(&self.caller), options)
    }

    /// Runs a transaction and commits it; runs it again when it conflicts, for some 10 s at most. An error of
    /// `body` rolls it back.
    ///
    /// A commit whose outcome is unknown is not repeated: that is [`Error::UnknownOutcome`](crate::Error).
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{Block, BlockId, Edge};
    ///
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// // A key, a block and an edge at one revision, and no count is lost, whoever else counts.
    /// client
    ///     .transact(async |tx| {
    ///         let count = tx.get("count").await?.map_or(0, |count| count.len());
    ///         tx.put("count", "i".repeat(count + 1))?;
    ///         tx.put_block(Block::new(lib, "package"));
    ///         tx.put_edge(Edge::new(app, "depends_on", lib));
    ///         Ok(())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A task that may move to another thread needs a body of which the compiler knows that its future may, too. So far it
    /// does where the future is boxed:
    ///
    /// ```no_run
    /// # fn example(client: bowline_client::Client) {
    /// use std::pin::Pin;
    ///
    /// use bowline_client::{Result, Transaction};
    ///
    /// fn count(tx: &mut Transaction) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
    ///     Box::pin(async move {
    ///         let count = tx.get("count").await?.map_or(0, |count| count.len());
    ///         tx.put("count", "i".repeat(count + 1))
    ///     })
    /// }
    ///
    /// tokio::spawn(async move { client.transact(count).await });
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` gives; `TooManyConflicts`; the errors of [`Transaction::commit`].
    pub async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let options = TransactionOptions::default();
        self.transact_with(options, body).await
    }

    /// Changes a key by a rule, on the value that it has when its turn in the order of all changes comes: a counter, a bounded
    /// one, the largest or smallest number, an append, a value if there is none, or one value for another. It never conflicts,
    /// and callers of one key do not wait for one another. The key stays attached to its lease.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::Update;
    ///
    /// let job = client.update("jobs/next", Update::Add(1)).await?;
    /// println!("job {:?} is ours alone", job.value);
    /// let seat = client.update("seats", Update::AddWithin { amount: -1, min: 0, max: 100 }).await?;
    /// println!("{}", if seat.changed { "a seat" } else { "none left" });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`; `Refused` when the value is not a number, or the sum does not fit into 64 bits; `UnknownOutcome` when no
    /// answer came: it may have been done; those of [any change](crate::Error#errors-of-any-change).
    pub async fn update(&self, key: impl Into<Bytes>, change: Update) -> Result<Updated> {
        update::update(&self.caller, key.into(), change).await
    }

    /// [`Client::transact`] with another isolation or level.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::{Isolation, TransactionOptions};
    ///
    /// let options = TransactionOptions::default().isolation(Isolation::Snapshot);
    /// client.transact_with(options, async |tx| tx.put("k", "v")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Client::transact`].
    pub async fn transact_with<T>(
        &self,
        options: TransactionOptions,
        body: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        transaction::until_committed(|| self.begin_with(options), body).await
    }

    /// Begins a watch of a key or a range of keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::KeyRange;
    ///
    /// let get = client.get("svc/api").await?;
    /// let next = get.header.revision + 1;
    /// let mut watcher = client.watch(KeyRange::prefix("svc/")).from(next).await?;
    /// while let Some(batch) = watcher.next().await? {
    ///     for event in batch.events {
    ///         println!("{} {:?}", event.revision(), event.kind);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self, range: impl Into<KeyRange>) -> Watch {
        Watch::new(self.hubs.clone(), range.into())
    }

    /// The verbs of the graph. Servers of Bowline have it, etcd has not.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::{Block, BlockId};
    ///
    /// let block = Block::new(BlockId::from_name("app"), "package");
    /// client.graph().put_block(block).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn graph(&self) -> GraphClient {
        GraphClient::new(Arc::clone(&self.caller))
    }

    /// A query in Cypher over the graph, with values for its parameters, by name without `$`. Servers of Bowline have it,
    /// etcd has not.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::graph::Attributes;
    ///
    /// let parameters = Attributes::from([("age".to_owned(), 40.into())]);
    /// let answer = client.query("MATCH (p:person) WHERE p.age > $age RETURN p.name", &parameters).await?;
    /// for row in &answer.rows {
    ///     println!("{:?}", row[0].as_text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&self, text: impl Into<String>, parameters: &crate::graph::Attributes) -> Query {
        self.graph().query(text, parameters)
    }

    /// Users, roles and what they may do.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for user in client.auth().user_list().await? {
    ///     println!("{user}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn auth(&self) -> AuthClient {
        AuthClient::new(Arc::clone(&self.caller))
    }

    /// The address of the endpoint in use.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// println!("talks to {}", client.endpoint());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.caller.endpoints().current().1.address().to_owned()
    }

    /// A connection to the endpoint in use, for requests that this client has no verb for: the services
    /// are in `bowline-proto`. It does not fail over, and does not log in: what is sent on it shows no token.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_proto::etcdserverpb::StatusRequest;
    /// use bowline_proto::etcdserverpb::maintenance_client::MaintenanceClient;
    ///
    /// let mut maintenance = MaintenanceClient::new(client.channel());
    /// let status = maintenance.status(StatusRequest {}).await;
    /// println!("{status:?}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.caller.endpoints().current().1.channel()
    }
}
