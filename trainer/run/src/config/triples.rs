//! The options of knowledge graphs: `--layers 0`, where a row is learned for each entity and each relation.

use super::{
    Auto, ChangedOptions, DeviceChoice, DistanceNorm, LossKind, Monitor, NegativeSampling, Optimizer, RankAmong,
    TaskChoice, TrainConfig, TrainOption,
};
use crate::{Error, Result, error::refuse, model::Decoder};

/// Options with an effect on a knowledge graph. All others are of layers, of nodes or of messages.
const OPTIONS: [&str; 45] = [
    "layers",
    "task",
    "loss",
    "decoder",
    "reciprocal",
    "distance",
    "margin",
    "self-adversarial",
    "n3",
    "l2",
    "hidden",
    "embedding",
    "input-dropout",
    "negatives",
    "negative-sampling",
    "candidates",
    "batch",
    "lr",
    "lr-schedule",
    "warmup",
    "lr-step",
    "lr-factor",
    "lr-patience",
    "lr-min",
    "optimizer",
    "epochs",
    "partitions",
    "memory",
    "threads",
    "seed",
    "device",
    "eval-every",
    "monitor",
    "early-stopping",
    "checkpoint-every",
    "checkpoint-minutes",
    "keep",
    "out",
    // Of machines, for any run.
    "lookahead",
    "read-engine",
    // Their values have no effect, and presets of machines have them.
    "evaluate",
    "evaluate-states",
    "schedule",
    "concurrent",
    "precision",
];
/// Options of triples alone.
const OF_TRIPLES: [&str; 6] = ["reciprocal", "distance", "margin", "self-adversarial", "n3", "l2"];
/// Triples of a batch.
const BATCH: usize = 1024;
/// Negatives that the triples of a batch share.
const NEGATIVES: u32 = 1024;
/// Graphs with at most so many entities compare each triple with all of them.
const ENTITIES_FEW: u64 = 1 << 16;
/// The margin of distances.
const MARGIN: f64 = 9.0;

/// Negatives of a triple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TripleNegatives {
    /// All other entities.
    All,
    /// This number of entities, which the triples of a batch share.
    Shared(u32),
}

/// The options of a knowledge graph, without `auto`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TripleOptions {
    /// The decoder.
    pub decoder: Decoder,
    /// Values of the row of an entity.
    pub dim: usize,
    /// Whether relations have two rows.
    pub reciprocal: bool,
    /// The norm of distances.
    pub distance: DistanceNorm,
    /// Softmax, or logistic loss.
    pub loss: LossKind,
    /// Added to scores in the logistic loss.
    pub margin: f64,
    /// Factor of scores in the weights of negatives; 0 for even weights.
    pub self_adversarial: f64,
    /// Factor of the N3 norm.
    pub n3: f64,
    /// Factor of the L2 norm.
    pub l2: f64,
    /// The probability that a value of a row is dropped in a step.
    pub dropout: f64,
    /// The negatives of a triple.
    pub negatives: TripleNegatives,
    /// Triples of a batch.
    pub batch: usize,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Candidates of a held-out triple; none for all entities.
    pub candidates: Option<u32>,
}

impl TrainConfig {
    /// The options of a knowledge graph with some entities, in this number of partitions.
    pub fn triple_options(&self, entities: u64, partitions: u32) -> TripleOptions {
        let is_distance = matches!(self.decoder, Decoder::RotatE | Decoder::TransE);
        let shared = TripleNegatives::Shared(self.negatives.value().map_or(NEGATIVES, u32::from));
        TripleOptions {
            decoder: self.decoder,
            dim: self.embedding(),
            reciprocal: self.reciprocal,
            distance: self.distance,
            loss: if self.loss == LossKind::Auto { LossKind::Softmax } else { self.loss },
            margin: self.margin.value().unwrap_or(if is_distance { MARGIN } else { 0.0 }),
            self_adversarial: self.self_adversarial,
            n3: self.n3,
            l2: self.l2,
            dropout: self.input_dropout,
            negatives: match self.negative_sampling {
                NegativeSampling::All => TripleNegatives::All,
                NegativeSampling::Auto
                    if entities <= ENTITIES_FEW
                        && partitions == 1
                        && self.negatives == Auto::Auto
                        && self.has_products() =>
                {
                    TripleNegatives::All
                }
                _ => shared,
            },
            batch: self.batch.value().map_or(BATCH, |batch| batch.get()),
            optimizer: self.optimizer,
            candidates: match self.candidates {
                RankAmong::Drawn(count) => Some(count.get()),
                _ => None,
            },
        }
    }

    /// Whether scores of triples are products of matrices, so that all entities cost little more than some.
    fn has_products(&self) -> bool {
        !matches!(self.decoder, Decoder::RotatE | Decoder::TransE) || self.distance == DistanceNorm::L2
    }
}

/// Checks the options of `--layers 0`.
pub(super) fn check(config: &TrainConfig) -> Result<()> {
    if config.task != TaskChoice::Link {
        return refuse(
            "layers is 0, which learns rows of entities from triples: add --task link, or give --layers 1 or more"
                .into(),
        );
    }
    if !(0.0..=config.lr).contains(&config.lr_min) {
        return Err(Error::out_of_range("lr-min", "from 0 to lr", config.lr_min));
    }
    let changed = ChangedOptions::from_config(config);
    let others = TrainOption::all().iter().filter(|option| !OPTIONS.contains(&&*option.name));
    if let Some(other) = others.filter_map(|option| changed.flag(&option.name)).next() {
        return refuse(format!("{other} has no meaning with --layers 0, which learns rows of entities: leave it out"));
    }
    if let Some(method) = config.other_method() {
        return refuse(format!("method {method} is of models with layers, and layers is 0: leave one of them out"));
    }
    if !matches!(config.decoder, Decoder::DistMult | Decoder::ComplEx | Decoder::RotatE | Decoder::TransE) {
        return refuse(format!(
            "decoder is {}, which has no relations: use --decoder distmult, complex, rotate or transe with --layers 0",
            config.decoder
        ));
    }
    let is_complex = matches!(config.decoder, Decoder::ComplEx | Decoder::RotatE);
    if is_complex && config.embedding() % 2 == 1 {
        return refuse(format!(
            "embedding is {}, and the rows of --decoder {} are complex numbers of two values: give an even number",
            config.embedding(),
            config.decoder
        ));
    }
    if !matches!(config.loss, LossKind::Auto | LossKind::Softmax | LossKind::Bce) {
        return refuse(format!("loss {} is no loss of triples: use softmax or bce", config.loss));
    }
    if config.loss != LossKind::Bce
        && let Some((option, value)) = changed.first_of(&["margin", "self-adversarial"])
    {
        return refuse(format!("{option} is {value}, and only --loss bce has one: add --loss bce, or leave it out"));
    }
    let is_distance = matches!(config.decoder, Decoder::RotatE | Decoder::TransE);
    if !is_distance && let Some(distance) = changed.flag("distance") {
        return refuse(format!(
            "{distance} is of --decoder rotate and transe, and decoder is {}: leave it out",
            config.decoder
        ));
    }
    if !matches!(config.monitor, Monitor::Score | Monitor::Mrr | Monitor::HitsAt10) {
        return refuse(format!("monitor {} is no score of triples: use mrr or hits@10", config.monitor));
    }
    match config.negative_sampling {
        NegativeSampling::Auto | NegativeSampling::Shared => {}
        NegativeSampling::All if config.negatives != Auto::Auto => {
            return refuse(format!(
                "negatives is {}, and --negative-sampling all compares each triple with all entities: leave one of them out",
                config.negatives
            ));
        }
        NegativeSampling::All if config.partitions.value().is_some_and(|partitions| partitions > 1) => {
            return refuse(format!(
                "negative-sampling is all, which needs the rows of all entities in memory, and partitions is {}: use --negative-sampling shared, or --partitions 1",
                config.partitions
            ));
        }
        NegativeSampling::All => {}
        other => {
            return refuse(format!(
                "negative-sampling {other} is of models with layers: use shared or all with --layers 0"
            ));
        }
    }
    if let RankAmong::Listed(path) = &config.candidates {
        return refuse(format!(
            "candidates is {}, and triples are ranked among all entities or a number of them: use --candidates all",
            path.display()
        ));
    }
    if config.optimizer == Optimizer::AdamW {
        return refuse(
            "optimizer adamw decays rows, and --layers 0 has --l2 and --n3 instead: use adam, adagrad or sgd".into(),
        );
    }
    if matches!(config.device, DeviceChoice::Cuda(_)) {
        return refuse(format!("device is {}, and --layers 0 trains on the processor: leave it out", config.device));
    }
    Ok(())
}

/// Refuses options of triples for models with layers.
///
/// # Errors
/// The message names the option and its value.
pub fn check_without_triples(config: &TrainConfig) -> Result<()> {
    let changed = ChangedOptions::from_config(config);
    let decoder = matches!(config.decoder, Decoder::ComplEx | Decoder::RotatE | Decoder::TransE);
    let decoder = decoder.then(|| format!("decoder {}", config.decoder));
    let sampling = (config.negative_sampling == NegativeSampling::All).then(|| "negative-sampling all".to_owned());
    let optimizer = (config.optimizer == Optimizer::Adagrad).then(|| "optimizer adagrad".to_owned());
    let options = OF_TRIPLES.iter().filter_map(|option| changed.flag(option));
    match decoder.into_iter().chain(sampling).chain(optimizer).chain(options).next() {
        Some(option) => {
            refuse(format!("{option} is for knowledge graphs: add --layers 0 --task link, or leave it out"))
        }
        None => Ok(()),
    }
}
