//! Copies of rows, and runs that resume.

use grappa_synthetic::ErdosRenyi;

use super::*;

#[test]
fn rows_that_are_read_many_times_are_copied_without_those_that_no_edge_needs() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F16));
    let features = store_features(&store).unwrap();
    let (sources, _) = whole(&store, &*features);
    let mut needed: Vec<u64> = sources.into_iter().flatten().collect();
    needed.sort_unstable();
    needed.dedup();
    assert!(needed.len() * 4 < 3 * store.manifest().nodes as usize, "{}", needed.len());
    let chunks = MappedChunks::open(&store).unwrap();
    let all = NodeSet::all(store.manifest().nodes);
    let mean = Mean { width: DIM };
    for (memory, is_copied) in [(1 << 20, false), (5_000, true)] {
        let graph = WholeGraph {
            relation: (&store).into(),
            rows: &*features,
            edge_values: EdgeValues::Nothing,
            budget: Budget { memory, threads: 2 },
            scratch: Some(store.path()),
        };
        let destinations = InNeighbors::all(&chunks).destinations(2).unwrap();
        let aggregation = Aggregation {
            store: &store,
            lists: InNeighbors::all(&chunks),
            sources: &all,
            rows: &*features,
            destinations: &destinations,
            budget: graph.budget,
        };
        let copy = graph.copy(&aggregation, &mean, &Silent).unwrap();
        assert_eq!(copy.is_some(), is_copied, "{memory} bytes");
        let Some((nodes, rows)) = copy else { continue };
        assert!(nodes.iter().map(|node| node.0).eq(needed.iter().copied()));
        let (mut copied, mut expected) = (vec![0.0; needed.len() * DIM], vec![0.0; needed.len() * DIM]);
        rows.read(0..nodes.len(), &mut copied).unwrap();
        read_each(&*features, &needed, &mut expected, 1).unwrap();
        assert_eq!(copied, expected);
        assert_eq!(rows.layout(), features.layout());
    }
}

#[test]
fn a_run_that_resumes_after_the_last_node_makes_nothing() {
    // Sets of nodes have lines of 384 nodes, and the last line is full.
    let model = Model::Er(ErdosRenyi::new(2 * 384, 1.0));
    let (_folder, store) =
        in_folder(|folder| store_of_model(model, DIM, folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let budget = Budget::new(1 << 20, 2);
    let mean = Mean { width: DIM };
    aggregate(&store, &*features, &mean, 2 * 384, budget, &mut |nodes, _| panic!("{nodes:?} are made already"))
        .unwrap();
}
