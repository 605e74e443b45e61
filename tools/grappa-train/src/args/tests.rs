use clap::{CommandFactory, Parser};

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    sources: Sources,
}

fn parse(args: &[&str]) -> std::result::Result<TrainConfig, String> {
    let args = std::iter::once(&"grappa-train").chain(args);
    let cli = Cli::try_parse_from(args).map_err(|error| error.to_string())?;
    cli.sources.configuration().map_err(|error| error.to_string())
}

#[test]
fn without_flags_everything_is_as_by_default() {
    assert_eq!(parse(&[]).unwrap(), TrainConfig::default());
}

#[test]
fn every_flag_sets_its_key() {
    let given = [
        ("model", "gat"),
        ("layers", "3"),
        ("hidden", "256"),
        ("heads", "8"),
        ("jumping-knowledge", "max"),
        ("dropout", "0.25"),
        ("input-dropout", "0.125"),
        ("attention-dropout", "0.5"),
        ("activation", "gelu"),
        ("normalize-features", "standard"),
        ("edge-data", "ignore"),
        ("norm", "layer"),
        ("residual", "true"),
        ("fanouts", "-1,10,5"),
        ("replace", "true"),
        ("walks", "20"),
        ("walk-steps", "3"),
        ("walk-termination", "0.25"),
        ("batch", "64"),
        ("lr", "0.1"),
        ("lr-schedule", "cosine"),
        ("warmup", "1.5"),
        ("lr-step", "3"),
        ("lr-factor", "0.1"),
        ("lr-patience", "2"),
        ("lr-min", "0.01"),
        ("optimizer", "sgd"),
        ("weight-decay", "0.5,0,0.25"),
        ("label-smoothing", "0.1"),
        ("task", "classes"),
        ("loss", "cross-entropy"),
        ("class-weights", "balanced"),
        ("decoder", "distmult"),
        ("reciprocal", "false"),
        ("distance", "l1"),
        ("margin", "6.5"),
        ("self-adversarial", "0.5"),
        ("n3", "0.01"),
        ("l2", "0.001"),
        ("embedding", "16"),
        ("negatives", "5"),
        ("negative-sampling", "shared"),
        ("negatives-from", "hard.csv"),
        ("among", "items.txt"),
        ("node-embeddings", "user=64,item=8"),
        ("candidates", "all"),
        ("rank-destinations", "true"),
        ("temperature", "0.5"),
        ("exclude-targets", "forward"),
        ("edges-per-epoch", "1000"),
        ("time-split", "80/10/10"),
        ("time-strategy", "last"),
        ("time-equal", "seen"),
        ("seed-time", "none"),
        ("time-hops", "edge"),
        ("time-window", "30"),
        ("time-encoding", "8"),
        ("momentum", "0.9"),
        ("clip", "2.5"),
        ("epochs", "7"),
        ("steps-per-epoch", "200"),
        ("sampling", "batch"),
        ("partitions", "16"),
        ("concurrent", "4"),
        ("schedule", "shuffle"),
        ("repartition-every", "1"),
        ("halo", "stop"),
        ("correction", "node"),
        ("halo-neighbors", "7"),
        ("shrinkage", "0.3"),
        ("first-hop", "sampled"),
        ("rate-schedule", "fixed:4"),
        ("rate-unit", "row"),
        ("message-bits", "4"),
        ("boundary-share", "0.5"),
        ("smoothing", "0.95"),
        ("edge-masks", "10"),
        ("edge-dropout", "0.25"),
        ("local-steps", "8"),
        ("compress", "top-k"),
        ("compress-rate", "0.01..0.5"),
        ("memory", "512MiB"),
        ("threads", "2"),
        ("tmp", "scratch"),
        ("lookahead", "3"),
        ("read-engine", "pread"),
        ("seed", "18446744073709551615"),
        ("precision", "bf16"),
        ("device", "cuda:1"),
        ("evaluate", "exact"),
        ("evaluate-states", "f32"),
        ("eval-every", "2"),
        ("monitor", "loss"),
        ("early-stopping", "10"),
        ("checkpoint-every", "0"),
        ("checkpoint-minutes", "0.5"),
        ("keep", "1"),
        ("init-from", "runs/before"),
        ("class-names", "classes.txt"),
        ("out", "runs/a"),
    ];
    let args: Vec<String> = given.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let table = MethodConfig::all_in(&parse(&args).unwrap()).table();
    // Not with the others, because it excludes the options of sampling.
    let full_graph = parse(&["--full-graph"]).unwrap().table();
    assert_eq!(full_graph["full-graph"].as_bool(), Some(true));
    // Nor this one, because it excludes jumping knowledge.
    let last_heads = parse(&["--model=gat", "--last-heads=2"]).unwrap().table();
    assert_eq!(last_heads["last-heads"].as_integer(), Some(2));
    // Nor the options of other losses.
    let focal = parse(&["--loss=focal", "--focal-gamma=1.5"]).unwrap().table();
    assert_eq!(shown(&focal["focal-gamma"]), "1.5");
    let huber = parse(&["--task=regression", "--loss=huber", "--huber-delta=0.5"]).unwrap().table();
    assert_eq!(shown(&huber["huber-delta"]), "0.5");
    // Nor other methods, which exclude options of minibatches.
    let method = parse(&["--method=full", "--partitions=4"]).unwrap().table();
    assert_eq!(shown(&method["method"]), "full");
    // Nor the options of models by relation.
    let by_relation = parse(&["--model=rsage", "--relation-aggregate=mean", "--target=author"]).unwrap().table();
    assert_eq!(["relation-aggregate", "target"].map(|option| shown(&by_relation[option])), ["mean", "author"]);
    let bases = parse(&["--model=rgcn", "--bases=2"]).unwrap().table();
    assert_eq!(shown(&bases["bases"]), "2");
    assert_eq!(table.len(), given.len() + 7);
    for (option, value) in given {
        let set = &table[option];
        assert_eq!(shown(set), value, "{option}");
    }
}

#[test]
fn switches_need_no_value_and_can_be_switched_off() {
    assert!(parse(&["--residual"]).unwrap().residual);
    assert!(!parse(&["--residual=false"]).unwrap().residual);
}

#[test]
fn flags_go_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("RUN.toml");
    std::fs::write(&path, "hidden = 64\nlayers = 3\n").unwrap();
    let config = parse(&["--config", path.to_str().unwrap(), "--hidden", "32"]).unwrap();
    assert_eq!((config.hidden, config.layers), (32, 3));
}

#[test]
fn a_printed_configuration_has_all_options_also_paths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("RUN.toml");
    let given = parse(&["--hidden=64", "--class-names=names of classes.txt", "--out=runs/a"]).unwrap();
    std::fs::write(&path, ShownConfig(given.clone()).text()).unwrap();
    assert_eq!(parse(&["--config", path.to_str().unwrap()]).unwrap(), given);
}

#[test]
fn a_preset_sets_its_options_and_an_unknown_one_names_the_known() {
    let config = parse(&["--preset", "pyg-cora-gcn", "--hidden", "32"]).unwrap();
    assert_eq!((config.hidden, config.input_dropout), (32, 0.5));
    let error = parse(&["--preset", "pyg-cora-gnc"]).unwrap_err();
    assert!(error.contains("pyg-cora-gcn") && error.contains("pyg-cora-gat"), "{error}");
}

#[test]
fn wrong_values_say_what_would_be_right() {
    for (args, expected) in [
        (
            ["--model", "sgae"],
            "use sage, sage-max, gcn, gat, gatv2, gin, gine, transformer, pinsage, rsage, rgcn, rgat or hgt",
        ),
        (["--fanouts", "15,x"], "fanout 2 of the list"),
        (["--memory", "2 apples"], "unknown unit `apples`"),
        (["--batch", "0"], "it must be at least 1"),
        (["--device", "tpu"], "use auto, cpu, cuda or cuda:N"),
        (["--dropout", "1"], "dropout is 1; it must be from 0 to below 1"),
        (["--weight-decay", "0.1,x"], "value 2 of the list is `x`"),
        (["--last-heads", "0"], "it must be at least 1"),
        (["--node-embeddings", "user"], "such as user=64,item=64, or none"),
        (["--layers", "0"], "layers is 0"),
        (["--epochs", "18446744073709551615"], "impossible value"),
    ] {
        let error = parse(&args).unwrap_err();
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn every_name_in_the_help_is_a_value_and_is_explained() {
    for arg in Cli::command().get_arguments() {
        let option = arg.get_long().unwrap_or_default();
        let switch = ["true", "false"];
        for value in arg.get_possible_values().iter().filter(|value| !switch.contains(&value.get_name())) {
            assert!(value.get_help().is_some(), "--{option} {}", value.get_name());
            // Other methods need several partitions, or one, and sweeps one.
            let partitions = if ["gern", "sweep"].contains(&value.get_name()) && option != "schedule" { 1 } else { 4 };
            let parsed = parse(&[&format!("--{option}={}", value.get_name()), &format!("--partitions={partitions}")]);
            let parsed = parsed.unwrap_or_else(|error| panic!("--{option}: {error}"));
            if option == "preset" {
                continue;
            }
            let set = MethodConfig::all_in(&parsed).table()[option].to_string();
            assert_eq!(set.trim_matches('"'), value.get_name(), "--{option}");
        }
    }
}

#[test]
fn the_help_says_what_is_by_default() {
    let help = Cli::command().render_help().to_string();
    let long = Cli::command().render_long_help().to_string();
    // Each key but those that have no default has one in both.
    for (option, value) in defaults().table() {
        let value = shown(&value);
        for text in [&help, &long] {
            let names = [format!("--{option} <"), format!("--{option}[=")];
            let own = names.iter().find_map(|name| text.split_once(name)).expect(&option).1;
            let (own, _) = own.split_once("\n      --").unwrap_or((own, ""));
            let own = own.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(own.contains(&format!("[default: {value}]")), "{option}: {own}");
        }
    }
    for part in ["[default: 128]", "[default: sage]", "[default: auto]", "[default: 4GiB]", "[default: false]"] {
        assert!(help.contains(part), "{part} in {help}");
    }
}
