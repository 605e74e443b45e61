//! Edges as the user gives them, and how their files are opened.

use grappa_formats::manifest::{EdgeOptions, ExternalIds, FeatureDtype};
use grappa_input::{
    ColumnReading, Comments, EdgeColumnOptions, EdgeFormat, EdgeSource, EdgeSourceOptions, EncodingOptions, EndIds,
    HeaderLine, IdKind, IdLimit, Input, NodeTypeOfEnd, OnBadLine, Separator, TimeColumn, files_of_all,
};
use grappa_io::{Error, Result, progress::Progress};

use crate::ingest::{
    edge_split::EdgeSplit,
    merge::MergeOption,
    node_ingest::{NodeIngest, id_kind, id_limit},
};

/// The edges of a graph, or of one of its relations.
#[derive(Debug, Clone, Default)]
pub struct EdgeIngest {
    /// Edge list files, or folders of them.
    pub files: Vec<Input>,
    /// How to read them.
    pub form: EdgeForm,
    /// Whether to add reverse edges, merge parallel edges, and drop or add self-loops.
    pub options: EdgeOptions,
    /// How parallel edges merge their values, if they are merged. Weights are added unless it says otherwise.
    pub merge: Vec<MergeOption>,
    /// How to hold edges out of the graph for validation and test.
    pub split: Option<EdgeSplit>,
}

/// How to read edge lists.
#[derive(Debug, Clone, Default)]
pub struct EdgeForm {
    /// Format of the files.
    pub format: EdgeFormat,
    /// Whether text has a header.
    pub header: HeaderLine,
    /// Whether text begins with comments.
    pub comments: Comments,
    /// The separator of text. None finds it from the first lines.
    pub separator: Option<Separator>,
    /// The columns that the user names.
    pub columns: EdgeColumnOptions,
    /// A `.npy` file with one weight per edge.
    pub weights: Option<Input>,
    /// A `.npy` file with a row of features per edge. Text and Parquet have them in columns, which [`EdgeForm::columns`] names.
    pub features: Option<Input>,
    /// What each column of features becomes. None: numbers, or what their values show.
    pub encoded: Option<Vec<ColumnReading>>,
    /// The stored type of edge features. By default f16 if the file has f16, otherwise f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// Whether a malformed line is an error or skipped.
    pub on_bad_line: OnBadLine,
}

/// Bytes of a block while the columns of edge features are examined by one thread.
const FIT_BLOCK_BYTES: usize = 1 << 20;

impl EdgeIngest {
    /// The number of parts that edges are divided among: the graph, and those that are held out.
    pub(super) fn parts(&self) -> u64 {
        1 + self.split.as_ref().map_or(0, |split| split.held_out().len() as u64)
    }

    /// The number of directories of adjacency lists that a chunk has: one for each part, and one more for its times.
    pub(super) fn directories(&self) -> u64 {
        self.parts() * if self.form.columns.time.is_some() { 2 } else { 1 }
    }

    /// Replaces folders by their files, and finds the column with the order of edges.
    pub(super) fn resolve_files(&mut self) -> Result<()> {
        let files = files_of_all(&self.files)?;
        if let Some(EdgeSplit::Files { val, test }) = &mut self.split {
            // A file in two parts is an error, too.
            files_of_all(&[&self.files[..], val, test].concat())?;
            (*val, *test) = (files_of_all(val)?, files_of_all(test)?);
        }
        self.files = files;
        if let Some(EdgeSplit::Column { name, .. }) = &self.split {
            self.form.columns.order = Some(name.clone());
        }
        Ok(())
    }

    /// Finds what the columns of edge features become, for which their tables may be read, and the unit of times, for which their first block
    /// is read.
    pub(super) fn resolve_columns(
        &mut self,
        ends: [EndNodes<'_>; 2],
        encoding: &EncodingOptions,
        progress: &dyn Progress,
    ) -> Result<()> {
        if !self.form.columns.features.is_empty() && self.form.encoded.is_none() {
            let edges = EdgeReader { input: self, ends: ends.clone() }.open(FIT_BLOCK_BYTES)?;
            self.form.encoded = edges.fit(encoding, progress)?;
        }
        if matches!(self.form.columns.time, Some(TimeColumn { unit: None, .. })) {
            let unit = EdgeReader { input: self, ends }.open(FIT_BLOCK_BYTES)?.find_time_unit()?;
            if let Some(time) = &mut self.form.columns.time {
                time.unit = unit;
            }
        }
        Ok(())
    }
}

/// The nodes at one end of edges.
#[derive(Debug, Clone)]
pub struct EndNodes<'a> {
    pub nodes: &'a NodeIngest,
    /// The number of nodes, if it is known. Dense ids must be below it.
    pub number: Option<u64>,
    /// The node type, if there are several.
    pub node_type: Option<NodeTypeOfEnd>,
}

impl<'a> EndNodes<'a> {
    /// Both ends of the edges of a graph without types.
    pub fn both(nodes: &'a NodeIngest, number: Option<u64>) -> [Self; 2] {
        [(); 2].map(|()| Self { nodes, number, node_type: None })
    }

    fn ids(&self) -> EndIds {
        let limit = match (id_limit(self.nodes.ids, self.number), &self.node_type) {
            (IdLimit::Nodes(number), Some(_)) => IdLimit::OfType(number),
            (limit, _) => limit,
        };
        EndIds {
            kind: id_kind(self.nodes.ids),
            limit,
            limited_by: self.nodes.limited_by(self.number),
            node_type: self.node_type.clone(),
        }
    }

    /// Whether something else than edges gives the nodes.
    fn has_nodes(&self) -> bool {
        self.node_type.is_some()
            || match self.nodes.ids {
                ExternalIds::Dense => self.number.is_some(),
                ExternalIds::Sparse | ExternalIds::String => self.nodes.data.ids.is_some(),
            }
    }
}

/// Opens the files of edges, as often as passes read them.
#[derive(Debug, Clone)]
pub struct EdgeReader<'a> {
    pub input: &'a EdgeIngest,
    /// The nodes of sources, and of targets.
    pub ends: [EndNodes<'a>; 2],
}

impl EdgeReader<'_> {
    /// Opens the edge lists, to be read in blocks of about `block_bytes`.
    pub fn open(&self, block_bytes: usize) -> Result<EdgeSource> {
        let EdgeIngest { form, split, .. } = self.input;
        let ends = self.ends.each_ref().map(EndNodes::ids);
        let are_strings = ends.iter().any(|end| end.kind == IdKind::String);
        let source_options = EdgeSourceOptions {
            format: form.format,
            header: form.header,
            comments: form.comments,
            separator: form.separator,
            columns: form.columns.clone(),
            ends,
            weights: form.weights.clone(),
            features: form.features.clone(),
            encoded: form.encoded.clone(),
            allow_empty: self.ends.iter().all(EndNodes::has_nodes),
            on_bad_line: form.on_bad_line,
            // Parsed strings take up to twice the memory of parsed integers.
            block_bytes: if are_strings { block_bytes / 2 } else { block_bytes },
        };
        let mut inputs = self.input.files.clone();
        let mut parts = Vec::new();
        for (part, files) in split.iter().flat_map(EdgeSplit::files) {
            parts.push((part, inputs.len()..inputs.len() + files.len()));
            inputs.extend_from_slice(files);
        }
        let source = EdgeSource::open(&inputs, source_options)?;
        for (part, mut files) in parts {
            if !files.is_empty() && files.all(|file| !source.has_edges(file)) {
                return Err(Error::conflict(
                    format!("the files of --{part}-edges have no edges"),
                    format!("omit --{part}-edges, or give files with edges"),
                ));
            }
        }
        Ok(source)
    }
}
