//! The division of memory among embeddings, scores and known edges, while links are scored. The denominators were chosen, not measured.

use grappa_io::ledger::MemoryShare;

/// The embeddings and the scores of pairs that are scored one after the other.
pub(super) const PAIRS: MemoryShare = MemoryShare::one(
    "pairs to score",
    2,
    "embeddings of their sources, and their scores; pieces of them have the rest",
);
/// The embeddings of both ends of the pairs that are scored at once.
pub(super) const PIECE: MemoryShare =
    MemoryShare::one("embeddings of pairs", 2, "both rows of each pair, their product, and the rows of destinations");
const _: () = assert!(MemoryShare::fit(&[PAIRS, PIECE]));

/// The best destinations of sources.
pub(super) const BEST: MemoryShare =
    MemoryShare::one("best destinations", 2, "rows of sources and twice as many destinations as are wanted");
/// The destinations whose scores are computed at once.
pub(super) const BLOCK: MemoryShare =
    MemoryShare::one("block of destinations", 2, "their embeddings, the keys that follow from them, and scores");
const _: () = assert!(MemoryShare::fit(&[BEST, BLOCK]));

/// Edges that are ranked, with their candidates.
pub(super) const RANKED: MemoryShare =
    MemoryShare::one("candidates of edges", 2, "pairs of edges and candidates; their scores have the other 1/2");
/// The scores of candidates.
pub(super) const SCORED: MemoryShare = MemoryShare::one("scores of candidates", 2, "the half that candidates leave");
const _: () = assert!(MemoryShare::fit(&[RANKED, SCORED]));

/// A search for the best destinations of some sources.
pub(super) const SEARCH: MemoryShare =
    MemoryShare::one("search", 2, "more sources at a time read embeddings fewer times; results have as much");
/// The results of a search.
pub(super) const RESULTS: MemoryShare = MemoryShare::one("results", 4, "lists of destinations, and the rows to write");
/// The known edges of sources, which are no results.
pub(super) const KNOWN: MemoryShare =
    MemoryShare::one("known edges", 4, "edges of the sources that are compared at a time; fewer sources have fewer");
const _: () = assert!(MemoryShare::fit(&[SEARCH, RESULTS, KNOWN]));
