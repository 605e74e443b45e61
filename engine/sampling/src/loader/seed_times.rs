//! The times of seeds that are their own.

use std::sync::Arc;

use grappa_io::{Error, Result, text::printable};
use grappa_storage::NodeTimes;

use super::open::Loader;
use crate::partition::SeedNodes;

impl Loader {
    /// The own time of each seed of the open partition, in their order, for [`Loader::set_seed_times`].
    ///
    /// # Errors
    /// If the nodes of the type of a seed have no times, or a file is damaged.
    ///
    /// # Panics
    /// If several partitions are open, or another worker serves the one.
    pub fn own_seed_times(&self) -> Result<Arc<Vec<i64>>> {
        let mut served = self.served();
        let (Some(part), None) = (served.next(), served.next()) else { panic!("seeds of one partition") };
        self.own_times(&part.seeds)
    }

    /// The own time of each of some seeds.
    ///
    /// # Errors
    /// As [`Loader::own_seed_times`].
    pub(super) fn own_times(&self, seeds: &SeedNodes) -> Result<Arc<Vec<i64>>> {
        let graph = &self.graph;
        let types = 0..graph.node_types().len();
        let of_types = types.map(|node_type| graph.node_times(node_type));
        let of_types: Vec<Option<&Arc<NodeTimes>>> = of_types.collect::<Result<_>>()?;
        let times = seeds.iter().map(|seed| {
            let (node_type, node) = graph.positions().locate(seed.0);
            let times = of_types[node_type].ok_or_else(|| {
                let name = printable(&graph.manifest().node_types[node_type].name);
                Error::conflict(
                    format!("seeds are of the type {name}, whose nodes have no times of their own"),
                    "give the seeds a time, or ingest these nodes with --node-time",
                )
            })?;
            Ok(times.time(node))
        });
        times.collect::<Result<Vec<_>>>().map(Arc::new)
    }
}
