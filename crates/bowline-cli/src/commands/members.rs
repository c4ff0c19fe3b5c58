//! `member list`, `add`, `remove`, `promote`, `repair`, `update`, and `move-leader`.

use bowline_client::{Error, Member, MemberId, ReadLevel};

use crate::args::cluster::Member as Args;
use crate::context::{Context, not_found};
use crate::exit::Failure;
use crate::output::Field;
use crate::remote::{KEYS_TIMEOUT, Remote};

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Args) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    let members = match args {
        Args::List => remote.wait(remote.client.members(remote.level))?.members,
        Args::Add {
            peer_urls,
            learner,
            name,
        } => {
            let urls = peer_urls.iter().map(String::as_str);
            let added = if *learner {
                remote.wait(remote.client.add_learner(urls))?
            } else {
                remote.wait(remote.client.add_member(urls))?
            };
            let id = added.member.id;
            let name = name.clone().unwrap_or_else(|| name_before_start(id));
            let start = start_command(&name, &added.member, &added.members);
            context.remark(&format!("added {id}; start it with:\n\n{start}\n"))?;
            added.members
        }
        Args::Remove { id } => about(&remote, *id, remote.client.remove_member(*id))?.members,
        Args::Promote { id } => about(&remote, *id, remote.client.promote_member(*id))?.members,
        Args::Repair { id } => {
            about(&remote, *id, remote.client.repair_member(*id))?;
            context.remark(&format!(
                "member {id} replaces its data by the leader's; until it is done it refuses clients\n"
            ))?;
            remote.wait(remote.client.members(remote.level))?.members
        }
        Args::Update { id, peer_urls } => {
            let urls = peer_urls.iter().map(String::as_str);
            about(&remote, *id, remote.client.update_member(*id, urls))?.members
        }
    };
    let columns = &[
        "member",
        "name",
        "started",
        "learner",
        "peer_urls",
        "client_urls",
    ];
    let rows = members.into_iter().map(|member| {
        Ok(vec![
            member.id.to_string().into(),
            member.name.as_str().into(),
            Field::Flag(!member.name.is_empty()),
            Field::Flag(member.is_learner),
            Field::List(member.peer_urls),
            Field::List(member.client_urls),
        ])
    });
    context.rows(columns, rows)
}

/// Waits for the reply to a request about a member; says so where there is no such member.
fn about<T>(
    remote: &Remote,
    id: MemberId,
    request: impl Future<Output = bowline_client::Result<T>>,
) -> Result<T, Failure> {
    let error = match remote.outcome(request)? {
        Ok(reply) => return Ok(reply),
        Err(error) => error,
    };
    let is_missing = match error {
        Error::MemberNotFound => true,
        // It is said of what is no voter, and of what is no member.
        Error::BadTransferee => {
            let members = remote.wait(remote.client.members(ReadLevel::Linearizable))?;
            members.members.iter().all(|member| member.id != id)
        }
        _ => false,
    };
    if !is_missing {
        return Err(error.into());
    }
    Err(not_found(format!(
        "no member `{id}` in this cluster: `bowline member list` shows its members"
    )))
}

/// What a member is called that has not been started: it gives its name to the cluster when it starts.
fn name_before_start(id: MemberId) -> String {
    format!("member-{id}")
}

/// The command that starts a member that was added. It listens for clients on the port below that for members, as the
/// defaults do.
fn start_command(name: &str, added: &Member, members: &[Member]) -> String {
    let Member { id, peer_urls, .. } = added;
    let mut others: Vec<_> = members.iter().filter(|member| member.id != *id).collect();
    // The new member asks them in this order: those that can answer come first.
    others.sort_by_key(|member| member.name.is_empty());
    let others = others.into_iter().flat_map(|member| {
        // Members are told apart by their URLs: one that is started under another name is found all the same.
        let name = match member.name.is_empty() {
            true => name_before_start(member.id),
            false => member.name.clone(),
        };
        member
            .peer_urls
            .iter()
            .map(move |url| format!("{name}={url}"))
    });
    let own = peer_urls.iter().map(|url| format!("{name}={url}"));
    let cluster: Vec<_> = others.chain(own).collect();
    let is_https = |url: &String| url.starts_with("https://");
    let has_https_clients = members
        .iter()
        .any(|one| one.client_urls.iter().any(is_https));
    let client_scheme = if has_https_clients { "https" } else { "http" };
    let client_urls: Vec<_> = { peer_urls.iter() }
        .filter_map(|url| port_below(url))
        .filter_map(|url| Some(format!("{client_scheme}://{}", url.split_once("://")?.1)))
        .collect();
    let peers = peer_urls.join(",");
    let mut words = vec![
        format!("bowline serve --name {name} --data-dir ./{name}"),
        format!(
            "--initial-cluster-state existing --initial-cluster {}",
            cluster.join(",")
        ),
        format!("--listen-peer-urls {peers} --initial-advertise-peer-urls {peers}"),
    ];
    if !client_urls.is_empty() {
        words.push(format!("--listen-client-urls {}", client_urls.join(",")));
    }
    // Their names are the operator's.
    if peer_urls.iter().any(is_https) {
        words.push("--peer-cert-file CRT --peer-key-file KEY --peer-trusted-ca-file CA".to_owned());
    }
    if has_https_clients {
        words.push("--cert-file CRT --key-file KEY".to_owned());
    }
    words.join(" \\\n  ")
}

/// The URL with the port below; `None` where it names no port.
fn port_below(url: &str) -> Option<String> {
    let (host, port) = url.trim_end_matches('/').rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    Some(format!("{host}:{}", port.checked_sub(1)?))
}

pub(crate) fn move_leader(context: &mut Context<'_, '_>, id: MemberId) -> Result<(), Failure> {
    let remote = context.remote(KEYS_TIMEOUT)?;
    about(&remote, id, remote.client.move_leader(id))?;
    context.record(&[("leader", id.to_string().into())])
}
