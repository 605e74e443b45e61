//! Labels as a column: read, counted and encoded.

use grappa_formats::{
    ChunkSpan,
    container::FileKind,
    labels::LabelsMeta,
    manifest::{LabelKind, LabelSpec},
    schema::Schema,
};
use grappa_input::{Conversion, LabelBatch, LabelSource};
use grappa_io::{Error, Position, Result};

use crate::ingest::{
    columns::{ColumnFile, ColumnInput},
    journal::Stage,
};

/// Labels per read while classes are counted.
const SCAN_ROWS: usize = 1 << 16;
/// This many classes more than nodes are always accepted, because labels of a part of a graph may keep the numbers of the
/// whole. Each class costs memory in ingest and in training.
const CLASSES_FREE: u64 = 1 << 16;

/// The labels of the input.
pub struct LabelInput {
    source: LabelSource,
    spec: LabelSpec,
    rows: u64,
}

impl LabelInput {
    /// The labels of `source`, one for each of `nodes` nodes, or for those that it has the ids of. The number of classes decides the width
    /// of a stored label. If the shape of the input does not give it, all labels are read to find the largest class, or the names of all
    /// classes. A number such as 2^31 - 1 for "no label" would make billions of classes, so far more classes than nodes are refused.
    /// `if_more` is advice for a file with more rows.
    pub fn new(mut source: LabelSource, nodes: u64, if_more: &'static str) -> Result<Self> {
        if !source.has_ids() {
            source.expect_rows(nodes, if_more)?;
        }
        let (rows, classes) = match source.classes() {
            Some(classes) if !source.has_ids() => (nodes, classes),
            _ => count(&source, nodes)?,
        };
        let spec = LabelSpec::new(source.kind(), classes);
        Ok(Self { source, spec, rows })
    }

    /// Fails if the classes have names, and the classes of the store of `--schema-of` have none.
    pub fn check_classes_of(&self, schema: &Schema) -> Result<()> {
        match schema.classes.is_empty() && self.source.has_names() {
            false => Ok(()),
            true => {
                let what =
                    "these labels are names, but the classes of the store of --schema-of have none; write its numbers";
                Err(Error::input(self.source.path(), Position::Whole, what))
            }
        }
    }

    /// The names of the classes. Empty if they have none.
    pub fn class_names(&self) -> Vec<String> {
        self.source.class_names()
    }

    /// The manifest's entry.
    pub fn spec(&self) -> LabelSpec {
        self.spec
    }

    /// Appends the label of a node of a batch.
    fn encode(&self, batch: &LabelBatch, index: usize, rows: &mut Vec<u8>) {
        match self.spec.kind {
            LabelKind::Single => self.spec.encode_single(batch.get(index).map(|classes| classes[0]), rows),
            LabelKind::Multi => self.spec.encode_multi(batch.get(index), rows),
            LabelKind::Partial | LabelKind::Targets => self.spec.encode_values(batch.values(index), rows),
        }
    }
}

/// The numbers of rows and of classes.
fn count(source: &LabelSource, nodes: u64) -> Result<(u64, u32)> {
    let (mut batch, mut rows) = (LabelBatch::default(), 0);
    // The largest class, and the first row that has it.
    let mut largest = None;
    let rows_max = if source.has_ids() { u64::MAX } else { nodes };
    while rows < rows_max {
        let read = source.read_rows(rows, SCAN_ROWS, &mut batch)?;
        if let Some(class) = batch.class_max()
            && largest.is_none_or(|(largest, _)| class > largest)
        {
            let row = (0..read).find(|&row| batch.get(row).is_some_and(|classes| classes.contains(&class)));
            largest = row.map(|row| (class, rows + row as u64));
        }
        rows += read as u64;
        match read {
            0 if source.has_ids() => break,
            0 => return Err(too_few(source, nodes, rows)),
            _ => {}
        }
    }
    if let Some(classes) = source.classes() {
        return Ok((rows, classes));
    }
    if source.has_names() {
        source.all_were_read();
        return Ok((rows, source.class_names().len() as u32));
    }
    let Some((class, row)) = largest else {
        let what = "no node has a label: all are negative, NaN or empty; omit --labels";
        return Err(Error::input(source.path(), Position::Whole, what));
    };
    let classes = class + 1;
    if u64::from(classes) > nodes.saturating_add(CLASSES_FREE) {
        let what = format!(
            "the largest class is {class}, so there are {classes} classes for {nodes} nodes; if it means that the node has no \
             label, write a negative number; otherwise number the classes from 0 without gaps"
        );
        return Err(source.place(row).error(what));
    }
    Ok((rows, classes))
}

fn too_few(source: &LabelSource, nodes: u64, found: u64) -> Error {
    Error::input(source.path(), Position::Whole, format!("expected {nodes} labels, one per node, found {found}"))
}

impl ColumnInput for LabelInput {
    fn file(&self) -> ColumnFile {
        ColumnFile { stage: Stage::Labels, name: "labels", kind: FileKind::LABELS }
    }

    fn meta(&self, span: ChunkSpan) -> Vec<u8> {
        LabelsMeta { span, spec: self.spec }.encode()
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn row_bytes(&self) -> usize {
        self.spec.row_bytes() as usize
    }

    fn read_cost(&self) -> usize {
        self.source.read_cost()
    }

    fn held_bytes(&self) -> u64 {
        self.source.held_bytes()
    }

    fn is_sequential(&self) -> bool {
        self.source.is_sequential()
    }

    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        let mut batch = LabelBatch::default();
        let read = self.source.read_rows(first, count, &mut batch)?;
        if read != count {
            return Err(too_few(&self.source, self.rows, first + read as u64));
        }
        for index in 0..count {
            self.encode(&batch, index, rows);
        }
        Ok(())
    }

    fn other_row(&self) -> Option<Vec<u8>> {
        let (spec, mut row) = (self.spec, Vec::new());
        match spec.kind {
            LabelKind::Single => spec.encode_single(None, &mut row),
            LabelKind::Multi => spec.encode_multi(None, &mut row),
            LabelKind::Partial | LabelKind::Targets => {
                spec.encode_values(&vec![f32::NAN; spec.classes as usize], &mut row);
            }
        }
        self.source.has_ids().then_some(row)
    }

    fn is_sound(&self) -> bool {
        true
    }

    fn finish(&self) -> Result<()> {
        if self.source.is_one_hot() {
            tracing::warn!(
                "{}: every label is a set of exactly one class, and training treats sets as several classes per node; if each \
                 node has one class, give its number: {}",
                self.source.path().display(),
                Conversion::OneHotToClasses.command(self.source.path())
            );
        }
        self.source.check()
    }
}
