use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    container::FileKind,
    weights::{Weights, WeightsEncoder, WeightsMeta},
};
use proptest::prelude::*;

use crate::{file, open};

pub fn weights_file(degrees: &[u64], weights: &[f32]) -> Vec<u8> {
    let span = ChunkSpan {
        chunk: ChunkId(1),
        first_node: NodeId(500),
        rows: degrees.len() as u64,
    };
    let (mut encoder, mut payload, mut rest) = (WeightsEncoder::default(), Vec::new(), weights);
    for &degree in degrees {
        let (row, others) = rest.split_at(degree as usize);
        encoder.push_row(row);
        // Taken now and then, as by a writer that streams.
        if encoder.ready_bytes() > 16 {
            payload.extend(encoder.take_bytes());
        }
        rest = others;
    }
    payload.extend(encoder.finish());
    let meta = WeightsMeta {
        span,
        edges: weights.len() as u64,
    };
    file(FileKind::WEIGHTS, meta.encode(), &payload)
}

proptest! {
    #[test]
    fn each_row_finds_its_weights(degrees in prop::collection::vec(0..5u64, 0..300)) {
        let weights: Vec<f32> = (0..degrees.iter().sum()).map(|e| e as f32 / 8.0).collect();
        let file = weights_file(&degrees, &weights);
        let (header, payload) = open(&file, FileKind::WEIGHTS);
        let reader = Weights::new(&header, payload).unwrap();
        prop_assert!(reader.check(degrees.iter().copied()).is_ok());
        let mut start = 0;
        for (row, &degree) in degrees.iter().enumerate() {
            let range = reader.range(row as u64, |row| degrees[row as usize]).unwrap();
            prop_assert_eq!(range.clone(), start..start + degree);
            start += degree;
            let mut copied = vec![0.0; degree as usize];
            reader.copy(range.clone(), &mut copied);
            prop_assert_eq!(&copied[..], &weights[range.start as usize..range.end as usize]);
            prop_assert!(range.clone().all(|edge| reader.get(edge) == weights[edge as usize]));
        }
    }
}
