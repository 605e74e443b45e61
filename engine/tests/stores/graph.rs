//! Graphs with node types and relations: the graph has the edges of the input and no others, whatever the ids, the memory, the threads and
//! the kills.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use grappa_engine::{
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, preaggregate},
    info::graph_info,
    place::{PlaceOptions, SliceEdges, place},
    verify::verify,
};
use grappa_formats::{EdgePart, NodeId, aggregates::AggregateKind, manifest::ExternalIds};
use grappa_ingestion::ingest::{
    Assign, EdgeSplit, GraphIngestOptions, NodeTypeIngest, RelationIngest, Resources, SplitFile, ingest_graph,
};
use grappa_input::OnBadLine;
use grappa_io::{Error, map::Access, progress::Silent};
use grappa_sampling::links::{PartEdges, Positives};
use grappa_storage::{ExternalId, Graph, Store, aggregates::Aggregates};

use crate::common::{files_of, interrupted};

/// Authors, papers and venues, and who wrote what, what cites what, and where it appeared.
struct Papers {
    folder: tempfile::TempDir,
    papers: u64,
    /// `source:name:destination` to the pairs of its file.
    edges: BTreeMap<&'static str, Vec<(String, String)>>,
}

const VENUES: u64 = 9;
const AREAS: [&str; 3] = ["db", "ml", "pl"];

fn author(number: u64) -> String {
    format!("author {number:05}")
}

fn paper(number: u64) -> u64 {
    number * 1_000_003 + 17
}

impl Papers {
    fn new() -> Self {
        Self::of_size(300, 500)
    }

    /// Authors have strings as ids, papers have sparse integers, and venues have dense ones.
    fn of_size(authors: u64, papers: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let writes = (0..3 * papers).map(|k| (author(k * 7 % authors), paper(k * 7 % papers).to_string()));
        let cites = (0..2 * papers).map(|k| (paper(k * 11 % papers).to_string(), paper(k * k % papers).to_string()));
        let appears = (0..papers).map(|k| (paper(k).to_string(), (k % VENUES).to_string()));
        let edges = BTreeMap::from([
            ("author:writes:paper", writes.collect::<Vec<_>>()),
            ("paper:cites:paper", cites.collect()),
            ("paper:in:venue", appears.collect()),
        ]);
        for (name, edges) in &edges {
            let lines: String = edges.iter().map(|(source, target)| format!("{source}\t{target}\n")).collect();
            fs::write(Self::file_in(folder.path(), name), lines).unwrap();
        }
        let rows = (0..papers).rev().map(|k| format!("{},{},{k}.5,{}\n", paper(k), year(k), AREAS[(k % 3) as usize]));
        fs::write(folder.path().join("papers.csv"), "id,year,score,area\n".to_owned() + &rows.collect::<String>())
            .unwrap();
        fs::write(folder.path().join("train.txt"), (0..100).map(|k| format!("{}\n", paper(k))).collect::<String>())
            .unwrap();
        Self { folder, papers, edges }
    }

    fn file_in(folder: &Path, relation: &str) -> PathBuf {
        folder.join(format!("{}.tsv", relation.replace(':', "-")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self) -> GraphIngestOptions {
        let mut types = ["author", "paper", "venue"].map(NodeTypeIngest::new);
        let [author, paper, venue] = &mut types;
        author.nodes.ids = ExternalIds::String;
        paper.nodes.ids = ExternalIds::Sparse;
        paper.nodes.data.features = Some(self.path("papers.csv").into());
        paper.nodes.data.labels = Some(self.path("papers.csv").into());
        paper.nodes.data.tables.columns.label = vec!["area".into()];
        paper.nodes.splits.files = vec![SplitFile::new("train", self.path("train.txt"))];
        venue.nodes.number = Some(VENUES + 2);
        let relations = self.edges.keys().map(|name| {
            let parts: Vec<&str> = name.split(':').collect();
            RelationIngest::new([parts[0], parts[1], parts[2]], [Self::file_in(self.folder.path(), name)])
        });
        GraphIngestOptions {
            node_types: types.to_vec(),
            relations: relations.collect(),
            resources: Resources { memory: 64 << 20, threads: 2, ..Resources::default() },
            ..GraphIngestOptions::new(self.path("out.grappa"))
        }
    }

    /// The edges of each relation, sorted.
    fn expected(&self) -> BTreeMap<String, Vec<(String, String)>> {
        self.edges.iter().map(|(&name, edges)| (name.to_owned(), sorted(edges))).collect()
    }
}

fn year(paper: u64) -> u64 {
    1990 + paper % 30
}

/// The edges of each relation by external ids, sorted. Of a slice, those that it has.
fn edges_of(graph: &Graph) -> BTreeMap<String, Vec<(String, String)>> {
    let of_relation = |number: usize| {
        let entry = &graph.manifest().relations[number];
        let [sources, targets] = [entry.source, entry.destination].map(|end| &graph.node_types()[end as usize]);
        let relation = &graph.relations()[number];
        let mut edges = Vec::new();
        for chunk in relation.present_chunks() {
            let chunk = relation.chunk_in_order(chunk).unwrap();
            let (first, rows) = (chunk.span().first_node.0, chunk.rows());
            for (node, row) in (first..).zip(rows.range(0..rows.rows())) {
                let target = targets.external_id(NodeId(node)).unwrap().to_string();
                for source in row.unwrap().iter() {
                    edges.push((sources.external_id(NodeId(source)).unwrap().to_string(), target.clone()));
                }
            }
        }
        edges.sort();
        (graph.manifest().relation_name(number), edges)
    };
    (0..graph.relations().len()).map(of_relation).collect()
}

fn sorted(edges: &[(String, String)]) -> Vec<(String, String)> {
    let mut edges = edges.to_vec();
    edges.sort();
    edges
}

/// The edges that a relation holds out, by external ids, sorted.
fn held_out_edges(graph: &Graph, number: usize, part: EdgePart) -> Vec<(String, String)> {
    let entry = &graph.manifest().relations[number];
    let [sources, targets] = [entry.source, entry.destination].map(|end| &graph.node_types()[end as usize]);
    let relation = &graph.relations()[number];
    let edges = Positives::of_part(PartEdges::all(relation, part), None, 1 << 30, &Silent).unwrap();
    let named = edges.edges().iter().map(|&(source, target)| {
        (sources.external_id(source).unwrap().to_string(), targets.external_id(target).unwrap().to_string())
    });
    let mut edges: Vec<_> = named.collect();
    edges.sort();
    edges
}

#[test]
fn held_out_edges_leave_a_relation_and_its_reverse() {
    let papers = Papers::new();
    let held_out: Vec<_> = papers.edges["author:writes:paper"][..40].to_vec();
    let file = papers.path("val.tsv");
    fs::write(&file, held_out.iter().map(|(source, target)| format!("{source}\t{target}\n")).collect::<String>())
        .unwrap();
    let shares = "80/10/10".parse().unwrap();
    let of_files = EdgeSplit::Files { val: vec![file.into()], test: Vec::new() };
    for (name, split) in [("random", EdgeSplit::random(shares, 3).unwrap()), ("files", of_files)] {
        let mut options = papers.options();
        let writes = options.relations.iter_mut().find(|relation| relation.name == "writes").unwrap();
        writes.reverse = Some("rev_writes".to_owned());
        writes.edges.split = Some(split);
        options.out = papers.path(name);
        ingest_graph(&options, &Silent).unwrap();
        let graph = Graph::open(&options.out).unwrap();
        let found = edges_of(&graph);
        let numbers = ["writes", "rev_writes"]
            .map(|name| graph.manifest().relations.iter().position(|relation| relation.name == name).unwrap());
        let turned = |edges: &[(String, String)]| {
            sorted(&edges.iter().map(|(source, target)| (target.clone(), source.clone())).collect::<Vec<_>>())
        };
        let kept = &found["author:writes:paper"];
        assert_eq!(found["paper:rev_writes:author"], turned(kept), "{name}");
        let mut all = kept.clone();
        for part in graph.relations()[numbers[0]].manifest().held_out() {
            let edges = held_out_edges(&graph, numbers[0], part);
            assert_eq!(held_out_edges(&graph, numbers[1], part), turned(&edges), "{name}");
            assert!(!edges.is_empty() && edges.iter().all(|edge| !kept.contains(edge)), "{name}");
            all.extend(edges);
        }
        let mut expected = papers.expected()["author:writes:paper"].clone();
        if name == "files" {
            // Edges of the graph that are also held out leave it, and the file has each once.
            expected.retain(|edge| !held_out.contains(edge));
            expected.extend(held_out.iter().cloned());
        }
        assert_eq!(sorted(&all), sorted(&expected), "{name}");
        assert_eq!(verify(&options.out, 2, &Silent).unwrap().problems, []);
    }
}

#[test]
fn a_graph_has_the_edges_of_its_relations_and_no_others() {
    let papers = Papers::new();
    let options = papers.options();
    let summary = ingest_graph(&options, &Silent).unwrap();
    let graph = Graph::open(&options.out).unwrap();
    assert_eq!(verify(&options.out, 2, &Silent).unwrap().problems, []);
    let names: Vec<_> = graph.manifest().node_types.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["author", "paper", "venue"]);
    let nodes: Vec<u64> = summary.node_types.iter().map(|node_type| node_type.nodes).collect();
    let authors: BTreeSet<_> = papers.edges["author:writes:paper"].iter().map(|(author, _)| author).collect();
    assert_eq!(nodes, [authors.len() as u64, papers.papers, VENUES + 2]);
    assert_eq!(edges_of(&graph), papers.expected());
    for (of, edges) in summary.relations.iter().zip(papers.edges.values()) {
        assert_eq!((of.edges, of.edges_read, of.rejected), (edges.len() as u64, edges.len() as u64, 0));
    }
}

#[test]
fn features_labels_and_splits_belong_to_the_nodes_of_their_type() {
    let papers = Papers::new();
    let options = papers.options();
    let summary = ingest_graph(&options, &Silent).unwrap();
    assert_eq!(summary.node_types[1].schema.feature_names(), ["year", "score"]);
    assert_eq!(summary.node_types[1].schema.classes, AREAS);
    let graph = Graph::open(&options.out).unwrap();
    let [authors, of_papers, venues] = graph.node_types() else { panic!("three types") };
    assert!(
        [authors, venues].iter().all(|store| store.manifest().features.is_none() && store.manifest().labels.is_none())
    );
    let node = |k| of_papers.node(&ExternalId::Integer(paper(k))).unwrap().unwrap();
    let train = of_papers.split("train").unwrap().unwrap();
    assert_eq!(train.len(), 100);
    assert!((0..100).all(|k| train.contains(node(k).0)));
    for k in (0..papers.papers).step_by(37) {
        let chunk = of_papers.chunks().chunk_of(node(k));
        let row = node(k).0 - of_papers.chunks().range(chunk).start;
        let features = of_papers.features(chunk).unwrap().unwrap();
        let mut values = vec![0.0; 2];
        features.meta().layout.decode_row(features.row(row).unwrap(), &mut values);
        assert_eq!(values, [year(k) as f32, k as f32 + 0.5]);
        let label = of_papers.labels(chunk, Access::Random).unwrap().unwrap().single(row).unwrap();
        assert_eq!(label, Some((k % 3) as u32));
    }
}

#[test]
fn a_reverse_relation_has_the_edges_in_the_other_direction() {
    let papers = Papers::new();
    let mut options = papers.options();
    for relation in &mut options.relations {
        relation.reverse = Some(format!("rev_{}", relation.name));
    }
    ingest_graph(&options, &Silent).unwrap();
    assert_eq!(verify(&options.out, 2, &Silent).unwrap().problems, []);
    let graph = Graph::open(&options.out).unwrap();
    let edges = edges_of(&graph);
    let reverses: Vec<_> = graph.manifest().relations.iter().map(|entry| entry.reverse_of).collect();
    assert_eq!(reverses, [None, Some(0), None, Some(2), None, Some(4)]);
    for (name, expected) in papers.expected() {
        let parts: Vec<&str> = name.split(':').collect();
        let mut reversed = edges[&format!("{}:rev_{}:{}", parts[2], parts[1], parts[0])].clone();
        reversed.iter_mut().for_each(|(source, target)| std::mem::swap(source, target));
        assert_eq!((sorted(&reversed), &edges[&name]), (expected.clone(), &expected), "{name}");
    }
}

/// Ids of two types that do not fit in memory together, or alone, are joined on disk.
#[test]
fn the_bytes_do_not_depend_on_memory_and_threads() {
    let papers = Papers::of_size(60_000, 30_000);
    let mut options = papers.options();
    options.relations[0].reverse = Some("written_by".into());
    options.node_types.iter_mut().for_each(|node_type| node_type.nodes.layout.chunks = Some(4));
    let mut graphs = Vec::new();
    // With 2.5 MiB, the table of papers fits, and with 1 MiB neither does.
    for (memory, threads) in [(64 << 20, 2), (5 << 19, 1), (1 << 20, 1), (4 << 20, 2)] {
        options.resources = Resources { memory, threads, ..Resources::default() };
        ingest_graph(&options, &Silent).unwrap();
        if graphs.is_empty() {
            let mut expected = papers.expected();
            let mut edges = edges_of(&Graph::open(&options.out).unwrap());
            let reversed = edges.remove("paper:written_by:author").unwrap();
            assert_eq!(reversed.len(), expected["author:writes:paper"].len());
            assert!(edges == expected);
            expected.clear();
        }
        graphs.push((memory, files_of(&options.out)));
        fs::remove_dir_all(&options.out).unwrap();
    }
    for (memory, files) in &graphs[1..] {
        assert!(*files == graphs[0].1, "{memory}");
    }
}

#[test]
fn a_killed_ingest_of_a_graph_is_continued_to_the_same_bytes() {
    let papers = Papers::new();
    let mut options = papers.options();
    options.relations[0].reverse = Some("written_by".into());
    options.node_types[1].nodes.layout.chunks = Some(3);
    ingest_graph(&options, &Silent).unwrap();
    let whole = files_of(&options.out);
    let mut kills = 0;
    for steps in (1..).step_by(7) {
        fs::remove_dir_all(&options.out).unwrap();
        options.resume = false;
        let was_killed = interrupted(steps, |progress| drop(ingest_graph(&options, progress)));
        if !was_killed {
            break;
        }
        kills += 1;
        options.resume = true;
        // A second kill, in what is left.
        if interrupted(steps / 2 + 1, |progress| drop(ingest_graph(&options, progress))) {
            ingest_graph(&options, &Silent).unwrap();
        }
        assert!(files_of(&options.out) == whole, "killed at step {steps}");
    }
    assert!(kills > 5, "{kills} kills");
}

#[test]
fn a_resumed_graph_must_have_the_options_and_the_input_of_the_killed_one() {
    let papers = Papers::new();
    let mut options = papers.options();
    assert!(interrupted(40, |progress| drop(ingest_graph(&options, progress))));
    options.resume = true;
    let refused = |options: &GraphIngestOptions, part: &str| {
        let error = ingest_graph(options, &Silent).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let mut other = options.clone();
    other.relations[1].edges.options.dedup = true;
    refused(&other, "paper:cites:paper --dedup");
    let mut other = options.clone();
    other.relations.swap(0, 1);
    refused(&other, "number");
    let mut other = options.clone();
    other.node_types[0].nodes.layout.seed = 5;
    refused(&other, "author --seed");
    fs::write(papers.path("train.txt"), "17\n").unwrap();
    refused(&options, "paper --train");
}

/// The message of an ingest that fails.
fn refusal(options: &GraphIngestOptions) -> String {
    let error = ingest_graph(options, &Silent).unwrap_err();
    assert!(!options.out.exists() && !options.out.with_extension("grappa.partial").exists(), "{error}");
    error.to_string()
}

#[test]
fn an_edge_with_an_id_that_is_no_node_is_named_or_skipped() {
    let papers = Papers::new();
    for (relation, line, parts) in [
        ("paper:cites:paper", "17\t5\n", ["paper-cites-paper.tsv:1001", "target 5", "type paper", "papers.csv"]),
        ("paper:in:venue", "17\t11\n", ["paper-in-venue.tsv:501", "target 11", "type venue", "below 11"]),
        (
            "author:writes:paper",
            "author 00001\t18\n",
            ["author-writes-paper.tsv:1501", "target 18", "type paper", "papers.csv"],
        ),
    ] {
        let file = Papers::file_in(papers.folder.path(), relation);
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, before.clone() + line).unwrap();
        let mut options = papers.options();
        options.relations[0].reverse = Some("written_by".into());
        let error = refusal(&options);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        options.relations.iter_mut().for_each(|relation| relation.edges.form.on_bad_line = OnBadLine::Skip);
        let summary = ingest_graph(&options, &Silent).unwrap();
        let mut edges = edges_of(&Graph::open(&options.out).unwrap());
        edges.remove("paper:written_by:author");
        assert!(edges == papers.expected(), "{relation}");
        let built = summary.relations.iter().find(|built| built.name == relation).unwrap();
        assert_eq!((built.rejected, built.edges_read), (1, built.edges));
        let rejects = fs::read_to_string(built.rejects.as_ref().unwrap()).unwrap();
        assert!(rejects.ends_with(&format!("\tthe target is no node of its type\t{line}")), "{rejects}");
        fs::remove_dir_all(&options.out).unwrap();
        fs::write(&file, before).unwrap();
    }
}

/// The same, when the ids are joined on disk.
#[test]
fn an_id_that_is_no_node_is_named_or_skipped_though_ids_exceed_the_memory() {
    let papers = Papers::of_size(60_000, 30_000);
    let file = Papers::file_in(papers.folder.path(), "author:writes:paper");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, before + "author 00001\t18\n").unwrap();
    let mut options = papers.options();
    options.resources = Resources { memory: 1 << 20, threads: 1, ..Resources::default() };
    let error = refusal(&options);
    assert!(error.contains("author-writes-paper.tsv:90001") && error.contains("target 18"), "{error}");
    options.relations[0].edges.form.on_bad_line = OnBadLine::Skip;
    let mut graphs = Vec::new();
    for memory in [1 << 20, 64 << 20] {
        options.resources.memory = memory;
        let summary = ingest_graph(&options, &Silent).unwrap();
        assert_eq!((summary.relations[0].rejected, summary.relations[0].edges), (1, 90_000));
        graphs.push(files_of(&options.out));
        fs::remove_dir_all(&options.out).unwrap();
    }
    assert!(graphs[0] == graphs[1]);
}

#[test]
fn a_row_without_an_id_is_no_edge() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("orders.csv"), "user,item\nann,1\n,2\nbob,\nbob,3\n").unwrap();
    let mut options = GraphIngestOptions {
        node_types: vec![NodeTypeIngest::new("user"), NodeTypeIngest::new("item")],
        relations: vec![RelationIngest::new(["user", "orders", "item"], [path("orders.csv")])],
        ..GraphIngestOptions::new(path("out.grappa"))
    };
    options.node_types[0].nodes.ids = ExternalIds::String;
    options.relations[0].edges.form.columns.source = Some("user".into());
    options.relations[0].edges.form.columns.target = Some("item".into());
    let summary = ingest_graph(&options, &Silent).unwrap();
    let built = &summary.relations[0];
    assert_eq!((built.edges, built.edges_read, built.rejected, &built.rejects), (2, 2, 2, &None));
    assert_eq!(summary.node_types.iter().map(|node_type| node_type.nodes).collect::<Vec<_>>(), [2, 4]);
    let edges = &edges_of(&Graph::open(&options.out).unwrap())["user:orders:item"];
    assert_eq!(*edges, [("ann".to_owned(), "1".to_owned()), ("bob".to_owned(), "3".to_owned())]);
}

/// A change of options.
type Change = fn(&mut GraphIngestOptions);

#[test]
fn contradictions_are_refused_before_anything_is_written() {
    let papers = Papers::new();
    let cases: [(Change, &str); 9] = [
        (|options| options.node_types[1].name = "author".into(), "author: two node types have this name"),
        (
            |options| options.relations.push(options.relations[0].clone()),
            "author:writes:paper: two relations have this name",
        ),
        (|options| options.relations[0].reverse = Some(String::new()), "a relation has no name"),
        (|options| options.relations[0].source = "editor".into(), "the node type editor, which there is not"),
        (|options| options.relations[0].edges.options.undirected = true, "between nodes of one type"),
        (|options| options.relations[0].edges.files.clear(), "the relation has no files"),
        (|options| options.node_types.push(NodeTypeIngest::new("editor")), "editor: this node type is in no relation"),
        (|options| options.relations.clear(), "a graph has node types and relations"),
        (
            |options| {
                options.node_types[0].nodes.layout.assign =
                    Assign::Streamed { partitioner: grappa_ingestion::ingest::Partitioner::Ldg, parts: 4 };
            },
            "author: a streaming partitioner",
        ),
    ];
    for (change, part) in cases {
        let mut options = papers.options();
        change(&mut options);
        let error = refusal(&options);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_graph_replaces_a_store_only_with_force_and_commands_for_stores_refuse_it() {
    let papers = Papers::new();
    let mut options = papers.options();
    ingest_graph(&options, &Silent).unwrap();
    let error = Store::open(&options.out).unwrap_err().to_string();
    assert!(error.contains("3 node types and 3 relations"), "{error}");
    assert!(matches!(ingest_graph(&options, &Silent), Err(Error::Input { .. })));
    options.replace = true;
    options.relations.truncate(2);
    options.node_types.truncate(2);
    ingest_graph(&options, &Silent).unwrap();
    assert_eq!(Graph::open(&options.out).unwrap().relations().len(), 2);
}

#[test]
fn a_damaged_member_is_a_problem_of_the_graph() {
    let papers = Papers::new();
    let options = papers.options();
    ingest_graph(&options, &Silent).unwrap();
    let files = files_of(&options.out);
    let problems = || verify(&options.out, 2, &Silent).unwrap().problems;
    for (name, bytes) in files.iter().step_by(5) {
        let mut damaged = bytes.clone();
        let at = damaged.len() * 3 / 4;
        damaged[at] ^= 4;
        fs::write(options.out.join(name), damaged).unwrap();
        let found = problems();
        assert!(found.iter().any(|problem| problem.file == *name), "{name}: {found:?}");
        fs::write(options.out.join(name), bytes).unwrap();
    }
    assert_eq!(problems(), []);
    // The relation of another graph does not fit.
    fs::rename(options.out.join("relation-0"), options.out.join("relation-9")).unwrap();
    let found: Vec<_> = problems().into_iter().map(|problem| problem.file).collect();
    assert_eq!(found, ["relation-0/manifest", "relation-9"]);
}

/// The rows of pre-aggregated features, in the order of nodes.
fn rows_of(aggregates: &Aggregates) -> Vec<Vec<f32>> {
    let layout = aggregates.layout();
    let rows = aggregates.files().iter().flatten().flat_map(|file| {
        let payload = file.open().unwrap().read_payload().unwrap();
        let rows = payload.chunks_exact(layout.stride as usize).map(|row| {
            let mut values = vec![0.0; layout.dim as usize];
            layout.decode_row(row, &mut values);
            values
        });
        rows.collect::<Vec<_>>()
    });
    rows.collect()
}

#[test]
fn each_relation_is_preaggregated_from_the_features_of_its_sources() {
    let papers = Papers::new();
    let mut options = papers.options();
    options.node_types[1].nodes.layout.chunks = Some(3);
    ingest_graph(&options, &Silent).unwrap();
    let graph = Graph::open(&options.out).unwrap();
    let numbers: Vec<usize> = graph.relations_with_features().collect();
    assert_eq!(numbers, [1, 2], "authors have no features");
    let edges = edges_of(&graph);
    for (number, budget) in numbers.into_iter().zip([Budget::new(64 << 20, 2), Budget::new(3 << 19, 1)]) {
        let making = AggregateOptions::new(AggregateKind::Mean, budget);
        let relation = graph.relation(number);
        assert_eq!(Aggregates::open(relation, AggregateKind::Mean).unwrap().map(|_| ()), None);
        let made = preaggregate(relation, &making, &Silent).unwrap();
        assert_eq!(made.nodes, relation.destinations.manifest().nodes);
        let rows = rows_of(&Aggregates::open(relation, AggregateKind::Mean).unwrap().unwrap());
        let mut sums = vec![[0.0; 3]; made.nodes as usize];
        for (source, target) in &edges[&graph.manifest().relation_name(number)] {
            let target = ExternalId::Integer(target.parse().unwrap());
            let sum = &mut sums[relation.destinations.node(&target).unwrap().unwrap().0 as usize];
            let k = (source.parse::<u64>().unwrap() - 17) / 1_000_003;
            *sum = [sum[0] + year(k) as f32, sum[1] + k as f32 + 0.5, sum[2] + 1.0];
        }
        for (row, [years, scores, count]) in rows.iter().zip(&sums) {
            let expected = if *count > 0.0 { [years / count, scores / count] } else { [0.0; 2] };
            assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs()), "{row:?} {expected:?}");
        }
        assert!(matches!(preaggregate(relation, &making, &Silent), Err(Error::Input { .. })), "they exist");
    }
    assert_eq!(verify(&options.out, 2, &Silent).unwrap().problems, []);
    let info = graph_info(&graph, &options.out).unwrap();
    let kinds: Vec<usize> = info.relations.iter().map(|relation| relation.aggregates.len()).collect();
    assert_eq!(kinds, [0, 1, 1]);
    let refused = |number, kind, part: &str| {
        let making = AggregateOptions { replace: true, ..AggregateOptions::new(kind, Budget::new(1 << 24, 1)) };
        let error = preaggregate(graph.relation(number), &making, &Silent).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(0, AggregateKind::Mean, "the sources of this relation have no features");
    refused(2, AggregateKind::Gcn, "this relation joins nodes of two types");
    refused(2, AggregateKind::WeightedMean, "takes the weights of edges");
    // Both ends are papers.
    let gcn = AggregateOptions::new(AggregateKind::Gcn, Budget::new(1 << 24, 1));
    preaggregate(graph.relation(1), &gcn, &Silent).unwrap();
    // A file of another relation is none of these.
    let of_kind = |number: usize| options.out.join(format!("relation-{number}/aggregates/mean/chunk-0"));
    fs::copy(of_kind(1), of_kind(2)).unwrap();
    let found: Vec<_> = verify(&options.out, 2, &Silent).unwrap().problems;
    assert!(found.iter().any(|problem| problem.file.starts_with("relation-2/aggregates/mean")), "{found:?}");
}

#[test]
fn a_slice_has_the_edges_into_its_chunks_wherever_it_was_killed() {
    let papers = Papers::new();
    let mut options = papers.options();
    options.relations[0].reverse = Some("written_by".into());
    options.node_types[..2].iter_mut().for_each(|node_type| node_type.nodes.layout.chunks = Some(4));
    ingest_graph(&options, &Silent).unwrap();
    let graph = Graph::open(&options.out).unwrap();
    for number in graph.relations_with_features() {
        let making = AggregateOptions::new(AggregateKind::Sum, Budget::new(64 << 20, 2));
        preaggregate(graph.relation(number), &making, &Silent).unwrap();
    }
    // Two chunks of authors, one of papers, and none of venues.
    for (number, edges) in [SliceEdges::All, SliceEdges::Inside].into_iter().enumerate() {
        let mut placing = PlaceOptions {
            chunks: vec![0..=1, 6..=6],
            edges,
            halo_features: edges == SliceEdges::All,
            out: papers.path(&format!("slice-{number}")),
            copy: false,
            threads: 1,
            resume: false,
            replace: false,
        };
        let placed = place(&graph, &placing, &Silent).unwrap();
        assert_eq!(verify(&placing.out, 2, &Silent).unwrap().problems, []);
        let slice = Graph::open(&placing.out).unwrap();
        assert!(!slice.lacks_features());
        let has = |node_type: usize, id: &str| {
            let store = &graph.node_types()[node_type];
            let id = id.parse().map_or_else(|_| ExternalId::String(id.into()), ExternalId::Integer);
            slice.node_types()[node_type].is_present(store.chunks().chunk_of(store.node(&id).unwrap().unwrap()))
        };
        let mut expected = edges_of(&graph);
        for (relation, entry) in graph.manifest().relations.iter().enumerate() {
            let of_relation = expected.get_mut(&graph.manifest().relation_name(relation)).unwrap();
            of_relation.retain(|(source, target)| {
                let is_inside = edges == SliceEdges::All || has(entry.source as usize, source);
                has(entry.destination as usize, target) && is_inside
            });
        }
        assert_eq!(edges_of(&slice), expected);
        assert_eq!(placed.edges, expected.values().map(|edges| edges.len() as u64).sum::<u64>());
        let whole = files_of(&placing.out);
        let mut kills = 0;
        for steps in (1..).step_by(3) {
            fs::remove_dir_all(&placing.out).unwrap();
            placing.resume = false;
            if !interrupted(steps, |progress| drop(place(&graph, &placing, progress))) {
                break;
            }
            kills += 1;
            placing.resume = true;
            place(&graph, &placing, &Silent).unwrap();
            assert!(files_of(&placing.out) == whole, "killed at step {steps}");
        }
        assert!(kills > 5, "{kills} kills");
        // Other chunks are another slice.
        fs::remove_dir_all(&placing.out).unwrap();
        placing.resume = false;
        assert!(interrupted(9, |progress| drop(place(&graph, &placing, progress))));
        placing.resume = true;
        placing.chunks = vec![0..=1];
        let error = place(&graph, &placing, &Silent).unwrap_err().to_string();
        assert!(error.contains("--chunks"), "{error}");
    }
}
