//! [`Record`]: a line.
//!
//! ```text
//! {"time":"2026-11-30T06:53:11.123Z","event":"call","user":"ann","address":"10.0.0.7:51324",
//!  "method":"etcdserverpb.KV/Put","class":"write","on":[{"op":"put","key":"jobs/7"}],
//!  "code":"OK","revision":42,"took_us":180}
//! ```

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use tonic::Code;

use super::details::{Details, FIELDS_BYTES_MAX, ON_BYTES_MAX, TEXT_BYTES_MAX, write_text};
use super::options::Class;
use super::what::class_of;
use crate::metrics::Method;

/// The most bytes of a line: a character of a name takes up to twelve.
pub(super) const LINE_BYTES_MAX: usize =
    ON_BYTES_MAX + FIELDS_BYTES_MAX + 3 * 12 * TEXT_BYTES_MAX + (1 << 10);

/// What a line tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call with one reply, at its end.
    Call,
    /// The reply of a stream begins, or the stream is refused.
    Begin,
    /// The end of a stream.
    End,
    /// A watch is created, or refused.
    Watch,
    /// The end of a watch.
    Unwatch,
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Call => "call",
            Event::Begin => "begin",
            Event::End => "end",
            Event::Watch => "watch",
            Event::Unwatch => "unwatch",
        }
    }
}

/// Who makes a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// The user, while authentication is enabled.
    pub(crate) user: Option<String>,
    /// Whether a token was shown that stands for nobody.
    pub(crate) has_unknown_token: bool,
    /// The name in the certificate that the client has shown.
    pub(crate) certificate: Option<String>,
    /// Where the client is.
    pub(crate) address: Option<SocketAddr>,
}

/// A line.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) event: Event,
    /// When it began.
    pub(crate) begun_ms: u64,
    pub(crate) who: &'a Who,
    pub(crate) method: Method,
    pub(crate) details: &'a Details,
    pub(crate) code: Code,
    /// The text of a refusal.
    pub(crate) reason: &'a str,
    /// The revision in the reply.
    pub(crate) revision: Option<u64>,
    pub(crate) took: Option<Duration>,
}

impl Record<'_> {
    /// The class of the call.
    pub(super) fn class(&self) -> Class {
        self.details.class.unwrap_or_else(|| class_of(self.method))
    }

    /// The line, with its end.
    pub(super) fn line(&self) -> String {
        let mut line = String::with_capacity(512);
        // Writing into a string does not fail.
        let _ = self.write(&mut line);
        line.push_str("}\n");
        debug_assert!(line.len() <= LINE_BYTES_MAX, "{line}");
        line
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let ms = i64::try_from(self.begun_ms).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
        let event = self.event.name();
        write!(out, "{{\"time\":\"{time:.3}\",\"event\":\"{event}\"")?;
        let name = |out: &mut String, name: &str, text: &str| {
            let _ = write!(out, ",\"{name}\":");
            let cut = text.char_indices().nth(TEXT_BYTES_MAX);
            write_text(out, cut.map_or(text, |(end, _)| &text[..end]));
        };
        match &self.who.user {
            Some(user) => name(out, "user", user),
            None => out.push_str(",\"user\":null"),
        }
        if self.who.has_unknown_token {
            out.push_str(",\"token\":\"unknown\"");
        }
        if let Some(certificate) = &self.who.certificate {
            name(out, "certificate", certificate);
        }
        if let Some(address) = self.who.address {
            write!(out, ",\"address\":\"{address}\"")?;
        }
        let (service, method) = self.method.names();
        let class = self.class().name();
        write!(
            out,
            ",\"method\":\"{service}/{method}\",\"class\":\"{class}\""
        )?;
        self.details.write(out);
        write!(out, ",\"code\":\"{}\"", name_of(self.code))?;
        // Other texts may quote what the client has sent.
        if self.code != Code::Ok && is_fixed(self.reason) {
            name(out, "reason", self.reason);
        }
        if let Some(revision) = self.revision {
            write!(out, ",\"revision\":{revision}")?;
        }
        if let Some(took) = self.took {
            write!(out, ",\"took_us\":{}", took.as_micros())?;
        }
        Ok(())
    }
}

/// Whether a text is one of the server's table, which quotes nothing.
fn is_fixed(reason: &str) -> bool {
    ["etcdserver: ", "auth: ", "mvcc: "]
        .iter()
        .any(|start| reason.starts_with(start))
}

/// The name of a code, as gRPC writes it.
fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
