//! Two processes that make the same store. One succeeds, and the other says why it stops.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    files::names_in,
    kills::{Files, tree_of},
    program::Ran,
};

/// The result of two processes.
#[derive(Debug)]
pub struct Pair {
    /// Both processes, in the order of their start.
    pub ran: [Ran; 2],
    /// The fault; `None` if one process made the store and the other left it alone.
    pub wrong: Option<String>,
}

/// Starts two commands that make `folder/NAME.grappa`, the second one `delay` later, and compares the contents of the
/// folder with `expected`. The folder must be empty before.
pub fn race(folder: &Path, mut commands: [Command; 2], delay: Duration, expected: &Files) -> Pair {
    let start = |command: &mut Command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let [first, second] = &mut commands;
    let first = start(first);
    thread::sleep(delay);
    let children = [first, start(second)];
    let ran = children.map(|child| Ran::from(child.wait_with_output().unwrap()));
    let wrong = wrong(folder, &ran, expected);
    Pair { ran, wrong }
}

fn wrong(folder: &Path, ran: &[Ran; 2], expected: &Files) -> Option<String> {
    let losers: Vec<_> = ran.iter().filter(|ran| ran.code != Some(0)).collect();
    let [loser] = losers[..] else {
        return Some(format!("{} of 2 failed: {ran:?}", losers.len()));
    };
    let is_told = loser.stderr.contains("another process") || loser.stderr.contains("something with this name exists");
    if loser.code != Some(1) || !is_told || loser.stderr.contains("--resume") {
        return Some(format!("the loser says: {}", loser.stderr));
    }
    if tree_of(folder) != *expected {
        return Some(format!("the store differs; in the folder are {:?}", names_in(folder)));
    }
    None
}

/// Empties a folder for the next pair.
pub fn clear(folder: &Path) {
    fs::remove_dir_all(folder).unwrap();
    fs::create_dir(folder).unwrap();
}
