use super::*;

fn parse(line: &str) -> Result<Output, clap::Error> {
    GenArgs::read(line.split(' ')).map(|(_, output)| output)
}

fn store(line: &str) -> StoreOptions {
    match parse(line).expect(line) {
        Output::Store(options) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_are_well_formed() {
    GenArgs::command().debug_assert();
}

#[test]
fn the_least_size_follows_from_nodes_edges_and_features() {
    let least = |line: &str| GenArgs::read(line.split(' ')).expect(line).0.least_bytes();
    assert_eq!(least("grappa-gen er --nodes 1000 --edge-factor 2 --out x"), 1000 + 2000);
    assert_eq!(
        least("grappa-gen er --nodes 1000 --edge-factor 2 --feature-dim 8 --feature-dtype f16 --out x"),
        1000 + 2000 + 16_000
    );
    assert_eq!(
        least("grappa-gen er --nodes 1000 --edge-factor 2 --feature-dim 8 --features procedural --out x"),
        1000 + 2000
    );
    assert_eq!(least("grappa-gen er --nodes 1000 --edge-factor 2 --feature-dim 8 --as npy --out x"), 32_000 + 32_000);
    assert_eq!(least("grappa-gen er --nodes 1000 --only-chunks 0 --out x"), 0);
}

#[test]
fn a_list_of_chunks_has_numbers_and_ranges() {
    let options = store("grappa-gen er --nodes 999 --out x --chunks 10 --only-chunks 0,5-7");
    assert_eq!(options.only_chunks, Some(vec![0..=0, 5..=7]));
}

#[test]
fn the_size_is_a_scale_or_a_number_of_nodes() {
    let nodes = |line: &str| store(line).recipe.model.nodes();
    assert_eq!(nodes("grappa-gen rmat --scale 5 --out x"), 32);
    assert_eq!(nodes("grappa-gen rmat --nodes 32 --out x"), 32);
    assert_eq!(nodes("grappa-gen er --nodes 1000 --out x"), 1000);
}

#[test]
fn fractions_make_another_recipe_unless_they_are_the_default() {
    let splits = |line: &str| store(line).recipe.splits;
    assert_eq!(splits("grappa-gen sbm --nodes 1000 --out x"), None);
    assert_eq!(splits("grappa-gen sbm --nodes 1000 --train-fraction 0.6 --out x"), None);
    assert_eq!(splits("grappa-gen rmat --scale 9 --out x"), None);
    let few = splits("grappa-gen rmat --scale 9 --classes 4 --train-fraction 0.01 --out x").unwrap();
    assert_eq!((few.train, few.val, few.test), (0.01, 0.2, 0.2));
}

#[test]
fn nonsensical_options_are_told() {
    for (line, told) in [
        ("rmat --scale 5 --nodes 32", "cannot be used with"),
        ("rmat", "required"),
        ("rmat --nodes 33", "power of two"),
        ("rmat --scale 41", "41"),
        ("rmat --scale 5 --a 0.9", "add up to 1"),
        ("rmat --scale 5 --classes 0", "1 to 32, found 0"),
        ("rmat --scale 5 --classes 33", "1 to 32, found 33"),
        ("rmat --scale 30 --classes 65537", "1 to 65536, found 65537"),
        ("rmat --scale 5 --classes 3 --homophily 1.1", "from 0 to 1"),
        ("rmat --scale 5 --homophily 0.5", "--classes"),
        ("rmat --scale 5 --noise 1", "--classes"),
        ("rmat --scale 5 --train-fraction 0.01", "--classes"),
        ("rmat --scale 5 --classes 3 --train-fraction 0.8", "train 0.8, val 0.2 and test 0.2, which add up to 1.2"),
        ("sbm --nodes 100 --val-fraction=-0.1", "add up to at most 1"),
        ("sbm --nodes 100 --test-fraction nan", "add up to at most 1"),
        ("er --nodes 100 --train-fraction 0.1", "unexpected argument"),
        ("rmat --scale 5 --chunks 33", "33 chunks"),
        ("rmat --scale 5 --chunks 4 --only-chunks 4", "chunks 0 to 3"),
        ("rmat --scale 5 --chunks 4 --only-chunks 3-1", "5-7"),
        ("rmat --scale 5 --edge-factor -1", "-1"),
        ("rmat --scale 5 --feature-dtype f16", "--feature-dim"),
        ("sbm --nodes 100 --homophily 1.5", "from 0 to 1"),
        ("sbm --nodes 100 --classes 101", "found 101"),
        ("er --nodes 0", "nodes"),
        ("er --nodes 9 --as tsv --chunks 2", "--chunks is for stores only"),
        ("er --nodes 9 --as npy --self-loops drop", "--self-loops is for stores only"),
        ("sbm --nodes 9 --as npy --classes 10", "found 10"),
    ] {
        let error = parse(&format!("grappa-gen {line} --out x")).expect_err(line).to_string();
        assert!(error.contains(told), "{line}: {error}");
    }
}
