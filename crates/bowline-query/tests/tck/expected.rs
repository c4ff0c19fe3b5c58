//! The notation of expected values, and a canonical text in which expected and actual values are compared.

use std::collections::BTreeMap;

use bowline_query::{Properties, Value};

/// A value as a table writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    Plain(String),
    Text(String),
    List(Vec<Expected>),
    Map(BTreeMap<String, Expected>),
    Node(Vec<String>, BTreeMap<String, Expected>),
    Relationship(String, BTreeMap<String, Expected>),
    Path(String),
}

struct Reader<'t> {
    text: &'t str,
    lists_sorted: bool,
}

/// The canonical form of an expected value.
pub fn expected(text: &str, lists_sorted: bool) -> String {
    let mut reader = Reader { text, lists_sorted };
    let value = reader.value();
    reader.space();
    assert!(
        reader.text.is_empty(),
        "cannot read the expected value {text}"
    );
    canonical(&value, lists_sorted)
}

/// A value for a parameter or a procedure.
pub fn value(text: &str) -> Value {
    let mut reader = Reader {
        text,
        lists_sorted: false,
    };
    to_value(&reader.value())
}

fn to_value(expected: &Expected) -> Value {
    match expected {
        Expected::Plain(text) => match text.as_str() {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            number => match number.parse::<i64>() {
                Ok(int) => Value::Int(int),
                Err(_) => Value::Float(number.parse().unwrap()),
            },
        },
        Expected::Text(text) => Value::from(text.as_str()),
        Expected::List(list) => Value::list(list.iter().map(to_value).collect()),
        Expected::Map(map) => Value::map(
            map.iter()
                .map(|(key, value)| (key.as_str().into(), to_value(value)))
                .collect(),
        ),
        other => panic!("not a value of a parameter: {other:?}"),
    }
}

fn canonical(value: &Expected, sorted: bool) -> String {
    let map = |map: &BTreeMap<String, Expected>| {
        let entries: Vec<String> = map
            .iter()
            .map(|(key, value)| format!("{key}: {}", canonical(value, sorted)))
            .collect();
        format!("{{{}}}", entries.join(", "))
    };
    match value {
        Expected::Plain(text) => match text.parse::<f64>() {
            // Zero has one sign here.
            Ok(float) if text.parse::<i64>().is_err() => format!("{:?}", float + 0.0),
            _ => text.clone(),
        },
        Expected::Text(text) => format!("{text:?}"),
        Expected::List(list) => {
            let mut items: Vec<String> = list.iter().map(|item| canonical(item, sorted)).collect();
            if sorted {
                items.sort();
            }
            format!("[{}]", items.join(", "))
        }
        Expected::Map(entries) => map(entries),
        Expected::Node(labels, properties) => {
            let mut labels = labels.clone();
            labels.sort();
            format!("(:{} {})", labels.join(":"), map(properties))
        }
        Expected::Relationship(kind, properties) => format!("[:{kind} {}]", map(properties)),
        Expected::Path(text) => text.clone(),
    }
}

/// The canonical form of an actual value.
pub fn actual(value: &Value, sorted: bool) -> String {
    let map = |map: &Properties| {
        let entries: Vec<String> = map
            .iter()
            .map(|(key, value)| format!("{key}: {}", actual(value, sorted)))
            .collect();
        format!("{{{}}}", entries.join(", "))
    };
    let node = |node: &bowline_query::Node| match &node.record {
        Some(record) => {
            let labels: Vec<&str> = record.labels.iter().map(|label| &**label).collect();
            format!("(:{} {})", labels.join(":"), map(&record.properties))
        }
        None => "(: {})".into(),
    };
    let relationship = |relationship: &bowline_query::Relationship| {
        let properties = relationship
            .properties
            .as_ref()
            .map_or_else(|| "{}".into(), |p| map(p));
        format!("[:{} {properties}]", relationship.id.kind)
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) => value.to_string(),
        Value::Float(float) => format!("{:?}", float + 0.0),
        Value::Text(text) => format!("{text:?}"),
        Value::List(list) => {
            let mut items: Vec<String> = list.iter().map(|item| actual(item, sorted)).collect();
            if sorted {
                items.sort();
            }
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => map(entries),
        Value::Node(value) => node(value),
        Value::Relationship(value) => relationship(value),
        Value::Path(path) => {
            let mut text = format!("<{}", node(&path.nodes[0]));
            for (i, step) in path.relationships.iter().enumerate() {
                let forward = step.id.source == path.nodes[i].id;
                let (left, right) = if forward { ("-", "->") } else { ("<-", "-") };
                text.push_str(&format!(
                    "{left}{}{right}{}",
                    relationship(step),
                    node(&path.nodes[i + 1])
                ));
            }
            text + ">"
        }
        // A temporal value is written as its text.
        temporal => format!("{:?}", temporal.to_string().trim_matches('\'')),
    }
}

impl Reader<'_> {
    fn space(&mut self) {
        self.text = self.text.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        match self.text.strip_prefix(token) {
            Some(rest) => {
                self.text = rest;
                true
            }
            None => false,
        }
    }

    fn need(&mut self, token: &str) {
        assert!(
            self.eat(token),
            "`{token}` is missing before {:?}",
            self.text
        );
    }

    fn word(&mut self) -> String {
        self.space();
        if self.eat("`") {
            let (word, rest) = self.text.split_once('`').unwrap();
            self.text = rest;
            return word.to_owned();
        }
        let end = self
            .text
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+')))
            .unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        assert!(!word.is_empty(), "a word is missing before {:?}", self.text);
        self.text = rest;
        word.to_owned()
    }

    fn value(&mut self) -> Expected {
        self.space();
        match self.text.chars().next() {
            Some('\'') => self.string(),
            Some('{') => Expected::Map(self.map()),
            Some('(') => self.node(),
            Some('<') => self.path(),
            Some('[') if self.text[1..].trim_start().starts_with(':') => self.relationship(),
            Some('[') => {
                self.need("[");
                let mut items = Vec::new();
                while !self.eat("]") {
                    items.push(self.value());
                    self.eat(",");
                }
                Expected::List(items)
            }
            _ => Expected::Plain(self.word()),
        }
    }

    fn string(&mut self) -> Expected {
        self.need("'");
        let mut text = String::new();
        let mut chars = self.text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\'' => {
                    self.text = &self.text[at + 1..];
                    return Expected::Text(text);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(c) => text.push(c),
                    None => break,
                },
                c => text.push(c),
            }
        }
        panic!("a string without an end");
    }

    fn map(&mut self) -> BTreeMap<String, Expected> {
        self.need("{");
        let mut map = BTreeMap::new();
        while !self.eat("}") {
            let key = self.word();
            self.need(":");
            map.insert(key, self.value());
            self.eat(",");
        }
        map
    }

    fn properties(&mut self) -> BTreeMap<String, Expected> {
        self.space();
        if self.text.starts_with('{') {
            self.map()
        } else {
            BTreeMap::new()
        }
    }

    fn node(&mut self) -> Expected {
        self.need("(");
        let mut labels = Vec::new();
        while self.eat(":") {
            labels.push(self.word());
        }
        let properties = self.properties();
        self.need(")");
        Expected::Node(labels, properties)
    }

    fn relationship(&mut self) -> Expected {
        self.need("[");
        self.need(":");
        let kind = self.word();
        let properties = self.properties();
        self.need("]");
        Expected::Relationship(kind, properties)
    }

    fn path(&mut self) -> Expected {
        self.need("<");
        let first = self.node();
        let mut text = format!("<{}", canonical(&first, self.lists_sorted));
        while !self.eat(">") {
            let backward = self.eat("<-");
            if !backward {
                self.need("-");
            }
            let relationship = self.relationship();
            let relationship = canonical(&relationship, self.lists_sorted);
            if backward {
                self.need("-");
            } else {
                self.need("->");
            }
            let (left, right) = if backward { ("<-", "-") } else { ("-", "->") };
            let node = self.node();
            text.push_str(&format!(
                "{left}{relationship}{right}{}",
                canonical(&node, self.lists_sorted)
            ));
        }
        Expected::Path(text + ">")
    }
}
