use super::{error, layered, none};
use crate::config::{TripleNegatives, check_without_triples};

const TRIPLES: &str = "layers = 0\ntask = 'link'\ndecoder = 'complex'\n";

#[test]
fn options_that_contradict_layers_0_say_what_would_do() {
    for (file, expected) in grappa_skip::cases![
        "heads = 2", "heads 2 has no meaning with --layers 0";
        "embedding = 7", "embedding is 7, and the rows of --decoder complex are complex numbers";
        "loss = 'bpr'", "use softmax or bce";
        "margin = 3", "margin is 3, and only --loss bce has one: add --loss bce";
        "distance = 'l1'", "is of --decoder rotate and transe";
        "monitor = 'auc'", "use mrr or hits@10";
        "negative-sampling = 'pairs'", "use shared or all with --layers 0";
        "negative-sampling = 'all'\npartitions = 2", "use --negative-sampling shared, or --partitions 1";
        "negative-sampling = 'all'\nnegatives = 5", "leave one of them out";
        "candidates = 'pairs.csv'", "use --candidates all";
        "optimizer = 'adamw'", "use adam, adagrad or sgd";
        "device = 'cuda'", "--layers 0 trains on the processor";
    ] {
        let message = error(&format!("{TRIPLES}{file}"));
        assert!(message.contains(expected), "{file}: {message}");
    }
    let no_relations = error("layers = 0\ntask = 'link'\ndecoder = 'dot'");
    assert!(no_relations.contains("use --decoder distmult, complex, rotate or transe"), "{no_relations}");
}

#[test]
fn options_of_triples_are_refused_with_layers() {
    for (file, expected) in grappa_skip::cases![
        "decoder = 'rotate'", "decoder rotate is for knowledge graphs";
        "optimizer = 'adagrad'", "optimizer adagrad is for knowledge graphs";
        "negative-sampling = 'all'", "negative-sampling all is for knowledge graphs";
        "n3 = 0.1", "n3 0.1 is for knowledge graphs";
    ] {
        let message = check_without_triples(&layered(file, &none()).unwrap()).unwrap_err().to_string();
        assert!(message.contains(expected), "{file}: {message}");
    }
}

#[test]
fn few_entities_are_all_negatives_and_many_are_drawn() {
    let negatives = |file: &str, entities, partitions| {
        let config = layered(&format!("{TRIPLES}{file}"), &none()).unwrap();
        config.triple_options(entities, partitions).negatives
    };
    assert_eq!(negatives("", 1000, 1), TripleNegatives::All);
    assert_eq!(negatives("", 1000, 4), TripleNegatives::Shared(1024));
    assert_eq!(negatives("", 1 << 20, 1), TripleNegatives::Shared(1024));
    assert_eq!(negatives("negatives = 7", 1000, 1), TripleNegatives::Shared(7));
}

#[test]
fn dropout_of_features_is_dropout_of_rows() {
    let dropout = |file: &str| layered(&format!("{TRIPLES}{file}"), &none()).unwrap().triple_options(10, 1).dropout;
    assert_eq!((dropout(""), dropout("input-dropout = 0.25")), (0.0, 0.25));
    assert!(error(&format!("{TRIPLES}dropout = 0.25")).contains("dropout 0.25 has no meaning with --layers 0"));
}
