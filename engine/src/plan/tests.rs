//! Tests of `plan`.

use super::*;

fn options(nodes: u64, edges: u64) -> PlanOptions {
    PlanOptions {
        nodes,
        edges,
        degrees: Degrees::Rmat,
        features: None,
        classes: None,
        split: None,
        weighted: false,
        edge_features: None,
        held_out_parts: 0,
        chunks: None,
        memory: 2 << 30,
        disk_bandwidth: 1e9,
        free_memory: 0,
        threads: 2,
        rates: Rates::default(),
    }
}

/// R-MAT 22 with edge factor 16, parallel edges kept, takes 15.98 bits an edge, and a uniformly random graph more.
#[test]
fn skew_makes_rows_smaller() {
    let rmat = plan(&options(1 << 22, 1 << 26)).unwrap().bits_per_edge.unwrap();
    let even = PlanOptions { degrees: Degrees::Even, ..options(1 << 22, 1 << 26) };
    let even = plan(&even).unwrap().bits_per_edge.unwrap();
    assert!((15.0..17.0).contains(&rmat), "{rmat}");
    assert!((20.0..21.0).contains(&even), "{even}");
}

#[test]
fn the_slower_of_disk_and_processors_sets_the_time() {
    let slow_disk = PlanOptions { disk_bandwidth: 1e6, ..options(1 << 20, 1 << 24) };
    let time = plan(&slow_disk).unwrap().ingest;
    assert!(time.seconds == time.disk_seconds && time.seconds > time.processor_seconds);
    let fast_disk = PlanOptions { disk_bandwidth: 1e12, ..options(1 << 20, 1 << 24) };
    let time = plan(&fast_disk).unwrap().ingest;
    assert_eq!(time.seconds, time.processor_seconds);
    let rates = Rates::default();
    let expected = f64::from(1 << 24) * (rates.edge_read_ns + rates.edge_sort_ns) / 1e9 / 2.0;
    assert!((time.seconds - expected).abs() < 1e-9);
}

#[test]
fn spill_files_that_fit_free_memory_stay_off_the_disk() {
    let disk_seconds = |free_memory| {
        let options = PlanOptions { free_memory, ..options(1 << 20, 1 << 24) };
        plan(&options).unwrap().ingest.disk_seconds
    };
    let spill = 8.0 * f64::from(1 << 24) / 1e9;
    let (none, all) = (disk_seconds(0), disk_seconds(1 << 40));
    assert!((none - all - 2.0 * spill).abs() < 1e-9, "{none} {all}");
    // The file is cached for reading. Nevertheless all but a fifth is written.
    let kept = disk_seconds(8 << 24);
    assert!((kept - all - 0.8 * spill).abs() < 1e-6, "{kept} {all}");
}

#[test]
fn parts_that_are_held_out_have_directories_of_their_own() {
    let with = |held_out_parts| {
        let options = PlanOptions { held_out_parts, ..options(1 << 22, 1 << 26) };
        plan(&options).unwrap().bytes.of_edges()
    };
    // 64 bytes for 54 nodes.
    let directory = (1u64 << 22) * 64 / 54;
    for parts in [1, 2] {
        let more = with(parts) - with(0);
        assert!((directory * parts..directory * parts * 11 / 10).contains(&more), "{more} for {parts}");
    }
    let tight =
        PlanOptions { held_out_parts: 2, memory: 4 << 20, threads: 16, chunks: Some(16), ..options(1 << 22, 1 << 20) };
    let error = plan(&tight).unwrap_err().to_string();
    assert!(error.contains("writing chunks of"), "{error}");
}

#[test]
fn graphs_of_any_size_have_a_plan_and_impossible_ones_an_error() {
    for (nodes, edges) in [(0, 0), (1, 0), (3, 100), (1 << 36, 1 << 40), (1 << 40, 1 << 44)] {
        let with_all = PlanOptions {
            features: Some((100, FeatureDtype::Int8)),
            classes: Some(70_000),
            split: Some("60/20/20".parse().unwrap()),
            weighted: true,
            edge_features: Some((3, FeatureDtype::F16)),
            memory: 1 << 40,
            ..options(nodes, edges)
        };
        let plan = plan(&with_all).unwrap();
        let bytes = plan.bytes;
        let parts = bytes.of_edges() + bytes.features + bytes.labels + bytes.splits + bytes.other;
        assert_eq!(parts, bytes.total);
        assert!(bytes.features >= nodes * 104 && bytes.labels >= nodes * 4, "{bytes:?}");
    }
    let error = plan(&PlanOptions { memory: 1 << 20, ..options(1 << 36, 1 << 40) });
    assert!(error.unwrap_err().to_string().contains("--memory"));
    for (nodes, edges) in [(u64::MAX, 1), ((1 << 40) + 1, 1), (1, u64::MAX)] {
        assert!(plan(&options(nodes, edges)).unwrap_err().to_string().contains("the limit is 2^40 nodes"));
    }
}
