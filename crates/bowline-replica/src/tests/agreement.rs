//! Equality of members: those that apply the same entries give the same replies and hold the same state, and a
//! comparison by hashes covers every tree.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Three members with the same log: one runs through, one loses power repeatedly and comes back with what
    /// its disk has, one installs the first one's tables in the middle. All give the same replies, and end
    /// with the same state, whether the graph is read from a view that every entry changes or from the trees.
    #[test]
    fn members_that_are_fed_the_same_are_the_same(
        entries in prop::collection::vec(
            prop::collection::vec(prop_oneof![9 => command(), 2 => index_change()], 1..4),
            1..40,
        ),
        seeds in prop::collection::vec(any::<u8>(), 40),
        takes_over_at in 0usize..40,
    ) {
        let mut steady = Member::open(&SimDisk::new(), 1);
        let mut shaken = Member::open(&SimDisk::new(), 2);
        let mut late = Member::open(&SimDisk::new(), 3);
        for (number, commands) in entries.iter().enumerate() {
            let replies = steady.run(commands);
            prop_assert_eq!(&shaken.run(commands), &replies);
            match seeds[number] % 8 {
                0 => {
                    let disk = shaken.disk.after_power_loss();
                    shaken = Member::open(&disk, 2);
                }
                1 => shaken.replica.db().flush().unwrap(),
                2 => shaken.replica.db().compact().unwrap(),
                3 => prop_assert!(shaken.replica.db().build_graph_view().unwrap()),
                _ => {}
            }
            if number == takes_over_at {
                take_over(&steady, &mut late);
            }
            if number > takes_over_at {
                prop_assert_eq!(&late.run(commands), &replies);
            }
        }
        let expected = steady.dump();
        let hashes = steady.replica.tree_hashes().unwrap();
        prop_assert_eq!(shaken.dump(), expected.clone());
        prop_assert_eq!(shaken.replica.tree_hashes().unwrap(), hashes);
        if takes_over_at < entries.len() {
            prop_assert_eq!(late.dump(), expected.clone());
            prop_assert_eq!(late.replica.tree_hashes().unwrap(), hashes);
            let disk = late.disk.after_power_loss();
            prop_assert_eq!(Member::open(&disk, 3).dump(), expected);
        }
        let report = steady.replica.db().check().unwrap();
        prop_assert!(report.is_clean(), "{report:?}");
    }
}

/// A comparison of members covers exactly what its hashes cover: a change of any tree changes the hash of
/// that tree, and of no other except the system tree, which records every entry.
#[test]
fn a_change_of_any_tree_changes_its_hash() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let [one, two] = [1, 2].map(BlockId);
    let blocks = [one, two].map(|id| GraphWrite::PutBlock(Block::new(id, "node")));
    let mut changes = Vec::new();
    let mut before = member.replica.tree_hashes().unwrap();
    for command in [
        txn_of(vec![Op::Put(put("k", "v"))]),
        Command::Graph(blocks.to_vec()),
        Command::Graph(vec![GraphWrite::PutEdge(Edge::new(one, "tie", two))]),
        Command::Index(IndexChange::Create {
            kind: "node".to_owned(),
            attributes: vec!["name".to_owned()],
            is_unique: false,
        }),
        Command::LeaseGrant {
            id: 7,
            ttl: Duration::from_secs(60),
        },
    ] {
        member.run(&[command]);
        let after = member.replica.tree_hashes().unwrap();
        assert_eq!(after.0, before.0 + 1, "the index is that of the entry");
        let of_each = |hashes: TreeHashes| {
            [
                hashes.keys,
                hashes.blocks,
                hashes.edges_out,
                hashes.edges_in,
                hashes.indexes,
                hashes.system,
            ]
        };
        let pairs = of_each(before.1).into_iter().zip(of_each(after.1));
        changes.push(pairs.map(|(a, b)| a != b).collect::<Vec<_>>());
        assert_ne!(before.1.combined(), after.1.combined());
        before = after;
    }
    assert_eq!(
        changes,
        [
            [true, false, false, false, false, true],
            [false, true, false, false, false, true],
            [false, false, true, true, false, true],
            [false, false, false, false, true, true],
            [false, false, false, false, false, true],
        ]
    );
}
