//! The node permutation that a partition of the user gives: nodes by part, and within a part by dense id.
//!
//! ```text
//! read the parts: count the nodes of each. The nodes of a part begin where the part before ends.
//! read the parts again: the node of each dense id is the next of its part
//!     write the node; keep the dense id of the node
//! write the dense ids
//! ```
//!
//! Memory: five bytes per node, for the dense ids while the file is written, and for the nodes while edges are mapped.

use std::path::Path;

use grappa_formats::{
    container::FileKind,
    manifest::FileEntry,
    permutation_table::{ENTRY_BYTES, PermutationTableMeta, encode_entries},
};
use grappa_input::PartSource;
use grappa_io::{Error, Position, Result, container::ContainerWriter, durable, progress::Progress};
use grappa_storage::{files::PERMUTATION, writer::StoreFolder};

/// Bytes of memory that the table of `nodes` nodes takes.
pub fn memory(nodes: u64) -> u64 {
    nodes * ENTRY_BYTES as u64
}

/// Writes the permutation of `nodes` nodes that the file of parts `path` gives, synced. Returns the number of nodes of each
/// part that has any, and the file's entry. `dense`: whether ids are dense.
pub fn build(
    path: &Path,
    nodes: u64,
    dense: bool,
    store: &StoreFolder,
    progress: &dyn Progress,
) -> Result<(Vec<u64>, FileEntry)> {
    progress.stage("reading parts", None);
    let mut sizes: Vec<u64> = Vec::new();
    let mut lines = 0;
    for_each_part(path, |part| {
        let part = part as usize;
        if part >= sizes.len() {
            sizes.resize(part + 1, 0);
        }
        sizes[part] += 1;
        lines += 1;
        Ok(())
    })?;
    if lines != nodes {
        let remedy = match lines > nodes && dense {
            true => "if the last nodes have no edges, give the number of nodes with --nodes",
            false => "give one line per node, in the order of their ids",
        };
        let problem = format!("expected the part of each of {nodes} nodes, found {lines} parts; {remedy}");
        return Err(Error::input(path, Position::Whole, problem));
    }
    let mut next = Vec::with_capacity(sizes.len());
    let mut start = 0;
    for &size in &sizes {
        next.push(start);
        start += size;
    }

    let folder = store.folder("ids")?;
    let meta = PermutationTableMeta { nodes }.encode();
    let mut file = ContainerWriter::create(&store.path().join(PERMUTATION), FileKind::PERMUTATION, meta.len())?;
    let mut dense_ids = vec![[0; ENTRY_BYTES]; nodes as usize];
    let (mut id, mut bytes) = (0u64, Vec::new());
    for_each_part(path, |part| {
        // If the file changes between the two passes, a part gets more or fewer nodes than counted. Then an index is out of
        // range here, or the comparison at the end fails.
        let next = next.get_mut(part as usize).ok_or_else(|| changed(path))?;
        let place = dense_ids.get_mut(*next as usize).ok_or_else(|| changed(path))?;
        *place = id.to_le_bytes()[..ENTRY_BYTES].try_into().expect("five of eight bytes");
        encode_entries(&[*next], &mut bytes);
        if bytes.len() >= 64 << 10 {
            file.write(&bytes)?;
            bytes.clear();
        }
        *next += 1;
        id += 1;
        Ok(())
    })?;
    let mut end = 0;
    for (next, size) in next.iter().zip(&sizes) {
        end += size;
        if *next != end {
            return Err(changed(path));
        }
    }
    file.write(&bytes)?;
    file.write(dense_ids.as_flattened())?;
    let file = file.finish(meta)?;
    file.sync()?;
    durable::sync_folder(&folder)?;
    sizes.retain(|&size| size > 0);
    Ok((sizes, store.entry(&file)))
}

fn changed(path: &Path) -> Error {
    Error::input(path, Position::Whole, "the file changed while it was read; start again")
}

fn for_each_part(path: &Path, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut source = PartSource::open(path)?;
    let mut batch = Vec::new();
    while source.next_parts(&mut batch)? {
        for &part in &batch {
            each(part)?;
        }
    }
    Ok(())
}
