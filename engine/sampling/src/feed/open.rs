//! Opens a feed: measures the batches, divides the memory and loads the resident rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Condvar, Mutex, atomic::AtomicBool},
};

use grappa_formats::{ChunkId, aggregates::AggregateKind, random};
use grappa_io::{
    Error, Result, heap,
    ledger::Ledger,
    read::{self, ReadEngine},
    slots::Slots,
};
use grappa_storage::{
    Graph, Store,
    aggregates::{Aggregates, manifest_digest},
    no_features,
};
use grappa_synthetic::{Generator, Recipe};

use super::{
    access::{GeneratedRows, RowAccess, StoredRows},
    budget::{self, FeedBudget, RowDemand},
    buffer::FeatureBuffer,
    coalescing::measure_coalescing_gap,
    core::FeedCore,
    delivery::Feed,
    demand::{MINIBATCH, MinibatchDemand, batch_bytes},
    files::RowFiles,
    options::{FeedOptions, HostProcesses},
    planner::Planner,
    pool::{Pool, PoolRows, geometry::PoolGeometry},
    reserve::MemoryReserve,
    resident::Resident,
    rows::{RowContent, RowFormat, RowType},
    sharing::{Room, SharedRows},
    source::BatchSource,
    state::State,
    stats::Counters,
};

/// A feed that is not open yet, with the division of its memory for the minibatches that were measured.
pub(crate) struct FeedPlan {
    inputs: FeedInputs,
    division: Result<(MinibatchDemand, FeedBudget)>,
}

/// The rows of a feed, and its options.
struct FeedInputs {
    graph: Graph,
    options: FeedOptions,
    /// None if there are no features.
    format: Option<RowFormat>,
    /// By relation.
    aggregates: BTreeMap<usize, Aggregates>,
    /// None if no rows are stored.
    stored: Option<StoredDemand>,
}

struct StoredDemand {
    files: RowFiles,
    /// The chunks that should be resident, as far as the store has their rows, each once.
    owned: Vec<ChunkId>,
    rows: RowDemand,
}

impl Feed {
    /// Opens a feed that delivers features of `store` for minibatches of `source`. Samples a few minibatches to measure
    /// their size. If the rows of the `owned` chunks fit in memory they become resident, and are read now. With
    /// [`FeedOptions::host`], the processes of a machine share them if one has no room for all, and all must open a
    /// feed.
    ///
    /// # Errors
    /// If the memory is too small for one minibatch (the error names a sufficient budget), if the store lacks the
    /// requested features or pre-aggregated features, or if its files cannot be read.
    pub fn open<S: BatchSource>(
        store: &Arc<Store>,
        owned: &[ChunkId],
        source: &S,
        options: &FeedOptions,
    ) -> Result<Self> {
        FeedPlan::new(&Graph::from_store(store), owned, source, options)?.open()
    }
}

impl FeedPlan {
    /// Plans a feed as [`Feed::open`] opens it.
    ///
    /// # Errors
    /// If the store lacks the requested features or pre-aggregated features, or a minibatch cannot be sampled.
    pub fn new<S: BatchSource>(graph: &Graph, owned: &[ChunkId], source: &S, options: &FeedOptions) -> Result<Self> {
        let inputs = FeedInputs::new(graph, owned, options)?;
        let division = inputs.measured_division(source)?;
        Ok(Self { inputs, division })
    }

    /// Whether the memory is large enough.
    pub fn fits(&self) -> bool {
        self.division.is_ok()
    }

    /// Opens the feed.
    ///
    /// # Errors
    /// If the memory is too small, or files cannot be read.
    pub fn open(self) -> Result<Feed> {
        self.open_with(|files, options| read::open(options.engine, files.files.clone(), options.read.clone()))
    }

    /// Opens the feed with the engine that `open_engine` returns.
    pub(super) fn open_with(
        self,
        open_engine: impl FnOnce(&RowFiles, &FeedOptions) -> Result<Box<dyn ReadEngine>>,
    ) -> Result<Feed> {
        let FeedInputs { graph, options: requested, format, aggregates, stored } = self.inputs;
        let (demand, mut budget) = self.division?;
        // A division starts from the read options of the user. When it looks for a sufficient budget, that budget may
        // allow larger reads than this one.
        let options = &FeedOptions { read: budget::read_options(&requested), ..requested.clone() };
        let mut shared = None;
        if let Some(host) = &options.host {
            let rows = stored.as_ref().map(|stored| stored.rows);
            let with_part = shared_budget(&requested, &demand, format.as_ref(), rows, host);
            match &stored {
                Some(StoredDemand { files, owned, .. }) => {
                    let identity = identity(&graph, &aggregates)?;
                    let room = Room { for_all: budget.resident_bytes > 0, for_part: with_part.is_some() };
                    shared = SharedRows::agree(host, files, owned, identity, room)?;
                }
                // Tells the others that this process shares no rows.
                None => drop(host.exchange(&[])?),
            }
            budget = with_part.filter(|_| shared.is_some()).unwrap_or(budget);
        }
        Ledger::new(options.memory_bytes).enter("the feature feed", budget.leases.clone())?;
        let (access, planner, engine) = match (&format, stored) {
            (Some(format), Some(StoredDemand { files, owned, .. })) => {
                let mut engine = open_engine(&files, options)?;
                let resident = match shared {
                    Some(shared) => Some(shared.fill(&files, &owned, &mut *engine)?),
                    None if budget.resident_bytes > 0 => Some(Resident::load(&files, &owned, &mut *engine)?),
                    None => None,
                };
                let pool = match budget.pool {
                    Some(geometry) => Some(pool_rows(geometry, &files, format, options, &mut *engine)?),
                    None => None,
                };
                let rows = Arc::new(StoredRows { files, resident, pool });
                let planner = budget.pool.map(|geometry| Ok(Planner::new(Pool::new(geometry)?, rows.clone())));
                let planner = planner.transpose()?;
                (RowAccess::Stored(rows), planner, Some(engine))
            }
            (Some(format), None) => {
                let store = graph.node_types()[format.columns[0].row_type.node_type].clone();
                let recipe = Recipe::from_json(&store.manifest().generator)?;
                let generated = GeneratedRows { features: Generator::new(recipe)?.features(format.dim_max()), store };
                (RowAccess::Generated(generated), None, None)
            }
            (None, _) => (RowAccess::None, None, None),
        };
        let buffers = match &format {
            Some(format) => {
                let nodes = |node_type| demand.nodes_of(node_type);
                let buffers =
                    (0..budget.buffers).map(|_| FeatureBuffer::new(nodes, format, options.rows.register.clone()));
                Some(buffers.collect::<Result<_>>()?)
            }
            None => None,
        };
        let batches = (0..budget.in_flight_batches).map(|_| {
            let mut batch = demand.batch(format.as_ref())?;
            batch.reserved_bytes = batch_bytes(&batch);
            if let (Some(format), Some(_)) = (&format, &planner) {
                heap::reserve(&mut batch.slots, demand.rows(format), MINIBATCH)?;
            }
            Ok(batch)
        });
        let batches = batches.collect::<Result<_>>()?;
        tracing::debug!(?budget, ?demand, "opened a feed");
        let engine_name = engine.as_ref().map(|engine| engine.name());
        // Without a pool, all rows are read by now.
        let engine = engine.filter(|_| planner.is_some());
        Ok(Feed {
            core: Arc::new(FeedCore {
                state: Mutex::new(State::new(batches, buffers, planner, options.threads, budget.lookahead)),
                changed: Condvar::new(),
                stop: AtomicBool::new(false),
                counters: Counters::default(),
                access,
                format,
                edge_features: options.edge_features.clone(),
                reserve: MemoryReserve::from_options(options),
                scratch_bytes: demand.scratch_bytes,
            }),
            engine: Arc::new(Mutex::new(engine)),
            engine_name,
            threads: options.threads,
            budget,
        })
    }
}

impl FeedInputs {
    fn new(graph: &Graph, owned: &[ChunkId], options: &FeedOptions) -> Result<Self> {
        if options.threads == 0 {
            return Err(Error::out_of_range("the number of feed threads", "at least 1", 0));
        }
        let types = graph.node_types();
        let with_features =
            |node_type: &usize| options.rows.features && types[*node_type].manifest().features.is_some();
        let with_features: Vec<usize> = (0..types.len()).filter(with_features).collect();
        if options.rows.features && with_features.is_empty() {
            return Err(no_features(types[0].path()));
        }
        let is_stored = |node_type: &usize| types[*node_type].manifest().stored_features().is_some();
        let is_stored = !with_features.is_empty() && with_features.iter().all(is_stored);
        let aggregates = match options.rows.aggregates {
            Some(kind) => open_aggregates(graph, kind, is_stored)?,
            None => BTreeMap::new(),
        };
        let format = (!with_features.is_empty()).then(|| {
            let columns = (0..types.len()).flat_map(|node_type| {
                let row_type = RowType { node_type, start: graph.positions().range(node_type).start };
                let spec = types[node_type].manifest().features.as_ref().filter(|_| options.rows.features);
                let features = spec.map(|spec| (row_type, RowContent::Features, RowFormat::features(spec)));
                let into_type = aggregates.iter().filter(move |(relation, _)| {
                    graph.manifest().relations[**relation].destination as usize == node_type
                });
                let aggregates =
                    into_type.map(move |(&relation, rows)| (row_type, RowContent::Aggregates(relation), rows.layout()));
                features.into_iter().chain(aggregates)
            });
            RowFormat::new(&columns.collect::<Vec<_>>(), options.rows.output)
        });
        let stored = match &format {
            Some(format) if is_stored => {
                let files = RowFiles::open(graph, format, &aggregates)?;
                let owned: BTreeSet<_> = owned.iter().copied().collect();
                let of_types = format.types().flat_map(|RowType { node_type, .. }| {
                    let first = graph.positions().chunks_of(node_type).start;
                    types[node_type].feature_chunks().map(move |chunk| ChunkId(first + chunk.0))
                });
                let all: Vec<_> = of_types.collect();
                let rows_of = |chunks: &[ChunkId]| chunks.iter().map(|&chunk| files.chunks.len(chunk)).sum::<u64>();
                let all_rows = rows_of(&all);
                let owned: Vec<_> = all.into_iter().filter(|chunk| owned.contains(chunk)).collect();
                let resident = rows_of(&owned);
                let resident_bytes = Resident::bytes(&files, &owned);
                let rows = RowDemand { resident_bytes, other_rows: all_rows - resident, all_rows };
                Some(StoredDemand { files, owned, rows })
            }
            _ => None,
        };
        Ok(Self { graph: graph.clone(), options: options.clone(), format, aggregates, stored })
    }

    /// Measures minibatches and divides the memory for them.
    fn measured_division<S: BatchSource>(&self, source: &S) -> Result<Result<(MinibatchDemand, FeedBudget)>> {
        // Sampling may take minutes. If the budget is too small for the seeds alone, it is not needed for the error.
        let of_seeds = MinibatchDemand::of_seeds(source);
        if let Err(refused) = self.divided(of_seeds, "the feature feed, even if minibatches had only seeds") {
            return Ok(Err(refused));
        }
        let margins = MinibatchDemand::measure(source, self.options.edge_features.as_deref())?.into_iter();
        // Later minibatches may be larger. But a run that was stopped measures other ones when it is resumed, and
        // should not be refused.
        let allowed = if self.options.keeps_margin { 1 } else { margins.len() };
        let mut divided =
            margins.take(allowed).map(|demand| self.divided(demand, "the feature feed, with minibatches of this size"));
        Ok(match divided.next().expect("there is a margin") {
            Ok(divided) => Ok(divided),
            // The error names memory that has room for the whole margin.
            Err(refused) => divided.find_map(Result::ok).ok_or(refused),
        })
    }

    /// Divides the memory for minibatches of a size. `operation` is the consumer in the error.
    fn divided(&self, mut demand: MinibatchDemand, operation: &str) -> Result<(MinibatchDemand, FeedBudget)> {
        demand.held_bytes += self.stored.as_ref().map_or(0, |stored| stored.files.checksum_bytes());
        let rows = self.stored.as_ref().map(|stored| stored.rows);
        let budget = FeedBudget::divide(&self.options, &demand, self.format.as_ref(), rows, operation)?;
        Ok((demand, budget))
    }
}

/// The budget of a process that shares the resident rows with the others of its machine. None if they do not fit.
fn shared_budget(
    options: &FeedOptions,
    demand: &MinibatchDemand,
    format: Option<&RowFormat>,
    rows: Option<RowDemand>,
    host: &Arc<dyn HostProcesses>,
) -> Option<FeedBudget> {
    let rows = rows.map(|rows| RowDemand { resident_bytes: rows.resident_bytes.div_ceil(host.count().into()), ..rows });
    let budget = FeedBudget::divide(options, demand, format, rows, "the feature feed").ok()?;
    (budget.resident_bytes > 0).then_some(budget)
}

/// Names the rows of a feed, so that processes do not share rows of different stores.
fn identity(graph: &Graph, aggregates: &BTreeMap<usize, Aggregates>) -> Result<u64> {
    let first = aggregates.values().next();
    let kind = first.map_or(0, |aggregates| 2 + 2 * aggregates.kind() as u64 + u64::from(aggregates.with_features()));
    let digests = graph.node_types().iter().map(|store| manifest_digest(store.path()));
    let digests = digests.collect::<Result<Vec<_>>>()?;
    Ok(random::combine(digests.into_iter().reduce(random::combine).expect("a graph has a type"), kind))
}

fn pool_rows(
    geometry: PoolGeometry,
    files: &RowFiles,
    format: &RowFormat,
    options: &FeedOptions,
    engine: &mut dyn ReadEngine,
) -> Result<PoolRows> {
    let slots = Slots::new(geometry.slots(), format.slot_bytes())?;
    let gap = options.coalescing_gap_bytes.map_or_else(|| measure_coalescing_gap(files, engine), Ok)?;
    Ok(PoolRows { geometry, slots, coalescing_gap_bytes: gap.into() })
}

/// The pre-aggregated features of all relations whose sources have features.
fn open_aggregates(graph: &Graph, kind: AggregateKind, is_stored: bool) -> Result<BTreeMap<usize, Aggregates>> {
    let path = graph.path().display();
    if !is_stored {
        return Err(Error::conflict(
            format!(
                "{path}: pre-aggregated features are delivered with stored features only, and features are computed or not \
                 requested here"
            ),
            "sample without pre-aggregated features",
        ));
    }
    let opened = graph.relations_with_features().map(|number| {
        let aggregates = Aggregates::open(graph.relation(number), kind)?.ok_or_else(|| {
            let missing = match graph.has_types() {
                true => {
                    format!("pre-aggregated features of kind {kind} of {}", graph.manifest().relation_name(number))
                }
                false => format!("pre-aggregated features of kind {kind}"),
            };
            let remedy = format!("make them with `grappa-store preaggregate {path} --kind {kind}`");
            Error::missing(missing, graph.path(), remedy)
        })?;
        Ok((number, aggregates))
    });
    opened.collect()
}
