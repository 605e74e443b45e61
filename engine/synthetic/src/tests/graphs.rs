//! Graphs are the same however they are asked for, and impossible options are refused.

use super::*;

fn one_of_each() -> [Model; 5] {
    [
        Model::Rmat(Rmat::graph500(20, 16.0)),
        Model::Rmat(Rmat { scale: 3, ..UNEVEN }),
        Model::Er(ErdosRenyi::new(12_345, 9.5)),
        Model::Sbm(BlockModel { degree_growth: 1.3, ..BlockModel::new(98_765, 12.0) }),
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
                assert_eq!(generator.adjacency_list(label, permutation, &mut AdjacencyBuffer::default()), row);
                let mut plain = generator.sources(label, &mut fresh).to_vec();
                assert_eq!(plain.len() as u64, generator.degree(label));
                assert!(plain.len() as u64 <= generator.largest_degree_estimate());
                if let Some(permutation) = permutation {
                    plain.iter_mut().for_each(|source| *source = permutation.forward(*source));
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
    assert!(generator.degree(0) > WINDOW_DRAWS, "an adjacency list that is drawn in several steps");
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
        let labels: Vec<u64> = (0..generator.nodes()).step_by(1 + generator.nodes() as usize / 1000).collect();
        let (mut buffer, mut bytes) = (AdjacencyBuffer::default(), Vec::new());
        for row in generator.adjacency_lists(&labels, Some(&permutation), &mut buffer).iter() {
            bytes.extend_from_slice(&(row.len() as u64).to_le_bytes());
            row.iter().for_each(|source| bytes.extend_from_slice(&source.to_le_bytes()));
        }
        let (features, mut row, mut node_bytes) = (generator.features(33), vec![0.0; 33], Vec::new());
        for &label in &labels {
            features.row(label, &mut row);
            row.iter().for_each(|value| node_bytes.extend_from_slice(&value.to_le_bytes()));
            node_bytes.push(generator.split(label).expect("all nodes are in a split") as u8);
            node_bytes.extend_from_slice(&generator.class(label).unwrap_or(99).to_le_bytes());
        }
        (xxh3_64(&bytes), xxh3_64(&node_bytes))
    });
    assert_eq!(found, expected, "{found:#018x?}");
}

#[test]
fn a_slice_of_the_largest_graphs_can_be_made() {
    for rmat in [Rmat::graph500(36, 16.0), Rmat::graph500(40, 16.0), with_classes(36, 172, 0.7)] {
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
        assert!((estimate as f64) > mean && (estimate as f64) < mean + 12.0 * mean.sqrt(), "{estimate}");
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
    let odd = Recipe::new(Model::Rmat(Rmat { edge_factor: 0.1 + 0.2, a: 1.0 / 3.0, ..UNEVEN }), 0);
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
        (Model::Rmat(Rmat { a: 0.9, d: -0.3, ..UNEVEN }), "from 0 to 1"),
        (Model::Rmat(Rmat { a: f64::NAN, ..UNEVEN }), "from 0 to 1"),
        (Model::Rmat(Rmat { scale: 40, a: 1.0, b: 0.0, c: 0.0, d: 0.0, ..UNEVEN }), "largest adjacency list"),
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
        (sbm(|block| (block.edge_factor, block.degree_growth) = (1e8, 1.9)), "largest adjacency lists"),
    ] {
        let error = Generator::new(Recipe::new(model.clone(), 1)).expect_err("impossible options").to_string();
        assert!(error.contains(expected), "{model:?}: {error}");
    }
}
