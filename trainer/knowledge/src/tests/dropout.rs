use super::{assert_close, with_threads};
use crate::dropout::DropoutMasks;

const ROWS: usize = 600;
const DIM: usize = 30;
const STRIDE: usize = 32;

fn masked(masks: &DropoutMasks) -> Vec<f32> {
    let mut matrix = vec![1.0; ROWS * STRIDE];
    masks.apply_to_rows(&mut matrix, STRIDE, DIM);
    matrix
}

#[test]
fn values_are_dropped_with_their_probability_and_keep_their_mean() {
    let values = masked(&DropoutMasks::new(0.25, 7, 0));
    let values: Vec<f32> = values.chunks(STRIDE).flat_map(|row| row[..DIM].to_vec()).collect();
    let zeros = values.iter().filter(|value| **value == 0.0).count() as f64 / values.len() as f64;
    assert!((0.23..0.27).contains(&zeros), "{zeros}");
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    assert!((mean - 1.0).abs() < 0.03, "{mean}");
    values
        .iter()
        .filter(|value| **value != 0.0)
        .for_each(|value| assert_close((*value).into(), 4.0 / 3.0, 1e-4, "scale"));
}

#[test]
fn a_mask_depends_on_the_step_the_matrix_and_the_row_alone() {
    let masks = DropoutMasks::new(0.5, 7, 0);
    let all = with_threads(3, || masked(&masks));
    for row in [0, 1, 255, 256, 599] {
        let mut values = vec![1.0; DIM];
        masks.apply(row, &mut values);
        assert_eq!(values, all[row * STRIDE..][..DIM], "row {row}");
    }
    assert!(all != masked(&DropoutMasks::new(0.5, 8, 0)) && all != masked(&DropoutMasks::new(0.5, 7, 1)));
    assert!(all[..DIM] != all[STRIDE..][..DIM]);
}

#[test]
fn nothing_is_dropped_without_dropout() {
    assert!(masked(&DropoutMasks::new(0.0, 7, 0)).iter().all(|value| *value == 1.0));
}
