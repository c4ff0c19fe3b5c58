//! Entry points for fuzzing the records of this crate, in tests and with `--cfg fuzzing` only; see the
//! module of the same name in `bowline-storage`.

use std::time::Duration;

use bowline_storage::compaction::MergeOperator;
use bowline_storage::engine::BatchWriter;
use bowline_types::Revision;

use crate::graph::fuzzing as graph;
use crate::kv::{order, record};
use crate::{lease, trees};

/// Input: one byte for the sort of record, then the record.
pub fn record(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which {
        0 => entry(data),
        1 => graph::block(data),
        2 => graph::edge(data),
        3 => graph::keys(data),
        4 => ttl(data),
        5 => attachment(data),
        6 => order(data),
        _ => {}
    }
}

/// Splits off a revision of 8 bytes.
fn revision(data: &[u8]) -> (u64, &[u8]) {
    let (revision, rest) = data.split_at(data.len().min(8));
    let mut bytes = [0; 8];
    bytes[..revision.len()].copy_from_slice(revision);
    (u64::from_le_bytes(bytes), rest)
}

fn order(data: &[u8]) {
    let (revision, data) = revision(data);
    if let Some(order) = order::decode(data, Revision::new(revision)) {
        assert_eq!(order.encode(), data, "two encodings of one order");
        let none = order.arrange(&[], |_| false);
        assert_eq!(none, Some(Vec::new()));
    }
}

fn entry(data: &[u8]) {
    let (mod_revision, value) = revision(data);
    let Some((head, start)) = record::decode(value, Revision::new(mod_revision)) else {
        return;
    };
    let meta = head.meta;
    assert!(meta.create_revision <= mod_revision && meta.version > 0);
    let mut again = Vec::new();
    record::encode(&head, &mut again);
    assert_eq!(again, value[..start], "two encodings of one entry");
    assert!(again.len() <= record::HEAD_MAX_BYTES);
    assert_eq!(record::Metadata.is_operand(value), head.is_blind);
    if head.is_blind {
        let mut alone = Vec::new();
        let completed = record::Metadata.apply((mod_revision, value), None, &mut alone);
        completed.expect("it decodes");
        assert!(!record::Metadata.is_operand(&alone));
        // The record on top of itself.
        let below = mod_revision.saturating_sub(1);
        let mut both = Vec::new();
        if record::Metadata
            .apply((mod_revision, value), Some((below, value)), &mut both)
            .is_some()
        {
            assert!(record::decode(&both, Revision::new(mod_revision)).is_some());
        }
    } else {
        let entry = record::entry_of_record(b"key", Revision::new(mod_revision), value)
            .expect("it decodes");
        assert_eq!(entry.value, value[start..]);
    }
}

fn ttl(data: &[u8]) {
    if let Some(ttl) = lease::decode_ttl(data) {
        assert_eq!(lease::encode_ttl(ttl), data, "two encodings of one lease");
        // As a deadline is computed.
        let _ = Duration::from_secs(u64::from(u32::MAX)) + ttl;
    }
    if let Some(grant) = lease::decode_grant(data) {
        let again = lease::encode_grant(grant);
        assert_eq!(again, data, "two encodings of one grant");
    }
}

fn attachment(data: &[u8]) {
    if let Some((id, key)) = trees::split_attachment(data) {
        assert_eq!(trees::attachment_key(id, key), data);
    }
    if let Some(end) = trees::prefix_end(data) {
        assert!(end.as_slice() > data && !end.starts_with(data));
    }
}

/// One record of each kind.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let holder = lease::LeaseId::new(77).expect("not 0");
    let mut head = Vec::new();
    let meta = record::Meta {
        create_revision: Revision::new(200),
        mod_revision: Revision::new(300),
        version: 3,
        lease: Some(holder),
    };
    record::encode_head(&meta, &mut head);
    let entry = [&300_u64.to_le_bytes()[..], &head, b"value"].concat();
    let mut blind_head = Vec::new();
    record::encode_blind_head(Revision::new(300), 3, &mut blind_head);
    let blind_entry = [&300_u64.to_le_bytes()[..], &blind_head, b"value"].concat();
    let [block, edge, key, id, typed_block, typed_edge, several, none] = graph::seeds();
    let ttl = lease::encode_ttl(Duration::from_secs(60));
    let attachment = trees::attachment_key(holder, b"key");
    let mut batch = Vec::new();
    let mut writer = BatchWriter::start(&mut batch, 300);
    writer.put(trees::KV, b"key", &head, b"value");
    for key in [&b"a"[..], b"b", b"key"] {
        writer.delete(trees::KV, key);
    }
    writer.put(trees::KV, b"b1", &head, b"value");
    let order = order::of_batch(&batch).expect("it is not that of the keys");
    let order = [&300_u64.to_le_bytes()[..], &order].concat();
    [
        (0, entry),
        (0, blind_entry),
        (1, block),
        (2, edge),
        (1, typed_block),
        (2, typed_edge),
        (1, several),
        (1, none),
        (3, key),
        (3, id),
        (4, ttl),
        (5, attachment),
        (6, order),
    ]
    .into_iter()
    .map(|(which, data)| [&[which][..], &data].concat())
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_record_has_one_encoding() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/records.tar");
        let seeds = super::record_seeds();
        bowline_testing::replay(
            "every_record_has_one_encoding",
            &corpus,
            seeds,
            super::record,
        );
    }
}
