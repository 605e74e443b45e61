//! Training on graphs with times: links and nodes at their times, and tasks that do not use times.

use std::fs;

use grappa_tests::{
    parquet::{Column, write_described},
    program::run,
    random::Random,
};

use crate::fixture::{TrainFolder, assert_close, assert_failed};

#[test]
fn times_of_edges_are_warned_about_and_do_not_keep_nodes_from_partitions() {
    let folder = TrainFolder::empty();
    let edges: String = (0..200).map(|edge| format!("{},{},{}\n", edge % 40, edge * 7 % 40, edge)).collect();
    folder.write("events.csv", format!("src,dst,at\n{edges}"));
    let nodes: String = (0..40).map(|node| format!("{node},{},{}\n", node % 3, node % 2)).collect();
    folder.write("nodes.csv", format!("id,x,class\n{nodes}"));
    folder.write("train.txt", (0..30).map(|node| format!("{node}\n")).collect::<String>());
    folder.success(
        "ingest --edges events.csv --time at --features nodes.csv --features-from x --labels nodes.csv --label class \
         --train train.txt --chunks 4 --quiet --out events.grappa",
    );
    let ran = run(&mut folder.program("events.grappa --epochs 1 --out run")).success();
    assert!(ran.stderr.contains("the edges of the graph have times, and training does not use them"), "{ran:?}");
    run(&mut folder.program("events.grappa --epochs 1 --partitions 4 --out parts")).success();
    let refused = run(&mut folder.program("events.grappa --epochs 1 --partitions 4 --halo neighbors --out halo"));
    assert_failed(&refused, &["halo is neighbors", "use halo stop"]);
}

/// Events of 60 people, each of whom writes to the same three others again and again.
pub fn letters() -> TrainFolder {
    let folder = TrainFolder::empty();
    let line = |event: u64| {
        let from = event * 31 % 60;
        format!("{from},{},{}\n", (from * 7 + event % 3 * 11 + 1) % 60, 1000 + event * 60)
    };
    folder.write("letters.csv", format!("from,to,at\n{}", (0..3000).map(line).collect::<String>()));
    folder.write("people.csv", format!("id,one\n{}", (0..60).map(|id| format!("{id},1\n")).collect::<String>()));
    let inputs = "--edges letters.csv --src from --dst to --features people.csv --id id --quiet";
    folder.success(&format!("ingest {inputs} --time at --time-unit s --chunks 4 --out letters.grappa"));
    folder
}

pub const OPTIONS: &str = "letters.grappa --task link --model transformer --layers 1 --fanouts 5 --hidden 16 --heads 2 --time-strategy last \
                       --decoder mlp --dropout 0 --candidates 5 --batch 128 --lr 0.01";

#[test]
fn links_are_learned_and_scored_at_their_times_next_to_edge_bank() {
    let folder = letters();
    let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 2 --threads 1 --out one"))).success();
    for told in [
        "2100 edges to learn, 450 for validation and 450 for test",
        "encoded ages of edges are used",
        "each at its time",
    ] {
        assert!(ran.stdout.contains(told), "{told}: {ran:?}");
    }
    assert!(!ran.stderr.contains("does not use them"), "{ran:?}");
    let links = &folder.summary("one")["links"];
    assert_eq!(links["edges"], 450);
    // Every letter repeats an earlier one.
    assert_eq!(links["edge_bank"]["filtered"]["mrr"], 1.0);
    assert_eq!(links["edge_bank"]["average_precision"], 1.0);
    // Other threads, and a run that is continued, have the same scores.
    run(&mut folder.program(&format!("{OPTIONS} --epochs 2 --threads 2 --out two"))).success();
    assert_eq!(folder.summary("two")["links"], *links);
    run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --threads 1 --out three"))).success();
    run(&mut folder.program("letters.grappa --resume --epochs 2 --threads 1 --out three")).success();
    assert_eq!(folder.summary("three")["links"], *links);
}

#[test]
fn every_model_that_draws_by_time_learns_links() {
    let folder = letters();
    let options = "letters.grappa --task link --layers 2 --fanouts 4,4 --hidden 16 --time-strategy last --candidates 5 --batch 256 --lr 0.01 \
                   --epochs 1 --threads 1 --force --out run";
    for model in [
        "sage",
        "sage-max",
        "gat --heads 2",
        "gatv2 --heads 2",
        "gin",
        "gine",
        "transformer --heads 2",
        "rsage",
        "rgcn",
        "rgat",
        "hgt",
    ] {
        let ran = run(&mut folder.program(&format!("{options} --model {model}"))).success();
        assert!(ran.stdout.contains("each at its time"), "{model}: {ran:?}");
        let mrr = folder.summary("run")["links"]["filtered"]["mrr"].as_f64().unwrap();
        // Of six places, at random: 0.41.
        assert!((0.2..=1.0).contains(&mrr), "{model}: {mrr}");
    }
    // Two types, with edges at times in both directions.
    folder.success(
        "ingest --nodes person=people.csv --edges person:writes:person=letters.csv --src from --dst to --time writes=at --time-unit s --reverse \
         --quiet --out typed.grappa",
    );
    let typed = options.replace("letters.grappa", "typed.grappa");
    let ran = run(&mut folder.program(&format!("{typed} --model rsage --node-embeddings person=8"))).success();
    assert!(ran.stdout.contains("each at its time"), "{ran:?}");
    let used = "encoded ages of the edges of person:writes:person, person:rev_writes:person are used: the layers of rsage take them";
    assert!(ran.stdout.contains(used), "{ran:?}");
    assert_eq!(folder.summary("run")["links"]["edge_bank"]["filtered"]["mrr"], 1.0);
    let ran = run(&mut folder.program(&format!("{typed} --model hgt"))).success();
    assert!(ran.stderr.contains("are not used: the model hgt takes none; these do: rsage, rgat"), "{ran:?}");
    let refused = run(&mut folder.program(&format!("{typed} --model rgcn --time-encoding 8")));
    assert_failed(&refused, &["time-encoding 8", "model rgcn takes no ages of the edges", "these do: rsage, rgat"]);
    let refused = run(&mut folder.program(&format!("{options} --model sage --time-encoding 8")));
    assert_failed(&refused, &["model sage takes no ages of the edges", "these do: gatv2, gine, transformer"]);
}

#[test]
fn a_typed_model_learns_from_the_ages_of_edges() {
    let folder = TrainFolder::empty();
    // A user is active if the last visit is at most 50 s ago. All have as many visits.
    let mut random = Random::new(21);
    let (mut visits, mut asks, mut asked) = (String::new(), String::new(), String::new());
    for user in 0..500u64 {
        let active = user % 2;
        let last = 1000 - if active == 1 { 1 + random.below(50) } else { 200 + random.below(300) };
        for visit in 0..4 {
            visits.push_str(&format!("{},{user},{}\n", random.below(30), last - visit * 7));
        }
        let split = ["train", "train", "train", "val", "test"][(user / 2 % 5) as usize];
        asks.push_str(&format!("{user},1000,{active},{split}\n"));
        asked.push_str(&format!("{user},{user}\n"));
    }
    folder.write("visits.csv", format!("page,user,at\n{visits}"));
    folder.write("asks.csv", format!("id,at,active,split\n{asks}"));
    folder.write("asked.csv", format!("user,ask\n{asked}"));
    folder.write("users.csv", format!("id,one\n{}", (0..500).map(|id| format!("{id},1\n")).collect::<String>()));
    folder.write("pages.csv", format!("id,one\n{}", (0..30).map(|id| format!("{id},1\n")).collect::<String>()));
    folder.success(
        "ingest --nodes user=users.csv --nodes page=pages.csv --nodes ask=asks.csv --edges page:seen:user=visits.csv --edges \
         user:asked:ask=asked.csv --src seen=page --dst seen=user --src asked=user --dst asked=ask --time seen=at --node-time ask=at \
         --time-unit s --labels ask=asks.csv --label ask=active --split-column ask=split --features-from user=one --features-from page=one \
         --quiet --out visits.grappa",
    );
    folder.success("store add-features visits.grappa --kind mean --type ask --quiet");
    let score = |options: &str| {
        let train = "visits.grappa --layers 2 --fanouts 4,4 --hidden 16 --batch 32 --lr 0.01 --epochs 15 --dropout 0 --force --out run";
        run(&mut folder.program(&format!("{train} {options}"))).success();
        folder.summary("run")["test_accuracy"].as_f64().unwrap()
    };
    let accuracy = score("--model rsage");
    assert!(accuracy > 0.95, "{accuracy}");
    let blind = score("--model rsage --time-encoding 0");
    assert!(blind < 0.65, "{blind}");
}

#[test]
fn a_process_without_a_partition_evaluates_links_at_their_times() {
    let folder = letters();
    run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --threads 1 --out one"))).success();
    // The second process has no partition, and evaluates its share of the edges.
    let ran = run(&mut folder.program(&format!("{OPTIONS} --epochs 1 --workers 2 --threads 1 --out two"))).success();
    assert!(ran.stderr.contains("1 of 2 processes have no part in a step"), "{ran:?}");
    assert_close(
        &folder.summary("two")["links"]["filtered"]["mrr"],
        &folder.summary("one")["links"]["filtered"]["mrr"],
        "MRR",
    );
}

#[test]
fn options_that_would_show_later_edges_are_refused() {
    let folder = letters();
    for (options, parts) in [
        ("--partitions 2", ["partitions is 2", "use --partitions 1"]),
        ("--model gcn", ["in-degrees of the whole graph", "use --model sage"]),
        ("--model pinsage", ["random walks do not know times", "use --model sage"]),
        ("--first-hop preaggregated --exclude-targets none", ["its sums have later edges", "use --first-hop sampled"]),
        ("--negative-sampling shared", ["cannot share negatives", "uniform or degree"]),
        ("--candidates all", ["the embeddings of all nodes at its time", "use --candidates 100"]),
        ("--rank-destinations", ["destinations are ranked", "leave out --rank-destinations"]),
        ("--time-split 1/1/98 --time-equal seen --among none.txt", ["none.txt", ""]),
        ("--replace --time-strategy last", ["the last edges are drawn once each", ""]),
    ] {
        let model = if options.contains("--model") { "" } else { "--model sage" };
        let refused =
            run(&mut folder.program(&format!("letters.grappa --task link {model} {options} --epochs 1 --out refused")));
        assert_failed(&refused, &parts);
    }
}

/// Customers with one row in each of two tasks, and orders: four before the time of the row, and twelve after it. The amounts before
/// it tell the label of a row in `past`, and the amounts after it tell the label in `future`.
fn shop(has_later_orders: bool) -> TrainFolder {
    const CUSTOMERS: u64 = 400;
    let folder = TrainFolder::empty();
    let mut random = Random::new(5);
    let (mut orders, mut by) = (String::from("id,at,amount\n"), String::from("order,customer\n"));
    let mut tasks = ["past", "future"].map(|name| (name, String::from("id,at,label,split\n")));
    let mut rows = String::from("customer,row\n");
    let mut count = 0;
    for customer in 0..CUSTOMERS {
        let time = 10_000 + random.below(5000);
        for (is_later, (_, task)) in [false, true].into_iter().zip(&mut tasks) {
            let label = random.below(2);
            let split = ["train", "train", "train", "val", "test"][customer as usize % 5];
            *task += &format!("{customer},{time},{label},{split}\n");
            for _ in 0..if is_later { 12 } else { 4 } {
                let (away, noise) = (1 + random.below(3000), random.below(100));
                if is_later && !has_later_orders {
                    continue;
                }
                let at = if is_later { time + away } else { time - away };
                orders += &format!("{count},{at},0.{:03}\n", 300 + 400 * label + noise);
                by += &format!("{count},{customer}\n");
                count += 1;
            }
        }
        rows += &format!("{customer},{customer}\n");
    }
    folder.write("customer.csv", (0..CUSTOMERS).fold("id,one\n".to_owned(), |all, id| all + &format!("{id},1\n")));
    for (name, text) in [("order", orders), ("by", by), ("rows", rows)].into_iter().chain(tasks) {
        folder.write(&format!("{name}.csv"), text);
    }
    folder.success(
        "ingest --nodes customer=customer.csv order=order.csv past=past.csv future=future.csv --edges order:by:customer=by.csv --edges \
         customer:asks:past=rows.csv --edges customer:asks:future=rows.csv --src by=order --dst by=customer --src asks=customer --dst asks=row \
         --time order=at --time past=at --time future=at --time-unit s --label past=label --label future=label --split-column past=split \
         --split-column future=split --ids dense --quiet --out shop.grappa",
    );
    folder
}

const NODE_OPTIONS: &str = "shop.grappa --model rsage --layers 2 --lr 0.01 --dropout 0 --threads 1";

#[test]
fn rows_of_tasks_are_learned_and_predicted_at_their_times() {
    let folder = shop(true);
    let ran =
        run(&mut folder.program(&format!("{NODE_OPTIONS} --target past --batch 32 --epochs 10 --out past"))).success();
    assert!(!ran.stderr.contains("does not use them"), "{ran:?}");
    let summary = folder.summary("past");
    assert!(summary["val_accuracy"].as_f64().unwrap() > 0.95, "{summary}");
    // The orders after the time of a row are not seen.
    run(&mut folder.program(&format!("{NODE_OPTIONS} --target future --batch 32 --epochs 10 --out future"))).success();
    let honest = folder.summary("future")["val_accuracy"].as_f64().unwrap();
    assert!(honest < 0.7, "{honest}");
    // The same run without times scores better, and wrongly. Rows need an input then.
    for task in ["past", "future"] {
        folder.success(&format!("store add-features shop.grappa --kind mean --type {task} --quiet"));
    }
    let leaky = "--target future --batch 32 --seed-time none --epochs 10 --out leaky";
    let ran = run(&mut folder.program(&format!("{NODE_OPTIONS} {leaky}"))).success();
    assert!(ran.stderr.contains("does not use them"), "{ran:?}");
    let leaky = folder.summary("leaky")["val_accuracy"].as_f64().unwrap();
    assert!(leaky > 0.9, "{leaky}");
}

#[test]
fn predictions_of_rows_equal_evaluations_and_do_not_depend_on_later_events() {
    let folder = shop(true);
    let train = format!("{NODE_OPTIONS} --target past --batch 32");
    run(&mut folder.program(&format!("{train} --epochs 4 --out run"))).success();
    // Other threads, and a run that is continued, compute the same.
    run(&mut folder.program(&format!("{} --epochs 4 --out threads", train.replace("--threads 1", "--threads 2"))))
        .success();
    folder.assert_same_losses("run", "threads", "threads");
    run(&mut folder.program(&format!("{train} --epochs 2 --out resumed"))).success();
    run(&mut folder.program("shop.grappa --resume --epochs 4 --threads 1 --out resumed")).success();
    folder.assert_same_losses("run", "resumed", "resumed");
    let accuracy = |run: &str| folder.summary(run)["val_accuracy"].as_f64().unwrap();
    assert_eq!(accuracy("run"), accuracy("resumed"));
    let predict = |folder: &TrainFolder, options: &str| {
        run(&mut folder.program(&format!("predict run shop.grappa --quiet --force {options}"))).success()
    };
    let scored = predict(&folder, "--split val --out val.csv --json").json();
    assert!((scored["scores"]["accuracy"].as_f64().unwrap() - accuracy("run")).abs() < 1e-9, "{scored}");
    predict(&folder, "--probabilities --out all.csv");
    let all = folder.read("all.csv");
    assert_eq!(all.lines().count(), 401);
    // A row has the same prediction beside other rows, and in other batches.
    folder.write("some.txt", "8\n399\n3\n");
    predict(&folder, "--probabilities --ids some.txt --out some.csv --memory 64MiB");
    let line = |text: &str, id: &str| text.lines().find(|line| line.starts_with(&format!("{id},"))).unwrap().to_owned();
    let some = folder.read("some.csv");
    let numbers = |line: &str| line.split(',').map(|field| field.parse().unwrap()).collect::<Vec<f64>>();
    let is_close = |one: &str, other: &str| numbers(one).iter().zip(numbers(other)).all(|(a, b)| (a - b).abs() < 1e-5);
    for id in ["8", "399", "3"] {
        assert!(is_close(&line(&some, id), &line(&all, id)), "{some}");
    }
    // So it has in a graph without later orders.
    let earlier = shop(false);
    let refused =
        run(&mut earlier.program(&format!("predict {} shop.grappa --out all.csv", folder.path("run").display())));
    assert!(refused.code == Some(0), "{refused:?}");
    let run_path = folder.path("run").display().to_string();
    run(&mut earlier.program(&format!("predict {run_path} shop.grappa --quiet --force --probabilities --out all.csv")))
        .success();
    let (before, after) = (earlier.read("all.csv"), &all);
    for (before, after) in before.lines().zip(after.lines()).skip(1) {
        assert!(is_close(before, after), "{before} and {after}");
    }
    let refused = run(&mut folder.program("predict run shop.grappa --embeddings --out rows.npy"));
    assert_failed(&refused, &["nodes at their times", "leave out --embeddings"]);
    // A graph whose rows have no times, or times of another unit.
    for (time, parts) in [
        (
            "--node-time past=none --time order=at --time future=at --time-unit s",
            ["nodes of type past have none", "--node-time"],
        ),
        (
            "--time order=at --time past=at --time future=at --time-unit ms",
            ["are in ms, and the run's store has s", "--time-unit s"],
        ),
    ] {
        folder.success(&format!(
            "ingest --nodes customer=customer.csv order=order.csv past=past.csv future=future.csv --edges order:by:customer=by.csv --edges \
             customer:asks:past=rows.csv --edges customer:asks:future=rows.csv --src by=order --dst by=customer --src asks=customer --dst \
             asks=row {time} --label past=label --label future=label --split-column past=split --split-column \
             future=split --ids dense --quiet --force --out other.grappa"
        ));
        assert_failed(&run(&mut folder.program("predict run other.grappa --out rows.csv")), &parts);
    }
}

/// The rows of a split of two tasks.
#[derive(Default)]
struct TaskRows {
    customers: Vec<i64>,
    times: Vec<i64>,
    returns: Vec<i64>,
    sums: Vec<f32>,
}

/// Three tables and two tasks as RelBench writes them: customers, products and orders, whether a customer comes back, and what a customer will
/// spend. Customers who spend more come back.
fn database() -> TrainFolder {
    const CUSTOMERS: i64 = 300;
    const DAY: i64 = 86_400_000;
    let folder = TrainFolder::empty();
    let mut random = Random::new(12);
    let write = |name: &str, columns: &[(&str, Column<'_>)], keys: [&str; 3]| {
        let path = folder.path(&format!("shop/{name}.parquet"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let keys = ["pkey_col", "fkey_col_to_pkey_table", "time_col"].into_iter().zip(keys);
        write_described(&path, columns, 2, &keys.collect::<Vec<_>>());
    };
    let (mut buyers, mut products, mut at, mut amounts) = (vec![], vec![], vec![], vec![]);
    let mut splits: [TaskRows; 3] = Default::default();
    for customer in 0..CUSTOMERS {
        let spends = random.below(2) as i64;
        for question in 0..2 {
            let day = 100 + 50 * question + random.below(20) as i64;
            for order in 0..6 {
                // Three orders before the question, and three after it.
                let away = (1 + random.below(20) as i64) * if order < 3 { -1 } else { 1 };
                buyers.push(customer);
                products.push(random.below(20) as i64);
                at.push((day + away) * DAY);
                amounts.push(10.0 + 20.0 * spends as f32 + random.below(5) as f32);
            }
            let split = if question == 0 { usize::from(customer % 5 == 0) } else { 1 + usize::from(customer % 2 == 0) };
            let rows = &mut splits[split];
            rows.customers.push(customer);
            rows.times.push(day * DAY);
            rows.returns.push(spends);
            rows.sums.push(30.0 + 60.0 * spends as f32);
        }
    }
    let all: Vec<i64> = (0..CUSTOMERS).collect();
    let ages: Vec<f32> = all.iter().map(|customer| (customer % 50) as f32).collect();
    let prices: Vec<f32> = (0..20u8).map(f32::from).collect();
    let product_ids: Vec<i64> = (0..20).collect();
    write(
        "db/customers",
        &[("customer_id", Column::Integers(&all)), ("age", Column::Floats(&ages))],
        ["\"customer_id\"", "{}", "null"],
    );
    write(
        "db/products",
        &[("product_id", Column::Integers(&product_ids)), ("price", Column::Floats(&prices))],
        ["\"product_id\"", "{}", "null"],
    );
    write(
        "db/orders",
        &[
            ("customer_id", Column::Integers(&buyers)),
            ("product_id", Column::Integers(&products)),
            ("at", Column::Milliseconds(&at)),
            ("amount", Column::Floats(&amounts)),
        ],
        ["null", "{\"customer_id\": \"customers\", \"product_id\": \"products\"}", "\"at\""],
    );
    let keys = ["null", "{\"customer_id\": \"customers\"}", "\"timestamp\""];
    for (split, rows) in ["train", "val", "test"].into_iter().zip(&splits) {
        let entity =
            [("timestamp", Column::Milliseconds(&rows.times)), ("customer_id", Column::Integers(&rows.customers))];
        // The targets for test are hidden.
        let targets = [("returns", Column::Integers(&rows.returns)), ("spends", Column::Floats(&rows.sums))];
        for (task, target) in targets {
            let target = (split != "test").then_some((task, target));
            write(&format!("tasks/{task}/{split}"), &entity.into_iter().chain(target).collect::<Vec<_>>(), keys);
        }
    }
    folder
}

#[test]
fn a_folder_of_relbench_is_one_ingest_one_run_and_one_prediction() {
    let folder = database();
    folder.success("ingest --tables shop --quiet --out shop.grappa");
    let options =
        "shop.grappa --model rsage --layers 2 --fanouts 5,5 --batch 32 --lr 0.01 --dropout 0 --epochs 30 --threads 1";
    run(&mut folder.program(&format!("{options} --target returns --out returns"))).success();
    let accuracy = folder.summary("returns")["val_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "{accuracy}");
    run(&mut folder.program(&format!("{options} --target spends --out spends"))).success();
    let r2 = folder.summary("spends")["val_r2"].as_f64().unwrap();
    assert!(r2 > 0.8, "{}", folder.summary("spends"));
    // Predictions are the rows of the test files, in their order: after the rows for training and validation.
    run(&mut folder.program("predict returns shop.grappa --split test --out test.csv --quiet")).success();
    let rows = folder.read("test.csv");
    assert_eq!(rows.lines().count(), 1 + 150);
    let ids: Vec<u64> = rows.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(ids, (450..600).collect::<Vec<_>>());
    // Numbers are predicted in their unit, for rows whose targets are hidden.
    run(&mut folder.program("predict spends shop.grappa --split test --out sums.csv --quiet")).success();
    let sums = folder.read("sums.csv");
    let near = sums.lines().skip(1).filter(|line| {
        let sum: f64 = line.split(',').nth(1).unwrap().parse().unwrap();
        [30.0, 90.0].iter().any(|expected| (sum - expected).abs() < 20.0)
    });
    assert!(near.count() > 120, "{sums}");
}

#[test]
fn a_row_draws_the_same_neighbors_beside_any_other_rows() {
    let folder = shop(true);
    // Evaluations draw twice as many: two of the four orders that a row may see.
    let train = format!("{NODE_OPTIONS} --target past --fanouts 2,1 --batch 32 --epochs 2 --out run");
    run(&mut folder.program(&train)).success();
    let predict = |options: &str| {
        let line = format!("predict run shop.grappa --quiet --force --probabilities --out out.csv {options}");
        let scored = run(&mut folder.program(&format!("{line} --json"))).success().json();
        (folder.read("out.csv"), scored["scores"]["accuracy"].as_f64())
    };
    let (all, _) = predict("");
    let (val, accuracy) = predict("--split val");
    let trained = folder.summary("run")["val_accuracy"].as_f64().unwrap();
    assert!((accuracy.unwrap() - trained).abs() < 1e-9, "{accuracy:?} and {trained}");
    assert!(
        val.lines().skip(1).count() == 80 && val.lines().skip(1).all(|line| all.lines().any(|other| other == line))
    );
    // Another batch, of rows in another order, with another number of threads.
    folder.write("some.txt", "399\n8\n3\n");
    let (some, _) = predict("--ids some.txt --threads 2 --memory 64MiB");
    assert!(
        some.lines().skip(1).count() == 3 && some.lines().skip(1).all(|line| all.lines().any(|other| other == line))
    );
}

#[test]
fn options_of_time_change_what_nodes_see() {
    let folder = shop(true);
    let edges = |options: &str| {
        let train = format!("{NODE_OPTIONS} --target past --epochs 1 --force --out run {options}");
        run(&mut folder.program(&train)).success();
        folder.metrics("run")[0]["sampled_edges"].as_u64().unwrap()
    };
    let all = edges("");
    assert!(edges("--time-window 500") < all);
    assert_eq!(edges("--time-window 100000"), all);
    assert_eq!(edges("--time-strategy last"), all);
    assert_eq!(edges("--time-equal hidden"), all);
    assert_eq!(edges("--time-hops edge"), all);
    assert_eq!(edges("--time-encoding 4"), all);
    for (options, parts) in [
        ("--seed-time none --time-window 5", ["time-window 5", "seed-time is none"]),
        ("--time-split 60/20/20", ["time-split", ""]),
        ("--partitions 2 --halo neighbors", ["halo is neighbors", "use --halo stop"]),
        ("--full-graph", ["each seed sees other edges", "leave out --full-graph"]),
        ("--first-hop preaggregated", ["its sums have later edges", "use --first-hop sampled"]),
        ("--evaluate exact", ["each seed is scored at its time", "--evaluate auto"]),
    ] {
        let refused =
            run(&mut folder.program(&format!("{NODE_OPTIONS} --target past {options} --epochs 1 --out refused")));
        assert_failed(&refused, &parts);
    }
}

#[test]
fn partitions_learn_rows_at_their_times_in_one_process_and_in_two() {
    let folder = shop(true);
    let options = format!("{NODE_OPTIONS} --batch 32 --partitions 4 --epochs 40");
    run(&mut folder.program(&format!("{options} --target past --out past"))).success();
    let learned = folder.summary("past")["val_accuracy"].as_f64().unwrap();
    assert!(learned > 0.8, "{learned}");
    let coverage = folder.metrics("past")[0]["coverage_mean"].as_f64().unwrap();
    assert!((0.05..0.7).contains(&coverage), "{coverage}");
    run(&mut folder.program(&format!("{options} --target past --workers 2 --out two"))).success();
    folder.assert_same_losses("past", "two", "two workers");
    run(&mut folder.program(&format!("{options} --target future --out future"))).success();
    let honest = folder.summary("future")["val_accuracy"].as_f64().unwrap();
    assert!(honest < 0.7, "{honest}");
}

#[test]
fn nodes_of_a_graph_without_types_are_learned_at_their_times() {
    let folder = TrainFolder::empty();
    // The class of a node is that of most of its earlier neighbors; later ones are of the other class.
    let mut random = Random::new(9);
    let nodes: Vec<(u64, u64)> = (0..600).map(|_| (random.below(100_000), random.below(2))).collect();
    let table: String = nodes
        .iter()
        .enumerate()
        .map(|(id, (time, class))| format!("{id},{time},{class},{}\n", random.below(100)))
        .collect();
    folder.write("nodes.csv", format!("id,at,class,noise\n{table}"));
    let mut edges = String::new();
    for (node, (time, class)) in nodes.iter().enumerate() {
        for _ in 0..8 {
            let other = random.below(600) as usize;
            let is_earlier = nodes[other].0 <= *time;
            if (nodes[other].1 == *class) == is_earlier {
                edges += &format!("{other}\t{node}\n");
            }
        }
    }
    folder.write("edges.tsv", edges);
    folder.success(
        "ingest --edges edges.tsv --features nodes.csv --features-from class,noise --labels nodes.csv --label class --node-time at --split \
         60/20/20 --ids dense --quiet --out g.grappa",
    );
    let options = "g.grappa --model sage --layers 1 --batch 64 --lr 0.05 --epochs 5 --threads 1";
    let ran = run(&mut folder.program(&format!("{options} --out run"))).success();
    assert!(!ran.stderr.contains("does not use them"), "{ran:?}");
    let predicted =
        run(&mut folder.program("predict run g.grappa --split val --out val.csv --json --quiet")).success().json();
    let trained = folder.summary("run")["val_accuracy"].as_f64().unwrap();
    assert!((predicted["scores"]["accuracy"].as_f64().unwrap() - trained).abs() < 1e-9, "{predicted}");
    let refused = run(&mut folder.program("g.grappa --model gcn --epochs 1 --out gcn"));
    assert_failed(&refused, &["in-degrees of the whole graph", "use --model sage"]);
}
