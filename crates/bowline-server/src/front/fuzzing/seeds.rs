//! Inputs to begin with.

use super::*;

/// Whole calls, calls of the relay, windows, a reset, and heads in parts.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn connection_seeds() -> Vec<Vec<u8>> {
    const ALL: u8 = flag::END_HEADERS;
    const END: u8 = flag::END_STREAM;
    let part = |what: u8, flags: u8, id: u8, payload: &[u8]| {
        [&[what, flags, id, payload.len() as u8][..], payload].concat()
    };
    let range = |key: &str, limit: i64| {
        pb::RangeRequest {
            key: key.to_owned().into(),
            limit,
            ..pb::RangeRequest::default()
        }
        .encode_to_vec()
    };
    let put = pb::PutRequest {
        key: "key".into(),
        value: vec![1; 40].into(),
        ..pb::PutRequest::default()
    };
    let put = put.encode_to_vec();
    let number = |bytes: u32| bytes.to_be_bytes();
    let window = |id: u8, bytes: u32| part(kind::WINDOW_UPDATE, 0, id, &number(bytes));
    let initial = |bytes: u32| {
        let setting = [
            &setting::INITIAL_WINDOW_SIZE.to_be_bytes()[..],
            &number(bytes),
        ];
        part(kind::SETTINGS, 0, 0, &setting.concat())
    };
    let hot = [
        part(KIND_PATH, ALL, 1, &[]),
        part(KIND_MESSAGE, END, 1, &range("d", 20)),
        part(KIND_PATH + 1, ALL, 3, &[]),
        part(KIND_MESSAGE, 0, 3, &put[..10]),
        part(kind::DATA, END, 3, &put[10..]),
        part(kind::PING, 0, 0, &[5; 8]),
        part(KIND_PATH + 2, ALL, 5, &[]),
        part(KIND_MESSAGE, END, 5, &[]),
        part(KIND_PATH + 3, ALL, 7, &[]),
        part(KIND_MESSAGE, END, 7, &[]),
    ];
    let waiting = [
        initial(10),
        part(KIND_PATH, ALL, 1, &[]),
        part(KIND_MESSAGE, END, 1, &range("d", 100_000)),
        part(KIND_PATH, ALL, 3, &[]),
        part(KIND_MESSAGE, END, 3, &range("a", 200_000)),
        window(1, 50_000),
        initial(1 << 20),
        window(0, 100_000),
        part(kind::RST_STREAM, 0, 3, &number(8)),
        part(kind::DATA, 0, 3, b"late"),
        window(0, 100_000),
    ];
    let relayed = [
        part(KIND_PATH + 5, ALL | END, 1, &[]),
        part(KIND_PATH + 4, ALL, 3, &[]),
        part(KIND_MESSAGE, 0, 3, b"watch"),
        part(KIND_PATH, ALL, 5, &[]),
        part(KIND_LONG, 0, 5, &[1; 200]),
        part(KIND_LONG, 0, 3, &[2; 150]),
        part(KIND_PATH + 5, ALL | END, 7, b"\x40\x01a\x01b"),
        part(kind::HEADERS, ALL | END, 3, b"\0\x01a\x01b"),
        part(kind::RST_STREAM, 0, 5, &number(8)),
        initial(1),
        part(KIND_PATH + 5, ALL | END, 9, &[]),
        window(9, 100),
    ];
    let parts = [
        part(KIND_PATH + 1, 0, 1, b"\0\x01a"),
        part(kind::CONTINUATION, 0, 1, b"\x03"),
        part(kind::CONTINUATION, ALL, 1, b"bcd"),
        part(kind::PRIORITY, 0, 9, &[0, 0, 0, 1, 7]),
        part(KIND_MESSAGE, END | flag::PADDED, 1, b"p"),
        part(99, 0, 0, b"unknown"),
        part(KIND_PATH + 1, ALL, 3, b"\x0f\x2f\0"),
        part(kind::DATA, END, 3, &[1, 0, 0, 0, 1, 7]),
        part(kind::GOAWAY, 0, 0, &[0; 8]),
    ];
    // A long field, which the blocks behind it name again and again.
    let mut long = vec![0x40, 1, b'a'];
    write_string(&mut long, &[b'x'; 240]);
    let mut heads = vec![part(KIND_PATH + 4, ALL, 1, &long[..250.min(long.len())])];
    heads.extend((1..60).map(|number| part(KIND_PATH + 4, ALL, 2 * number + 1, &[0xbe; 240])));
    let raw = raw_put(&put);
    vec![
        [&[0x40, 0][..], &hot.concat()].concat(),
        [&[0x40, 3][..], &watches()].concat(),
        [&[0x32, 1][..], &watches()].concat(),
        [&[0x10, 3][..], &hot.concat()].concat(),
        [&[0x20, 1][..], &waiting.concat()].concat(),
        [&[0x42, 1][..], &waiting.concat()].concat(),
        [&[0x40, 2][..], &relayed.concat()].concat(),
        [&[0x28, 2][..], &relayed.concat()].concat(),
        [&[0x6c, 2][..], &relayed.concat()].concat(),
        [&[0x40, 4][..], &parts.concat()].concat(),
        [&[0x48, 5][..], &heads.concat()].concat(),
        [&[0x31, 6][..], &raw].concat(),
    ]
}

/// A put as a client sends it.
fn raw_put(put: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    write_settings(&mut raw, &[(setting::MAX_FRAME_SIZE, 1 << 20)]);
    let block = usual_block(PATHS[1]);
    write_head(&mut raw, block.len(), kind::HEADERS, flag::END_HEADERS, 1);
    raw.extend_from_slice(&block);
    write_head(&mut raw, put.len() + 5, kind::DATA, flag::END_STREAM, 1);
    raw.extend_from_slice(&[0, 0, 0, 0, put.len() as u8]);
    raw.extend_from_slice(put);
    write_window_update(&mut raw, 0, 7);
    raw
}

/// Watches: requests in parts, small windows, both ends, and a message that is compressed.
fn watches() -> Vec<u8> {
    const ALL: u8 = flag::END_HEADERS;
    const END: u8 = flag::END_STREAM;
    let part = |what: u8, flags: u8, id: u8, payload: &[u8]| {
        [&[what, flags, id, payload.len() as u8][..], payload].concat()
    };
    let number = |bytes: u32| bytes.to_be_bytes();
    let window = |id: u8, bytes: u32| part(kind::WINDOW_UPDATE, 0, id, &number(bytes));
    let initial = |bytes: u32| {
        let name = setting::INITIAL_WINDOW_SIZE.to_be_bytes();
        part(kind::SETTINGS, 0, 0, &[&name[..], &number(bytes)].concat())
    };
    let watch = |request: pb::watch_request::RequestUnion| {
        let request = pb::WatchRequest {
            request_union: Some(request),
        };
        request.encode_to_vec()
    };
    use pb::watch_request::RequestUnion as Asked;
    let create = watch(Asked::CreateRequest(pb::WatchCreateRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..pb::WatchCreateRequest::default()
    }));
    let cancel = watch(Asked::CancelRequest(pb::WatchCancelRequest { watch_id: 0 }));
    [
        part(KIND_WATCH, ALL, 1, &[]),
        part(KIND_MESSAGE, 0, 1, &create),
        part(KIND_MESSAGE, 0, 1, &create[..3]),
        part(kind::DATA, 0, 1, &create[3..]),
        initial(7),
        part(KIND_WATCH, ALL, 3, &[]),
        part(KIND_MESSAGE, 0, 3, &create),
        part(KIND_MESSAGE, 0, 1, &cancel),
        window(3, 9),
        part(KIND_LONG, 0, 3, &[0; 200]),
        part(kind::HEADERS, ALL | END, 1, b"\0\x01a\x01b"),
        window(0, 100_000),
        window(3, 50_000),
        part(kind::RST_STREAM, 0, 3, &number(8)),
        part(KIND_WATCH, ALL, 5, &[]),
        part(kind::DATA, END, 5, &[1, 0, 0, 0, 1, 7]),
    ]
    .concat()
}
