//! The times of seeds.

use std::sync::Arc;

use grappa_io::{Error, Result, text::printable};
use grappa_storage::{Graph, NodeTimes};

use super::open::Loader;
use crate::{feed::Part, partition::SeedNodes};

/// The times of the seeds of open partitions, in the unit of the store.
#[derive(Debug, Clone)]
pub enum SeedTimes {
    /// Each seed has the time of its node.
    Own,
    /// All seeds have this time.
    At(i64),
    /// One for each seed of the only partition, in their order.
    Listed(Arc<Vec<i64>>),
}

impl Loader {
    /// Gives the seeds of the open partitions that this worker serves their times.
    ///
    /// # Errors
    /// With [`SeedTimes::Own`], if the nodes of the type of a seed have no times, or a file is damaged.
    ///
    /// # Panics
    /// With [`SeedTimes::Listed`], if several partitions are open, another worker serves the one, or there are not as many times as seeds.
    pub fn set_seed_times(&mut self, times: SeedTimes) -> Result<()> {
        let graph = self.graph.clone();
        let each: &dyn Fn(&SeedNodes) -> Result<Arc<Vec<i64>>> = match times {
            SeedTimes::Own => &|seeds| own_times(&graph, seeds),
            SeedTimes::At(time) => &move |seeds| Ok(Arc::new(vec![time; seeds.len() as usize])),
            SeedTimes::Listed(listed) => {
                let part = self.only_part();
                assert_eq!(listed.len() as u64, part.seeds.len(), "a time for each seed");
                part.times = Some(listed);
                return Ok(());
            }
        };
        for part in self.open.parts.iter_mut().filter_map(Part::served_mut) {
            part.times = Some(each(&part.seeds)?);
        }
        Ok(())
    }
}

/// The own time of each of some seeds.
///
/// # Errors
/// If the nodes of the type of a seed have no times, or a file is damaged.
pub(super) fn own_times(graph: &Graph, seeds: &SeedNodes) -> Result<Arc<Vec<i64>>> {
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
