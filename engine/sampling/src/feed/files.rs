//! Where the rows of a store are: in which file, and where in it.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

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
use grappa_storage::{Store, StoreIds, aggregates::Aggregates, files};

/// The files of a store's features, and of their aggregates if these are wanted.
#[derive(Debug)]
pub(super) struct RowFiles {
    chunks: ChunkMap,
    ids: Arc<StoreIds>,
    files: Arc<[ReadFile]>,
    /// Of each file.
    checksums: Vec<Checksums>,
    columns: Vec<ColumnFiles>,
}

/// Files as they are opened.
#[derive(Default)]
struct Opened {
    files: Vec<ReadFile>,
    checksums: Vec<Checksums>,
}

impl Opened {
    /// Adds a file; its index, and where its row 0 is.
    fn add(&mut self, file: &ContainerFile) -> Result<(FileIndex, u64)> {
        let index = FileIndex(self.files.len() as u32);
        self.files.push(ReadFile::open(file.path(), Some(file.bytes()))?);
        self.checksums.push(Checksums::of(file)?);
        Ok((index, file.header().payload_offset))
    }
}

/// The files of one column, one a chunk.
#[derive(Debug)]
struct ColumnFiles {
    layout: FeatureLayout,
    /// Of each chunk, its file and where in it row 0 is; none for the chunks that a slice lacks.
    places: Vec<Option<(FileIndex, u64)>>,
}

impl RowFiles {
    /// Opens the feature files of all chunks that are there, whose rows must have the layout that the manifest says, and
    /// those of the aggregates.
    pub fn open(store: &Store, layout: FeatureLayout, aggregates: Option<&Aggregates>) -> Result<Self> {
        let mut opened = Opened::default();
        let mut columns = vec![Self::features(store, layout, &mut opened)?];
        if let Some(aggregates) = aggregates {
            columns.push(Self::aggregates(aggregates, &mut opened)?);
        }
        Ok(Self {
            chunks: store.chunks().clone(),
            ids: store.ids().clone(),
            files: opened.files.into(),
            checksums: opened.checksums,
            columns,
        })
    }

    fn features(store: &Store, layout: FeatureLayout, opened: &mut Opened) -> Result<ColumnFiles> {
        let mut places = vec![None; store.chunks().chunks() as usize];
        for chunk in store.present_chunks() {
            let file: ContainerFile = store.file(&files::of_chunk(chunk, "features"))?;
            let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
            let span = ChunkSpan::of(store.chunks(), chunk);
            meta.span.expect(&span).map_err(Error::format(file.path()))?;
            if meta.layout != layout {
                let what = format!("the file has rows of {:?}, the manifest of {layout:?}", meta.layout);
                return Err(Error::input(file.path(), Position::Whole, what));
            }
            places[chunk.0 as usize] = Some(opened.add(&file)?);
        }
        Ok(ColumnFiles { layout, places })
    }

    fn aggregates(aggregates: &Aggregates, opened: &mut Opened) -> Result<ColumnFiles> {
        let places = aggregates
            .files()
            .iter()
            .map(|file| opened.add(&file.open()?).map(Some));
        Ok(ColumnFiles {
            layout: aggregates.layout(),
            places: places.collect::<Result<_>>()?,
        })
    }

    /// The files, by their index.
    pub fn files(&self) -> &Arc<[ReadFile]> {
        &self.files
    }

    /// The checksums of a file.
    pub fn checksums(&self, file: FileIndex) -> &Checksums {
        &self.checksums[file.0 as usize]
    }

    /// Bytes of memory that the checksums of all files may take.
    pub fn checksum_bytes(&self) -> u64 {
        self.checksums.iter().map(Checksums::memory_bytes).sum()
    }

    /// Compares what was read of a file, from `offset` on, with its checksums. Blocks that are not whole in it are read
    /// beside. If the file is no longer the one that was opened, that is the error.
    pub fn check_read(&self, file: FileIndex, offset: u64, bytes: &[u8]) -> Result<()> {
        let checksums = self.checksums(file);
        let payload_offset = checksums.header().payload_offset;
        let checked = checksums.check_with(offset - payload_offset, bytes, |block, at| {
            let path = checksums.path();
            let file = File::open(path).map_err(Error::io("open", path))?;
            file.read_exact_at(block, payload_offset + at)
                .map_err(Error::io("read", path))
        });
        checked.or_else(|error| {
            self.files[file.0 as usize].check_unchanged()?;
            Err(error)
        })
    }

    /// Which chunk each node is in.
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// How the rows of each column are laid out.
    pub fn layouts(&self) -> impl ExactSizeIterator<Item = FeatureLayout> + Clone {
        self.columns.iter().map(|column| column.layout)
    }

    /// Where a column's rows of a chunk start; none if a slice lacks them.
    pub fn chunk(&self, column: usize, chunk: ChunkId) -> Option<(FileIndex, u64)> {
        self.columns[column].places[chunk.0 as usize]
    }

    /// Where a column's row of a node starts; none if a slice lacks it.
    ///
    /// # Panics
    /// If there is no such node.
    #[inline]
    pub fn locate(&self, column: usize, node: NodeId) -> Option<(FileIndex, u64)> {
        let chunk = self.chunks.chunk_of(node);
        let (file, start) = self.chunk(column, chunk)?;
        let row = node.0 - self.chunks.starts()[chunk.0 as usize];
        Some((file, start + row * u64::from(self.columns[column].layout.stride)))
    }

    /// Fails if the row of `node` is not there.
    pub fn check(&self, node: NodeId) -> Result<()> {
        match self.locate(0, node) {
            Some(_) => Ok(()),
            None => Err(self.absent(node)),
        }
    }

    /// Why there is no row of `node`.
    pub fn absent(&self, node: NodeId) -> Error {
        Error::conflict(
            format!(
                "the features of {} are wanted, and the store is a slice without chunk {}",
                self.ids.name(node),
                self.chunks.chunk_of(node)
            ),
            "generate the store with that chunk in --only-chunks, or sample without halo",
        )
    }
}
