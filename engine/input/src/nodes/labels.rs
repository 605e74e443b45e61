//! Labels: one class, one set of classes, or numbers per node.
//!
//! A single label is an integer, 0 or more, or a name. A negative number, NaN or an empty field means that the node has no label. A
//! set is a row of zeros and ones, one column per class. A row of only NaN, negative numbers or empty fields means that the
//! node has no label.
//!
//! Numbers to predict are read as [`LabelType::Float`], and sets with unknown classes as [`LabelType::Partial`]. The user says so, because
//! whole numbers may be either.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use grappa_formats::{labels::CLASSES_MAX, manifest::LabelKind, schema::Schema};
use grappa_io::{Error, Position, Result, text::printable};

use super::{
    class_names::{ClassNames, NO_CLASS},
    forms::{Forms, TableForm},
    node_file::{Content, NodeFile},
};
use crate::{
    columns::{LABEL_NAMES, Purpose, shell_list},
    input::Input,
    messages::{Checked, shown},
    spread::Spread,
    table::{Form, form_of},
};

/// What the values of a label file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelType {
    /// A class per node, or zeros and ones of a set of classes.
    #[default]
    Classes,
    /// Zeros and ones of a set of classes; negative numbers, NaN or nothing for unknown classes.
    Partial,
    /// Numbers, one or several per node; NaN or nothing for a missing one.
    Float,
}

const FORMS: Forms = Forms {
    name: "labels",
    arrays: &LABEL_NAMES,
    shapes: "shape [N], or [N, K] of zeros and ones",
    columns_max: 1 << 24,
    sparse: false,
    blank_lines: true,
    purpose: Purpose::Labels,
};

/// The labels of all nodes.
pub struct LabelSource {
    file: NodeFile,
    label_type: LabelType,
    names: Arc<ClassNames>,
    /// Whether a set of exactly one class was read.
    has_one: AtomicBool,
    /// Whether a set of no class, or of several classes, was read.
    has_others: AtomicBool,
    /// The numbers to predict that were read, by column.
    spreads: Vec<Spread>,
}

/// Labels of consecutive nodes.
#[derive(Debug, Default)]
pub struct LabelBatch {
    classes: Vec<u32>,
    /// The end of each node's classes in `classes`.
    ends: Vec<usize>,
    labelled: Vec<bool>,
    /// Of labels with values ([`LabelKind::has_values`]), the values of each node.
    values: Vec<f32>,
}

impl LabelBatch {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The classes of a node in rising order; exactly one for single labels. None if the node has no label.
    pub fn get(&self, index: usize) -> Option<&[u32]> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.labelled[index].then(|| &self.classes[start..self.ends[index]])
    }

    /// The value of each class or target of a node, NaN if it is missing. Only for labels with values ([`LabelKind::has_values`]).
    pub fn values(&self, index: usize) -> &[f32] {
        let columns = self.values.len() / self.len();
        &self.values[index * columns..][..columns]
    }

    /// The largest class of all.
    pub fn class_max(&self) -> Option<u32> {
        self.classes.iter().copied().max()
    }

    fn clear(&mut self) {
        self.classes.clear();
        self.ends.clear();
        self.labelled.clear();
        self.values.clear();
    }

    fn end_row(&mut self, labelled: bool) {
        self.ends.push(self.classes.len());
        self.labelled.push(labelled);
    }
}

/// Whether a number means that there is no label.
fn is_missing(number: f64) -> bool {
    number.is_nan() || number < 0.0 && number.fract() == 0.0
}

/// The class that a number is. None for a fraction, or an integer beyond 32 bits.
fn class_of(number: f64) -> Option<u32> {
    let is_class = number >= 0.0 && number.fract() == 0.0 && number <= f64::from(u32::MAX);
    is_class.then_some(number as u32)
}

impl Deref for LabelSource {
    type Target = NodeFile;

    fn deref(&self) -> &NodeFile {
        &self.file
    }
}

impl DerefMut for LabelSource {
    fn deref_mut(&mut self) -> &mut NodeFile {
        &mut self.file
    }
}

impl LabelSource {
    /// Opens `path`: a `.npy` array of shape `[N]`, `[N, 1]` or `[N, K]`; the array `node_label`, `labels`, `label`, `y` or `class`
    /// of a `.npz` archive, or its only array; Parquet; or text, compressed or not, with one node per line. A table has a column of
    /// that name, or else labels in all columns but the ids.
    pub fn open(input: impl Into<Input>) -> Result<Self> {
        Self::open_with(input, &TableForm::default(), LabelType::Classes)
    }

    /// The same, with columns of a table that the user names, and values of a type.
    pub fn open_with(input: impl Into<Input>, form: &TableForm, label_type: LabelType) -> Result<Self> {
        let file = NodeFile::open(&input.into(), &FORMS, form)?;
        if let (Content::Columns(_), false) = (&file.content, label_type == LabelType::Classes)
            && !file.layout.are_numbers
        {
            let problem = "expected numbers, found text; name other columns with --label, or omit --label-type, which makes classes of text";
            return Err(Error::input(file.path(), Position::Whole, problem));
        }
        let names = match &file.content {
            Content::Columns(table) => Arc::clone(&table.class_names),
            Content::Dense(_) | Content::Sparse(_) | Content::Text(_) => Arc::default(),
        };
        let spreads = match label_type {
            LabelType::Float => Spread::columns(file.layout.columns),
            LabelType::Classes | LabelType::Partial => Vec::new(),
        };
        let (has_one, has_others) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { file, label_type, names, has_one, has_others, spreads })
    }

    /// Takes the classes of another store: labels that are names get its numbers, and a name that it does not have is an error.
    ///
    /// # Errors
    /// If the labels are numbers, or sets of other classes.
    pub fn use_classes_of(&self, schema: &Schema) -> Result<()> {
        let is_text = match &self.file.content {
            Content::Text(_) => true,
            Content::Columns(_) => !self.layout.are_numbers,
            Content::Dense(_) | Content::Sparse(_) => false,
        };
        match self.kind() {
            _ if schema.classes.is_empty() => Ok(()),
            LabelKind::Multi | LabelKind::Partial | LabelKind::Targets if self.class_names() == schema.classes => {
                Ok(())
            }
            LabelKind::Multi | LabelKind::Partial | LabelKind::Targets => {
                let classes: Vec<&str> = schema.classes.iter().map(String::as_str).collect();
                let problem = format!(
                    "these are other classes or targets than in the store of --schema-of; give --label {}",
                    shell_list(&classes)
                );
                Err(Error::input(self.path(), Position::Whole, problem))
            }
            LabelKind::Single if is_text => {
                self.names.give(&schema.classes);
                Ok(())
            }
            LabelKind::Single => {
                let problem =
                    "these labels are numbers, but the store of --schema-of has names of classes; give the names";
                Err(Error::input(self.path(), Position::Whole, problem))
            }
        }
    }

    /// Whether each node has one class, a set of classes, or numbers.
    pub fn kind(&self) -> LabelKind {
        match (self.label_type, self.layout.columns) {
            (LabelType::Classes, 1) => LabelKind::Single,
            (LabelType::Classes, _) => LabelKind::Multi,
            (LabelType::Partial, _) => LabelKind::Partial,
            (LabelType::Float, _) => LabelKind::Targets,
        }
    }

    /// The number of classes or targets, if the shape shows it: sets have one column per class.
    pub fn classes(&self) -> Option<u32> {
        (self.kind() != LabelKind::Single).then_some(self.layout.columns as u32)
    }

    /// Whether labels that were read are names. The classes of [`Self::read_rows`] are right after [`Self::all_were_read`].
    pub fn has_names(&self) -> bool {
        self.kind() == LabelKind::Single && !self.names.is_empty()
    }

    /// Numbers the classes in the order of their names, if labels are names. Call it when all rows were read.
    pub fn all_were_read(&self) {
        self.names.complete();
    }

    /// The names of the classes or targets, if they have names: the different labels, or the columns of sets and numbers.
    pub fn class_names(&self) -> Vec<String> {
        match self.kind() {
            LabelKind::Single => self.names.all(),
            LabelKind::Multi | LabelKind::Partial | LabelKind::Targets => self.layout.names.clone(),
        }
    }

    /// Bytes of memory per row that [`Self::read_rows`] takes, with the batch, at worst.
    pub fn read_cost(&self) -> usize {
        // The bytes of the file, and the classes and ends of a batch, which grow by doubling.
        let columns = self.layout.columns;
        let batch = columns * size_of::<u32>() + size_of::<usize>() + size_of::<bool>();
        columns * size_of::<u64>() + 2 * batch
    }

    /// Whether all labels read so far are sets of exactly one class, as if they were one class per node in one-hot form.
    pub fn is_one_hot(&self) -> bool {
        self.has_one.load(Ordering::Relaxed) && !self.has_others.load(Ordering::Relaxed)
    }

    /// Whether labels are numbers to predict.
    pub fn has_numbers(&self) -> bool {
        self.label_type == LabelType::Float
    }

    /// Fails if numbers to predict that were read would become equal, or nearly so, as the 32-bit floats that a store has.
    ///
    /// # Errors
    /// With the column, and what to subtract from it.
    pub fn expect_digits(&self) -> Result<()> {
        let mut losses = self.spreads.iter().enumerate().filter_map(|(column, spread)| Some((column, spread.loss()?)));
        let Some((column, loss)) = losses.next() else {
            return Ok(());
        };
        let column = match self.layout.names.get(column) {
            Some(name) => format!("labels in column {}: ", printable(name)),
            None if self.spreads.len() > 1 => format!("labels in column {column}: "),
            None => "labels: ".to_owned(),
        };
        Err(Error::input(self.path(), Position::Whole, column + &loss.refusal()))
    }

    fn note_sizes(&self, batch: &LabelBatch) {
        if self.kind() != LabelKind::Multi {
            return;
        }
        // One store per batch: threads that read different rows share the flags.
        let mut sizes = (0..batch.len()).filter_map(|index| batch.get(index).map(<[u32]>::len));
        let (mut one, mut others) = (false, false);
        while !(one && others)
            && let Some(size) = sizes.next()
        {
            one |= size == 1;
            others |= size != 1;
        }
        if one {
            self.has_one.store(true, Ordering::Relaxed);
        }
        if others {
            self.has_others.store(true, Ordering::Relaxed);
        }
    }

    /// Replaces the contents of `out` with the labels of rows `first..first + count`. Returns the number of rows read, which
    /// is below `count` only at the end.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut LabelBatch) -> Result<usize> {
        out.clear();
        let columns = self.layout.columns;
        let mut values = Vec::with_capacity(columns);
        let read = match &self.file.content {
            Content::Dense(reader) => {
                let array = &reader.array;
                let rows = array.shape[0].saturating_sub(first);
                let count = (count as u64).min(rows) as usize;
                let row_bytes = columns * array.element.bytes();
                let mut bytes = vec![0; count * row_bytes];
                reader.read_rows(first, &mut bytes)?;
                for (row, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
                    values.clear();
                    values.extend(bytes.chunks_exact(array.element.bytes()).map(|b| array.element.to_f64(b)));
                    self.spreads.iter().zip(&values).for_each(|(spread, &number)| spread.add(number));
                    self.add(&values, out)
                        .map_err(|problem| Error::input(self.path(), Position::Row(first + row as u64), problem))?;
                }
                count
            }
            Content::Text(text) => text.read(first, count, &mut |_, fields| {
                let fields = fields?;
                values.clear();
                for (column, field) in fields.iter().enumerate() {
                    values.push(match (self.label_type, fields.len()) {
                        (LabelType::Classes, 1) => self.label(field)?,
                        (LabelType::Classes, _) => in_set(column, field)?,
                        (LabelType::Partial | LabelType::Float, _) => number_in(field)?,
                    });
                }
                self.spreads.iter().zip(&values).for_each(|(spread, &number)| spread.add(number));
                self.add(&values, out)
            })?,
            Content::Columns(table) => table.read(first, count, &mut |numbers| {
                if numbers.contains(&NO_CLASS)
                    && let Some(problem) = self.names.problem()
                {
                    return Err(problem);
                }
                values.clear();
                values.extend_from_slice(numbers);
                self.spreads.iter().zip(&values).for_each(|(spread, &number)| spread.add(number));
                self.add(&values, out)
            })?,
            Content::Sparse(_) => unreachable!("labels are never opened as a sparse matrix"),
        };
        self.note_sizes(out);
        Ok(read)
    }

    /// Checks a row and adds it.
    fn add(&self, numbers: &[f64], out: &mut LabelBatch) -> Checked<()> {
        match self.label_type {
            LabelType::Classes => add_row(numbers, self.has_ids(), out),
            LabelType::Partial => add_values(numbers, out, known_class),
            LabelType::Float => add_values(numbers, out, target),
        }
    }

    /// The class in a field of text; NaN for none.
    fn label(&self, field: &str) -> Checked<f64> {
        let number = match field.parse() {
            Ok(number) => number,
            Err(_) if field.is_empty() => f64::NAN,
            Err(_) => return Ok(self.names.class_in_text(field)?.into()),
        };
        if is_missing(number) {
            return Ok(f64::NAN);
        }
        if self.names.are_given() {
            return Ok(self.names.class(field)?.into());
        }
        self.names.note_number(field)?;
        Ok(number)
    }
}

/// Adds a row of values that `check` makes of numbers.
fn add_values(numbers: &[f64], out: &mut LabelBatch, check: fn(f64) -> Checked<f32>) -> Checked<()> {
    let first = out.values.len();
    for (column, &number) in numbers.iter().enumerate() {
        let value = check(number).map_err(|problem| match numbers.len() {
            1 => problem,
            _ => format!("{problem} in column {column}"),
        })?;
        out.values.push(value);
    }
    let has_label = out.values[first..].iter().any(|value| !value.is_nan());
    out.end_row(has_label);
    Ok(())
}

/// A target, NaN for none.
fn target(number: f64) -> Checked<f32> {
    let value = number as f32;
    match value.is_infinite() {
        true => Err(format!("expected a number of 32 bits, or NaN or nothing for none, found {number}")),
        false => Ok(value),
    }
}

/// Whether a node is in a class: 0, 1, or NaN for unknown.
fn known_class(number: f64) -> Checked<f32> {
    match class_of(number) {
        _ if is_missing(number) => Ok(f32::NAN),
        Some(class @ (0 | 1)) => Ok(class as f32),
        _ => Err(format!("expected 0 or 1, or a negative number, NaN or nothing for an unknown class, found {number}")),
    }
}

/// A number in a field of text, NaN for none.
fn number_in(field: &str) -> Checked<f64> {
    match field.parse() {
        Ok(number) => Ok(number),
        Err(_) if form_of(field) == Form::Missing => Ok(f64::NAN),
        Err(_) => Err(format!("expected a number, found {}", shown(field.as_bytes()))),
    }
}

/// A field of text in one of several columns, NaN for none.
fn in_set(column: usize, field: &str) -> Checked<f64> {
    if field.is_empty() {
        return Ok(f64::NAN);
    }
    field.parse().map_err(|_| {
        let remedy = match column {
            0 => "if the first column has the ids of the nodes, give --id 1; ",
            _ => "",
        };
        format!(
            "expected zeros and ones, one column per class, found {}; {remedy}if one column has the class of each node, give --label with \
             its name",
            shown(field.as_bytes())
        )
    })
}

/// Checks a row and adds it. `has_ids`: the file is a table with ids.
fn add_row(numbers: &[f64], has_ids: bool, out: &mut LabelBatch) -> Checked<()> {
    if numbers.iter().all(|&number| is_missing(number)) {
        out.end_row(false);
        return Ok(());
    }
    if let [number] = *numbers {
        let Some(class) = class_of(number).filter(|&class| class < CLASSES_MAX) else {
            return Err(format!(
                "expected a class from 0 to {}, or a negative number or NaN for a node without label, found {number}{}",
                CLASSES_MAX - 1,
                match number.fract() != 0.0 {
                    true => "; if labels are numbers to predict, give --label-type float",
                    false => "",
                }
            ));
        };
        out.classes.push(class);
        out.end_row(true);
        return Ok(());
    }
    for (class, &number) in (0..).zip(numbers) {
        if is_missing(number) {
            return Err(format!(
                "column {class} is missing but other columns are not; give all columns of a node, or none, or --label-type partial if \
                 some classes of a node may be unknown"
            ));
        }
        match class_of(number) {
            Some(0) => {}
            Some(1) => out.classes.push(class),
            _ => {
                let remedy = match numbers.len() {
                    _ if number.fract() != 0.0 => "if labels are numbers to predict, give --label-type float",
                    _ if has_ids => "if a column has the class of each node, give --label with its name",
                    2 => {
                        "save one class per node with shape [N]; if the first column of text has the ids of the nodes, give --id 1"
                    }
                    _ => "save one class per node with shape [N]",
                };
                return Err(format!(
                    "expected zeros and ones, one column per class, found {number} in column {class}; {remedy}"
                ));
            }
        }
    }
    out.end_row(true);
    Ok(())
}
