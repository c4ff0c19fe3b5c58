//! `man`: the manual pages, one for each command, from the definitions that `--help` is made of.
//!
//! The pages depend on these definitions alone: no date and no path is in them, so that two builds of one commit write
//! the same bytes.

use std::fs;
use std::io;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{self, Cli};
use crate::exit::{Exit, Failure};

pub(crate) fn write(args: &args::Man) -> Result<(), Failure> {
    let directory = &args.directory;
    let refused =
        |what: &str, error: io::Error| Failure::new(Exit::Io, format!("cannot {what}: {error}"));
    fs::create_dir_all(directory)
        .map_err(|error| refused(&format!("create {}", directory.display()), error))?;
    for (name, page) in pages()? {
        let path = directory.join(name);
        fs::write(&path, page)
            .map_err(|error| refused(&format!("write {}", path.display()), error))?;
    }
    Ok(())
}

/// Every page with the name of its file.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut top = Cli::command().disable_help_subcommand(true);
    top.build();
    let mut pages = Vec::new();
    // A command and the command that it is a part of.
    let mut pending: Vec<(&clap::Command, Option<&clap::Command>)> = vec![(&top, None)];
    while let Some((command, parent)) = pending.pop() {
        let name = format!("{}.1", display_name(command));
        pages.push((name, page(command, parent)?));
        let parts = visible(command).map(|part| (part, Some(command)));
        pending.extend(parts);
    }
    Ok(pages)
}

fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|part| !part.is_hide_set())
}

/// `bowline-graph-reach`.
fn display_name(command: &clap::Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn page(command: &clap::Command, parent: Option<&clap::Command>) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        // None; an empty text would be left out, and those behind it would move up.
        .date(" ")
        .source(format!("Bowline {}", env!("CARGO_PKG_VERSION")))
        .manual("Bowline manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    // As `--help` has it: the generator lists every option in it, and none with its value.
    let usage = command.clone().render_usage().to_string();
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    synopsis.text([roman(usage.trim_start_matches("Usage: "))]);
    synopsis.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    if visible(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    let mut rest = Roff::new();
    if let Some(help) = command.get_after_help() {
        sections(&help.to_string(), &mut rest);
    }
    if let Some(parent) = parent {
        rest.control("SH", ["SEE ALSO"]);
        rest.text([bold(display_name(parent)), roman("(1)")]);
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// The end of a command's help: paragraphs, each below a line `Title:`. Their lines stay as they are.
fn sections(help: &str, page: &mut Roff) {
    for section in help.split("\n\n") {
        let (title, lines) = section.split_once('\n').unwrap_or((section, ""));
        page.control("SH", [title.trim_end_matches(':').to_uppercase().as_str()]);
        page.control("nf", []);
        for line in lines.lines() {
            page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        page.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_options_and_examples() {
        let pages: BTreeMap<_, _> = pages().unwrap().into_iter().collect();
        let page = |name: &str| String::from_utf8(pages[name].clone()).unwrap();
        let top = page("bowline.1");
        for part in [
            "bowline\\-graph(1)",
            "\n.SH EXAMPLES\n",
            "\n.SH \"EXIT CODES\"\n",
        ] {
            assert!(top.contains(part), "{part}: {top}");
        }
        let reach = page("bowline-graph-reach.1");
        for part in [
            "\\-\\-max\\-depth",
            "\n.SH SYNOPSIS\nbowline graph reach [OPTIONS] <BLOCK>\n",
            "\\fBbowline\\-graph\\fR(1)",
        ] {
            assert!(reach.contains(part), "{part}: {reach}");
        }
        // A flag of the server's own table of settings.
        let serve = page("bowline-serve.1");
        assert!(serve.contains("\\-\\-listen\\-client\\-urls"), "{serve}");
        assert!(pages.len() > 50, "{}", pages.len());
        assert!(!pages.contains_key("bowline-help.1"));
    }
}
