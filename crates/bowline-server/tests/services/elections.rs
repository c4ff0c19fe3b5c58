//! Elections: one leader, what it says, and who is told.

use std::time::Duration;

use bowline_proto::v3electionpb as pb;
use pb::election_client::ElectionClient;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::beside::{Served, both};

const IN_TIME: Duration = Duration::from_secs(10);

fn elections(served: &Served) -> ElectionClient<Channel> {
    ElectionClient::new(served.channel.clone())
}

fn candidate(lease: i64, value: &str) -> pb::CampaignRequest {
    pb::CampaignRequest {
        name: "chair".into(),
        lease,
        value: value.to_owned().into(),
    }
}

fn campaigning(
    served: &Served,
    lease: i64,
    value: &'static str,
) -> JoinHandle<Result<pb::CampaignResponse, Status>> {
    let mut client = elections(served);
    let request = candidate(lease, value);
    tokio::spawn(async move { Ok(client.campaign(request).await?.into_inner()) })
}

async fn leader(served: &Served) -> Result<pb::LeaderResponse, Status> {
    let name = "chair".into();
    let reply = elections(served).leader(pb::LeaderRequest { name }).await?;
    Ok(reply.into_inner())
}

async fn proclaim(served: &Served, leader: Option<pb::LeaderKey>, value: &str) -> Option<Status> {
    let value = value.to_owned().into();
    let request = pb::ProclaimRequest { leader, value };
    match elections(served).proclaim(request).await {
        Ok(reply) => {
            assert!(reply.into_inner().header.unwrap().revision > 1);
            None
        }
        Err(status) => Some(status),
    }
}

async fn resign(served: &Served, leader: Option<pb::LeaderKey>) -> Option<Status> {
    let request = pb::ResignRequest { leader };
    match elections(served).resign(request).await {
        Ok(reply) => {
            assert!(reply.into_inner().header.unwrap().revision > 1);
            None
        }
        Err(status) => Some(status),
    }
}

fn assert_unknown(status: &Status, text: &str) {
    assert_eq!((status.code(), status.message()), (Code::Unknown, text));
}

async fn in_time<T>(call: JoinHandle<T>) -> T {
    let done = timeout(IN_TIME, call).await;
    done.expect("an answer in time").unwrap()
}

/// The next leader that is told of: its key, and what it says.
async fn told(observed: &mut Streaming<pb::LeaderResponse>) -> (String, String) {
    let next = timeout(IN_TIME, observed.message()).await;
    let reply = next.expect("in time").unwrap().expect("it goes on");
    let (header, kv) = (reply.header.unwrap(), reply.kv.unwrap());
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    assert!(header.revision >= kv.mod_revision, "{header:?} {kv:?}");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&kv.key), text(&kv.value))
}

#[tokio::test]
async fn one_leads_until_it_resigns_and_the_next_follows() {
    for served in both().await {
        assert_unknown(&leader(&served).await.unwrap_err(), "election: no leader");
        let [a, b] = [served.grant().await, served.grant().await];
        let won = in_time(campaigning(&served, a, "a")).await.unwrap();
        let header = won.header.unwrap();
        assert!(header.cluster_id != 0 && header.raft_term != 0);
        let key = won.leader.unwrap();
        assert_eq!((&key.name[..], key.lease), (&b"chair"[..], a));
        assert_eq!(key.key, format!("chair/{a:x}"));
        assert_eq!(key.rev, header.revision);
        let now = leader(&served).await.unwrap();
        let (header, kv) = (now.header.unwrap(), now.kv.unwrap());
        assert_eq!((&kv.key, &kv.value[..]), (&key.key, &b"a"[..]));
        assert_eq!((kv.create_revision, kv.lease), (key.rev, a));
        assert!(header.revision >= kv.mod_revision);
        // Who leads may campaign again, with something new to say.
        let again = in_time(campaigning(&served, a, "a2")).await.unwrap();
        assert_eq!(again.leader.unwrap(), key);
        let kv = leader(&served).await.unwrap().kv.unwrap();
        assert_eq!((&kv.value[..], kv.create_revision), (&b"a2"[..], key.rev));
        assert_eq!(
            proclaim(&served, Some(key.clone()), "a3").await.map(drop),
            None
        );
        let kv = leader(&served).await.unwrap().kv.unwrap();
        assert_eq!((&kv.value[..], kv.lease), (&b"a3"[..], a));

        let waiting = campaigning(&served, b, "b");
        served.until_keys("chair/", 2).await;
        served.pass_another_lock().await;
        assert!(!waiting.is_finished(), "two lead");
        assert!(resign(&served, Some(key.clone())).await.is_none());
        let next = in_time(waiting).await.unwrap().leader.unwrap();
        assert_eq!(next.key, format!("chair/{b:x}"));
        assert!(next.rev > key.rev);
        // Who led before has nothing to say, and nothing to give up.
        let late = proclaim(&served, Some(key.clone()), "late").await.unwrap();
        assert_unknown(&late, "election: not leader");
        let wrong = pb::LeaderKey {
            rev: next.rev - 1,
            ..next.clone()
        };
        let late = proclaim(&served, Some(wrong.clone()), "late")
            .await
            .unwrap();
        assert_unknown(&late, "election: not leader");
        assert!(resign(&served, Some(wrong)).await.is_none());
        assert!(resign(&served, Some(key)).await.is_none());
        let kv = leader(&served).await.unwrap().kv.unwrap();
        assert_eq!((&kv.key, &kv.value[..]), (&next.key, &b"b"[..]));
    }
}

#[tokio::test]
async fn an_observer_is_told_of_each_leader_and_what_it_says_in_order() {
    for served in both().await {
        let [a, b] = [served.grant().await, served.grant().await];
        let name = "chair".into();
        let mut client = elections(&served);
        // etcd answers when there is something to tell, not before.
        let observing = async move { client.observe(pb::LeaderRequest { name }).await };
        let observing = tokio::spawn(observing);
        let first = in_time(campaigning(&served, a, "a")).await.unwrap();
        let mut observed = in_time(observing).await.unwrap().into_inner();
        let first = first.leader.unwrap();
        assert_eq!(
            told(&mut observed).await,
            (format!("chair/{a:x}"), "a".into())
        );
        for value in ["a2", "a3", "a4"] {
            assert!(
                proclaim(&served, Some(first.clone()), value)
                    .await
                    .is_none()
            );
            let expected = (format!("chair/{a:x}"), value.to_owned());
            assert_eq!(told(&mut observed).await, expected);
        }
        let waiting = campaigning(&served, b, "b");
        served.until_keys("chair/", 2).await;
        // Who only waits is not told of.
        served.revoke(a).await;
        let second = in_time(waiting).await.unwrap().leader.unwrap();
        assert_eq!(
            told(&mut observed).await,
            (format!("chair/{b:x}"), "b".into())
        );
        assert!(resign(&served, Some(second)).await.is_none());
        let c = served.grant().await;
        in_time(campaigning(&served, c, "c")).await.unwrap();
        assert_eq!(
            told(&mut observed).await,
            (format!("chair/{c:x}"), "c".into())
        );
        // Who comes later is told of the one that leads.
        let name = "chair".into();
        let mut client = elections(&served);
        let late = client.observe(pb::LeaderRequest { name }).await;
        let mut late = late.unwrap().into_inner();
        assert_eq!(told(&mut late).await, (format!("chair/{c:x}"), "c".into()));
    }
}

#[tokio::test]
async fn a_campaign_that_is_given_up_leaves_no_key() {
    for served in both().await {
        let [a, b, c] = [
            served.grant().await,
            served.grant().await,
            served.grant().await,
        ];
        in_time(campaigning(&served, a, "a")).await.unwrap();
        let second = campaigning(&served, b, "b");
        served.until_keys("chair/", 2).await;
        let third = campaigning(&served, c, "c");
        served.until_keys("chair/", 3).await;
        second.abort();
        served.until_keys("chair/", 2).await;
        served.pass_another_lock().await;
        assert!(!third.is_finished(), "two lead");
        served.revoke(a).await;
        let next = in_time(third).await.unwrap().leader.unwrap();
        assert_eq!(next.key, format!("chair/{c:x}"));
    }
}

/// etcd answers such a campaign, when its turn has come, that it leads.
#[tokio::test]
async fn who_lost_its_lease_while_waiting_does_not_lead() {
    let served = both().await.swap_remove(0);
    let [a, b] = [served.grant().await, served.grant().await];
    in_time(campaigning(&served, a, "a")).await.unwrap();
    let waiting = campaigning(&served, b, "b");
    served.until_keys("chair/", 2).await;
    served.revoke(b).await;
    assert_unknown(&in_time(waiting).await.unwrap_err(), "election: not leader");
}

#[tokio::test]
async fn what_is_wrong_with_an_election_is_refused_as_etcd_does() {
    for served in both().await {
        let refused = elections(&served).campaign(candidate(77, "x")).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.message(), "etcdserver: requested lease not found");
        assert_eq!(refused.code(), Code::Unknown);
        let missing = "\"leader\" field must be provided";
        assert_unknown(&proclaim(&served, None, "x").await.unwrap(), missing);
        assert_unknown(&resign(&served, None).await.unwrap(), missing);
        let lease = served.grant().await;
        let nameless = || {
            Some(pb::LeaderKey {
                lease,
                ..pb::LeaderKey::default()
            })
        };
        let refused = proclaim(&served, nameless(), "x").await.unwrap();
        assert_eq!(refused.message(), "etcdserver: key is not provided");
        let refused = resign(&served, nameless()).await.unwrap();
        assert_eq!(refused.message(), "etcdserver: key is not provided");
    }
}
