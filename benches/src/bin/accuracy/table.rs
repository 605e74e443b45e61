//! Table of runs: one row per variant, one column per number of layers.

use std::collections::{BTreeMap, BTreeSet};

use grappa_benches::{
    record::Table,
    stats::{mean, standard_deviation},
};

use crate::{
    grid::{Dataset, Variant},
    state::State,
};

/// Runs with another number of epochs have their own rows.
type Row<'a> = (&'a Variant, u32);

/// The table of a dataset.
pub fn of(state: &State, dataset: Dataset) -> Table {
    let mut cells: BTreeMap<Row, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    let mut layers = BTreeSet::new();
    for noted in state.of(dataset) {
        let run = &noted.run;
        layers.insert(run.layers);
        let row = cells.entry((&run.variant, run.epochs)).or_default();
        row.entry(run.layers)
            .or_default()
            .push(noted.ended.test_accuracy * 100.0);
    }
    let header: Vec<String> = layers.iter().map(|layers| format!("{layers} layers")).collect();
    let header: Vec<&str> = std::iter::once("").chain(header.iter().map(String::as_str)).collect();
    let mut table = Table::new(&header);
    let pyg = layers.iter().map(|&layers| match dataset.of_pyg(layers as usize) {
        Some(value) => format!("{value:.1}"),
        None => "-".to_owned(),
    });
    table.row(std::iter::once("PyG, SAGE, unpartitioned".to_owned()).chain(pyg));
    let mut rows: Vec<_> = cells.iter().collect();
    rows.sort_by_key(|((variant, epochs), _)| (*epochs, variant.rank()));
    for ((variant, epochs), row) in rows {
        let mut name = variant.to_string();
        if *epochs != 50 {
            name += &format!(", {epochs} epochs");
        }
        let of_layers = layers.iter().map(|layers| {
            let Some(values) = row.get(layers) else {
                return "-".to_owned();
            };
            let mut references = cells
                .iter()
                .filter(|((of, times), _)| of.is_reference() && of.model == variant.model && times == epochs);
            let reference = references.find_map(|(_, row)| row.get(layers));
            let mut cell = format!(
                "{:.2} ± {:.2} ({})",
                mean(values),
                standard_deviation(values),
                values.len()
            );
            if let Some(reference) = reference.filter(|_| !variant.is_reference()) {
                cell += &format!(", {:+.2}", mean(values) - mean(reference));
            }
            cell
        });
        table.row(std::iter::once(name).chain(of_layers));
    }
    table
}

/// Notes about all runs.
pub fn notes(state: &State) -> String {
    let mut sent: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let (mut runs, mut seconds) = (0, 0.0);
    for noted in Dataset::RECORDED.into_iter().flat_map(|dataset| state.of(dataset)) {
        runs += 1;
        seconds += noted.ended.seconds;
        let partitions = noted.run.variant.partitions;
        if partitions > 1 {
            sent.entry(partitions)
                .or_default()
                .insert(noted.ended.gradient_bytes_per_step as u64);
        }
    }
    let mut text = format!(
        "{runs} runs with one thread each, {:.0} s on average.",
        seconds / f64::from(runs.max(1))
    );
    for (partitions, bytes) in sent {
        if let (Some(least), Some(most)) = (bytes.first(), bytes.last()) {
            text += &format!(" With {partitions} partitions, the gradient of a step has {least} to {most} bytes.");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{grid::tests::runs, state::tests::ended};

    #[test]
    fn rows_are_variants_with_means_over_seeds_and_differences_to_the_whole_graph() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(&folder.path().join("runs.jsonl")).unwrap();
        for run in runs(&["--layers=2,3", "--seeds=1,2", "--halo=stop", "--first-hop=sampled"]) {
            let whole = run.variant.partitions == 1;
            if run.layers == 3 && !whole {
                continue;
            }
            let accuracy = if whole { 0.62 } else { 0.60 } + 0.01 * run.seed as f64;
            state.add(run, ended(accuracy)).unwrap();
        }
        let text = of(&state, Dataset::Wordnet).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "| PyG, SAGE, unpartitioned | 61.4 | - |");
        assert_eq!(
            lines[3],
            "| unpartitioned, first hop sampled | 63.50 ± 0.71 (2) | 63.50 ± 0.71 (2) |"
        );
        assert_eq!(
            lines[4],
            "| K = Q = 16, halo stop, first hop sampled, sweep every 5, correction none | 61.50 ± 0.71 (2), -2.00 | - |"
        );
        assert_eq!(lines.len(), 5);
        assert!(notes(&state).contains("6 runs"), "{}", notes(&state));
    }
}
