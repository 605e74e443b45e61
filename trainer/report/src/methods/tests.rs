use std::{path::Path, process::Command};

use grappa_run::{
    config::Auto,
    journal::EpochRecord,
    stages::{Stage, StageSeconds},
};
use tempfile::{TempDir, tempdir};

use super::{costs::Costs, *};
use crate::{
    compare::tests::written,
    tests::{assert_well_formed, part},
};

/// An epoch that took 8 seconds, in which 1000 bytes of gradients were summed.
fn record(activation_bytes: u64) -> EpochRecord {
    EpochRecord {
        gradient_bytes: 1000,
        activation_bytes,
        feature_bytes: 500,
        halo_bytes: 100,
        seconds_by_stage: [(Stage::Forward, 8.0), (Stage::Evaluate, 3.0)].into_iter().collect::<StageSeconds>(),
        ..EpochRecord::default()
    }
}

/// Runs of a method whose test accuracies are these, one for each seed.
fn runs(parent: &TempDir, name: &str, partitions: u32, activation_bytes: u64, accuracies: &[f64]) -> MethodRuns {
    let folders = accuracies.iter().zip(0..).map(|(&accuracy, seed)| {
        let mut run = written();
        run.config.partitions = Auto::Value(partitions);
        for written in &mut run.records {
            *written = EpochRecord {
                test_accuracy: written.test_accuracy.map(|_| accuracy),
                gradient_bytes: record(activation_bytes).gradient_bytes,
                activation_bytes,
                seconds_by_stage: record(0).seconds_by_stage,
                ..written.clone()
            };
        }
        run.state.best.as_mut().unwrap().test = Some(accuracy);
        run.state.scores.as_mut().unwrap().test_accuracy = Some(accuracy);
        run.write(parent, &format!("{name}-{partitions}-{seed}"))
    });
    MethodRuns { name: name.to_owned(), partitions, folders: folders.collect() }
}

fn comparison(parent: &TempDir) -> MethodComparison {
    let methods = [
        runs(parent, "full", 4, 1 << 20, &[0.7, 0.74]),
        runs(parent, "isolated", 4, 0, &[0.6, 0.6]),
        runs(parent, "full", 16, 4 << 20, &[0.7, 0.74]),
        runs(parent, "gern", 1, 0, &[0.5]),
    ];
    MethodComparison::read("cora", &methods).unwrap()
}

#[test]
fn machines_send_the_bytes_of_an_all_reduce_and_share_time_and_bytes() {
    let costs = Costs::from_record(&record(2000), 4);
    // Each of 4 machines sends 3/4 of the gradient to sum it, and as much to spread the sum.
    assert_eq!((costs.gradients, costs.activations, costs.features), (6000.0, 2000.0, 600.0));
    assert_eq!(costs.seconds, 8.0, "without evaluation");
    assert_eq!(costs.modelled_seconds(4, 8.0 * 8600.0), 2.0 + 0.25);
    assert_eq!(Costs::from_record(&record(0), 1).gradients, 0.0, "one machine sends no gradient");
}

#[test]
fn tables_have_means_and_deviations_over_seeds() {
    let parent = tempdir().unwrap();
    let comparison = comparison(&parent);
    let markdown = comparison.markdown();
    let lines: Vec<&str> = markdown.lines().collect();
    assert_eq!(lines.len(), 2 + 4);
    assert!(
        lines[2].starts_with("| full | 4 | 2 | 72.00 ± 2.83 % | 5.9 KiB | 1.0 MiB | 0 B | 8.00 s | 2.00 s | 3 | "),
        "{}",
        lines[2]
    );
    assert!(
        lines[5].starts_with("| gern | 1 | 1 | 50.00 % | 0 B | 0 B | 0 B | 8.00 s | 8.00 s | 3 | 0 B | 24.0 s |"),
        "{}",
        lines[5]
    );
    let csv = comparison.csv();
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(csv.contains("\nfull,16,2,0.72,0.028284271247461"), "{csv}");
}

#[test]
fn a_page_has_curves_for_each_number_of_partitions_and_single_machines_in_all() {
    let parent = tempdir().unwrap();
    let comparison = comparison(&parent);
    let html = comparison.html();
    assert_well_formed(&html);
    for (figure, lines) in
        [("epochs-4", 3), ("bytes-4", 2), ("seconds-4", 3), ("epochs-16", 2), ("bytes-16", 1), ("seconds-16", 2)]
    {
        let figure = part(&html, &format!("<figure id=\"{figure}\">"), "</figure>");
        assert_eq!(figure.matches("<path class=\"line ").count(), lines, "{figure}");
    }
    let svg = comparison.svg();
    assert!(svg.contains(">isolated</text>") && !svg.contains("gern"), "{svg}");
    assert_well_formed(&svg);
}

/// The page after the slider moved to its first place, as a browser has it.
const MOVE: &str = "<script>window.addEventListener('load', () => { const slider = document.querySelector('#bandwidth'); slider.value = 0; \
                    slider.dispatchEvent(new Event('input')); });</script></body>";

#[test]
fn a_browser_draws_curves_anew_for_another_bandwidth() {
    let browser = Path::new("/usr/bin/chromium");
    if !browser.exists() {
        grappa_skip::skip!("there is no {}", browser.display());
    }
    let parent = tempdir().unwrap();
    let html = comparison(&parent).html();
    let path = parent.path().join("moved.html");
    std::fs::write(&path, html.replace("</body>", MOVE)).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", parent.path().join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let moved = String::from_utf8(output.stdout).unwrap();
    assert_eq!(part(&moved, "class=\"bandwidth\">", "<"), "10 Mbit/s");
    // 2 seconds of computing, and a quarter of 6000 B + 1 MiB at 10 Mbit/s: 0.211 s.
    assert!(moved.contains(">2.21 s</td>"), "{moved}");
    let line = |page: &str| {
        let figure = part(page, "<figure id=\"seconds-4\">", "</figure>");
        part(figure, "<path class=\"line run-1\" d=\"", "\"").to_owned()
    };
    let [before, after] = [&html, &moved].map(|page| line(page));
    assert_ne!(before, after);
    assert_eq!(before.matches('L').count(), after.matches('L').count());
    let downs = |line: &str| -> Vec<String> {
        let places = line[1..].split('L');
        places.map(|place| place.split(' ').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(downs(&before), downs(&after), "only times change");
}

#[test]
fn epochs_are_marked_on_logarithmic_axes_and_equal_curves_share_their_dashes() {
    let parent = tempdir().unwrap();
    let methods = [
        runs(&parent, "full", 4, 1 << 20, &[0.7, 0.74]),
        runs(&parent, "isolated", 4, 0, &[0.6, 0.6]),
        runs(&parent, "cofree", 4, 0, &[0.6, 0.6]),
    ];
    let html = MethodComparison::read("cora", &methods).unwrap().html();
    let figure = |id: &str| part(&html, &format!("<figure id=\"{id}\">"), "</figure>");
    for id in ["bytes-4", "seconds-4"] {
        let figure = figure(id);
        assert!(figure.contains("Dots are the epochs 1, 10, 100"), "{figure}");
        let dots = part(figure, "<path class=\"dots run-1\" d=\"", "\"");
        assert_eq!(dots.matches("h0").count(), 2, "the first and the last of few epochs: {dots}");
    }
    let by_epoch = figure("epochs-4");
    assert!(!by_epoch.contains("Dots are the epochs"), "distances are epochs there");
    let style = |run: &str| {
        let line = part(by_epoch, &format!("<path class=\"line {run}\""), "/>");
        line.split_once("style=\"").map(|(_, style)| style.trim_end_matches('"').to_owned())
    };
    assert_eq!([style("run-1"), style("run-2")], [None, None]);
    assert_eq!(style("run-3").as_deref(), Some("stroke-dasharray:8 8;stroke-dashoffset:-8;stroke-linecap:butt"));
}

/// Writes whether the table is cut, for a test.
const MEASURE: &str = "<script>window.addEventListener('load', () => { const table = document.querySelector('#results').closest('.scroll'); \
                       document.body.dataset.cut = table.scrollWidth > table.clientWidth; });</script></body>";

#[test]
fn the_table_fits_a_window_of_1200_pixels() {
    let browser = Path::new("/usr/bin/chromium");
    if !browser.exists() {
        grappa_skip::skip!("there is no {}", browser.display());
    }
    let parent = tempdir().unwrap();
    let name = "varco+rate-schedule=fixed:4";
    let methods = [runs(&parent, name, 4, 1 << 30, &[0.7, 0.74]), runs(&parent, "isolated", 4, 0, &[0.6, 0.6])];
    let html = MethodComparison::read("cora", &methods).unwrap().html();
    let path = parent.path().join("measured.html");
    std::fs::write(&path, html.replace("</body>", MEASURE)).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"])
        .arg("--window-size=1200,900")
        .arg(format!("--user-data-dir={}", parent.path().join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let measured = String::from_utf8(output.stdout).unwrap();
    assert!(measured.contains("data-cut=\"false\""), "the table is cut");
}
