//! The command line of `grappa-gen typed`.

use grappa_engine::generate::{Degrees, GraphOptions};

use crate::args::{GenArgs, Output};

fn options(line: &str) -> Result<GraphOptions, String> {
    match GenArgs::read(line.split(' ')).map_err(|error| error.to_string())?.1 {
        Output::Graph(options) => Ok(options),
        other => panic!("{other:?}"),
    }
}

#[test]
fn types_and_relations_have_their_numbers() {
    let line = "grappa-gen typed --nodes user=100 --nodes item=50 --edges user:buys:item=1000 --reverse --degrees buys=even \
                --classes item=5 --feature-dim item=8 --train-fraction 0.5 --out shop";
    let GraphOptions { recipe, features, .. } = options(line).expect("a graph");
    assert_eq!(recipe.node_types.iter().map(|of| (of.nodes, of.classes)).collect::<Vec<_>>(), [(100, 0), (50, 5)]);
    assert_eq!(recipe.node_types[1].splits.expect("not the default").train, 0.5);
    let [buys] = recipe.relations.as_slice() else { panic!("{recipe:?}") };
    assert_eq!((buys.source, buys.destination, buys.edges, buys.degrees), (0, 1, 1000, Degrees::Even));
    assert_eq!(buys.reverse.as_deref(), Some("rev_buys"));
    assert_eq!(features.iter().map(|of| of.as_ref().map(|of| of.dim)).collect::<Vec<_>>(), [None, Some(8)]);
}

#[test]
fn a_preset_has_its_total_of_edges() {
    for preset in ["mag", "shop"] {
        let recipe = options(&format!("grappa-gen typed --preset {preset} --total-edges 1000000 --out x"));
        let edges: u64 = recipe.expect("a graph").recipe.relations.iter().map(|of| of.edges).sum();
        assert!(edges.abs_diff(1_000_000) < 10, "{preset}: {edges}");
    }
}

#[test]
fn mistakes_are_told() {
    let start = "grappa-gen typed --nodes user=100 --nodes item=50 --out x";
    for (rest, expected) in [
        ("--edges user:buys:thing=10", "there is no node type thing"),
        ("--edges buys=10", "as in author:writes:paper=10"),
        ("--edges user:buys:item", "expected a name and a number"),
        ("--edges user:buys:item=10 --feature-dim thing=8", "there are user, item"),
        ("--edges user:buys:item=10 --degrees sells=even", "there is no relation sells"),
        ("--edges user:buys:item=10 --degrees odd", "choose even or skewed"),
        ("--edges user:buys:item=10 --train-fraction 0.1", "use --classes"),
        ("--edges user:buys:item=10 --edges user:buys:item=10", "has the name of another"),
        ("--edges user:buys:item=10 --classes item=51", "1 to 50"),
        ("--edges user:buys:item=10 --preset mag --total-edges 100", "cannot be used with"),
        ("", "--edges"),
    ] {
        let error = options(format!("{start} {rest}").trim()).expect_err(rest);
        assert!(error.contains(expected), "{rest}: {error}");
    }
}
