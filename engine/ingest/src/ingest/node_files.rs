//! The open input files with data of nodes, and the checks that need no node.

use std::path::Path;

use grappa_formats::{
    FormatError,
    manifest::{ExternalIds, LabelKind},
    schema::Schema,
};
use grappa_input::{
    Conversion, EncodingOptions, LabelSource, LabelType, MatrixSource, NodeFile, NodeTimeSource, Reading, SplitColumns,
};
use grappa_io::{Error, Position, Result, progress::Progress, text::printable};

use crate::ingest::{
    edge_ingest::EdgeForm,
    node_ingest::{Assign, NodeData, NodeIngest, RowIds, id_kind},
    plan::{IngestBudget, TABLE_OF_IDS},
};

/// The open input files with one row per node.
pub struct NodeFiles {
    pub features: Option<MatrixSource>,
    pub labels: Option<LabelSource>,
    /// The splits in columns of one of these.
    pub splits: Option<SplitColumns>,
    /// The times in a column of one of these, or of another table.
    pub times: Option<NodeTimeSource>,
}

impl NodeFiles {
    /// Opens the files, and reads a table of features if it must be examined. `budget` must have room for what they hold in memory.
    /// Columns of `edges` may be features, too.
    pub fn open(
        options: &NodeIngest,
        edges: &EdgeForm,
        budget: &IngestBudget,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let data = &options.data;
        let splits = open_split_columns(data)?;
        if let Some(splits) = &splits {
            check_table(splits.path(), splits.held_bytes(), budget)?;
        }
        if let Some(schema) = &data.encoding.schema
            && schema.features.is_empty()
            && data.features.is_some()
        {
            return Err(Error::conflict(
                "--schema-of names a store whose features have no names",
                "name a store that was built from a table, or omit --schema-of",
            ));
        }
        let features = data.features.as_ref();
        let mut features = features.map(|input| MatrixSource::open_with(input, &data.tables)).transpose()?;
        if let Some(matrix) = &mut features {
            check_table(matrix.path(), matrix.held_bytes(), budget)?;
            let missing = data.encoding.missing.without(&edges.columns.features);
            let encoding = EncodingOptions { missing, ..data.encoding.clone() };
            matrix.fit(&encoding, data.allow_nan, id_kind(options.ids), progress)?;
            for column in matrix.constant_columns() {
                tracing::warn!(
                    "{}: the column {} has the same value in each row, so it tells nodes apart by nothing",
                    matrix.path().display(),
                    printable(column)
                );
            }
            if matrix.may_be_labels() {
                tracing::warn!(
                    "{}: these features are one number per node; if the numbers are classes, give the file with --labels",
                    matrix.path().display()
                );
            }
        }
        let labels = data.labels.as_ref();
        let labels = labels.map(|input| LabelSource::open_with(input, &data.tables, data.label_type)).transpose()?;
        if let Some(labels) = &labels {
            if let Some(schema) = &data.encoding.schema {
                labels.use_classes_of(schema)?;
            }
            check_table(labels.path(), labels.held_bytes(), budget)?;
        }
        if data.labels.is_none() && data.label_type != LabelType::Classes {
            return Err(Error::conflict(
                "--label-type says what labels are, and there are none",
                "give --labels, or omit --label-type",
            ));
        }
        let times = options.open_times()?;
        if let Some(times) = &times {
            check_table(times.path(), times.held_bytes(), budget)?;
        }
        let files = Self { features, labels, splits, times };
        files.check_columns(options, edges)?;
        if let Some(features) = &files.features {
            check_schema(features.path(), &files.schema_of_features())?;
        }
        if let Some(labels) = &files.labels {
            check_schema(labels.path(), &Schema { classes: labels.class_names(), ..Schema::default() })?;
        }
        Ok(files)
    }

    /// The schema of the features, without classes.
    pub fn schema_of_features(&self) -> Schema {
        let columns = self.features.as_ref().map_or(&[][..], MatrixSource::columns);
        Schema { features: columns.to_vec(), ..Schema::default() }
    }

    pub fn readings(&self) -> impl Iterator<Item = Reading> {
        let features = self.features.as_ref().map(MatrixSource::reading);
        let labels = self.labels.as_deref().map(NodeFile::reading);
        let splits = self.splits.as_deref().map(NodeFile::reading);
        let times = self.times.as_deref().map(NodeFile::reading);
        features.into_iter().chain(labels).chain(splits).chain(times)
    }

    /// Fails if an option names columns of a table, and there is none.
    fn check_columns(&self, options: &NodeIngest, edges: &EdgeForm) -> Result<()> {
        let features = self.features.as_deref().is_some_and(is_table);
        let any = features || self.labels.as_deref().is_some_and(is_table);
        let data = &options.data;
        let are_read = features || edges.encoded.is_some();
        let has_tables = data.table.is_some() || self.times.is_some();
        let has_lists = data.ids.is_some() || has_tables || !options.splits.files.is_empty();
        let (columns, encoding) = (&data.tables.columns, &data.encoding);
        for (option, is_given, is_used, input) in [
            ("--features-from", !columns.features.is_empty(), features, "--features"),
            ("--missing", !encoding.missing.0.is_empty(), are_read, "--features"),
            ("--categories", encoding.categories.is_some(), are_read, "--features"),
            ("--label", !columns.label.is_empty(), any, "--labels"),
            ("--id", !columns.id.is_empty(), any || has_lists, "--features or --labels"),
        ] {
            if is_given && !is_used {
                return Err(Error::conflict(
                    format!("{option} is for the columns of a table, and {input} has no table"),
                    format!("give {input} a table in text or Parquet, or omit {option}"),
                ));
            }
        }
        Ok(())
    }

    /// Fails if the options of a random split contradict the files.
    pub fn check_split(&self, options: &NodeIngest) -> Result<()> {
        let Some(split) = options.splits.random else {
            return Ok(());
        };
        if let Some(file) = options.splits.files.first() {
            return Err(Error::conflict(
                format!("--split {} contradicts the file of the {} nodes, {}", split.shares, file.name, file.ids),
                "omit one of them",
            ));
        }
        match &self.labels {
            None if split.stratify => {
                Err(Error::conflict("--stratify needs labels", "give --labels, or omit --stratify"))
            }
            Some(labels) if split.stratify && labels.kind() != LabelKind::Single => Err(Error::conflict(
                format!(
                    "--stratify needs one class per node, but the labels in {} are {}",
                    labels.path().display(),
                    match labels.kind() {
                        LabelKind::Targets => "numbers",
                        _ => "sets of classes",
                    }
                ),
                "omit --stratify",
            )),
            _ => Ok(()),
        }
    }

    /// The lists whose ids are nodes, though no edge may have them.
    pub fn lists_of_nodes<'a>(&'a self, options: &'a NodeIngest) -> impl Iterator<Item = RowIds<'a>> {
        let list = options.data.ids.as_ref().map(RowIds::List);
        let table = options.data.table.as_ref().map(RowIds::Table);
        let times = options.data.times.as_ref().and(self.ids_of_times());
        list.into_iter().chain(table).chain(self.ids_of_features()).chain(times)
    }

    /// Whether ids must be looked up to know the nodes of rows.
    pub fn has_lists(&self, options: &NodeIngest) -> bool {
        self.lists_of_nodes(options).chain(self.ids_of_labels()).next().is_some()
    }

    pub fn ids_of_features(&self) -> Option<RowIds<'_>> {
        self.features.as_deref().and_then(ids_of)
    }

    pub fn ids_of_labels(&self) -> Option<RowIds<'_>> {
        self.labels.as_deref().and_then(ids_of)
    }

    pub fn ids_of_times(&self) -> Option<RowIds<'_>> {
        self.times.as_deref().and_then(ids_of)
    }

    /// Opens the list of the ids of the rows, and fails if it contradicts other options or files. Warns if ids that are not
    /// dense have no such list, because rows may then have another order than the user thinks.
    pub fn check_node_ids(&self, options: &NodeIngest) -> Result<()> {
        let names = self.names();
        let Some(list) = &options.data.ids else {
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
        if let Assign::File(_) = options.layout.assign {
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
        for file in self.without_ids() {
            if let Some(rows) = file.rows().filter(|&rows| rows != ids) {
                let problem = format!(
                    "expected {rows} ids, one per row of {}, found {ids}; give the id of each row, in the order of the rows{}",
                    file.path().display(),
                    if rows + 1 == ids {
                        format!(", without a header: {}", Conversion::RemoveHeader.command(path))
                    } else {
                        String::new()
                    }
                );
                return Err(Error::input(path, Position::Whole, problem));
            }
        }
        Ok(())
    }

    /// The files whose rows have no ids, for messages.
    pub fn names(&self) -> Vec<String> {
        self.without_ids().map(|file| file.path().display().to_string()).collect()
    }

    /// The files of features and labels whose rows have no ids.
    fn without_ids(&self) -> impl Iterator<Item = &NodeFile> {
        let files = [self.features.as_deref(), self.labels.as_deref()];
        files.into_iter().flatten().filter(|file| !file.has_ids())
    }

    /// The number of nodes, if a file has a row for each, and tells the number before it is read.
    pub fn rows(&self) -> Option<u64> {
        let features = self.features.as_deref().and_then(NodeFile::rows);
        let labels = self.labels.as_deref().filter(|labels| !labels.has_ids());
        features.or_else(|| labels.and_then(NodeFile::rows))
    }
}

/// Whether a file is a table, whose columns may have names.
fn is_table(file: &NodeFile) -> bool {
    matches!(file.reading().format, "text" | "Parquet" | "table")
}

/// The ids of the rows of a file, if it is a table with ids.
fn ids_of(file: &NodeFile) -> Option<RowIds<'_>> {
    file.has_ids().then(|| RowIds::Table(file.input()))
}

/// Opens the columns of `--split-column`, in the table of features, or in the table of labels if the first has none.
fn open_split_columns(data: &NodeData) -> Result<Option<SplitColumns>> {
    if data.tables.columns.split.is_empty() {
        return Ok(None);
    }
    let mut tables = data.features.iter().chain(&data.labels);
    let Some(first) = tables.next() else {
        return Err(Error::conflict(
            "--split-column names a column of a table, and there is none",
            "give --features or --labels with the table",
        ));
    };
    match (SplitColumns::open(first, &data.tables), tables.next()) {
        (Err(error), Some(other)) => SplitColumns::open(other, &data.tables).map_err(|_| error).map(Some),
        (opened, _) => opened.map(Some),
    }
}

/// Fails if columns of features, or classes, of the table `path` have the same names.
fn check_schema(path: &Path, schema: &Schema) -> Result<()> {
    schema.check().map_err(|problem| {
        let FormatError::Invalid { problem, .. } = problem else {
            return Error::format(path)(problem);
        };
        let problem = format!("{problem}; rename columns of the table, so that each has a name of its own");
        Error::input(path, Position::Whole, problem)
    })
}

/// Refuses a file that holds more than half of the memory while it is read.
fn check_table(path: &Path, table_bytes: u64, budget: &IngestBudget) -> Result<()> {
    if table_bytes <= TABLE_OF_IDS.bytes(budget.memory) {
        return Ok(());
    }
    let operation = format!("the parts of {} that stay in memory, which may take half of it", path.display());
    Err(budget.too_small(
        operation,
        TABLE_OF_IDS.budget_of(table_bytes),
        "raise --memory, or write a table again with one column of lists, or with smaller row groups, or a sparse matrix in \
         format csr",
    ))
}
