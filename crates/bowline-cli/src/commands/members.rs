//! `member list`, `add`, `remove`, `promote`, `update`, and `move-leader`.

use crate::args::cluster::Member as Args;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::Field;
use crate::store::remote::{KEYS_TIMEOUT, Remote};

/// A member's number as it is written: in hexadecimal, as etcd's tools do.
pub(super) fn member_id(id: u64) -> String {
    format!("{id:x}")
}

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Args) -> Result<(), Failure> {
    let remote = Remote::of(context, KEYS_TIMEOUT)?;
    let members = match args {
        Args::List => remote.wait(remote.client.members(remote.level))?.members,
        Args::Add { peer_urls, learner } => {
            let urls = peer_urls.iter().map(String::as_str);
            let added = if *learner {
                remote.wait(remote.client.add_learner(urls))?
            } else {
                remote.wait(remote.client.add_member(urls))?
            };
            let id = member_id(added.member.id);
            context.remark(&format!("added {id}; now start it"))?;
            added.members
        }
        Args::Remove { id } => remote.wait(remote.client.remove_member(*id))?.members,
        Args::Promote { id } => remote.wait(remote.client.promote_member(*id))?.members,
        Args::Update { id, peer_urls } => {
            let urls = peer_urls.iter().map(String::as_str);
            remote.wait(remote.client.update_member(*id, urls))?.members
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
            member_id(member.id).into(),
            member.name.as_str().into(),
            Field::Flag(!member.name.is_empty()),
            Field::Flag(member.is_learner),
            Field::List(member.peer_urls),
            Field::List(member.client_urls),
        ])
    });
    context.rows(columns, rows)
}

pub(crate) fn move_leader(context: &mut Context<'_, '_>, id: u64) -> Result<(), Failure> {
    let remote = Remote::of(context, KEYS_TIMEOUT)?;
    remote.wait(remote.client.move_leader(id))?;
    context.record(&[("leader", member_id(id).into())])
}
