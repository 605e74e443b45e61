//! Options without effect.

use super::*;

#[test]
fn options_without_effect_are_warned_about() {
    let warned = |config: TrainConfig| warnings(&config, true);
    let config =
        |partitions, layers| TrainConfig { partitions: Auto::Value(partitions), layers, ..TrainConfig::default() };
    assert_eq!(warned(config(1, 3)), Vec::<String>::new());
    assert_eq!(warned(config(4, 3)), Vec::<String>::new());
    let elu = |layers| TrainConfig { activation: Activation::Elu, ..config(1, layers) };
    assert!(warned(elu(2)).is_empty());
    assert!(warned(elu(1))[0].starts_with("--activation elu has no effect with --layers 1"));

    let correction = |partitions| TrainConfig { correction: Correction::Node, ..config(partitions, 3) };
    let found = warned(correction(1));
    assert!(
        found.len() == 1 && found[0].starts_with("--correction node has no effect with --partitions 1"),
        "{found:?}"
    );
    assert!(warned(correction(4)).is_empty());

    let halo = |partitions, layers, halo| TrainConfig { halo, ..config(partitions, layers) };
    for (layers, same) in [(2, "--halo stop"), (3, "do not follow the parameters")] {
        let found = warnings(&halo(4, layers, HaloMode::History), false);
        assert!(found.len() == 1 && found[0].contains(same), "{found:?}");
        assert!(warnings(&halo(4, layers, HaloMode::History), true).is_empty());
        let alone = warnings(&halo(1, layers, HaloMode::History), false);
        assert!(
            matches!(&alone[..], [warning] if warning.starts_with("--halo history has no effect with --partitions 1")),
            "{alone:?}"
        );
        for mode in [HaloMode::Stop, HaloMode::None] {
            let found = warnings(&halo(4, layers, mode), false);
            assert!(found.len() == 1 && found[0].contains("--halo neighbors"), "{found:?}");
            assert!(warnings(&halo(4, layers, mode), true).is_empty());
            // A single layer has nothing to expand. It can only leave halo nodes out.
            let found = warnings(&halo(4, 1, mode), false);
            let expected = format!("--halo {mode} has no effect with --layers 1");
            match mode {
                HaloMode::None => assert!(found.is_empty(), "{found:?}"),
                _ => assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}"),
            }
            let found = warnings(&halo(4, 1, mode), true);
            let expected = format!("--halo {mode} has no effect with 1 layer and a pre-aggregated first hop");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
        }
        assert!(warnings(&halo(4, 1, HaloMode::Auto), true).is_empty());
        let walks = TrainConfig { model: LayerKind::PinSage, ..halo(4, 1, HaloMode::Stop) };
        assert!(warnings(&walks, false).is_empty());
        let neighbors = TrainConfig { halo_neighbors: "3".parse().unwrap(), ..halo(4, 1, HaloMode::Auto) };
        let found = warnings(&neighbors, false);
        assert!(
            found.len() == 1 && found[0].starts_with("--halo-neighbors 3 has no effect with --layers 1"),
            "{found:?}"
        );
        assert!(warnings(&halo(4, layers, HaloMode::Auto), false).is_empty());
    }
    let neighbors = |layers, knows_first_hop| warnings(&halo(4, layers, HaloMode::Neighbors), knows_first_hop);
    assert!(neighbors(2, true)[0].contains("no effect with 2 layers"));
    assert!(neighbors(3, true).is_empty() && neighbors(2, false).is_empty());
}

#[test]
fn options_of_layers_by_relation_belong_to_some_models() {
    for (option, value, with, without) in grappa_skip::cases![
        "bases", Value::from("2"), "rgcn", "rsage";
        "relation-aggregate", Value::from("mean"), "rgat", "hgt";
        "activation", Value::from("elu"), "rgat", "hgt";
        "last-heads", Value::from("2"), "rgat", "hgt";
    ] {
        let warned = |model: &str| {
            let options = [("model", Value::from(model)), (option, value.clone())];
            let options: Table = options.into_iter().map(|(option, value)| (option.to_owned(), value)).collect();
            warnings(&TrainConfig::default().layered(None, None, &options).unwrap(), true)
        };
        assert!(warned(with).is_empty(), "{option}: {:?}", warned(with));
        let expected = format!("--{option} {} has no effect with --model {without}", value.as_str().unwrap());
        assert!(matches!(&warned(without)[..], [warning] if warning.starts_with(&expected)), "{:?}", warned(without));
    }
}

#[test]
fn options_of_hidden_layers_and_other_partitions_need_some() {
    let warned = |options: &[(&'static str, Value)]| {
        let options = options.iter().cloned().map(|(option, value)| (option.to_owned(), value));
        let options: Table = options.collect();
        warnings(&TrainConfig::default().layered(None, None, &options).unwrap(), true)
    };
    for (option, value, without, shown) in grappa_skip::cases![
        "dropout", Value::from(0.25), ("layers", Value::from(1)), "--dropout 0.25";
        "norm", "layer".into(), ("layers", 1.into()), "--norm layer";
        "residual", true.into(), ("layers", 1.into()), "--residual";
        "replace", true.into(), ("model", "pinsage".into()), "--replace";
        "replace", true.into(), ("full-graph", true.into()), "--replace";
        "lr-min", 0.001.into(), ("lr-schedule", "constant".into()), "--lr-min 0.001";
        "schedule", "fixed".into(), ("partitions", "1".into()), "--schedule fixed";
        "halo", "stop".into(), ("partitions", "1".into()), "--halo stop";
        "halo-neighbors", "3".into(), ("partitions", "1".into()), "--halo-neighbors 3";
    ] {
        let layers = ("layers", Value::from(3));
        let found = warned(&[layers.clone(), (option, value.clone()), without]);
        assert!(
            matches!(&found[..], [warning] if warning.starts_with(&format!("{shown} has no effect with"))),
            "{option}: {found:?}"
        );
        let needed = match option {
            "lr-min" => ("lr-schedule", "cosine".into()),
            _ => ("partitions", "4".into()),
        };
        assert_eq!(warned(&[layers, (option, value), needed]), Vec::<String>::new(), "{option}");
    }
}

#[test]
fn an_option_of_another_model_schedule_or_mode_has_no_effect_and_is_warned_about() {
    let [partitions, layers] = [("partitions", "4".into()), ("layers", 3.into())];
    for (option, value, other, needed) in [
        ("heads", Value::from(8), "model", "gat"),
        ("walks", 7.into(), "model", "pinsage"),
        ("walk-steps", 3.into(), "model", "pinsage"),
        ("walk-termination", 0.25.into(), "model", "pinsage"),
        ("lr-step", 3.into(), "lr-schedule", "step"),
        ("lr-factor", 0.1.into(), "lr-schedule", "step"),
        ("lr-factor", 0.1.into(), "lr-schedule", "plateau"),
        ("lr-patience", 3.into(), "lr-schedule", "plateau"),
        ("shrinkage", 0.5.into(), "correction", "node"),
        ("halo-neighbors", "3".into(), "halo", "neighbors"),
        ("halo-neighbors", "3".into(), "halo", "auto"),
    ] {
        let warnings = |other: (&'static str, Value)| {
            let options = [partitions.clone(), layers.clone(), (option, value.clone()), other];
            warnings(&TrainConfig::default().layered(None, None, &flags(options)).unwrap(), true)
        };
        let unneeded = if other == "halo" { "stop".into() } else { TrainConfig::default().table()[other].clone() };
        let found = warnings((other, unneeded.clone()));
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let expected = format!("--{option} {} has no effect with --{other} {}", shown(&value), shown(&unneeded));
        assert!(matches!(&found[..], [warning] if warning.starts_with(&expected)), "{found:?}");
        assert_eq!(warnings((other, needed.into())), Vec::<String>::new(), "{option} with {needed}");
    }
}

#[test]
fn a_warmup_that_takes_the_whole_run_is_a_warning() {
    let warmup = |warmup| TrainConfig { warmup, epochs: 50, ..TrainConfig::default() };
    let found = warnings(&warmup(500.0), true);
    assert!(found[0].contains("--warmup 500 is in epochs") && found[0].contains("0.100 of --lr"), "{found:?}");
    for epochs in [0.0, 0.5, 49.0] {
        assert!(warnings(&warmup(epochs), true).is_empty(), "{epochs}");
    }
}
