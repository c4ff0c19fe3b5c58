//! The arguments of `cert`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `bowline cert`.
#[derive(Debug, Subcommand)]
pub enum Cert {
    /// Make a CA: ca.crt, which everybody may have, and ca.key, which issues certificates
    #[command(after_help = "Examples:
  bowline cert ca
  bowline cert ca --dir pki --name 'our trial' --days 30")]
    Ca(CertCa),
    /// Issue a certificate for a server of clients: NAME.crt and NAME.key
    #[command(after_help = "Examples:
  bowline cert server --name server --host localhost,127.0.0.1
  bowline cert server --dir pki --name m1 --host m1.example.com,10.0.0.1")]
    Server(CertHost),
    /// Issue a certificate for a client; its name is the user's
    #[command(after_help = "Examples:
  bowline cert client --name alice")]
    Client(CertClient),
    /// Issue a certificate for a member, which is server and client of the others
    ///
    /// The hosts must be those of the member's peer URLs: others listen to a member only if its certificate is for one of
    /// them.
    #[command(after_help = "Examples:
  bowline cert peer --name m1-peer --host 10.0.0.1")]
    Peer(CertHost),
}

/// Where a certificate goes, and how long it is valid.
#[derive(Debug, Args)]
pub struct CertPlace {
    /// The directory of the CA and the certificates
    #[arg(long, value_name = "DIR", default_value = "pki", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
}

/// `bowline cert ca`.
#[derive(Debug, Args)]
pub struct CertCa {
    /// Where it goes.
    #[command(flatten)]
    pub place: CertPlace,
    /// The common name of the CA
    #[arg(long, value_name = "NAME", default_value = "Bowline trial CA")]
    pub name: String,
    /// How many days it is valid
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// `bowline cert server` and `peer`.
#[derive(Debug, Args)]
pub struct CertHost {
    /// The client's part, which every certificate has.
    #[command(flatten)]
    pub client: CertClient,
    /// Host names and addresses at which it is reached
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', required = true)]
    pub host: Vec<String>,
}

/// `bowline cert client`.
#[derive(Debug, Args)]
pub struct CertClient {
    /// Where it goes.
    #[command(flatten)]
    pub place: CertPlace,
    /// The common name, and the name of the files
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// How many days it is valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// A name that is the name of a file, too.
fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.@ ".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(is_plain) {
        return Err("expected letters, digits, and any of - _ . @".to_owned());
    }
    if text == "ca" {
        return Err("the files of the CA have this name: take another one".to_owned());
    }
    Ok(text.to_owned())
}
