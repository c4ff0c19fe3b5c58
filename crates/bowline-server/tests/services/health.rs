//! `grpc.health.v1`, and reflection.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;
use tokio_stream::iter;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::support::{Running, put, start};

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

/// The services that a tool finds.
const SERVICES: [&str; 17] = [
    "bowline.v1.Graph",
    "bowline.v1.Indexes",
    "bowline.v1.Lease",
    "bowline.v1.Members",
    "bowline.v1.Quotas",
    "bowline.v1.Roles",
    "bowline.v1.Store",
    "etcdserverpb.Auth",
    "etcdserverpb.Cluster",
    "etcdserverpb.KV",
    "etcdserverpb.Lease",
    "etcdserverpb.Maintenance",
    "etcdserverpb.Watch",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "v3electionpb.Election",
];

pub(crate) async fn next(watched: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    let next = timeout(Duration::from_secs(20), watched.message()).await;
    let reply = next.expect("in time").unwrap().expect("it goes on");
    reply.status()
}

pub(crate) async fn watch(running: &Running, service: &str) -> Streaming<HealthCheckResponse> {
    let mut health = HealthClient::new(running.channel().await);
    health.watch(of(service)).await.unwrap().into_inner()
}

#[tokio::test]
async fn every_service_is_healthy_while_there_is_a_leader() {
    let running = start(&[]).await;
    let mut health = HealthClient::new(running.channel().await);
    for service in SERVICES.iter().chain(&["", "v3lockpb.Lock"]) {
        let mut status = ServingStatus::NotServing;
        // The flag follows the leader in a moment.
        for _ in 0..100 {
            status = health
                .check(of(service))
                .await
                .unwrap()
                .into_inner()
                .status();
            if status == ServingStatus::Serving {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let refused = health.check(of("bowline.peer.v1.Peer")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let mut unknown = watch(&running, "nobody").await;
    assert_eq!(next(&mut unknown).await, ServingStatus::ServiceUnknown);
}

#[tokio::test]
async fn who_watches_hears_that_the_server_stops() {
    let running = start(&[("drain-timeout", "20s")]).await;
    let mut watched = watch(&running, "").await;
    while next(&mut watched).await != ServingStatus::Serving {}
    let before = std::time::Instant::now();
    let stopping = tokio::spawn(running.server.shutdown());
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    let end = timeout(Duration::from_secs(20), watched.message()).await;
    assert_eq!(end.unwrap().unwrap_err().code(), Code::Unavailable);
    stopping.await.unwrap().unwrap();
    assert!(before.elapsed() < Duration::from_secs(10));
}

/// Neither side has ended the call, and the client goes on to keep it open.
#[tokio::test]
async fn a_tool_that_goes_on_asking_hears_that_the_server_stops() {
    use pb::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1 as pb;
    let running = start(&[("drain-timeout", "20s"), ("reflection", "true")]).await;
    let mut client = ServerReflectionClient::new(running.channel().await);
    let (asking, questions) = tokio::sync::mpsc::channel(1);
    let question = pb::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(pb::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    asking.send(question).await.unwrap();
    let questions = tokio_stream::wrappers::ReceiverStream::new(questions);
    let answers = client.server_reflection_info(questions).await;
    let mut answers = answers.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    let before = std::time::Instant::now();
    let stopping = tokio::spawn(running.server.shutdown());
    let end = timeout(Duration::from_secs(20), answers.message()).await;
    assert_eq!(end.unwrap().unwrap_err().code(), Code::Unavailable);
    stopping.await.unwrap().unwrap();
    assert!(before.elapsed() < Duration::from_secs(10));
    drop(asking);
}

/// Who did not ask for it serves nothing that is not needed, to nobody.
#[tokio::test]
async fn reflection_is_served_only_where_it_was_asked_for() {
    use pb::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1 as pb;
    let running = start(&[]).await;
    let mut client = ServerReflectionClient::new(running.channel().await);
    let question = pb::ServerReflectionRequest::default();
    let refused = client.server_reflection_info(iter([question])).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("--reflection"), "{refused}");
}

/// No space is no reason to be taken away: reads and deletions go on.
#[tokio::test]
async fn a_server_without_space_is_healthy() {
    use bowline_proto::etcdserverpb as pb;
    let running = start(&[]).await;
    let mut watched = watch(&running, "etcdserverpb.KV").await;
    while next(&mut watched).await != ServingStatus::Serving {}
    let mut maintenance = running.maintenance().await;
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
    let raise = pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Activate.into(),
        member_id: status.into_inner().leader,
        alarm: pb::AlarmType::Nospace.into(),
    };
    maintenance.alarm(raise).await.unwrap();
    let refused = running.kv().await.put(put("k", "v")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let mut health = HealthClient::new(running.channel().await);
    let now = health.check(of("")).await.unwrap().into_inner();
    assert_eq!(now.status(), ServingStatus::Serving);
}

macro_rules! reflection {
    ($name:ident, $version:ident) => {
        #[tokio::test]
        async fn $name() {
            use pb::server_reflection_client::ServerReflectionClient;
            use pb::server_reflection_request::MessageRequest as Ask;
            use pb::server_reflection_response::MessageResponse as Answer;
            use tonic_reflection::pb::$version as pb;

            let running = start(&[("reflection", "true")]).await;
            let mut client = ServerReflectionClient::new(running.channel().await);
            let mut ask = async |message: Ask| {
                let request = pb::ServerReflectionRequest {
                    host: String::new(),
                    message_request: Some(message),
                };
                let replies = client.server_reflection_info(iter([request])).await;
                let reply = replies.unwrap().into_inner().message().await;
                reply.unwrap().unwrap().message_response.unwrap()
            };
            let Answer::ListServicesResponse(list) = ask(Ask::ListServices(String::new())).await
            else {
                panic!()
            };
            let found: BTreeSet<String> = list.service.into_iter().map(|of| of.name).collect();
            let mut expected: BTreeSet<String> = SERVICES.map(str::to_owned).into();
            expected.insert("v3lockpb.Lock".to_owned());
            assert_eq!(found, expected);
            for symbol in [
                "etcdserverpb.KV.Range",
                "v3lockpb.LockRequest",
                "bowline.v1.Graph",
            ] {
                let answer = ask(Ask::FileContainingSymbol(symbol.to_owned())).await;
                let Answer::FileDescriptorResponse(files) = answer else {
                    panic!("{symbol}")
                };
                assert!(!files.file_descriptor_proto[0].is_empty(), "{symbol}");
            }
            // What members say to each other is not to be found.
            let peer = "bowline.peer.v1.Peer".to_owned();
            let answer = timeout(Duration::from_secs(5), async {
                let request = pb::ServerReflectionRequest {
                    host: String::new(),
                    message_request: Some(Ask::FileContainingSymbol(peer)),
                };
                let replies = client.server_reflection_info(iter([request])).await?;
                replies.into_inner().message().await
            });
            match answer.await.unwrap() {
                Err(status) => assert_eq!(status.code(), Code::NotFound),
                Ok(reply) => assert!(matches!(
                    reply.unwrap().message_response.unwrap(),
                    Answer::ErrorResponse(_)
                )),
            }
        }
    };
}

reflection!(a_tool_finds_what_is_served, v1);
reflection!(an_older_tool_finds_what_is_served, v1alpha);
