//! Pages as a browser lays them out, and what happens when a reader points, taps or presses keys.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::*;

/// A browser that draws pages without a screen: where Debian's package `chromium` puts it.
const BROWSER: &str = "/usr/bin/chromium";

/// Pages as a browser lays them out, each in a window as narrow as a phone's and in a wide one.
fn drawn(browser: &Path, pages: &[String]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = String::new();
    for (page, width) in pages.iter().flat_map(|page| [(page, 390), (page, 1280)]) {
        let page = escape(page);
        frames += &format!("<iframe style=\"width:{width}px;height:844px\" srcdoc=\"{page}\"></iframe>");
    }
    let script = include_str!("measure.js");
    let outer = format!("<!DOCTYPE html><body>{frames}<pre id=\"measured\"></pre><script>{script}</script></body>");
    let path = folder.path().join("outer.html");
    fs::write(&path, outer).unwrap();
    let dom = folder.path().join("dom.html");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
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

/// A report that was drawn.
struct Drawn {
    epochs: u64,
    classes: u32,
    /// Number of its charts.
    charts: usize,
    /// What was measured at the width of a phone and at the width of a desktop.
    frames: Vec<Value>,
}

/// Reports with many and with few epochs and classes; none if there is no browser. Starting one takes seconds, so it draws them once.
static DRAWN: LazyLock<Option<Vec<Drawn>>> = LazyLock::new(|| {
    let kinds = [(50, 40, 8), (1, 2, 3), (10_000, 5, 8)];
    let pages = kinds.map(|(epochs, classes, _)| {
        let (scores, names) = (scores(classes), names(classes));
        page("a-store-with-a-name-that-is-long.grappa", &records(epochs), Some(&scores), &names)
    });
    let browser = Some(Path::new(BROWSER)).filter(|browser| browser.exists())?;
    let measured = drawn(browser, &pages);
    let frames = measured.as_array().unwrap().chunks(2);
    let drawn = kinds.into_iter().zip(frames).map(|((epochs, classes, charts), frames)| Drawn {
        epochs,
        classes,
        charts,
        frames: frames.to_vec(),
    });
    Some(drawn.collect())
});

/// The texts of a list.
fn texts(list: &Value) -> Vec<&str> {
    let texts = list.as_array().unwrap().iter();
    texts.map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn a_browser_draws_every_plot_and_nothing_is_wider_than_a_phone() {
    let Some(pages) = &*DRAWN else {
        grappa_skip::skip!("there is no {BROWSER}");
    };
    for &Drawn { epochs, classes, charts, ref frames } in pages {
        for (frame, width) in frames.iter().zip([390, 1280]) {
            assert_eq!(frame["width"], width);
            assert!(frame["scrollWidth"].as_u64().unwrap() <= width, "{epochs} epochs: {frame}");
            assert_eq!(frame["outside"], Value::Array(Vec::new()), "{epochs} epochs, {width} wide");
            let plots = frame["plots"].as_object().unwrap();
            // Two classes have the curve of precision by recall.
            assert_eq!(plots.len(), charts + usize::from(classes == 2));
            for (plot, drawn) in plots {
                let (wide, high) = (drawn["width"].as_f64().unwrap(), drawn["height"].as_f64().unwrap());
                assert!(wide >= 200.0 && high >= 150.0, "{plot}: {wide} x {high}");
                assert!(drawn["shapes"].as_u64().unwrap() >= 1, "{plot} has a line or bars");
            }
            let found = if classes >= 10 { Value::from(1) } else { Value::Null };
            assert_eq!(frame["found"], found, "{classes} classes");
        }
        // On a phone plots are below each other, on a desktop side by side.
        let columns = (charts - 2).min(3);
        assert_eq!((&frames[0]["columns"], &frames[1]["columns"]), (&Value::from(1), &Value::from(columns)));
    }
}

#[test]
fn a_pointer_a_finger_and_keys_reach_the_values_of_every_epoch() {
    let Some(pages) = &*DRAWN else {
        grappa_skip::skip!("there is no {BROWSER}");
    };
    for Drawn { epochs, frames, .. } in pages {
        for frame in frames {
            assert_eq!(frame["named"], true, "each chart is a slider with a name");
            let keys = texts(&frame["keys"]);
            let first = keys[2];
            // Pointing at the left end of a plot shows the first epoch, leaving it the best.
            let number: u64 = first.strip_prefix("epoch ").expect("an epoch").parse().unwrap();
            assert!((1..=1 + epochs / 400).contains(&number), "{first} of {epochs}");
            assert_eq!(frame["pointed"], first);
            let (best, last) = (format!("best epoch {epochs}"), format!("epoch {epochs}"));
            assert_eq!([&frame["after"], &frame["rested"]], [&best, &best]);
            // A finger that was lifted covers nothing any more: the values stay.
            assert_eq!(frame["touched"], first);
            // From the best epoch to the left and back, to the first, not beyond it, one to the right, to the last.
            assert_eq!([keys[1], keys[3], keys[5]], [&last, first, &last]);
            assert!(*epochs == 1 || (keys[0] != last && keys[4] != first), "{keys:?}");
            let value = frame["value"].as_str().unwrap();
            assert!(value.starts_with(&format!("{last}: train ")) && value.contains("test "), "{value}");
        }
    }
}

#[test]
fn classes_are_sorted_by_the_column_whose_heading_is_pressed() {
    let Some(pages) = &*DRAWN else {
        grappa_skip::skip!("there is no {BROWSER}");
    };
    for frame in &pages[0].frames {
        let sorts = &frame["sorts"];
        let numbers = |name: &str| -> Vec<f64> {
            let texts = texts(&sorts[name]);
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert!(numbers("nodes").is_sorted_by(|a, b| a >= b), "{sorts}");
        assert!(numbers("f1").is_sorted_by(|a, b| a >= b) && numbers("f1")[0] > numbers("f1")[39], "{sorts}");
        assert!(numbers("reversed").is_sorted(), "{sorts}");
        // Numbers in names count as numbers.
        assert_eq!(texts(&sorts["names"]), names(40));
    }
}

#[test]
fn keys_and_touch_reach_the_confusion_of_every_class() {
    let Some(pages) = &*DRAWN else {
        grappa_skip::skip!("there is no {BROWSER}");
    };
    let scores = scores(40);
    let matrix = scores.confusion.as_ref().unwrap();
    let mut order: Vec<usize> = (0..40).collect();
    order.sort_by_key(|&class| std::cmp::Reverse(scores.per_class[class].support));
    for frame in &pages[0].frames {
        let places = [(0, 1), (1, 1), (2, 1), (0, 0)];
        for (cell, (row, column)) in texts(&frame["cells"]).into_iter().zip(places) {
            let [class, predicted] = [row, column].map(|place| order[place]);
            let names = [class, predicted].map(|class| names(40)[class].clone());
            let nodes = scores.per_class[class].support;
            let expected = format!("{} of {nodes} in {} predicted as {}", matrix[class][predicted], names[0], names[1]);
            assert_eq!(cell, expected);
        }
        for (chosen, place) in frame["chosen"].as_array().unwrap().iter().zip([0, 39]) {
            let class = order[place];
            let others = (0..40).filter(|&other| other != class && matrix[class][other] + matrix[other][class] > 0);
            assert_eq!(chosen[1], others.count().min(10), "of class {class}");
            let told = chosen[0].as_str().unwrap();
            match scores.per_class[class].support {
                0 => assert!(told.starts_with("No node is in this class."), "{told}"),
                nodes => assert!(
                    told.starts_with(&format!("Predicted right: {} of {nodes} nodes", matrix[class][class])),
                    "{told}"
                ),
            }
        }
    }
}
