//! The windows that the client gives and gets, and its settings.

use std::future::Future;
use std::mem;
use std::time::Duration;

use tonic::Status;

use super::connection::Connection;
use super::frame::{
    FRAME_BYTES_MIN, FrameHead, ID_MAX, Reason, WINDOW_MAX, flag, number, setting, settings,
    write_settings_ack, write_window_update,
};
use super::hot::HotReply;
use super::stream::Stream;

/// The client's window is renewed in such steps.
const RENEW_BYTES: u32 = 256 << 10;
/// The most frames of settings in a period. Clients that adapt their window send about ten in all.
pub(super) const SETTINGS_MAX: u32 = 100;
const SETTINGS_PERIOD: Duration = Duration::from_secs(10);

impl<F: Future<Output = Result<HotReply, Status>>> Connection<F> {
    pub(super) fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        if head.id != 0 {
            return Err(Reason::Protocol);
        }
        if head.has(flag::ACK) {
            return match payload.len() {
                0 => Ok(()),
                _ => Err(Reason::FrameSize),
            };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Reason::FrameSize);
        }
        self.has_settings = true;
        self.count_settings()?;
        // Each one replaces the one before it, so only the last one is applied.
        let mut window = None;
        for (name, value) in settings(payload) {
            match name {
                setting::ENABLE_PUSH if value > 1 => return Err(Reason::Protocol),
                setting::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > WINDOW_MAX {
                        return Err(Reason::FlowControl);
                    }
                    window = Some(value);
                }
                setting::MAX_FRAME_SIZE => {
                    let bytes = value as usize;
                    if !(FRAME_BYTES_MIN..1 << 24).contains(&bytes) {
                        return Err(Reason::Protocol);
                    }
                    self.followed.frame_bytes_max = bytes;
                }
                _ => {}
            }
        }
        if let Some(window) = window.filter(|window| *window != self.followed.window) {
            self.change_windows(window)?;
        }
        match &mut self.relay {
            Some(relay) => relay.follow(self.followed),
            None => write_settings_ack(&mut self.out),
        }
        Ok(())
    }

    /// The window of each stream changes by the difference.
    fn change_windows(&mut self, window: u32) -> Result<(), Reason> {
        let change = i64::from(window) - i64::from(self.followed.window);
        self.followed.window = window;
        for (id, stream) in &mut self.streams {
            if !stream.open_window(change) {
                return Err(Reason::FlowControl);
            }
            if stream.resume() {
                self.sending.push_back(*id);
            }
        }
        Ok(())
    }

    /// Settings cost a walk over all streams, and their acknowledgement, so a client may not send them all the time.
    fn count_settings(&mut self) -> Result<(), Reason> {
        let (since, count) = &mut self.settings_since;
        if self.now.duration_since(*since) >= SETTINGS_PERIOD {
            (*since, *count) = (self.now, 0);
        }
        *count += 1;
        match *count > SETTINGS_MAX {
            true => Err(Reason::EnhanceYourCalm),
            false => Ok(()),
        }
    }

    pub(super) fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Reason> {
        if payload.len() != 4 {
            return Err(Reason::FrameSize);
        }
        let bytes = i64::from(number(payload).unwrap_or_default() & ID_MAX);
        if head.id == 0 {
            self.send_window += bytes;
            return match bytes {
                0 => Err(Reason::Protocol),
                _ if self.send_window > WINDOW_MAX => Err(Reason::FlowControl),
                _ => Ok(()),
            };
        }
        if self.is_idle(head.id) {
            return Err(Reason::Protocol);
        }
        let Some(stream) = self.streams.get_mut(&head.id) else {
            return Ok(());
        };
        if bytes == 0 {
            return self.fail(head.id, Reason::Protocol);
        }
        if let Stream::Relayed(relayed) = stream {
            let inner = relayed.inner;
            let is_reset = relayed.is_reset;
            if let Some(relay) = &mut self.relay
                && !is_reset
            {
                relay.write(head.kind, 0, inner, payload);
            }
            return Ok(());
        }
        if !stream.open_window(bytes) {
            return self.fail(head.id, Reason::FlowControl);
        }
        self.resume(head.id);
        Ok(())
    }

    /// Gives back what has been consumed of the connection's window.
    pub(super) fn renew_window(&mut self) {
        if self.consumed >= RENEW_BYTES {
            let bytes = mem::take(&mut self.consumed);
            self.receive_window += i64::from(bytes);
            write_window_update(&mut self.out, 0, bytes);
        }
    }
}
