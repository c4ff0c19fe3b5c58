//! The commands: each opens the directory, makes a few calls of the library, and prints.
//!
//! Commands that only read refuse a directory that does not exist; commands that write create it.

mod blocks;
mod cluster;
mod graph;
mod keys;
mod leases;
mod resolve;
mod serve;
mod tour;
mod transfer;
mod upkeep;

use std::io::BufRead;

use bowline::{Db, DbBuilder, History, Revision, Snapshot};

use crate::Streams;
use crate::args::{Cli, Command, Durability, Global, Output};
use crate::exit::{Exit, Failure};
use crate::output::Printer;

/// What every command has at hand.
pub(crate) struct Context<'a, 's> {
    global: Global,
    streams: &'a mut Streams<'s>,
}

/// Does what the command line says.
pub(crate) fn execute(cli: Cli, streams: &mut Streams<'_>) -> Result<(), Failure> {
    let mut context = Context {
        global: cli.global,
        streams,
    };
    let context = &mut context;
    match cli.command {
        Command::Put(args) => keys::put(context, &args),
        Command::Get(args) => keys::get(context, &args),
        Command::Del(args) => keys::del(context, &args),
        Command::Range(args) => keys::range(context, &args),
        Command::History(args) => keys::history(context, &args),
        Command::Watch(args) => keys::watch(context, &args),
        Command::Cas(args) => keys::cas(context, &args),
        Command::Lease(args) => leases::run(context, &args),
        Command::Block(args) => blocks::block(context, args),
        Command::Edge(args) => blocks::edge(context, args),
        Command::Graph(args) => graph::run(context, &args),
        Command::Import(args) => transfer::import(context, &args),
        Command::Export(args) => transfer::export(context, &args),
        Command::Compact(args) => upkeep::compact(context, &args),
        Command::Check => upkeep::check(context),
        Command::Stats => upkeep::stats(context),
        Command::Checkpoint(args) => upkeep::checkpoint(context, &args),
        Command::Serve(args) => serve::run(context, &args),
        Command::Cluster(args) => cluster::run(context, &args),
        Command::Tour(args) => tour::run(context, &args),
        Command::Completions(args) => upkeep::completions(context, &args),
    }
}

impl Context<'_, '_> {
    /// Opens an existing database.
    fn open(&self) -> Result<Db, Failure> {
        Ok(builder().create(false).open(&self.global.data_dir)?)
    }

    /// Opens the database to write, creating it when there is none.
    fn open_to_write(&self, durability: Durability) -> Result<Db, Failure> {
        Ok(with_durability(builder(), durability).open(&self.global.data_dir)?)
    }

    fn printer(&mut self, hex: bool) -> Printer<'_> {
        Printer::new(self.streams.stdout, self.global.output, hex)
    }

    /// A sentence for people: nothing in JSON or with `--quiet`.
    fn remark(&mut self, text: &str) -> Result<(), Failure> {
        if self.global.output == Output::Table && !self.global.quiet {
            writeln!(self.streams.stdout, "{text}")?;
        }
        Ok(())
    }

    /// All of standard input, for a value.
    fn read_input(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let input: &mut dyn BufRead = self.streams.stdin;
        input.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Settings of every command. The program does not know how much history the directory's owner
/// wants, so it gives none up by itself; `compact REVISION` does.
fn builder() -> DbBuilder {
    Db::builder().history(History::All)
}

fn with_durability(builder: DbBuilder, durability: Durability) -> DbBuilder {
    builder.durability(match durability {
        Durability::Sync => bowline::Durability::Sync,
        Durability::Batched { every } => bowline::Durability::Batched { every },
    })
}

/// The newest revision, or the one asked for.
fn snapshot(db: &Db, revision: Option<Revision>) -> Result<Snapshot, Failure> {
    match revision {
        Some(revision) => Ok(db.snapshot_at(revision)?),
        None => Ok(db.snapshot()),
    }
}

fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

fn not_found(message: String) -> Failure {
    Failure::new(Exit::NotFound, message)
}
