//! Files that are odd, as tables of people and programs are: each is read as it is meant, or refused with a remedy. The commands of
//! remedies are run in `remedies.rs`.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use grappa_tests::{
    files::memory_folder,
    npy::Npy,
    parquet::{Column, write_table},
};

use super::{Case, Graph, Run, read, refused};

const E: &str = "--edges e.txt";
const CSV: &str = "--edges e.csv";
const STRINGS: &str = "--edges e.txt --ids string";
const SKIP: &str = "--on-bad-line skip";
const TRIANGLE: &str = "0>1&1>2&2>0";

const TEXT: &[Case] = &[
    read(&[("e.txt", "\u{feff}0 1\n1 2\n2 0\n")], E, "", TRIANGLE),
    read(
        &[("e.csv", "\u{feff}src,dst\n0,1\n1,2\n2,0\n")],
        CSV,
        "source src",
        TRIANGLE,
    ),
    read(&[("e.txt", "0 1\r\n1 2\r\n2 0\r\n")], E, "", TRIANGLE),
    read(&[("e.txt", "0 1\r\n1 2\n2 0\r\n")], E, "", TRIANGLE),
    read(&[("e.txt", "0 1\n1 2\n2 0")], E, "", TRIANGLE),
    read(&[("e.txt", "0 1")], E, "", "0>1"),
    read(&[("e.txt", "0 1 \n1 2  \n2 0\n")], E, "", TRIANGLE),
    read(&[("e.txt", "0\t1\t\n1\t2\t\n2\t0\t\n")], E, "", TRIANGLE),
    read(&[("e.txt", "  0 1\n\t1 2\n 2 0\n")], E, "", TRIANGLE),
    read(&[("e.txt", "0   1\n1 \t 2\n2\t0\n")], E, "", TRIANGLE),
    read(&[("e.txt", "\n0 1\n\n\n1 2\n\n2 0\n\n")], E, "", TRIANGLE),
    read(&[("e.txt", "0 , 1\n1,2\n2 ,0\n")], E, "commas", TRIANGLE),
    read(
        &[("e.csv", "\"0\",\"1\"\n\"1\",\"2\"\n\"2\",\"0\"\n")],
        CSV,
        "",
        TRIANGLE,
    ),
    read(&[("e.csv", "\"src\",\"dst\"\n\"0\",\"1\"\n")], CSV, "source src", "0>1"),
    read(&[("e.csv", "SRC,DST\n0,1\n")], CSV, "source SRC", "0>1"),
    read(&[("e.csv", " src , dst \n0,1\n")], CSV, "with a header", "0>1"),
    read(&[("e.csv", "0,1,,\n1,2,,\n2,0,,\n")], CSV, "left out: 3, 4", TRIANGLE),
    read(
        &[("e.csv", "src,dst,\n0,1,\n1,2,\n2,0,\n")],
        CSV,
        "source src",
        TRIANGLE,
    ),
    read(&[("e.txt", "0.0 1.0\n1.0 2\n2e0 0\n")], E, "", TRIANGLE),
    read(&[("e.txt", "0 1 1e-3\n1 0 -2.\n")], E, "", "0>1:0.001&1>0:-2"),
    read(
        &[("e.txt", "9223372036854775809 1\n")],
        "--edges e.txt --ids sparse",
        "",
        "9223372036854775809>1",
    ),
    read(
        &[("e.txt", "New\u{a0}York,Rome\n")],
        STRINGS,
        "commas",
        "New\u{a0}York>Rome",
    ),
    read(
        &[("e.txt", "\"a,b\",c\nc,\"d \"\"e\"\"\"\n")],
        STRINGS,
        "commas",
        "a,b>c&c>d \"e\"",
    ),
    read(&[("e.txt", "-1 2\n2 3\n")], STRINGS, "", "-1>2&2>3"),
    // An editor wrote the extension of a packed file that is not packed.
    read(&[("e.txt.gz", "0 1\n")], "--edges e.txt.gz", "", "0>1"),
    refused(
        &[("e.csv", ",src,dst\n0,0,1\n1,1,2\n")],
        CSV,
        "''",
        "--src src --dst dst",
        "0>1&1>2",
    ),
    refused(&[("e.csv", "src,src,dst\n0,5,1\n")], CSV, "the use of src", "", ""),
    refused(
        &[("e.csv", "a,a,b\n0,5,1\n")],
        "--edges e.csv --src a --dst b",
        "2 columns are called a",
        "--src the number of one: 1, 2",
        "",
    ),
    refused(&[("e.csv", "src,dst\n")], CSV, "there are no edges", "--nodes", ""),
    refused(&[("e.txt", "\n\n \n")], E, "there are no edges", "--nodes", ""),
    refused(&[("e.txt", "")], E, "there are no edges", "--nodes", ""),
    refused(&[("e.txt", "0\u{a0}1\n1\u{a0}2\n")], E, "not of ASCII", "normalize", ""),
    refused(&[("e.txt", "\u{200b}0,1\n1,2\n")], E, "not of ASCII", "normalize", ""),
    refused(&[("e.txt", "\u{ff10} \u{ff11}\n")], E, "not of ASCII", "normalize", ""),
    refused(&[("e.txt", "0\u{b}1\n")], E, "not of ASCII", "normalize", ""),
    refused(&[("e.txt", "0 1\n\u{c}1 2\n")], E, "e.txt:2", "normalize", ""),
    refused(&[("e.txt", "0 1\n1 2\n\u{1a}")], E, "e.txt:3", SKIP, "0>1&1>2"),
    refused(&[("e.txt", "0 1\n1\0 2\n")], E, "NUL", "tr -d", ""),
    refused(
        &[("e.txt", "\"a\nb\",c\nd,e\n")],
        STRINGS,
        "line breaks in quotes",
        "csv.reader",
        "",
    ),
    refused(
        &[("e.txt", "\"a\\\"b\",c\n")],
        STRINGS,
        "line breaks in quotes",
        "csv.reader",
        "",
    ),
    refused(
        &[("e.csv", "NA,1\n0,1\n")],
        CSV,
        "e.csv:1: a value is missing",
        SKIP,
        "0>1",
    ),
    refused(
        &[("e.csv", "0,1\nNULL,1\n")],
        CSV,
        "e.csv:2: a value is missing",
        SKIP,
        "0>1",
    ),
    refused(
        &[("e.txt", "0 1\nnan 1\n")],
        E,
        "e.txt:2: a value is missing",
        SKIP,
        "0>1",
    ),
    refused(
        &[("e.csv", "0,1\n,1\n")],
        CSV,
        "e.csv:2: the source is empty",
        SKIP,
        "0>1",
    ),
    refused(
        &[("e.csv", "0,1\n1,\n")],
        CSV,
        "e.csv:2: the target is empty",
        SKIP,
        "0>1",
    ),
    refused(
        &[("e.txt", "0 1\n1 inf\n")],
        E,
        "not an integer",
        "--ids string",
        "0>1&1>inf",
    ),
    refused(&[("e.txt", "0 1 .5\n1 2 nan\n")], E, "not finite", SKIP, "0>1:0.5"),
    refused(&[("e.txt", "0 1\n2.5 1\n")], E, "fraction", SKIP, "0>1"),
    refused(&[("e.txt", "0 1\n1e17 1\n")], E, "rounded", SKIP, "0>1"),
    refused(&[("e.txt", "-1 2\n2 3\n")], E, "negative", "--ids string", "-1>2&2>3"),
    refused(&[("e.txt", "+1 2\n0 1\n")], E, "plus sign", SKIP, "0>1"),
    refused(
        &[("e.txt", "18446744073709551616 1\n")],
        "--edges e.txt --ids sparse",
        "too large",
        "--ids string",
        "18446744073709551616>1",
    ),
    refused(
        &[("e.txt", "0x1 0x2\n")],
        E,
        "not an integer",
        "--ids string",
        "0x1>0x2",
    ),
    refused(
        &[("e.txt", "1_000 2\n")],
        E,
        "not an integer",
        "--ids string",
        "1_000>2",
    ),
    refused(&[("e.txt", "0 -> 1\n1 -> 2\n")], E, "only the integers", "tr -c", ""),
    refused(&[("e.txt", "0:1\n1:2\n")], E, "only the integers", "tr -c", ""),
    refused(&[("e.txt", "0::1::5\n1::2::3\n")], E, "only the integers", "tr -c", ""),
    refused(&[("e.txt", "[0, 1]\n[1, 2]\n")], E, "only the integers", "tr -c", ""),
    refused(&[("e.csv", "0,1\n1,2,\n2,0\n")], CSV, "end with separators", "sed", ""),
    refused(
        &[("e.csv", "src,dst\n0,1\nsrc,dst\n1,2\n")],
        CSV,
        "e.csv:3",
        SKIP,
        "0>1&1>2",
    ),
    refused(&[("e.csv", "src,dst\nint,int\n0,1\n")], CSV, "e.csv:2", SKIP, "0>1"),
    refused(
        &[("e.csv", "sep=;\r\nsrc;dst\r\n0;1\r\n")],
        CSV,
        "Excel",
        "tail -n +2",
        "",
    ),
    refused(&[("e.csv", "src,dst\n1,0,1\n2,1,2\n")], CSV, "names of rows", "sed", ""),
    refused(&[("e.txt", "0 1\n# end\n")], E, "e.txt:2", "grep -v", ""),
    refused(&[("e.txt", "// made by hand\n0 1\n")], E, "e.txt:1", SKIP, "0>1"),
    refused(&[("e.txt", "<!DOCTYPE html>\n<html>\n")], E, "a web page", "", ""),
    refused(
        &[("e.parquet", "0 1\n")],
        "--edges e.parquet",
        "it is text",
        "--format tsv",
        "",
    ),
];

#[test]
fn odd_text_is_read_as_it_is_meant_or_refused() {
    for case in TEXT {
        case.check();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An array of this type, whose elements are zeros unless they are given.
fn npy(descr: &str, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let array = Npy {
        descr: descr.to_owned(),
        fortran: false,
        shape: shape.to_vec(),
        bytes: bytes.to_vec(),
    };
    array.encode()
}

fn floats(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn odd_bytes_are_read_as_they_are_meant_or_refused() {
    let text = b"0 1\n1 2\n2 0\n";
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let utf16 = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
        let text = "0,1\n1,2\n".encode_utf16().flat_map(bytes);
        [mark.to_vec(), text.collect()].concat()
    };
    // The name, the contents, what the error says or nothing, and the edges.
    let files: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        ("e.txt.gz", [gzip(&text[..4]), gzip(&text[4..])].concat(), "", TRIANGLE),
        ("e.txt", gzip(text), "", TRIANGLE),
        ("e.txt.gz", [gzip(text), b"garbage".to_vec()].concat(), "gzip data", ""),
        ("e.txt.gz", gzip(text)[..20].to_vec(), "truncated", ""),
        ("e.txt.gz", gzip(b""), "there are no edges", ""),
        ("e.txt.gz.gz", gzip(&gzip(text)), "unpack it: gzip -dc", ""),
        ("e.txt.zst", [zstd(&text[..4]), zstd(&text[4..])].concat(), "", TRIANGLE),
        (
            "e.txt.zst",
            [zstd(text), b"garbage".to_vec()].concat(),
            "Zstandard data",
            "",
        ),
        ("e.csv", utf16(b"\xff\xfe", u16::to_le_bytes), "iconv -f utf-16", ""),
        ("e.csv", utf16(b"\xfe\xff", u16::to_be_bytes), "iconv -f utf-16", ""),
        ("e.txt", [text.as_slice(), &[0; 9]].concat(), "tr -d", ""),
        ("e.npy", npy("<i8", &[], &[0; 8]), "shape ()", ""),
        ("e.npy", npy("<i8", &[4], &[0; 32]), "shape (4,)", ""),
        ("e.npy", npy("<i8", &[2, 2, 2], &[0; 64]), "shape (2, 2, 2)", ""),
        ("e.npy", npy("<i8", &[3, 7], &[0; 168]), "shape (3, 7)", ""),
        ("e.npy", npy("|b1", &[5, 5], &[0; 25]), "argwhere", ""),
        ("e.npy", npy("|b1", &[1, 2], &[0; 2]), "found bool", ""),
        ("e.npy", npy("|O", &[1, 2], b"pickle"), "allow_pickle", ""),
        ("e.npy", npy("<c16", &[1, 2], &[0; 32]), "a.real", ""),
        ("e.npy", npy("<f16", &[1, 2], &[0; 32]), "astype(float)", ""),
        ("e.npy", npy("<M8[s]", &[1, 2], &[0; 16]), "astype('i8')", ""),
        ("e.npy", npy("<f8", &[1, 2], &floats(&[0.0, 1.0])), "", "0>1"),
        ("e.npy", npy("<f8", &[1, 2], &floats(&[0.0, 1.5])), "fraction", ""),
        (
            "e.npy",
            npy("<f8", &[1, 2], &floats(&[0.0, f64::NAN])),
            "a value is missing",
            "",
        ),
        ("e.npy", npy(">i4", &[1, 2], &[0, 0, 0, 0, 0, 0, 0, 1]), "", "0>1"),
        ("e.npy", npy("|i1", &[1, 2], &[0, 1]), "", "0>1"),
        ("e.npy", npy("|i1", &[1, 2], &[0, 255]), "negative", ""),
        ("e.npy", npy("<i8", &[0, 2], &[]), "there are no edges", ""),
        ("e.csv", npy("|u1", &[1, 2], &[0, 1]), "", "0>1"),
        ("e.csv", b"PARE\0\0PARE".to_vec(), "encrypted Parquet", ""),
    ];
    for (name, bytes, said, edges) in files {
        let run = Run {
            folder: memory_folder(),
        };
        fs::write(run.folder.path().join(name), bytes).unwrap();
        let arguments = format!("--edges {name}");
        if said.is_empty() {
            let graph = Graph {
                edges,
                ..Graph::default()
            };
            run.expect(&arguments, "", graph, name);
        } else {
            let error = run.ingest(&arguments).unwrap_err();
            assert!(
                error.contains(said) && error.contains(name),
                "{said:?} is not in {error}"
            );
        }
    }
}

#[test]
fn odd_columns_of_parquet_are_read_as_they_are_meant_or_refused() {
    let numbers = [0, 1, 2];
    let (floats, fractions, gaps) = ([0.0, 1.0, 2.0], [0.0, 1.0, 2.5], [0.0, f32::NAN, 2.0]);
    let (rounded, negative) = ([0.0, 1.0, 2e7], [0.0, -1.0, 2.0]);
    let cases = [
        (Column::Integers(&numbers), "", "0>0&1>1&2>2"),
        (Column::Floats(&floats), "", "0>0&1>1&2>2"),
        (Column::Floats(&fractions), "fraction", "0>0&1>1"),
        (Column::Floats(&gaps), "a value is missing", "0>0&2>2"),
        (Column::Floats(&rounded), "rounded", "0>0&1>1"),
        (Column::Floats(&negative), "negative", "0>0&2>2"),
    ];
    for (source, said, edges) in cases {
        let run = Run {
            folder: memory_folder(),
        };
        write_table(
            &run.folder.path().join("e.parquet"),
            &[("src", source), ("dst", Column::Integers(&numbers))],
            2,
        );
        let graph = Graph {
            edges,
            ..Graph::default()
        };
        let mut arguments = "--edges e.parquet".to_owned();
        if !said.is_empty() {
            let error = run.ingest(&arguments).unwrap_err();
            assert!(
                error.contains(said) && error.contains(SKIP),
                "{said:?} is not in {error}"
            );
            arguments += " --on-bad-line skip";
        }
        run.expect(&arguments, "", graph, said);
    }
}

#[test]
fn ids_of_nodes_may_be_floats_that_are_integers() {
    let run = Run {
        folder: memory_folder(),
    };
    let path = |name: &str| run.folder.path().join(name);
    fs::write(path("e.txt"), "5 7\n").unwrap();
    fs::write(path("x.txt"), "0.5\n1.5\n").unwrap();
    write_table(&path("ids.parquet"), &[("id", Column::Floats(&[7.0, 5.0]))], 1);
    fs::write(path("ids.npy"), npy("<f8", &[2], &floats(&[7.0, 5.0]))).unwrap();
    fs::write(path("ids.txt"), "7.0\n5.0\n").unwrap();
    let graph = Graph {
        edges: "5>7",
        features: "1.5 0.5",
        labels: "",
    };
    for ids in ["ids.parquet", "ids.npy", "ids.txt"] {
        let arguments = format!("--edges e.txt --ids sparse --features x.txt --node-ids {ids}");
        run.expect(&arguments, "", graph, ids);
    }
    write_table(&path("bad.parquet"), &[("id", Column::Floats(&[7.0, 5.5]))], 1);
    fs::write(path("bad.npy"), npy("<f8", &[2], &floats(&[7.0, 5.5]))).unwrap();
    fs::write(path("bad.txt"), "7.0\n5.5\n").unwrap();
    for ids in ["bad.parquet", "bad.npy", "bad.txt"] {
        let arguments = format!("--edges e.txt --ids sparse --features x.txt --node-ids {ids}");
        let error = run.ingest(&arguments).unwrap_err();
        assert!(error.contains(ids) && error.contains("fraction"), "{error}");
    }
}
