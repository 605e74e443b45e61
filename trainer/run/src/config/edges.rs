//! What the model of a run takes of edges: their weights, their features or nothing.

use grappa_sampling::EdgeValues;

use super::{EdgeData, FirstHop, TrainConfig};
use crate::{
    Result,
    error::refuse,
    model::{EdgeInput, LayerKind},
};

/// What a store has of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredEdges {
    /// Whether edges have weights.
    pub weights: bool,
    /// Features of an edge; 0 if edges have none.
    pub features: usize,
    /// Values that encode the age of an edge; 0 if the run does not use times.
    pub age_values: usize,
    /// Whether the store has all edges, and is no slice.
    pub is_whole: bool,
}

impl StoredEdges {
    /// The number of values of an edge that a model can take as features: the store's, and the encoded age.
    fn inputs(self) -> usize {
        self.features + self.age_values
    }

    fn has(&self, values: EdgeValues) -> bool {
        match values {
            EdgeValues::Nothing => false,
            EdgeValues::Weight => self.weights,
            EdgeValues::Features => self.inputs() > 0,
        }
    }

    /// What the model takes of the edges of a store.
    ///
    /// # Errors
    /// If an option contradicts it. The message names both and the remedy.
    pub fn input(self, config: &TrainConfig) -> Result<EdgeInput> {
        let all = [EdgeValues::Weight, EdgeValues::Features];
        let Some(values) = all.into_iter().find(|&values| self.unused(values, config).is_none()) else {
            if config.model == LayerKind::Gine {
                let why = self.unused(EdgeValues::Features, config).unwrap_or_default();
                refuse(format!("model is gine, which needs edge features: {why}; or use `--model gin`"))?;
            }
            return self.check_unused(config).map(|()| EdgeInput::Nothing);
        };
        if config.first_hop == FirstHop::Preaggregated && values == EdgeValues::Features {
            refuse(
                "first-hop is preaggregated, and the first layer takes edge features, which pre-aggregated features lack: leave out \
                 --first-hop, or use `--edge-data ignore`"
                    .to_owned(),
            )?;
        }
        Ok(match values {
            EdgeValues::Features => EdgeInput::Features(self.inputs()),
            _ => EdgeInput::Weights,
        })
    }

    /// Sentences about the weights and the features of edges that a store has: whether the model takes them. Those that are not used
    /// against the user's expectation come second.
    pub fn describe_use(self, config: &TrainConfig) -> [Vec<String>; 2] {
        let (mut used, mut warned) = (Vec::new(), Vec::new());
        for values in [EdgeValues::Weight, EdgeValues::Features] {
            let data = match values {
                EdgeValues::Features if self.features == 0 => "encoded ages of edges",
                EdgeValues::Features if self.age_values > 0 => "edge features and encoded ages of edges",
                values => name(values),
            };
            match self.unused(values, config) {
                _ if !self.has(values) => {}
                None => used.push(format!("{data} are used: the layers of {} take them", config.model)),
                Some(why) if config.edge_data == EdgeData::Ignore => used.push(format!("{data} are not used: {why}")),
                Some(why) => warned.push(format!("{data} are not used: {why}")),
            }
        }
        [used, warned]
    }

    /// Why the model does not take these values. None if it takes them.
    fn unused(self, values: EdgeValues, config: &TrainConfig) -> Option<String> {
        let data = name(values);
        if !self.has(values) {
            return Some(format!(
                "the edges of the store have none; ingest them with {}",
                match values {
                    EdgeValues::Features => "--edge-features or --edge-features-from",
                    _ => "--weight or --weights",
                }
            ));
        }
        if config.edge_data == EdgeData::Ignore {
            return Some("--edge-data ignore".to_owned());
        }
        if config.model.edge_values() != values {
            let all = LayerKind::ALL.iter().filter(|kind| kind.edge_values() == values);
            let takers: Vec<String> = all.map(ToString::to_string).collect();
            return Some(format!("the model {} takes no {data}; these do: {}", config.model, takers.join(", ")));
        }
        if let Some(method) = config.other_method() {
            return Some(format!("--method {method} takes no {data}; `--method grappa` does"));
        }
        if config.model == LayerKind::Gcn && !self.is_whole {
            return Some(
                "gcn divides by the sums of weights, and a slice lacks the weights of other nodes; train on the whole store".to_owned(),
            );
        }
        None
    }

    /// Refuses a store with neither weights nor features that the model can take, if the user wants it to take them.
    fn check_unused(self, config: &TrainConfig) -> Result<()> {
        if config.edge_data != EdgeData::Use {
            return Ok(());
        }
        let reasons = [EdgeValues::Weight, EdgeValues::Features].map(|values| {
            let why = self.unused(values, config).unwrap_or_default();
            format!("{}: {why}", name(values))
        });
        refuse(format!("edge-data is use, and the model can take nothing of the edges: {}", reasons.join("; ")))
    }
}

fn name(values: EdgeValues) -> &'static str {
    match values {
        EdgeValues::Features => "edge features",
        EdgeValues::Nothing | EdgeValues::Weight => "edge weights",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: StoredEdges = StoredEdges { weights: true, features: 4, age_values: 0, is_whole: true };
    const NONE: StoredEdges = StoredEdges { weights: false, features: 0, age_values: 0, is_whole: true };

    fn config_of(model: LayerKind, edge_data: EdgeData) -> TrainConfig {
        TrainConfig { model, edge_data, ..TrainConfig::default() }
    }

    fn refused(config: &TrainConfig, stored: StoredEdges) -> String {
        stored.input(config).expect_err("a contradiction").to_string()
    }

    #[test]
    fn a_model_takes_what_its_layers_can_take_unless_the_user_says_otherwise() {
        for (model, expected) in [
            (LayerKind::Sage, EdgeInput::Weights),
            (LayerKind::Gcn, EdgeInput::Weights),
            (LayerKind::Gin, EdgeInput::Weights),
            (LayerKind::SageMax, EdgeInput::Nothing),
            (LayerKind::Gatv2, EdgeInput::Features(4)),
            (LayerKind::Transformer, EdgeInput::Features(4)),
            (LayerKind::Gat, EdgeInput::Nothing),
        ] {
            assert_eq!(BOTH.input(&config_of(model, EdgeData::Auto)).unwrap(), expected, "{model}");
            let ignored = BOTH.input(&config_of(model, EdgeData::Ignore)).unwrap();
            assert_eq!(ignored, EdgeInput::Nothing, "{model}");
            let without = NONE.input(&config_of(model, EdgeData::Auto)).unwrap();
            assert_eq!(without, EdgeInput::Nothing, "{model}");
        }
        let slice = StoredEdges { is_whole: false, ..BOTH };
        let gcn = config_of(LayerKind::Gcn, EdgeData::Auto);
        assert_eq!(slice.input(&gcn).unwrap(), EdgeInput::Nothing);
        let extension = [("method".to_owned(), "full".into())].into_iter().collect();
        let full = TrainConfig { extension, ..config_of(LayerKind::Sage, EdgeData::Auto) };
        assert_eq!(BOTH.input(&full).unwrap(), EdgeInput::Nothing);
        assert!(BOTH.describe_use(&full)[1][0].contains("--method full takes no edge weights"));
    }

    #[test]
    fn nothing_is_ignored_silently() {
        let [used, warned] = BOTH.describe_use(&config_of(LayerKind::Sage, EdgeData::Auto));
        assert_eq!(used, ["edge weights are used: the layers of sage take them"]);
        assert!(
            matches!(&warned[..], [one] if one.contains("edge features are not used: the model sage takes no edge features"))
        );
        let [used, warned] = BOTH.describe_use(&config_of(LayerKind::Gat, EdgeData::Auto));
        assert!(used.is_empty() && warned.len() == 2, "{warned:?}");
        assert!(warned[0].contains("these do: sage, gcn, gin"), "{}", warned[0]);
        let [used, warned] = BOTH.describe_use(&config_of(LayerKind::Gcn, EdgeData::Ignore));
        assert!(used.len() == 2 && warned.is_empty(), "{used:?}");
        assert_eq!(NONE.describe_use(&config_of(LayerKind::Gcn, EdgeData::Auto)), [const { Vec::<String>::new() }; 2]);
    }

    #[test]
    fn contradictions_name_the_options_and_the_remedy() {
        let sage = config_of(LayerKind::Sage, EdgeData::Use);
        let error = refused(&sage, NONE);
        assert!(error.contains("edge-data is use") && error.contains("--weights"), "{error}");
        let error = refused(&config_of(LayerKind::SageMax, EdgeData::Use), BOTH);
        assert!(error.contains("these do: sage, gcn, gin"), "{error}");
        let error = refused(&config_of(LayerKind::Gine, EdgeData::Auto), NONE);
        assert!(error.contains("model is gine") && error.contains("--model gin"), "{error}");
        let preaggregated =
            |model| TrainConfig { first_hop: FirstHop::Preaggregated, ..config_of(model, EdgeData::Auto) };
        let weighted = BOTH.input(&preaggregated(LayerKind::Sage)).unwrap();
        assert_eq!(weighted, EdgeInput::Weights);
        let error = refused(&preaggregated(LayerKind::Gatv2), BOTH);
        assert!(error.contains("first-hop") && error.contains("--edge-data ignore"), "{error}");
    }
}
