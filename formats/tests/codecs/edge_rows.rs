use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    container::FileKind,
    edge_rows::{EdgeRows, EdgeRowsEncoder, EdgeRowsMeta, WEIGHT},
    features::FeatureLayout,
    manifest::FeatureDtype,
};
use proptest::prelude::*;

use crate::{file, open};

pub fn rows_file(kind: FileKind, layout: FeatureLayout, degrees: &[u64], values: &[f32]) -> Vec<u8> {
    let span = ChunkSpan { chunk: ChunkId(1), first_node: NodeId(500), rows: degrees.len() as u64 };
    let dim = layout.dim as usize;
    let (mut encoder, mut payload, mut rest) = (EdgeRowsEncoder::new(layout), Vec::new(), values);
    for &degree in degrees {
        let (list, others) = rest.split_at(degree as usize * dim);
        encoder.push_list(list);
        // Taken now and then, as by a writer that streams.
        if encoder.ready.len() > 16 {
            payload.append(&mut encoder.ready);
        }
        rest = others;
    }
    payload.extend(encoder.finish());
    let edges = (values.len() / dim) as u64;
    let meta = EdgeRowsMeta { span, edges, layout };
    assert_eq!(payload.len() as u64, EdgeRowsMeta::payload_bytes(layout, edges, span.rows));
    file(kind, meta.encode(kind), &payload)
}

proptest! {
    #[test]
    fn each_list_finds_its_rows(degrees in prop::collection::vec(0..5u64, 0..300), dim in 1u32..4, half: bool) {
        let edges: u64 = degrees.iter().sum();
        let values: Vec<f32> = (0..edges * u64::from(dim)).map(|e| e as f32 / 8.0).collect();
        let dtype = if half { FeatureDtype::F16 } else { FeatureDtype::F32 };
        let (kind, layout) = match (dim, half) {
            (1, false) => (FileKind::WEIGHTS, WEIGHT),
            _ => (FileKind::EDGE_FEATURES, FeatureLayout::new(dtype, dim)),
        };
        let file = rows_file(kind, layout, &degrees, &values);
        let (header, payload) = open(&file, kind);
        let reader = EdgeRows::new(&header, payload).unwrap();
        prop_assert!(reader.check(degrees.iter().copied()).is_ok());
        let mut start = 0;
        for (row, &degree) in degrees.iter().enumerate() {
            let range = reader.range(row as u64, |row| degrees[row as usize]).unwrap();
            prop_assert_eq!(range.clone(), start..start + degree);
            start += degree;
            let mut copied = vec![0.0; (degree * u64::from(dim)) as usize];
            reader.copy(range.clone(), &mut copied);
            let [first, last] = [range.start, range.end].map(|edge| (edge * u64::from(dim)) as usize);
            prop_assert_eq!(&copied[..], &values[first..last]);
            let stride = layout.stride as usize;
            prop_assert_eq!(reader.rows(range).len(), degree as usize * stride);
        }
    }
}
