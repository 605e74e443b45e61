//! The comparison of methods of training: accuracy against epochs, bytes and modelled time.
//!
//! A row is a method with a number of partitions, and has a run for each seed. Bytes are the sum over all machines, one for each partition.
//! Time is modelled, because one process computes all partitions: machines compute side by side, and each sends its share of the bytes.

mod costs;
mod drawing;
mod page;
mod row;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use grappa_io::durable::Destination;
use grappa_run::{Error, Result};

pub use self::row::MethodRuns;
use self::row::Row;

/// Methods on one page, in a table of Markdown, as CSV, and as a drawing.
#[derive(Debug)]
pub struct MethodComparison {
    /// Name of the store.
    store: String,
    rows: Vec<Row>,
    /// Name of the score.
    score: &'static str,
    warnings: Vec<String>,
}

impl MethodComparison {
    /// The files that [`MethodComparison::write`] writes: the page, the table as Markdown and as CSV, and the drawing.
    pub const FILES: [&str; 4] = ["compare.html", "compare.md", "compare.csv", "compare.svg"];

    /// Reads the runs of all methods on a store of this name.
    ///
    /// # Errors
    /// If a folder has no run or no checkpoint, a file is damaged, or runs have different tasks.
    pub fn read(store: &str, methods: &[MethodRuns]) -> Result<Self> {
        let (mut rows, mut warnings): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
        for method in methods {
            rows.push(Row::read(method, &mut warnings)?);
        }
        let Some(first) = rows.first() else {
            return Err(Error::Incomparable("a comparison needs a method: name one".to_owned()));
        };
        if let Some(other) = rows.iter().find(|row| row.task != first.task) {
            return Err(Error::Incomparable(format!(
                "{} predicts other labels than {}, so their scores cannot be compared: name runs on the same store",
                other.label(),
                first.label()
            )));
        }
        row::set_colors(&mut rows);
        Ok(Self { store: store.to_owned(), score: rows[0].task.score_name(), rows, warnings })
    }

    /// Problems that the comparison survived, for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes its [files](Self::FILES) into a folder, in place of earlier ones.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (name, text) in Self::FILES.into_iter().zip([self.html(), self.markdown(), self.csv(), self.svg()]) {
            let path = &folder.join(name);
            let file = Destination { path, replaces: true }.begin()?;
            file.write_all(text.as_bytes())?;
            file.finish()?;
        }
        Ok(())
    }

    /// The page.
    pub fn html(&self) -> String {
        page::html(&self.store, self.score, &self.rows)
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        text::markdown(self.score, &self.rows)
    }

    /// The table as CSV, with bytes and seconds as numbers.
    pub fn csv(&self) -> String {
        text::csv(self.score, &self.rows)
    }

    /// A drawing of the score by bytes, for other pages: an SVG.
    pub fn svg(&self) -> String {
        drawing::svg(self.score, &self.rows)
    }
}
