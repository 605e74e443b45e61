//! Aggregations whose rows are streamed.

use super::*;

type Tile = (Range<u64>, Vec<f32>, Vec<u8>);

/// The tiles that `run` passes on.
fn tiles(run: impl FnOnce(&mut SinkWithRows<'_>) -> Result<()>) -> Vec<Tile> {
    let mut tiles = Vec::new();
    run(&mut |positions, states, own| {
        tiles.push((positions, states.clone(), own.expect("they are kept").to_vec()));
        Ok(())
    })
    .unwrap();
    tiles
}

#[test]
fn an_aggregation_that_begins_before_its_rows_are_made_gives_the_same_bits() {
    let (folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let (_, rows) = whole(&store, &*features);
    let all = NodeSet::all(store.manifest().nodes);
    let mean = Mean { width: DIM };
    // Lists stay in memory, or are read and released piece by piece.
    for (memory, small_bytes) in [(20_000, u64::MAX), (12_000, 0)] {
        let chunks = MappedChunks::open_as(&store, small_bytes).unwrap();
        let space = || StateRows::in_file(folder.path(), all.len(), DIM, FeatureDtype::F32).unwrap();
        let (growing, never_made) = (GrowingRows::new(space()), GrowingRows::new(space()));
        let aggregation_of = |rows| Aggregation {
            store: &store,
            lists: InNeighbors::all(&chunks),
            sources: &all,
            rows,
            destinations: &all,
            budget: Budget { memory, threads: 2 },
        };
        let aggregation = aggregation_of(&growing);
        let mut begun = aggregation.begin(&mean, &Silent).unwrap();
        thread::scope(|scope| {
            let mut writer = growing.writer();
            let added = scope.spawn(|| begun.add_rows());
            for (first, rows) in (0..).step_by(50).zip(rows.chunks(50)) {
                writer.write(first, &rows.concat()).unwrap();
            }
            added.join().unwrap().unwrap();
        });
        let found = tiles(|sink| begun.finish(sink));
        let expected = tiles(|sink| aggregation_of(&*features).run_with_rows(&mean, &Silent, sink));
        assert!(found == expected && found.len() > 1, "{} tiles", found.len());

        let aggregation = aggregation_of(&never_made);
        let mut begun = aggregation.begin(&mean, &Silent).unwrap();
        never_made.writer().write(0, &[1.0; 100 * DIM]).unwrap();
        assert!(matches!(begun.add_rows(), Err(Error::Stopped)));
    }
}

#[test]
fn sets_of_nodes_are_the_same_if_lists_are_released_piece_by_piece() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let found = [0, u64::MAX].map(|small_bytes| {
        let chunks = MappedChunks::open_as(&store, small_bytes).unwrap();
        let lists = InNeighbors::all(&chunks);
        let destinations = lists.destinations(2).unwrap();
        let sources = lists.sources_of(&destinations, 2, &Silent).unwrap();
        let nodes = |set: &NodeSet| set.iter().collect::<Vec<_>>();
        let edges = lists.edges_to(&sources, 2).unwrap();
        (nodes(&destinations), nodes(&sources), edges)
    });
    let (sources, _) = whole(&store, &*store_features(&store).unwrap());
    let destinations = (0..).zip(&sources).filter(|(_, sources)| !sources.is_empty());
    assert!(destinations.map(|(node, _)| NodeId(node)).eq(found[0].0.iter().copied()));
    assert!(found[0] == found[1] && found[0].2 > 0);
}
