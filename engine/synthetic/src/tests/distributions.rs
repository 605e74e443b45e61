//! Edges are distributed as their models say.

use super::*;

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
                edges.iter().for_each(|edge| counts[quadrant(edge, level) * 4 + quadrant(edge, other)] += 1);
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
        degrees.iter().for_each(|&degree| counts[bits_for(degree + 1) as usize] += 1);
        counts
    };
    compare("in-degrees".into(), &|edges| histogram(&mut edges.iter().map(|edge| edge.1)));
    compare("out-degrees".into(), &|edges| histogram(&mut edges.iter().map(|edge| edge.0)));
    worst
}

#[test]
fn rmat_edges_are_distributed_as_those_of_the_plain_generator() {
    let even = Rmat::graph500(12, 16.0);
    for rmat in [UNEVEN, even] {
        for seed in 1..4 {
            let (left, right) = (edges(&generator(Model::Rmat(rmat.clone()), seed)), reference_edges(&rmat, seed));
            // The standard deviation of a Poisson number is the root of its mean.
            assert!((left.len() as f64 - right.len() as f64).abs() < 5.0 * (right.len() as f64).sqrt());
            let (worst, name) = rmat_unlikeness(rmat.scale, &left, &right);
            assert!(worst < 1.0, "{rmat:?}, seed {seed}: {name} differ {worst:.2} times as much as they may");
        }
    }
}

#[test]
fn the_comparison_notices_wrong_probabilities() {
    let right = reference_edges(&UNEVEN, 1);
    let swapped = Rmat { b: UNEVEN.c, c: UNEVEN.b, ..UNEVEN };
    let slightly_off = Rmat { a: UNEVEN.a + 0.01, d: UNEVEN.d - 0.01, ..UNEVEN };
    for wrong in [swapped, slightly_off] {
        let (worst, _) = rmat_unlikeness(UNEVEN.scale, &edges(&generator(Model::Rmat(wrong.clone()), 1)), &right);
        assert!(worst > 2.0, "{wrong:?} passes with {worst:.2}");
    }
    // Degrees alone also distinguish b from c.
    let transposed: Vec<_> = right.iter().map(|&(source, destination)| (destination, source)).collect();
    let (worst, _) = rmat_unlikeness(UNEVEN.scale, &transposed, &right);
    assert!(worst > 2.0, "the transposed graph passes with {worst:.2}");
}

#[test]
fn erdos_renyi_sources_are_uniform() {
    let nodes = 1000;
    let generator = generator(Model::Er(ErdosRenyi::new(nodes, 200.0)), 3);
    let edges = edges(&generator);
    let (mut out, mut loops) = (vec![0u64; nodes as usize], 0);
    for &(source, destination) in &edges {
        out[source as usize] += 1;
        loops += u64::from(source == destination);
    }
    let expected = edges.len() as f64 / nodes as f64;
    let statistic: f64 = out.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
    assert!(statistic < chi_square_limit(999), "{statistic}");
    assert!((loops as f64 - expected).abs() < 5.0 * expected.sqrt(), "{loops} self-loops");
    assert!((edges.len() as f64 - 200_000.0).abs() < 5.0 * 200_000f64.sqrt());
}

#[test]
fn block_model_sources_are_of_the_own_class_as_often_as_asked() {
    for (classes, homophily, degree_growth) in [(7, 0.7, 1.0), (1, 0.3, 1.0), (3, 0.0, 1.4), (1000, 1.0, 1.0)] {
        let block = BlockModel { classes, homophily, degree_growth, ..BlockModel::new(1003, 100.0) };
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
        assert!(error <= 5.0 * (n * homophily * (1.0 - homophily)).sqrt(), "{classes} classes: {same} of {n}");
        if homophily < 1.0 {
            let expected = (n - same) / f64::from(classes - 1);
            let statistic: f64 = others[1..].iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
            assert!(statistic < chi_square_limit(classes as usize - 1), "{classes} classes: {statistic}");
        }
        assert!(sources.iter().all(|&n| n > 0), "a node of {classes} classes is never a source");
    }
}
