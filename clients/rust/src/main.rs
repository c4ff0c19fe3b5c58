//! Asks a server whose address is the first word for everything that `etcd-client` offers, and prints
//! a line for each part that answered as it should. What does not ends the program.

use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Client, Compare, CompareOp, ConnectOptions, DowngradeOptions, Error,
    EventType, GetOptions, LeaseTimeToLiveOptions, LockOptions, MemberAddOptions, Permission,
    ProclaimOptions, PutOptions, ResignOptions, SortOrder, SortTarget, Txn, TxnOp, WatchOptions,
};
use tokio::time::timeout;

/// Longer than any answer takes.
const IN_TIME: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let endpoint = std::env::args().nth(1).expect("the address of a server");
    let mut client = Client::connect([endpoint.clone()], None).await?;
    keys(&mut client).await?;
    transactions(&mut client).await?;
    watches(&mut client).await?;
    leases(&mut client).await?;
    locks(&mut client).await?;
    elections(&mut client).await?;
    cluster(&mut client).await?;
    maintenance(&mut client).await?;
    auth(&mut client, &endpoint).await
}

/// The code and text of a refusal.
fn refusal<T>(answer: Result<T, Error>) -> (i32, String) {
    match answer {
        Err(Error::GRpcStatus(status)) => (status.code() as i32, status.message().to_owned()),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

async fn keys(client: &mut Client) -> Result<(), Error> {
    let put = client.put("k/1", "a", None).await?;
    let header = put.header().expect("a header");
    assert!(header.cluster_id() != 0 && header.member_id() != 0 && header.raft_term() != 0);
    let first = header.revision();
    let options = PutOptions::new().with_prev_key();
    let put = client.put("k/1", "b", Some(options)).await?;
    assert_eq!(put.prev_key().expect("what was there").value(), b"a");
    client.put("k/2", "c", None).await?;
    let found = client.get("k/1", None).await?;
    assert_eq!(
        (found.kvs()[0].value(), found.kvs()[0].version()),
        (&b"b"[..], 2)
    );
    let old = GetOptions::new().with_revision(first);
    let found = client.get("k/1", Some(old)).await?;
    assert_eq!(found.kvs()[0].value(), b"a");
    let options = GetOptions::new().with_prefix().with_limit(1);
    let options = options.with_sort(SortTarget::Key, SortOrder::Descend);
    let found = client.get("k/", Some(options)).await?;
    assert_eq!(
        (found.kvs()[0].key(), found.count(), found.more()),
        (&b"k/2"[..], 2, true)
    );
    assert_eq!(client.delete("k/2", None).await?.deleted(), 1);
    client.compact(first + 1, None).await?;
    let old = GetOptions::new().with_revision(first);
    let text = "etcdserver: mvcc: required revision has been compacted".to_owned();
    assert_eq!(refusal(client.get("k/1", Some(old)).await), (11, text));
    println!("ok kv");
    Ok(())
}

async fn transactions(client: &mut Client) -> Result<(), Error> {
    let txn = |expected: &str| {
        Txn::new()
            .when([Compare::value("k/1", CompareOp::Equal, expected)])
            .and_then([TxnOp::put("t", "then", None)])
            .or_else([TxnOp::put("t", "else", None), TxnOp::get("k/1", None)])
    };
    assert!(client.txn(txn("b")).await?.succeeded());
    let other = client.txn(txn("x")).await?;
    assert!(!other.succeeded() && other.op_responses().len() == 2);
    assert_eq!(client.get("t", None).await?.kvs()[0].value(), b"else");
    println!("ok txn");
    Ok(())
}

async fn watches(client: &mut Client) -> Result<(), Error> {
    let options = WatchOptions::new().with_prefix().with_prev_key();
    let mut stream = client.watch("w/", Some(options)).await?;
    let created = stream.message().await?.expect("it goes on");
    assert!(created.created() && !created.canceled());
    client.put("w/1", "a", None).await?;
    client.delete("w/1", None).await?;
    let mut kinds = Vec::new();
    while kinds.len() < 2 {
        let message = timeout(IN_TIME, stream.message()).await.expect("in time")?;
        for event in message.expect("it goes on").events() {
            let before = event.prev_kv().map(|kv| kv.value().to_vec());
            kinds.push((event.event_type(), before));
        }
    }
    let deleted = (EventType::Delete, Some(b"a".to_vec()));
    assert_eq!(kinds, [(EventType::Put, None), deleted]);
    stream.request_progress().await?;
    let progress = timeout(IN_TIME, stream.message()).await.expect("in time")?;
    assert!(progress.expect("it goes on").events().is_empty());
    stream.cancel(created.watch_id()).await?;
    let canceled = timeout(IN_TIME, stream.message()).await.expect("in time")?;
    assert!(canceled.expect("it goes on").canceled());
    println!("ok watch");
    Ok(())
}

async fn leases(client: &mut Client) -> Result<(), Error> {
    let granted = client.lease_grant(60, None).await?;
    let id = granted.id();
    assert_eq!(granted.ttl(), 60);
    client
        .put("l", "x", Some(PutOptions::new().with_lease(id)))
        .await?;
    let (mut keeper, mut kept) = client.lease_keep_alive(id).await?;
    keeper.keep_alive().await?;
    let reply = timeout(IN_TIME, kept.message()).await.expect("in time")?;
    assert_eq!(reply.expect("it goes on").ttl(), 60);
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let left = client.lease_time_to_live(id, Some(options)).await?;
    assert_eq!(
        (left.granted_ttl(), left.keys()),
        (60, &[b"l".to_vec()][..])
    );
    assert!(
        client
            .leases()
            .await?
            .leases()
            .iter()
            .any(|lease| lease.id() == id)
    );
    client.lease_revoke(id).await?;
    assert!(client.get("l", None).await?.kvs().is_empty());
    let text = "etcdserver: requested lease not found".to_owned();
    assert_eq!(refusal(client.lease_revoke(id).await), (5, text));
    println!("ok lease");
    Ok(())
}

async fn locks(client: &mut Client) -> Result<(), Error> {
    let unnamed = client.lock("lock", None).await?;
    let first = unnamed.key().to_vec();
    assert!(first.starts_with(b"lock/"));
    let id = client.lease_grant(60, None).await?.id();
    let mut other = client.clone();
    let waiting = tokio::spawn(async move {
        let options = LockOptions::new().with_lease(id);
        other.lock("lock", Some(options)).await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "two hold one lock");
    client.unlock(first).await?;
    let second = timeout(IN_TIME, waiting)
        .await
        .expect("in time")
        .expect("no panic")?;
    assert_eq!(second.key(), format!("lock/{id:x}").as_bytes());
    assert!(second.header().expect("a header").revision() > 1);
    client.unlock(second.key()).await?;
    println!("ok lock");
    Ok(())
}

async fn elections(client: &mut Client) -> Result<(), Error> {
    let id = client.lease_grant(60, None).await?.id();
    let won = client.campaign("seat", "a", id).await?;
    let leader = won.leader().expect("a leader").clone();
    assert_eq!((leader.name(), leader.lease()), (&b"seat"[..], id));
    let mut observed = client.observe("seat").await?;
    let told = timeout(IN_TIME, observed.message())
        .await
        .expect("in time")?;
    assert_eq!(told.expect("it goes on").kv().expect("a key").value(), b"a");
    let options = ProclaimOptions::new().with_leader(leader.clone());
    client.proclaim("b", Some(options)).await?;
    let told = timeout(IN_TIME, observed.message())
        .await
        .expect("in time")?;
    assert_eq!(told.expect("it goes on").kv().expect("a key").value(), b"b");
    let now = client.leader("seat").await?;
    assert_eq!(now.kv().expect("a key").key(), leader.key());
    client
        .resign(Some(ResignOptions::new().with_leader(leader)))
        .await?;
    let text = "election: no leader".to_owned();
    assert_eq!(refusal(client.leader("seat").await), (2, text));
    println!("ok election");
    Ok(())
}

async fn cluster(client: &mut Client) -> Result<(), Error> {
    let members = client.member_list().await?;
    assert_eq!(members.members().len(), 1);
    let own = members.members()[0].clone();
    let text = "etcdserver: member not found".to_owned();
    assert_eq!(refusal(client.member_remove(77).await), (5, text.clone()));
    assert_eq!(refusal(client.member_promote(77).await), (5, text));
    let text = "etcdserver: can only promote a learner member".to_owned();
    assert_eq!(refusal(client.member_promote(own.id()).await), (9, text));
    let learner = MemberAddOptions::new().with_is_learner();
    let added = client
        .member_add(["http://127.0.0.1:1"], Some(learner))
        .await?;
    let added = added.member().expect("a member").id();
    client
        .member_update(added, ["http://127.0.0.1:2".to_owned()])
        .await?;
    assert_eq!(client.member_list().await?.members().len(), 2);
    client.member_remove(added).await?;
    assert_eq!(client.member_list().await?.members().len(), 1);
    println!("ok cluster");
    Ok(())
}

async fn maintenance(client: &mut Client) -> Result<(), Error> {
    let status = client.status().await?;
    assert_eq!((status.version(), status.is_learner()), ("3.7.3", false));
    let own = status.header().expect("a header").member_id();
    assert_eq!(status.leader(), own);
    let alarms = client
        .alarm(AlarmAction::Get, AlarmType::None, None)
        .await?;
    assert!(alarms.alarms().is_empty());
    client.defragment().await?;
    client.hash().await?;
    let [one, two] = [
        client.hash_kv(0).await?.hash(),
        client.hash_kv(0).await?.hash(),
    ];
    assert_eq!(one, two);
    let (mut saved, mut bytes) = (client.snapshot().await?, 0);
    while let Some(part) = saved.message().await? {
        bytes += part.blob().len();
    }
    assert_eq!(bytes % 512, 32);
    let text = "etcdserver: bad leader transferee".to_owned();
    assert_eq!(refusal(client.move_leader(77).await), (9, text));
    let mut maintenance = client.maintenance_client();
    maintenance.downgrade(DowngradeOptions::Cancel).await?;
    let text = "etcdserver: invalid downgrade target version".to_owned();
    let downgrade = DowngradeOptions::Enable("9.9.0".to_owned());
    assert_eq!(refusal(maintenance.downgrade(downgrade).await), (3, text));
    println!("ok maintenance");
    Ok(())
}

async fn auth(client: &mut Client, endpoint: &str) -> Result<(), Error> {
    client.auth_disable().await?;
    assert!(client.user_list().await?.users().is_empty());
    assert!(client.role_list().await?.roles().is_empty());
    let no_root = (9, "etcdserver: root user does not exist".to_owned());
    assert_eq!(refusal(client.auth_enable().await), no_root);
    let user = (9, "etcdserver: user name not found".to_owned());
    assert_eq!(refusal(client.user_get("u").await), user);
    assert_eq!(refusal(client.user_delete("u").await), user);
    assert_eq!(refusal(client.user_change_password("u", "p").await), user);
    assert_eq!(refusal(client.user_grant_role("u", "r").await), user);
    assert_eq!(refusal(client.user_revoke_role("u", "r").await), user);
    let role = (9, "etcdserver: role name not found".to_owned());
    assert_eq!(refusal(client.role_get("r").await), role);
    assert_eq!(refusal(client.role_delete("r").await), role);
    let granted = client.role_grant_permission("r", Permission::read("k"));
    assert_eq!(refusal(granted.await), role);
    let revoked = client.role_revoke_permission("r", "k", None);
    assert_eq!(refusal(revoked.await), role);

    client.user_add("root", "secret", None).await?;
    client.user_grant_role("root", "root").await?;
    client.user_add("u", "p", None).await?;
    client.role_add("r").await?;
    client
        .role_grant_permission("r", Permission::read_write("own"))
        .await?;
    client.user_grant_role("u", "r").await?;
    client.auth_enable().await?;
    let nobody = (3, "etcdserver: user name is empty".to_owned());
    assert_eq!(refusal(client.put("own", "v", None).await), nobody);
    let as_user = |name: &str, password: &str| {
        let options = ConnectOptions::new().with_user(name, password);
        Client::connect([endpoint.to_owned()], Some(options))
    };
    let mut of_user = as_user("u", "p").await?;
    of_user.put("own", "v", None).await?;
    let denied = (7, "etcdserver: permission denied".to_owned());
    assert_eq!(refusal(of_user.put("other", "v", None).await), denied);
    assert_eq!(refusal(of_user.user_list().await), denied);
    assert!(as_user("u", "wrong").await.is_err());
    let mut of_root = as_user("root", "secret").await?;
    assert_eq!(of_root.user_list().await?.users(), ["root", "u"]);
    of_root.auth_disable().await?;
    client.put("own", "v", None).await?;
    println!("ok auth");
    Ok(())
}
