//! Options of published settings, by name.
//!
//! A preset (`presets.toml`) has the options that a script of PyTorch Geometric, DGL or OGB sets, as a configuration
//! file has them. Options that it leaves out keep their defaults. Each preset belongs to the graph of its script and is
//! refused on others, because its options were tuned for that graph. What a script does beyond options is in the help
//! of its preset.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;
use toml::Table;

use crate::{Error, Result, names};

static FILE: LazyLock<PresetFile> =
    LazyLock::new(|| toml::from_str(include_str!("presets.toml")).expect("presets are TOML"));

#[derive(Debug, Deserialize)]
struct PresetFile {
    graph: BTreeMap<String, Graph>,
    base: BTreeMap<String, Table>,
    preset: Vec<Preset>,
}

#[derive(Debug, Deserialize)]
struct Graph {
    features: u64,
    classes: u64,
}

/// A published setting: named values of options.
#[derive(Debug, Deserialize)]
pub struct Preset {
    /// The name that users type.
    pub name: String,
    /// Where the values are from.
    pub help: String,
    graph: String,
    base: String,
    options: Table,
}

impl Preset {
    /// All presets.
    pub fn all() -> &'static [Self] {
        &FILE.preset
    }

    /// The preset of this name.
    ///
    /// # Errors
    /// If there is none; the message names all.
    pub fn named(name: &str) -> Result<&'static Self> {
        let names: Vec<&str> = Self::all().iter().map(|preset| &*preset.name).collect();
        let found = Self::all().iter().find(|preset| preset.name == name);
        found.ok_or_else(|| names::unknown("preset", name, &names))
    }

    /// Its options, as keys and values of a file.
    pub fn options(&self) -> Table {
        let mut options = FILE.base[&self.base].clone();
        options.extend(self.options.clone());
        options
    }

    /// Checks that a store has the graph of the preset, as far as its shape tells.
    ///
    /// # Errors
    /// If the numbers of features or classes differ.
    pub fn check_store(&self, features: u64, classes: u64) -> Result<()> {
        let graph = &FILE.graph[&self.graph];
        if (features, classes) == (graph.features, graph.classes) {
            return Ok(());
        }
        Err(Error::WrongStore(format!(
            "the preset {} is for {}, with {} features per node and {} classes, and the store has {features} and {classes}: leave \
             --preset out; `grappa-train config --preset {}` prints its options for a file to adapt (--config)",
            self.name, self.graph, graph.features, graph.classes, self.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{TrainConfig, warnings},
        *,
    };
    use crate::model::{Activation, FeatureNorm, LayerKind, Task};

    fn none() -> Table {
        Table::new()
    }

    #[test]
    fn every_preset_is_a_sound_configuration_without_warnings() {
        for preset in Preset::all() {
            assert_eq!(Preset::named(&preset.name).unwrap().name, preset.name);
            let config = TrainConfig::default().layered(Some(preset), None, &none());
            let config = config.unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            assert_eq!(warnings(&config, false), Vec::<String>::new(), "{}", preset.name);
            for (option, value) in preset.options() {
                assert!(config.table().contains_key(&option), "{}: {option} {value}", preset.name);
            }
        }
    }

    #[test]
    fn a_preset_has_the_values_of_its_script() {
        let preset = Preset::named("pyg-cora-gat").unwrap();
        let config = TrainConfig::default().layered(Some(preset), None, &none()).unwrap();
        assert_eq!((config.model, config.activation), (LayerKind::Gat, Activation::Elu));
        assert_eq!(config.normalize_features, FeatureNorm::Row);
        let model = config.model_options(1433, 7, Task::MultiClass);
        assert_eq!((model.hidden, model.heads_of(0), model.heads_of(1)), (64, 8, 1));
        let preset = Preset::named("pyg-cora-gcn").unwrap();
        let config = TrainConfig::default().layered(Some(preset), None, &none()).unwrap();
        assert_eq!(config.weight_decay.to_string(), "0.0005,0");
    }

    #[test]
    fn files_and_flags_go_over_the_preset() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        std::fs::write(&file, "hidden = 32\nepochs = 5\n").unwrap();
        let preset = Preset::named("pyg-cora-gcn").unwrap();
        let flags = Table::from_iter([("epochs".to_owned(), 7.into())]);
        let config = TrainConfig::default().layered(Some(preset), Some(&file), &flags).unwrap();
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
        assert!(error.contains("did you mean `pyg-cora-gcn`?") && error.contains("pyg-cora-gat"), "{error}");
        let preset = Preset::named("pyg-cora-gcn").unwrap();
        preset.check_store(1433, 7).unwrap();
        let error = preset.check_store(500, 3).unwrap_err().to_string();
        assert!(
            error.contains("Cora, with 1433 features per node and 7 classes, and the store has 500 and 3"),
            "{error}"
        );
    }
}
