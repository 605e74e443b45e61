//! Options of published settings, by name.
//!
//! A preset has the options that a script of PyTorch Geometric, DGL or OGB sets, as a configuration file has them. Options that it
//! leaves out keep their defaults. Each preset belongs to the graph of its script and is refused on others, because its options
//! were tuned for that graph. What a script does beyond options is in the help of its preset.

use toml::Table;

use crate::{Error, Result, names};

/// A published setting: named values of options.
#[derive(Debug)]
pub struct Preset {
    /// The name that users type.
    pub name: &'static str,
    /// Where the values are from.
    pub help: &'static str,
    graph: Graph,
    /// Texts of configuration files, without keys in common.
    values: [&'static str; 2],
}

/// The graph of a script.
#[derive(Debug)]
struct Graph {
    name: &'static str,
    features: u64,
    classes: u64,
}

const CORA: Graph = Graph {
    name: "Cora",
    features: 1433,
    classes: 7,
};
const PUBMED: Graph = Graph {
    name: "PubMed",
    features: 500,
    classes: 3,
};
const ARXIV: Graph = Graph {
    name: "ogbn-arxiv",
    features: 128,
    classes: 40,
};
const PRODUCTS: Graph = Graph {
    name: "ogbn-products",
    features: 100,
    classes: 47,
};

/// PyTorch Geometric's `examples/gcn.py`, without the model. Only the first layer has weight decay there.
const PYG_GCN: &str = "
    layers = 2
    hidden = 16
    dropout = 0.5
    input-dropout = 0.5
    normalize-features = 'row'
    full-graph = true
    lr = 0.01
    weight-decay = [0.0005, 0]
    epochs = 200
";

/// PyTorch Geometric's `examples/gat.py`, without the heads of the last layer.
const PYG_GAT: &str = "
    model = 'gat'
    layers = 2
    hidden = 64
    heads = 8
    dropout = 0.6
    input-dropout = 0.6
    attention-dropout = 0.6
    activation = 'elu'
    normalize-features = 'row'
    full-graph = true
    lr = 0.005
    weight-decay = 0.0005
    epochs = 200
";

/// OGB's `examples/nodeproppred/arxiv/gnn.py`, without the model.
const OGB_ARXIV: &str = "
    layers = 3
    hidden = 256
    dropout = 0.5
    norm = 'batch'
    full-graph = true
    lr = 0.01
    epochs = 500
";

/// DGL's `examples/pytorch/gcn/train.py`, without the model. DGL's citation graphs have normalized rows.
const DGL_GCN: &str = "
    layers = 2
    hidden = 16
    dropout = 0.5
    normalize-features = 'row'
    full-graph = true
    lr = 0.01
    weight-decay = 0.0005
    epochs = 200
";

/// Options that the scripts for ogbn-products have in common.
const PRODUCTS_SAGE: &str = "
    model = 'sage'
    layers = 3
    hidden = 256
    dropout = 0.5
    batch = 1024
";

const PRESETS: &[Preset] = &[
    Preset {
        name: "pyg-cora-gcn",
        help: "PyTorch Geometric's examples/gcn.py",
        graph: CORA,
        values: ["model = 'gcn'", PYG_GCN],
    },
    Preset {
        name: "pyg-cora-sage",
        help: "the options of examples/gcn.py with SAGEConv",
        graph: CORA,
        values: ["model = 'sage'", PYG_GCN],
    },
    Preset {
        name: "pyg-cora-gat",
        help: "PyTorch Geometric's examples/gat.py",
        graph: CORA,
        values: ["last-heads = 1", PYG_GAT],
    },
    Preset {
        name: "pyg-pubmed-gcn",
        help: "PyTorch Geometric's examples/gcn.py --dataset PubMed",
        graph: PUBMED,
        values: ["model = 'gcn'", PYG_GCN],
    },
    Preset {
        name: "pyg-pubmed-gat",
        help: "PyTorch Geometric's examples/gat.py --dataset PubMed, with 8 heads in the last layer as it recommends",
        graph: PUBMED,
        values: ["last-heads = 8", PYG_GAT],
    },
    Preset {
        name: "dgl-cora-gcn",
        help: "DGL's examples/pytorch/gcn/train.py",
        graph: CORA,
        values: ["model = 'gcn'", DGL_GCN],
    },
    Preset {
        name: "dgl-pubmed-gcn",
        help: "DGL's examples/pytorch/gcn/train.py --dataset pubmed",
        graph: PUBMED,
        values: ["model = 'gcn'", DGL_GCN],
    },
    Preset {
        name: "ogb-arxiv-gcn",
        help: "OGB's examples/nodeproppred/arxiv/gnn.py; ingest with --undirected",
        graph: ARXIV,
        values: ["model = 'gcn'", OGB_ARXIV],
    },
    Preset {
        name: "ogb-arxiv-sage",
        help: "OGB's examples/nodeproppred/arxiv/gnn.py --use_sage; ingest with --undirected",
        graph: ARXIV,
        values: ["model = 'sage'", OGB_ARXIV],
    },
    Preset {
        name: "pyg-products-sage",
        help: "PyTorch Geometric's examples/ogbn_products_sage.py",
        graph: PRODUCTS,
        values: ["fanouts = [15, 10, 5]\nlr = 0.003\nepochs = 20", PRODUCTS_SAGE],
    },
    Preset {
        name: "dgl-products-sage",
        help: "DGL's examples/sampling/node_classification.py",
        graph: PRODUCTS,
        values: [
            "fanouts = [10, 10, 10]\nlr = 0.001\nweight-decay = 0.0005\nepochs = 10",
            PRODUCTS_SAGE,
        ],
    },
];

impl Preset {
    /// All presets.
    pub const ALL: &'static [Self] = PRESETS;

    /// The preset of this name.
    ///
    /// # Errors
    /// If there is none; the message names all.
    pub fn named(name: &str) -> Result<&'static Self> {
        let names: Vec<&str> = Self::ALL.iter().map(|preset| preset.name).collect();
        let found = Self::ALL.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| names::unknown("preset", name, &names))
    }

    /// Its options, as keys and values of a file.
    pub fn options(&self) -> Table {
        let text = self.values.join("\n");
        toml::from_str(&text).expect("presets are TOML")
    }

    /// Checks that a store has the graph of the preset, as far as its shape tells.
    ///
    /// # Errors
    /// If the numbers of features or classes differ.
    pub fn check_store(&self, features: u64, classes: u64) -> Result<()> {
        let Graph {
            name: graph,
            features: of_graph,
            classes: classes_of_graph,
        } = self.graph;
        if (features, classes) == (of_graph, classes_of_graph) {
            return Ok(());
        }
        Err(Error::WrongStore(format!(
            "the preset {} is for {graph}, with {of_graph} features per node and {classes_of_graph} classes, and the store has {features} \
             and {classes}: leave --preset out; `grappa-train config --preset {}` prints its options for a file to adapt (--config)",
            self.name, self.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::TrainConfig, *};
    use crate::model::{Activation, FeatureNorm, LayerKind};

    fn none() -> Table {
        Table::new()
    }

    #[test]
    fn every_preset_is_a_sound_configuration_without_warnings() {
        for preset in Preset::ALL {
            assert_eq!(Preset::named(preset.name).unwrap().name, preset.name);
            let config = TrainConfig::layered(Some(preset), None, &none());
            let config = config.unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            assert_eq!(config.warnings(false), Vec::<String>::new(), "{}", preset.name);
            for (option, value) in preset.options() {
                assert!(
                    config.table().contains_key(&option),
                    "{}: {option} {value}",
                    preset.name
                );
            }
        }
    }

    #[test]
    fn a_preset_has_the_values_of_its_script() {
        let preset = Preset::named("pyg-cora-gat").unwrap();
        let config = TrainConfig::layered(Some(preset), None, &none()).unwrap();
        assert_eq!((config.model, config.activation), (LayerKind::Gat, Activation::Elu));
        assert_eq!(config.normalize_features, FeatureNorm::Row);
        let model = config.model_options(1433, 7);
        assert_eq!((model.hidden, model.heads_of(0), model.heads_of(1)), (64, 8, 1));
        let preset = Preset::named("pyg-cora-gcn").unwrap();
        let config = TrainConfig::layered(Some(preset), None, &none()).unwrap();
        assert_eq!(config.weight_decay.to_string(), "0.0005,0");
    }

    #[test]
    fn files_and_flags_go_over_the_preset() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        std::fs::write(&file, "hidden = 32\nepochs = 5\n").unwrap();
        let preset = Preset::named("pyg-cora-gcn").unwrap();
        let flags = Table::from_iter([("epochs".to_owned(), 7.into())]);
        let config = TrainConfig::layered(Some(preset), Some(&file), &flags).unwrap();
        assert_eq!((config.hidden, config.epochs, config.input_dropout), (32, 7, 0.5));
        // A preset is no key of a run's file: its values are.
        let resumed = config.resumed(Some(preset), Some(&file), &flags).unwrap();
        assert_eq!(resumed, config);
        let error = config.resumed(Some(preset), None, &none()).unwrap_err().to_string();
        assert!(error.contains("has hidden 32, and hidden 16 was given"), "{error}");
    }

    #[test]
    fn an_unknown_preset_names_the_known_ones_and_a_store_of_another_shape_both_shapes() {
        let error = Preset::named("pyg-cora-gnc").unwrap_err().to_string();
        assert!(
            error.contains("did you mean `pyg-cora-gcn`?") && error.contains("pyg-cora-gat"),
            "{error}"
        );
        let preset = Preset::named("pyg-cora-gcn").unwrap();
        preset.check_store(1433, 7).unwrap();
        let error = preset.check_store(500, 3).unwrap_err().to_string();
        assert!(
            error.contains("Cora, with 1433 features per node and 7 classes, and the store has 500 and 3"),
            "{error}"
        );
    }
}
