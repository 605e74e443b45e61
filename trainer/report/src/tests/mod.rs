mod browser;
mod charts;
mod confusion;

use grappa_formats::manifest::{LabelKind, LabelSpec};
use grappa_io::ledger::{Lease, Ledger};
use grappa_run::{
    background::RunPages,
    checkpoint::{Best, RunState},
    config::{Auto, Evaluate, Monitor, TrainConfig},
    journal::EpochRecord,
    model::Task,
    scores::{Labels, ModelScores, ScoreReport, Scores},
    stages::{Stage, StageSeconds},
    summary::Summary,
};

use super::*;
use crate::html::escape;

const PLOTS: [&str; 8] = [
    "plot-accuracy",
    "plot-loss",
    "plot-time",
    "plot-coverage",
    "plot-read",
    "plot-gradients",
    "plot-edges",
    "plot-rate",
];

/// Seconds of the stages from loading to evaluation.
fn stages(seconds: [f64; 8]) -> StageSeconds {
    let of_epoch = Stage::ALL.iter().copied().filter(|stage| stage.is_training() || *stage == Stage::Evaluate);
    of_epoch.zip(seconds).collect()
}

/// Records of `epochs` epochs. Every second one was evaluated.
fn records(epochs: u64) -> Vec<EpochRecord> {
    let record = |epoch: u64| {
        let is_evaluated = epoch.is_multiple_of(2) || epoch == epochs;
        let accuracy = |most: f64| is_evaluated.then_some(most * (1.0 - 1.0 / (1.0 + epoch as f64)));
        EpochRecord {
            epoch,
            step: epoch * 28,
            loss: 0.6 + 3.0 / epoch as f64,
            evaluated: is_evaluated.then_some(Evaluate::Exact),
            val_loss: is_evaluated.then_some(0.7 + 3.0 / epoch as f64),
            train_accuracy: Some(0.9 * (1.0 - 1.0 / (1.0 + epoch as f64))),
            val_accuracy: accuracy(0.8),
            test_accuracy: accuracy(0.79),
            seconds: 1.25,
            seconds_by_stage: stages([0.0, 0.1, 0.2, 0.05, 0.3, 0.4, 0.1, 0.1]),
            sampled_edges: 3_000_000,
            sampled_edges_per_second: 2.6e6 + 1e5 * epoch as f64,
            bytes_read: 180_000_000 + (epoch % 5) * 100_000_000,
            gradient_bytes: 119_168_000 + epoch * 1_000_000,
            coverage_mean: Some(0.6 + 0.001 * epoch as f64),
            learning_rate: 0.003 / epoch as f64,
            generation: epoch / 5,
            peak_rss_bytes: Some(850_000_000),
            ..EpochRecord::default()
        }
    };
    (1..=epochs).map(record).collect()
}

fn scores(classes: u32) -> ScoreReport {
    let spec = LabelSpec::new(LabelKind::Single, classes);
    let mut scores = Scores::new(spec, true);
    for node in 0..20 * classes {
        let label = node * node % classes;
        let logits: Vec<f32> = (0..classes).map(|class| ((node * 7 + class * 13) % 23) as f32).collect();
        scores.add(&logits, Labels::Classes(&[i64::from(label)]));
    }
    scores.report()
}

fn names(classes: u32) -> Vec<String> {
    (0..classes).map(|class| format!("class-{class}-with-a-name-that-is-long")).collect()
}

fn facts() -> RunFacts {
    RunFacts {
        dataset: vec![("nodes", "63.4 K".to_owned()), ("random split", "60/20/20, seed 0".to_owned())],
        process: vec![
            ("host", "worker-17".to_owned()),
            ("command", "grappa-train a-store-with-a-name-that-is-long.grappa --model gat --out <runs>/a".to_owned()),
        ],
        chosen: [("fanouts", "15,10".to_owned())].into_iter().collect(),
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(64 << 20);
    let rows = Lease::new("row pool", 48 << 20, "all that is left: rows of two windows of batches");
    let kept = Lease::new("first inputs of evaluations", 2 << 20, "stay where epochs < 2").beside_limit();
    ledger.enter("training steps", vec![rows, kept]).unwrap();
    ledger
}

/// The scores of a model on a split.
fn model_scores(split: &str, report: &ScoreReport) -> ModelScores {
    ModelScores {
        evaluated: Evaluate::Exact,
        split: split.to_owned(),
        report: report.clone(),
        ..ModelScores::default()
    }
}

/// What a page is made of.
struct Given<'a> {
    name: &'a str,
    records: &'a [EpochRecord],
    scores: Option<&'a ScoreReport>,
    scored: &'a str,
    classes: &'a [String],
    partitions: u32,
    /// The last epoch with a validation score if none is given.
    best: Option<u64>,
    task: Task,
}

impl Default for Given<'_> {
    fn default() -> Self {
        Self {
            name: "store",
            records: &[],
            scores: None,
            scored: "test",
            classes: &[],
            partitions: 16,
            best: None,
            task: Task::MultiClass,
        }
    }
}

impl Given<'_> {
    fn html(&self) -> String {
        self.report().html()
    }

    fn report(&self) -> Report {
        let validated = |record: &&EpochRecord| record.val_accuracy.is_some();
        let last = self.records.iter().rev().find(validated).map(|record| record.epoch);
        let best = self.best.or(last).map(|epoch| Best { epoch, step: epoch * 28, val: 0.5, test: None });
        let mut state =
            RunState { epoch: self.records.last().map_or(0, |record| record.epoch), best, ..RunState::default() };
        state.note_task(self.task);
        let config = TrainConfig { partitions: Auto::Value(self.partitions), ..TrainConfig::default() };
        Report {
            name: self.name.to_owned(),
            records: self.records.to_vec(),
            summary: Summary {
                memory: Some(ledger()),
                ..Summary::new(self.records, &state, &config, stages([10.0; 8]))
            },
            scores: self.scores.map(|report| model_scores(self.scored, report)),
            classes: self.classes.to_vec(),
            facts: facts(),
            is_finished: true,
        }
    }
}

fn page(name: &str, records: &[EpochRecord], scores: Option<&ScoreReport>, classes: &[String]) -> String {
    let given = Given { name, records, scores, classes, ..Given::default() };
    given.html()
}

/// The part of a page from `start` to the next `end`.
pub(super) fn part<'a>(html: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = html.split_once(start).unwrap_or_else(|| panic!("no {start}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {start}")).0
}

fn figure<'a>(html: &'a str, id: &str) -> &'a str {
    part(html, &format!("<figure id=\"{id}\">"), "</figure>")
}

/// Checks that every tag is closed, in order.
pub(super) fn assert_well_formed(html: &str) {
    let mut open = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name = tag.split_whitespace().next().unwrap_or_default();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_owned()));
        } else if name == "style" || name == "script" {
            // Its content is not HTML.
            rest = &rest[rest.find(&format!("</{name}>")).expect("it is closed") + name.len() + 3..];
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta", "input"].contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn a_page_is_whole_for_any_number_of_epochs() {
    for (epochs, charts) in [(0, 0), (1, 3), (2, 8), (50, 8), (10_000, 8)] {
        for scores in [None, Some(scores(2)), Some(scores(40))] {
            let html = page("store", &records(epochs), scores.as_ref(), &[]);
            assert_well_formed(&html);
            for plot in &PLOTS[..charts] {
                let expected = format!("<figure id=\"{plot}\">");
                assert_eq!(html.matches(&expected).count(), 1, "{plot} of {epochs} epochs");
            }
            assert!(html.len() < 300_000, "{} bytes for {epochs} epochs", html.len());
            // Scores of two classes have the curve of precision by recall.
            let curves = html.matches("<figure id=\"plot-precision-recall\">").count();
            let is_binary = scores.as_ref().is_some_and(|scores| scores.per_class.len() == 2);
            assert_eq!(curves, usize::from(is_binary));
            assert_eq!(html.matches("<svg").count(), charts + curves);
        }
    }
}

#[test]
fn values_that_are_not_finite_leave_a_gap() {
    let mut records = records(30);
    for (index, record) in records.iter_mut().enumerate() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX][index % 4];
        record.loss = odd;
        record.learning_rate = odd;
        record.coverage_mean = Some(odd);
        record.sampled_edges_per_second = odd;
        record.seconds_by_stage = [(Stage::Read, odd), (Stage::Forward, 0.5)].into_iter().collect();
        record.val_accuracy = Some(odd);
    }
    let html = page("store", &records, None, &[]);
    assert_well_formed(&html);
    let drawn = &html[html.find("<main>").unwrap()..html.find("</main>").unwrap()];
    for wrong in ["NaN", "inf"] {
        assert!(!drawn.contains(wrong), "{wrong}");
    }
}

#[test]
fn the_wall_time_is_a_table_of_stages_that_add_up() {
    let html = page("store", &records(3), None, &[]);
    let table = part(&html, "<table id=\"stages\">", "</table>");
    // Eight stages of 10 s each; those that took no time are not listed.
    assert_eq!(table.matches("12.5 %").count(), 8, "{table}");
    assert!(table.contains("</i>evaluate</th>") && !table.contains("</i>preaggregate</th>"), "{table}");
    assert!(table.contains("<th>all</th><td>1 min 20 s</td>") || table.contains("<th>all</th><td>80"), "{table}");
    // The table is narrow: it stands beside other facts.
    assert!(html.contains("<div class=\"tables\">\n<section>\n<h2>Wall time</h2>"));
}

#[test]
fn the_memory_is_a_table_of_leases_with_their_reasons() {
    let html = page("store", &records(3), None, &[]);
    let table = part(&html, "<table id=\"memory\">", "</table>");
    let rows: Vec<&str> = table.split("<tr").skip(2).collect();
    let [phase, pool, kept] = &rows[..] else { panic!("{table}") };
    assert!(phase.contains("<th>training steps</th><td>48.0 MiB</td>"), "only leases within the limit count: {phase}");
    assert!(
        pool.contains("<th>row pool<small>") && pool.contains("</th><td>48.0 MiB</td>") && pool.contains("75.0 %"),
        "{pool}"
    );
    assert!(kept.contains("<small>beside the limit: stay where epochs &lt; 2</small>"), "{kept}");
    let given = Given { records: &records(3), ..Given::default() };
    let mut report = given.report();
    report.summary.memory = None;
    assert!(!report.html().contains("id=\"memory\""), "a run without a ledger has no table");
}

#[test]
fn facts_and_what_auto_became_are_shown_as_text() {
    let html = page("store", &records(2), None, &[]);
    assert_well_formed(&html);
    for part in [
        "<dt>random split</dt><dd>60/20/20, seed 0</dd>",
        "<dt>host</dt><dd>worker-17</dd>",
        "--model gat --out &lt;runs&gt;/a</dd>",
        "<dt>fanouts</dt><dd>auto \u{2192} 15,10</dd>",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn names_are_text_and_never_tags() {
    let evil = "<script>alert('1')</script>&\"".to_owned();
    let html = page(&evil, &records(3), Some(&scores(2)), &[evil.clone(), evil.clone()]);
    assert_well_formed(&html);
    assert!(
        !html.contains("<script>alert") && html.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;")
    );
}

#[test]
fn nothing_is_fetched_from_elsewhere() {
    let html = page("store", &records(50), Some(&scores(5)), &[]);
    for wish in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(wish), "{wish}");
    }
}

#[test]
fn the_best_epoch_is_marked_and_the_table_has_all_classes() {
    let html = page("store", &records(50), Some(&scores(40)), &names(40));
    assert!(html.contains("best: epoch 50") && html.contains("Search 40 classes"));
    assert!(html.contains("The 12 largest classes; 28 more are left out, so rows need not add up to 100 %."));
    // Classes, confusion, the eight stages with their sum, and two leases of memory; a heading each.
    // The pairs of classes that are confused most often, and the head of the table for a chosen class.
    assert_eq!(html.matches("<tr>").count(), (1 + 40) + (1 + 12) + (1 + 8 + 1) + (1 + 10) + 1 + (1 + 2));
    let few = page("store", &records(1), Some(&scores(3)), &names(3));
    assert!(!few.contains("id=\"search\""));
}

#[test]
fn a_run_that_ended_early_says_so() {
    let config = TrainConfig { epochs: 20, ..TrainConfig::default() };
    let mut summary = Summary::new(&records(7), &RunState::default(), &config, stages([10.0; 8]));
    for early in [None, Some(7)] {
        summary.early_stopping_epoch = early;
        let report = Report {
            name: "store".to_owned(),
            records: records(7),
            summary: summary.clone(),
            scores: None,
            classes: Vec::new(),
            facts: facts(),
            is_finished: true,
        };
        let says = report.html().contains("ended by early stopping before the 20 of --epochs");
        assert_eq!(says, early.is_some());
    }
}

#[test]
fn a_tile_with_a_score_names_its_split() {
    let (records, scores) = (records(4), scores(3));
    for scored in ["test", "val"] {
        let html = Given { records: &records, scores: Some(&scores), scored, ..Given::default() }.html();
        let tiles = part(&html, "<div class=\"tiles\">", "\n</div>");
        for score in ["macro F1", "micro F1", "majority class"] {
            assert!(tiles.contains(&format!("<span>{scored} {score}</span>")), "{score}: {tiles}");
            assert!(!tiles.contains(&format!("<span>{score}</span>")), "{score}: {tiles}");
        }
        assert!(tiles.contains("<span>test accuracy</span>") && tiles.contains("<span>val accuracy</span>"));
        assert!(html.contains("60 test nodes") == (scored == "test"));
    }
}

#[test]
fn the_accuracy_stands_beside_the_share_of_the_largest_class() {
    let records = records(4);
    let mut scores = scores(3);
    assert_eq!(scores.nodes, 60);
    scores.per_class[1].support = 45;
    let given = Given { records: &records, scores: Some(&scores), ..Given::default() };
    let html = given.html();
    let (accuracy, majority) = ("<span>test accuracy</span>", "<span>test majority class</span><b>75.0 %</b>");
    let tiles: Vec<&str> = part(&html, "<div class=\"tiles\">", "\n</div>").lines().collect();
    let at = tiles.iter().position(|tile| tile.contains(accuracy)).unwrap();
    assert!(tiles[at + 1].contains(majority), "{tiles:?}");
    // Most sets of labels have more than the largest class alone.
    let sets = Given { task: Task::MultiLabel, ..given };
    assert!(!sets.html().contains("majority class"));
}

#[test]
fn start_up_is_apart_from_epochs() {
    let mut records = records(3);
    records[0].seconds_by_stage =
        records[0].seconds_by_stage + stages_of(&[(Stage::Open, 5.0), (Stage::Preaggregate, 200.0)]);
    let html = page("store", &records, None, &[]);
    let figure = figure(&html, "plot-time");
    assert!(
        figure.contains(
            "Start-up, apart from epochs: 3 min 25 s (<span class=\"whole\"><i class=\"stage-open\"></i>open 5.0"
        ),
        "{figure}"
    );
    let (legend, drawn) = (part(figure, "<ul>", "</ul>"), part(figure, "<svg", "</svg>"));
    for part in [legend, drawn] {
        assert!(!part.contains("stage-open") && !part.contains("stage-preaggregate"), "{part}");
    }
    // Epochs take 1.25 s. An axis of minutes would have room for the start-up.
    assert!(figure.contains(">1.0 s</span>") && !figure.contains(" min</span>"), "{figure}");
}

fn stages_of(seconds: &[(Stage, f64)]) -> StageSeconds {
    seconds.iter().copied().collect()
}
