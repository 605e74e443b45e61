//! The products of many queries with many keys, such as the scores of links. Each product is used while it is in the cache, and is not
//! stored.
//!
//! ```text
//! for each part of the queries, on the next free thread:
//!     for each tile of keys:
//!         products of the queries and the keys
//!         visit the products of each query
//! ```
//!
//! A matrix of all products would be written to memory and read again. The bench `top_k` of the trainer compares this with the products
//! alone, of libtorch.

use std::ops::{Range, RangeInclusive};

use crate::{
    aligned::Aligned,
    multiply::{Factors, Instructions, multiply},
    parallel::for_each,
    sparse::transpose,
};

/// Keys of a tile. The tile and its products with a part of the queries fit the second cache with up to 512 values.
const TILE: usize = 128;
/// Number of queries of a part: multiples of the number of rows that a product takes at once.
const PART: RangeInclusive<usize> = 12..=96;
/// Minimum number of parts, where there are enough queries.
const PARTS: usize = 16;

/// Keys in the layout of products.
#[derive(Debug)]
pub struct Keys {
    /// For each tile, `[width, TILE]`. The last tile has padding.
    tiles: Aligned<f32>,
    count: usize,
    width: usize,
}

impl Keys {
    /// Copies keys, `[keys, width]`.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn new(keys: &[f32], width: usize) -> Self {
        let count = keys.len() / width;
        let mut tiles = Aligned::zeros(count.div_ceil(TILE) * TILE * width);
        let parts = keys.chunks(TILE * width).zip(tiles.chunks_mut(TILE * width));
        for_each(parts.collect(), |(keys, tile): (&[f32], &mut [f32])| {
            transpose(keys, width, tile, TILE, |value| value);
        });
        Self { tiles, count, width }
    }

    /// Calls `visit` with the state of each query, a range of keys, and their products with the query. Ranges ascend. `queries` are
    /// `[queries, width]`.
    ///
    /// # Panics
    /// If there is not a state for each query.
    pub fn each_product<S: Send>(
        &self,
        queries: &[f32],
        states: &mut [S],
        visit: impl Fn(&mut S, Range<usize>, &[f32]) + Sync,
    ) {
        let width = self.width;
        assert_eq!(queries.len(), states.len() * width, "a state for each query");
        let part = states.len().div_ceil(PARTS).next_multiple_of(*PART.start()).clamp(*PART.start(), *PART.end());
        let instructions = Instructions::best();
        let parts = queries.chunks(part * width).zip(states.chunks_mut(part));
        for_each(parts.collect(), |(queries, states): (&[f32], &mut [S])| {
            let mut products = Aligned::zeros(states.len() * TILE);
            for (tile, first) in self.tiles.chunks(TILE * width).zip((0..).step_by(TILE)) {
                products.fill(0.0);
                let factors = Factors { a: queries, a_row: width, a_step: 1, b: tile, b_step: TILE, depth: width };
                multiply(instructions, factors, &mut products, states.len(), TILE);
                let range = first..self.count.min(first + TILE);
                for (state, products) in states.iter_mut().zip(products.chunks(TILE)) {
                    visit(state, range.clone(), &products[..range.len()]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers, whose products and sums are exact.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + i / 5 + seed * 3) % 17) as f32 - 8.0).collect()
    }

    #[test]
    fn each_query_visits_its_products_with_all_keys_in_their_order() {
        for (count, width, query_count) in [(1, 1, 1), (TILE, 16, 5), (3 * TILE + 7, 20, 300), (40, 3, 0), (0, 4, 7)] {
            let (keys, queries) = (numbers(count * width, 1), numbers(query_count * width, 2));
            let expected = queries.chunks(width).map(|query| {
                let product = |key: &[f32]| key.iter().zip(query).map(|(a, b)| a * b).sum();
                keys.chunks(width).map(product).collect()
            });
            let expected: Vec<Vec<f32>> = expected.collect();
            let mut visited = vec![Vec::new(); query_count];
            Keys::new(&keys, width).each_product(&queries, &mut visited, |visited, range, products| {
                assert_eq!((visited.len(), products.len()), (range.start, range.len()));
                visited.extend_from_slice(products);
            });
            assert_eq!(visited, expected, "{count} {width} {query_count}");
        }
    }
}
