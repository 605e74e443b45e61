//! The two files of the encoded lists of a chunk: `edges` and `degrees`, or `times` and `time-degrees`.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use grappa_formats::{
    ChunkSpan, EdgePart,
    container::FileKind,
    rows::{RowsEncoder, RowsMeta},
};
use grappa_io::{
    Error, Result,
    container::{ContainerWriter, WrittenFile},
    unnamed::unnamed_file,
};

/// Encoded bytes per write.
pub const DRAIN_BYTES: usize = 256 << 10;

/// The files of encoded lists. The exceptions of the directory come after its lines. If there are many, they wait in a scratch file.
pub struct ListFiles {
    lists: ContainerWriter,
    directory: ContainerWriter,
    exceptions: Exceptions,
}

/// The exceptions of the directory that exceed a buffer.
struct Exceptions {
    /// The folder of the scratch file.
    folder: PathBuf,
    /// The scratch file, which has no name.
    file: Option<File>,
}

impl ListFiles {
    /// Creates files in the folder of a chunk. Each has the name and the kind of a file of the graph.
    pub fn create(folder: &Path, part: EdgePart, files: [(&str, FileKind); 2]) -> Result<Self> {
        let [lists, directory] =
            files.map(|(name, kind)| ContainerWriter::create(&folder.join(part.file(name)), kind, RowsMeta::BYTES));
        let exceptions = Exceptions { folder: folder.to_owned(), file: None };
        Ok(Self { lists: lists?, directory: directory?, exceptions })
    }

    /// Writes what is encoded, if it is much.
    pub fn drain(&mut self, encoder: &mut RowsEncoder) -> Result<()> {
        if encoder.finished_bytes() >= DRAIN_BYTES {
            self.lists.write(&encoder.take_bytes())?;
        }
        if encoder.exceptions_bytes() >= DRAIN_BYTES {
            self.exceptions.spill(&encoder.take_exceptions())?;
        }
        Ok(())
    }

    /// Completes the files, which are not synced yet: the directory, and the lists. Also returns how they are laid out.
    ///
    /// # Panics
    /// If fewer lists were pushed than the chunk has nodes.
    pub fn finish(mut self, mut encoder: RowsEncoder, span: ChunkSpan) -> Result<(RowsMeta, [WrittenFile; 2])> {
        if self.exceptions.file.is_some() {
            self.exceptions.spill(&encoder.take_exceptions())?;
        }
        let tail = encoder.finish();
        assert_eq!(tail.meta.rows, span.rows, "one adjacency list per node of chunk {}", span.chunk);
        self.lists.write(&tail.edges_payload_rest)?;
        self.directory.write(&tail.degrees_payload)?;
        self.exceptions.copy_to(&mut self.directory)?;
        let meta = tail.meta.encode();
        Ok((tail.meta, [self.directory.finish(meta.clone())?, self.lists.finish(meta)?]))
    }
}

impl Exceptions {
    /// Appends encoded exceptions to the scratch file.
    fn spill(&mut self, bytes: &[u8]) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(unnamed_file(&self.folder)?),
        };
        file.write_all(bytes).map_err(Error::io("write a scratch file in", &self.folder))
    }

    /// Appends what the scratch file has to `out`.
    fn copy_to(self, out: &mut ContainerWriter) -> Result<()> {
        let Some(mut file) = self.file else { return Ok(()) };
        file.rewind().map_err(Error::io("read a scratch file in", &self.folder))?;
        let mut buffer = Vec::with_capacity(DRAIN_BYTES);
        loop {
            let part = &mut (&file).take(DRAIN_BYTES as u64);
            let read = part.read_to_end(&mut buffer);
            if read.map_err(Error::io("read a scratch file in", &self.folder))? == 0 {
                return Ok(());
            }
            out.write(&buffer)?;
            buffer.clear();
        }
    }
}
