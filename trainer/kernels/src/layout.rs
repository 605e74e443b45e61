//! The layout of a tile's values for products: single f32, or pairs of bf16.

use std::ops::Deref;

use half::bf16;

use crate::{
    aligned::Aligned,
    element::Element,
    multiply::{Factors, Instructions, multiply, multiply_pairs, padded},
};

/// Rows of `width` values, `stride` values apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    pub values: &'a [T],
    pub stride: usize,
    pub width: usize,
}

impl<'a, T> Rows<'a, T> {
    pub fn dense(values: &'a [T], width: usize) -> Self {
        Self { values, stride: width, width }
    }

    fn iter(self) -> impl Iterator<Item = &'a [T]> {
        self.values.chunks(self.stride).map(move |row| &row[..self.width])
    }

    fn count(self) -> usize {
        self.values.len() / self.stride
    }
}

/// A factor of a product: the values themselves, or a copy in another layout.
#[derive(Debug)]
pub enum Items<'a, T> {
    Borrowed(&'a [T]),
    Owned(Aligned<T>),
}

impl<T> Deref for Items<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(items) => items,
            Self::Owned(items) => items,
        }
    }
}

impl<T: Copy + Default> Items<'_, T> {
    /// A copy, unless it is one.
    pub fn into_owned(self) -> Aligned<T> {
        match self {
            Self::Borrowed(items) => Aligned::from_values(items),
            Self::Owned(items) => items,
        }
    }
}

/// A layout of the factors of products.
pub trait Numbers<T: Element> {
    /// One or two values.
    type Item: Copy + Default + Send + Sync;
    /// Number of values per item.
    const VALUES: usize;

    /// The values with adjacent columns in one item, and the number of items per row: a first factor whose depth is the width.
    fn by_columns(rows: Rows<'_, T>) -> (Items<'_, Self::Item>, usize);

    /// The values with adjacent rows in one item, and the padded number of items per row: a second factor whose depth is the number of
    /// rows. With rows and columns exchanged, it is a first factor.
    fn by_rows(rows: Rows<'_, T>) -> (Items<'_, Self::Item>, usize);

    fn multiply(
        instructions: Instructions,
        factors: Factors<'_, Self::Item>,
        c: &mut [f32],
        rows: usize,
        columns: usize,
    );

    /// Number of items for `values` values; the last one may be padded with a zero.
    fn items(values: usize) -> usize {
        values.div_ceil(Self::VALUES)
    }
}

/// Single f32: of rows of f32, or of bf16 on processors without products of pairs.
#[derive(Debug)]
pub struct Single;

impl<T: Element> Numbers<T> for Single {
    type Item = f32;
    const VALUES: usize = 1;

    fn by_columns(rows: Rows<'_, T>) -> (Items<'_, f32>, usize) {
        match T::f32s(rows.values) {
            Some(values) => (Items::Borrowed(values), rows.stride),
            None => (Items::Owned(widen(rows, rows.width)), rows.width),
        }
    }

    fn by_rows(rows: Rows<'_, T>) -> (Items<'_, f32>, usize) {
        let stride = padded(rows.width);
        match T::f32s(rows.values).filter(|_| rows.stride == stride) {
            Some(values) => (Items::Borrowed(values), stride),
            None => (Items::Owned(widen(rows, stride)), stride),
        }
    }

    fn multiply(instructions: Instructions, factors: Factors<'_, f32>, c: &mut [f32], rows: usize, columns: usize) {
        multiply(instructions, factors, c, rows, columns);
    }
}

fn widen<T: Element>(rows: Rows<'_, T>, stride: usize) -> Aligned<f32> {
    let mut values = Aligned::zeros(rows.count() * stride);
    for (row, wide) in rows.iter().zip(values.chunks_mut(stride)) {
        for (value, wide) in row.iter().zip(wide) {
            *wide = value.to_f32();
        }
    }
    values
}

/// Pairs of bf16, the first in the lower half.
#[derive(Debug)]
pub struct Pairs;

fn pair(low: bf16, high: bf16) -> u32 {
    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
}

impl Numbers<bf16> for Pairs {
    type Item = u32;
    const VALUES: usize = 2;

    fn by_columns(rows: Rows<'_, bf16>) -> (Items<'_, u32>, usize) {
        let stride = rows.width.div_ceil(2);
        let mut items = Aligned::zeros(rows.count() * stride);
        for (row, items) in rows.iter().zip(items.chunks_mut(stride)) {
            let (pairs, last) = row.as_chunks();
            for ([low, high], item) in pairs.iter().zip(&mut *items) {
                *item = pair(*low, *high);
            }
            if let [last] = last {
                items[stride - 1] = pair(*last, bf16::ZERO);
            }
        }
        (Items::Owned(items), stride)
    }

    fn by_rows(rows: Rows<'_, bf16>) -> (Items<'_, u32>, usize) {
        let stride = padded(rows.width);
        let mut items = Aligned::zeros(rows.count().div_ceil(2) * stride);
        for (two, items) in rows.values.chunks(2 * rows.stride).zip(items.chunks_mut(stride)) {
            let (low, high) = two.split_at(rows.stride);
            if high.is_empty() {
                for (low, item) in low[..rows.width].iter().zip(items) {
                    *item = pair(*low, bf16::ZERO);
                }
            } else {
                for ((low, high), item) in low[..rows.width].iter().zip(high).zip(items) {
                    *item = pair(*low, *high);
                }
            }
        }
        (Items::Owned(items), stride)
    }

    fn multiply(instructions: Instructions, factors: Factors<'_, u32>, c: &mut [f32], rows: usize, columns: usize) {
        multiply_pairs(instructions, factors, c, rows, columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_a_partner_are_paired_with_zero() {
        let values: Vec<bf16> = (1..=12).map(|i| bf16::from_f32(i as f32)).collect();
        let rows = Rows { values: &values, stride: 4, width: 3 };
        let item = |low: f32, high: f32| pair(bf16::from_f32(low), bf16::from_f32(high));
        let (items, stride) = Pairs::by_columns(rows);
        assert_eq!(stride, 2);
        let expected = [(1.0, 2.0), (3.0, 0.0), (5.0, 6.0), (7.0, 0.0), (9.0, 10.0), (11.0, 0.0)];
        assert_eq!(*items, expected.map(|(low, high)| item(low, high)));

        let (items, stride) = Pairs::by_rows(rows);
        assert_eq!((stride, items.len()), (16, 32));
        assert_eq!(items[..4], [item(1.0, 5.0), item(2.0, 6.0), item(3.0, 7.0), 0]);
        assert_eq!(items[16..20], [item(9.0, 0.0), item(10.0, 0.0), item(11.0, 0.0), 0]);
    }
}
