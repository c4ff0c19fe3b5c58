//! The connections to one peer.

use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::peers::PeerOptions;
use crate::types::NodeId;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    Log,
    Heartbeat,
    Snapshot,
    Other,
}

pub(super) struct Link {
    target: NodeId,
    options: PeerOptions,
    state: Mutex<State>,
}

struct State {
    urls: Vec<String>,
    /// The URL that is tried next.
    next: usize,
    channels: [Option<Channel>; 4],
}

impl Link {
    pub(super) fn new(target: NodeId, urls: Vec<String>, options: PeerOptions) -> Link {
        Link {
            target,
            options,
            state: Mutex::new(State {
                urls,
                next: 0,
                channels: [const { None }; 4],
            }),
        }
    }

    pub(super) fn target(&self) -> NodeId {
        self.target
    }

    pub(super) fn set_urls(&self, urls: &[String]) {
        let mut state = self.state.lock();
        if state.urls != urls {
            tracing::info!(
                target_id = self.target,
                ?urls,
                "a peer is reached elsewhere"
            );
            state.urls = urls.to_vec();
            state.next = 0;
            state.channels = [const { None }; 4];
        }
    }

    /// A client on the connection of `lane`, which is made by its first request.
    pub(super) fn client(&self, lane: Lane) -> Result<GrpcClient<Channel>, Status> {
        let mut state = self.state.lock();
        if let Some(channel) = &state.channels[lane as usize] {
            return Ok(self.over(channel.clone()));
        }
        let Some(url) = state.urls.get(state.next).or(state.urls.first()) else {
            return Err(Status::unavailable("the peer has no peer URL"));
        };
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| Status::unavailable(format!("peer URL {url:?}: {error}")))?;
        let channel = endpoint
            .connect_timeout(self.options.connect_timeout)
            .http2_keep_alive_interval(self.options.keep_alive_interval)
            .keep_alive_timeout(self.options.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .connect_lazy();
        state.channels[lane as usize] = Some(channel.clone());
        Ok(self.over(channel))
    }

    fn over(&self, channel: Channel) -> GrpcClient<Channel> {
        GrpcClient::new(channel)
            .max_decoding_message_size(self.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX)
    }

    /// Tells of a failure. After one of the connection the next URL is tried.
    pub(super) fn failed(&self, lane: Lane, status: &Status) {
        if is_unreachable(status) {
            let mut state = self.state.lock();
            state.channels[lane as usize] = None;
            state.next = (state.next + 1) % state.urls.len().max(1);
        }
    }
}

/// Whether a status says that the peer was not reached, or is not one to talk to: trying again at
/// once is no use.
pub(super) fn is_unreachable(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::Unauthenticated
            | Code::PermissionDenied
    )
}
