//! The most important numbers of a run.

use grappa_io::size::ByteSize;
use grappa_run::{
    model::{Task, significant},
    scores::{ModelScores, ScoreReport},
    summary::Summary,
};

use crate::{html::escape, scale::Unit};

/// A name and a value. Values that a run lacks have no tile.
type NamedValue = (String, Option<String>);

/// The tiles of a run with this number of partitions.
pub(super) fn html(summary: &Summary, scores: Option<&ModelScores>, partitions: u32) -> String {
    let mut html = "<div class=\"tiles\">\n".to_owned();
    let leading = monitored_tiles(summary);
    let is_repeated = |title: &str| leading.iter().any(|(leading, value)| leading == title && value.is_some());
    let scores = score_tiles(summary, scores).into_iter().filter(|(title, _)| !is_repeated(title));
    let scores: Vec<NamedValue> = scores.collect();
    for (title, value) in leading.into_iter().chain(scores).chain(others(summary, partitions)) {
        if let Some(value) = value {
            html += &format!("<div><span>{title}</span><b>{value}</b></div>\n");
        }
    }
    html + "</div>\n"
}

/// What decides which epoch is the best, unless it is the score of the task, which comes first anyway.
fn monitored_tiles(summary: &Summary) -> Vec<NamedValue> {
    let best = summary.monitored();
    let monitor = summary.config.monitor;
    if best.name == summary.task.score_name() {
        return Vec::new();
    }
    let unit = Unit::of_monitor(monitor, summary.task);
    let tile =
        |split: &str, value: Option<f64>| (format!("{split} {}", best.name), value.map(|value| unit.format(value)));
    vec![tile("test", best.test), tile("val", best.val)]
}

fn link_tiles(summary: &Summary, split: &str) -> Vec<NamedValue> {
    let [test, val] = [summary.test_mrr, summary.val_mrr].map(number);
    let mut tiles = vec![("test MRR".to_owned(), test), ("val MRR".to_owned(), val)];
    if let Some(links) = &summary.links {
        let sources = links.by_source.as_ref();
        tiles.extend([
            (format!("{split} Hits@10"), part(links.filtered.hits_at_10)),
            (format!("{split} Recall@20"), part(sources.and_then(|sources| sources.recall_at_20))),
            (format!("{split} MAP@20"), number(sources.and_then(|sources| sources.map_at_20))),
            (format!("{split} NDCG@20"), number(sources.and_then(|sources| sources.ndcg_at_20))),
            (format!("{split} AUC"), part(links.auc)),
            (format!("{split} average precision"), part(links.average_precision)),
        ]);
    }
    tiles
}

/// Scores, each with the name of its split.
fn score_tiles(summary: &Summary, scores: Option<&ModelScores>) -> Vec<NamedValue> {
    let (score, is_single) = (summary.score(), summary.task == Task::MultiClass);
    let split = scores.map_or("test", |scores| &scores.split);
    let scored = escape(split);
    if summary.task == Task::Regression {
        return target_tiles(summary, &scored, scores.map(|scores| &scores.report));
    }
    if summary.task == Task::Links {
        return link_tiles(summary, &scored);
    }
    let scores = scores.map(|scores| &scores.report);
    let majority = scores.filter(|_| is_single).and_then(majority);
    let micro_f1 = scores.filter(|_| is_single).and_then(|scores| scores.micro_f1);
    // Of sets of labels, the accuracy is the share of nodes whose whole set is right.
    let subsets = summary.test_accuracy.filter(|_| !is_single);
    vec![
        (format!("test {}", score.name), part(score.test)),
        ("test majority class".to_owned(), part(majority.filter(|_| split == "test"))),
        (format!("val {}", score.name), part(score.val)),
        ("val majority class".to_owned(), part(majority.filter(|_| split == "val"))),
        ("test subset accuracy".to_owned(), part(subsets)),
        ("val loss".to_owned(), summary.val_loss.map(|loss| Unit::Number.format(loss))),
        (format!("{scored} macro F1"), part(scores.and_then(|scores| scores.macro_f1))),
        (format!("{scored} micro F1"), part(micro_f1)),
        (format!("{scored} ROC-AUC"), part(scores.and_then(|scores| scores.roc_auc))),
        (format!("{scored} average precision"), part(scores.and_then(|scores| scores.average_precision))),
        ("evaluated".to_owned(), summary.evaluated.map(|how| how.to_string())),
    ]
}

fn target_tiles(summary: &Summary, scored: &str, scores: Option<&ScoreReport>) -> Vec<NamedValue> {
    let baselines = scores.map(|scores| &scores.per_target[..]);
    let baseline = match baselines {
        Some([target]) => target.baseline_rmse,
        _ => None,
    };
    let tiles = [
        ("test RMSE".to_owned(), summary.test_rmse),
        ("val RMSE".to_owned(), summary.val_rmse),
        (format!("{scored} RMSE of the mean"), baseline),
        ("test MAE".to_owned(), summary.test_mae),
        ("val MAE".to_owned(), summary.val_mae),
        ("test R2".to_owned(), summary.test_r2),
        ("val R2".to_owned(), summary.val_r2),
        ("val loss".to_owned(), summary.val_loss),
    ];
    let shown = tiles.map(|(title, value)| (title, value.map(significant)));
    let how = summary.evaluated.map(|how| how.to_string());
    shown.into_iter().chain([("evaluated".to_owned(), how)]).collect()
}

fn others(summary: &Summary, partitions: u32) -> Vec<NamedValue> {
    let gradient = summary.gradient_bytes_per_step.filter(|_| partitions > 1);
    let rate = summary.sampled_edges_per_second;
    let read = (summary.epochs > 0).then_some(summary.bytes_read);
    let tiles = [
        ("best epoch", summary.best_epoch.map(|epoch| epoch.to_string())),
        ("start-up", above_zero(Unit::Seconds, Some(summary.seconds_by_stage.start_up()))),
        ("epoch time", summary.seconds_per_epoch.map(|seconds| Unit::Seconds.format(seconds))),
        ("sampled edges", rate.map(|rate| Unit::EdgesPerSecond.format(rate))),
        ("gradient size", above_zero(Unit::Bytes, gradient)),
        ("sent per step", above_zero(Unit::Bytes, summary.bytes_sent_per_step)),
        ("read in total", read.map(|bytes| ByteSize(bytes).to_string())),
        ("peak memory", summary.peak_rss_bytes.map(|bytes| ByteSize(bytes).to_string())),
    ];
    tiles.into_iter().map(|(title, value)| (title.to_owned(), value)).collect()
}

fn above_zero(unit: Unit, value: Option<f64>) -> Option<String> {
    value.filter(|&value| value > 0.0).map(|value| unit.format(value))
}

fn number(value: Option<f64>) -> Option<String> {
    value.map(|value| Unit::Number.format(value))
}

fn part(value: Option<f64>) -> Option<String> {
    value.map(|value| Unit::Part.format(value))
}

/// The accuracy of predicting the largest class for every node. None without nodes.
pub(super) fn majority(scores: &ScoreReport) -> Option<f64> {
    let largest = scores.per_class.iter().map(|class| class.support).max()?;
    (scores.nodes > 0).then(|| largest as f64 / scores.nodes as f64)
}
