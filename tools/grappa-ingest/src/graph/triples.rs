//! `--triples`: lines of head, relation and tail. Heads and tails are nodes of one type.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead, BufReader},
};

use anyhow::{Context, Result, bail, ensure};
use grappa_console::printable;
use grappa_engine::ingest::{Comments, EdgeColumnOptions, EdgeFormat, HeaderLine, Input, RelationIngest, Separator};

use super::line::GraphLine;
use crate::data::Data;

/// The type of all nodes.
pub const ENTITY: &str = "entity";
/// The most relations of a graph.
const RELATIONS_MAX: usize = 64;
/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 1 << 16;

/// The relations of some files of triples, in the order of their names.
pub fn read(line: &mut GraphLine, files: &[String]) -> Result<Vec<RelationIngest>> {
    let held_out = ["val-edges", "test-edges"].into_iter().flat_map(|name| line.values(name)).map(str::to_owned);
    let names = relations_of(&files.iter().cloned().chain(held_out).collect::<Vec<_>>())?;
    let keys: Vec<_> = names.iter().map(|name| [ENTITY, name, ENTITY].map(str::to_owned)).collect();
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
            ..EdgeColumnOptions::default()
        };
        let [source, name, destination] = key.each_ref().map(String::as_str);
        let reverse = line.reverse_of(key);
        Ok(RelationIngest { edges, reverse, ..RelationIngest::new([source, name, destination], Vec::<Input>::new()) })
    });
    relations.collect()
}

/// The names of all relations.
fn relations_of(files: &[String]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in files {
        let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
        ensure!(file.metadata()?.is_file(), "{path}: expected a file with lines of head, relation and tail");
        let (mut file, mut text, mut number) = (BufReader::new(file), Vec::new(), 0);
        loop {
            text.clear();
            if file.read_until(b'\n', &mut text).with_context(|| format!("cannot read {path}"))? == 0 {
                break;
            }
            number += 1;
            ensure!(text.len() <= LINE_BYTES_MAX, "{path}:{number}: the line is longer than {LINE_BYTES_MAX} bytes");
            let text =
                std::str::from_utf8(&text).map_err(|_| anyhow::anyhow!("{path}:{number}: the line is not UTF-8"))?;
            let text = text.trim_end_matches(['\n', '\r']);
            if text.is_empty() {
                continue;
            }
            let fields: Vec<&str> = text.split('\t').collect();
            let &[_, relation, _] = fields.as_slice() else {
                bail!(
                    "{path}:{number}: expected head, relation and tail, separated by tabs, found {} columns: {}",
                    fields.len(),
                    printable(text)
                );
            };
            ensure!(!relation.trim().is_empty(), "{path}:{number}: the relation is empty");
            if !names.contains(relation) {
                names.insert(relation.to_owned());
            }
            ensure!(
                names.len() <= RELATIONS_MAX,
                "{path}:{number}: this is the relation number {}, and a graph has at most {RELATIONS_MAX}; give the triples of fewer relations",
                names.len()
            );
        }
    }
    ensure!(!names.is_empty(), "{}: there are no triples", files.join(", "));
    Ok(names)
}
