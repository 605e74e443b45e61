//! Tests of `grappa-store sample` and `preaggregate`: output, errors and memory.

use std::{fs, fs::File};

use grappa_tests::folder::{ProgramFolder, least_memory};
use serde_json::Value;

/// Makes the store `graph.grappa` with these options of `grappa-gen`.
fn generate(folder: &ProgramFolder, options: &str) {
    folder.success(&format!("gen {options} --chunks 12 --quiet --out graph.grappa"));
}

/// A folder with a block model of 20,000 nodes.
fn sbm() -> ProgramFolder {
    let folder = ProgramFolder::new();
    generate(&folder, "sbm --nodes 20000 --feature-dim 32");
    folder
}

/// A command that samples the store.
fn sample(options: &str) -> String {
    let mut line = format!("store sample graph.grappa {options}");
    for (option, value) in [("--fanouts", "10,5"), ("--batch ", "256")] {
        if !options.contains(option) {
            line += &format!(" {option} {value}");
        }
    }
    line
}

fn sampled(folder: &ProgramFolder, options: &str) -> Value {
    folder.success(&sample(&format!("{options} --json"))).json()
}

#[test]
fn everything_promised_is_told() {
    let told = sampled(&sbm(), "--batches 60");
    for key in [
        "batches",
        "seconds",
        "batches_per_second",
        "sampled_edges",
        "sampled_edges_per_second",
        "input_nodes",
        "bytes_wanted",
        "bytes_read",
        "read_amplification",
        "peak_rss_bytes",
    ] {
        assert!(told[key].is_number(), "{key} in {told}");
    }
    for stage in ["sample", "read", "assemble"] {
        assert!(told["stall_seconds"][stage].is_number(), "{stage} in {told}");
    }
    assert!(["uring", "pread"].contains(&told["read_engine"].as_str().unwrap()));
    let leases = told["memory"]["phases"][0]["leases"].as_array().unwrap();
    let leased: u64 = leases.iter().map(|lease| lease["bytes"].as_u64().unwrap()).sum();
    assert!(leased <= told["memory"]["limit"].as_u64().unwrap(), "{told}");
    for name in ["program", "adjacency lists", "samplers", "in-flight minibatches"] {
        assert!(leases.iter().any(|lease| lease["name"] == name), "{name} in {told}");
    }
    assert_eq!(told["batches"], 60, "more than an epoch has");
    assert_eq!(told["view"], "memory");
    let wanted = told["input_nodes"].as_u64().map(|nodes| nodes * 128);
    assert_eq!(told["bytes_wanted"].as_u64(), wanted);
}

#[test]
fn the_same_seed_gives_the_same_minibatches_however_they_are_made() {
    let folder = sbm();
    let counts = |way: &str| {
        let told = sampled(&folder, &format!("--batches 40 --partitions 4 {way}"));
        ["sampled_edges", "input_nodes"].map(|key| told[key].as_u64().unwrap())
    };
    let expected = counts("");
    for way in ["--threads 3", "--view mapped", "--read-engine pread --lookahead 1", "--memory 24MiB", "--no-features"]
    {
        assert_eq!(counts(way), expected, "{way}");
    }
    assert_ne!(counts("--seed 8"), expected);
}

#[test]
fn seeds_are_a_split_all_nodes_or_a_list_of_ids() {
    let folder = sbm();
    folder.write("ids.txt", "17\n4\n19999\n");
    let [list, train, all] = ["ids.txt", "train", "all"].map(|seeds| {
        let told = sampled(&folder, &format!("--fanouts 1 --batches 1 --batch 20000 --seeds {seeds}"));
        told["input_nodes"].as_u64().unwrap()
    });
    assert!((3..=6).contains(&list));
    assert_eq!(all, 20_000);
    assert!(train < all);
}

#[test]
fn wrong_wishes_are_refused_with_what_would_do() {
    let folder = sbm();
    folder.write("wrong.txt", "3\n20000\n");
    for fanouts in ["10,0", "10,-2"] {
        let line = sample(&format!("--batches 1 --fanouts {fanouts}"));
        folder.run(&line).misuse(&["fanout 2 of the list"]);
    }
    for (wish, remedy) in [
        ("--view memory --memory 64KiB", "leave out --view memory"),
        ("--view memory --by-weight", "error: graph.grappa has no edge weights"),
        ("--partitions 13", "use at most 12 partitions"),
        ("--partitions 0", "at least 1"),
        ("--seeds wrong.txt", "20000"),
        ("--by-weight", "weights"),
    ] {
        folder.run(&sample(&format!("--batches 1 {wish}"))).failure(&[remedy]);
    }
    // The error names the smallest sufficient budget, which works. A budget that is too small for minibatches of seeds
    // alone is refused without sampling, and that error names a smaller one.
    for view in ["auto", "mapped", "memory"] {
        let with = |memory: &str| sample(&format!("--batches 20 --view {view} --memory {memory}"));
        let mut memory = if view == "memory" { "10MiB" } else { "9MiB" }.to_owned();
        let mut is_about_seeds = true;
        while is_about_seeds {
            let refused = folder.run(&with(&memory)).failure(&["memory"]);
            is_about_seeds = refused.stderr.contains("only seeds");
            let least = least_memory(&refused);
            assert!(least.ends_with("MiB") && least != memory, "{least}");
            memory = least;
        }
        folder.success(&with(&memory));
    }
}

/// The lists have a part of the memory, and the error is about all of it.
#[test]
fn the_memory_that_is_asked_for_holds_sampled_in_neighbors_of_halo_nodes() {
    let folder = ProgramFolder::new();
    generate(&folder, "rmat --scale 14 --feature-dim 8");
    let with = |memory: &str| {
        let options = "--seeds all --batches 4 --partitions 8 --halo neighbors";
        folder.run(&sample(&format!("{options} --memory {memory}")))
    };
    let lists = "in-neighbors of halo nodes";
    let least = least_memory(&with("10MiB").failure(&[lists, "raise --memory"]));
    let mebibytes: u64 = least.strip_suffix("MiB").expect("a size").parse().unwrap();
    assert!(mebibytes > 10, "{least}");
    let enough = with(&least);
    assert!(!enough.stderr.contains(lists), "{}", enough.stderr);
}

#[test]
fn a_store_without_features_is_sampled_and_says_so_if_they_are_wanted() {
    let folder = ProgramFolder::new();
    generate(&folder, "rmat --scale 12");
    let told = sampled(&folder, "--batches 3 --seeds all");
    assert_eq!((told["bytes_wanted"].as_u64(), &told["read_engine"]), (Some(0), &Value::Null));
    folder.run(&sample("--batches 3 --seeds all --features")).failure(&["no features"]);
    folder.run(&sample("--batches 3")).failure(&["--seeds all"]);
}

#[test]
fn procedural_features_need_no_reads() {
    let folder = ProgramFolder::new();
    generate(&folder, "sbm --nodes 20000 --feature-dim 32 --features procedural");
    let told = sampled(&folder, "--batches 20");
    assert_eq!(told["bytes_read"], 0);
    assert!(told["bytes_wanted"].as_u64().unwrap() > 0);
}

#[test]
fn peak_memory_is_the_budget_and_a_bit() {
    const BUDGET: u64 = 96 << 20;
    const SLACK: u64 = 64 << 20;
    let folder = ProgramFolder::on_disk();
    generate(&folder, "rmat --scale 17 --feature-dim 256");
    for view in ["memory", "mapped"] {
        let told = sampled(&folder, &format!("--batches 60 --seeds all --view {view} --memory {BUDGET}"));
        let Some(peak) = told["peak_rss_bytes"].as_u64() else {
            grappa_skip::skip!("the kernel does not tell peak memory");
        };
        assert!(peak <= BUDGET + SLACK, "{view}: {peak} bytes with a budget of {BUDGET}");
        assert!(told["bytes_read"].as_u64().unwrap() > 0, "features do not fit the budget");
    }
}

/// Minibatches of half a million nodes, which take most of the memory, beside tables and seed lists.
#[test]
fn large_minibatches_take_no_more_than_the_budget() {
    let folder = ProgramFolder::on_disk();
    generate(&folder, "rmat --scale 22 --edge-factor 2 --feature-dim 8 --feature-dtype f16");
    // Half of the nodes as a seed list.
    let half: String = (0..1 << 21).map(|id| format!("{}\n", 2 * id)).collect();
    folder.write("half.txt", half);
    for seeds in ["all", "half.txt"] {
        let options = "--batches 4 --batch 262144 --fanouts 5 --threads 2 --view mapped";
        let with = |memory: &str| format!("{options} --seeds {seeds} --memory {memory}");
        let least = least_memory(&folder.run(&sample(&with("96MiB"))).failure(&["at least "]));
        let told = sampled(&folder, &with(&least));
        let budget: u64 = least.trim_end_matches("MiB").parse().unwrap();
        let Some(peak) = told["peak_rss_bytes"].as_u64() else {
            grappa_skip::skip!("the kernel does not tell peak memory");
        };
        // A command that uses little memory tests nothing.
        let range = budget << 19..=budget << 20;
        assert!(range.contains(&peak), "{seeds}: {peak} bytes with a budget of {budget} MiB");
    }
}

#[test]
fn a_feature_file_that_is_cut_short_is_an_error_and_not_a_minibatch() {
    let folder = sbm();
    let features = folder.path("graph.grappa/chunk-5/features");
    let bytes = fs::metadata(&features).unwrap().len();
    File::options().write(true).open(&features).unwrap().set_len(bytes / 2).unwrap();
    folder.run(&sample("--batches 5")).failure(&["chunk-5/features"]);
}

#[test]
fn aggregates_are_made_once_verified_and_replaced_when_asked() {
    let folder = sbm();
    let preaggregate = |options: &str| folder.run(&format!("store preaggregate graph.grappa {options}"));
    for kind in ["mean", "gcn", "sum"] {
        let made = preaggregate(&format!("--kind {kind} --memory 4MiB --json")).success().json();
        assert_eq!((&made["kind"], made["nodes"].as_u64()), (&Value::from(kind), Some(20_000)));
    }
    folder.success("store verify graph.grappa");
    preaggregate("--kind mean").failure(&["--replace"]);
    let replaced = preaggregate("--kind mean --replace --dtype f16 --json").success().json();
    assert!(replaced["bytes"].as_u64().unwrap() < 20_000 * 100);
    preaggregate("--kind gcn --replace --memory 1KiB").failure(&["MiB is needed"]);
}

/// Threads free the lists and states of one tile before the next. Kept by each thread, they would take the budget twice
/// more.
#[test]
fn aggregation_takes_little_more_memory_than_its_budget() {
    const BUDGET: u64 = 32 << 20;
    const SLACK: u64 = 48 << 20;
    let folder = ProgramFolder::on_disk();
    generate(&folder, "rmat --scale 19 --feature-dim 64");
    let line = format!("store preaggregate graph.grappa --kind mean --memory {BUDGET} --json");
    let Some(peak) = folder.success(&line).json()["peak_rss_bytes"].as_u64() else {
        grappa_skip::skip!("the kernel does not tell peak memory");
    };
    assert!(peak <= BUDGET + SLACK, "{peak} bytes with a budget of {BUDGET}");
}

#[test]
fn a_graph_with_types_is_sampled_whole_and_in_partitions() {
    let folder = ProgramFolder::new();
    folder.success(
        "gen typed --nodes user=3000 --nodes item=5000 --edges user:buys:item=20000 --edges item:like:item=9000 --reverse --classes \
         item=5 --feature-dim item=16 --out graph.grappa",
    );
    let whole = sampled(&folder, "--fanouts -1 --batch 100 --batches 10");
    // Seeds are items, which all of buys and like lead to, and the reverse of like.
    assert_eq!((&whole["partitions"], &whole["batches"]), (&1.into(), &10.into()));
    let (edges, nodes) = (whole["sampled_edges"].as_u64().unwrap(), whole["input_nodes"].as_u64().unwrap());
    assert!(edges > 4000 && (2000..=edges + 1000).contains(&nodes), "{whole}");
    assert!(whole["bytes_wanted"].as_u64().unwrap() < nodes * 64, "users have no features: {whole}");
    assert_eq!(
        whole["sampled_edges"],
        sampled(&folder, "--fanouts -1 --batch 100 --batches 10 --threads 1")["sampled_edges"]
    );
    folder.success("store repartition graph.grappa --partitions 3 --schedule shuffle");
    let edges = |halo: &str| {
        let options = format!("--fanouts -1,-1 --batch 2000 --batches 3 --concurrent 1 --seeds all --halo {halo}");
        let told = sampled(&folder, &options);
        assert_eq!(told["partitions"], 3);
        told["sampled_edges"].as_u64().unwrap()
    };
    let [none, stop, neighbors] = ["none", "stop", "neighbors"].map(edges);
    assert!(none < stop && stop < neighbors, "{none}, {stop}, {neighbors}");
    folder.write("ids.txt", "5\n");
    folder
        .run(&sample("--seeds ids.txt --batches 1"))
        .failure(&["several node types", "--seeds train, all or type:NAME"]);
}
