//! Stores and options that training cannot use, or warns about.

use super::*;

#[test]
fn a_store_that_cannot_be_added_to_is_trained_on_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    // A file where the folder should be: as if the store could not be written.
    std::fs::write(store.path().join("aggregates"), b"").unwrap();
    let short = |first_hop| TrainConfig { epochs: 1, first_hop, ..config() };
    let auto = RunFolder::create(&folder.path().join("auto"), &short(FirstHop::Auto)).unwrap();
    let (_, watched) = run(&store, &short(FirstHop::Auto), &auto, false);
    assert!(
        matches!(&watched.warnings[..], [warning] if warning.contains("the first hop is sampled")),
        "{:?}",
        watched.warnings
    );
    let wanted = short(FirstHop::Preaggregated);
    let wanted_folder = RunFolder::create(&folder.path().join("wanted"), &wanted).unwrap();
    let mut silent = Watched::default();
    train(store, wanted, &wanted_folder, false, Device::Cpu, &mut silent).unwrap_err();
}

#[test]
fn a_minibatch_that_passes_the_graph_again_and_again_is_announced_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = TrainConfig { layers: 100, hidden: 8, epochs: 1, ..config() };
    let run_folder = RunFolder::create(&folder.path().join("deep"), &config).unwrap();
    // Stops as soon as it is announced.
    struct Announced(Mutex<Vec<String>>);
    impl Progress for Announced {
        fn stage(&self, _name: &str, _bytes: Option<u64>) {}
        fn advance(&self, _bytes: u64, _edges: u64) {}
        fn is_stopped(&self) -> bool {
            !self.0.lock().unwrap().is_empty()
        }
    }
    impl Watcher for Announced {
        fn progress(&self) -> &dyn Progress {
            self
        }
        fn epoch(&mut self, _record: &EpochRecord, _epochs: u64) {}
        fn warn(&mut self, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }
    let mut announced = Announced(Mutex::default());
    let stopped = train(store, config, &run_folder, false, Device::Cpu, &mut announced).unwrap_err();
    assert!(stopped.is_stopped(), "{stopped}");
    let announced = announced.0.into_inner().unwrap();
    assert!(announced[0].contains("a minibatch passes 100 layer(s)"), "{announced:?}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let refusal = |config: TrainConfig, name: &str| {
        let run_folder = RunFolder::create(&folder.path().join(name), &config).unwrap();
        let result = train(store.clone(), config, &run_folder, false, Device::Cpu, &mut Watched::default());
        let error = result.unwrap_err();
        assert_eq!(
            matches!(error, grappa_trainer::Error::TooLarge(_)),
            ["huge", "many heads"].contains(&name),
            "{error:?}"
        );
        error.to_string()
    };
    let many = TrainConfig { partitions: Auto::Value(9), ..config() };
    assert!(refusal(many, "many").contains("at most 8"));
    let max = TrainConfig { model: LayerKind::SageMax, first_hop: FirstHop::Preaggregated, ..config() };
    let message = refusal(max, "max");
    assert!(message.contains("sage-max") && message.contains("--first-hop sampled"), "{message}");
    let some_of_all = TrainConfig { full_graph: true, fanouts: Auto::Value("5,5".parse().unwrap()), ..config() };
    assert!(refusal(some_of_all, "some of all").contains("full-graph"));
    let huge = TrainConfig { layers: 3, hidden: 1 << 28, ..config() };
    let message = refusal(huge, "huge");
    assert!(message.contains("at least 1.0 EiB") && message.contains("smaller --hidden"), "{message}");
    let many_heads = TrainConfig { model: LayerKind::Gat, heads: 1 << 20, hidden: 1 << 20, ..config() };
    let message = refusal(many_heads, "many heads");
    assert!(message.contains("are free: use fewer --layers, a smaller --hidden, fewer --heads"), "{message}");
    let diverging = TrainConfig { lr: 1e30, ..config() };
    let message = refusal(diverging, "diverging");
    assert!(message.contains("the loss is not finite in step"), "{message}");
    // The loss of the only step is finite, and what it makes of the parameters is not: no checkpoint may have that.
    let last_step =
        TrainConfig { lr: 1e39, epochs: 1, partitions: Auto::Value(1), batch: "1000000".parse().unwrap(), ..config() };
    let message = refusal(last_step, "last step");
    assert!(message.contains("parameters are not finite in epoch 1"), "{message}");
}
