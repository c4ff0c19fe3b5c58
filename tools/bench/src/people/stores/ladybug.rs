//! LadybugDB, the maintained heir of Kuzu, through its Python module: a process that loads the people with COPY and answers
//! line by line (`ladybug.py`, which tells what is timed).

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::{Answer, LADYBUG, PeopleStore};
use crate::fallible::Fallible;
use crate::people::data::People;
use crate::people::questions::Question;

const SCRIPT: &str = include_str!("../ladybug.py");
/// The script's exit code where the module is missing.
const MISSING: i32 = 3;

#[derive(Deserialize)]
struct Ready {
    version: String,
    load_s: f64,
}

#[derive(Deserialize)]
struct Reply {
    ns: u64,
    rows: Vec<Vec<String>>,
}

pub struct Ladybug {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    ready: Ready,
}

impl Ladybug {
    /// Starts the process, and waits until it has loaded the people. The inner error says why it is left out.
    pub fn load(
        people: &People,
        directory: &Path,
        python: &str,
    ) -> Fallible<Result<Ladybug, String>> {
        let directory = directory.join("people-ladybug");
        std::fs::create_dir(&directory)?;
        write_files(people, &directory)?;
        let started = Command::new(python)
            .args(["-c", SCRIPT])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("{LADYBUG}: skipped: {python}: {error}"))),
        };
        let questions = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        if line.is_empty() {
            return match child.wait()?.code() {
                Some(MISSING) => Ok(Err(format!(
                    "{LADYBUG}: skipped: {python} cannot import `ladybug` (python3 -m venv DIR; \
                     DIR/bin/pip install ladybug; --ladybug=DIR/bin/python3)"
                ))),
                _ => Err(format!("{LADYBUG} did not load the people: see above").into()),
            };
        }
        Ok(Ok(Ladybug {
            child,
            questions,
            answers,
            ready: serde_json::from_str(&line)?,
        }))
    }
}

/// A file for each table, for COPY.
fn write_files(people: &People, directory: &Path) -> Fallible<()> {
    let open = |name: &str| -> Fallible<BufWriter<File>> {
        let path = directory.join(format!("{name}.csv"));
        Ok(BufWriter::new(File::create(path)?))
    };
    let mut follows = open("FOLLOWS")?;
    let mut likes = open("HAS_INTEREST")?;
    let mut lives = open("LIVES_IN")?;
    let mut persons = open("Person")?;
    for (number, person) in people.people.iter().enumerate() {
        let (name, gender, age) = (&person.name, person.gender, person.age);
        writeln!(persons, "{number},{name},{gender},{age}")?;
        writeln!(lives, "{number},{}", person.city)?;
        for interest in &person.interests {
            writeln!(likes, "{number},{interest}")?;
        }
        for other in &person.follows {
            writeln!(follows, "{number},{other}")?;
        }
    }
    let mut within = open("CITY_IN")?;
    let mut cities = open("City")?;
    for (number, (name, state)) in people.cities.iter().enumerate() {
        writeln!(cities, "{number},{name}")?;
        writeln!(within, "{number},{state}")?;
    }
    let mut states_in = open("STATE_IN")?;
    let mut states = open("State")?;
    for (number, (name, country)) in people.states.iter().enumerate() {
        writeln!(states, "{number},{name}")?;
        writeln!(states_in, "{number},{country}")?;
    }
    let mut countries = open("Country")?;
    for (number, name) in people.countries.iter().enumerate() {
        writeln!(countries, "{number},{name}")?;
    }
    let mut interests = open("Interest")?;
    for (number, name) in people.interests.iter().enumerate() {
        writeln!(interests, "{number},{name}")?;
    }
    for mut file in [
        follows, likes, lives, persons, within, cities, states_in, states, countries, interests,
    ] {
        file.flush()?;
    }
    Ok(())
}

impl PeopleStore for Ladybug {
    fn name(&self) -> &'static str {
        LADYBUG
    }

    fn about(&self) -> String {
        format!(
            "{}, its Python module, prepared statements, one thread, a buffer pool of 1 GiB; times hold what Python \
             adds; loaded by COPY in {:.1} s",
            self.ready.version, self.ready.load_s
        )
    }

    fn ask(&mut self, question: &Question) -> Fallible<Answer> {
        let asked = json!({ "query": question.cypher });
        let questions = self.questions.as_mut().ok_or("its process ended")?;
        writeln!(questions, "{asked}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let told: Reply = serde_json::from_str(&line)
            .map_err(|error| format!("{LADYBUG} gave no answer: {error}"))?;
        Ok(Answer {
            elapsed: Duration::from_nanos(told.ns),
            rows: told.rows,
        })
    }
}

impl Drop for Ladybug {
    fn drop(&mut self) {
        // At the end of its input the process ends by itself.
        drop(self.questions.take());
        let _ = self.child.wait();
    }
}
