//! The arguments of the commands that only a cluster has.

use std::path::PathBuf;

use bowline::Revision;
use bowline_client::MemberId;
use clap::{Args, Subcommand};

use super::global::{CLUSTER, DIRECTORY, without};
use super::{Auth, Quota, RestoredDir, Role, User};

/// Commands that only a cluster has.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// List, add, remove, promote, repair and update members of a cluster
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline member list
  bowline member add http://10.0.0.4:2380 --learner
  bowline member promote 8e9e05c52164694d"
    )]
    Member(Member),
    /// Show status, health and hashes of endpoints
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline endpoint status
  bowline endpoint health --endpoints 10.0.0.1:2379,10.0.0.2:2379
  bowline endpoint hashkv"
    )]
    Endpoint(Endpoint),
    /// Move leadership to another member
    #[command(
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline move-leader 8e9e05c52164694d"
    )]
    MoveLeader {
        /// The new leader, in hexadecimal digits as `member list` shows it
        #[arg(value_parser = parse_id)]
        id: MemberId,
    },
    /// Save the database of a member to a file, and restore it from one
    #[command(
        subcommand,
        after_help = "Examples:
  bowline snapshot save backup.db
  bowline snapshot status backup.db
  bowline snapshot restore backup.db --data-dir ./restored"
    )]
    Snapshot(Snapshot),
    /// List and clear alarms
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline alarm list
  bowline alarm disarm"
    )]
    Alarm(Alarm),
    /// Enable and disable authentication, and show whether it is enabled
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline user add root
  bowline auth enable
  bowline auth status --user root"
    )]
    Auth(Auth),
    /// Add, delete, list and change users
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline user add ann
  bowline user grant-role ann workers
  bowline user passwd ann --user root"
    )]
    User(User),
    /// Add, delete, list and change roles: what users may do
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline role add workers
  bowline role grant workers readwrite jobs/ --prefix
  bowline role get workers"
    )]
    Role(Role),
    /// Limit what the keys that begin with a prefix may take, and show what they take
    #[command(
        subcommand,
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline quota set tenants/blue/ --keys 10000 --bytes 64MiB
  bowline quota list
  bowline quota remove tenants/blue/"
    )]
    Quota(Quota),
    /// Return the space of deleted entries to the disk, on each endpoint
    #[command(
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline defrag
  bowline defrag --endpoints 10.0.0.1:2379"
    )]
    Defrag,
}

/// `bowline member`.
#[derive(Debug, Subcommand)]
pub enum Member {
    /// List the members
    #[command(after_help = "Examples:
  bowline member list
  bowline -o json member list --read eventual")]
    List,
    /// Add a member, and print the command that starts it
    #[command(after_help = "Examples:
  bowline member add http://10.0.0.4:2380 --learner")]
    Add {
        /// The addresses at which other members reach it, as in http://10.0.0.4:2380
        #[arg(required = true, value_delimiter = ',', value_parser = parse_peer_url)]
        peer_urls: Vec<String>,
        /// Add it as a learner, which has no vote; `member promote` makes it a voter
        #[arg(long)]
        learner: bool,
        /// Its name in the command that is printed to start it; `member-ID` if absent
        #[arg(long)]
        name: Option<String>,
    },
    /// Remove a member
    #[command(after_help = "Examples:
  bowline member remove 8e9e05c52164694d")]
    Remove {
        /// The member, in hexadecimal digits as `member list` shows it
        #[arg(value_parser = parse_id)]
        id: MemberId,
    },
    /// Make a learner that has caught up a voter
    #[command(after_help = "Examples:
  bowline member promote 8e9e05c52164694d")]
    Promote {
        /// The member, in hexadecimal digits as `member list` shows it
        #[arg(value_parser = parse_id)]
        id: MemberId,
    },
    /// Replace the data of a member by that of the leader; its log, vote and id stay
    #[command(after_help = "Examples:
  bowline member repair 8e9e05c52164694d")]
    Repair {
        /// The member, in hexadecimal digits as `member list` shows it
        #[arg(value_parser = parse_id)]
        id: MemberId,
    },
    /// Change the peer URLs of a member
    #[command(after_help = "Examples:
  bowline member update 8e9e05c52164694d http://10.0.0.5:2380")]
    Update {
        /// The member, in hexadecimal digits as `member list` shows it
        #[arg(value_parser = parse_id)]
        id: MemberId,
        /// The addresses at which other members reach it, as in http://10.0.0.4:2380
        #[arg(required = true, value_delimiter = ',', value_parser = parse_peer_url)]
        peer_urls: Vec<String>,
    },
}

/// `bowline endpoint`.
#[derive(Debug, Subcommand)]
pub enum Endpoint {
    /// Show version, size, leader and log positions of each endpoint
    #[command(after_help = "Examples:
  bowline endpoint status
  bowline -o json endpoint status --cluster")]
    Status {
        /// Ask every member, not only the endpoints given
        #[arg(long)]
        cluster: bool,
    },
    /// Check whether each endpoint can commit; the exit code is 9 if one cannot
    #[command(after_help = "Examples:
  bowline endpoint health
  bowline endpoint health --cluster")]
    Health {
        /// Ask every member, not only the endpoints given
        #[arg(long)]
        cluster: bool,
    },
    /// Hash the keys of each endpoint: equal hashes of one revision mean equal keys
    #[command(after_help = "Examples:
  bowline endpoint hashkv
  bowline endpoint hashkv --rev 1000 --cluster")]
    Hashkv {
        /// As of this revision; as of the newest of the first endpoint if absent
        #[arg(long, value_name = "REVISION")]
        rev: Option<Revision>,
        /// Ask every member, not only the endpoints given
        #[arg(long)]
        cluster: bool,
    },
}

/// `bowline snapshot`.
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Save the database of a member to a file, and verify it
    #[command(
        args = without(&[DIRECTORY]),
        after_help = "Examples:
  bowline snapshot save backup.db
  bowline snapshot save backup.db --endpoints 10.0.0.1:2379"
    )]
    Save {
        /// The file; it appears under this name once it is complete
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Verify a file, and show its contents
    #[command(
        args = without(&[DIRECTORY, CLUSTER]),
        after_help = "Examples:
  bowline snapshot status backup.db
  bowline -o json snapshot status backup.db"
    )]
    Status {
        /// The file
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Make the directory of a new cluster's member from a file
    ///
    /// The new cluster has the revision, the history and the leases of the file, and nothing of the
    /// members of the old one. For a cluster of several members, restore the same file for each of
    /// them, with the same --initial-cluster and --initial-cluster-token; then serve each directory.
    /// Without --data-dir the directory is NAME.bowline, as it is for `serve`.
    #[command(
        args = without(&[CLUSTER]),
        after_help = "Examples:
  bowline snapshot restore backup.db --data-dir ./restored
  bowline snapshot restore backup.db --name a --data-dir ./a --initial-advertise-peer-urls \
http://10.0.0.1:2380 --initial-cluster a=http://10.0.0.1:2380,b=http://10.0.0.2:2380"
    )]
    Restore(Restore),
}

/// `bowline snapshot restore`. The settings are those of the server, with its defaults.
#[derive(Debug, Args)]
pub struct Restore {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// The name of this member [default: default]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// All members of the new cluster [default: this one]
    #[arg(long, value_name = "NAME=URL,...")]
    pub initial_cluster: Option<String>,
    /// Addresses at which other members reach this one [default: http://localhost:2380]
    #[arg(long, value_name = "URLS")]
    pub initial_advertise_peer_urls: Option<String>,
    /// Distinguishes clusters that are made of the same file and addresses [default: bowline-cluster]
    #[arg(long, value_name = "TOKEN")]
    pub initial_cluster_token: Option<String>,
    /// The directory to create.
    #[command(flatten)]
    pub data_dir: RestoredDir,
}

/// `bowline alarm`.
#[derive(Debug, Subcommand)]
pub enum Alarm {
    /// List raised alarms
    #[command(after_help = "Examples:
  bowline alarm list")]
    List,
    /// Clear all alarms
    #[command(after_help = "Examples:
  bowline alarm disarm")]
    Disarm,
}

/// A member's number, in hexadecimal digits.
fn parse_id(text: &str) -> Result<MemberId, String> {
    text.parse().map_err(|_| {
        "expected up to 16 hexadecimal digits, as `bowline member list` shows them".to_owned()
    })
}

/// Reads the URL of a member for other members. A cluster would wait for one that it cannot reach.
fn parse_peer_url(text: &str) -> Result<String, String> {
    let rest = { text.strip_prefix("http://") }.or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() => Ok(text.to_owned()),
        _ => Err("peer URLs must start with http:// or https://".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_reached_by_http_or_https() {
        for text in ["http://a:1", "https://a:1"] {
            assert_eq!(parse_peer_url(text), Ok(text.to_owned()));
        }
        for text in ["ftp://a:1", "a:1", "http://", "https://", ""] {
            assert!(parse_peer_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn members_are_named_in_hexadecimal() {
        let id = MemberId::new(0x8e9e_05c5_2164_694d);
        assert_eq!(parse_id("8e9e05c52164694d"), Ok(id));
        assert_eq!(parse_id("0x10"), Ok(MemberId::new(16)));
        for text in ["", "g", "8e9e05c52164694d0", "-1"] {
            assert!(parse_id(text).is_err(), "{text}");
        }
    }
}
