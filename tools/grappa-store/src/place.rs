//! `grappa-store place`: a store of some chunks of a store.

use std::time::{Duration, Instant};

use grappa_console::{ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::{
    Graph,
    place::{PlaceOptions, Placed, place},
    store::writer::partial_folder,
};
use serde::Serialize;

use crate::args;

#[derive(Serialize)]
struct PlaceSummary {
    #[serde(flatten)]
    placed: Placed,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::PlaceArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let graph = Graph::open(&options.store)?;
    let place_options = PlaceOptions {
        chunks: options.chunks.clone(),
        edges: options.edges,
        halo_features: options.halo_features,
        out: options.to.clone(),
        copy: options.copy,
        threads: options.threads.get()?,
        resume: options.resume,
        replace: options.force,
    };
    signals::leaves_folder(partial_folder(&options.to), "rerun with --resume to continue");
    let placed = place(&graph, &place_options, &console.bars())?;
    if Graph::open(&options.to)?.lacks_features() {
        tracing::warn!(
            "{}: the slice has edges from nodes of other chunks, and not their features, so it cannot be trained: give --halo-features, or \
             --edges inside",
            options.to.display()
        );
    }
    console.finish(&PlaceSummary {
        placed,
        seconds: begin.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
        store: options.to.display().to_string(),
    })
}

impl Summary for PlaceSummary {
    fn text(&self) -> String {
        let Placed {
            nodes_present,
            edges,
            edges_left_out,
            ref aggregates,
            chunks,
            chunks_present,
            chunks_halo,
            chunks_halo_degrees,
            files_linked,
            bytes_copied,
            ..
        } = self.placed;
        let left_out = match edges_left_out {
            0 => String::new(),
            edges => format!(" ({} from other chunks left out)", count(edges)),
        };
        let halo = match chunks_halo {
            0 => String::new(),
            chunks if chunks == chunks_halo_degrees => format!(", features and in-degrees of {chunks} more"),
            chunks => format!(", features of {chunks} more"),
        };
        let aggregates = match aggregates.is_empty() {
            true => String::new(),
            false => format!("; pre-aggregated features: {}", aggregates.join(", ")),
        };
        format!(
            "{}: {chunks_present} of {chunks} chunks{halo}, {} nodes, {} edges{left_out}{aggregates}; {files_linked} files linked, {} copied; {}",
            printable(&self.store),
            count(nodes_present),
            count(edges),
            ByteSize(bytes_copied),
            duration(Duration::from_secs_f64(self.seconds))
        )
    }
}
