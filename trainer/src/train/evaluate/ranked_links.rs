//! The held-out edges that a rank ranks, and the edges that are known.

use grappa_formats::EdgePart;
use grappa_sampling::links::Positives;

use crate::train::{links::LinkData, model_on_graph::ModelOnGraph};
use crate::{Result, links::RankedEdges};

/// The parts of the store whose edges are known.
pub(super) fn known_parts(links: &LinkData) -> Vec<EdgePart> {
    [vec![EdgePart::Graph], links.task.store.manifest().held_out()].concat()
}

/// Those of `edges`, the edges of a part, that this rank ranks, with their candidates if these stay in memory.
pub(super) fn of_rank<'a>(
    on: &ModelOnGraph<'_>,
    links: &'a LinkData,
    part: EdgePart,
    edges: &'a Positives,
    known_parts: &'a [EdgePart],
) -> Result<RankedEdges<'a>> {
    let (rank, ranks) = (on.processes.rank() as usize, on.processes.count() as usize);
    let [start, end] = [rank, rank + 1].map(|rank| edges.edges().len() * rank / ranks);
    let ranked = RankedEdges {
        store: &links.task.store,
        parts: known_parts,
        candidates: &links.candidates,
        edges: &edges.edges()[start..end],
        times: if edges.times().is_empty() { &[] } else { &edges.times()[start..end] },
        first: start as u64,
        drawn: None,
    };
    let draw = || ranked.draw_all(&ranked.open_known()?, on.config.threads());
    Ok(RankedEdges { drawn: links.candidates_of(part, draw)?, ..ranked })
}
