//! Compares the reader of text with a naive one, for all block sizes.

use grappa_io::Position;
use proptest::prelude::*;

use super::*;

/// One line, as the naive reader parses it, character by character.
enum Naive {
    Nothing,
    Edge(u64, u64, Option<f32>),
    Bad,
}

fn naive_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    // Whether a blank has ended the current field. A comma may still follow.
    let mut closed = false;
    for c in line.chars() {
        match c {
            ' ' | '\t' => closed |= !fields.last().unwrap().is_empty() || fields.len() == 1,
            ',' => {
                fields.push(String::new());
                closed = false;
            }
            c => {
                if closed {
                    fields.push(String::new());
                    closed = false;
                }
                fields.last_mut().unwrap().push(c);
            }
        }
    }
    fields
}

fn naive_line(line: &str, columns: Option<usize>) -> Naive {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let line = line.trim_matches([' ', '\t']);
    if line.is_empty() {
        return Naive::Nothing;
    }
    let fields = naive_fields(line);
    let fits = columns.map_or(fields.len() == 2 || fields.len() == 3, |columns| fields.len() == columns);
    let id = |field: &str| {
        let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let (whole, zeros) = field.split_once('.').unwrap_or((field, ""));
        let id: u64 = match digits(whole) && zeros.trim_matches('0').is_empty() {
            true => whole.parse().ok()?,
            // An integer that was written as a float.
            false if !field.starts_with('+') => {
                let value = field.parse::<f64>().ok()?;
                (value.fract() == 0.0 && (0.0..2_f64.powi(53)).contains(&value)).then_some(value as u64)?
            }
            false => return None,
        };
        (id < 1 << 40).then_some(id)
    };
    if !fits {
        return Naive::Bad;
    }
    let weight = match fields.get(2) {
        None => None,
        Some(field) => match field.parse::<f32>() {
            Ok(weight) if weight.is_finite() => Some(weight),
            _ => return Naive::Bad,
        },
    };
    match (id(&fields[0]), id(&fields[1])) {
        (Some(source), Some(target)) => Naive::Edge(source, target, weight),
        _ => Naive::Bad,
    }
}

/// The result of the naive reader.
#[derive(Default)]
struct NaiveRead {
    edges: Vec<(u64, u64)>,
    weights: Vec<f32>,
    bad_lines: Vec<u64>,
}

/// The naive reader. None if no line shows the columns.
fn naive(text: &str) -> Option<NaiveRead> {
    let is_comment = |line: &str| line.trim_start_matches([' ', '\t']).starts_with(['#', '%']);
    let is_skipped = |line: &str| is_comment(line) || line.trim_matches([' ', '\t', '\r']).is_empty();
    let comments = text.split('\n').take_while(|line| is_skipped(line)).count();
    let columns = text.split('\n').find_map(|line| match naive_line(line, None) {
        Naive::Edge(_, _, weight) => Some(if weight.is_some() { 3 } else { 2 }),
        _ => None,
    })?;
    let mut read = NaiveRead::default();
    for (index, line) in text.split('\n').enumerate().skip(comments) {
        match naive_line(line, Some(columns)) {
            Naive::Nothing => {}
            Naive::Edge(source, target, weight) => {
                read.edges.push((source, target));
                read.weights.extend(weight);
            }
            Naive::Bad => read.bad_lines.push(index as u64 + 1),
        }
    }
    Some(read)
}

fn line() -> impl Strategy<Value = String> {
    let id = prop_oneof![
        8 => (0..200_u64).prop_map(|id| id.to_string()),
        4 => (0..1_u64 << 40).prop_map(|id| id.to_string()),
        1 => (0..10_u64).prop_map(|id| format!("{id:020}")),
        1 => any::<u64>().prop_map(|id| id.to_string()),
        1 => prop::sample::select(vec![
            "-1", "1.5", "1e3", "4.0", "4.", "2.5e0", "30e-1", "-0.0",
            "abc", "18446744073709551616", "1099511627776", "1099511627775", "99999999", "100000000",
            "9999999999999999", "10000000000000000", "", "0x1", "+1", "é", "12345678901234567890123",
            "000000000000000000000000000007",
        ]).prop_map(str::to_owned),
    ];
    let gap = prop_oneof![
        6 => prop::sample::select(vec![" ", "\t", ","]).prop_map(str::to_owned),
        1 => "[ \t]{1,4},?[ \t]{0,3}",
        1 => "[ \t,]{0,3}",
    ];
    let weight = prop_oneof![
        6 => Just(None),
        3 => prop::num::f32::NORMAL.prop_map(|weight| Some(weight.to_string())),
        1 => prop::sample::select(vec!["nan", "inf", "x", "1e99", "7", "-0.5"]).prop_map(|w| Some(w.to_owned())),
    ];
    let edge =
        (id.clone(), gap.clone(), id, gap, weight).prop_map(|(source, gap, target, gap2, weight)| match weight {
            Some(weight) => format!("{source}{gap}{target}{gap2}{weight}"),
            None => format!("{source}{gap}{target}"),
        });
    let core = prop_oneof![
        12 => edge,
        1 => "[#%][ -~]{0,40}",
        1 => Just(String::new()),
    ];
    ("[ \t]{0,2}", core, "[ \t]{0,2}", prop::bool::weighted(0.2)).prop_map(|(before, core, after, cr)| {
        let (before, after) = if before.len() + after.len() > 2 { (before, after) } else { Default::default() };
        format!("{before}{core}{after}{}", if cr { "\r" } else { "" })
    })
}

fn text() -> impl Strategy<Value = String> {
    let text = (prop::collection::vec(line(), 1..40), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join("\n");
        if ended {
            text.push('\n');
        }
        text
    });
    text.prop_filter("adjacency lists are refused", |text| !looks_like_lists(text))
}

/// Whether at most half of the lines of data have two or three columns, and one has more.
fn looks_like_lists(text: &str) -> bool {
    let lines = text.lines().map(|line| line.trim_matches([' ', '\t', '\r']));
    let data = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '%']));
    let counts: Vec<usize> = data.map(|line| naive_fields(line).len()).collect();
    let usual = counts.iter().filter(|&&count| count == 2 || count == 3).count();
    counts.iter().any(|&count| count > 3) && 2 * usual <= counts.len()
}

fn assert_reads_as_naive(path: &Path, text: &str, block_bytes: usize, threads: usize) {
    let source = EdgeSource::open(&[path.to_owned()], skipping(block_bytes));
    let Some(expected) = naive(text) else {
        assert!(source.is_err());
        return;
    };
    let read = read(&source.unwrap(), threads).unwrap();
    assert_eq!(read.edges, expected.edges);
    assert_eq!(read.values, expected.weights);
    let lines: Vec<_> = read.rejected.iter().map(|reject| reject.position).collect();
    assert_eq!(lines, expected.bad_lines.into_iter().map(Position::Line).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn text_is_read_as_by_the_naive_twin(text in text(), block_bytes in 1..64_usize, threads in 1..3_usize) {
        let folder = Folder::new();
        let path = folder.file("edges.tsv", &text);
        assert_reads_as_naive(&path, &text, block_bytes, threads);
        assert_reads_as_naive(&path, &text, 1 << 20, 1);
    }

    #[test]
    fn compressed_text_is_read_as_by_the_naive_twin(
        text in text(), block_bytes in 1..64_usize, threads in 1..3_usize, cut in 0..100_usize,
    ) {
        let folder = Folder::new();
        // Members may end anywhere, even within a line.
        let mut cut = text.len() * cut / 100;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let (one, two) = text.as_bytes().split_at(cut);
        let gz = folder.file("edges.tsv.gz", [gzip(one), gzip(two)].concat());
        assert_reads_as_naive(&gz, &text, block_bytes, threads);
        // The contents decide, not the name.
        let zst = folder.file("edges", [zstd(one), zstd(two)].concat());
        assert_reads_as_naive(&zst, &text, block_bytes, threads);
    }
}
