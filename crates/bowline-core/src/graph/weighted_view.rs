//! [`WeightedView`]: a [`DenseView`] with a column of edge weights.
//!
//! The column stands beside the ends of the rows, and is read from the edges' attributes in the pass that reads the
//! edges. A weight that cannot be used is not a number there: it is an error only where an algorithm follows the edge.
//!
//! Memory: 8 B per edge beside the view; with arriving edges 8 B more.

use std::sync::OnceLock;

use super::algorithms::adjacency::{Adjacency, WeightedAdjacency};
use super::lent::AttributeRef;
use super::path::weighted::{Weight, is_weight};
use super::source::{GraphSource, KindFilter};
use super::view::DenseView;
use crate::Result;

/// All blocks, the edges of some kinds, and a weight for each edge.
pub(crate) struct WeightedView {
    view: DenseView<'static>,
    /// Parallel to the ends of the leaving rows.
    leaving: Vec<f64>,
    /// Parallel to the ends of the arriving rows, once they are asked for.
    arriving: OnceLock<Vec<f64>>,
}

impl WeightedView {
    /// Reads the whole graph.
    pub(crate) fn build(
        graph: &impl GraphSource,
        kinds: &KindFilter,
        weight: Weight<'_>,
    ) -> Result<WeightedView> {
        let mut leaving = Vec::new();
        let (view, _) = DenseView::build_from(graph, kinds, |visit| {
            graph.for_each_edge_value(weight.attribute, &mut |source, kind, target, value| {
                if kinds.passes(kind) {
                    leaving.push(number(value, weight.default));
                }
                visit(source, kind, target);
            })
        })?;
        leaving.shrink_to_fit();
        Ok(WeightedView {
            view,
            leaving,
            arriving: OnceLock::new(),
        })
    }

    pub(crate) fn view(&self) -> &DenseView<'static> {
        &self.view
    }

    /// Drops all but the ids.
    pub(crate) fn into_view(self) -> DenseView<'static> {
        self.view
    }

    fn arriving(&self) -> &[f64] {
        self.arriving.get_or_init(|| {
            let incoming = self.view.incoming_or_transposed();
            // In the order of `Rows::transposed`: sources ascend within each row.
            let mut next: Vec<usize> = (0..incoming.len() as u32)
                .map(|number| incoming.range(number).start)
                .collect();
            let mut weights = vec![0.0; self.leaving.len()];
            for (source, row) in self.view.outgoing().iter() {
                let range = self.view.outgoing().range(source);
                for (&target, &weight) in row.iter().zip(&self.leaving[range]) {
                    weights[next[target as usize]] = weight;
                    next[target as usize] += 1;
                }
            }
            weights
        })
    }
}

/// The weight of an edge with this value of the attribute.
fn number(value: Option<AttributeRef<'_>>, default: Option<f64>) -> f64 {
    let number = match value {
        Some(value) => value.as_number(),
        None => default,
    };
    number
        .filter(|number| is_weight(*number))
        .unwrap_or(f64::NAN)
}

impl Adjacency for WeightedView {
    fn vertex_count(&self) -> u32 {
        self.view.vertex_count()
    }

    fn out_row(&self, vertex: u32) -> impl Iterator<Item = u32> + '_ {
        self.view.out_row(vertex)
    }

    fn in_row(&self, vertex: u32) -> impl Iterator<Item = u32> + '_ {
        self.view.in_row(vertex)
    }

    fn out_degree(&self, vertex: u32) -> usize {
        self.view.out_degree(vertex)
    }

    fn in_degree(&self, vertex: u32) -> usize {
        self.view.in_degree(vertex)
    }
}

impl WeightedAdjacency for WeightedView {
    fn weighted_out_row(&self, vertex: u32) -> impl Iterator<Item = (u32, f64)> + '_ {
        let range = self.view.outgoing().range(vertex);
        let weights = self.leaving[range].iter().copied();
        self.out_row(vertex).zip(weights)
    }

    fn weighted_in_row(&self, vertex: u32) -> impl Iterator<Item = (u32, f64)> + '_ {
        let range = self.view.incoming_or_transposed().range(vertex);
        let weights = self.arriving()[range].iter().copied();
        self.in_row(vertex).zip(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind_id::KindId;
    use super::super::memory::MemoryGraph;
    use super::*;
    use bowline_types::Attributes;

    #[test]
    fn weights_stand_beside_their_edges_in_both_directions() {
        let mut graph = MemoryGraph::new(4, []);
        for (source, kind, target, km) in [
            (0, 2, 1, "4"),
            (0, 1, 1, "2.5"),
            (3, 1, 1, "-0"),
            (1, 1, 0, "nan"),
            (1, 1, 2, "-1"),
            (2, 9, 1, "7"),
        ] {
            let with = Attributes::from([("km".to_owned(), km.into())]);
            graph.add_edge(source, kind, target, &with);
        }
        graph.add_edge(2, 1, 0, &Attributes::new());
        let weight = Weight {
            attribute: "km",
            default: Some(1.5),
        };
        let kinds = KindFilter::only([KindId(1), KindId(2)]);
        let view = WeightedView::build(&graph, &kinds, weight).expect("builds");
        let leaving = |vertex| view.weighted_out_row(vertex).collect::<Vec<_>>();
        let arriving = |vertex| view.weighted_in_row(vertex).collect::<Vec<_>>();
        assert_eq!(leaving(0), [(1, 2.5), (1, 4.0)]);
        assert_eq!(leaving(2), [(0, 1.5)], "the default");
        assert_eq!(leaving(3), [(1, 0.0)]);
        let refused: Vec<_> = leaving(1)
            .into_iter()
            .map(|(end, weight)| (end, weight.is_nan()))
            .collect();
        assert_eq!(refused, [(0, true), (2, true)]);
        assert_eq!(arriving(1), [(0, 2.5), (0, 4.0), (3, 0.0)]);
        assert_eq!(arriving(0)[1], (2, 1.5));
        assert!(arriving(3).is_empty());
    }
}
