//! The ledger of training: who takes memory, and that the parts add up.

use grappa_io::ledger::{Lease, Phase, leased_bytes};

use super::*;
use crate::train::memory::{INFERENCE, STEPS};

fn phase<'a>(trainer: &'a Trainer, name: &str) -> &'a Phase {
    trainer.ledger.phases.iter().find(|phase| phase.name == name).unwrap_or_else(|| panic!("{:?}", trainer.ledger))
}

fn bytes(phase: &Phase, name: &str) -> u64 {
    phase.leases.iter().filter(|lease| lease.name == name).map(|lease| lease.bytes).sum()
}

#[test]
fn leases_of_a_run_never_exceed_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for memory in [64 << 20, 256 << 20] {
        let config = TrainConfig { memory: ByteSize(memory), ..config(LayerKind::Sage) };
        let mut trainer = trainer(&store, &config, folder.path());
        trainer.epoch(0, &|_, _| 0.01, &Silent).unwrap();
        let room = room(&mut trainer);
        for name in [STEPS, INFERENCE] {
            let phase = phase(&trainer, name);
            let leased = leased_bytes(&phase.leases);
            assert!(leased <= memory, "{leased} of {memory}: {phase:?}");
            let are_within = |lease: &Lease| !lease.beside_limit || lease.bytes < memory / 8;
            assert!(phase.leases.iter().all(are_within), "only little is beside the limit: {phase:?}");
        }
        let steps = phase(&trainer, STEPS);
        for name in ["adjacency lists", "resident rows", "in-flight minibatches", "feature buffers"] {
            assert!(bytes(steps, name) > 0, "{name}: {steps:?}");
        }
        let loader = &trainer.partitions.loader;
        assert_eq!(bytes(steps, "resident rows"), loader.feed().unwrap().resident_bytes());
        // What an inference may take is what the ledger says.
        assert_eq!(bytes(phase(&trainer, INFERENCE), "states and features"), room.inference);
    }
}
