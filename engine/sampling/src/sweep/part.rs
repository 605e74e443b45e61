//! A part that grows hop by hop.

use grappa_formats::NodeId;
use grappa_io::{Result, heap};

use super::{
    record::{EdgeColumns, Reader, take_drawn, take_nodes},
    spill::{PartFile, SWEEP},
};
use crate::{
    sample::{Block, Hashed, check_size},
    shape::{GraphShape, RelationEnds},
};

/// The nodes of a part, and the block that is relabelled.
pub(super) struct GrowingPart {
    types: Vec<TypeNodes>,
    block: Block,
    /// The sources of the block before they are relabelled.
    sources: Vec<NodeId>,
    bytes: Vec<u8>,
}

/// The nodes of a type.
#[derive(Default)]
pub(super) struct TypeNodes {
    pub nodes: Vec<NodeId>,
    /// The limit of each node, if nodes have limits.
    pub limits: Vec<i64>,
    /// The number of nodes before the last hop, and before this one.
    last_reached: usize,
    pub reached: usize,
    table: Hashed,
}

impl TypeNodes {
    /// The nodes from `first` on, and their limits.
    pub fn from(&self, first: usize) -> (&[NodeId], &[i64]) {
        (&self.nodes[first..], self.limits.get(first..).unwrap_or_default())
    }
}

impl GrowingPart {
    pub fn new(shape: &GraphShape) -> Self {
        let types = shape.nodes.iter().map(|_| TypeNodes::default()).collect();
        Self { types, block: Block::default(), sources: Vec::new(), bytes: Vec::new() }
    }

    /// Loads the nodes of a part that earlier hops reached.
    pub fn load(&mut self, levels: &[PartFile], part: usize, has_limits: bool) -> Result<()> {
        let Self { types, bytes, .. } = self;
        for TypeNodes { nodes, limits, .. } in &mut *types {
            nodes.clear();
            limits.clear();
        }
        for level in levels {
            level.read(part, bytes)?;
            let mut rest = Reader(bytes);
            for TypeNodes { nodes, limits, last_reached, .. } in &mut *types {
                *last_reached = nodes.len();
                take_nodes(&mut rest, nodes, has_limits.then_some(limits)).ok_or_else(|| level.damaged())?;
            }
        }
        for TypeNodes { nodes, reached, table, .. } in types {
            *reached = nodes.len();
            table.begin_with(nodes, 2 * nodes.len());
        }
        Ok(())
    }

    /// Begins the block of a relation into a type. Returns the number of destinations that draw nothing.
    pub fn begin_block(&mut self, destination: usize, draws_once: bool) -> usize {
        let TypeNodes { last_reached, reached, .. } = self.types[destination];
        let skipped = if draws_once { last_reached } else { 0 };
        self.block.clear();
        self.block.begin(reached);
        self.block.skip(skipped);
        self.sources.clear();
        skipped
    }

    /// Reads what the next destination drew. None if it is damaged.
    pub fn add_destination(&mut self, record: &mut Reader<'_>, columns: EdgeColumns) -> Option<()> {
        take_drawn(record, columns, &mut self.block, &mut self.sources)
    }

    /// Relabels the sources of the block. False if destinations are missing.
    pub fn end_block(&mut self, RelationEnds { source, destination }: RelationEnds, has_limits: bool) -> Result<bool> {
        let Self { types, block, sources, .. } = self;
        if block.offsets.len() != block.destinations + 1 {
            return Ok(false);
        }
        let TypeNodes { nodes, table, .. } = &mut types[source];
        check_size(sources.len(), nodes.len() + sources.len())?;
        heap::grow(nodes, sources.len(), SWEEP)?;
        block.indices.resize(sources.len(), 0);
        let mut known = nodes.len();
        table.relabel_in_cache(sources, nodes, &mut block.indices);
        if has_limits {
            for target in 0..block.destinations {
                for edge in block.edges_of(target) {
                    if block.indices[edge] as usize == known {
                        let limit = block.edge_times.get(edge).copied().unwrap_or(types[destination].limits[target]);
                        types[source].limits.push(limit);
                        known += 1;
                    }
                }
            }
        }
        Ok(true)
    }

    /// The block, relabelled.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The nodes of each type.
    pub fn types(&self) -> &[TypeNodes] {
        &self.types
    }
}
