//! Tests of views.

pub mod graph;
mod loading;

use std::sync::Arc;

use grappa_formats::{
    NodeId, PartitionId,
    assignment::{Assignment, Owners},
    rows::RowCodec,
};
use grappa_io::{
    Error, Result,
    progress::Silent,
    read::{Choice, ReadEngine, ReadFile},
};
use grappa_storage::Store;

use self::graph::{Graph, TestStore};
use super::{
    Csr, Halo, Kept, Kind, PartitionView, ViewKind, ViewOptions, open_engine,
    rows::{Degrees, Positions, Rows, RowsIn},
};
use crate::partition::Owned;

/// The engine that the machine allows.
pub fn any_engine(files: Arc<[ReadFile]>) -> Result<Box<dyn ReadEngine>> {
    open_engine(Choice::Auto, files)
}

/// A view of what is `owned`, with all the memory there is.
pub fn view(store: &Store, owned: Owned, halo: Halo, weights: bool, kind: ViewKind) -> Result<PartitionView> {
    let options = ViewOptions {
        halo,
        weights,
        kind,
        memory: u64::MAX,
        threads: 2,
        engine: Choice::Auto,
    };
    PartitionView::open(store, owned, &options)
}

/// A view of a whole store.
pub fn whole(store: &Store, weights: bool, kind: ViewKind) -> Result<PartitionView> {
    view(store, Owned::whole(store.chunks()), Halo::Stop, weights, kind)
}

/// The kinds that rows can be of.
pub const KINDS: [ViewKind; 2] = [ViewKind::Memory, ViewKind::Mapped];

/// Partition 0 of `store`, which owns these chunks: the first of them as its base.
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
        .map(|(base, variable)| Owners {
            base,
            variable: Some(variable),
        })
        .collect();
    let assignment = Assignment::from_owners(1, 3, "sweep", &owners);
    Owned::of(&assignment, store.chunks(), PartitionId(0))
}

/// A row, as samplers see it.
#[derive(Debug, PartialEq)]
pub struct SeenRow {
    pub degrees: Degrees,
    pub sources: Vec<u64>,
    pub weights: Vec<f32>,
}

/// All rows, as samplers see them.
pub fn seen_rows(view: &PartitionView) -> Vec<SeenRow> {
    fn all(rows: &impl Rows, view: &PartitionView) -> Vec<SeenRow> {
        let see = |node| seen_row(rows, NodeId(node), view);
        (0..view.nodes()).map(see).collect()
    }
    match &view.rows() {
        RowsIn::WholeNarrow(rows) => all(rows, view),
        RowsIn::WholeWide(rows) => all(rows, view),
        RowsIn::PartNarrow(rows) => all(rows, view),
        RowsIn::PartWide(rows) => all(rows, view),
        RowsIn::MappedWhole(rows) => all(rows, view),
        RowsIn::MappedPart(rows) => all(rows, view),
    }
}

fn seen_row<R: Rows>(rows: &R, node: NodeId, view: &PartitionView) -> SeenRow {
    rows.keep_memory();
    let mut notes = R::Notes::default();
    let mut place = rows.locate(rows.head(node));
    let degrees = rows.degrees(&mut place, &mut notes);
    let kept = if view.halo() == Halo::None {
        degrees.visible
    } else {
        degrees.global
    };
    let (mut sources, mut one_by_one, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    rows.prefetch_sources(&place, Positions::First(kept));
    rows.sources_at(&place, &mut notes, Positions::First(kept), &mut sources);
    let positions: Vec<_> = (0..kept).collect();
    rows.prefetch_sources(&place, Positions::These(&positions));
    rows.sources_at(&place, &mut notes, Positions::These(&positions), &mut one_by_one);
    assert_eq!(sources, one_by_one);
    if view.has_weights() {
        rows.weights(&place, &notes, kept, &mut weights).unwrap();
    }
    SeenRow {
        degrees,
        sources: sources.into_iter().map(|source| source.0).collect(),
        weights,
    }
}

/// What rows should be: those of the graph, put in order and cut by definition.
pub fn expected_rows(graph: &Graph, owned: &Owned, halo: Halo, weights: bool) -> Vec<SeenRow> {
    let row = |node: usize| {
        if !owned.contains(NodeId(node as u64)) {
            return SeenRow {
                degrees: Degrees::HALO,
                sources: vec![],
                weights: vec![],
            };
        }
        let row = &graph.rows[node];
        let is_owned = |edge: &&(u64, f32)| owned.contains(NodeId(edge.0));
        let mut edges: Vec<_> = row.iter().filter(is_owned).copied().collect();
        let degrees = Degrees {
            visible: edges.len() as u64,
            global: row.len() as u64,
            halo: false,
        };
        if halo != Halo::None {
            edges.extend(row.iter().filter(|edge| !is_owned(edge)));
        }
        let (sources, all_weights) = edges.into_iter().unzip();
        SeenRow {
            degrees,
            sources,
            weights: if weights { all_weights } else { vec![] },
        }
    };
    (0..graph.rows.len()).map(row).collect()
}

#[test]
fn a_whole_view_has_the_rows_of_the_graph() {
    for (graph, codec) in [
        (Graph::mixed(3000), "elias-fano"),
        (Graph::local(20_000), "gap"),
        (Graph::new(1, |_| vec![]), "elias-fano"),
    ] {
        for chunks in [1, 7] {
            let store = graph.store(chunks.min(graph.nodes() as u32));
            let found = match store
                .store
                .chunk(grappa_formats::ChunkId(0))
                .unwrap()
                .rows()
                .meta()
                .codec
            {
                RowCodec::EliasFano => "elias-fano",
                RowCodec::Gap(_) => "gap",
            };
            assert_eq!(found, codec, "the graph is not the example it should be");
            for kind in KINDS {
                let view = whole(&store.store, false, kind).unwrap();
                let expected = expected_rows(&graph, view.owned(), Halo::Stop, false);
                assert!(seen_rows(&view) == expected, "{chunks} chunks of {codec}, {kind}");
            }
        }
    }
}

#[test]
fn a_partition_sees_the_rows_it_owns_with_its_own_sources_first() {
    for graph in [Graph::mixed(3000), Graph::local(5000)] {
        for weighted in [false, true] {
            // Chunks of any size, an empty one among them.
            let store = graph.store_with(vec![0, 500, 500, 777, 1400, 1500, graph.nodes()], weighted);
            for chunks in [&[1][..], &[0, 1, 2], &[4, 0, 2], &[3, 5]] {
                let owned = owning(&store.store, chunks);
                for (halo, kind) in Halo::ALL.into_iter().flat_map(|halo| KINDS.map(|kind| (halo, kind))) {
                    let view = view(&store.store, owned.clone(), halo, weighted, kind).unwrap();
                    let expected = expected_rows(&graph, &owned, halo, weighted);
                    assert!(seen_rows(&view) == expected, "chunks {chunks:?}, {halo}, {kind}");
                }
            }
        }
    }
}

#[test]
fn sources_of_64_bits_are_those_of_32() {
    // Graphs that need them have more than 2^32 nodes, too many for a test.
    let graph = Graph::mixed(2000);
    let store = graph.store_with(vec![0, 800, 1500, 2000], true);
    for (chunks, halo) in [(&[0, 1, 2][..], Halo::Stop), (&[2, 0], Halo::Stop), (&[1], Halo::None)] {
        let owned = owning(&store.store, chunks);
        let kept = Kept {
            store: &store.store,
            owned: &owned,
            halo,
            weights: true,
        };
        let wide = PartitionView {
            rows: Kind::Wide(Csr::load(&kept, 2, &any_engine, &Silent).unwrap()),
            ..view(&store.store, owned.clone(), halo, true, ViewKind::Memory).unwrap()
        };
        assert!(seen_rows(&wide) == expected_rows(&graph, &owned, halo, true));
        assert_eq!(Csr::<u64>::bytes(&kept), Csr::<u32>::bytes(&kept) + 4 * kept.edges());
    }
}

#[test]
fn any_number_of_threads_decodes_the_same_rows() {
    let graph = Graph::local(30_000);
    let store = graph.store(3);
    let expected = expected_rows(&graph, &Owned::whole(store.store.chunks()), Halo::Stop, false);
    for threads in [1, 2, 7] {
        let options = ViewOptions {
            threads,
            ..in_memory(u64::MAX)
        };
        let owned = Owned::whole(store.store.chunks());
        let view = PartitionView::open(&store.store, owned, &options).unwrap();
        assert!(seen_rows(&view) == expected, "{threads} threads");
    }
}

fn in_memory(memory: u64) -> ViewOptions {
    ViewOptions {
        halo: Halo::Stop,
        weights: false,
        kind: ViewKind::Memory,
        memory,
        threads: 1,
        engine: Choice::Auto,
    }
}

#[test]
fn the_budget_decides_where_rows_are() {
    let graph = Graph::mixed(3000);
    let store = graph.store_with(vec![0, 1000, 2500, 3000], true);
    for chunks in [&[0, 1, 2][..], &[0, 2]] {
        let owned = owning(&store.store, chunks);
        for (halo, weights) in [(Halo::Stop, false), (Halo::None, false), (Halo::Features, true)] {
            let rows = expected_rows(&graph, &owned, halo, weights);
            let edges: u64 = rows.iter().map(|row| row.sources.len() as u64).sum();
            let a_node = if chunks.len() == 3 { 8 } else { 16 };
            let bytes = a_node * owned.nodes() + 8 + edges * if weights { 8 } else { 4 };
            assert_eq!(
                PartitionView::bytes_in_memory(&store.store, &owned, halo, weights),
                bytes
            );
            let open = |kind, memory| {
                let options = ViewOptions {
                    halo,
                    weights,
                    kind,
                    ..in_memory(memory)
                };
                PartitionView::open(&store.store, owned.clone(), &options)
            };
            for (kind, memory, expected) in [
                (ViewKind::Auto, bytes, ViewKind::Memory),
                (ViewKind::Auto, bytes - 1, ViewKind::Mapped),
                (ViewKind::Memory, bytes, ViewKind::Memory),
                (ViewKind::Mapped, bytes, ViewKind::Mapped),
            ] {
                let view = open(kind, memory).unwrap();
                assert_eq!(view.kind(), expected);
                // Mapped, what it may, or what its files have.
                assert!(match expected {
                    ViewKind::Memory => view.bytes() == bytes,
                    _ => (1..=memory).contains(&view.bytes()),
                });
            }
            let error = open(ViewKind::Memory, bytes - 1).unwrap_err();
            assert!(
                matches!(error, Error::Budget { least, .. } if least == bytes),
                "{error}"
            );
        }
    }
}

#[test]
fn views_divide_a_budget_with_features() {
    let graph = Graph::mixed(3000);
    let store = graph.store_with(vec![0, 1000, 2500, 3000], false);
    let owned = || vec![owning(&store.store, &[0]), owning(&store.store, &[1, 2])];
    let bytes = |owned: &Owned| PartitionView::bytes_in_memory(&store.store, owned, Halo::Stop, false);
    let rows: u64 = owned().iter().map(bytes).sum();
    let features = 100 * rows;
    let open = |kind, memory| {
        let options = ViewOptions {
            kind,
            ..in_memory(memory)
        };
        PartitionView::open_all(&store.store, owned(), features, &options, &Silent)
    };
    for (kind, memory, expected) in [
        (ViewKind::Auto, rows + features, ViewKind::Memory),
        (ViewKind::Auto, 4 * rows, ViewKind::Memory),
        (ViewKind::Auto, 4 * rows - 1, ViewKind::Mapped),
        (ViewKind::Memory, rows, ViewKind::Memory),
        (ViewKind::Mapped, rows + features, ViewKind::Mapped),
        // So little that pages are given back all the time.
        (ViewKind::Auto, 8, ViewKind::Mapped),
    ] {
        let views = open(kind, memory).unwrap();
        let taken: u64 = views.iter().map(|view| view.bytes()).sum();
        assert!(views.iter().all(|view| view.kind() == expected));
        match expected {
            ViewKind::Memory => assert_eq!(taken, rows),
            _ => assert!(taken <= memory / 4, "{taken} bytes of {memory}"),
        }
        for (view, owned) in views.iter().zip(owned()) {
            assert!(seen_rows(view) == expected_rows(&graph, &owned, Halo::Stop, false));
        }
    }
    let error = open(ViewKind::Memory, rows - 1).unwrap_err();
    assert!(matches!(error, Error::Budget { least, .. } if least == rows), "{error}");
}

#[test]
fn weights_that_are_not_there_are_an_error() {
    let store = Graph::mixed(100).store(2);
    let error = whole(&store.store, true, ViewKind::Auto).unwrap_err().to_string();
    assert!(error.contains("no edge weights"), "{error}");
}

#[test]
fn names_of_options_are_read_as_they_are_written() {
    for halo in Halo::ALL {
        assert_eq!(halo.to_string().parse::<Halo>().unwrap(), halo);
    }
    for kind in ViewKind::ALL {
        assert_eq!(kind.to_string().parse::<ViewKind>().unwrap(), kind);
    }
    assert!(
        "all"
            .parse::<Halo>()
            .unwrap_err()
            .to_string()
            .contains("features, stop and none")
    );
    assert!(
        "disk"
            .parse::<ViewKind>()
            .unwrap_err()
            .to_string()
            .contains("auto, memory and mapped")
    );
}

#[test]
fn rows_that_disagree_with_the_manifest_are_an_error() {
    let store = || Graph::mixed(3000).store(3);
    // A degree is a byte of the directory, after the ten bytes at the start of a line.
    let change_degree = |store: TestStore, change: fn(u8) -> u8| {
        store.forged("chunk-1/degrees", |payload| {
            let degree = &mut payload[10 + 6];
            *degree = change(*degree);
        })
    };
    for change in [|_| 0, |degree| degree + 5] {
        let store = change_degree(store(), change);
        let error = whole(&store.store, false, ViewKind::Memory).unwrap_err().to_string();
        assert!(
            error.contains("chunk-1/edges") || error.contains("chunk-2/edges"),
            "{error}"
        );
    }
}
