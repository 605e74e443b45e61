//! Views that are in memory in turn: the views of one group of partitions, and of the next group, which is loaded
//! meanwhile.
//!
//! ```text
//! group 1   sampled from  freed
//! group 2   loading       sampled from  freed
//! group 3                 loading       sampled from
//! ```
//!
//! So a graph whose adjacency lists exceed memory is read sequentially once an epoch, and not by page faults.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use grappa_formats::NodeId;
use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::Store;

use super::{
    graph_view::{GraphLists, GraphView},
    halo_lists::HaloLists,
    kind::ViewKind,
    opened::{PartitionView, ViewOptions},
    spare::SpareArenas,
};
use crate::{partition::Owned, shape::GraphShape};

/// The number of groups that are in memory: one is sampled from, one is loaded.
const GROUPS_IN_MEMORY: usize = 2;

/// The views of the partitions that a worker serves, in groups. At most two groups are in memory.
#[derive(Debug)]
pub struct Turns {
    store: Arc<Store>,
    /// The partitions of each group. A group may have none: then other workers serve all of it.
    groups: Vec<Vec<Owned>>,
    options: ViewOptions,
    /// The adjacency lists of halo nodes, if they have any.
    halo_lists: OnceLock<Arc<HaloLists>>,
    /// The memory of groups that were freed.
    spare: Arc<SpareArenas>,
    state: Mutex<State>,
    /// Notified when a group was loaded, or nobody loads it any more.
    changed: Condvar,
    /// The epoch ends early, so loading is in vain.
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<usize, Group>,
    /// The groups of the epoch that are not finished, in order, and the number of their batches that were not sampled.
    queue: Vec<(usize, u64)>,
    /// The threads that load groups ahead: usually one.
    loaders: Vec<JoinHandle<()>>,
}

/// The place of a partition in [`Turns`].
#[derive(Debug, Clone, Copy)]
pub struct TurnPlace {
    /// The group.
    pub group: usize,
    /// The index in the group.
    pub index: usize,
}

/// An epoch over views in turn. When it is dropped, the epoch has ended, and nothing is being loaded.
#[derive(Debug)]
pub struct TurnsEpoch(Arc<Turns>);

impl TurnsEpoch {
    /// The epoch ends early. Wakes the threads that wait for views.
    pub fn stop(&self) {
        let _state = self.0.lock();
        self.0.stopped.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl Drop for TurnsEpoch {
    fn drop(&mut self) {
        let loaders = {
            let mut state = self.0.lock();
            state.queue.clear();
            mem::take(&mut state.loaders)
        };
        for loader in loaders {
            // A panic while it loaded is found again by the thread that needs the views.
            let _ = loader.join();
        }
        self.0.stopped.store(false, Ordering::Relaxed);
    }
}

/// A group in memory.
#[derive(Debug)]
enum Group {
    Loading,
    Open(Vec<Arc<PartitionView>>),
}

impl Turns {
    /// Opens no view yet. `groups` has the partitions of each group.
    pub fn new(store: &Arc<Store>, groups: Vec<Vec<Owned>>, options: ViewOptions) -> Self {
        Self {
            store: store.clone(),
            groups,
            halo_lists: options.halo_lists.clone().map(OnceLock::from).unwrap_or_default(),
            options,
            spare: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        }
    }

    /// The largest sum of `bytes_of` over the views that are in memory at a time: two groups.
    pub fn bytes_of(groups: &[Vec<Owned>], bytes_of: impl Fn(&Owned) -> u64) -> u64 {
        let mut groups: Vec<u64> = groups.iter().map(|group| group.iter().map(&bytes_of).sum()).collect();
        groups.sort_unstable_by(|a, b| b.cmp(a));
        groups.iter().take(GROUPS_IN_MEMORY).sum()
    }

    /// Bytes of memory that the views take at most.
    pub fn bytes(&self) -> u64 {
        let (halo, edge_data) = (self.options.halo, self.options.edge_data);
        Self::bytes_of(&self.groups, |owned| PartitionView::bytes_in_memory(&self.store, owned, halo, edge_data))
    }

    /// The number of groups that are in memory or being loaded.
    #[cfg(test)]
    pub(crate) fn groups_in_memory(&self) -> usize {
        self.lock().groups.len()
    }

    /// Gives halo nodes adjacency lists, unless they have some. To be called before the first epoch.
    pub fn set_halo_lists(&self, lists: Arc<HaloLists>) {
        // A group that was opened to measure has none.
        self.lock().groups.clear();
        self.halo_lists.get_or_init(|| lists);
    }

    /// Begins an epoch. `order` has its groups, in order, each with the number of its batches.
    pub fn begin(self: &Arc<Self>, order: Vec<(usize, u64)>) -> TurnsEpoch {
        self.lock().queue = order;
        TurnsEpoch(self.clone())
    }

    /// A batch of a group was sampled. After the last one its views are freed.
    pub fn sampled(self: &Arc<Self>, group: usize) {
        let mut state = self.lock();
        let Some(at) = state.position(group) else { return };
        let (_, left) = &mut state.queue[at];
        *left -= 1;
        if *left == 0 {
            state.queue.remove(at);
            // The last one stays: the next epoch may begin with it.
            if !state.queue.is_empty() {
                state.groups.remove(&group);
                self.load_ahead(&mut state);
            }
            self.changed.notify_all();
        }
    }

    /// Frees the memory of all views. They are loaded again when they are needed. To be called between epochs.
    pub fn free(&self) {
        self.lock().groups.clear();
        self.spare.clear();
    }

    /// The view of a partition. Waits until its group is in memory, and loads it if nobody does.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or the epoch was stopped.
    pub fn view(self: &Arc<Self>, partition: TurnPlace) -> Result<Arc<PartitionView>> {
        let wanted = partition.group;
        let mut state = self.lock();
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            // Workers that are ahead of others wait, so that no third group is in memory.
            let is_early = state.position(wanted).is_some_and(|at| at >= GROUPS_IN_MEMORY);
            match state.groups.get(&wanted) {
                Some(Group::Open(views)) => {
                    let view = views[partition.index].clone();
                    self.load_ahead(&mut state);
                    return Ok(view);
                }
                None if !is_early => {
                    state.make_room(wanted);
                    state.groups.insert(wanted, Group::Loading);
                    drop(state);
                    self.load(wanted)?;
                    state = self.lock();
                }
                Some(Group::Loading) | None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Starts to load the second group of the queue. The first one is loaded by the thread that samples from it.
    fn load_ahead(self: &Arc<Self>, state: &mut State) {
        let Some(&(next, _)) = state.queue.get(1) else { return };
        if state.groups.contains_key(&next) {
            return;
        }
        state.make_room(next);
        let turns = self.clone();
        let spawned = thread::Builder::new().name("view-loader".to_owned()).spawn(move || {
            // The thread that needs the views meets the error again.
            if let Err(error) = turns.load(next) {
                tracing::debug!(%error, group = next, "could not load views ahead");
            }
        });
        // Without a thread, the views are loaded when they are needed.
        if let Ok(thread) = spawned {
            state.groups.insert(next, Group::Loading);
            // The one before may still be at work, if the first group ended before it.
            state.loaders.retain(|loader| !loader.is_finished());
            state.loaders.push(thread);
        }
    }

    /// Loads a group that is marked as being loaded. If that fails, the mark is removed.
    fn load(&self, group: usize) -> Result<()> {
        let begin = Instant::now();
        let unmark = Unmark { turns: self, group };
        let progress = UntilStopped(&self.stopped);
        let options = ViewOptions { halo_lists: self.halo_lists.get().cloned(), ..self.options.clone() };
        let owned = self.groups[group].clone();
        let views =
            PartitionView::open_all(&self.store, owned, &options, &Arc::default(), Some(&self.spare), &progress)?;
        tracing::debug!(group, seconds = begin.elapsed().as_secs_f64(), "loaded views");
        mem::forget(unmark);
        self.lock().groups.insert(group, Group::Open(views));
        self.changed.notify_all();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn position(&self, group: usize) -> Option<usize> {
        self.queue.iter().position(|&(queued, _)| queued == group)
    }

    /// Frees the groups that are not needed now or next, to load `wanted`.
    fn make_room(&mut self, wanted: usize) {
        let Self { queue, groups, .. } = self;
        let soon = &queue[..queue.len().min(GROUPS_IN_MEMORY)];
        groups.retain(|&group, state| {
            let is_soon = group == wanted || soon.iter().any(|&(queued, _)| queued == group);
            is_soon || matches!(state, Group::Loading)
        });
    }
}

/// Removes the mark of a group that could not be loaded.
struct Unmark<'a> {
    turns: &'a Turns,
    group: usize,
}

impl Drop for Unmark<'_> {
    fn drop(&mut self) {
        self.turns.lock().groups.remove(&self.group);
        self.turns.changed.notify_all();
    }
}

/// Stops loading when the epoch ends early.
struct UntilStopped<'a>(&'a AtomicBool);

impl Progress for UntilStopped<'_> {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {}

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The view of a partition: open, or in memory when its turn comes.
#[derive(Debug, Clone)]
pub enum ViewSource {
    /// An open view.
    Open(Arc<PartitionView>),
    /// The view of a partition of [`Turns`].
    InTurn(Arc<Turns>, TurnPlace),
    /// An open view of a graph with types.
    Graph(Arc<GraphView>),
}

impl ViewSource {
    /// The view. If its turn has not come, waits until it is loaded.
    ///
    /// # Errors
    /// As [`Turns::view`], and if the graph has types.
    pub fn get(&self) -> Result<Arc<PartitionView>> {
        match self.open()? {
            OpenView::Store(view, _) => Ok(view),
            OpenView::Graph(_) => Err(Error::conflict(
                "the graph has types, and one relation is needed",
                "sample a graph with one node type and one relation",
            )),
        }
    }

    /// The same view, open all the time. If its turn has not come, waits until it is loaded.
    ///
    /// # Errors
    /// As [`Turns::view`].
    pub fn waited(&self) -> Result<Self> {
        match self {
            Self::InTurn(..) => self.get().map(Self::Open),
            Self::Open(_) | Self::Graph(_) => Ok(self.clone()),
        }
    }

    /// The view, also of a graph with types. If its turn has not come, waits until it is loaded.
    ///
    /// # Errors
    /// As [`Turns::view`].
    pub fn open(&self) -> Result<OpenView> {
        let untyped = |view: Arc<PartitionView>| {
            let shape = GraphShape::untyped(view.nodes());
            OpenView::Store(view, shape)
        };
        match self {
            Self::Open(view) => Ok(untyped(view.clone())),
            Self::InTurn(turns, partition) => turns.view(*partition).map(untyped),
            Self::Graph(view) => Ok(OpenView::Graph(view.clone())),
        }
    }

    /// The nodes that can be expanded, or their positions.
    pub fn owned(&self) -> &Owned {
        match self {
            Self::Open(view) => view.owned(),
            Self::InTurn(turns, partition) => &turns.groups[partition.group][partition.index],
            Self::Graph(view) => view.owned(),
        }
    }

    /// The shape of the graph.
    pub fn shape(&self) -> GraphShape {
        match self {
            Self::Open(view) => GraphShape::untyped(view.nodes()),
            Self::InTurn(turns, _) => GraphShape::untyped(turns.store.manifest().nodes),
            Self::Graph(view) => view.lists().shape.clone(),
        }
    }

    /// Where the adjacency lists are: [`ViewKind::Memory`], [`ViewKind::InTurn`] or [`ViewKind::Mapped`].
    pub fn kind(&self) -> ViewKind {
        match self {
            Self::Open(view) => view.kind(),
            Self::InTurn(..) => ViewKind::InTurn,
            Self::Graph(view) => view.kind(),
        }
    }
}

/// A view that is open while minibatches are sampled.
#[derive(Debug)]
pub enum OpenView {
    /// The view of a store, and its shape as a graph.
    Store(Arc<PartitionView>, GraphShape),
    /// The view of a graph with types.
    Graph(Arc<GraphView>),
}

impl OpenView {
    /// The relations, as samplers read them.
    pub(crate) fn lists(&self) -> GraphLists<'_> {
        match self {
            Self::Store(view, shape) => GraphLists { shape, views: vec![view] },
            Self::Graph(view) => view.lists(),
        }
    }

    /// The node at a position, and its type. In a store, the position is the node; whether there is one is not checked.
    #[inline]
    pub fn locate(&self, position: NodeId) -> (usize, NodeId) {
        match self {
            Self::Store(..) => (0, position),
            Self::Graph(view) => view.positions().locate(position.0),
        }
    }

    /// Fails if the partition does not own the node at a position.
    ///
    /// # Errors
    /// If there is such a node, and another partition owns it.
    pub(crate) fn check_seed(&self, position: NodeId) -> Result<()> {
        let (owned, nodes) = match self {
            Self::Store(view, _) => (view.owned(), view.nodes()),
            Self::Graph(view) => (view.owned(), view.nodes()),
        };
        owned.check_seed(position, nodes)
    }
}
