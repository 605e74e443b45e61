//! The members of a graph, and their input files, opened before anything is written.

use std::{collections::BTreeMap, fmt::Display};

use grappa_formats::manifest::{ExternalIds, SelfLoops};
use grappa_input::{NodeTypeOfEnd, Reading};
use grappa_io::{Error, Result, progress::Progress, text::printable};

use super::{
    options::{GraphIngestOptions, NodeTypeIngest, RelationIngest},
    times,
};
use crate::ingest::{
    edge_ingest::{EdgeReader, EndNodes},
    edge_split::EdgeSplit,
    edge_values::EdgeValues,
    fingerprint::Fingerprint,
    id_columns::IdColumns,
    input::known_number,
    node_files::NodeFiles,
    node_ingest::{Assign, NodeIngest, RowIds},
    plan::IngestBudget,
};

/// The most relations of a graph, with reverses.
pub const RELATIONS_MAX: usize = 64;

/// The members of a graph.
pub struct GraphPlan {
    pub node_types: Vec<NodeTypePlan>,
    /// The relations, each followed by its reverse.
    pub relations: Vec<RelationPlan>,
    /// How the files of edges are read.
    readings: Vec<Reading>,
}

/// A node type.
pub struct NodeTypePlan {
    /// Its files, until its folder is written.
    pub files: Option<NodeFiles>,
    /// The number of nodes, if it is known before ids are read.
    pub number: Option<u64>,
    /// What lists its nodes, for messages. None: they are the ids of its relations.
    pub listed_in: Option<String>,
}

/// A relation.
pub struct RelationPlan {
    pub source: usize,
    pub name: String,
    pub destination: usize,
    /// The relation whose edges it has in the other direction.
    pub reverse_of: Option<u32>,
    /// The relation of the options.
    pub input: usize,
    /// Whether it turns the edges of the options around.
    pub is_turned: bool,
}

/// The same options with the files of folders, the columns of schemas, and what the columns of edge features become.
pub fn resolved(options: &GraphIngestOptions, progress: &dyn Progress) -> Result<GraphIngestOptions> {
    check(options)?;
    let mut options = options.clone();
    let given = times::given_units(&mut options);
    for node_type in &mut options.node_types {
        node_type.nodes.resolve();
        node_type.nodes.resolve_times(progress).map_err(Error::of_member(&node_type.name))?;
    }
    let GraphIngestOptions { node_types, relations, .. } = &mut options;
    for relation in relations {
        relation.edges.resolve_files()?;
        let [source, destination] = [&relation.source, &relation.destination].map(|name| type_named(node_types, name));
        let (source, destination) = (source?, destination?);
        let ends = [source, destination].map(|end| EndNodes {
            nodes: &node_types[end].nodes,
            number: node_types[end].nodes.number,
            node_type: Some(NodeTypeOfEnd { name: node_types[end].name.clone(), listed_in: String::new() }),
        });
        relation.edges.resolve_columns(ends, &relation.encoding, progress)?;
    }
    times::choose_unit(&mut options, &given)?;
    times::check(&options)?;
    Ok(options)
}

/// Everything that the graph depends on. A run can be resumed only with an equal fingerprint.
pub fn fingerprint(options: &GraphIngestOptions) -> Result<BTreeMap<String, String>> {
    let mut fingerprint = Fingerprint::default();
    for (number, NodeTypeIngest { name, nodes }) in options.node_types.iter().enumerate() {
        fingerprint.begin(name);
        fingerprint.add("--nodes number", number);
        fingerprint.add_nodes(nodes)?;
    }
    for (number, relation) in options.relations.iter().enumerate() {
        fingerprint.begin(&relation_name(relation));
        fingerprint.add("--edges number", number);
        fingerprint.add_edges(&relation.edges)?;
        fingerprint.add_encoding(&relation.encoding);
        fingerprint.add_some("--reverse", relation.reverse.as_ref());
        fingerprint.add_some("--reverse of", relation.reverse_of.as_ref());
    }
    fingerprint.add_run(&options.resources, &options.writer);
    Ok(fingerprint.values)
}

/// `source:name:destination`.
pub fn relation_name(relation: &RelationIngest) -> String {
    format!("{}:{}:{}", relation.source, relation.name, relation.destination)
}

fn type_named(node_types: &[NodeTypeIngest], name: &str) -> Result<usize> {
    node_types.iter().position(|node_type| node_type.name == name).ok_or_else(|| {
        let known: Vec<_> = node_types.iter().map(|node_type| printable(&node_type.name).to_string()).collect();
        Error::conflict(
            format!("a relation joins the node type {}, which there is not", printable(name)),
            format!("name one of these types, or add it: {}", known.join(", ")),
        )
    })
}

impl GraphPlan {
    /// Opens all files. Warns about input that is probably not meant.
    pub fn open(options: &GraphIngestOptions, progress: &dyn Progress) -> Result<Self> {
        let relations = check(options)?;
        let mut node_types = Vec::new();
        for node_type in &options.node_types {
            let (name, nodes) = (&node_type.name, &node_type.nodes);
            let files = NodeFiles::open(nodes, &Default::default(), &nodes.budget(&options.resources), progress)
                .map_err(Error::of_member(name))?;
            let number = known_number(nodes, &files).map_err(Error::of_member(name))?;
            let lists = files.lists_of_nodes(nodes).map(|list| match list {
                RowIds::List(input) => format!("its nodes are the ids in {input}"),
                RowIds::Table(input) => format!("its nodes are the rows of {input}"),
            });
            let lists: Vec<_> = lists.collect();
            let numbered = number.map(|number| match nodes.number {
                Some(_) => format!("its ids are below {number}"),
                None => format!("it has {number} rows, so its ids are below {number}"),
            });
            let listed_in = match nodes.ids {
                ExternalIds::Dense => numbered,
                ExternalIds::Sparse | ExternalIds::String => (!lists.is_empty()).then(|| lists.join(", and ")),
            };
            if listed_in.is_none()
                && !relations.iter().any(|relation| [relation.source, relation.destination].contains(&node_types.len()))
            {
                return Err(conflict(
                    name,
                    "this node type is in no relation, and nothing lists its nodes",
                    "give it a table with ids, or a relation",
                ));
            }
            node_types.push(NodeTypePlan { files: Some(files), number, listed_in });
        }
        let mut plan = Self { node_types, relations, readings: Vec::new() };
        for number in 0..options.relations.len() {
            let edges = plan.reader(options, number).open(plan.budget(options, number).block_bytes);
            let source = edges
                .and_then(|source| {
                    EdgeValues::from_source(&options.relations[number].edges, &source)?;
                    Ok(source)
                })
                .map_err(Error::of_member(relation_name(&options.relations[number])))?;
            for warning in source.warnings() {
                tracing::warn!("{warning}");
            }
            plan.readings.extend(source.readings());
        }
        plan.warn_of_dead_ends(options);
        Ok(plan)
    }

    /// How all files are read.
    pub fn readings(&self) -> Vec<Reading> {
        let tables = self.node_types.iter().flat_map(|node_type| &node_type.files).flat_map(NodeFiles::readings);
        self.readings.iter().cloned().chain(tables).collect()
    }

    /// The numbers of the types at the ends of a relation of the options: source, destination.
    fn ends(&self, input: usize) -> [usize; 2] {
        let relation = self.relations.iter().find(|relation| relation.input == input && !relation.is_turned);
        relation
            .map(|relation| [relation.source, relation.destination])
            .expect("every relation of the options is planned")
    }

    /// Opens the edges of a relation of the options.
    pub fn reader<'a>(&self, options: &'a GraphIngestOptions, input: usize) -> EdgeReader<'a> {
        let ends = self.ends(input).map(|end| {
            let (node_type, plan) = (&options.node_types[end], &self.node_types[end]);
            let listed_in = plan.listed_in.clone().unwrap_or_else(|| "its nodes are the ids of its edges".to_owned());
            let name = node_type.name.clone();
            EndNodes {
                nodes: &node_type.nodes,
                number: plan.number,
                node_type: Some(NodeTypeOfEnd { name, listed_in }),
            }
        });
        EdgeReader { input: &options.relations[input].edges, ends }
    }

    /// The columns of relations with the ids of a type, if nothing else lists them.
    pub fn id_columns<'a>(&self, options: &'a GraphIngestOptions, node_type: usize) -> Vec<IdColumns<'a>> {
        if self.node_types[node_type].listed_in.is_some() {
            return Vec::new();
        }
        let inputs = 0..options.relations.len();
        let columns = inputs.map(|input| IdColumns {
            reader: self.reader(options, input),
            ends: self.ends(input).map(|end| end == node_type),
        });
        columns.filter(|columns| columns.ends.contains(&true)).collect()
    }

    /// The memory and threads for the edges of a relation of the options.
    pub fn budget(&self, options: &GraphIngestOptions, input: usize) -> IngestBudget {
        let has_table = |of: usize| options.node_types[of].nodes.has_table_of_nodes();
        let share = if self.ends(input).into_iter().any(has_table) { 2 } else { 1 };
        let resources = &options.resources;
        IngestBudget::new(resources.memory / share, share, resources.threads)
    }

    /// The error of a relation that has not as many edges as the relation that it should be the reverse of.
    pub fn not_a_reverse(&self, options: &GraphIngestOptions, number: usize, edges: [u64; 2]) -> Error {
        let relation = &options.relations[self.relations[number].input];
        let other = &options.relations[relation.reverse_of.expect("it is a reverse")];
        let problem = format!(
            "it has {} edges, and {}, whose reverse it is, has {}",
            edges[1],
            printable(&relation_name(other)),
            edges[0]
        );
        conflict(
            &relation_name(relation),
            problem,
            "give both the same edges, or do not call one the reverse of the other",
        )
    }

    /// Warns about types to which no relation leads: nothing can be computed for their nodes from neighbors.
    fn warn_of_dead_ends(&self, options: &GraphIngestOptions) {
        let is_led_to = |of: usize| self.relations.iter().any(|relation| relation.destination == of);
        let unreached: Vec<_> = (0..self.node_types.len()).filter(|&of| !is_led_to(of)).collect();
        for of in unreached {
            let name = &options.node_types[of].name;
            let leaves = options.relations.iter().find(|relation| relation.source == *name);
            tracing::warn!(
                "no relation leads to the node type {}, so its nodes have no in-neighbors{}",
                printable(name),
                leaves.map_or_else(String::new, |relation| {
                    format!("; give {} a reverse relation to get them", printable(&relation_name(relation)))
                })
            );
        }
    }
}

/// Checks what needs no file. Returns the relations of the graph.
fn check(options: &GraphIngestOptions) -> Result<Vec<RelationPlan>> {
    if options.node_types.is_empty() || options.relations.is_empty() {
        return Err(Error::conflict("a graph has node types and relations", "give at least one of both"));
    }
    for (at, node_type) in options.node_types.iter().enumerate() {
        let name = &node_type.name;
        if name.is_empty() {
            return Err(Error::conflict("a node type has no name", "name it"));
        }
        if options.node_types[..at].iter().any(|other| other.name == *name) {
            return Err(conflict(name, "two node types have this name", "give each type a name of its own"));
        }
        check_layout(name, &node_type.nodes)?;
    }
    let mut relations: Vec<RelationPlan> = Vec::new();
    for (input, relation) in options.relations.iter().enumerate() {
        let [source, destination] =
            [&relation.source, &relation.destination].map(|name| type_named(&options.node_types, name));
        let (source, destination) = (source?, destination?);
        check_edges(relation)?;
        let number = relations.len() as u32;
        let reverse_of = relation.reverse_of.map(|other| reversed(options, input, other, &relations)).transpose()?;
        let name = relation.name.clone();
        relations.push(RelationPlan { source, name, destination, reverse_of, input, is_turned: false });
        if let Some(name) = relation.reverse.clone() {
            let (source, destination) = (destination, source);
            let reverse_of = Some(number);
            relations.push(RelationPlan { source, name, destination, reverse_of, input, is_turned: true });
        }
    }
    for (at, relation) in relations.iter().enumerate() {
        let RelationPlan { source, name, destination, .. } = relation;
        let [source_name, destination_name] = [*source, *destination].map(|end| &options.node_types[end].name);
        let full = format!("{source_name}:{name}:{destination_name}");
        if name.is_empty() {
            return Err(conflict(&full, "a relation has no name", "name it"));
        }
        let is_same = |of: &&RelationPlan| of.source == *source && of.name == *name && of.destination == *destination;
        if relations[..at].iter().any(|other| is_same(&other)) {
            return Err(conflict(&full, "two relations have this name", "give one of them another name"));
        }
    }
    if relations.len() > RELATIONS_MAX {
        return Err(Error::limit(
            format!("the graph has {} relations", relations.len()),
            format!("{RELATIONS_MAX}"),
            "join relations between the same types".to_owned(),
        ));
    }
    Ok(relations)
}

/// The number of the relation that relation `input` of the options reverses: relation `other` of the options, which comes before it.
fn reversed(options: &GraphIngestOptions, input: usize, other: usize, planned: &[RelationPlan]) -> Result<u32> {
    let relation = &options.relations[input];
    let name = relation_name(relation);
    let earlier = options.relations[..input].get(other).ok_or_else(|| {
        conflict(&name, "it is the reverse of a relation that does not come before it", "list the other relation first")
    })?;
    if [&relation.source, &relation.destination] != [&earlier.destination, &earlier.source] {
        let problem = format!("it is no reverse of {}, which joins other types", printable(&relation_name(earlier)));
        return Err(conflict(&name, problem, "name a relation between the same types in the other direction"));
    }
    if relation.reverse.is_some() || earlier.reverse.is_some() || earlier.reverse_of.is_some() {
        return Err(conflict(&name, "one of both relations has another reverse", "omit it"));
    }
    let splits = [&earlier.edges.split, &relation.edges.split];
    if splits[0] != splits[1] || splits.iter().any(|split| matches!(split, Some(EdgeSplit::Files { .. }))) {
        let problem = format!("it is the reverse of {}, and holds other edges out", printable(&relation_name(earlier)));
        return Err(conflict(&name, problem, "hold the same edges out, by shares"));
    }
    let number = planned.iter().position(|relation| relation.input == other).expect("earlier relations are planned");
    Ok(number as u32)
}

/// Fails if the order of the nodes of a type follows from edges.
fn check_layout(name: &str, nodes: &NodeIngest) -> Result<()> {
    match nodes.layout.assign {
        Assign::Streamed { .. } => Err(conflict(
            name,
            "a streaming partitioner divides graphs of one node type only",
            "choose random, range or file: for --assign",
        )),
        Assign::Random | Assign::Range | Assign::File(_) => Ok(()),
    }
}

/// Fails if options of edges need one type at both ends, and there are two, or if relations do not have them.
fn check_edges(relation: &RelationIngest) -> Result<()> {
    let name = relation_name(relation);
    let options = relation.edges.options;
    if relation.source != relation.destination && (options.undirected || options.self_loops != SelfLoops::Keep) {
        return Err(conflict(
            &name,
            "--undirected and --self-loops are for edges between nodes of one type",
            "omit them; for both directions, give a reverse relation",
        ));
    }
    if options.undirected && relation.reverse.is_some() {
        return Err(conflict(&name, "with --undirected, the relation has both directions already", "omit its reverse"));
    }
    if relation.edges.files.is_empty() {
        return Err(conflict(&name, "the relation has no files", "give at least one file with edges"));
    }
    Ok(())
}

/// The error about an option of a type or relation.
fn conflict(name: &str, problem: impl Display, remedy: impl Into<String>) -> Error {
    Error::conflict(format!("{}: {problem}", printable(name)), remedy)
}
