//! Markdown tables and the pages of `benches/record`.

use std::{
    fmt::{self, Write as _},
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
};

use anyhow::{Context, Result, ensure};

use crate::{machine, programs};

/// A table. The first column has text, the others have numbers.
#[derive(Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the number of cells differs from the header's.
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

/// `bytes` in MiB, for a cell.
pub fn mebibytes(bytes: f64) -> String {
    format!("{:.0}", bytes / f64::from(1 << 20))
}

/// One measurement: a section of a page.
#[derive(Debug)]
pub struct Record {
    title: String,
    text: String,
    is_discarded: bool,
}

impl Record {
    /// Starts a section: the page's `title`, the `question`, and the `command` that answers it. Creates `work`, the folder
    /// that the bench runs in; the record names its file system.
    ///
    /// # Errors
    /// If the folder can't be created, or the machine can't be described.
    pub fn new(title: &str, question: &str, command: &str, work: &Path) -> Result<Self> {
        fs::create_dir_all(work).with_context(|| format!("cannot create {}", work.display()))?;
        let date = machine::date()?;
        let machine = machine::line(work)?;
        Ok(Self {
            title: title.to_owned(),
            text: format!("## {date}\n\n{question}\n\n    {command}\n\nDate: {date}\n\nMachine: {machine}\n"),
            is_discarded: false,
        })
    }

    /// Adds a paragraph or a table.
    pub fn add(&mut self, paragraph: impl fmt::Display) {
        write!(self.text, "\n{}\n", paragraph.to_string().trim_end()).expect("writing to a string succeeds");
    }

    /// Drops the section, because nothing was measured.
    pub fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// Prints the section, and appends it to the page `path`, if any. Does neither if it was discarded.
    ///
    /// # Errors
    /// If the page can't be written, or this is a trial.
    pub fn finish(&self, path: Option<&Path>) -> Result<()> {
        if self.is_discarded {
            return Ok(());
        }
        grappa_console::print_line(&self.text)?;
        let Some(path) = path else { return Ok(()) };
        ensure!(!programs::is_trial(), "a trial measures nothing, so it is not recorded in {}", path.display());
        self.append(path).with_context(|| format!("cannot write the record {}", path.display()))
    }

    fn append(&self, path: &Path) -> std::io::Result<()> {
        let mut page = OpenOptions::new().create(true).append(true).open(path)?;
        if page.metadata()?.len() == 0 {
            writeln!(page, "# {}", self.title)?;
        }
        write!(page, "\n{}", self.text)
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
