//! Exports features, labels and times of nodes as arrays or tables, in the order of external ids.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, StringArray,
    types::{Float16Type, Float32Type, Int8Type, Int64Type},
};
use arrow_schema::{DataType, Field};
use grappa_formats::{
    ChunkSpan, NodeId,
    features::{FeatureLayout, FeaturesMeta},
    manifest::{FeatureDtype, FeatureSource, FeatureSpec, LabelKind, LabelSpec},
};
use grappa_ingestion::generate::{check_features_memory, write_features};
use grappa_io::{
    Error, Position, Result,
    map::Access,
    progress::{Progress, check_stopped},
};
use grappa_storage::{NodeTimes, Store, files};
use grappa_synthetic::{Generator, Recipe};

use crate::export::{
    Budget, Exported,
    arrays::{ValueColumns, values},
    node_table::{self, DenseIds, NodeTable},
    order::{NodeColumn, READ_BYTES, RowSink, read_in_order, sort_lease},
    pool,
    table::{TableFormat, TableOut, repeating},
};

/// Writes the features of all nodes as a table: the id of each node, and a column of f32 for each feature, or the list `features` if
/// features have no names or one is called `id`. A file that is not called `.parquet` or `.csv` gets a NumPy array with one row for each
/// node, in f16 if the store has f16, otherwise in f32. Scratch files are beside the file, or in the current folder.
///
/// # Errors
/// If the store has no features or is a slice, the file exists and is not to be replaced, the memory is too small, or files cannot be read
/// or written.
pub fn export_features<'a>(
    store: &Store,
    out: impl Into<TableOut<'a>>,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    let spec = store.manifest().features.as_ref();
    let spec = spec.ok_or_else(|| Error::input(store.path(), Position::Whole, "the nodes have no features"))?;
    let (format, dim) = (out.format(TableFormat::Npy), spec.dim as usize);
    let is_array = format == TableFormat::Npy;
    let columns = value_columns("features", &store.schema()?.feature_names(), dim, is_array);
    let floats = |bytes: &[u8]| columns.arrays::<Float32Type>(values(bytes));
    if spec.source == FeatureSource::Procedural {
        let generator = Generator::new(Recipe::from_json(&store.manifest().generator)?)?;
        let leases = check_features_memory(&generator, dim, budget.memory, "raise --memory")?;
        if let (TableOut::File(file), true) = (&out, is_array) {
            // All threads compute blocks of the array.
            let bytes = pool(budget.threads)?.install(|| write_features(&generator, dim, *file, progress))?;
            return Ok(Exported { rows: store.manifest().nodes, bytes, leases });
        }
        let read = |sink: &mut RowSink<'_>| read_procedural(&generator, dim, progress, sink);
        let fields = columns.fields(&DataType::Float32);
        return Ok(Exported { leases, ..write_rows(store, (out, format), fields, 4 * dim, read, floats)? });
    }
    let column = FeatureColumn::new(store, spec, !is_array);
    let (scratch, row_bytes) = (out.scratch().to_owned(), column.row_bytes());
    let leases = vec![sort_lease(store, row_bytes, column.name(), budget)?];
    let read = |sink: &mut RowSink<'_>| read_in_order(store, &column, &scratch, budget, progress, sink);
    let exported = match is_array && spec.dtype == FeatureDtype::F16 {
        false => write_rows(store, (out, format), columns.fields(&DataType::Float32), row_bytes, read, floats),
        true => write_rows(store, (out, format), columns.fields(&DataType::Float16), row_bytes, read, |bytes| {
            columns.arrays::<Float16Type>(values(bytes))
        }),
    }?;
    Ok(Exported { leases, ..exported })
}

/// A column of `dim` values for each row; or, in a table, a column for each value if all have names that the column of ids does not have.
fn value_columns(name: &str, names: &[String], dim: usize, is_array: bool) -> ValueColumns {
    match is_array || !can_divide(names) {
        true => ValueColumns::Lists(name.to_owned(), dim),
        false => ValueColumns::Named(names.to_vec()),
    }
}

fn can_divide(names: &[String]) -> bool {
    !names.is_empty() && names.iter().all(|name| name != node_table::ID)
}

/// Passes the features that a generator computes to `sink`, in the order of external ids.
fn read_procedural(generator: &Generator, dim: usize, progress: &dyn Progress, sink: &mut RowSink<'_>) -> Result<()> {
    let (features, mut row, mut bytes) = (generator.features(dim), vec![0.0; dim], Vec::new());
    let (nodes, rows_at_once) = (generator.nodes(), (READ_BYTES / (4 * dim)).max(1) as u64);
    progress.stage("writing features", Some(nodes.saturating_mul(4 * dim as u64)));
    for first in (0..nodes).step_by(rows_at_once as usize) {
        bytes.clear();
        for label in first..nodes.min(first + rows_at_once) {
            features.row(label, &mut row);
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        }
        sink(&bytes)?;
        progress.advance(bytes.len() as u64, 0);
        check_stopped(progress)?;
    }
    Ok(())
}

/// Writes the labels of all nodes as a table: the id of each node, and `label`, its class, or a list with a zero or one for each class. -1
/// stands for none. Targets and partly known classes are numbers, NaN for none. Where classes have names, `label` is a name or empty, and
/// a column of zeros and ones has the name of its class.
///
/// A file that is not called `.parquet` or `.csv` gets a NumPy array. With one class for each node, it is int64, -1 for none. With sets of
/// classes, it is int8 with one column for each class, 1 for the classes of the node. An unlabelled node has -1 in all columns. Scratch
/// files are beside the file, or in the current folder.
///
/// # Errors
/// As [`export_features`], about labels.
pub fn export_labels<'a>(
    store: &Store,
    out: impl Into<TableOut<'a>>,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    let column = LabelColumn::new(store)?;
    let format = out.format(TableFormat::Npy);
    let is_array = format == TableFormat::Npy;
    let names = store.schema()?.classes;
    let classes = column.spec.classes as usize;
    // A single target is a number.
    let is_number =
        classes == 1 && (column.spec.kind == LabelKind::Targets || column.spec.kind == LabelKind::Partial && !is_array);
    let columns = match value_columns("label", &names, classes, is_array) {
        ValueColumns::Lists(name, _) if is_number => ValueColumns::Named(vec![name]),
        columns => columns,
    };
    let fields = |data_type| columns.fields(data_type).into_iter().map(repeating).collect();
    let (scratch, row_bytes) = (out.scratch().to_owned(), column.row_bytes());
    let leases = vec![sort_lease(store, row_bytes, column.name(), budget)?];
    let read = |sink: &mut RowSink<'_>| read_in_order(store, &column, &scratch, budget, progress, sink);
    let out = (out, format);
    let exported = match column.spec.kind {
        LabelKind::Single if is_array || !can_divide(&names) => {
            let label = repeating(Field::new("label", DataType::Int64, false));
            write_rows(store, out, vec![label], row_bytes, read, |bytes| vec![Arc::new(values::<Int64Type>(bytes))])
        }
        LabelKind::Single => {
            let label = repeating(Field::new("label", DataType::Utf8, true));
            write_rows(store, out, vec![label], row_bytes, read, |bytes| {
                let classes = values::<Int64Type>(bytes);
                let names = classes.values().iter().map(|&class| names.get(usize::try_from(class).ok()?));
                vec![Arc::new(names.collect::<StringArray>())]
            })
        }
        LabelKind::Partial | LabelKind::Targets => {
            write_rows(store, out, fields(&DataType::Float32), row_bytes, read, |bytes| {
                columns.arrays::<Float32Type>(values(bytes))
            })
        }
        LabelKind::Multi if is_array => write_rows(store, out, fields(&DataType::Int8), row_bytes, read, |bytes| {
            columns.arrays::<Int8Type>(values(bytes))
        }),
        LabelKind::Multi => write_rows(store, out, fields(&DataType::Int64), row_bytes, read, |bytes| {
            columns.arrays::<Int64Type>(values::<Int8Type>(bytes).unary(i64::from))
        }),
    }?;
    Ok(Exported { leases, ..exported })
}

/// Writes a table of all nodes with some columns.
fn write_rows(
    store: &Store,
    (out, format): (TableOut<'_>, TableFormat),
    columns: Vec<Field>,
    row_bytes: usize,
    read: impl FnOnce(&mut RowSink<'_>) -> Result<()>,
    arrays: impl Fn(&[u8]) -> Vec<ArrayRef> + Sync,
) -> Result<Exported> {
    let ids = DenseIds::All(store.manifest().nodes);
    let table = NodeTable { store, format, ids: &ids, columns, escapes_ids: false };
    Ok(Exported { rows: ids.len(), bytes: table.write(out, row_bytes, read, arrays)?, leases: Vec::new() })
}

struct FeatureColumn<'a> {
    store: &'a Store,
    layout: FeatureLayout,
    /// Whether f16 becomes f32 too.
    as_f32: bool,
}

impl<'a> FeatureColumn<'a> {
    fn new(store: &'a Store, spec: &FeatureSpec, as_f32: bool) -> Self {
        let layout = FeatureLayout { dtype: spec.dtype, dim: spec.dim, stride: spec.row_stride };
        Self { store, layout, as_f32 }
    }

    /// Whether the store's rows have the bits that the output needs.
    fn is_verbatim(&self) -> bool {
        match self.layout.dtype {
            FeatureDtype::F32 => true,
            FeatureDtype::F16 => !self.as_f32,
            _ => false,
        }
    }
}

impl NodeColumn for FeatureColumn<'_> {
    fn name(&self) -> &'static str {
        "features"
    }

    fn stage(&self) -> (&'static str, u64) {
        ("reading", self.layout.stride.into())
    }

    fn row_bytes(&self) -> usize {
        match self.is_verbatim() {
            true => self.layout.row_bytes(),
            false => 4 * self.layout.dim as usize,
        }
    }

    fn rows(&self, span: ChunkSpan, progress: &dyn Progress, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let file = self.store.file(&files::of_chunk(span.chunk, "features"))?;
        let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&span).map_err(Error::format(file.path()))?;
        let stride = self.layout.stride as usize;
        let mut stored = vec![0; (READ_BYTES / stride).max(1) * stride];
        let (mut values, mut bytes) = (vec![0.0; self.layout.dim as usize], Vec::new());
        let end = span.rows * stride as u64;
        for at in (0..end).step_by(stored.len()) {
            let length = stored.len().min((end - at) as usize);
            let part = &mut stored[..length];
            file.read_at(part, at)?;
            for row in part.chunks_exact(stride) {
                if self.is_verbatim() {
                    each(&row[..self.layout.row_bytes()])?;
                } else {
                    self.layout.decode_row(row, &mut values);
                    bytes.clear();
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                    each(&bytes)?;
                }
            }
            progress.advance(part.len() as u64, 0);
            check_stopped(progress)?;
        }
        Ok(())
    }
}

/// Writes the times of all nodes as a table: the id of each node, and `time`, an int64 in the unit of the store. A file that is not called
/// `.parquet` or `.csv` gets a NumPy array of int64. Scratch files are beside the file, or in the current folder.
///
/// # Errors
/// As [`export_features`], about times.
pub fn export_node_times<'a>(
    store: &Store,
    out: impl Into<TableOut<'a>>,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    let times = store.node_times()?;
    let times = times.ok_or_else(|| Error::input(store.path(), Position::Whole, "the nodes have no times"))?;
    let (format, column) = (out.format(TableFormat::Npy), TimesColumn(times));
    let (scratch, row_bytes) = (out.scratch().to_owned(), column.row_bytes());
    let leases = vec![sort_lease(store, row_bytes, column.name(), budget)?];
    let read = |sink: &mut RowSink<'_>| read_in_order(store, &column, &scratch, budget, progress, sink);
    let time = repeating(Field::new("time", DataType::Int64, false));
    let exported = write_rows(store, (out, format), vec![time], row_bytes, read, |bytes| {
        vec![Arc::new(values::<Int64Type>(bytes))]
    })?;
    Ok(Exported { leases, ..exported })
}

/// The times of nodes.
struct TimesColumn<'a>(&'a NodeTimes);

impl NodeColumn for TimesColumn<'_> {
    fn name(&self) -> &'static str {
        "times"
    }

    fn stage(&self) -> (&'static str, u64) {
        ("reading", size_of::<i64>() as u64)
    }

    fn row_bytes(&self) -> usize {
        size_of::<i64>()
    }

    fn rows(&self, span: ChunkSpan, progress: &dyn Progress, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for node in span.first_node.0..span.first_node.0 + span.rows {
            each(&self.0.time(NodeId(node)).to_le_bytes())?;
        }
        progress.advance(span.rows * size_of::<i64>() as u64, 0);
        check_stopped(progress)
    }
}

struct LabelColumn<'a> {
    store: &'a Store,
    spec: LabelSpec,
}

impl<'a> LabelColumn<'a> {
    fn new(store: &'a Store) -> Result<Self> {
        let spec = store.manifest().labels;
        let spec = spec.ok_or_else(|| Error::input(store.path(), Position::Whole, "the nodes have no labels"))?;
        Ok(Self { store, spec })
    }
}

impl NodeColumn for LabelColumn<'_> {
    fn name(&self) -> &'static str {
        "labels"
    }

    fn stage(&self) -> (&'static str, u64) {
        ("reading", self.spec.row_bytes().into())
    }

    fn row_bytes(&self) -> usize {
        match self.spec.kind {
            LabelKind::Single => 8,
            LabelKind::Multi => self.spec.classes as usize,
            LabelKind::Partial | LabelKind::Targets => 4 * self.spec.classes as usize,
        }
    }

    fn rows(&self, span: ChunkSpan, progress: &dyn Progress, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let path = self.store.path().join(files::of_chunk(span.chunk, "labels"));
        let labels = self.store.labels(span.chunk, Access::Sequential)?.expect("the manifest has labels");
        if labels.meta().spec != self.spec {
            let problem = format!("the file has {:?}, the manifest {:?}", labels.meta().spec, self.spec);
            return Err(Error::input(path, Position::Whole, problem));
        }
        let mut bytes = vec![0u8; self.row_bytes()];
        for row in 0..span.rows {
            match self.spec.kind {
                LabelKind::Single => {
                    bytes.copy_from_slice(&labels.single(row)?.map_or(-1, i64::from).to_le_bytes());
                }
                LabelKind::Multi => match labels.multi(row)? {
                    Some(set) => {
                        bytes.fill(0);
                        set.iter().for_each(|class| bytes[class as usize] = 1);
                    }
                    None => bytes.fill(u8::MAX),
                },
                LabelKind::Partial | LabelKind::Targets => {
                    bytes.clear();
                    bytes.extend(labels.values(row)?.flat_map(f32::to_le_bytes));
                }
            }
            each(&bytes)?;
        }
        progress.advance(span.rows * u64::from(self.spec.row_bytes()), 0);
        check_stopped(progress)
    }
}
