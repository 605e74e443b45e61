//! Data of nodes: splits, labels and features, from the input files to the files of the store.

use grappa_formats::{
    manifest::{FeatureSpec, FileEntry, LabelKind, LabelSpec, SplitEntry},
    schema::Schema,
};
use grappa_input::EdgeEnd;
use grappa_io::Result;

use crate::ingest::{
    columns,
    edges::{ends::EdgeEnds, join::plan_join},
    features::FeatureInput,
    id_lists::Join,
    job::IngestJob,
    labels::LabelInput,
    node_files::NodeFiles,
    node_ids::GraphIds,
    node_ingest::surplus_rows_remedy,
    plan::TABLE_OF_IDS,
    random_split,
    row_nodes::NodesOfFiles,
    split_columns, split_labels, splits,
    stage::Stage,
    stored_labels::StoredLabels,
    time_order,
};

/// What the manifest says about the data of nodes.
pub struct NodeData {
    pub features: Option<FeatureSpec>,
    pub labels: Option<LabelSpec>,
    pub splits: Vec<SplitEntry>,
    /// The files of random splits. The journal lists all others.
    pub split_files: Vec<FileEntry>,
    /// The names of features and classes.
    pub schema: Schema,
}

/// The ids of `nodes` nodes in the order of their times, or in the order that the options say. Writes the times.
pub fn ids_of_layout(job: &IngestJob<'_>, files: &mut NodeFiles, nodes: u64) -> Result<GraphIds> {
    if files.times.is_none() {
        return GraphIds::of_layout(job, nodes);
    }
    time_order::write(job, files, nodes)?;
    GraphIds::by_time(job, nodes)
}

/// Writes splits, labels and features, as far as an earlier run has not.
pub fn write(job: &IngestJob<'_>, files: NodeFiles, ids: &mut GraphIds) -> Result<NodeData> {
    let nodes = ids.chunks.nodes();
    // The table of ids makes the lookups of splits and rows fast; it is freed for the rest. If it does not fit, long lists are joined in
    // the segments of ids that edges need later. A resumed run that has come to the edges has looked up all lists.
    let splits_are_listed = !job.nodes.splits.files.is_empty() && job.journal.splits().is_none();
    let listed = splits_are_listed || files.has_lists(job.nodes);
    let join = match listed && job.journal.stage(Stage::Edges).plan.is_none() {
        true if ids.map.table_memory() <= TABLE_OF_IDS.bytes(job.budget.memory) => {
            ids.map.load()?;
            None
        }
        true => plan_join(job, &mut EdgeEnds::of_one_type(ids))?,
        false => None,
    };
    let plan = join.as_ref().and_then(|plans| plans.plan(EdgeEnd::Target));
    let join = plan.map(|plan| Join { plan, scratch: job.store.lasting_scratch() });
    let (mut splits, mut split_files) = (splits::write_listed(job, &ids.map, join)?, Vec::new());
    let rows = NodesOfFiles::look_up(job, &ids.map, join, &files)?;
    ids.map.unload();
    let split_names = split_columns::listed(job.nodes, files.splits.as_ref());
    if let Some(columns) = &files.splits {
        let is_of_features = files.features.as_ref().is_some_and(|matrix| matrix.path() == columns.path());
        let rows = if is_of_features { &rows.features } else { &rows.labels };
        splits = split_columns::write(job, columns, rows, nodes)?;
    }
    let if_more = surplus_rows_remedy(job.nodes);
    let mut schema = files.schema_of_features();
    let mut labels = None;
    if let Some(source) = files.labels {
        let input = LabelInput::new(source, nodes, if_more)?;
        if let Some(schema) = &job.nodes.data.encoding.schema {
            input.check_classes_of(schema)?;
        }
        schema.classes = input.source.class_names();
        columns::write(job, &input, &ids.chunks, &rows.labels)?;
        labels = Some(StoredLabels { store: job.store.path().to_owned(), spec: input.spec });
    }
    if let Some(split) = job.nodes.splits.random {
        (splits, split_files) = random_split::write(job, split, &ids.chunks, ids.map.permutation(), labels.as_ref())?;
    }
    if let Some(labels) = &labels {
        split_labels::warn_of_unlabelled(job, &split_names, &splits, &ids.chunks, labels, &ids.map)?;
        let has_classes = labels.spec.kind != LabelKind::Targets;
        if has_classes && splits.iter().any(|split| split.name == "train") {
            split_labels::warn_of_untrained_classes(job, &ids.chunks, labels)?;
        }
    }
    let mut features = None;
    if let Some(matrix) = files.features {
        let (dtype, allow_nan) = (job.nodes.data.feature_dtype, job.nodes.data.allow_nan);
        let id_of_row = |row| ids.map.external(rows.features.node(row)?);
        let input = FeatureInput::new(matrix, dtype, nodes, if_more, allow_nan, &id_of_row)?;
        columns::write(job, &input, &ids.chunks, &rows.features)?;
        features = Some(input.spec());
    }
    Ok(NodeData { features, labels: labels.map(|labels| labels.spec), splits, split_files, schema })
}
