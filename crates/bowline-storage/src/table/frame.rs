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
//! ```
//!
//! The checksum covers the stored bytes, the compression byte, and then two numbers that are not
//! stored: the table's salt and the offset of the frame in the file. A frame that the disk
//! returns from another place, or that was swapped with one of another table, fails its check
//! although its own bytes are whole.

use super::options::Compression;

/// Bytes a frame adds to what it stores.
pub(crate) const OVERHEAD_BYTES: usize = 5;

/// The best LZ4 can do: one more byte of a length extension stands for 255 bytes of output. A
/// frame that claims more is damaged, and is refused before anything is allocated for it.
const LZ4_RATIO_MAX: u64 = 256;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// Why bytes of a table are not acceptable; the caller adds file and offset.
pub(crate) type Reason = &'static str;

/// Appends frames to a buffer, keeping the memory that compression needs.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    compressed: Vec<u8>,
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
            Some(block) => {
                // Entries, and with them payloads, are limited to far less than 4 GiB.
                out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
                out.extend_from_slice(block);
                out.push(LZ4);
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

    /// The LZ4 block of `payload`, when it is asked for and saves at least an eighth.
    fn compress(&mut self, payload: &[u8], compression: Compression) -> Option<&[u8]> {
        if compression == Compression::None {
            return None;
        }
        self.compressed
            .resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
        let len = lz4_flex::block::compress_into(payload, &mut self.compressed).ok()?;
        (len + 4 <= payload.len() - payload.len() / 8).then(|| &self.compressed[..len])
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
        LZ4 => {
            let (len, block) = stored.split_first_chunk::<4>().ok_or("it is too short")?;
            if u32::from_le_bytes(*len) as usize != payload_bytes {
                return Err("its uncompressed length is not the one in the index");
            }
            if !justifies(frame.len() as u64, payload_bytes as u64) {
                return Err("its uncompressed length is impossible");
            }
            let mut payload = vec![0; payload_bytes];
            match lz4_flex::block::decompress_into(block, &mut payload) {
                Ok(len) if len == payload_bytes => Ok(Payload::Decompressed(payload)),
                _ => Err("it does not decompress to the length it states"),
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
    payload_bytes <= frame_bytes.saturating_mul(LZ4_RATIO_MAX)
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
