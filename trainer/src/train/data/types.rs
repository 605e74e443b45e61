//! The node types and relations of a graph that a model learns from.

use grappa_formats::{
    graph::{EDGE, NODE},
    schema::Schema,
};
use grappa_run::{
    config::{HaloMode, TaskChoice, TrainConfig},
    model::{JumpingKnowledge, ModelGraph, ModelNodeType, ModelRelation, ModelTarget},
    schema::Match,
};
use grappa_storage::{Graph, Relation};

use crate::{Error, Result};

/// Refuses options that contradict a graph with types, or one without.
pub(crate) fn check(graph: &Graph, config: &TrainConfig) -> Result<()> {
    let path = graph.path().display();
    if graph.has_types() && !config.model.is_relational() {
        return Err(Error::WrongStore(format!(
            "{path}: the graph has types, and {} has no weights for each relation: use --model rsage, rgcn, rgat or hgt",
            config.model
        )));
    }
    if !config.model.is_relational() {
        return match config.node_embeddings.is_empty() {
            true => Ok(()),
            false => Err(Error::Options(format!(
                "--node-embeddings {} does not go with --model {}: use rsage, rgcn, rgat or hgt, which take graphs without types, too",
                config.node_embeddings, config.model
            ))),
        };
    }
    if let Some((name, _)) = config.node_embeddings.iter().find(|(name, _)| graph.type_named(name).is_none()) {
        let names: Vec<&str> = graph.manifest().node_types.iter().map(|entry| entry.name.as_str()).collect();
        return Err(Error::WrongStore(format!(
            "{path}: there is no node type {name} for --node-embeddings; there are {}",
            names.join(", ")
        )));
    }
    let lacking = [
        (config.trains_full_graph(), "--method"),
        (config.halo == HaloMode::History, "--halo history"),
        (config.jumping_knowledge != JumpingKnowledge::None, "--jumping-knowledge"),
        (!graph.is_whole(), "training on a slice"),
    ];
    match lacking.into_iter().find(|(is_wanted, _)| *is_wanted) {
        Some((_, option)) => Err(Error::WrongStore(format!(
            "{path}: {option} does not go with --model {} yet: leave it out",
            config.model
        ))),
        None => Ok(()),
    }
}

/// What a run learns: the node type or the relation of `--target`, or the only one with labels or with edges that are held out.
pub(crate) fn target(graph: &Graph, config: &TrainConfig) -> Result<ModelTarget> {
    match config.task {
        TaskChoice::Link => target_relation(graph, config.target.as_deref()).map(ModelTarget::Relation),
        _ => target_type(graph, config.target.as_deref()).map(ModelTarget::Type),
    }
}

/// The type of the nodes that a run learns, or of the destinations of the edges.
pub(crate) fn node_type(graph: &Graph, target: ModelTarget) -> usize {
    match target {
        ModelTarget::Type(number) => number,
        ModelTarget::Relation(number) => graph.manifest().relations[number].destination as usize,
    }
}

fn target_relation(graph: &Graph, name: Option<&str>) -> Result<usize> {
    let path = graph.path().display();
    let relations = 0..graph.relations().len();
    let name_of = |number| graph.manifest().relation_name(number);
    let names = |numbers: &mut dyn Iterator<Item = usize>| numbers.map(name_of).collect::<Vec<_>>().join(", ");
    if let Some(name) = name {
        let found = relations.clone().find(|&number| name_of(number) == name);
        let problem = match graph.has_types() {
            false => format!(
                "the store has no types, so its edges are of the relation {NODE}:{EDGE}:{NODE}: leave out --target"
            ),
            true => format!(
                "there is no relation {name} for --target, which --task link needs as SOURCE:NAME:DESTINATION; there are {}",
                names(&mut relations.clone())
            ),
        };
        return found.filter(|_| graph.has_types()).ok_or(Error::WrongStore(format!("{path}: {problem}")));
    }
    // A relation that is the reverse of another has the same edges.
    let is_reverse = |number: usize| graph.manifest().relations[number].reverse_of.is_some();
    let is_held_out = |number: usize| !graph.relations()[number].manifest().held_out().is_empty();
    let has_held_out = relations.clone().any(|number| is_held_out(number) && !is_reverse(number));
    // Edges with times are split by time, unless some relation has edges that are held out.
    let has_timed = graph.relations().iter().any(|relation| relation.is_timed());
    let is_learned = |number: usize| match (has_held_out, has_timed) {
        (true, _) => is_held_out(number),
        (false, true) => graph.relations()[number].is_timed(),
        (false, false) => links_have_times(graph, number),
    };
    let held_out: Vec<usize> = relations.filter(|&number| is_learned(number) && !is_reverse(number)).collect();
    match held_out[..] {
        [only] => Ok(only),
        // The links say so themselves.
        [] if !graph.has_types() => Ok(0),
        [] => Err(Error::NoLabels(format!(
            "{path}: no relation has edges that are held out, so links cannot be scored; ingest the graph again with --edge-split \
             SOURCE:NAME:DESTINATION=80/10/10"
        ))),
        _ => Err(Error::WrongStore(format!(
            "{path}: several relations have edges {} ({}): name the one to learn with --target",
            if has_held_out { "that are held out" } else { "with times" },
            names(&mut held_out.into_iter())
        ))),
    }
}

/// Whether the edges of a relation have times, or its ends: a link is as late as its later end.
pub(crate) fn links_have_times(graph: &Graph, relation: usize) -> bool {
    let Relation { sources, edges, destinations } = graph.relation(relation);
    edges.is_timed() || sources.has_node_times() || destinations.has_node_times()
}

fn target_type(graph: &Graph, name: Option<&str>) -> Result<usize> {
    let path = graph.path().display();
    let names = |types: &mut dyn Iterator<Item = usize>| -> String {
        let names: Vec<&str> = types.map(|number| graph.manifest().node_types[number].name.as_str()).collect();
        names.join(", ")
    };
    let types = 0..graph.node_types().len();
    let has_labels = |number: usize| graph.node_types()[number].manifest().labels.is_some();
    if let Some(name) = name {
        let Some(number) = graph.type_named(name) else {
            let problem = match graph.has_types() {
                false => format!("the store has no types, so its nodes are of the type {NODE}: leave out --target"),
                true if name.contains(':') => {
                    format!("--target {name} is a relation: use --task link, or name a node type")
                }
                true => format!("there is no node type {name} for --target; there are {}", names(&mut types.clone())),
            };
            return Err(Error::WrongStore(format!("{path}: {problem}")));
        };
        // The labels of a graph without types say so themselves.
        return match has_labels(number) || !graph.has_types() {
            true => Ok(number),
            false => Err(Error::NoLabels(format!(
                "{path}: nodes of type {name} have no labels to learn; ingest them with --labels {name}=FILE"
            ))),
        };
    }
    let labelled: Vec<usize> = types.filter(|&number| has_labels(number)).collect();
    match labelled[..] {
        [only] => Ok(only),
        // The labels say so themselves.
        [] if !graph.has_types() => Ok(0),
        [] => Err(Error::NoLabels(format!(
            "{path}: no node type has labels to learn; ingest them with --labels TYPE=FILE"
        ))),
        _ => Err(Error::WrongStore(format!(
            "{path}: several node types have labels ({}): name the one to learn with --target",
            names(&mut labelled.into_iter())
        ))),
    }
}

/// The types and relations of a graph for a model of `target`. `inputs` returns the values of the encoded age and of the embedding of a type, by
/// its number and name.
pub(crate) fn model_graph(
    graph: &Graph,
    target: ModelTarget,
    inputs: impl Fn(usize, &str) -> [usize; 2],
    edge_ages: impl Fn(usize) -> usize,
) -> Result<ModelGraph> {
    let manifest = graph.manifest();
    let node_types = manifest.node_types.iter().zip(graph.node_types()).enumerate().map(|(number, (entry, store))| {
        let [ages, embedding] = inputs(number, &entry.name);
        Ok(ModelNodeType {
            name: entry.name.clone(),
            inputs: store.manifest().features.as_ref().map_or(0, |features| features.dim as usize) + ages + embedding,
            ages,
            embedding,
            columns: store.schema()?.features,
        })
    });
    let relations = manifest.relations.iter().enumerate().map(|(number, entry)| ModelRelation {
        source: entry.source as usize,
        name: entry.name.clone(),
        destination: entry.destination as usize,
        ages: edge_ages(number),
    });
    Ok(ModelGraph { node_types: node_types.collect::<Result<_>>()?, relations: relations.collect(), target })
}

/// How a graph differs from the one that a model was `learned` on, if it does.
pub(crate) fn difference(learned: &ModelGraph, found: &ModelGraph) -> Option<String> {
    let [theirs, ours] = [learned, found].map(|graph| {
        let types = graph
            .node_types
            .iter()
            .map(|node_type| format!("type {} with {} features", node_type.name, node_type.inputs));
        let relations = (0..graph.relations.len()).map(|number| format!("relation {}", graph.names(number).join(":")));
        types.chain(relations).collect::<Vec<String>>()
    });
    let [missing, other] =
        [(&theirs, &ours), (&ours, &theirs)].map(|(all, others)| all.iter().find(|name| !others.contains(name)));
    match (missing, other) {
        (Some(missing), Some(other)) => Some(format!("it has {other}, and not {missing}")),
        (Some(missing), None) => Some(format!("it lacks {missing}")),
        (None, Some(other)) => Some(format!("it has {other} besides")),
        (None, None) if theirs != ours => Some("its types or relations are in another order".to_owned()),
        (None, None) => {
            let types = learned.node_types.iter().zip(&found.node_types);
            types.into_iter().find_map(|(learned, found)| difference_of_columns(learned, found))
        }
    }
}

/// How the features of a type differ by their names, if they do.
fn difference_of_columns(learned: &ModelNodeType, found: &ModelNodeType) -> Option<String> {
    let [run, graph] =
        [learned, found].map(|node_type| Schema { features: node_type.columns.clone(), ..Schema::default() });
    match Match::of_features(&run, &graph) {
        Match::Unnamed | Match::OneUnnamed | Match::Same => None,
        matched => Some(format!("features of type {} are not those of the run: {}", found.name, matched.difference())),
    }
}
