//! Reads lists of pairs of nodes from files of external ids.

use std::path::Path;

use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_input::{EdgeBatch, EdgeSource, EdgeSourceOptions, EndIds, IdKind, IdLimit, TextBatch};
use grappa_io::{Error, Position, Result};
use grappa_storage::{ExternalId, Store};

/// Reads the pairs that a file lists by external id, source and target, in order. The formats are the formats of ingested edges, found from
/// the file.
///
/// # Errors
/// If the file cannot be read, or no node has a listed id; the message says where.
pub fn read_pairs(store: &Store, path: &Path) -> Result<Vec<(NodeId, NodeId)>> {
    let ids = match store.manifest().ids.external {
        ExternalIds::String => IdKind::String,
        ExternalIds::Dense | ExternalIds::Sparse => IdKind::Integer,
    };
    let options = EdgeSourceOptions { ends: EndIds::both(ids, IdLimit::Sparse), ..EdgeSourceOptions::default() };
    let source = EdgeSource::open(&[path.to_owned()], options)?;
    let mut blocks = Vec::new();
    let (mut integers, mut texts) = (EdgeBatch::default(), TextBatch::default());
    while let Some(block) = source.next_block(&|_| false)? {
        let pairs: Vec<[ExternalId; 2]> = match ids {
            IdKind::Integer => {
                block.parse(&mut integers, &mut |_| unreachable!("bad lines are errors"))?;
                let ends = integers.sources.iter().zip(&integers.targets);
                ends.map(|(&source, &target)| [source, target].map(ExternalId::Integer)).collect()
            }
            IdKind::String => {
                block.parse_text(&mut texts, &mut |_| unreachable!("bad lines are errors"))?;
                let ends = texts.sources.iter().zip(texts.targets.iter());
                ends.map(|(source, target)| [source, target].map(|id| ExternalId::String(id.to_vec()))).collect()
            }
        };
        blocks.push((block.id(), pairs));
    }
    blocks.sort_by_key(|(id, _)| *id);
    let pairs = (0..).zip(blocks.into_iter().flat_map(|(_, pairs)| pairs));
    pairs
        .map(|(number, ends)| {
            let [source, target] = ends.map(|id| match store.node(&id)? {
                Some(node) => Ok(node),
                None => {
                    let problem = format!("no node of {} has the id {id}", store.path().display());
                    Err(Error::input(path, Position::Row(number), problem))
                }
            });
            Ok((source?, target?))
        })
        .collect()
}
