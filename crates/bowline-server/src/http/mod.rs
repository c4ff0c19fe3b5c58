//! The HTTP endpoints beside gRPC on the same port: `/health`, `/livez`, `/readyz` and single [checks],
//! `/version` and `/metrics`. The [`Guard`] refuses requests of web pages.

mod checks;
mod exposition;
mod guard;
mod reply;

use bowline_cluster::ReadLevel;
use bowline_replica::AlarmKind;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;
use tonic::body::Body;

use crate::context::Context;
use crate::version::{CLUSTER_VERSION, VERSION};
use reply::TEXT;

pub(crate) use guard::{Body as JsonBody, Guard};
pub(crate) use reply::reply;

const JSON: &str = "application/json";
/// The content type of Prometheus's text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a path is served here.
pub(crate) fn is_known(path: &str) -> bool {
    matches!(path, "/health" | "/version" | "/metrics") || !checks::of_path(path).is_empty()
}

/// Whether a path is served on a port for metrics and health only.
pub(crate) fn is_of_metrics(path: &str) -> bool {
    matches!(path, "/health" | "/metrics") || !checks::of_path(path).is_empty()
}

/// Answers a request.
pub(crate) async fn answer(
    context: &Context,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let mut response = reply(status, TEXT, "Method Not Allowed\n");
        let allowed = HeaderValue::from_static("GET");
        response.headers_mut().insert(header::ALLOW, allowed);
        return response;
    }
    match path {
        "/health" => health(context, query).await,
        "/version" => {
            let versions = json!({
                "etcdserver": VERSION,
                "etcdcluster": CLUSTER_VERSION,
                "storage": CLUSTER_VERSION,
                "bowline": env!("CARGO_PKG_VERSION"),
            });
            reply(StatusCode::OK, JSON, versions.to_string())
        }
        "/metrics" => reply(StatusCode::OK, METRICS, exposition::render(context)),
        path => checks::answer(context, path, query).await,
    }
}

/// etcd's health check: whether requests are served, and why not.
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
        None => {
            let problem = checks::read_problem(context, level).await;
            problem.map(|problem| format!("RANGE ERROR:{problem}"))
        }
    };
    let (status, count) = match problem {
        None => (StatusCode::OK, &context.metrics.health.passed),
        Some(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            &context.metrics.health.failed,
        ),
    };
    count.add(1);
    let health = json!({
        "health": problem.is_none().to_string(),
        "reason": problem.unwrap_or_default(),
    });
    reply(status, JSON, health.to_string())
}
