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
    columns::{ColumnForm, ColumnInput},
    stage::Stage,
};

/// Labels per read while classes are counted.
const SCAN_ROWS: usize = 1 << 16;
/// This many classes more than nodes are always accepted, because labels of a part of a graph may keep the numbers of the
/// whole. Each class costs memory in ingest and in training.
const CLASSES_FREE: u64 = 1 << 16;

pub struct LabelInput {
    pub source: LabelSource,
    pub spec: LabelSpec,
    rows: u64,
}

impl LabelInput {
    /// The labels of `source`, one for each of `nodes` nodes, or for those that it has the ids of. The number of classes decides the width
    /// of a stored label. If the shape of the input does not give it, all labels are read to find the largest class, or the names of all
    /// classes. Numbers to predict are read to see that they stay different in the store. A number such as 2^31 - 1 for "no label" would make billions of classes, so far more classes than nodes are refused.
    /// `if_more` is advice for a file with more rows.
    pub fn new(mut source: LabelSource, nodes: u64, if_more: &'static str) -> Result<Self> {
        if !source.has_ids() {
            source.expect_rows(nodes, if_more)?;
        }
        let (rows, classes) = match source.classes() {
            Some(classes) if !source.has_ids() && !source.has_numbers() => (nodes, classes),
            _ => count(&source, nodes)?,
        };
        let spec = LabelSpec::new(source.kind(), classes);
        Ok(Self { source, spec, rows })
    }

    /// Fails if the classes have names, and the classes of the store of `--schema-of` have none.
    pub fn check_classes_of(&self, schema: &Schema) -> Result<()> {
        if schema.classes.is_empty() && self.source.has_names() {
            let problem =
                "these labels are names, but the classes of the store of --schema-of have none; write its numbers";
            return Err(Error::input(self.source.path(), Position::Whole, problem));
        }
        Ok(())
    }

    /// Appends the label of a node of a batch, or the row of a node without a label.
    fn encode(&self, label: Option<(&LabelBatch, usize)>, rows: &mut Vec<u8>) {
        let (spec, classes) = (self.spec, label.and_then(|(batch, index)| batch.get(index)));
        match (spec.kind, label) {
            (LabelKind::Single, _) => spec.encode_single(classes.map(|classes| classes[0]), rows),
            (LabelKind::Multi, _) => spec.encode_multi(classes, rows),
            (_, Some((batch, index))) => spec.encode_values(batch.values(index), rows),
            (_, None) => spec.encode_values(&vec![f32::NAN; spec.classes as usize], rows),
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
    source.expect_digits()?;
    if let Some(classes) = source.classes() {
        return Ok((rows, classes));
    }
    if source.has_names() {
        source.all_were_read();
        return Ok((rows, source.class_names().len() as u32));
    }
    let Some((class, row)) = largest else {
        let problem = "no node has a label: all are negative, NaN or empty; omit --labels";
        return Err(Error::input(source.path(), Position::Whole, problem));
    };
    let classes = class + 1;
    if u64::from(classes) > nodes.saturating_add(CLASSES_FREE) {
        let problem = format!(
            "the largest class is {class}, so there are {classes} classes for {nodes} nodes; if it means that the node has no \
             label, write a negative number; otherwise number the classes from 0 without gaps"
        );
        return Err(source.place(row).error(problem));
    }
    Ok((rows, classes))
}

fn too_few(source: &LabelSource, nodes: u64, found: u64) -> Error {
    Error::input(source.path(), Position::Whole, format!("expected {nodes} labels, one per node, found {found}"))
}

impl ColumnInput for LabelInput {
    fn form(&self) -> ColumnForm {
        let mut unlabelled = Vec::new();
        self.encode(None, &mut unlabelled);
        ColumnForm {
            stage: Stage::Labels,
            name: "labels",
            kind: FileKind::LABELS,
            rows: self.rows,
            row_bytes: self.spec.row_bytes() as usize,
            read_cost: self.source.read_cost(),
            held_bytes: self.source.held_bytes(),
            is_sequential: self.source.is_sequential(),
            other_row: self.source.has_ids().then_some(unlabelled),
        }
    }

    fn meta(&self, span: ChunkSpan) -> Vec<u8> {
        LabelsMeta { span, spec: self.spec }.encode()
    }

    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        let mut batch = LabelBatch::default();
        let read = self.source.read_rows(first, count, &mut batch)?;
        if read != count {
            return Err(too_few(&self.source, self.rows, first + read as u64));
        }
        for index in 0..count {
            self.encode(Some((&batch, index)), rows);
        }
        Ok(())
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
                self.source.input().remedy(Conversion::OneHotToClasses)
            );
        }
        self.source.check()
    }
}
