//! What the members say of themselves: their log lines, as a part of the trace.
//!
//! They may name times of the machine, so the comparison of two runs leaves them out.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::history::History;
use crate::trace::{Trace, name};

thread_local! {
    /// The member that runs.
    static SPEAKER: Cell<usize> = const { Cell::new(0) };
}

/// From now on a member runs.
pub(crate) fn set_speaker(member: usize) {
    SPEAKER.set(member);
}

/// What a member says when its log lacks entries that its leader knows it to have acknowledged.
const LOST: &str = "has lost entries that it had acknowledged";

/// What it says when its tables were replaced by another member's.
const SOUND: &str = "has sound tables again";

/// The target of the events that tell what members send each other.
const MESSAGES: &str = "bowline_cluster::messages";

/// Writes log lines into a trace.
pub(crate) struct Story {
    /// Whether it tells what members send each other.
    pub(crate) tells_messages: bool,
    pub(crate) trace: Trace,
    pub(crate) history: History,
}

impl Subscriber for Story {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        match metadata.target() {
            MESSAGES => self.tells_messages,
            target => *metadata.level() <= Level::INFO && target.starts_with("bowline"),
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = event.metadata().level();
        let Line { message, fields } = line;
        if message.contains(LOST) {
            self.history
                .has_lost(SPEAKER.get(), format!("{message}{fields}"));
        }
        if message.contains(SOUND) {
            self.history.is_repaired(SPEAKER.get());
        }
        let said = format_args!("{level} {message}{fields}");
        self.trace.say(name(SPEAKER.get()), said);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
