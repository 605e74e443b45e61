//! The grid of runs: datasets x numbers of layers x variants x seeds.

use std::fmt;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// A graph with labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dataset {
    /// Debian's packages and their sections
    DebianBookworm,
    /// Words and their topics
    Wordnet,
    /// Products that are bought together, and their categories
    AmazonComputers,
    /// Authors and their fields
    CoauthorCs,
    /// Papers and their subjects: small, to try the bench
    Cora,
}

impl Dataset {
    /// The datasets of the record.
    pub const RECORDED: [Self; 4] = [
        Self::DebianBookworm,
        Self::Wordnet,
        Self::AmazonComputers,
        Self::CoauthorCs,
    ];

    /// The name of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::DebianBookworm => "debian-bookworm",
            Self::Wordnet => "wordnet",
            Self::AmazonComputers => "amazon-computers",
            Self::CoauthorCs => "coauthor-cs",
            Self::Cora => "cora",
        }
    }

    /// The file with its features.
    pub fn features(self) -> &'static str {
        match self {
            Self::CoauthorCs => "features_csr.npz",
            _ => "features.npy",
        }
    }

    /// PyG's test accuracy of SAGE in % with `layers` layers, if it was measured.
    pub fn of_pyg(self, layers: usize) -> Option<f64> {
        match (self, layers) {
            (Self::DebianBookworm, 2) => Some(76.3),
            (Self::DebianBookworm, 3) => Some(79.4),
            (Self::Wordnet, 2) => Some(61.4),
            (Self::AmazonComputers, 2) => Some(90.9),
            _ => None,
        }
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The model of the first records, which do not name it.
const SAGE: &str = "sage";

/// Lists of options. All combinations are run. Options of partitions apply only if there are several.
#[derive(Debug, Args)]
pub struct Lists {
    /// Values of grappa-train's `--model`
    #[arg(long, value_delimiter = ',', default_values = [SAGE])]
    models: Vec<String>,
    /// Numbers of layers
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=8), default_values_t = [2, 3, 4])]
    layers: Vec<u32>,
    /// Seeds
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    seeds: Vec<u64>,
    /// Numbers of partitions; all of them make one step
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024), default_values_t = [1, 16])]
    partitions: Vec<u32>,
    /// Values of grappa-train's `--halo`
    #[arg(long, value_delimiter = ',', default_values = ["none", "features", "stop", "aggregates", "history"])]
    halo: Vec<String>,
    /// Values of grappa-train's `--first-hop`
    #[arg(long, value_delimiter = ',', default_values = ["sampled", "preaggregated"])]
    first_hop: Vec<String>,
    /// Values of grappa-train's `--correction`
    #[arg(long, value_delimiter = ',', default_values = ["none"])]
    correction: Vec<String>,
    /// Values of grappa-train's `--schedule`
    #[arg(long, value_delimiter = ',', default_values = ["sweep"])]
    schedule: Vec<String>,
    /// Values of grappa-train's `--repartition-every`
    #[arg(long, value_delimiter = ',', default_values_t = [5])]
    repartition_every: Vec<u32>,
    /// More options of grappa-train for runs in partitions, such as "--shrinkage 0.5"
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    also: String,
    /// Epochs of a run
    #[arg(long, default_value_t = 50)]
    epochs: u32,
}

/// Settings of the training.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Variant {
    #[serde(default = "sage")]
    pub model: String,
    pub partitions: u32,
    pub first_hop: String,
    /// Empty without partitions, like all fields after it.
    pub halo: String,
    pub correction: String,
    pub schedule: String,
    pub repartition_every: u32,
    pub also: String,
}

fn sage() -> String {
    SAGE.to_owned()
}

/// A run of grappa-train.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridRun {
    pub dataset: Dataset,
    pub layers: u32,
    #[serde(flatten)]
    pub variant: Variant,
    pub epochs: u32,
    pub seed: u64,
}

impl Lists {
    /// All combinations, seed by seed, so that an incomplete table has all rows. Small models come first.
    pub fn runs(&self, datasets: &[Dataset]) -> Vec<GridRun> {
        let mut runs = Vec::new();
        for &seed in &self.seeds {
            for &layers in &self.layers {
                for &dataset in datasets {
                    runs.extend(self.variants().into_iter().map(|variant| GridRun {
                        dataset,
                        layers,
                        variant,
                        epochs: self.epochs,
                        seed,
                    }));
                }
            }
        }
        runs
    }

    fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for model in &self.models {
            for &partitions in &self.partitions {
                self.add_variants(model, partitions, &mut variants);
            }
        }
        variants.dedup();
        variants
    }

    fn add_variants(&self, model: &str, partitions: u32, variants: &mut Vec<Variant>) {
        for first_hop in &self.first_hop {
            if partitions == 1 {
                variants.push(Variant {
                    model: model.to_owned(),
                    partitions,
                    first_hop: first_hop.clone(),
                    halo: String::new(),
                    correction: String::new(),
                    schedule: String::new(),
                    repartition_every: 0,
                    also: String::new(),
                });
                continue;
            }
            for halo in &self.halo {
                for correction in &self.correction {
                    for schedule in &self.schedule {
                        for &repartition_every in &self.repartition_every {
                            variants.push(Variant {
                                model: model.to_owned(),
                                partitions,
                                first_hop: first_hop.clone(),
                                halo: halo.clone(),
                                correction: correction.clone(),
                                schedule: schedule.clone(),
                                // Fixed partitions have no rate of change.
                                repartition_every: if schedule == "fixed" { 0 } else { repartition_every },
                                also: self.also.clone(),
                            });
                        }
                    }
                }
            }
        }
    }
}

/// The index of a name; the number of names for an unknown one.
fn place(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or(names.len())
}

impl Variant {
    /// The position in a table: variants with more information about the graph are further down, unknown ones last.
    pub fn rank(&self) -> (&str, u32, [usize; 4], &str) {
        let places = [
            place(&["", "fixed", "sweep", "shuffle"], &self.schedule),
            place(&["sampled", "preaggregated", "auto"], &self.first_hop),
            place(
                &[
                    "",
                    "none",
                    "features",
                    "stop",
                    "neighbors",
                    "aggregates",
                    "history",
                    "auto",
                ],
                &self.halo,
            ),
            place(&["", "none", "batch", "node"], &self.correction),
        ];
        (&self.model, self.partitions, places, &self.also)
    }

    /// Whether it is the reference of its model: no partitions, and the first hop is not pre-aggregated on purpose.
    pub fn is_reference(&self) -> bool {
        self.partitions == 1 && self.first_hop != "preaggregated"
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.model != SAGE {
            write!(f, "{}, ", self.model)?;
        }
        if self.partitions == 1 {
            return write!(f, "unpartitioned, first hop {}", self.first_hop);
        }
        write!(
            f,
            "K = Q = {}, halo {}, first hop {}",
            self.partitions, self.halo, self.first_hop
        )?;
        match self.repartition_every {
            0 => write!(f, ", {}", self.schedule)?,
            every => write!(f, ", {} every {every}", self.schedule)?,
        }
        write!(f, ", correction {}", self.correction)?;
        if !self.also.is_empty() {
            write!(f, ", `{}`", self.also)?;
        }
        Ok(())
    }
}

impl GridRun {
    /// The options of grappa-train, without paths and resources.
    pub fn options(&self) -> Vec<String> {
        let variant = &self.variant;
        let fanouts = match variant.model.as_str() {
            // PinSAGE keeps as many visited nodes at each hop.
            "pinsage" => ["10"; 8],
            _ => ["15", "10", "5", "5", "5", "5", "5", "5"],
        };
        let mut options: Vec<String> = [
            ("--model", variant.model.clone()),
            ("--layers", self.layers.to_string()),
            ("--hidden", "128".to_owned()),
            ("--fanouts", fanouts[..self.layers as usize].join(",")),
            ("--batch", (1024 / variant.partitions).to_string()),
            ("--lr", "0.003".to_owned()),
            ("--dropout", "0.5".to_owned()),
            ("--epochs", self.epochs.to_string()),
            ("--seed", self.seed.to_string()),
            ("--first-hop", variant.first_hop.clone()),
            ("--partitions", variant.partitions.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        if variant.partitions > 1 {
            // More than the number of epochs, so that fixed partitions are not rebuilt either.
            let every = if variant.repartition_every == 0 {
                self.epochs
            } else {
                variant.repartition_every
            };
            options.extend(
                [
                    ("--concurrent", variant.partitions.to_string()),
                    ("--halo", variant.halo.clone()),
                    ("--correction", variant.correction.clone()),
                    ("--schedule", variant.schedule.clone()),
                    ("--repartition-every", every.to_string()),
                ]
                .into_iter()
                .flat_map(|(name, value)| [name.to_owned(), value]),
            );
            options.extend(variant.also.split_whitespace().map(str::to_owned));
        }
        options
    }
}

impl fmt::Display for GridRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} layers, {}, seed {}",
            self.dataset, self.layers, self.variant, self.seed
        )?;
        if self.epochs != 50 {
            write!(f, ", {} epochs", self.epochs)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        lists: Lists,
    }

    pub fn runs(args: &[&str]) -> Vec<GridRun> {
        let cli = Cli::try_parse_from(std::iter::once(&"accuracy").chain(args)).unwrap();
        cli.lists.runs(&[Dataset::Wordnet])
    }

    #[test]
    fn lists_are_combined_and_a_whole_graph_has_no_halo() {
        // Two unpartitioned ones, and five halo modes x two first hops.
        assert_eq!(runs(&[]).len(), (2 + 10) * 9);
        let runs = runs(&[
            "--layers=2",
            "--seeds=7",
            "--halo=stop,history",
            "--correction=none,node",
            "--first-hop=sampled",
        ]);
        assert_eq!(runs.len(), 1 + 4);
        assert_eq!(runs.iter().filter(|run| run.variant.is_reference()).count(), 1);
        assert!(runs.iter().all(|run| (run.layers, run.seed, run.epochs) == (2, 7, 50)));
    }

    #[test]
    fn fixed_partitions_are_run_once_whatever_the_rate() {
        let args = [
            "--layers=2",
            "--seeds=1",
            "--partitions=16",
            "--halo=stop",
            "--first-hop=sampled",
        ];
        let with = |more: &[&'static str]| runs(&[&args[..], more].concat()).len();
        assert_eq!(with(&["--schedule=fixed", "--repartition-every=1,5"]), 1);
        assert_eq!(with(&["--schedule=fixed,sweep", "--repartition-every=1,5"]), 3);
    }

    #[test]
    fn seeds_of_a_step_are_as_many_whatever_the_partitions() {
        let runs = runs(&[
            "--layers=3",
            "--seeds=1",
            "--halo=stop",
            "--first-hop=sampled",
            "--also=--shrinkage 0.5",
        ]);
        let options = |run: &GridRun| run.options().join(" ");
        assert!(options(&runs[0]).contains("--fanouts 15,10,5 --batch 1024 ") && !options(&runs[0]).contains("--halo"));
        assert!(
            options(&runs[1]).contains("--batch 64 ")
                && options(&runs[1]).ends_with("--repartition-every 5 --shrinkage 0.5")
        );
        assert!(runs[1].to_string().contains("`--shrinkage 0.5`"), "{}", runs[1]);
    }
}
