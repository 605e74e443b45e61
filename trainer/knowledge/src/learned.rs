//! The rows of a finished run: as a table, and the best tails of heads.

use std::path::Path;

use arrow_array::types::Float32Type;
use arrow_schema::DataType;
use grappa_engine::export::{
    arrays::{ValueColumns, values},
    node_table::{DenseIds, NodeTable},
    pair_table::write_scored_pairs,
    table::{TableFormat, TableOut},
};
use grappa_formats::{DenseId, NodeId, random};
use grappa_io::{
    Error as EngineError,
    ledger::MemoryShare,
    progress::{Progress, check_stopped},
};
use grappa_kernels::for_each;
use grappa_run::{
    checkpoint::{Checkpoints, RunState},
    config::TrainConfig,
    folder::{CHECKPOINTS, ROWS, config_of},
    resume::model_of,
};
use grappa_storage::Graph;

use crate::{
    Error, Result,
    decoder::Asked,
    evaluate::KnownAnswers,
    rows::{Generations, Rows, TableShape},
    session::relations_of,
    step::TripleModel,
    triples::{Triple, Triples},
};

/// Rows in the order of ids.
const TABLE: MemoryShare = MemoryShare::one(
    "rows in order of ids",
    2,
    "larger tables are written in several passes over the files; chosen, not measured",
);

/// The rows of the best model of a run, on disk.
#[derive(Debug)]
pub struct LearnedRows {
    triples: Triples,
    model: TripleModel,
    relations: Rows,
    generations: Generations,
    state: RunState,
    config: TrainConfig,
}

/// The best tails of some heads.
#[derive(Debug, Clone, Copy)]
pub struct BestTails<'a> {
    /// The heads, in the order of the rows.
    pub heads: &'a [NodeId],
    /// The name of the relation.
    pub relation: &'a str,
    /// Tails of each head.
    pub count: usize,
    /// Whether to leave out the tails of known triples.
    pub excludes_known: bool,
}

impl LearnedRows {
    /// Opens the rows that the run in a folder learned from a graph.
    ///
    /// # Errors
    /// If the run has no checkpoint, the graph is another one, or files are missing or damaged.
    pub fn open(run: &Path, graph: Graph) -> Result<Self> {
        let config = config_of(run)?;
        let (path, checkpoint) = model_of(&Checkpoints::look(&run.join(CHECKPOINTS)), run)?;
        let state = checkpoint.state.clone();
        let store_digest = graph.digest()?;
        if state.store_digest != store_digest {
            return Err(Error::WrongStore(
                "the store is not the one that the rows of the run were trained on: use that store".into(),
            ));
        }
        let triples = Triples::open(graph)?;
        let [parts, _] = state.partitions([1, 1]);
        let options = config.triple_options(triples.entity_count() as u64, parts);
        let model = TripleModel::new(&options, triples.relations().len())
            .ok_or_else(|| Error::Options("the run did not learn rows of a knowledge graph".into()))?;
        let shape = TableShape {
            rows: triples.entity_count() as u64,
            dim: model.dim,
            parts,
            key: random::combine(store_digest, config.digest()),
        };
        let generations = Generations::look(&run.join(ROWS), shape, &state)?;
        let of_relations = [model.relation_rows(), model.decoder.relation_dim(model.dim)];
        let relations = relations_of(&path, &checkpoint, of_relations, model.optimizer)?;
        Ok(Self { triples, model, relations, generations, state, config })
    }

    /// The state of the run when it had these rows.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The options of the run.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Writes the rows of all entities: the columns `id` and `embedding`, a list; an array has the rows alone. Returns the number of rows and
    /// of bytes. A table that exceeds the memory takes several passes over the files.
    ///
    /// # Errors
    /// If files cannot be read or written, or progress says to stop.
    pub fn export(&self, out: TableOut<'_>, memory: u64, progress: &dyn Progress) -> Result<(u64, u64)> {
        let (store, dim) = (self.triples.entities(), self.model.dim);
        let format = out.format(TableFormat::Parquet);
        let columns = ValueColumns::Lists("embedding".to_owned(), dim);
        let ids = DenseIds::All(store.manifest().nodes);
        let table = NodeTable {
            store,
            format,
            ids: &ids,
            columns: columns.fields(&DataType::Float32),
            escapes_ids: format == TableFormat::Parquet,
        };
        progress.stage("writing rows", Some(ids.len() * 4 * dim as u64));
        let rows_at_once = (TABLE.bytes(memory) / (4 * dim as u64)).max(1);
        let mut failed = None;
        let written = table.write(
            out,
            4 * dim,
            |sink| {
                for first in (0..ids.len()).step_by(rows_at_once as usize) {
                    check_stopped(progress)?;
                    let rows = self.rows_of_ids(first..ids.len().min(first + rows_at_once));
                    let rows = rows.map_err(|error| match error {
                        Error::Engine(error) | Error::Run(grappa_run::Error::Engine(error)) => error,
                        other => {
                            failed = Some(other);
                            EngineError::Stopped
                        }
                    })?;
                    sink(bytemuck::cast_slice(&rows))?;
                    progress.advance(4 * rows.len() as u64, 0);
                }
                Ok(())
            },
            |bytes| columns.arrays(values::<Float32Type>(bytes)),
        );
        match failed {
            Some(error) => Err(error),
            None => Ok((ids.len(), written?)),
        }
    }

    /// The rows of some dense ids, one after another.
    fn rows_of_ids(&self, ids: std::ops::Range<u64>) -> Result<Vec<f32>> {
        let nodes = ids.map(|id| Ok(self.triples.entities().ids().node_of(DenseId(id))?.0 as u32));
        let nodes = nodes.collect::<Result<Vec<u32>>>()?;
        self.rows_of(&nodes)
    }

    /// The rows of some entities, one after another.
    fn rows_of(&self, entities: &[u32]) -> Result<Vec<f32>> {
        let (dim, parts) = (self.model.dim, self.generations.shape().parts);
        let mut rows = vec![0.0; entities.len() * dim];
        let mut values = Vec::new();
        for part in 0..parts {
            self.generations.read_values(part, &mut values)?;
            let of_part = rows.chunks_mut(dim).zip(entities).filter(|(_, entity)| *entity % parts == part);
            of_part.for_each(|(row, entity)| row.copy_from_slice(&values[(entity / parts) as usize * dim..][..dim]));
        }
        Ok(rows)
    }

    /// Writes the best tails of heads: the columns `source`, `target` and `score`, the best first. Returns the number of rows and of bytes.
    /// An entity is no tail of itself.
    ///
    /// # Errors
    /// If there is no such relation, files cannot be read or written, or progress says to stop.
    pub fn write_best_tails(
        &self,
        request: BestTails<'_>,
        out: TableOut<'_>,
        progress: &dyn Progress,
    ) -> Result<(u64, u64)> {
        let names = self.triples.relations();
        let relation = names.iter().position(|name| name == request.relation).ok_or_else(|| {
            let some: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
            let more = if names.len() > some.len() { ", ..." } else { "" };
            Error::Options(format!(
                "--relation {}: the graph has no such relation; it has {}: {}{more}",
                request.relation,
                names.len(),
                some.join(", ")
            ))
        })? as u32;
        let heads: Vec<u32> = request.heads.iter().map(|node| node.0 as u32).collect();
        let excluded: Vec<Vec<u32>> = match request.excludes_known {
            false => heads.iter().map(|&head| vec![head]).collect(),
            true => {
                let asked = heads.iter().map(|&head| Triple { head, relation, tail: 0 });
                let known = KnownAnswers::of_tails(&self.triples, asked, progress)?;
                let of_head = |&head: &u32| {
                    let mut tails = known.tails(Triple { head, relation, tail: 0 }, names.len()).to_vec();
                    tails.push(head);
                    tails.sort_unstable();
                    tails
                };
                heads.iter().map(of_head).collect()
            }
        };
        let best = self.best_tails(&heads, relation, request.count, &excluded, progress)?;
        let rows: Vec<_> = request
            .heads
            .iter()
            .zip(best)
            .flat_map(|(&head, best)| best.into_iter().map(move |(score, tail)| (head, NodeId(tail.into()), score)))
            .collect();
        let count = rows.len() as u64;
        let bytes =
            write_scored_pairs::<Error>(self.triples.entities(), out, count, progress, |write| Ok(write(&rows)?))?;
        Ok((count, bytes))
    }

    /// For each head, scores and tails, the best first; of equal scores, the first tail.
    fn best_tails(
        &self,
        heads: &[u32],
        relation: u32,
        count: usize,
        excluded: &[Vec<u32>],
        progress: &dyn Progress,
    ) -> Result<Vec<Vec<(f32, u32)>>> {
        let (model, dim, parts) = (self.model, self.model.dim, self.generations.shape().parts);
        let rows = self.rows_of(heads)?;
        let relation = self.relations.row(model.relation_row(Asked::Tail, relation));
        let queries: Vec<Vec<f32>> = rows
            .chunks(dim)
            .map(|row| {
                let mut query = vec![0.0; dim];
                model.query(Asked::Tail, row, relation, &mut query);
                query
            })
            .collect();
        let mut best: Vec<Vec<(f32, u32)>> = vec![Vec::new(); heads.len()];
        let mut values = Vec::new();
        for part in 0..parts {
            check_stopped(progress)?;
            self.generations.read_values(part, &mut values)?;
            let values = &values;
            let work: Vec<_> = best.iter_mut().zip(&queries).zip(excluded).collect();
            for_each(work, |((best, query), excluded)| {
                let tails = (0..).zip(values.chunks(dim)).map(|(row, values): (u32, _)| (row * parts + part, values));
                let scores = tails.map(|(tail, values)| (model.similarity.score(query, values), tail));
                for scored in scores.filter(|(score, tail)| !score.is_nan() && excluded.binary_search(tail).is_err()) {
                    best.push(scored);
                    if best.len() == 2 * count {
                        keep_best(best, count);
                    }
                }
                keep_best(best, count);
            });
        }
        Ok(best)
    }
}

/// Sorts by score, then by entity, and drops all but the first.
fn keep_best(best: &mut Vec<(f32, u32)>, count: usize) {
    best.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    best.truncate(count);
}
