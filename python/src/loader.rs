//! Minibatches for Python. A thread owns the loader of the engine; Python gets its batches through a channel.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use grappa_engine::{
    Batch, Loader as EngineLoader, Progress, Store as EngineStore,
    formats::manifest::PermutationSpec,
    sample::{
        Fanouts, Join, LoaderOptions, Sampler, Seeds,
        feed::{BatchSource, Division, MinibatchOptions, Stopper},
    },
};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use crate::{
    array::{Array, LEASES_MAX, Leases},
    background,
    error::exception,
    labels::Labels,
    layout::{Drawing, Layout, Neighborhood},
    links::{LinkArrays, LinkOptions, Links},
    nodes::{Numbers, collected, joined, nodes_at, nodes_of, positions_of},
    partitions::{LossWeight, PartitionOptions, Partitions},
    process::OfProcess,
    store::Store,
};

/// Batches that are ready while Python uses another one.
const READY_BATCHES: usize = 1;
/// The error of an iterator whose epoch was ended from outside.
const ENDED: &str = "this epoch was ended: its loader was closed, or started another epoch";
/// The error of an epoch whose thread panicked.
const PANICKED: &str = "a thread of this loader panicked; the message is on stderr";
/// How often Python sees Ctrl-C while it waits.
const INTERVAL: Duration = Duration::from_millis(100);

/// The memory of a loader that is given none, in bytes: half of the free memory.
#[pyfunction]
pub fn default_memory() -> PyResult<u64> {
    let fanouts = Fanouts::new(&[1]).map_err(exception)?;
    Ok(LoaderOptions::new(MinibatchOptions::new(Sampler::uniform(fanouts, false))).memory)
}

/// Samples minibatches of a store on threads of its own.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Loader {
    running: OfProcess<Running>,
    batches: u64,
    seeds: u64,
    leases: Arc<Leases>,
}

/// The thread of a loader. It ends when this is dropped.
struct Running {
    /// None after the thread was told to end.
    commands: Mutex<Option<Sender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    current: Mutex<EpochInProgress>,
}

/// How an epoch is ended from outside.
#[derive(Clone, Default)]
struct EpochInProgress {
    inbox: Inbox,
    end: Arc<Mutex<EpochEnd>>,
}

#[derive(Default)]
struct EpochEnd {
    is_ended: bool,
    /// Wakes the thread if it waits for a batch. None before the feed has begun.
    stopper: Option<Stopper>,
}

/// Where the batches of an epoch arrive. None after the epoch was ended from outside.
type Inbox = Arc<Mutex<Option<Receiver<Delivered>>>>;

/// A batch, or None after the last one.
type Delivered = Result<Option<Prepared>, grappa_engine::Error>;

/// A batch, or why there is none.
type Received = Result<Delivered, RecvTimeoutError>;

struct Command {
    epoch: u64,
    /// None for the order that the options decide.
    order: Option<Order>,
    batches: SyncSender<Delivered>,
    end: Arc<Mutex<EpochEnd>>,
}

/// The order of an epoch.
struct Order {
    /// The position of each seed in the list of all seeds.
    positions: Vec<i64>,
    /// The end of each batch in it. None if the options divide it.
    ends: Option<Vec<u64>>,
}

/// A batch as Python gets it.
struct Prepared {
    batch: Batch,
    neighborhood: Neighborhood,
    positions: Option<Vec<i64>>,
    input_ids: Vec<i64>,
    labels: Option<Array>,
    links: Option<LinkArrays>,
    loss_weight: LossWeight,
}

/// What the thread needs.
struct Delivery {
    store: Arc<EngineStore>,
    loader: EngineLoader,
    partitions: Partitions,
    layout: Layout,
    labels: Option<Arc<Labels>>,
    /// Whether batches have the labels of all nodes, not only of seeds.
    labels_all: bool,
    /// Whether batches have the positions of their nodes in the store, too.
    by_position: bool,
    /// None if seeds are nodes.
    links: Option<Links>,
}

/// What batches have, and how they are made.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    batch_size: usize,
    shuffle: bool,
    seed: u64,
    memory: Option<u64>,
    threads: Option<usize>,
    features: bool,
    /// `"seeds"`, `"all"`, or None for none.
    labels: Option<String>,
    /// Whether all batches but the last one have `batch_size` seeds.
    full_batches: bool,
    /// Whether that smaller one is left out.
    drop_last: bool,
    /// Whether seeds are positions in the store, and batches have the positions of their nodes, too. In ascending order of positions,
    /// adjacency lists are read front to back.
    by_position: bool,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (store, seeds, drawing, options, partitions, links = None))]
    fn new(
        py: Python<'_>,
        store: &Store,
        seeds: Option<Numbers>,
        drawing: Drawing,
        options: Options,
        partitions: PartitionOptions,
        links: Option<LinkOptions>,
    ) -> PyResult<Self> {
        if options.batch_size == 0 {
            return Err(PyValueError::new_err("batch_size is 0; give at least 1"));
        }
        if options.threads == Some(0) {
            return Err(PyValueError::new_err("threads is 0; give at least 1"));
        }
        let labels = match options.labels {
            Some(_) => py.detach(|| store.mapped_labels())?,
            None => None,
        };
        let store = store.engine().clone();
        let delivery = background::run(py, None, move |progress| {
            Delivery::open(store, seeds, drawing, &options, partitions, labels, links, &*progress)
        })?;
        let (batches, seeds) = delivery.size();
        let (sender, receiver) = channel();
        let thread = thread::Builder::new()
            .name("grappa-loader".to_owned())
            .spawn(move || delivery.run(&receiver))
            .map_err(|source| exception(grappa_engine::Error::Thread { source }))?;
        Ok(Self {
            running: OfProcess::new(Running {
                commands: Mutex::new(Some(sender)),
                thread: Mutex::new(Some(thread)),
                current: Mutex::default(),
            }),
            batches,
            seeds,
            leases: Arc::default(),
        })
    }

    /// Number of batches of an epoch.
    fn __len__(&self) -> usize {
        self.batches as usize
    }

    /// Number of seeds of an epoch.
    #[getter]
    fn num_seeds(&self) -> u64 {
        self.seeds
    }

    /// Starts an epoch. An earlier one that is not finished ends. `positions` is the order of its seeds, as valid positions in the list of
    /// all seeds, and `ends` has the end of each batch in it; both only where nothing is divided among processes or shuffled.
    #[pyo3(signature = (epoch, positions = None, ends = None))]
    fn epoch(
        &self,
        py: Python<'_>,
        epoch: u64,
        positions: Option<Numbers>,
        ends: Option<Numbers>,
    ) -> PyResult<Batches> {
        let order = positions.map(|Numbers(positions)| Order {
            positions,
            ends: ends.map(|Numbers(ends)| ends.into_iter().map(|end| end as u64).collect()),
        });
        let running = self.running.get()?;
        py.detach(|| running.end_epoch());
        let (sender, receiver) = sync_channel(READY_BATCHES);
        let current = EpochInProgress { inbox: Inbox::new(Mutex::new(Some(receiver))), end: Arc::default() };
        let command = Command { epoch, order, batches: sender, end: current.end.clone() };
        let sent = match &*lock(&running.commands) {
            Some(commands) => commands.send(command).map_err(|_| PANICKED),
            None => Err("this loader is closed"),
        };
        sent.map_err(PyRuntimeError::new_err)?;
        *lock(&running.current) = current.clone();
        Ok(Batches {
            epoch: OfProcess::new(EndsWhenDropped(current)),
            is_finished: AtomicBool::new(false),
            leases: self.leases.clone(),
        })
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        // Threads of a process that was forked do not exist in the other one.
        if let Ok(running) = self.running.get() {
            py.detach(|| running.end());
        }
    }
}

/// The lock of a value that no panic leaves half changed.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    fn end(&self) {
        drop(lock(&self.commands).take());
        self.end_epoch();
        let thread = lock(&self.thread).take();
        // A panic was shown when it happened.
        thread.map(JoinHandle::join);
    }

    fn end_epoch(&self) {
        // The lock is free before the epoch's own ones are taken.
        let current = lock(&self.current).clone();
        current.end();
    }
}

impl EpochInProgress {
    /// Ends the epoch: the thread finds that nobody takes its batches.
    fn end(&self) {
        drop(lock(&self.inbox).take());
        let mut end = lock(&self.end);
        end.is_ended = true;
        // It may wait for memory that Python has.
        if let Some(stopper) = end.stopper.take() {
            stopper.stop();
        }
    }
}

/// An epoch that its iterator ends: its threads have nothing to do after a `break`.
struct EndsWhenDropped(EpochInProgress);

impl Drop for EndsWhenDropped {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Stops work before the first batch when its epoch is ended.
struct UntilEnd<'a>(&'a Mutex<EpochEnd>);

impl Progress for UntilEnd<'_> {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {}

    fn is_stopped(&self) -> bool {
        lock(self.0).is_ended
    }
}

impl Delivery {
    #[expect(clippy::too_many_arguments, reason = "they are all that a loader is made of")]
    fn open(
        store: Arc<EngineStore>,
        seeds: Option<Numbers>,
        drawing: Drawing,
        options: &Options,
        partitions: PartitionOptions,
        labels: Option<Arc<Labels>>,
        links: Option<LinkOptions>,
        progress: &dyn Progress,
    ) -> PyResult<Self> {
        let threads = options.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let (sampler, layout) = drawing.open(&store, threads)?;
        let mut loading = LoaderOptions::new(MinibatchOptions {
            batch: options.batch_size,
            division: match (options.drop_last, options.full_batches) {
                (true, _) => Division::OnlyFull,
                (false, true) => Division::Full,
                (false, false) => Division::Even,
            },
            join_steps: Some(Join::Apart),
            seed: options.seed,
            shuffle: options.shuffle,
            disjoint: layout.is_disjoint(),
            ..MinibatchOptions::new(sampler)
        });
        loading.rows.features = options.features && store.manifest().features.is_some();
        loading.edge_features = layout.takes_edge_features();
        loading.threads = threads;
        partitions.apply(&mut loading)?;
        loading.memory = options.memory.unwrap_or(loading.memory);
        loading.threads = options.threads.unwrap_or(loading.threads);
        let seeds = match seeds {
            // The order of the store is only the order of node numbers if the store kept it.
            None if options.shuffle
                || options.by_position
                || links.is_some()
                || store.manifest().ids.permutation == PermutationSpec::Identity =>
            {
                Seeds::All
            }
            None => {
                let nodes = store.manifest().nodes;
                let all = collected(0..nodes as i64, nodes as usize, "the numbers of all nodes").map_err(exception)?;
                Seeds::List(nodes_of(&store, &all)?.into())
            }
            Some(Numbers(positions)) if options.by_position => Seeds::List(nodes_at(&store, &positions)?.into()),
            Some(Numbers(numbers)) => Seeds::List(nodes_of(&store, &numbers)?.into()),
        };
        let links = links.map(|links| Links::open(links, &store, &mut loading, progress)).transpose()?;
        let mut loader = EngineLoader::new(&store, loading);
        let mut partitions = Partitions::new(partitions, seeds, options.seed);
        partitions.open(&mut loader, &store, 0, progress).map_err(exception)?;
        if let Some(links) = &links {
            links.open_epoch(&mut loader, 0, progress).map_err(exception)?;
        }
        partitions.check(&loader.all_batches(0)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self {
            store,
            loader,
            partitions,
            layout,
            labels,
            labels_all: options.labels.as_deref() == Some("all"),
            by_position: options.by_position,
            links,
        })
    }

    /// Number of batches of an epoch, and of seeds or positives of all.
    fn size(&self) -> (u64, u64) {
        match &self.links {
            Some(links) => (self.loader.all_batches(0).batches(), links.edges),
            None => {
                let all = self.loader.all_batches(0);
                (all.steps(), all.seeds_of_all())
            }
        }
    }

    /// Delivers epochs until the loader is dropped.
    fn run(mut self, commands: &Receiver<Command>) {
        for command in commands {
            let end = self.deliver(&command).map(|()| None);
            // Whoever waits may no longer need it.
            let _ = command.batches.send(end);
        }
    }

    /// Delivers the batches of an epoch, until there are no more or nobody wants them.
    fn deliver(&mut self, command: &Command) -> Result<(), grappa_engine::Error> {
        let Self { loader, partitions, links, .. } = self;
        let until_end = UntilEnd(&command.end);
        let order = command.order.as_ref();
        if let Some(links) = links {
            match order {
                Some(order) => links.open_order(loader, &order.positions),
                None => links.open_epoch(loader, command.epoch, &until_end)?,
            }
            loader.set_batches(order.and_then(|order| order.ends.clone()));
            let batches = loader.batches(command.epoch, |batches| batches)?;
            return self.deliver_each(&batches, command, |delivery, batch| {
                let links = delivery.links.as_ref().expect("the loader is of links");
                let arrays = links.arrays(&batches, batch.index(), batch.minibatch())?;
                let input_ids = joined(&[&arrays.numbers], "the numbers of edges")?;
                Ok(Prepared {
                    links: Some(arrays),
                    ..delivery.prepare(batch, |_| input_ids, LossWeight::OfBatch(1.0))?
                })
            });
        }
        partitions.open(loader, &self.store, command.epoch, &until_end)?;
        if let Some(order) = order {
            loader.set_seeds(partitions.seeds_at(&order.positions).into());
            loader.set_batches(order.ends.clone());
        }
        let all = loader.all_batches(command.epoch);
        partitions.check(&all)?;
        let (steps, seeds_per_step) = (all.steps(), all.seeds_per_step());
        let batches = loader.batches(command.epoch, |batches| batches.in_every_step(steps))?;
        self.deliver_each(&batches, command, |delivery, batch| {
            let (index, partitions) = (batch.index(), &delivery.partitions);
            let loss_weight = partitions.loss_weight(&batches, &batch, seeds_per_step);
            let positions = order.map(|order| &order.positions[..]);
            delivery.prepare(
                batch,
                |neighborhood| partitions.input_ids(&batches, index, &neighborhood.numbers, positions),
                loss_weight,
            )
        })
    }

    fn deliver_each<S: BatchSource>(
        &self,
        batches: &Arc<S>,
        command: &Command,
        mut prepare: impl FnMut(&Self, Batch) -> Result<Prepared, grappa_engine::Error>,
    ) -> Result<(), grappa_engine::Error> {
        let arriving = self.loader.deliver(batches);
        arriving.hold_while_waiting(LEASES_MAX as u64);
        {
            let mut end = lock(&command.end);
            if end.is_ended {
                return Ok(());
            }
            end.stopper = Some(arriving.stopper());
        }
        for batch in arriving {
            let prepared = prepare(self, batch?)?;
            if command.batches.send(Ok(Some(prepared))).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// A batch of nodes.
    fn prepare(
        &self,
        batch: Batch,
        input_ids: impl FnOnce(&Neighborhood) -> Vec<i64>,
        loss_weight: LossWeight,
    ) -> Result<Prepared, grappa_engine::Error> {
        let minibatch = batch.minibatch();
        let labelled = if self.labels_all { &minibatch.nodes[..] } else { &minibatch.nodes[..minibatch.seeds] };
        let labels = self.labels.as_ref().map(|labels| labels.read(&self.store, labelled));
        let neighborhood = Neighborhood::new(&self.store, minibatch, &self.layout)?;
        Ok(Prepared {
            input_ids: input_ids(&neighborhood),
            positions: self.by_position.then(|| positions_of(&minibatch.nodes)).transpose()?,
            loss_weight,
            neighborhood,
            labels: labels.transpose()?,
            links: None,
            batch,
        })
    }
}

/// The batches of an epoch.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Batches {
    epoch: OfProcess<EndsWhenDropped>,
    /// Whether the last batch, or an error, was taken.
    is_finished: AtomicBool,
    leases: Arc<Leases>,
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        loop {
            match self.receive(py, INTERVAL)? {
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                received => return self.take(py, received),
            }
        }
    }

    /// The next batch, if there is one and it needs no waiting.
    fn ready<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        match self.receive(py, Duration::ZERO)? {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            received => self.take(py, received),
        }
    }
}

impl Batches {
    /// Waits for a batch. Remembers the end of the epoch while the inbox is locked, so that whoever asks next does not miss it.
    fn receive(&self, py: Python<'_>, patience: Duration) -> PyResult<Received> {
        let inbox = &self.epoch.get()?.0.inbox;
        let received = py.detach(|| {
            let inbox = lock(inbox);
            let received = inbox.as_ref()?.recv_timeout(patience);
            if let Ok(Ok(None) | Err(_)) = received {
                self.is_finished.store(true, Ordering::Relaxed);
            }
            Some(received)
        });
        received.ok_or_else(|| PyRuntimeError::new_err(ENDED))
    }

    fn take<'py>(&self, py: Python<'py>, received: Received) -> PyResult<Option<Bound<'py, PyDict>>> {
        match received {
            Ok(delivered) => {
                let prepared = delivered.map_err(exception)?;
                prepared.map(|prepared| prepared.into_dict(py, &self.leases)).transpose()
            }
            Err(_) if self.is_finished.load(Ordering::Relaxed) => Ok(None),
            Err(_) => Err(PyRuntimeError::new_err(PANICKED)),
        }
    }
}

impl Prepared {
    fn into_dict<'py>(self, py: Python<'py>, leases: &Arc<Leases>) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.neighborhood.into_dict(py)?;
        if let Some(positions) = self.positions {
            dict.set_item("positions", Array::vector(positions))?;
        }
        dict.set_item("input_id", Array::vector(self.input_ids))?;
        match self.loss_weight {
            LossWeight::OfBatch(weight) => dict.set_item("loss_weight", weight)?,
            LossWeight::OfSeeds(weights) => dict.set_item("loss_weight", Array::vector(weights))?,
        }
        if let Some(labels) = self.labels {
            dict.set_item("y", labels)?;
        }
        if let Some(links) = self.links {
            links.put(&dict)?;
        }
        for (name, features) in ["x", "x_aggregated"].into_iter().zip(Array::features(self.batch, leases)) {
            dict.set_item(name, features)?;
        }
        Ok(dict)
    }
}
