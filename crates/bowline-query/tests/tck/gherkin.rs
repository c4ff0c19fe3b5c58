//! A reader of the part of Gherkin that the TCK uses: scenarios, outlines with examples, texts and tables.

/// A scenario with its examples filled in.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub name: String,
    pub steps: Vec<Step>,
}

/// A step: its sentence without the keyword, and what follows it.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub sentence: String,
    pub text: Option<String>,
    pub table: Vec<Vec<String>>,
}

/// Stands for the steps that begin every scenario of a file.
const BACKGROUND: &str = "Background";

/// All scenarios of a file.
pub fn read(file: &str) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let mut background = Vec::new();
    let mut current: Option<Scenario> = None;
    let mut examples: Option<Vec<Vec<String>>> = None;
    let mut lines = file.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.is_empty()
            || line.starts_with('#')
            || line.starts_with('@')
            || line.starts_with("Feature:")
        {
            continue;
        }
        if let Some(name) = line
            .strip_prefix("Scenario Outline:")
            .or_else(|| line.strip_prefix("Scenario:"))
        {
            match current.take() {
                Some(before) if before.name == BACKGROUND => background = before.steps,
                before => finish(&mut scenarios, before, examples.take()),
            }
            current = Some(Scenario {
                name: name.trim().to_owned(),
                steps: background.clone(),
            });
        } else if line.starts_with("Background:") {
            current = Some(Scenario {
                name: BACKGROUND.to_owned(),
                steps: Vec::new(),
            });
        } else if line.starts_with("Examples:") {
            examples.get_or_insert_with(Vec::new);
        } else if line.starts_with('|') {
            let row = cells(line);
            match (&mut examples, &mut current) {
                (Some(examples), _) => examples.push(row),
                (None, Some(scenario)) => {
                    scenario
                        .steps
                        .last_mut()
                        .expect("a table follows a step")
                        .table
                        .push(row);
                }
                (None, None) => panic!("a table outside of a scenario: {line}"),
            }
        } else if line == "\"\"\"" {
            let mut text = String::new();
            for line in lines.by_ref() {
                if line.trim() == "\"\"\"" {
                    break;
                }
                text.push_str(line.strip_prefix("      ").unwrap_or(line));
                text.push('\n');
            }
            let scenario = current.as_mut().expect("a text belongs to a scenario");
            scenario
                .steps
                .last_mut()
                .expect("a text follows a step")
                .text = Some(text);
        } else {
            let sentence = ["Given ", "When ", "Then ", "And ", "But "]
                .iter()
                .find_map(|keyword| line.strip_prefix(keyword))
                .unwrap_or_else(|| panic!("not a step: {line}"));
            let step = Step {
                sentence: sentence.trim().to_owned(),
                ..Step::default()
            };
            current
                .as_mut()
                .expect("a step belongs to a scenario")
                .steps
                .push(step);
        }
    }
    finish(&mut scenarios, current, examples);
    scenarios
}

fn finish(
    scenarios: &mut Vec<Scenario>,
    scenario: Option<Scenario>,
    examples: Option<Vec<Vec<String>>>,
) {
    let Some(scenario) = scenario else {
        return;
    };
    let Some(examples) = examples else {
        scenarios.push(scenario);
        return;
    };
    let mut rows = examples.into_iter();
    let header = rows.next().unwrap_or_default();
    for (number, row) in rows.enumerate() {
        let fill = |text: &str| {
            header
                .iter()
                .zip(&row)
                .fold(text.to_owned(), |text, (name, value)| {
                    text.replace(&format!("<{name}>"), value)
                })
        };
        let steps = scenario.steps.iter().map(|step| Step {
            sentence: fill(&step.sentence),
            text: step.text.as_deref().map(fill),
            table: step
                .table
                .iter()
                .map(|row| row.iter().map(|cell| fill(cell)).collect())
                .collect(),
        });
        scenarios.push(Scenario {
            name: format!("{} #{}", scenario.name, number + 1),
            steps: steps.collect(),
        });
    }
}

/// The cells of a row of a table. A backslash escapes a bar, a backslash and the `n` of a new line.
fn cells(line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut chars = line.trim().chars().skip(1).peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('|', _) => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            ('\\', Some('|')) => cell.extend(chars.next()),
            ('\\', Some('\\')) => cell.extend(chars.next()),
            ('\\', Some('n')) => {
                chars.next();
                cell.push('\n');
            }
            (c, _) => cell.push(c),
        }
    }
    cells
}
