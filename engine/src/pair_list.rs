//! Reads lists of pairs of nodes from files of external ids.

use std::{path::Path, sync::Arc};

use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_input::{EdgeBatch, EdgeSource, EdgeSourceOptions, EndIds, IdKind, IdLimit, TextBatch};
use grappa_io::{Error, Position, Result};
use grappa_storage::{ExternalId, Store, StoreIds};

/// Reads the pairs of a store or a relation that a file lists by external id, source and target, in order. The formats are the formats of
/// ingested edges, found from the file.
///
/// # Errors
/// If the file cannot be read, or no node has a listed id; the message says where.
pub fn read_pairs(store: &Store, path: &Path) -> Result<Vec<(NodeId, NodeId)>> {
    let ids = [store.source_ids(), store.ids()];
    let kinds = ids.map(|ids| match ids.kind() {
        ExternalIds::String => IdKind::String,
        ExternalIds::Dense | ExternalIds::Sparse => IdKind::Integer,
    });
    let are_strings = kinds.contains(&IdKind::String);
    let mut ends = EndIds::both(IdKind::Integer, IdLimit::Sparse);
    ends.iter_mut().zip(kinds).for_each(|(end, kind)| end.kind = kind);
    let options = EdgeSourceOptions { ends, ..EdgeSourceOptions::default() };
    let source = EdgeSource::open(&[path.to_owned()], options)?;
    let mut blocks = Vec::new();
    let (mut integers, mut texts) = (EdgeBatch::default(), TextBatch::default());
    while let Some(block) = source.next_block(&|_| false)? {
        let pairs: Vec<[ExternalId; 2]> = match are_strings {
            false => {
                block.parse(&mut integers, &mut |_| unreachable!("bad lines are errors"))?;
                let ends = integers.sources.iter().zip(&integers.targets);
                ends.map(|(&source, &target)| [source, target].map(ExternalId::Integer)).collect()
            }
            true => {
                block.parse_text(&mut texts, &mut |_| unreachable!("bad lines are errors"))?;
                let ends = texts.sources.iter().zip(texts.targets.iter());
                ends.map(|(source, target)| [external(kinds[0], source), external(kinds[1], target)]).collect()
            }
        };
        blocks.push((block.id(), pairs));
    }
    blocks.sort_by_key(|(id, _)| *id);
    let pairs = (0..).zip(blocks.into_iter().flat_map(|(_, pairs)| pairs));
    pairs
        .map(|(number, ends)| {
            let [source, target] = ends;
            let node = |ids: &StoreIds, id: ExternalId, end: &str| match ids.node(&id)? {
                Some(node) => Ok(node),
                None => {
                    let problem = format!("no {end} has the id {id}");
                    Err(Error::input(path, Position::Row(number), problem))
                }
            };
            let names = match Arc::ptr_eq(ids[0], ids[1]) {
                true => [0, 1].map(|_| format!("node of {}", store.path().display())),
                false => ["source", "destination"].map(str::to_owned),
            };
            Ok((node(ids[0], source, &names[0])?, node(ids[1], target, &names[1])?))
        })
        .collect()
}

/// The id of a key in a batch of text, where integers are eight bytes, the first one the highest.
fn external(kind: IdKind, key: &[u8]) -> ExternalId {
    match (kind, key.try_into()) {
        (IdKind::Integer, Ok(bytes)) => ExternalId::Integer(u64::from_be_bytes(bytes)),
        _ => ExternalId::String(key.to_vec()),
    }
}
