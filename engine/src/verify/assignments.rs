//! Verifies the assignments of a store.
//!
//! An assignment does not name its store. Whether it was copied from another one follows from the sizes of the chunks
//! ([`foreign`]).

use std::fs;

use grappa_sampling::partition::{ChunkTables, foreign};
use grappa_storage::{
    assignments::{self, read_current},
    files,
};

use super::check::StoreCheck;

/// Checks `CURRENT`, which must name an existing assignment. The one before it must exist too.
pub(super) fn current(check: &StoreCheck<'_>, assignments: &[&str]) {
    check.looked_at(fs::metadata(check.root.join(files::CURRENT)).map_or(0, |m| m.len()));
    let generation = match read_current(check.root) {
        Err(error) => return check.failed(files::CURRENT, error),
        Ok(generation) => generation,
    };
    let path = files::assignment(generation);
    if is_missing(check, assignments, &path) {
        return check.problem(&path, 0, "CURRENT names this assignment, and it is missing".into());
    }
    let Some(before) = generation.checked_sub(1).map(files::assignment) else {
        return;
    };
    // A repartitioning removes it after it has replaced CURRENT.
    if is_missing(check, assignments, &before) && read_current(check.root).is_ok_and(|now| now == generation) {
        let problem = "the assignment before the current one is kept for programs that are opening the store, and it is \
                        missing; grappa-store repartition writes the next one";
        check.problem(&before, 0, problem.into());
    }
}

fn is_missing(check: &StoreCheck<'_>, assignments: &[&str], path: &str) -> bool {
    !assignments.contains(&path) && !check.root.join(path).exists()
}

/// Checks an assignment, and whether it may be one of this store.
pub(super) fn assignment<'a>(check: &StoreCheck<'_>, tables: impl Into<ChunkTables<'a>>, path: &str) {
    let tables = tables.into();
    let generation = path.rsplit('/').next().and_then(files::generation_of);
    let generation = generation.expect("the name is an assignment's");
    let read = assignments::read(check.root, generation, tables.chunks());
    if read.as_ref().is_err_and(assignments::is_gone) {
        // A repartitioning may have removed it meanwhile. If the current one is missing, another check reports it.
        return;
    }
    check.looked_at(fs::metadata(check.root.join(path)).map_or(0, |m| m.len()));
    match read.map(|assignment| foreign(&assignment, tables)) {
        Ok(None) => {}
        Ok(Some(problem)) => {
            let problem = format!(
                "no repartitioning of this store makes this assignment: {problem}; was it copied from another store? \
                     grappa-store repartition writes the next one"
            );
            check.problem(path, 0, problem);
        }
        Err(error) => check.failed(path, error),
    }
}

/// The path, relative to a store, if it is an assignment.
pub(super) fn is_assignment(path: &str) -> Option<&str> {
    let name = path.strip_prefix(files::ASSIGNMENTS)?.strip_prefix('/')?;
    files::generation_of(name).map(|_| path)
}
