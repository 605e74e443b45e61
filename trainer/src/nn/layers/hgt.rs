//! The heterogeneous graph transformer (Hu, Dong, Wang, Sun: "Heterogeneous Graph Transformer", 2020).

use tch::{Kind, Tensor};

use super::{
    heads::Heads,
    layer::{Hop, Layer},
    relations::RelationInput,
};
use crate::nn::{
    aggregate_kind::Aggregate,
    attention::{attend, dot_logits},
    backend::Backend,
    dot_attention::DotAttention,
    graph::Block,
    linear::{Epilogue, LinearLayer, apply, float, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
    scaled::add_scaled,
};

/// PyTorch Geometric's HGTConv. With keys k, queries q and values v of a head, which are linear in x by type, and d values of a head:
///
/// ```text
/// logit of an edge   p_rel[relation, head] (k_source k_rel[relation, head]) q_destination / sqrt(d)
/// aggregate          softmax over the edges of all relations into the destination, of v_source v_rel[relation, head]
/// result             s out_lin(gelu(aggregate)) + (1 - s) x, with s = sigmoid(skip) of the type
/// ```
///
/// A message is the key, then the value, after the matrices of the relation. Both matrices are one: rows are multiplied once.
#[derive(Debug)]
pub(crate) struct Hgt {
    heads: i64,
    queries: LinearLayer,
    relations: Vec<RelationWeights>,
    out: LinearLayer,
    skip: Tensor,
}

/// The parameters of a relation.
#[derive(Debug)]
struct RelationWeights {
    /// The keys, queries and values of the source's type.
    projections: LinearLayer,
    /// The numbers of the relation's matrices, one for each head.
    matrices: Vec<i64>,
    keys: Tensor,
    values: Tensor,
    /// `[1, heads]`.
    prior: Tensor,
}

/// The parameters of a layer for all types and relations.
#[derive(Debug)]
pub(crate) struct HgtWeights {
    heads: i64,
    /// `[3 hidden, inputs]` of each type: keys, queries, values.
    projections: Vec<LinearLayer>,
    out: Vec<LinearLayer>,
    /// `[heads * relations, d, d]`: the matrices of the first head come first.
    keys: Tensor,
    values: Tensor,
    skip: Vec<Tensor>,
    prior: Vec<Tensor>,
}

impl HgtWeights {
    /// `types` are the names of types; `relations` are the names of relations and of the types that they join.
    pub(crate) fn new(
        builder: &mut Builder,
        types: &[String],
        relations: &[[String; 3]],
        width: i64,
        heads: i64,
    ) -> Self {
        let by_type = |builder: &mut Builder, name: &str, outputs: i64| -> Vec<LinearLayer> {
            let lins = format!("{name}.lins");
            let layers = types
                .iter()
                .map(|name| builder.scope(&lins, |builder| LinearLayer::of_pytorch(builder, name, [width, outputs])));
            layers.collect()
        };
        let (dim, matrices) = (width / heads, heads * relations.len() as i64);
        let projections = by_type(builder, "kqv_lin", 3 * width);
        let out = by_type(builder, "out_lin", width);
        let [keys, values] = ["k_rel.weight", "v_rel.weight"]
            .map(|name| builder.parameter(name, &[matrices, dim, dim], Start::linear(dim)));
        let ones =
            |builder: &mut Builder, name: &str, shape: &[i64]| builder.parameter(name, shape, Start::Constant(1.0));
        let skip = types.iter().map(|name| ones(builder, &format!("skip.{name}"), &[1])).collect();
        let prior = relations.iter().map(|names| ones(builder, &format!("p_rel.{}", names.join("__")), &[1, heads]));
        Self { heads, projections, out, keys, values, skip, prior: prior.collect() }
    }

    /// The part of the layer for a type. `sources` has the type of each relation's sources.
    pub(crate) fn for_type(&self, node_type: usize, relations: &[RelationInput], sources: &[usize]) -> Hgt {
        let of_relation = |relation: &RelationInput| RelationWeights {
            projections: self.projections[sources[relation.number]].shallow_clone(),
            matrices: (0..self.heads).map(|head| head * self.prior.len() as i64 + relation.number as i64).collect(),
            keys: self.keys.shallow_clone(),
            values: self.values.shallow_clone(),
            prior: self.prior[relation.number].shallow_clone(),
        };
        Hgt {
            heads: self.heads,
            queries: self.projections[node_type].shallow_clone(),
            relations: relations.iter().map(of_relation).collect(),
            out: self.out[node_type].shallow_clone(),
            skip: self.skip[node_type].shallow_clone(),
        }
    }
}

/// One of the three parts of projections, as a layer: keys, queries or values.
fn part_of(projections: &LinearLayer, part: i64) -> LinearLayer {
    let width = projections.outputs() / 3;
    let narrow = |tensor: &Tensor| tensor.narrow(0, part * width, width);
    LinearLayer { weight: narrow(&projections.weight), bias: projections.bias.as_ref().map(narrow) }
}

impl RelationWeights {
    /// The layer that makes the keys of a relation, or its values.
    fn transformed(&self, part: i64, matrices: &Tensor, factors: Option<&Tensor>) -> LinearLayer {
        let LinearLayer { weight, bias } = part_of(&self.projections, part);
        let numbers = Tensor::from_slice(&self.matrices).to_device(matrices.device());
        let selected = matrices.index_select(0, &numbers);
        let of_heads = match factors {
            Some(factors) => selected * factors.view([-1, 1, 1]),
            None => selected,
        };
        // A row of a head is multiplied by the matrix of the head from the right.
        let matrix = Tensor::block_diag(&of_heads.transpose(1, 2).unbind(0));
        let bias = bias.map(|bias| linear(&[(&bias.unsqueeze(0), &matrix)], None, Epilogue::NONE).squeeze_dim(0));
        LinearLayer { weight: linear(&[(&matrix, &weight.tr())], None, Epilogue::NONE), bias }
    }

    fn key_layer(&self) -> LinearLayer {
        self.transformed(0, &self.keys, Some(&self.prior))
    }

    fn value_layer(&self) -> LinearLayer {
        self.transformed(2, &self.values, None)
    }
}

impl Hgt {
    fn heads(&self) -> Heads {
        Heads::new(self.out.outputs(), self.heads, false)
    }
}

impl Layer for Hgt {
    fn aggregate(&self) -> Aggregate {
        Aggregate::AttentionToOthers
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let queries = hop.of_destinations(&part_of(&self.queries, 1));
        let (keys, values): (Vec<Tensor>, Vec<Tensor>) = self
            .relations
            .iter()
            .zip(&hop.relations)
            .map(|(weights, relation)| {
                let rows = |layer: LinearLayer| layer.in_f32(relation.sources);
                (rows(weights.key_layer()), rows(weights.value_layer()))
            })
            .unzip();
        let blocks: Vec<&Block> = hop.relations.iter().map(|relation| relation.block).collect();
        let (merged, keys, values) = match (&blocks[..], &keys[..], &values[..]) {
            ([_], [keys], [values]) => (None, keys.shallow_clone(), values.shallow_clone()),
            _ => (Some(Block::merged(&blocks)), Tensor::cat(&keys, 0), Tensor::cat(&values, 0)),
        };
        let block = merged.as_ref().unwrap_or(blocks[0]);
        let logits = dot_logits(Backend::Fastest, block, [&keys, &queries], None, self.heads);
        let logits = logits / (self.heads().width as f64).sqrt();
        let aggregated = attend(Backend::Fastest, block, &values, None, &logits, hop.dropout.clone());
        (hop.own_states(), vec![aggregated])
    }

    fn messages(&self, relation: usize, sources: &Tensor) -> Tensor {
        let weights = &self.relations[relation];
        let rows = [weights.key_layer(), weights.value_layer()].map(|layer| layer.in_f32(sources));
        Tensor::cat(&rows, 1)
    }

    fn queries(&self, _relation: usize, own: &Tensor) -> Option<Tensor> {
        Some(part_of(&self.queries, 1).in_f32(own))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        Reduction::DotAttention(DotAttention { heads: self.heads().of_state(), edges: None })
    }

    /// The softmax is over the edges of all relations: sums of one relation count with its share of all weights.
    fn joined(&self, states: &[Tensor]) -> Vec<Tensor> {
        let Heads { count, width, .. } = self.heads();
        let values = count * width;
        let largest: Vec<Tensor> = states.iter().map(|state| state.narrow(1, values, count)).collect();
        let common = Tensor::stack(&largest, 0).amax([0i64].as_slice(), false).clamp_min(f64::from(f32::MIN));
        let weights: Vec<Tensor> = states
            .iter()
            .zip(&largest)
            .map(|(state, largest)| state.narrow(1, values + count, count) * (largest - &common).exp())
            .collect();
        let all = Tensor::stack(&weights, 0).sum_dim_intlist([0i64].as_slice(), false, Kind::Float);
        // Nodes without in-edges get zeros.
        let all = all.where_self(&all.not_equal(0.0), &all.ones_like());
        let terms = states.iter().zip(&weights).map(|(state, weight)| {
            let share = (weight / &all).unsqueeze(2);
            (state.narrow(1, 0, values).view([-1, count, width]) * share).view([-1, values])
        });
        terms.reduce(|sum, term| sum + term).into_iter().collect()
    }

    fn joined_width(&self, _width: usize) -> usize {
        let heads = self.heads();
        (heads.values() + 2 * heads.count) as usize
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let new = self.out.in_f32(&aggregated[0].gelu("none"));
        let (own, kind) = (float(own), own.kind());
        let sum = add_scaled(Backend::Fastest, &own, &(new - &own), &self.skip.sigmoid());
        apply(&sum, epilogue).to_kind(kind)
    }
}
