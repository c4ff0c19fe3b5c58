//! Compares with another decoder, which is nobody's but the fuzzer's.
#![no_main]

use bowline_server::fuzzing::{Other, header_blocks};
use loona_hpack::Decoder;
use loona_hpack::decoder::{DecoderError, IntegerDecodingError};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new();
    decoder.set_max_allowed_table_size(4096);
    header_blocks(data, |block| match decoder.decode(block) {
        Ok(fields) => Other::Fields(fields),
        // It takes neither a block that only changes the table, nor integers of as many bytes.
        Err(DecoderError::SizeUpdateAtEnd)
        | Err(DecoderError::IntegerDecodingError(IntegerDecodingError::TooManyOctets)) => {
            Other::Unknown
        }
        Err(_) => Other::Bad,
    });
});
