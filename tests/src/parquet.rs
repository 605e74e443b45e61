//! Parquet files with edges.

use std::{fs::File, path::Path, sync::Arc};

use parquet::{
    data_type::{FloatType, Int64Type},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};

/// Writes edges, and edge weights if given, in row groups of at most 100.
pub fn write_parquet(path: &Path, edges: &[(u64, u64)], weights: Option<&[f32]>) {
    let weight = if weights.is_some() {
        "required float weight;"
    } else {
        ""
    };
    let schema = format!("message edges {{ required int64 src; required int64 dst; {weight} }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    for (group, rows) in edges.chunks(100).enumerate() {
        let mut group_writer = writer.next_row_group().unwrap();
        let sources: Vec<_> = rows.iter().map(|edge| edge.0 as i64).collect();
        let targets: Vec<_> = rows.iter().map(|edge| edge.1 as i64).collect();
        for values in [sources, targets] {
            let mut column = group_writer.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        if let Some(weights) = weights {
            let mut column = group_writer.next_column().unwrap().unwrap();
            let values = &weights[group * 100..][..rows.len()];
            column.typed::<FloatType>().write_batch(values, None, None).unwrap();
            column.close().unwrap();
        }
        group_writer.close().unwrap();
    }
    writer.close().unwrap();
}
