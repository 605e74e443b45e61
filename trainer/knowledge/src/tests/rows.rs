use std::fs;

use grappa_run::checkpoint::RunState;
use tempfile::tempdir;

use super::assert_close;
use crate::{
    matrix::Matrix,
    rows::{Generations, GradientOf, RowOptimizer, Rows, TableShape},
};

const OPTIMIZERS: [RowOptimizer; 3] = [RowOptimizer::Adam, RowOptimizer::Adagrad, RowOptimizer::Sgd];

fn gradients(rows: &[u32]) -> Vec<GradientOf> {
    let mut gradients: Vec<_> = (0..).zip(rows).map(|(gradient, &row)| GradientOf { row, gradient }).collect();
    gradients.sort_unstable();
    gradients
}

fn row_of(values: &[f32]) -> Matrix {
    let mut matrix = Matrix::zeros(values.len(), 1);
    matrix.fill_rows(|row, place| place[0] = values[row]);
    matrix
}

#[test]
fn rows_without_gradients_stay_and_adam_counts_the_updates_of_a_row() {
    let mut rows = Rows::zeros(4, 1, RowOptimizer::Adam);
    rows.values_mut().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
    // Two gradients of row 1 add up to 0.5.
    rows.update(RowOptimizer::Adam, 0.1, &gradients(&[1, 3, 1]), 0, &row_of(&[0.75, -2.0, -0.25]));
    // The first step of Adam has the length of the rate.
    let after = rows.values().to_vec();
    assert_eq!((after[0], after[2]), (1.0, 3.0));
    assert_close(after[1].into(), 1.9, 1e-6, "row 1");
    assert_close(after[3].into(), 4.1, 1e-6, "row 3");
    assert_eq!(rows.updates(), [0, 1, 0, 1]);
    rows.update(RowOptimizer::Adam, 0.1, &gradients(&[1]), 0, &row_of(&[0.25]));
    // Means of the gradients 0.5 and 0.25, without bias after two updates.
    let first = (0.9 * 0.1 * 0.5 + 0.1 * 0.25) / (1.0 - 0.9f64.powi(2));
    let second = (0.999 * 0.001 * 0.25 + 0.001 * 0.0625) / (1.0 - 0.999f64.powi(2));
    assert_close(rows.row(1)[0].into(), f64::from(after[1]) - 0.1 * first / second.sqrt(), 1e-5, "second update");
    assert_eq!(rows.updates(), [0, 2, 0, 1]);
}

#[test]
fn adagrad_divides_by_the_root_of_the_sum_of_squares() {
    let mut rows = Rows::zeros(2, 1, RowOptimizer::Adagrad);
    rows.update(RowOptimizer::Adagrad, 0.5, &gradients(&[1]), 0, &row_of(&[3.0]));
    rows.update(RowOptimizer::Adagrad, 0.5, &gradients(&[1]), 0, &row_of(&[4.0]));
    assert_close(rows.row(1)[0].into(), -0.5 - 0.5 * 4.0 / 5.0, 1e-6, "row 1");
    assert_eq!(rows.row(0), [0.0]);
}

fn shape(parts: u32) -> TableShape {
    TableShape { rows: 11, dim: 3, parts, key: 99 }
}

fn random(rows: usize, optimizer: RowOptimizer, key: u64) -> Rows {
    let mut rows = Rows::random(rows, 3, optimizer, 1.0, key, |row| row as u64);
    let matrix = Matrix { data: (0..16 * rows.len()).map(|value| value as f32).collect(), stride: 16 };
    let all: Vec<u32> = (0..rows.len() as u32).collect();
    rows.update(optimizer, 0.01, &gradients(&all), 0, &matrix);
    rows
}

#[test]
fn a_part_is_read_as_it_was_written_and_old_generations_stay_while_a_checkpoint_names_them() {
    for optimizer in OPTIMIZERS {
        let folder = tempdir().unwrap();
        let mut generations = Generations::open(folder.path(), shape(2), None).unwrap();
        assert_eq!((shape(2).rows_of(0), shape(2).rows_of(1)), (6, 5));
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let write = |generations: &mut Generations, part: u32, key: u64| {
            let rows = random(shape(2).rows_of(part), optimizer, key);
            let next = generations.next(part);
            next.write(&rows).unwrap();
            generations.advance(&next).unwrap();
            rows
        };
        let first = [write(&mut generations, 0, 1), write(&mut generations, 1, 2)];
        let mut state = RunState::default();
        generations.note(&mut state).unwrap();
        let second = write(&mut generations, 0, 3);
        assert_eq!(files(), 3, "the checkpoint names the first generation");
        assert_eq!(generations.newest(0).unwrap().read(optimizer).unwrap(), second);
        let third = write(&mut generations, 0, 4);
        assert_eq!(files(), 3, "nothing names the second generation");
        let before = Generations::look(folder.path(), shape(2), &state).unwrap();
        for (part, rows) in (0..).zip(&first) {
            assert_eq!(before.newest(part).unwrap().read(optimizer).unwrap(), *rows);
            let mut values = Vec::new();
            before.read_values(part, &mut values).unwrap();
            assert_eq!(values, rows.values());
        }
        generations.keep(std::iter::empty()).unwrap();
        assert_eq!(files(), 2);
        assert_eq!(generations.newest(0).unwrap().read(optimizer).unwrap(), third);
    }
}

#[test]
fn damaged_rows_and_rows_of_others_are_refused() {
    let folder = tempdir().unwrap();
    let mut generations = Generations::open(folder.path(), shape(1), None).unwrap();
    let next = generations.next(0);
    next.write(&random(11, RowOptimizer::Adam, 1)).unwrap();
    generations.advance(&next).unwrap();
    let mut state = RunState::default();
    generations.note(&mut state).unwrap();
    let read = |shape: TableShape, optimizer| {
        let generations = Generations::look(folder.path(), shape, &state)?;
        generations.newest(0).expect("it was written").read(optimizer).map(|_| ())
    };
    assert!(read(shape(1), RowOptimizer::Adam).is_ok());
    let message = |read: grappa_run::Result<()>| read.unwrap_err().to_string();
    let other = message(read(TableShape { key: 98, ..shape(1) }, RowOptimizer::Adam));
    assert!(other.contains("another store or another run"), "{other}");
    let wider = message(read(TableShape { dim: 4, ..shape(1) }, RowOptimizer::Adam));
    assert!(wider.contains("11 rows of 3 values, expected 11 rows of 4"), "{wider}");
    let optimizer = message(read(shape(1), RowOptimizer::Sgd));
    assert!(optimizer.contains("another optimizer"), "{optimizer}");
    let parts = message(Generations::look(folder.path(), shape(2), &state).map(|_| ()));
    assert!(parts.contains("2 partition(s)"), "{parts}");
    let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&path).unwrap();
    for place in [0, 12, 70, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let error = message(read(shape(1), RowOptimizer::Adam));
        assert!(error.contains("damaged or truncated"), "byte {place}: {error}");
    }
    fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
    assert!(message(read(shape(1), RowOptimizer::Adam)).contains("damaged or truncated"));
}
