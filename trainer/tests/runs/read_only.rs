//! Training only reads its store, so a store may be read-only and several runs may share it.

use std::{path::Path, process::Command, sync::Arc, thread};

use grappa_run::{
    checkpoint::NamedTensor,
    config::{Auto, FirstHop, TrainConfig},
    folder::RunFolder,
};
use grappa_sampling::partition::Schedule;
use grappa_storage::Store;

use crate::stores::{DENSE, config, refused_at, store, train_at};

/// A folder that is read-only until this is dropped.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    /// Mounts the folder over itself. An error says why mounting is refused.
    fn mount(path: &'a Path) -> Result<Self, String> {
        let mount = |arguments: &[&str]| {
            let mut command = Command::new("mount");
            command.args(arguments).arg(path).output()
        };
        let bound = Command::new("mount").arg("--bind").args([path, path]).output();
        match bound {
            Ok(output) if output.status.success() => {
                let made = Self(path);
                let output = mount(&["-o", "remount,bind,ro"]).unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                Ok(made)
            }
            refused => Err(format!("mounting is refused: {refused:?}")),
        }
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

/// The parameters of a run's last checkpoint.
fn parameters(store: &Arc<Store>, config: &TrainConfig, path: &Path) -> Vec<NamedTensor> {
    train_at(store, config, path).unwrap();
    let folder = RunFolder::resume(path).unwrap();
    let (_, checkpoint) = folder.checkpoints(1).unwrap().latest().unwrap().found.unwrap();
    checkpoint.parameters
}

#[test]
fn a_read_only_store_is_trained_on_in_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let path = store.path().to_owned();
    let _mount = match ReadOnly::mount(&path) {
        Ok(mount) => mount,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    let store = Arc::new(Store::open(&path).unwrap());
    std::fs::write(path.join("x"), b"").expect_err("it is read-only");
    for schedule in Schedule::ALL {
        let config = TrainConfig { schedule, repartition_every: 2, ..config() };
        let out = folder.path().join(format!("{schedule}.run"));
        let (_, seen) = train_at(&store, &config, &out).unwrap();
        let [warning] = &seen.warnings[..] else { panic!("{seen:?}") };
        let is_told = warning.contains("the first hop is sampled") && warning.contains("Read-only");
        assert!(is_told, "{warning}");
        // Who owned what in the last super-epoch, the fourth, is there to be read.
        let current = std::fs::read_to_string(out.join("assignments/CURRENT")).unwrap();
        assert!(current.contains('4'), "{current}");
        assert!(out.join("assignments/4").exists());
    }
    let wanted = TrainConfig { first_hop: FirstHop::Preaggregated, ..config() };
    let error = refused_at(&store, &wanted, &folder.path().join("wanted.run"));
    let is_told = error.contains("Read-only file system") && error.contains("--first-hop sampled");
    assert!(is_told, "{error}");
}

#[test]
fn runs_that_share_a_store_at_the_same_time_are_as_they_are_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let current = || std::fs::read(store.path().join("assignments/CURRENT")).unwrap();
    let before = current();
    let configs = [(2, 1, Schedule::Sweep), (4, 9, Schedule::Shuffle), (3, 5, Schedule::Fixed)].map(
        |(partitions, seed, schedule)| TrainConfig {
            partitions: Auto::Value(partitions),
            seed,
            schedule,
            repartition_every: 1,
            first_hop: FirstHop::Sampled,
            ..config()
        },
    );
    let out = |name: &str, config: &TrainConfig| folder.path().join(format!("{name}-{}.run", config.partitions()));
    let alone: Vec<_> = configs.iter().map(|config| parameters(&store, config, &out("alone", config))).collect();
    let together: Vec<_> = thread::scope(|scope| {
        let runs: Vec<_> =
            configs.iter().map(|config| scope.spawn(|| parameters(&store, config, &out("together", config)))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(alone == together);
    assert!(current() == before, "the store's own assignment is what it was");
}
