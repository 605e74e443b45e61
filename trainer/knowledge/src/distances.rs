//! Sums of absolute values as distances: of one pair, of a tile of queries and candidates, and their gradients.
//!
//! ```text
//! distances of a tile: for each 16 candidates, and each 2 queries, and each of 8 partial sums:
//!     keep 2 x 16 sums in registers
//!     for each eighth number of a row: add 2 x 16 absolute values
//! gradients: for each slice of 16 numbers of a row, and each block of candidates:
//!     copy the slice of the candidates to one place, which stays in the first cache with its gradients
//!     for each query: keep its gradients in registers
//!         for each candidate: add the gradients of the pair
//! ```
//!
//! The partial sums of a distance are the same for one pair and in a tile, so the bits are the same. Without them, one pair would wait for
//! each addition. `benches/distances.rs` measures tiles and gradients.

use std::array::from_fn;

use grappa_kernels::for_each;

use crate::matrix::PaddedRows;

/// Partial sums of a distance: sum `s` adds the numbers `s`, `s + 8`, `s + 16` and so on.
const SUMS: usize = 8;
/// Candidates that a tile handles at a time.
const COLUMNS: usize = 16;
/// Queries that a tile handles at a time. With 4, the compiler makes vectors of queries instead of candidates.
const QUERIES: usize = 2;
/// Numbers of a slice.
const SLICE: usize = 16;
/// Rows that a thread copies at a time.
const ROWS: usize = 256;
/// Keeps the square root of a sum of squares away from 0, where it has no derivative.
const SQUARE_MIN: f32 = 1e-12;

/// The absolute value of a number with `PARTS` parts. A row has the first parts of all numbers, then the second parts.
pub(crate) trait Magnitude<const PARTS: usize> {
    /// The absolute value.
    fn value(number: [f32; PARTS]) -> f32;

    /// A gradient times the derivative of the absolute value; 0 at 0.
    fn backward(number: [f32; PARTS], gradient: f32) -> [f32; PARTS];
}

/// Real numbers.
pub(crate) struct Real;

/// Complex numbers: real part and imaginary part.
pub(crate) struct Complex;

impl Magnitude<1> for Real {
    #[inline(always)]
    fn value([number]: [f32; 1]) -> f32 {
        number.abs()
    }

    #[inline(always)]
    fn backward([number]: [f32; 1], gradient: f32) -> [f32; 1] {
        // The gradient with the sign of the number. All numbers but 0 exceed it after the product, so this is two comparisons.
        let (large, limit) = (number * f32::MAX.copysign(gradient), gradient.abs());
        let below = if large > limit { limit } else { large };
        [if below < -limit { -limit } else { below }]
    }
}

impl Magnitude<2> for Complex {
    #[inline(always)]
    fn value([real, imaginary]: [f32; 2]) -> f32 {
        real.mul_add(real, imaginary.mul_add(imaginary, SQUARE_MIN)).sqrt()
    }

    #[inline(always)]
    fn backward([real, imaginary]: [f32; 2], gradient: f32) -> [f32; 2] {
        let factor = gradient / Self::value([real, imaginary]);
        [factor * real, factor * imaginary]
    }
}

/// The parts of a row.
#[inline(always)]
fn parts<const PARTS: usize>(row: &[f32]) -> [&[f32]; PARTS] {
    let numbers = row.len() / PARTS;
    from_fn(|part| &row[part * numbers..][..numbers])
}

#[inline(always)]
fn combine(sums: [f32; SUMS]) -> f32 {
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The distance of a query and a row.
pub(crate) fn distance<const PARTS: usize, M: Magnitude<PARTS>>(query: &[f32], row: &[f32]) -> f32 {
    let (query, row) = (parts::<PARTS>(query), parts::<PARTS>(row));
    let numbers = query[0].len();
    let mut sums = [0.0f32; SUMS];
    let whole = numbers - numbers % SUMS;
    for first in (0..whole).step_by(SUMS) {
        let [query, row] = [query, row].map(|parts| parts.map(|part| &part[first..first + SUMS]));
        for (k, sum) in sums.iter_mut().enumerate() {
            *sum += M::value(from_fn(|part| query[part][k] - row[part][k]));
        }
    }
    for k in whole..numbers {
        sums[k - whole] += M::value(from_fn(|part| query[part][k] - row[part][k]));
    }
    combine(sums)
}

/// The distances of queries and candidates, `[queries, columns]`. `transposed` has the candidates as `[values, columns]`; `columns` is a
/// multiple of 16.
pub(crate) fn distances<const PARTS: usize, M: Magnitude<PARTS>>(
    queries: PaddedRows<'_>,
    transposed: &[f32],
    columns: usize,
    distances: &mut [f32],
) {
    let numbers = queries.dim / PARTS;
    // The numbers of a partial sum are adjacent.
    let order: Vec<usize> = (0..SUMS).flat_map(|sum| (sum..numbers).step_by(SUMS)).collect();
    let groups: Vec<Vec<[[f32; PARTS]; QUERIES]>> = (0..queries.count())
        .step_by(QUERIES)
        .map(|first| {
            // A group that is not full has a query twice.
            let rows: [_; QUERIES] = from_fn(|query| parts(queries.row((first + query).min(queries.count() - 1))));
            order.iter().map(|&k| rows.map(|parts: [&[f32]; PARTS]| parts.map(|part| part[k]))).collect()
        })
        .collect();
    let mut lines = vec![[[0.0f32; COLUMNS]; PARTS]; numbers];
    for first in (0..columns).step_by(COLUMNS) {
        for (&k, lines) in order.iter().zip(&mut lines) {
            for (part, line) in lines.iter_mut().enumerate() {
                line.copy_from_slice(&transposed[(part * numbers + k) * columns + first..][..COLUMNS]);
            }
        }
        for (group, rows) in groups.iter().zip(distances.chunks_mut(QUERIES * columns)) {
            let found = strip_distances::<PARTS, M>(group, &lines);
            for (row, found) in rows.chunks_mut(columns).zip(found) {
                row[first..first + COLUMNS].copy_from_slice(&found);
            }
        }
    }
}

/// The distances of a group of queries and the candidates of a strip.
fn strip_distances<const PARTS: usize, M: Magnitude<PARTS>>(
    queries: &[[[f32; PARTS]; QUERIES]],
    lines: &[[[f32; COLUMNS]; PARTS]],
) -> [[f32; COLUMNS]; QUERIES] {
    let numbers = lines.len();
    let mut sums = [[[0.0f32; COLUMNS]; QUERIES]; SUMS];
    let mut first = 0;
    for (sum, sums) in sums.iter_mut().enumerate() {
        let end = first + (numbers + SUMS - 1 - sum) / SUMS;
        *sums = partial_sums::<PARTS, M>(&queries[first..end], &lines[first..end]);
        first = end;
    }
    from_fn(|query| from_fn(|column| combine(from_fn(|sum| sums[sum][query][column]))))
}

#[inline(always)]
fn partial_sums<const PARTS: usize, M: Magnitude<PARTS>>(
    queries: &[[[f32; PARTS]; QUERIES]],
    lines: &[[[f32; COLUMNS]; PARTS]],
) -> [[f32; COLUMNS]; QUERIES] {
    let mut sums = [[0.0f32; COLUMNS]; QUERIES];
    for (values, lines) in queries.iter().zip(lines) {
        for query in 0..QUERIES {
            for column in 0..COLUMNS {
                sums[query][column] += M::value(from_fn(|part| values[query][part] - lines[part][column]));
            }
        }
    }
    sums
}

/// Adds the gradients of a query and a row, from the gradient of their score, which is the negative distance.
pub(crate) fn backward<const PARTS: usize, M: Magnitude<PARTS>>(
    [query, row]: [&[f32]; 2],
    gradient: f32,
    [of_query, of_row]: [&mut [f32]; 2],
) {
    let numbers = query.len() / PARTS;
    for k in 0..numbers {
        let changes = M::backward(from_fn(|part| row[part * numbers + k] - query[part * numbers + k]), gradient);
        for (part, change) in changes.into_iter().enumerate() {
            of_query[part * numbers + k] += change;
            of_row[part * numbers + k] -= change;
        }
    }
}

/// Some numbers of a row. A slice begins with a line of the cache, because vectors that cross lines take twice as long.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slice<const PARTS: usize>([[f32; SLICE]; PARTS]);

/// The place of a slice in rows.
#[derive(Clone, Copy)]
struct SlicePlace {
    first: usize,
    len: usize,
    /// Numbers of a row.
    numbers: usize,
}

impl<const PARTS: usize> Slice<PARTS> {
    const ZEROS: Self = Self([[0.0; SLICE]; PARTS]);

    fn from_row(row: &[f32], place: SlicePlace) -> Self {
        let mut slice = Self::ZEROS;
        for (part, values) in slice.0.iter_mut().enumerate() {
            values[..place.len].copy_from_slice(&row[part * place.numbers + place.first..][..place.len]);
        }
        slice
    }

    fn copy_to(&self, row: &mut [f32], place: SlicePlace) {
        for (part, values) in self.0.iter().enumerate() {
            row[part * place.numbers + place.first..][..place.len].copy_from_slice(&values[..place.len]);
        }
    }
}

/// The gradients of all rows in a slice.
struct SliceGradients<const PARTS: usize> {
    place: SlicePlace,
    queries: Vec<Slice<PARTS>>,
    rows: Vec<Slice<PARTS>>,
}

/// Adds the gradients of queries and of candidates in blocks of `block` rows. `factors` has the gradients of scores, `[queries, columns]` for
/// each block. Slices are parts for threads.
pub(crate) fn gradients<const PARTS: usize, M: Magnitude<PARTS>>(
    queries: PaddedRows<'_>,
    rows: PaddedRows<'_>,
    block: usize,
    factors: &[Vec<f32>],
    [of_queries, of_rows]: [&mut [f32]; 2],
) {
    let (stride, numbers) = (queries.stride, queries.dim / PARTS);
    let load = |values: &[f32], place| values.chunks(stride).map(|row| Slice::from_row(row, place)).collect();
    let places = (0..numbers).step_by(SLICE);
    let places = places.map(|first| SlicePlace { first, len: SLICE.min(numbers - first), numbers });
    let mut slices: Vec<_> =
        places.map(|place| SliceGradients::<PARTS> { place, queries: Vec::new(), rows: Vec::new() }).collect();
    let before = [&*of_queries, &*of_rows];
    for_each(slices.iter_mut().collect(), |slice: &mut SliceGradients<PARTS>| {
        [slice.queries, slice.rows] = before.map(|gradients| load(gradients, slice.place));
        let query_values: Vec<Slice<PARTS>> = load(queries.data, slice.place);
        for ((rows, of_rows), factors) in
            rows.data.chunks(block * stride).zip(slice.rows.chunks_mut(block)).zip(factors)
        {
            let values: Vec<Slice<PARTS>> = load(rows, slice.place);
            let columns = factors.len() / queries.count();
            let queries = query_values.iter().zip(&mut slice.queries).zip(factors.chunks(columns));
            queries.for_each(|((query, of_query), factors)| {
                add_gradients::<PARTS, M>(query, factors, &values, of_query, of_rows);
            });
        }
    });
    let all = &slices;
    let store = |gradients: &mut [f32], slices: fn(&SliceGradients<PARTS>) -> &[Slice<PARTS>]| {
        for_each(gradients.chunks_mut(ROWS * stride).enumerate().collect(), |(part, rows): (usize, &mut [f32])| {
            for (number, row) in (part * ROWS..).zip(rows.chunks_mut(stride)) {
                all.iter().for_each(|slice| slices(slice)[number].copy_to(row, slice.place));
            }
        });
    };
    store(of_queries, |slice| &slice.queries);
    store(of_rows, |slice| &slice.rows);
}

/// Adds the gradients of a query and of the candidates of a block in a slice.
#[inline(never)]
fn add_gradients<const PARTS: usize, M: Magnitude<PARTS>>(
    query: &Slice<PARTS>,
    factors: &[f32],
    rows: &[Slice<PARTS>],
    of_query: &mut Slice<PARTS>,
    of_rows: &mut [Slice<PARTS>],
) {
    let mut sums = *of_query;
    for ((row, of_row), &factor) in rows.iter().zip(of_rows).zip(factors) {
        for k in 0..SLICE {
            let changes = M::backward(from_fn(|part| row.0[part][k] - query.0[part][k]), factor);
            for (part, change) in changes.into_iter().enumerate() {
                sums.0[part][k] += change;
                of_row.0[part][k] -= change;
            }
        }
    }
    *of_query = sums;
}
