//! The fingerprint that a resumed run must have.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
};

use grappa_formats::{manifest::EdgeOptions, schema::CategoryForm};
use grappa_input::{EdgeColumnOptions, EncodingOptions, Input, LabelType, Separator, files_of};
use grappa_io::{Result, text::printable};

use crate::ingest::{
    edge_ingest::{EdgeForm, EdgeIngest},
    edge_split::EdgeSplit,
    node_ingest::{Assign, NodeData, NodeIngest, NodeSplits, StoreLayout},
    options::IngestOptions,
    resources::Resources,
};

/// Everything that the store depends on. A run can be resumed only with an equal fingerprint.
pub fn fingerprint(options: &IngestOptions) -> Result<BTreeMap<String, String>> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add_edges(&options.edges)?;
    fingerprint.add_nodes(&options.nodes)?;
    fingerprint.add_run(&options.resources, &options.writer);
    Ok(fingerprint.values)
}

/// Options and the versions of files, by the name of the option. Messages show the values, so they are written as on the command line,
/// and defaults that have no value are left out.
#[derive(Default)]
pub struct Fingerprint {
    pub values: BTreeMap<String, String>,
    /// The node type or relation that options are of, before their names. Empty without types.
    prefix: String,
}

impl Fingerprint {
    /// Adds the options of the node type or relation `name` from now on.
    pub fn begin(&mut self, name: &str) {
        self.prefix = format!("{} ", printable(name));
    }

    /// Adds options of nodes.
    pub fn add_nodes(&mut self, nodes: &NodeIngest) -> Result<()> {
        self.add_node_files(nodes)?;
        self.add_node_data(&nodes.data);
        self.add_splits(&nodes.splits);
        self.add_layout(&nodes.layout);
        self.add_some("--nodes", nodes.number);
        self.add("--ids", word(nodes.ids));
        Ok(())
    }

    /// Adds options of edges.
    pub fn add_edges(&mut self, edges: &EdgeIngest) -> Result<()> {
        self.add_edge_files(edges)?;
        self.add_form(&edges.form, edges);
        self.add_some("--edge-split", edges.split.as_ref().and_then(EdgeSplit::describe));
        Ok(())
    }

    /// Adds what is the same for all nodes and edges.
    pub fn add_run(&mut self, resources: &Resources, writer: &str) {
        self.prefix.clear();
        self.add_some("--tmp", resources.tmp.as_ref().map(|tmp| tmp.display()));
        self.add("version", writer);
    }

    pub fn add(&mut self, name: impl Into<String>, value: impl Display) {
        self.values.insert(format!("{}{}", self.prefix, name.into()), value.to_string());
    }

    pub fn add_some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn add_list(&mut self, name: &str, values: &[impl ToString]) {
        if !values.is_empty() {
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            self.add(name, values.join(","));
        }
    }

    fn add_flag(&mut self, name: &str, is_given: bool) {
        self.add_some(name, is_given.then_some(""));
    }

    /// Adds the files of a list. The journal numbers the blocks of edges by the index of their file, so the order of files counts too.
    fn add_numbered(&mut self, role: &str, inputs: &[Input]) -> Result<()> {
        for (index, input) in inputs.iter().enumerate() {
            self.add(format!("{role}[{index}]"), input.version()?);
        }
        Ok(())
    }

    /// Adds an input, or the files of a folder.
    fn add_input(&mut self, role: &str, input: &Input) -> Result<()> {
        match input {
            Input::Path(path) if path.is_dir() => {
                self.add_numbered(role, &files_of(path)?.into_iter().map(Input::Path).collect::<Vec<_>>())
            }
            Input::Parts(parts) => self.add_numbered(role, &parts.files.iter().map(Input::from).collect::<Vec<_>>()),
            input => {
                self.add(role, input.version()?);
                Ok(())
            }
        }
    }

    fn add_edge_files(&mut self, edges: &EdgeIngest) -> Result<()> {
        self.add_numbered("edges", &edges.files)?;
        for (part, files) in edges.split.iter().flat_map(EdgeSplit::files) {
            self.add_numbered(&format!("--{part}-edges"), files)?;
        }
        for (role, input) in [("--weights", &edges.form.weights), ("--edge-features", &edges.form.features)] {
            input.as_ref().map_or(Ok(()), |input| self.add_input(role, input))?;
        }
        Ok(())
    }

    fn add_node_files(&mut self, nodes: &NodeIngest) -> Result<()> {
        let parts = match &nodes.layout.assign {
            Assign::Random | Assign::Range | Assign::Streamed { .. } => None,
            Assign::File(path) => Some(Input::from(path)),
        };
        let files = [
            ("--features", nodes.data.features.as_ref()),
            ("--labels", nodes.data.labels.as_ref()),
            ("--node-ids", nodes.data.ids.as_ref()),
            ("table of nodes", nodes.data.table.as_ref()),
            ("table of times", nodes.data.times.as_ref()),
            ("parts", parts.as_ref()),
        ];
        for (role, input) in files {
            input.map_or(Ok(()), |input| self.add_input(role, input))?;
        }
        for split in &nodes.splits.files {
            self.add_input(&format!("--{}", split.name), &split.ids)?;
        }
        Ok(())
    }

    fn add_form(&mut self, form: &EdgeForm, edges: &EdgeIngest) {
        // The order of edges is that of the split.
        let EdgeColumnOptions { source, row_end, target, weight, features, order: _, time, relation } = &form.columns;
        self.add("--format", word(form.format));
        self.add("--header", word(form.header));
        self.add("--comments", word(form.comments));
        self.add_some("--separator", form.separator.map(Separator::word));
        self.add_some("--src", source.as_ref());
        self.add_some("rows are", row_end.map(word));
        self.add_some("relation", relation.as_ref().map(|(column, name)| format!("{column} {name}")));
        self.add_some("--dst", target.as_ref());
        self.add_some("--weight", weight.as_ref());
        self.add_some("--time", time.as_ref().map(|time| &time.column));
        self.add_some("--time-unit", time.as_ref().and_then(|time| time.unit));
        self.add_list("--edge-features-from", features);
        self.add_some("--edge-feature-dtype", form.feature_dtype.map(|dtype| dtype.name()));
        self.add("--on-bad-line", word(form.on_bad_line));
        let EdgeOptions { undirected, dedup, self_loops } = edges.options;
        self.add_flag("--undirected", undirected);
        self.add_flag("--dedup", dedup);
        self.add("--self-loops", word(self_loops));
        self.add_list("--merge", &edges.merge);
    }

    fn add_node_data(&mut self, data: &NodeData) {
        self.add_flag("--allow-nan", data.allow_nan);
        self.add_some("--feature-dtype", data.feature_dtype.map(|dtype| dtype.name()));
        if data.label_type != LabelType::Classes {
            self.add("--label-type", format!("{:?}", data.label_type));
        }
        self.add_list("--id", &data.tables.columns.id);
        self.add_list("--label", &data.tables.columns.label);
        self.add_list("--features-from", &data.tables.columns.features);
        self.add_list("--split-column", &data.tables.columns.split);
        let time = data.tables.columns.time.as_ref();
        self.add_some("--node-time", time.map(|time| &time.column));
        self.add_some("--node-time-unit", time.and_then(|time| time.unit));
        self.add_some("--table-separator", data.tables.separator.map(Separator::word));
        self.add_encoding(&data.encoding);
    }

    /// Adds how columns become numbers.
    pub fn add_encoding(&mut self, encoding: &EncodingOptions) {
        let EncodingOptions { missing, categories, categories_max, schema, examine: _ } = encoding;
        if let Some(schema) = schema {
            let (_, digest) = schema.encode();
            self.add("--schema-of", format!("a store whose schema has the digest {digest:016x}"));
        }
        self.add_list("--missing", &missing.0);
        self.add_some("--categories", categories.map(word_of_form));
        self.add_some("--categories-max", *categories_max);
    }

    fn add_splits(&mut self, splits: &NodeSplits) {
        if let Some(random) = &splits.random {
            self.add("--split", random.shares);
            self.add("--split-seed", random.seed);
            self.add_flag("--stratify", random.stratify);
        }
    }

    fn add_layout(&mut self, layout: &StoreLayout) {
        self.add_some("--chunks", layout.chunks);
        let assign = match &layout.assign {
            Assign::File(path) => format!("file:{}", path.display()),
            Assign::Streamed { partitioner, parts } => format!("{}:{parts}", partitioner.name()),
            assign => word(assign),
        };
        self.add("--assign", assign);
        self.add("--seed", layout.seed);
    }
}

/// The word of the command line for a variant that is called like it.
fn word(variant: impl Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

fn word_of_form(form: CategoryForm) -> &'static str {
    match form {
        CategoryForm::OneHot => "one-hot",
        CategoryForm::Index => "index",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_part_that_comes_later_is_another_input() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("nodes");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("part.0.parquet"), "0").unwrap();
        let mut options = IngestOptions::new(vec![parts.clone()], folder.path().join("out"));
        options.nodes.data.features = Some((&parts).into());
        let version =
            |options: &IngestOptions| fingerprint(&options.resolved(&grappa_io::progress::Silent).unwrap()).unwrap();
        let before = version(&options);
        fs::write(parts.join("_SUCCESS"), "").unwrap();
        assert_eq!(version(&options), before);
        fs::write(parts.join("part.1.parquet"), "1").unwrap();
        let after = version(&options);
        let new: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
        assert_eq!(new, ["--features[1]", "edges[1]"]);
        fs::write(parts.join("part.0.parquet"), "00").unwrap();
        assert_ne!(version(&options)["--features[0]"], before["--features[0]"]);
    }
}
