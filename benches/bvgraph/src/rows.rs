//! BVGraph, of the crate `webgraph`.

use std::{fs, hint::black_box, path::Path};

use dsi_bitstream::traits::BE;
use dsi_progress_logger::no_logging;
use lender::Lender;
use webgraph::{
    graphs::arc_list_graph::ArcListGraph,
    prelude::{
        BvComp, BvGraph, BvGraphSeq, CompFlags, LoadMem, RandomAccessGraph, SequentialLabeling, Static,
        store_ef_with_data,
    },
};

use super::{
    graph::Csr,
    measure::{Codec, Encoded, FANOUT, positions},
};

/// A BVGraph loaded into memory, with static dispatch to its default codes.
pub struct BvRows<G, S> {
    random: G,
    sequential: S,
    bits: u64,
}

pub fn bv_rows(
    graph: &Csr,
    folder: &Path,
    flags: CompFlags,
) -> BvRows<impl RandomAccessGraph, impl SequentialLabeling<Label = usize>> {
    let base = folder.join("graph");
    let arcs = graph
        .rows()
        .flat_map(|(node, row)| row.iter().map(move |&source| (node as usize, source as usize)));
    let arcs = ArcListGraph::new(graph.nodes() as usize, arcs);
    let data = base.with_extension("graph");
    let offsets = base.with_extension("ef");
    BvComp::with_basename(&base)
        .comp_flags(flags)
        .comp_lender::<BE, _>(&arcs, Some(graph.nodes() as usize))
        .expect("compresses");
    store_ef_with_data(
        graph.nodes() as usize,
        &data,
        base.with_extension("offsets"),
        &offsets,
        no_logging![],
    )
    .expect("offsets");
    let bytes = |path: &Path| fs::metadata(path).expect("just written").len();
    BvRows {
        random: BvGraph::with_basename(&base)
            .endianness::<BE>()
            .dispatch::<Static>()
            .mode::<LoadMem>()
            .load()
            .expect("loads"),
        sequential: BvGraphSeq::with_basename(&base)
            .endianness::<BE>()
            .dispatch::<Static>()
            .mode::<LoadMem>()
            .load()
            .expect("loads"),
        bits: 8 * (bytes(&data) + bytes(&offsets)),
    }
}

impl<G: RandomAccessGraph, S: SequentialLabeling<Label = usize>> Encoded for BvRows<G, S> {
    type View<'a>
        = &'a Self
    where
        Self: 'a;

    fn view(&self) -> &Self {
        self
    }
}

impl<G: RandomAccessGraph, S: SequentialLabeling<Label = usize>> Codec for &BvRows<G, S> {
    type Place = u64;

    fn locate(&self, row: u64) -> u64 {
        row
    }

    fn bits(&self) -> u64 {
        self.bits
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        let mut rows = self.sequential.iter();
        while let Some((_, sources)) = rows.next() {
            out.clear();
            out.extend(sources.into_iter().map(|source| source as u64));
            black_box(&out);
        }
    }

    fn decode_row(&self, row: u64, out: &mut Vec<u64>) {
        out.extend(
            self.random
                .successors(row as usize)
                .into_iter()
                .map(|source| source as u64),
        );
    }

    fn sample(&self, row: u64, fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        // There is no random access inside a row, so it is decoded up to the last position.
        let positions = positions(self.random.outdegree(row as usize) as u64, fractions);
        let mut sources = (0..).zip(self.random.successors(row as usize));
        let mut last = (u64::MAX, 0);
        out.extend(positions.iter().map(|&k| {
            if last.0 != k {
                last = sources.find(|&(i, _)| i == k).expect("inside the row");
            }
            last.1 as u64
        }));
    }
}
