//! The addresses of messages: cluster, member and incarnation of the sender and of the target.

use bowline_proto::peer as wire;
use tonic::Status;

use crate::types::NodeId;

/// Refuses a sender of another cluster; returns its member id. With `is_stranger_welcome` the sender need not
/// know the cluster yet.
pub(super) fn check_sender(
    sender: Option<wire::Sender>,
    cluster_id: u64,
    is_stranger_welcome: bool,
) -> Result<NodeId, Status> {
    let sender = sender
        .ok_or_else(|| Status::invalid_argument("a malformed message of a peer: no sender"))?;
    if sender.cluster_id == cluster_id || (is_stranger_welcome && sender.cluster_id == 0) {
        return Ok(sender.member_id);
    }
    Err(Status::failed_precondition(format!(
        "member {:016x} means cluster {:016x}, this is a member of cluster {cluster_id:016x}: \
         check the peer URLs of both",
        sender.member_id, sender.cluster_id,
    )))
}

/// Refuses a message that is not for `own`, or whose sender has another incarnation than the membership says;
/// see `Peers`. `agreed` is that incarnation, if the sender is a known member.
pub(super) fn check_addresses(
    sender: &wire::Sender,
    own: &wire::Sender,
    agreed: Option<u64>,
) -> Result<(), Status> {
    let (target, target_incarnation) = (sender.target_id, sender.target_incarnation);
    if (target, target_incarnation) != (own.member_id, own.incarnation) {
        return Err(Status::failed_precondition(format!(
            "a message for member {target:016x} of incarnation {target_incarnation:016x} came to \
             member {:016x} of incarnation {:016x}: that member was removed, or its directory is \
             another one",
            own.member_id, own.incarnation,
        )));
    }
    let agreed = agreed.filter(|agreed| *agreed != 0);
    if agreed.is_some_and(|agreed| agreed != sender.incarnation) {
        return Err(Status::failed_precondition(format!(
            "the directory of member {:016x} is not the one that the cluster knows: remove that \
             member, and add it again with an empty directory",
            sender.member_id,
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// A removed member and its replacement may listen at the same URL, and an emptied directory has the same
    /// id as before: only the addresses distinguish them.
    #[test]
    fn what_is_for_another_member_or_incarnation_is_refused() {
        let own = wire::Sender {
            cluster_id: 1,
            member_id: 5,
            incarnation: 50,
            ..wire::Sender::default()
        };
        let sender = |incarnation, target_id, target_incarnation| wire::Sender {
            cluster_id: 1,
            member_id: 7,
            incarnation,
            target_id,
            target_incarnation,
        };
        let good = sender(70, 5, 50);
        // An unknown sender, or one that joined since, is accepted.
        for agreed in [Some(70), Some(0), None] {
            check_addresses(&good, &own, agreed).expect("for this member");
        }
        for (bad, agreed) in [
            (sender(70, 6, 50), Some(70)),
            (sender(70, 5, 51), Some(70)),
            (sender(70, 5, 0), Some(70)),
            (sender(70, 0, 0), Some(70)),
            (sender(71, 5, 50), Some(70)),
            (sender(0, 5, 50), Some(70)),
        ] {
            let error = check_addresses(&bad, &own, agreed).expect_err("refused");
            assert_eq!(error.code(), Code::FailedPrecondition);
        }
        // Of a cluster from before there were incarnations.
        let own = wire::Sender {
            incarnation: 0,
            ..own
        };
        check_addresses(&sender(0, 5, 0), &own, Some(0)).expect("as before");
    }

    #[test]
    fn another_cluster_is_refused_by_name() {
        let sender = |cluster_id| {
            Some(wire::Sender {
                cluster_id,
                member_id: 5,
                ..wire::Sender::default()
            })
        };
        assert_eq!(check_sender(sender(1), 1, false).expect("ours"), 5);
        assert_eq!(check_sender(sender(0), 1, true).expect("a stranger"), 5);
        for (sender, is_stranger_welcome) in [(sender(2), true), (sender(0), false)] {
            let error = check_sender(sender, 1, is_stranger_welcome).expect_err("refused");
            assert_eq!(error.code(), Code::FailedPrecondition);
            assert!(error.message().contains("0000000000000001"), "{error}");
        }
        assert!(check_sender(None, 1, true).is_err());
    }
}
