//! Exports features and labels as arrays or tables, in the order of external ids.

use std::path::Path;

use grappa_formats::{
    ChunkSpan,
    features::{FeatureLayout, FeaturesMeta},
    manifest::{FeatureDtype, FeatureSource, FeatureSpec, LabelKind, LabelSpec},
};
use grappa_ingestion::generate::{check_features_memory, write_features};
use grappa_io::{
    Error, Position, Result,
    durable::{self, Destination},
    map::Access,
    npy,
    progress::{Progress, check_stopped},
};
use grappa_storage::{Store, files};
use grappa_synthetic::{Generator, Recipe};

use crate::export::{
    Budget, Exported, expect_whole,
    made::MadeRows,
    node_table::{self, DenseIds, NodeTable},
    order::{Column, READ_BYTES, export_column},
    pool,
    table::{self, Cells, Scalar, Shape, TableFormat, TableOut, Values},
};

/// Writes the features of all nodes to a new file: a table as [`features_table`] if it is called `.parquet` or `.csv`, else a NumPy array
/// with one row for each node, in f16 if the store has f16, otherwise in f32.
///
/// # Errors
/// If the store has no features or is a slice, the file exists and is not to be replaced, the memory is too small, or files cannot be read
/// or written.
pub fn export_features<'a>(
    store: &Store,
    out: impl Into<Destination<'a>>,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    if let Some(format) = TableFormat::of(out.path) {
        let scratch = durable::parent(out.path);
        return features_table(store, TableOut::File(out, format), scratch, budget, progress);
    }
    let manifest = store.manifest();
    let spec = feature_spec(store)?;
    if spec.source == FeatureSource::Procedural {
        let generator = Generator::new(Recipe::from_json(&manifest.generator)?)?;
        let dim = spec.dim as usize;
        let bytes = pool(budget.threads)?.install(|| {
            check_features_memory(&generator, dim, budget.memory, "raise --memory")?;
            write_features(&generator, dim, out, progress)
        })?;
        return Ok(Exported { rows: manifest.nodes, bytes });
    }
    let column = FeatureColumn::new(store, spec, false);
    export_column(store, out, &column, &column.header(), budget, progress)
}

/// Writes the features of all nodes as a table: the id of each node, and a column of f32 for each feature, or the list `features` if
/// features have no names or one is called `id`. Scratch files are in the folder `scratch`.
///
/// # Errors
/// As [`export_features`].
pub fn features_table(
    store: &Store,
    out: TableOut<'_>,
    scratch: &Path,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let spec = feature_spec(store)?;
    let dim = spec.dim as usize;
    let rows = match spec.source {
        FeatureSource::Procedural => procedural_rows(store, dim, scratch, budget, progress)?,
        _ => {
            let column = FeatureColumn::new(store, spec, true);
            expect_whole(store, column.name())?;
            MadeRows::of_column(store, &column, scratch, budget, progress)?
        }
    };
    let names = store.schema()?.feature_names();
    let whole = table::Column::new("features", Scalar::Float, Shape::Vector(dim));
    let (columns, width) = named_columns(&names, whole, dim);
    write_rows(store, out, columns, &rows, progress, |bytes| float_cells(bytes, dim, width))
}

/// Whether each value of a row can be a column of its own: it has a name that the column of ids does not have.
fn can_divide(names: &[String]) -> bool {
    !names.is_empty() && names.iter().all(|name| name != node_table::ID)
}

/// A column of one value for each name, or the column `whole` of `dim` values if there are no such columns. Also the values of a column.
fn named_columns(names: &[String], whole: table::Column, dim: usize) -> (Vec<table::Column>, usize) {
    match can_divide(names) {
        true => (names.iter().map(|name| table::Column::new(name, whole.scalar, Shape::One)).collect(), 1),
        false => (vec![whole], dim),
    }
}

/// The cells of rows of `dim` f32 values, in columns of `width` values.
fn float_cells(bytes: &[u8], dim: usize, width: usize) -> Vec<Cells> {
    let (values, _) = bytes.as_chunks();
    let values: Vec<f32> = values.iter().map(|&value| f32::from_le_bytes(value)).collect();
    divided(&values, dim, width).map(|values| Values::Floats(values).into()).collect()
}

/// The values of each column of `width` values, where a row of `dim` values has one column after another.
fn divided<T: Copy>(values: &[T], dim: usize, width: usize) -> impl Iterator<Item = Vec<T>> {
    (0..dim).step_by(width).map(move |first| {
        let rows = values.chunks_exact(dim);
        rows.flat_map(|row| &row[first..first + width]).copied().collect()
    })
}

/// The features that a generator computes, in the order of external ids.
fn procedural_rows(
    store: &Store,
    dim: usize,
    scratch: &Path,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<MadeRows> {
    let generator = Generator::new(Recipe::from_json(&store.manifest().generator)?)?;
    check_features_memory(&generator, dim, budget.memory, "raise --memory")?;
    let made = MadeRows::create(scratch, "features", 4 * dim)?;
    let (features, mut row, mut bytes) = (generator.features(dim), vec![0.0; dim], Vec::new());
    let (nodes, at_once) = (generator.nodes(), (READ_BYTES / (4 * dim)).max(1) as u64);
    progress.stage("computing features", Some(nodes.saturating_mul(4 * dim as u64)));
    for first in (0..nodes).step_by(at_once as usize) {
        bytes.clear();
        for label in first..nodes.min(first + at_once) {
            features.row(label, &mut row);
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        }
        made.write(first, &bytes)?;
        progress.advance(bytes.len() as u64, 0);
        check_stopped(progress)?;
    }
    Ok(made)
}

fn feature_spec(store: &Store) -> Result<&FeatureSpec> {
    let features = store.manifest().features.as_ref();
    features.ok_or_else(|| Error::input(store.path(), Position::Whole, "the nodes have no features"))
}

/// Writes the labels of all nodes to a new file: a table as [`labels_table`] if it is called `.parquet` or `.csv`, else a NumPy array. With
/// one class for each node, it is int64, -1 for none. With sets of classes, it is int8 with one column for each class, 1 for the classes of
/// the node. An unlabelled node has -1 in all columns.
///
/// # Errors
/// As [`export_features`], about labels.
pub fn export_labels<'a>(
    store: &Store,
    out: impl Into<Destination<'a>>,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let out = out.into();
    if let Some(format) = TableFormat::of(out.path) {
        let scratch = durable::parent(out.path);
        return labels_table(store, TableOut::File(out, format), scratch, budget, progress);
    }
    let column = LabelColumn::new(store)?;
    export_column(store, out, &column, &column.header(), budget, progress)
}

/// Writes the labels of all nodes as a table: the id of each node, and `label`, its class, or a list with a zero or one for each class. -1
/// stands for none. Targets and partly known classes are numbers, NaN for none. Where classes have names, `label` is a name or empty, and a column of zeros and ones has the name of its class. Scratch
/// files are in the folder `scratch`.
///
/// # Errors
/// As [`export_labels`].
pub fn labels_table(
    store: &Store,
    out: TableOut<'_>,
    scratch: &Path,
    budget: &Budget,
    progress: &dyn Progress,
) -> Result<Exported> {
    let column = LabelColumn::new(store)?;
    expect_whole(store, column.name())?;
    let rows = MadeRows::of_column(store, &column, scratch, budget, progress)?;
    let names = store.schema()?.classes;
    let classes = column.spec.classes as usize;
    let label = |scalar, shape| table::Column { repeats: true, ..table::Column::new("label", scalar, shape) };
    match column.spec.kind {
        LabelKind::Single if !can_divide(&names) => {
            write_rows(store, out, vec![label(Scalar::Integer, Shape::One)], &rows, progress, |bytes| {
                vec![Values::Integers(classes_of(bytes).collect()).into()]
            })
        }
        LabelKind::Single => {
            write_rows(store, out, vec![label(Scalar::Text, Shape::Optional)], &rows, progress, |bytes| {
                let named: Vec<_> = classes_of(bytes).map(|class| names.get(usize::try_from(class).ok()?)).collect();
                let texts = named.iter().flatten().map(|name| name.as_bytes().to_vec());
                vec![Cells {
                    values: Values::Texts(texts.collect()),
                    counts: named.iter().map(|name| name.map(|_| 1)).collect(),
                }]
            })
        }
        LabelKind::Partial | LabelKind::Targets => {
            let shape = if classes == 1 { Shape::One } else { Shape::Vector(classes) };
            let (columns, width) = named_columns(&names, label(Scalar::Float, shape), classes);
            write_rows(store, out, columns, &rows, progress, |bytes| float_cells(bytes, classes, width))
        }
        LabelKind::Multi => {
            let (columns, width) = named_columns(&names, label(Scalar::Integer, Shape::Vector(classes)), classes);
            write_rows(store, out, columns, &rows, progress, |bytes| {
                let values: Vec<i64> = bytes.iter().map(|&byte| byte.cast_signed().into()).collect();
                divided(&values, classes, width).map(|values| Values::Integers(values).into()).collect()
            })
        }
    }
}

/// The classes of rows with one class each, -1 for none.
fn classes_of(bytes: &[u8]) -> impl Iterator<Item = i64> {
    let (classes, _) = bytes.as_chunks();
    classes.iter().map(|&class| i64::from_le_bytes(class))
}

/// Writes a table with the ids of all nodes and some columns.
fn write_rows(
    store: &Store,
    out: TableOut<'_>,
    columns: Vec<table::Column>,
    rows: &MadeRows,
    progress: &dyn Progress,
    cells: impl Fn(&[u8]) -> Vec<Cells>,
) -> Result<Exported> {
    let ids = DenseIds::All(store.manifest().nodes);
    let table = NodeTable { store, ids: &ids, columns, escapes_ids: false };
    let bytes = table.write(out, rows, progress, cells)?;
    Ok(Exported { rows: ids.len(), bytes })
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

    fn header(&self) -> [u8; npy::HEADER_BYTES] {
        let descr = if self.layout.dtype == FeatureDtype::F16 { "<f2" } else { "<f4" };
        npy::header(descr, &[self.store.manifest().nodes, self.layout.dim.into()])
    }
}

impl Column for FeatureColumn<'_> {
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

    fn header(&self) -> [u8; npy::HEADER_BYTES] {
        let nodes = self.store.manifest().nodes;
        match self.spec.kind {
            LabelKind::Single => npy::header("<i8", &[nodes]),
            LabelKind::Multi => npy::header("|i1", &[nodes, self.spec.classes.into()]),
            LabelKind::Targets if self.spec.classes == 1 => npy::header("<f4", &[nodes]),
            LabelKind::Partial | LabelKind::Targets => npy::header("<f4", &[nodes, self.spec.classes.into()]),
        }
    }
}

impl Column for LabelColumn<'_> {
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
            let what = format!("the file has {:?}, the manifest {:?}", labels.meta().spec, self.spec);
            return Err(Error::input(path, Position::Whole, what));
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
