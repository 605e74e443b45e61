//! Checks a graph with node types and relations: its manifest, and each member as a store.

use std::{path::Path, sync::PoisonError};

use grappa_formats::{
    graph::GraphManifest,
    manifest::{FeatureSpec, Manifest, Sources},
};
use grappa_io::{Error, Result, progress::Progress, regular};
use grappa_sampling::partition::ChunkTables;
use grappa_storage::{files, read_listed_member};

use super::{
    assignments,
    check::{Problem, StoreCheck, VerifyReport, names},
};

/// Where the digest of a manifest is in its file.
const DIGEST_OFFSET: u64 = 56;

/// Checks the graph at `path`.
pub(super) fn verify_graph(path: &Path, threads: usize, progress: &dyn Progress) -> Result<VerifyReport> {
    let file = path.join(files::MANIFEST);
    let bytes = regular::read(&file)?;
    let check = StoreCheck::new(path, progress);
    check.looked_at(bytes.len() as u64);
    let mut report = VerifyReport::default();
    match GraphManifest::decode(&bytes) {
        Ok(graph) => members(&graph, &check, threads, &mut report)?,
        Err(error) => check.failed(files::MANIFEST, Error::format(&file)(error)),
    }
    let found = check.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.files += found.files;
    report.bytes += found.bytes;
    report.problems.extend(found.problems);
    report.problems.sort();
    Ok(report)
}

/// Checks every member, and that the folder has no others.
fn members(graph: &GraphManifest, check: &StoreCheck<'_>, threads: usize, report: &mut VerifyReport) -> Result<()> {
    let types = graph.node_types.iter().enumerate();
    let types = types.map(|(number, entry)| (files::node_type_folder(number), entry.digest));
    let relations = graph.relations.iter().enumerate();
    let relations = relations.map(|(number, entry)| (files::relation_folder(number), entry.digest));
    let all: Vec<(String, u64)> = types.chain(relations).collect();
    for (name, _) in names(check.root)? {
        let is_known = name == files::MANIFEST || name == files::ASSIGNMENTS;
        if !is_known && !all.iter().any(|(member, _)| *member == name) {
            check.problem(&name, 0, "this is no part of the graph; remove it".to_owned());
        }
    }
    let mut manifests: Vec<Option<Manifest>> = Vec::new();
    for (number, (folder, digest)) in all.iter().enumerate() {
        let relation = number.checked_sub(graph.node_types.len()).map(|number| &graph.relations[number]);
        let sources = relation.and_then(|relation| manifests[relation.source as usize].as_ref());
        let features = sources.and_then(|sources| sources.features.clone());
        manifests.push(member(check, folder, *digest, features.as_ref(), threads, report)?);
    }
    for (number, entry) in graph.relations.iter().enumerate() {
        let [source, destination] = [entry.source, entry.destination].map(|end| manifests[end as usize].as_ref());
        let relation = manifests[graph.node_types.len() + number].as_ref();
        let (Some(source), Some(destination), Some(relation)) = (source, destination, relation) else { continue };
        let joins = Sources::Type(source.chunk_starts.clone());
        if relation.sources != joins || relation.chunk_starts != destination.chunk_starts {
            let problem = format!("the relation {} has other chunks than its types", graph.relation_name(number));
            check.problem(&format!("{}/{}", files::relation_folder(number), files::MANIFEST), 64, problem);
        }
    }
    let complete: Option<Vec<&Manifest>> = manifests.iter().map(Option::as_ref).collect();
    let tables = complete.map(|all| {
        let (types, relations) = all.split_at(graph.node_types.len());
        let ends = graph.relations.iter().map(|entry| [entry.source, entry.destination]);
        ChunkTables::new(types.to_vec(), relations.to_vec(), ends)
    });
    all_assignments(check, tables.as_ref())
}

/// Checks the assignments of the graph: all of them, if the chunks are known.
fn all_assignments(check: &StoreCheck<'_>, tables: Option<&ChunkTables<'_>>) -> Result<()> {
    let folder = check.root.join(files::ASSIGNMENTS);
    let found = if folder.is_dir() { names(&folder)? } else { Vec::new() };
    let paths: Vec<String> = found.into_iter().map(|(name, _)| format!("{}/{name}", files::ASSIGNMENTS)).collect();
    let listed: Vec<&str> = paths.iter().filter_map(|path| assignments::is_assignment(path)).collect();
    assignments::current(check, &listed);
    for path in &paths {
        if !listed.contains(&path.as_str()) && path != files::CURRENT && !files::is_left_over(path) {
            check.problem(path, 0, "this is no part of the graph; remove it".to_owned());
        }
    }
    let Some(tables) = tables else { return Ok(()) };
    listed.iter().for_each(|path| assignments::assignment(check, tables.clone(), path));
    Ok(())
}

/// Checks a member as a store. `features` are those of the sources of a relation. Returns its manifest, unless it can't be read.
fn member(
    graph: &StoreCheck<'_>,
    folder: &str,
    digest: u64,
    features: Option<&FeatureSpec>,
    threads: usize,
    report: &mut VerifyReport,
) -> Result<Option<Manifest>> {
    let root = graph.root.join(folder);
    let check = StoreCheck::new(&root, graph.progress);
    let manifest = match read_listed_member(&root, digest) {
        Ok(manifest) => {
            if manifest.digest() != digest {
                let problem = format!(
                    "this is not the member that the graph lists: expected the digest {digest:016x}, found {:016x}",
                    manifest.digest()
                );
                check.problem(files::MANIFEST, DIGEST_OFFSET, problem);
            }
            check.store(&manifest, features, threads)?;
            Some(manifest)
        }
        Err(error) => {
            check.failed(files::MANIFEST, error);
            if root.is_dir() {
                check.stray_files(threads)?;
            }
            None
        }
    };
    let found = check.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.files += found.files;
    report.bytes += found.bytes;
    let problems = found.problems.into_iter();
    report.problems.extend(problems.map(|problem| Problem { file: format!("{folder}/{}", problem.file), ..problem }));
    Ok(manifest)
}
