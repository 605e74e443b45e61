//! Picks the columns of a Parquet file that hold the edges.

use std::{path::Path, sync::Arc};

use parquet::schema::types::SchemaDescriptor;

use super::super::{EdgeSourceOptions, IdKind, encoded::EdgeEncoder};
use crate::{
    columns::EdgeColumns,
    conversions::Conversion,
    parquet::types::{ValueType, described, is_flat, is_number, is_signed, is_string, name},
};

pub(crate) struct PickedColumns {
    /// Sources, targets.
    pub ids: [usize; 2],
    pub signed: [bool; 2],
    /// The columns of the values of an edge: the weight, if there is one, then the features.
    pub values: Vec<usize>,
    /// Whether the first of them has weights.
    pub weighted: bool,
    /// What makes numbers of the features. None: they are numbers.
    pub encoder: Option<Arc<EdgeEncoder>>,
    /// The column with the order of the edges.
    pub order: Option<usize>,
    /// The roles of columns, and their names.
    pub roles: Vec<(&'static str, String)>,
    /// The names of the other columns.
    pub left_out: Vec<String>,
}

impl PickedColumns {
    /// Finds the columns by their names. An error says what was expected.
    pub fn of(schema: &SchemaDescriptor, options: &EdgeSourceOptions, path: &Path) -> Result<Self, String> {
        let ids = options.ids;
        // The index of pandas is no data.
        let names: Vec<&str> = schema.columns().iter().map(|column| name(column)).collect();
        let all: Vec<usize> =
            (0..schema.num_columns()).filter(|&column| names[column] != "__index_level_0__").collect();
        let names: Vec<&str> = all.iter().map(|&column| names[column]).collect();
        let columns = EdgeColumns::named(&names, false, &options.columns).map_err(|what| {
            match schema.columns().iter().any(|column| column.max_rep_level() == 0 && column.path().parts().len() > 1) {
                true => format!(
                    "{what}; columns in structs are read as columns of their own: {}",
                    Conversion::ParquetStructs.command(path)
                ),
                false => what,
            }
        })?;
        let left_out = columns.left_out(&names);
        let picked = [columns.source, columns.target].map(|column| all[column]);
        let values: Vec<usize> = columns.values().map(|column| all[column]).collect();
        for column in picked.map(|column| schema.column(column)) {
            let fits = is_flat(&column)
                && match ids {
                    IdKind::Integer => is_number(&column),
                    IdKind::String => is_string(&column),
                };
            if column.max_rep_level() > 0 {
                let name = name(&column);
                return Err(format!(
                    "the column {name} has lists; write a row for each element: {}",
                    Conversion::ParquetLists.command_for(path, name)
                ));
            }
            if !fits {
                let (column, name) = (described(&column), name(&column).to_owned());
                return Err(match ids {
                    IdKind::Integer => format!(
                        "expected integers in column {column}; strings need --ids string, other types a cast to int64: {}",
                        Conversion::ParquetToIntegers.command_for(path, &name)
                    ),
                    IdKind::String => {
                        format!(
                            "expected strings in column {column}; integers need --ids dense or sparse, other types a cast to string: {}",
                            Conversion::ParquetToStrings.command_for(path, &name)
                        )
                    }
                });
            }
        }
        let weight = columns.weight.map(|column| schema.column(all[column]));
        if let Some(column) = weight.filter(|column| ValueType::of(column) != ValueType::Number) {
            return Err(format!(
                "expected numbers in column {}; give --weight none if it holds no weights, or cast it: {}",
                described(&column),
                Conversion::ParquetToFloats.command_for(path, name(&column))
            ));
        }
        let features = &values[usize::from(columns.weight.is_some())..];
        let order = columns.order.map(|column| all[column]);
        let readable = [(features, "--edge-features-from"), (order.as_slice(), "--edge-split-by")];
        for (columns, option) in readable {
            let mut columns = columns.iter().map(|&column| schema.column(column));
            if let Some(column) = columns.find(|column| ValueType::of(column) == ValueType::Other) {
                return Err(format!(
                    "expected numbers, booleans, dates or text in column {}; give {option} without it, or cast it: {}",
                    described(&column),
                    Conversion::ParquetToFloats.command_for(path, name(&column))
                ));
            }
        }
        let are_numbers = features.iter().all(|&column| ValueType::of(&schema.column(column)) == ValueType::Number);
        let encoder = match EdgeEncoder::of(options) {
            None if !are_numbers => Some(Arc::new(EdgeEncoder::unfitted())),
            encoder => encoder.filter(|_| !features.is_empty()),
        };
        Ok(Self {
            encoder,
            order,
            signed: picked.map(|column| is_signed(&schema.column(column))),
            left_out: left_out.into_iter().map(str::to_owned).collect(),
            roles: columns.roles(&names),
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
