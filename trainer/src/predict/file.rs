//! Files of predictions.

use std::{io::Write, path::Path};

use grappa_engine::{
    aggregate::Budget,
    export::{
        node_table::{DenseIds, NodeTable},
        scratch_rows::ScratchRows,
        table::{TableFormat, TableOut},
    },
};
use grappa_formats::{DenseId, NodeId};
use grappa_io::{
    durable::{self, Destination},
    ledger::Ledger,
    progress::Progress,
};
use grappa_run::{model::Task, scores::ScoreReport};
use grappa_sampling::NodeSet;
use grappa_storage::Store;
use roaring::RoaringTreemap;

use super::{
    encoding::Encoding,
    memory::PredictionMemory,
    nan::{NanOutputs, NanRows},
    options::{FileNodes, FileOptions, Values},
    scored::Scored,
    table::Columns,
};
use crate::{
    Error, Result,
    train::{
        host_values,
        trained_model::{InferenceRequest, Output, PredictedGraph, RequestedNodes, Trained},
    },
};

/// A written file.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// Number of nodes.
    pub nodes: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Scores of the labelled nodes of a split or a list. None for all nodes, which the model was trained on, for embeddings, and if the
    /// store has no labels or another number of classes than the model.
    pub scores: Option<ScoreReport>,
    /// The nodes whose outputs are NaN, if there are any.
    pub nan: Option<NanOutputs>,
    /// Who may take how much of the memory, by stage.
    pub memory: Ledger,
}

/// Predicts nodes of a store and writes their values to the new file `out`, a `.npy`, `.parquet` or `.csv` as the [module](super)
/// describes. Computes only what the nodes depend on.
///
/// # Errors
/// If the model does not fit the store, the store has no such split or is a slice and all nodes are asked for, `out` exists and is not to
/// be replaced, its ending is unknown, files cannot be read or written, or memory is too small. Also if the outputs of all nodes are NaN.
pub fn predict_file<'a>(
    trained: &Trained,
    on: impl Into<PredictedGraph<'a>>,
    out: impl Into<Destination<'a>>,
    options: impl Into<FileOptions<'a>>,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<Predicted> {
    let out = out.into();
    check_name(out.path)?;
    out.check()?;
    predict_to(trained, on.into(), (out.into(), durable::parent(out.path)), options.into(), budget, progress)
}

/// As [`predict_file`], but prints CSV to `out`, such as standard output. Scratch files are in the folder of the run.
///
/// # Errors
/// As [`predict_file`].
pub fn print_predictions<'a>(
    trained: &Trained,
    on: impl Into<PredictedGraph<'a>>,
    (out, scratch): (&mut (dyn Write + Send), &Path),
    options: impl Into<FileOptions<'a>>,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<Predicted> {
    let out = TableOut::Stream(out, TableFormat::Csv);
    predict_to(trained, on.into(), (out, scratch), options.into(), budget, progress)
}

/// Predicts nodes and writes their values, with scratch files in a folder.
fn predict_to(
    trained: &Trained,
    on: PredictedGraph<'_>,
    (out, folder): (TableOut<'_>, &Path),
    options: FileOptions<'_>,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<Predicted> {
    let FileOptions { values, nodes } = options;
    let store = on.nodes;
    trained.check_graph(on)?;
    if matches!(nodes, FileNodes::All) && !store.manifest().is_whole() {
        return Err(Error::WrongStore(format!(
            "{}: the store is a slice of its graph, so it cannot predict all nodes: name a --split, or nodes with --nodes or --ids",
            store.path().display()
        )));
    }
    trained.check_memory(store, budget)?;
    let some = match nodes {
        FileNodes::All => None,
        FileNodes::Split(name) => Some(split_of(store, name)?),
        FileNodes::Listed(nodes) => Some(nodes.iter().map(|node| node.0).collect()),
    };
    if values == Values::Probabilities && trained.task() == Task::Regression {
        return Err(Error::Options(
            "--probabilities is for classes, and the model predicts numbers: leave it out".into(),
        ));
    }
    let is_of_links = trained.task() == Task::Links;
    if is_of_links && values != Values::Embeddings {
        return Err(Error::Options(
            "the model predicts links, and nothing for single nodes but their embeddings: add --embeddings".into(),
        ));
    }
    let options = trained.model().options();
    // The outputs of a model of links are the embeddings that it scores pairs from.
    let (columns, output) = match values {
        Values::Embeddings if !is_of_links => (options.hidden, Output::Embeddings),
        _ => (options.outputs, Output::Logits),
    };
    let encoding = Encoding::new(values, trained.task());
    let made = ScratchRows::create(folder, "predictions", encoding.row_bytes(columns))?;
    let mut memory = PredictionMemory::new(budget);
    let order = memory.order();
    let inference = memory.inference()?;
    if some.is_none() {
        // Before the inference, which may take hours.
        let lease = memory.in_order(made.sort_lease(store, &order))?;
        memory.enter_order(lease)?;
    }
    let mut bytes = Vec::new();
    let mut nan = NanRows::default();
    let mut scored = match (&some, values) {
        (Some(some), Values::Classes | Values::Probabilities | Values::Logits) => Scored::new(trained, store, some)?,
        _ => None,
    };
    let all = store.manifest().nodes;
    let request = InferenceRequest {
        nodes: RequestedNodes::Nodes(match &some {
            None => NodeSet::all(all),
            Some(some) => NodeSet::from_members(all, some.iter().map(NodeId)),
        }),
        output,
    };
    trained.infer(on, request, inference, folder, progress, &mut |positions, rows| {
        bytes.clear();
        let rows_of_values = host_values(rows);
        nan.add(positions.start, &rows_of_values, columns);
        encoding.encode(&rows_of_values, columns, &mut bytes);
        made.write(positions.start, &bytes)?;
        scored.as_mut().map_or(Ok(()), |scored| scored.add(rows))
    })?;
    let scores = scored.map(Scored::report);
    let nan = nan.found(some.as_ref());
    let rows = some.as_ref().map_or(all, RoaringTreemap::len);
    if let Some(nan) = nan.filter(|nan| nan.nodes == rows) {
        return Err(Error::NotFinite(format!(
            "the outputs of all {rows} nodes are NaN, so there is nothing to predict, beginning with {}: the store has NaN features \
             (ingest without --allow-nan names them), or {} has parameters that are NaN or overflow, and must be trained again",
            store.ids().name(nan.first),
            trained.checkpoint().display()
        )));
    }
    let (positions, ids) = match &some {
        None => (None, DenseIds::All(all)),
        Some(some) => {
            let (positions, ids) = in_order(store, nodes, some)?;
            (Some(positions), DenseIds::Some(ids))
        }
    };
    let format = out.format(TableFormat::Csv);
    let table_columns = Columns::new(trained, values, columns, format == TableFormat::Npy);
    // The inference may have taken hours, so ids that do not fit are escaped.
    let table = NodeTable { store, format, ids: &ids, columns: table_columns.fields(), escapes_ids: true };
    let bytes = table.write(
        out,
        made.row_bytes(),
        |sink| match &positions {
            None => made.read_in_order(store, &order, progress, sink),
            Some(positions) => made.read_at(positions, progress, sink),
        },
        |bytes| table_columns.arrays(bytes),
    )?;
    Ok(Predicted { nodes: ids.len(), bytes, scores, nan, memory: memory.ledger })
}

/// The nodes of a split.
///
/// # Errors
/// If the store has no such split, or it cannot be read.
pub fn split_of(store: &Store, name: &str) -> Result<RoaringTreemap> {
    let names: Vec<&str> = store.manifest().splits.iter().map(|split| split.name.as_str()).collect();
    store.split(name)?.ok_or_else(|| {
        let has = match names[..] {
            [] => "it has no splits: name nodes with --nodes or --ids, or leave out --split".to_owned(),
            _ => format!("it has {}", names.join(", ")),
        };
        Error::WrongStore(format!("{} has no split `{name}`; {has}", store.path().display()))
    })
}

/// The positions of nodes in the set `some`, and their dense ids: of listed nodes in their order, else in the order of dense ids.
fn in_order(store: &Store, nodes: FileNodes<'_>, some: &RoaringTreemap) -> Result<(Vec<u64>, Vec<DenseId>)> {
    if let FileNodes::Listed(nodes) = nodes {
        let sorted: Vec<u64> = some.iter().collect();
        let positions = nodes.iter().map(|node| sorted.binary_search(&node.0));
        let positions = positions.map(|position| position.expect("the set has the listed nodes") as u64);
        let ids = nodes.iter().map(|&node| Ok(store.ids().dense_id(node)?));
        return Ok((positions.collect(), ids.collect::<Result<_>>()?));
    }
    let placed = some.iter().zip(0..);
    let placed = placed.map(|(node, position)| Ok((store.ids().dense_id(NodeId(node))?, position)));
    let mut ordered = placed.collect::<Result<Vec<(DenseId, u64)>>>()?;
    ordered.sort_unstable();
    Ok(ordered.into_iter().map(|(id, position)| (position, id)).unzip())
}

/// Refuses a file whose name says no format.
fn check_name(out: &Path) -> Result<()> {
    TableFormat::from_path(out).map(drop).ok_or_else(|| {
        Error::Options(format!(
            "{}: predictions are written to files that end with .npy, .parquet or .csv, or as CSV to stdout with --out -",
            out.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_formats_are_refused() {
        for out in ["preds.tsv", "preds"] {
            let error = check_name(Path::new(out)).unwrap_err().to_string();
            assert!(error.contains(out) && error.contains(".npy, .parquet or .csv"), "{error}");
        }
    }
}
