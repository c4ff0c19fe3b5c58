//! The people, where they live, what they like and whom they follow: as large as the generated graph of prrao87's
//! comparison of graph databases (100,000 people, 2.4 million edges), with its kinds and attributes.
//!
//! Ages, genders, places and interests are drawn alike; of whom somebody follows a third are well known, so that degrees differ.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::data::SEED;

/// How many each follows.
const FOLLOWS: usize = 24;
const WELL_KNOWN: usize = 500;
const CITIES: usize = 7_117;
const STATES: usize = 273;
/// The first ones are asked for.
const COUNTRIES: [&str; 3] = ["United States", "United Kingdom", "Canada"];
const INTERESTS: [&str; 3] = ["fine dining", "tennis", "photography"];
const INTERESTS_COUNT: usize = 41;

pub struct Person {
    pub name: String,
    pub gender: &'static str,
    pub age: i64,
    pub city: usize,
    pub interests: BTreeSet<usize>,
    pub follows: BTreeSet<usize>,
}

/// Each is numbered by its place.
pub struct People {
    pub people: Vec<Person>,
    /// Names, and the numbers of their states.
    pub cities: Vec<(String, usize)>,
    /// Names, and the numbers of their countries.
    pub states: Vec<(String, usize)>,
    pub countries: Vec<String>,
    pub interests: Vec<String>,
}

impl People {
    pub fn generate(count: usize) -> People {
        let mut rng = Rng::with_seed(SEED);
        let interest = |number: usize| match INTERESTS.get(number) {
            Some(name) => (*name).to_owned(),
            None => format!("interest {number}"),
        };
        let people = (0..count).map(|number| {
            let interests = (0..rng.usize(1..5)).map(|_| rng.usize(..INTERESTS_COUNT));
            let interests = interests.collect();
            let mut follows = BTreeSet::new();
            while follows.len() < FOLLOWS.min(count / 2) {
                let other = match rng.u8(..3) {
                    // The smaller the number, the better known.
                    0 => {
                        let last = rng.usize(..WELL_KNOWN.min(count));
                        rng.usize(..=last)
                    }
                    _ => rng.usize(..count),
                };
                if other != number {
                    follows.insert(other);
                }
            }
            Person {
                name: format!("Person {number}"),
                gender: ["female", "male"][rng.usize(..2)],
                age: rng.i64(18..66),
                city: rng.usize(..CITIES.min(count)),
                interests,
                follows,
            }
        });
        let people = people.collect();
        let cities = (0..CITIES.min(count)).map(|city| (format!("City {city}"), city % STATES));
        let states = (0..STATES).map(|state| (format!("State {state}"), state % COUNTRIES.len()));
        People {
            people,
            cities: cities.collect(),
            states: states.collect(),
            countries: COUNTRIES.map(str::to_owned).to_vec(),
            interests: (0..INTERESTS_COUNT).map(interest).collect(),
        }
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        let of = |person: &Person| person.follows.len() + person.interests.len() + 1;
        self.people.iter().map(of).sum::<usize>() + self.cities.len() + self.states.len()
    }
}
