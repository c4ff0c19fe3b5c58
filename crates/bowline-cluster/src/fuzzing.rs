//! Entry points of the fuzz targets in `tools/fuzz`: records of the Raft log, the vote, the file `MEMBER`, peer messages,
//! their frames, and proposals up to their application. Compiled in tests and with `--cfg fuzzing` only.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::member_file;
use crate::node::fuzzing as node;
use crate::peer::frames::fuzzing as frames;
use crate::raft::network::fuzzing as peer;
use crate::record;
use crate::types::{Entry, Member, Membership, Payload, Proposal, log_id};

/// A record of the log.
pub fn raft_record(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok((entry, head)) = record::decode(7, &bytes) {
        let mut again = Vec::new();
        record::encode(&entry, head.committed, &mut again);
        assert_eq!(again, data, "two encodings of one record");
    }
}

/// One record of each kind.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn raft_record_seeds() -> Vec<Vec<u8>> {
    let member = Member {
        name: "a".to_owned(),
        peer_urls: vec!["http://a:2380".to_owned()],
        client_urls: vec!["http://a:2379".to_owned()],
        wants_vote: true,
        incarnation: 1 << 50,
        command_version: 2,
    };
    let nodes: BTreeMap<_, _> = [(1, member.clone()), (300, member)].into_iter().collect();
    let configs = vec![BTreeSet::from([1]), BTreeSet::from([1, 300])];
    let mut payloads = vec![Payload::Blank, Payload::Normal(Proposal("proposal".into()))];
    payloads.extend(
        Membership::new(configs, nodes)
            .ok()
            .map(Payload::Membership),
    );
    payloads
        .into_iter()
        .map(|payload| {
            let mut out = Vec::new();
            let log_id = log_id(200, 1, 7);
            record::encode(&Entry { log_id, payload }, Some(5), &mut out);
            out
        })
        .collect()
}

/// A byte that selects the format, then a slot of the file `MEMBER`, a state machine's mark, a peer message,
/// or a proposal.
pub fn member(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which {
        0 => member_file::fuzz_slot(data),
        1 => node::mark(data),
        2 => node::question(data),
        3 => node::answer(data),
        10 => node::proposal(data),
        which => peer::message(which - 4, data),
    }
}

/// One seed per format.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn member_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![(0, member_file::fuzz_seed())];
    seeds.extend(node::seeds());
    let messages = peer::seeds().into_iter();
    seeds.extend(messages.map(|(which, bytes)| (which + 4, bytes)));
    seeds.push((10, node::proposal_seed()));
    seeds
        .into_iter()
        .map(|(which, bytes)| [&[which][..], &bytes].concat())
        .collect()
}

/// Bytes of a peer on a connection that carries frames: a byte that selects how they are handled, one for the cuts, and the
/// bytes. Returns how many of them have arrived.
pub fn peer_frames(data: &[u8]) -> usize {
    frames::frames(data)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn no_member_misleads_another() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/member.tar");
        let test = "no_member_misleads_another";
        bowline_testing::replay(test, &corpus, super::member_seeds(), super::member);
    }

    #[test]
    fn every_record_has_one_encoding() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/raft_record.tar");
        let test = "every_record_has_one_encoding";
        bowline_testing::replay(
            test,
            &corpus,
            super::raft_record_seeds(),
            super::raft_record,
        );
    }

    #[test]
    fn no_frame_misleads_a_member() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/peer_frames.tar");
        let test = "no_frame_misleads_a_member";
        let target = |data: &[u8]| assert!(super::peer_frames(data) < 4 << 20);
        bowline_testing::replay(test, &corpus, super::frames::seeds(), target);
    }
}
