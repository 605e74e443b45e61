//! The ring is bounded, pieces come in order, and the reader stops when it is told to.

use std::{thread, time::Duration};

use crossbeam::channel::unbounded;

use super::*;
use crate::{
    partition::Owned,
    view::{
        Halo,
        tests::{any_engine, graph::Graph},
    },
};

/// Nothing depends on it but how much is seen at a time.
const A_WHILE: Duration = Duration::from_millis(20);

/// The next piece, and those that come before it is given back.
fn next_pieces(ready: &Receiver<Piece>) -> Vec<Piece> {
    let mut pieces = vec![ready.recv().unwrap()];
    pieces.extend(std::iter::from_fn(|| ready.recv_timeout(A_WHILE).ok()));
    pieces
}

/// Bytes of a piece in the ring.
fn piece_bytes(piece: &Piece) -> usize {
    piece.edges.bytes.len() + piece.weights.as_ref().map_or(0, |(_, blocks)| blocks.bytes.len())
}

/// Runs the reader of a store of many pieces; `decode` gets the pieces and tells the reader.
fn read(weights: bool, decode: impl FnOnce(&Plan, Receiver<Piece>, Sender<Told>)) {
    let store = Graph::mixed(3000).store_with(vec![0, 500, 500, 520, 2000, 3000], weights);
    let owned = Owned::whole(store.store.chunks());
    let kept = Kept {
        store: &store.store,
        owned: &owned,
        halo: Halo::Stop,
        weights,
    };
    let plan = Plan::new(&kept).unwrap();
    let (send, ready) = unbounded();
    let (tell, told) = unbounded();
    thread::scope(|scope| {
        scope.spawn(|| {
            let send = send;
            plan.read(&store.store, &any_engine, &send, &told).unwrap();
        });
        decode(&plan, ready, tell);
    });
}

#[test]
fn pieces_come_in_order_and_no_more_than_the_ring_holds() {
    for weights in [false, true] {
        read(weights, |plan, ready, tell| {
            let expected = plan
                .chunks
                .iter()
                .flat_map(|chunk| chunk.pieces.iter().map(|rows| (chunk.chunk, rows.clone())));
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
                    assert_eq!(piece.weights().is_empty(), !weights);
                    seen.push((piece.chunk, piece.rows.clone()));
                    tell.send(Told::Decoded(piece.into_spare())).unwrap();
                }
            }
            assert_eq!(seen, expected);
            assert!(rounds > 2, "the ring was full");
        });
    }
}

#[test]
fn a_reader_that_waits_for_decoders_stops_when_it_is_told_to() {
    read(false, |plan, ready, tell| {
        let held = next_pieces(&ready);
        assert!(held.len() < plan.pieces());
        tell.send(Told::Stop).unwrap();
        let after = ready.iter().count();
        assert!(held.len() + after < plan.pieces(), "the channel ends with the reader");
    });
}

#[test]
fn pieces_are_whole_anchors_and_all_rows() {
    for (rows, edges) in [
        (0, 0),
        (1, 0),
        (63, 1 << 30),
        (64, 5),
        (1000, 1 << 20),
        (100_000, 1 << 22),
    ] {
        let meta = RowsMeta {
            codec: grappa_formats::rows::RowCodec::EliasFano,
            universe: 1 << 20,
            first_node: 0,
            rows,
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
        assert_eq!(next, rows);
    }
}
