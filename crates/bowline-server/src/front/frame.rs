//! Frames of HTTP/2 (RFC 9113): their nine-byte heads, and the small ones as a whole.

/// The bytes with which a client begins.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's head.
pub(super) const HEAD_BYTES: usize = 9;
/// The largest frame that every side takes.
pub(super) const FRAME_BYTES_MIN: usize = 16_384;
/// The window of streams and connections before anything is said about it.
pub(super) const WINDOW: i64 = 65_535;
/// The largest window.
pub(super) const WINDOW_MAX: i64 = (1 << 31) - 1;
/// The largest id of a stream.
pub(super) const ID_MAX: u32 = (1 << 31) - 1;

/// The kind of a frame.
pub(super) mod kind {
    pub(in crate::front) const DATA: u8 = 0;
    pub(in crate::front) const HEADERS: u8 = 1;
    pub(in crate::front) const PRIORITY: u8 = 2;
    pub(in crate::front) const RST_STREAM: u8 = 3;
    pub(in crate::front) const SETTINGS: u8 = 4;
    pub(in crate::front) const PUSH_PROMISE: u8 = 5;
    pub(in crate::front) const PING: u8 = 6;
    pub(in crate::front) const GOAWAY: u8 = 7;
    pub(in crate::front) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::front) const CONTINUATION: u8 = 9;
}

/// The flags of frames.
pub(super) mod flag {
    pub(in crate::front) const END_STREAM: u8 = 0x1;
    pub(in crate::front) const ACK: u8 = 0x1;
    pub(in crate::front) const END_HEADERS: u8 = 0x4;
    pub(in crate::front) const PADDED: u8 = 0x8;
    pub(in crate::front) const PRIORITY: u8 = 0x20;
}

/// The settings that are used here.
pub(super) mod setting {
    pub(in crate::front) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in crate::front) const ENABLE_PUSH: u16 = 2;
    pub(in crate::front) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in crate::front) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in crate::front) const MAX_FRAME_SIZE: u16 = 5;
    pub(in crate::front) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a stream or a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Reason {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    Refused = 7,
    Cancel = 8,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// The length of the payload.
    pub(super) bytes: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// The stream; 0 is the connection.
    pub(super) id: u32,
}

impl FrameHead {
    /// The head at the beginning of these bytes, if it is complete.
    pub(super) fn read(input: &[u8]) -> Option<FrameHead> {
        let &[a, b, c, kind, flags, d, e, f, g] = input.first_chunk::<HEAD_BYTES>()?;
        Some(FrameHead {
            bytes: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            id: u32::from_be_bytes([d, e, f, g]) & ID_MAX,
        })
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding; `None` if the padding is longer than the payload.
    pub(super) fn unpadded(self, payload: &[u8]) -> Option<&[u8]> {
        if !self.has(flag::PADDED) {
            return Some(payload);
        }
        let (padding, rest) = payload.split_first()?;
        let bytes = rest.len().checked_sub(usize::from(*padding))?;
        rest.get(..bytes)
    }
}

/// The number in the first four bytes.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}

/// Appends the head of a frame.
pub(super) fn write_head(out: &mut Vec<u8>, bytes: usize, kind: u8, flags: u8, id: u32) {
    // No frame is longer than 2²⁴ bytes.
    let [_, a, b, c] = (bytes as u32).to_be_bytes();
    let [d, e, f, g] = id.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
}

/// Writes the length of the frame that began at `start` and ends here.
pub(super) fn end_frame(out: &mut [u8], start: usize) {
    let bytes = out.len() - start - HEAD_BYTES;
    let [_, a, b, c] = (bytes as u32).to_be_bytes();
    out[start..start + 3].copy_from_slice(&[a, b, c]);
}

/// Appends a frame whose payload is one number.
fn write_number(out: &mut Vec<u8>, kind: u8, id: u32, number: u32) {
    write_head(out, 4, kind, 0, id);
    out.extend_from_slice(&number.to_be_bytes());
}

pub(super) fn write_window_update(out: &mut Vec<u8>, id: u32, bytes: u32) {
    write_number(out, kind::WINDOW_UPDATE, id, bytes);
}

pub(super) fn write_reset(out: &mut Vec<u8>, id: u32, reason: Reason) {
    write_number(out, kind::RST_STREAM, id, reason as u32);
}

pub(super) fn write_goaway(out: &mut Vec<u8>, last_id: u32, reason: u32) {
    write_head(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last_id.to_be_bytes());
    out.extend_from_slice(&reason.to_be_bytes());
}

pub(super) fn write_ping(out: &mut Vec<u8>, flags: u8, payload: &[u8]) {
    write_head(out, payload.len(), kind::PING, flags, 0);
    out.extend_from_slice(payload);
}

pub(super) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    write_head(out, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn write_settings_ack(out: &mut Vec<u8>) {
    write_head(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// The settings of a payload, whose length is a multiple of six.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(6).filter_map(|setting| {
        let (name, value) = setting.split_first_chunk()?;
        Some((u16::from_be_bytes(*name), number(value)?))
    })
}

/// Cuts received bytes into frames. A frame that is not complete waits here, so an idle connection holds no
/// buffer.
#[derive(Debug, Default)]
pub(super) struct Partial {
    bytes: Vec<u8>,
}

impl Partial {
    /// The next complete frame, at the beginning of the stored bytes followed by `input`, which is advanced.
    /// `Err` has the length of a frame that is longer than `bytes_max`.
    ///
    /// The frame is handed to `take` as head and payload, because it is in one of two places.
    pub(super) fn next<T>(
        &mut self,
        input: &mut &[u8],
        bytes_max: usize,
        take: impl FnOnce(FrameHead, &[u8]) -> T,
    ) -> Result<Option<T>, usize> {
        if self.bytes.is_empty() {
            let Some(head) = FrameHead::read(input) else {
                self.store(input);
                return Ok(None);
            };
            if head.bytes > bytes_max {
                return Err(head.bytes);
            }
            let Some((frame, rest)) = input.split_at_checked(HEAD_BYTES + head.bytes) else {
                self.store(input);
                return Ok(None);
            };
            *input = rest;
            return Ok(Some(take(head, &frame[HEAD_BYTES..])));
        }
        self.fill(input, HEAD_BYTES);
        let Some(head) = FrameHead::read(&self.bytes) else {
            return Ok(None);
        };
        if head.bytes > bytes_max {
            return Err(head.bytes);
        }
        self.fill(input, HEAD_BYTES + head.bytes);
        if self.bytes.len() < HEAD_BYTES + head.bytes {
            return Ok(None);
        }
        let frame = std::mem::take(&mut self.bytes);
        Ok(Some(take(head, &frame[HEAD_BYTES..])))
    }

    /// Appends input until so many bytes are stored.
    fn fill(&mut self, input: &mut &[u8], bytes: usize) {
        let missing = bytes.saturating_sub(self.bytes.len()).min(input.len());
        let (taken, rest) = input.split_at(missing);
        self.bytes.extend_from_slice(taken);
        *input = rest;
    }

    fn store(&mut self, input: &mut &[u8]) {
        self.bytes.extend_from_slice(input);
        *input = &[];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_wherever_the_input_is_cut() {
        let mut all = Vec::new();
        write_settings(&mut all, &[(3, 100), (4, 7)]);
        write_reset(&mut all, 5, Reason::Cancel);
        write_settings_ack(&mut all);
        write_ping(&mut all, flag::ACK, &[1; 8]);
        write_goaway(&mut all, 9, 2);
        write_window_update(&mut all, ID_MAX, 1);
        let frames = |cuts: &[usize]| {
            let mut partial = Partial::default();
            let mut frames = Vec::new();
            let mut start = 0;
            for end in cuts.iter().copied().chain([all.len()]) {
                let mut input = &all[start..end];
                let take = |head, payload: &[u8]| (head, payload.to_vec());
                while let Some(frame) = partial.next(&mut input, 16, take).unwrap() {
                    frames.push(frame);
                }
                assert!(input.is_empty());
                start = end;
            }
            assert!(partial.bytes.is_empty());
            frames
        };
        let whole = frames(&[]);
        assert_eq!(whole.len(), 6);
        assert_eq!(
            settings(&whole[0].1).collect::<Vec<_>>(),
            [(3, 100), (4, 7)]
        );
        assert_eq!(whole[5].0.id, ID_MAX);
        for one in 0..all.len() {
            for other in one..all.len() {
                assert_eq!(frames(&[one, other]), whole, "{one} {other}");
            }
        }
        let every: Vec<usize> = (0..all.len()).collect();
        assert_eq!(frames(&every), whole);
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_head() {
        let mut head = Vec::new();
        write_head(&mut head, 17, kind::DATA, 0, 1);
        for cut in 0..=HEAD_BYTES {
            let mut partial = Partial::default();
            let (mut one, mut other) = head.split_at(cut);
            let mut refused = partial.next(&mut one, 16, |_, _| ());
            if refused == Ok(None) {
                refused = partial.next(&mut other, 16, |_, _| ());
            }
            assert_eq!(refused, Err(17), "{cut}");
        }
    }

    #[test]
    fn padding_is_taken_off() {
        let head = |flags| FrameHead {
            bytes: 0,
            kind: 0,
            flags,
            id: 1,
        };
        assert_eq!(head(0).unpadded(&[2, 1, 0, 0]), Some(&[2, 1, 0, 0][..]));
        assert_eq!(head(flag::PADDED).unpadded(&[2, 1, 0, 0]), Some(&[1][..]));
        assert_eq!(head(flag::PADDED).unpadded(&[2, 0, 0]), Some(&[][..]));
        assert_eq!(head(flag::PADDED).unpadded(&[3, 0, 0]), None);
        assert_eq!(head(flag::PADDED).unpadded(&[]), None);
    }
}
