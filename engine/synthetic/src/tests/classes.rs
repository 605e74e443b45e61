//! Splits, and classes that neighbors tell.

use super::*;

#[test]
fn splits_have_their_shares() {
    let generator = generator(Model::Er(ErdosRenyi::new(100_000, 1.0)), 8);
    let share = |generator: &Generator, split| (0..100_000).filter(|&label| generator.split(label) == split).count();
    for (split, expected) in [(Split::Train, 60_000), (Split::Val, 20_000), (Split::Test, 20_000)] {
        let share = share(&generator, Some(split));
        assert!(share.abs_diff(expected) < 700, "{split:?}: {share}");
    }
    let few = SplitShares { train: 0.01, val: 0.001, test: 0.05 };
    let few = Generator::new(generator.recipe().clone().with_splits(few)).expect("valid options");
    for (split, expected) in
        [(Some(Split::Train), 1000), (Some(Split::Val), 100), (Some(Split::Test), 5000), (None, 93_900)]
    {
        let share = share(&few, split);
        assert!(share.abs_diff(expected) < 400, "{split:?}: {share}");
    }
    let all = generator.recipe().clone().with_splits(SplitShares { train: 0.7, val: 0.2, test: 0.1 });
    assert_eq!(share(&Generator::new(all).expect("valid options"), None), 0);
}

#[test]
fn classes_leave_the_degrees_of_rmat_as_they_are() {
    let plain = Rmat::graph500(13, 16.0);
    for (classes, homophily) in [(7, 0.7), (300, 1.0), (1, 0.5)] {
        let rmat = with_classes(13, classes, homophily);
        let (of_classes, of_plain) = (generator(Model::Rmat(rmat), 4), generator(Model::Rmat(plain.clone()), 4));
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
        assert!(by_node < 1.0, "{classes} classes: out-degrees are {by_node:.2} times as unlike as they may be");
        let (largest, other) = (*found.iter().max().unwrap() as f64, *expected.iter().max().unwrap() as f64);
        assert!((largest - other).abs() < 5.0 * (2.0 * other).sqrt(), "{largest} and {other}");
    }
}

#[test]
fn rmat_sources_are_of_the_destinations_class_as_often_as_asked() {
    for (classes, homophily) in [(7, 0.7), (16, 0.0), (16, 1.0), (300, 0.4)] {
        let generator = generator(Model::Rmat(with_classes(13, classes, homophily)), 9);
        assert_eq!(generator.classes(), classes);
        let class = |label| generator.class(label).expect("a class") as usize;
        let edges = edges(&generator);
        let same = edges.iter().filter(|(source, destination)| class(*source) == class(*destination)).count();
        let share = same as f64 / edges.len() as f64;
        // Sources that are not chosen by class are in the same one by chance, more often if there are few classes.
        let chance = (1.0 - homophily) * 2.5 / f64::from(classes);
        assert!(
            share > homophily - 0.01 && share < homophily + chance + 0.01,
            "{classes} classes, homophily {homophily}: {share}"
        );
        let mut sizes = vec![0; classes as usize];
        (0..generator.nodes()).for_each(|label| sizes[class(label)] += 1);
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 8, "{sizes:?}");
    }
}

/// The class whose mean is nearest.
fn nearest(means: &[f32], row: &[f32]) -> usize {
    let distance = |mean: &[f32]| mean.iter().zip(row).map(|(mean, value)| (mean - value).powi(2)).sum::<f32>();
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
        means[class(label) * DIM..][..DIM].iter_mut().zip(row).for_each(|(mean, value)| *mean += value);
    }
    means.chunks_mut(DIM).zip(sizes).for_each(|(mean, size)| mean.iter_mut().for_each(|value| *value /= size));
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
            sum.iter_mut().zip(&rows[source as usize * DIM..][..DIM]).for_each(|(sum, value)| *sum += value);
        }
        sum.iter_mut().for_each(|value| *value /= sources.len() as f32 + 1.0);
        alone += usize::from(nearest(&means, own) == class(label));
        together += usize::from(nearest(&means, &sum) == class(label));
    }
    let share = |right: usize| right as f64 / f64::from(with_sources);
    let (alone, together) = (share(alone), share(together));
    assert!(alone > 0.2 && alone < 0.65 && together > alone + 0.2, "{alone} and {together}");
}
