//! A client of the cluster, and the runtime that waits for it.

use std::future::Future;
use std::time::Duration;

use bowline_client::{Client, ReadLevel, Status};

use crate::args::{Durability, Write};
use crate::context::{Context, usage};
use crate::exit::Failure;

/// A cluster, and what it takes to wait for it.
pub(crate) struct Remote {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
    pub(crate) level: ReadLevel,
}

impl Remote {
    /// A client of the endpoints that the command line names.
    pub(crate) fn of(context: &Context<'_, '_>) -> Result<Remote, Failure> {
        Remote::to(context.endpoints(), context.read_level())
    }

    pub(crate) fn to(endpoints: Vec<String>, level: ReadLevel) -> Result<Remote, Failure> {
        Remote::with_patience(endpoints, level, Duration::from_secs(10))
    }

    /// A client that waits so long for an answer.
    pub(crate) fn with_patience(
        endpoints: Vec<String>,
        level: ReadLevel,
        patience: Duration,
    ) -> Result<Remote, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = {
            let _entered = runtime.enter();
            let client = Client::builder()
                .endpoints(endpoints)
                .connect_timeout(Duration::from_secs(2))
                .request_timeout(patience);
            client.connect_lazy()?
        };
        Ok(Remote {
            runtime,
            client,
            level,
        })
    }

    /// Waits for a request.
    pub(crate) fn wait<T>(
        &self,
        request: impl Future<Output = bowline_client::Result<T>>,
    ) -> Result<T, Failure> {
        Ok(self.runtime.block_on(request)?)
    }
}

/// The state of the member at an endpoint.
pub(crate) fn status_of(endpoint: &str) -> Result<Status, Failure> {
    let remote = Remote::to(vec![endpoint.to_owned()], ReadLevel::Eventual)?;
    remote.wait(async { remote.client.status().await })
}

/// A member's number as it is written: in hexadecimal, as etcd's tools do.
pub(crate) fn member_id(id: u64) -> String {
    format!("{id:x}")
}

/// A cluster answers once a majority has flushed; nothing less can be asked for.
pub(crate) fn check_durability(write: &Write) -> Result<(), Failure> {
    match write.durability {
        Durability::Sync => Ok(()),
        Durability::Batched { .. } => Err(usage(
            "a cluster always flushes before it answers: leave --durability out".to_owned(),
        )),
    }
}
