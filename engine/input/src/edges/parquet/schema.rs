//! Picks the columns of a Parquet file that hold the edges.

use std::path::Path;

use parquet::schema::types::SchemaDescriptor;

use super::super::IdKind;
use crate::{
    columns::{EdgeColumnOptions, EdgeColumns},
    conversions::Conversion,
    parquet::types::{described, is_flat, is_number, is_signed, is_string, name},
};

pub(crate) struct PickedColumns {
    /// Sources, targets.
    pub ids: [usize; 2],
    pub signed: [bool; 2],
    /// The columns of the values of an edge: the weight, if there is one, then the features.
    pub values: Vec<usize>,
    /// Whether the first of them has weights.
    pub weighted: bool,
    /// The roles of columns, and their names.
    pub roles: Vec<(&'static str, String)>,
    /// The names of the other columns.
    pub left_out: Vec<String>,
}

impl PickedColumns {
    /// Finds the columns by their names. An error says what was expected.
    pub fn of(
        schema: &SchemaDescriptor,
        ids: IdKind,
        options: &EdgeColumnOptions,
        path: &Path,
    ) -> Result<Self, String> {
        // The index of pandas is no data.
        let names: Vec<&str> = schema.columns().iter().map(|column| name(column)).collect();
        let all: Vec<usize> =
            (0..schema.num_columns()).filter(|&column| names[column] != "__index_level_0__").collect();
        let names: Vec<&str> = all.iter().map(|&column| names[column]).collect();
        let columns = EdgeColumns::named(&names, false, options).map_err(|what| {
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
        for (at, column) in values.iter().map(|&column| schema.column(column)).enumerate() {
            if is_flat(&column) && is_number(&column) {
                continue;
            }
            let remedy = match at == 0 && columns.weight.is_some() {
                true => "give --weight none if it holds no weights",
                false => "leave it out of --edge-features-from",
            };
            return Err(format!(
                "expected numbers in column {}; {remedy}, or cast it: {}",
                described(&column),
                Conversion::ParquetToFloats.command_for(path, name(&column))
            ));
        }
        Ok(Self {
            signed: picked.map(|column| is_signed(&schema.column(column))),
            left_out: left_out.into_iter().map(str::to_owned).collect(),
            roles: columns.roles(&names),
            ids: picked,
            values,
            weighted: columns.weight.is_some(),
        })
    }
}
