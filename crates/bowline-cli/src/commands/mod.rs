//! The commands: each opens the directory, makes a few calls of the library, and prints.
//!
//! With `--endpoints`, [`crate::remote`] does them on a cluster instead.
//!
//! Commands that only read refuse a directory that does not exist; commands that write create it.

pub(crate) mod blocks;
mod cluster;
pub(crate) mod graph;
pub(crate) mod graph_reader;
mod heaps;
pub(crate) mod keys;
mod leases;
pub(crate) mod resolve;
pub(crate) mod restore;
mod serve;
mod tour;
pub(crate) mod transfer;
mod upkeep;

use std::io::{BufRead, Write};

use bowline::text::line;
use bowline::{Db, DbBuilder, History, Revision, Snapshot};

use crate::Streams;
use crate::args::{Cli, Command, Durability, Global, Output};
use crate::exit::{Exit, Failure};
use crate::output::Printer;
use crate::{bench, remote};

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
    if context.is_remote() && cli.command.is_of_database() {
        return remote::execute(context, &cli.command);
    }
    match cli.command {
        Command::Put(args) => keys::put(context, &args),
        Command::Get(args) => keys::get(context, &args),
        Command::Del(args) => keys::del(context, &args),
        Command::Range(args) => keys::range(context, &args),
        Command::History(args) => keys::history(context, &args),
        Command::Watch(args) => keys::watch(context, &args),
        Command::Cas(args) => keys::cas(context, &args),
        Command::Lease(args) => leases::run(context, &args),
        Command::Block(args) => blocks::block(context, &args),
        Command::Edge(args) => blocks::edge(context, &args),
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
        Command::Bench(args) => bench::run(context, &args),
        Command::Completions(args) => upkeep::completions(context, &args),
        Command::Remote(args) => remote::execute_cluster(context, &args),
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

    /// Whether the command line names a cluster.
    pub(crate) fn is_remote(&self) -> bool {
        !self.global.cluster.endpoints.is_empty()
    }

    /// Where the cluster is: this machine, if nobody says.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let given = &self.global.cluster.endpoints;
        if given.is_empty() {
            return vec![remote::DEFAULT_ENDPOINT.to_owned()];
        }
        given.clone()
    }

    pub(crate) fn read_level(&self) -> bowline_client::ReadLevel {
        self.global.cluster.read
    }

    /// How results are printed; `json` overrules the rest.
    pub(crate) fn output(&self, json: bool) -> Output {
        if json {
            Output::Json
        } else {
            self.global.output
        }
    }

    pub(crate) fn stdout(&mut self) -> &mut dyn Write {
        &mut *self.streams.stdout
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.global.quiet || self.global.output == Output::Json
    }

    pub(crate) fn printer(&mut self, hex: bool) -> Printer<'_> {
        Printer::new(self.streams.stdout, self.global.output, hex)
    }

    /// A sentence for people: nothing in JSON or with `--quiet`.
    pub(crate) fn remark(&mut self, text: &str) -> Result<(), Failure> {
        if self.global.output == Output::Table && !self.global.quiet {
            for one in text.split('\n') {
                writeln!(self.streams.stdout, "{}", line(one))?;
            }
        }
        Ok(())
    }

    /// All of standard input, for a value.
    pub(crate) fn read_input(&mut self) -> Result<Vec<u8>, Failure> {
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

pub(crate) fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

pub(crate) fn not_found(message: String) -> Failure {
    Failure::new(Exit::NotFound, message)
}
