//! Graphs whose nodes have times, next to a slow sampler that looks at every edge, and damage to the times.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    sync::Arc,
};

use grappa_engine::{
    ExternalId, Graph, Loader, NodeId, Silent,
    ingest::{
        ExternalIds, GraphIngestOptions, NodeTypeIngest, RelationIngest, Resources, TimeColumn, TimeUnit, ingest_graph,
    },
    sample::{
        Assignment, LoaderOptions, Minibatch, Sampler, SeedTimes, Seeds, TimeHops, TimeOptions, TimeStrategy,
        feed::MinibatchOptions, view::shape_of,
    },
    verify::verify,
};
use grappa_formats::random::draw_at;
use tempfile::TempDir;

use crate::common::{files_of, interrupted};

/// The node types. Products have no times.
const TYPES: [&str; 3] = ["users", "products", "orders"];
/// Source, name, destination.
const RELATIONS: [[&str; 3]; 3] =
    [["orders", "by", "users"], ["orders", "of", "products"], ["users", "follows", "users"]];
pub const USERS: usize = 0;
const PRODUCTS: usize = 1;
const ORDERS: usize = 2;

/// A shop: users and orders with times, many of them equal, and products without.
pub struct Shop {
    folder: TempDir,
    /// The number of nodes of each type.
    numbers: [u64; 3],
    /// The edges of each relation, by external ids.
    edges: [Vec<(u64, u64)>; 3],
}

fn type_number(name: &str) -> usize {
    TYPES.iter().position(|other| *other == name).unwrap()
}

/// The time of a row of a table.
fn time_of(node_type: usize, row: u64) -> i64 {
    match node_type {
        // Few and equal times.
        USERS => (draw_at(1, row) % 20) as i64 * 50 - 100,
        _ => (draw_at(2, row) % 1000) as i64,
    }
}

/// The id of a row: rows are in no order of ids.
fn id_of(row: u64) -> u64 {
    row * 7919 % 100_003
}

impl Shop {
    pub fn new(users: u64, products: u64, orders: u64) -> Self {
        let draw = |seed: u64, k: u64, end: u64| draw_at(seed, k) % end;
        // A few nodes have most edges.
        let skewed = |seed: u64, k: u64, end: u64| draw(seed, k, end) * draw(seed + 50, k, end) / end;
        let by = (0..orders).map(|k| (k, skewed(3, k, users)));
        let of = (0..orders).flat_map(|k| (0..1 + k % 3).map(move |at| (k, 4 * k + at)));
        let of = of.map(|(order, key)| (order, skewed(4, key, products)));
        let follows = (0..3 * users).map(|k| (draw(5, k, users), skewed(6, k, users)));
        let shop = Self {
            folder: tempfile::tempdir().unwrap(),
            numbers: [users, products, orders],
            edges: [by.collect(), of.collect(), follows.collect()],
        };
        for (node_type, name) in TYPES.iter().enumerate() {
            let line = |row: u64| match node_type {
                PRODUCTS => format!("{},{}\n", id_of(row), row % 17),
                _ => format!("{},{}\n", id_of(row), time_of(node_type, row)),
            };
            let rows: String = (0..shop.numbers[node_type]).map(line).collect();
            let columns = if node_type == PRODUCTS { "id,price" } else { "id,at" };
            fs::write(shop.path(&format!("{name}.csv")), format!("{columns}\n{rows}")).unwrap();
        }
        for ([_, name, _], edges) in RELATIONS.iter().zip(&shop.edges) {
            let lines = edges.iter().map(|(source, target)| format!("{},{}\n", id_of(*source), id_of(*target)));
            fs::write(shop.path(&format!("{name}.csv")), format!("src,dst\n{}", lines.collect::<String>())).unwrap();
        }
        shop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self, out: &str) -> GraphIngestOptions {
        let mut options = GraphIngestOptions::new(self.path(out));
        options.resources = Resources { memory: 64 << 20, threads: 2, ..Resources::default() };
        for (node_type, name) in TYPES.iter().enumerate() {
            let mut of = NodeTypeIngest::new(*name);
            of.nodes.ids = ExternalIds::Sparse;
            of.nodes.layout.chunks = Some(3);
            of.nodes.data.table = Some(self.path(&format!("{name}.csv")).into());
            if node_type != PRODUCTS {
                of.nodes.data.tables.columns.time =
                    Some(TimeColumn { column: "at".to_owned(), unit: Some(TimeUnit::Integer) });
            }
            options.node_types.push(of);
        }
        for relation in RELATIONS {
            let files = [self.path(&format!("{}.csv", relation[1]))];
            let reverse = (relation[0] != relation[2]).then(|| format!("rev_{}", relation[1]));
            options.relations.push(RelationIngest { reverse, ..RelationIngest::new(relation, files) });
        }
        options
    }

    pub fn ingested(&self, out: &str) -> Graph {
        ingest_graph(&self.options(out), &Silent).unwrap();
        assert!(verify(&self.path(out), 1, &Silent).unwrap().is_ok());
        Graph::open(&self.path(out)).unwrap()
    }
}

/// The edges of one relation at one hop: source, destination.
type Edges = Vec<(NodeId, NodeId)>;

/// A graph as a slow sampler sees it.
pub struct Known {
    /// The time of each node of each type.
    pub times: Vec<Option<Vec<i64>>>,
    /// The types of the sources and destinations of each relation of the graph.
    pub ends: Vec<[usize; 2]>,
    /// The in-neighbors of each destination, ascending, by relation.
    pub lists: Vec<HashMap<NodeId, Vec<NodeId>>>,
}

impl Known {
    /// Reads ids from the graph, and nothing else.
    pub fn new(shop: &Shop, graph: &Graph) -> Self {
        let nodes: Vec<Vec<NodeId>> = (0..TYPES.len())
            .map(|node_type| {
                let store = &graph.node_types()[node_type];
                let rows = 0..shop.numbers[node_type];
                rows.map(|row| store.node(&ExternalId::Integer(id_of(row))).unwrap().unwrap()).collect()
            })
            .collect();
        let times = (0..TYPES.len()).map(|node_type| {
            let mut times = vec![0; nodes[node_type].len()];
            for (row, node) in nodes[node_type].iter().enumerate() {
                times[node.0 as usize] = time_of(node_type, row as u64);
            }
            (node_type != PRODUCTS).then_some(times)
        });
        let (mut ends, mut lists) = (Vec::new(), Vec::new());
        for entry in &graph.manifest().relations {
            let (turned, name) = match entry.name.strip_prefix("rev_") {
                Some(name) => (true, name),
                None => (false, &*entry.name),
            };
            let input = RELATIONS.iter().position(|relation| relation[1] == name).unwrap();
            let [source, destination] = [RELATIONS[input][0], RELATIONS[input][2]].map(type_number);
            let mut of: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
            for &(from, to) in &shop.edges[input] {
                let (from, to) = (nodes[source][from as usize], nodes[destination][to as usize]);
                let (from, to) = if turned { (to, from) } else { (from, to) };
                of.entry(to).or_default().push(from);
            }
            of.values_mut().for_each(|list| list.sort_unstable());
            lists.push(of);
            ends.push(if turned { [destination, source] } else { [source, destination] });
        }
        Self { times: times.collect(), ends, lists }
    }

    /// The sources of a node by a relation that are within a limit, in the order of the list.
    fn eligible(&self, relation: usize, node: NodeId, limit: i64, options: &TimeOptions) -> Vec<NodeId> {
        let all = self.lists[relation].get(&node).cloned().unwrap_or_default();
        let Some(times) = &self.times[self.ends[relation][0]] else { return all };
        let is_eligible = |source: &NodeId| {
            let age = limit - times[source.0 as usize];
            age >= i64::from(!options.equal) && options.window.is_none_or(|window| age <= window)
        };
        all.into_iter().filter(is_eligible).collect()
    }

    /// The edges of each hop and relation of a seed, if all or the last `fanout` are taken.
    fn reached(
        &self,
        (node_type, seed): (usize, NodeId),
        time: i64,
        options: &TimeOptions,
        (hops, fanout): (usize, Option<usize>),
    ) -> BTreeMap<(usize, usize), Edges> {
        let mut nodes: Vec<Vec<(NodeId, i64)>> = vec![Vec::new(); self.times.len()];
        nodes[node_type].push((seed, time));
        let (mut before, mut edges) = (vec![0; nodes.len()], BTreeMap::new());
        for hop in 0..hops {
            let reached: Vec<usize> = nodes.iter().map(Vec::len).collect();
            for (relation, &[source_type, destination]) in self.ends.iter().enumerate() {
                let mut of = Vec::new();
                let drawing = nodes[destination][before[destination]..reached[destination]].to_vec();
                for (node, limit) in drawing {
                    let eligible = self.eligible(relation, node, limit, options);
                    let first = fanout.map_or(0, |fanout| eligible.len().saturating_sub(fanout));
                    for &source in &eligible[first..] {
                        of.push((source, node));
                        if nodes[source_type].iter().all(|&(known, _)| known != source) {
                            let own = self.times[source_type].as_ref().map(|times| times[source.0 as usize]);
                            let limit = if options.hops == TimeHops::Edge { own.unwrap_or(limit) } else { limit };
                            nodes[source_type].push((source, limit));
                        }
                    }
                }
                edges.insert((hop, relation), of);
            }
            before = reached;
        }
        edges
    }
}

/// The edges of each hop and relation of a batch.
fn edges_of(graph: &Graph, types: &[Minibatch], hops: usize) -> BTreeMap<(usize, usize), Edges> {
    let shape = shape_of(graph);
    let mut edges = BTreeMap::new();
    for (number, relation) in shape.relations.iter().enumerate() {
        for hop in 0..hops {
            let block = shape.block(types, number, hop);
            let of = (0..block.destinations).flat_map(|at| block.edges_of(at).map(move |edge| (at, edge)));
            let of = of.map(|(at, edge)| {
                let source = types[relation.source].nodes[block.indices[edge] as usize];
                (source, types[relation.destination].nodes[at])
            });
            edges.insert((hop, number), of.collect());
        }
    }
    edges
}

/// Batches of one seed each at its time, in the order of the seeds.
fn batches(
    graph: &Graph,
    fanouts: &str,
    options: TimeOptions,
    seeds: &[(usize, NodeId, i64)],
    (view, threads): (&str, usize),
) -> Vec<Vec<Minibatch>> {
    let relations = graph.relations().len();
    let sampler = Sampler::uniform(fanouts.parse().unwrap(), false).drawing_once();
    let sampler = sampler.with_relation_fanouts(vec![fanouts.parse().unwrap(); relations]).unwrap();
    let sampler = sampler.with_times(options).unwrap();
    let minibatches = MinibatchOptions { batch: 1, disjoint: true, shuffle: false, ..MinibatchOptions::new(sampler) };
    let options =
        LoaderOptions { memory: 256 << 20, threads, view: view.parse().unwrap(), ..LoaderOptions::new(minibatches) };
    let mut loader = Loader::of_graph(graph, LoaderOptions { rows: Default::default(), ..options });
    let position =
        |&(node_type, node, _): &(usize, NodeId, i64)| NodeId(graph.positions().range(node_type).start + node.0);
    let list = Seeds::List(Arc::new(seeds.iter().map(position).collect()));
    let whole = Assignment::whole(graph.positions().chunks().chunks());
    loader.partition(&whole, &list, &Silent).unwrap();
    loader.set_seed_times(SeedTimes::Listed(vec![Arc::new(seeds.iter().map(|seed| seed.2).collect())])).unwrap();
    let mut all = Vec::new();
    loader.epoch(0).unwrap().for_each(|batch| all.push(batch.unwrap().minibatches().to_vec()));
    assert_eq!(all.len(), seeds.len());
    all
}

/// Every option that limits draws.
fn all_options() -> Vec<TimeOptions> {
    let mut all = Vec::new();
    for equal in [true, false] {
        for hops in TimeHops::ALL {
            for window in [None, Some(0), Some(120)] {
                all.push(TimeOptions { equal, hops, window, strategy: TimeStrategy::Uniform });
            }
        }
    }
    all
}

#[test]
fn all_sources_within_the_limits_are_there_and_no_others() {
    let shop = Shop::new(60, 25, 200);
    let graph = shop.ingested("g.grappa");
    assert!(graph.is_timed());
    let known = Known::new(&shop, &graph);
    // Own times of users and orders, a time before all, and times of products.
    let mut seeds = Vec::new();
    for (node_type, number) in shop.numbers.into_iter().enumerate() {
        for node in (0..number).step_by(13).map(NodeId) {
            let own = known.times[node_type].as_ref().map(|times| times[node.0 as usize]);
            seeds.extend(own.into_iter().chain([-1000, 40, 777]).map(|time| (node_type, node, time)));
        }
    }
    let mut drawn = 0;
    for options in all_options() {
        for place in [("memory", 2), ("mapped", 1), ("sweep", 2)] {
            for (batch, &(node_type, seed, time)) in batches(&graph, "-1,-1", options, &seeds, place).iter().zip(&seeds)
            {
                let expected = known.reached((node_type, seed), time, &options, (2, None));
                assert_eq!(edges_of(&graph, batch, 2), expected, "{options:?} {place:?} {node_type} {seed} {time}");
                assert_eq!(batch[node_type].nodes[0], seed);
                drawn += expected.values().map(Vec::len).sum::<usize>();
                // In-degrees do not tell of later edges.
                let shape = shape_of(&graph);
                for (number, ends) in known.ends.iter().enumerate() {
                    let block = shape.block(batch, number, 0);
                    if ends[1] == node_type {
                        let degree = known.eligible(number, seed, time, &options).len() as u64;
                        assert_eq!((block.global[0], block.visible[0]), (degree, degree));
                    }
                }
            }
        }
    }
    assert!(drawn > 5000, "{drawn}");
}

#[test]
fn the_last_sources_are_the_latest() {
    let shop = Shop::new(60, 25, 200);
    let graph = shop.ingested("g.grappa");
    let known = Known::new(&shop, &graph);
    let seeds: Vec<_> = (0..25).map(|node| (PRODUCTS, NodeId(node), 40 * node as i64)).collect();
    for hops in TimeHops::ALL {
        let options = TimeOptions { hops, strategy: TimeStrategy::Last, ..TimeOptions::default() };
        for (batch, &(node_type, seed, time)) in
            batches(&graph, "3,3", options, &seeds, ("memory", 1)).iter().zip(&seeds)
        {
            let found = edges_of(&graph, batch, 2);
            assert_eq!(found, known.reached((node_type, seed), time, &options, (2, Some(3))));
            let times = known.times[ORDERS].as_ref().unwrap();
            let orders = (0..known.ends.len()).find(|&number| known.ends[number] == [ORDERS, PRODUCTS]).unwrap();
            let latest = found[&(0, orders)].iter().map(|edge| times[edge.0.0 as usize]).min();
            let left_out = known.eligible(orders, seed, time, &options);
            let before = left_out.len().saturating_sub(3);
            assert!(left_out[..before].iter().all(|order| Some(times[order.0 as usize]) <= latest));
        }
    }
}

#[test]
fn no_draw_of_a_million_is_later_than_its_seed_and_all_others_are_equally_likely() {
    let shop = Shop::new(40, 3, 400);
    let graph = shop.ingested("g.grappa");
    let known = Known::new(&shop, &graph);
    let relation = (0..known.ends.len()).find(|&number| known.ends[number] == [ORDERS, PRODUCTS]).unwrap();
    let (time, options) = (500, TimeOptions::default());
    let (&seed, list) = known.lists[relation].iter().max_by_key(|(_, list)| list.len()).unwrap();
    let eligible = known.eligible(relation, seed, time, &options);
    assert!(eligible.len() > 30 && eligible.len() < list.len());
    let seeds = vec![(PRODUCTS, seed, time); 25_000];
    let (mut counts, mut draws) = (HashMap::<NodeId, u64>::new(), 0);
    for batch in batches(&graph, "20,2,2", options, &seeds, ("memory", 2)) {
        let edges = edges_of(&graph, &batch, 3);
        for ((hop, number), of) in edges {
            let Some(times) = &known.times[known.ends[number][0]] else { continue };
            draws += of.len();
            assert!(of.iter().all(|(source, _)| times[source.0 as usize] <= time));
            if (hop, number) == (0, relation) {
                of.iter().for_each(|(source, _)| *counts.entry(*source).or_default() += 1);
            }
        }
    }
    assert!(draws >= 1_000_000, "{draws}");
    // Parallel edges are drawn as often as they are there. Chi-square has its degrees of freedom as mean; draws without replacement vary less.
    let mut parallel = HashMap::<NodeId, u64>::new();
    eligible.iter().for_each(|&source| *parallel.entry(source).or_default() += 1);
    let each = (seeds.len() * 20) as f64 / eligible.len() as f64;
    let chi_square: f64 = parallel
        .iter()
        .map(|(source, &edges)| {
            let expected = each * edges as f64;
            (counts.get(source).copied().unwrap_or(0) as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = parallel.len() as f64 - 1.0;
    assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi_square} with {freedom} degrees of freedom");
}

#[test]
fn the_order_does_not_depend_on_threads_memory_and_kills() {
    let shop = Shop::new(700, 90, 2000);
    let whole = {
        shop.ingested("whole.grappa");
        files_of(&shop.path("whole.grappa"))
    };
    for (threads, memory) in [(1, 16 << 20), (3, 200 << 20)] {
        let mut options = shop.options("other.grappa");
        options.resources = Resources { memory, threads, ..Resources::default() };
        options.replace = true;
        ingest_graph(&options, &Silent).unwrap();
        assert!(files_of(&options.out) == whole, "{threads} threads");
    }
    let mut killed = 0;
    for steps in (1..400).step_by(3) {
        let mut options = shop.options("killed.grappa");
        if !interrupted(steps, |progress| drop(ingest_graph(&options, progress))) {
            break;
        }
        killed += 1;
        options.resume = true;
        ingest_graph(&options, &Silent).unwrap();
        assert!(files_of(&options.out) == whole, "killed at step {steps}");
        fs::remove_dir_all(&options.out).unwrap();
    }
    assert!(killed > 10, "{killed}");
}

#[test]
fn any_flipped_byte_of_the_times_of_nodes_is_reported_and_drawn_from_never() {
    let shop = Shop::new(60, 25, 200);
    let graph = shop.ingested("g.grappa");
    let problems = || -> Vec<String> {
        let found = verify(&shop.path("g.grappa"), 1, &Silent).unwrap().problems;
        found.into_iter().map(|problem| format!("{}: {}", problem.file, problem.description)).collect()
    };
    for name in ["node-time-axis", "node-times", "node-time-degrees", "ids/order"] {
        let path = graph.node_types()[ORDERS].path().join(name);
        let sound = fs::read(&path).unwrap();
        for at in (0..sound.len()).filter(|at| !(200..4090).contains(at) || at % 97 == 0) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, bytes).unwrap();
            let found = problems();
            assert!(found.iter().any(|problem| problem.starts_with("nodes-2/")), "byte {at} of {name}: {found:?}");
            if name != "ids/order"
                && let Ok(damaged) = Graph::open(&shop.path("g.grappa"))
            {
                // Zeros between header and payload are compared by `verify` alone.
                let read = damaged.node_times(ORDERS);
                assert!(read.is_err() || (128..4096).contains(&at), "byte {at} of {name}");
            }
        }
        fs::write(&path, sound).unwrap();
    }
    assert_eq!(problems(), [""; 0]);
}

#[test]
fn times_that_are_no_code_are_errors_or_other_times_but_no_panic() {
    let shop = Shop::new(60, 25, 2000);
    let graph = shop.ingested("g.grappa");
    let path = graph.node_types()[ORDERS].path().to_owned();
    for name in ["node-times", "node-time-degrees"] {
        let whole = shop.path("g.grappa");
        let sound = [path.join(name), path.join("manifest"), whole.join("manifest")];
        let bytes = sound.each_ref().map(|path| fs::read(path).unwrap());
        for round in 0..60_u64 {
            grappa_forge::rewrite(&path, name, None, |payload| {
                let at = (round * 7919 + 13) as usize % payload.len();
                payload[at] ^= [0xff, 1, 0x80, 0x3c][round as usize % 4];
            });
            // The member has another digest now.
            let found = verify(&whole, 1, &Silent).unwrap();
            assert!(!found.is_ok(), "{name} {round}");
            sound.iter().zip(&bytes).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        }
    }
}
