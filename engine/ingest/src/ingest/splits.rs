//! Splits: from lists of external ids to sets of nodes.

use grappa_formats::{
    NodeId,
    manifest::{ExternalIds, SplitEntry},
};
use grappa_input::{Conversion, IdKind, IdLimit, Input, InputPlace, SplitSource};
use grappa_io::{Error, Position, Result};
use roaring::RoaringTreemap;

use crate::{
    ids::{IdMap, Strings},
    ingest::{
        id_lists::{self, Join, Lookup},
        job::IngestJob,
        journal::Record,
        node_ingest::{NodeIngest, SplitFile, id_kind, id_limit},
        plan::check_sets,
    },
};

/// Reads the ids of all listed splits and writes a file with the nodes of each, unless an earlier run has.
pub fn write_listed(job: &IngestJob<'_>, ids: &IdMap, join: Option<Join<'_>>) -> Result<Vec<SplitEntry>> {
    let (options, nodes) = (job.nodes, ids.nodes());
    if options.splits.files.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(splits) = job.journal.splits() {
        return Ok(splits);
    }
    let lookup = Lookup { ids, strings: Strings::Any, join, threads: job.resources.threads };
    let mut bytes = 0;
    for split in &options.splits.files {
        let source = open(&split.ids, options, nodes)?;
        if let Some(warning) = source.warning()? {
            tracing::warn!("{warning}");
        }
        bytes += id_lists::set_memory(&source, nodes);
    }
    check_sets("the sets of the nodes of all splits".to_owned(), bytes, &job.budget)?;
    let sets: Vec<_> = options
        .splits
        .files
        .iter()
        .map(|split| Ok((split.clone(), read(&split.ids, options, nodes, &lookup)?)))
        .collect::<Result<_>>()?;
    check_disjoint(&sets, options.ids, |node| ids.external(node))?;
    let sets: Vec<_> = sets.iter().map(|(split, set)| (split.name, set)).collect();
    write(job, nodes, &sets)
}

/// Writes a file with the nodes of each split, and records the splits.
pub fn write(job: &IngestJob<'_>, nodes: u64, sets: &[(&str, &RoaringTreemap)]) -> Result<Vec<SplitEntry>> {
    let written = sets.iter().map(|&(name, set)| {
        let (split, file) = job.store.write_split(name, nodes, set)?;
        Ok((split.name, split.nodes, file))
    });
    job.journal.record(Record::Split(written.collect::<Result<_>>()?))?;
    Ok(job.journal.splits().expect("they are recorded now"))
}

fn open(input: &Input, options: &NodeIngest, nodes: u64) -> Result<SplitSource> {
    let (kind, limit) = (id_kind(options.ids), id_limit(options.ids, Some(nodes)));
    SplitSource::open_with(input, kind, limit, &options.data.tables)
}

/// Reads the ids of a split of a graph with `nodes` nodes and looks up its nodes.
fn read(input: &Input, options: &NodeIngest, nodes: u64, lookup: &Lookup<'_>) -> Result<RoaringTreemap> {
    let kind = id_kind(options.ids);
    let source = open(input, options, nodes)?;
    // Row N of a mask is the node with the id N.
    if source.is_mask() && (options.ids != ExternalIds::Dense || options.data.ids.is_some()) {
        let problem = "a mask needs --ids dense without --node-ids, where row N is the node N; with --node-ids or --ids sparse, \
                    give a list of the ids of its nodes";
        return Err(Error::input(input.name(), Position::Whole, problem));
    }
    source.expect_rows(nodes, "give --nodes if there are more nodes than the edges show")?;
    let mut set = RoaringTreemap::new();
    drop(source);
    id_lists::for_each_node(
        || open(input, options, nodes),
        kind,
        lookup,
        |_, place, node, id| {
            let problem = match node {
                Some(node) if set.insert(node.0) => return Ok(()),
                Some(_) => format!(
                    "the id {} is there already, {}; list each id once. If the file is a mask, it must be a .npy of type bool: {}",
                    id(),
                    first_place(open(input, options, nodes)?, kind, &id())?,
                    input.remedy(Conversion::IntegersToMask)
                ),
                None => format!("the graph has no node with the id {}; remove it from the split", id()),
            };
            Err(place.error(problem))
        },
    )?;
    if set.is_empty() {
        return Err(Error::input(input.name(), Position::Whole, "the split has no ids; omit it"));
    }
    Ok(set)
}

/// Fails if two splits share a node.
fn check_disjoint(
    splits: &[(SplitFile, RoaringTreemap)],
    kind: ExternalIds,
    external: impl Fn(NodeId) -> Result<String>,
) -> Result<()> {
    for (at, (a, nodes)) in splits.iter().enumerate() {
        for (b, others) in &splits[..at] {
            let shared = nodes & others;
            if let Some(node) = shared.min() {
                let id = external(NodeId(node))?;
                let is_header = shared.len() == 1
                    && kind == ExternalIds::String
                    && is_first_line(&a.ids, &id)?
                    && is_first_line(&b.ids, &id)?;
                let problem = format!(
                    "{} node(s) are also in the split {} ({}), for example {id}; splits must not overlap{}",
                    shared.len(),
                    b.name,
                    b.ids,
                    match is_header {
                        true => format!(
                            "; it is the first line of both files: if that is a header, remove it: {}",
                            a.ids.remedy(Conversion::RemoveHeader)
                        ),
                        false => String::new(),
                    }
                );
                return Err(Error::input(a.ids.name(), Position::Whole, problem));
            }
        }
    }
    Ok(())
}

/// Whether the first line of a list of strings is `id`.
fn is_first_line(input: &Input, id: &str) -> Result<bool> {
    let mut source = SplitSource::open(input, IdKind::String, IdLimit::Sparse)?;
    let place = id_lists::place_of(&mut source, IdKind::String, id)?;
    Ok(place.is_some_and(|place| place.position == Position::Line(1)))
}

/// The place of the first `id` of a split, for a message. It reads the file again.
fn first_place(mut source: SplitSource, kind: IdKind, id: &str) -> Result<String> {
    let list = source.path().to_owned();
    let Some(InputPlace { path, position }) = id_lists::place_of(&mut source, kind, id)? else {
        return Ok("before".to_owned());
    };
    let suffix = match path == list {
        true => String::new(),
        false => format!(" of {}", path.display()),
    };
    Ok(match position {
        Position::Line(line) => format!("in line {line}{suffix}"),
        Position::Row(row) => format!("at row {row}{suffix}"),
        Position::Whole | Position::Offset(_) => "before".to_owned(),
    })
}
