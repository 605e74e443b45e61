//! Tests of edge lists in text: bad lines, headers, string ids.

use grappa_io::Position;

use super::*;

#[test]
fn bad_lines_are_errors_with_file_line_finding_and_remedy() {
    let folder = Folder::new();
    let cases: [(&str, &[u8], IdLimit, &[&str]); 23] = grappa_skip::cases![
        "a.tsv", b"1 2\n3\n", IdLimit::Dense,
            &["a.tsv:2: expected 2 columns", "found 1", "\"3\"", "--on-bad-line skip"];
        "a.tsv", b"# c\n\n1 2\n3 4 5\n", IdLimit::Dense, &["a.tsv:4: expected 2 columns", "found 3"];
        "a.tsv", b"1 2 3\n3 4", IdLimit::Dense, &["a.tsv:2: expected 3 columns (source, target, weight), found 2"];
        "a.tsv", b"1\n2\n", IdLimit::Dense, &["a.tsv:1: expected 2 columns", "found 1"];
        "a.tsv", b"1 2 3 4\n", IdLimit::Dense, &["a.tsv:1: expected 2 or 3 columns", "--src 1 --dst 2"];
        "a.tsv", b"1 2\nbob alice\n", IdLimit::Dense,
            &["a.tsv:2", "not an integer", "\"bob alice\"", "--ids string", "--header yes"];
        "a.tsv", b"src name\n1 2\n2 3\nx y\n", IdLimit::Dense, &["a.tsv:1", "not an integer"];
        "a.tsv", b"1 2\n1.5 2\n", IdLimit::Dense, &["a.tsv:2", "fraction"];
        "a.tsv", b"1 2\n1e17 2\n", IdLimit::Sparse, &["a.tsv:2", "rounded"];
        "a.tsv", b"1 2\n1e13 2\n", IdLimit::Dense, &["a.tsv:2", "below 2^40"];
        "a.tsv", b"1 2\n+1 2\n", IdLimit::Dense, &["a.tsv:2", "plus sign", "digits only"];
        "a.tsv", b"1 2\r2 3\r3 4\r", IdLimit::Dense, &["old Macs", "tr '\\r' '\\n'"];
        "a.csv", b"1,2\r2,3\r", IdLimit::Dense, &["old Macs", "tr '\\r' '\\n'"];
        "a.tsv", b"1 2\r\n7 -3\r\n", IdLimit::Dense, &["a.tsv:2", "negative", "\"7 -3\"", "--ids string"];
        "a.tsv", b"1 2\n1099511627776 3\n", IdLimit::Dense, &["a.tsv:2", "below 2^40", "--ids sparse"];
        "a.tsv", b"1 2\n3 10\n", IdLimit::Nodes(10), &["a.tsv:2", "not below the number of nodes, 10", "\"3 10\""];
        "a.tsv", b"1 2\n3 99999999999999999999\n", IdLimit::Sparse,
            &["a.tsv:2", "largest sparse id is 2^64 - 2", "--ids string"];
        "a.csv", b"1,2\n3,\n", IdLimit::Dense, &["a.csv:2", "empty"];
        "a.csv", b"1,2,nan\n", IdLimit::Dense, &["a.csv:1", "not finite"];
        "a.csv", b"1,2,1\n1,2,heavy\n", IdLimit::Dense, &["a.csv:2", "weight is not a number"];
        "a.csv", b"1,2\n\xff,2\n", IdLimit::Dense, &["a.csv:2", "UTF-8", "iconv"];
        "a.csv", b"1,2\n1\0,2\n", IdLimit::Dense, &["a.csv:2", "NUL", "--format"];
        "a.csv", b"1,2\n\x1b[2J,\"\n", IdLimit::Dense, &["a.csv:2", "\"\\u{1b}[2J,\\\"\""];
    ];
    for (name, text, id_limit, parts) in cases {
        for block_bytes in [1, 5, 1 << 20] {
            let options =
                EdgeSourceOptions { ends: EndIds::both(IdKind::Integer, id_limit), block_bytes, ..Default::default() };
            let plain = folder.file(name, text);
            assert_contains(&message(read_path(&plain, options.clone())), parts);
            let packed = folder.file(&format!("{name}.gz"), gzip(text));
            let parts: Vec<_> =
                parts.iter().map(|part| part.replace(&format!("{name}:"), &format!("{name}.gz:"))).collect();
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
            let error = message(read_path(&path, skipping(block_bytes)));
            assert_contains(&error, &[&format!("{name}:3: "), "longer than 1.0 MiB", "--format"]);
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
    let [first, second, third] = &read.rejected[..] else { panic!("three lines are bad: {:?}", read.rejected) };
    assert_eq!((first.position, first.reason, &*first.text), (Position::Line(2), BadEdge::NotInteger, "x y"));
    assert_eq!((second.position, second.reason, &*second.text), (Position::Line(4), BadEdge::Negative, "2 -2"));
    assert_eq!((third.position, third.text.len()), (Position::Line(6), REJECT_BYTES_MAX));
}

#[test]
fn headers_marks_quotes_and_missing_last_line_ends_are_understood() {
    let folder = Folder::new();
    let cases: [(&str, &str); 8] = grappa_skip::cases![
        "a.csv", "source,target\n1,2\n3,4";
        "a.csv", "\u{feff}who,whom\r\n1,2\r\n3,4\r\n";
        "a.csv", "# made by hand\n\n\"follower\", \"followed\"\n\"1\", \"2\"\n3,4\n";
        "a.csv", "\u{feff}1,2\n3,4";
        "a.csv", "1 2\n3\t4";
        "a.tsv", "src\tdst\n1\t2\n3\t4\n";
        "a.txt", "% comment\n# comment\n 1   2 \n\n3 , 4\n";
        "noextension", "1\t2\n3\t4";
    ];
    for (name, text) in cases {
        for block_bytes in [1, 7, 1 << 20] {
            let options = EdgeSourceOptions { block_bytes, ..Default::default() };
            let path = folder.file(name, text);
            assert_eq!(read_path(&path, options.clone()).unwrap().edges, [(1, 2), (3, 4)], "{text:?}");
            let path = folder.file(&format!("{name}.zst"), zstd(text.as_bytes()));
            assert_eq!(read_path(&path, options).unwrap().edges, [(1, 2), (3, 4)], "{text:?}");
        }
    }
}

/// Edges between strings, their weights, and the rejected lines.
type KeysRead = (Vec<(String, String)>, Vec<f32>, Vec<Reject>);

fn keys(path: &Path, options: EdgeSourceOptions) -> Result<KeysRead> {
    let options = EdgeSourceOptions { ends: EndIds::both(IdKind::String, IdLimit::Dense), ..options };
    let source = EdgeSource::open(&[path.to_owned()], options)?;
    let (mut edges, mut weights, mut rejected) = Default::default();
    let mut batch = TextBatch::default();
    let text = |key: &[u8]| std::str::from_utf8(key).unwrap().to_owned();
    while let Some(block) = source.next_block(&|_| false)? {
        block.parse_text(&mut batch, &mut |reject| {
            Vec::push(&mut rejected, reject);
            Ok(())
        })?;
        let pairs = batch.sources.iter().zip(batch.targets.iter());
        Vec::extend(&mut edges, pairs.map(|(source, target)| (text(source), text(target))));
        Vec::extend(&mut weights, &batch.values);
    }
    Ok((edges, weights, rejected))
}

#[test]
fn string_keys_keep_what_separates_them_elsewhere() {
    let folder = Folder::new();
    let cases: [(&str, &str, (&str, &str)); 7] = grappa_skip::cases![
        "a.tsv", "New York\tSão Paulo\n", ("New York", "São Paulo");
        "a.tsv", "a,b c\n", ("a", "b c");
        "a.csv", "New York, São Paulo\n", ("New York", "São Paulo");
        "a.csv", "\"York, New\",\"the \"\"big\"\" one\"\n", ("York, New", "the \"big\" one");
        "a.csv", "source,target\nx,y\n", ("x", "y");
        "a.txt", "  x    y  \r\n", ("x", "y");
        "a.txt", "12 13", ("12", "13");
    ];
    for (name, text, (source, target)) in cases {
        for block_bytes in [1, 9, 1 << 20] {
            let options = EdgeSourceOptions { block_bytes, ..Default::default() };
            let (edges, _, _) = keys(&folder.file(name, text), options).unwrap();
            assert_eq!(edges, [(source.to_owned(), target.to_owned())], "{text:?}");
        }
    }
    let (edges, weights, _) = keys(&folder.file("a.csv", "a b,c,0.5\n"), EdgeSourceOptions::default()).unwrap();
    assert_eq!((edges.len(), weights), (1, vec![0.5]));
}

#[test]
fn column_names_that_may_be_string_ids_are_read_as_the_format_or_the_user_says() {
    let folder = Folder::new();
    let (header, edge) = ("is read as a header, not as an edge", "is read as an edge; give");
    let cases: [(&str, &str, HeaderLine, bool, &str); 18] = [
        ("a.tsv", "u\tv\nv\tw\n", HeaderLine::Auto, true, header),
        ("a.txt", "# words\nhead tail\nv w\n", HeaderLine::Auto, false, edge),
        ("a.csv", "source,target\nv,w\n", HeaderLine::Auto, true, header),
        ("a.csv", "\"Subject\",\"Object\"\nv,w\n", HeaderLine::Auto, true, header),
        ("a.csv", "follower,followee\nv,w\n", HeaderLine::Auto, true, header),
        ("a.csv", "follower,followee\nv,w\n", HeaderLine::Yes, true, ""),
        // Names that are not known.
        ("a.csv", "fan,idol\nv,w\n", HeaderLine::Auto, false, edge),
        ("a.tsv", "fan\tidol\nv\tw\n", HeaderLine::Auto, false, edge),
        ("a.csv", "fan,idol\nv,w\n", HeaderLine::No, false, ""),
        ("a.csv", "fan,idol\nv,w\n", HeaderLine::Yes, true, ""),
        // These are not names of columns.
        ("a.csv", "a,17\nv,w\n", HeaderLine::Auto, false, ""),
        ("a.csv", "a,b,0.5\nv,w,1\n", HeaderLine::Auto, false, ""),
        ("a.txt", "a b\nv w\n", HeaderLine::Auto, false, ""),
        // A CSV line is split at commas only.
        ("a.csv", "from to,weight\nv,w\n", HeaderLine::Auto, false, edge),
        ("a.tsv", "u\tv\nv\tw\n", HeaderLine::Yes, true, ""),
        ("a.tsv", "u\tv\nv\tw\n", HeaderLine::No, false, ""),
        ("a.csv", "source,target\nv,w\n", HeaderLine::No, false, ""),
        ("a.csv", "v,w\nsource,target\nv,w\n", HeaderLine::Yes, false, ""),
    ];
    for (name, text, given, is_header, warned) in cases {
        let options = EdgeSourceOptions {
            header: given,
            ends: EndIds::both(IdKind::String, IdLimit::Dense),
            ..Default::default()
        };
        for (name, bytes) in [(name.to_owned(), text.into()), (format!("{name}.zst"), zstd(text.as_bytes()))] {
            let path = folder.file(&name, bytes);
            let (edges, ..) = keys(&path, options.clone()).unwrap();
            assert_eq!(edges.len(), if is_header { 1 } else { 2 }, "{text:?}, {given:?}");
            assert_eq!(edges.last(), Some(&("v".to_owned(), "w".to_owned())));
            let warnings = EdgeSource::open(&[path], options.clone()).unwrap().warnings();
            match warned {
                "" => assert_eq!(warnings, [""; 0], "{text:?}"),
                _ => assert_contains(&warnings.concat(), &[&name, warned, "give --header"]),
            }
        }
    }
    // One message about several files.
    let files = ["b.tsv", "c.tsv", "d.tsv"].map(|name| folder.file(name, "u v\nv w\n"));
    let options = EdgeSourceOptions { ends: EndIds::both(IdKind::String, IdLimit::Dense), ..Default::default() };
    let warnings = EdgeSource::open(&files, options).unwrap().warnings();
    assert_eq!(warnings.len(), 1);
    assert_contains(&warnings[0], &["b.tsv:1: the first line, \"u v\"", "in 2 more files"]);
}

#[test]
fn usual_pairs_of_column_names_are_a_header_of_string_ids() {
    let folder = Folder::new();
    for names in [
        "source,destination",
        "source_node,target_node",
        "SRC_NODE,DST_NODE",
        "from_node,to_node",
        "from_id,to_id",
        "node1,node2",
        "node_1,node_2",
        "id_1,id_2",
        "citing,cited",
        "from_user,to_user",
        "follower,followee",
    ] {
        let path = folder.file("a.csv", format!("{names}\nv,w\nw,x\n"));
        let (edges, ..) = keys(&path, EdgeSourceOptions::default()).unwrap();
        assert_eq!(edges.len(), 2, "{names}");
    }
}

#[test]
fn a_third_column_that_is_hardly_a_weight_is_refused_or_a_warning() {
    let folder = Folder::new();
    let open = |text: &str| EdgeSource::open(&[folder.file("a.csv", text)], EdgeSourceOptions::default());
    assert_contains(
        &message(open("src,dst,timestamp\n1,2,3\n")),
        &["a.csv:1", "--src src --dst dst", "--weight timestamp"],
    );
    for text in ["1,2,1700000000\n1,3,1\n", "src,dst,weight\n1,2,1700000000\n"] {
        let warnings = open(text).unwrap().warnings().concat();
        assert_contains(&warnings, &["a.csv:", "is stored as edge weights", "--weight none"]);
    }
    for text in ["src,dst,Weight\n1,2,3\n", "1,2,0.5\n", "1,2\n"] {
        assert_eq!(open(text).unwrap().warnings(), [""; 0], "{text}");
    }
}

#[test]
fn names_in_a_header_give_the_order_of_the_columns() {
    let folder = Folder::new();
    let open = |path: &Path, header| {
        let options = EdgeSourceOptions { header, ..Default::default() };
        EdgeSource::open(&[path.to_owned()], options)
    };
    for (name, text) in [
        ("a.csv", "dst,src\n1,2\n1,3\n"),
        ("a.csv", "\"Target\", \"Source\"\n1,2\n1,3\n"),
        ("a.tsv", "to\tfrom\tweight\n1\t2\t0.5\n1\t3\t0.5\n"),
        ("a.txt", "dst,src\n1,2\n1,3\n"),
    ] {
        for header in [HeaderLine::Auto, HeaderLine::Yes] {
            for path in [folder.file(name, text), folder.file("a.csv.zst", zstd(text.as_bytes()))] {
                let source = open(&path, header).unwrap();
                assert_eq!(read(&source, 1).unwrap().edges, [(2, 1), (3, 1)], "{text:?}");
                assert_contains(&source.warnings().concat(), &["names the targets first"]);
            }
        }
    }
    // The same line without a header, names of other columns, and string ids.
    let path = folder.file("a.csv", "src,dst\n1,2\n");
    assert_eq!(read(&open(&path, HeaderLine::Yes).unwrap(), 1).unwrap().edges, [(1, 2)]);
    assert_eq!(open(&path, HeaderLine::Yes).unwrap().warnings(), [""; 0]);
    let path = folder.file("a.csv", "to,from\nv,w\n");
    let (edges, ..) = keys(&path, EdgeSourceOptions::default()).unwrap();
    assert_eq!(edges, [("w".to_owned(), "v".to_owned())]);
    // Any other order, and an option that says another one.
    for text in ["weight,src,dst\n0.5,1,2\n", "src,weight,dst\n1,0.5,2\n"] {
        let source = open(&folder.file("a.csv", text), HeaderLine::Auto).unwrap();
        let read = read(&source, 1).unwrap();
        assert_eq!((read.edges, read.values), (vec![(1, 2)], vec![0.5]), "{text}");
    }
}

#[test]
fn last_columns_without_values_are_left_out() {
    let folder = Folder::new();
    for (name, text, left_out) in [
        ("a.csv", "0,1,\n2,3,\n", "3"),
        ("a.csv", "0;1;;\n2;3;;\n", "3 4"),
        ("a.txt", "0 ,1,\n2, 3 , \n", "3"),
        ("a.csv", "src,dst,\n0,1,\n2,3,\n", ""),
        ("a.csv", "src,dst\n0,1,\n2,3,\n", ""),
        ("a.csv", "src,dst,\n0,1\n2,3\n", ""),
    ] {
        let source = EdgeSource::open(&[folder.file(name, text)], EdgeSourceOptions::default()).unwrap();
        let read = read(&source, 1).unwrap();
        assert_eq!((read.edges, read.values.len()), (vec![(0, 1), (2, 3)], 0), "{text}");
        assert_eq!(source.readings()[0].left_out.join(" "), left_out, "{text}");
    }
    let source = EdgeSource::open(&[folder.file("a.csv", "0,1,.5,\n2,3,1,\n")], EdgeSourceOptions::default());
    assert_eq!(read(&source.unwrap(), 1).unwrap().values, [0.5, 1.0]);
    // A column with a name is one of the edges, though it is empty.
    let named = folder.file("a.csv", "src,dst,weight\n0,1,\n2,3,\n");
    assert_contains(
        &message(read_path(&named, EdgeSourceOptions::default())),
        &["a.csv:2", "the weight is empty", "--weight none"],
    );
    // Beyond the lines that show the columns.
    let text = format!("{}2,3,9\n", "0,1,\n".repeat(1001));
    let path = folder.file("a.csv", text);
    assert_contains(
        &message(read_path(&path, EdgeSourceOptions::default())),
        &["a.csv:1002", "last column", "--src 1 --dst 2"],
    );
    let (edges, ..) = keys(&folder.file("a.csv", "a,b,\nc,d,\n"), EdgeSourceOptions::default()).unwrap();
    assert_eq!(edges.len(), 2);
}

#[test]
fn empty_cells_are_named_with_their_column() {
    let folder = Folder::new();
    for (text, parts) in [
        ("0,1\n,2\n", ["a.csv:2", "the source is empty"]),
        ("0,1\n2,\n", ["a.csv:2", "the target is empty"]),
        ("0,1,5\n2,3,\n", ["a.csv:2", "the weight is empty"]),
        ("src,x,dst\n0,a,1\n2,b,\n", ["a.csv:3", "the target is empty"]),
    ] {
        let path = folder.file("a.csv", text);
        let columns = EdgeColumnOptions {
            source: text.starts_with("src").then(|| "src".to_owned()),
            target: text.starts_with("src").then(|| "dst".to_owned()),
            ..Default::default()
        };
        let options = EdgeSourceOptions { columns, ..Default::default() };
        let error = message(read_path(&path, options.clone()));
        assert_contains(&error, &parts);
        assert_contains(&error, &["--on-bad-line skip"]);
        let skip = EdgeSourceOptions { on_bad_line: OnBadLine::Skip, ..options };
        assert_eq!(read_path(&path, skip).unwrap().edges, [(0, 1)]);
    }
}

#[test]
fn integers_that_were_written_as_floats_are_read() {
    let folder = Folder::new();
    let text = "0.0,1.00\n2.,3\n4e0,1.5e1\n1.000000000000000000e+00,9007199254740993.0\n";
    let options = EdgeSourceOptions { ends: EndIds::both(IdKind::Integer, IdLimit::Sparse), ..Default::default() };
    assert_eq!(
        read_path(&folder.file("a.csv", text), options).unwrap().edges,
        [(0, 1), (2, 3), (4, 15), (1, 9_007_199_254_740_993)]
    );
}

#[test]
fn ids_that_count_from_one_are_noticed() {
    let folder = Folder::new();
    for (text, expected) in [("1 2\n2 3\n", true), ("1 2\n0 3\n", false), ("5 7\n", false)] {
        let source = EdgeSource::open(&[folder.file("a.txt", text)], EdgeSourceOptions::default()).unwrap();
        read(&source, 1).unwrap();
        assert_eq!(source.counts_from_one(), expected, "{text}");
    }
}

#[test]
fn lines_of_other_columns_are_refused_with_a_remedy_that_helps() {
    let folder = Folder::new();
    let refused = |name: &str, text: &str| message(read_path(&folder.file(name, text), EdgeSourceOptions::default()));
    assert_contains(&refused("a.tsv", "1~2\n"), &["found 1", "give --separator"]);
    for error in [
        refused("a.csv", "src,dst,type,time\n1,2,3,4\n5,6,7,8\n"),
        message(read_path(&folder.file("a.csv", "src,dst,type,time\n1,2,3,4\n5,6,7,8\n"), skipping(1 << 20))),
    ] {
        assert_contains(&error, &["a.csv:1: ", "the use of type, time", "--src src --dst dst"]);
        assert!(!error.contains("--on-bad-line"), "{error}");
    }
}

#[test]
fn bad_string_keys_are_rejected() {
    let folder = Folder::new();
    let bad: [(&[u8], BadEdge); 7] = [
        (b"a,", BadEdge::EmptyTarget),
        (b",b", BadEdge::EmptySource),
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
