//! The options with which a command goes to a cluster instead of a directory, and which of the options of every command
//! the help of a command leaves out.

use std::path::PathBuf;

use bowline_client::ReadLevel;
use bowline_client::tls::{ClientOptions, ClientTls, KeyPairFiles};
use clap::{Arg, Args, Command};

use super::{Global, Hidden, name_and_password};
use crate::exit::{Exit, Failure};

/// Options that name a directory.
pub(super) const DIRECTORY: &[&str] = &["data_dir"];
/// Options that name a cluster.
pub(super) const CLUSTER: &[&str] = &[
    "endpoints",
    "read",
    "login_user",
    "login_password",
    "cacert",
    "tls_cert",
    "tls_key",
    "insecure_skip_tls_verify",
    "tls_server_name",
];
/// Options that say how results are printed.
pub(super) const PRINTED: &[&str] = &["output", "quiet", "width"];

/// Options of every command that have no meaning for one command. They stand in the place of those of every command,
/// and its help does not show them. They are taken all the same, so that a command can say why it refuses them.
pub(super) fn without(groups: &[&[&str]]) -> Vec<Arg> {
    let every = Global::augment_args(Command::new("bowline"));
    let is_left_out = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        groups.iter().any(|group| group.contains(&id))
    };
    let found = every.get_arguments().filter(is_left_out);
    found.map(|argument| argument.clone().hide(true)).collect()
}

/// Which cluster, and how it is read.
#[derive(Debug, Clone, Args)]
pub struct ClusterOptions {
    /// Work on the cluster at these addresses instead of on a directory
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_ENDPOINTS",
        value_delimiter = ',',
        value_name = "HOST:PORT,..."
    )]
    pub endpoints: Vec<String>,
    /// How fresh reads of a cluster are: linearizable, lease or eventual
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        default_value_t = ReadLevel::Linearizable,
        value_name = "LEVEL"
    )]
    pub read: ReadLevel,
    /// Log in to the cluster as this user; the password is asked for if it is given nowhere
    // Commands have users and passwords of their own.
    #[arg(
        id = "login_user",
        long = "user",
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_USER",
        hide_env_values = true,
        value_name = "NAME[:PASSWORD]"
    )]
    pub user: Option<Hidden>,
    /// The password of the user; others on this machine can see it, so the environment is the better place
    #[arg(
        id = "login_password",
        long = "password",
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_PASSWORD",
        hide_env_values = true,
        value_name = "PASSWORD"
    )]
    pub password: Option<Hidden>,
    /// The certificates of the connection.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// The certificates of connections to a cluster. The names are those of etcdctl.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TlsOptions {
    /// CA certificates that verify the servers of https endpoints [default: those of this system]
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_CACERT",
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath
    )]
    pub cacert: Option<PathBuf>,
    /// Certificate to show to servers that ask for one; it needs --key
    #[arg(
        id = "tls_cert",
        long = "cert",
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_CERT",
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath
    )]
    pub cert: Option<PathBuf>,
    /// Private key of --cert, which only its owner may read
    #[arg(
        id = "tls_key",
        long = "key",
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_KEY",
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath
    )]
    pub key: Option<PathBuf>,
    /// Take every certificate of a server: anybody may be at the other end
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_INSECURE_SKIP_TLS_VERIFY"
    )]
    pub insecure_skip_tls_verify: bool,
    /// Name that the server's certificate must be for, instead of the endpoint's host
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        env = "BOWLINE_TLS_SERVER_NAME",
        value_name = "NAME"
    )]
    pub tls_server_name: Option<String>,
}

impl TlsOptions {
    /// The certificates, if the command line names any.
    pub(crate) fn open(&self) -> Result<Option<ClientTls>, Failure> {
        if *self == TlsOptions::default() {
            return Ok(None);
        }
        let invalid = |text: String| Failure::new(Exit::Usage, text);
        let key_pair = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Some(KeyPairFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            (None, None) => None,
            (Some(_), None) => return Err(invalid("--cert needs --key".to_owned())),
            (None, Some(_)) => return Err(invalid("--key needs --cert".to_owned())),
        };
        let tls = ClientTls::new(ClientOptions {
            trusted_ca: self.cacert.clone(),
            key_pair,
            server_name: self.tls_server_name.clone(),
            insecure_skip_verify: self.insecure_skip_tls_verify,
            ..ClientOptions::default()
        });
        tls.map(Some)
            .map_err(|error| Failure::new(Exit::Invalid, error.to_string()))
    }
}

/// The user that a command logs in as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginAs {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Hidden,
}

impl ClusterOptions {
    /// The user who is given, with the password, if that is given, too. With a password of its own, all of the user's text
    /// is the name, as in etcdctl.
    pub(crate) fn given_user(&self) -> Option<(&str, Option<Hidden>)> {
        let user = self.user.as_ref()?.reveal();
        Some(match &self.password {
            Some(password) => (user, Some(password.clone())),
            None => name_and_password(user),
        })
    }

    /// The user to log in as; `None` where none is given, or no password.
    pub(crate) fn login(&self) -> Option<LoginAs> {
        let (name, password) = self.given_user()?;
        Some(LoginAs {
            name: name.to_owned(),
            password: password?,
        })
    }
}
