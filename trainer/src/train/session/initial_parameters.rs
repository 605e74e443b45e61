//! Training that starts with the parameters of another run: the model of last week for the graph of this week, or a model to fine-tune.

use std::path::{Path, PathBuf};

use grappa_formats::schema::Schema;
use grappa_run::{
    checkpoint::Checkpoint,
    folder,
    model::ModelOptions,
    schema::{self, Match},
};
use serde_json::{Map, Value};

use crate::train::{data::types, inference::trained_model, step::learner::Learner};
use crate::{Error, Result};

/// The parameters of another run's best model, or of its last one if it had no evaluation.
pub(crate) struct Initial {
    path: PathBuf,
    checkpoint: Checkpoint,
}

impl Initial {
    /// Reads the parameters of the `run` in a folder for a model. The store has the names of features and classes in `schema`, and its digest
    /// is `digest`. Warnings are added to `warnings`.
    pub fn read(
        run: &Path,
        model: &ModelOptions,
        (schema, digest): (&Schema, u64),
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let run_config = folder::config_of(run)?;
        let Some((path, checkpoint)) = trained_model::find(run, run_config.digest(), warnings)? else {
            return Err(Error::run_file(run, "the run has no checkpoint yet: resume it with --resume"));
        };
        let state = &checkpoint.state;
        let named = folder::schema_of(run, state)?;
        check_features(run, &named, schema, warnings)?;
        check_classes(run, &named, schema)?;
        let theirs = state.model_options(&run_config);
        if let (Some(learned), Some(found)) = (&theirs.graph, &model.graph)
            && let Some(difference) = types::difference(learned, found)
        {
            return Err(Error::WrongRun(format!(
                "--init-from {} has parameters for another graph than this one: {difference}; leave out --init-from",
                run.display()
            )));
        }
        let has_embeddings = model.graph().node_types.iter().any(|node_type| node_type.embedding > 0);
        if has_embeddings && state.store_digest != digest {
            return Err(Error::WrongRun(format!(
                "--init-from {} has embeddings of the nodes of another graph than this one: leave out --init-from or --node-embeddings",
                run.display()
            )));
        }
        let differences = differences(model, &theirs);
        if !differences.is_empty() {
            return Err(Error::WrongRun(format!(
                "--init-from {} has parameters of another model: {}; give the options of that run, or leave out --init-from",
                run.display(),
                differences.join(", ")
            )));
        }
        Ok(Self { path, checkpoint })
    }

    /// Gives a model the parameters, and the embeddings of nodes.
    pub fn load(&self, learner: &mut Learner) -> Result<()> {
        learner.load_model(&self.path, &self.checkpoint)
    }
}

/// Refuses a run whose features have other names, or another order: its parameters are of those.
fn check_features(run: &Path, named: &Schema, schema: &Schema, warnings: &mut Vec<String>) -> Result<()> {
    let matched = Match::of_features(named, schema);
    match matched {
        Match::Unnamed | Match::Same => Ok(()),
        Match::OneUnnamed => {
            warnings.push(format!(
                "--init-from {}: features have no names there or in this store, so nobody can tell whether they have the same order",
                run.display()
            ));
            Ok(())
        }
        Match::Reordered(_) | Match::Other { .. } | Match::Encoded(_) => Err(Error::WrongRun(format!(
            "--init-from {} has parameters for other features: {}; {}, or leave out --init-from",
            run.display(),
            matched.difference(),
            schema::remedy(named)
        ))),
    }
}

/// Refuses a run whose classes have other names, or another order.
fn check_classes(run: &Path, named: &Schema, schema: &Schema) -> Result<()> {
    let matched = Match::from_names(&named.classes, &schema.classes);
    match matched {
        Match::Unnamed | Match::OneUnnamed | Match::Same => Ok(()),
        Match::Reordered(_) | Match::Other { .. } | Match::Encoded(_) => Err(Error::WrongRun(format!(
            "--init-from {} has parameters for other classes: {}; {}, or leave out --init-from",
            run.display(),
            matched.difference(),
            schema::remedy_for_classes()
        ))),
    }
}

/// The value of an option, for people.
fn shown(value: Option<&Value>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string().replace('"', ""))
}

/// Options in which a model differs from another, except for its graph and for options that do not concern its parameters.
fn differences(model: &ModelOptions, other: &ModelOptions) -> Vec<String> {
    let [model, other] = [model, other].map(|options| {
        let options = ModelOptions {
            dropout: 0.0,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            precision: model.precision,
            graph: None,
            ..options.clone()
        };
        match serde_json::to_value(options) {
            Ok(Value::Object(options)) => options,
            _ => Map::new(),
        }
    });
    model
        .iter()
        .filter(|(name, value)| other.get(*name) != Some(value))
        .map(|(name, value)| format!("{name} is {} here and {} there", shown(Some(value)), shown(other.get(name))))
        .collect()
}

#[cfg(test)]
mod tests {
    use grappa_run::{config::TrainConfig, model::Task};

    use super::*;

    #[test]
    fn models_differ_in_shape_and_not_in_dropout() {
        let model = TrainConfig::default().model_options(10, 4, Task::MultiClass);
        let other = ModelOptions { dropout: 0.1, hidden: 32, outputs: 5, ..model.clone() };
        assert_eq!(differences(&model, &other), ["hidden is 128 here and 32 there", "outputs is 4 here and 5 there"]);
        assert!(differences(&model, &model).is_empty());
    }
}
