//! `--triples`: lines of head, relation and tail. Heads and tails are nodes of one type.
//!
//! Each relation is one of the graph. A graph has at most 64, so the triples of more relations become a store whose edges have the number of
//! their relation as a feature.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use grappa_engine::ingest::{
    Comments, EdgeColumnOptions, EdgeFormat, FeatureDtype, HeaderLine, Input, RELATIONS_MAX, RelationIngest, Separator,
    relations_of_triples,
};

use super::line::GraphLine;
use crate::data::Data;

/// The type of all nodes.
pub const ENTITY: &str = "entity";
/// How a store reads triples: the options and their values, besides the number of relations.
const AS_EDGES: [(&str, &str); 9] = [
    ("--format", "tsv"),
    ("--separator", "tab"),
    ("--header", "no"),
    ("--comments", "no"),
    ("--src", "1"),
    ("--dst", "3"),
    ("--edge-features-from", "2"),
    ("--categories", "index"),
    ("--edge-feature-dtype", "f32"),
];

/// The command line of a store whose edges have the relations of `line` as a feature. None if it has no triples, or few relations.
///
/// # Errors
/// If a file cannot be read, or is none of triples.
pub fn line_of_store(line: &mut GraphLine) -> Result<Option<Vec<OsString>>> {
    if !line.has("triples") {
        return Ok(None);
    }
    let names = all_relations(line)?;
    let relations = names.len();
    if relations <= RELATIONS_MAX {
        line.set_triple_relations(names);
        return Ok(None);
    }
    ensure!(
        !line.has("reverse"),
        "--reverse: the triples have {relations} relations, and a graph at most {RELATIONS_MAX}, so the relation becomes a \
         feature of edges; omit --reverse"
    );
    ensure!(
        !line.has("edge-feature-dtype"),
        "--edge-feature-dtype: the triples have {relations} relations, and numbers of relations are stored as f32; omit it"
    );
    let relations_max = FeatureDtype::F32.whole_numbers_max();
    ensure!(
        relations as u64 <= relations_max,
        "--triples: found {relations} relations, expected at most {relations_max}; give the triples of fewer relations"
    );
    let mut options: Vec<(String, String)> =
        AS_EDGES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    options.push(("--categories-max".to_owned(), relations.to_string()));
    if !line.has("ids") {
        options.push(("--ids".to_owned(), "string".to_owned()));
    }
    Ok(Some(line.renamed("triples", "edges", options)))
}

/// The relations of some files of triples, in the order of their names.
pub fn read(line: &mut GraphLine, files: &[String]) -> Result<Vec<RelationIngest>> {
    let keys: Vec<_> = line.triple_relations().iter().map(|name| [ENTITY, name, ENTITY].map(str::to_owned)).collect();
    line.add_names(&[ENTITY.to_owned()], &keys);
    line.check(&[ENTITY.to_owned()], &keys)?;
    let relations = keys.iter().map(|key| {
        let mut edges = line.relation(key, files)?.options(Data::default())?.edges;
        edges.form.format = EdgeFormat::Tsv;
        edges.form.separator = Some(Separator::Tab);
        edges.form.header = HeaderLine::No;
        edges.form.comments = Comments::No;
        edges.form.columns = EdgeColumnOptions {
            source: Some("1".to_owned()),
            target: Some("3".to_owned()),
            relation: Some(("2".to_owned(), key[1].clone())),
            time: edges.form.columns.time.take(),
            ..EdgeColumnOptions::default()
        };
        let [source, name, destination] = key.each_ref().map(String::as_str);
        let reverse = line.reverse_of(key);
        Ok(RelationIngest { edges, reverse, ..RelationIngest::new([source, name, destination], Vec::<Input>::new()) })
    });
    relations.collect()
}

/// The names of the relations of all triples, also of those that are held out.
fn all_relations(line: &GraphLine) -> Result<Vec<String>> {
    let files: Vec<&str> =
        ["triples", "val-edges", "test-edges"].into_iter().flat_map(|name| line.values(name)).collect();
    let names = relations_of_triples(&files)?;
    ensure!(!names.is_empty(), "{}: there are no triples", files.join(", "));
    Ok(names)
}
