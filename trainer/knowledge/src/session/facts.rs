//! Facts about a run for its report.

use std::time::SystemTime;

use grappa_formats::EdgePart;
use grappa_io::size::count;
use grappa_report::RunFacts;
use grappa_run::config::{Auto, NegativeSampling, TrainConfig, TripleNegatives};
use time::OffsetDateTime;

use crate::{step::TripleModel, triples::Triples};

/// The facts. `process` is the command line of the process and the time when it began.
pub(super) fn facts(
    triples: &Triples,
    model: &TripleModel,
    config: &TrainConfig,
    parts: u32,
    process: &(String, SystemTime),
) -> RunFacts {
    let started = OffsetDateTime::from(process.1);
    let relations = triples.relations().len() as u64;
    let dataset = vec![
        ("entities", count(triples.entity_count() as u64)),
        ("relations", count(relations)),
        ("training triples", count(triples.count(EdgePart::Graph))),
        ("validation triples", count(triples.count(EdgePart::Val))),
        ("test triples", count(triples.count(EdgePart::Test))),
        ("written by", triples.graph().manifest().writer.clone()),
    ];
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let of_process = vec![
        ("started", format!("{} {:02}:{:02} UTC", started.date(), started.hour(), started.minute())),
        ("processors", processors.to_string()),
        ("command", process.0.clone()),
    ];
    let negatives = match model.negatives {
        TripleNegatives::All => "all".to_owned(),
        TripleNegatives::Shared(negatives) => format!("shared, {negatives}"),
    };
    let chosen = [
        ("partitions", config.partitions == Auto::Auto, parts.to_string()),
        ("threads", config.threads == Auto::Auto, config.threads().to_string()),
        ("negative-sampling", config.negative_sampling == NegativeSampling::Auto, negatives),
    ];
    let chosen = chosen.into_iter().filter(|&(_, is_auto, _)| is_auto).map(|(option, _, value)| (option, value));
    RunFacts { dataset, process: of_process, chosen: chosen.collect() }
}
