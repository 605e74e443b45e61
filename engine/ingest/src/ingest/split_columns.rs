//! Splits from columns of a table of features or labels.

use grappa_formats::manifest::SplitEntry;
use grappa_input::{SPLITS, SplitColumns};
use grappa_io::{Error, Position, Result, progress::check_stopped};
use roaring::RoaringTreemap;

use crate::ingest::{
    job::IngestJob,
    node_ingest::{NodeIngest, SplitFile, surplus_rows_remedy},
    plan::check_sets,
    row_nodes::RowNodes,
    splits,
};

/// Rows that are read at a time.
const ROWS: usize = 1 << 14;

/// The splits with their files, for messages.
pub fn listed(options: &NodeIngest, columns: Option<&SplitColumns>) -> Vec<SplitFile> {
    let Some(columns) = columns else {
        return options.splits.files.clone();
    };
    SPLITS.into_iter().map(|name| SplitFile::new(name, columns.path().to_owned())).collect()
}

/// Reads the split of each row of a table and writes a file with the nodes of each split, unless an earlier run has.
pub fn write(job: &IngestJob<'_>, columns: &SplitColumns, rows: &RowNodes, nodes: u64) -> Result<Vec<SplitEntry>> {
    if let Some(splits) = job.journal.splits() {
        return Ok(splits);
    }
    let bytes = SPLITS.len() as u64 * nodes.div_ceil(8);
    check_sets("the sets of the nodes of all splits".to_owned(), bytes, &job.budget)?;
    job.progress.stage("reading the split", None);
    let mut sets: [RoaringTreemap; SPLITS.len()] = Default::default();
    let (mut read_splits, mut nodes_of_rows, mut row) = (Vec::new(), Vec::new(), 0);
    loop {
        let read = columns.read_rows(row, ROWS, &mut read_splits)? as u64;
        if read == 0 {
            break;
        }
        if row + read > nodes {
            let problem =
                format!("expected {nodes} rows, one per node, found more; {}", surplus_rows_remedy(job.nodes));
            return Err(columns.place(nodes).error(problem));
        }
        rows.read(row..row + read, &mut nodes_of_rows)?;
        for (&node, split) in nodes_of_rows.iter().zip(&read_splits) {
            if let Some(split) = split {
                sets[*split].insert(node);
            }
        }
        row += read;
        check_stopped(job.progress)?;
    }
    if sets.iter().all(RoaringTreemap::is_empty) {
        let problem = "no node is in a split; omit --split-column";
        return Err(Error::input(columns.path(), Position::Whole, problem));
    }
    let sets: Vec<_> = SPLITS.into_iter().zip(&sets).filter(|(_, set)| !set.is_empty()).collect();
    splits::write(job, nodes, &sets)
}
