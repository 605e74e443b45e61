//! A campaign runs mutants of a target's seeds until its time is over.
//!
//! ```text
//! corpus = seeds, found inputs, inputs kept by earlier campaigns
//! until the time is over:
//!     input = mutate(one of the corpus, another), usually repaired
//!     run it
//!     if it breaks a promise: save it, once per place
//!     if its outcome is new, or it takes a new edge of the code: add it to the corpus
//! ```
//!
//! An outcome is the message of the target without its numbers. Messages name the fault, so a new message means that
//! another branch was taken. Edges are known only in builds with counters; see [`crate::coverage`].

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use grappa_tests::random::Random;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Target,
    coverage::{self, Coverage},
    mutate::{INPUT_BYTES_MAX, mutate},
    watch::{Ran, Watch},
};

/// The most inputs of a kind in a corpus.
const CORPUS_MAX: usize = 4000;

/// Outcomes whose first FAMILY_WORDS words are equal are a family.
const FAMILY_WORDS: usize = 5;

/// The most outcomes of a family that count as new.
const FAMILY_MAX: usize = 30;

/// The result of a campaign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of inputs.
    pub runs: u64,
    /// Number of accepted inputs. A target that refuses nearly all mutants finds little.
    pub accepted: u64,
    /// Number of different outcomes.
    pub outcomes: usize,
    /// Number of different edges of the code that inputs took; 0 in a build without counters.
    pub edges: usize,
    /// Time from the start to the last input with a new outcome or edge.
    pub last_new: Duration,
    /// Inputs that broke a promise.
    pub found: Vec<Found>,
}

/// An input that broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The place in the code, or the promise.
    pub place: String,
    /// The message.
    pub message: String,
    /// The input.
    pub input: Vec<u8>,
}

/// The end of a campaign.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// After this time.
    Time(Duration),
    /// After this number of inputs.
    Runs(u64),
}

/// Fuzzes a target, starting with its seeds and `more`. `keep` gets each input with a new outcome or edge.
pub fn fuzz(
    target: &Target,
    watch: &Watch,
    more: Vec<Vec<u8>>,
    seed: u64,
    end: End,
    mut keep: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Report> {
    let begin = Instant::now();
    let mut random = Random::new(seed);
    let mut report = Report::default();
    let (mut outcomes, mut coverage, mut places) = (Outcomes::default(), Coverage::default(), BTreeSet::new());
    let mut corpus = Corpus::default();
    let mut waiting: Vec<Vec<u8>> = (target.seeds)().into_iter().chain(more).collect();
    waiting.reverse();
    loop {
        let is_over = match end {
            // The clock is asked once in a while: some targets take a microsecond.
            End::Time(most) => report.runs.is_multiple_of(16) && begin.elapsed() >= most,
            End::Runs(most) => report.runs >= most,
        };
        if is_over && waiting.is_empty() {
            report.outcomes = outcomes.seen.len();
            report.edges = coverage.edges();
            return Ok(report);
        }
        let given = waiting.pop();
        let is_given = given.is_some();
        let input = given.unwrap_or_else(|| mutant(target, &corpus, &mut random));
        report.runs += 1;
        coverage::clear();
        match watch.run(target, &input) {
            Ran::Kept(outcome) => {
                let is_accepted = outcome.contains("accepted");
                report.accepted += u64::from(is_accepted);
                // Both count, whatever the first one says.
                let is_new = coverage.add() | outcomes.add(&outcome);
                if is_new {
                    report.last_new = begin.elapsed();
                }
                if !is_given && is_new {
                    keep(&input)?;
                }
                if is_given || is_new {
                    corpus.add(input, is_accepted, &mut random);
                }
            }
            Ran::Broke { place, message } => {
                if places.insert(place.clone()) {
                    report.found.push(Found { place, message, input });
                }
            }
        }
    }
}

fn mutant(target: &Target, corpus: &Corpus, random: &mut Random) -> Vec<u8> {
    let mut input = corpus.pick(random).to_vec();
    let other = corpus.pick(random);
    mutate(&mut input, other, target.words, random);
    // Not always: the check of the checksums is a target too.
    if random.below(8) > 0 {
        (target.repair)(&mut input);
    }
    input
}

/// The inputs that mutants are made of. Mutants of accepted inputs reach more code, but a target refuses most inputs, so most inputs
/// that do something new are refused. Each kind is picked as often as the other.
#[derive(Default)]
struct Corpus {
    accepted: Vec<Vec<u8>>,
    refused: Vec<Vec<u8>>,
}

impl Corpus {
    /// Adds an input. If its kind is full, the input replaces another one.
    fn add(&mut self, input: Vec<u8>, is_accepted: bool, random: &mut Random) {
        let inputs = match is_accepted {
            true => &mut self.accepted,
            false => &mut self.refused,
        };
        match inputs.len() < CORPUS_MAX {
            true => inputs.push(input),
            false => {
                let at = random.below(inputs.len() as u64) as usize;
                inputs[at] = input;
            }
        }
    }

    /// An input. Empty if there is none.
    fn pick(&self, random: &mut Random) -> &[u8] {
        let is_accepted = self.refused.is_empty() || !self.accepted.is_empty() && random.below(2) == 0;
        let inputs = match is_accepted {
            true => &self.accepted,
            false => &self.refused,
        };
        match inputs.len() as u64 {
            0 => &[],
            // New ones as often as all others: they lead on.
            length if random.below(2) == 0 => &inputs[(length - 1 - random.below(length.min(16))) as usize],
            length => &inputs[random.below(length) as usize],
        }
    }
}

/// The outcomes seen so far.
#[derive(Default)]
struct Outcomes {
    seen: HashSet<u64>,
    /// Number of outcomes per family.
    families: HashMap<u64, usize>,
}

impl Outcomes {
    /// Whether an outcome is new. Messages that quote their input have unlimited variants, so only FAMILY_MAX of a
    /// family count as new.
    fn add(&mut self, outcome: &str) -> bool {
        let words = words_of(outcome);
        if !self.seen.insert(xxh3_64(words.join(" ").as_bytes())) {
            return false;
        }
        let beginning = xxh3_64(words[..words.len().min(FAMILY_WORDS)].join(" ").as_bytes());
        let members = self.families.entry(beginning).or_default();
        *members += 1;
        *members <= FAMILY_MAX
    }
}

/// The words of an outcome. Numbers, paths, quoted and escaped text are all replaced by `#`.
fn words_of(outcome: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut quote = None;
    for word in outcome.split_ascii_whitespace().take(60) {
        let was_quoted = quote.is_some();
        for byte in word.bytes() {
            match (quote, byte) {
                (Some(open), byte) if byte == open => quote = None,
                (None, b'`' | b'"') => quote = Some(byte),
                _ => {}
            }
        }
        let is_plain = word.bytes().all(|byte| {
            byte.is_ascii_alphabetic() || matches!(byte, b'.' | b',' | b':' | b';' | b'-' | b'(' | b')' | b'\'')
        });
        let word = if is_plain && !was_quoted { word } else { "#" };
        if word != "#" || words.last() != Some(&"#") {
            words.push(word);
        }
    }
    words
}

/// The inputs in a folder, ordered by name; none if the folder does not exist.
pub fn inputs_in(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", folder.display())),
    };
    let mut inputs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if bytes.len() <= INPUT_BYTES_MAX {
            inputs.push((name, bytes));
        }
    }
    inputs.sort();
    Ok(inputs)
}

/// Writes an input into a folder. Its name is a hash of its bytes. Returns the name.
pub fn save(folder: &Path, input: &[u8]) -> Result<String> {
    let name = format!("{:016x}", xxh3_64(input));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(&name);
    fs::write(&path, input).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(name)
}
