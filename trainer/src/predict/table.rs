//! Predictions as a table: an id, and what is predicted. In an array, what is predicted alone.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float32Array, Int8Array, Int64Array, ListArray, StringArray, types::Float32Type};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use grappa_engine::export::{
    arrays::{ValueColumns, element, values},
    table::repeating,
};
use grappa_run::{class_names, model::Task, scores::is_undecided};

use super::{
    encoding::{Encoding, ROW_BYTES},
    options::Values,
    probability::{predicted, probabilities},
};
use crate::train::trained_model::Trained;

/// The columns of predictions.
pub(super) struct Columns<'a> {
    values: Values,
    task: Task,
    class_names: &'a [String],
    /// Values of a row: logits or embeddings.
    width: usize,
    is_array: bool,
    /// The columns of the values of a row, if there are any.
    value_columns: ValueColumns,
}

impl<'a> Columns<'a> {
    /// The columns of a table or an array, whose rows in the scratch file have `width` values.
    pub(super) fn new(trained: &'a Trained, values: Values, width: usize, is_array: bool) -> Self {
        let task = trained.task();
        let lists = |name: &str| ValueColumns::Lists(name.to_owned(), width);
        let named = |name: &str| {
            let classes = 0..width as u64;
            ValueColumns::Named(classes.map(|class| format!("{name}_{}", trained.class_name(class))).collect())
        };
        let value_columns = match (values, task) {
            (Values::Logits, _) => lists("logits"),
            (Values::Embeddings, _) => lists("embedding"),
            (Values::Classes, Task::Regression) if width == 1 => ValueColumns::Named(vec!["prediction".to_owned()]),
            (Values::Classes, Task::Regression) => named("prediction"),
            (Values::Classes | Values::Probabilities, _) if is_array => lists("classes"),
            (Values::Probabilities, _) => named("probability"),
            (Values::Classes, _) => ValueColumns::Named(Vec::new()),
        };
        Self { values, task, class_names: trained.class_names(), width, is_array, value_columns }
    }

    /// The columns beside the id.
    pub(super) fn fields(&self) -> Vec<Field> {
        let float = DataType::Float32;
        let class = if self.class_names.is_empty() { DataType::Int64 } else { DataType::Utf8 };
        let classes = match self.task {
            Task::MultiLabel => Field::new("classes", DataType::List(element(&class)), true),
            _ => Field::new("class", class, true),
        };
        match (self.values, self.task) {
            (Values::Classes, Task::MultiClass) if self.is_array => vec![Field::new("class", DataType::Int64, false)],
            (Values::Classes, Task::MultiClass) => vec![repeating(classes), Field::new("probability", float, false)],
            (Values::Classes, Task::MultiLabel) if self.is_array => self.value_columns.fields(&DataType::Int8),
            (Values::Classes, Task::MultiLabel) => {
                let probabilities = Field::new("probabilities", DataType::List(element(&float)), true);
                vec![repeating(classes), probabilities]
            }
            (Values::Probabilities, _) if !self.is_array => {
                [vec![repeating(classes)], self.value_columns.fields(&float)].concat()
            }
            _ => self.value_columns.fields(&float),
        }
    }

    /// The columns of some rows of the scratch file.
    pub(super) fn arrays(&self, bytes: &[u8]) -> Vec<ArrayRef> {
        if Encoding::new(self.values, self.task) == Encoding::Class {
            return self.classes(bytes);
        }
        let rows = values::<Float32Type>(bytes);
        match (self.values, self.task) {
            (Values::Classes, Task::MultiLabel) if self.is_array => {
                let rows = rows.values().chunks_exact(self.width);
                // As an export writes the labels of a node that has none.
                let row = |row: &[f32]| match is_undecided(row) {
                    true => vec![-1; self.width],
                    false => row.iter().map(|logit| i8::from(*logit > 0.0)).collect(),
                };
                self.value_columns.arrays(rows.flat_map(row).collect::<Int8Array>())
            }
            (Values::Classes, Task::MultiLabel) => self.sets(rows.values()).into(),
            (Values::Probabilities, task) => {
                let logits = rows.values();
                let all = logits.chunks_exact(self.width).flat_map(|row| probabilities(task, row));
                let all = self.value_columns.arrays(all.collect::<Float32Array>());
                if self.is_array {
                    return all;
                }
                let classes = match task {
                    Task::MultiLabel => self.sets(logits)[0].clone(),
                    _ => {
                        let rows = logits.chunks_exact(self.width);
                        self.named(rows.map(|row| Some(predicted(task, row).first()?.0)))
                    }
                };
                [vec![classes], all].concat()
            }
            _ => self.value_columns.arrays(rows),
        }
    }

    /// The class of each row, and its probability.
    fn classes(&self, bytes: &[u8]) -> Vec<ArrayRef> {
        let (rows, _) = bytes.as_chunks::<ROW_BYTES>();
        let class = |row: &[u8; ROW_BYTES]| i64::from_le_bytes(*row.first_chunk().expect("8 of 12 bytes"));
        let probability = |row: &[u8; ROW_BYTES]| f32::from_le_bytes(*row.last_chunk().expect("4 of 12 bytes"));
        let classes = rows.iter().map(class);
        if self.is_array {
            return vec![Arc::new(Int64Array::from_iter_values(classes))];
        }
        let probabilities = Float32Array::from_iter_values(rows.iter().map(probability));
        vec![self.named(classes.map(|class| u64::try_from(class).ok())), Arc::new(probabilities)]
    }

    /// The classes that each row of logits says, and their probabilities. No lists, if there is no prediction.
    fn sets(&self, logits: &[f32]) -> [ArrayRef; 2] {
        let rows = logits.chunks_exact(self.width);
        let is_decided: Vec<bool> = rows.clone().map(|row| !is_undecided(row)).collect();
        let sets: Vec<_> = rows.map(|row| predicted(self.task, row)).collect();
        let lists = |elements: ArrayRef| -> ArrayRef {
            let offsets = OffsetBuffer::from_lengths(sets.iter().map(Vec::len));
            let nulls = NullBuffer::from(is_decided.clone());
            Arc::new(ListArray::new(element(elements.data_type()), offsets, elements, Some(nulls)))
        };
        let all = || sets.iter().flatten();
        let probabilities = Float32Array::from_iter_values(all().map(|class| class.1));
        [lists(self.named(all().map(|class| Some(class.0)))), lists(Arc::new(probabilities))]
    }

    /// Classes by their names, or by their numbers if they have none.
    fn named(&self, classes: impl Iterator<Item = Option<u64>>) -> ArrayRef {
        match self.class_names {
            [] => Arc::new(classes.map(|class| class.map(u64::cast_signed)).collect::<Int64Array>()),
            names => {
                let names = classes.map(|class| class.map(|class| class_names::name(names, class)));
                Arc::new(names.collect::<StringArray>())
            }
        }
    }
}
