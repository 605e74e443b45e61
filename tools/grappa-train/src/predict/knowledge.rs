//! Predictions of a run of --layers 0: the rows of entities, and the best tails of heads.

use std::{path::Path, time::Instant};

use anyhow::{Context, bail};
use grappa_console::{Console, Summary, count};
use grappa_engine::{
    Graph, Progress,
    export::table::{TableFormat, TableOut},
    io::{durable::Destination, ledger::Ledger},
    node_list::read_nodes,
};
use grappa_knowledge::{BestTails, LearnedRows};
use grappa_run::model::Task;
use serde::Serialize;

use super::{model::PredictingModel, written::WrittenFile};
use crate::args;

#[derive(Serialize)]
struct WrittenRows {
    #[serde(flatten)]
    file: WrittenFile,
    rows: u64,
    model: PredictingModel,
    /// What a row is.
    #[serde(skip)]
    unit: &'static str,
}

impl Summary for WrittenRows {
    fn text(&self) -> String {
        self.file.text(&format!("{} {}", count(self.rows), self.unit), &self.model)
    }
}

/// Writes what the options ask for.
pub fn run(
    options: &args::PredictArgs,
    graph: Graph,
    begin: Instant,
    progress: &dyn Progress,
    console: &Console,
) -> anyhow::Result<()> {
    let Some(out) = &options.out else {
        bail!(
            "the run learned rows of entities, and predicts no classes: write its rows with `--embeddings --out rows.parquet`"
        );
    };
    let args::ChosenNodes { ids, split, .. } = &options.chosen;
    let chosen = [("--ids", ids.is_some()), ("--split", split.is_some()), ("--type", options.node_type.is_some())];
    if let Some((option, _)) = chosen.into_iter().find(|(_, is_there)| *is_there) {
        bail!("{option} is for runs with layers, and the rows of all entities of this run are written: leave it out");
    }
    let learned = LearnedRows::open(&options.run, graph.clone())?;
    let is_stream = out.as_os_str() == "-";
    let mut stdout = grappa_console::stdout();
    let place = match is_stream {
        true => TableOut::Stream(&mut stdout, TableFormat::Csv),
        false => {
            let destination = Destination { path: out, replaces: options.force };
            destination.check()?;
            TableOut::File(destination)
        }
    };
    let ((rows, bytes), unit) = match (&options.links.sources, options.links.top_k) {
        (Some(heads), Some(count)) => {
            (best_tails(options, &learned, &graph, heads, count.get(), place, progress)?, "tails")
        }
        _ if options.values.embeddings => (learned.export(place, options.memory.0, progress)?, "rows of entities"),
        _ => bail!(
            "the run learned rows of entities: write them with --embeddings, or the best tails of heads with --top-k K --for FILE --relation NAME"
        ),
    };
    if is_stream {
        use std::io::Write;
        return stdout.flush().context("cannot write to stdout");
    }
    let state = learned.state();
    let model = PredictingModel {
        run: options.run.display().to_string(),
        epoch: state.epoch,
        val: state.best.map(|best| best.val),
        val_loss: None,
        is_sampled: false,
        monitor: learned.config().monitor,
        task: Task::Links,
    };
    let file = WrittenFile::new(out, bytes, Ledger::new(options.memory.0), begin);
    console.finish(&WrittenRows { file, rows, model, unit })
}

fn best_tails(
    options: &args::PredictArgs,
    learned: &LearnedRows,
    graph: &Graph,
    heads: &Path,
    count: usize,
    out: TableOut<'_>,
    progress: &dyn Progress,
) -> anyhow::Result<(u64, u64)> {
    let Some(relation) = &options.links.relation else {
        bail!("--top-k of a run of --layers 0 ranks the tails of a relation: name it with --relation NAME");
    };
    if options.links.among.is_some() {
        bail!("--among is for runs with layers, and the run has --layers 0: leave it out");
    }
    let heads = read_nodes(&graph.node_types()[0], heads)?;
    let excludes_known = options.links.exclude_known;
    let request = BestTails { heads: &heads, relation, count, excludes_known };
    Ok(learned.write_best_tails(request, out, progress)?)
}
