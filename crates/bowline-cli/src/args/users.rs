//! The arguments of the commands about users, roles and authentication, and the texts that nothing shows.

use std::fmt;
use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::Encoding;

/// A text that no output shows: a password, or a name with one.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// The text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Hidden {
    fn from(text: String) -> Hidden {
        Hidden(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// A name, and the password that stands after the first colon, if there is one.
pub(crate) fn name_and_password(text: &str) -> (&str, Option<Hidden>) {
    match text.split_once(':') {
        Some((name, password)) => (name, Some(password.to_owned().into())),
        None => (text, None),
    }
}

/// `bowline auth`.
#[derive(Debug, Subcommand)]
pub enum Auth {
    /// Enable authentication: servers answer users only
    ///
    /// There must be a user `root`; it gets the role `root` if it does not have it.
    #[command(after_help = "Examples:
  bowline user add root
  bowline auth enable")]
    Enable,
    /// Disable authentication; users and roles stay
    #[command(after_help = "Examples:
  bowline --user root auth disable")]
    Disable,
    /// Show whether authentication is enabled
    #[command(after_help = "Examples:
  bowline auth status
  bowline -o json auth status --user root")]
    Status,
}

/// Where a new password comes from: the terminal, unless an option says otherwise.
#[derive(Debug, Clone, Args)]
pub struct NewPassword {
    /// Read the new password from this file, without the end of its line
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub new_password_file: Option<PathBuf>,
    /// With `false`, read the new password from standard input instead of asking for it twice
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        conflicts_with = "new_password_file"
    )]
    pub interactive: bool,
}

/// `bowline user`.
#[derive(Debug, Subcommand)]
pub enum User {
    /// Add a user, and ask for its password
    #[command(after_help = "Examples:
  bowline user add ann
  bowline user add ann --new-password-file ann.txt
  bowline user add ann --interactive=false < ann.txt
  bowline user add service --no-password")]
    Add {
        /// The name; what follows a colon is the password, which others on this machine can see then
        #[arg(value_name = "NAME[:PASSWORD]")]
        user: Hidden,
        /// Add a user without a password, which cannot log in
        #[arg(long, conflicts_with_all = ["new_password_file", "interactive"])]
        no_password: bool,
        /// Where the password comes from.
        #[command(flatten)]
        password: NewPassword,
    },
    /// Delete a user; its logins end
    #[command(
        visible_alias = "del",
        after_help = "Examples:
  bowline user delete ann"
    )]
    Delete {
        /// The name
        name: String,
    },
    /// List the names of all users
    #[command(after_help = "Examples:
  bowline user list
  bowline -o json user list")]
    List,
    /// Show the roles of a user
    #[command(after_help = "Examples:
  bowline user get ann")]
    Get {
        /// The name
        name: String,
    },
    /// Give a user another password; its logins end
    #[command(after_help = "Examples:
  bowline user passwd ann
  bowline user passwd ann --new-password-file ann.txt")]
    Passwd {
        /// The name
        name: String,
        /// Where the password comes from.
        #[command(flatten)]
        password: NewPassword,
    },
    /// Give a user a role
    #[command(after_help = "Examples:
  bowline user grant-role ann workers")]
    GrantRole {
        /// The name of the user
        user: String,
        /// The name of the role
        role: String,
    },
    /// Take a role from a user
    #[command(after_help = "Examples:
  bowline user revoke-role ann workers")]
    RevokeRole {
        /// The name of the user
        user: String,
        /// The name of the role
        role: String,
    },
}

/// What a permission allows, in the words of etcdctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Allowed {
    /// To read
    Read,
    /// To write and to delete
    Write,
    /// Both
    ReadWrite,
}

/// The keys of a permission.
#[derive(Debug, Args)]
pub struct Keys {
    /// The key, the first key of a range, or the prefix with --prefix
    #[arg(required_unless_present = "kind")]
    pub key: Option<String>,
    /// The key to stop before; KEY alone if absent
    #[arg(conflicts_with_all = ["prefix", "from_key"])]
    pub range_end: Option<String>,
    /// Every key that starts with KEY
    #[arg(long, conflicts_with = "from_key")]
    pub prefix: bool,
    /// Every key from KEY on
    #[arg(long)]
    pub from_key: bool,
    /// In place of keys: the blocks and edges of all kinds that start with PREFIX; '' for all of them
    #[arg(
        long,
        value_name = "PREFIX",
        conflicts_with_all = ["key", "range_end", "prefix", "from_key", "hex"]
    )]
    pub kind: Option<String>,
    /// How the keys are written.
    #[command(flatten)]
    pub encoding: Encoding,
}

/// `bowline role`.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Add a role, without permissions
    #[command(after_help = "Examples:
  bowline role add workers")]
    Add {
        /// The name
        name: String,
    },
    /// Delete a role; every user loses it
    #[command(
        visible_alias = "del",
        after_help = "Examples:
  bowline role delete workers"
    )]
    Delete {
        /// The name
        name: String,
    },
    /// List the names of all roles
    #[command(after_help = "Examples:
  bowline role list
  bowline -o json role list")]
    List,
    /// Show the permissions of a role
    #[command(after_help = "Examples:
  bowline role get workers
  bowline -o json role get workers --hex")]
    Get {
        /// The name
        name: String,
        /// How the keys are shown.
        #[command(flatten)]
        encoding: Encoding,
    },
    /// Give a role a permission on a key, a range, a prefix, or kinds of the graph
    ///
    /// A permission for the same keys or kinds is replaced.
    #[command(
        visible_alias = "grant-permission",
        after_help = "Examples:
  bowline role grant workers readwrite jobs/ --prefix
  bowline role grant workers read leader
  bowline role grant workers write a m
  bowline role grant auditors read '' --prefix
  bowline role grant workers readwrite --kind service"
    )]
    Grant {
        /// The name of the role
        role: String,
        /// What it allows
        #[arg(value_enum, value_name = "ACCESS")]
        allowed: Allowed,
        /// On which keys.
        #[command(flatten)]
        keys: Keys,
    },
    /// Take a permission from a role, given as it was granted
    #[command(
        visible_alias = "revoke-permission",
        after_help = "Examples:
  bowline role revoke workers jobs/ --prefix
  bowline role revoke workers leader
  bowline role revoke workers a m
  bowline role revoke workers --kind service"
    )]
    Revoke {
        /// The name of the role
        role: String,
        /// On which keys.
        #[command(flatten)]
        keys: Keys,
    },
}
