//! Options that a resumed run may change.

use super::{
    super::layers::{changeable, may_change},
    *,
};

#[test]
fn a_resumed_run_goes_on_as_it_was_configured() {
    let run = everything();
    assert_eq!(run.resumed(None, None, &none()).unwrap(), run);
    // Repeating an option is no change.
    assert_eq!(run.resumed(None, None, &flags([("hidden", 256.into()), ("lr", 0.1.into())])).unwrap(), run);
}

#[test]
fn a_resumed_run_may_change_what_changes_nothing_that_was_computed() {
    let run = everything();
    let default = TrainConfig::default().table();
    for option in changeable() {
        let Some(value) = default.get(option) else {
            assert!(["class-names", "out", "tmp"].contains(&option), "{option}");
            continue;
        };
        let changed = run.resumed(None, None, &flags([(option, value.clone())])).unwrap();
        assert_eq!(changed.table().get(option), Some(value));
        assert_eq!(changed.digest(), run.digest(), "{option}");
    }
}

#[test]
fn options_that_define_the_parameters_must_not_change() {
    for option in
        ["model", "layers", "hidden", "seed", "partitions", "concurrent", "batch", "lr", "precision", "fanouts"]
    {
        assert!(!may_change(option), "{option}");
    }
    let error = TrainConfig::default().resumed(None, None, &flags([("seed", 2.into())])).unwrap_err();
    assert!(error.to_string().contains("has seed 1, and seed 2 was given"), "{error}");
}

#[test]
fn changed_options_are_reported_with_both_values() {
    for option in TrainOption::all().iter().filter(|option| !option.may_change()) {
        let option = &option.name;
        let default = TrainConfig::default().table().get(option).cloned();
        let value = default.unwrap_or_else(|| "none by default".into());
        let run = [everything(), whole_views()].into_iter().find(|run| run.table()[option] != value);
        let run = run.unwrap_or_else(|| panic!("everything() has another {option} than by default"));
        let error = run.resumed(None, None, &flags([(option, value.clone())])).unwrap_err().to_string();
        let expected = format!("has {option} {}, and {option} {value} was given", run.table()[option]);
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn options_that_may_change_are_checked() {
    let error = everything().resumed(None, None, &flags([("keep", 0.into())])).unwrap_err().to_string();
    assert!(error.contains("keep is 0"), "{error}");
}

#[test]
fn options_of_the_run_may_be_repeated_also_if_they_contradict_the_defaults() {
    let run = TrainConfig {
        layers: 3,
        fanouts: Auto::Value("5,5,5".parse().unwrap()),
        optimizer: Optimizer::Sgd,
        momentum: 0.5,
        ..TrainConfig::default()
    };
    for repeated in [flags([("fanouts", "5,5,5".into())]), flags([("momentum", 0.5.into())])] {
        assert!(TrainConfig::default().layered(None, None, &repeated).is_err());
        TrainConfig::default().unchecked(None, None, &repeated).unwrap();
        assert_eq!(run.resumed(None, None, &repeated).unwrap(), run);
    }
}

#[test]
fn the_digest_differs_with_every_option_that_must_not_change() {
    for (option, value) in TrainConfig::default().table() {
        let run = match option.as_str() {
            "full-graph" | "last-heads" => whole_views(),
            _ => everything(),
        };
        let mut table = run.table();
        table.insert(option.clone(), value);
        let other: TrainConfig = table.try_into().unwrap();
        assert_eq!(other.digest() == run.digest(), may_change(&option), "{option}");
    }
    // Another program would not resume the run.
    assert_eq!(TrainConfig::default().digest(), TrainConfig::default().digest());
}
