//! A cluster: a client of its servers, and the runtime that waits for their replies.

use std::future::IntoFuture;
use std::ops::Bound;
use std::time::Duration;

use bowline::{Entry, Range};
use bowline_client::graph::GraphClient;
use bowline_client::tls::ClientTls;
use bowline_client::{Client, Error, KeyRange, ReadLevel};
use tokio::runtime::{Builder, Runtime};

use crate::args::LoginAs;
use crate::exit::{Exit, Failure};
use crate::interrupt;

/// How long a request about keys or members may take.
pub(crate) const KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request about the graph, or one that compacts the tables, may take: the whole of a large database takes
/// a while.
pub(crate) const GRAPH_TIMEOUT: Duration = Duration::from_secs(300);

/// How the program shows who it is, and knows the servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// The certificates of connections, if the command line names any.
    pub(crate) tls: Option<ClientTls>,
    /// The user to log in as.
    pub(crate) login: Option<LoginAs>,
}

/// A cluster.
pub(crate) struct Remote {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) graph: GraphClient,
    pub(crate) level: ReadLevel,
}

impl Remote {
    /// One member by itself.
    pub(crate) fn member(endpoint: &str, credentials: &Credentials) -> Result<Remote, Failure> {
        let endpoints = vec![endpoint.to_owned()];
        Remote::to(
            endpoints,
            credentials,
            ReadLevel::Linearizable,
            KEYS_TIMEOUT,
        )
    }

    /// The cluster at these endpoints.
    pub(crate) fn to(
        endpoints: Vec<String>,
        credentials: &Credentials,
        level: ReadLevel,
        timeout: Duration,
    ) -> Result<Remote, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Remote::on(runtime, endpoints, credentials, level, timeout)
    }

    /// The cluster at these endpoints, for a session: a thread answers the servers while no command runs.
    pub(crate) fn kept(
        endpoints: Vec<String>,
        credentials: &Credentials,
        level: ReadLevel,
        timeout: Duration,
    ) -> Result<Remote, Failure> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        Remote::on(runtime, endpoints, credentials, level, timeout)
    }

    fn on(
        runtime: Runtime,
        endpoints: Vec<String>,
        credentials: &Credentials,
        level: ReadLevel,
        timeout: Duration,
    ) -> Result<Remote, Failure> {
        let client = {
            let _entered = runtime.enter();
            let mut client = Client::builder()
                .endpoints(endpoints)
                .connect_timeout(Duration::from_secs(2))
                .request_timeout(timeout);
            if let Some(tls) = &credentials.tls {
                client = client.tls(tls.clone());
            }
            if let Some(LoginAs { name, password }) = &credentials.login {
                client = client.user(name, password.reveal());
            }
            client.connect_lazy()?
        };
        Ok(Remote {
            runtime,
            graph: client.graph(),
            client,
            level,
        })
    }

    /// Waits for a reply.
    pub(crate) fn wait<T>(
        &self,
        request: impl IntoFuture<Output = bowline_client::Result<T>>,
    ) -> Result<T, Failure> {
        Ok(self.outcome(request.into_future())??)
    }

    /// Waits for what comes of a request.
    ///
    /// # Errors
    /// The user interrupts a session.
    pub(crate) fn outcome<T>(&self, request: impl Future<Output = T>) -> Result<T, Failure> {
        let outcome = self.runtime.block_on(interrupt::or_interrupt(request));
        outcome.ok_or_else(|| {
            let text = "interrupted; a change that was under way may have been made";
            Failure::new(Exit::Unknown, text)
        })
    }
}

/// The reply to a request of `bowline.v1`, or to etcd's own where a server knows no other.
pub(crate) async fn or_of_etcd<T>(
    request: impl Future<Output = bowline_client::Result<T>>,
    of_etcd: impl Future<Output = bowline_client::Result<T>>,
) -> bowline_client::Result<T> {
    match request.await {
        Err(Error::Unimplemented { .. }) => of_etcd.await,
        reply => reply,
    }
}

/// The key of a range of one key.
pub(crate) fn single_key(range: &Range) -> Option<&[u8]> {
    match (&range.lower, &range.upper) {
        (Bound::Included(first), Bound::Included(last)) if first == last => Some(first),
        _ => None,
    }
}

/// A range as requests have it.
pub(crate) fn wire_range(range: &Range) -> KeyRange {
    match (&range.lower, &range.upper) {
        (Bound::Included(first), Bound::Included(_)) => KeyRange::key(first.clone()),
        (Bound::Included(first), Bound::Excluded(end)) => {
            KeyRange::between(first.clone(), end.clone())
        }
        (Bound::Included(first), Bound::Unbounded) => KeyRange::starting_at(first.clone()),
        _ => KeyRange::all(),
    }
}

/// An entry as the library has it.
pub(crate) fn entry(entry: bowline_client::Entry) -> Entry {
    Entry {
        key: entry.key.into(),
        value: entry.value.into(),
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        version: entry.version,
        lease: entry.lease,
    }
}
