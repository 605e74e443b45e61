//! Tests of data in memory: it is read as its file is.

use std::{io, sync::Arc};

use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int64Array, LargeStringArray, RecordBatch, StringViewArray, types::Int32Type,
};
use arrow_schema::{Field, Schema};

use super::{
    tables::{Column, features, integers, some, strings, table},
    *,
};

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl ReadAt for Bytes {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.get(offset as usize..).and_then(|bytes| bytes.get(..into.len()));
        bytes.map(|bytes| into.copy_from_slice(bytes)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn array(descr: &str, shape: &[u64], bytes: Vec<u8>) -> MemoryArray {
    MemoryArray {
        bytes: Arc::new(Bytes(bytes)),
        descr: descr.to_owned(),
        shape: shape.to_vec(),
        column_major: false,
        is_edge_index: false,
    }
}

fn input(name: &str, data: MemoryData) -> Input {
    MemoryInput { name: name.into(), data }.into()
}

fn edges(data: MemoryData, options: EdgeSourceOptions) -> Result<Read> {
    read(&EdgeSource::open(&[input("edges", data)], options)?, 1)
}

#[test]
fn arrays_in_memory_are_read_as_their_files_are() {
    let pairs = le(&[1_i64, 2, 3, 4, 5, 6], i64::to_le_bytes);
    let halves = le(&[1_i64, 3, 5, 2, 4, 6], i64::to_le_bytes);
    let two = array("<i8", &[2, 2], le(&[1_i64, 2, 3, 4], i64::to_le_bytes));
    let swapped = array(">i8", &[3, 2], le(&[1_i64, 2, 3, 4, 5, 6], i64::to_be_bytes));
    for (array, expected) in [
        (array("<i8", &[3, 2], pairs.clone()), vec![(1, 2), (3, 4), (5, 6)]),
        (array("<i8", &[2, 3], halves.clone()), vec![(1, 2), (3, 4), (5, 6)]),
        (MemoryArray { column_major: true, ..array("<i8", &[3, 2], halves) }, vec![(1, 2), (3, 4), (5, 6)]),
        (two.clone(), vec![(1, 2), (3, 4)]),
        (MemoryArray { is_edge_index: true, ..two }, vec![(1, 3), (2, 4)]),
        (swapped, vec![(1, 2), (3, 4), (5, 6)]),
    ] {
        for block_bytes in [1, 1 << 20] {
            let options = EdgeSourceOptions { block_bytes, ..Default::default() };
            assert_eq!(edges(MemoryData::Array(array.clone()), options).unwrap().edges, expected);
        }
    }
    let weights = input("weights", MemoryData::Array(array("<f4", &[3], le(&[0.5_f32, 1.5, 2.5], f32::to_le_bytes))));
    let options = EdgeSourceOptions { weights: Some(weights), ..Default::default() };
    assert_eq!(edges(MemoryData::Array(array("<i8", &[3, 2], pairs)), options).unwrap().values, [0.5, 1.5, 2.5]);

    let matrix = array("<f2", &[2, 2], vec![0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44]);
    let source = MatrixSource::open(input("features", MemoryData::Array(matrix))).unwrap();
    assert_eq!(features(&source, 1).unwrap(), [1.0, 2.0, 3.0, 4.0]);

    let mask = input("train", MemoryData::Array(array("|b1", &[4], vec![0, 1, 0, 1])));
    let mut source = SplitSource::open(mask, IdKind::Integer, IdLimit::Dense).unwrap();
    let mut ids = Vec::new();
    assert!(source.is_mask() && source.next_ids(&mut ids).unwrap());
    assert_eq!(ids, [1, 3]);
}

#[test]
fn sparse_matrices_in_memory_are_edges_and_features() {
    let matrix = |format: &str, lines: &[i32], others: &[i32]| {
        MemoryData::Matrix(MemoryMatrix {
            format: format.to_owned(),
            shape: [3, 3],
            data: array("<f4", &[3], le(&[0.5_f32, 1.5, 2.5], f32::to_le_bytes)),
            lines: array("<i4", &[lines.len() as u64], le(lines, i32::to_le_bytes)),
            others: array("<i4", &[3], le(others, i32::to_le_bytes)),
        })
    };
    let (rows, columns) = ([0, 0, 2], [1, 2, 0]);
    for data in [matrix("coo", &rows, &columns), matrix("csr", &[0, 2, 2, 3], &columns)] {
        let found = edges(data, EdgeSourceOptions::default()).unwrap();
        assert_eq!((found.edges, found.values), (vec![(0, 1), (0, 2), (2, 0)], vec![0.5, 1.5, 2.5]));
    }
    let source = MatrixSource::open(input("features", matrix("csr", &[0, 2, 2, 3], &columns))).unwrap();
    assert_eq!(features(&source, 2).unwrap(), [0.0, 0.5, 1.5, 0.0, 0.0, 0.0, 2.5, 0.0, 0.0]);
}

#[test]
fn tables_in_memory_are_read_as_parquet_is() {
    let folder = Folder::new();
    let columns = [
        ("node_id", Column::I64(some(&[4, 2, 0, 9, 7]))),
        ("a", Column::F64(vec![Some(0.5), None, Some(2.5), Some(3.5), Some(4.5)])),
        ("b", Column::Bool(some(&[true, false, true, true, false]))),
    ];
    let file = table(&columns, 2);
    let path = folder.file("x.parquet", &file);
    let bytes = MemoryData::Parquet(array("|u1", &[file.len() as u64], file));
    let bits = |values: Vec<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let expected = bits(features(&MatrixSource::open(&path).unwrap(), 2).unwrap());
    for rows in [1, 2, 5] {
        let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        let reader = reader.with_batch_size(rows).build().unwrap();
        let batches: Vec<RecordBatch> = reader.collect::<std::result::Result<_, _>>().unwrap();
        let memory = input("features", MemoryData::Table(batches[0].schema(), batches));
        for count in [1, 3, 9] {
            assert_eq!(bits(features(&MatrixSource::open(&memory).unwrap(), count).unwrap()), expected);
        }
        let source = SplitSource::open_table(&memory, IdKind::Integer, IdLimit::Sparse, &TableForm::default());
        let (mut source, mut ids) = (source.unwrap(), Vec::new());
        let mut all = Vec::new();
        while source.next_ids(&mut ids).unwrap() {
            all.extend_from_slice(&ids);
        }
        assert_eq!(all, integers(&path).unwrap());
    }
    assert_eq!(bits(features(&MatrixSource::open(input("features", bytes)).unwrap(), 2).unwrap()), expected);
}

/// A table with columns of these names and arrays, in two batches.
fn batches(columns: &[(&str, ArrayRef)]) -> MemoryData {
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    let whole = RecordBatch::try_new(schema.clone(), arrays).unwrap();
    MemoryData::Table(schema, vec![whole.slice(0, 1), whole.slice(1, whole.num_rows() - 1)])
}

#[test]
fn strings_of_every_arrow_type_are_keys() {
    let names = ["ann", "bob", "cy"];
    let arrays: [ArrayRef; 3] = [
        Arc::new(LargeStringArray::from(names.to_vec())),
        Arc::new(StringViewArray::from(names.to_vec())),
        Arc::new(names.into_iter().collect::<DictionaryArray<Int32Type>>()),
    ];
    let folder = Folder::new();
    for names in arrays {
        let sources = batches(&[("src", names.clone()), ("dst", names.clone())]);
        let options = EdgeSourceOptions { ends: EndIds::both(IdKind::String, IdLimit::Dense), ..Default::default() };
        let source = EdgeSource::open(&[input("edges", sources)], options).unwrap();
        let (mut batch, mut found) = (TextBatch::default(), Vec::new());
        while let Some(block) = source.next_block(&|_| false).unwrap() {
            block.parse_text(&mut batch, &mut |_| Ok(())).unwrap();
            found.extend(batch.sources.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()));
        }
        assert_eq!(found, ["ann", "bob", "cy"], "{}", names.data_type());
    }
    let file = folder.file("ids.parquet", table(&[("id", Column::Text(some(&["ann"])))], 9));
    assert_eq!(strings(&file).unwrap(), ["ann"]);
}

#[test]
fn a_digest_depends_on_the_content_and_not_on_its_batches() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let version = |data| input("edges", data).version().unwrap();
    let whole = version(batches(&[("id", ids.clone())]));
    let MemoryData::Table(schema, parts) = batches(&[("id", ids.slice(0, 4))]) else { unreachable!() };
    let three = vec![parts[0].clone(), parts[1].slice(0, 2), parts[1].slice(2, 1)];
    assert_eq!(whole, version(MemoryData::Table(schema, three)));
    for other in [
        version(batches(&[("key", ids.clone())])),
        version(batches(&[("id", Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(5)])))])),
        version(MemoryData::Array(array("<i8", &[2], le(&[1_i64, 2], i64::to_le_bytes)))),
    ] {
        assert_ne!(whole, other);
    }
    let numbers = |numbers: &[i64]| {
        let array = array("<i8", &[numbers.len() as u64], le(numbers, i64::to_le_bytes));
        version(MemoryData::Array(array))
    };
    assert_eq!(numbers(&[1, 2]), numbers(&[1, 2]));
    assert_ne!(numbers(&[1, 2]), numbers(&[1, 3]));
}

#[test]
fn errors_about_data_in_memory_have_expressions_of_python() {
    let refused = |array: MemoryArray| message(MatrixSource::open(input("x", MemoryData::Array(array))));
    assert_contains(&refused(array("<f4", &[2, 2, 1], vec![0; 16])), &["x: ", "x=x.reshape(len(x), -1)"]);
    assert_contains(&refused(array("<c8", &[2, 1], vec![0; 16])), &["x: ", "x=x.view(x.real.dtype)"]);
    let three = MemoryData::Array(array("<i8", &[5, 3], vec![0; 120]));
    let error = message(edges(three, EdgeSourceOptions::default()));
    assert_contains(
        &error,
        &["edges = edges if edges.shape[1] == 3 else edges.T; edges=edges[:, :2], weights=edges[:, 2]"],
    );
    let wait: ArrayRef = Arc::new(arrow_array::DurationSecondArray::from(vec![1, 2]));
    let error = message(MatrixSource::open(input("x", batches(&[("wait", wait)]))));
    assert_contains(&error, &["column wait has durations (Duration(s))"]);
}
