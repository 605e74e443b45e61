//! Rows of bytes as Arrow arrays.

use std::sync::Arc;

use arrow_array::{ArrayRef, ArrowPrimitiveType, FixedSizeListArray, PrimitiveArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};

/// The columns of rows that have equally many values of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueColumns {
    /// A column for each value, with these names.
    Named(Vec<String>),
    /// A column of lists of equal length, with this name.
    Lists(String, usize),
}

impl ValueColumns {
    /// The columns in the schema of a table.
    ///
    /// # Panics
    /// If a row has more than 2^31 values.
    pub fn fields(&self, data_type: &DataType) -> Vec<Field> {
        match self {
            Self::Named(names) => names.iter().map(|name| Field::new(name, data_type.clone(), false)).collect(),
            Self::Lists(name, width) => {
                let lists = DataType::FixedSizeList(element(data_type), list_size(*width));
                vec![Field::new(name, lists, false)]
            }
        }
    }

    /// The columns of some rows, from their values, one row after another.
    pub fn arrays<T: ArrowPrimitiveType>(&self, values: PrimitiveArray<T>) -> Vec<ArrayRef> {
        match self {
            Self::Named(names) if names.len() == 1 => vec![Arc::new(values)],
            Self::Named(names) => {
                let column = |first| values.values().iter().skip(first).step_by(names.len()).copied();
                let columns = (0..names.len()).map(|first| PrimitiveArray::<T>::from_iter_values(column(first)));
                columns.map(|column| Arc::new(column) as ArrayRef).collect()
            }
            Self::Lists(_, width) => {
                let element = element(&T::DATA_TYPE);
                vec![Arc::new(FixedSizeListArray::new(element, list_size(*width), Arc::new(values), None))]
            }
        }
    }
}

/// The elements of the lists of a table.
pub fn element(data_type: &DataType) -> FieldRef {
    Arc::new(Field::new("element", data_type.clone(), false))
}

fn list_size(width: usize) -> i32 {
    i32::try_from(width).expect("a row has at most 2^31 values")
}

/// The values in some bytes.
///
/// # Panics
/// If there are no whole values.
pub fn values<T: ArrowPrimitiveType>(bytes: &[u8]) -> PrimitiveArray<T> {
    PrimitiveArray::new(ScalarBuffer::from(Buffer::from(bytes)), None)
}
