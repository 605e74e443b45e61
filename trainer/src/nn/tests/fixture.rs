//! Arrays made by tests/fixtures/make.py.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
};

use grappa_formats::NodeId;
use grappa_sampling::sample::{self, Minibatch};
use tch::{Device, Tensor, no_grad};

use crate::nn::{Block, Model};

/// A file of arrays, and its graph.
pub(super) struct Fixture {
    arrays: HashMap<String, Tensor>,
    pub(super) graph: Graph,
}

/// In-neighbors of each node, and the weights or features of edges.
pub(super) struct Graph {
    pub(super) rows: Vec<Vec<(u32, f32)>>,
    pub(super) weighted: bool,
    /// The features of the edges of each row.
    pub(super) features: Vec<Vec<Vec<f32>>>,
}

/// The folder of the files: of the checkout, or of an unpacked `cargo xtask gpu-bundle`.
fn folder() -> PathBuf {
    match env::var_os("GRAPPA_BUNDLE") {
        Some(bundle) => Path::new(&bundle).join("share/fixtures"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"),
    }
}

/// The arrays of a file.
pub(super) fn read_arrays(name: &str) -> HashMap<String, Tensor> {
    let path = folder().join(format!("{name}.safetensors"));
    let arrays = Tensor::read_safetensors(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    arrays.into_iter().collect()
}

impl Fixture {
    pub(super) fn read(name: &str) -> Self {
        let arrays = read_arrays(name);
        let ends = Vec::<Vec<i64>>::try_from(&arrays["edge_index"]).expect("edges");
        let weights = arrays.get("weight").map(|weights| Vec::<f32>::try_from(weights).expect("weights"));
        let features =
            arrays.get("edge_attr").map(|features| Vec::<Vec<f32>>::try_from(features).expect("features of edges"));
        let mut rows = vec![Vec::new(); arrays["x"].size()[0] as usize];
        let mut of_rows = vec![Vec::new(); rows.len()];
        for (edge, (&source, &destination)) in ends[0].iter().zip(&ends[1]).enumerate() {
            let weight = weights.as_ref().map_or(1.0, |weights| weights[edge]);
            rows[destination as usize].push((source as u32, weight));
            // Any features, for models that need some.
            let any = || (0..4).map(|column| ((7 * edge + 3 * column) % 11) as f32 / 5.0 - 1.0).collect();
            let of_edge = features.as_ref().map_or_else(any, |features| features[edge].clone());
            of_rows[destination as usize].push(of_edge);
        }
        let graph = Graph { rows, weighted: weights.is_some(), features: of_rows };
        Self { arrays, graph }
    }

    pub(super) fn array(&self, name: &str) -> &Tensor {
        self.arrays.get(name).unwrap_or_else(|| panic!("no array {name}"))
    }

    pub(super) fn seeds(&self) -> Vec<u32> {
        let seeds = Vec::<i64>::try_from(self.array("seeds")).expect("seeds");
        seeds.into_iter().map(|seed| seed as u32).collect()
    }

    /// Gives a model the parameters of the file, which must have all of them and no others.
    pub(super) fn load(&self, model: &Model) {
        let named = model.parameters().named();
        let count = self.arrays.keys().filter(|name| name.starts_with("parameter:")).count();
        assert_eq!(named.len(), count, "parameters: {named:?}");
        no_grad(|| {
            for (name, parameter) in named {
                let values = self.array(&format!("parameter:{name}"));
                assert_eq!(parameter.size(), values.size(), "shape of {name}");
                parameter.shallow_clone().copy_(values);
            }
        });
    }
}

impl Graph {
    /// The full neighborhoods of seeds, hop by hop; nodes in the order in which they are met.
    pub(super) fn full(&self, seeds: &[u32], hops: usize) -> Minibatch {
        let mut nodes = seeds.to_vec();
        let mut places: HashMap<u32, u32> =
            seeds.iter().enumerate().map(|(place, &node)| (node, place as u32)).collect();
        let mut blocks = Vec::new();
        for _ in 0..hops {
            let destinations = nodes.len();
            let mut block = sample::Block {
                destinations,
                offsets: vec![0],
                halo: vec![false; destinations],
                ..sample::Block::default()
            };
            for destination in 0..destinations {
                let row = nodes[destination] as usize;
                for (&(source, weight), features) in self.rows[row].iter().zip(&self.features[row]) {
                    let place = *places.entry(source).or_insert_with(|| {
                        nodes.push(source);
                        nodes.len() as u32 - 1
                    });
                    block.indices.push(place);
                    if self.weighted {
                        block.edge_weights.push(weight);
                    }
                    block.edge_features.extend_from_slice(features);
                }
                block.offsets.push(block.indices.len() as u32);
                let degree = self.rows[nodes[destination] as usize].len() as u64;
                block.visible.push(degree);
                block.global.push(degree);
            }
            block.sources = nodes.len();
            blocks.push(block);
        }
        Minibatch {
            nodes: nodes.into_iter().map(|node| NodeId(node.into())).collect(),
            seeds: seeds.len(),
            blocks,
            ..Minibatch::default()
        }
    }

    /// What GCN takes of each node: the sum of the weights of its in-edges, which is its in-degree without weights.
    pub(super) fn all_degrees(&self) -> Vec<f32> {
        let sum = |row: &Vec<(u32, f32)>| row.iter().map(|(_, weight)| weight).sum();
        self.rows.iter().map(sum).collect()
    }

    /// The same for the nodes of a minibatch.
    pub(super) fn degrees(&self, minibatch: &Minibatch) -> Vec<f32> {
        let all = self.all_degrees();
        minibatch.nodes.iter().map(|node| all[node.0 as usize]).collect()
    }

    pub(super) fn blocks(&self, minibatch: &Minibatch, device: Device) -> Vec<Vec<Block>> {
        Block::of_minibatch(minibatch, Some(&self.degrees(minibatch)), device)
    }
}

/// The nodes of a minibatch, as indices of rows.
pub(super) fn rows(minibatch: &Minibatch, device: Device) -> Tensor {
    let nodes: Vec<i64> = minibatch.nodes.iter().map(|node| node.0 as i64).collect();
    Tensor::from_slice(&nodes).to_device(device)
}
