//! Training on the whole graph: its step, and what some methods do before it.

use grappa_io::progress::Progress;
use grappa_run::config::TrainConfig;
use grappa_trainer::{
    Error, Result,
    nn::{Pass, Scaling},
    train::{FullGraphInputs, FullGraphMethod, FullGraphStep, FullGraphSums, TrainSetup, key},
};

use super::{
    choice::{RunShape, exchange_of},
    config::{Method, MethodConfig},
    exchange::ExchangeState,
    features::NodeFeatures,
    graph::PartitionedGraph,
    llcg::LocalParts,
    owners::Owners,
    step::FullStep,
    wire::Wire,
};

/// The setup of a configuration: its options, and the method that they name.
///
/// # Errors
/// As [`MethodConfig::from_train_config`].
pub fn setup(config: TrainConfig) -> grappa_run::Result<TrainSetup> {
    let options = MethodConfig::from_train_config(&config)?;
    let warnings = options.warnings();
    let method: Option<Box<dyn FullGraphMethod>> = match options.method {
        Method::Grappa => None,
        _ => Some(Box::new(FullTraining { options, graph: None })),
    };
    Ok(TrainSetup { method, warnings, ..config.into() })
}

/// A method that trains the whole graph.
struct FullTraining {
    options: MethodConfig,
    /// The graph, once it is divided.
    graph: Option<OpenGraph>,
}

/// What full-graph training keeps from epoch to epoch.
struct OpenGraph {
    step: FullStep,
    /// Partitions that train apart from each other before the step.
    local: Option<LocalParts>,
    /// Number of training nodes of this process.
    nodes: u64,
    seed: u64,
    has_dropout: bool,
}

impl FullGraphMethod for FullTraining {
    fn check_processes(&self, partitions: u32, processes: u32) -> Result<()> {
        let method = self.options.method;
        if !method.may_have_processes() {
            return Err(Error::Options(format!(
                "--method {method} trains all partitions in one process: leave out --workers and launchers, or use `--method full`, varco \
                 or grappa"
            )));
        }
        if partitions < processes {
            return Err(Error::Options(format!(
                "--method {method} divides {partitions} partitions among {processes} processes, and each needs one: use --partitions \
                 {processes}, or fewer processes"
            )));
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.graph.is_some()
    }

    fn open(&mut self, inputs: &FullGraphInputs<'_>, progress: &dyn Progress) -> Result<String> {
        let owners = Owners::new(inputs);
        let graph = PartitionedGraph::new(&self.options, inputs, &owners, progress)?;
        let parts = match self.options.method {
            Method::Llcg => PartitionedGraph::parts(inputs, &owners, progress)?,
            _ => Vec::new(),
        };
        let rows = NodeFeatures::read(inputs.store, &graph.nodes)?;
        let mut step = FullStep::new(inputs, graph, &rows)?;
        let wire = inputs.group.map(|group| Wire::new(group.clone(), inputs.ranks.clone()));
        let &TrainConfig { epochs, layers, seed, .. } = inputs.config;
        step.exchange = exchange_of(&self.options, RunShape { epochs, layers, seed }, wire);
        let parts = parts.into_iter().map(|part| FullStep::new(inputs, part, &rows)).collect::<Result<Vec<_>>>()?;
        let mut counts = step.counts();
        inputs.group.map_or(Ok(()), |group| group.sum(&mut counts, progress))?;
        let sentence = step.describe(self.options.method, inputs.ranks.len(), counts);
        self.graph = Some(OpenGraph {
            local: (!parts.is_empty()).then(|| LocalParts::new(inputs, parts, self.options.local_steps)),
            nodes: match step.exchange {
                Some(_) => step.graph.seed_nodes.len() as u64,
                None => inputs.train.len(),
            },
            seed: inputs.config.seed,
            has_dropout: inputs.config.has_dropout(),
            step,
        });
        Ok(sentence)
    }

    fn add_gradient(&mut self, step: &FullGraphStep<'_>) -> Result<FullGraphSums> {
        self.graph.as_mut().expect("it is open").add_gradient(step)
    }

    fn observe(&mut self, val_loss: f64) {
        let exchange = self.graph.as_mut().and_then(|graph| graph.step.exchange.as_mut());
        exchange.into_iter().for_each(|exchange| exchange.observe(val_loss));
    }

    fn state(&self) -> ExchangeState {
        let Some(graph) = &self.graph else { return ExchangeState::new() };
        let exchange = graph.step.exchange.iter().flat_map(|exchange| exchange.state());
        exchange.chain(graph.local.iter().flat_map(LocalParts::state)).collect()
    }

    fn restore(&mut self, state: ExchangeState, epochs: u64) {
        let Some(graph) = &mut self.graph else { return };
        if let Some(local) = &mut graph.local {
            local.restore(&state, epochs);
        }
        if let Some(exchange) = &mut graph.step.exchange {
            exchange.restore(state);
        }
    }
}

impl OpenGraph {
    /// Adds the gradient of an epoch's step to the gradients of the parameters, after local steps if there are some.
    fn add_gradient(&mut self, step: &FullGraphStep<'_>) -> Result<FullGraphSums> {
        let pass = Pass {
            training: Some(key([self.seed, step.epoch, 0, 0])),
            names: self.has_dropout.then(|| self.step.graph.names.clone()),
            scaling: match self.step.graph.paths {
                // The degrees are those in the path.
                Some(_) => Scaling::None,
                None => Scaling::HorvitzThompson,
            },
        };
        let nodes = self.nodes;
        let Some(local) = &mut self.local else {
            return Ok(FullGraphSums { nodes, ..self.step.add_gradient(step, &pass)? });
        };
        let sums = local.round(step, &pass)?;
        let drawn = Some(local.draw_seeds(&mut self.step, step.epoch));
        let edges = sums.edges + self.step.add_gradient(step, &pass)?.edges;
        let feature_bytes = LocalParts::feature_bytes(&self.step, step.epoch);
        Ok(FullGraphSums { edges, nodes, drawn, feature_bytes, activation_bytes: 0, message_errors: None, ..sums })
    }
}
