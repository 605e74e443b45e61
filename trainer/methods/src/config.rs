//! How partitions train together: Grappa's own method, or one that it is compared with.

use std::{fmt, str::FromStr};

use grappa_run::{
    Error, Result,
    config::{
        Bound::{AboveZero, AtLeastOne, AtMost, BelowOne, Share},
        ChangedOptions, Compress, FirstHop, TaskChoice, TrainConfig, TrainOption, shown,
    },
    model::{JumpingKnowledge, LayerKind},
    named_enums, serde_text, text_option, train_options,
};
use toml::Table;

/// Each mask is a copy of the edges.
const MASKS_MAX: u32 = 100;
const LOCAL_STEPS_MAX: u32 = 1000;

named_enums! {
    /// How partitions train together. All methods but the first train full graphs: a step takes all training nodes and all edges.
    "method" Method {
        /// minibatches of isolated partitions, which exchange only gradients
        Grappa = "grappa",
        /// partitions exchange the states of boundary nodes at every layer, exactly
        Full = "full",
        /// partitions exchange only gradients, and the edges between them are missing
        Isolated = "isolated",
        /// as full, with a random part of the values, by --rate-schedule (VARCO)
        Varco = "varco",
        /// as full, with values of 2, 4 or 8 bits (AdaQP)
        AdaQp = "adaqp",
        /// as full, with a random part of the boundary nodes, --boundary-share (BNS-GCN)
        Bns = "bns",
        /// as full, with the states of the last epoch (PipeGCN)
        PipeGcn = "pipegcn",
        /// each edge is in one partition, and nodes are in several; only gradients travel (CoFree-GNN)
        CoFree = "cofree",
        /// local steps in partitions without the edges between them; the mean of their models is corrected by a step on the whole graph,
        /// see --local-steps (LLCG)
        Llcg = "llcg",
        /// one partition: a step takes a path through the graph that is made from a random spanning tree (GERN)
        Gern = "gern",
    }

    /// What VARCO sends or leaves out as a whole.
    "unit of compression" RateUnit {
        /// single values
        Value = "value",
        /// all values of a node
        Row = "row",
    }

    /// The bits of a value in AdaQP's messages.
    "number of bits" MessageBits {
        /// chosen for each group of nodes, anew every 50 epochs
        Auto = "auto",
        /// 2 bits
        Two = "2",
        /// 4 bits
        Four = "4",
        /// 8 bits
        Eight = "8",
    }
}

impl Method {
    /// Whether several processes can divide the partitions.
    pub fn may_have_processes(self) -> bool {
        matches!(self, Self::Grappa | Self::Full | Self::Varco)
    }
}

train_options! {
    /// The method of a run, and options that only one method has.
    #[serde(deny_unknown_fields)]
    MethodConfig;
    "Method" {
        /// How partitions train together
        method("METHOD"): Method = Method::default();
        /// Compression rate over the epochs, for varco: linear:FROM:TO:SLOPE, exponential:FROM:TO:SLOPE, step:FROM:TO:EPOCHS,
        /// adaptive:FROM:TO:PATIENCE or fixed:RATE
        #[serde(with = "serde_text")]
        rate_schedule("SCHEDULE"): RateSchedule = RateSchedule::default();
        /// What varco sends or leaves out as a whole
        rate_unit("UNIT"): RateUnit = RateUnit::default();
        /// Bits of a value in a message, for adaqp
        message_bits("BITS"): MessageBits = MessageBits::default();
        /// Share of the boundary nodes that an epoch uses, for bns
        boundary_share("P"): f64 = 0.1, bounds: &[AboveZero, Share];
        /// Weight of earlier epochs in the states and gradients of boundary nodes, for pipegcn; 0: the last epoch alone
        smoothing("WEIGHT"): f64 = 0.0, bounds: &[BelowOne];
        /// Number of edge masks that are drawn before training, for cofree; each step uses one; 0: no mask
        edge_masks("K"): u32 = 0, bounds: &[AtMost(MASKS_MAX)];
        /// Share of the edges that an edge mask leaves out, for cofree
        edge_dropout("P"): f64 = 0.5, bounds: &[BelowOne];
        /// Steps of each partition in an epoch with --method llcg, before the models of partitions are averaged and corrected
        local_steps("N"): u64 = 4, bounds: &[AtLeastOne, AtMost(LOCAL_STEPS_MAX)];
    }
}

text_option!(RateSchedule);

/// Options that only one method has.
const OWNERS: [(&str, Method); 8] = [
    ("rate-schedule", Method::Varco),
    ("rate-unit", Method::Varco),
    ("message-bits", Method::AdaQp),
    ("boundary-share", Method::Bns),
    ("smoothing", Method::PipeGcn),
    ("edge-masks", Method::CoFree),
    ("local-steps", Method::Llcg),
    ("edge-dropout", Method::CoFree),
];

impl MethodConfig {
    /// The options of methods in a configuration. Its [extension](TrainConfig::extension) has those that differ from their defaults.
    ///
    /// # Errors
    /// If an option is unknown, has a wrong value, or contradicts another one.
    pub fn from_train_config(config: &TrainConfig) -> Result<Self> {
        let options: Self = config.extension.clone().try_into().map_err(|error: toml::de::Error| {
            Error::Options(format!("an option has an impossible value: {}", error.message()))
        })?;
        options.check_ranges()?;
        check(&options, config)?;
        Ok(options)
    }

    /// A configuration with these options, as far as they differ from their defaults.
    pub fn in_config(&self, config: TrainConfig) -> TrainConfig {
        let default = Self::default().table();
        let mut extension = self.table();
        extension.retain(|option, value| default.get(option) != Some(value));
        TrainConfig { extension, ..config }
    }

    /// A configuration in which files and flags may give options of methods: it has a value for each.
    pub fn all_in(config: &TrainConfig) -> TrainConfig {
        let mut extension = Self::default().table();
        extension.extend(config.extension.clone());
        TrainConfig { extension, ..config.clone() }
    }

    /// Checks the options of methods in a configuration, and leaves out those that have their defaults.
    ///
    /// # Errors
    /// As [`MethodConfig::from_train_config`].
    pub fn checked(config: TrainConfig) -> Result<TrainConfig> {
        Ok(Self::from_train_config(&config)?.in_config(config))
    }

    /// Warnings about options that another method has.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let (table, default) = (self.table(), Self::default().table());
        let others =
            OWNERS.iter().filter(|(option, owner)| *owner != self.method && table[*option] != default[*option]);
        let warning =
            |option| format!("--{option} {} has no effect with --method {}", shown(&table[option]), self.method);
        others.map(|(option, _)| warning(*option)).collect()
    }

    fn table(&self) -> Table {
        Table::try_from(self).expect("options are a table")
    }
}

/// The option of training or of methods with this name.
pub fn option_named(name: &str) -> Option<&'static TrainOption> {
    TrainOption::named(name).or_else(|| MethodConfig::options().iter().find(|option| option.name == name))
}

/// The compression rate of VARCO over the epochs of a run, as `SHAPE:FROM:TO:PACE` or `fixed:RATE`. At rate c, 1/c of the values travel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSchedule {
    shape: RateShape,
    from: f64,
    to: f64,
    pace: f64,
}

/// How a rate falls from FROM to TO, which it never falls below.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RateShape {
    /// FROM - PACE (FROM - TO) t at the part t of the run: TO is reached after 1 / PACE of the run.
    Linear,
    /// As linear, for the logarithm of the rate.
    Exponential,
    /// Half the rate after every PACE epochs.
    Step,
    /// Half the rate after PACE epochs without a smaller training loss.
    Adaptive,
    /// FROM and TO are the same, and there is no PACE.
    Fixed,
}

const SHAPES: [(&str, RateShape); 5] = [
    ("linear", RateShape::Linear),
    ("exponential", RateShape::Exponential),
    ("step", RateShape::Step),
    ("adaptive", RateShape::Adaptive),
    ("fixed", RateShape::Fixed),
];

impl RateSchedule {
    /// The rate in `epoch` of `epochs`. `halvings` is how often an adaptive schedule has lowered it.
    pub fn at(&self, epoch: u64, epochs: u64, halvings: u32) -> f64 {
        let Self { shape, from, to, pace } = *self;
        let part = epoch as f64 / epochs.max(1) as f64;
        let rate = match shape {
            RateShape::Linear => from - pace * (from - to) * part,
            RateShape::Exponential => from * (to / from).powf(pace * part),
            RateShape::Step => from * 0.5f64.powf((epoch as f64 / pace).floor()),
            RateShape::Adaptive => from * 0.5f64.powi(halvings as i32),
            RateShape::Fixed => from,
        };
        rate.max(to)
    }

    /// Epochs without a smaller loss before an adaptive schedule lowers the rate.
    pub fn patience(&self) -> Option<f64> {
        (self.shape == RateShape::Adaptive).then_some(self.pace)
    }
}

impl Default for RateSchedule {
    /// The schedule of the paper.
    fn default() -> Self {
        Self { shape: RateShape::Linear, from: 128.0, to: 1.0, pace: 5.0 }
    }
}

impl FromStr for RateSchedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why| {
            Err(Error::Options(format!(
                "`{text}` is no rate schedule: {why}; use linear:128:1:5, exponential:128:1:5, step:128:1:10, adaptive:128:1:5 or \
                 fixed:4"
            )))
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let Ok(numbers) = parts.map(|part| part.trim().parse()).collect::<std::result::Result<Vec<f64>, _>>() else {
            return refuse("it has a part that is no number");
        };
        if numbers.iter().take(2).any(|&rate| !(rate >= 1.0 && rate.is_finite())) {
            return refuse("a rate is at least 1, which sends everything");
        }
        if let [from, to, pace] = numbers[..] {
            if to > from {
                return refuse("a rate cannot rise");
            }
            if !(pace > 0.0 && pace.is_finite()) {
                return refuse("it never ends, because its last number is not above 0");
            }
        }
        let shape = SHAPES.into_iter().find(|(known, _)| *known == name).map(|(_, shape)| shape);
        match (shape, &numbers[..]) {
            (Some(shape @ RateShape::Fixed), &[rate]) => Ok(Self { shape, from: rate, to: rate, pace: 0.0 }),
            (Some(shape), &[from, to, pace]) if shape != RateShape::Fixed => Ok(Self { shape, from, to, pace }),
            _ => refuse("there is none of this name with as many numbers"),
        }
    }
}

impl fmt::Display for RateSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, from, to, pace } = self;
        let (name, _) = SHAPES[*shape as usize];
        match shape {
            RateShape::Fixed => write!(f, "{name}:{from}"),
            _ => write!(f, "{name}:{from}:{to}:{pace}"),
        }
    }
}

/// Checks the options of a method against the other options of training.
fn check(options: &MethodConfig, config: &TrainConfig) -> Result<()> {
    let method = options.method;
    if method == Method::Grappa {
        return Ok(());
    }
    let refuse = |problem| Err(Error::Options(problem));
    if config.task == TaskChoice::Link {
        return refuse(format!("method {method} does not go with --task link: leave it out"));
    }
    if method == Method::Gern && config.partitions.value() != Some(1) {
        return refuse(format!(
            "method is gern, which trains on one machine, and partitions is {}: give `--partitions 1`",
            config.partitions
        ));
    }
    if method != Method::Gern && config.partitions.value().is_none_or(|partitions| partitions < 2) {
        return refuse(format!(
            "method is {method}, which trains several partitions, and partitions is {}: give at least 2, such as `--partitions 4`",
            config.partitions
        ));
    }
    let first_hop = (config.first_hop == FirstHop::Preaggregated).then_some("first-hop");
    let concurrent = (config.concurrent() != config.partitions()).then_some("concurrent");
    let sampling_option =
        ChangedOptions::from_config(config).first_of(&["fanouts", "batch", "halo", "correction", "steps-per-epoch"]);
    if let Some(option) = sampling_option.map(|(option, _)| option).or(first_hop).or(concurrent) {
        return refuse(format!(
            "{option} belongs to `--method grappa`, and method is {method}, whose steps take all nodes and edges: leave it out"
        ));
    }
    if config.model == LayerKind::PinSage || config.jumping_knowledge != JumpingKnowledge::None {
        return refuse(format!(
            "method is {method}, which trains models without random walks and jumping knowledge: use `--method grappa`, or leave \
             out jumping-knowledge and pinsage"
        ));
    }
    if method == Method::Llcg && config.compress != Compress::None {
        return refuse(format!(
            "compress is {}, and method is llcg, whose partitions exchange models and not gradients: leave compress out",
            config.compress
        ));
    }
    if method == Method::Bns && (config.model.attends() || config.model == LayerKind::SageMax) {
        return refuse(format!(
            "method is bns, which scales sums of neighbors, and the aggregation of {} is no sum: use sage, gcn or gin, or another \
             method",
            config.model
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use grappa_run::config::{Auto, HaloMode};

    use super::*;

    fn checked(method: Method, change: impl FnOnce(&mut TrainConfig)) -> Result<MethodConfig> {
        let options = MethodConfig { method, ..MethodConfig::default() };
        let mut config = options.in_config(TrainConfig { partitions: Auto::Value(4), ..TrainConfig::default() });
        change(&mut config);
        MethodConfig::from_train_config(&config)
    }

    #[test]
    fn a_method_refuses_what_it_cannot_train_and_options_that_do_not_apply() {
        checked(Method::Bns, |_| {}).unwrap();
        let refused = |method, change: fn(&mut TrainConfig)| checked(method, change).unwrap_err().to_string();
        for (error, named) in [
            (refused(Method::Llcg, |config| config.compress = Compress::Int8), "exchange models and not gradients"),
            (refused(Method::Gern, |_| {}), "partitions is 4: give `--partitions 1`"),
            (refused(Method::Bns, |config| config.partitions = Auto::Value(1)), "partitions is 1: give at least 2"),
            (refused(Method::Bns, |config| config.partitions = Auto::Auto), "`--partitions 4`"),
            (refused(Method::Bns, |config| config.halo = HaloMode::Stop), "halo belongs to `--method grappa`"),
            (refused(Method::Bns, |config| config.model = LayerKind::Gat), "the aggregation of gat is no sum"),
            (refused(Method::Bns, |config| config.task = TaskChoice::Link), "method bns does not go with --task link"),
            (
                refused(Method::Bns, |config| config.jumping_knowledge = JumpingKnowledge::Cat),
                "without random walks and jumping knowledge",
            ),
            (refused(Method::Bns, |config| _ = config.extension.insert("colour".into(), 1.into())), "colour"),
            (
                refused(Method::CoFree, |config| _ = config.extension.insert("edge-masks".into(), 101.into())),
                "edge-masks is 101; it must be at most 100",
            ),
        ] {
            assert!(error.contains(named), "{error}");
        }
        let warnings = MethodConfig { boundary_share: 0.5, ..MethodConfig::default() }.warnings();
        assert_eq!(warnings, ["--boundary-share 0.5 has no effect with --method grappa"]);
    }

    #[test]
    fn a_configuration_has_the_options_that_differ_from_their_defaults() {
        let options = MethodConfig { method: Method::Varco, rate_unit: RateUnit::Row, ..MethodConfig::default() };
        let config = options.in_config(TrainConfig { partitions: Auto::Value(4), ..TrainConfig::default() });
        assert_eq!(config.extension.keys().collect::<Vec<_>>(), ["method", "rate-unit"]);
        assert_eq!(MethodConfig::from_train_config(&config).unwrap(), options);
        let all = MethodConfig::all_in(&config);
        assert_eq!(all.extension.len(), MethodConfig::options().len());
        assert_eq!(MethodConfig::checked(all).unwrap(), config);
    }

    fn schedule(text: &str) -> RateSchedule {
        text.parse().unwrap()
    }

    #[test]
    fn rates_fall_from_the_first_to_the_last() {
        for (text, at) in [
            ("linear:128:1:5", [128.0, 64.5, 1.0, 1.0]),
            ("exponential:16:1:5", [16.0, 4.0, 1.0, 1.0]),
            ("step:8:1:10", [8.0, 4.0, 2.0, 1.0]),
            ("fixed:4", [4.0; 4]),
        ] {
            let found = [0, 10, 20, 99].map(|epoch| schedule(text).at(epoch, 100, 0));
            assert!(found.iter().zip(at).all(|(found, at)| (found - at).abs() < 1e-9), "{text}: {found:?}");
        }
        let adaptive = schedule("adaptive:8:2:3");
        assert_eq!([0, 1, 5].map(|halvings| adaptive.at(0, 9, halvings)), [8.0, 4.0, 2.0]);
    }

    #[test]
    fn a_schedule_is_written_as_it_is_read() {
        for text in ["linear:128:1:5", "exponential:64:2:3", "step:8:1:10", "adaptive:8:1:5", "fixed:4"] {
            assert_eq!(schedule(text).to_string(), text);
        }
        for (text, why) in [
            ("linear:128:1:0", "it never ends"),
            ("fixed:0.5", "a rate is at least 1"),
            ("linear:1:128:5", "a rate cannot rise"),
            ("linear:128:1", "as many numbers"),
            ("cubic:2", "none of this name"),
            ("fixed:x", "no number"),
        ] {
            let error = text.parse::<RateSchedule>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
