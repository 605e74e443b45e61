//! Tests of arrays in the orders of elements and of bytes that NumPy writes.

use super::*;

/// Integer types, with and without sign, and the floats that ids are read from.
const ID_TYPES: [&str; 10] = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"];

/// A `.npy` file of these numbers, in rows.
fn array(order: char, kind: &str, shape: &[usize], numbers: &[i64], fortran: bool) -> Vec<u8> {
    let columns = shape.get(1).copied().unwrap_or(1);
    let rows = numbers.len() / columns;
    let at = |element: usize| match fortran {
        true => numbers[element % rows * columns + element / rows],
        false => numbers[element],
    };
    let width: usize = kind[1..].parse().unwrap();
    let mut data = Vec::new();
    for element in 0..numbers.len() {
        let number = at(element);
        let mut bytes = match kind {
            "f4" => (number as f32).to_le_bytes().to_vec(),
            "f8" => (number as f64).to_le_bytes().to_vec(),
            _ => number.to_le_bytes()[..width].to_vec(),
        };
        if order == '>' {
            bytes.reverse();
        }
        data.extend(bytes);
    }
    let order = if width == 1 { '|' } else { order };
    let shape: Vec<_> = shape.iter().map(|length| format!("{length},")).collect();
    let fortran = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{order}{kind}', 'fortran_order': {fortran}, 'shape': ({})}}", shape.concat());
    npy_of(1, &header, &data)
}

/// Calls `check` with each type, order of bytes and order of elements.
fn for_all(types: &[&str], check: impl Fn(char, &str, bool)) {
    for &kind in types {
        for order in ['<', '>'] {
            for fortran in [false, true] {
                check(order, kind, fortran);
            }
        }
    }
}

#[test]
fn edges_of_every_type_and_order_are_the_same() {
    let folder = Folder::new();
    for_all(&ID_TYPES, |order, kind, fortran| {
        let options = |block_bytes| EdgeSourceOptions { block_bytes, ..Default::default() };
        for block_bytes in [1, 1 << 20] {
            let pairs = array(order, kind, &[3, 2], &[1, 2, 3, 4, 5, 127], fortran);
            let halves = array(order, kind, &[2, 3], &[1, 3, 5, 2, 4, 127], fortran);
            let files = [
                folder.file("pairs.npy", &pairs),
                folder.file("halves.npy", &halves),
                folder.file("pairs.npz", npz(&[("edges", pairs)], true, false)),
                folder.file("halves.npz", npz(&[("edge_index", halves)], true, false)),
            ];
            for path in files {
                let read = read_path(&path, options(block_bytes)).unwrap();
                assert_eq!(read.edges, [(1, 2), (3, 4), (5, 127)], "{order}{kind} {fortran} {path:?}");
            }
        }
    });
}

#[test]
fn floats_that_are_no_ids_are_bad_rows() {
    let folder = Folder::new();
    let numbers = [0.0, 1.0, 2.0, 0.5, f64::NAN, 1.0, -1.0, 3.0, 9.1e15, 4.0, 5.0, 6.0];
    let path = folder.file("e.npy", npy("<f8", "(6, 2)", &le(&numbers, f64::to_le_bytes)));
    let read = read_path(&path, skipping(1 << 20)).unwrap();
    assert_eq!(read.edges, [(0, 1), (5, 6)]);
    let rejects: Vec<_> =
        read.rejected.iter().map(|reject| (reject.text.to_string(), reject.reason.reason())).collect();
    for ((line, reason), (expected, part)) in rejects.iter().zip([
        ("2\t0.5", "fraction"),
        ("null", "missing"),
        ("-1\t3", "negative"),
        ("9100000000000000\t4", "rounded"),
    ]) {
        assert_eq!(line, expected);
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(rejects.len(), 4);
    let error = message(read_path(&path, EdgeSourceOptions::default()));
    assert_contains(&error, &["e.npy at row 1", "fraction", "0.5", "--on-bad-line skip"]);
    let path = folder.file("e.npy", npy("<f4", "(1, 2)", &le(&[1.0, 2e7_f32], f32::to_le_bytes)));
    assert_contains(&message(read_path(&path, EdgeSourceOptions::default())), &["20000000", "rounded"]);
}

#[test]
fn features_and_labels_of_every_type_and_order_are_the_same() {
    let folder = Folder::new();
    // More columns than are read at once, and more rows than a tile of 8 bytes has.
    let (rows, columns) = (8200, 19);
    let numbers: Vec<i64> = (0..rows * columns).map(|at| (at * 7 % 101) as i64).collect();
    let expected: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    for_all(&["i1", "i2", "u4", "i8", "f4", "f8"], |order, kind, fortran| {
        let path = folder.file("x.npy", array(order, kind, &[rows, columns], &numbers, fortran));
        let source = MatrixSource::open(&path).unwrap();
        let (mut all, mut some) = (Vec::new(), Vec::new());
        // Blocks of different lengths, the last one shorter.
        for (first, count) in [(0, 3), (3, 8195), (8198, 100)] {
            source.read_rows(first, count, &mut some).unwrap();
            all.extend_from_slice(&some);
        }
        assert!(all == expected, "{order}{kind} {fortran}");
        let path = folder.file("y.npy", array(order, kind, &[3, 2], &[0, 1, 1, 1, 0, 0], fortran));
        let mut batch = LabelBatch::default();
        LabelSource::open(&path).unwrap().read_rows(0, 9, &mut batch).unwrap();
        let sets: Vec<_> = (0..3).map(|row| batch.get(row).unwrap().to_vec()).collect();
        assert_eq!(sets, [vec![1], vec![0, 1], vec![]], "{order}{kind} {fortran}");
    });
}

#[test]
fn lists_of_ids_and_parts_of_every_type_and_order_are_the_same() {
    let folder = Folder::new();
    for_all(&ID_TYPES, |order, kind, fortran| {
        for shape in [&[3][..], &[3, 1]] {
            let path = folder.file("ids.npy", array(order, kind, shape, &[7, 0, 100], fortran));
            assert_eq!(read_split_ids(&path, IdLimit::Dense).unwrap(), [7, 0, 100]);
            if kind.starts_with(['i', 'u']) && !kind.ends_with('1') {
                let mut parts = Vec::new();
                PartSource::open(&path).unwrap().next_parts(&mut parts).unwrap();
                assert_eq!(parts, [7, 0, 100]);
            }
        }
    });
    let masks = "{'descr': '|b1', 'fortran_order': True, 'shape': (3, 1)}";
    let path = folder.file("mask.npy", npy_of(1, masks, &[1, 0, 1]));
    assert_eq!(read_split_ids(&path, IdLimit::Dense).unwrap(), [0, 2]);
}
