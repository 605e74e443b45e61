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
    /// For each partition that this worker serves, one for each seed, in the order of the seeds.
    Listed(Vec<Arc<Vec<i64>>>),
}

impl Loader {
    /// Gives the seeds of the open partitions that this worker serves their times.
    ///
    /// # Errors
    /// With [`SeedTimes::Own`], if the nodes of the type of a seed have no times, or a file is damaged.
    ///
    /// # Panics
    /// With [`SeedTimes::Listed`], if there are not as many times as seeds.
    pub fn set_seed_times(&mut self, times: SeedTimes) -> Result<()> {
        let parts: Vec<_> = self.open.parts.iter_mut().filter_map(Part::served_mut).collect();
        let listed = match times {
            SeedTimes::Own => {
                parts.iter().map(|part| own_times(&self.graph, &part.seeds)).collect::<Result<Vec<_>>>()?
            }
            SeedTimes::At(time) => parts.iter().map(|part| Arc::new(vec![time; part.seeds.len() as usize])).collect(),
            SeedTimes::Listed(listed) => listed,
        };
        assert_eq!(listed.len(), parts.len(), "the times of each partition");
        for (part, times) in parts.into_iter().zip(listed) {
            assert_eq!(times.len() as u64, part.seeds.len(), "a time for each seed");
            part.times = Some(times);
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
