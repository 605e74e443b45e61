//! Tests of mapped lists that the page cache does not have.

use std::{fs, path::Path};

use grappa_io::map::FaultMeter;
use rustix::fs::{Advice, fadvise};

use super::*;

/// Lists that are on pages of their own.
const STRIDE: usize = 400;

/// Drops the pages of all files under `folder` from the page cache.
fn evict(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            evict(&path);
        } else {
            let file = fs::File::open(&path).unwrap();
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
}

/// The page faults that wait for the disk when some lists are located, each of them on a page of its own.
fn disk_reads<A: AdjacencyLists>(lists: &A, nodes: u64, read_ahead: bool) -> u64 {
    let nodes: Vec<_> = (0..nodes).step_by(STRIDE).map(NodeId).collect();
    let faults = FaultMeter::start();
    if read_ahead {
        nodes.iter().for_each(|&node| lists.files().unwrap().read_ahead_head(node));
    }
    let places: Vec<_> = nodes.iter().map(|&node| lists.locate(lists.head(node))).collect();
    if read_ahead {
        places.iter().for_each(|place| lists.read_ahead_list(place));
    }
    places.iter().for_each(|place| lists.prefetch_list(place));
    lists.files().unwrap().take_damage().unwrap();
    faults.disk_reads()
}

#[test]
fn reads_that_are_started_early_spare_page_faults() {
    let graph = Graph::new(40_000, |node| (0..20).map(|k| (node * 7 + k * k * 97) % 40_000).collect());
    let store = graph.store(2);
    let halves = owning(&store.store, &[0, 1]);
    for owned in [Owned::whole(&store.store), halves] {
        let [without, with] = [false, true].map(|read_ahead| {
            evict(store.store.path());
            let view = view(&store.store, owned.clone(), Halo::Stop, false, ViewKind::Mapped).unwrap();
            let ViewLists::Mapped(lists) = &view.lists() else { unreachable!("the lists are mapped") };
            disk_reads(lists, graph.nodes(), read_ahead)
        });
        if without == 0 {
            grappa_skip::skip!("temporary files cannot be dropped from the page cache");
        }
        assert!(without >= 50 && with * 5 < without, "{without} page faults, {with} after early reads");
    }
}

#[test]
fn samples_from_the_disk_are_those_from_memory() {
    let graph = Graph::mixed(20_000);
    let store = graph.store_with(vec![0, 9000, graph.nodes()], true);
    let in_memory = all_lists(&whole(&store.store, true, ViewKind::Memory).unwrap());
    evict(store.store.path());
    let mapped = whole(&store.store, true, ViewKind::Mapped).unwrap();
    let ViewLists::Mapped(lists) = &mapped.lists() else { unreachable!("the lists are mapped") };
    for node in 0..graph.nodes() {
        lists.files().unwrap().read_ahead_head(NodeId(node));
        lists.read_ahead_list(&lists.locate(lists.head(NodeId(node))));
    }
    assert!(all_lists(&mapped) == in_memory);
}
