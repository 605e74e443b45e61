//! An estimate of the size of minibatches, before the first one is sampled.

use grappa_io::{
    machine::free_memory_bytes,
    size::{ByteSize, count},
};
use grappa_run::{config::TrainConfig, model::ModelOptions};
use grappa_sampling::partition::{Hosts, Schedule, Share};

use super::resolved_config::ResolvedConfig;
use crate::{Error, Result};

/// Minibatches with fewer edges are fast enough for no warning.
const EDGES_NOTED: f64 = 1e6;
/// A warning is due if a minibatch has more than this many times the edges of the graph: it expands the same nodes again and again.
const REPEATS_NOTED: f64 = 4.0;
/// The estimate is for random graphs. In real graphs, a minibatch may be smaller by this factor.
const DOUBT: f64 = 2.0;

/// The expected size of a minibatch, in a graph with random edges.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Expected {
    /// Nodes whose features are read.
    nodes: f64,
    /// Edges of all hops.
    edges: f64,
    /// Lower bound of the activations that layers keep for the backward pass, in bytes.
    bytes: f64,
}

/// Refuses minibatches that do not fit into this machine's memory. Returns a warning about minibatches that take long.
pub(crate) fn check(
    hosts: &Hosts,
    config: &ResolvedConfig,
    model: &ModelOptions,
    train_nodes: u64,
    share: Share,
) -> Result<Option<String>> {
    let nodes = hosts.trained().map(|(_, counts)| counts.nodes).sum::<u64>() as f64;
    let edges = hosts.trained().map(|(_, counts)| counts.edges).sum::<u64>() as f64;
    let expected = expect(nodes, edges, config, model, train_nodes, config.knows_first_hop());
    // A step computes the minibatches of its partitions together, as far as this process serves them.
    let partitions = config.concurrent().div_ceil(share.workers());
    let step_bytes = expected.bytes * f64::from(partitions);
    let (together, fewer) = match partitions {
        1 => (String::new(), ""),
        _ => (
            format!(", and the {partitions} minibatches of a step have {} together", ByteSize(step_bytes as u64)),
            ", or a smaller --concurrent",
        ),
    };
    let size = format!(
        "a minibatch passes {} layer(s) and has about {} of {} nodes, {} edges and {} of activations{together}",
        config.layers,
        count(expected.nodes as u64),
        count(nodes as u64),
        count(expected.edges as u64),
        ByteSize(expected.bytes as u64),
    );
    match free_memory_bytes() {
        Some(free) if step_bytes / DOUBT > free as f64 => Err(Error::TooLarge(format!(
            "{size}, and {} are free: use fewer --layers, a smaller --hidden, fewer --heads, smaller --fanouts, or a smaller \
             --batch{fewer}",
            ByteSize(free)
        ))),
        _ if !config.full_graph && expected.edges > EDGES_NOTED && expected.edges > REPEATS_NOTED * edges => {
            Ok(Some(format!("{size}: steps will take long; use fewer --layers or smaller --fanouts")))
        }
        _ => Ok(None),
    }
}

fn expect(
    nodes: f64,
    edges: f64,
    config: &TrainConfig,
    model: &ModelOptions,
    train_nodes: u64,
    knows_first_hop: bool,
) -> Expected {
    // A partition owns its base, and as much again under schedules with a variable part.
    let bases = match config.schedule {
        Schedule::Shuffle => 1.0,
        Schedule::Sweep | Schedule::Fixed | Schedule::Local => 2.0,
    };
    let degree = edges / nodes.max(1.0);
    let nodes = nodes * (bases / f64::from(config.partitions())).min(1.0);
    let seeds = train_nodes as f64 / f64::from(config.partitions());
    let fanouts = config.fanouts();
    let attends = config.model.attends();

    let mut reached = (seeds.min(config.batch() as f64) * config.seeds_of_example()).min(nodes);
    let mut expected = Expected { nodes: 0.0, edges: 0.0, bytes: 0.0 };
    for hop in 0..config.layers {
        let layer = config.layers - 1 - hop;
        let inputs = if layer == 0 { model.inputs } else { model.hidden } as f64;
        let outputs = if hop == 0 { model.outputs } else { model.hidden } as f64;
        // The aggregate and the output of each destination.
        expected.bytes += 4.0 * reached * (inputs + outputs);
        if layer == 0 && knows_first_hop {
            break;
        }
        let drawn = reached * fanouts.at(hop).map_or(degree, |fanout| degree.min(f64::from(fanout)));
        expected.edges += drawn;
        if attends {
            // A logit and an attention weight per edge and head. In the last layer, each head has all outputs.
            expected.bytes += 8.0 * drawn * model.heads as f64;
            let heads = if hop == 0 { model.heads } else { 1 } as f64;
            expected.bytes += 4.0 * reached * heads * outputs;
        }
        // The expected number of distinct nodes among `drawn` uniform draws.
        let hit = nodes * -(-drawn / nodes.max(1.0)).exp_m1();
        reached = nodes.min(reached + hit);
    }
    expected.nodes = reached;
    expected
}

#[cfg(test)]
mod tests {
    use grappa_run::{
        config::Auto,
        model::{LayerKind, Task},
    };

    use super::*;

    fn expected_for(change: impl FnOnce(&mut TrainConfig)) -> Expected {
        let mut config = TrainConfig::default();
        change(&mut config);
        let model = config.model_options(100, 10, Task::MultiClass);
        expect(1e6, 2e7, &config, &model, 100_000, false)
    }

    #[test]
    fn a_minibatch_has_what_its_fanouts_reach() {
        let two = expected_for(|_| ());
        // 1024 seeds with 15 neighbors each, and 10 of each of these.
        assert!((two.edges - (1024.0 * 15.0 + 16_200.0 * 10.0)).abs() < 2000.0, "{two:?}");
        assert!(two.nodes > 1e5 && two.nodes < 178_000.0, "{two:?}");
        let values = 4.0 * (1024.0 * (128.0 + 10.0) + 16_250.0 * (100.0 + 128.0));
        assert!((two.bytes / values - 1.0).abs() < 0.02, "{two:?}");
        // No more neighbors than there are.
        assert_eq!(
            expected_for(|config| config.fanouts = "30,30".parse().unwrap()),
            expected_for(|config| {
                config.fanouts = "20,20".parse().unwrap();
            })
        );
    }

    #[test]
    fn many_layers_reach_all_nodes_again_and_again() {
        let deep = expected_for(|config| config.layers = 50);
        assert!(deep.nodes > 0.999e6 && deep.nodes <= 1e6, "{deep:?}");
        assert!(deep.edges > 200e6 && deep.edges < 250e6, "{deep:?}");
        assert!(deep.bytes > 4e10, "{deep:?}");
    }

    #[test]
    fn partitions_have_nodes_of_the_degree_of_the_graph() {
        for partitions in [2, 16, 512] {
            let whole = expected_for(|config| {
                config.partitions = Auto::Value(partitions);
                config.full_graph = true;
                config.fanouts = "-1,-1".parse().unwrap();
            });
            // Under `sweep`, a partition owns two of the parts.
            let most = 2.0 * 2e7 * 2.0 / f64::from(partitions);
            assert!(whole.edges <= 1.001 * most, "{partitions}: {whole:?}");
        }
    }

    #[test]
    fn heads_cost_memory_by_the_edge() {
        let heads = |heads: usize| {
            expected_for(|config| {
                config.model = LayerKind::Gat;
                (config.heads, config.hidden) = (heads, 65_536);
            })
        };
        assert!(heads(65_536).bytes > heads(1).bytes + 8.0 * 65_535.0 * heads(1).edges);
    }
}
