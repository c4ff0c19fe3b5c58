//! What JSON Lines say, and where what is wrong with them stands.

use super::*;

const UUID: &str = "0123abcd-4567-89ef-fedc-ba9876543210";

fn item(line: &str) -> Item {
    parse_line(line.as_bytes())
        .unwrap_or_else(|refusal| panic!("{line}: {refusal:?}"))
        .1
}

#[test]
fn keys_and_values_as_text_or_base64() {
    assert_eq!(
        item(r#"{"key": "a", "value": "\u00e9\n"}"#),
        Item::KeyValue(KeyValue {
            key: b"a".to_vec(),
            value: "é\n".into()
        })
    );
    assert_eq!(
        item(r#" {"value_base64":"/wA=","key_base64":"AP8="} "#),
        Item::KeyValue(KeyValue {
            key: vec![0, 255],
            value: vec![255, 0]
        })
    );
    assert_eq!(
        item(r#"{"key": "a", "value": ""}"#),
        Item::KeyValue(KeyValue {
            key: b"a".to_vec(),
            value: vec![]
        })
    );
}

#[test]
fn blocks_by_id_or_name_keep_their_name() {
    let line = format!(r#"{{"block": {{"id": "{UUID}", "kind": "file"}}}}"#);
    assert_eq!(
        item(&line),
        Item::Block(Block {
            block: BlockRef::parse(UUID),
            kinds: "file".into(),
            content: vec![],
            attributes: Attributes::new(),
            if_absent: false,
        })
    );
    let line = r#"{"block": {"name": "a.rs", "kind": "file", "content": "fn",
                   "attributes": {"size": "2"}}}"#
        .replace('\n', " ");
    let Item::Block(block) = item(&line) else {
        panic!()
    };
    assert_eq!(block.block, BlockRef::Name("a.rs".into()));
    assert_eq!(block.content, b"fn");
    let attributes = [("name", "a.rs"), ("size", "2")];
    assert!(
        block
            .attributes
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_text().expect("a text")))
            .eq(attributes)
    );
    for (kinds, wanted) in [
        ("[]", &[][..]),
        (r#"["b", "a"]"#, &["a", "b"]),
        (r#"["a"]"#, &["a"]),
    ] {
        let Item::Block(block) = item(&format!(
            r#"{{"block": {{"name": "a", "kinds": {kinds}}}}}"#
        )) else {
            panic!()
        };
        let wanted: BlockKinds = wanted.iter().copied().collect();
        assert_eq!(block.kinds, wanted);
    }
    // An attribute that the file gives wins over the name.
    let line = r#"{"block": {"name": "a", "kind": "k", "attributes": {"name": "b"}}}"#;
    let Item::Block(block) = item(line) else {
        panic!()
    };
    assert_eq!(block.attributes[NAME_ATTRIBUTE], "b");
}

#[test]
fn edges_refer_by_id_or_name() {
    let line = format!(
        r#"{{"edge": {{"source": "{UUID}", "kind": "k", "target": "b", "attributes": {{"w": "1"}}}}}}"#
    );
    let Item::Edge(edge) = item(&line) else {
        panic!()
    };
    assert_eq!(edge.source, BlockRef::parse(UUID));
    assert_eq!(edge.target, BlockRef::Name("b".into()));
    assert_eq!(edge.attributes["w"], "1");
}

#[test]
fn a_malformed_line_names_its_column() {
    let uuid_name = format!(r#"{{"block": {{"name": "{UUID}", "kind": "k"}}}}"#);
    let long_kind = format!(
        r#"{{"edge": {{"source": "a", "kind": "{}", "target": "b"}}}}"#,
        "k".repeat(KIND_TOO_LONG)
    );
    const KIND_TOO_LONG: usize = super::super::KIND_SIZE_MAX_BYTES + 1;
    for (line, column, part) in [
        // What is not JSON.
        ("nonsense", 2, "expected ident"),
        ("[]", 1, "expected an object"),
        (r#"{"key": "a" "value": "b"}"#, 13, "expected `,` or `}`"),
        (r#"{"key": "a", "value": "b"} x"#, 28, "trailing characters"),
        (r#"{"key": "a","#, 13, "an object has to end on the line"),
        ("{\"key\": \"a\tb\"}", 11, "control character"),
        (r#"{"block": ["a"]}"#, 11, "expected an object"),
        // Fields.
        (r#"{"key": "a", "valu": "b"}"#, 14, "unknown field `valu`"),
        (r#"{"é": "a"}"#, 2, "unknown field `é`"),
        (
            r#"{"key": "\\\"", "\u00e9\"": "a"}"#,
            17,
            "unknown field `é\"`",
        ),
        (r#"{"key": -1.5e3}"#, 9, "invalid type: floating point"),
        (r#"{"key": "a", "key": "b"}"#, 14, "duplicate field `key`"),
        (
            r#"{"edge": {"source": "a", "kind": "k", "target": "b", "weight": 1}}"#,
            54,
            "weight",
        ),
        (
            r#"{"edge": {"source": "a", "kind": "k"}}"#,
            37,
            "missing field `target`",
        ),
        (
            r#"{"block": {"name": "a"}}"#,
            1,
            "neither `kind` nor `kinds`",
        ),
        (
            r#"{"block": {"name": "a", "kind": "k", "kinds": ["l"]}}"#,
            1,
            "not both",
        ),
        (
            r#"{"block": {"name": "a", "kinds": ["k", "l", "k"]}}"#,
            1,
            "\"k\" is listed twice",
        ),
        (
            r#"{"block": {"name": "a", "kinds": ["k", ""]}}"#,
            40,
            "1 to 256 bytes",
        ),
        (r#"{"key": null, "value": ""}"#, 9, "invalid type: null"),
        (
            r#"{"block": {"name": "a", "kind": "k", "attributes": {"n": 18446744073709551615}}}"#,
            77,
            "no integer of 64 bits",
        ),
        (
            r#"{"block": {"name": "a", "kind": "k", "attributes": {"n": "1", "n": "2"}}}"#,
            63,
            "duplicate field `n`",
        ),
        (
            r#"{"block": {"name": "a", "kind": "k", "attributes": []}}"#,
            52,
            "expected an object",
        ),
        // Values.
        (r#"{"key": "a", "value_base64": "?"}"#, 30, "not Base64"),
        (
            r#"{"block": {"id": "a", "kind": "k"}}"#,
            18,
            "expected a UUID",
        ),
        (
            r#"{"block": {"name": "", "kind": "k"}}"#,
            20,
            "the name is empty",
        ),
        (uuid_name.as_str(), 20, "put it into `id`"),
        (
            r#"{"edge": {"source": "", "kind": "k", "target": "b"}}"#,
            21,
            "reference is empty",
        ),
        (long_kind.as_str(), 34, "1 to 256 bytes, this one has 257"),
        // Combinations, reported for the whole object.
        ("  {}", 3, "nothing to import"),
        (r#"{"key": "a"}"#, 1, "the key has no value"),
        (r#"{"value": "a"}"#, 1, "the value has no key"),
        (r#"{"key": "", "value": "a"}"#, 1, "the key is empty"),
        (
            r#"{"key": "a", "key_base64": "", "value": ""}"#,
            1,
            "`key` and `key_base64`",
        ),
        (r#"{"block": {"kind": "k"}}"#, 1, "neither `id` nor `name`"),
        (
            r#"{"key": "a", "value": "", "block": {"name": "a", "kind": "k"}}"#,
            1,
            "several",
        ),
    ] {
        let (found, message) = parse_line(line.as_bytes()).expect_err(line);
        assert!(message.contains(part), "{line}: {message}");
        assert!(!message.contains("at line"), "{message}");
        assert_eq!(found, column, "{line}: {message}");
    }
    let (column, _) = parse_line(b"{\"key\": \"\xFF\"}").unwrap_err();
    assert!((9..=11).contains(&column), "{column}");
}

#[test]
fn both_id_and_name_is_refused() {
    let line = format!(r#"{{"block": {{"id": "{UUID}", "name": "a", "kind": "k"}}}}"#);
    let (column, message) = parse_line(line.as_bytes()).unwrap_err();
    assert_eq!(column, 1);
    assert!(message.contains("not both"), "{message}");
}

#[test]
fn deep_nesting_is_refused_without_overflowing_the_stack() {
    let line = format!(r#"{{"block": {}"#, "[".repeat(1 << 20));
    assert!(parse_line(line.as_bytes()).is_err());
}

#[test]
fn blank_lines_are_skipped_and_reading_goes_on_after_refusals() {
    let file = "\n{\"key\":\"a\",\"value\":\"1\"}\r\n \nx\n{\"key\":\"b\",\"value\":\"2\"}";
    let options = Options {
        line_max_bytes: Some(100),
        ..Options::default()
    };
    let file = format!(
        "{file}\n{}\n{{\"key\":\"c\",\"value\":\"3\"}}",
        "y".repeat(101)
    );
    let events: Vec<Event> = JsonLines::new(file.as_bytes(), &options)
        .collect::<Result<_, _>>()
        .unwrap();
    let lines: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Item { at, .. } => (at.line, true),
            Event::Refused(refusal) => (refusal.at.line, false),
        })
        .collect();
    assert_eq!(
        lines,
        [(2, true), (4, false), (5, true), (6, false), (7, true)]
    );
}
