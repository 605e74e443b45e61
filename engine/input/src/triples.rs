//! Triples: lines of head, relation and tail, separated by tabs, which may be compressed.

use std::{collections::BTreeSet, path::Path};

use grappa_io::{Error, Position, Result, text::printable};

use crate::{file::InputFile, line_reader::Lines};

/// The names of all relations in files of triples, ascending. Takes the memory of the names.
///
/// # Errors
/// If a file cannot be read, or a line has not three columns.
pub fn relations_of_triples(files: &[impl AsRef<Path>]) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for path in files {
        let path = path.as_ref();
        let mut lines = Lines::of_file(&InputFile::open(path)?)?;
        while let Some(line) = lines.next_line()? {
            let problem = |problem: String| Error::input(path, Position::Line(line.number), problem);
            let text = std::str::from_utf8(&line.bytes).map_err(|_| problem("the line is not UTF-8".to_owned()))?;
            if text.is_empty() {
                continue;
            }
            let fields: Vec<&str> = text.split('\t').collect();
            let &[_, relation, _] = fields.as_slice() else {
                return Err(problem(format!(
                    "expected head, relation and tail, separated by tabs, found {} columns: {}",
                    fields.len(),
                    printable(text)
                )));
            };
            if relation.trim().is_empty() {
                return Err(problem("the relation is empty".to_owned()));
            }
            if !names.contains(relation) {
                names.insert(relation.to_owned());
            }
        }
    }
    Ok(names.into_iter().collect())
}
