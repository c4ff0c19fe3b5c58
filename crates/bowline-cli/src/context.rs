//! The context of a run: its options and streams, and what commands do with them: open the directory, name the
//! cluster, print.

use std::io::{Read, Write};

use std::rc::Rc;
use std::time::Duration;

use bowline::text::line;
use bowline::{Db, DbBuilder, History};
use bowline_client::ReadLevel;

use crate::args::{Durability, Global, LoginAs, Output};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{Field, Printer};
use crate::remote::{Credentials, Remote};
use crate::session::{Directory, Session};
use crate::streams::Streams;

/// Where a cluster is looked for if nobody says.
const DEFAULT_ENDPOINT: &str = "127.0.0.1:2379";

/// What every command has at hand.
pub(crate) struct Context<'a, 's> {
    pub(crate) global: Global,
    pub(crate) streams: &'a mut Streams<'s>,
    /// The session that the command is a line of.
    pub(crate) session: Option<&'a Session>,
}

impl Context<'_, '_> {
    /// Opens an existing database in a directory.
    pub(crate) fn open(&self) -> Result<Directory, Failure> {
        self.refuse_a_cluster()?;
        self.open_by(builder().create(false))
    }

    fn refuse_a_cluster(&self) -> Result<(), Failure> {
        match self.is_remote() {
            true => Err(usage(
                "this command works on a directory: give --data-dir instead of --endpoints or BOWLINE_ENDPOINTS"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Opens the database to read it, as it is at this moment: also beside the process that has it open, and without
    /// a change of any file. A session reads by its own handle.
    pub(crate) fn open_to_read(&self) -> Result<Directory, Failure> {
        self.refuse_a_cluster()?;
        match self.session {
            Some(_) => self.open(),
            None => {
                let reader = builder().open_read_only(&self.global.data_dir)?;
                Ok(Directory::Read(reader))
            }
        }
    }

    /// Opens the database to write, creating it when there is none.
    pub(crate) fn open_to_write(&self, durability: Durability) -> Result<Directory, Failure> {
        if self.session.is_some() && durability != Durability::Sync {
            let text = "a session flushes every write: leave --durability out";
            return Err(usage(text.to_owned()));
        }
        self.open_by(with_durability(builder(), durability))
    }

    fn open_by(&self, builder: DbBuilder) -> Result<Directory, Failure> {
        let path = &self.global.data_dir;
        match self.session {
            Some(session) => session.open(builder, path),
            None => Ok(Directory::Owned(builder.open(path)?)),
        }
    }

    /// The cluster that the command line names.
    pub(crate) fn remote(&self, timeout: Duration) -> Result<Rc<Remote>, Failure> {
        self.remote_at(self.global.cluster.read, timeout)
    }

    /// The cluster that the command line names, read at a level.
    pub(crate) fn remote_at(
        &self,
        level: ReadLevel,
        timeout: Duration,
    ) -> Result<Rc<Remote>, Failure> {
        let (endpoints, credentials) = (self.endpoints(), self.credentials()?);
        match self.session {
            Some(session) => session.remote(endpoints, &credentials, level, timeout),
            None => {
                let remote = Remote::to(endpoints, &credentials, level, timeout)?;
                Ok(Rc::new(remote))
            }
        }
    }

    /// How the program shows who it is.
    pub(crate) fn credentials(&self) -> Result<Credentials, Failure> {
        Ok(Credentials {
            tls: self.global.cluster.tls.open()?,
            login: self.login(),
        })
    }

    /// The user to log in as.
    pub(crate) fn login(&self) -> Option<LoginAs> {
        self.global.cluster.login()
    }

    /// Whether the command line names a cluster.
    pub(crate) fn is_remote(&self) -> bool {
        !self.global.cluster.endpoints.is_empty()
    }

    /// Where the cluster is: this machine, if nobody says.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let given = &self.global.cluster.endpoints;
        if given.is_empty() {
            return vec![DEFAULT_ENDPOINT.to_owned()];
        }
        given.clone()
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
        let width = self.width();
        Printer::new(self.streams.stdout, self.global.output, hex).fitting(width)
    }

    /// How many columns a table may have; `None` is any number.
    fn width(&self) -> Option<usize> {
        match self.global.width {
            Some(columns) => Some(columns).filter(|columns| *columns > 0),
            None => self.streams.terminal.columns,
        }
    }

    /// Prints one result.
    pub(crate) fn record(&mut self, fields: &[(&str, Field)]) -> Result<(), Failure> {
        Ok(self.printer(false).record(fields)?)
    }

    /// Prints results of one shape, each as it comes.
    pub(crate) fn rows(
        &mut self,
        columns: &[&str],
        results: impl IntoIterator<Item = Result<Vec<Field>, Failure>>,
    ) -> Result<(), Failure> {
        let mut printer = self.printer(false);
        let mut rows = printer.rows(columns);
        for result in results {
            interrupt::check()?;
            rows.push(result?)?;
        }
        rows.finish()?;
        Ok(())
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
        if self.streams.terminal.is_input && !self.global.quiet {
            let text =
                "waiting for the value on the terminal; Ctrl-D at the start of a line ends it";
            writeln!(self.streams.stderr, "{text}")?;
            self.streams.stderr.flush()?;
        }
        let mut bytes = Vec::new();
        self.input()?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Standard input. A session that comes from a pipe has its lines there.
    pub(crate) fn input(&mut self) -> Result<Box<dyn Read + '_>, Failure> {
        if self.session.is_none() {
            return Ok(Box::new(&mut *self.streams.stdin));
        }
        if !self.streams.terminal.is_input {
            let text = "standard input has the lines of the session: name a file, or put the value on the line";
            return Err(usage(text.to_owned()));
        }
        Ok(Box::new(interrupt::Terminal(&mut *self.streams.stdin)))
    }
}

/// Settings of every command. The program does not know how much history the directory's owner
/// wants, so it gives none up by itself; `compact REVISION` does.
pub(crate) fn builder() -> DbBuilder {
    Db::builder().history(History::All)
}

fn with_durability(builder: DbBuilder, durability: Durability) -> DbBuilder {
    builder.durability(match durability {
        Durability::Sync => bowline::Durability::Sync,
        Durability::Batched { every } => bowline::Durability::Batched { every },
    })
}

/// How many, if there is a limit.
pub(crate) fn at_most(limit: Option<u64>) -> usize {
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// A number of things: `1 edge`, `2 edges`.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

pub(crate) fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

pub(crate) fn not_found(message: String) -> Failure {
    Failure::new(Exit::NotFound, message)
}
