//! Rows of nodes: stored, computed, selected, in memory and in scratch files.

use std::fs;

use grappa_formats::{ChunkId, aggregates::AggregateKind};
use grappa_storage::{aggregates::Aggregates, files};

use super::*;
use crate::derive::preaggregate::{AggregateOptions, preaggregate};

#[test]
fn procedural_features_equal_stored_ones() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let stores: Vec<_> = [FeatureSource::Stored, FeatureSource::Procedural]
        .into_iter()
        .zip(&folders)
        .map(|(source, folder)| store(folder.path(), source, FeatureDtype::F32))
        .collect();
    let rows = stores.iter().map(|store| whole(store, &*store_features(store).unwrap()).1);
    let rows: Vec<_> = rows.collect();
    assert!(rows[0] == rows[1]);
}

#[test]
fn rows_beside_each_other_are_one() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let mut numbers = StateRows::new(store.manifest().nodes, 2).unwrap();
    numbers.write(7, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let mut own = vec![0.0; 3 * DIM];
    features.read(6..9, &mut own).unwrap();
    let mut both = vec![0.0; 3 * (DIM + 2)];
    Beside(&*features, &numbers).read(6..9, &mut both).unwrap();
    let expected = [[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]];
    for ((row, own), numbers) in both.chunks(DIM + 2).zip(own.chunks(DIM)).zip(expected) {
        assert_eq!((&row[..DIM], &row[DIM..]), (own, &numbers[..]));
    }
}

/// Space in memory, and in a file.
fn spaces(folder: &Path, rows: u64, width: usize, dtype: FeatureDtype) -> [StateRows; 2] {
    let mut memory = u64::MAX;
    let in_memory = StateRows::create(folder, rows, width, dtype, &mut memory).unwrap();
    assert_eq!(u64::MAX - memory, in_memory.memory());
    let in_file = StateRows::create(folder, rows, width, dtype, &mut 7).unwrap();
    assert!(in_memory.memory() > 0 && in_file.memory() == 0);
    assert_eq!(folder.read_dir().unwrap().count(), 0, "the file has no name");
    [in_memory, in_file]
}

#[test]
fn copies_of_padded_rows_are_the_rows_of_the_store() {
    let (folder, store) =
        in_folder(|folder| store_of(Rmat::graph500(9, 2.0), 250, folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    assert!(features.layout().stride as usize > features.layout().row_bytes());
    let places = [3, 4, 200, 511];
    let nodes = NodeSet::from_members(512, places.map(NodeId));
    let budget = Budget::new(1 << 20, 2);
    let copy = StateRows::copied(folder.path(), &*features, &nodes, budget, &Silent).unwrap();
    let [mut copied, mut expected] = [(); 2].map(|()| vec![0.0; places.len() * 250]);
    copy.read(0..4, &mut copied).unwrap();
    read_each(&*features, &places, &mut expected, 1).unwrap();
    assert!(copied == expected);
}

#[test]
fn states_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    for mut rows in spaces(folder.path(), 10, 3, FeatureDtype::F32) {
        rows.write(4, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let mut out = vec![9.0; 9];
        rows.read(4..7, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn states_of_a_smaller_type_are_rounded_to_it() {
    const NODES: u64 = 9000;
    let folder = tempfile::tempdir().unwrap();
    // Longer than what is encoded at a time.
    let values: Vec<f32> = (0..NODES * 70).map(|i| (i % 1000) as f32 / 7.0 - 60.0).collect();
    let rounded: Vec<f32> = values
        .iter()
        .map(|value| {
            let bits = value.to_bits();
            f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
        })
        .collect();
    for mut rows in spaces(folder.path(), NODES, 70, FeatureDtype::Bf16) {
        rows.write(0, &values).unwrap();
        let mut out = vec![0.0; values.len()];
        rows.read(0..NODES, &mut out).unwrap();
        assert!(out == rounded && rows.in_memory().is_none());
        let positions = [8999, 3, 8999];
        rows.read_ahead(3..5);
        let mut out = vec![0.0; 3 * 70];
        rows.read_any(positions, &mut out).unwrap();
        for (row, position) in out.chunks(70).zip(positions) {
            assert!(row == &rounded[position as usize * 70..][..70]);
        }
    }
}

#[test]
fn rows_here_and_there_are_those_that_are_read_one_by_one() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F16));
    let features = store_features(&store).unwrap();
    let (_, rows) = whole(&store, &*features);
    let positions: Vec<u64> = [0, 1, 2, 5, 100, 101, 511].into_iter().chain((200..400).step_by(3)).collect();
    let mut positions = positions;
    positions.sort_unstable();
    let expected: Vec<f32> = positions.iter().flat_map(|&at| rows[at as usize].clone()).collect();
    let mut found = vec![0.0; expected.len()];
    read_each(&*features, &positions, &mut found, 2).unwrap();
    assert!(found == expected);
    let mut memory = StateRows::new(512, DIM).unwrap();
    features.read(0..512, memory.values_mut()).unwrap();
    found.fill(0.0);
    read_each(&memory, &positions, &mut found, 1).unwrap();
    assert!(found == expected);
}

#[test]
fn rows_are_read_while_they_are_written() {
    let (_folder, rows) =
        in_folder(|folder| GrowingRows::new(StateRows::in_file(folder, 6, 2, FeatureDtype::Bf16).unwrap()));
    let mut writer = rows.writer();
    writer.write(0, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let mut first = [0.0; 4];
    rows.read(0..2, &mut first).unwrap();
    assert_eq!(first, [1.0, 2.0, 3.0, 4.0]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut all = [0.0; 8];
            rows.read_ahead(1..5);
            rows.read(1..5, &mut all).map(|()| all)
        });
        writer.write(2, &[5.0, 6.0]).unwrap();
        assert!(!reader.is_finished(), "rows 3 and 4 are not written");
        writer.write(3, &[7.0, 8.0, 9.0, 10.0]).unwrap();
        let all = reader.join().unwrap().unwrap();
        assert_eq!(all, [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    });
    // The last row is never written.
    thread::scope(|scope| {
        let reader = scope.spawn(|| rows.read(4..6, &mut [0.0; 4]));
        drop(writer);
        assert!(matches!(reader.join().unwrap(), Err(Error::Stopped)));
    });
    rows.read(4..5, &mut [0.0; 2]).unwrap();
}

/// Rows of two columns: stored ones, which are read past the cache if they exceed the memory, and computed ones.
#[test]
fn a_scan_reads_the_rows_that_are_read_one_by_one() {
    for dtype in [FeatureDtype::F32, FeatureDtype::F16] {
        let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, dtype));
        let features = store_features(&store).unwrap();
        let nodes = store.manifest().nodes;
        let all = NodeSet::all(nodes);
        let set = NodeSet::from_members(nodes, (0..nodes).filter(|node| node % 7 < 2 || *node > 400).map(NodeId));
        let mut numbers = StateRows::new(set.len(), 1).unwrap();
        let values: Vec<f32> = (0..set.len()).map(|number| number as f32).collect();
        numbers.write(0, &values).unwrap();
        let columns = [ScannedColumn { rows: &*features, nodes: &all }, ScannedColumn { rows: &numbers, nodes: &set }];
        let mut places = Vec::new();
        set.nodes_at(0..set.len(), &mut places);
        let places: Vec<u64> = places.iter().map(|node| node.0).collect();
        let mut expected = vec![0.0; places.len() * DIM];
        read_each(&*features, &places, &mut expected, 1).unwrap();
        let stride = features.layout().stride as usize;
        let mut encoded = vec![0u8; places.len() * stride];
        for (place, out) in places.iter().zip(encoded.chunks_mut(stride)) {
            features.read_encoded(*place..place + 1, out).unwrap();
        }
        // Below `memory` bytes, files are read through the cache.
        for (memory, part) in [(0, 1), (0, 50), (0, 10_000), (u64::MAX, 50)] {
            let scan = || RowScan::new(&columns, &set, part, memory, 2).unwrap();
            let (mut scan, mut scan_encoded) = (scan(), scan().encoded());
            let (mut found, mut found_encoded) = (vec![Vec::new(), Vec::new()], Vec::<u8>::new());
            let mut end = 0;
            while let Some(ScannedPart { positions, columns }) = scan.next(&Silent).unwrap() {
                assert_eq!(positions.start, end);
                end = positions.end;
                found.iter_mut().zip(columns).for_each(|(all, part)| all.extend(part));
                let part = scan_encoded.next(&Silent).unwrap().unwrap();
                found_encoded.extend_from_slice(bytemuck::cast_slice(&part.columns[0]));
            }
            assert!(end == set.len() && scan_encoded.next(&Silent).unwrap().is_none());
            assert!(found == [expected.clone(), values.clone()], "{memory} {part}");
            assert!(found_encoded == encoded, "{memory} {part}");
        }
    }
}

/// If a file has the features of each node behind its aggregates, the files of features are not read.
#[test]
fn a_scan_takes_features_from_the_rows_of_aggregates() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F16));
    let options =
        AggregateOptions { with_features: true, ..AggregateOptions::new(AggregateKind::Mean, Budget::new(3 << 20, 2)) };
    preaggregate(&store, &options, &Silent).unwrap();
    let aggregates = Aggregates::open(&store, options.kind).unwrap().unwrap();
    let aggregates = StoredRows::of_aggregates(&store, aggregates);
    let columns = [&aggregates as &dyn NodeRows, &*store_features(&store).unwrap()];
    let expected = columns.map(|rows| whole(&store, rows).1.concat());
    for chunk in store.present_chunks() {
        let path = store.path().join(files::of_chunk(chunk, "features"));
        let mut bytes = fs::read(&path).unwrap();
        // The first byte of the payload.
        bytes[4096] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let (all, damaged) = (NodeSet::all(store.manifest().nodes), store_features(&store).unwrap());
    let columns = [&aggregates as &dyn NodeRows, &*damaged].map(|rows| ScannedColumn { rows, nodes: &all });
    let mut scan = RowScan::new(&columns, &all, 100, 0, 2).unwrap();
    let mut found = [Vec::new(), Vec::new()];
    while let Some(part) = scan.next(&Silent).unwrap() {
        found.iter_mut().zip(part.columns).for_each(|(all, part)| all.extend(part));
    }
    assert!(found == expected);
    // Alone, they are read from their own files.
    let mut scan = RowScan::new(&columns[1..], &all, 100, 0, 2).unwrap();
    assert!(scan.next(&Silent).is_err());
}

#[test]
fn a_scan_of_damaged_or_changed_rows_is_an_error() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let nodes = NodeSet::all(store.manifest().nodes);
    let path = store.path().join(files::of_chunk(ChunkId(0), "features"));
    let whole = fs::read(&path).unwrap();
    let scan = |change: &dyn Fn()| {
        let features = store_features(&store).unwrap();
        let columns = [ScannedColumn { rows: &*features, nodes: &nodes }];
        let mut scan = RowScan::new(&columns, &nodes, 100, 0, 1).unwrap();
        change();
        let mut read = || -> Result<()> {
            while scan.next(&Silent)?.is_some() {}
            Ok(())
        };
        read().err().map(|error| error.to_string())
    };
    assert_eq!(scan(&|| ()), None);
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let error = scan(&|| ()).unwrap();
    assert!(error.contains("checksum") && error.contains("features"), "{error}");
    fs::write(&path, &whole).unwrap();
    let error = scan(&|| fs::write(&path, &whole[..whole.len() - 1]).unwrap()).unwrap();
    assert!(error.contains("features"), "{error}");
}
