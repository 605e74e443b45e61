//! Predictions as a table: an id, and what is predicted.

use grappa_engine::export::{
    made::MadeRows,
    node_table::{DenseIds, NodeTable},
    table::{Cells, Column, Scalar, Shape, TableOut, Values as CellValues},
};
use grappa_io::progress::Progress;
use grappa_run::{class_names, model::Task, scores::is_undecided};
use grappa_storage::Store;

use super::{
    encoding::ROW_BYTES,
    options::Values,
    probability::{predicted, probabilities},
};
use crate::{Result, train::trained_model::Trained};

pub(super) struct Table<'a> {
    pub trained: &'a Trained,
    pub values: Values,
    /// Values of a row: logits or embeddings.
    pub width: usize,
}

impl Table<'_> {
    /// Writes the rows of the nodes with these ids, in their order. Returns the number of bytes.
    pub(super) fn write(
        &self,
        out: TableOut<'_>,
        store: &Store,
        rows: &MadeRows,
        ids: &DenseIds,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let table = NodeTable {
            store,
            ids,
            columns: self.columns(),
            // The inference may have taken hours.
            escapes_ids: true,
        };
        Ok(table.write(out, rows, progress, |bytes| self.cells(bytes))?)
    }

    fn columns(&self) -> Vec<Column> {
        let float = |name: &str, shape| Column::new(name, Scalar::Float, shape);
        let mut columns = match (self.values, self.trained.task()) {
            (Values::Logits, _) => return vec![float("logits", Shape::Vector(self.width))],
            (Values::Embeddings, _) => return vec![float("embedding", Shape::Vector(self.width))],
            (Values::Classes | Values::Probabilities, Task::Links) => unreachable!("links have no classes"),
            (Values::Classes, Task::MultiClass) => {
                vec![self.class_column("class", Shape::Optional), float("probability", Shape::One)]
            }
            (Values::Classes, Task::MultiLabel) => {
                vec![self.class_column("classes", Shape::List), float("probabilities", Shape::List)]
            }
            (Values::Classes, Task::Regression) => {
                let name = |target| match self.width {
                    1 => "prediction".to_owned(),
                    _ => format!("prediction_{}", self.trained.class_name(target)),
                };
                return (0..self.width as u64).map(|target| float(&name(target), Shape::One)).collect();
            }
            (Values::Probabilities, Task::Regression) => unreachable!("targets have no probabilities"),
            (Values::Probabilities, Task::MultiClass) => vec![self.class_column("class", Shape::Optional)],
            (Values::Probabilities, Task::MultiLabel) => vec![self.class_column("classes", Shape::List)],
        };
        if self.values == Values::Probabilities {
            let name = |class| format!("probability_{}", self.trained.class_name(class));
            columns.extend((0..self.width as u64).map(|class| float(&name(class), Shape::One)));
        }
        columns
    }

    fn class_column(&self, name: &str, shape: Shape) -> Column {
        let scalar = match self.trained.class_names() {
            [] => Scalar::Integer,
            _ => Scalar::Text,
        };
        Column { repeats: true, ..Column::new(name, scalar, shape) }
    }

    /// The columns of some rows of the scratch file.
    fn cells(&self, bytes: &[u8]) -> Vec<Cells> {
        match (self.values, self.trained.task()) {
            (Values::Classes, Task::MultiClass) => self.classes(bytes),
            (Values::Classes, Task::MultiLabel) => self.sets(&floats(bytes)).into(),
            (Values::Classes, Task::Regression | Task::Links) => self.targets(&floats(bytes)),
            (Values::Probabilities, _) => self.probabilities(&floats(bytes)),
            (Values::Logits | Values::Embeddings, _) => vec![CellValues::Floats(floats(bytes)).into()],
        }
    }

    fn classes(&self, bytes: &[u8]) -> Vec<Cells> {
        let (rows, _) = bytes.as_chunks::<ROW_BYTES>();
        let class = |row: &[u8; ROW_BYTES]| i64::from_le_bytes(*row.first_chunk().expect("8 of 12 bytes"));
        let probability = |row: &[u8; ROW_BYTES]| f32::from_le_bytes(*row.last_chunk().expect("4 of 12 bytes"));
        let classes = rows.iter().map(|row| u64::try_from(class(row)).ok());
        let probabilities = rows.iter().map(probability).collect();
        vec![self.class_cells(classes), CellValues::Floats(probabilities).into()]
    }

    /// At most one class of each row.
    fn class_cells(&self, classes: impl Iterator<Item = Option<u64>> + Clone) -> Cells {
        Cells { counts: classes.clone().map(|class| class.map(|_| 1)).collect(), values: self.named(classes.flatten()) }
    }

    /// The classes that each row of logits says, and their probabilities.
    fn sets(&self, logits: &[f32]) -> [Cells; 2] {
        let (mut classes, mut of_classes, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for row in logits.chunks_exact(self.width) {
            let set = predicted(self.trained.task(), row);
            // No list, if there is no prediction.
            counts.push((!is_undecided(row)).then_some(set.len()));
            for (class, probability) in set {
                classes.push(class);
                of_classes.push(probability);
            }
        }
        let classes = self.named(classes.into_iter());
        [classes, CellValues::Floats(of_classes)].map(|values| Cells { values, counts: counts.clone() })
    }

    /// What each row of logits says, and the probabilities of all classes, a column for each.
    fn probabilities(&self, logits: &[f32]) -> Vec<Cells> {
        let task = self.trained.task();
        let rows = || logits.chunks_exact(self.width);
        let said = match task {
            Task::MultiClass => self.class_cells(rows().map(|row| Some(predicted(task, row).first()?.0))),
            Task::MultiLabel => {
                let [classes, _] = self.sets(logits);
                classes
            }
            Task::Regression | Task::Links => unreachable!("targets and links have no classes"),
        };
        let mut columns = vec![Vec::new(); self.width];
        for row in rows() {
            for (column, probability) in columns.iter_mut().zip(probabilities(task, row)) {
                column.push(probability);
            }
        }
        let columns = columns.into_iter().map(|column| CellValues::Floats(column).into());
        [said].into_iter().chain(columns).collect()
    }

    /// The targets of some rows, a column for each.
    fn targets(&self, rows: &[f32]) -> Vec<Cells> {
        let of_target = |target| rows.iter().skip(target).step_by(self.width).copied().collect();
        (0..self.width).map(|target| CellValues::Floats(of_target(target)).into()).collect()
    }

    /// Classes by their names, or by their numbers if they have none.
    fn named(&self, classes: impl Iterator<Item = u64>) -> CellValues {
        match self.trained.class_names() {
            [] => CellValues::Integers(classes.map(u64::cast_signed).collect()),
            names => CellValues::Texts(classes.map(|class| class_names::name(names, class).into_bytes()).collect()),
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks();
    values.iter().map(|&value| f32::from_le_bytes(value)).collect()
}
