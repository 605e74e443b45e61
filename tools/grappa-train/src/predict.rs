//! `grappa-train predict RUN STORE`: the model of a run, applied.

mod knowledge;
mod links;
mod model;
mod written;

use std::{io::Write, time::Instant};

use anyhow::{Context, bail};
use grappa_console::{Console, Summary, count, printable, signals, table::aligned};
use grappa_engine::{
    ExternalId, Graph, NodeId, Store,
    aggregate::Budget,
    formats::manifest::ExternalIds,
    io::{durable::Destination, ledger::Ledger},
    node_list::read_nodes,
};
use grappa_run::{
    class_names,
    folder::config_of,
    model::{Task, significant},
    scores::ScoreReport,
};
use grappa_trainer::{
    predict::{
        FileNodes, FileOptions, NanOutputs, Prediction, Values, predict_file, predict_nodes, print_predictions,
        split_of,
    },
    runtime,
    train::trained_model::Trained,
};
use serde::Serialize;

use self::{model::PredictingModel, written::WrittenFile};
use crate::args::{self, ValuesOfNodes};

/// All nodes, or the nodes of a split, in a file.
#[derive(Serialize)]
struct WrittenPredictions {
    #[serde(flatten)]
    file: WrittenFile,
    nodes: u64,
    /// Of a split or a list of ids; null for all nodes, for embeddings, and without labels of the model's classes.
    scores: Option<PredictionScores>,
    model: PredictingModel,
}

/// Some nodes, one by one.
#[derive(Serialize)]
struct NodePredictions {
    predictions: Vec<PredictedNode>,
    /// Of a split or a list of ids; null for nodes of the command line, and without labels of the model's classes.
    scores: Option<PredictionScores>,
    model: PredictingModel,
    /// Who may take how much of `--memory`, and why.
    memory: Ledger,
}

/// The scores of predictions for labelled nodes. Those that are undefined are null.
#[derive(Serialize)]
struct PredictionScores {
    /// Labelled nodes.
    nodes: u64,
    accuracy: Option<f64>,
    micro_f1: Option<f64>,
    macro_f1: Option<f64>,
    loss: Option<f64>,
    /// Of numbers, in their unit; left out for classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    rmse: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mae: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r2: Option<f64>,
    /// Which score is told.
    #[serde(skip)]
    task: Task,
}

/// The prediction for a node, by the task.
#[derive(Serialize)]
#[serde(untagged)]
enum PredictedNode {
    Classes {
        id: String,
        /// One, or, where nodes have sets of classes, any number.
        predicted: Vec<String>,
        /// Of each of these.
        probability: Vec<f32>,
        /// The labels in the store; null if the node has none.
        labels: Option<Vec<String>>,
    },
    Targets {
        id: String,
        /// The value of each target; none if one is NaN.
        predicted: Vec<f32>,
        /// Its targets in the store, null where one is missing; null if the node has none.
        targets: Option<Vec<f32>>,
    },
}

pub fn run(options: &args::PredictArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    if options.out.as_ref().is_some_and(|out| out.as_os_str() == "-") && console.json() {
        bail!("--out - prints the predictions on stdout, so --json is not possible; give --out a file");
    }
    signals::stops_by_itself("removing the unfinished predictions");
    let graph = Graph::open(&options.store)?;
    let budget = Budget {
        memory: options.memory.0,
        threads: options.threads.value().map_or_else(runtime::threads, std::num::NonZero::get),
    };
    runtime::prepare(budget.threads, budget.memory);
    if config_of(&options.run)?.layers == 0 {
        if let Some(time) = options.links.at {
            bail!(
                "--at {time} is for runs that learned links at their times, and runs of --layers 0 use no times: leave it out"
            );
        }
        return knowledge::run(options, graph, begin, &console.bars(), console);
    }
    if let Some(relation) = &options.links.relation {
        bail!(
            "--relation {relation} is for runs of --layers 0, and the model of this run has no relations: leave it out"
        );
    }
    if !graph.is_whole() {
        tracing::warn!(
            "{} is a slice of its graph: nodes of other chunks count with their features, and not with their neighbors",
            graph.path().display()
        );
    }
    let trained = Trained::open(&options.run, runtime::device(options.device)?)?;
    let on = trained.nodes_of(&graph)?;
    let warnings = [trained.warnings(), &trained.warnings_about(on.nodes)?].concat();
    let on = match options.links.at {
        Some(time) => trained.links_at(&graph, on, time)?,
        None => on,
    };
    let on = on.of_type(options.node_type.as_deref())?;
    let store = on.nodes;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let model = PredictingModel::new(&trained, options.run.display().to_string());
    let bars = console.bars();
    let args::ChosenNodes { nodes, ids, split } = &options.chosen;
    let asks_for_links = options.links.pairs.is_some() || options.links.top_k.is_some();
    if let (true, Some(out)) = (asks_for_links, &options.out) {
        let predicted = links::predict(options, out, &trained, on, budget, &bars)?;
        drop(bars);
        return links::tell(predicted, out, (model, on.time()), begin, console);
    }
    if let Some(out) = &options.out {
        let listed = ids.as_ref().map(|path| read_nodes(store, path)).transpose()?;
        let file = FileOptions {
            values: options.values.of_file(),
            nodes: match (&listed, split) {
                (Some(listed), _) => FileNodes::Listed(listed),
                (None, Some(split)) => FileNodes::Split(split),
                (None, None) => FileNodes::All,
            },
        };
        if out.as_os_str() == "-" {
            let mut stdout = grappa_console::stdout();
            let printed = print_predictions(&trained, on, (&mut stdout, &options.run), file, budget, &bars)?;
            drop(bars);
            warn_of_nan(store, printed.nan, printed.nodes);
            return stdout.flush().context("cannot write to stdout");
        }
        let destination = Destination { path: out, replaces: options.force };
        let predicted = predict_file(&trained, on, destination, file, budget, &bars)?;
        drop(bars);
        warn_of_nan(store, predicted.nan, predicted.nodes);
        return console.finish(&WrittenPredictions {
            file: WrittenFile::new(out, predicted.bytes, predicted.memory, begin),
            nodes: predicted.nodes,
            scores: predicted.scores.and_then(|report| PredictionScores::from_report(&report, trained.task())),
            model,
        });
    }
    let is_set = ids.is_some() || split.is_some();
    let nodes = match (ids, split) {
        (Some(path), _) => read_nodes(store, path)?,
        (None, Some(split)) => split_of(store, split)?.iter().map(NodeId).collect(),
        (None, None) => nodes.iter().map(|id| find(store, id)).collect::<anyhow::Result<_>>()?,
    };
    let predictions = predict_nodes(&trained, on, &nodes, budget, &options.run, &bars)?;
    drop(bars);
    warn_of_nan(store, predictions.nan, predictions.nodes.len() as u64);
    let names_of_labels = trained.names_of_labels(store)?;
    let report = predictions.scores.filter(|_| is_set);
    console.answer(&NodePredictions {
        scores: report.and_then(|report| PredictionScores::from_report(&report, trained.task())),
        predictions: predictions
            .nodes
            .into_iter()
            .map(|prediction| node(&trained, store, &names_of_labels, prediction))
            .collect::<anyhow::Result<_>>()?,
        model,
        memory: predictions.memory,
    })
}

impl ValuesOfNodes {
    /// The values of the file of --out.
    fn of_file(&self) -> Values {
        match (self.probabilities, self.logits, self.embeddings) {
            (true, ..) => Values::Probabilities,
            (_, true, _) => Values::Logits,
            (.., true) => Values::Embeddings,
            _ => Values::Classes,
        }
    }
}

/// Warns about nodes that have no prediction.
fn warn_of_nan(store: &Store, nan: Option<NanOutputs>, nodes: u64) {
    if let Some(nan) = nan {
        tracing::warn!(
            "the outputs of {} of {nodes} node(s) are NaN, the first is {}: they have no class; a NaN feature of theirs, or of a node that \
             they depend on, is the cause, which grappa-ingest names without --allow-nan",
            nan.nodes,
            store.ids().name(nan.first)
        );
    }
}

/// The node of an id as a person writes it.
fn find(store: &Store, id: &str) -> anyhow::Result<NodeId> {
    let external = match store.manifest().ids.external {
        ExternalIds::String => Some(ExternalId::String(id.as_bytes().to_vec())),
        ExternalIds::Dense | ExternalIds::Sparse => id.parse().ok().map(ExternalId::Integer),
    };
    let Some(external) = external else {
        bail!("`{id}` is no id of {}, whose ids are integers", store.path().display());
    };
    match store.node(&external)? {
        Some(node) => Ok(node),
        None => bail!("no node of {} has the id {id}", store.path().display()),
    }
}

fn node(
    trained: &Trained,
    store: &Store,
    names_of_labels: &[String],
    prediction: Prediction,
) -> anyhow::Result<PredictedNode> {
    let (classes, labels) = (prediction.classes, prediction.labels);
    let id = store.external_id(prediction.node)?.to_string();
    Ok(match trained.task() {
        Task::Regression => PredictedNode::Targets {
            id,
            predicted: classes.iter().map(|(_, value)| *value).collect(),
            targets: prediction.targets,
        },
        _ => PredictedNode::Classes {
            id,
            predicted: classes.iter().map(|(class, _)| trained.class_name(*class)).collect(),
            probability: classes.iter().map(|(_, probability)| *probability).collect(),
            labels: labels
                .map(|labels| labels.into_iter().map(|class| class_names::name(names_of_labels, class)).collect()),
        },
    })
}

impl Summary for WrittenPredictions {
    fn text(&self) -> String {
        let mut text = self.file.text(&format!("{} nodes", count(self.nodes)), &self.model);
        if let Some(scores) = &self.scores {
            text += &format!("\n{}", scores.text());
        }
        text
    }
}

impl PredictionScores {
    /// None if no node has a label.
    fn from_report(report: &ScoreReport, task: Task) -> Option<Self> {
        (report.nodes > 0).then_some(Self {
            nodes: report.nodes,
            accuracy: report.accuracy,
            micro_f1: report.micro_f1,
            macro_f1: report.macro_f1,
            loss: report.loss,
            rmse: report.rmse,
            mae: report.mae,
            r2: report.r2,
            task,
        })
    }

    fn text(&self) -> String {
        let score = match self.task {
            Task::MultiClass => self.accuracy,
            Task::MultiLabel => self.micro_f1,
            Task::Regression => self.rmse,
            // Links are scored while they are trained.
            Task::Links => None,
        };
        let score = score.map_or("undefined".to_owned(), |score| self.task.shown_score(score));
        format!("{} {score} on {} labelled nodes", self.task.score_name(), count(self.nodes))
    }
}

impl Summary for NodePredictions {
    fn text(&self) -> String {
        let is_regression = self.model.task == Task::Regression;
        let titles: &[&str] = match is_regression {
            true => &["id", "predicted", "true"],
            false => &["id", "predicted", "probability", "true"],
        };
        let titles = titles.iter().map(|&title| title.to_owned()).collect();
        let rows = self.predictions.iter().map(PredictedNode::cells);
        let table: Vec<_> = std::iter::once(titles).chain(rows).collect();
        let right: &[usize] = if is_regression { &[1, 2] } else { &[2] };
        let mut text = aligned(&table, right).join("\n") + "\n";
        if let Some(scores) = &self.scores {
            text += &format!("{}\n", scores.text());
        }
        text + &self.model.text()
    }
}

impl PredictedNode {
    /// The cells of a row of the table.
    fn cells(&self) -> Vec<String> {
        match self {
            Self::Classes { id, predicted, probability, labels } => {
                let percents: Vec<_> = probability.iter().map(|part| format!("{:.1} %", part * 100.0)).collect();
                let labels = labels.as_deref().map_or("-".to_owned(), listed);
                vec![printable(id).into_owned(), listed(predicted), listed(&percents), labels]
            }
            Self::Targets { id, predicted, targets } => {
                let targets = targets.as_deref().map_or("-".to_owned(), numbers);
                vec![printable(id).into_owned(), numbers(predicted), targets]
            }
        }
    }
}

/// Targets in a cell of a table.
fn numbers(values: &[f32]) -> String {
    let shown = values.iter().map(|&value| if value.is_nan() { "-".to_owned() } else { significant(value.into()) });
    listed(&shown.collect::<Vec<_>>())
}

/// Names in a cell of a table.
fn listed(names: &[String]) -> String {
    match names {
        [] => "-".to_owned(),
        names => printable(&names.join(", ")).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use grappa_run::config::Monitor;

    use super::*;

    fn model(run: &str, epoch: u64, val: Option<f64>) -> PredictingModel {
        PredictingModel {
            run: run.into(),
            epoch,
            val,
            val_loss: None,
            is_sampled: false,
            monitor: Monitor::Score,
            task: Task::MultiClass,
        }
    }

    #[test]
    fn ids_and_class_names_cannot_act_on_the_terminal() {
        let told = NodePredictions {
            predictions: vec![PredictedNode::Classes {
                id: "a\x1b]0;b\x07\nc".into(),
                predicted: vec!["x\x1b[2Jy".into()],
                probability: vec![0.5],
                labels: Some(vec!["z\nw".into()]),
            }],
            scores: None,
            model: model("r\x1b[1m", 1, None),
            memory: Ledger::default(),
        };
        assert_eq!(
            told.text(),
            "id                   predicted    probability  true\n\
             a\\u{1b}]0;b\\u{7}\\nc  x\\u{1b}[2Jy       50.0 %  z\\nw\n\
             by the model of r\\u{1b}[1m after epoch 1"
        );
    }

    #[test]
    fn predictions_of_some_nodes_are_a_table() {
        let node = |id: &str, predicted: &[&str], probability: &[f32], label: Option<&str>| PredictedNode::Classes {
            id: id.into(),
            predicted: predicted.iter().map(|name| (*name).to_owned()).collect(),
            probability: probability.to_vec(),
            labels: label.map(|label| vec![label.to_owned()]),
        };
        let told = NodePredictions {
            predictions: vec![
                node("apt", &["admin"], &[0.9734], Some("admin")),
                node("vim-tiny", &["editors", "x11"], &[0.51, 1.0], None),
            ],
            scores: Some(PredictionScores {
                nodes: 1,
                accuracy: Some(1.0),
                micro_f1: Some(1.0),
                macro_f1: Some(1.0),
                loss: None,
                rmse: None,
                mae: None,
                r2: None,
                task: Task::MultiClass,
            }),
            model: model("web.run", 12, Some(0.763_21)),
            memory: Ledger::default(),
        };
        assert_eq!(
            told.text(),
            "id        predicted         probability  true\n\
             apt       admin                  97.3 %  admin\n\
             vim-tiny  editors, x11  51.0 %, 100.0 %  -\n\
             accuracy 100.00 % on 1 labelled nodes\n\
             by the model of web.run after epoch 12 (validation 76.32 %)"
        );
    }
}
