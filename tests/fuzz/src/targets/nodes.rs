//! Files with data of nodes: features, labels, splits, parts; and edge weights. The first byte of an input selects
//! options, the rest is the file.
//!
//! Rows are read a few at a time, and then all at once. Both must give the same result.

use std::path::Path;

use grappa_input::{
    EdgeBatch, EdgeSource, EdgeSourceOptions, IdKind, IdLimit, Keys, LabelBatch, LabelSource, LabelType, MatrixSource,
    PartSource, SplitSource, TableForm,
};
use grappa_io::Result;
use grappa_tests::{
    archive::write_npz,
    npy::Npy,
    parquet::{Column, write_table},
};

use super::{
    edges::{NPY, deflated, written},
    shared::{ids_of, outcome, same_outcome, with_choice},
};
use crate::{Input, Target, repair::zip_after_choice, target::Repair};

/// The most rows that are read. A header can claim an array of terabytes.
const ROWS_MAX: u64 = 5000;

/// The widest rows that are read. A sparse row is expanded with all its zeros, and the file states their number.
const DIM_MAX: usize = 1 << 16;

fn target(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, run: fn(&Input) -> String) -> Target {
    Target {
        name,
        seeds,
        words: NPY,
        repair: Repair::With(zip_after_choice),
        run,
        // Pieces of arrays, lines, and what unpacks them.
        memory_base: 24 << 20,
        memory_per_byte: 1 << 10,
    }
}

pub fn targets() -> Vec<Target> {
    vec![
        target("feature-file", feature_seeds, run_features),
        target("label-file", label_seeds, run_labels),
        target("split-file", split_seeds, run_split),
        target("part-file", part_seeds, run_parts),
        target("weight-file", weight_seeds, run_weights),
    ]
}

/// The name selects the format if the first bytes do not.
fn file(input: &Input) -> (u8, std::path::PathBuf) {
    let (choice, bytes) = input.choice();
    let name = ["file.npy", "file.npz", "file.csv", "file.csv.gz"][usize::from(choice & 3)];
    (choice, input.scratch.file(name, bytes))
}

fn csr() -> [(&'static str, Npy); 5] {
    [
        ("data", Npy::new(&[3], [1.0f32, 0.5, -2.0])),
        ("indices", Npy::new(&[3], [0i32, 4, 2])),
        ("indptr", Npy::new(&[4], [0i64, 2, 2, 3])),
        ("shape", Npy::new(&[2], [3i64, 5])),
        ("format", Npy::raw("|S3", &[], b"csr")),
    ]
}

const IDS: Column<'_> = Column::Integers(&[7, 0, 12]);
const NUMBERS: Column<'_> = Column::Floats(&[0.5, -1.0, 2.0]);

/// A Parquet file with row groups of two rows.
fn table(columns: &[(&str, Column<'_>)]) -> Vec<u8> {
    written(|path| write_table(path, columns, 2))
}

fn feature_seeds() -> Vec<Vec<u8>> {
    let dense = || Npy::new(&[3, 4], (0..12).map(|i| i as f32 / 2.0));
    vec![
        with_choice(0, dense().encode()),
        with_choice(4, Npy::new(&[3, 4], 0..12u64).encode()),
        with_choice(8, Npy::new(&[5], [1.5f64; 5]).encode()),
        with_choice(1, written(|path| write_npz(path, &[("x", dense())]))),
        with_choice(1, deflated(&written(|path| write_npz(path, &[("features", dense())])))),
        with_choice(5, written(|path| write_npz(path, &csr()))),
        with_choice(2, b"0.5,1,2\n-1e3,4,5.25\n7,8,9\n"),
        with_choice(6, b"1 2\n3 4\n"),
        with_choice(2, b"id,0,1\nn7,0.5,1\n\"a, b\",-1,2\n"),
        with_choice(2, b"Node_ID\tx\ty\n12\t0.5\t1\n3\t1\t2\n"),
        with_choice(2, table(&[("id", IDS), ("a", NUMBERS), ("b", NUMBERS)])),
        with_choice(2, table(&[("x", Column::Lists(2, &[0.5; 6]))])),
    ]
}

fn label_seeds() -> Vec<Vec<u8>> {
    let single = || Npy::new(&[4], [0i64, 3, -1, 2]);
    vec![
        with_choice(0, single().encode()),
        with_choice(4, Npy::new(&[3, 4], (0..12).map(|i| (i % 2) as f32)).encode()),
        with_choice(8, Npy::new(&[3, 1], [0.0f32, f32::NAN, 2.0]).encode()),
        with_choice(1, written(|path| write_npz(path, &[("node_label", single())]))),
        with_choice(1, deflated(&written(|path| write_npz(path, &[("y", single())])))),
        with_choice(2, b"0\n1\n\n2\nnan\n"),
        with_choice(6, b"0,1,0\n1,0,1\n"),
        with_choice(2, b"id,label\n\"say \"\"hi\"\"\",1\nn3,\nn4,0\n"),
        with_choice(2, b"node a b\n7 0 1\n12  1 1\n"),
        with_choice(2, b"key\tlabel\n7\t\n12\t1\n"),
        with_choice(2, table(&[("id", IDS), ("label", Column::Integers(&[0, 3, -1])), ("a", NUMBERS)])),
        with_choice(2, table(&[("labels", Column::Lists(2, &[0.0, 1.0, 1.0, 1.0, 0.0, 0.0]))])),
    ]
}

fn split_seeds() -> Vec<Vec<u8>> {
    vec![
        with_choice(0, Npy::new(&[4], [0i64, 3, 7, 2]).encode()),
        with_choice(0, Npy::raw("|b1", &[5], [1, 0, 1, 1, 0]).encode()),
        with_choice(2, b"0\n5\n# a comment\n12\n"),
        with_choice(0x22, b"apt\nbash\n\xc3\xa9\n"),
        with_choice(0x12, b"18446744073709551614\n"),
        with_choice(2, table(&[("id", IDS), ("a", NUMBERS)])),
        with_choice(0x22, table(&[("name", Column::Strings(&["apt".to_owned(), "bash".to_owned()]))])),
    ]
}

fn part_seeds() -> Vec<Vec<u8>> {
    vec![with_choice(0, Npy::new(&[4], [0i32, 1, 1, 0]).encode()), with_choice(2, b"0\n1\n1\n0\n")]
}

fn weight_seeds() -> Vec<Vec<u8>> {
    vec![
        with_choice(0, Npy::new(&[4], [0.5f32, 1.0, 2.0, 3.0]).encode()),
        with_choice(0, Npy::new(&[4, 1], [0.5f64, 1.0, 2.0, 3.0]).encode()),
        with_choice(0, Npy::new(&[4], [1i32, 2, 3, 4]).encode()),
    ]
}

fn run_features(input: &Input) -> String {
    let (choice, path) = file(input);
    let few = read_features(&path, 1 + usize::from(choice >> 4));
    let all = read_features(&path, ROWS_MAX as usize);
    same_outcome(few, all, |(rows, ..)| format!("accepted, rows: {}", rows.min(3)))
}

/// The number of rows, the bits of all numbers, and the number of values that are not finite.
fn read_features(path: &Path, at_once: usize) -> Result<(u64, Vec<u32>, u64)> {
    let source = MatrixSource::open(path)?;
    if source.dim() > DIM_MAX {
        return Ok((0, Vec::new(), 0));
    }
    let (mut rows, mut values) = (0, Vec::new());
    let mut some = Vec::new();
    // The comparison ends at the same row for any number of rows read at once, so that they meet the same mistakes.
    let rows_max = ROWS_MAX.min((1 << 20) / source.dim().max(1) as u64 + 1);
    loop {
        let count = at_once.min(DIM_MAX / source.dim().max(1)).max(1);
        let count = count.min((rows_max - rows) as usize);
        let read = source.read_rows(rows, count, &mut some)?;
        assert!(read <= count && some.len() == read * source.dim());
        values.extend(bits(&some));
        rows += read as u64;
        if read < count {
            break;
        }
        if rows == rows_max {
            return Ok((0, Vec::new(), 0));
        }
    }
    if let Some(stated) = source.rows() {
        assert_eq!(rows, stated);
    }
    if source.has_ids() {
        assert_eq!(ids_of_table(path)?, rows);
    }
    Ok((rows, values, source.non_finite().map_or(0, |found| found.count)))
}

/// The number of ids of a table.
fn ids_of_table(path: &Path) -> Result<u64> {
    let Ok(mut source) = SplitSource::open_table(path, IdKind::String, IdLimit::Sparse, &TableForm::default()) else {
        // A column of Parquet has integers or strings.
        return ids_of_integers(path);
    };
    let (mut count, mut some) = (0, Keys::default());
    while source.next_keys(&mut some)? {
        assert!(some.iter().all(|id| !id.is_empty()));
        count += some.len() as u64;
    }
    Ok(count)
}

fn ids_of_integers(path: &Path) -> Result<u64> {
    let mut source = SplitSource::open_table(path, IdKind::Integer, IdLimit::Sparse, &TableForm::default())?;
    let (mut count, mut some) = (0, Vec::new());
    while source.next_ids(&mut some)? {
        count += some.len() as u64;
    }
    Ok(count)
}

/// The bits of the numbers. All NaNs count as equal.
fn bits(values: &[f32]) -> impl Iterator<Item = u32> {
    values.iter().map(|value| match value.is_nan() {
        true => f32::NAN.to_bits(),
        false => value.to_bits(),
    })
}

fn run_labels(input: &Input) -> String {
    let (choice, path) = file(input);
    for label_type in [LabelType::Partial, LabelType::Float] {
        let [few, all] =
            [1 + usize::from(choice >> 4), ROWS_MAX as usize].map(|at_once| values(&path, label_type, at_once));
        assert_eq!(few.is_ok(), all.is_ok(), "{label_type:?}");
        assert_eq!(few.ok(), all.ok(), "{label_type:?}");
    }
    let few = read_labels(&path, 1 + usize::from(choice >> 4));
    let all = read_labels(&path, ROWS_MAX as usize);
    same_outcome(few, all, |all| format!("accepted, labelled: {}", all.iter().flatten().count().min(2)))
}

/// The bits of the first values of labels of a type.
fn values(path: &Path, label_type: LabelType, at_once: usize) -> Result<Vec<u32>> {
    let source = LabelSource::open_with(path, &TableForm::default(), label_type)?;
    let (mut all, mut rows, mut batch) = (Vec::new(), 0, LabelBatch::default());
    while rows < ROWS_MAX {
        let count = at_once.min((ROWS_MAX - rows) as usize);
        let read = source.read_rows(rows, count, &mut batch)?;
        (0..read).for_each(|index| all.extend(bits(batch.values(index))));
        rows += read as u64;
        if read < count {
            return Ok(all);
        }
    }
    Ok(Vec::new())
}

fn read_labels(path: &Path, at_once: usize) -> Result<Vec<Option<Vec<u32>>>> {
    let source = LabelSource::open(path)?;
    let mut labels = Vec::new();
    let mut batch = LabelBatch::default();
    loop {
        // As for features.
        let count = at_once.min(ROWS_MAX as usize - labels.len());
        let read = source.read_rows(labels.len() as u64, count, &mut batch)?;
        assert_eq!(read, batch.len());
        for index in 0..read {
            let classes = batch.get(index).map(<[u32]>::to_vec);
            assert!(classes.iter().flatten().all(|&class| batch.class_max().is_some_and(|max| class <= max)));
            labels.push(classes);
        }
        if read < count {
            if source.has_ids() {
                assert_eq!(ids_of_table(path)?, labels.len() as u64);
            }
            return Ok(labels);
        }
        if labels.len() as u64 == ROWS_MAX {
            return Ok(Vec::new());
        }
    }
}

fn run_split(input: &Input) -> String {
    let (choice, path) = file(input);
    let (ids, limit) = ids_of(choice);
    outcome(read_split(&path, ids, limit), |count| format!("accepted, ids: {}", count.min(3)))
}

fn read_split(path: &Path, ids: IdKind, limit: IdLimit) -> Result<usize> {
    let mut source = SplitSource::open(path, ids, limit)?;
    let (mut count, mut some, mut keys) = (0, Vec::new(), Keys::default());
    loop {
        let (more, read) = match ids {
            IdKind::Integer => {
                let more = source.next_ids(&mut some)?;
                assert!(some.iter().all(|&id| id < limit.exclusive()));
                (more, some.len())
            }
            IdKind::String => {
                let more = source.next_keys(&mut keys)?;
                assert!(keys.iter().all(|key| str::from_utf8(key).is_ok_and(|key| !key.is_empty())));
                (more, keys.len())
            }
        };
        if !more || count as u64 > 100 * ROWS_MAX {
            return Ok(count);
        }
        for index in 0..read {
            let _ = source.place(index);
        }
        count += read;
    }
}

fn run_parts(input: &Input) -> String {
    let (_, path) = file(input);
    let read = || -> Result<usize> {
        let mut source = PartSource::open(&path)?;
        let (mut count, mut some) = (0, Vec::new());
        while source.next_parts(&mut some)? && (count as u64) < 100 * ROWS_MAX {
            count += some.len();
        }
        Ok(count)
    };
    outcome(read(), |count| format!("accepted, parts: {}", count.min(3)))
}

/// Four edges in a valid file, and edge weights in the input.
fn run_weights(input: &Input) -> String {
    let (_, bytes) = input.choice();
    let weights = input.scratch.file("weights.npy", bytes);
    let edges: Vec<u8> = [0u64, 1, 1, 2, 2, 3, 3, 0].iter().flat_map(|id| id.to_le_bytes()).collect();
    let edges = input.scratch.file("edges.u64", &edges);
    let read = |block_bytes| -> Result<Vec<u32>> {
        let options = EdgeSourceOptions { weights: Some(weights.clone().into()), block_bytes, ..Default::default() };
        let source = EdgeSource::open(std::slice::from_ref(&edges), options)?;
        let (mut batch, mut all) = (EdgeBatch::default(), Vec::new());
        while let Some(block) = source.next_block(&|_| false)? {
            block.parse(&mut batch, &mut |_| Ok(()))?;
            assert_eq!(batch.values.len(), batch.sources.len());
            assert!(batch.values.iter().all(|weight| weight.is_finite()));
            all.extend(batch.values.iter().map(|weight| weight.to_bits()));
        }
        assert_eq!(all.len(), 4);
        Ok(all)
    };
    same_outcome(read(16), read(1 << 16), |_| "accepted".to_owned())
}
