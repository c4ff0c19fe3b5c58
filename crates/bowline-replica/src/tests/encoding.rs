//! The encoding of commands: each command has one encoding, and whatever is not a whole encoding is refused.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn commands_round_trip_and_refuse_every_cut(
        commands in prop::collection::vec(command(), 0..6),
    ) {
        let mut bytes = Vec::new();
        encode_commands(commands.iter(), &mut bytes);
        let bytes = Bytes::from(bytes);
        prop_assert_eq!(decode_commands(&bytes).unwrap(), commands);
        for cut in 0..bytes.len() {
            prop_assert!(decode_commands(&bytes.slice(..cut)).is_err());
        }
    }
}

/// Found by the fuzzer: attributes that were named twice, or out of order, decoded to the map with the last
/// of them, so that one command had several encodings.
#[test]
fn attributes_named_twice_or_out_of_order_are_refused() {
    let block = Block::new(BlockId(1), "kind")
        .attribute("name1", "x")
        .attribute("name2", "x");
    let mut bytes = Vec::new();
    let command = Command::Graph(vec![GraphWrite::PutBlock(block)]);
    encode_commands([&command].into_iter(), &mut bytes);
    assert!(decode_commands(&Bytes::from(bytes.clone())).is_ok());

    let digits: Vec<usize> = (4..bytes.len())
        .filter(|&at| bytes[..at].ends_with(b"name"))
        .collect();
    let [first, second] = digits[..] else {
        panic!("two names: {digits:?}");
    };
    for (one, two) in [(b'1', b'1'), (b'2', b'1')] {
        let mut bytes = bytes.clone();
        (bytes[first], bytes[second]) = (one, two);
        let refused = decode_commands(&Bytes::from(bytes)).unwrap_err();
        assert!(
            refused.to_string().contains("out of the order"),
            "{refused}"
        );
    }
}
