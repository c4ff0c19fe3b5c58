//! `bowline.v1.Graph`: blocks, edges, and traversals.
//!
//! A write is one command of the replicated log. A read waits for the requested freshness, takes a snapshot,
//! and runs on a thread that may block: a traversal can be long, and the transport's threads serve all
//! clients.
//!
//! Queries in Cypher are in [`cypher`], the algorithms in [`graph_algorithms`], what queries share in [`graph_query`](super::graph_query).
//!
//! Invariant: every part of a reply is of one revision, which is in the header.

use std::sync::Arc;

use bowline::{Cancel, Precedence, Stop, Visit};
use bowline_proto::v1 as pb;
use bowline_replica::{Command, Outcome, Refusal};
use pb::graph_server::Graph;
use prost::Message;
use tonic::{Request, Response, Status};

use super::graph_query::{Canceling, Queries, SEARCH_WEIGHT, component_parts, parts_of};
use super::kv::execute;
use super::reading::{Parts, ask, header, read_some};
use super::stream::{Replies, produced};
use super::{check, cypher, graph_algorithms};
use crate::context::{Context, respond_applied, respond_read};
use crate::convert::graph as convert;
use crate::memory::Charge;
use crate::status::{Fault, status};

/// The graph service.
#[derive(Debug, Clone)]
pub(crate) struct GraphService {
    context: Arc<Context>,
    queries: Queries,
}

impl GraphService {
    pub(crate) fn new(context: Arc<Context>) -> GraphService {
        GraphService {
            queries: Queries::new(context.clone()),
            context,
        }
    }
}

#[tonic::async_trait]
impl Graph for GraphService {
    type NeighborsStream = Replies<pb::NeighborsReply>;
    type TraverseStream = Replies<pb::TraverseReply>;
    type ListBlocksStream = Canceling<pb::ListBlocksReply>;
    type ListEdgesStream = Canceling<pb::ListEdgesReply>;
    type OrderStream = Replies<pb::OrderReply>;
    type ComponentsStream = Replies<pb::ComponentsReply>;
    type PageRankStream = Replies<pb::RealValuesReply>;
    type CommunitiesStream = Replies<pb::CommunitiesReply>;
    type TrianglesStream = Replies<pb::WholeValuesReply>;
    type ClusteringStream = Replies<pb::RealValuesReply>;
    type KHopStream = Replies<pb::KHopReply>;
    type SimplePathsStream = Canceling<pb::SimplePathsReply>;
    type QueryStream = Canceling<pb::QueryReply>;

    async fn write(
        &self,
        request: Request<pb::WriteRequest>,
    ) -> Result<Response<pb::WriteReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        if request.encoded_len() > self.context.settings.request_bytes_max {
            return Err(Fault::RequestTooLarge.into());
        }
        let writes = convert::writes(request)?;
        let applied = execute(&self.context, &caller, Command::Graph(writes)).await?;
        let changed = match &applied.reply.result {
            Ok(Outcome::Graph(changed)) => changed.clone(),
            Ok(_) => {
                let text = "the reply does not belong to the request".to_owned();
                return Err(Fault::Internal(text).into());
            }
            Err(Refusal::TooLarge { .. } | Refusal::TooManyWrites { .. }) => {
                return Err(Fault::Invalid(
                    "the writes are over the limit of a transaction: split them; of a block with very many \
                     edges, delete edges first",
                )
                .into());
            }
            Err(refusal) => return Err(status(refusal.clone())),
        };
        let header = header(
            &self.context,
            applied.reply.revision,
            applied.term,
            applied.index,
        );
        let reply = pb::WriteReply {
            header: Some(header),
            changed,
        };
        Ok(respond_applied(reply, applied.index))
    }

    async fn get_blocks(
        &self,
        request: Request<pb::GetBlocksRequest>,
    ) -> Result<Response<pb::GetBlocksReply>, Status> {
        let asked = request.get_ref();
        let (ids, without_content) = (convert::ids(&asked.ids)?, asked.without_content);
        let opened = self
            .queries
            .open_for_blocks(request.metadata(), asked.read)
            .await?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let view = opened.view;
        let (blocks, answered) = ask(&self.context, move || {
            read_some(&ids, |id| {
                let found = view.block(*id)?;
                Ok(found.map(|block| convert::block(block, without_content)))
            })
        })
        .await?;
        self.queries.check_blocks(&caller, &blocks)?;
        let reply = pb::GetBlocksReply {
            header: Some(opened.header),
            blocks,
            answered,
        };
        Ok(respond_read(reply, &opened.point))
    }

    async fn get_edges(
        &self,
        request: Request<pb::GetEdgesRequest>,
    ) -> Result<Response<pb::GetEdgesReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let keys = convert::keys(asked.keys)?;
        let kinds: Vec<String> = keys.iter().map(|(_, kind, _)| kind.clone()).collect();
        let opened = self.queries.open(&metadata, asked.read, &kinds).await?;
        let view = opened.view;
        let (edges, answered) = ask(&self.context, move || {
            read_some(&keys, |(source, kind, target)| {
                Ok(view.edge(*source, kind, *target)?.map(convert::edge))
            })
        })
        .await?;
        let reply = pb::GetEdgesReply {
            header: Some(opened.header),
            edges,
            answered,
        };
        Ok(respond_read(reply, &opened.point))
    }

    async fn neighbors(
        &self,
        request: Request<pb::NeighborsRequest>,
    ) -> Result<Response<Self::NeighborsStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let id = convert::id(&asked.id)?;
        let direction = convert::direction(asked.direction)?;
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        let turn = self.queries.turn(1).await?;
        let view = opened.view;
        let limit = match asked.limit {
            0 => self.context.settings.traversal_blocks_max,
            limit => limit.min(self.context.settings.traversal_blocks_max),
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut found, turn) = self
            .queries
            .compute(turn, view, move |view| {
                // One more shows whether there are more.
                view.first_neighbors(id, direction, &asked.kinds, limit.saturating_add(1))
            })
            .await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let kept = (turn, self.queries.charge(&found)?);
        let mut header = Some(opened.header);
        let parts = parts_of(found).map(move |(part, is_last)| pb::NeighborsReply {
            header: header.take(),
            neighbors: part.iter().map(convert::neighbor).collect(),
            is_last,
            more: is_last && more,
        });
        Ok(respond_read(
            self.queries.in_parts(parts, kept)?,
            &opened.point,
        ))
    }

    async fn traverse(
        &self,
        request: Request<pb::TraverseRequest>,
    ) -> Result<Response<Self::TraverseStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let starts = convert::ids(&asked.starts)?;
        let direction = convert::direction(asked.direction)?;
        let is_depth_first = convert::is_depth_first(asked.order)?;
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        // A bounded depth-first traversal may reach a block again by a shorter path. Attributes are read edge by edge.
        let is_search = is_depth_first && asked.max_depth.is_some() || !asked.attributes.is_empty();
        let turn = self
            .queries
            .turn(if is_search { SEARCH_WEIGHT } else { 1 })
            .await?;
        let view = opened.view;
        let limit_of_server = self.context.settings.traversal_blocks_max;
        let mut charge = Charge::none(self.queries.account());
        let (found, turn) = self
            .queries
            .compute(turn, view, move |view| {
                let mut traversal = view
                    .traverse(starts[0])
                    .direction(direction)
                    .kinds(asked.kinds)
                    .limit(asked.limit.unwrap_or(u64::MAX).min(limit_of_server));
                for start in &starts[1..] {
                    traversal = traversal.also_from(*start);
                }
                if is_depth_first {
                    traversal = traversal.depth_first();
                }
                if let Some(depth) = asked.max_depth {
                    traversal = traversal.max_depth(depth);
                }
                if let Some(bytes) = asked.max_bytes {
                    traversal = traversal.max_bytes(bytes);
                }
                if let Some(edges) = asked.max_neighbors {
                    traversal = traversal.max_neighbors(edges);
                }
                for wanted in asked.attributes {
                    traversal = traversal.attribute(wanted.name, wanted.value);
                }
                let found = traversal.run()?;
                let charged = charge.set(found.len() * size_of::<Visit>());
                Ok(charged.map(|()| (found.to_traversal(), charge)))
            })
            .await?;
        let (found, charge) = found?;
        let is_own_limit = asked.limit.is_some_and(|limit| limit <= limit_of_server);
        let end = pb::TraverseEnd {
            stop: convert::stop(found.stop).into(),
            is_of_server: found.stop == Stop::Limit && !is_own_limit,
            edges_touched: found.edges_touched,
        };
        let mut header = Some(opened.header);
        let parts = parts_of(found.visits).map(move |(part, is_last)| pb::TraverseReply {
            header: header.take(),
            visits: part.iter().map(convert::visit).collect(),
            end: is_last.then_some(end),
        });
        Ok(respond_read(
            self.queries.in_parts(parts, (turn, charge))?,
            &opened.point,
        ))
    }

    async fn shortest_path(
        &self,
        request: Request<pb::ShortestPathRequest>,
    ) -> Result<Response<pb::ShortestPathReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let (from, to) = (convert::id(&asked.from)?, convert::id(&asked.to)?);
        let direction = convert::direction(asked.direction)?;
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        let turn = self.queries.turn(SEARCH_WEIGHT).await?;
        let view = opened.view;
        let (found, _turn) = self
            .queries
            .compute(turn, view, move |view| {
                let mut search = view
                    .shortest_path(from, to)
                    .direction(direction)
                    .kinds(asked.kinds);
                if let Some(weight) = asked.weight {
                    search = search.weight(weight);
                }
                if let Some(weight) = asked.default_weight {
                    search = search.default_weight(weight);
                }
                if let Some(depth) = asked.max_depth {
                    search = search.max_depth(depth);
                }
                search.find()
            })
            .await?;
        let path = found.map(|path| pb::Path {
            blocks: path.blocks.into_iter().map(convert::id_bytes).collect(),
            kinds: path.kinds.iter().map(ToString::to_string).collect(),
            cost: path.cost,
        });
        let reply = pb::ShortestPathReply {
            header: Some(opened.header),
            path,
        };
        Ok(respond_read(reply, &opened.point))
    }

    async fn list_blocks(
        &self,
        request: Request<pb::ListBlocksRequest>,
    ) -> Result<Response<Self::ListBlocksStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let opened = self.queries.open(&metadata, asked.read, &[]).await?;
        let turn = self.queries.turn(1).await?;
        let cancel = Cancel::new();
        let (view, header) = (opened.view.cancelable(&cancel), opened.header);
        let ended = cancel.clone();
        let stream = produced(self.queries.account(), move |sender| {
            let _turn = turn;
            let mut parts = Parts::new(sender, header, |header, blocks, is_last| {
                pb::ListBlocksReply {
                    header,
                    blocks,
                    is_last,
                }
            });
            let scanned = view.for_each_block(|block| {
                // Nothing is sent of a block that is not wanted: that the call has ended shows only here.
                ended.check()?;
                let is_wanted = asked.attribute.as_ref().is_none_or(|wanted| {
                    let held = block.attributes.get(&wanted.name);
                    held.is_some_and(|held| held.reads(&wanted.value))
                });
                if !is_wanted {
                    return Ok(());
                }
                let kinds: usize = block.kinds.iter().map(|kind| kind.len() + 2).sum();
                let attributes = convert::size_of(&block.attributes);
                let block = convert::block(block, asked.without_content);
                let bytes = block.content.len() + kinds + attributes;
                parts.push(block, bytes)
            });
            parts.finish(scanned)
        });
        let stream = Queries::reading(stream, cancel);
        Ok(respond_read(stream, &opened.point))
    }

    async fn list_edges(
        &self,
        request: Request<pb::ListEdgesRequest>,
    ) -> Result<Response<Self::ListEdgesStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        let turn = self.queries.turn(1).await?;
        let cancel = Cancel::new();
        let (view, header) = (opened.view.cancelable(&cancel), opened.header);
        let ended = cancel.clone();
        let stream = produced(self.queries.account(), move |sender| {
            let _turn = turn;
            let mut parts = Parts::new(sender, header, |header, edges, is_last| {
                pb::ListEdgesReply {
                    header,
                    edges,
                    is_last,
                }
            });
            let scanned = view.for_each_edge_of(&asked.kinds, |edge| {
                ended.check()?;
                let bytes = convert::size_of(&edge.attributes);
                parts.push(convert::edge(edge), bytes)
            });
            parts.finish(scanned)
        });
        let stream = Queries::reading(stream, cancel);
        Ok(respond_read(stream, &opened.point))
    }

    async fn order(
        &self,
        request: Request<pb::OrderRequest>,
    ) -> Result<Response<Self::OrderStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        let turn = self.queries.turn_of_whole().await?;
        let view = opened.view;
        let precedence = if asked.target_first {
            Precedence::TargetFirst
        } else {
            Precedence::SourceFirst
        };
        let ((ids, is_cycle), turn) = self
            .queries
            .compute(turn, view, move |view| {
                // A cycle is a valid result, too.
                match view.topological_order(&asked.kinds, precedence) {
                    Ok(ids) => Ok((ids, false)),
                    Err(bowline::Error::Cycle { cycle }) => Ok((cycle, true)),
                    Err(error) => Err(error),
                }
            })
            .await?;
        let mut header = Some(opened.header);
        let parts = parts_of(ids).map(move |(part, is_last)| {
            let ids = part.into_iter().map(convert::id_bytes).collect();
            let (blocks, cycle) = if is_cycle {
                (Vec::new(), ids)
            } else {
                (ids, Vec::new())
            };
            pb::OrderReply {
                header: header.take(),
                blocks,
                cycle,
                is_last,
            }
        });
        Ok(respond_read(
            self.queries.in_parts(parts, turn)?,
            &opened.point,
        ))
    }

    async fn components(
        &self,
        request: Request<pb::ComponentsRequest>,
    ) -> Result<Response<Self::ComponentsStream>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        let turn = self.queries.turn_of_whole().await?;
        let view = opened.view;
        let (found, turn) = self
            .queries
            .compute(turn, view, move |view| {
                if asked.strong {
                    view.strongly_connected_components(&asked.kinds)
                } else {
                    view.weakly_connected_components(&asked.kinds)
                }
            })
            .await?;
        let mut header = Some(opened.header);
        let parts = component_parts(found).map(move |(components, is_last)| pb::ComponentsReply {
            header: header.take(),
            components,
            is_last,
        });
        Ok(respond_read(
            self.queries.in_parts(parts, turn)?,
            &opened.point,
        ))
    }

    async fn stats(
        &self,
        request: Request<pb::StatsRequest>,
    ) -> Result<Response<pb::StatsReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let opened = self
            .queries
            .open(&metadata, asked.read, &asked.kinds)
            .await?;
        let turn = self.queries.turn_of_whole().await?;
        let view = opened.view;
        let (stats, _turn) = self
            .queries
            .compute(turn, view, move |view| view.stats(&asked.kinds))
            .await?;
        let reply = pb::StatsReply {
            header: Some(opened.header),
            blocks: stats.blocks,
            edges: stats.edges,
            blocks_by_kind: stats.blocks_by_kind,
            edges_by_kind: stats.edges_by_kind,
            self_loops: stats.self_loops,
            out_degree_max: stats.out_degree_max,
            in_degree_max: stats.in_degree_max,
            degree_mean: stats.degree_mean,
            strong_components: stats.strong_components,
            weak_components: stats.weak_components,
            triangles: stats.triangles,
            average_clustering: stats.average_clustering,
            view_memory_bytes: stats.view_memory_bytes,
        };
        Ok(respond_read(reply, &opened.point))
    }

    async fn page_rank(
        &self,
        request: Request<pb::PageRankRequest>,
    ) -> Result<Response<Self::PageRankStream>, Status> {
        graph_algorithms::page_rank(&self.queries, request).await
    }

    async fn communities(
        &self,
        request: Request<pb::CommunitiesRequest>,
    ) -> Result<Response<Self::CommunitiesStream>, Status> {
        graph_algorithms::communities(&self.queries, request).await
    }

    async fn triangles(
        &self,
        request: Request<pb::TrianglesRequest>,
    ) -> Result<Response<Self::TrianglesStream>, Status> {
        graph_algorithms::triangles(&self.queries, request).await
    }

    async fn clustering(
        &self,
        request: Request<pb::ClusteringRequest>,
    ) -> Result<Response<Self::ClusteringStream>, Status> {
        graph_algorithms::clustering(&self.queries, request).await
    }

    async fn k_hop(
        &self,
        request: Request<pb::KHopRequest>,
    ) -> Result<Response<Self::KHopStream>, Status> {
        graph_algorithms::k_hop(&self.queries, request).await
    }

    async fn simple_paths(
        &self,
        request: Request<pb::SimplePathsRequest>,
    ) -> Result<Response<Self::SimplePathsStream>, Status> {
        graph_algorithms::simple_paths(&self.queries, request).await
    }

    async fn query(
        &self,
        request: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        cypher::query(&self.context, &self.queries, request).await
    }
}
