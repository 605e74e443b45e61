//! The fingerprint that a resumed run must have.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
};

use grappa_formats::{manifest::EdgeOptions, schema::CategoryForm};
use grappa_input::{EdgeColumnOptions, EncodingOptions, Input, LabelType, Separator, files_of};
use grappa_io::Result;

use crate::ingest::{
    edge_split::EdgeSplit,
    options::{Assign, EdgeForm, IngestOptions, NodeData, SplitOptions, StoreLayout},
};

/// Everything that the store depends on. A run can be resumed only with an equal fingerprint.
pub fn fingerprint(options: &IngestOptions) -> Result<BTreeMap<String, String>> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add_files(options)?;
    fingerprint.add_edges(&options.edge_form, options);
    fingerprint.add_node_data(&options.node_data);
    fingerprint.add_splits(&options.splits);
    fingerprint.add_layout(&options.layout);
    fingerprint.add_some("--nodes", options.nodes);
    fingerprint.add("--ids", word(options.ids));
    let tmp = options.resources.tmp.as_ref();
    fingerprint.add_some("--tmp", tmp.map(|tmp| tmp.display()));
    fingerprint.add("version", &options.writer);
    Ok(fingerprint.0)
}

/// Options and the versions of files, by the name of the option. Messages show the values, so they are written as on the command line,
/// and defaults that have no value are left out.
#[derive(Default)]
struct Fingerprint(BTreeMap<String, String>);

impl Fingerprint {
    fn add(&mut self, name: impl Into<String>, value: impl Display) {
        self.0.insert(name.into(), value.to_string());
    }

    fn add_some(&mut self, name: &str, value: Option<impl Display>) {
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
            input => {
                self.add(role, input.version()?);
                Ok(())
            }
        }
    }

    fn add_files(&mut self, options: &IngestOptions) -> Result<()> {
        self.add_numbered("edges", &options.edges)?;
        for (part, files) in options.splits.edges.iter().flat_map(EdgeSplit::files) {
            self.add_numbered(&format!("--{part}-edges"), files)?;
        }
        let parts = match &options.layout.assign {
            Assign::Random | Assign::Range | Assign::Streamed { .. } => None,
            Assign::File(path) => Some(Input::from(path)),
        };
        let files = [
            ("--weights", options.edge_form.weights.as_ref()),
            ("--edge-features", options.edge_form.features.as_ref()),
            ("--features", options.node_data.features.as_ref()),
            ("--labels", options.node_data.labels.as_ref()),
            ("--node-ids", options.node_data.ids.as_ref()),
            ("parts", parts.as_ref()),
        ];
        for (role, input) in files {
            input.map_or(Ok(()), |input| self.add_input(role, input))?;
        }
        for split in &options.splits.files {
            self.add_input(&format!("--{}", split.name), &split.ids)?;
        }
        Ok(())
    }

    fn add_edges(&mut self, form: &EdgeForm, options: &IngestOptions) {
        // The order of edges is that of the split.
        let EdgeColumnOptions { source, target, weight, features, order: _ } = &form.columns;
        self.add("--format", word(form.format));
        self.add("--header", word(form.header));
        self.add("--comments", word(form.comments));
        self.add_some("--separator", form.separator.map(Separator::word));
        self.add_some("--src", source.as_ref());
        self.add_some("--dst", target.as_ref());
        self.add_some("--weight", weight.as_ref());
        self.add_list("--edge-features-from", features);
        self.add_some("--edge-feature-dtype", form.feature_dtype.map(|dtype| dtype.name()));
        self.add("--on-bad-line", word(form.on_bad_line));
        let EdgeOptions { undirected, dedup, self_loops } = options.edge_options;
        self.add_flag("--undirected", undirected);
        self.add_flag("--dedup", dedup);
        self.add("--self-loops", word(self_loops));
        self.add_list("--merge", &options.merge);
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
        self.add_some("--table-separator", data.tables.separator.map(Separator::word));
        let EncodingOptions { missing, categories, categories_max, schema, examine: _ } = &data.encoding;
        if let Some(schema) = schema {
            let (_, digest) = schema.encode();
            self.add("--schema-of", format!("a store whose schema has the digest {digest:016x}"));
        }
        self.add_list("--missing", &missing.0);
        self.add_some("--categories", categories.map(word_of_form));
        self.add_some("--categories-max", *categories_max);
    }

    fn add_splits(&mut self, splits: &SplitOptions) {
        if let Some(random) = &splits.random {
            self.add("--split", random.shares);
            self.add("--split-seed", random.seed);
            self.add_flag("--stratify", random.stratify);
        }
        self.add_some("--edge-split", splits.edges.as_ref().and_then(EdgeSplit::describe));
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
        options.node_data.features = Some((&parts).into());
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
