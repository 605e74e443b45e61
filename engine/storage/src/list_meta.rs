//! The meta of the two files of encoded lists: how it is read, and what it must say.

use grappa_formats::{ChunkSpan, FormatError, rows::RowsMeta};
use grappa_io::{Error, Result, container::ContainerFile};

/// The meta of two files, which is the same. `name` is the name of the first one.
pub fn decode_pair(lists: &ContainerFile, degrees: &ContainerFile, name: &str) -> Result<RowsMeta> {
    let meta = RowsMeta::decode(&lists.header().meta).map_err(Error::format(lists.path()))?;
    if degrees.header().meta != lists.header().meta {
        let problem = format!("the file describes other adjacency lists than the chunk's `{name}`");
        return Err(Error::format(degrees.path())(FormatError::invalid(64, problem)));
    }
    for (file, part, expected) in [
        (lists, "the adjacency lists", meta.edges_payload_bytes()),
        (degrees, "the directory of adjacency lists", meta.degrees_payload_bytes()),
    ] {
        let found = file.header().payload_bytes;
        if found != expected {
            return Err(Error::format(file.path())(FormatError::Length { part, expected, found }));
        }
    }
    Ok(meta)
}

/// Fails unless `meta` describes the adjacency lists of `span`, with sources among `sources` nodes.
pub fn expect_adjacency(meta: &RowsMeta, span: ChunkSpan, sources: u64) -> grappa_formats::Result<()> {
    let expected = (span.first_node.0, span.rows, sources);
    let found = (meta.first_node, meta.rows, meta.universe);
    if found != expected {
        return Err(FormatError::invalid(
            64,
            format!(
                "expected {} adjacency lists from node {} with sources among {} nodes, found {} from node {} with sources among {}; were \
                 files swapped?",
                expected.1, expected.0, expected.2, found.1, found.0, found.2
            ),
        ));
    }
    Ok(())
}
