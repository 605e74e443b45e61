//! Files that a run leaves for its continuation: recipes of generated graphs, and journals.

use std::fs;

use grappa_io::journal::Journal;
use grappa_synthetic::{Generator, Recipe};
use xxhash_rust::xxh3::xxh3_64;

use super::shared::{JSON, outcome, small};
use crate::{Input, Target, target::Repair};

pub fn targets() -> Vec<Target> {
    vec![
        // A generator has tables for each bit of a node's number and for the degrees: some MB for graphs of 2^20 nodes.
        Target { memory_base: 16 << 20, ..small("recipe", JSON, recipe_seeds, run_recipe) },
        Target { repair: Repair::With(repair_journal), ..small("journal", JSON, journal_seeds, run_journal) },
    ]
}

fn recipe_seeds() -> Vec<Vec<u8>> {
    use grappa_synthetic::{Model, Rmat};
    let recipe = Recipe::new(Model::Rmat(Rmat::graph500(10, 4.0)), 7);
    vec![recipe.to_json().into_bytes()]
}

fn run_recipe(input: &Input) -> String {
    let Ok(text) = str::from_utf8(input.bytes) else {
        return "no UTF-8".to_owned();
    };
    outcome(Recipe::from_json(text), |recipe| {
        let again = Recipe::from_json(&recipe.to_json()).expect("it was just written");
        assert_eq!(again, recipe);
        // Tables of degrees grow with the root of the largest mean degree, so tables of large graphs are not made.
        if recipe.model.nodes() > 1 << 20 || recipe.model.edge_factor() > 10.0 {
            return "large".to_owned();
        }
        outcome(Generator::new(recipe), |_| "accepted".to_owned())
    })
}

fn journal_line(json: &str) -> String {
    format!("{:016x} {json}\n", xxh3_64(json.as_bytes()))
}

fn journal_seeds() -> Vec<Vec<u8>> {
    let lines = [r#"{"block":[0,1],"bytes":12}"#, "null", r#""text""#, "[1.5,2]"];
    vec![lines.map(journal_line).concat().into_bytes(), Vec::new()]
}

/// Adds its checksum to each line.
fn repair_journal(file: &mut [u8]) {
    for line in file.split_inclusive_mut(|&byte| byte == b'\n') {
        if line.len() > 18 && line.ends_with(b"\n") {
            let end = line.len() - 1;
            let checksum = format!("{:016x} ", xxh3_64(&line[17..end]));
            line[..17].copy_from_slice(checksum.as_bytes());
        }
    }
}

fn run_journal(input: &Input) -> String {
    let path = input.scratch.file("journal", input.bytes);
    let resume = || Journal::resume::<serde_json::Value>(&path).map(|(_, records)| records);
    outcome(resume(), |records| {
        // The torn end was truncated, so a second resume changes nothing.
        let left = fs::read(&path).expect("it was just read");
        assert!(input.bytes.starts_with(&left));
        assert_eq!(resume().expect("it was just cut"), records);
        assert_eq!(fs::read(&path).expect("it was just read"), left);
        format!("accepted, records: {}, torn: {}", records.len().min(3), left.len() < input.bytes.len())
    })
}
