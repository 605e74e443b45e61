//! Graphs to encode.

use std::{fs, path::Path};

use grappa_formats::{permutation::Feistel, random::SplitMix64};

/// A graph to encode: rows of sources.
pub struct Csr {
    pub offsets: Vec<u64>,
    pub sources: Vec<u64>,
}

impl Csr {
    /// Sorts edges into rows and merges parallel ones.
    fn new(nodes: usize, edges: &[(u32, u32)]) -> Self {
        let mut offsets = vec![0; nodes + 1];
        for &(_, target) in edges {
            offsets[target as usize + 1] += 1;
        }
        for i in 0..nodes {
            offsets[i + 1] += offsets[i];
        }
        let mut sources = vec![0; edges.len()];
        let mut next = offsets.clone();
        for &(source, target) in edges {
            let source = u64::from(source);
            let place = &mut next[target as usize];
            sources[*place as usize] = source;
            *place += 1;
        }
        let mut end = 0;
        for row in 0..nodes {
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            sources[range.clone()].sort_unstable();
            offsets[row] = end as u64;
            let start = end;
            for i in range {
                if end == start || sources[end - 1] != sources[i] {
                    sources[end] = sources[i];
                    end += 1;
                }
            }
        }
        offsets[nodes] = end as u64;
        sources.truncate(end);
        Self { offsets, sources }
    }

    pub fn nodes(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    pub fn row(&self, row: u64) -> &[u64] {
        &self.sources[self.offsets[row as usize] as usize..self.offsets[row as usize + 1] as usize]
    }

    /// All nodes and their rows.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &[u64])> + Clone {
        (0..self.nodes()).map(|node| (node, self.row(node)))
    }
}

/// The R-MAT graph `rmat:SCALE`, or the edges of a `.npy` file; `None` if there is no such file.
pub fn load(name: &str) -> Option<Csr> {
    match name.strip_prefix("rmat:") {
        Some(scale) => Some(rmat(scale.parse().expect("a scale"), 16)),
        None => read_npy(Path::new(name)),
    }
}

/// An R-MAT graph with Graph500's probabilities and permuted ids.
fn rmat(scale: u32, edge_factor: usize) -> Csr {
    let nodes = 1usize << scale;
    let order = Feistel::new(nodes as u64, 1);
    let mut random = SplitMix64::new(7);
    let edges: Vec<(u32, u32)> = (0..nodes * edge_factor)
        .map(|_| {
            let (mut source, mut target) = (0u64, 0u64);
            for _ in 0..scale {
                let draw = random.draw() >> 32;
                // 0.57, 0.19, 0.19, 0.05 of 2^32.
                let (down, right) = match draw {
                    0..2448131358 => (0, 0),
                    2448131358..3264175144 => (0, 1),
                    3264175144..4080218930 => (1, 0),
                    _ => (1, 1),
                };
                source = source << 1 | down;
                target = target << 1 | right;
            }
            (order.forward(source) as u32, order.forward(target) as u32)
        })
        .collect();
    Csr::new(nodes, &edges)
}

/// An int64 [E,2] array of sources and targets; `None` if there is no such file.
fn read_npy(path: &Path) -> Option<Csr> {
    let bytes = fs::read(path).ok()?;
    let header_bytes = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let header = String::from_utf8_lossy(&bytes[10..10 + header_bytes]);
    assert!(
        header.contains("'<i8'") && header.contains("False") && header.contains(", 2)"),
        "{header}"
    );
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as u32;
    let pair = |pair: &[u8]| (number(&pair[..8]), number(&pair[8..]));
    let edges: Vec<(u32, u32)> = bytes[10 + header_bytes..].chunks_exact(16).map(pair).collect();
    let nodes = edges.iter().map(|&(source, target)| source.max(target)).max()? as usize + 1;
    Some(Csr::new(nodes, &edges))
}
