//! Minibatches for Python. A thread owns the loader of the engine; Python gets its batches through a channel.

use std::{
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use grappa_engine::{
    Batch, Loader as EngineLoader, Progress, Silent, Store as EngineStore,
    sample::{Fanouts, Join, LoaderOptions, Sampler, Seeds, feed::Stopper},
};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use crate::{
    array::{Array, LEASES_MAX, Leases},
    error::exception,
    labels::Labels,
    layout::CooEdges,
    nodes::{nodes_at, nodes_of, numbers_of, positions_of},
    partitions::{PartitionOptions, Partitions},
    store::Store,
};

/// Batches that are ready while Python uses another one.
const READY_BATCHES: usize = 1;
/// The error of an iterator whose epoch was ended from outside.
const ENDED: &str = "this epoch was ended: its loader was closed, or started another epoch";
/// How often Python sees Ctrl-C while it waits.
const INTERVAL: Duration = Duration::from_millis(100);

/// The memory of a loader that is given none, in bytes: half of the free memory.
#[pyfunction]
pub fn default_memory() -> PyResult<u64> {
    let fanouts = Fanouts::new(&[1]).map_err(exception)?;
    Ok(LoaderOptions::new(Sampler::uniform(fanouts, false)).memory)
}

/// Samples minibatches of a store on threads of its own.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Loader {
    /// None after the thread was told to end.
    commands: Mutex<Option<Sender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    batches: u64,
    seeds: u64,
    process: u32,
    leases: Arc<Leases>,
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
type Inbox = Arc<Mutex<Option<Receiver<Result<Prepared, grappa_engine::Error>>>>>;

/// An epoch to deliver.
struct Command {
    epoch: u64,
    batches: SyncSender<Result<Prepared, grappa_engine::Error>>,
    end: Arc<Mutex<EpochEnd>>,
}

/// A batch as Python gets it.
struct Prepared {
    batch: Batch,
    edges: CooEdges,
    numbers: Vec<i64>,
    positions: Option<Vec<i64>>,
    input_ids: Vec<i64>,
    labels: Option<Array>,
    /// The factor for the mean loss of its seeds.
    loss_weight: f64,
}

/// What the thread needs.
struct Delivery {
    store: Arc<EngineStore>,
    loader: EngineLoader,
    partitions: Partitions,
    labels: Option<Arc<Labels>>,
    /// Whether batches have the labels of all nodes, not only those of seeds.
    labels_all: bool,
    /// Whether batches have the positions of their nodes in the store, too.
    by_position: bool,
}

#[pymethods]
impl Loader {
    /// With `by_position`, seeds are positions in the store, and batches have the positions of their nodes, too. In ascending order of
    /// positions, adjacency lists are read front to back.
    #[new]
    #[pyo3(signature = (
        store, fanouts, batch_size, seeds, *, memory, threads, shuffle, replace, seed, labels_all, partitions, features=true,
        by_position=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "the package names them")]
    fn new(
        py: Python<'_>,
        store: &Store,
        fanouts: Vec<i64>,
        batch_size: usize,
        seeds: Option<Vec<i64>>,
        memory: Option<u64>,
        threads: Option<usize>,
        shuffle: bool,
        replace: bool,
        seed: u64,
        labels_all: bool,
        partitions: PartitionOptions,
        features: bool,
        by_position: bool,
    ) -> PyResult<Self> {
        if batch_size == 0 {
            return Err(PyValueError::new_err("batch_size is 0; give at least 1"));
        }
        let labels = py.detach(|| store.mapped_labels())?;
        let store = store.engine().clone();
        let fanouts = Fanouts::new(&fanouts).map_err(exception)?;
        let sampler = Sampler::uniform(fanouts, replace).drawing_once();
        let mut options = LoaderOptions::new(sampler);
        options.features = features && store.manifest().features.is_some();
        (options.batch, options.shuffle, options.seed) = (batch_size, shuffle, seed);
        options.join_steps = Some(Join::Apart);
        partitions.apply(&mut options)?;
        options.memory = memory.unwrap_or(options.memory);
        options.threads = threads.unwrap_or(options.threads);
        let open = || -> PyResult<_> {
            let seeds = match seeds {
                None => Seeds::All,
                Some(positions) if by_position => Seeds::List(nodes_at(&store, &positions)?.into()),
                Some(numbers) => Seeds::List(nodes_of(&store, &numbers)?.into()),
            };
            let mut loader = EngineLoader::new(&store, options);
            let mut partitions = Partitions::new(partitions, seeds, seed);
            partitions.open(&mut loader, &store, 0, &Silent).map_err(exception)?;
            partitions.check(&loader.all_batches(0))?;
            Ok(Delivery {
                store,
                loader,
                partitions,
                labels,
                labels_all,
                by_position,
            })
        };
        let delivery = py.detach(open)?;
        let all = delivery.loader.all_batches(0);
        let (batches, seeds) = (all.steps(), all.seeds_of_all());
        let (sender, receiver) = channel();
        let thread = thread::Builder::new()
            .name("grappa-loader".to_owned())
            .spawn(move || delivery.run(&receiver))
            .map_err(|source| exception(grappa_engine::Error::Thread { source }))?;
        Ok(Self {
            commands: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            batches,
            seeds,
            process: process::id(),
            leases: Arc::default(),
            current: Mutex::default(),
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

    /// Starts an epoch. An earlier one that is not finished ends.
    fn epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<Batches> {
        if self.process != process::id() {
            return Err(PyRuntimeError::new_err(
                "this loader was made before a fork, and its threads are in the other process; start processes with the \
                 method \"spawn\", or make the loader after the fork",
            ));
        }
        py.detach(|| self.end_epoch());
        let (sender, receiver) = sync_channel(READY_BATCHES);
        let current = EpochInProgress {
            inbox: Inbox::new(Mutex::new(Some(receiver))),
            end: Arc::default(),
        };
        let command = Command {
            epoch,
            batches: sender,
            end: current.end.clone(),
        };
        let commands = lock(&self.commands);
        let sent = commands.as_ref().is_some_and(|commands| commands.send(command).is_ok());
        if !sent {
            return Err(PyRuntimeError::new_err("this loader is closed"));
        }
        let inbox = current.inbox.clone();
        *lock(&self.current) = current;
        Ok(Batches {
            inbox,
            leases: self.leases.clone(),
        })
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }
}

/// The lock of a value that no panic leaves half changed.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loader {
    fn end(&self) {
        // Threads of a process that was forked do not exist in the other one.
        if self.process != process::id() {
            return;
        }
        drop(lock(&self.commands).take());
        self.end_epoch();
        let thread = lock(&self.thread).take();
        // A panic was shown when it happened.
        thread.map(JoinHandle::join);
    }

    /// Ends the epoch in progress: the thread finds that nobody takes its batches.
    fn end_epoch(&self) {
        let EpochInProgress { inbox, end } = lock(&self.current).clone();
        drop(lock(&inbox).take());
        let mut end = lock(&end);
        end.is_ended = true;
        // It may wait for memory that Python has.
        if let Some(stopper) = end.stopper.take() {
            stopper.stop();
        }
    }
}

impl Drop for Loader {
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
    /// Delivers epochs until the loader is dropped.
    fn run(mut self, commands: &Receiver<Command>) {
        for command in commands {
            if let Err(error) = self.deliver(&command) {
                // Whoever waits no longer needs the error.
                let _ = command.batches.send(Err(error));
            }
        }
    }

    /// Delivers the batches of an epoch, until there are no more or nobody wants them.
    fn deliver(&mut self, command: &Command) -> Result<(), grappa_engine::Error> {
        let Self {
            store,
            loader,
            partitions,
            labels,
            labels_all,
            by_position,
        } = self;
        partitions.open(loader, store, command.epoch, &UntilEnd(&command.end))?;
        let all = loader.all_batches(command.epoch);
        let (steps, seeds_per_step) = (all.steps(), all.seeds_per_step());
        let batches = loader.batches(command.epoch, |batches| batches.in_every_step(steps))?;
        let arriving = loader.deliver(&batches);
        arriving.hold_while_waiting(LEASES_MAX as u64);
        {
            let mut end = lock(&command.end);
            if end.is_ended {
                return Ok(());
            }
            end.stopper = Some(arriving.stopper());
        }
        for batch in arriving {
            let batch = batch?;
            let index = batch.index();
            let minibatch = batch.minibatch();
            let labelled = match labels_all {
                true => &minibatch.nodes[..],
                false => &minibatch.nodes[..minibatch.seeds],
            };
            let numbers = numbers_of(store, &minibatch.nodes)?;
            let prepared = Prepared {
                edges: CooEdges::of(minibatch),
                input_ids: partitions.input_ids(&batches, index, &numbers),
                numbers,
                positions: by_position.then(|| positions_of(&minibatch.nodes)),
                loss_weight: partitions.loss_weight(&batches, index, seeds_per_step),
                labels: labels.as_ref().map(|labels| labels.of(store, labelled)).transpose()?,
                batch,
            };
            if command.batches.send(Ok(prepared)).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// The batches of an epoch.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Batches {
    inbox: Inbox,
    leases: Arc<Leases>,
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let prepared = loop {
            let received = py.detach(|| Some(lock(&self.inbox).as_ref()?.recv_timeout(INTERVAL)));
            match received.ok_or_else(|| PyRuntimeError::new_err(ENDED))? {
                Ok(prepared) => break prepared.map_err(exception)?,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        };
        prepared.into_dict(py, &self.leases).map(Some)
    }
}

impl Prepared {
    fn into_dict<'py>(self, py: Python<'py>, leases: &Arc<Leases>) -> PyResult<Bound<'py, PyDict>> {
        let Self {
            batch,
            edges,
            numbers,
            positions,
            input_ids,
            labels,
            loss_weight,
        } = self;
        let dict = PyDict::new(py);
        let (nodes, seeds) = (numbers.len(), input_ids.len());
        dict.set_item("n_id", Array::i64s(numbers, &[nodes]))?;
        if let Some(positions) = positions {
            dict.set_item("positions", Array::i64s(positions, &[nodes]))?;
        }
        dict.set_item("input_id", Array::i64s(input_ids, &[seeds]))?;
        dict.set_item("batch_size", seeds)?;
        dict.set_item("loss_weight", loss_weight)?;
        dict.set_item("edge_index", Array::i64s(edges.edge_index, &[2, edges.edges]))?;
        dict.set_item("num_sampled_nodes", edges.nodes_of_hops)?;
        dict.set_item("num_sampled_edges", edges.edges_of_hops)?;
        if let Some(labels) = labels {
            dict.set_item("y", labels)?;
        }
        if let Some(features) = Array::features(batch, leases) {
            dict.set_item("x", features)?;
        }
        Ok(dict)
    }
}
