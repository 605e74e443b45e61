//! Markdown: the tables, and the pages of `benches/record` they go to.

use std::{
    fmt::{self, Write as _},
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
};

use anyhow::{Context, Result, ensure};

use crate::{machine, programs};

/// A table whose first column is text, and all others numbers.
#[derive(Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// No rows yet.
    pub fn new(header: &[&str]) -> Self {
        Self {
            header: header.iter().map(|&cell| cell.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// # Panics
    /// If the row has not as many cells as the header.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.header.len(), "cells of {cells:?}");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.header.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(self.header.len() - 1))?;
        for row in &self.rows {
            writeln!(f, "| {} |", row.join(" | "))?;
        }
        Ok(())
    }
}

/// So many bytes in MiB, for a cell.
pub fn mebibytes(bytes: f64) -> String {
    format!("{:.0}", bytes / f64::from(1 << 20))
}

/// One measurement: a section of a page.
#[derive(Debug)]
pub struct Record {
    title: String,
    text: String,
}

impl Record {
    /// `title` is that of the page, `question` says what is asked, `command` what answers it, and `work` is the folder where it
    /// runs, which is made if it is not there.
    ///
    /// # Errors
    /// If the folder can't be made, or the machine can't be told.
    pub fn new(title: &str, question: &str, command: &str, work: &Path) -> Result<Self> {
        fs::create_dir_all(work).with_context(|| format!("cannot create {}", work.display()))?;
        let date = machine::date()?;
        let machine = machine::line(work)?;
        Ok(Self {
            title: title.to_owned(),
            text: format!("## {date}\n\n{question}\n\n    {command}\n\nDate: {date}\n\nMachine: {machine}\n"),
        })
    }

    /// Adds a paragraph or a table.
    pub fn add(&mut self, paragraph: impl fmt::Display) {
        write!(self.text, "\n{}\n", paragraph.to_string().trim_end()).expect("strings take all that is written");
    }

    /// Prints the section, and appends it to the page `path`, if there is to be one.
    ///
    /// # Errors
    /// If the page can't be written, or this is a trial.
    pub fn finish(&self, path: Option<&Path>) -> Result<()> {
        grappa_console::print_line(&self.text)?;
        let Some(path) = path else { return Ok(()) };
        ensure!(
            !programs::is_trial(),
            "the figures of a trial mean nothing: they are not recorded in {}",
            path.display()
        );
        let write = || -> std::io::Result<()> {
            let mut page = OpenOptions::new().create(true).append(true).open(path)?;
            if page.metadata()?.len() == 0 {
                writeln!(page, "# {}", self.title)?;
            }
            write!(page, "\n{}", self.text)
        };
        write().with_context(|| format!("cannot write the record {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(&["who", "s"]);
        table.row(["us".to_owned(), "1".to_owned()]);
        assert_eq!(table.to_string(), "| who | s |\n|---|---:|\n| us | 1 |\n");
    }

    #[test]
    fn a_page_gets_a_section_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        for _ in 0..2 {
            let mut record = Record::new("Ingest", "How fast?", "cargo run", folder.path()).unwrap();
            record.add("Fast.");
            record.finish(Some(&path)).unwrap();
        }
        let page = fs::read_to_string(&path).unwrap();
        assert_eq!(page.matches("# Ingest\n").count(), 1);
        assert_eq!(page.matches("\nDate: ").count(), 2);
        assert_eq!(page.matches("\nMachine: ").count(), 2);
        assert!(page.ends_with("\nFast.\n"));
    }
}
