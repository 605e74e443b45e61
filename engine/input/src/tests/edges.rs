use grappa_io::Position;
use proptest::prelude::*;

use super::*;

fn skipping(block_bytes: usize) -> EdgeSourceOptions {
    EdgeSourceOptions {
        on_bad_line: OnBadLine::Skip,
        block_bytes,
        ..Default::default()
    }
}

/// One line as the slow twin understands it, character by character.
enum Naive {
    Nothing,
    Edge(u64, u64, Option<f32>),
    Bad,
}

fn naive_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    // Whether the field before is closed by a blank, which a comma may still follow.
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
    if line.is_empty() || line.starts_with(['#', '%']) {
        return Naive::Nothing;
    }
    let fields = naive_fields(line);
    let fits = columns.map_or(fields.len() == 2 || fields.len() == 3, |columns| {
        fields.len() == columns
    });
    let id = |field: &str| {
        let digits = !field.is_empty() && field.chars().all(|c| c.is_ascii_digit());
        digits
            .then(|| field.parse().ok())
            .flatten()
            .filter(|&id: &u64| id < 1 << 40)
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

/// What the slow twin reads.
#[derive(Default)]
struct NaiveRead {
    edges: Vec<(u64, u64)>,
    weights: Vec<f32>,
    bad_lines: Vec<u64>,
}

/// Reads a text the plain way. None if no line shows the columns.
fn naive(text: &str) -> Option<NaiveRead> {
    let columns = text.split('\n').find_map(|line| match naive_line(line, None) {
        Naive::Edge(_, _, weight) => Some(if weight.is_some() { 3 } else { 2 }),
        _ => None,
    })?;
    let mut read = NaiveRead::default();
    for (index, line) in text.split('\n').enumerate() {
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
            "-1", "1.5", "1e3", "abc", "18446744073709551616", "1099511627776", "1099511627775", "99999999", "100000000",
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
        1 => prop::sample::select(vec!["nan", "inf", "x", "1e99", "7", "-0.5", ""]).prop_map(|w| Some(w.to_owned())),
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
        let (before, after) = if before.len() + after.len() > 2 {
            (before, after)
        } else {
            Default::default()
        };
        format!("{before}{core}{after}{}", if cr { "\r" } else { "" })
    })
}

fn text() -> impl Strategy<Value = String> {
    (prop::collection::vec(line(), 1..40), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join("\n");
        if ended {
            text.push('\n');
        }
        text
    })
}

fn assert_reads_as_naive(path: &Path, text: &str, block_bytes: usize, threads: usize) {
    let source = EdgeSource::open(&[path.to_owned()], skipping(block_bytes));
    let Some(expected) = naive(text) else {
        assert!(source.is_err());
        return;
    };
    let read = read(&source.unwrap(), threads).unwrap();
    assert_eq!(read.edges, expected.edges);
    assert_eq!(read.weights, expected.weights);
    let lines: Vec<_> = read.rejected.iter().map(|reject| reject.position).collect();
    assert_eq!(
        lines,
        expected.bad_lines.into_iter().map(Position::Line).collect::<Vec<_>>()
    );
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
        // Cut anywhere, even within a line: members are no lines.
        let mut cut = text.len() * cut / 100;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let (one, two) = text.as_bytes().split_at(cut);
        let gz = folder.file("edges.tsv.gz", [gzip(one), gzip(two)].concat());
        assert_reads_as_naive(&gz, &text, block_bytes, threads);
        // The content counts, not the name.
        let zst = folder.file("edges", [zstd(one), zstd(two)].concat());
        assert_reads_as_naive(&zst, &text, block_bytes, threads);
    }
}

#[test]
fn skipped_blocks_are_left_out_and_the_others_keep_their_numbers() {
    let folder = Folder::new();
    let text: String = (0..500).map(|n| format!("{n} {}\n", n * 7)).collect();
    let pairs = le(
        &(0..500).flat_map(|n| [n, n * 7]).collect::<Vec<u64>>(),
        u64::to_le_bytes,
    );
    let paths = [
        folder.file("a.tsv", &text),
        folder.file("b.tsv.gz", gzip(text.as_bytes())),
        folder.file("c.u64", pairs),
    ];
    let options = EdgeSourceOptions {
        block_bytes: 100,
        ..Default::default()
    };
    let blocks = |skip: &dyn Fn(BlockId) -> bool| {
        let source = EdgeSource::open(&paths, options.clone()).unwrap();
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while let Some(block) = source.next_block(skip).unwrap() {
            let mut batch = EdgeBatch::default();
            block.parse(&mut batch).unwrap();
            bytes += block.input_bytes();
            blocks.push((block.id(), batch.sources));
        }
        (blocks, bytes, source.total_bytes())
    };
    let (all, bytes, total) = blocks(&|_| false);
    assert_eq!(bytes, total);
    assert_eq!(all.iter().map(|(_, sources)| sources.len()).sum::<usize>(), 1500);
    let skipped = |id: BlockId| id.block % 3 != 1;
    let (some, bytes, _) = blocks(&skipped);
    assert!(bytes <= total);
    assert_eq!(
        some,
        all.into_iter().filter(|&(id, _)| !skipped(id)).collect::<Vec<_>>()
    );
}

#[test]
fn bad_lines_are_errors_with_file_line_finding_and_remedy() {
    let folder = Folder::new();
    let cases: [(&str, &[u8], IdLimit, &[&str]); 18] = [
        (
            "a.tsv",
            b"1 2\n3\n",
            IdLimit::Dense,
            &["a.tsv:2: expected 2 columns", "found 1", "\"3\"", "--on-bad-line skip"],
        ),
        (
            "a.tsv",
            b"# c\n\n1 2\n3 4 5\n",
            IdLimit::Dense,
            &["a.tsv:4: expected 2 columns", "found 3"],
        ),
        (
            "a.tsv",
            b"1 2 3\n3 4",
            IdLimit::Dense,
            &["a.tsv:2: expected 3 columns (source, target, weight), found 2"],
        ),
        (
            "a.tsv",
            b"1\n2\n",
            IdLimit::Dense,
            &["a.tsv:1: expected 2 columns", "found 1"],
        ),
        (
            "a.tsv",
            b"1 2 3 4\n",
            IdLimit::Dense,
            &["a.tsv:1: expected 3 columns", "found 4"],
        ),
        (
            "a.tsv",
            b"1 2\nbob alice\n",
            IdLimit::Dense,
            &[
                "a.tsv:2",
                "not an integer",
                "\"bob alice\"",
                "--ids string",
                "--format csv",
            ],
        ),
        (
            "a.tsv",
            b"src name\n1 2\n2 3\nx y\n",
            IdLimit::Dense,
            &["a.tsv:1", "not an integer"],
        ),
        ("a.tsv", b"1 2\n1.5 2\n", IdLimit::Dense, &["a.tsv:2", "decimal"]),
        (
            "a.tsv",
            b"1 2\r\n7 -3\r\n",
            IdLimit::Dense,
            &["a.tsv:2", "negative", "\"7 -3\"", "--ids string"],
        ),
        (
            "a.tsv",
            b"1 2\n1099511627776 3\n",
            IdLimit::Dense,
            &["a.tsv:2", "below 2^40", "--ids sparse"],
        ),
        (
            "a.tsv",
            b"1 2\n3 10\n",
            IdLimit::Nodes(10),
            &["a.tsv:2", "not below the number of nodes, 10", "\"3 10\""],
        ),
        (
            "a.tsv",
            b"1 2\n3 99999999999999999999\n",
            IdLimit::Sparse,
            &["a.tsv:2", "64 bits", "--ids string"],
        ),
        ("a.csv", b"1,2\n3,\n", IdLimit::Dense, &["a.csv:2", "empty"]),
        ("a.csv", b"1,2,nan\n", IdLimit::Dense, &["a.csv:1", "not finite"]),
        (
            "a.csv",
            b"1,2,1\n1,2,heavy\n",
            IdLimit::Dense,
            &["a.csv:2", "weight is not a number"],
        ),
        (
            "a.csv",
            b"1,2\n\xff,2\n",
            IdLimit::Dense,
            &["a.csv:2", "UTF-8", "iconv"],
        ),
        (
            "a.csv",
            b"1,2\n1\0,2\n",
            IdLimit::Dense,
            &["a.csv:2", "NUL", "--format"],
        ),
        (
            "a.csv",
            b"1,2\n\x1b[2J,\"\n",
            IdLimit::Dense,
            &["a.csv:2", "\"\\u{1b}[2J,\\\"\""],
        ),
    ];
    for (name, text, id_limit, parts) in cases {
        for block_bytes in [1, 5, 1 << 20] {
            let options = EdgeSourceOptions {
                id_limit,
                block_bytes,
                ..Default::default()
            };
            let plain = folder.file(name, text);
            assert_contains(&message(read_path(&plain, options.clone())), parts);
            let packed = folder.file(&format!("{name}.gz"), gzip(text));
            let parts: Vec<_> = parts
                .iter()
                .map(|part| part.replace(&format!("{name}:"), &format!("{name}.gz:")))
                .collect();
            let parts: Vec<_> = parts.iter().map(String::as_str).collect();
            assert_contains(&message(read_path(&packed, options)), &parts);
        }
    }
}

#[test]
fn a_long_line_is_an_error_wherever_blocks_are_cut() {
    let folder = Folder::new();
    let mut text = b"1 2\n3 4\n".to_vec();
    text.extend(vec![b'x'; 3 << 20]);
    for block_bytes in [3, 1000, 2 << 20, 16 << 20] {
        for (name, bytes) in [("a.tsv", text.clone()), ("a.tsv.gz", gzip(&text))] {
            let path = folder.file(name, bytes);
            let what = message(read_path(&path, skipping(block_bytes)));
            assert_contains(
                &what,
                &[&format!("{name}:3: "), "longer than 1048576 bytes", "--format"],
            );
        }
    }
}

#[test]
fn rejects_carry_line_reason_and_text() {
    let folder = Folder::new();
    let long = format!("{}\n", "z".repeat(5000));
    let path = folder.file("a.tsv", format!("1 2\nx y\n\n2 -2\n3 4\n{long}5 6\n"));
    let read = read_path(&path, skipping(1 << 20)).unwrap();
    assert_eq!(read.edges, [(1, 2), (3, 4), (5, 6)]);
    let [first, second, third] = &read.rejected[..] else {
        panic!("three lines are bad: {:?}", read.rejected)
    };
    assert_eq!(
        (first.position, first.reason, &*first.text),
        (Position::Line(2), BadEdge::NotInteger, "x y")
    );
    assert_eq!(
        (second.position, second.reason, &*second.text),
        (Position::Line(4), BadEdge::Negative, "2 -2")
    );
    assert_eq!(
        (third.position, third.text.len()),
        (Position::Line(6), REJECT_BYTES_MAX)
    );
}

#[test]
fn headers_marks_quotes_and_missing_last_line_ends_are_understood() {
    let folder = Folder::new();
    let cases: [(&str, &str); 8] = [
        ("a.csv", "source,target\n1,2\n3,4"),
        ("a.csv", "\u{feff}who,whom\r\n1,2\r\n3,4\r\n"),
        (
            "a.csv",
            "# made by hand\n\n\"follower\", \"followed\"\n\"1\", \"2\"\n3,4\n",
        ),
        ("a.csv", "\u{feff}1,2\n3,4"),
        ("a.csv", "1 2\n3\t4"),
        ("a.tsv", "src\tdst\n1\t2\n3\t4\n"),
        ("a.txt", "% comment\n# comment\n 1   2 \n\n3 , 4\n#"),
        ("noextension", "1\t2\n3\t4"),
    ];
    for (name, text) in cases {
        for block_bytes in [1, 7, 1 << 20] {
            let options = EdgeSourceOptions {
                block_bytes,
                ..Default::default()
            };
            let path = folder.file(name, text);
            assert_eq!(
                read_path(&path, options.clone()).unwrap().edges,
                [(1, 2), (3, 4)],
                "{text:?}"
            );
            let path = folder.file(&format!("{name}.zst"), zstd(text.as_bytes()));
            assert_eq!(read_path(&path, options).unwrap().edges, [(1, 2), (3, 4)], "{text:?}");
        }
    }
}

/// Edges between strings, their weights, and what was rejected.
type KeysRead = (Vec<(String, String)>, Vec<f32>, Vec<Reject>);

fn keys(path: &Path, options: EdgeSourceOptions) -> Result<KeysRead> {
    let options = EdgeSourceOptions {
        ids: IdKind::String,
        ..options
    };
    let source = EdgeSource::open(&[path.to_owned()], options)?;
    let (mut edges, mut weights, mut rejected) = Default::default();
    let mut batch = TextBatch::default();
    let text = |key: &[u8]| std::str::from_utf8(key).unwrap().to_owned();
    while let Some(block) = source.next_block(&|_| false)? {
        block.parse_text(&mut batch)?;
        let pairs = batch.sources.iter().zip(batch.targets.iter());
        Vec::extend(&mut edges, pairs.map(|(source, target)| (text(source), text(target))));
        Vec::extend(&mut weights, &batch.weights);
        Vec::append(&mut rejected, &mut batch.rejected);
    }
    Ok((edges, weights, rejected))
}

#[test]
fn string_keys_keep_what_separates_them_elsewhere() {
    let folder = Folder::new();
    let cases: [(&str, &str, (&str, &str)); 7] = [
        ("a.tsv", "New York\tSão Paulo\n", ("New York", "São Paulo")),
        ("a.tsv", "a,b c\n", ("a,b", "c")),
        ("a.csv", "New York, São Paulo\n", ("New York", "São Paulo")),
        (
            "a.csv",
            "\"York, New\",\"the \"\"big\"\" one\"\n",
            ("York, New", "the \"big\" one"),
        ),
        ("a.csv", "source,target\nx,y\n", ("x", "y")),
        ("a.txt", "  x    y  \r\n", ("x", "y")),
        ("a.txt", "12 13", ("12", "13")),
    ];
    for (name, text, (source, target)) in cases {
        for block_bytes in [1, 9, 1 << 20] {
            let options = EdgeSourceOptions {
                block_bytes,
                ..Default::default()
            };
            let (edges, _, _) = keys(&folder.file(name, text), options).unwrap();
            assert_eq!(edges, [(source.to_owned(), target.to_owned())], "{text:?}");
        }
    }
    let (edges, weights, _) = keys(&folder.file("a.csv", "a b,c,0.5\n"), EdgeSourceOptions::default()).unwrap();
    assert_eq!((edges.len(), weights), (1, vec![0.5]));
}

#[test]
fn bad_string_keys_are_rejected() {
    let folder = Folder::new();
    let bad: [(&[u8], BadEdge); 6] = [
        (b"a,", BadEdge::EmptyId),
        (b"a,b,c", BadEdge::Columns { expected: 2, found: 3 }),
        (b"\"a,b", BadEdge::Quote),
        (b"\"a\"x,b", BadEdge::Quote),
        (b"a\0,b", BadEdge::Nul),
        (b"a,\xff", BadEdge::NotUtf8),
    ];
    for (line, reason) in bad {
        let path = folder.file("a.csv", [b"x,y\n", line, b"\nz,w\n"].concat());
        let (edges, _, rejected) = keys(&path, skipping(1 << 20)).unwrap();
        assert_eq!(edges.len(), 2);
        assert_eq!((rejected[0].position, rejected[0].reason), (Position::Line(2), reason));
        assert_contains(&message(keys(&path, EdgeSourceOptions::default())), &["a.csv:2: "]);
    }
}

#[test]
fn every_integer_type_and_both_orientations_of_npy_are_read() {
    let folder = Folder::new();
    let numbers = [1_u32, 2, 3, 4, 5, 1 << 30];
    let edges = [(1, 2), (3, 4), (5, 1 << 30)];
    let turned = [1_u32, 3, 5, 2, 4, 1 << 30];
    for (descr, pairs, halves) in [
        ("<i4", le(&numbers, u32::to_le_bytes), le(&turned, u32::to_le_bytes)),
        ("<u4", le(&numbers, u32::to_le_bytes), le(&turned, u32::to_le_bytes)),
        (
            "<i8",
            le(&numbers, |n| u64::from(n).to_le_bytes()),
            le(&turned, |n| u64::from(n).to_le_bytes()),
        ),
        (
            "<u8",
            le(&numbers, |n| u64::from(n).to_le_bytes()),
            le(&turned, |n| u64::from(n).to_le_bytes()),
        ),
    ] {
        for block_bytes in [1, 20, 1 << 20] {
            let options = EdgeSourceOptions {
                block_bytes,
                ..Default::default()
            };
            let path = folder.file("pairs.npy", npy(descr, "(3, 2)", &pairs));
            let source = EdgeSource::open(&[path], options.clone()).unwrap();
            assert_eq!(source.edges_hint(), Some(3));
            assert_eq!(read(&source, 2).unwrap().edges, edges);
            let path = folder.file("halves", npy(descr, "(2, 3)", &halves));
            assert_eq!(read_path(&path, options).unwrap().edges, edges);
        }
    }
    // Versions, spacing and quoting as other writers have them.
    let data = le(&numbers, u32::to_le_bytes);
    for file in [
        npy_of(2, "{\"descr\":\"<u4\",\"fortran_order\":False,\"shape\":(3,2)}", &data),
        npy_of(3, "{'shape': (3L, 2L), 'fortran_order': False, 'descr': '<u4'}", &data),
    ] {
        let path = folder.file("pairs.npy", file);
        assert_eq!(read_path(&path, EdgeSourceOptions::default()).unwrap().edges, edges);
    }
    // Both readings of [2, 2] are possible; rows are edges.
    let path = folder.file("two.npy", npy("<u4", "(2, 2)", &data[..16]));
    assert_eq!(
        read_path(&path, EdgeSourceOptions::default()).unwrap().edges,
        [(1, 2), (3, 4)]
    );
}

#[test]
fn raw_pairs_are_read() {
    let folder = Folder::new();
    let small = folder.file("a.u32", le(&[1_u32, u32::MAX, 3, 4], u32::to_le_bytes));
    let large = folder.file("b.bin", le(&[1_u64, 1 << 39, 3, 4], u64::to_le_bytes));
    let options = EdgeSourceOptions::default();
    assert_eq!(
        read_path(&small, options.clone()).unwrap().edges,
        [(1, u64::from(u32::MAX)), (3, 4)]
    );
    let options = EdgeSourceOptions {
        format: EdgeFormat::U64,
        ..options
    };
    assert_eq!(read_path(&large, options).unwrap().edges, [(1, 1 << 39), (3, 4)]);
}

#[test]
fn arrays_that_are_no_edges_are_refused_with_a_remedy() {
    let folder = Folder::new();
    let data = le(&[1_u64, 2, 3, 4], u64::to_le_bytes);
    let fortran = "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }";
    let records = "{'descr': [('u', '<i8'), ('v', '<i8')], 'fortran_order': False, 'shape': (2,), }";
    let mut wrong_version = npy("<i8", "(2, 2)", &data);
    wrong_version[6] = 9;
    let mut long_header = npy("<i8", "(2, 2)", &data);
    long_header[8] = 0xff;
    let cases: [(Vec<u8>, &[&str]); 15] = [
        (npy("<i8", "(4,)", &data), &["a.npy: ", "[E, 2] or [2, E]", "(4,)"]),
        (
            npy("<i4", "(2, 4)", &data)[..100].to_vec(),
            &["within its .npy header", "truncated"],
        ),
        (npy("<i8", "(1, 4)", &data), &["found (1, 4)", "--weights"]),
        (npy("<f8", "(2, 2)", &data), &["found float64", "astype('<i8')"]),
        (npy("<i2", "(8, 2)", &data), &["found int16"]),
        (npy(">i8", "(2, 2)", &data), &["big-endian", "astype('<i8')"]),
        (npy("|O", "(2, 2)", &data), &["object", "astype"]),
        (npy("<U2", "(2, 2)", &data), &["'<U2'", "astype"]),
        (npy_of(1, fortran, &data), &["Fortran", "ascontiguousarray"]),
        (npy_of(1, records, &data), &["named fields"]),
        (
            npy("<i8", "(3, 2)", &data),
            &["takes 176 bytes", "found 160", "truncated"],
        ),
        (
            npy("<i8", "(1, 2)", &data),
            &["takes 144 bytes", "found 160", "appended"],
        ),
        (npy("<i8", "(9223372036854775807, 2)", &data), &["more than 2^64"]),
        (wrong_version, &["version 9"]),
        (long_header, &["within its .npy header"]),
    ];
    for (file, parts) in cases {
        let path = folder.file("a.npy", file);
        let what = message(EdgeSource::open(&[path], EdgeSourceOptions::default()));
        assert_contains(&what, parts);
        assert_contains(&what, &["a.npy"]);
    }
    for dictionary in [
        "",
        "{",
        "{'descr'",
        "{'descr': 3}",
        "{'shape': (1, 2)}",
        "{'shape': (x,)}",
        "{'fortran_order': 1}",
        "nope",
    ] {
        let path = folder.file("a.npy", npy_of(1, dictionary, &data));
        assert_contains(
            &message(EdgeSource::open(&[path], EdgeSourceOptions::default())),
            &["a.npy at offset 10", "header cannot be read"],
        );
    }
    let path = folder.file("a.npy", "1 2\n");
    assert_contains(
        &message(EdgeSource::open(&[path], EdgeSourceOptions::default())),
        &["x93NUMPY", "numpy.save"],
    );
}

#[test]
fn bad_rows_of_arrays_are_errors_or_rejects() {
    let folder = Folder::new();
    let data = le(&[1_i64, 2, 3, -4, 5, 6], i64::to_le_bytes);
    let path = folder.file("a.npy", npy("<i8", "(3, 2)", &data));
    for id_limit in [IdLimit::Dense, IdLimit::Sparse] {
        let options = EdgeSourceOptions {
            id_limit,
            ..Default::default()
        };
        assert_contains(
            &message(read_path(&path, options.clone())),
            &["a.npy at row 1", "negative", "3\\t-4"],
        );
        let options = EdgeSourceOptions {
            on_bad_line: OnBadLine::Skip,
            block_bytes: 16,
            ..options
        };
        let read = read_path(&path, options).unwrap();
        assert_eq!(read.edges, [(1, 2), (5, 6)]);
        assert_eq!(read.rejected[0].position, Position::Row(1));
    }
    let options = EdgeSourceOptions {
        id_limit: IdLimit::Nodes(6),
        ..Default::default()
    };
    let path = folder.file("b.u64", le(&[1_u64, 2, 3, 6], u64::to_le_bytes));
    assert_contains(
        &message(read_path(&path, options)),
        &["b.u64 at row 1", "number of nodes, 6"],
    );
}

#[test]
fn binary_files_in_the_wrong_place_are_recognised() {
    let folder = Folder::new();
    let pairs = le(&[1_u64, 2, 3, 4], u64::to_le_bytes);
    let open = |path: PathBuf, options| message(EdgeSource::open(&[path], options));
    let default = EdgeSourceOptions::default;
    assert_contains(
        &open(folder.file("a.bin", &pairs), default()),
        &["NUL byte", "--format"],
    );
    assert_contains(
        &open(folder.file("a.u64", &pairs[..24]), default()),
        &["at offset 16", "8 bytes are left over"],
    );
    assert_contains(
        &open(folder.file("a.u32", &pairs[..12]), default()),
        &["at offset 8", "4 bytes are left over"],
    );
    let packed = folder.file("a.npy.gz", gzip(&npy("<u8", "(2, 2)", &pairs)));
    assert_contains(&open(packed, default()), &["unpack it first"]);
    let strings = EdgeSourceOptions {
        ids: IdKind::String,
        ..default()
    };
    assert_contains(&open(folder.file("a.u64", &pairs), strings), &["--ids string"]);
}

#[test]
fn weights_of_their_own_go_with_the_rows_of_all_files() {
    let folder = Folder::new();
    let a = folder.file("a.u64", le(&[1_u64, 2, 3, 4], u64::to_le_bytes));
    let b = folder.file(
        "b.npy",
        npy("<i4", "(3, 2)", &le(&[5_i32, 6, 7, -8, 9, 10], i32::to_le_bytes)),
    );
    let weights = |numbers: &[f32]| {
        let shape = format!("({},)", numbers.len());
        Some(folder.file("w.npy", npy("<f4", &shape, &le(numbers, f32::to_le_bytes))))
    };
    for block_bytes in [1, 50, 1 << 20] {
        let options = EdgeSourceOptions {
            weights: weights(&[0.1, 0.2, 0.3, 0.4, 0.5]),
            ..skipping(block_bytes)
        };
        let source = EdgeSource::open(&[a.clone(), b.clone()], options).unwrap();
        assert!(source.weighted());
        let read = read(&source, 2).unwrap();
        assert_eq!(read.edges, [(1, 2), (3, 4), (5, 6), (9, 10)]);
        assert_eq!(read.weights, [0.1, 0.2, 0.3, 0.5]);
    }
    let open = |paths: &[PathBuf], weights| {
        let options = EdgeSourceOptions {
            weights,
            ..Default::default()
        };
        read(&EdgeSource::open(paths, options)?, 1)
    };
    let what = message(open(&[a.clone(), b.clone()], weights(&[1.0; 4])));
    assert_contains(&what, &["w.npy", "expected 5 weights", "found 4"]);
    let what = message(open(std::slice::from_ref(&a), weights(&[1.0, f32::INFINITY])));
    assert_contains(&what, &["a.u64 at row 1", "weight is not finite"]);
    let text = folder.file("c.tsv", "1 2\n");
    assert_contains(&message(open(&[text], weights(&[1.0]))), &["c.tsv", "third column"]);
    let text = folder.file("c.tsv", "1 2 3\n");
    assert_contains(&message(open(&[text], weights(&[1.0]))), &["c.tsv", "omit --weights"]);
}

#[test]
fn files_must_agree_on_having_weights() {
    let folder = Folder::new();
    let paths = [folder.file("a.tsv", "1 2 0.5\n"), folder.file("b.tsv", "1 2\n")];
    let what = message(EdgeSource::open(&paths, EdgeSourceOptions::default()));
    assert_contains(&what, &["b.tsv: edges here have no weight", "a.tsv have one"]);
}

#[test]
fn empty_missing_and_odd_inputs_are_refused() {
    let folder = Folder::new();
    let open = |paths: &[PathBuf]| EdgeSource::open(paths, EdgeSourceOptions::default());
    let empty = folder.file("empty.tsv", "");
    let comments = folder.file("comments.tsv", "# nothing\n\n");
    let no_rows = folder.file("none.npy", npy("<i8", "(0, 2)", &[]));
    for path in [&empty, &comments, &no_rows] {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_contains(&message(open(std::slice::from_ref(path))), &[name, "no edges"]);
    }
    // One empty part among others is what cluster programs write.
    let some = folder.file("some.tsv", "1 2\n");
    let rows = folder.file("some.npy", npy("<i4", "(1, 2)", &[0; 8]));
    assert_eq!(open(&[no_rows, rows]).unwrap().edges_hint(), Some(1));
    let source = open(&[empty.clone(), some, comments]).unwrap();
    assert_eq!(read(&source, 1).unwrap().edges, [(1, 2)]);
    assert_contains(
        &message(open(&[folder.0.path().join("absent")])),
        &["cannot open", "absent"],
    );
    assert_contains(&message(open(&[folder.0.path().to_owned()])), &["folder", "--ogb"]);
    assert_contains(&message(open(&["/dev/null".into()])), &["/dev/null", "a device"]);
    assert_contains(&message(open(&[])), &["--edges"]);
}

#[test]
fn truncated_and_damaged_compressed_files_are_named() {
    let folder = Folder::new();
    let text: String = (0..200_000)
        .map(|n: u64| format!("{} {}\n", n * 7919 % 99_991, n * 104_729 % 65_537))
        .collect();
    for (name, packed, kind) in [
        ("a.gz", gzip(text.as_bytes()), "gzip"),
        ("a.zst", zstd(text.as_bytes()), "Zstandard"),
    ] {
        let options = EdgeSourceOptions {
            block_bytes: 1 << 16,
            ..Default::default()
        };
        let whole = folder.file(name, &packed);
        assert_eq!(read_path(&whole, options.clone()).unwrap().edges.len(), 200_000);
        for cut in [packed.len() - 1, packed.len() - 9, packed.len() / 2] {
            let path = folder.file(name, &packed[..cut]);
            assert_contains(
                &message(read_path(&path, options.clone())),
                &[name, kind, "ends too early", "truncated"],
            );
        }
        let mut damaged = packed.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xa5);
        let path = folder.file(name, &damaged);
        // What the damage unpacks to may be a bad line before its checksum comes.
        assert_contains(&message(read_path(&path, options)), &[name]);
    }
}

#[test]
fn several_compressed_files_are_read_by_several_threads() {
    let folder = Folder::new();
    let mut expected = Vec::new();
    let paths: Vec<_> = (0..5_u64)
        .map(|file| {
            let text: String = (0..3000).map(|n| format!("{file} {n}\n")).collect();
            expected.extend((0..3000).map(|n| (file, n)));
            folder.file(&format!("{file}.gz"), gzip(text.as_bytes()))
        })
        .collect();
    let options = EdgeSourceOptions {
        block_bytes: 1000,
        ..Default::default()
    };
    let source = EdgeSource::open(&paths, options).unwrap();
    assert_eq!(read(&source, 4).unwrap().edges, expected);
}

#[test]
fn real_edge_lists_agree_in_text_and_array() {
    // The bundled graph is text alone: its array is written here.
    let text = std::fs::read_to_string(cora().join("edges.tsv")).unwrap();
    let ids: Vec<i64> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.split('\t').map(|id| id.parse().unwrap()))
        .collect();
    let folder = Folder::new();
    let array = folder.file("edges.npy", npy("<i8", "(5278, 2)", &le(&ids, i64::to_le_bytes)));
    let array = EdgeSource::open(&[array], skipping(1 << 12)).unwrap();
    let array = read(&array, 2).unwrap();
    assert_eq!(array.edges.len(), 5278);
    let text = EdgeSource::open(&[cora().join("edges.tsv")], skipping(1 << 12)).unwrap();
    assert_eq!(read(&text, 2).unwrap().edges, array.edges);

    for (name, count) in [("debian-bookworm", 321_812), ("wordnet", 361_638)] {
        let Some(data) = real_data(name) else { continue };
        let options = EdgeSourceOptions {
            block_bytes: 1 << 16,
            ..Default::default()
        };
        let array = EdgeSource::open(&[data.join("edges.npy")], options.clone()).unwrap();
        let array = read(&array, 2).unwrap();
        assert_eq!(array.edges.len(), count);
        let text = EdgeSource::open(&[data.join("edges.tsv.gz")], options).unwrap();
        assert_eq!(read(&text, 2).unwrap(), array);
    }
}
