//! Runs contenders in turns, so that a slow minute of the machine affects all of them.

use std::fmt::Display;

use anyhow::{Context, Result};

/// Runs every contender once, then every one again, `turns` times. `run` gets the number of the turn, from 1, which does as a random seed
/// that all contenders of a turn have in common. Prints the result of each run to stderr, formatted by `told`. Returns the runs of each
/// contender.
///
/// # Errors
/// If a run fails.
pub fn in_turns<C: Display, R>(
    contenders: &[C],
    turns: u32,
    mut run: impl FnMut(&C, u32) -> Result<R>,
    told: impl Fn(&R) -> String,
) -> Result<Vec<Vec<R>>> {
    let mut runs: Vec<Vec<R>> = contenders.iter().map(|_| Vec::new()).collect();
    for turn in 1..=turns {
        for (contender, runs) in contenders.iter().zip(&mut runs) {
            let ran = run(contender, turn).with_context(|| format!("measuring {contender}"))?;
            eprintln!("run {turn}: {contender}: {}", told(&ran));
            runs.push(ran);
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn each_contender_runs_once_before_any_runs_twice() {
        let mut order = Vec::new();
        let run = |name: &&str, turn: u32| {
            order.push(format!("{name}{turn}"));
            Ok(order.len())
        };
        let runs = in_turns(&["a", "b"], 2, run, ToString::to_string).unwrap();
        assert_eq!(runs, [[1, 3], [2, 4]]);
        assert_eq!(order.concat(), "a1b1a2b2");
    }

    #[test]
    fn an_error_says_whose_run_failed() {
        let fail = |_: &&str, _: u32| -> Result<()> { bail!("no memory") };
        let error = in_turns(&["DGL"], 1, fail, |()| String::new()).unwrap_err();
        assert_eq!(format!("{error:#}"), "measuring DGL: no memory");
    }
}
