//! Grappa's codecs.

use std::hint::black_box;

use grappa_formats::rows::{RowCodec, RowPlace, RowSizes, Rows, RowsEncoder, RowsMeta};

use super::{
    graph::Csr,
    measure::{Codec, Encoded, FANOUT, GROUP, positions},
    touch,
};

/// Adjacency lists in one of Grappa's codecs.
pub struct Compressed {
    meta: RowsMeta,
    sizes: RowSizes,
    edges: Vec<u8>,
    degrees: Vec<u8>,
}

impl Compressed {
    pub fn new(graph: &Csr, codec: RowCodec) -> Self {
        let mut encoder = RowsEncoder::new(codec, graph.nodes(), 0);
        let mut edges = Vec::new();
        for (_, row) in graph.rows() {
            encoder.push(row);
            if encoder.finished_bytes() > 1 << 20 {
                edges.extend_from_slice(&encoder.take_bytes());
            }
        }
        let tail = encoder.finish();
        edges.extend_from_slice(&tail.edges_payload_rest);
        Self {
            meta: tail.meta,
            sizes: RowSizes::of(&tail.meta),
            edges,
            degrees: tail.degrees_payload,
        }
    }
}

impl Encoded for Compressed {
    type View<'a> = CompressedRows<'a>;

    fn view(&self) -> CompressedRows<'_> {
        let rows = Rows::new(&self.meta, &self.sizes, &self.edges, &self.degrees).expect("just encoded");
        CompressedRows { rows, encoded: self }
    }
}

pub struct CompressedRows<'a> {
    rows: Rows<'a>,
    encoded: &'a Compressed,
}

impl Codec for CompressedRows<'_> {
    fn bits(&self) -> u64 {
        8 * (self.encoded.edges.len() + self.encoded.degrees.len()) as u64
    }

    fn decode_all(&self, out: &mut Vec<u64>) {
        for row in self.rows.range(0..self.rows.rows()) {
            out.clear();
            row.decode_into(out);
            black_box(&out);
        }
    }

    type Place = RowPlace;

    fn touch_places(&self, rows: &[u64; GROUP]) -> u64 {
        rows.iter()
            .map(|&row| u64::from(self.encoded.degrees[self.rows.directory_line(row).start]))
            .sum()
    }

    #[inline(always)]
    fn locate(&self, row: u64) -> RowPlace {
        self.rows.locate(row)
    }

    fn touch_rows(&self, places: &[RowPlace; GROUP]) -> u64 {
        places
            .iter()
            .map(|place| touch(&self.encoded.edges, place.extent()))
            .sum()
    }

    #[inline(always)]
    fn decode_row(&self, place: RowPlace, out: &mut Vec<u64>) {
        self.rows.row_at(&place).decode_into(out);
    }

    #[inline(always)]
    fn sample(&self, place: RowPlace, fractions: &[u32; FANOUT], out: &mut Vec<u64>) {
        let row = self.rows.row_at(&place);
        row.get_many(&positions(row.degree(), fractions), out);
    }
}
