//! Edge lists in all formats. The first byte of an input selects options, the rest is the file.
//!
//! Each file is read in small blocks, and then in one block. Both must give the same result.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use grappa_input::{
    EdgeBatch, EdgeFormat, EdgeSource, EdgeSourceOptions, EndIds, HeaderLine, IdKind, OnBadLine, TextBatch,
};
use grappa_io::Result;
use grappa_tests::{archive::write_npz, npy::Npy, parquet::write_parquet};

use super::shared::{ids_of, same_outcome, small, with_choice};
use crate::{Input, Target, repair::zip_after_choice, scratch::Scratch, target::Repair};

/// Words of text files.
const TEXT: &[&str] = &[
    "\t",
    " ",
    ",",
    "\n",
    "\r\n",
    "\r",
    "#",
    "%",
    "//",
    "\"",
    "'",
    "\"\"",
    "-",
    "+",
    ".",
    "e",
    "nan",
    "inf",
    "src,dst\n",
    "\u{feff}",
    "\0",
    "\u{a0}",
    "0x10",
    "1_000",
    "0 1\n",
    "7\t8\t0.5\n",
    ";",
    "|",
    "%%MatrixMarket matrix coordinate real symmetric\n",
    "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n",
];

/// Words of array headers.
pub(super) const NPY: &[&str] = &[
    "'descr'",
    "'fortran_order'",
    "'shape'",
    "True",
    "False",
    "'<i8'",
    "'<u4'",
    "'<f4'",
    "'<f8'",
    "'|b1'",
    "'>i8'",
    "'|O'",
    "(2, 3)",
    "(3,)",
    "()",
    "(0, 2)",
    "(18446744073709551615, 2)",
    "{",
    "}",
    ", ",
    "L",
    "\n",
    "[('a', '<i8')]",
];

fn target(
    name: &'static str,
    words: &'static [&'static str],
    seeds: fn() -> Vec<Vec<u8>>,
    run: fn(&Input) -> String,
) -> Target {
    Target {
        // Buffers of lines and of unpackers, and a block.
        memory_base: 24 << 20,
        ..small(name, words, seeds, run)
    }
}

pub fn targets() -> Vec<Target> {
    vec![
        target("edge-text", TEXT, text_seeds, run_text),
        target("edge-packed", TEXT, packed_seeds, run_packed),
        target("edge-npy", NPY, npy_seeds, run_npy),
        Target { repair: Repair::With(zip_after_choice), ..target("edge-npz", NPY, npz_seeds, run_npz) },
        target("edge-parquet", &["PAR1", "schema", "src", "dst"], parquet_seeds, run_parquet),
    ]
}

/// The file that `write` writes to the path that it gets.
pub(super) fn written(write: impl FnOnce(&Path)) -> Vec<u8> {
    let scratch = Scratch::new();
    let path = scratch.path().join("file");
    write(&path);
    fs::read(path).expect("it was just written")
}

fn text_seeds() -> Vec<Vec<u8>> {
    let files = [
        "0 1\n1\t2\n2,3\n",
        "# comment\n% more\n0 1 0.5\r\n1 2 -1e3\r\n\r\n3 4 7",
        "src,dst\na,b\n\"quoted, key\",c\n\"with \"\"quotes\"\"\",d\n",
        "12345678901 1099511627775\n0 0\n18446744073709551614 1\n",
        "\u{e9}t\u{e9} \u{65e5}\u{672c}\nx y\n",
        "0 1\nnot an edge\n1 2 3 4 5\n-1 2\n5\n6 7\n",
    ];
    let seeds =
        files.iter().flat_map(|file| [0, 2, 9, 0x2a, 0x43, 0x67].map(|choice| with_choice(choice, file.as_bytes())));
    let others = [
        (0x2a, "a;b;1\n\"c;d\";e;2\n"),
        (0, "weight|to|from\n1|2|3\n"),
        (1, "1;2\n3;4\n"),
        (2, "%%MatrixMarket matrix coordinate real symmetric\n% c\n3 3 2\n2 1 0.5\n3 3 1\n"),
    ];
    let others = others.map(|(choice, file)| with_choice(choice, file.as_bytes()));
    seeds.chain(others).collect()
}

fn packed_seeds() -> Vec<Vec<u8>> {
    let text: String = (0..300).map(|i| format!("{} {}\n", i * 7 % 100, i)).collect();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).expect("memory takes all bytes");
    let gzip = gzip.finish().expect("memory takes all bytes");
    let zstd = zstd::encode_all(text.as_bytes(), 1).expect("memory takes all bytes");
    vec![
        with_choice(0, &gzip),
        with_choice(3, &zstd),
        with_choice(2, [&gzip[..], &gzip].concat()),
        with_choice(1, [&zstd[..], &zstd].concat()),
    ]
}

fn npy_seeds() -> Vec<Vec<u8>> {
    let pairs = [0i64, 1, 1, 2, 2, 3];
    let files = [
        Npy::new(&[3, 2], pairs).encode(),
        Npy::new(&[2, 3], pairs).encode(),
        Npy::new(&[3, 2], pairs.map(|id| id as u32)).encode(),
        Npy::new(&[40, 2], 0..80u64).encode(),
        Npy::new(&[0, 2], [0i32; 0]).encode(),
    ];
    let seeds = files.iter().enumerate().map(|(k, file)| with_choice(k as u8, file));
    // Pairs of integers without a header.
    let raw: Vec<u8> = pairs.iter().flat_map(|id| id.to_le_bytes()).collect();
    seeds.chain([with_choice(0x40, &raw), with_choice(0x60, &raw)]).collect()
}

fn npz_seeds() -> Vec<Vec<u8>> {
    let edges = || Npy::new(&[3, 2], [0i64, 1, 1, 2, 2, 3]);
    let archive = |arrays: &[(&str, Npy)]| written(|path| write_npz(path, arrays));
    vec![
        with_choice(0, archive(&[("edge_index", edges())])),
        with_choice(1, archive(&[("x", Npy::new(&[3], [0.5f32; 3])), ("edges", edges())])),
        with_choice(2, archive(&[("only", Npy::new(&[2, 30], 0..60u32))])),
        with_choice(3, deflated(&archive(&[("edge_list", Npy::new(&[30, 2], 0..60i64))]))),
    ]
}

/// An archive with one compressed member.
pub(super) fn deflated(archive: &[u8]) -> Vec<u8> {
    let entry = archive.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").expect("an entry");
    let (local, directory) = archive.split_at(entry);
    let name = usize::from(u16::from_le_bytes([local[26], local[27]]));
    let data = 30 + name;
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&local[data..]).expect("memory takes all bytes");
    let packed = packed.finish().expect("memory takes all bytes");

    let (mut head, mut directory) = (local[..data].to_vec(), directory.to_vec());
    for (bytes, at) in [(&mut head, 0), (&mut directory, 2)] {
        bytes[at + 8..at + 10].copy_from_slice(&8u16.to_le_bytes());
        bytes[at + 18..at + 22].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    }
    let end = directory.len() - 22;
    let at = (head.len() + packed.len()) as u32;
    directory[end + 16..end + 20].copy_from_slice(&at.to_le_bytes());
    [head, packed, directory].concat()
}

fn parquet_seeds() -> Vec<Vec<u8>> {
    let edges = |count: u64| (0..count).map(|i| (i * 5 % 17, i)).collect::<Vec<_>>();
    let weights: Vec<f32> = (0..150).map(|i| i as f32 / 2.0).collect();
    vec![
        with_choice(0, written(|path| write_parquet(path, &edges(3), None))),
        with_choice(1, written(|path| write_parquet(path, &edges(150), None))),
        with_choice(2, written(|path| write_parquet(path, &edges(150), Some(&weights)))),
    ]
}

fn run_text(input: &Input) -> String {
    let (choice, bytes) = input.choice();
    let format = match choice >> 6 {
        1 => EdgeFormat::Csv,
        _ => EdgeFormat::Tsv,
    };
    read(input.scratch.file("edges.tsv", bytes), choice, format)
}

fn run_packed(input: &Input) -> String {
    let (choice, bytes) = input.choice();
    let name = match choice & 1 {
        0 => "edges.tsv.gz",
        _ => "edges.tsv.zst",
    };
    read(input.scratch.file(name, bytes), choice, EdgeFormat::Auto)
}

fn run_npy(input: &Input) -> String {
    let (choice, bytes) = input.choice();
    let format = match choice >> 5 {
        2 => EdgeFormat::U64,
        3 => EdgeFormat::U32,
        _ => EdgeFormat::Npy,
    };
    // Arrays have no string ids.
    read(input.scratch.file("edges.npy", bytes), choice & 0x1f, format)
}

fn run_npz(input: &Input) -> String {
    let (choice, bytes) = input.choice();
    read(input.scratch.file("edges.npz", bytes), choice & 0x1f, EdgeFormat::Auto)
}

fn run_parquet(input: &Input) -> String {
    let (choice, bytes) = input.choice();
    read(input.scratch.file("edges.parquet", bytes), choice, EdgeFormat::Parquet)
}

/// The contents of a file.
#[derive(Debug, Default, PartialEq)]
struct Read {
    sources: Vec<u64>,
    targets: Vec<u64>,
    /// String ids, each with its length.
    text: Vec<(Vec<u8>, Vec<u8>)>,
    weights: Vec<u32>,
    rejected: usize,
}

fn read(path: PathBuf, choice: u8, format: EdgeFormat) -> String {
    let (ids, id_limit) = ids_of(choice);
    let options = |block_bytes| EdgeSourceOptions {
        format,
        ends: EndIds::both(ids, id_limit),
        weights: None,
        allow_empty: choice & 0x40 != 0,
        on_bad_line: match choice & 4 {
            0 => OnBadLine::Fail,
            _ => OnBadLine::Skip,
        },
        header: HeaderLine::Auto,
        block_bytes,
        ..EdgeSourceOptions::default()
    };
    let block_bytes = [1, 16, 100, 1000][usize::from(choice & 3)];
    same_outcome(read_all(&path, options(block_bytes)), read_all(&path, options(1 << 18)), |read| {
        format!(
            "accepted, weighted: {}, text: {}, rejected: {}",
            !read.weights.is_empty(),
            !read.text.is_empty(),
            read.rejected.min(2)
        )
    })
}

fn read_all(path: &Path, options: EdgeSourceOptions) -> Result<Read> {
    let (ids, limit) = (options.ends[0].kind, options.ends[0].limit.exclusive());
    let source = EdgeSource::open(&[path.to_owned()], options)?;
    let (mut batch, mut text) = (EdgeBatch::default(), TextBatch::default());
    let mut read = Read::default();
    let mut input_bytes = 0;
    while let Some(block) = source.next_block(&|_| false)? {
        input_bytes += block.input_bytes();
        let mut on_reject = |_| {
            read.rejected += 1;
            Ok(())
        };
        let (weights, edges) = match ids {
            IdKind::Integer => {
                block.parse(&mut batch, &mut on_reject)?;
                read.sources.extend(&batch.sources);
                read.targets.extend(&batch.targets);
                (&batch.values, batch.sources.len())
            }
            IdKind::String => {
                block.parse_text(&mut text, &mut on_reject)?;
                let pairs = text.sources.iter().zip(text.targets.iter());
                assert!(
                    text.sources
                        .iter()
                        .chain(text.targets.iter())
                        .all(|key| str::from_utf8(key).is_ok_and(|key| !key.is_empty()))
                );
                read.text.extend(pairs.map(|(source, target)| (source.to_vec(), target.to_vec())));
                (&text.values, text.sources.len())
            }
        };
        assert_eq!(weights.len(), if source.weighted() { edges } else { 0 });
        assert!(weights.iter().all(|weight| weight.is_finite()));
        read.weights.extend(weights.iter().map(|weight| weight.to_bits()));
    }
    assert_eq!(read.sources.len(), read.targets.len());
    assert!(read.sources.iter().chain(&read.targets).all(|&id| id < limit), "ids are below {limit}");
    assert!(input_bytes <= source.total_bytes(), "{input_bytes} of {}", source.total_bytes());
    Ok(read)
}
