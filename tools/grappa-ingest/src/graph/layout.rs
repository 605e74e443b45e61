//! Graphs in the layouts of other tools.
//!
//! A layout describes its node types and relations with the options of the engine. [`GraphLayout::with_line`] adds the command line: an
//! option for a type or relation replaces the value of the layout.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Result, ensure};
use arrow_array::{ArrayRef, RecordBatch};
use grappa_engine::ingest::{
    ColumnSchema, ColumnValues, Conversion, EdgeColumnOptions, EdgeForm, EdgeIngest, EdgeOptions, EncodingOptions,
    ExternalIds, Input, MemoryArray, MemoryData, MemoryInput, MissingOption, MissingOptions, NodeData, NodeIngest,
    NodeTypeIngest, ReadAt, RelationIngest, Replacement, TableForm, TableOptions, TableSchema, files_of, read_numbers,
    shape_of,
};

use super::line::{GraphLine, RelationKey};
use crate::data::Data;

/// The node types and relations of a graph, and what is left out of them.
#[derive(Default)]
pub struct GraphLayout {
    pub node_types: Vec<NodeTypeIngest>,
    pub relations: Vec<RelationIngest>,
    pub notes: Vec<String>,
}

impl GraphLayout {
    /// The graph with the options of the command line.
    pub fn with_line(self, line: &mut GraphLine) -> Result<Self> {
        let types: Vec<String> = self.node_types.iter().map(|node_type| node_type.name.clone()).collect();
        let keys: Vec<RelationKey> = self.relations.iter().map(key_of).collect();
        line.add_names(&types, &keys);
        line.check(&types, &keys)?;
        let node_types = self.node_types.into_iter().map(|node_type| {
            let nodes = nodes_with_line(line, &node_type.name, node_type.nodes)?;
            Ok(NodeTypeIngest { nodes, ..node_type })
        });
        let relations = self.relations.into_iter().map(|relation| relation_with_line(line, relation));
        Ok(Self {
            node_types: node_types.collect::<Result<_>>()?,
            relations: relations.collect::<Result<_>>()?,
            notes: self.notes,
        })
    }

    /// The nodes of a type, which is new if no type has this name.
    pub fn nodes_mut(&mut self, name: &str) -> &mut NodeIngest {
        let at = self.node_types.iter().position(|node_type| node_type.name == name).unwrap_or_else(|| {
            self.node_types.push(NodeTypeIngest::new(name));
            self.node_types.len() - 1
        });
        &mut self.node_types[at].nodes
    }

    /// Whether a type has this name.
    pub fn has_type(&self, name: &str) -> bool {
        self.node_types.iter().any(|node_type| node_type.name == name)
    }
}

fn key_of(relation: &RelationIngest) -> RelationKey {
    [&relation.source, &relation.name, &relation.destination].map(Clone::clone)
}

/// The nodes of a type, with the options of the command line for it. Columns of labels and splits are no features.
fn nodes_with_line(line: &GraphLine, name: &str, nodes: NodeIngest) -> Result<NodeIngest> {
    let NodeIngest { ids, data, splits, layout, .. } = line.node_type(name, &[])?.options(Data::default())?.nodes;
    let (columns, own_columns) = (data.tables.columns, nodes.data.tables.columns);
    let has_splits = !splits.files.is_empty() || splits.random.is_some() || !columns.split.is_empty();
    let time = columns.time.as_ref().map(|time| time.column.clone());
    let named = [&columns.label[..], &columns.split, &Vec::from_iter(time)].concat();
    let has_none = line.has_no_features(name);
    let are_all_features = own_columns.features.is_empty() && !has_none;
    let own_features = own_columns.features.into_iter().filter(|column| !has_none && !named.contains(column));
    let own_features: Vec<String> = own_features.collect();
    let own_table = nodes.data.table.or(nodes.data.features.clone());
    let own_labels = nodes.data.labels.or_else(|| own_table.clone().filter(|_| !columns.label.is_empty()));
    let has_features = nodes.data.features.is_some() && (are_all_features || !own_features.is_empty());
    Ok(NodeIngest {
        ids: if line.has_for_type("ids", name) { ids } else { nodes.ids },
        splits: if has_splits { splits } else { nodes.splits },
        layout,
        data: NodeData {
            features: data.features.or(nodes.data.features.filter(|_| has_features)),
            feature_dtype: data.feature_dtype.or(nodes.data.feature_dtype),
            allow_nan: data.allow_nan,
            labels: data.labels.or(own_labels),
            label_type: if line.has_for_type("label-type", name) { data.label_type } else { nodes.data.label_type },
            ids: data.ids.or(nodes.data.ids),
            table: own_table.filter(|_| !has_features),
            times: nodes.data.times,
            tables: TableForm {
                columns: TableOptions {
                    id: first_with_values(columns.id, own_columns.id),
                    label: first_with_values(columns.label, own_columns.label),
                    features: first_with_values(columns.features, own_features),
                    split: first_with_values(columns.split, own_columns.split),
                    time: columns.time.or(own_columns.time),
                    schema: columns.schema,
                },
                separator: data.tables.separator.or(nodes.data.tables.separator),
            },
            encoding: EncodingOptions {
                missing: match data.encoding.missing.0.is_empty() && has_features {
                    true => nodes.data.encoding.missing,
                    false => data.encoding.missing,
                },
                ..data.encoding
            },
        },
        ..nodes
    })
}

/// A relation, with the options of the command line for it.
fn relation_with_line(line: &GraphLine, relation: RelationIngest) -> Result<RelationIngest> {
    let key = key_of(&relation);
    let EdgeIngest { form, options, merge, split, .. } =
        line.relation(&key, &["-".to_owned()])?.options(Data::default())?.edges;
    let (columns, own_form) = (form.columns, relation.edges.form);
    let own_columns = own_form.columns;
    let of_line = |option| line.has_for_relation(option, &key);
    Ok(RelationIngest {
        reverse: line.reverse_of(&key).or(relation.reverse),
        edges: EdgeIngest {
            form: EdgeForm {
                format: if of_line("format") { form.format } else { own_form.format },
                header: if of_line("header") { form.header } else { own_form.header },
                comments: if of_line("comments") { form.comments } else { own_form.comments },
                separator: form.separator.or(own_form.separator),
                columns: EdgeColumnOptions {
                    source: columns.source.or(own_columns.source),
                    target: columns.target.or(own_columns.target),
                    weight: columns.weight.or(own_columns.weight),
                    features: first_with_values(columns.features, own_columns.features),
                    time: columns.time.or(own_columns.time),
                    ..own_columns
                },
                weights: form.weights.or(own_form.weights),
                features: form.features.or(own_form.features),
                encoded: None,
                feature_dtype: form.feature_dtype.or(own_form.feature_dtype),
                on_bad_line: form.on_bad_line,
            },
            options: EdgeOptions { undirected: options.undirected || relation.edges.options.undirected, ..options },
            merge,
            split: split.or(relation.edges.split),
            files: relation.edges.files,
        },
        ..relation
    })
}

fn first_with_values(first: Vec<String>, second: Vec<String>) -> Vec<String> {
    if first.is_empty() { second } else { first }
}

/// Missing values are usual in databases.
pub fn missing_by_mean() -> MissingOptions {
    MissingOptions(vec![MissingOption { column: None, by: Replacement::Mean }])
}

/// The kind of ids in a column.
pub fn ids_in(values: ColumnValues) -> ExternalIds {
    match values {
        ColumnValues::Text => ExternalIds::String,
        _ => ExternalIds::Sparse,
    }
}

/// Why the values of a column do not become features. None if they do.
///
/// # Errors
/// If the column has to be read, and can't be.
pub fn why_no_feature(schema: &TableSchema, column: &ColumnSchema) -> Result<Option<&'static str>> {
    Ok(match column.values {
        ColumnValues::Integers
        | ColumnValues::Floats
        | ColumnValues::Booleans
        | ColumnValues::Lists
        | ColumnValues::Times => None,
        ColumnValues::Text if schema.is_category(&column.name, EncodingOptions::CATEGORIES_MAX as usize)? => None,
        ColumnValues::Text => Some("it is text with many different values"),
        ColumnValues::Others => Some("values of its type are not read"),
    })
}

/// Several files as one input: the file itself, or the folder whose files they are.
///
/// # Errors
/// The reason, if they are not all files of one folder, or are text.
pub fn one_input(files: &[PathBuf]) -> std::result::Result<Input, String> {
    if let [file] = files {
        return Ok(Input::from(file));
    }
    let folder = files.first().and_then(|file| file.parent()).unwrap_or(Path::new("."));
    let are_parquet = files.iter().all(|file| file.extension().is_some_and(|extension| extension == "parquet"));
    let mut sorted = files.to_vec();
    sorted.sort();
    let in_folder = files_of(folder).map(|mut files| {
        files.sort();
        files
    });
    if are_parquet && in_folder.is_ok_and(|files| files == sorted) {
        return Ok(Input::from(folder));
    }
    let merge = if are_parquet { Conversion::MergeParquet } else { Conversion::MergeText };
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    Err(format!(
        "found {} files, expected one table: nodes are read from one file, or from all Parquet files of a folder; merge them, as in \
         {}, and name the new file",
        files.len(),
        merge.command_for_all(&paths)
    ))
}

/// A table in memory, under the name of the file that its values are from.
///
/// # Errors
/// If the columns have different lengths.
pub fn table_in_memory(name: &Path, columns: Vec<(&str, ArrayRef)>) -> Result<Input> {
    let batch = RecordBatch::try_from_iter(columns)?;
    Ok(MemoryInput { name: name.to_owned(), data: MemoryData::Table(batch.schema(), vec![batch]) }.into())
}

/// The edges in an array of shape (2, E), sources before destinations. Of two edges, the reader would take each row as an edge.
///
/// # Errors
/// If the file is no array.
pub fn edge_index(path: &Path) -> Result<Input> {
    if shape_of(path)? != [2, 2] {
        return Ok(Input::from(path));
    }
    let bytes = read_numbers(path)?.values.iter().flat_map(|&id| (id as i64).to_le_bytes()).collect();
    let array = MemoryArray {
        bytes: Arc::new(Bytes(bytes)),
        descr: "<i8".to_owned(),
        shape: vec![2, 2],
        column_major: false,
        is_edge_index: true,
    };
    Ok(MemoryInput { name: path.to_owned(), data: MemoryData::Array(array) }.into())
}

/// The numbers of rows as a list of ids, under the name of the file that has the rows.
pub fn row_numbers(name: &Path, rows: Range<u64>) -> Input {
    let shape = vec![rows.end - rows.start];
    let bytes = Arc::new(Counting { first: rows.start });
    let array = MemoryArray { bytes, descr: "<u8".to_owned(), shape, column_major: false, is_edge_index: false };
    MemoryInput { name: name.to_owned(), data: MemoryData::Array(array) }.into()
}

/// Consecutive integers of 64 bits as bytes, which take no memory.
#[derive(Debug)]
struct Counting {
    first: u64,
}

impl ReadAt for Counting {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let width = size_of::<u64>() as u64;
        for (byte, at) in into.iter_mut().zip(offset..) {
            *byte = (self.first + at / width).to_le_bytes()[(at % width) as usize];
        }
        Ok(())
    }
}

/// The elements of an array in memory.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl ReadAt for Bytes {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.get(offset as usize..offset as usize + into.len());
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A word in quotes, for a shell.
pub fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), Into::into)
}

/// Fails with all problems of a layout.
///
/// # Errors
/// If there are any.
pub fn refuse(path: &Path, problems: &[String]) -> Result<()> {
    ensure!(problems.is_empty(), "{}: {}", path.display(), problems.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_rows_are_read_at_any_offset() {
        let first = (1 << 40) - 1;
        let expected: Vec<u8> = (first..first + 5).flat_map(u64::to_le_bytes).collect();
        let numbers = Counting { first };
        for (offset, length) in [(0, 40), (8, 16), (3, 20), (39, 1), (40, 0)] {
            let mut read = vec![0xff; length];
            numbers.read_exact_at(&mut read, offset).unwrap();
            assert_eq!(read, expected[offset as usize..][..length], "{length} bytes at {offset}");
        }
        let Input::Memory(input) = row_numbers(Path::new("val.parquet"), 7..9) else { panic!("it is in memory") };
        assert_eq!((input.name.as_path(), input.data.total_bytes()), (Path::new("val.parquet"), 16));
    }
}
