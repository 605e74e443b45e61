//! One in-neighbor of each node, drawn at random.

use std::sync::Mutex;

use grappa_formats::NodeId;
use grappa_io::{Error, Result, progress::Progress, workers};
use grappa_sampling::{NodeSet, Pieces, sample::draw_below};
use grappa_storage::MappedChunks;

use super::{NodeRows, StateRows, read_each};

/// Rows that are read at once.
const GATHER_ROWS: usize = 1 << 15;

/// A drawn in-neighbor of each node of a set.
#[derive(Debug)]
pub struct DrawnNeighbors {
    /// By position in the set.
    neighbors: Vec<Option<NodeId>>,
}

impl DrawnNeighbors {
    /// Draws an in-neighbor of each node, uniformly. The draw of a node depends on the node and on `seed` only.
    ///
    /// # Errors
    /// If an adjacency list is damaged, a thread cannot be started, or progress says to stop.
    pub fn draw(
        chunks: &MappedChunks,
        destinations: &NodeSet,
        seed: u64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut neighbors = vec![None; destinations.len() as usize];
        let drawn: Vec<_> = neighbors.chunks_mut(Pieces::NODES as usize).map(Mutex::new).collect();
        let pieces = Pieces::new(destinations, 0..destinations.len(), chunks);
        workers::run(threads, |worker| {
            let mut nodes = Vec::new();
            while worker.goes_on()
                && let Some(positions) = pieces.next(&mut nodes)
            {
                if progress.is_stopped() {
                    return Err(Error::Stopped);
                }
                let number = positions.start / Pieces::NODES;
                let mut drawn = drawn[number as usize].lock().expect("no thread panics");
                for (node, drawn) in nodes.iter().zip(drawn.iter_mut()) {
                    let (chunk, row) = chunks.locate(*node);
                    let rows = chunk.rows();
                    let row = rows.row(row)?;
                    if !row.is_empty() {
                        *drawn = Some(NodeId(row.get(draw_below(seed, node.0, row.degree()))));
                    }
                }
                chunks.release(&nodes);
            }
            Ok(())
        })?;
        drop(drawn);
        Ok(Self { neighbors })
    }

    /// The drawn nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.neighbors.iter().flatten().copied()
    }

    /// Writes, for each node of the set, the row of its neighbor. `rows` are the rows of the nodes in `rows_of`, which has all
    /// neighbors. Nodes without in-neighbors keep their rows of zeros.
    ///
    /// # Errors
    /// If files cannot be read or written.
    pub fn gather(&self, rows: &dyn NodeRows, rows_of: &NodeSet, threads: usize, out: &mut StateRows) -> Result<()> {
        let drawn = self.neighbors.iter().zip(0..);
        let mut sorted: Vec<(u64, u64)> =
            drawn.filter_map(|(neighbor, to)| Some((rows_of.position((*neighbor)?), to))).collect();
        // Rows in files are read in their order.
        sorted.sort_unstable();
        let width = rows.width();
        let (mut values, mut from) = (Vec::new(), Vec::new());
        for piece in sorted.chunks(GATHER_ROWS) {
            from.clear();
            from.extend(piece.iter().map(|(from, _)| *from));
            from.dedup();
            values.resize(from.len() * width, 0.0);
            read_each(rows, &from, &mut values, threads)?;
            let mut at = 0;
            for (wanted, to) in piece {
                at += usize::from(from[at] != *wanted);
                out.write(*to, &values[at * width..][..width])?;
            }
        }
        Ok(())
    }
}
