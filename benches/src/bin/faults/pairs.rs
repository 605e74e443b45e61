//! Pairs of ingests on one output.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use grappa_benches::record::{Record, Table};
use grappa_tests::{
    files::memory_folder,
    graph::Graph,
    kills::tree_of,
    pairs,
    program::{self, run as run_program},
    random::Random,
};

const QUESTION: &str = "Do two ingests of one output, started up to two seconds apart, always make one correct store? One must succeed, \
                        the store must equal the store of an undisturbed run byte for byte, no other files may be left, and the other \
                        ingest must fail with the reason.";

/// Number of pairs, and time between the two starts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of pairs
    #[arg(long, default_value_t = 200)]
    pairs: u64,
    /// The longest time between the starts of a pair, in seconds
    #[arg(long, default_value_t = 2.0)]
    apart: f64,
    /// Selects the times
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Outcomes of pairs with the same options.
#[derive(Default)]
struct Counts {
    pairs: u64,
    first_won: u64,
    second_won: u64,
    /// The loser's error says that another process is at work.
    at_once: u64,
    /// The loser's error says that the store exists.
    after: u64,
    wrong: u64,
}

pub fn run(args: &Args, record: Option<&Path>) -> Result<()> {
    let [inputs, folder] = [memory_folder(), memory_folder()];
    let files = Graph::random(1, 50_000, 1_500_000, 32).write(inputs.path());
    let command = |resume: bool| {
        let mut command = program::ingest(&files.edges, &folder.path().join("graph.grappa"));
        files.node_arguments(&mut command);
        command.args(["--chunks", "8", "--memory", "24MiB", "--threads", "2", "--quiet"]);
        command.args(resume.then_some("--resume"));
        command
    };
    let begin = Instant::now();
    run_program(&mut command(false)).success();
    let took = begin.elapsed();
    let expected = tree_of(folder.path());
    pairs::clear(folder.path());

    let mut random = Random::new(args.seed);
    let options = [[false, false], [false, true], [true, false], [true, true]];
    let mut counts = options.map(|_| Counts::default());
    for number in 0..args.pairs {
        let which = (number % 4) as usize;
        let delay = Duration::from_secs_f64(args.apart * random.unit());
        let pair = pairs::race(folder.path(), options[which].map(command), delay, &expected);
        let counts = &mut counts[which];
        counts.pairs += 1;
        counts.first_won += u64::from(pair.ran[0].code == Some(0));
        counts.second_won += u64::from(pair.ran[1].code == Some(0));
        let said: String = pair.ran.iter().map(|ran| ran.stderr.as_str()).collect();
        counts.at_once += u64::from(said.contains("another process"));
        counts.after += u64::from(said.contains("something with this name exists"));
        if let Some(wrong) = pair.wrong {
            counts.wrong += 1;
            eprintln!("pair {number}, {delay:?} apart, --resume {:?}: {wrong}", options[which]);
        }
        pairs::clear(folder.path());
    }

    let mut table = Table::new(&[
        "--resume",
        "pairs",
        "the first won",
        "the second won",
        "told: at work",
        "told: exists",
        "wrong",
    ]);
    for (resume, counts) in options.iter().zip(&counts) {
        let name = match resume {
            [false, false] => "neither",
            [false, true] => "the second",
            [true, false] => "the first",
            [true, true] => "both",
        };
        let numbers = [
            counts.pairs,
            counts.first_won,
            counts.second_won,
            counts.at_once,
            counts.after,
            counts.wrong,
        ];
        table.row(
            [name.to_owned()]
                .into_iter()
                .chain(numbers.map(|number| number.to_string())),
        );
    }
    let line = format!(
        "cargo run -p grappa-benches --bin faults -- pairs --pairs {} --seed {}",
        args.pairs, args.seed
    );
    let mut page = Record::new("Faults", QUESTION, &line, folder.path())?;
    page.add(table);
    page.add(format_args!(
        "The starts of a pair are up to {} s apart, at random. An undisturbed run took {:.1} s. `told`: the error of the loser, \
         which says that another process is at work, or that the store exists.",
        args.apart,
        took.as_secs_f64()
    ));
    page.finish(record)?;
    match counts.iter().map(|counts| counts.wrong).sum::<u64>() {
        0 => Ok(()),
        wrong => bail!("{wrong} of {} pairs went wrong", args.pairs),
    }
}
