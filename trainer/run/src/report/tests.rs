use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grappa_formats::manifest::{LabelKind, LabelSpec};
use serde_json::Value;

use super::*;
use crate::{
    checkpoint::{Best, RunState},
    config::{Auto, TrainConfig},
    facts::RunFacts,
    scores::{Labels, Scores},
    stages::StageSeconds,
};

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
    let of_epoch = Stage::ALL
        .into_iter()
        .filter(|stage| stage.is_training() || *stage == Stage::Evaluate);
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
            val_loss: is_evaluated.then_some(0.7 + 3.0 / epoch as f64),
            train_accuracy: accuracy(0.9),
            val_accuracy: accuracy(0.8),
            test_accuracy: accuracy(0.79),
            seconds: 1.25,
            seconds_by_stage: stages([0.0, 0.1, 0.2, 0.05, 0.3, 0.4, 0.1, 0.1]),
            sampled_edges: 3_000_000,
            sampled_edges_per_second: 2.6e6,
            bytes_read: 180_000_000 + (epoch % 5) * 100_000_000,
            gradient_bytes: 119_168_000,
            coverage_mean: Some(0.6),
            learning_rate: 0.003,
            generation: epoch / 5,
            peak_rss_bytes: Some(850_000_000),
            ..EpochRecord::default()
        }
    };
    (1..=epochs).map(record).collect()
}

fn scores(classes: u32) -> ScoreReport {
    let spec = LabelSpec {
        classes,
        kind: LabelKind::Single,
    };
    let mut scores = Scores::new(spec, true);
    for node in 0..20 * classes {
        let label = node * node % classes;
        let logits: Vec<f32> = (0..classes)
            .map(|class| ((node * 7 + class * 13) % 23) as f32)
            .collect();
        scores.add(&logits, Labels::Classes(&[i64::from(label)]));
    }
    scores.report()
}

fn names(classes: u32) -> Vec<String> {
    (0..classes)
        .map(|class| format!("class-{class}-with-a-name-that-is-long"))
        .collect()
}

fn facts() -> RunFacts {
    RunFacts {
        dataset: vec![
            ("nodes", "63.4 K".to_owned()),
            ("random split", "60/20/20, seed 0".to_owned()),
        ],
        process: vec![
            ("host", "worker-17".to_owned()),
            (
                "command",
                "grappa-train a-store-with-a-name-that-is-long.grappa --model gat --out <runs>/a".to_owned(),
            ),
        ],
        chosen: [("fanouts", "15,10".to_owned())].into_iter().collect(),
    }
}

fn page(name: &str, records: &[EpochRecord], scores: Option<&ScoreReport>, classes: &[String]) -> String {
    page_of(name, records, scores, classes, 16)
}

fn page_of(
    name: &str,
    records: &[EpochRecord],
    scores: Option<&ScoreReport>,
    classes: &[String],
    partitions: u32,
) -> String {
    let best = records.iter().rev().find_map(|record| {
        Some(Best {
            epoch: record.epoch,
            step: record.step,
            val: record.val_accuracy?,
            test: record.test_accuracy,
        })
    });
    let state = RunState {
        epoch: records.last().map_or(0, |record| record.epoch),
        best,
        ..RunState::default()
    };
    let config = TrainConfig {
        partitions: Auto::Value(partitions),
        ..TrainConfig::default()
    };
    let summary = Summary::new(records, &state, &config, stages([10.0; 8]));
    let report = Report {
        name,
        records,
        summary: &summary,
        scores,
        scored: "test",
        classes,
        facts: &facts(),
        is_finished: true,
    };
    report.html()
}

/// Checks that every tag is closed, in order.
fn assert_well_formed(html: &str) {
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
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn a_page_is_whole_for_any_number_of_epochs() {
    for epochs in [0, 1, 2, 50, 10_000] {
        for scores in [None, Some(scores(2)), Some(scores(40))] {
            let html = page("store", &records(epochs), scores.as_ref(), &[]);
            assert_well_formed(&html);
            for plot in PLOTS {
                let expected = format!("<figure id=\"{plot}\">");
                assert_eq!(
                    html.matches(&expected).count(),
                    epochs.min(1) as usize,
                    "{plot} of {epochs} epochs"
                );
            }
            assert!(html.len() < 300_000, "{} bytes for {epochs} epochs", html.len());
            assert_eq!(html.matches("<svg").count(), if epochs == 0 { 0 } else { PLOTS.len() });
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
    let table = &html[html.find("<table id=\"stages\">").unwrap()..];
    let table = &table[..table.find("</table>").unwrap()];
    // Eight stages of 10 s each; those that took no time are not listed.
    assert_eq!(table.matches("12.5 %").count(), 8, "{table}");
    assert!(
        table.contains("<th>evaluate</th>") && !table.contains("<th>preaggregate</th>"),
        "{table}"
    );
    assert!(
        table.contains("<th>all</th><td>1 min 20 s</td>") || table.contains("<th>all</th><td>80"),
        "{table}"
    );
}

#[test]
fn the_longest_stages_have_colors_of_their_own_and_the_rest_one() {
    let html = page("store", &records(3), None, &[]);
    let plot = &html[html.find("<figure id=\"plot-time\">").unwrap()..];
    let plot = &plot[..plot.find("</figure>").unwrap()];
    for name in ["sample", "read", "forward", "backward", "other"] {
        assert!(plot.contains(&format!("</i>{name} <b>")), "{name}: {plot}");
    }
    assert!(
        !plot.contains("</i>assemble") && !plot.contains("</i>checkpoint"),
        "{plot}"
    );
}

#[test]
fn a_chart_without_values_is_stated_and_not_drawn() {
    let mut records = records(5);
    for record in &mut records {
        (record.train_accuracy, record.bytes_read) = (None, 0);
    }
    let html = page_of("store", &records, None, &[], 1);
    assert!(html.contains(
        "No chart: Coverage of seeds (one partition sees every neighborhood whole), Read from files (everything is in memory), \
         Gradients summed over partitions (there is one partition)."
    ));
    for plot in ["plot-coverage", "plot-read", "plot-gradients"] {
        assert!(!html.contains(&format!("<figure id=\"{plot}\">")), "{plot}");
    }
    assert!(!html.contains("<i class=\"train\">") && html.contains("<i class=\"val\">"));
    for record in &mut records {
        (record.val_accuracy, record.test_accuracy) = (None, None);
    }
    assert!(page("store", &records, None, &[]).contains("No chart: Accuracy (no evaluation yet)"));
    assert!(page("store", &[], None, &[]).contains("No epoch is finished yet."));
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
    // Classes, confusion, and the eight stages with their sum; a heading each.
    assert_eq!(html.matches("<tr>").count(), (1 + 40) + (1 + 12) + (1 + 8 + 1));
    let few = page("store", &records(1), Some(&scores(3)), &names(3));
    assert!(!few.contains("id=\"search\""));
}

/// A browser that draws pages without a screen: where Debian's package `chromium` puts it.
const BROWSER: &str = "/usr/bin/chromium";

/// The page as a browser lays it out, in a window as narrow as a phone's and in a wide one.
fn drawn(browser: &Path, html: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let frame = |width| {
        format!(
            "<iframe style=\"width:{width}px;height:844px\" srcdoc=\"{}\"></iframe>",
            escape(html)
        )
    };
    let script = include_str!("measure.js");
    let outer = format!(
        "<!DOCTYPE html><body>{}{}<pre id=\"measured\"></pre><script>{script}</script></body>",
        frame(390),
        frame(1280)
    );
    let path = folder.path().join("outer.html");
    fs::write(&path, outer).unwrap();
    let dom = folder.path().join("dom.html");
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args(["--virtual-time-budget=10000", "--window-size=1400,1000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("the browser hangs");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let dom = fs::read_to_string(dom).unwrap();
    let (_, measured) = dom.split_once("<pre id=\"measured\">").expect("the page was drawn");
    let (json, _) = measured.split_once("</pre>").expect("it is closed");
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[test]
fn a_browser_draws_every_plot_and_nothing_is_wider_than_a_phone() {
    let browser = Path::new(BROWSER);
    if !browser.exists() {
        grappa_skip::skip!("there is no {BROWSER}");
    }
    for (epochs, classes) in [(50, 40), (1, 2), (10_000, 5)] {
        let html = page(
            "a-store-with-a-name-that-is-long.grappa",
            &records(epochs),
            Some(&scores(classes)),
            &names(classes),
        );
        let measured = drawn(browser, &html);
        for (frame, width) in [(0, 390), (1, 1280)] {
            let frame = &measured[frame];
            assert_eq!(frame["width"], width);
            assert!(
                frame["scrollWidth"].as_u64().unwrap() <= width,
                "{epochs} epochs: {frame}"
            );
            assert_eq!(
                frame["outside"],
                Value::Array(Vec::new()),
                "{epochs} epochs, {width} wide"
            );
            let plots = frame["plots"].as_object().unwrap();
            assert_eq!(plots.len(), PLOTS.len());
            for plot in PLOTS {
                let (wide, high) = (
                    plots[plot]["width"].as_f64().unwrap(),
                    plots[plot]["height"].as_f64().unwrap(),
                );
                assert!(wide >= 200.0 && high >= 150.0, "{plot}: {wide} x {high}");
                assert!(
                    plots[plot]["shapes"].as_u64().unwrap() >= 1,
                    "{plot} has a line or bars"
                );
            }
            // Pointing at the left end of a plot shows one of the first epochs that have a value, leaving it the last.
            let pointed = frame["pointed"]
                .as_str()
                .unwrap()
                .strip_prefix("epoch ")
                .expect("an epoch");
            let first = if epochs == 1 { 1 } else { 2 };
            assert!(
                (first..=first + epochs / 400).contains(&pointed.parse().unwrap()),
                "{pointed} of {epochs}"
            );
            assert_eq!(frame["left"], format!("epoch {epochs}"));
            let found = if classes >= 10 { Value::from(1) } else { Value::Null };
            assert_eq!(frame["found"], found, "{classes} classes");
        }
        // On a phone plots are below each other, on a desktop side by side.
        assert_eq!(
            (&measured[0]["columns"], &measured[1]["columns"]),
            (&Value::from(1), &Value::from(3))
        );
    }
}

#[test]
fn a_run_that_ended_early_says_so() {
    let config = TrainConfig {
        epochs: 20,
        ..TrainConfig::default()
    };
    let mut summary = Summary::new(&records(7), &RunState::default(), &config, stages([10.0; 8]));
    for early in [None, Some(7)] {
        summary.early_stopping_epoch = early;
        let report = Report {
            name: "store",
            records: &records(7),
            summary: &summary,
            scores: None,
            scored: "test",
            classes: &[],
            facts: &facts(),
            is_finished: true,
        };
        let says = report
            .html()
            .contains("ended by early stopping before the 20 of --epochs");
        assert_eq!(says, early.is_some());
    }
}
