use tempfile::{TempDir, tempdir};

use super::with_threads;
use crate::{
    buckets::Visits,
    matrix::Matrix,
    residents::{InitialRows, Residents},
    rows::{Generations, GradientOf, RowOptimizer, TableShape},
};

const ROWS: u64 = 23;
const INITIAL: InitialRows = InitialRows { range: 0.5, key: 3 };

fn residents(parts: u32) -> (TempDir, Residents) {
    let folder = tempdir().unwrap();
    let shape = TableShape { rows: ROWS, dim: 2, parts, key: 1 };
    let generations = Generations::open(folder.path(), shape, None).unwrap();
    (folder, Residents::new(generations, RowOptimizer::Adam, INITIAL))
}

/// The values of all entities, in their order.
fn table(residents: &mut Residents) -> Vec<Vec<f32>> {
    let parts = residents.shape().parts;
    let mut table = vec![Vec::new(); ROWS as usize];
    let mut buffer = Vec::new();
    for part in 0..parts {
        let values = residents.values(part, &mut buffer).unwrap();
        for (row, values) in values.chunks(2).enumerate() {
            table[row * parts as usize + part as usize] = values.to_vec();
        }
    }
    table
}

/// Changes two entities of each visit, in the order of an epoch.
fn train(residents: &mut Residents, visits: &Visits) {
    for epoch in 0..3 {
        let order = visits.of_epoch(epoch);
        for (place, &visit) in order.iter().enumerate() {
            let pairs = visits.pairs();
            residents.enter(pairs[visit], order.get(place + 1).map(|&next| pairs[next])).unwrap();
            let [one, other] = pairs[visit];
            let last = if one == other { one + 1 } else { other + residents.shape().parts };
            let rows = [one, last].map(|entity| residents.number(entity));
            let mut gradients: Vec<_> = (0..).zip(rows).map(|(gradient, row)| GradientOf { row, gradient }).collect();
            gradients.sort_unstable();
            let mut matrix = Matrix::zeros(2, 2);
            matrix.fill_rows(|row, place| place[..2].copy_from_slice(&[1.0 + row as f32, -(visit as f32) - 0.5]));
            residents.update(0.1, &gradients, &matrix);
        }
    }
}

#[test]
fn rows_begin_alike_in_any_number_of_partitions() {
    let tables = [1, 2, 3, 7].map(|parts| table(&mut residents(parts).1));
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn rows_that_move_between_memory_and_files_keep_their_values_and_moments() {
    with_threads(2, || {
        for parts in [2, 3, 4, 5] {
            let visits = Visits::new(parts);
            let (_folder, mut moved) = residents(parts);
            train(&mut moved, &visits);
            // The oracle flushes all rows after each visit, and reads them again.
            let (_folder, mut flushed) = residents(parts);
            for epoch in 0..3 {
                for &visit in &visits.of_epoch(epoch) {
                    flushed.enter(visits.pairs()[visit], None).unwrap();
                    flushed.flush().unwrap();
                }
            }
            train(&mut flushed, &visits);
            assert_eq!(table(&mut moved), table(&mut flushed), "{parts} parts");
            let before = table(&mut moved);
            moved.flush().unwrap();
            assert_eq!(table(&mut moved), before);
        }
    });
}
