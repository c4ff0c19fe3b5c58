//! `bowline.v1.Roles`: the permissions of roles on kinds of the graph.

use std::sync::Arc;

use bowline_cluster::Applied;
use bowline_proto::v1 as pb;
use bowline_replica::{Grant, Permission, UsersChange, UsersRefusal};
use pb::roles_server::Roles;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::auth::AuthService;
use super::reading::header;
use crate::context::{Context, respond_applied};
use crate::status::Fault;

/// The service of permissions that etcd does not have.
#[derive(Debug, Clone)]
pub(crate) struct RolesService {
    context: Arc<Context>,
    auth: AuthService,
}

impl RolesService {
    pub(crate) fn new(context: Arc<Context>) -> RolesService {
        RolesService {
            auth: AuthService::new(context.clone()),
            context,
        }
    }

    /// Makes a change on behalf of a call.
    async fn change(
        &self,
        metadata: &MetadataMap,
        change: UsersChange,
    ) -> Result<(pb::Header, Applied), Status> {
        let applied = self.auth.change(metadata, change).await?;
        let revision = applied.reply.revision;
        let header = header(&self.context, revision, applied.term, applied.index);
        Ok((header, applied))
    }
}

/// What a permission on the wire grants.
fn grant(access: i32) -> Result<Grant, Fault> {
    match pb::Access::try_from(access) {
        Ok(pb::Access::Read) => Ok(Grant::Read),
        Ok(pb::Access::Write) => Ok(Grant::Write),
        Ok(pb::Access::ReadWrite) => Ok(Grant::ReadWrite),
        Err(_) => Err(Fault::Invalid(
            "the access of a permission is none of READ, WRITE and READ_WRITE",
        )),
    }
}

/// What a permission grants, as on the wire.
fn access(grant: Grant) -> pb::Access {
    match grant {
        Grant::Read => pb::Access::Read,
        Grant::Write => pb::Access::Write,
        Grant::ReadWrite => pb::Access::ReadWrite,
    }
}

#[tonic::async_trait]
impl Roles for RolesService {
    async fn grant_kinds(
        &self,
        request: Request<pb::GrantKindsRequest>,
    ) -> Result<Response<pb::GrantKindsReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let given = asked.permission.ok_or(Fault::PermissionNotGiven)?;
        let permission = Permission::Kinds {
            grant: grant(given.access)?,
            prefix: given.prefix,
        };
        let role = asked.role;
        let change = UsersChange::GrantPermission { role, permission };
        let (header, applied) = self.change(&metadata, change).await?;
        let header = Some(header);
        Ok(respond_applied(
            pb::GrantKindsReply { header },
            applied.index,
        ))
    }

    async fn revoke_kinds(
        &self,
        request: Request<pb::RevokeKindsRequest>,
    ) -> Result<Response<pb::RevokeKindsReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let permission = Permission::Kinds {
            // What it grants does not matter.
            grant: Grant::Read,
            prefix: asked.prefix,
        };
        let role = asked.role;
        let change = UsersChange::RevokePermission { role, permission };
        let (header, applied) = self.change(&metadata, change).await?;
        let header = Some(header);
        Ok(respond_applied(
            pb::RevokeKindsReply { header },
            applied.index,
        ))
    }

    async fn list_kinds(
        &self,
        request: Request<pb::ListKindsRequest>,
    ) -> Result<Response<pb::ListKindsReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let (users, caller) = self.auth.read(&metadata).await?;
        self.auth.check_own_role(&users, &caller, &asked.role)?;
        let role = users.role(&asked.role);
        let role = role.ok_or_else(|| Fault::from(UsersRefusal::RoleNotFound))?;
        let kinds = role.permissions.iter().filter_map(|has| match has {
            Permission::Kinds { grant, prefix } => Some(pb::KindPermission {
                access: access(*grant).into(),
                prefix: prefix.clone(),
            }),
            Permission::Keys { .. } => None,
        });
        let known = self.context.client.status();
        let header = header(
            &self.context,
            known.revision,
            known.term,
            known.applied_index,
        );
        Ok(Response::new(pb::ListKindsReply {
            header: Some(header),
            permissions: kinds.collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bowline_client::auth::{Access, KindPermission};
    use bowline_client::graph::{Block, BlockId, Edge};
    use bowline_client::{Client, Error};
    use bowline_proto::etcdserverpb as etcd;
    use bowline_replica::Caller;
    use etcd::auth_server::Auth;
    use pb::quotas_server::Quotas;
    use tonic::Code;

    use super::*;
    use crate::service::QuotasService;
    use crate::test_server::TestServer;

    /// A server with authentication, with a root and with `ann`, who has the role `r`; their clients.
    async fn start() -> (TestServer, Client, Client) {
        let server = TestServer::start().await;
        let context = server.context();
        let client = context.client.by(&Caller::Process);
        let change = async |change: UsersChange| {
            let begun = std::time::Instant::now();
            while let Err(error) = client.change_users(change.clone()).await {
                assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let password = context.hashing.hash_password("p".to_owned()).await.unwrap();
        for (user, role) in [("root", "root"), ("ann", "r")] {
            let (user, role) = (user.to_owned(), role.to_owned());
            let password = Some(password.clone());
            change(UsersChange::AddUser {
                name: user.clone(),
                password,
            })
            .await;
            change(UsersChange::AddRole { name: role.clone() }).await;
            change(UsersChange::GrantRole { user, role }).await;
        }
        change(UsersChange::Enable).await;
        let address = server.address().to_string();
        let connect = |user: &str| {
            Client::builder()
                .endpoints([&*address])
                .user(user, "p")
                .connect()
        };
        let (root, ann) = (
            connect("root").await.unwrap(),
            connect("ann").await.unwrap(),
        );
        (server, root, ann)
    }

    fn id(name: &str) -> BlockId {
        BlockId::from_name(name)
    }

    fn is_denied<T>(result: &Result<T, Error>) -> bool {
        matches!(result, Err(Error::PermissionDenied))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_has_the_right_on_a_kind_writes_and_reads_it_and_nothing_else() {
        let (server, root, ann) = start().await;
        let graph = ann.graph();
        let doc = Block::new(id("d"), "doc");
        assert!(is_denied(&graph.put_block(doc.clone()).await));
        let documents = KindPermission::new(Access::ReadWrite, "doc");
        assert!(is_denied(
            &ann.auth().role_grant_kinds("r", documents.clone()).await
        ));
        root.auth()
            .role_grant_kinds("r", documents.clone())
            .await
            .unwrap();
        assert_eq!(ann.auth().role_kinds("r").await.unwrap(), [documents]);
        assert!(is_denied(&ann.auth().role_kinds("root").await));
        graph.put_block(doc.clone()).await.unwrap();
        graph.put_block(Block::new(id("e"), "doc")).await.unwrap();
        let edge = Edge::new(id("d"), "doc_link", id("e"));
        graph.put_edge(edge).await.unwrap();
        assert_eq!(
            graph
                .blocks([id("d"), id("none")])
                .await
                .unwrap()
                .blocks
                .len(),
            1
        );
        let found = graph.neighbors(id("d")).kinds(["doc_link"]).await.unwrap();
        assert_eq!(found.neighbors.len(), 1);
        // Other kinds, all kinds, and keys.
        root.graph()
            .put_block(Block::new(id("s"), "secret"))
            .await
            .unwrap();
        assert!(is_denied(
            &graph.put_block(Block::new(id("t"), "secret")).await
        ));
        assert!(is_denied(
            &graph.put_block(Block::new(id("s"), "doc")).await
        ));
        let edge = Edge::new(id("d"), "owns", id("e"));
        assert!(is_denied(&graph.put_edge(edge).await));
        assert!(is_denied(&graph.blocks([id("d"), id("s")]).await));
        assert!(is_denied(&graph.neighbors(id("d")).await));
        assert!(is_denied(&graph.stats().await));
        assert!(is_denied(&ann.put("doc", "v").await) && is_denied(&ann.get("doc").await));
        // Less, and nothing.
        let reading = KindPermission::new(Access::Read, "doc");
        root.auth().role_grant_kinds("r", reading).await.unwrap();
        assert!(is_denied(&graph.put_block(doc).await));
        graph.blocks([id("d")]).await.unwrap();
        root.auth().role_revoke_kinds("r", "doc").await.unwrap();
        assert!(is_denied(&graph.blocks([id("d")]).await));
        let again = root.auth().role_revoke_kinds("r", "doc").await;
        assert!(
            matches!(again, Err(Error::PermissionNotGranted)),
            "{again:?}"
        );
        assert_eq!(ann.auth().role_kinds("r").await.unwrap(), []);
        drop((graph, root, ann));
        server.shutdown().await;
    }

    /// The right was asked for before the member caught up, and not again: a member that lagged listed what was added after
    /// a revocation to the user who had lost the role root.
    #[tokio::test(flavor = "multi_thread")]
    async fn lists_for_root_ask_for_the_right_in_the_state_that_they_show() {
        fn by<T>(token: &str, message: T) -> Request<T> {
            let mut request = Request::new(message);
            let metadata = request.metadata_mut();
            metadata.insert("token", token.parse().unwrap());
            request
        }
        let (server, root, ann) = start().await;
        let context = server.context();
        let token = context.log_in("ann".to_owned(), "p".to_owned()).await;
        let token = token.unwrap();
        // The services, without what is asked before them.
        let auth = AuthService::new(context.clone());
        let quotas = QuotasService::new(context.clone());
        let users = auth.user_list(by(&token, etcd::AuthUserListRequest::default()));
        let roles = auth.role_list(by(&token, etcd::AuthRoleListRequest::default()));
        let listed = quotas.list(by(&token, pb::QuotaListRequest::default()));
        let refused = [
            users.await.map(drop),
            roles.await.map(drop),
            listed.await.map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
        }
        drop((root, ann));
        server.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_has_changed_a_key_is_in_its_history() {
        let (server, root, ann) = start().await;
        let keys = bowline_client::auth::Permission::read_write("k");
        root.auth().role_grant("r", keys).await.unwrap();
        // Once this member has announced that it knows of authors.
        let begun = std::time::Instant::now();
        let authors_of = async |client: &Client| {
            let past = client.history("k").authors().await.unwrap();
            let authors = past.versions.into_iter().map(|version| version.author);
            authors.collect::<Vec<_>>()
        };
        loop {
            ann.put("k", "1").await.unwrap();
            if authors_of(&root).await[0].is_some() {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        root.put("k", "2").await.unwrap();
        let now_ms = server.context().client.clock().wall_ms();
        let seen = authors_of(&root).await;
        let names: Vec<_> = seen[..2]
            .iter()
            .flatten()
            .map(|author| author.user.clone())
            .collect();
        assert_eq!(names, [Some("root".to_owned()), Some("ann".to_owned())]);
        assert!(
            seen[..2]
                .iter()
                .flatten()
                .all(|author| now_ms - author.at_ms < 60_000)
        );
        // A user sees that another one has changed its key, and when, and not who it was.
        let seen = authors_of(&ann).await;
        let names: Vec<_> = seen[..2]
            .iter()
            .flatten()
            .map(|author| author.user.clone())
            .collect();
        assert_eq!(names, [None, Some("ann".to_owned())]);
        // Who does not ask is told nothing.
        let plain = root.history("k").await.unwrap();
        assert!(
            plain
                .versions
                .iter()
                .all(|version| version.author.is_none())
        );
        drop((root, ann));
        server.shutdown().await;
    }
}
