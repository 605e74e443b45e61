//! Files that are odd, as tables of people and programs are: each is read as it is meant, or refused with a remedy. The
//! commands of remedies are run in `remedies.rs`.

use grappa_tests::{
    archive::gzip,
    npy::Npy,
    parquet::{Column, write_table},
};

use super::{ExpectedGraph, IngestFolder, check_inputs};

const TEXT: &[&str] = &[
    "--edges e.txt",
    "e.txt: \u{feff}0 1\n1 2\n2 0\n |  | 0>1&1>2&2>0",
    "e.txt: 0 1\r\n1 2\r\n2 0\r\n |  | 0>1&1>2&2>0",
    "e.txt: 0 1\r\n1 2\n2 0\r\n |  | 0>1&1>2&2>0",
    "e.txt: 0 1\n1 2\n2 0 |  | 0>1&1>2&2>0",
    "e.txt: 0 1 |  | 0>1",
    "e.txt: 0 1 \n1 2  \n2 0\n |  | 0>1&1>2&2>0",
    "e.txt: 0\t1\t\n1\t2\t\n2\t0\t\n |  | 0>1&1>2&2>0",
    "e.txt:   0 1\n\t1 2\n 2 0\n |  | 0>1&1>2&2>0",
    "e.txt: 0   1\n1 \t 2\n2\t0\n |  | 0>1&1>2&2>0",
    "e.txt: \n0 1\n\n\n1 2\n\n2 0\n\n |  | 0>1&1>2&2>0",
    "e.txt: 0 , 1\n1,2\n2 ,0\n | commas | 0>1&1>2&2>0",
    "e.txt: 0.0 1.0\n1.0 2\n2e0 0\n |  | 0>1&1>2&2>0",
    "e.txt: 0 1 1e-3\n1 0 -2.\n |  | 0>1:0.001&1>0:-2",
    "e.txt: \n\n \n | !there are no edges | --nodes",
    "e.txt:  | !there are no edges | --nodes",
    "e.txt: 0\u{a0}1\n1\u{a0}2\n | !not of ASCII | normalize",
    "e.txt: \u{200b}0,1\n1,2\n | !not of ASCII | normalize",
    "e.txt: \u{ff10} \u{ff11}\n | !not of ASCII | normalize",
    "e.txt: 0\u{b}1\n | !not of ASCII | normalize",
    "e.txt: 0 1\n\u{c}1 2\n | !e.txt:2 | normalize",
    "e.txt: 0 1\n1 2\n\u{1a} | !e.txt:3 | --on-bad-line skip | 0>1&1>2",
    "e.txt: 0 1\n1\0 2\n | !NUL | tr -d",
    "e.txt: 0 1\nnan 1\n | !e.txt:2: a value is missing | --on-bad-line skip | 0>1",
    "e.txt: 0 1\n1 inf\n | !not an integer | --ids string | 0>1&1>inf",
    "e.txt: 0 1 .5\n1 2 nan\n | !not finite | --on-bad-line skip | 0>1:0.5",
    "e.txt: 0 1\n2.5 1\n | !fraction | --on-bad-line skip | 0>1",
    "e.txt: 0 1\n1e17 1\n | !rounded | --on-bad-line skip | 0>1",
    "e.txt: -1 2\n2 3\n | !negative | --ids string | -1>2&2>3",
    "e.txt: +1 2\n0 1\n | !plus sign | --on-bad-line skip | 0>1",
    "e.txt: 0x1 0x2\n | !not an integer | --ids string | 0x1>0x2",
    "e.txt: 1_000 2\n | !not an integer | --ids string | 1_000>2",
    "e.txt: 0 -> 1\n1 -> 2\n | !only the integers | tr -c",
    "e.txt: 0:1\n1:2\n | !only the integers | tr -c",
    "e.txt: 0::1::5\n1::2::3\n | !only the integers | tr -c",
    "e.txt: [0, 1]\n[1, 2]\n | !only the integers | tr -c",
    "e.txt: 0 1\n# end\n | !e.txt:2 | grep -v",
    "e.txt: // made by hand\n0 1\n | !e.txt:1 | --on-bad-line skip | 0>1",
    "e.txt: <!DOCTYPE html>\n<html>\n | !a web page",
    "--edges e.csv",
    "e.csv: \u{feff}src,dst\n0,1\n1,2\n2,0\n | source src | 0>1&1>2&2>0",
    "e.csv: \"0\",\"1\"\n\"1\",\"2\"\n\"2\",\"0\"\n |  | 0>1&1>2&2>0",
    "e.csv: \"src\",\"dst\"\n\"0\",\"1\"\n | source src | 0>1",
    "e.csv: SRC,DST\n0,1\n | source SRC | 0>1",
    "e.csv:  src , dst \n0,1\n | with a header | 0>1",
    "e.csv: 0,1,,\n1,2,,\n2,0,,\n | left out: 3, 4 | 0>1&1>2&2>0",
    "e.csv: src,dst,\n0,1,\n1,2,\n2,0,\n | source src | 0>1&1>2&2>0",
    "e.csv: ,src,dst\n0,0,1\n1,1,2\n | !'' | --src src --dst dst | 0>1&1>2",
    "e.csv: src,src,dst\n0,5,1\n | !the use of src",
    "e.csv: src,dst\n | !there are no edges | --nodes",
    "e.csv: NA,1\n0,1\n | !e.csv:1: a value is missing | --on-bad-line skip | 0>1",
    "e.csv: 0,1\nNULL,1\n | !e.csv:2: a value is missing | --on-bad-line skip | 0>1",
    "e.csv: 0,1\n,1\n | !e.csv:2: the source is empty | --on-bad-line skip | 0>1",
    "e.csv: 0,1\n1,\n | !e.csv:2: the target is empty | --on-bad-line skip | 0>1",
    "e.csv: 0,1\n1,2,\n2,0\n | !end with separators | sed",
    "e.csv: src,dst\n0,1\nsrc,dst\n1,2\n | !e.csv:3 | --on-bad-line skip | 0>1&1>2",
    "e.csv: src,dst\nint,int\n0,1\n | !e.csv:2 | --on-bad-line skip | 0>1",
    "e.csv: sep=;\r\nsrc;dst\r\n0;1\r\n | !Excel | tail -n +2",
    "e.csv: src,dst\n1,0,1\n2,1,2\n | !names of rows | sed",
    "--edges e.txt --ids sparse",
    "e.txt: 9223372036854775809 1\n |  | 9223372036854775809>1",
    "e.txt: 18446744073709551616 1\n | !too large | --ids string | 18446744073709551616>1",
    "--edges e.txt --ids string",
    "e.txt: New\u{a0}York,Rome\n | commas | New\u{a0}York>Rome",
    "e.txt: \"a,b\",c\nc,\"d \"\"e\"\"\"\n | commas | a,b>c&c>d \"e\"",
    "e.txt: -1 2\n2 3\n |  | -1>2&2>3",
    "e.txt: \"a\nb\",c\nd,e\n | !line breaks in quotes | csv.reader",
    "e.txt: \"a\\\"b\",c\n | !line breaks in quotes | csv.reader",
    "--edges e.txt.gz",
    // An editor wrote the extension of a packed file that is not packed.
    "e.txt.gz: 0 1\n |  | 0>1",
    "--edges e.csv --src a --dst b",
    "e.csv: a,a,b\n0,5,1\n | !2 columns are called a | --src the number of one: 1, 2",
    "--edges e.parquet",
    "e.parquet: 0 1\n | !it is text | --format tsv",
];

#[test]
fn odd_text_is_read_as_it_is_meant_or_refused() {
    check_inputs(None, TEXT);
}

/// An array of this type.
fn npy(descr: &str, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    Npy::raw(descr, shape, bytes).encode()
}

fn floats(numbers: &[f64]) -> Vec<u8> {
    Npy::new(&[1, numbers.len()], numbers.iter().copied()).encode()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 1).unwrap()
}

/// Text in UTF-16 after its mark.
fn utf16(bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    "\u{feff}0,1\n1,2\n".encode_utf16().flat_map(bytes).collect()
}

/// Reads files of bytes: the name with more options, the contents, and the edges after `=`, or parts of the error.
fn check_bytes(files: Vec<(&str, Vec<u8>, &'static str)>) {
    for (arguments, bytes, expected) in files {
        let folder = IngestFolder::new();
        let name = arguments.split(' ').next().unwrap();
        folder.write(name, bytes);
        let arguments = format!("--edges {arguments}");
        match expected.strip_prefix('=') {
            Some(edges) => folder.expect(&arguments, "", ExpectedGraph::new(edges, "", ""), expected),
            None => _ = folder.expect_error(&arguments, &[name, expected], expected),
        }
    }
}

#[test]
fn odd_bytes_are_read_as_they_are_meant_or_refused() {
    let text = b"0 1\n1 2\n2 0\n";
    check_bytes(vec![
        ("e.bin --format u64", vec![0; 16 * 5 + 8], "16 bytes && 8 bytes are left over"),
        ("e.txt", gzip(text), "=0>1&1>2&2>0"),
        ("e.txt.gz", [&gzip(text)[..], b"garbage"].concat(), "gzip data"),
        ("e.txt.gz", gzip(text)[..20].to_vec(), "truncated"),
        ("e.txt.gz", gzip(b""), "there are no edges"),
        ("e.txt.gz.gz", gzip(gzip(text)), "unpack it: gzip -dc"),
        ("e.txt.zst", [&zstd(text)[..], b"garbage"].concat(), "Zstandard data"),
        ("e.txt.zst", zstd(text)[..12].to_vec(), "truncated"),
        ("e.csv", utf16(u16::to_le_bytes), "iconv -f utf-16"),
        ("e.csv", utf16(u16::to_be_bytes), "iconv -f utf-16"),
        ("e.txt", [text.as_slice(), &[0; 9]].concat(), "tr -d"),
        ("e.txt", b"# nothing\n\n".to_vec(), "there are no edges"),
        ("e.u32", Vec::new(), "no edges"),
        ("e.u32", vec![0; 8 * 5 + 3], "8 bytes && 3 bytes are left over"),
        ("e.bin", vec![0; 16], "--format"),
        ("e.csv", b"PARE\0\0PARE".to_vec(), "encrypted Parquet"),
        ("e.parquet", b"PAR1 and no more".to_vec(), "write it again"),
    ]);
}

#[test]
fn a_wrong_npy_is_refused_with_the_call_that_would_mend_it() {
    let good = Npy::new(&[3, 2], [0i64, 1, 1, 2, 2, 0]);
    let whole = good.encode();
    let long = [&whole[..], b"x"].concat();
    check_bytes(vec![
        ("e.npy", npy("<i8", &[], &[0; 8]), "shape ()"),
        ("e.npy", npy("<i8", &[4], &[0; 32]), "[E, 2] && shape (4,)"),
        ("e.npy", npy("<i8", &[2, 2, 2], &[0; 64]), "shape (2, 2, 2)"),
        ("e.npy", npy("<i8", &[3, 7], &[0; 168]), "shape (3, 7)"),
        ("e.npy", npy("<i8", &[4, 3], &[0; 96]), "[E, 2] && --weights"),
        ("e.npy", npy("|b1", &[5, 5], &[0; 25]), "argwhere"),
        ("e.npy", npy("|b1", &[1, 2], &[0; 2]), "found bool"),
        ("e.npy", npy("|O", &[1, 2], b"pickle"), "allow_pickle && object"),
        ("e.npy", npy("<U4", &[1, 2], &[0; 32]), "U4"),
        ("e.npy", npy("<c16", &[1, 2], &[0; 32]), "a.real"),
        ("e.npy", npy("<f16", &[1, 2], &[0; 32]), "astype(float)"),
        ("e.npy", npy("<M8[s]", &[1, 2], &[0; 16]), "astype('i8')"),
        ("e.npy", floats(&[0.0, 1.0]), "=0>1"),
        ("e.npy", floats(&[0.0, 1.5]), "fraction && --on-bad-line skip"),
        ("e.npy", floats(&[0.0, f64::NAN]), "a value is missing"),
        ("e.npy", npy(">i4", &[1, 2], &[0, 0, 0, 0, 0, 0, 0, 1]), "=0>1"),
        ("e.npy", npy("|i1", &[1, 2], &[0, 1]), "=0>1"),
        ("e.npy", npy("|i1", &[1, 2], &[0, 255]), "negative"),
        ("e.npy", npy("<i8", &[0, 2], &[]), "there are no edges"),
        ("e.npy", b"0 1\n1 2\n".to_vec(), "--format tsv"),
        ("e.csv", npy("|u1", &[1, 2], &[0, 1]), "=0>1"),
        ("e.npy", npy("<i8", &[3, 2], &good.bytes[..47]), "truncated"),
        ("e.npy", npy("<i8", &[1 << 62, 2], &good.bytes), "truncated"),
        ("e.npy", long, "appended"),
    ]);
    for length in [0, 5, 9, 40, 127] {
        check_bytes(vec![("e.npy", whole[..length].to_vec(), "")]);
    }
}

#[test]
fn an_id_in_a_binary_file_is_held_to_the_same_limits() {
    for (bad, arguments, error) in
        [(-1, "", "negative"), (1 << 40, "", "too large"), (10, " --nodes 10", "not below the number of nodes, 10")]
    {
        let rows = Npy::new(&[3, 2], [0i64, 1, 1, 2, bad, 0]);
        let columns = Npy::new(&[2, 3], [0, 1, 0, 1, 2, bad]);
        for array in [rows, columns] {
            let folder = IngestFolder::new();
            folder.write("e.npy", array.encode());
            folder.expect_error(&format!("--edges e.npy{arguments}"), &["e.npy at row 2", error], error);
        }
    }
}

#[test]
fn odd_columns_of_parquet_are_read_as_they_are_meant_or_refused() {
    let numbers = Column::Integers(&[0, 1, 2]);
    for (source, said, edges) in [
        (numbers, "", "0>0&1>1&2>2"),
        (Column::Floats(&[0.0, 1.0, 2.0]), "", "0>0&1>1&2>2"),
        (Column::Floats(&[0.0, 1.0, 2.5]), "fraction", "0>0&1>1"),
        (Column::Floats(&[0.0, f32::NAN, 2.0]), "a value is missing", "0>0&2>2"),
        (Column::Floats(&[0.0, 1.0, 2e7]), "rounded", "0>0&1>1"),
        (Column::Floats(&[0.0, -1.0, 2.0]), "negative", "0>0&2>2"),
    ] {
        let folder = IngestFolder::new();
        write_table(&folder.path("e.parquet"), &[("src", source), ("dst", numbers)], 2);
        let mut arguments = "--edges e.parquet".to_owned();
        if !said.is_empty() {
            folder.expect_error(&arguments, &[said, "--on-bad-line skip"], said);
            arguments += " --on-bad-line skip";
        }
        folder.expect(&arguments, "", ExpectedGraph::new(edges, "", ""), said);
    }
}

#[test]
fn ids_of_nodes_may_be_floats_that_are_integers() {
    let folder = IngestFolder::new();
    folder.write("e.txt", "5 7\n");
    folder.write("x.txt", "0.5\n1.5\n");
    for (last, is_read) in [(5.0, true), (5.5, false)] {
        write_table(&folder.path("ids.parquet"), &[("id", Column::Floats(&[7.0, last]))], 1);
        folder.write("ids.npy", Npy::new(&[2], [7.0, f64::from(last)]).encode());
        folder.write("ids.txt", format!("7.0\n{last:.1}\n"));
        for ids in ["ids.parquet", "ids.npy", "ids.txt"] {
            let arguments = format!("--edges e.txt --ids sparse --features x.txt --node-ids {ids}");
            if is_read {
                folder.expect(&arguments, "", ExpectedGraph::new("5>7", "1.5 0.5", ""), ids);
            } else {
                folder.expect_error(&arguments, &[ids, "fraction"], ids);
            }
        }
    }
}
