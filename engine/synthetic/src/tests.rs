//! Tests of generated graphs against the definitions of the models, and for reproducibility.
//!
//! Statistical tests use fixed seeds, so they always give the same result. A correct generator exceeds their thresholds once
//! in a million samples.

use grappa_formats::random::GOLDEN;
use xxhash_rust::xxh3::xxh3_64;

use grappa_formats::permutation::Feistel;
use grappa_io::sort::bits_for;

use super::{generator::WINDOW_DRAWS, *};

/// Uneven in every way, so that no two parameters can be mistaken for each other.
const UNEVEN: Rmat = Rmat {
    scale: 13,
    edge_factor: 16.0,
    a: 0.5,
    b: 0.24,
    c: 0.16,
    d: 0.1,
    classes: None,
};

/// Source and destination.
type Edge = (u64, u64);

fn generator(model: Model, seed: u64) -> Generator {
    Generator::new(Recipe::new(model, seed)).expect("valid options")
}

/// All edges.
fn edges(generator: &Generator) -> Vec<Edge> {
    let mut buffer = AdjacencyBuffer::default();
    let mut edges = Vec::new();
    for label in 0..generator.nodes() {
        edges.extend(
            generator
                .sources(label, &mut buffer)
                .iter()
                .map(|&source| (source, label)),
        );
    }
    edges
}

/// The plain R-MAT generator: draws the quadrants of one edge after the other, with a sequential random generator
/// (xorshift64*).
fn reference_edges(rmat: &Rmat, seed: u64) -> Vec<Edge> {
    let mut state = seed.wrapping_mul(GOLDEN) | 1;
    let mut uniform = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / 2f64.powi(53)
    };
    let edges = (rmat.edge_factor * 2f64.powi(rmat.scale as i32)) as usize;
    (0..edges)
        .map(|_| {
            (0..rmat.scale).fold((0, 0), |(source, destination), _| {
                let at = uniform();
                let (source_bit, destination_bit) = if at < rmat.a {
                    (0, 0)
                } else if at < rmat.a + rmat.b {
                    (0, 1)
                } else if at < rmat.a + rmat.b + rmat.c {
                    (1, 0)
                } else {
                    (1, 1)
                };
                (source << 1 | source_bit, destination << 1 | destination_bit)
            })
        })
        .collect()
}

/// The value that chi-square with `freedom` degrees of freedom exceeds with probability 10^-6 (Wilson and Hilferty).
fn chi_square_limit(freedom: usize) -> f64 {
    let (f, z) = (freedom as f64, 4.753);
    f * (1.0 - 2.0 / (9.0 * f) + z * (2.0 / (9.0 * f)).sqrt()).powi(3)
}

/// The chi-square statistic for two samples having the same distribution over bins, divided by its limit. Above 1, the
/// distributions differ. Bins with few counts are merged with the next.
fn unlikeness(left: &[u64], right: &[u64]) -> f64 {
    let mut bins = vec![(0.0, 0.0)];
    for (&l, &r) in left.iter().zip(right) {
        let last = bins.last_mut().expect("never empty");
        *last = (last.0 + l as f64, last.1 + r as f64);
        if last.0 + last.1 >= 20.0 {
            bins.push((0.0, 0.0));
        }
    }
    let rest = bins.pop().expect("never empty");
    let last = bins.last_mut().expect("a bin with something in it");
    *last = (last.0 + rest.0, last.1 + rest.1);
    let (n, m) = bins.iter().fold((0.0, 0.0), |(n, m), (l, r)| (n + l, m + r));
    let ratio = (m / n).sqrt();
    let statistic: f64 = bins
        .iter()
        .map(|(l, r)| (l * ratio - r / ratio).powi(2) / (l + r))
        .sum();
    statistic / chi_square_limit((bins.len() - 1).max(1))
}

/// Compares two sets of R-MAT edges: the largest [`unlikeness`], and the name of the comparison. It compares the four
/// quadrants at each level, the sixteen combinations at each pair of levels, and the logarithmic histograms of in- and
/// out-degrees.
fn rmat_unlikeness(scale: u32, left: &[Edge], right: &[Edge]) -> (f64, String) {
    let quadrant = |&(source, destination): &Edge, level: u32| {
        (source >> level & 1) as usize * 2 + (destination >> level & 1) as usize
    };
    let mut worst = (0.0, String::new());
    let mut compare = |name: String, count: &dyn Fn(&[Edge]) -> Vec<u64>| {
        let found = unlikeness(&count(left), &count(right));
        if found > worst.0 {
            worst = (found, name);
        }
    };
    for level in 0..scale {
        compare(format!("quadrants of bit {level}"), &|edges| {
            let mut counts = vec![0; 4];
            edges.iter().for_each(|edge| counts[quadrant(edge, level)] += 1);
            counts
        });
        for other in 0..level {
            compare(format!("quadrants of bits {level} and {other}"), &|edges| {
                let mut counts = vec![0; 16];
                edges
                    .iter()
                    .for_each(|edge| counts[quadrant(edge, level) * 4 + quadrant(edge, other)] += 1);
                counts
            });
        }
    }
    // The number of nodes with in-degrees (out-degrees) of 0, 1, 2 to 3, 4 to 7, ... These numbers vary less than those of
    // independent draws, because nodes have different means, so the limit is generous.
    let histogram = |ends: &mut dyn Iterator<Item = u64>| {
        let mut degrees = vec![0u64; 1 << scale];
        ends.for_each(|end| degrees[end as usize] += 1);
        let mut counts = vec![0; 65];
        degrees
            .iter()
            .for_each(|&degree| counts[bits_for(degree + 1) as usize] += 1);
        counts
    };
    compare("in-degrees".into(), &|edges| {
        histogram(&mut edges.iter().map(|edge| edge.1))
    });
    compare("out-degrees".into(), &|edges| {
        histogram(&mut edges.iter().map(|edge| edge.0))
    });
    worst
}

#[test]
fn rmat_edges_are_distributed_as_those_of_the_plain_generator() {
    let even = Rmat::graph500(12, 16.0);
    for rmat in [UNEVEN, even] {
        for seed in 1..4 {
            let (left, right) = (
                edges(&generator(Model::Rmat(rmat.clone()), seed)),
                reference_edges(&rmat, seed),
            );
            // The standard deviation of a Poisson number is the root of its mean.
            assert!((left.len() as f64 - right.len() as f64).abs() < 5.0 * (right.len() as f64).sqrt());
            let (worst, name) = rmat_unlikeness(rmat.scale, &left, &right);
            assert!(
                worst < 1.0,
                "{rmat:?}, seed {seed}: {name} differ {worst:.2} times as much as they may"
            );
        }
    }
}

#[test]
fn the_comparison_notices_wrong_probabilities() {
    let right = reference_edges(&UNEVEN, 1);
    let swapped = Rmat {
        b: UNEVEN.c,
        c: UNEVEN.b,
        ..UNEVEN
    };
    let slightly_off = Rmat {
        a: UNEVEN.a + 0.01,
        d: UNEVEN.d - 0.01,
        ..UNEVEN
    };
    for wrong in [swapped, slightly_off] {
        let (worst, _) = rmat_unlikeness(UNEVEN.scale, &edges(&generator(Model::Rmat(wrong.clone()), 1)), &right);
        assert!(worst > 2.0, "{wrong:?} passes with {worst:.2}");
    }
    // Degrees alone also distinguish b from c.
    let transposed: Vec<_> = right
        .iter()
        .map(|&(source, destination)| (destination, source))
        .collect();
    let (worst, _) = rmat_unlikeness(UNEVEN.scale, &transposed, &right);
    assert!(worst > 2.0, "the transposed graph passes with {worst:.2}");
}

#[test]
fn erdos_renyi_sources_are_uniform() {
    let nodes = 1000;
    let generator = generator(
        Model::Er(ErdosRenyi {
            nodes,
            edge_factor: 200.0,
        }),
        3,
    );
    let edges = edges(&generator);
    let (mut out, mut loops) = (vec![0u64; nodes as usize], 0);
    for &(source, destination) in &edges {
        out[source as usize] += 1;
        loops += u64::from(source == destination);
    }
    let expected = edges.len() as f64 / nodes as f64;
    let statistic: f64 = out.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
    assert!(statistic < chi_square_limit(999), "{statistic}");
    assert!(
        (loops as f64 - expected).abs() < 5.0 * expected.sqrt(),
        "{loops} self-loops"
    );
    assert!((edges.len() as f64 - 200_000.0).abs() < 5.0 * 200_000f64.sqrt());
}

#[test]
fn block_model_sources_are_of_the_own_class_as_often_as_asked() {
    for (classes, homophily, degree_growth) in [(7, 0.7, 1.0), (1, 0.3, 1.0), (3, 0.0, 1.4), (1000, 1.0, 1.0)] {
        let block = BlockModel {
            classes,
            homophily,
            degree_growth,
            ..BlockModel::new(1003, 100.0)
        };
        let generator = generator(Model::Sbm(block), 11);
        let edges = edges(&generator);
        let n = edges.len() as f64;
        let class = |label| generator.class(label).expect("a class") as usize;
        let (mut same, mut others, mut sources) = (0.0, vec![0u64; classes as usize], vec![0u64; 1003]);
        for &(source, destination) in &edges {
            sources[source as usize] += 1;
            let apart = (class(source) + classes as usize - class(destination)) % classes as usize;
            same += f64::from(u8::from(apart == 0));
            others[apart] += 1;
        }
        let homophily = if classes == 1 { 1.0 } else { homophily };
        let error = (same - n * homophily).abs();
        assert!(
            error <= 5.0 * (n * homophily * (1.0 - homophily)).sqrt(),
            "{classes} classes: {same} of {n}"
        );
        if homophily < 1.0 {
            let expected = (n - same) / f64::from(classes - 1);
            let statistic: f64 = others[1..]
                .iter()
                .map(|&n| (n as f64 - expected).powi(2) / expected)
                .sum();
            assert!(
                statistic < chi_square_limit(classes as usize - 1),
                "{classes} classes: {statistic}"
            );
        }
        assert!(
            sources.iter().all(|&n| n > 0),
            "a node of {classes} classes is never a source"
        );
    }
}

#[test]
fn splits_have_their_shares() {
    let generator = generator(
        Model::Er(ErdosRenyi {
            nodes: 100_000,
            edge_factor: 1.0,
        }),
        8,
    );
    let share = |generator: &Generator, split| (0..100_000).filter(|&label| generator.split(label) == split).count();
    for (split, expected) in [(Split::Train, 60_000), (Split::Val, 20_000), (Split::Test, 20_000)] {
        let share = share(&generator, Some(split));
        assert!(share.abs_diff(expected) < 700, "{split:?}: {share}");
    }
    let few = SplitShares {
        train: 0.01,
        val: 0.001,
        test: 0.05,
    };
    let few = Generator::new(generator.recipe().clone().with_splits(few)).expect("valid options");
    for (split, expected) in [
        (Some(Split::Train), 1000),
        (Some(Split::Val), 100),
        (Some(Split::Test), 5000),
        (None, 93_900),
    ] {
        let share = share(&few, split);
        assert!(share.abs_diff(expected) < 400, "{split:?}: {share}");
    }
    let all = generator.recipe().clone().with_splits(SplitShares {
        train: 0.7,
        val: 0.2,
        test: 0.1,
    });
    assert_eq!(share(&Generator::new(all).expect("valid options"), None), 0);
}

/// Graph500's model with classes.
fn with_classes(scale: u32, count: u32, homophily: f64) -> Rmat {
    Rmat {
        classes: Some(RmatClasses {
            homophily,
            ..RmatClasses::new(count)
        }),
        ..Rmat::graph500(scale, 16.0)
    }
}

#[test]
fn classes_leave_the_degrees_of_rmat_as_they_are() {
    let plain = Rmat::graph500(13, 16.0);
    for (classes, homophily) in [(7, 0.7), (300, 1.0), (1, 0.5)] {
        let rmat = with_classes(13, classes, homophily);
        let (of_classes, of_plain) = (
            generator(Model::Rmat(rmat), 4),
            generator(Model::Rmat(plain.clone()), 4),
        );
        assert!((0..1 << 13).all(|label| of_classes.degree(label) == of_plain.degree(label)));
        let counts = |ends: &mut dyn Iterator<Item = u64>| {
            let mut degrees = vec![0; 1 << 13];
            ends.for_each(|end| degrees[end as usize] += 1);
            degrees
        };
        let (found, expected) = (edges(&of_classes), reference_edges(&plain, 4));
        let out = |edges: &[Edge]| counts(&mut edges.iter().map(|edge| edge.0));
        // By node, and by the number of nodes of each degree.
        let (found, expected) = (out(&found), out(&expected));
        let by_node = unlikeness(&found, &expected);
        assert!(
            by_node < 1.0,
            "{classes} classes: out-degrees are {by_node:.2} times as unlike as they may be"
        );
        let (largest, other) = (
            *found.iter().max().unwrap() as f64,
            *expected.iter().max().unwrap() as f64,
        );
        assert!(
            (largest - other).abs() < 5.0 * (2.0 * other).sqrt(),
            "{largest} and {other}"
        );
    }
}

#[test]
fn rmat_sources_are_of_the_destinations_class_as_often_as_asked() {
    for (classes, homophily) in [(7, 0.7), (16, 0.0), (16, 1.0), (300, 0.4)] {
        let generator = generator(Model::Rmat(with_classes(13, classes, homophily)), 9);
        assert_eq!(generator.classes(), classes);
        let class = |label| generator.class(label).expect("a class") as usize;
        let edges = edges(&generator);
        let same = edges
            .iter()
            .filter(|(source, destination)| class(*source) == class(*destination))
            .count();
        let share = same as f64 / edges.len() as f64;
        // Sources that are not chosen by class are in the same one by chance, more often if there are few classes.
        let chance = (1.0 - homophily) * 2.5 / f64::from(classes);
        assert!(
            share > homophily - 0.01 && share < homophily + chance + 0.01,
            "{classes} classes, homophily {homophily}: {share}"
        );
        let mut sizes = vec![0; classes as usize];
        (0..generator.nodes()).for_each(|label| sizes[class(label)] += 1);
        assert!(
            sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 8,
            "{sizes:?}"
        );
    }
}

/// The class whose mean is nearest.
fn nearest(means: &[f32], row: &[f32]) -> usize {
    let distance = |mean: &[f32]| {
        mean.iter()
            .zip(row)
            .map(|(mean, value)| (mean - value).powi(2))
            .sum::<f32>()
    };
    let classes = means.chunks(row.len()).map(distance).enumerate();
    classes.min_by(|a, b| a.1.total_cmp(&b.1)).expect("a class").0
}

/// Classifies nodes by their own features and by the mean over their sources, with knowledge of the class means: an upper bound for
/// linear models without edges, and a lower bound for those with them.
#[test]
fn neighbors_tell_the_class_better_than_features_do() {
    const DIM: usize = 64;
    let generator = generator(Model::Rmat(with_classes(13, 16, 0.7)), 3);
    let features = generator.features(DIM);
    let (nodes, classes) = (generator.nodes() as usize, generator.classes() as usize);
    let mut rows = vec![0.0; nodes * DIM];
    for (label, row) in rows.chunks_mut(DIM).enumerate() {
        features.row(label as u64, row);
    }
    let class = |label: usize| generator.class(label as u64).expect("a class") as usize;
    let (mut means, mut sizes) = (vec![0.0; classes * DIM], vec![0.0; classes]);
    for (label, row) in rows.chunks(DIM).enumerate() {
        sizes[class(label)] += 1.0;
        means[class(label) * DIM..][..DIM]
            .iter_mut()
            .zip(row)
            .for_each(|(mean, value)| *mean += value);
    }
    means
        .chunks_mut(DIM)
        .zip(sizes)
        .for_each(|(mean, size)| mean.iter_mut().for_each(|value| *value /= size));
    let (mut alone, mut together, mut with_sources) = (0, 0, 0);
    let mut buffer = AdjacencyBuffer::default();
    for label in 0..nodes {
        let sources = generator.sources(label as u64, &mut buffer);
        if sources.len() < 8 {
            continue;
        }
        with_sources += 1;
        let own = &rows[label * DIM..][..DIM];
        let mut sum = own.to_vec();
        for &source in sources {
            sum.iter_mut()
                .zip(&rows[source as usize * DIM..][..DIM])
                .for_each(|(sum, value)| *sum += value);
        }
        sum.iter_mut().for_each(|value| *value /= sources.len() as f32 + 1.0);
        alone += usize::from(nearest(&means, own) == class(label));
        together += usize::from(nearest(&means, &sum) == class(label));
    }
    let share = |right: usize| right as f64 / f64::from(with_sources);
    let (alone, together) = (share(alone), share(together));
    assert!(
        alone > 0.2 && alone < 0.65 && together > alone + 0.2,
        "{alone} and {together}"
    );
}

fn one_of_each() -> [Model; 5] {
    [
        Model::Rmat(Rmat::graph500(20, 16.0)),
        Model::Rmat(Rmat { scale: 3, ..UNEVEN }),
        Model::Er(ErdosRenyi {
            nodes: 12_345,
            edge_factor: 9.5,
        }),
        Model::Sbm(BlockModel {
            degree_growth: 1.3,
            ..BlockModel::new(98_765, 12.0)
        }),
        Model::Rmat(with_classes(17, 19, 0.6)),
    ]
}

#[test]
fn a_row_is_the_same_whatever_was_made_before_and_however_it_is_asked_for() {
    for model in one_of_each() {
        let generator = generator(model, 21);
        let nodes = generator.nodes();
        let permutation = Feistel::new(nodes, 4);
        let labels: Vec<u64> = (0..nodes.min(50)).chain(nodes - nodes.min(50)..nodes).collect();
        let (mut buffer, mut fresh) = (AdjacencyBuffer::default(), AdjacencyBuffer::default());
        for permutation in [None, Some(&permutation)] {
            let rows = generator.adjacency_lists(&labels, permutation, &mut buffer);
            assert_eq!(rows.edges(), rows.iter().map(<[u64]>::len).sum::<usize>());
            for (&label, row) in labels.iter().zip(rows.iter()) {
                assert_eq!(
                    generator.adjacency_list(label, permutation, &mut AdjacencyBuffer::default()),
                    row
                );
                let mut plain = generator.sources(label, &mut fresh).to_vec();
                assert_eq!(plain.len() as u64, generator.degree(label));
                assert!(plain.len() as u64 <= generator.largest_degree_estimate());
                if let Some(permutation) = permutation {
                    plain
                        .iter_mut()
                        .for_each(|source| *source = permutation.forward(*source));
                }
                plain.sort_unstable();
                assert_eq!(plain, row);
            }
        }
    }
}

#[test]
fn windows_of_a_row_make_up_the_row() {
    let generator = generator(Model::Rmat(Rmat::graph500(20, 16.0)), 2);
    let permutation = Feistel::new(1 << 20, 4);
    let mut buffer = AdjacencyBuffer::default();
    assert!(
        generator.degree(0) > WINDOW_DRAWS,
        "an adjacency list that is drawn in several steps"
    );
    for label in [0, 1, 12_345] {
        let mut joined = Vec::new();
        for window in [0..1, 1..400_000, 400_000..400_000, 400_000..1 << 20] {
            joined.extend_from_slice(generator.adjacency_window(label, Some(&permutation), window, &mut buffer));
        }
        assert_eq!(joined, generator.adjacency_list(label, Some(&permutation), &mut buffer));
    }
}

#[test]
fn graphs_never_change() {
    // If this fails, older graphs can't be generated again and their features can't be read. Keep the old algorithm for its
    // `Recipe::VERSION`.
    let expected: [(u64, u64); 5] = [
        (0x3027_b9f5_dc28_7a7a, 0x61f4_78e8_d730_3e2a),
        (0x6c90_96a9_109e_3647, 0x7514_8999_774f_38b2),
        (0xa97a_4747_6f92_87d8, 0x6647_77c9_1372_6b0b),
        (0x1e6f_4a0c_6c46_06e6, 0x7fe3_68eb_61da_d866),
        (0xe0fe_e9e4_e061_0f6b, 0xeb14_32c5_e19b_df79),
    ];
    let found = one_of_each().map(|model| {
        let generator = generator(model, 77);
        let permutation = Feistel::new(generator.nodes(), 5);
        let labels: Vec<u64> = (0..generator.nodes())
            .step_by(1 + generator.nodes() as usize / 1000)
            .collect();
        let (mut buffer, mut bytes) = (AdjacencyBuffer::default(), Vec::new());
        for row in generator
            .adjacency_lists(&labels, Some(&permutation), &mut buffer)
            .iter()
        {
            bytes.extend_from_slice(&(row.len() as u64).to_le_bytes());
            row.iter()
                .for_each(|source| bytes.extend_from_slice(&source.to_le_bytes()));
        }
        let (features, mut row, mut node_bytes) = (generator.features(33), vec![0.0; 33], Vec::new());
        for &label in &labels {
            features.row(label, &mut row);
            row.iter()
                .for_each(|value| node_bytes.extend_from_slice(&value.to_le_bytes()));
            node_bytes.push(generator.split(label).expect("all nodes are in a split") as u8);
            node_bytes.extend_from_slice(&generator.class(label).unwrap_or(99).to_le_bytes());
        }
        (xxh3_64(&bytes), xxh3_64(&node_bytes))
    });
    assert_eq!(found, expected, "{found:#018x?}");
}

#[test]
fn a_slice_of_the_largest_graphs_can_be_made() {
    for rmat in [
        Rmat::graph500(36, 16.0),
        Rmat::graph500(40, 16.0),
        with_classes(36, 172, 0.7),
    ] {
        let scale = rmat.scale;
        let generator = generator(Model::Rmat(rmat), 1);
        assert_eq!(generator.expected_edges(), 16.0 * 2f64.powi(scale as i32));
        let permutation = Feistel::new(1 << scale, 9);
        let mut buffer = AdjacencyBuffer::default();
        let mut largest = 0;
        for node in (1 << scale) - 2000..1 << scale {
            let row = generator.adjacency_list(permutation.inverse(node), Some(&permutation), &mut buffer);
            assert!(row.is_sorted());
            largest = largest.max(row.last().copied().unwrap_or(0));
        }
        assert!(largest >> (scale - 1) == 1, "sources reach the upper half");
        // The length of the longest adjacency list:
        let estimate = generator.largest_degree_estimate();
        let mean = generator.expected_edges() * 0.76f64.powi(scale as i32);
        assert!(
            (estimate as f64) > mean && (estimate as f64) < mean + 12.0 * mean.sqrt(),
            "{estimate}"
        );
        assert!(estimate >= generator.degree(0));
    }
}

#[test]
fn recipes_survive_their_json() {
    for model in one_of_each() {
        let recipe = Recipe::new(model, u64::MAX - 1);
        assert_eq!(Recipe::from_json(&recipe.to_json()).expect("its own JSON"), recipe);
    }
    // Recipes without classes and shares read as they always did.
    let json = Recipe::new(Model::Rmat(Rmat::graph500(5, 16.0)), 1).to_json();
    assert!(!json.contains("classes") && !json.contains("splits"), "{json}");
    let odd = Recipe::new(
        Model::Rmat(Rmat {
            edge_factor: 0.1 + 0.2,
            a: 1.0 / 3.0,
            ..UNEVEN
        }),
        0,
    );
    assert_eq!(Recipe::from_json(&odd.to_json()).expect("its own JSON"), odd);
    assert!(Recipe::from_json("{}").is_err());
    let later = odd.to_json().replace("\"version\":1", "\"version\":2");
    let error = Generator::new(Recipe::from_json(&later).expect("readable")).expect_err("an algorithm we do not have");
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[test]
fn impossible_options_are_refused_with_the_possible_ones() {
    let er = |nodes, edge_factor| Model::Er(ErdosRenyi { nodes, edge_factor });
    let sbm = |change: fn(&mut BlockModel)| {
        let mut block = BlockModel::new(1000, 10.0);
        change(&mut block);
        Model::Sbm(block)
    };
    for (model, expected) in [
        (Model::Rmat(Rmat { scale: 0, ..UNEVEN }), "1 to 40, found 0"),
        (Model::Rmat(Rmat { scale: 41, ..UNEVEN }), "1 to 40, found 41"),
        (Model::Rmat(Rmat { scale: 99, ..UNEVEN }), "1 to 40, found 99"),
        (Model::Rmat(Rmat { a: 0.6, ..UNEVEN }), "add up to 1"),
        (
            Model::Rmat(Rmat {
                a: 0.9,
                d: -0.3,
                ..UNEVEN
            }),
            "from 0 to 1",
        ),
        (Model::Rmat(Rmat { a: f64::NAN, ..UNEVEN }), "from 0 to 1"),
        (
            Model::Rmat(Rmat {
                scale: 40,
                a: 1.0,
                b: 0.0,
                c: 0.0,
                d: 0.0,
                ..UNEVEN
            }),
            "largest adjacency list",
        ),
        (Model::Rmat(with_classes(8, 0, 0.5)), "1 to 256, found 0"),
        (Model::Rmat(with_classes(8, 257, 0.5)), "1 to 256, found 257"),
        (Model::Rmat(with_classes(20, 65_537, 0.5)), "1 to 65536"),
        (Model::Rmat(with_classes(8, 4, f64::NAN)), "homophily"),
        (er(0, 1.0), "1 to 1099511627776 nodes"),
        (er((1 << 40) + 1, 1.0), "1 to 1099511627776 nodes"),
        (er(10, -1.0), "edge factor"),
        (er(10, f64::NAN), "edge factor"),
        (er(10, 1e10), "edge factor"),
        (sbm(|block| block.classes = 0), "1 to 1000,"),
        (sbm(|block| block.classes = 1001), "1 to 1000,"),
        (sbm(|block| block.homophily = 1.1), "from 0 to 1"),
        (sbm(|block| block.degree_growth = 2.0), "below 2"),
        (sbm(|block| block.noise = f64::INFINITY), "noise"),
        (
            sbm(|block| (block.edge_factor, block.degree_growth) = (1e8, 1.9)),
            "largest adjacency lists",
        ),
    ] {
        let error = Generator::new(Recipe::new(model.clone(), 1))
            .expect_err("impossible options")
            .to_string();
        assert!(error.contains(expected), "{model:?}: {error}");
    }
}
