mod effects;
mod resume;
mod triples;

use std::{
    fs,
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
};

use grappa_io::size::ByteSize;
use grappa_sampling::{
    partition::Schedule,
    sample::{RandomWalks, Sampler},
};
use tempfile::tempdir;
use toml::{Table, Value};

use super::*;
use crate::{
    Error, Result,
    model::{Activation, Decoder, FeatureNorm, JumpingKnowledge, LayerKind, NormKind, Precision, RelationAggregate},
};

/// No flags of the user.
fn none() -> Table {
    Table::new()
}

fn flags<const N: usize>(given: [(&str, Value); N]) -> Table {
    given.into_iter().map(|(option, value)| (option.to_owned(), value)).collect()
}

fn layered(file: &str, flags: &Table) -> Result<TrainConfig> {
    let folder = tempdir().unwrap();
    let path = folder.path().join("RUN.toml");
    fs::write(&path, file).unwrap();
    TrainConfig::default().layered(None, Some(&path), flags)
}

fn error(file: &str) -> String {
    layered(file, &none()).expect_err(file).to_string()
}

/// No option has its default value, except the options that [`whole_views`] sets.
fn everything() -> TrainConfig {
    TrainConfig {
        task: TaskChoice::Classes,
        target: Some("paper".into()),
        relation_aggregate: RelationAggregate::Mean,
        bases: Auto::Value(NonZeroUsize::new(4).unwrap()),
        node_embeddings: "user=16".parse().unwrap(),
        loss: LossKind::CrossEntropy,
        focal_gamma: Auto::Value(1.5),
        huber_delta: Auto::Value(0.5),
        class_weights: ClassWeights::Balanced,
        decoder: Decoder::DistMult,
        reciprocal: false,
        distance: DistanceNorm::L1,
        margin: Auto::Value(6.0),
        self_adversarial: 0.5,
        n3: 0.01,
        l2: 0.001,
        embedding: Auto::Value(NonZeroUsize::new(16).unwrap()),
        negatives: Auto::Value(NonZeroU32::new(5).unwrap()),
        negative_sampling: NegativeSampling::Shared,
        negatives_from: Some(PathBuf::from("hard.csv")),
        among: Some(PathBuf::from("items.txt")),
        rank_destinations: true,
        candidates: RankAmong::All,
        temperature: Auto::Value(0.5),
        exclude_targets: Auto::Value(ExcludeTargets::Forward),
        edges_per_epoch: 1000,
        time_split: "80/10/10".parse().unwrap(),
        time_strategy: TimeStrategy::Last,
        time_equal: TimeEqual::Seen,
        seed_time: SeedTime::None,
        time_hops: TimeHops::Edge,
        time_window: Auto::Value(30),
        time_encoding: 8,
        model: LayerKind::Gat,
        layers: 3,
        hidden: 256,
        heads: 8,
        dropout: 0.25,
        input_dropout: 0.125,
        attention_dropout: 0.5,
        activation: Activation::Gelu,
        normalize_features: FeatureNorm::Standard,
        edge_data: EdgeData::Ignore,
        norm: Auto::Value(NormKind::Layer),
        residual: true,
        jumping_knowledge: JumpingKnowledge::Cat,
        fanouts: Auto::Value("20,-1,5".parse().unwrap()),
        replace: true,
        walks: 20,
        walk_steps: 3,
        walk_termination: 0.25,
        batch: Auto::Value(NonZeroUsize::new(64).unwrap()),
        lr: 0.1,
        lr_schedule: LrSchedule::Plateau,
        warmup: 1.5,
        lr_step: 3,
        lr_factor: 0.1,
        lr_patience: 2,
        lr_min: 1e-7,
        optimizer: Optimizer::Sgd,
        weight_decay: "0.0005,0,0.1".parse().unwrap(),
        label_smoothing: 0.1,
        momentum: 0.9,
        clip: 1.0,
        epochs: 7,
        steps_per_epoch: 200,
        sampling: Sampling::Batch,
        partitions: Auto::Value(16),
        concurrent: Auto::Value(4),
        schedule: Schedule::Shuffle,
        repartition_every: 1,
        halo: HaloMode::Stop,
        halo_neighbors: Auto::Value(NonZeroU32::new(7).unwrap()),
        correction: Correction::Node,
        shrinkage: 0.3,
        first_hop: FirstHop::Sampled,
        compress: Compress::TopK,
        compress_rate: Auto::Value("0.01..0.5".parse().unwrap()),
        memory: ByteSize(1_500_000_001),
        threads: Auto::Value(NonZeroUsize::new(2).unwrap()),
        tmp: Some(PathBuf::from("scratch")),
        lookahead: Auto::Value(NonZeroUsize::new(3).unwrap()),
        read_engine: ReadEngine::Pread,
        seed: u64::MAX,
        precision: Precision::Bf16,
        device: DeviceChoice::Cuda(Some(1)),
        evaluate: Evaluate::Exact,
        evaluate_states: Precision::F32,
        eval_every: 2,
        monitor: Monitor::Loss,
        early_stopping: 10,
        checkpoint_every: 0,
        checkpoint_minutes: 0.5,
        keep: 1,
        init_from: Some(PathBuf::from("runs/before")),
        class_names: Some(PathBuf::from("classes.txt")),
        out: Some(PathBuf::from("runs/a b")),
        full_graph: false,
        last_heads: Auto::Auto,
        extension: Table::new(),
    }
}

/// Like [`everything`], but without fanouts and batches, and with the options that require this.
fn whole_views() -> TrainConfig {
    TrainConfig {
        full_graph: true,
        fanouts: Auto::Auto,
        batch: Auto::Auto,
        last_heads: Auto::Value(NonZeroUsize::new(2).unwrap()),
        jumping_knowledge: JumpingKnowledge::None,
        ..everything()
    }
}

#[test]
fn defaults_are_sound_and_resolve_to_what_the_paper_and_pyg_use() {
    let config = TrainConfig::default().layered(None, None, &none()).unwrap();
    assert_eq!(config, TrainConfig::default());
    assert_eq!(config.fanouts().to_string(), "15,10");
    assert_eq!((config.batch(), config.concurrent()), (1024, 1));
    assert!(config.threads() >= 1);
}

#[test]
fn unset_options_follow_from_the_others() {
    let config = TrainConfig { layers: 4, partitions: Auto::Value(16), ..TrainConfig::default() };
    check(&config).unwrap();
    assert_eq!(config.fanouts().to_string(), "15,10,5,5");
    assert_eq!((config.concurrent(), config.batch()), (16, 64));
    // Numbers are written as numbers, and `auto` is one partition until a store is known.
    assert_eq!(config.table()["partitions"].as_integer(), Some(16));
    assert_eq!(TrainConfig::default().table()["partitions"].as_str(), Some("auto"));
    assert_eq!(TrainConfig::default().partitions(), 1);
    let config_for = |model| TrainConfig { model, ..TrainConfig::default() };
    assert_eq!(config_for(LayerKind::Sage).norm(), NormKind::None);
    assert_eq!(config_for(LayerKind::Gin).norm(), NormKind::Batch);
}

#[test]
fn pinsage_keeps_as_many_visited_nodes_at_each_hop() {
    let pinsage = |fanouts: Option<&str>| TrainConfig {
        model: LayerKind::PinSage,
        fanouts: fanouts.map_or(Auto::Auto, |fanouts| Auto::Value(fanouts.parse().unwrap())),
        ..TrainConfig::default()
    };
    let walks = RandomWalks { hops: 2, walks: 50, steps: 2, termination: 0.5, neighbors: 10 };
    let expected = Sampler::random_walks(walks).unwrap();
    assert_eq!(pinsage(None).sampler(false).unwrap(), expected);
    let five = RandomWalks { neighbors: 5, ..walks };
    assert_eq!(pinsage(Some("5,5")).sampler(false).unwrap(), Sampler::random_walks(five).unwrap());
    for fanouts in ["15,10", "10,-1", "-1,-1"] {
        let error = check(&pinsage(Some(fanouts))).unwrap_err().to_string();
        assert!(error.contains(fanouts) && error.contains("the same number for each"), "{error}");
    }
}

#[test]
fn heads_that_cannot_share_the_hidden_values_are_refused_where_there_are_heads() {
    let with_three = |model| TrainConfig { model, heads: 3, ..TrainConfig::default() };
    check(&with_three(LayerKind::Sage)).unwrap();
    for model in [LayerKind::Gat, LayerKind::Gatv2] {
        let error = check(&with_three(model)).unwrap_err().to_string();
        assert!(error.contains("heads is 3, which does not divide hidden, 128"), "{error}");
    }
}

#[test]
fn a_configuration_reads_back_to_itself() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("config.toml");
    for config in [TrainConfig::default(), everything(), whole_views()] {
        check(&config).unwrap();
        fs::write(&path, config.to_toml()).unwrap();
        assert_eq!(TrainConfig::read(&path).unwrap(), config, "{}", config.to_toml());
    }
    let text = everything().to_toml();
    for line in [
        "threads = 2",
        "fanouts = \"20,-1,5\"",
        "memory = \"1500000001\"",
        "seed = \"18446744073709551615\"",
        "weight-decay = \"0.0005,0,0.1\"",
        "jumping-knowledge = \"cat\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[test]
fn files_go_over_defaults_and_flags_over_files() {
    let file = "layers = 3\nfanouts = [10, 5, 5]\nhidden = 64\nmemory = '512MiB'\nbatch = 32";
    let config = layered(file, &flags([("hidden", 256.into()), ("model", "gcn".into())])).unwrap();
    let expected = TrainConfig {
        layers: 3,
        fanouts: Auto::Value("10,5,5".parse().unwrap()),
        hidden: 256,
        memory: ByteSize(512 << 20),
        batch: Auto::Value(NonZeroUsize::new(32).unwrap()),
        model: LayerKind::Gcn,
        ..TrainConfig::default()
    };
    assert_eq!(config, expected);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_what_may_be_meant() {
    let text = error("layers = 2\n\nweight_decay = 0.1\n");
    assert!(text.contains("RUN.toml:3: there is no option `weight_decay`; did you mean `weight-decay`?"), "{text}");
    let text = error("hiden = 2");
    assert!(text.contains("RUN.toml:1:") && text.contains("did you mean `hidden`?"), "{text}");
    let text = error("color = 'red'");
    assert!(text.contains("no option `color`") && text.contains("batch, candidates, checkpoint-every"), "{text}");
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_what_would_be_right() {
    for (file, expected) in grappa_skip::cases![
        "model = 'sgae'", "use sage, sage-max, gcn, gat, gatv2, gin, gine, transformer, pinsage, rsage, rgcn, rgat or hgt";
        "epochs = 1\nlayers = -1", "RUN.toml:2:";
        "layers = 'two'", "layers is \"two\"; it must be a whole number, 0 or more, such as 2";
        "layers = -1", "layers is -1; it must be a whole number";
        "epochs = 1.5", "epochs is 1.5; it must be a whole number";
        "seed = 1\nlr = '0.1'", "RUN.toml:2: lr is \"0.1\"; it must be a number, such as 0.003";
        "lr = true", "lr is true; it must be a number";
        "'lr' = [0.1]", "lr is [0.1]; it must be a number";
        "fanouts = '15,x'", "fanout 2 of the list";
        "fanouts = [15, 0]", "fanout 2 of the list";
        "memory = '2 apples'", "unknown unit `apples`";
        "schedule = 'spiral'", "sweep, shuffle, fixed and local";
        "batch = 0", "neither `auto` nor a value: it must be at least 1";
        "device = 'tpu'", "use auto, cpu, cuda or cuda:N";
        "compress = 'topk'", "did you mean `top-k`?";
        "compress-rate = '0.1-0.5'", "`0.1-0.5` is no rate: give a share such as 0.01, or a range such as 0.01..0.5";
        "seed = -1", "invalid digit";
        "residual = 'yes'", "residual is \"yes\"; it must be true or false";
        "layers = 2\nlayers = 3", "RUN.toml:2:";
        "layers = ", "RUN.toml:1:";
    ] {
        let text = error(file);
        assert!(text.contains(expected) && text.contains("RUN.toml:") && !text.contains('\n'), "{file}: {text}");
    }
    let missing =
        TrainConfig::default().layered(None, Some(&PathBuf::from("no/such.toml")), &none()).unwrap_err().to_string();
    assert!(missing.contains("cannot open no/such.toml"), "{missing}");
}

#[test]
fn values_out_of_range_and_contradictions_say_what_would_do() {
    for (file, expected) in grappa_skip::cases![
        "layers = 0", "layers is 0, which learns rows of entities from triples: add --task link";
        "epochs = 0", "epochs is 0";
        "layers = 1000000", "layers is 1000000; it must be at most 256";
        "walks = 4294967295", "walks is 4294967295; it must be at most 10000";
        "walk-steps = 4294967295", "walk-steps is 4294967295; it must be at most 1000";
        "threads = 1000000", "threads is 1000000; it must be at most 4096";
        "keep = 0", "keep is 0";
        "dropout = 1", "dropout is 1; it must be from 0 to below 1";
        "dropout = nan", "dropout is NaN";
        "lr = 0", "lr is 0; it must be above 0";
        "lr = inf", "lr is inf";
        "lr-min = 0.1", "lr-min is 0.1; it must be from 0 to lr";
        "clip = -1", "clip is -1; it must be 0 or more";
        "shrinkage = 1.5", "from 0 to 1";
        "layers = 3\nfanouts = '15,10'", "fanouts 15,10 are for 2 layer(s), and the model has 3";
        "partitions = 4\nconcurrent = 5", "concurrent is 5, and there are 4 partition(s)";
        "momentum = 0.9", "the optimizer adam has none: use `--optimizer sgd`";
        "input-dropout = 1", "input-dropout is 1; it must be from 0 to below 1";
        "label-smoothing = -0.1", "label-smoothing is -0.1";
        "weight-decay = -1", "weight-decay is -1; it must be 0 or more";
        "weight-decay = [0.1, nan]", "weight-decay is NaN";
        "weight-decay = '0.1,0,0'", "weight-decay 0.1,0,0 is for 3 layers, and the model has 2";
        "attention-dropout = 0.6", "attention-dropout is 0.6, and the model sage has no attention";
        "model = 'gcn'\nlast-heads = 1", "last-heads is 1, and the model gcn has no attention";
        "model = 'gat'\nlast-heads = 1\njumping-knowledge = 'max'", "last-heads is 1, and jumping-knowledge is max";
        "first-hop = 'preaggregated'\ninput-dropout = 0.5",
            "--input-dropout 0.5 needs the features of neighbors, and `--first-hop preaggregated` has only their sums";
        "first-hop = 'preaggregated'\nnormalize-features = 'row'",
            "--normalize-features row needs the features of neighbors";
        "compress = 'top-k'\ncompress-rate = 0", "compress-rate is 0; it must be above 0 and at most 1";
        "compress = 'top-k'\ncompress-rate = 1.5", "compress-rate is 1.5; it must be";
        "compress = 'top-k'\ncompress-rate = '0.1..nan'", "compress-rate is 0.1..NaN; it must be";
        "compress = 'top-k'\ncompress-rate = '0.5..0.1'",
            "compress-rate is 0.5..0.1; a rate cannot fall: give the smaller one first";
        "compress = 'int8'\ncompress-rate = 0.1",
            "compress-rate is 0.1, and `--compress int8` has no rate: use `--compress top-k`";
        "compress-rate = 0.1", "`--compress none` has no rate";
        "candidates = 0", "`0` candidates: give 1 to 4294967295, or all";
        "task = 'link'\nnegatives-from = 'hard.csv'\nnegative-sampling = 'shared'",
            "negatives-from is hard.csv, which has destinations for each source, and negative-sampling is shared";
    ] {
        let text = error(file);
        assert!(text.contains(expected), "{file}: {text}");
    }
}

#[test]
fn candidates_are_a_number_or_all_or_else_a_file() {
    let read = |text: &str| layered(text, &none()).unwrap().candidates;
    let number = |count| RankAmong::Drawn(NonZeroU32::new(count).unwrap());
    assert_eq!(TrainConfig::default().candidates, RankAmong::Auto);
    assert_eq!(read("candidates = 'auto'"), RankAmong::Auto);
    assert_eq!(read("candidates = 1000"), number(1000));
    assert_eq!(read("candidates = '7'"), number(7));
    assert_eq!(read("candidates = 'all'"), RankAmong::All);
    assert_eq!(read("candidates = './7'"), RankAmong::Listed("./7".into()));
}

#[test]
fn a_flag_too_large_for_a_file_is_an_error() {
    let error = TrainConfig::default()
        .layered(None, None, &flags([("epochs", u64::MAX.to_string().into())]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("option") || error.contains("range"), "{error}");
}

#[test]
#[should_panic(expected = "unknown option color")]
fn a_flag_that_is_no_option_is_a_mistake() {
    drop(TrainConfig::default().layered(None, None, &flags([("color", "red".into())])));
}

#[test]
fn a_configuration_has_options_that_another_crate_declares_and_a_resumed_run_must_not_change_them() {
    let known = TrainConfig { extension: flags([("method", "grappa".into())]), ..TrainConfig::default() };
    let given = flags([("method", "other".into())]);
    let config = known.layered(None, None, &given).unwrap();
    assert_eq!((config.other_method(), known.other_method()), (Some("other"), None));
    assert_eq!(config.to_toml().parse::<Table>().unwrap()["method"], given["method"]);
    assert_eq!(config.resumed(None, None, &given).unwrap(), config);
    let error = known.resumed(None, None, &given).unwrap_err().to_string();
    assert!(error.contains("has method \"grappa\", and method \"other\" was given"), "{error}");
    assert!(known.digest() != config.digest());
}

#[test]
fn names_of_choices_read_back() {
    for halo in HaloMode::ALL {
        assert_eq!(halo.to_string().parse::<HaloMode>().unwrap(), *halo);
    }
    let removed = "aggregates".parse::<HaloMode>().unwrap_err().to_string();
    assert_eq!(removed, "the halo mode `aggregates` was removed: use `history`");
    let error = "lion".parse::<Optimizer>().unwrap_err().to_string();
    assert_eq!(error, "unknown optimizer `lion`: use adam, adamw, adagrad or sgd");
}

#[test]
fn a_configuration_is_a_small_regular_file() {
    let folder = tempdir().unwrap();
    let error = |path: &Path| TrainConfig::default().layered(None, Some(path), &none()).unwrap_err().to_string();
    assert!(error(Path::new("/dev/zero")).contains("/dev/zero: this is a device"));
    let path = folder.path().join("RUN.toml");
    fs::write(&path, "# long\n".repeat(1 << 18)).unwrap();
    assert!(error(&path).contains("at most 1.0 MiB"), "{}", error(&path));
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert!(error(&path).contains("this is a pipe"), "{}", error(&path));
}

#[test]
fn devices_are_read_as_they_are_written() {
    for choice in [
        DeviceChoice::Auto,
        DeviceChoice::Cpu,
        DeviceChoice::Cuda(None),
        DeviceChoice::Cuda(Some(0)),
        DeviceChoice::Cuda(Some(3)),
    ] {
        assert_eq!(choice.to_string().parse::<DeviceChoice>().unwrap(), choice);
    }
    assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(None));
    for text in ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:99999999999999999999"] {
        let error = text.parse::<DeviceChoice>();
        assert!(matches!(&error, Err(Error::UnknownDevice(named)) if named == text), "{error:?}");
    }
}
