//! The examples of `formats/spec` match the golden files, and the specification suffices to read them.

use std::{fs, path::PathBuf, process::Command};

use grappa_formats::permutation::Feistel;

use crate::golden;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("spec")
}

fn page(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

/// A line of an example is an offset, two spaces, bytes, and, after three spaces or more, a description.
fn example_line(line: &str) -> (usize, Vec<u8>) {
    let (offset, rest) = line.split_once("  ").expect("an offset, and two spaces");
    let bytes = rest.split("   ").next().expect("bytes");
    let byte = |digits| u8::from_str_radix(digits, 16).unwrap_or_else(|e| panic!("{line}: {e}"));
    (usize::from_str_radix(offset, 16).expect("an offset"), bytes.split(' ').map(byte).collect())
}

#[test]
fn examples_match_the_golden_files() {
    const PAGES: [&str; 14] = [
        "aggregates.md",
        "assignment.md",
        "container.md",
        "edge-features.md",
        "features.md",
        "graph.md",
        "ids.md",
        "labels.md",
        "manifest.md",
        "rows.md",
        "schema.md",
        "splits.md",
        "times.md",
        "weights.md",
    ];
    for name in PAGES {
        let text = page(name);
        let mut examples = 0;
        let mut golden: Option<(&str, Vec<u8>)> = None;
        for line in text.lines() {
            match (&golden, line.strip_prefix("```hex ")) {
                (None, Some(file)) => {
                    golden = Some((file, golden::bytes(file)));
                    examples += 1;
                }
                (Some(_), None) if line == "```" => golden = None,
                (Some((file, content)), None) => {
                    let (at, bytes) = example_line(line);
                    assert_eq!(content.get(at..at + bytes.len()), Some(&bytes[..]), "{name}, {file}: {line}");
                }
                (None, None) => {}
                (Some(_), Some(_)) => panic!("{name}: an example in an example"),
            }
        }
        assert!(examples > 0 && golden.is_none(), "{name} has no example, or one that does not end");
    }
}

#[test]
fn permutation_vectors_match_the_code() {
    let text = page("permutation.md");
    let mut vectors = 0;
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.split('|').filter_map(|cell| cell.trim().parse::<u64>().ok()).collect();
        if let [nodes, seed, id, node] = cells[..] {
            let permutation = Feistel::new(nodes, seed);
            assert_eq!((permutation.forward(id), permutation.inverse(node)), (node, id), "{line}");
            vectors += 1;
        }
    }
    assert!(vectors > 20);
}

/// `read_golden.py` was written from the specification alone.
#[test]
fn a_reader_made_from_the_specification_reads_the_golden_files() {
    let output = match Command::new("python3").arg("-B").arg(folder().join("read_golden.py")).output() {
        Ok(output) => output,
        Err(e) => grappa_skip::skip!("cannot run python3: {e}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
