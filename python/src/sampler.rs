//! Neighborhoods of given nodes, sampled in the calling thread.

use std::sync::{Arc, Mutex, PoisonError};

use grappa_engine::{
    Minibatch, PartitionId, Store as EngineStore,
    sample::{
        BatchKey, LoaderOptions, Sampler as EngineSampler, Scratch,
        feed::MinibatchOptions,
        partition::Owned,
        policy::LISTS,
        view::{Halo, PartitionView, ViewOptions},
    },
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    error::exception,
    layout::{Drawing, Layout, Neighborhood},
    nodes::{Numbers, nodes_of},
    store::Store,
};

/// Samples neighborhoods of the nodes that it is given. It has no threads, so it can be used after a fork.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Sampler {
    store: Arc<EngineStore>,
    view: PartitionView,
    sampler: EngineSampler,
    layout: Layout,
    buffers: Mutex<(Scratch, Minibatch)>,
}

#[pymethods]
impl Sampler {
    #[new]
    fn new(py: Python<'_>, store: &Store, drawing: Drawing, memory: Option<u64>) -> PyResult<Self> {
        let store = store.engine().clone();
        py.detach(|| {
            let (sampler, layout) = drawing.open(&store, 1)?;
            let defaults = LoaderOptions::new(MinibatchOptions::new(sampler.clone()));
            let memory = memory.unwrap_or(defaults.memory);
            let owned = Owned::whole(&store);
            let edge_data = sampler.edge_data();
            let bytes = PartitionView::bytes_in_memory(&store, &owned, Halo::default(), edge_data);
            let mapped_bytes_max = (bytes > memory).then_some(LISTS.bytes(memory));
            let options =
                ViewOptions { edge_data, mapped_bytes_max, threads: defaults.threads, ..ViewOptions::default() };
            let view = PartitionView::open(&store, owned, &options).map_err(exception)?;
            Ok(Self { store, view, sampler, layout, buffers: Mutex::default() })
        })
    }

    /// The neighborhood of `seeds`. The same `key` draws the same neighbors.
    fn sample<'py>(&self, py: Python<'py>, seeds: Numbers, key: u64) -> PyResult<Bound<'py, PyDict>> {
        let neighborhood = py.detach(|| {
            let seeds = nodes_of(&self.store, &seeds.0)?;
            let key = BatchKey { seed: key, epoch: 0, partition: PartitionId(0), batch: 0 };
            let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let (scratch, minibatch) = &mut *buffers;
            self.sampler
                .sample(&self.view, &seeds, key, scratch, minibatch)
                .and_then(|()| Neighborhood::new(&self.store, minibatch, &self.layout))
                .map_err(exception)
        })?;
        neighborhood.into_dict(py)
    }
}
