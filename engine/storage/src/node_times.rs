//! The times of the nodes of a type, which are in the order of time.
//!
//! They are one list of positions on the axis of time, in Elias-Fano code. So the nodes until a time are those below a position, which one
//! search finds. Opening reads and compares the whole list with its checksums, 1 to 3 bytes per node, so that lookups compare nothing.

use grappa_formats::{
    ChunkId, ChunkSpan, FormatError, NodeId,
    rows::{Row, RowCodec, RowSizes, Rows, RowsMeta},
    time_axis::TimeAxis,
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
};

use crate::{
    files,
    list_meta::{decode_pair, expect_adjacency},
};

/// The span of the only list.
pub const SPAN: ChunkSpan = ChunkSpan { chunk: ChunkId(0), first_node: NodeId(0), rows: 1 };

/// The mapped times of all nodes of a type. They ascend with the nodes.
#[derive(Debug)]
pub struct NodeTimes {
    axis: TimeAxis,
    meta: RowsMeta,
    sizes: RowSizes,
    times: MappedPayload,
    degrees: MappedPayload,
}

/// The open files of the times of nodes.
#[derive(Debug)]
pub struct NodeTimeFiles {
    times: ContainerFile,
    degrees: ContainerFile,
    meta: RowsMeta,
}

impl NodeTimeFiles {
    /// Checks that the headers of both files describe the times of `nodes` nodes on an axis with this number of `positions`.
    ///
    /// # Errors
    /// If they do not.
    pub fn new(times: ContainerFile, degrees: ContainerFile, nodes: u64, positions: u64) -> Result<Self> {
        let meta = decode_pair(&times, &degrees, files::NODE_TIMES)?;
        expect_adjacency(&meta, SPAN, positions).map_err(Error::format(times.path()))?;
        if (meta.codec, meta.edges) != (RowCodec::EliasFano, nodes) {
            let problem = format!("expected the times of {nodes} nodes in Elias-Fano code, found {}", meta.edges);
            return Err(Error::format(times.path())(FormatError::invalid(64, problem)));
        }
        Ok(Self { times, degrees, meta })
    }

    /// Maps the times, and compares them with their checksums.
    ///
    /// # Errors
    /// If a file is damaged.
    pub fn map(&self, axis: TimeAxis) -> Result<NodeTimes> {
        let mapped = NodeTimes {
            axis,
            meta: self.meta,
            sizes: RowSizes::from_meta(&self.meta),
            times: MappedPayload::new(&self.times, Access::Random)?,
            degrees: MappedPayload::new(&self.degrees, Access::Random)?,
        };
        for file in [&mapped.times, &mapped.degrees] {
            file.check(0..file.bytes())?;
        }
        let rows = mapped.try_rows().map_err(Error::format(self.times.path()))?;
        if rows.degree(0) != self.meta.edges {
            let problem = format!("the list has {} times, and the header {}", rows.degree(0), self.meta.edges);
            return Err(Error::format(self.degrees.path())(FormatError::invalid(64, problem)));
        }
        Ok(mapped)
    }
}

impl NodeTimes {
    /// The points in time that nodes have.
    pub fn axis(&self) -> &TimeAxis {
        &self.axis
    }

    /// The time of a node, in the unit of the axis.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn time(&self, node: NodeId) -> i64 {
        self.axis.time(self.list().get(node.0))
    }

    /// The number of nodes whose time is at most `time`. They are the first ones.
    pub fn not_later(&self, time: i64) -> u64 {
        self.list().lower_bound(self.axis.not_later(time))
    }

    /// The number of nodes whose time is before `time`. They are the first ones.
    pub fn earlier(&self, time: i64) -> u64 {
        self.list().lower_bound(self.axis.earlier(time))
    }

    /// Bytes of the list and its directory, without headers and checksums.
    pub fn payload_bytes(&self) -> u64 {
        self.times.bytes() + self.degrees.bytes()
    }

    /// Checks that the positions ascend and are on the axis, and that the files have nothing else.
    ///
    /// # Errors
    /// If they do not.
    pub fn check(&self) -> Result<()> {
        let rows = self.try_rows().expect("checked when opened");
        rows.check(|_, _| {}).map_err(|problem| Error::format(self.times.path())(problem.error))
    }

    /// The list of the positions of all nodes.
    fn list(&self) -> Row<'_> {
        self.try_rows().expect("checked when opened").row(0)
    }

    fn try_rows(&self) -> grappa_formats::Result<Rows<'_>> {
        Rows::new(&self.meta, &self.sizes, self.times.unchecked(), self.degrees.unchecked())
    }
}
