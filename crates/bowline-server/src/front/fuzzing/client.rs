//! A client that checks what it gets.

use super::*;

/// What a client sees of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Head,
    End,
}

/// A client that checks what it gets.
#[derive(Default)]
pub(super) struct Client {
    streams: BTreeMap<u32, Seen>,
    decoder: Option<Decoder<()>>,
    /// The stream and the parts of a head of which more must come, and whether it ends its stream.
    open: Option<(u32, Vec<u8>, bool)>,
}

impl Client {
    /// Looks at whole frames: nothing is ever left half-written.
    pub(super) fn look(&mut self, mut out: &[u8]) {
        let mut partial = Partial::default();
        let all = out;
        let mut bytes = 0;
        let frame_bytes_max = FRAME_BYTES as usize + TABLE_BYTES;
        while let Some(()) = partial
            .next(&mut out, frame_bytes_max, |head, payload| {
                bytes += 9 + payload.len();
                self.frame(head, payload);
            })
            .expect("no frame is longer than a client takes")
        {}
        assert_eq!(bytes, all.len(), "half a frame");
        assert!(self.open.is_none(), "half a head");
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        let is_stream = matches!(
            head.kind,
            kind::DATA | kind::HEADERS | kind::CONTINUATION | kind::RST_STREAM
        );
        assert!(!is_stream || !head.id.is_multiple_of(2), "{head:?}");
        let continued = self.open.as_ref().map(|open| open.0);
        let expected = (head.kind == kind::CONTINUATION).then_some(head.id);
        assert_eq!(continued, expected, "within a head: {head:?}");
        let seen = self.streams.get(&head.id).copied();
        let ends = head.has(flag::END_STREAM);
        match head.kind {
            kind::DATA => {
                assert!(seen == Some(Seen::Head), "data out of place: {head:?}");
                if ends {
                    self.streams.insert(head.id, Seen::End);
                }
            }
            kind::HEADERS => {
                assert!(seen != Some(Seen::End), "a head behind the end: {head:?}");
                assert!(!head.has(flag::PADDED) && !head.has(flag::PRIORITY));
                self.open = Some((head.id, payload.to_vec(), ends));
            }
            kind::CONTINUATION => {
                if let Some((_, block, _)) = &mut self.open {
                    block.extend_from_slice(payload);
                }
            }
            kind::RST_STREAM => {
                assert!(head.id != 0 && payload.len() == 4);
                self.streams.insert(head.id, Seen::End);
            }
            kind::SETTINGS => assert!(head.id == 0 && payload.len().is_multiple_of(6)),
            kind::PING => assert!(head.id == 0 && payload.len() == 8),
            kind::GOAWAY => assert!(head.id == 0 && payload.len() == 8),
            kind::WINDOW_UPDATE => assert!(payload.len() == 4 && payload != [0; 4]),
            _ => panic!("{head:?}"),
        }
        let is_head = matches!(head.kind, kind::HEADERS | kind::CONTINUATION);
        if is_head
            && head.has(flag::END_HEADERS)
            && let Some((id, block, ends)) = self.open.take()
        {
            self.head(id, &block, ends);
        }
    }

    fn head(&mut self, id: u32, block: &[u8], ends: bool) {
        let decoder = self.decoder.get_or_insert_with(|| Decoder::new(|_, _| ()));
        let is_first = !self.streams.contains_key(&id);
        let mut has_status = false;
        let decoded = decoder.decode(block, |(), name, _| {
            has_status |= name == b":status";
            true
        });
        assert!(decoded.is_ok(), "a head that cannot be read: {block:x?}");
        assert_eq!(has_status, is_first, "stream {id}");
        assert!(is_first || ends, "trailers that do not end stream {id}");
        let seen = if ends { Seen::End } else { Seen::Head };
        self.streams.insert(id, seen);
    }
}
