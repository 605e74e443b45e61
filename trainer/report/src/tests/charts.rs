//! What charts draw, and what their legends say.

use super::*;

/// The path of a line in a figure; empty if it is not drawn.
fn line<'a>(figure: &'a str, color: &str) -> &'a str {
    part(figure, &format!("<path class=\"line {color}\" d=\""), "\"")
}

#[test]
fn a_line_has_gaps_where_the_model_was_evaluated_and_the_value_not_measured() {
    let mut records = records(12);
    for record in &mut records {
        let is_evaluated = record.epoch % 2 == 0;
        record.evaluated = is_evaluated.then_some(Evaluate::Exact);
        record.val_accuracy = is_evaluated.then_some(0.5);
        // Measured after the epochs 2, 4 and 10.
        record.test_accuracy = [2, 4, 10].contains(&record.epoch).then_some(0.4);
    }
    let html = page("store", &records, None, &[]);
    let figure = figure(&html, "plot-accuracy");
    let test = line(figure, "test");
    assert_eq!((test.matches('M').count(), test.matches('L').count()), (2, 1), "{test}");
    // Nobody asked for evaluations after the epochs in between.
    let val = line(figure, "val");
    assert_eq!((val.matches('M').count(), val.matches('L').count()), (1, 5), "{val}");
    // A point between gaps is visible.
    assert_eq!(part(figure, "<path class=\"dots test\" d=\"", "\"").matches("h0").count(), 3);
    let json = part(figure, "<script type=\"application/json\">", "</script>");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let at = json["names"].as_array().unwrap().iter().position(|name| name == "epoch 6").unwrap();
    assert_eq!((&json["values"][1][at], &json["values"][2][at]), (&"50.0 %".into(), &"–".into()));
}

#[test]
fn a_single_measured_epoch_among_many_is_a_dot() {
    let mut records = records(100);
    for record in &mut records {
        record.test_accuracy = (record.epoch == 50).then_some(0.4);
    }
    let html = page("store", &records, None, &[]);
    let figure = figure(&html, "plot-accuracy");
    assert_eq!(part(figure, "<path class=\"dots test\" d=\"", "\"").matches("h0").count(), 1);
    assert!(!figure.contains("class=\"dots val\""));
}

#[test]
fn legends_rest_at_the_best_epoch() {
    let mut records = records(10_000);
    records[4321].val_accuracy = Some(0.987);
    records[4321].test_accuracy = Some(0.876);
    let given = Given { records: &records, best: Some(4322), ..Given::default() };
    let html = given.html();
    assert_eq!(html.matches("<span class=\"when\">best epoch 4322</span>").count(), PLOTS.len());
    let figure = figure(&html, "plot-accuracy");
    assert!(figure.contains("</i>val <b>98.7 %</b>") && figure.contains("</i>test <b>87.6 %</b>"), "{figure}");
    let json = part(figure, "<script type=\"application/json\">", "</script>");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let start = json["start"].as_u64().unwrap() as usize;
    assert_eq!(json["names"][start], "epoch 4322");
}

#[test]
fn without_a_best_epoch_legends_rest_at_the_last_one_measured() {
    let mut records = records(5);
    for record in &mut records {
        (record.val_accuracy, record.val_loss) = (None, None);
    }
    records[4].test_accuracy = None;
    let html = page("store", &records, None, &[]);
    assert!(figure(&html, "plot-loss").contains("<span class=\"when\">epoch 5</span>"));
    assert!(html.contains("test <b>"), "a test curve");
}

#[test]
fn both_axes_of_every_chart_have_titles() {
    let html = page("store", &records(50), None, &[]);
    for id in PLOTS {
        let figure = figure(&html, id);
        let titles: Vec<&str> = figure.split("<span class=\"title\">").skip(1).collect();
        assert_eq!(titles.len(), 2, "{id}");
        assert!(!titles[0].starts_with('<') && titles[1].starts_with("epoch</span>"), "{id}: {titles:?}");
    }
    let mut records = records(50);
    records[0].loss = 1000.0;
    let html = page("store", &records, None, &[]);
    assert!(figure(&html, "plot-loss").contains("mean loss of nodes, logarithmic</span>"));
}

#[test]
fn a_value_that_stays_the_same_is_text_and_no_chart() {
    let mut records = records(20);
    for record in &mut records {
        (record.coverage_mean, record.bytes_read, record.learning_rate) = (Some(1.0), 0, 0.003);
        record.gradient_bytes = 1 << 20;
    }
    let html = page("store", &records, None, &[]);
    let texts = part(&html, "<section id=\"constant\">", "</section>");
    for (title, text) in [
        ("Coverage of seeds", "100.0 %"),
        ("Read from files", "0 B"),
        ("Gradients summed over partitions", "1.0 MiB"),
        ("Learning rate", "0.00300"),
    ] {
        assert!(texts.contains(&format!("<dt>{title}</dt><dd>{text}</dd>")), "{title}: {texts}");
    }
    assert_eq!(html.matches("<figure").count(), 4);
    records[7].learning_rate = 0.001;
    assert!(page("store", &records, None, &[]).contains("<figure id=\"plot-rate\">"));
}

#[test]
fn a_chart_without_values_is_stated_and_not_drawn() {
    let mut records = records(5);
    for record in &mut records {
        (record.train_accuracy, record.bytes_read) = (None, 0);
    }
    let unpartitioned = Given { records: &records, partitions: 1, ..Given::default() };
    let html = unpartitioned.html();
    for (title, text) in [
        ("Coverage of seeds", "100 %: one partition sees every neighborhood whole"),
        ("Read from files", "0 B"),
        ("Gradients summed over partitions", "none: there is one partition"),
    ] {
        assert!(html.contains(&format!("<dt>{title}</dt><dd>{text}</dd>")), "{title}");
    }
    for plot in ["plot-coverage", "plot-read", "plot-gradients"] {
        assert!(!html.contains(&format!("<figure id=\"{plot}\">")), "{plot}");
    }
    assert!(!html.contains("<i class=\"train\">") && html.contains("<i class=\"val\">"));
    for record in &mut records {
        (record.val_accuracy, record.test_accuracy) = (None, None);
    }
    assert!(page("store", &records, None, &[]).contains("<dt>Accuracy</dt><dd>no evaluation yet</dd>"));
    assert!(page("store", &[], None, &[]).contains("No epoch is finished yet."));
}

#[test]
fn a_stage_has_the_same_color_whichever_others_there_are() {
    let mut few = records(3);
    for record in &mut few {
        record.seconds_by_stage = stages_of(&[(Stage::Forward, 0.5), (Stage::Evaluate, 0.1)]);
    }
    for records in [records(3), few] {
        let html = page("store", &records, None, &[]);
        let figure = figure(&html, "plot-time");
        for stage in [Stage::Forward, Stage::Evaluate] {
            let name = stage.name();
            assert!(figure.contains(&format!("<i class=\"stage-{name}\"></i>{name} <b>")), "{figure}");
            assert!(html.contains(&format!("<th><i class=\"stage-{name}\"></i>{name}</th>")), "{name}");
        }
    }
}

/// The colors of a theme, by name: `#rgb` and `#rrggbb`.
fn colors(css: &str) -> Vec<(&str, [f64; 3])> {
    let declared = css.split([';', '{']).filter_map(|part| part.trim().strip_prefix("--")?.split_once(": #"));
    declared.map(|(name, digits)| (name, rgb(digits))).collect()
}

fn rgb(digits: &str) -> [f64; 3] {
    let width = digits.len() / 3;
    [0, 1, 2].map(|channel| {
        let digits = digits[channel * width..][..width].repeat(3 - width);
        f64::from(u8::from_str_radix(&digits, 16).unwrap()) / 255.0
    })
}

/// The relative luminance of the Web Content Accessibility Guidelines.
fn luminance(color: [f64; 3]) -> f64 {
    let linear = color.map(|part| match part {
        dark if dark <= 0.04045 => dark / 12.92,
        light => ((light + 0.055) / 1.055_f64).powf(2.4),
    });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

#[test]
fn colors_differ_and_stand_out_from_the_page_in_both_themes() {
    let css = include_str!("../style.css");
    let (light, dark) = css.split_once("@media (prefers-color-scheme: dark)").unwrap();
    for theme in [light, dark.split_once("\n}\n").unwrap().0] {
        let colors = colors(theme);
        let color_of =
            |wanted: &str| colors.iter().find(|(name, _)| *name == wanted).unwrap_or_else(|| panic!("{wanted}")).1;
        let stages: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        let runs = ["run-1", "run-2", "run-3", "run-4", "run-5", "run-6", "run-7", "run-8"];
        for names in [&stages[..], &runs, &["train", "val", "test", "loss"]] {
            for (index, name) in names.iter().enumerate() {
                assert!(names[..index].iter().all(|other| color_of(other) != color_of(name)), "{name}");
                let mut both = [luminance(color_of(name)), luminance(color_of("card"))];
                both.sort_by(f64::total_cmp);
                let contrast = (both[1] + 0.05) / (both[0] + 0.05);
                assert!(contrast >= 3.0, "{name}: {contrast}");
            }
        }
    }
    for &stage in Stage::ALL {
        assert!(css.contains(&format!(".stage-{0} {{ color: var(--{0}); }}", stage.name())), "{stage:?}");
    }
}

#[test]
fn the_largest_chart_is_what_the_run_monitors() {
    let (records, scores) = (records(12), scores(3));
    for (monitor, id) in
        [(Monitor::Score, "plot-accuracy"), (Monitor::MacroF1, "plot-accuracy"), (Monitor::Loss, "plot-loss")]
    {
        let mut report = Given { records: &records, scores: Some(&scores), best: Some(4), ..Given::default() }.report();
        report.summary.config.monitor = monitor;
        for record in &mut report.records {
            record.val_macro_f1 = record.val_accuracy;
        }
        let html = report.html();
        let first = part(&html, "<figure id=\"", "\"");
        assert_eq!(first, id, "{monitor}");
        assert!(figure(&html, first).contains("best: epoch 4"), "{monitor}");
    }
}

#[test]
fn the_legend_of_precision_by_recall_is_the_average_precision() {
    let (records, mut scores) = (records(3), scores(2));
    scores.average_precision = Some(0.625);
    scores.precision_recall = vec![[0.1, 1.0], [0.5, 0.8], [1.0, 0.25]];
    let html = page("store", &records, Some(&scores), &[]);
    let figure = figure(&html, "plot-precision-recall");
    assert!(figure.contains("<span class=\"when\">average precision</span>"), "{figure}");
    assert!(part(figure, "<ul>", "</ul>").contains("<b>62.5 %</b>"), "{figure}");
    // A reader who points at the end of the curve finds the precision there.
    assert!(part(figure, "\"values\":", "}").contains("25.0 %"), "{figure}");
}
