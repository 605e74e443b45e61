//! The thread of a loader, and the epochs that Python asks it for. Python gets batches through a channel.

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
    Batch, Progress,
    sample::{
        LoaderOptions, Sampler,
        feed::{Division, Epoch, MinibatchOptions, Stopper},
    },
};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use crate::{
    array::{LEASES_MAX, Leases},
    error::exception,
    nodes::Numbers,
    process::OfProcess,
};

/// Batches that are ready while Python uses another one.
const READY_BATCHES: usize = 1;
/// The error of an iterator whose epoch was ended from outside.
const ENDED: &str = "this epoch was ended: its loader was closed, or started another epoch";
/// The error of an epoch whose thread panicked.
const PANICKED: &str = "a thread of this loader panicked; the message is on stderr";
/// How often Python sees Ctrl-C while it waits.
const INTERVAL: Duration = Duration::from_millis(100);

/// The thread of a loader. It ends when this is dropped.
pub struct Running {
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
type Delivered = Result<Option<Box<dyn PreparedBatch>>, grappa_engine::Error>;

/// A batch, or why there is none.
type Received = Result<Delivered, RecvTimeoutError>;

/// An epoch that Python asks for.
pub struct Command {
    pub epoch: u64,
    /// None for the order that the options decide.
    pub order: Option<Order>,
    batches: SyncSender<Delivered>,
    end: Arc<Mutex<EpochEnd>>,
}

/// The order of an epoch.
pub struct Order {
    /// The position of each seed in the list of all seeds.
    pub positions: Vec<i64>,
    /// The end of each batch in it. None if the options divide it.
    pub ends: Option<Vec<u64>>,
}

/// Makes the batches of a loader.
pub trait Deliver: Send {
    /// Number of batches of an epoch, and of seeds or positives of all.
    fn size(&self) -> (u64, u64);

    /// Delivers the batches of an epoch, until there are no more or nobody wants them.
    fn deliver(&mut self, command: &Command) -> Result<(), grappa_engine::Error>;
}

/// A batch that is ready for Python.
pub trait PreparedBatch: Send {
    /// The entries of the batch.
    fn into_dict<'py>(self: Box<Self>, py: Python<'py>, leases: &Arc<Leases>) -> PyResult<Bound<'py, PyDict>>;
}

/// What batches have, and how they are made.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    pub batch_size: usize,
    pub shuffle: bool,
    pub seed: u64,
    pub memory: Option<u64>,
    pub threads: Option<usize>,
    pub features: bool,
    /// `"seeds"`, `"all"`, or None for none.
    pub labels: Option<String>,
    /// Whether all batches but the last one have `batch_size` seeds.
    pub full_batches: bool,
    /// Whether that smaller one is left out.
    pub drop_last: bool,
    /// Whether seeds are positions in the store, and batches have the positions of their nodes, too. In ascending order of positions,
    /// adjacency lists are read front to back.
    pub by_position: bool,
    /// The time of each seed of the list of all seeds, if seeds have times.
    pub seed_times: Option<Numbers>,
}

impl Options {
    /// The options of the engine for minibatches of `sampler`.
    pub fn loading(&self, sampler: Sampler) -> LoaderOptions {
        LoaderOptions::new(MinibatchOptions {
            batch: self.batch_size,
            division: match (self.drop_last, self.full_batches) {
                (true, _) => Division::OnlyFull,
                (false, true) => Division::Full,
                (false, false) => Division::Even,
            },
            seed: self.seed,
            shuffle: self.shuffle,
            ..MinibatchOptions::new(sampler)
        })
    }

    /// Fails if a number is impossible.
    pub fn check(&self) -> PyResult<()> {
        if self.batch_size == 0 {
            return Err(PyValueError::new_err("batch_size is 0; give at least 1"));
        }
        if self.threads == Some(0) {
            return Err(PyValueError::new_err("threads is 0; give at least 1"));
        }
        Ok(())
    }
}

/// The lock of a value that no panic leaves half changed.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Command {
    /// Work before the first batch asks this whether the epoch was ended.
    pub fn until_end(&self) -> impl Progress + '_ {
        UntilEnd(&self.end)
    }

    /// Delivers the batches of `arriving`, each as `prepare` makes it.
    pub fn deliver_each(
        &self,
        arriving: Epoch<'_>,
        mut prepare: impl FnMut(Batch) -> Result<Box<dyn PreparedBatch>, grappa_engine::Error>,
    ) -> Result<(), grappa_engine::Error> {
        arriving.hold_while_waiting(LEASES_MAX as u64);
        {
            let mut end = lock(&self.end);
            if end.is_ended {
                return Ok(());
            }
            end.stopper = Some(arriving.stopper());
        }
        for batch in arriving {
            let prepared = prepare(batch?)?;
            if self.batches.send(Ok(Some(prepared))).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Running {
    /// Starts the thread that delivers.
    pub fn start(mut delivery: Box<dyn Deliver>) -> PyResult<Self> {
        let (sender, receiver) = channel::<Command>();
        let run = move || {
            for command in receiver {
                let end = delivery.deliver(&command).map(|()| None);
                // Whoever waits may no longer need it.
                let _ = command.batches.send(end);
            }
        };
        let thread = thread::Builder::new().name("grappa-loader".to_owned()).spawn(run);
        let thread = thread.map_err(|source| exception(grappa_engine::Error::Thread { source }))?;
        Ok(Self { commands: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), current: Mutex::default() })
    }

    /// Starts an epoch. An earlier one that is not finished ends.
    pub fn epoch(&self, py: Python<'_>, epoch: u64, order: Option<Order>, leases: &Arc<Leases>) -> PyResult<Batches> {
        py.detach(|| self.end_epoch());
        let (sender, receiver) = sync_channel(READY_BATCHES);
        let current = EpochInProgress { inbox: Inbox::new(Mutex::new(Some(receiver))), end: Arc::default() };
        let command = Command { epoch, order, batches: sender, end: current.end.clone() };
        let sent = match &*lock(&self.commands) {
            Some(commands) => commands.send(command).map_err(|_| PANICKED),
            None => Err("this loader is closed"),
        };
        sent.map_err(PyRuntimeError::new_err)?;
        *lock(&self.current) = current.clone();
        Ok(Batches {
            epoch: OfProcess::new(EndsWhenDropped(current)),
            is_finished: AtomicBool::new(false),
            leases: leases.clone(),
        })
    }

    /// Ends the thread.
    pub fn end(&self) {
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
