//! Graphs with several node types and relations: their doors on the command line.

mod gconstruct;
mod graphbolt;
mod keyed_table;
mod layout;
mod line;
mod neo4j;
mod ogb;
mod summary;
mod tables;
mod task_tables;
mod triples;
mod words;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Result, ensure};
use grappa_console::Console;
use grappa_engine::{
    Error,
    ingest::{
        ColumnValues, ExternalIds, GraphIngestOptions, Input, NodeIngest, NodeTypeIngest, RelationIngest, TableForm,
        TableSchema, examine_graph, ingest_graph,
    },
};

pub use self::{line::GraphLine, triples::line_of_store};
use self::{
    line::WHOLE_GRAPHS,
    summary::{BuiltGraph, GraphDryRun},
};
use crate::{data::Data, kept::tell_what_is_kept};

/// Builds the graph of a command line.
pub fn run(line: &mut GraphLine, data: Data, console: Option<&Console>) -> Result<()> {
    let begin = Instant::now();
    let args = line.run()?;
    let opened;
    let console = match console {
        Some(console) => console,
        None => {
            opened = args.console.open();
            &opened
        }
    };
    let (options, notes) = options(line, args.options(data)?)?;
    if args.is_dry_run() {
        let readings = examine_graph(&options, &console.bars()).map_err(words::for_member)?;
        return console.finish(&GraphDryRun::new(&options, &readings, &notes));
    }
    tell_what_is_kept(&options.out);
    let summary = ingest_graph(&options, &console.bars()).map_err(words::for_member)?;
    console.finish(&BuiltGraph::new(&options, &summary, begin.elapsed()))
}

/// The options of the engine. `run` has those of the run.
fn options(
    line: &mut GraphLine,
    run: grappa_engine::ingest::IngestOptions,
) -> Result<(GraphIngestOptions, Vec<String>)> {
    let mut notes = Vec::new();
    let (node_types, relations) = members(line, &mut notes)?;
    let options = GraphIngestOptions {
        node_types,
        relations,
        resources: run.resources,
        replace: run.replace,
        resume: run.resume,
        writer: run.writer,
        ..GraphIngestOptions::new(run.out)
    };
    Ok((options, notes))
}

/// The node types and relations. Adds what is left out to `notes`.
fn members(line: &mut GraphLine, notes: &mut Vec<String>) -> Result<(Vec<NodeTypeIngest>, Vec<RelationIngest>)> {
    let doors: Vec<&str> = WHOLE_GRAPHS.into_iter().filter(|name| line.has(name)).collect();
    let has_parts = line.has("nodes") || line.has("edges");
    ensure!(
        doors.len() + usize::from(has_parts) <= 1,
        "--{} is a whole graph; give it without {}",
        doors[0],
        doors.get(1).map_or_else(|| "--nodes and --edges".to_owned(), |other| format!("--{other}"))
    );
    let path = |name| line.values(name).next().map(PathBuf::from).unwrap_or_default();
    let layout = match doors.first() {
        Some(&"tables") => Some(tables::read(line, &path("tables"))?),
        Some(&"gconstruct") => Some(gconstruct::read(line, &path("gconstruct"))?.with_line(line)?),
        Some(&"neo4j") => {
            let paths: Vec<PathBuf> = line.values("neo4j").map(PathBuf::from).collect();
            Some(neo4j::read(line, &paths)?.with_line(line)?)
        }
        Some(&"graphbolt") => Some(graphbolt::read(line, &path("graphbolt"))?.with_line(line)?),
        Some(&"ogb") => Some(ogb::read(line, &path("ogb"))?.with_line(line)?),
        Some(&"igb") => Some(ogb::arrays(line, &path("igb"), "__")?.with_line(line)?),
        _ => None,
    };
    if let Some(layout) = layout {
        *notes = layout.notes;
        return Ok((layout.node_types, layout.relations));
    }
    let triples: Vec<String> = line.values("triples").map(str::to_owned).collect();
    if !triples.is_empty() {
        let relations = triples::read(line, &triples)?;
        let entity = line.node_type(triples::ENTITY, &[("ids", "string".to_owned())])?.options(Data::default())?.nodes;
        return Ok((vec![NodeTypeIngest { name: triples::ENTITY.to_owned(), nodes: entity }], relations));
    }
    let (nodes, edges) = (line.nodes()?, line.edges()?);
    let mut types: Vec<String> = Vec::new();
    for (name, _) in &nodes {
        ensure!(!types.contains(name), "--nodes {name}: two node types have this name; give each a name of its own");
        types.push(name.clone());
    }
    for name in edges.iter().flat_map(|([source, _, destination], _)| [source, destination]) {
        if !types.contains(name) {
            types.push(name.clone());
        }
    }
    let keys: Vec<_> = edges.iter().map(|(key, _)| key.clone()).collect();
    line.check(&types, &keys)?;
    let node_types = types.iter().map(|name| {
        let given = nodes.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let nodes = node_ingest(line, name, given)?;
        Ok(NodeTypeIngest { name: name.clone(), nodes })
    });
    let relations = edges.iter().map(|(key, files)| {
        let parsed = line.relation(key, files)?.options(Data::default())?;
        let [source, name, destination] = key.each_ref().map(String::as_str);
        Ok(RelationIngest {
            edges: parsed.edges,
            reverse: line.reverse_of(key),
            ..RelationIngest::new([source, name, destination], Vec::<Input>::new())
        })
    });
    Ok((node_types.collect::<Result<_>>()?, relations.collect::<Result<_>>()?))
}

/// The nodes of a type: the value of `--nodes` is their number, or a table of them, or nothing.
fn node_ingest(line: &GraphLine, name: &str, value: Option<&str>) -> Result<NodeIngest> {
    let (mut defaults, mut table): (Vec<(&str, String)>, _) = (Vec::new(), None);
    let number = value.and_then(|value| value.parse::<u64>().ok());
    if let (None, Some(file)) = (number, value) {
        let form = line.node_type(name, &[])?.options(Data::default())?.nodes.data.tables;
        let schema = TableSchema::read(Path::new(file), &form)
            .map_err(|error| words::for_member(Error::of_member(name)(error)))?;
        match &schema {
            Some(schema) if line.has_no_features(name) || !has_features(schema, &form) => table = Some(file.to_owned()),
            _ => defaults.push(("features", file.to_owned())),
        }
        if line.has_for_type("label", name) {
            defaults.push(("labels", file.to_owned()));
        }
        let id = schema.as_ref().and_then(|schema| schema.id_column(&form));
        if let Some(id) = id {
            let kind = if id.values == ColumnValues::Text { "string" } else { "sparse" };
            defaults.push(("ids", kind.to_owned()));
        }
    }
    let mut nodes = line.node_type(name, &defaults)?.options(Data::default())?.nodes;
    if nodes.data.features.is_none() {
        nodes.data.table = table.map(|table| Path::new(&table).into());
    }
    if number.is_some() {
        ensure!(
            nodes.ids == ExternalIds::Dense,
            "--nodes {name}={}: a number of nodes is for --ids dense; give a file with their ids, or nothing",
            value.unwrap_or_default()
        );
        nodes.number = number;
    }
    Ok(nodes)
}

/// Whether a table has other columns than ids, labels and splits.
fn has_features(schema: &TableSchema, form: &TableForm) -> bool {
    let id = schema.id_column(form).map(|column| column.name.clone());
    let options = &form.columns;
    let time = options.time.as_ref().map(|time| &time.column);
    let others = [&options.label, &options.split].into_iter().flatten().chain(&id).chain(time);
    let others: Vec<&String> = others.collect();
    schema.columns.iter().any(|column| !others.contains(&&column.name))
}
