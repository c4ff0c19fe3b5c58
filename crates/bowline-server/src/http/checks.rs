//! Kubernetes' checks: `/livez` and `/readyz` run all checks of their kind, `/readyz/NAME` runs one.
//!
//! A reply is `ok`, with a line per check before it if `verbose` is set; or a 503 with the lines of all
//! checks, of which at least one has an error. `exclude=NAME` skips a check.

use std::time::Duration;

use bowline_cluster::ReadLevel;
use bowline_replica::AlarmKind;
use http::{Response, StatusCode};
use tonic::body::Body;

use super::reply::{TEXT, reply};
use crate::context::Context;
use crate::metrics::{CHECKS, Check, CheckOf};
use crate::status::Fault;

/// The timeout of a check's read.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The checks of a path; none if the path is unknown.
pub(super) fn of_path(path: &str) -> Vec<usize> {
    let path = path.strip_prefix('/').unwrap_or_default();
    let (kind, name) = match path.split_once('/') {
        Some((kind, name)) => (kind, Some(name)),
        None => (path, None),
    };
    let is_meant = |check: &Check| check.kind == kind && name.is_none_or(|name| name == check.name);
    let places = (0..CHECKS.len()).filter(|place| is_meant(&CHECKS[*place]));
    places.collect()
}

/// Runs checks and makes the reply.
pub(super) async fn answer(context: &Context, path: &str, query: &str) -> Response<Body> {
    let mut places = of_path(path);
    if context.audit.is_none() {
        places.retain(|place| CHECKS[*place].of != CheckOf::Audit);
        if places.is_empty() {
            // It named that check alone, which nothing makes here.
            return reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
        }
    }
    let asks = |wanted: &str| query.split('&').any(|part| part == wanted);
    let is_verbose = query
        .split('&')
        .any(|part| part.split('=').next() == Some("verbose"));
    // A path that names one check runs it, whatever the query excludes.
    if places.iter().all(|place| path[1..] == *CHECKS[*place].kind) {
        places.retain(|place| !asks(&format!("exclude={}", CHECKS[*place].name)));
    }
    let (mut lines, mut status) = (String::new(), StatusCode::OK);
    for place in places {
        let name = CHECKS[place].name;
        let outcomes = &context.metrics.checks[place];
        match problem(context, CHECKS[place].of).await {
            None => {
                outcomes.passed.add(1);
                lines += &format!("[+]{name} ok\n");
            }
            Some(problem) => {
                outcomes.failed.add(1);
                lines += &format!("[-]{name} failed: {problem}\n");
                status = StatusCode::SERVICE_UNAVAILABLE;
            }
        }
    }
    let text = match (status, is_verbose) {
        (StatusCode::OK, false) => "ok\n".to_owned(),
        (StatusCode::OK, true) => lines + "ok\n",
        _ => lines + "\n",
    };
    reply(status, TEXT, text)
}

async fn problem(context: &Context, of: CheckOf) -> Option<String> {
    match of {
        CheckOf::Read(level) => read_problem(context, level).await,
        CheckOf::Corruption => {
            let alarms = context.client.alarms();
            let is_raised = alarms.iter().any(|(_, kind)| *kind == AlarmKind::Corrupt);
            is_raised.then(|| "alarm activated: CORRUPT".to_owned())
        }
        CheckOf::Audit => context.audit.as_ref().and_then(|audit| audit.problem()),
        CheckOf::Learner => context
            .is_learner()
            .then(|| "not supported for learner".to_owned()),
    }
}

/// Why a read cannot be served.
pub(super) async fn read_problem(context: &Context, level: ReadLevel) -> Option<String> {
    let fault = match tokio::time::timeout(CHECK_TIMEOUT, context.client.read_barrier(level)).await
    {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => Fault::from(error),
        Err(_) => Fault::Timeout,
    };
    Some(fault.parts().1.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_all_checks_of_a_kind_or_one() {
        assert_eq!(of_path("/livez"), [0]);
        assert_eq!(of_path("/readyz"), [1, 2, 3, 4, 5]);
        assert_eq!(of_path("/readyz/non_learner"), [4]);
        for path in [
            "/livez/non_learner",
            "/readyz/",
            "/health",
            "/",
            "",
            "livez",
        ] {
            assert_eq!(of_path(path), [0; 0], "{path}");
        }
    }
}
