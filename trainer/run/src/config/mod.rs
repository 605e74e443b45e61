//! The configuration of a run. Each option is a field, a key of a TOML file and a flag of `grappa-train`.
//!
//! [`TrainConfig`] and [`TrainOption`] follow from one declaration (`options.rs`).
//!
//! A configuration is made in layers: defaults, then a preset (`--preset`), then a file (`--config`), then flags. It is saved in
//! the run's folder and reads back to the same values. A resumed run starts from that file instead of the defaults. It may change
//! options that do not affect earlier results ([`TrainOption::may_change`]).
//!
//! An option that depends on others can be `auto`. Methods of the same name resolve it: [`TrainConfig::fanouts`],
//! [`TrainConfig::batch`] and so on. Options that depend on the store or the machine are resolved elsewhere.

mod changed_options;
mod checks;
mod choices;
mod compress_rate;
mod declare;
mod edges;
mod effects;
mod layers;
mod links;
mod node_embeddings;
mod options;
mod per_layer;
mod preset;
mod rank_among;
mod resolved;
mod task;
#[cfg(test)]
mod tests;
mod time_split;
mod triples;

pub use self::{
    changed_options::{ChangedOptions, shown},
    checks::{check, check_ranges},
    choices::{
        Auto, ClassWeights, Compress, Correction, DeviceChoice, DistanceNorm, EdgeData, Evaluate, ExcludeTargets,
        FirstHop, HaloMode, LossKind, LrSchedule, Monitor, NegativeSampling, Optimizer, ReadEngine, Sampling, SeedTime,
        TaskChoice, TimeEqual, TimeHops, TimeStrategy,
    },
    compress_rate::CompressRate,
    declare::{Bound, OptionScope, TrainOption},
    edges::StoredEdges,
    effects::{warnings, warnings_without_validation},
    node_embeddings::NodeEmbeddings,
    options::TrainConfig,
    per_layer::PerLayer,
    preset::Preset,
    rank_among::RankAmong,
    resolved::{Compression, RateOptions},
    task::check_labels,
    time_split::TimeSplit,
    triples::{TripleNegatives, TripleOptions, check_without_triples},
};
pub use crate::option_value::ValueKind;
