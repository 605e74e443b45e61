//! Data of nodes: features, labels and splits.

use grappa_formats::{
    ChunkSpan,
    chunks::ChunkMap,
    container::FileKind,
    features::FeaturesMeta,
    labels::LabelsMeta,
    manifest::{FeatureSpec, FileEntry, LabelKind, LabelSpec, SplitEntry},
};
use grappa_input::{LabelSource, MatrixSource};
use grappa_io::{
    Error, Result,
    memory::{MemoryGate, SpareBuffers},
};

use crate::{
    ids::IdMap,
    ingest::{
        IngestOptions, Run,
        columns::{Column, ColumnFile, ColumnInput},
        features::FeatureInput,
        labels::LabelInput,
        options::{id_kind, id_limit},
        splits,
        state::{Stage, State},
    },
};

/// The open input files with one row per node.
pub(super) struct NodeFiles {
    pub features: Option<MatrixSource>,
    pub labels: Option<LabelSource>,
}

impl NodeFiles {
    pub fn open(options: &IngestOptions) -> Result<Self> {
        let features = options.features.as_deref().map(MatrixSource::open).transpose()?;
        if let Some(matrix) = &features
            && matrix.may_be_labels()
        {
            tracing::warn!(
                "{}: these features are one number per node; if the numbers are classes, give the file with --labels",
                matrix.path().display()
            );
        }
        Ok(Self {
            features,
            labels: options.labels.as_deref().map(LabelSource::open).transpose()?,
        })
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

    /// The number of rows, which is the number of nodes, if it is known before the files are read.
    pub fn rows(&self) -> Option<u64> {
        let features = self.features.as_ref().and_then(MatrixSource::rows);
        features.or_else(|| self.labels.as_ref().and_then(LabelSource::rows))
    }
}

impl Run<'_> {
    pub(super) fn features(
        &self,
        state: &State,
        chunks: &ChunkMap,
        ids: &IdMap,
        input: FeatureInput,
    ) -> Result<FeatureSpec> {
        let layout = input.layout();
        let span = chunks.clone();
        let meta = move |chunk| {
            FeaturesMeta {
                span: ChunkSpan::of(&span, chunk),
                layout,
            }
            .encode()
        };
        let file = ColumnFile {
            name: "features",
            kind: FileKind::FEATURES,
            meta: Box::new(meta),
        };
        self.column(Stage::Features, state, chunks, ids, &input, file)?;
        Ok(input.spec())
    }

    pub(super) fn labels(&self, state: &State, chunks: &ChunkMap, ids: &IdMap, input: LabelInput) -> Result<LabelSpec> {
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
        self.column(Stage::Labels, state, chunks, ids, &input, file)?;
        Ok(spec)
    }

    fn column(
        &self,
        stage: Stage,
        state: &State,
        chunks: &ChunkMap,
        ids: &IdMap,
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
            permutation: ids.permutation(),
            store: &self.folder,
            budget: self.budget,
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

    /// Reads the ids of all splits and writes a file with the nodes of each.
    pub(super) fn splits(&self, ids: &IdMap, nodes: u64) -> Result<(Vec<SplitEntry>, Vec<FileEntry>)> {
        let options = self.options;
        if options.splits.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut sets = Vec::new();
        for split in &options.splits {
            let limit = id_limit(options.ids, Some(nodes));
            sets.push((
                split.clone(),
                splits::read(&split.path, id_kind(options.ids), limit, ids)?,
            ));
        }
        splits::check_disjoint(&sets, |node| ids.external(node))?;
        self.folder.folder("splits")?;
        let (mut entries, mut files) = (Vec::new(), Vec::new());
        for (split, set) in &sets {
            let path = format!("splits/{}.roaring", split.name);
            files.push(
                self.folder
                    .write_file(&path, grappa_formats::splits::encode(split.name, nodes, set))?,
            );
            entries.push(SplitEntry {
                name: split.name.to_owned(),
                nodes: set.len(),
            });
        }
        Ok((entries, files))
    }
}
