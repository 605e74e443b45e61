//! Tests both codecs against rows in plain vectors, and with damage.

use proptest::prelude::*;

use super::{choose::SizeEstimator, *};
use crate::random::GOLDEN;

/// Rows, and the graph they belong to.
#[derive(Debug, Clone)]
struct Naive {
    universe: u64,
    first_node: u64,
    rows: Vec<Vec<u64>>,
}

/// The content of the two files.
struct Files {
    meta: RowsMeta,
    sizes: RowSizes,
    edges: Vec<u8>,
    degrees: Vec<u8>,
}

impl Files {
    fn rows(&self) -> Rows<'_> {
        Rows::new(&self.meta, &self.sizes, &self.edges, &self.degrees).unwrap()
    }
}

impl Naive {
    fn encode(&self, codec: RowCodec) -> Files {
        let mut encoder = RowsEncoder::new(codec, self.universe, self.first_node);
        let mut edges = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            encoder.push(row);
            if i % 3 == 0 {
                assert!(encoder.finished_bytes() < 1 << 20);
                edges.extend(encoder.take_bytes());
            }
        }
        let tail = encoder.finish();
        edges.extend(tail.edges_payload_rest);
        Files {
            meta: RowsMeta::decode(&tail.meta.encode()).unwrap(),
            sizes: RowSizes::from_meta(&tail.meta),
            edges,
            degrees: tail.degrees_payload,
        }
    }

    fn codecs(&self) -> [RowCodec; 3] {
        let mut estimator = SizeEstimator::new(self.universe);
        for (node, row) in (self.first_node..).zip(&self.rows) {
            estimator.add(node, row);
        }
        let code = estimator.gap_code();
        let other =
            GapCode { first_is_relative: !code.first_is_relative, first_k: 0, degree_k: 3, gap_k: 31, run_k: 0 };
        [RowCodec::EliasFano, RowCodec::Gap(code), RowCodec::Gap(other)]
    }
}

/// Random numbers below a bound, from a seed (Knuth's MMIX generator).
fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let high = u128::from(state ^ state >> 29) * u128::from(below);
        (high >> 64) as u64
    }
}

/// Sources of one node: scattered, in runs, few of them often repeated, or one after the other.
fn row(universe: u64) -> impl Strategy<Value = Vec<u64>> {
    let degree = prop_oneof![
        4 => 0..4usize,
        4 => 4..70usize,
        1 => 120..140usize,
        1 => 250..270usize,
        1 => 500..1500usize,
    ];
    (degree, 0..4, any::<u64>()).prop_map(move |(degree, kind, seed)| {
        let mut random = random(seed);
        let mut row = Vec::new();
        while row.len() < degree {
            let from = random(universe);
            match kind {
                0 => row.push(from),
                1 => row.extend((from..universe).take(1 + random(40) as usize)),
                2 => row.extend([from].repeat(1 + random(200) as usize)),
                _ => row.extend((from..universe).take(degree)),
            }
        }
        row.truncate(degree);
        row.sort_unstable();
        row
    })
}

fn naive() -> impl Strategy<Value = Naive> {
    let universe = prop_oneof![
        Just(1u64),
        Just(2),
        Just(3),
        Just(200),
        Just(256),
        Just(1_000_003),
        Just(1 << 32),
        Just((1 << 40) - 1),
        Just(1 << 40),
    ];
    universe
        .prop_flat_map(|universe| {
            let count = 0..universe.min(130) as usize + 1;
            (Just(universe), prop::collection::vec(row(universe), count), any::<u64>())
        })
        .prop_map(|(universe, rows, at)| Naive { universe, first_node: at % (universe - rows.len() as u64 + 1), rows })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rows_read_as_they_were_written(naive in naive(), probes in prop::collection::vec(any::<u64>(), 20)) {
        for codec in naive.codecs() {
            let files = naive.encode(codec);
            let rows = files.rows();
            prop_assert_eq!(files.meta.edges_payload_bytes(), files.edges.len() as u64);
            prop_assert_eq!(files.meta.degrees_payload_bytes(), files.degrees.len() as u64);
            prop_assert_eq!(rows.meta.rows, naive.rows.len() as u64);
            prop_assert_eq!(rows.meta.edges, naive.rows.iter().map(|row| row.len() as u64).sum::<u64>());
            let mut end = 0;
            for (i, expected) in (0..).zip(&naive.rows) {
                let row = rows.row(i);
                prop_assert_eq!(rows.degree(i), expected.len() as u64);
                prop_assert_eq!(row.degree(), expected.len() as u64);
                prop_assert_eq!(row.is_empty(), expected.is_empty());
                let mut decoded = vec![7];
                row.decode_into(&mut decoded);
                prop_assert_eq!(&decoded[1..], &expected[..]);
                prop_assert_eq!(row.iter().len(), expected.len());
                prop_assert!(row.iter().eq(expected.iter().copied()));
                // Each row starts in the byte in which the one before ended.
                let extent = rows.locate(i).extent();
                prop_assert!(extent.start == end || extent.start + 1 == end);
                end = extent.end;
                for &probe in &probes {
                    let x = match expected.get(probe as usize % (expected.len() + 1)) {
                        Some(&source) => (source + probe % 3).saturating_sub(1),
                        None => probe % (naive.universe + 2),
                    };
                    let bound = expected.partition_point(|&source| source < x) as u64;
                    prop_assert_eq!(row.lower_bound(x), bound, "of {} in row {}", x, i);
                }
                if !expected.is_empty() {
                    let mut positions: Vec<u64> = probes.iter().map(|p| p % expected.len() as u64).collect();
                    for &k in &positions {
                        prop_assert_eq!(row.get(k), expected[k as usize]);
                        // Within its own bytes, or in the lines that may follow a block.
                        let near = extent.start..extent.end + 128;
                        prop_assert!(row.touches(k).iter().all(|byte| near.contains(byte)), "{k}: {:?}", row.touches(k));
                    }
                    positions.sort_unstable();
                    let mut got = vec![7];
                    row.get_many(&positions, &mut got);
                    prop_assert!(got[1..].iter().copied().eq(positions.iter().map(|&k| expected[k as usize])));
                }
            }
            let middle = rows.meta.rows / 2;
            for range in [0..rows.meta.rows, middle..rows.meta.rows, middle / 2..middle] {
                let from = range.start as usize;
                for (row, expected) in rows.range(range).zip(&naive.rows[from..]) {
                    prop_assert!(row.iter().eq(expected.iter().copied()));
                }
            }
        }
    }

    #[test]
    fn rows_of_a_part_are_those_of_the_whole(naive in naive(), cuts in prop::collection::vec(any::<u64>(), 2)) {
        for codec in naive.codecs() {
            let files = naive.encode(codec);
            let (rows, count) = (files.rows(), naive.rows.len() as u64);
            let mut cuts: Vec<u64> = cuts.iter().map(|cut| cut % (count + 1)).collect();
            cuts.sort_unstable();
            if cuts[0] == cuts[1] {
                continue;
            }
            let first = rows.locate(cuts[0]).extent().start;
            let end = rows.locate(cuts[1] - 1).extent().end + PADDING_BYTES as u64;
            let part = &files.edges[first as usize..end as usize];
            let in_part = Rows::part(&files.meta, &files.sizes, first, part, &files.degrees).unwrap();
            for (i, expected) in (0..).zip(&naive.rows) {
                prop_assert_eq!(in_part.locate(i), rows.locate(i));
                let mut found = Vec::new();
                in_part.row(i).decode_into(&mut found);
                // Others are empty, or at the edge of the part, and then whole.
                let is_in = (cuts[0]..cuts[1]).contains(&i);
                prop_assert!(&found == expected || !is_in && found.is_empty(), "row {}", i);
                let positions: Vec<u64> = (0..found.len() as u64).collect();
                let mut one_by_one = Vec::new();
                in_part.row(i).get_many(&positions, &mut one_by_one);
                prop_assert_eq!(one_by_one, found);
            }
        }
    }

    #[test]
    fn written_rows_pass_the_check(naive in naive()) {
        for codec in naive.codecs() {
            let files = naive.encode(codec);
            let mut seen = Vec::new();
            files.rows().check(|row, sources| {
                assert_eq!(row, seen.len() as u64);
                seen.push(sources.to_vec());
            })?;
            prop_assert_eq!(&seen, &naive.rows);
        }
    }

    #[test]
    fn the_estimated_size_is_close_to_the_real_size(naive in naive()) {
        let mut estimator = SizeEstimator::new(naive.universe);
        for (node, row) in (naive.first_node..).zip(&naive.rows) {
            estimator.add(node, row);
        }
        for codec in naive.codecs() {
            let meta = naive.encode(codec).meta;
            let estimate = estimator.bits(codec) - (meta.rows * 512).div_ceil(54);
            let slack = match codec {
                RowCodec::EliasFano => 0,
                RowCodec::Gap(_) => meta.edge_bits / 10,
                RowCodec::ByTime => unreachable!("its size is not estimated"),
            };
            prop_assert!(estimate.abs_diff(meta.edge_bits) <= slack, "{} for {}", estimate, meta.edge_bits);
        }
    }
}

#[test]
fn rows_by_time_keep_any_order() {
    let mut random = random(5);
    for universe in [1, 2, 1000, 1 << 40] {
        let rows = (0..120).map(|i| {
            let degree = if i == 70 { 3000 } else { i % 7 };
            (0..degree).map(|_| random(universe)).collect()
        });
        let naive = Naive { universe, first_node: 3, rows: rows.collect() };
        let files = naive.encode(RowCodec::ByTime);
        let rows = files.rows();
        let mut seen = Vec::new();
        rows.check(|_, sources| seen.push(sources.to_vec())).unwrap();
        assert_eq!(seen, naive.rows);
        for (number, expected) in (0..).zip(&naive.rows) {
            let row = rows.row(number);
            assert!(row.is_by_time() && row.degree() == rows.degree(number));
            assert_eq!(&row.iter().collect::<Vec<_>>(), expected);
            let positions: Vec<u64> = (0..row.degree()).rev().step_by(3).collect();
            let mut found = Vec::new();
            row.get_many(&positions, &mut found);
            assert!(positions.iter().map(|&at| expected[at as usize]).eq(found));
        }
    }
}

/// 70 rows of a small graph with hubs, runs and repetitions: every kind of row, and several lines of the directory.
fn sample() -> Naive {
    let mut random = random(1);
    let universe = 5000;
    let rows = (0..70)
        .map(|i| {
            let degree = match i % 29 {
                0 => 0,
                28 => 300 + random(500),
                kind => random(2 * kind),
            };
            let mut row: Vec<u64> = Vec::new();
            while (row.len() as u64) < degree {
                let from = random(universe);
                row.extend((from..universe).take(1 + random(4) as usize * (i % 2) as usize));
            }
            row.truncate(degree as usize);
            row.sort_unstable();
            row
        })
        .collect();
    Naive { universe, first_node: 1000, rows }
}

/// Reads all rows by all methods.
fn read_all(rows: &Rows<'_>) {
    let mut out = Vec::new();
    for i in 0..rows.meta.rows {
        let row = rows.row(i);
        rows.locate(i).extent();
        rows.degree(i);
        out.clear();
        row.decode_into(&mut out);
        assert!(row.degree() <= rows.meta.edges);
        assert!(out.iter().all(|&source| source < rows.meta.universe));
        assert_eq!(row.iter().count(), out.len());
        assert!(row.iter().all(|source| source < rows.meta.universe));
        let bound = row.lower_bound(rows.meta.universe / 2);
        assert!(bound <= row.degree());
        let positions: Vec<u64> = (0..row.degree()).step_by(17).collect();
        out.clear();
        row.get_many(&positions, &mut out);
        assert!(out.iter().all(|&source| source < rows.meta.universe));
        for k in positions {
            assert!(row.get(k) < rows.meta.universe);
        }
    }
    assert_eq!(rows.range(0..rows.meta.rows).count() as u64, rows.meta.rows);
}

#[test]
fn a_flipped_bit_is_found_unless_it_makes_other_valid_rows() {
    let naive = sample();
    for codec in naive.codecs() {
        let mut files = naive.encode(codec);
        files.rows().check(|_, _| {}).unwrap();
        for at in 0..files.edges.len() + files.degrees.len() {
            let bit = 1 << (at * 5 % 8);
            flip(&mut files, at, bit);
            let rows = files.rows();
            read_all(&rows);
            let mut read = Vec::new();
            if rows.check(|_, sources| read.push(sources.to_vec())).is_ok() {
                assert!(at + PADDING_BYTES < files.edges.len(), "byte {at}, {codec:?}");
                assert_ne!(read, naive.rows, "byte {at}, {codec:?}");
            }
            flip(&mut files, at, bit);
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let naive = sample();
    let mut random = random(99);
    for codec in naive.codecs() {
        for round in 0..300 {
            let mut files = naive.encode(codec);
            for _ in 0..1 << (round % 10) {
                let at = random((files.edges.len() + files.degrees.len()) as u64) as usize;
                flip(&mut files, at, random(256) as u8 | 1);
            }
            if round % 7 == 0 {
                files.edges.fill(if round % 2 == 0 { 0xff } else { 0 });
            }
            read_all(&files.rows());
            let _ = files.rows().check(|_, _| {}); // few flips may make other valid rows
        }
    }
}

fn flip(files: &mut Files, at: usize, bits: u8) {
    match at.checked_sub(files.edges.len()) {
        None => files.edges[at] ^= bits,
        Some(at) => files.degrees[at] ^= bits,
    }
}

#[test]
fn damage_is_named_by_file_and_offset() {
    let naive = sample();
    let mut files = naive.encode(RowCodec::EliasFano);
    let at = files.rows().locate(57).extent().start as usize + 40;
    files.edges[at] ^= 4;
    let problem = files.rows().check(|_, _| {}).unwrap_err();
    assert_eq!(problem.part, RowsPart::Edges);
    assert!(problem.error.offset().abs_diff(at as u64) < 1000, "{problem}");
    files.edges[at] ^= 4;
    files.degrees[64 + 7] ^= 1;
    let problem = files.rows().check(|_, _| {}).unwrap_err();
    assert_eq!((problem.part, problem.error.offset()), (RowsPart::Degrees, 64 + 7), "{problem}");
}

#[test]
fn wrong_lengths_are_errors() {
    let files = sample().encode(RowCodec::EliasFano);
    let (edges, degrees) = (&files.edges[..], &files.degrees[..]);
    assert!(Rows::new(&files.meta, &files.sizes, &edges[1..], degrees).is_err());
    assert!(Rows::new(&files.meta, &files.sizes, edges, &degrees[..degrees.len() - 1]).is_err());
    assert!(Rows::new(&files.meta, &files.sizes, edges, &[]).is_err());
}

#[test]
fn impossible_metas_are_errors() {
    let good = RowsMeta {
        codec: RowCodec::EliasFano,
        universe: 100,
        first_node: 10,
        rows: 90,
        edges: 1000,
        edge_bits: 9000,
        exceptions: 1,
    };
    assert_eq!(RowsMeta::decode(&good.encode()), Ok(good));
    for bad in [
        RowsMeta { universe: (1 << 40) + 1, ..good },
        RowsMeta { first_node: (1 << 40) - 89, ..good },
        RowsMeta { first_node: u64::MAX, ..good },
        RowsMeta { universe: 1 << 40, rows: (1 << 32) + 1, ..good },
        RowsMeta { edges: u64::MAX, ..good },
        RowsMeta { edge_bits: 1 << 50, ..good },
        RowsMeta { exceptions: 91, ..good },
    ] {
        assert!(RowsMeta::decode(&bad.encode()).is_err(), "{bad:?}");
    }
    let bytes = good.encode();
    for end in 0..bytes.len() {
        assert!(RowsMeta::decode(&bytes[..end]).is_err());
    }
    for at in 0..8 {
        let mut bad = bytes.clone();
        bad[at] = 0x20;
        assert!(RowsMeta::decode(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn a_huge_row_has_hints_and_a_tiny_graph_has_rows() {
    // 100 000 sources, most of them close together, so that distances of hints vary.
    let universe = 1 << 30;
    let mut row: Vec<u64> = (0..90_000).chain((0..10_000).map(|i| (1 << 29) + i * 50_000)).collect();
    row.sort_unstable();
    let naive = Naive { universe, first_node: 0, rows: vec![vec![], row.clone(), vec![5]] };
    for codec in naive.codecs() {
        let files = naive.encode(codec);
        let read = files.rows().row(1);
        for k in (0..row.len()).step_by(97) {
            assert_eq!(read.get(k as u64), row[k]);
            assert_eq!(read.lower_bound(row[k]), k as u64);
            assert_eq!(read.lower_bound(row[k] + 1), k as u64 + 1);
        }
        assert_eq!(files.rows().row(2).get(0), 5);
    }
    let none = Naive { universe: 0, first_node: 0, rows: vec![] };
    let files = none.encode(RowCodec::EliasFano);
    assert_eq!((files.meta.rows, files.meta.edges), (0, 0));
    files.rows().check(|_, _| {}).unwrap();
}

#[test]
fn random_order_gets_elias_fano_and_locality_gets_gaps() {
    let near: Vec<Vec<u64>> = (0..1000).map(|i| (i..i + 20).collect()).collect();
    let far: Vec<Vec<u64>> = (0..1000u64)
        .map(|i| {
            let mut row: Vec<u64> = (0..20).map(|k| (i * 20 + k).wrapping_mul(GOLDEN) >> 40).collect();
            row.sort_unstable();
            row
        })
        .collect();
    let choose = |rows: &[Vec<u64>]| choose_codec(1 << 24, (0..).zip(rows).map(|(node, row)| (node, &row[..])));
    assert!(matches!(choose(&near), RowCodec::Gap(_)));
    assert_eq!(choose(&far), RowCodec::EliasFano);
}

#[test]
#[should_panic(expected = "do not ascend")]
fn descending_sources_are_the_caller_s_mistake() {
    RowsEncoder::new(RowCodec::EliasFano, 10, 0).push(&[2, 1]);
}

#[test]
#[should_panic(expected = "is not below 10")]
fn a_source_beyond_the_universe_is_the_caller_s_mistake() {
    RowsEncoder::new(RowCodec::EliasFano, 10, 0).push(&[2, 10]);
}
