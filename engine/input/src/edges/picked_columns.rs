//! Picks the columns of a table that store the edges.

use std::sync::Arc;

use arrow_schema::Field;

use super::{EdgeSourceOptions, IdKind, encoded::EdgeEncoder};
use crate::{
    columnar::{
        ColumnTable,
        types::{ValueType, described, duration_refused, is_list, is_signed, is_struct},
    },
    columns::{EdgeColumns, EdgeEnd, TimeColumn},
    conversions::Conversion,
};

pub(crate) struct PickedColumns {
    /// Sources, targets.
    pub ids: [usize; 2],
    pub signed: [bool; 2],
    /// The end whose id is the number of the row.
    pub row_end: Option<EdgeEnd>,
    /// The columns of the values of an edge: the weight, if there is one, then the features.
    pub values: Vec<usize>,
    /// Whether the first of them has weights.
    pub weighted: bool,
    /// What makes numbers of the features. None: they are numbers.
    pub encoder: Option<Arc<EdgeEncoder>>,
    /// The column with the order of the edges.
    pub order: Option<usize>,
    /// The column with their times.
    pub time: Option<TimeColumn<usize>>,
    /// The roles of columns, and their names.
    pub roles: Vec<(&'static str, String)>,
    /// The names of the other columns.
    pub left_out: Vec<String>,
}

/// Whether times may be read from a column.
fn may_have_times(column: &Field) -> bool {
    match ValueType::from_field(column) {
        ValueType::Number | ValueType::Days | ValueType::Moments(_) | ValueType::String => true,
        ValueType::Boolean | ValueType::Duration | ValueType::Other => false,
    }
}

impl PickedColumns {
    /// Finds the columns by their names. An error says what was expected.
    pub fn new(table: &ColumnTable, options: &EdgeSourceOptions) -> Result<Self, String> {
        // The index of pandas is no data.
        let all: Vec<usize> =
            (0..).zip(table.names()).filter(|&(_, name)| name != "__index_level_0__").map(|(at, _)| at).collect();
        let names: Vec<&str> = table.names().filter(|&name| name != "__index_level_0__").collect();
        let columns = EdgeColumns::named(&names, false, &options.columns).map_err(|problem| {
            match table.schema.fields().iter().any(|column| is_struct(column)) {
                true => format!(
                    "{problem}; columns in structs are read as columns of their own: {}",
                    table.file.remedy(Conversion::ParquetStructs)
                ),
                false => problem,
            }
        })?;
        if columns.relation.is_some() {
            return Err("relations in a column are read from text; write the table as text".to_owned());
        }
        let left_out = columns.left_out(&names);
        let picked = [columns.source, columns.target].map(|column| all[column]);
        let values: Vec<usize> = columns.values().map(|column| all[column]).collect();
        let order = columns.order.map(|column| all[column]);
        let time = columns.time.map(|time| TimeColumn { column: all[time.column], ..time });
        let read = picked.iter().chain(&values).copied().chain(order).chain(time.map(|time| time.column));
        if let Some(column) = read
            .clone()
            .map(|column| table.column(column))
            .find(|column| ValueType::from_field(column) == ValueType::Duration)
        {
            return Err(duration_refused(column));
        }
        let row_end = options.columns.row_end;
        let ends = [EdgeEnd::Source, EdgeEnd::Target].into_iter().zip(picked).zip(options.kinds());
        for ((_, column), kind) in ends.filter(|((end, _), _)| row_end != Some(*end)) {
            let column = table.column(column);
            let name = column.name();
            if is_list(column) {
                return Err(format!(
                    "the column {name} has lists; write a row for each element: {}",
                    table.file.remedy_for(Conversion::ParquetLists, name)
                ));
            }
            match (kind, ValueType::from_field(column)) {
                (IdKind::Integer, ValueType::Number) | (IdKind::String, ValueType::String) => {}
                (IdKind::Integer, _) => {
                    return Err(format!(
                        "expected integers in column {}; strings need --ids string, other types a cast to int64: {}",
                        described(column),
                        table.file.remedy_for(Conversion::ParquetToIntegers, name)
                    ));
                }
                (IdKind::String, _) => {
                    return Err(format!(
                        "expected strings in column {}; integers need --ids dense or sparse, other types a cast to string: {}",
                        described(column),
                        table.file.remedy_for(Conversion::ParquetToStrings, name)
                    ));
                }
            }
        }
        let weight = columns.weight.map(|column| table.column(all[column]));
        if let Some(column) = weight.filter(|column| ValueType::from_field(column) != ValueType::Number) {
            return Err(format!(
                "expected numbers in column {}; give --weight none if it holds no weights, or cast it: {}",
                described(column),
                table.file.remedy_for(Conversion::ParquetToFloats, column.name())
            ));
        }
        let features = &values[usize::from(columns.weight.is_some())..];
        for (columns, option) in [(features, "--edge-features-from"), (order.as_slice(), "--edge-split-by")] {
            let mut columns = columns.iter().map(|&column| table.column(column));
            if let Some(column) = columns.find(|column| !ValueType::from_field(column).is_encodable()) {
                return Err(format!(
                    "expected numbers, booleans, dates or text in column {}; give {option} without it, or cast it: {}",
                    described(column),
                    table.file.remedy_for(Conversion::ParquetToFloats, column.name())
                ));
            }
        }
        if let Some(column) = time.map(|time| table.column(time.column)).filter(|&column| !may_have_times(column)) {
            return Err(format!(
                "expected integers, dates or text in column {}; give --time another column, or cast it: {}",
                described(column),
                table.file.remedy_for(Conversion::ParquetToIntegers, column.name())
            ));
        }
        let are_numbers =
            features.iter().all(|&column| ValueType::from_field(table.column(column)) == ValueType::Number);
        let encoder = match EdgeEncoder::from_options(options) {
            None if !are_numbers => Some(Arc::new(EdgeEncoder::unfitted())),
            encoder => encoder.filter(|_| !features.is_empty()),
        };
        Ok(Self {
            encoder,
            order,
            time,
            row_end,
            signed: picked.map(|column| is_signed(table.column(column))),
            left_out: left_out.into_iter().map(str::to_owned).collect(),
            roles: columns
                .roles(&names)
                .into_iter()
                .filter(|(role, _)| Some(*role) != row_end.map(EdgeEnd::role))
                .collect(),
            ids: picked,
            values,
            weighted: columns.weight.is_some(),
        })
    }

    /// The columns of the features.
    pub fn features(&self) -> &[usize] {
        &self.values[usize::from(self.weighted)..]
    }

    /// The columns of values that are numbers as they are.
    pub fn numbers(&self) -> &[usize] {
        match self.encoder {
            None => &self.values,
            Some(_) => &self.values[..usize::from(self.weighted)],
        }
    }

    /// Values of an edge.
    pub fn width(&self) -> usize {
        self.numbers().len() + self.encoder.as_ref().map_or(0, |encoder| encoder.dim())
    }
}
