//! Data of nodes: features, labels and splits.

use std::path::Path;

use grappa_formats::{
    ChunkSpan, FormatError,
    chunks::ChunkMap,
    container::FileKind,
    features::FeaturesMeta,
    labels::LabelsMeta,
    manifest::{ExternalIds, FeatureSpec, LabelKind, LabelSpec, SplitEntry},
    schema::Schema,
};
use grappa_input::{Conversion, LabelSource, MatrixSource, Reading, SplitColumns};
use grappa_io::{
    Error, Position, Result,
    memory::{MemoryGate, SpareBuffers},
    progress::Progress,
    text::printable,
};
use roaring::RoaringTreemap;

use crate::{
    ids::IdMap,
    ingest::{
        Assign, IngestOptions, Run,
        columns::{Column, ColumnFile, ColumnInput},
        features::FeatureInput,
        id_lists::{self, Join, Lookup, Strings},
        labels::LabelInput,
        options::{RowIds, id_kind},
        plan::{IngestBudget, check_sets},
        row_nodes::RowNodes,
        split_columns, splits,
        state::{Stage, State},
    },
};

/// The open input files with one row per node.
pub(super) struct NodeFiles {
    pub features: Option<MatrixSource>,
    pub labels: Option<LabelSource>,
    /// The splits in columns of one of these.
    pub splits: Option<SplitColumns>,
}

impl NodeFiles {
    /// Opens the files, and reads a table of features if it must be examined. `budget` must have room for what they hold in memory.
    pub fn open(options: &IngestOptions, budget: &IngestBudget, progress: &dyn Progress) -> Result<Self> {
        let splits = split_columns::open(options)?;
        if let Some(splits) = &splits {
            check_held(splits.path(), splits.held_bytes(), budget)?;
        }
        if let Some(schema) = &options.encoding.schema
            && schema.features.is_empty()
            && options.features.is_some()
        {
            return Err(Error::conflict(
                "--schema-of names a store whose features have no names",
                "name a store that was built from a table, or omit --schema-of",
            ));
        }
        let features = options.features.as_deref();
        let mut features = features
            .map(|path| MatrixSource::open_with(path, &options.tables))
            .transpose()?;
        if let Some(matrix) = &features {
            check_held(matrix.path(), matrix.held_bytes(), budget)?;
        }
        if let Some(matrix) = &mut features {
            matrix.fit(&options.encoding, options.allow_nan, id_kind(options.ids), progress)?;
            for column in matrix.constant_columns() {
                tracing::warn!(
                    "{}: the column {} has the same value in each row, so it tells nodes apart by nothing",
                    matrix.path().display(),
                    printable(column)
                );
            }
        }
        if let Some(matrix) = &features
            && matrix.may_be_labels()
        {
            tracing::warn!(
                "{}: these features are one number per node; if the numbers are classes, give the file with --labels",
                matrix.path().display()
            );
        }
        let labels = options.labels.as_deref();
        let labels = labels
            .map(|path| LabelSource::open_with(path, &options.tables))
            .transpose()?;
        if let (Some(labels), Some(schema)) = (&labels, &options.encoding.schema) {
            labels.use_classes_of(schema)?;
        }
        if let Some(labels) = &labels {
            check_held(labels.path(), labels.held_bytes(), budget)?;
        }
        let files = Self {
            features,
            labels,
            splits,
        };
        files.check_columns(options)?;
        files.check_names()?;
        Ok(files)
    }

    /// What the features are called.
    pub fn schema_of_features(&self) -> Schema {
        let columns = self.features.as_ref().map_or(&[][..], MatrixSource::columns);
        Schema {
            features: columns.to_vec(),
            classes: Vec::new(),
        }
    }

    /// Fails if columns of features, or classes of sets, have the same names.
    fn check_names(&self) -> Result<()> {
        let refuse = |path: &Path, what: FormatError| {
            let FormatError::Invalid { what, .. } = what else {
                return Error::format(path)(what);
            };
            let what = format!("{what}; rename columns of the table, so that each has a name of its own");
            Error::input(path, Position::Whole, what)
        };
        if let Some(features) = &self.features {
            let schema = self.schema_of_features();
            schema.check().map_err(|what| refuse(features.path(), what))?;
        }
        if let Some(labels) = &self.labels {
            let schema = Schema {
                features: Vec::new(),
                classes: labels.class_names(),
            };
            schema.check().map_err(|what| refuse(labels.path(), what))?;
        }
        Ok(())
    }

    /// How the files are read.
    pub fn readings(&self) -> impl Iterator<Item = Reading> {
        let features = self.features.as_ref().map(MatrixSource::reading);
        features
            .into_iter()
            .chain(self.labels.as_ref().map(LabelSource::reading))
            .chain(self.splits.as_ref().map(SplitColumns::reading))
    }

    /// Fails if an option names columns of a table, and there is none.
    fn check_columns(&self, options: &IngestOptions) -> Result<()> {
        let is_table = |reading: &Reading| reading.format == "text" || reading.format == "Parquet";
        let features = self.features.as_ref().map(MatrixSource::reading).filter(is_table);
        let labels = self.labels.as_ref().map(LabelSource::reading).filter(is_table);
        let lists = options
            .node_ids
            .iter()
            .chain(options.splits.iter().map(|split| &split.path));
        let (features, any) = (features.is_some(), features.is_some() || labels.is_some());
        let columns = &options.tables.columns;
        for (option, is_given, is_used, of) in [
            ("--features-from", !columns.features.is_empty(), features, "--features"),
            (
                "--missing",
                !options.encoding.missing.0.is_empty(),
                features,
                "--features",
            ),
            (
                "--categories",
                options.encoding.categories.is_some(),
                features,
                "--features",
            ),
            ("--label", !columns.label.is_empty(), any, "--labels"),
            (
                "--id",
                !columns.id.is_empty(),
                any || lists.count() > 0,
                "--features or --labels",
            ),
        ] {
            if is_given && !is_used {
                return Err(Error::conflict(
                    format!("{option} is for the columns of a table, and {of} has no table"),
                    format!("give {of} a table in text or Parquet, or omit {option}"),
                ));
            }
        }
        Ok(())
    }

    /// Fails if the options of a random split contradict the files.
    pub fn check_split(&self, options: &IngestOptions) -> Result<()> {
        let Some(split) = options.random_split else {
            return Ok(());
        };
        if let Some(file) = options.splits.first() {
            return Err(Error::conflict(
                format!(
                    "--split {} contradicts the file of the {} nodes, {}",
                    split.shares,
                    file.name,
                    file.path.display()
                ),
                "omit one of them",
            ));
        }
        match &self.labels {
            None if split.stratify => Err(Error::conflict(
                "--stratify needs labels",
                "give --labels, or omit --stratify",
            )),
            Some(labels) if split.stratify && labels.kind() == LabelKind::Multi => Err(Error::conflict(
                format!(
                    "--stratify needs one class per node, but the labels in {} are sets of classes",
                    labels.path().display()
                ),
                "omit --stratify",
            )),
            _ => Ok(()),
        }
    }

    /// The lists whose ids are nodes, though no edge may have them.
    pub fn lists_of_nodes<'a>(&'a self, options: &'a IngestOptions) -> impl Iterator<Item = RowIds<'a>> {
        let list = options.node_ids.as_deref().map(RowIds::List);
        list.into_iter().chain(self.ids_of_features())
    }

    /// Whether ids must be looked up to know the nodes of rows.
    pub fn has_lists(&self, options: &IngestOptions) -> bool {
        self.lists_of_nodes(options)
            .chain(self.ids_of_labels())
            .next()
            .is_some()
    }

    /// The ids of the rows of features, if they are a table with ids.
    pub fn ids_of_features(&self) -> Option<RowIds<'_>> {
        let features = self.features.as_ref().filter(|features| features.has_ids());
        features.map(|features| RowIds::Table(features.path()))
    }

    /// The ids of the rows of labels, if they are a table with ids.
    pub fn ids_of_labels(&self) -> Option<RowIds<'_>> {
        let labels = self.labels.as_ref().filter(|labels| labels.has_ids());
        labels.map(|labels| RowIds::Table(labels.path()))
    }

    /// Opens the list of the ids of the rows, and fails if it contradicts other options or files. Warns if ids that are not
    /// dense have no such list, because rows may then have another order than the user thinks.
    pub fn check_node_ids(&self, options: &IngestOptions) -> Result<()> {
        let names = self.names();
        let Some(list) = &options.node_ids else {
            let example = match options.ids {
                ExternalIds::Dense => return Ok(()),
                ExternalIds::Sparse => "",
                ExternalIds::String => ", byte by byte, so n10 comes before n2",
            };
            if !names.is_empty() {
                tracing::warn!(
                    "the rows of {} must be in ascending order of the node ids{example}; if they have another order, give \
                     the id of each row with --node-ids, or in a column of CSV or Parquet that is named id, or with --id",
                    names.join(" and ")
                );
            }
            return Ok(());
        };
        let source = RowIds::List(list).open(options)?;
        if let Some(warning) = source.warning()? {
            tracing::warn!("{warning}");
        }
        if options.ids == ExternalIds::Dense && names.is_empty() {
            return Err(Error::conflict(
                "--node-ids with dense ids is the order of the rows of --features and --labels, and none of them has rows without ids",
                "omit --node-ids, or give one of them; nodes without edges need --nodes",
            ));
        }
        if let Assign::File(_) = options.assign {
            return Err(Error::conflict(
                "--assign file: has the parts in ascending order of the ids, and --node-ids gives another order",
                "omit one of them",
            ));
        }
        match source.ids() {
            Some(ids) => self.check_number_of_ids(source.path(), ids),
            None => Ok(()),
        }
    }

    /// Fails if `path`, the list of the ids of the rows, has another number of ids than a file has rows.
    pub fn check_number_of_ids(&self, path: &Path, ids: u64) -> Result<()> {
        let features = self.features_without_ids().map(|matrix| (matrix.path(), matrix.rows()));
        let labels = self.labels_without_ids().map(|labels| (labels.path(), labels.rows()));
        for (file, rows) in [features, labels].into_iter().flatten() {
            if let Some(rows) = rows.filter(|&rows| rows != ids) {
                let what = format!(
                    "expected {rows} ids, one per row of {}, found {ids}; give the id of each row, in the order of the rows{}",
                    file.display(),
                    if rows + 1 == ids {
                        format!(", without a header: {}", Conversion::RemoveHeader.command(path))
                    } else {
                        String::new()
                    }
                );
                return Err(Error::input(path, Position::Whole, what));
            }
        }
        Ok(())
    }

    /// The files whose rows have no ids, for messages.
    pub fn names(&self) -> Vec<String> {
        let features = self.features_without_ids().map(MatrixSource::path);
        let labels = self.labels_without_ids().map(LabelSource::path);
        let paths = features.into_iter().chain(labels);
        paths.map(|path| path.display().to_string()).collect()
    }

    fn features_without_ids(&self) -> Option<&MatrixSource> {
        self.features.as_ref().filter(|features| !features.has_ids())
    }

    fn labels_without_ids(&self) -> Option<&LabelSource> {
        self.labels.as_ref().filter(|labels| !labels.has_ids())
    }

    /// The number of nodes, if a file has a row for each, and tells the number before it is read.
    pub fn rows(&self) -> Option<u64> {
        let features = self.features.as_ref().and_then(MatrixSource::rows);
        features.or_else(|| self.labels_without_ids().and_then(LabelSource::rows))
    }
}

/// Refuses a file that holds more than half of the memory while it is read.
fn check_held(path: &Path, held: u64, budget: &IngestBudget) -> Result<()> {
    if held <= budget.memory / 2 {
        return Ok(());
    }
    Err(Error::Budget {
        what: format!(
            "the parts of {} that stay in memory, which may take half of it",
            path.display()
        ),
        given: budget.memory * budget.share,
        least: held * 2 * budget.share,
        remedy: "raise --memory, or write a table again with one column of lists, or with smaller row groups, or a sparse matrix in \
                 format csr",
    })
}

impl Run<'_> {
    pub(super) fn features(
        &self,
        state: &State,
        chunks: &ChunkMap,
        rows: &RowNodes,
        input: FeatureInput<'_>,
    ) -> Result<FeatureSpec> {
        let layout = input.layout();
        let span = chunks.clone();
        let meta = move |chunk| {
            FeaturesMeta {
                span: ChunkSpan::of(&span, chunk),
                layout,
                with_features: false,
            }
            .encode()
        };
        let file = ColumnFile {
            name: "features",
            kind: FileKind::FEATURES,
            meta: Box::new(meta),
        };
        self.column(Stage::Features, state, chunks, rows, &input, file)?;
        Ok(input.spec())
    }

    pub(super) fn labels(
        &self,
        state: &State,
        chunks: &ChunkMap,
        rows: &RowNodes,
        input: LabelInput,
    ) -> Result<LabelSpec> {
        let spec = input.spec();
        let span = chunks.clone();
        let meta = move |chunk| {
            LabelsMeta {
                span: ChunkSpan::of(&span, chunk),
                spec,
            }
            .encode()
        };
        let file = ColumnFile {
            name: "labels",
            kind: FileKind::LABELS,
            meta: Box::new(meta),
        };
        self.column(Stage::Labels, state, chunks, rows, &input, file)?;
        Ok(spec)
    }

    fn column(
        &self,
        stage: Stage,
        state: &State,
        chunks: &ChunkMap,
        rows: &RowNodes,
        input: &dyn ColumnInput,
        file: ColumnFile,
    ) -> Result<()> {
        let bytes = input.rows() * input.row_bytes() as u64;
        let name = file.name;
        let column = Column {
            stage,
            input,
            file,
            chunks,
            rows,
            store: &self.folder,
            budget: IngestBudget {
                reserved: input.held_bytes(),
                ..self.budget
            },
        };
        let plan = column.plan(state)?;
        self.progress.stage(&format!("reading {name}"), Some(bytes));
        column.spill_rows(&plan, state, self.progress)?;
        let (spilled, gate) = (state.stage(stage), MemoryGate::new(self.budget.memory));
        let buffers = SpareBuffers::new(&gate);
        self.progress.stage(&format!("writing {name}"), Some(bytes));
        let write = |chunk| column.write_chunk(chunk, &plan, &spilled, &buffers, self.progress);
        self.write_chunks(stage, state, chunks, write, |chunk| {
            column.remove_spill(chunk, &plan, &spilled)
        })
    }

    /// Reads the ids of all splits and writes a file with the nodes of each, unless an earlier run has.
    pub(super) fn splits(
        &self,
        state: &State,
        ids: &IdMap,
        join: Option<Join<'_>>,
        nodes: u64,
    ) -> Result<Vec<SplitEntry>> {
        let options = self.options;
        if options.splits.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(splits) = state.splits() {
            return Ok(splits);
        }
        let mut sets = Vec::new();
        let lookup = Lookup {
            ids,
            strings: Strings::Any,
            join,
            threads: options.threads,
        };
        let mut bytes = 0;
        for split in &options.splits {
            let source = splits::open(&split.path, options, nodes)?;
            if let Some(warning) = source.warning()? {
                tracing::warn!("{warning}");
            }
            bytes += id_lists::set_memory(&source, nodes);
        }
        check_sets("the sets of the nodes of all splits".to_owned(), bytes, &self.budget)?;
        let rows_are_ids = options.ids == ExternalIds::Dense && options.node_ids.is_none();
        for split in &options.splits {
            let set = splits::read(&split.path, options, nodes, rows_are_ids, &lookup)?;
            sets.push((split.clone(), set));
        }
        splits::check_disjoint(&sets, options.ids, |node| ids.external(node))?;
        let sets: Vec<_> = sets.iter().map(|(split, set)| (split.name, set)).collect();
        self.write_splits(state, nodes, &sets)
    }

    /// Writes a file with the nodes of each split.
    pub(super) fn write_splits(
        &self,
        state: &State,
        nodes: u64,
        sets: &[(&str, &RoaringTreemap)],
    ) -> Result<Vec<SplitEntry>> {
        self.folder.folder("splits")?;
        let write = |&(name, set): &(&str, &RoaringTreemap)| {
            let path = format!("splits/{name}.roaring");
            let file = grappa_formats::splits::encode(name, nodes, set);
            let entry = SplitEntry {
                name: name.to_owned(),
                nodes: set.len(),
            };
            Ok((entry, self.folder.write_file(&path, file)?))
        };
        let written: Vec<_> = sets.iter().map(write).collect::<Result<_>>()?;
        state.split(written)?;
        Ok(state.splits().expect("they are recorded now"))
    }
}
