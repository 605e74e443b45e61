//! Predictions: the model of a run applied to a store, for all nodes or those of a split in a file, or for a few of them.
//!
//! Inference is exact and out of core. It computes nodes in the order of the store, and files are in the order of external ids. So the
//! rows of nodes go to a scratch file, then to a second one sorted by external id, and from there to the output:
//!
//! | output | for each node, in the order of the sorted external ids (dense ids: id 0, 1, 2, ...) |
//! |---|---|
//! | `.npy`, classes | int64 of `[nodes]`: its class, or -1 if a logit is NaN. For multi-label tasks, int8 of `[nodes, classes]`: 1 for the classes in its set, and -1 everywhere if a logit is NaN. This is the format of `grappa-store export --labels` |
//! | `.npy`, logits | f32 of `[nodes, classes]` |
//! | `.npy`, embeddings | f32 of `[nodes, hidden]` |
//! | `.npy`, probabilities | f32 of `[nodes, classes]` |
//! | a table, classes | columns `id` (int64, or string), `class` (its name, or int64 if classes have no names; null if a logit is NaN), `probability` (f32, of that class). For multi-label tasks, `classes` and `probabilities`: lists of those with a probability above 0.5 |
//! | a table, probabilities | columns `id`, `class` or `classes`, and `probability_NAME` for each class (f32; its number if it has no name) |
//! | a table, logits | columns `id` and `logits`, a list of f32 |
//! | a table, embeddings | columns `id` and `embedding`, a list of f32. `grappa-ingest --features` reads such tables |
//!
//! A table is `.parquet` or `.csv`, where lists are as in [`grappa_engine::export::table`].
//!
//! A file of a split has the rows of its nodes only, in the same order. A file of listed nodes has their rows in the order of the list.
//!
//! Cost: disk space for two copies of the rows besides the output, and the memory budget. A split or a list takes 32 bytes of memory more
//! for each of its nodes.

mod encoding;
mod nan;
mod probability;
mod table;

use std::{io::Write, path::Path};

use grappa_engine::{
    aggregate::Budget,
    export::{
        ExportBudget,
        made::MadeRows,
        node_table::DenseIds,
        table::{TableFormat, TableOut},
    },
};
use grappa_formats::{DenseId, NodeId};
use grappa_io::{
    durable::{self, Destination},
    progress::Progress,
};
use grappa_run::{model::Task, scores::ScoreReport};
use grappa_sampling::NodeSet;
use grappa_storage::Store;
use roaring::RoaringTreemap;
use tch::Tensor;

pub use self::nan::NanOutputs;
use self::{encoding::Encoding, nan::NanRows, probability::predicted, table::Table};
use crate::{
    Error, Result,
    train::{
        host_values::values,
        inference,
        labels::NodeLabels,
        split::SplitScores,
        trained::{Output, Trained, Wanted},
    },
};

/// The values to write for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Its class, or its set of labels.
    Classes,
    /// The probability of each class.
    Probabilities,
    /// One value per class.
    Logits,
    /// The input of the last layer.
    Embeddings,
}

/// The resources for predictions.
#[derive(Debug, Clone, Copy)]
pub struct PredictBudget {
    /// Memory for rows in bytes; the model's is extra.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
}

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
}

/// Predictions for some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// In the order of the nodes.
    pub nodes: Vec<Prediction>,
    /// Scores of the labelled ones, each counted once. None if the store has no labels or another number of classes than the model.
    pub scores: Option<ScoreReport>,
    /// As [`Predicted::nan`].
    pub nan: Option<NanOutputs>,
}

/// The prediction for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The node.
    pub node: NodeId,
    /// The predicted classes with their probabilities: one class, or for multi-label tasks all labels with a probability above 0.5.
    /// None if a logit is NaN.
    pub classes: Vec<(u64, f32)>,
    /// Its classes in the store. None if it has no label there.
    pub labels: Option<Vec<u64>>,
}

/// The place of predictions.
enum Out<'a> {
    /// A NumPy array.
    Npy(Destination<'a>),
    /// A table.
    Table(TableOut<'a>),
}

/// Contents of a file of predictions.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions<'a> {
    /// The values of each node.
    pub values: Values,
    /// The nodes.
    pub nodes: FileNodes<'a>,
}

/// The nodes of a file of predictions.
#[derive(Debug, Clone, Copy)]
pub enum FileNodes<'a> {
    /// All nodes, in the order of the sorted external ids.
    All,
    /// Those of the split of this name, in the same order.
    Split(&'a str),
    /// These, in this order.
    Listed(&'a [NodeId]),
}

impl From<Values> for FileOptions<'_> {
    /// The values of all nodes.
    fn from(values: Values) -> Self {
        Self {
            values,
            nodes: FileNodes::All,
        }
    }
}

/// Predicts nodes of a store and writes their values to the new file `out`, a `.npy`, `.parquet` or `.csv` as the [module](self)
/// describes. Computes only what the nodes depend on.
///
/// # Errors
/// If the model does not fit the store, the store has no such split or is a slice and all nodes are asked for, `out` exists and is not to
/// be replaced, its ending is unknown, files cannot be read or written, or memory is too small. Also if the outputs of all nodes are NaN.
pub fn predict_file<'a>(
    trained: &Trained,
    store: &Store,
    out: impl Into<Destination<'a>>,
    options: impl Into<FileOptions<'a>>,
    budget: PredictBudget,
    progress: &dyn Progress,
) -> Result<Predicted> {
    let out = out.into();
    let form = form(out)?;
    out.check()?;
    predict_to(
        trained,
        store,
        (form, durable::parent(out.path)),
        options.into(),
        budget,
        progress,
    )
}

/// As [`predict_file`], but prints CSV to `out`, such as standard output. Scratch files are in the folder of the run.
///
/// # Errors
/// As [`predict_file`].
pub fn print_predictions<'a>(
    trained: &Trained,
    store: &Store,
    (out, scratch): (&mut (dyn Write + Send), &Path),
    options: impl Into<FileOptions<'a>>,
    budget: PredictBudget,
    progress: &dyn Progress,
) -> Result<Predicted> {
    let out = Out::Table(TableOut::Text(out));
    predict_to(trained, store, (out, scratch), options.into(), budget, progress)
}

/// Predicts nodes and writes their values, with scratch files in a folder.
fn predict_to(
    trained: &Trained,
    store: &Store,
    (out, folder): (Out<'_>, &Path),
    options: FileOptions<'_>,
    budget: PredictBudget,
    progress: &dyn Progress,
) -> Result<Predicted> {
    let FileOptions { values, nodes } = options;
    trained.check_store(store)?;
    if matches!(nodes, FileNodes::All) && !store.manifest().is_whole() {
        return Err(Error::Options(format!(
            "{}: the store is a slice of its graph, so it cannot predict all nodes: name a --split, or nodes with --nodes or --ids",
            store.path().display()
        )));
    }
    check_sets(trained, store, budget.memory)?;
    let some = match nodes {
        FileNodes::All => None,
        FileNodes::Split(name) => Some(split_of(store, name)?),
        FileNodes::Listed(nodes) => Some(nodes.iter().map(|node| node.0).collect()),
    };
    let options = trained.model().options();
    let columns = match values {
        Values::Embeddings => options.hidden,
        _ => options.outputs,
    };
    let encoding = match (values, trained.task(), &out) {
        (Values::Classes, Task::MultiClass, Out::Table(_)) => Encoding::ClassAndProbability,
        (Values::Classes, Task::MultiClass, Out::Npy(_)) => Encoding::Class,
        (Values::Classes, Task::MultiLabel, Out::Npy(_)) => Encoding::Set,
        (Values::Probabilities, task, Out::Npy(_)) => Encoding::Probabilities(task),
        (Values::Classes, Task::MultiLabel, Out::Table(_))
        | (Values::Probabilities, _, Out::Table(_))
        | (Values::Logits | Values::Embeddings, ..) => Encoding::Floats,
    };
    let made = MadeRows::create(folder, "predictions", encoding.row_bytes(columns))?;
    let output = match values {
        Values::Embeddings => Output::Embeddings,
        _ => Output::Logits,
    };
    let inference = Budget {
        // The rest is for the model, and for what libtorch and the results need.
        memory: budget.memory / 4 * 3,
        threads: budget.threads,
    };
    let order = ExportBudget {
        threads: budget.threads,
        memory: budget.memory / 2,
    };
    if some.is_none() {
        // Before the inference, which may take hours.
        made.check_memory(store, &order)
            .map_err(|error| of_whole_budget(error, budget.memory))?;
    }
    let mut bytes = Vec::new();
    let mut nan = NanRows::default();
    let mut scored = match (&some, values) {
        (Some(some), Values::Classes | Values::Probabilities | Values::Logits) => Scored::of(trained, store, some)?,
        _ => None,
    };
    let all = store.manifest().nodes;
    let wanted = Wanted {
        nodes: match &some {
            None => NodeSet::all(all),
            Some(some) => NodeSet::of(all, some.iter().map(NodeId)),
        },
        output,
    };
    trained.infer(store, wanted, inference, folder, progress, &mut |positions, rows| {
        bytes.clear();
        let rows_of_values = self::values(rows);
        nan.add(positions.start, &rows_of_values, columns);
        encoding.encode(&rows_of_values, columns, &mut bytes);
        made.write(positions.start, &bytes)?;
        scored.as_mut().map_or(Ok(()), |scored| scored.add(rows))
    })?;
    let scores = scored.map(Scored::report);
    let nan = nan.found(some.as_ref());
    let rows = some.as_ref().map_or(all, RoaringTreemap::len);
    if let Some(nan) = nan.filter(|nan| nan.nodes == rows) {
        return Err(Error::Options(format!(
            "the outputs of all {rows} nodes are NaN, so there is nothing to predict, beginning with {}: the store has NaN features \
             (ingest without --allow-nan names them), or {} has parameters that are NaN or overflow, and must be trained again",
            store.ids().name(nan.first),
            trained.checkpoint().display()
        )));
    }
    let out = match out {
        Out::Npy(out) => out,
        Out::Table(out) => {
            let (rows, ids) = match &some {
                None => (made.by_dense_id(store, &order, progress)?, DenseIds::All(all)),
                Some(some) => {
                    let (positions, ids) = in_order(store, nodes, some)?;
                    (made.selected(positions.into_iter(), progress)?, DenseIds::Some(ids))
                }
            };
            let bytes = Table::new(trained, values, columns).write(out, store, &rows, &ids, progress)?;
            return Ok(Predicted {
                nodes: ids.len(),
                bytes,
                scores,
                nan,
            });
        }
    };
    let columns = columns as u64;
    let array = match encoding {
        Encoding::Class | Encoding::ClassAndProbability => ("<i8", None),
        Encoding::Set => ("|i1", Some(columns)),
        Encoding::Probabilities(_) | Encoding::Floats => ("<f4", Some(columns)),
    };
    let exported = match &some {
        None => made.export(store, out, array, &order, progress)?,
        Some(some) => {
            let (positions, ids) = in_order(store, nodes, some)?;
            let rows = made.selected(positions.into_iter(), progress)?;
            rows.write_array(out, ids.len() as u64, array, progress)?
        }
    };
    Ok(Predicted {
        nodes: exported.rows,
        bytes: exported.bytes,
        scores,
        nan,
    })
}

/// Scores of the labelled nodes of a set, whose logits come in the order of nodes.
struct Scored<'a> {
    labels: NodeLabels,
    scores: SplitScores<'a>,
    left: roaring::treemap::Iter<'a>,
}

impl<'a> Scored<'a> {
    /// None if the store has no labels, or other classes than the model.
    fn of(trained: &Trained, store: &Store, nodes: &'a RoaringTreemap) -> Result<Option<Self>> {
        if !trained.has_classes_of(store)? {
            return Ok(None);
        }
        let labels = NodeLabels::new(store)?;
        Ok(Some(Self {
            scores: SplitScores::new([nodes], labels.spec(), false),
            left: nodes.iter(),
            labels,
        }))
    }

    /// Adds the logits of the next nodes.
    fn add(&mut self, logits: &Tensor) -> Result<()> {
        let rows = logits.size()[0] as usize;
        let nodes: Vec<NodeId> = self.left.by_ref().take(rows).map(NodeId).collect();
        self.scores.add(&nodes, logits, &self.labels)
    }

    fn report(self) -> ScoreReport {
        let reports = self.scores.reports();
        reports.into_iter().next().expect("there is one set")
    }
}

/// Refuses a budget that does not hold the sets of nodes of an inference.
fn check_sets(trained: &Trained, store: &Store, memory: u64) -> Result<()> {
    let layers = trained.model().options().layers;
    inference::check_sets(store.manifest().nodes, layers, memory, "raise --memory")
}

/// An error about the half of the budget that sorts predictions, as one about the budget.
fn of_whole_budget(error: grappa_io::Error, memory: u64) -> grappa_io::Error {
    match error {
        grappa_io::Error::Budget {
            what, least, remedy, ..
        } => grappa_io::Error::Budget {
            what,
            given: memory,
            least: least.saturating_mul(2),
            remedy,
        },
        other => other,
    }
}

/// The nodes of a split.
///
/// # Errors
/// If the store has no such split, or it cannot be read.
pub fn split_of(store: &Store, name: &str) -> Result<RoaringTreemap> {
    let names: Vec<&str> = store
        .manifest()
        .splits
        .iter()
        .map(|split| split.name.as_str())
        .collect();
    store.split(name)?.ok_or_else(|| {
        let has = match names[..] {
            [] => "it has no splits: name nodes with --nodes or --ids, or leave out --split".to_owned(),
            _ => format!("it has {}", names.join(", ")),
        };
        Error::Options(format!("{} has no split `{name}`; {has}", store.path().display()))
    })
}

/// The positions of nodes in the set `some`, and their dense ids: of listed nodes in their order, else in the order of dense ids.
fn in_order(store: &Store, nodes: FileNodes<'_>, some: &RoaringTreemap) -> Result<(Vec<u64>, Vec<DenseId>)> {
    let id = |(node, position)| Ok((store.ids().dense_id(NodeId(node))?, position));
    let mut ordered: Vec<(DenseId, u64)> = match nodes {
        FileNodes::Listed(nodes) => {
            let sorted: Vec<u64> = some.iter().collect();
            let place = |node: &NodeId| sorted.binary_search(&node.0).expect("the set has the listed nodes");
            let placed = nodes.iter().map(|node| (node.0, place(node) as u64));
            placed.map(id).collect::<Result<_>>()?
        }
        FileNodes::All | FileNodes::Split(_) => some.iter().zip(0..).map(id).collect::<Result<_>>()?,
    };
    if !matches!(nodes, FileNodes::Listed(_)) {
        ordered.sort_unstable();
    }
    Ok(ordered.into_iter().map(|(id, position)| (position, id)).unzip())
}

/// Predicts the given nodes of a store, in their order, and computes only what they depend on. Scratch files are in `scratch`.
///
/// # Errors
/// If the model does not fit the store, files cannot be read, scratch files cannot be written, or memory is too small.
///
/// # Panics
/// If a node does not exist.
pub fn predict_nodes(
    trained: &Trained,
    store: &Store,
    nodes: &[NodeId],
    budget: PredictBudget,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Predictions> {
    trained.check_store(store)?;
    check_sets(trained, store, budget.memory)?;
    let count = store.manifest().nodes;
    assert!(nodes.iter().all(|node| node.0 < count), "nodes of {count}");
    let open_labels = |_| NodeLabels::new(store);
    let labels = store.manifest().labels.map(open_labels).transpose()?;
    let columns = trained.model().options().outputs;
    let wanted = Wanted {
        nodes: NodeSet::of(count, nodes.iter().copied()),
        output: Output::Logits,
    };
    let mut sorted: Vec<NodeId> = nodes.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let set: RoaringTreemap = sorted.iter().map(|node| node.0).collect();
    let mut scored = Scored::of(trained, store, &set)?;
    let mut predictions = Vec::with_capacity(sorted.len());
    let inference = Budget {
        memory: budget.memory,
        threads: budget.threads,
    };
    let mut nan = NanRows::default();
    trained.infer(store, wanted, inference, scratch, progress, &mut |positions, rows| {
        if let Some(scored) = &mut scored {
            scored.add(rows)?;
        }
        let rows = values(rows);
        nan.add(positions.start, &rows, columns);
        for logits in rows.chunks_exact(columns) {
            let node = sorted[predictions.len()];
            predictions.push(Prediction {
                node,
                classes: predicted(trained.task(), logits),
                labels: labels.as_ref().map_or(Ok(None), |labels| labels_of(labels, node))?,
            });
        }
        Ok(())
    })?;
    let of_node = |node| predictions[sorted.binary_search(node).expect("all nodes were computed")].clone();
    Ok(Predictions {
        nodes: nodes.iter().map(of_node).collect(),
        scores: scored.map(Scored::report),
        nan: nan.found(Some(&set)),
    })
}

fn labels_of(labels: &NodeLabels, node: NodeId) -> Result<Option<Vec<u64>>> {
    Ok(match labels.task() {
        Task::MultiClass => u64::try_from(labels.class(node)?).ok().map(|class| vec![class]),
        Task::MultiLabel => labels.set(node)?.map(|set| {
            let members = (0..).zip(set).filter(|(_, bit)| *bit == 1);
            members.map(|(class, _)| class).collect()
        }),
    })
}

/// The format of a file, by the ending of its name.
fn form(out: Destination<'_>) -> Result<Out<'_>> {
    if out.path.extension().is_some_and(|extension| extension == "npy") {
        return Ok(Out::Npy(out));
    }
    match TableFormat::of(out.path) {
        Some(format) => Ok(Out::Table(TableOut::File(out, format))),
        None => Err(Error::Options(format!(
            "{}: predictions are written to files that end with .npy, .parquet or .csv, or as CSV to stdout with --out -",
            out.path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_formats_are_refused() {
        for out in ["preds.tsv", "preds"] {
            let Err(error) = form(Path::new(out).into()) else {
                panic!("{out}")
            };
            let error = error.to_string();
            assert!(
                error.contains(out) && error.contains(".npy, .parquet or .csv"),
                "{error}"
            );
        }
    }
}
