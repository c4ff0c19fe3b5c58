//! The envelope of every page and section: what kind of bytes they are, and whether they are the
//! bytes that were written *here*.
//!
//! ```text
//! +-----------------+-------------+--------+
//! | stored bytes    | compression | CRC32C |
//! | n               | 1           | 4      |
//! +-----------------+-------------+--------+
//!   compression 0: the stored bytes are the payload
//!   compression 1: u32 payload length, then an LZ4 block
//!   compression 2: u32 payload length, then a zstd frame
//! ```
//!
//! The checksum covers the stored bytes, the compression byte, and then two numbers that are not
//! stored: the table's salt and the offset of the frame in the file. A frame that the disk
//! returns from another place, or that was swapped with one of another table, fails its check
//! although its own bytes are whole.

#[cfg(feature = "zstd")]
mod zstd;

/// The compression of the pages of a table. Each page records its own compression, so reads do not depend
/// on the current setting.
///
/// ```
/// # use bowline_storage::compaction::CompactionOptions;
/// # use bowline_storage::frame::Compression;
/// // With `DbBuilder::compaction`: nothing is compressed once it has arrived in the last level.
/// let options = CompactionOptions {
///     last_level_compression: Some(Compression::None),
///     ..CompactionOptions::default()
/// };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Pages are stored as they are.
    None,
    /// Each page is an LZ4 block, unless that saves less than an eighth of it.
    Lz4,
    /// Each page is a zstd frame, on the same terms; smaller, and slower to make and to open. What
    /// zstd cannot do is done as with [`Compression::Lz4`].
    #[cfg(feature = "zstd")]
    Zstd {
        /// zstd's level, from the fastest (1) to the smallest (22); taken as the nearest there is.
        level: i32,
    },
}

/// Bytes that a frame adds to its payload.
pub(crate) const OVERHEAD_BYTES: usize = 5;

/// The best LZ4 can do: one more byte of a length extension stands for 255 bytes of output. A
/// frame that claims more is damaged, and is refused before anything is allocated for it. What zstd
/// could make smaller still is left to LZ4.
const RATIO_MAX: u64 = 256;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Why bytes of a table are not acceptable; the caller adds file and offset.
pub(crate) type Reason = &'static str;

/// Not damage: this build cannot read the content.
pub(crate) const NEEDS_ZSTD: Reason = "it is compressed with zstd";

/// Appends frames to a buffer, keeping the memory that compression needs.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    compressed: Vec<u8>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::Encoder>,
}

impl FrameWriter {
    /// Appends `payload` as a frame that will stand at `offset` of the file; returns the length
    /// of the frame.
    pub(crate) fn append(
        &mut self,
        out: &mut Vec<u8>,
        payload: &[u8],
        compression: Compression,
        salt: u64,
        offset: u64,
    ) -> usize {
        let start = out.len();
        match self.compress(payload, compression) {
            Some((kind, block)) => {
                // Entries, and with them payloads, are limited to far less than 4 GiB.
                out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
                out.extend_from_slice(block);
                out.push(kind);
            }
            None => {
                out.extend_from_slice(payload);
                out.push(PLAIN);
            }
        }
        let checksum = checksum(&out[start..], salt, offset);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.len() - start
    }

    /// What `payload` is compressed to, and how, when that is asked for and saves at least an eighth.
    fn compress(&mut self, payload: &[u8], compression: Compression) -> Option<(u8, &[u8])> {
        let most = (payload.len() - payload.len() / 8).checked_sub(4)?;
        let (kind, len) = match compression {
            Compression::None => return None,
            Compression::Lz4 => (LZ4, self.lz4(payload)?),
            #[cfg(feature = "zstd")]
            Compression::Zstd { level } => match self.zstd(payload, most, level) {
                Some(len) => (ZSTD, len),
                None => (LZ4, self.lz4(payload)?),
            },
        };
        (len <= most).then(|| (kind, &self.compressed[..len]))
    }

    fn lz4(&mut self, payload: &[u8]) -> Option<usize> {
        self.compressed
            .resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
        lz4_flex::block::compress_into(payload, &mut self.compressed).ok()
    }

    /// The length it is compressed to, unless that is more than `most`, or so little that a frame
    /// with it would be taken for damage.
    #[cfg(feature = "zstd")]
    fn zstd(&mut self, payload: &[u8], most: usize, level: i32) -> Option<usize> {
        use zstd::Encoder;
        if self
            .zstd
            .as_ref()
            .is_none_or(|encoder| encoder.level() != level)
        {
            self.zstd = Encoder::new(level);
        }
        if self.compressed.len() < most {
            self.compressed.resize(most, 0);
        }
        let out = &mut self.compressed[..most];
        let len = self.zstd.as_mut()?.compress(payload, out)?;
        justifies(len as u64, payload.len() as u64).then_some(len)
    }
}

/// Checks a frame and returns its compression byte and stored bytes.
fn check(frame: &[u8], salt: u64, offset: u64) -> Result<(u8, &[u8]), Reason> {
    let (body, stored) = frame.split_last_chunk::<4>().ok_or("it is too short")?;
    if checksum(body, salt, offset) != u32::from_le_bytes(*stored) {
        return Err("the checksum does not match");
    }
    let (&compression, bytes) = body.split_last().ok_or("it is too short")?;
    Ok((compression, bytes))
}

/// The payload inside a checked frame.
pub(crate) enum Payload {
    /// The frame's own first bytes, this many.
    Plain(usize),
    /// Bytes that had to be decompressed.
    Decompressed(Vec<u8>),
}

/// Checks a frame whose payload must have `payload_bytes` bytes, and opens it.
pub(crate) fn open(
    frame: &[u8],
    payload_bytes: usize,
    salt: u64,
    offset: u64,
) -> Result<Payload, Reason> {
    let (compression, stored) = check(frame, salt, offset)?;
    match compression {
        PLAIN if stored.len() == payload_bytes => Ok(Payload::Plain(payload_bytes)),
        PLAIN => Err("its length is not the one in the index"),
        LZ4 | ZSTD => {
            let (len, block) = stored.split_first_chunk::<4>().ok_or("it is too short")?;
            if u32::from_le_bytes(*len) as usize != payload_bytes {
                return Err("its uncompressed length is not the one in the index");
            }
            if !justifies(frame.len() as u64, payload_bytes as u64) {
                return Err("its uncompressed length is impossible");
            }
            let mut payload = vec![0; payload_bytes];
            let filled = match compression {
                LZ4 => (lz4_flex::block::decompress_into(block, &mut payload).ok())
                    .filter(|len| *len == payload_bytes)
                    .map(drop),
                #[cfg(feature = "zstd")]
                _ => zstd::decompress(block, &mut payload),
                #[cfg(not(feature = "zstd"))]
                _ => return Err(NEEDS_ZSTD),
            };
            match filled {
                Some(()) => Ok(Payload::Decompressed(payload)),
                None => Err("it does not decompress to the length it states"),
            }
        }
        _ => Err("its compression is of an unknown kind"),
    }
}

/// Checks a frame that is never compressed, and returns its payload.
pub(super) fn open_plain(frame: &[u8], salt: u64, offset: u64) -> Result<&[u8], Reason> {
    match check(frame, salt, offset)? {
        (PLAIN, payload) => Ok(payload),
        _ => Err("its compression is of an unknown kind"),
    }
}

/// Whether a frame of `frame_bytes` can hold a payload of `payload_bytes`.
pub(super) fn justifies(frame_bytes: u64, payload_bytes: u64) -> bool {
    payload_bytes <= frame_bytes.saturating_mul(RATIO_MAX)
}

/// CRC32C over `body`, the table's salt and the place in the file.
pub(crate) fn checksum(body: &[u8], salt: u64, offset: u64) -> u32 {
    let checksum = crc32c::crc32c(body);
    let checksum = crc32c::crc32c_append(checksum, &salt.to_le_bytes());
    crc32c::crc32c_append(checksum, &offset.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8], compression: Compression) -> Vec<u8> {
        let mut out = Vec::new();
        FrameWriter::default().append(&mut out, payload, compression, 7, 4096);
        out
    }

    fn opened(frame: &[u8], payload_bytes: usize) -> Result<Vec<u8>, Reason> {
        match open(frame, payload_bytes, 7, 4096)? {
            Payload::Plain(len) => Ok(frame[..len].to_vec()),
            Payload::Decompressed(bytes) => Ok(bytes),
        }
    }

    #[test]
    fn a_frame_gives_back_its_payload() {
        let text = b"abcabcabc".repeat(100);
        for compression in [Compression::None, Compression::Lz4] {
            for payload in [&b""[..], b"x", &text] {
                let frame = frame(payload, compression);
                assert_eq!(opened(&frame, payload.len()).unwrap(), payload);
            }
        }
        assert!(frame(&text, Compression::Lz4).len() < 100);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn zstd_gives_back_what_it_took_and_leaves_the_rest_to_lz4() {
        let text: Vec<u8> = (0..400)
            .flat_map(|i: u32| format!("k{i:05}").into_bytes())
            .collect();
        let zstd = Compression::Zstd { level: 3 };
        let small = frame(&text, zstd);
        assert_eq!(small[small.len() - 5], ZSTD);
        assert!(small.len() < frame(&text, Compression::Lz4).len());
        assert_eq!(opened(&small, text.len()).unwrap(), text);
        // Levels change from frame to frame, as tables of one writer never do.
        let mut writer = FrameWriter::default();
        for level in [19, -5, 1, i32::MAX, i32::MIN] {
            let mut out = Vec::new();
            writer.append(&mut out, &text, Compression::Zstd { level }, 7, 4096);
            assert_eq!(opened(&out, text.len()).unwrap(), text, "level {level}");
        }
        // So much smaller that its frame would be refused.
        let zeros = vec![0; 1 << 20];
        let tiny = frame(&zeros, zstd);
        assert_eq!(tiny[tiny.len() - 5], LZ4);
        assert_eq!(opened(&tiny, zeros.len()).unwrap(), zeros);
        for payload in [&b""[..], b"x"] {
            assert_eq!(frame(payload, zstd), frame(payload, Compression::None));
        }
        for cut in 0..small.len() {
            assert!(opened(&small[..cut], text.len()).is_err(), "cut at {cut}");
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn without_zstd_its_frames_are_refused_by_name() {
        let mut body = 9u32.to_le_bytes().to_vec();
        body.extend_from_slice(&[1, 2, 3, ZSTD]);
        let checksum = checksum(&body, 7, 4096);
        body.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(opened(&body, 9).unwrap_err(), NEEDS_ZSTD);
    }

    #[test]
    fn what_hardly_compresses_is_stored_plain() {
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..1000).map(|_| random.u8(..)).collect();
        assert_eq!(
            frame(&noise, Compression::Lz4),
            frame(&noise, Compression::None)
        );
    }

    #[test]
    fn a_frame_from_another_place_or_file_is_refused() {
        let frame = frame(b"payload", Compression::None);
        assert!(open(&frame, 7, 7, 4096).is_ok());
        assert!(open(&frame, 7, 7, 8192).is_err());
        assert!(open(&frame, 7, 8, 4096).is_err());
        assert!(open(&frame, 6, 7, 4096).is_err());
        assert!(open(&[], 0, 7, 4096).is_err());
    }

    #[test]
    fn a_false_length_is_refused_before_it_is_allocated() {
        let mut body = u32::MAX.to_le_bytes().to_vec();
        body.extend_from_slice(&[0, LZ4]);
        let checksum = checksum(&body, 7, 4096);
        body.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            opened(&body, u32::MAX as usize).unwrap_err(),
            "its uncompressed length is impossible"
        );
    }
}
