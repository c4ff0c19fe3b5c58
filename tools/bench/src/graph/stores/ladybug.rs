//! LadybugDB, the maintained heir of Kuzu, through its Python module: a process that loads the graph with COPY and
//! answers line by line (`ladybug.py`, which tells what is timed).

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::graph_store::{Answers, Ask, GraphStore, LADYBUG, Question};
use crate::fallible::Fallible;
use crate::graph::Stage;

const SCRIPT: &str = include_str!("ladybug.py");
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
    numbers: Vec<u64>,
}

pub struct Ladybug {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    ready: Ready,
}

impl Ladybug {
    /// Starts the process, and waits until it has loaded the graph. The inner error says why it is left out.
    pub fn load(
        stage: &Stage,
        directory: &Path,
        python: &str,
    ) -> Fallible<Result<Ladybug, String>> {
        let directory = directory.join("ladybug");
        std::fs::create_dir(&directory)?;
        write_files(stage, &directory)?;
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
                _ => Err(format!("{LADYBUG} did not load the graph: see above").into()),
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

/// The vertices and the edges, for COPY.
fn write_files(stage: &Stage, directory: &Path) -> Fallible<()> {
    let mut vertices = BufWriter::new(File::create(directory.join("vertices.csv"))?);
    let mut edges = BufWriter::new(File::create(directory.join("edges.csv"))?);
    let arrays = &stage.plain.arrays;
    for near in 0..arrays.vertices() as u32 {
        writeln!(vertices, "{near}")?;
        for far in arrays.row(near) {
            writeln!(edges, "{near},{far}")?;
        }
    }
    vertices.flush()?;
    Ok(edges.flush()?)
}

impl GraphStore for Ladybug {
    fn name(&self) -> &'static str {
        LADYBUG
    }

    fn about(&self) -> String {
        format!(
            "{}, its Python module, prepared statements, one thread, a buffer pool of 1 GiB; times hold what Python \
             adds; the graph loaded by COPY in {:.1} s",
            self.ready.version, self.ready.load_s
        )
    }

    fn ask(&mut self, question: Question, batch: &[Ask]) -> Fallible<Answers> {
        let asked = json!({ "question": format!("{question:?}"), "batch": batch });
        let questions = self.questions.as_mut().ok_or("its process ended")?;
        writeln!(questions, "{asked}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let told: Reply = serde_json::from_str(&line)
            .map_err(|error| format!("{LADYBUG} gave no answer: {error}"))?;
        Ok(Answers {
            elapsed: Duration::from_nanos(told.ns),
            numbers: told.numbers,
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
