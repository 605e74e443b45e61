//! A slice of a graph with node types: the slices of its members.

use grappa_formats::graph::GraphManifest;
use grappa_io::{Result, journal::Journal};
use grappa_storage::{
    Graph, files,
    writer::{JOURNAL, StoreFolder},
};

use super::{
    options::Placed,
    placement::Placement,
    record::{Finished, Record},
};

/// Makes the slices of all members, node types first, and the graph of them.
pub(super) fn place_members(graph: &Graph, placements: &[Placement<'_>], folder: &StoreFolder) -> Result<Placed> {
    begin_journal(placements, folder)?;
    let types = graph.node_types().len();
    let names = (0..types).map(files::node_type_folder);
    let names = names.chain((0..graph.relations().len()).map(files::relation_folder));
    let (mut digests, mut members) = (Vec::new(), Vec::new());
    for (placement, name) in placements.iter().zip(names) {
        let complete = folder.complete_member(&name, placement.options.threads, placement.progress)?;
        let (manifest, placed) = match complete {
            Some(manifest) => {
                let placed = placement.complete(&folder.path().join(&name), &manifest)?;
                (manifest, placed)
            }
            None => placement.run(&folder.member(&name)?)?,
        };
        digests.push(manifest.digest());
        members.push(placed);
    }
    let mut manifest: GraphManifest = graph.manifest().clone();
    let (of_types, of_relations) = digests.split_at(types);
    manifest.node_types.iter_mut().zip(of_types).for_each(|(entry, digest)| entry.digest = *digest);
    manifest.relations.iter_mut().zip(of_relations).for_each(|(entry, digest)| entry.digest = *digest);
    let bytes = folder.commit_graph(&manifest)?;
    let (types, relations) = members.split_at(types);
    Ok(sum(types, relations, bytes))
}

/// Begins the journal of the graph, or compares the options with those of the earlier run.
fn begin_journal(placements: &[Placement<'_>], folder: &StoreFolder) -> Result<()> {
    let path = folder.path().join(JOURNAL);
    let mut fingerprint = placements[0].fingerprint()?;
    for (number, placement) in placements.iter().enumerate() {
        fingerprint.extend(placement.fingerprint()?.into_iter().map(|(name, value)| {
            let of_member = matches!(name.as_str(), "manifest" | "--chunks");
            (if of_member { format!("{name} of member {number}") } else { name }, value)
        }));
    }
    if path.exists() {
        return Finished::resume(folder.path(), &fingerprint).map(drop);
    }
    if folder.committing_graph()?.is_some() {
        return Ok(());
    }
    Journal::create(&path)?.append(&Record::Started(fingerprint))
}

/// What was placed of a graph: the nodes and chunks of its types, and the edges of its relations.
fn sum(types: &[Placed], relations: &[Placed], manifest_bytes: u64) -> Placed {
    let of_types = |count: fn(&Placed) -> u64| types.iter().map(count).sum::<u64>();
    let of_relations = |count: fn(&Placed) -> u64| relations.iter().map(count).sum::<u64>();
    let mut aggregates: Vec<_> = relations.iter().flat_map(|placed| placed.aggregates.iter().copied()).collect();
    aggregates.sort_unstable();
    aggregates.dedup();
    Placed {
        nodes: of_types(|placed| placed.nodes),
        nodes_present: of_types(|placed| placed.nodes_present),
        edges: of_relations(|placed| placed.edges),
        edges_left_out: of_relations(|placed| placed.edges_left_out),
        aggregates,
        chunks: of_types(|placed| placed.chunks.into()) as u32,
        chunks_present: of_types(|placed| placed.chunks_present.into()) as u32,
        chunks_halo: of_types(|placed| placed.chunks_halo.into()) as u32,
        chunks_halo_degrees: 0,
        files_linked: of_types(|placed| placed.files_linked) + of_relations(|placed| placed.files_linked),
        bytes_copied: of_types(|placed| placed.bytes_copied) + of_relations(|placed| placed.bytes_copied),
        bytes: of_types(|placed| placed.bytes) + of_relations(|placed| placed.bytes) + manifest_bytes,
    }
}
