//! The adjacency lists of a chunk in each code: `edges` and `degrees` without their containers. And in-degrees alone.
//!
//! An input is the length of the metadata in one byte, the metadata, and the payloads.

use grappa_formats::{
    FormatError, Result,
    rows::{ChunkDegrees, DegreesEncoder, GapCode, RowCodec, RowSizes, Rows, RowsEncoder, RowsMeta, RowsTail},
};
use grappa_tests::random::Random;

use super::shared::outcome;
use crate::{Input, Target, target::Repair};

fn target(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, run: fn(&Input) -> String) -> Target {
    Target {
        name,
        seeds,
        words: &[],
        repair: Repair::Nothing,
        run,
        memory_base: 1 << 20,
        // A run of consecutive sources takes a few bits in gap code.
        memory_per_byte: 1 << 10,
    }
}

pub fn targets() -> Vec<Target> {
    vec![
        target("rows-elias-fano", elias_fano_seeds, run_rows),
        target("rows-gap", gap_seeds, run_rows),
        target("rows-by-time", by_time_seeds, run_rows),
        target("in-degrees", degrees_seeds, run_degrees),
    ]
}

fn elias_fano_seeds() -> Vec<Vec<u8>> {
    [16, 1000, 1 << 40].map(|universe| seed(RowCodec::EliasFano, universe)).to_vec()
}

fn by_time_seeds() -> Vec<Vec<u8>> {
    [16, 1000, 1 << 40].map(|universe| seed(RowCodec::ByTime, universe)).to_vec()
}

fn gap_seeds() -> Vec<Vec<u8>> {
    let seeds = [(true, 2, 1000), (false, 0, 16), (true, 12, 1 << 40)].map(|(first_is_relative, k, universe)| {
        let code = GapCode { first_is_relative, first_k: k, degree_k: k / 2, gap_k: k / 3, run_k: k / 4 };
        seed(RowCodec::Gap(code), universe)
    });
    seeds.to_vec()
}

fn seed(codec: RowCodec, universe: u64) -> Vec<u8> {
    let mut random = Random::new(universe);
    let mut encoder = RowsEncoder::new(codec, universe, 4);
    encoder.push(&[1, 3, 3, 9]);
    encoder.push(&[]);
    encoder.push(&[5, 6, 7, 8, 12]);
    for degree in [1, 0, 2, 130, 17, 300] {
        let mut sources: Vec<u64> = (0..degree).map(|_| random.below(universe)).collect();
        if codec != RowCodec::ByTime {
            sources.sort_unstable();
        }
        encoder.push(&sources);
    }
    encoder.push(&(0..universe.min(200)).collect::<Vec<_>>());
    let RowsTail { edges_payload_rest, degrees_payload, meta } = encoder.finish();
    let meta = meta.encode();
    [&[meta.len() as u8], &meta[..], &edges_payload_rest, &degrees_payload].concat()
}

fn degrees_seeds() -> Vec<Vec<u8>> {
    let seeds = [16, 1000, 1 << 40].map(|universe: u64| {
        let mut encoder = DegreesEncoder::new(universe, 4);
        for degree in [4, 0, 5, 1, 254, 255, 1 << 20, 0, 17] {
            encoder.push(degree);
        }
        let (payload, meta) = encoder.finish();
        let meta = meta.encode();
        [&[meta.len() as u8], &meta[..], &payload].concat()
    });
    seeds.to_vec()
}

/// Decodes the metadata of an input, and passes it and the payloads to `read`.
fn with_meta(input: &Input, read: impl FnOnce(&RowsMeta, &[u8]) -> Result<String>) -> String {
    let (length, rest) = input.choice();
    let (meta, payloads) = rest.split_at(usize::from(length).min(rest.len()));
    let result = RowsMeta::decode(meta).and_then(|meta| {
        assert_eq!(RowsMeta::decode(&meta.encode()).expect("it was just encoded"), meta);
        read(&meta, payloads)
    });
    outcome(result, |problem| problem)
}

fn run_degrees(input: &Input) -> String {
    with_meta(input, |meta, payload| {
        let sizes = RowSizes::from_meta(meta);
        let degrees = ChunkDegrees::new(meta, &sizes, payload)?;
        let directory = degrees.directory();
        let read = || (0..meta.rows).map(|row| directory.degree(row));
        // Before they are checked, none of this may panic.
        read().take(200).for_each(drop);
        degrees.check()?;
        let mut encoder = DegreesEncoder::new(meta.universe, meta.first_node);
        read().for_each(|degree| encoder.push(degree));
        assert_eq!(encoder.finish(), (payload.to_vec(), *meta));
        assert_eq!(read().sum::<u64>(), meta.edges);
        Ok(format!("accepted, exceptions: {}", meta.exceptions > 0))
    })
}

fn run_rows(input: &Input) -> String {
    with_meta(input, |meta, payloads| {
        let edges = usize::try_from(meta.edges_payload_bytes()).unwrap_or(usize::MAX);
        let (edges, degrees) = payloads.split_at(edges.min(payloads.len()));
        read_rows(meta, edges, degrees)
    })
}

fn read_rows(meta: &RowsMeta, edges: &[u8], degrees: &[u8]) -> Result<String> {
    let sizes = RowSizes::from_meta(meta);
    let rows = Rows::new(meta, &sizes, edges, degrees)?;
    // Before rows are checked, none of this may panic, and no row may be longer than its bytes can say.
    let mut sources = Vec::new();
    for row in rows.range(0..rows.meta.rows).take(200) {
        sources.clear();
        row.decode_into(&mut sources);
        let mut counted = 0;
        row.iter().for_each(|_| counted += 1);
        assert_eq!((sources.len() as u64, counted), (row.degree(), row.degree()));
        sources.clear();
        let positions: Vec<u64> = (0..row.degree()).step_by(3).collect();
        row.get_many(&positions, &mut sources);
        if !row.is_by_time() {
            row.lower_bound(8);
        }
    }
    rows.check(|_, _| {}).map_err(|problem| match problem.error {
        FormatError::Invalid { problem, offset } => FormatError::invalid(offset, problem),
        other => other,
    })?;
    let mut encoder = RowsEncoder::new(meta.codec, meta.universe, meta.first_node);
    let mut edges_payload = Vec::new();
    let (mut drawn, mut decoded) = (Vec::new(), Vec::new());
    for row in 0..rows.meta.rows {
        let place = rows.locate(row);
        let found = rows.row_at(&place);
        decoded.clear();
        found.decode_into(&mut decoded);
        assert_eq!(found.iter().collect::<Vec<_>>(), decoded);
        let ascends = !found.is_by_time();
        assert!(!ascends || decoded.is_sorted());
        assert!(decoded.iter().all(|&source| source < meta.universe));
        assert_eq!((rows.degree(row), found.degree()), (decoded.len() as u64, decoded.len() as u64));
        let positions: Vec<u64> = (0..decoded.len() as u64).step_by(5).collect();
        drawn.clear();
        found.get_many(&positions, &mut drawn);
        assert!(drawn.iter().eq(decoded.iter().step_by(5)));
        for &bound in decoded.iter().step_by(17).chain(&[0, meta.universe]).filter(|_| ascends) {
            let expected = decoded.partition_point(|&source| source < bound);
            assert_eq!(found.lower_bound(bound), expected as u64, "the sources below {bound}");
        }
        encoder.push(&decoded);
        edges_payload.extend(encoder.take_bytes());
    }
    let RowsTail { edges_payload_rest, degrees_payload, meta: again } = encoder.finish();
    edges_payload.extend(edges_payload_rest);
    assert_eq!(again, *meta);
    assert!(edges_payload == edges && degrees_payload == degrees, "the same rows make the same bytes");
    Ok(format!("accepted, exceptions: {}", meta.exceptions > 0))
}
