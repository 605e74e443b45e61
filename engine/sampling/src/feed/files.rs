//! The files of feature rows, and the location of each row in them.

use std::{collections::BTreeMap, fs::File, ops::Range, os::unix::fs::FileExt, sync::Arc};

use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    chunks::ChunkMap,
    features::{FeatureLayout, FeaturesMeta},
};
use grappa_io::{
    Error, Position, Result,
    container::{Checksums, ContainerFile},
    read::{FileIndex, ReadFile},
};
use grappa_storage::{Graph, aggregates::Aggregates, files};

use super::rows::{Column, RowContent, RowFormat};

/// The files of a store's features, and of its pre-aggregated features if they are requested.
#[derive(Debug)]
pub(super) struct RowFiles {
    /// The division of positions into chunks.
    pub chunks: ChunkMap,
    graph: Graph,
    /// All files, by their index.
    pub files: Arc<[ReadFile]>,
    /// One for each file.
    checksums: Vec<Checksums>,
    columns: Vec<ColumnFiles>,
    /// The rows that files have of a node, each of other columns.
    pub rows: Vec<FileRow>,
}

/// Files that were opened so far.
#[derive(Default)]
struct Opened {
    files: Vec<ReadFile>,
    checksums: Vec<Checksums>,
}

impl Opened {
    /// Adds a file. Returns its index and the offset of its row 0.
    fn add(&mut self, file: &ContainerFile) -> Result<(FileIndex, u64)> {
        let index = FileIndex(self.files.len() as u32);
        self.files.push(ReadFile::open(file.path(), Some(file.bytes()))?);
        self.checksums.push(file.new_checksums()?);
        Ok((index, file.header().payload_offset))
    }
}

/// The files of one column, one per chunk.
#[derive(Debug)]
struct ColumnFiles {
    layout: FeatureLayout,
    /// The offset of the column in a row of a file.
    offset: u64,
    /// For each chunk, its file and the offset of row 0. None for chunks whose rows a slice lacks.
    locations: Vec<Option<(FileIndex, u64)>>,
}

/// What a file has of a node: its row of one column, or of all columns side by side.
#[derive(Debug, Clone)]
pub(super) struct FileRow {
    pub columns: Range<usize>,
    /// The positions of the nodes of its type.
    pub positions: Range<u64>,
    /// Bytes without padding.
    pub bytes: u64,
    /// Bytes from one row to the next.
    pub stride: u64,
}

impl RowFiles {
    /// Opens the feature files of the columns of `format`, and the files of the `aggregates` of relations. Rows must have the layouts of the
    /// manifests.
    pub fn open(graph: &Graph, format: &RowFormat, aggregates: &BTreeMap<usize, Aggregates>) -> Result<Self> {
        let mut opened = Opened::default();
        // Those of a store without types.
        let beside = aggregates.values().find(|aggregates| aggregates.with_features());
        let side_by_side = beside.is_some();
        let columns = match beside {
            Some(aggregates) => Self::side_by_side(graph, aggregates, &format.columns[0], &mut opened)?,
            None => {
                let columns = format.columns.iter().map(|column| match column.content {
                    RowContent::Features => Self::features(graph, column, &mut opened),
                    RowContent::Aggregates(relation) => {
                        Self::aggregates(graph, &aggregates[&relation], column, &mut opened)
                    }
                });
                columns.collect::<Result<_>>()?
            }
        };
        Ok(Self {
            chunks: graph.positions().chunks().clone(),
            graph: graph.clone(),
            files: opened.files.into(),
            checksums: opened.checksums,
            rows: Self::rows_of(graph, format, &columns, side_by_side),
            columns,
        })
    }

    fn features(graph: &Graph, column: &Column, opened: &mut Opened) -> Result<ColumnFiles> {
        let Column { row_type, stored: layout, .. } = *column;
        let (store, positions) = (&graph.node_types()[row_type.node_type], graph.positions());
        let first_chunk = positions.chunks_of(row_type.node_type).start;
        let mut locations = vec![None; positions.chunks().chunks() as usize];
        for chunk in store.feature_chunks() {
            let file: ContainerFile = store.file(&files::of_chunk(chunk, "features"))?;
            let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
            let span = ChunkSpan::for_chunk(store.chunks(), chunk);
            meta.span.expect(&span).map_err(Error::format(file.path()))?;
            if meta.layout != layout {
                let problem = format!("the file has rows of {:?}, but the manifest says {layout:?}", meta.layout);
                return Err(Error::input(file.path(), Position::Whole, problem));
            }
            locations[(first_chunk + chunk.0) as usize] = Some(opened.add(&file)?);
        }
        Ok(ColumnFiles { layout, offset: 0, locations })
    }

    fn aggregates(graph: &Graph, aggregates: &Aggregates, column: &Column, opened: &mut Opened) -> Result<ColumnFiles> {
        let positions = graph.positions();
        let mut locations = vec![None; positions.chunks().chunks() as usize];
        let of_type = &mut locations[positions.chunks_of(column.row_type.node_type).start as usize..];
        for (location, file) in of_type.iter_mut().zip(aggregates.files()) {
            *location = file.as_ref().map(|file| opened.add(&file.open()?)).transpose()?;
        }
        Ok(ColumnFiles { layout: aggregates.layout(), offset: 0, locations })
    }

    /// Features and pre-aggregated features of the same files.
    fn side_by_side(
        graph: &Graph,
        aggregates: &Aggregates,
        column: &Column,
        opened: &mut Opened,
    ) -> Result<Vec<ColumnFiles>> {
        let aggregates = Self::aggregates(graph, aggregates, column, opened)?;
        let features = ColumnFiles {
            layout: aggregates.layout,
            offset: aggregates.layout.features_offset() as u64,
            locations: aggregates.locations.clone(),
        };
        Ok(vec![features, aggregates])
    }

    fn rows_of(graph: &Graph, format: &RowFormat, columns: &[ColumnFiles], side_by_side: bool) -> Vec<FileRow> {
        let in_row = if side_by_side { columns.len() } else { 1 };
        let rows = (0..columns.len()).step_by(in_row).map(|first| first..first + in_row);
        rows.map(|row| {
            let ends = columns[row.clone()].iter().map(|column| column.offset + column.layout.row_bytes() as u64);
            FileRow {
                bytes: ends.max().unwrap_or_default(),
                stride: columns[row.start].layout.stride.into(),
                positions: graph.positions().range(format.columns[row.start].row_type.node_type),
                columns: row,
            }
        })
        .collect()
    }

    /// The checksums of a file.
    pub fn checksums(&self, file: FileIndex) -> &Checksums {
        &self.checksums[file.0 as usize]
    }

    /// The maximum number of bytes of memory that the checksums of all files take.
    pub fn checksum_bytes(&self) -> u64 {
        self.checksums.iter().map(Checksums::memory_bytes).sum()
    }

    /// Verifies `bytes`, which were read from `offset` of a file, with the checksums of their blocks. The rest of a
    /// block that is not complete in `bytes` is read here. If the file changed since it was opened, the error says so.
    pub fn check_read(&self, file: FileIndex, offset: u64, bytes: &[u8]) -> Result<()> {
        let checksums = self.checksums(file);
        let payload_offset = checksums.header().payload_offset;
        let checked = checksums.check_with(offset - payload_offset, bytes, |block, at| {
            let path = checksums.path();
            let file = File::open(path).map_err(Error::io("open", path))?;
            file.read_exact_at(block, payload_offset + at).map_err(Error::io("read", path))
        });
        checked.or_else(|error| {
            self.files[file.0 as usize].check_unchanged()?;
            Err(error)
        })
    }

    /// The layout of the rows of each column.
    pub fn layouts(&self) -> impl ExactSizeIterator<Item = FeatureLayout> + Clone {
        self.columns.iter().map(|column| column.layout)
    }

    /// The offset of a column in a row of a file.
    pub fn offset(&self, column: usize) -> u64 {
        self.columns[column].offset
    }

    /// The file of a column's rows of a chunk, and the offset of the first row. None if a slice lacks them.
    pub fn chunk(&self, column: usize, chunk: ChunkId) -> Option<(FileIndex, u64)> {
        self.columns[column].locations[chunk.0 as usize]
    }

    /// The file and offset of the file's row of a node, given its position, which has the column. None if a slice lacks the row.
    ///
    /// # Panics
    /// If the node does not exist.
    #[inline]
    pub fn locate(&self, column: usize, node: NodeId) -> Option<(FileIndex, u64)> {
        let chunk = self.chunks.chunk_of(node);
        let (file, start) = self.chunk(column, chunk)?;
        let row = node.0 - self.chunks.starts()[chunk.0 as usize];
        Some((file, start + row * u64::from(self.columns[column].layout.stride)))
    }

    /// Fails if a slice lacks the row of `node`.
    pub fn check(&self, node: NodeId) -> Result<()> {
        let chunk = self.chunks.chunk_of(node);
        match (0..self.columns.len()).any(|column| self.chunk(column, chunk).is_some()) {
            true => Ok(()),
            false => Err(self.absent(node)),
        }
    }

    /// The error for a row that a slice lacks.
    pub fn absent(&self, node: NodeId) -> Error {
        let (node_type, local) = self.graph.positions().locate(node.0);
        Error::conflict(
            format!(
                "the features of {} are needed, but the store is a slice without the features of chunk {}",
                self.graph.node_types()[node_type].ids().name(local),
                self.graph.node_types()[node_type].chunks().chunk_of(local)
            ),
            "add them (`grappa-store place --halo-features`), add that chunk (`grappa-store place`, or `grappa-gen --only-chunks`), or sample \
             without halo",
        )
    }
}
