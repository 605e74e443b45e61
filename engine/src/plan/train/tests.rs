use grappa_formats::manifest::FeatureDtype;

use super::*;
use crate::plan::Degrees;

/// R-MAT 22 with 64 f16 features and 5 % training nodes, as in the record of the training plan.
fn options() -> TrainOptions {
    TrainOptions {
        graph: TrainGraph {
            nodes: 1 << 22,
            edges: 67_118_449,
            degrees: Degrees::Rmat,
            chunks: 64,
            present: 1.0,
            adjacency_bytes: 134_300_000,
            features: (64, FeatureDtype::F16),
            stored: 1 << 22,
            aggregates: None,
        },
        model: TrainModel {
            fanouts: vec![Some(15), Some(10), Some(5)],
            preaggregated: false,
            hidden: 128,
            classes: 16,
        },
        train: 209_715,
        scored: 41_943,
        links: None,
        batch: None,
        partitions: None,
        concurrent: None,
        expands_halo: true,
        sweeps: Some(false),
        machine: Machine {
            memory: 6 << 30,
            disk_bandwidth: 1.8e9,
            threads: 2,
            device_rate: None,
            rates: TrainRates::default(),
        },
    }
}

/// Aggregates in files of their own, as they were when the runs were measured.
const APART: Option<StoredAggregates> = Some(StoredAggregates { with_features: false });

/// R-MAT 26 with 1 % training nodes, in 2 GiB.
fn large(options: &mut TrainOptions) {
    options.graph.nodes = 1 << 26;
    options.graph.stored = 1 << 26;
    options.graph.edges = 1_073_761_138;
    options.graph.adjacency_bytes = 2_578_000_000;
    options.train = 672_441;
    options.scored = 202_156;
    options.machine.memory = 2 << 30;
    options.machine.disk_bandwidth = 1.4e9;
}

fn plan(change: impl FnOnce(&mut TrainOptions)) -> TrainPlan {
    let mut options = options();
    change(&mut options);
    plan_training(&options).unwrap()
}

#[track_caller]
fn assert_near(planned: f64, measured: f64, most: f64) {
    let error = planned / measured - 1.0;
    assert!(error.abs() <= most, "{planned} planned, {measured} measured");
}

/// Steps, sampled edges and feature bytes of epochs of the record. Only bytes of views in turn are not in its counter.
/// Of the run with 640 MiB, it is the mean of two epochs: the first one fills a pool that holds most of the rows.
#[test]
fn plans_agree_with_runs_that_were_measured() {
    let memory = |bytes: u64, preaggregated| {
        plan(|options| {
            options.machine.memory = bytes;
            options.model.preaggregated = preaggregated;
            options.graph.aggregates = APART;
        })
    };
    let views = 2.0 * options().graph.adjacency_bytes as f64;
    for (memory_bytes, preaggregated, partitions, edges, bytes) in [
        (6 << 30, false, 1, 32_241_253.0, 0.0),
        (6 << 30, true, 1, 6_927_728.0, 0.0),
        (640 << 20, false, 1, 32_241_253.0, 5.5e9),
        (320 << 20, false, 16, 3_022_522.0, 2.2e9 + views),
        (256 << 20, false, 16, 3_022_522.0, 3.33e9 + views),
        (256 << 20, true, 16, 1_863_901.0, 5.63e9 + views),
    ] {
        let plan = memory(memory_bytes, preaggregated);
        assert_eq!((plan.partitions, plan.concurrent), (partitions, 1));
        let lists = if partitions > 1 { ViewKind::InTurn } else { ViewKind::Memory };
        assert_eq!(plan.lists, lists);
        assert_near(plan.steps as f64 * plan.step_edges, edges, 0.08);
        match bytes {
            0.0 => assert_eq!(plan.epoch.bytes_read, 0.0),
            _ => assert_near(plan.epoch.bytes_read, bytes, 0.12),
        }
    }
}

/// Bytes that epochs read of R-MAT 22 with 128 f32 features and 1000 MiB, on average over three (record of 2026-11-25,
/// features beside aggregates).
#[test]
fn features_beside_aggregates_halve_what_an_epoch_reads() {
    let read = |aggregates| {
        let planned = plan(|options| {
            options.graph.features = (128, FeatureDtype::F32);
            options.machine.memory = 1000 << 20;
            options.model.preaggregated = true;
            options.graph.aggregates = aggregates;
        });
        assert_eq!(planned.partitions, 1);
        planned.epoch.bytes_read
    };
    assert_near(read(APART), 16.7e9, 0.15);
    let beside = Some(StoredAggregates { with_features: true });
    assert_near(read(beside), 9.4e9, 0.15);
    // Aggregates that are made for a run with so little memory have the features beside them.
    assert_eq!(read(None), read(beside));
}

#[test]
fn link_prediction_counts_edges_and_ranks_them_among_all_nodes_in_more_time() {
    let links = |negatives, candidates, draws_edges| {
        plan(|options| {
            options.model.classes = 128;
            options.train = 1_000_000;
            options.scored = 100_000;
            options.model.fanouts = vec![Some(10), Some(10)];
            options.links = Some(LinkOptions { negatives, draws_edges, candidates });
        })
    };
    let base = links(1, Some(100), false);
    assert_eq!((base.steps, base.evaluates_exactly), (977, true));
    assert_near(base.step_edges, 182_763.0, 0.15);
    let more = links(20, Some(100), false);
    assert!(more.step_edges > 2.0 * base.step_edges, "{} {}", more.step_edges, base.step_edges);
    assert!(more.memory.step > 1.5 * base.memory.step, "{} {}", more.memory.step, base.memory.step);
    // 10^5 edges among 4.2 M nodes: 10^14 operations.
    let all = links(1, None, false);
    assert!(all.evaluation.seconds > base.evaluation.seconds + 100.0);
    assert_eq!(all.epoch, base.epoch);
    // An epoch that draws edges reads the lists with them; else all edges are listed once.
    let drawn = links(1, Some(100), true);
    let read = drawn.epoch.bytes_read / options().graph.adjacency_bytes as f64;
    assert!(read > 0.1 && read < 0.9, "{read}");
    assert!(drawn.opening.seconds < base.opening.seconds);
    assert_near(drawn.memory.nodes - base.memory.nodes, 8e6, 1e-6);
    let error = plan_training(&TrainOptions {
        train: options().graph.edges + 1,
        links: Some(LinkOptions { negatives: 1, draws_edges: false, candidates: None }),
        ..options()
    });
    assert!(error.unwrap_err().to_string().contains("training edges"));
}

/// Historical embeddings would cost too much on R-MAT 26, so halo nodes have sampled in-neighbors. 100 steps
/// sampled 2,749,054 edges. Without memory for these lists, 60 minibatches of the same hops had 351,165 edges.
#[test]
fn halo_nodes_are_expanded_where_the_memory_has_room_for_their_lists() {
    let of_memory = |bytes: u64| {
        plan(|options| {
            large(options);
            options.model.preaggregated = true;
            options.partitions = Some(32);
            options.machine.memory = bytes;
        })
    };
    let (with_lists, without) = (of_memory(2 << 30), of_memory(1 << 30));
    assert!(with_lists.expands_halo && !without.expands_halo);
    assert_near(with_lists.step_edges, 27_490.0, 0.05);
    assert_near(without.step_edges, 5853.0, 0.05);
    // With all nodes to train on, refreshing embeddings costs less than training.
    let all = plan(|options| {
        options.model.preaggregated = true;
        options.partitions = Some(16);
        options.train = options.graph.nodes;
    });
    assert!(!all.expands_halo && all.history.seconds > 0.0);
}

#[test]
fn lists_of_halo_nodes_are_planned_with_heads_of_16_bytes() {
    let mut options = options();
    large(&mut options);
    options.model.preaggregated = true;
    let planner = Planner::new(&options).unwrap();
    let halo = planner.halo(32, 1000.0, 700);
    let reached = planner.reach.sample(options.train as f64, &[None], 1.0);
    let heads = 16.0 * reached.nodes;
    let sources = 4.0 * reached.drawn(&planner.reach, 10);
    let set = options.graph.nodes as f64 / 6.0;
    assert_near(halo.list_bytes(), heads + sources + set, 0.001);
}

/// Whole runs of four steps and one exact evaluation were measured, so a little more was read. States and copied
/// features are in scratch files, and each tile of destinations reads the features of all sources (record of 2026-11-22,
/// billions of edges).
#[test]
fn evaluations_of_a_graph_that_exceeds_the_memory_agree_with_runs_that_were_measured() {
    let sampled = plan(large);
    assert_near(sampled.exact_evaluation.bytes_read, 65.5e9, 0.15);
    assert_near(sampled.exact_evaluation.bytes_written, 10.1e9, 0.12);
    assert_near(sampled.disk.scratch, 9.7e9, 0.12);
    assert_near(sampled.exact_evaluation.seconds, 96.0, 0.25);
    let preaggregated = plan(|options| {
        large(options);
        options.model.preaggregated = true;
        options.graph.aggregates = APART;
    });
    assert_near(preaggregated.exact_evaluation.bytes_read, 38.9e9, 0.15);
    assert_near(preaggregated.exact_evaluation.bytes_written, 6.7e9, 0.1);
    assert_near(preaggregated.exact_evaluation.seconds, 43.0, 0.25);
    // 75 GB on average over three epochs; 70 and 99 GB in runs of one.
    assert_near(preaggregated.epoch.bytes_read, 75e9, 0.1);
    let on_a_fast_disk = plan(|options| {
        large(options);
        options.model.preaggregated = true;
        options.graph.aggregates = APART;
        options.machine.disk_bandwidth = 2.5e9;
    });
    assert_near(on_a_fast_disk.first_sampled_evaluation.seconds, 16.0, 0.25);
    assert_near(on_a_fast_disk.first_sampled_evaluation.bytes_read, 20.5e9, 0.15);
    assert_near(on_a_fast_disk.sampled_evaluation.seconds, 7.8, 0.25);
}

/// R-MAT 29 with computed features (record of 2026-11-22, billions of edges): the sampled evaluation read about 10.5
/// GB. Sets of nodes for 64 partitions do not fit, so halo nodes are not expanded.
#[test]
fn a_sampled_evaluation_reads_pages_at_random() {
    let plan = plan(|options| {
        options.graph.nodes = 1 << 29;
        options.graph.edges = 8_589_900_000;
        options.graph.adjacency_bytes = 23_300_000_000;
        options.graph.stored = 0;
        options.machine.memory = 6 << 30;
        options.train = 5_370_000;
        options.scored = 107_700;
        options.model.fanouts = vec![Some(15), Some(10)];
        options.graph.chunks = 512;
        options.machine.disk_bandwidth = 1.5e9;
    });
    assert_eq!((plan.partitions, plan.expands_halo), (64, false));
    assert_near(plan.step_edges, 4500.0, 0.05);
    assert_near(plan.first_sampled_evaluation.bytes_read, 10.5e9, 0.15);
    assert_near(plan.first_sampled_evaluation.seconds, 24.0, 0.25);
}

#[test]
fn an_epoch_takes_what_its_parts_take() {
    // One layer from stored aggregates: nothing is sampled.
    let one = plan(|options| {
        options.model.fanouts = vec![Some(15)];
        options.model.preaggregated = true;
    });
    let rates = TrainRates::default();
    assert_eq!((one.steps, one.step_edges), (205, 0.0));
    let seeds = 209_715.0 / 205.0;
    let gather = seeds * 2.0 * 64.0 * 4.0 * rates.gather_byte_ns * 1e-9;
    let flops = 2.0 * 4.0 * seeds * 64.0 * 16.0 / rates.product_flops;
    let expected = 205.0 * ((gather + flops) / 2.0 + rates.step_seconds);
    assert_near(one.epoch.seconds, expected, 1e-9);
    // Reading the graph and writing aggregates, of which a run holds one row for each node.
    let aggregates = f64::from(1 << 22) * 128.0;
    assert_eq!(one.preaggregation.bytes_written, aggregates);
    assert_eq!(one.disk.aggregates, aggregates);
    assert_eq!(one.preaggregation.bytes_read, 134_300_000.0 + aggregates);
    let evaluation = match one.evaluates_exactly {
        true => one.exact_evaluation,
        false => one.sampled_evaluation,
    };
    assert_eq!(one.evaluation, evaluation);
    // A device that is fast enough leaves sampling and gathering.
    let device = plan(|options| options.machine.device_rate = Some(1e18));
    let more = plan(|options| options.machine.device_rate = Some(1e10));
    let without = plan(|_| ());
    assert!(device.epoch.seconds < without.epoch.seconds && without.epoch.seconds < more.epoch.seconds);
}

/// Numbers of a plan that grow with the graph.
fn costs(plan: &TrainPlan) -> [f64; 6] {
    [
        plan.epoch.seconds,
        plan.exact_evaluation.seconds,
        plan.preaggregation.seconds,
        plan.epoch.processor_seconds,
        plan.memory.step,
        plan.step_nodes,
    ]
}

#[test]
fn more_work_never_takes_less_and_more_speed_never_more() {
    type Change = fn(&mut TrainOptions);
    let more_work: [Change; 7] = [
        |options| options.graph.edges *= 2,
        |options| options.graph.features.0 *= 2,
        |options| options.model.hidden *= 2,
        |options| options.train *= 2,
        |options| options.scored *= 2,
        |options| options.model.fanouts = vec![Some(20), Some(10), Some(5)],
        |options| options.model.fanouts.push(Some(5)),
    ];
    let less_time: [Change; 4] = [
        |options| options.machine.threads *= 2,
        |options| options.machine.disk_bandwidth *= 2.0,
        |options| options.machine.rates.product_flops *= 2.0,
        |options| options.machine.rates.infer_byte_ns /= 2.0,
    ];
    for base in [|_: &mut TrainOptions| (), |options: &mut TrainOptions| options.model.preaggregated = true] {
        let before = plan(base);
        for change in more_work {
            let after = plan(|options| {
                base(options);
                change(options);
            });
            for (after, before) in costs(&after).into_iter().zip(costs(&before)) {
                assert!(after >= before * (1.0 - 1e-9), "{before} became {after}");
            }
        }
        for change in less_time {
            let after = plan(|options| {
                base(options);
                change(options);
            });
            for (after, before) in costs(&after).into_iter().zip(costs(&before)) {
                assert!(after <= before * (1.0 + 1e-9), "{before} became {after}");
            }
        }
    }
}

#[test]
fn less_memory_means_more_partitions_and_more_reading() {
    let plans: Vec<TrainPlan> = [6 << 30, 640 << 20, 320 << 20, 256 << 20, 128 << 20]
        .into_iter()
        .map(|memory| plan(|options| options.machine.memory = memory))
        .collect();
    assert!(plans.is_sorted_by_key(|plan| plan.partitions), "{plans:?}");
    assert!(plans.last().unwrap().partitions > plans[3].partitions);
    // Adjacency lists of each plan stay below half of its memory.
    for (plan, memory) in plans.iter().zip([6_u64 << 30, 640 << 20, 320 << 20, 256 << 20, 128 << 20]) {
        assert!(plan.memory.adjacency <= memory as f64 / 2.0, "{plan:?}");
    }
    let mut little = options();
    little.machine.memory = 1 << 20;
    let little = plan_training(&little).unwrap();
    assert_eq!((little.partitions, little.lists), (1, ViewKind::Mapped));
}

/// A block model of 2^28 nodes in 16 partitions, 2000 minibatches: 33.0 s in turn with 27 GiB from the disk, and 106.6
/// s from mapped files. The rates of loading and of reading lists are from there.
#[test]
fn lists_that_are_read_in_an_epoch_take_the_time_that_was_measured() {
    let block_model = |options: &mut TrainOptions| {
        options.graph.nodes = 1 << 28;
        options.graph.edges = 1 << 32;
        options.graph.degrees = Degrees::Even;
        options.graph.adjacency_bytes = 14_600_000_000;
        options.graph.stored = 0;
        options.train = 2000 * 1024;
        options.model.fanouts = vec![Some(10), Some(10)];
        options.graph.features.0 = 1;
        options.model.hidden = 1;
        options.machine.disk_bandwidth = 1.4e9;
        options.partitions = Some(16);
        options.concurrent = Some(1);
        options.expands_halo = false;
        options.machine.memory = 6 << 30;
    };
    let in_turn = plan(block_model);
    assert_eq!(in_turn.lists, ViewKind::InTurn);
    assert_near(in_turn.epoch.bytes_read, 27.2 * f64::from(1 << 30), 0.02);
    assert_near(in_turn.epoch.seconds, 33.0, 0.25);
    let mapped = plan(|options| {
        block_model(options);
        options.concurrent = Some(8);
        options.batch = Some(1024);
    });
    assert_eq!(mapped.lists, ViewKind::Mapped);
    assert_near(mapped.epoch.seconds, 106.6, 0.25);
    assert!(mapped.memory.training <= mapped.memory.total);
}

#[test]
fn impossible_runs_are_errors() {
    type Change = fn(&mut TrainOptions);
    let changes: [(Change, &str); 5] = [
        (|options| options.train = 0, "training nodes"),
        (|options| options.train = 1 << 30, "training nodes"),
        (|options| options.model.fanouts.clear(), "layers"),
        (|options| options.model.hidden = 0, "hidden dimension"),
        (|options| options.graph.edges = 0, "at least 1 of each"),
    ];
    for (change, expected) in changes {
        let mut options = options();
        change(&mut options);
        let error = plan_training(&options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn minibatches_are_swept_where_partitions_would_lack_edges() {
    let sampling = |memory, preaggregated, partitions, halo| {
        let plan = plan(|options| {
            large(options);
            options.sweeps = None;
            options.machine.memory = memory;
            options.model.preaggregated = preaggregated;
            options.partitions = partitions;
            options.expands_halo = halo;
        });
        (plan.lists == ViewKind::Sweep, plan.partitions, plan.expands_halo)
    };
    assert_eq!(sampling(2 << 30, false, None, true), (true, 1, true));
    assert_eq!(sampling(2 << 30, false, Some(1), true), (true, 1, true));
    // All lists fit; halo nodes have aggregates; other partitions are wanted; halo nodes are not to be expanded.
    assert_eq!(sampling(64 << 30, false, None, true), (false, 1, true));
    // Minibatches of the whole graph may be too large.
    assert!(!sampling(1 << 30, false, None, true).0);
    assert!(!sampling(2 << 30, true, None, true).0);
    assert!(!sampling(2 << 30, false, Some(32), true).0);
    assert!(!sampling(2 << 30, false, None, false).0);
}

#[test]
fn a_sweep_takes_the_disk_and_the_time_that_were_measured() {
    // 1000 minibatches of R-MAT 26: 2.1 MB of scratch files each.
    let plan = plan(|options| {
        large(options);
        options.sweeps = Some(true);
        options.graph.stored = 0;
        options.train = 1_024_000;
        options.scored = 1;
    });
    assert_eq!((plan.steps, plan.partitions), (1000, 1));
    assert_near(plan.step_edges, 153_000.0, 0.1);
    assert_near(plan.epoch.bytes_written, 1.9e9, 0.2);
    // Three passes over nearly all lists, and the scratch files.
    assert_near(plan.epoch.bytes_read - plan.epoch.bytes_written, 3.0 * 2.578e9, 0.2);
    assert!(plan.disk.scratch >= plan.epoch.bytes_written);
}
