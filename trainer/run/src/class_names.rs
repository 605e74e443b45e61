//! Names of classes, for reports and predictions.
//!
//! A store may have names of classes ([`grappa_formats::schema`]). A text file of the user has others: one name per line, in the order of
//! their numbers. A run keeps a copy of it.

use std::{collections::HashMap, path::Path};

use grappa_io::{Error as EngineError, Position, regular, text::printable};

use crate::{Result, checksum_line};

/// Enough for the names of a million classes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads the names of `classes` classes, one per line, in the order of their numbers.
///
/// # Errors
/// If the file cannot be read, is not UTF-8, ends with a wrong checksum (a run's own file has one), has another number of lines, or has
/// a name twice.
pub fn read(path: &Path, classes: u64) -> Result<Vec<String>> {
    let text = regular::read_text(path, FILE_BYTES_MAX)?;
    let text = checksum_line::checked(path, &text)?;
    let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    if names.len() as u64 != classes {
        let problem = format!(
            "{} names for {classes} classes; it must have one line per class, in the order of their numbers",
            names.len()
        );
        return Err(EngineError::input(path, Position::Whole, problem).into());
    }
    let mut lines = HashMap::new();
    for (number, name) in (1..).zip(&names) {
        if let Some(before) = lines.insert(name, number) {
            let problem = format!(
                "`{}` is also the name in line {before}: reports and predictions could not tell the two classes apart; give each its own",
                printable(name)
            );
            return Err(EngineError::input(path, Position::Line(number), problem).into());
        }
    }
    Ok(names)
}

/// The text of a file that [`read`] reads.
pub fn text(names: &[String]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// The name of a class, or its number if it has none.
pub fn name(names: &[String], class: u64) -> String {
    let name = usize::try_from(class).ok().and_then(|class| names.get(class));
    name.cloned().unwrap_or_else(|| class.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn there_is_a_name_for_each_class_or_an_error_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("classes.txt");
        fs::write(&path, "admin\r\nweb \nnon-free/libs\n").unwrap();
        let names = read(&path, 3).unwrap();
        assert_eq!(names, ["admin", "web", "non-free/libs"]);
        assert_eq!((name(&names, 1), name(&names, 3)), ("web".into(), "3".into()));
        fs::write(&path, text(&names)).unwrap();
        assert_eq!(read(&path, 3).unwrap(), names);
        let error = read(&path, 4).unwrap_err().to_string();
        assert!(error.contains("classes.txt") && error.contains("3 names for 4 classes"), "{error}");
        assert!(read(&folder.path().join("none"), 4).is_err());
    }

    #[test]
    fn a_name_that_two_classes_have_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("classes.txt");
        fs::write(&path, "admin\nweb\nadmin \n").unwrap();
        let error = read(&path, 3).unwrap_err().to_string();
        assert!(error.contains("classes.txt:3") && error.contains("`admin` is also the name in line 1"), "{error}");
    }
}
