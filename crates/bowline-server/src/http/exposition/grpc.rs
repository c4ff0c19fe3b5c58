//! The calls of each method, under the names of Prometheus's library for gRPC, which etcd uses.
//!
//! A method that was called has a row for each code, also for those that it never had: the rate of a counter is that
//! between two of its values, and a first failure would have none. The others have the rows of their starts and of their
//! good ends, so that a difference of the two is a number.

use std::fmt::{self, Write};

use bowline_cluster::Histogram;
use tonic::Code;

use super::rows::{head, write_times};
use crate::metrics::{CODES, CallKind, Method, Metrics, OfMethod};

/// Writes all rows.
pub(super) fn write(out: &mut String, metrics: &Metrics) -> fmt::Result {
    write_counts(
        out,
        metrics,
        "grpc_server_started_total",
        "Calls that were begun.",
        |_, of| of.started.get(),
    )?;
    write_ended(out, metrics)?;
    write_counts(
        out,
        metrics,
        "grpc_server_msg_received_total",
        "Messages of calls that have arrived.",
        |kind, of| match kind {
            CallKind::Unary | CallKind::ServerStream => of.started.get(),
            CallKind::BidiStream => of.received.get(),
        },
    )?;
    write_counts(
        out,
        metrics,
        "grpc_server_msg_sent_total",
        "Messages of replies.",
        |kind, of| match kind {
            CallKind::Unary => of.ended[Code::Ok as usize].get(),
            CallKind::ServerStream | CallKind::BidiStream => of.sent.get(),
        },
    )?;
    let name = "grpc_server_handling_seconds";
    head(
        out,
        name,
        "histogram",
        "Times of calls from their start to their end.",
    )?;
    for (method, of) in metrics.methods() {
        let times = of.handling.read();
        if times.count > 0 {
            write_times(out, name, &labels(method), &times, Histogram::GRPC_US)?;
        }
    }
    Ok(())
}

/// The labels of a method, in the order of their names.
fn labels(method: Method) -> String {
    let (service, name) = method.names();
    let kind = method.kind().name();
    format!("grpc_method=\"{name}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
}

/// A counter with one row for each method.
fn write_counts(
    out: &mut String,
    metrics: &Metrics,
    name: &str,
    help: &str,
    count: impl Fn(CallKind, &OfMethod) -> u64,
) -> fmt::Result {
    head(out, name, "counter", help)?;
    for (method, of) in metrics.methods() {
        let count = count(method.kind(), of);
        writeln!(out, "{name}{{{}}} {count}", labels(method))?;
    }
    Ok(())
}

fn write_ended(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let name = "grpc_server_handled_total";
    head(out, name, "counter", "Calls that have ended, by code.")?;
    for (method, of) in metrics.methods() {
        let labels = labels(method);
        let codes = match of.started.get() {
            0 => 1,
            _ => CODES,
        };
        for (number, count) in (0..).zip(&of.ended[..codes]) {
            let code = name_of(Code::from_i32(number));
            let count = count.get();
            writeln!(out, "{name}{{grpc_code=\"{code}\",{labels}}} {count}")?;
        }
    }
    Ok(())
}

/// The name of a code in the Go library, which spells one of them with a single `l`.
fn name_of(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}
