//! The convolutions of a layer: one for a graph without types, or one for each node type.

use grappa_run::model::{JumpingKnowledge, LayerKind, ModelGraph, ModelOptions, NormKind};

use super::{
    aggregate_kind::Aggregate,
    layers::{
        Gat, Gatv2, Gcn, Gin, Gine, Heads, HgtWeights, Layer, PinSage, RelationInput, Rgat, Rgcn, Rsage, Sage,
        Transformer,
    },
    parameters::Builder,
};

/// The key of a type in PyTorch Geometric's ModuleDict.
pub(crate) fn module_key(name: &str) -> String {
    name.replace('.', "#")
}

/// The shape of a layer.
pub(super) struct LayerShape<'a> {
    pub options: &'a ModelOptions,
    pub graph: &'a ModelGraph,
    /// Width of the states of each type at its input.
    pub widths: &'a [i64],
    pub outputs: i64,
    pub index: usize,
}

impl LayerShape<'_> {
    /// The convolution of each type. It aggregates the `relations` of the type.
    pub fn convolutions(&self, builder: &mut Builder, relations: &[Option<Vec<usize>>]) -> Vec<Option<Box<dyn Layer>>> {
        let &Self { options, graph, widths, outputs, index } = self;
        let sources: Vec<usize> = graph.relations.iter().map(|relation| relation.source).collect();
        let inputs_of = |numbers: &[usize]| -> Vec<RelationInput> {
            let relation = |&number: &usize| RelationInput {
                number,
                name: format!("convs.<{}>", graph.names(number).map(module_key).join("___")),
                width: widths[sources[number]],
                edge_features: graph.relations[number].ages as i64,
            };
            numbers.iter().map(relation).collect()
        };
        let by_type = relations.iter().map(|numbers| numbers.as_deref().map(inputs_of)).enumerate();
        let combine = options.relation_aggregate;
        let last = index + 1 == options.layers && options.jumping_knowledge == JumpingKnowledge::None;
        let heads = options.heads_of(index) as i64;
        match options.layer {
            LayerKind::Rsage => {
                let of_type = |(node_type, relations): (usize, Option<Vec<RelationInput>>)| {
                    let layer = Rsage::new(builder, &relations?, widths[node_type], outputs, combine);
                    Some(Box::new(layer) as Box<dyn Layer>)
                };
                by_type.map(of_type).collect()
            }
            LayerKind::Rgat => {
                let of_type = |(node_type, relations): (usize, Option<Vec<RelationInput>>)| {
                    let heads = Heads::new(outputs, heads, last);
                    let layer = Rgat::new(builder, &relations?, widths[node_type], outputs, heads, combine);
                    Some(Box::new(layer) as Box<dyn Layer>)
                };
                by_type.map(of_type).collect()
            }
            LayerKind::Rgcn => {
                let sizes = [options.hidden as i64, outputs];
                let shared = Rgcn::new(builder, graph.relations.len(), options.bases, sizes);
                let of_type = |(_, relations): (usize, Option<Vec<RelationInput>>)| {
                    Some(Box::new(shared.for_type(&relations?)) as Box<dyn Layer>)
                };
                by_type.map(of_type).collect()
            }
            LayerKind::Hgt => {
                let types: Vec<String> = graph.node_types.iter().map(|node_type| module_key(&node_type.name)).collect();
                let names: Vec<[String; 3]> =
                    (0..sources.len()).map(|number| graph.names(number).map(module_key)).collect();
                let shared = HgtWeights::new(builder, &types, &names, options.hidden as i64, options.heads as i64);
                let of_type = |(node_type, relations): (usize, Option<Vec<RelationInput>>)| {
                    Some(Box::new(shared.for_type(node_type, &relations?, &sources)) as Box<dyn Layer>)
                };
                by_type.map(of_type).collect()
            }
            _ => vec![Some(self.untyped(builder, heads, last))],
        }
    }

    /// The convolution of a graph without types.
    fn untyped(&self, builder: &mut Builder, heads: i64, last: bool) -> Box<dyn Layer> {
        let (options, inputs, outputs) = (self.options, self.widths[0], self.outputs);
        let (widths, features) = ([inputs, options.hidden as i64, outputs], options.edges.features());
        let has_norm = options.norm != NormKind::None;
        match options.layer {
            LayerKind::Sage => Box::new(Sage::new(builder, Aggregate::Mean, inputs, outputs)),
            LayerKind::SageMax => Box::new(Sage::new(builder, Aggregate::Max, inputs, outputs)),
            LayerKind::Gcn => Box::new(Gcn::new(builder, inputs, outputs)),
            LayerKind::Gat => Box::new(Gat::new(builder, inputs, outputs, heads, last)),
            LayerKind::Gatv2 => Box::new(Gatv2::new(builder, [inputs, outputs], heads, last, features)),
            LayerKind::Gin => Box::new(Gin::new(builder, widths, has_norm)),
            LayerKind::Gine => Box::new(Gine::new(builder, widths, has_norm, features)),
            LayerKind::Transformer => Box::new(Transformer::new(builder, [inputs, outputs], heads, last, features)),
            LayerKind::PinSage => Box::new(PinSage::new(builder, inputs, outputs)),
            LayerKind::Rsage | LayerKind::Rgcn | LayerKind::Rgat | LayerKind::Hgt => {
                unreachable!("it has a convolution for each type")
            }
        }
    }
}
