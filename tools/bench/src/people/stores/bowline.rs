//! Bowline: loaded in bulk, indexes of what queries name, and a view of the edges.

use std::path::Path;
use std::time::{Duration, Instant};

use bowline::cypher::Parameters;
use bowline::{Block, BlockId, Db, Direction, Durability, Edge, Filter};

use super::{Answer, PeopleStore};
use crate::fallible::Fallible;
use crate::measure::check;
use crate::people::data::People;
use crate::people::questions::Question;
use crate::store::{BATCHED_EVERY, BOWLINE};
use crate::timing::time;

/// Numbers of the kinds of blocks, in their ids.
const PERSON: u128 = 1;
const CITY: u128 = 2;
const STATE: u128 = 3;
const COUNTRY: u128 = 4;
const INTEREST: u128 = 5;

fn id(kind: u128, number: usize) -> BlockId {
    BlockId(kind << 64 | number as u128)
}

pub struct Bowline {
    pub db: Db,
    load: Duration,
}

impl Bowline {
    pub fn load(people: &People, directory: &Path) -> Fallible<Bowline> {
        let builder = Db::builder().graph_view_bytes(1 << 30);
        let durability = Durability::Batched {
            every: BATCHED_EVERY,
        };
        let db = builder
            .durability(durability)
            .open(directory.join("people"))?;
        let (load, ()) = time(|| load(&db, people))?;
        Ok(Bowline { db, load })
    }

    /// The paths of two edges from a person, who is found by an index: by a query.
    pub fn two_hops_by_query(&self, person: i64) -> Fallible<u64> {
        let query = "MATCH (a:Person {id: $id})-[:FOLLOWS]->(b)-[:FOLLOWS]->(c) RETURN count(c)";
        let parameters = Parameters::from([("id".into(), person.into())]);
        let answer = self.db.snapshot().query(query, &parameters)?;
        Ok(answer.rows[0][0].to_string().parse()?)
    }

    /// The same by the library's calls.
    pub fn two_hops_by_calls(&self, person: i64) -> Fallible<u64> {
        let graph = self.db.snapshot().graph();
        let start = graph.blocks("Person").filter("id", Filter::equals(person));
        let (mut near, mut count) = (Vec::new(), 0);
        let kinds = ["FOLLOWS"];
        for id in start.ids()? {
            graph.visit_neighbors(id, Direction::Out, kinds, |found| near.push(found.id))?;
        }
        for id in near {
            graph.visit_neighbors(id, Direction::Out, kinds, |_| count += 1)?;
        }
        Ok(count)
    }
}

fn load(db: &Db, people: &People) -> Fallible<()> {
    let mut ingest = db.ingest_graph()?;
    let named = [
        (
            CITY,
            "City",
            "city",
            &people
                .cities
                .iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>(),
        ),
        (
            STATE,
            "State",
            "state",
            &people.states.iter().map(|(name, _)| name).collect(),
        ),
        (
            COUNTRY,
            "Country",
            "country",
            &people.countries.iter().collect(),
        ),
        (
            INTEREST,
            "Interest",
            "interest",
            &people.interests.iter().collect(),
        ),
    ];
    for (kind, label, attribute, names) in named {
        for (number, name) in names.iter().enumerate() {
            let block = Block::new(id(kind, number), label).attribute("id", number as i64);
            ingest.block(&block.attribute(attribute, name.as_str()))?;
        }
    }
    for (number, person) in people.people.iter().enumerate() {
        let block = Block::new(id(PERSON, number), "Person")
            .attribute("id", number as i64)
            .attribute("name", person.name.as_str())
            .attribute("gender", person.gender)
            .attribute("age", person.age);
        ingest.block(&block)?;
    }
    for (number, person) in people.people.iter().enumerate() {
        let from = id(PERSON, number);
        ingest.edge(&Edge::new(from, "LIVES_IN", id(CITY, person.city)))?;
        for interest in &person.interests {
            ingest.edge(&Edge::new(from, "HAS_INTEREST", id(INTEREST, *interest)))?;
        }
        for other in &person.follows {
            ingest.edge(&Edge::new(from, "FOLLOWS", id(PERSON, *other)))?;
        }
    }
    for (number, (_, state)) in people.cities.iter().enumerate() {
        ingest.edge(&Edge::new(id(CITY, number), "CITY_IN", id(STATE, *state)))?;
    }
    for (number, (_, country)) in people.states.iter().enumerate() {
        ingest.edge(&Edge::new(
            id(STATE, number),
            "STATE_IN",
            id(COUNTRY, *country),
        ))?;
    }
    ingest.commit()?;
    for (label, attribute) in [
        ("Person", "id"),
        ("City", "city"),
        ("Country", "country"),
        ("Interest", "interest"),
    ] {
        db.create_index(label, [attribute])?;
    }
    db.compact()?;
    check(db.build_graph_view()?, "the view was not built")
}

impl PeopleStore for Bowline {
    fn name(&self) -> &'static str {
        BOWLINE.name
    }

    fn about(&self) -> String {
        format!(
            "{}, default settings but for a view of up to 1 GiB, four indexes, plans kept by text; loaded in bulk, with \
             indexes and view, in {:.1} s",
            BOWLINE.version,
            self.load.as_secs_f64()
        )
    }

    fn ask(&mut self, question: &Question) -> Fallible<Answer> {
        let begun = Instant::now();
        let answer = self
            .db
            .snapshot()
            .query(question.cypher, &Parameters::new())?;
        let elapsed = begun.elapsed();
        let text = |value: &bowline::cypher::Value| match value {
            bowline::cypher::Value::Text(text) => text.to_string(),
            other => other.to_string(),
        };
        let rows = answer.rows.iter();
        let rows = rows.map(|row| row.iter().map(text).collect()).collect();
        Ok(Answer { elapsed, rows })
    }
}
