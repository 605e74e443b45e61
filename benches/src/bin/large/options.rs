//! The options of the bench, and its rows.

use std::fmt;

use clap::{Parser, ValueEnum};
use grappa_benches::bench::Files;
use grappa_console::ByteSize;

/// Measure graphs that exceed the memory
#[derive(Debug, Parser)]
pub struct Args {
    #[command(flatten)]
    pub files: Files,
    /// Rows of the table to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Row::ALL)]
    pub rows: Vec<Row>,
    /// The R-MAT graph of `default` and `exact` has 2^SCALE nodes
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u32).range(12..=34))]
    pub scale: u32,
    /// The block model of `sample` has 2^S nodes [default: scale + 2]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(12..=36))]
    pub sbm_scale: Option<u32>,
    /// The R-MAT graph of `procedural` has 2^S nodes [default: scale + 3]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(12..=37))]
    pub procedural_scale: Option<u32>,
    /// The R-MAT graph of `slice`, has 2^S nodes; 2 of its 1024 chunks are made [default: scale + 10]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(22..=40))]
    pub slice_scale: Option<u32>,
    /// Value of --memory for `default` and `exact` [default: 2 GiB at scale 26, in proportion to the nodes; at least 64 MiB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Memory limit of `default` and `exact`, page cache included [default: 1 GB for the program, and 3 GB at scale 26]
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<ByteSize>,
    /// Value of --memory for the other rows [default: 6 GiB at the scales that follow from scale 26]
    #[arg(long, value_name = "SIZE")]
    pub large_memory: Option<ByteSize>,
    /// Memory limit of `procedural` and `slice`, page cache included [default: 8 GiB at the scales that follow from scale 26]
    #[arg(long, value_name = "SIZE")]
    pub large_limit: Option<ByteSize>,
    /// Steps of `procedural` and `slice`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Minibatches of `sample`
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub batches: u64,
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Row {
    /// Three epochs and their evaluations, with defaults except layers and memory
    Default,
    /// An exact evaluation after 4 steps
    Exact,
    /// The same, if the first hop is sampled
    ExactSampledFirstHop,
    /// Minibatches of a block model, in 16 partitions in turn
    Sample,
    /// A graph with computed features: made, verified, repartitioned; steps and a sampled evaluation
    Procedural,
    /// 2 of 1024 chunks of a graph: steps and a sampled evaluation
    Slice,
}

impl Row {
    pub const ALL: [Self; 6] =
        [Self::Default, Self::Exact, Self::ExactSampledFirstHop, Self::Sample, Self::Procedural, Self::Slice];
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("no row is hidden").get_name())
    }
}
