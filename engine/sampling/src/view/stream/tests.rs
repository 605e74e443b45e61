//! The ring is bounded, pieces arrive in order, and the reader stops when asked to.

use std::{thread, time::Duration};

use crossbeam::channel::{Receiver, Sender, unbounded};
use grappa_formats::{
    edge_rows::ANCHOR_ROWS,
    rows::{RowCodec, RowsMeta},
};

use super::{common::RING_BYTES, plan::pieces, *};
use crate::{
    partition::Owned,
    view::{
        Halo,
        edge_filter::EdgeFilter,
        tests::{any_engine, edge_data, graph::Graph},
    },
};

/// How long to wait for another piece. It only changes how many pieces are seen at a time.
const A_WHILE: Duration = Duration::from_millis(20);

/// The next piece, and those that arrive before its memory is returned.
fn next_pieces(ready: &Receiver<Piece>) -> Vec<Piece> {
    let mut pieces = vec![ready.recv().unwrap()];
    pieces.extend(std::iter::from_fn(|| ready.recv_timeout(A_WHILE).ok()));
    pieces
}

/// Bytes that a piece takes in the ring.
fn piece_bytes(piece: &Piece) -> usize {
    piece.edges.bytes.len() + piece.weights.as_ref().map_or(0, |(_, blocks)| blocks.bytes.len())
}

/// Reads a store of many pieces. `decode` receives the pieces and sends messages to the reader.
fn read(weights: bool, decode: impl FnOnce(&StreamPlan, Receiver<Piece>, Sender<DecoderMessage>)) {
    let store = Graph::mixed(3000).store_with(vec![0, 500, 500, 520, 2000, 3000], weights);
    let owned = Owned::whole(&store.store);
    let filter = EdgeFilter {
        store: &store.store,
        owned: &owned,
        sources: &owned,
        halo: Halo::Stop,
        edge_data: edge_data(weights),
    };
    let plan = StreamPlan::new(&filter).unwrap();
    let (send, ready) = unbounded();
    let (to_reader, messages) = unbounded();
    thread::scope(|scope| {
        scope.spawn(|| {
            let send = send;
            plan.read(&store.store, &any_engine, &send, &messages).unwrap();
        });
        decode(&plan, ready, to_reader);
    });
}

#[test]
fn pieces_arrive_in_order_and_fit_the_ring() {
    for weights in [false, true] {
        read(weights, |plan, ready, to_reader| {
            let expected =
                plan.chunks.iter().flat_map(|chunk| chunk.pieces.iter().map(|nodes| (chunk.chunk, nodes.clone())));
            let expected: Vec<_> = expected.collect();
            assert!(expected.len() > 20);
            let mut seen = Vec::new();
            let mut rounds = 0;
            while seen.len() < expected.len() {
                let held = next_pieces(&ready);
                rounds += 1;
                let bytes: usize = held.iter().map(piece_bytes).sum();
                assert!(bytes <= RING_BYTES || held.len() == 1, "{bytes}");
                for piece in held {
                    assert_eq!(piece.edge_weights().is_empty(), !weights);
                    seen.push((piece.chunk, piece.nodes.clone()));
                    to_reader.send(DecoderMessage::Decoded(piece.into_memory())).unwrap();
                }
            }
            assert_eq!(seen, expected);
            assert!(rounds > 2, "the ring was full");
        });
    }
}

#[test]
fn a_reader_that_waits_for_decoders_stops_when_asked_to() {
    read(false, |plan, ready, to_reader| {
        let held = next_pieces(&ready);
        assert!(held.len() < plan.pieces());
        to_reader.send(DecoderMessage::Stop).unwrap();
        let after = ready.iter().count();
        assert!(held.len() + after < plan.pieces(), "the reader stopped early");
    });
}

#[test]
fn pieces_begin_at_anchors_and_cover_all_nodes() {
    for (nodes, edges) in [(0, 0), (1, 0), (63, 1 << 30), (64, 5), (1000, 1 << 20), (100_000, 1 << 22)] {
        let meta = RowsMeta {
            codec: RowCodec::EliasFano,
            universe: 1 << 20,
            first_node: 0,
            rows: nodes,
            edges,
            edge_bits: 0,
            exceptions: 0,
        };
        let pieces = pieces(&meta);
        let mut next = 0;
        for piece in &pieces {
            assert!(piece.start == next && piece.start < piece.end);
            assert!(piece.start.is_multiple_of(ANCHOR_ROWS));
            next = piece.end;
        }
        assert_eq!(next, nodes);
    }
}
