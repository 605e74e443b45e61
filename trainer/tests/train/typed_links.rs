//! Runs that learn the links of a relation between two types.

use std::{collections::BTreeSet, fs};

use grappa_engine::{export::table::TableOut, pair_list::read_pairs};
use grappa_formats::{EdgePart, NodeId, manifest::ExternalIds, random::SplitMix64};
use grappa_ingestion::ingest::{
    EdgeSplit, GraphIngestOptions, NodeTypeIngest, RelationIngest, StoreLayout, ingest_graph,
};
use grappa_io::durable::Destination;
use grappa_run::config::{NegativeSampling, RankAmong, TaskChoice};
use grappa_sampling::{
    NodeSet,
    links::{PartEdges, Positives},
};
use grappa_storage::Graph;
use grappa_trainer::{
    predict::{LinkRequest, Values, predict_file, predict_links},
    train::trained_model::Trained,
};

use super::{typed::run_typed, *};

const USERS: u64 = 150;
const ITEMS: u64 = 240;
const GROUPS: u64 = 3;

/// Users with names, and items with numbers as ids. Users buy items of their own group. Users have 4 features and items 6, which tell the
/// group.
fn shop(folder: &Path) -> Graph {
    let mut draws = SplitMix64::new(7);
    let mut noise = || (draws.draw() >> 40) as f64 / f64::from(1 << 24);
    let mut table = |name: &str, nodes: u64, width: u64, id: fn(u64) -> String| {
        let columns: String = (0..width).map(|column| format!(",f{column}")).collect();
        let rows = (0..nodes).map(|node| {
            let values =
                (0..width).map(|column| format!(",{:.4}", noise() + f64::from(u8::from(column == node % GROUPS))));
            format!("{}{}\n", id(node), values.collect::<String>())
        });
        let text: String = std::iter::once(format!("id{columns}\n")).chain(rows).collect();
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let users = table("users.csv", USERS, 4, |user| format!("user {user}"));
    let items = table("items.csv", ITEMS, 6, |item| (1000 + item).to_string());
    let mut draws = SplitMix64::new(8);
    let edges: BTreeSet<(u64, u64)> = (0..3000)
        .map(|_| {
            let user = draws.draw() % USERS;
            (user, draws.draw() % (ITEMS / GROUPS) * GROUPS + user % GROUPS)
        })
        .collect();
    let lines: String = edges.iter().map(|(user, item)| format!("user {user},{}\n", 1000 + item)).collect();
    fs::write(folder.join("buys.csv"), lines).unwrap();
    let node_type = |name: &str, ids, table: PathBuf| {
        let mut node_type = NodeTypeIngest::new(name);
        node_type.nodes.ids = ids;
        node_type.nodes.data.features = Some(table.into());
        node_type.nodes.layout = StoreLayout { chunks: Some(6), ..StoreLayout::default() };
        node_type
    };
    let mut buys = RelationIngest::new(["user", "buys", "item"], [folder.join("buys.csv")]);
    buys.reverse = Some("bought_by".into());
    buys.edges.split = Some(EdgeSplit::random("80/10/10".parse().unwrap(), 1).unwrap());
    let path = folder.join("shop.grappa");
    let options = GraphIngestOptions {
        node_types: vec![node_type("user", ExternalIds::String, users), node_type("item", ExternalIds::Sparse, items)],
        relations: vec![buys],
        ..GraphIngestOptions::new(path.clone())
    };
    ingest_graph(&options, &Silent).unwrap();
    Graph::open(&path).unwrap()
}

fn links(model: LayerKind) -> TrainConfig {
    TrainConfig {
        model,
        task: TaskChoice::Link,
        fanouts: Auto::Value("5,5".parse().unwrap()),
        batch: Auto::Value(NonZeroUsize::new(256).unwrap()),
        epochs: 4,
        dropout: 0.1,
        ..config()
    }
}

#[test]
fn every_model_ranks_the_items_of_a_user_whole_and_in_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path());
    for model in [LayerKind::Rsage, LayerKind::Rgcn, LayerKind::Rgat, LayerKind::Hgt] {
        for partitions in [1, 3] {
            let config = TrainConfig { partitions: Auto::Value(partitions), epochs: 8, ..links(model) };
            let name = format!("{model}-{partitions}");
            let (summary, watched, _) = run_typed(&graph, &config, &folder.path().join(&name));
            // One of 101 by chance is 0.05. A third of the candidates are of the user's group, so 0.15 is what the group alone gives.
            let mrr = summary.test_mrr.expect("there are edges to test on");
            assert!(mrr > 0.09, "{name}: {mrr}");
            assert_eq!(summary.target.as_deref(), Some("user:buys:item"));
            assert!(watched.warnings.is_empty(), "{name}: {:?}", watched.warnings);
            let report = fs::read_to_string(folder.path().join(&name).join("report.html")).unwrap();
            assert!(report.contains("learned relation"), "{name}");
        }
    }
}

#[test]
fn links_have_the_same_bits_for_any_number_of_threads_and_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path());
    for sampling in [NegativeSampling::Uniform, NegativeSampling::Shared, NegativeSampling::Degree] {
        let config = TrainConfig {
            partitions: Auto::Value(3),
            negative_sampling: sampling,
            candidates: RankAmong::All,
            ..links(LayerKind::Rsage)
        };
        let path = |name: &str| folder.path().join(format!("{sampling}-{name}"));
        let (summary, _, expected) = run_typed(&graph, &config, &path("whole"));
        let one = TrainConfig { threads: Auto::Value(NonZeroUsize::new(1).unwrap()), ..config.clone() };
        let (of_one, _, parameters_of_one) = run_typed(&graph, &one, &path("one"));
        assert!(parameters_of_one == expected, "{sampling}: with one thread");
        assert_eq!(of_one.test_mrr, summary.test_mrr, "{sampling}");
        run_typed(&graph, &TrainConfig { epochs: 2, ..config.clone() }, &path("stopped"));
        let run_folder = RunFolder::resume(&path("stopped")).unwrap();
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let resumed = train(graph.clone(), config, &run_folder, true, Device::Cpu, &mut Watched::default()).unwrap();
        assert!(parameters(&run_folder) == expected, "{sampling}: after a stop");
        assert_eq!(resumed.test_mrr, summary.test_mrr, "{sampling}: after a stop");
    }
}

fn id_of(store: &Store, node: NodeId) -> String {
    store.external_id(node).unwrap().to_string()
}

/// The rows of a table of links, without the header.
fn rows(path: &Path) -> Vec<(String, String, f32)> {
    let text = fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[0].to_owned(), fields[1].to_owned(), fields[2].parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn the_best_items_of_users_are_those_of_the_largest_products_of_embeddings() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path());
    let run = folder.path().join("run");
    run_typed(&graph, &links(LayerKind::Rsage), &run);
    let trained = Trained::open(&run, Device::Cpu).unwrap();
    let on = trained.nodes_of(&graph).unwrap();
    let [users, items] = ["user", "item"].map(|node_type| {
        let out = folder.path().join(format!("{node_type}.csv"));
        let on = on.of_type(Some(node_type)).unwrap();
        predict_file(&trained, on, out.as_path(), Values::Embeddings, Budget::new(64 << 20, 2), &Silent).unwrap();
        let text = fs::read_to_string(out).unwrap();
        let row = |line: &str| {
            let (id, values) = line.split_once(',').unwrap();
            let values = values.split(',').map(|value| value.parse().unwrap()).collect();
            (id.to_owned(), values)
        };
        text.lines().skip(1).map(row).collect::<Vec<(String, Vec<f32>)>>()
    });
    assert_eq!([users.len(), items.len()], [USERS, ITEMS].map(|count| count as usize));
    let error = on.of_type(Some("seller")).unwrap_err().to_string();
    assert!(error.contains("nodes of type item and user"), "{error}");

    let [from, to] = [&graph.node_types()[0], &graph.node_types()[1]];
    let known: BTreeSet<(String, String)> = [EdgePart::Graph, EdgePart::Val, EdgePart::Test]
        .into_iter()
        .flat_map(|part| {
            let edges = PartEdges::all(&graph.relations()[0], part);
            let edges = Positives::of_part(edges, None, u64::MAX, &Silent).unwrap();
            edges.into_edges()
        })
        .map(|(user, item)| (id_of(from, user), id_of(to, item)))
        .collect();
    let product = |user: &[f32], item: &[f32]| -> f32 { user.iter().zip(item).map(|(a, b)| a * b).sum() };
    let sources: Vec<NodeId> = [140, 3, 77].map(NodeId).to_vec();
    let among: Vec<NodeId> = (0..ITEMS).step_by(2).map(NodeId).collect();
    let among_set = NodeSet::from_members(ITEMS, among.iter().copied());
    for (excludes_known, among) in [(true, None), (false, None), (true, Some(&among_set))] {
        let out = folder.path().join("best.csv");
        let request = LinkRequest::TopK { sources: &sources, k: 5, among, excludes_known };
        let table = TableOut::from(Destination { path: &out, replaces: true });
        predict_links(&trained, on, (table, folder.path()), request, Budget::new(64 << 20, 2), &Silent).unwrap();
        let found = rows(&out);
        for (place, &source) in sources.iter().enumerate() {
            let name = id_of(from, source);
            let (_, row) = users.iter().find(|(id, _)| *id == name).unwrap();
            let is_wanted = |id: &str| {
                let item = (0..ITEMS).map(NodeId).find(|&item| id_of(to, item) == id).unwrap();
                among.is_none_or(|among| among.contains(item))
                    && !(excludes_known && known.contains(&(name.clone(), id.to_owned())))
            };
            let mut scores: Vec<(f32, &str)> = items
                .iter()
                .filter(|(id, _)| is_wanted(id))
                .map(|(id, values)| (product(row, values), id.as_str()))
                .collect();
            scores.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (found, (score, _)) in found[place * 5..][..5].iter().zip(&scores) {
                assert_eq!(found.0, name);
                assert!(is_wanted(&found.1), "{found:?}");
                assert!((found.2 - score).abs() <= 1e-4 * score.abs().max(1.0), "{found:?} {score}");
            }
        }
    }

    // Pairs have the ids of their types, names and numbers.
    fs::write(folder.path().join("pairs.csv"), "user 3,1100\nuser 140,1007\n").unwrap();
    let pairs = read_pairs(on.links.edges, &folder.path().join("pairs.csv")).unwrap();
    let out = folder.path().join("scores.csv");
    let table = TableOut::from(Destination::from(out.as_path()));
    let request = LinkRequest::Pairs(&pairs);
    predict_links(&trained, on, (table, folder.path()), request, Budget::new(64 << 20, 2), &Silent).unwrap();
    let found = rows(&out);
    for (found, (user, item)) in found.iter().zip([("user 3", "1100"), ("user 140", "1007")]) {
        assert_eq!((&*found.0, &*found.1), (user, item));
        let row = |rows: &[(String, Vec<f32>)], id: &str| rows.iter().find(|row| row.0 == id).unwrap().1.clone();
        let score = product(&row(&users, user), &row(&items, item));
        assert!((found.2 - score).abs() <= 1e-4 * score.abs().max(1.0), "{found:?} {score}");
    }
    fs::write(folder.path().join("wrong.csv"), "user 3,5\n").unwrap();
    let error = read_pairs(on.links.edges, &folder.path().join("wrong.csv")).unwrap_err();
    assert!(error.to_string().contains("no destination has the id 5"), "{error}");
}

#[test]
fn a_target_that_is_no_relation_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path());
    let config = links(LayerKind::Rsage);
    let target = |target: &str| TrainConfig { target: Some(target.into()), ..config.clone() };
    for (config, part) in grappa_skip::cases![
        target("user:likes:item"), "there is no relation user:likes:item for --target, which --task link needs as SOURCE:NAME:DESTINATION; \
                                    there are user:buys:item, item:bought_by:user";
        target("item"), "there is no relation item";
        TrainConfig { task: TaskChoice::Auto, ..target("user:buys:item") }, "is a relation: use --task link";
        TrainConfig { model: LayerKind::Sage, ..config.clone() }, "use --model rsage, rgcn, rgat or hgt";
    ] {
        let run_folder = RunFolder::create(&folder.path().join(part.replace([' ', ':'], "-")), &config).unwrap();
        let trained = train(graph.clone(), config, &run_folder, false, Device::Cpu, &mut Watched::default());
        let error = trained.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
