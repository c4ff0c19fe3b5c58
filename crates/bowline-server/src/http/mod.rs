//! What is served to HTTP besides gRPC, on the same port: `/health`, `/livez`, `/readyz`,
//! `/version` and `/metrics`.

use std::time::Duration;

use bowline::replica::AlarmKind;
use bowline_cluster::ReadLevel;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;
use tonic::body::Body;

use crate::context::Context;
use crate::metrics;
use crate::service::VERSION;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// What Prometheus asks for.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a check of health waits for the cluster.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a path is served here.
pub(crate) fn is_known(path: &str) -> bool {
    matches!(
        path,
        "/health" | "/livez" | "/readyz" | "/version" | "/metrics"
    )
}

/// Answers a request.
pub(crate) async fn answer(
    context: &Context,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is served\n");
    }
    match path {
        "/health" => health(context, query).await,
        "/livez" => probe(context, ReadLevel::Eventual).await,
        "/readyz" => probe(context, ReadLevel::Linearizable).await,
        "/version" => {
            let versions = json!({
                "etcdserver": VERSION,
                "etcdcluster": VERSION,
                "bowline": env!("CARGO_PKG_VERSION"),
            });
            reply(StatusCode::OK, JSON, versions.to_string())
        }
        "/metrics" => reply(StatusCode::OK, METRICS, metrics::render(context)),
        _ => reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"),
    }
}

/// etcd's: whether requests are served, and why not.
async fn health(context: &Context, query: &str) -> Response<Body> {
    let asks = |wanted: &str| query.split('&').any(|part| part == wanted);
    let level = if asks("serializable=true") {
        ReadLevel::Eventual
    } else {
        ReadLevel::Linearizable
    };
    let (no_space, corrupt) = (asks("exclude=NOSPACE"), asks("exclude=CORRUPT"));
    let alarm = context
        .client
        .alarms()
        .into_iter()
        .find(|(_, kind)| match kind {
            AlarmKind::NoSpace => !no_space,
            AlarmKind::Corrupt => !corrupt,
        });
    let problem = match alarm {
        Some((_, AlarmKind::NoSpace)) => Some("ALARM NOSPACE".to_owned()),
        Some((_, AlarmKind::Corrupt)) => Some("ALARM CORRUPT".to_owned()),
        None if level == ReadLevel::Linearizable && !context.has_leader() => {
            Some("RAFT NO LEADER".to_owned())
        }
        None => problem(context, level).await,
    };
    let status = if problem.is_none() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let health = json!({
        "health": problem.is_none().to_string(),
        "reason": problem.unwrap_or_default(),
    });
    reply(status, JSON, health.to_string())
}

/// Kubernetes': `ok`, or what is wrong.
async fn probe(context: &Context, level: ReadLevel) -> Response<Body> {
    match problem(context, level).await {
        None => reply(StatusCode::OK, TEXT, "ok\n"),
        Some(problem) => reply(
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            format!("{problem}\n"),
        ),
    }
}

/// What keeps a read from being served.
async fn problem(context: &Context, level: ReadLevel) -> Option<String> {
    match tokio::time::timeout(PATIENCE, context.client.read_barrier(level)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("a read took too long".to_owned()),
    }
}

/// A reply with a text.
pub(crate) fn reply(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(text.into())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
