//! CSR: numbers of 32, 64 or just enough bits.

use std::hint::black_box;

use super::{
    graph::Csr,
    measure::{Codec, Encoded, FANOUT, GROUP, positions},
    touch,
};

/// Offsets of 64 bits and sources of a fixed number of bytes.
pub struct Plain<T> {
    offsets: Vec<u64>,
    sources: Vec<T>,
}

impl<T> Plain<T> {
    pub fn new(graph: &Csr, narrow: impl Fn(u64) -> T) -> Self {
        Self {
            offsets: graph.offsets.clone(),
            sources: graph.sources.iter().map(|&source| narrow(source)).collect(),
        }
    }

    #[inline(always)]
    fn row(&self, (start, end): (u64, u64)) -> &[T] {
        &self.sources[start as usize..end as usize]
    }
}

impl<T: Copy + Into<u64>> Encoded for Plain<T> {
    type View<'a>
        = &'a Self
    where
        Self: 'a;

    fn view(&self) -> &Self {
        self
    }
}

impl<T: Copy + Into<u64>> Codec for &Plain<T> {
    fn bits(&self) -> u64 {
        8 * (size_of_val(&self.offsets[..]) + size_of_val(&self.sources[..])) as u64
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        for row in 0..self.offsets.len() as u64 - 1 {
            out.clear();
            self.decode_row(self.locate(row), out);
            black_box(&out);
        }
    }

    type Place = (u64, u64);

    #[inline(always)]
    fn locate(&self, row: u64) -> (u64, u64) {
        (self.offsets[row as usize], self.offsets[row as usize + 1])
    }

    fn touch_rows(&self, places: &[(u64, u64); GROUP]) -> u64 {
        let rows = places
            .iter()
            .flat_map(|&place| self.row(place).iter().step_by(64 / size_of::<T>()).take(8));
        rows.map(|&source| source.into()).sum()
    }

    #[inline(always)]
    fn decode_row(&self, place: (u64, u64), out: &mut Vec<u64>) {
        out.extend(self.row(place).iter().map(|&source| source.into()));
    }

    #[inline(always)]
    fn sample(&self, place: (u64, u64), fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        let row = self.row(place);
        let positions = positions(row.len() as u64, fractions);
        out.extend(positions.iter().map(|&k| row[k as usize].into()));
    }
}

/// Offsets and sources with the smallest sufficient number of bits.
pub struct Packed {
    offsets: FixedWidth,
    sources: FixedWidth,
    rows: u64,
}

impl Packed {
    pub fn new(graph: &Csr) -> Self {
        Self {
            offsets: FixedWidth::new(graph.sources.len() as u64, graph.offsets.iter().copied()),
            sources: FixedWidth::new(graph.nodes() - 1, graph.sources.iter().copied()),
            rows: graph.nodes(),
        }
    }
}

impl Encoded for Packed {
    type View<'a> = &'a Self;

    fn view(&self) -> &Self {
        self
    }
}

impl Codec for &Packed {
    fn bits(&self) -> u64 {
        8 * (self.offsets.bytes.len() + self.sources.bytes.len()) as u64
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        for row in 0..self.rows {
            out.clear();
            self.decode_row(self.locate(row), out);
            black_box(&out);
        }
    }

    type Place = (u64, u64);

    #[inline(always)]
    fn locate(&self, row: u64) -> (u64, u64) {
        (self.offsets.get(row), self.offsets.get(row + 1))
    }

    fn touch_rows(&self, places: &[(u64, u64); GROUP]) -> u64 {
        let width = self.sources.width;
        places
            .iter()
            .map(|&(start, end)| touch(&self.sources.bytes, start * width / 8..end * width / 8))
            .sum()
    }

    #[inline(always)]
    fn decode_row(&self, (start, end): (u64, u64), out: &mut Vec<u64>) {
        out.extend((start..end).map(|i| self.sources.get(i)));
    }

    #[inline(always)]
    fn sample(&self, (start, end): (u64, u64), fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        let positions = positions(end - start, fractions);
        out.extend(positions.iter().map(|&k| self.sources.get(start + k)));
    }
}

/// Numbers of at most 56 bits, packed.
struct FixedWidth {
    width: u64,
    mask: u64,
    bytes: Vec<u8>,
}

impl FixedWidth {
    fn new(max: u64, numbers: impl Iterator<Item = u64>) -> Self {
        let width = u64::from(64 - max.leading_zeros());
        let (mut bytes, mut pending, mut pending_bits) = (Vec::new(), 0u128, 0);
        for number in numbers {
            pending |= u128::from(number) << pending_bits;
            pending_bits += width;
            if pending_bits >= 64 {
                bytes.extend_from_slice(&(pending as u64).to_le_bytes());
                pending >>= 64;
                pending_bits -= 64;
            }
        }
        bytes.extend_from_slice(&pending.to_le_bytes());
        Self {
            width,
            mask: (1 << width) - 1,
            bytes,
        }
    }

    #[inline(always)]
    fn get(&self, index: u64) -> u64 {
        let at = index * self.width;
        let word = self.bytes[(at / 8) as usize..].first_chunk().expect("there is padding");
        u64::from_le_bytes(*word) >> (at % 8) & self.mask
    }
}
