//! Tests of views.

mod disk;
pub mod graph;
mod loading;
pub mod types;

use std::sync::Arc;

use grappa_formats::{
    NodeId, PartitionId,
    assignment::{Assignment, Owners},
    rows::RowCodec,
};
use grappa_io::{
    Result,
    progress::Silent,
    read::{Choice, ReadEngine, ReadFile},
};
use grappa_storage::Store;

use self::graph::{Graph, TestStore};
use super::{
    EdgeData, Halo, PartitionView, ViewKind, ViewLists, ViewOptions,
    adjacency::{AdjacencyLists, Degrees, Positions},
    edge_filter::EdgeFilter,
    memory::Csr,
    storage::Storage,
    stream::open_engine,
};
use crate::partition::Owned;

/// The best engine that the machine allows.
pub fn any_engine(files: Arc<[ReadFile]>) -> Result<Box<dyn ReadEngine>> {
    open_engine(Choice::Auto, files)
}

/// Weights and ids of edges, or neither.
pub fn edge_data(all: bool) -> EdgeData {
    EdgeData { weights: all, ids: all, times: false }
}

/// A view of the `owned` nodes, without a memory limit. It has ids of edges if it has weights.
pub fn view(store: &Store, owned: Owned, halo: Halo, edge_weights: bool, kind: ViewKind) -> Result<PartitionView> {
    let mapped_bytes_max = (kind == ViewKind::Mapped).then_some(u64::MAX);
    let edge_data = edge_data(edge_weights);
    let options = ViewOptions { halo, edge_data, mapped_bytes_max, threads: 2, ..ViewOptions::default() };
    PartitionView::open(store, owned, &options)
}

/// A view of a whole store.
pub fn whole(store: &Store, edge_weights: bool, kind: ViewKind) -> Result<PartitionView> {
    view(store, Owned::whole(store), Halo::Stop, edge_weights, kind)
}

/// The kinds that a view can have.
pub const KINDS: [ViewKind; 2] = [ViewKind::Memory, ViewKind::Mapped];

/// Partition 0 of `store`. It owns the given chunks, the first of them as its base.
pub fn owning(store: &Store, chunks: &[u32]) -> Owned {
    let owners: Vec<_> = (0..store.chunks().chunks())
        .map(|chunk| {
            let (mine, other) = (PartitionId(0), PartitionId(1));
            match chunks.iter().position(|&c| c == chunk) {
                Some(0) => (mine, other),
                Some(_) => (other, mine),
                None => (other, PartitionId(2)),
            }
        })
        .map(|(base, variable)| Owners { base, variable: Some(variable) })
        .collect();
    let assignment = Assignment::from_owners(1, 3, "sweep", &owners);
    Owned::new(&assignment, store, PartitionId(0))
}

/// An adjacency list, as samplers read it.
#[derive(Debug, PartialEq)]
pub struct ViewList {
    pub degrees: Degrees,
    pub sources: Vec<u64>,
    pub edge_weights: Vec<f32>,
    pub edge_ids: Vec<u64>,
}

/// The adjacency lists of all nodes, as samplers read them.
pub fn all_lists(view: &PartitionView) -> Vec<ViewList> {
    fn all(lists: &impl AdjacencyLists, view: &PartitionView) -> Vec<ViewList> {
        let read = |node| read_list(lists, NodeId(node), view);
        (0..view.nodes()).map(read).collect()
    }
    match &view.lists() {
        ViewLists::Whole(lists) => all(lists, view),
        ViewLists::Partition(lists) => all(lists, view),
        ViewLists::Mapped(lists) => all(lists, view),
        ViewLists::Halo(lists) => all(lists, view),
        ViewLists::MappedHalo(lists) => all(lists, view),
    }
}

fn read_list<A: AdjacencyLists>(lists: &A, node: NodeId, view: &PartitionView) -> ViewList {
    if let Some(files) = lists.files() {
        files.keep_memory();
    }
    let mut state = A::GroupState::default();
    let mut place = lists.locate(lists.head(node));
    let degrees = lists.degrees(&mut place, &mut state);
    let count = degrees.listed;
    let (mut sources, mut one_by_one, mut edge_weights) = (Vec::new(), Vec::new(), Vec::new());
    let mut edge_ids = Vec::new();
    lists.prefetch_sources(&place, Positions::First(count));
    lists.sources_at(&place, &mut state, Positions::First(count), &mut sources);
    let positions: Vec<_> = (0..count).collect();
    lists.prefetch_sources(&place, Positions::Listed(&positions));
    lists.sources_at(&place, &mut state, Positions::Listed(&positions), &mut one_by_one);
    assert_eq!(sources, one_by_one);
    if view.edge_data().weights {
        lists.edge_weights(&place, &state, count, &mut edge_weights).unwrap();
        lists.edge_ids(&place, &state, Positions::First(count), &mut edge_ids).unwrap();
        let mut listed = Vec::new();
        lists.edge_ids(&place, &state, Positions::Listed(&positions), &mut listed).unwrap();
        assert_eq!(edge_ids, listed);
    }
    ViewList { degrees, sources: sources.into_iter().map(|source| source.0).collect(), edge_weights, edge_ids }
}

/// The adjacency lists that a view must have, computed from the definition.
pub fn expected_lists(graph: &Graph, owned: &Owned, halo: Halo, edge_weights: bool) -> Vec<ViewList> {
    let list_of = |node: usize| {
        if !owned.contains(NodeId(node as u64)) {
            return ViewList { degrees: Degrees::HALO, sources: vec![], edge_weights: vec![], edge_ids: vec![] };
        }
        let list = &graph.lists[node];
        let is_owned = |edge: &(u64, f32)| owned.contains(NodeId(edge.0));
        let before: usize = graph.lists[..node].iter().map(Vec::len).sum();
        let numbered = || (before as u64..).zip(list);
        let mut edges: Vec<_> = numbered().filter(|(_, edge)| is_owned(edge)).collect();
        let visible = edges.len() as u64;
        if halo != Halo::None {
            edges.extend(numbered().filter(|(_, edge)| !is_owned(edge)));
        }
        let degrees = Degrees { visible, global: list.len() as u64, listed: edges.len() as u64, halo: false };
        let (ids, edges): (Vec<_>, Vec<(u64, f32)>) = edges.into_iter().unzip();
        let (sources, all_weights) = edges.into_iter().unzip();
        ViewList {
            degrees,
            sources,
            edge_weights: if edge_weights { all_weights } else { vec![] },
            edge_ids: if edge_weights { ids } else { vec![] },
        }
    };
    (0..graph.lists.len()).map(list_of).collect()
}

#[test]
fn a_whole_view_has_the_adjacency_lists_of_the_graph() {
    for (graph, codec) in
        [(Graph::mixed(3000), "elias-fano"), (Graph::local(20_000), "gap"), (Graph::new(1, |_| vec![]), "elias-fano")]
    {
        for chunks in [1, 7] {
            let store = graph.store(chunks.min(graph.nodes() as u32));
            let found = match store.store.chunk(grappa_formats::ChunkId(0)).unwrap().rows().meta().codec {
                RowCodec::EliasFano => "elias-fano",
                RowCodec::Gap(_) => "gap",
                RowCodec::ByTime => "by time",
            };
            assert_eq!(found, codec, "the graph is an example of the codec");
            for kind in KINDS {
                let view = whole(&store.store, false, kind).unwrap();
                let expected = expected_lists(&graph, view.owned(), Halo::Stop, false);
                assert!(all_lists(&view) == expected, "{chunks} chunks of {codec}, {kind}");
            }
        }
    }
}

#[test]
fn a_partition_sees_the_lists_of_its_nodes_with_owned_sources_first() {
    for graph in [Graph::mixed(3000), Graph::local(5000)] {
        for weighted in [false, true] {
            // Chunks of different sizes, one of them empty.
            let store = graph.store_with(vec![0, 500, 500, 777, 1400, 1500, graph.nodes()], weighted);
            for chunks in [&[1][..], &[0, 1, 2], &[4, 0, 2], &[3, 5]] {
                let owned = owning(&store.store, chunks);
                for (halo, kind) in Halo::ALL.into_iter().flat_map(|halo| KINDS.map(|kind| (halo, kind))) {
                    let view = view(&store.store, owned.clone(), halo, weighted, kind).unwrap();
                    let expected = expected_lists(&graph, &owned, halo, weighted);
                    assert!(all_lists(&view) == expected, "chunks {chunks:?}, {halo}, {kind}");
                }
            }
        }
    }
}

#[test]
fn sources_of_64_bits_equal_those_of_32() {
    // Only graphs of more than 2^32 nodes need 64 bits, which is too large for a test.
    let graph = Graph::mixed(2000);
    let store = graph.store_with(vec![0, 800, 1500, 2000], true);
    for (chunks, halo) in [(&[0, 1, 2][..], Halo::Stop), (&[2, 0], Halo::Stop), (&[1], Halo::None)] {
        let owned = owning(&store.store, chunks);
        let filter =
            EdgeFilter { store: &store.store, owned: &owned, sources: &owned, halo, edge_data: edge_data(true) };
        let mut wide = view(&store.store, owned.clone(), halo, true, ViewKind::Mapped).unwrap();
        wide.lists = Storage::Memory(Csr::load(&filter, false, 2, &any_engine, None, &Silent).unwrap());
        assert!(all_lists(&wide) == expected_lists(&graph, &owned, halo, true));
    }
}

#[test]
fn any_number_of_threads_decodes_the_same_lists() {
    let graph = Graph::local(30_000);
    let store = graph.store(3);
    let expected = expected_lists(&graph, &Owned::whole(&store.store), Halo::Stop, false);
    for threads in [1, 2, 7] {
        let options = ViewOptions { threads, ..ViewOptions::default() };
        let owned = Owned::whole(&store.store);
        let view = PartitionView::open(&store.store, owned, &options).unwrap();
        assert!(all_lists(&view) == expected, "{threads} threads");
    }
}

#[test]
fn views_take_the_bytes_that_the_manifest_says_or_their_limit() {
    let graph = Graph::mixed(3000);
    let store = graph.store_with(vec![0, 1000, 2500, 3000], true);
    for chunks in [&[0, 1, 2][..], &[0, 2]] {
        let owned = owning(&store.store, chunks);
        for (halo, edge_weights) in [(Halo::Stop, false), (Halo::None, false), (Halo::Stop, true)] {
            let lists = expected_lists(&graph, &owned, halo, edge_weights);
            let edges: u64 = lists.iter().map(|list| list.sources.len() as u64).sum();
            let node_bytes = if chunks.len() == 3 { 8 } else { 16 };
            let maxima = if edge_weights && chunks.len() == 3 { 4 * owned.nodes() } else { 0 };
            let bytes = node_bytes * owned.nodes() + 8 + edges * if edge_weights { 8 } else { 4 } + maxima;
            assert_eq!(PartitionView::bytes_in_memory(&store.store, &owned, halo, edge_data(edge_weights)), bytes);
            let in_memory = view(&store.store, owned.clone(), halo, edge_weights, ViewKind::Memory).unwrap();
            assert_eq!((in_memory.kind(), in_memory.bytes()), (ViewKind::Memory, bytes));
        }
    }
}

#[test]
fn mapped_views_share_a_limit() {
    let graph = Graph::mixed(3000);
    let store = graph.store_with(vec![0, 1000, 2500, 3000], false);
    let owned = || vec![owning(&store.store, &[0]), owning(&store.store, &[1, 2])];
    // So little that pages are released again and again, and enough for all.
    for limit in [2, 1 << 30] {
        let options = ViewOptions { mapped_bytes_max: Some(limit), ..ViewOptions::default() };
        let views = PartitionView::open_all(&store.store, owned(), &options, &Arc::default(), None, &Silent).unwrap();
        let taken: u64 = views.iter().map(|view| view.bytes()).sum();
        assert!(taken <= limit && views.iter().all(|view| view.kind() == ViewKind::Mapped));
        for (view, owned) in views.iter().zip(owned()) {
            assert!(all_lists(view) == expected_lists(&graph, &owned, Halo::Stop, false));
        }
    }
}

#[test]
fn missing_edge_weights_are_an_error() {
    let store = Graph::mixed(100).store(2);
    let error = whole(&store.store, true, ViewKind::Memory).unwrap_err().to_string();
    assert!(error.contains("no edge weights"), "{error}");
}

#[test]
fn names_of_options_parse_as_they_are_displayed() {
    for halo in Halo::ALL {
        assert_eq!(halo.to_string().parse::<Halo>().unwrap(), halo);
    }
    for kind in ViewKind::ALL {
        assert_eq!(kind.to_string().parse::<ViewKind>().unwrap(), kind);
    }
    assert!("all".parse::<Halo>().unwrap_err().to_string().contains("stop, neighbors and none"));
    assert!("disk".parse::<ViewKind>().unwrap_err().to_string().contains("auto, memory, in-turn, mapped and sweep"));
}

#[test]
fn adjacency_lists_that_contradict_the_manifest_are_an_error() {
    let store = || Graph::mixed(3000).store(3);
    // A line of the directory has ten bytes, then one byte per degree.
    let change_degree = |store: TestStore, change: fn(u8) -> u8| {
        store.forged("chunk-1/degrees", |payload| {
            let degree = &mut payload[10 + 6];
            *degree = change(*degree);
        })
    };
    for change in [|_| 0, |degree| degree + 5] {
        let store = change_degree(store(), change);
        let error = whole(&store.store, false, ViewKind::Memory).unwrap_err().to_string();
        assert!(error.contains("chunk-1/edges") || error.contains("chunk-2/edges"), "{error}");
    }
}
