//! Cost of the scores of queries and candidates, and of the loss and the gradients of one side of a batch, for each similarity.
//!
//!     cargo bench -p grappa-knowledge --bench distances [-- --tiny]
//!
//! With `--tiny`, a few queries and one run show that the bench works; its figures mean nothing.
//!
//! One thread, 512 queries, 1024 candidates, rows of 256 values. Columns are nanoseconds of processor time for a query and a candidate: the
//! best run's and the median run's.

use std::hint::black_box;

use grappa_formats::random;
use grappa_kernels::padded;
use grappa_knowledge::{
    loss::TripleLoss,
    matrix::{Matrix, PaddedRows},
    side::{Positives, Side, SideGradients, SideMemory},
    similarity::{CandidateBlock, Similarity},
};

const DIM: usize = 256;
const BLOCK: usize = 64;
const SIMILARITIES: [Similarity; 4] =
    [Similarity::Dot, Similarity::Euclidean, Similarity::Manhattan, Similarity::Moduli];

fn main() {
    let is_tiny = std::env::args().any(|argument| argument == "--tiny");
    let (queries, candidates, repeats) = if is_tiny { (16, 64, 1) } else { (512, 1024, 15) };
    let [queries, candidates, positives] = [(queries, 1), (candidates, 2), (queries, 3)].map(random_rows);
    let pairs = (queries.rows() * candidates.rows()) as f64;
    println!("| similarity | operation | ns, best | ns, median |\n|---|---|---:|---:|");
    for similarity in SIMILARITIES {
        let scores = times(repeats, || scores(similarity, &queries, &candidates));
        let side = Side {
            similarity,
            loss: TripleLoss::Logistic { margin: 9.0, adversarial: 1.0 },
            weight: 0.001,
            dim: DIM,
            queries: &queries,
            candidates: &candidates,
            positives: Positives::Apart(&positives, &[]),
        };
        let (mut memory, mut gradients) = (SideMemory::default(), SideGradients::default());
        let mut of_candidates = Matrix::zeros(candidates.rows(), DIM);
        let backward = times(repeats, || {
            black_box(side.backward(&mut memory, &mut gradients, &mut of_candidates.data));
        });
        for (operation, [best, median]) in [("scores", scores), ("loss and gradients", backward)] {
            let [best, median] = [best, median].map(|seconds| seconds * 1e9 / pairs);
            println!("| {similarity:?} | {operation} | {best:.1} | {median:.1} |");
        }
    }
}

fn random_rows((rows, seed): (usize, u64)) -> Matrix {
    let mut matrix = Matrix::zeros(rows, DIM);
    matrix.fill_rows(|row, place| {
        let key = random::combine(seed, row as u64);
        for (k, value) in (0..).zip(&mut place[..DIM]) {
            // Distances are about the margin, as in training. Gradients of much larger ones are denormal numbers, which are slow.
            *value = ((random::draw_at(key, k) >> 40) as f32 / (1 << 24) as f32 - 0.5) / 10.0;
        }
    });
    matrix
}

/// Scores all pairs as a ranking does: blocks are prepared, then compared with all queries.
fn scores(similarity: Similarity, queries: &Matrix, candidates: &Matrix) {
    let [queries, candidates] =
        [queries, candidates].map(|matrix| PaddedRows { data: &matrix.data, stride: matrix.stride, dim: DIM });
    let mut block = CandidateBlock::default();
    let mut scores = vec![0.0; queries.count() * BLOCK];
    for first in (0..candidates.count()).step_by(BLOCK) {
        let rows = candidates.range(first, candidates.count().min(first + BLOCK));
        block.prepare(similarity, rows, padded(rows.count()));
        similarity.scores(queries, &block, &mut scores);
        black_box(&scores);
    }
}

/// Seconds of processor time of the best run and of the median run.
fn times(repeats: usize, mut work: impl FnMut()) -> [f64; 2] {
    let mut seconds: Vec<f64> = (0..repeats)
        .map(|_| {
            let begin = processor_seconds();
            work();
            processor_seconds() - begin
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    [seconds[0], seconds[repeats / 2]]
}

fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
